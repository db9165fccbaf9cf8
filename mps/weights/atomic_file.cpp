#include "mps/weights/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <system_error>

#include "mps/core/error.hpp"

namespace mps {
namespace {

constexpr std::string_view partialMark = ".partial-";

std::string describeErrorNumber(int errorNumber) {
  return std::generic_category().message(errorNumber);
}

/// True for "<name>.partial-<id>" where no process `id` exists any more.
bool isAbandoned(std::string_view candidate, std::string_view name) {
  if (!candidate.starts_with(name)) return false;
  candidate.remove_prefix(name.size());
  if (!candidate.starts_with(partialMark)) return false;
  candidate.remove_prefix(partialMark.size());
  pid_t process = 0;
  const char* end = candidate.data() + candidate.size();
  const auto parsed = std::from_chars(candidate.data(), end, process);
  if (parsed.ec != std::errc() || parsed.ptr != end || process <= 0) return false;
  return ::kill(process, 0) != 0 && errno == ESRCH;
}

/// Makes a rename durable. Some file systems cannot do this for folders, so a failure is not one of ours.
void synchronizeFolder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

std::filesystem::path folderOf(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path) : shownName_(path.string()), path_(path) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(path_, ignored) && std::filesystem::exists(path_, ignored)) {
    path_ = std::filesystem::canonical(path_, ignored);
  }
  struct stat status {};
  const bool exists = ::stat(path_.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) fail(EISDIR);
  if (exists && !S_ISREG(status.st_mode)) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail(errno);
    return;
  }
  removeAbandonedPartialFiles();
  openPartialFile();
  // The file keeps its permissions; a file system without permissions is no reason to stop.
  if (exists) static_cast<void>(::fchmod(descriptor_, status.st_mode & 07777));
}

AtomicFile::~AtomicFile() {
  close();
  if (!partialPath_.empty()) ::unlink(partialPath_.c_str());
}

void AtomicFile::reserve(std::uint64_t bytes) {
  if (partialPath_.empty() || bytes <= reserved_) return;
  const int result = ::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes));
  if (result == 0)
    reserved_ = bytes;
  else if (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)
    fail(errno);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(errno);
    }
    written_ += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void AtomicFile::commit() {
  if (reserved_ > written_ && ::ftruncate(descriptor_, static_cast<off_t>(written_)) != 0) fail(errno);
  if (!partialPath_.empty() && ::fsync(descriptor_) != 0) fail(errno);
  const int descriptor = descriptor_;
  descriptor_ = -1;
  // Network file systems report a full disk as late as here.
  if (::close(descriptor) != 0 && errno != EINTR) fail(errno);
  if (partialPath_.empty()) return;
  if (::rename(partialPath_.c_str(), path_.c_str()) != 0) fail(errno);
  partialPath_.clear();
  synchronizeFolder(folderOf(path_));
}

void AtomicFile::openPartialFile() {
  std::filesystem::path partial = path_;
  partial += std::string(partialMark) + std::to_string(::getpid());
  // Not through a link that somebody else may have left under this name.
  descriptor_ = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(errno);
  partialPath_ = partial;
}

void AtomicFile::removeAbandonedPartialFiles() const {
  const std::string name = path_.filename().string();
  std::error_code error;
  std::filesystem::directory_iterator entry(folderOf(path_), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (isAbandoned(entry->path().filename().string(), name)) ::unlink(entry->path().c_str());
  }
}

void AtomicFile::close() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void AtomicFile::fail(int errorNumber) const {
  throw Error("cannot write " + shownName_ + ": " + describeErrorNumber(errorNumber));
}

void writeFile(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void makeWritableFolder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error("cannot make the folder " + folder.string() + ": " + error.message());
  if (!std::filesystem::is_directory(folder)) {
    throw Error("cannot make the folder " + folder.string() + ": " + describeErrorNumber(ENOTDIR));
  }
  if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    throw Error("cannot write to the folder " + folder.string() + ": " + describeErrorNumber(errno));
  }
}

}  // namespace mps
