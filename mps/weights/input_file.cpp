#include "mps/weights/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <system_error>

#include "mps/core/types/error.hpp"

namespace mps {

InputFile::InputFile(const std::filesystem::path& path) : shownName_(path.string()) {
  // Without O_NONBLOCK the open itself would wait for a pipe's other end.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) fail(errno);
  struct stat status {};
  const int result = ::fstat(descriptor, &status);
  const int errorNumber = errno;
  if (result != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    if (result != 0) fail(errorNumber);
    if (S_ISDIR(status.st_mode)) fail(EISDIR);
    throw Error("cannot read " + shownName_ + ": it is not a regular file");
  }
  descriptor_ = descriptor;
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() {
  ::close(descriptor_);
}

void InputFile::read(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t count = checkedCount(::read(descriptor_, bytes.data(), bytes.size()));
    bytes = bytes.subspan(count);
  }
}

void InputFile::readAt(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const std::size_t count =
        checkedCount(::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset)));
    bytes = bytes.subspan(count);
    offset += count;
  }
}

/// Of what a call has read: 0 where it was interrupted.
std::size_t InputFile::checkedCount(std::int64_t count) const {
  if (count < 0) {
    if (errno == EINTR) return 0;
    fail(errno);
  }
  if (count == 0) throw Error("cannot read " + shownName_ + ": it became shorter while it was read");
  return static_cast<std::size_t>(count);
}

void InputFile::fail(int errorNumber) const {
  throw Error("cannot read " + shownName_ + ": " + std::generic_category().message(errorNumber));
}

std::vector<std::byte> readFile(const std::filesystem::path& path, std::uint64_t maximumSize) {
  InputFile file(path);
  if (file.size() > maximumSize) {
    throw Error("cannot read " + path.string() + ": it has " + std::to_string(file.size()) +
                " bytes, more than the " + std::to_string(maximumSize) + " that are allowed here");
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(file.size()));
  file.read(bytes);
  return bytes;
}

}  // namespace mps
