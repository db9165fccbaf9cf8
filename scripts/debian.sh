# Sourced by the scripts that take sources or a bare system from Debian; with apt's own mirror, proxy and keys.

mirror() {
  apt-get indextargets --format '$(REPO_URI)' "Created-By: Packages" "Origin: Debian" | head -n 1
}

# debian_source PACKAGE SUITE FOLDER: the unpacked source package of another release, in FOLDER/source; FOLDER is made anew.
debian_source() {
  local folder
  folder=$(realpath -m "$3")
  rm -rf "$folder"
  mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(mirror) $2 main" >"$folder/apt/sources.list"
  local apt=(apt-get --quiet=2 -o Dir::Etc::SourceList="$folder/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::State::Lists="$folder/apt/lists" -o Dir::Cache="$folder/apt/cache" -o APT::Sandbox::User="$(id -un)")
  "${apt[@]}" update
  (cd "$folder" && "${apt[@]}" source --download-only "$1" >/dev/null)
  dpkg-source --no-check --extract "$folder"/*.dsc "$folder/source" >/dev/null
  rm -rf "$folder/apt"
}

# bare_system SUITE FOLDER: a bare Debian in FOLDER, made where there is none, in which `inside COMMAND...` runs from then on.
bare_system() {
  leave_system
  root=$(realpath -m "$2")
  if [ ! -x "$root/usr/bin/apt-get" ]; then
    rm -rf "$root.new"
    debootstrap --variant=minbase "$1" "$root.new" "$(mirror)" >/dev/null
    mv "$root.new" "$root"
  fi
  mount -t proc proc "$root/proc"
  trap leave_system EXIT
  inside apt-get update --quiet=2
}
inside() { chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }
install_inside() { inside apt-get -o Dpkg::Use-Pty=0 install --yes --quiet=2 --no-install-recommends "$@" >/dev/null; }
leave_system() { [ -z "${root:-}" ] || ! mountpoint --quiet "$root/proc" || umount "$root/proc"; }
