#include "tools/tensorboard/event_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "mps/core/types/error.hpp"
#include "mps/weights/atomic_file.hpp"
#include "mps/weights/interrupted_call.hpp"
#include "tools/tensorboard/crc32c.hpp"

namespace unmetal {
namespace {

template <class Number>
std::string littleEndian(Number number) {
  static_assert(std::endian::native == std::endian::little, "numbers of records are little endian");
  std::string bytes(sizeof(Number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(Number));
  return bytes;
}

}  // namespace

std::string recordOf(std::string_view bytes) {
  const std::string length = littleEndian(static_cast<std::uint64_t>(bytes.size()));
  std::string record = length + littleEndian(maskedCrc32c(length));
  record += bytes;
  return record + littleEndian(maskedCrc32c(bytes));
}

EventFile::EventFile(const std::filesystem::path& path) : name_(path.string()) {
  mps::writeFile(path, "");
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) fail(errno);
}

EventFile::~EventFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void EventFile::append(std::string_view event) {
  const std::string record = recordOf(event);
  struct stat before {};
  if (::fstat(descriptor_, &before) != 0) fail(errno);
  const ssize_t written =
      mps::repeatWhileInterrupted([&] { return ::write(descriptor_, record.data(), record.size()); });
  if (written == static_cast<ssize_t>(record.size())) return;
  const int errorNumber = written < 0 ? errno : ENOSPC;
  if (written > 0 && ::ftruncate(descriptor_, before.st_size) != 0) fail(errno);
  fail(errorNumber);
}

void EventFile::fail(int errorNumber) const {
  throw mps::Error("cannot write " + name_ + ": " + std::generic_category().message(errorNumber));
}

}  // namespace unmetal
