#include "mps/weights/atomic_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <system_error>

#include "mps/core/types/error.hpp"
#include "mps/weights/interrupted_call.hpp"

namespace mps {
namespace {

constexpr std::string_view partialMark = ".partial-";
constexpr int mostNames = 100;  // that are tried: they are random

std::string describeErrorNumber(int errorNumber) {
  return std::generic_category().message(errorNumber);
}

/// True for "<name>.partial-<letters and digits>".
bool isPartialName(std::string_view candidate, std::string_view name) {
  if (!candidate.starts_with(name)) return false;
  candidate.remove_prefix(name.size());
  if (!candidate.starts_with(partialMark)) return false;
  candidate.remove_prefix(partialMark.size());
  const auto isPlain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  return !candidate.empty() && std::ranges::all_of(candidate, isPlain);
}

/// Removes a partial file unless somebody has locked it, who writes it.
void removeUnlessLocked(const std::filesystem::path& path) {
  // Network file systems want a writable file for an exclusive lock; a shared one keeps a writer's away just as well.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return;
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
      ::flock(descriptor, LOCK_SH | LOCK_NB) == 0)
    ::unlink(path.c_str());
  ::close(descriptor);
}

/// `path` with a name behind it that nobody can guess. Empty when the system has no random numbers.
std::filesystem::path partialNameOf(const std::filesystem::path& path) {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) return {};
  std::filesystem::path partial = path;
  partial += partialMark;
  constexpr const char* digits = "0123456789abcdef";
  std::string name;
  for (std::size_t i = 0; i < 2 * sizeof random; ++i, random >>= 4U) name += digits[random & 0xFU];
  partial += name;
  return partial;
}

std::string nameInProcess(int descriptor) {
  return "/proc/self/fd/" + std::to_string(descriptor);
}

int synchronize(int descriptor) {
  return repeatWhileInterrupted([descriptor] { return ::fsync(descriptor); });
}

/// Makes a rename durable. Some file systems cannot do this for folders, so a failure is not one of ours.
void synchronizeFolder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  synchronize(descriptor);
  ::close(descriptor);
}

std::filesystem::path folderOf(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path, bool mayHaveNoName)
    : shownName_(path.string()), path_(path) {
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
    isDirect_ = true;
    return;
  }
  removeAbandoned(path_);
  openPartialFile(mayHaveNoName);
  // The file keeps its permissions; a file system without permissions is no reason to stop.
  if (exists) static_cast<void>(::fchmod(descriptor_, status.st_mode & 07777));
}

AtomicFile::~AtomicFile() {
  if (!partialPath_.empty()) ::unlink(partialPath_.c_str());
  close();
}

void AtomicFile::reserve(std::uint64_t bytes) {
  if (isDirect_ || bytes <= reserved_) return;
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
  if (!isDirect_ && synchronize(descriptor_) != 0) fail(errno);
  if (!isDirect_ && partialPath_.empty()) giveName();
  // The lock ends with the last copy of the descriptor: nobody may take the file away before it has its name.
  const int keeper = isDirect_ ? -1 : ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  if (!isDirect_ && keeper < 0) fail(errno);
  const int descriptor = descriptor_;
  descriptor_ = keeper;
  // Network file systems report a full disk as late as here.
  if (::close(descriptor) != 0 && errno != EINTR) fail(errno);
  if (isDirect_) return;
  if (::rename(partialPath_.c_str(), path_.c_str()) != 0) fail(errno);
  partialPath_.clear();
  close();
  synchronizeFolder(folderOf(path_));
}

void AtomicFile::openPartialFile(bool mayHaveNoName) {
  if (mayHaveNoName && openWithoutName()) return;
  for (int i = 0; i < mostNames; ++i)
    if (openWithName()) return;
  fail(EEXIST);
}

/// False where the file system has no such files, or no names could be given to them later.
bool AtomicFile::openWithoutName() {
  const int descriptor = ::open(folderOf(path_).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  if (descriptor < 0) return false;
  if (::access(nameInProcess(descriptor).c_str(), F_OK) != 0) {
    ::close(descriptor);
    return false;
  }
  descriptor_ = descriptor;
  static_cast<void>(
      ::flock(descriptor_, LOCK_EX | LOCK_NB));  // for when it has a name; nobody else can have it now
  return true;
}

/// False when it has to be tried again.
bool AtomicFile::openWithName() {
  const std::filesystem::path partial = partialNameOf(path_);
  if (partial.empty()) fail(errno);
  // Not through a link, and no file that somebody else may have left under this name.
  descriptor_ = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0 && errno == EEXIST) return false;
  if (descriptor_ < 0) fail(errno);
  partialPath_ = partial;
  // Who removes abandoned files may have seen it before it was locked.
  const bool isLocked = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  struct stat status {};
  if (isLocked && ::fstat(descriptor_, &status) == 0 && status.st_nlink > 0) return true;
  ::unlink(partialPath_.c_str());
  partialPath_.clear();
  close();
  return false;
}

void AtomicFile::giveName() {
  const std::string self = nameInProcess(descriptor_);
  for (int i = 0; i < mostNames; ++i) {
    const std::filesystem::path partial = partialNameOf(path_);
    if (partial.empty()) fail(errno);
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, partial.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      partialPath_ = partial;
      return;
    }
    if (errno != EEXIST) fail(errno);
  }
  fail(EEXIST);
}

void AtomicFile::removeAbandoned(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  std::error_code error;
  std::filesystem::directory_iterator entry(folderOf(path), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (isPartialName(entry->path().filename().string(), name)) removeUnlessLocked(entry->path());
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
