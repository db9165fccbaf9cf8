#include "tools/training/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <system_error>

#include "mps/core/types/error.hpp"

namespace unmetal {
namespace {

/// " (process 1234)", or nothing when the file does not say it.
std::string ownerOf(int descriptor) {
  std::array<char, 16> text{};
  const ssize_t length = ::pread(descriptor, text.data(), text.size(), 0);
  if (length <= 0) return {};
  const std::string number(text.data(), static_cast<std::size_t>(length));
  const auto end = number.find_first_not_of("0123456789");
  return end == 0 ? std::string() : " (process " + number.substr(0, end) + ")";
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder) : path_(folder / ".lock") {
  const auto failure = [&](int errorNumber) {
    return mps::Error("cannot write " + path_.string() + ": " + std::generic_category().message(errorNumber));
  };
  while (descriptor_ < 0) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (descriptor_ < 0) throw failure(errno);
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      const int errorNumber = errno;
      const std::string owner = ownerOf(descriptor_);
      ::close(descriptor_);
      if (errorNumber != EWOULDBLOCK) throw failure(errorNumber);
      throw mps::Error("another training" + owner + " is at work in the folder " + folder.string() +
                       ": wait for its end, or give another --out");
    }
    // The one before may have removed the file between the two calls: another one has its name by now, or none.
    if (isFile()) break;
    ::close(descriptor_);
    descriptor_ = -1;
  }
  // For the other's sentence alone: on a full disk it says less.
  const std::string owner = std::to_string(::getpid()) + "\n";
  if (::ftruncate(descriptor_, 0) == 0)
    static_cast<void>(::pwrite(descriptor_, owner.data(), owner.size(), 0) == 0);
}

FolderLock::~FolderLock() {
  ::unlink(path_.c_str());
  ::close(descriptor_);
}

/// Whether the locked file is the one with the name.
bool FolderLock::isFile() const {
  struct stat locked {};
  struct stat named {};
  return ::fstat(descriptor_, &locked) == 0 && ::lstat(path_.c_str(), &named) == 0 &&
         locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
}

}  // namespace unmetal
