#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace mps {

/// A regular file opened for reading from its start. Every member function throws mps::Error, one sentence
/// with the name and the trouble, for example "cannot read run/a.png: No such file or directory".
class InputFile {
 public:
  /// Throws when the file is missing, not readable or not a regular file (a pipe could block for ever).
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// Bytes in the file when it was opened.
  std::uint64_t size() const { return size_; }
  /// Fills `bytes` with what comes next. Throws when the file ends before.
  void read(std::span<std::byte> bytes);
  /// Fills `bytes` with what lies behind so many bytes, wherever read() stands.
  void readAt(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  [[nodiscard]] std::size_t checkedCount(std::int64_t count) const;
  [[noreturn]] void fail(int errorNumber) const;

  std::string shownName_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// The whole file. Throws mps::Error as InputFile does, and when the file has more than `maximumSize` bytes.
std::vector<std::byte> readFile(const std::filesystem::path& path, std::uint64_t maximumSize);

}  // namespace mps
