#!/usr/bin/env python3
"""Each public header compiles alone: it includes all that it needs.

A header that is some source's first include is proven by the build. The others are compiled here, with the options of
the library's own sources. Most of the time goes to what they include, so some of that is precompiled, as what stands
in front of those headers alone that include all of it themselves.

    check_headers_alone.py BUILD_FOLDER
"""

import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Each group is precompiled. The more a group brings along, the later it stands.
GROUPS = (
    ("memory", "string", "vector"),
    ("mps/core/kernel/kernel_class.hpp",),
    ("mps/core/image/state.hpp",),
    ("mps/core/kernel/cnn_binary_kernel.hpp",),
    ("mps/trainable/optimizer_slots.hpp",),
)


def first_include(source):
    match = re.search(r"^#include (\S+)", source.read_text(), re.MULTILINE)
    return match.group(1).strip('"') if match else None


@functools.cache
def all_includes(header):
    """Public headers include nothing under conditions."""
    if not (ROOT / header).is_file():
        return frozenset()
    direct = re.findall(r'^#include [<"](.+)[>"]', (ROOT / header).read_text(), re.MULTILINE)
    return frozenset(direct).union(*map(all_includes, direct))


def precompile(options, folder, group):
    """The name of what was precompiled; none where that fails: then each header says why by itself."""
    name = folder / f"group{GROUPS.index(group)}.hpp"
    name.write_text("".join(f"#include <{header}>\n" for header in group))
    done = subprocess.run([*options, "-x", "c++-header", str(name), "-o", f"{name}.gch"], capture_output=True)
    return group, name if done.returncode == 0 else None


def compile_alone(options, precompiled, header):
    before = [["-include", str(name)] for group, name in precompiled if name and all_includes(header).issuperset(group)]
    done = subprocess.run([*options, "-fsyntax-only", "-x", "c++", *(before[-1] if before else ()),
                           "-include", str(ROOT / header), "/dev/null"], capture_output=True, text=True)
    return header, done.returncode, done.stderr


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    commands = json.loads((build / "compile_commands.json").read_text())
    sources = {pathlib.Path(command["file"]): command for command in commands}
    proven = {first_include(source) for source in sources
              if source.suffix == ".cpp" and source.is_relative_to(ROOT) and not source.is_relative_to(build)}
    headers = [header for listing in ("public_headers.txt", "train_headers.txt", "conform_headers.txt")
               for header in (build / listing).read_text().split()]
    alone = [header for header in headers if header not in proven]

    command = next(command for command in commands if re.search(r"unmetal\.dir/.*\.c(pp|xx)\.o", command["command"]))
    options = shlex.split(command["command"])
    del options[options.index("-o"):]
    os.chdir(command["directory"])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool, tempfile.TemporaryDirectory() as folder:
        precompiled = list(pool.map(lambda group: precompile(options, pathlib.Path(folder), group), GROUPS))
        results = list(pool.map(lambda header: compile_alone(options, precompiled, header), alone))
    failures = [(header, errors) for header, status, errors in results if status != 0]
    for header, errors in failures:
        print(f"{header} does not compile alone:\n{errors}")
    print(f"{len(headers)} public headers, {len(alone)} of them compiled here, {len(failures)} do not compile alone")
    return 1 if failures or not alone else 0


if __name__ == "__main__":
    sys.exit(main())
