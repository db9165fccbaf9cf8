#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace mps {

/// Writes a file that appears under its name whole or not at all.
///
/// The bytes go to `<name>.partial-<process id>` in the same folder; commit() brings them to the disk and
/// renames the partial file over `name`. Until then, and after any failure, a file that was there before
/// stays byte for byte as it was; the partial file is removed by the destructor. Partial files of the same
/// name whose process is gone (it was killed) are removed by the constructor. One writer of one name at a
/// time.
///
/// A symbolic link is followed: the file that it points to is replaced. A name that is a device or a pipe
/// (/dev/stdout) cannot be replaced and is written directly.
///
/// Every member function throws mps::Error, one sentence with the name and the trouble, for example
/// "cannot write run/checkpoint.safetensors: No space left on device".
class AtomicFile {
 public:
  /// Opens the partial file. Throws when the folder is missing or not writable, or `path` is a folder.
  explicit AtomicFile(const std::filesystem::path& path);
  /// Removes the partial file unless commit() has succeeded.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Takes room on the disk for so many bytes in all, so that a full one is noticed before they are made.
  /// Without effect where the file system cannot do it and for what is written directly.
  void reserve(std::uint64_t bytes);
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);

  /// Makes the file visible under its name. Nothing may be written afterwards.
  void commit();

 private:
  void openPartialFile();
  void removeAbandonedPartialFiles() const;
  void close() noexcept;
  [[noreturn]] void fail(int errorNumber) const;

  std::string shownName_;
  std::filesystem::path path_;
  std::filesystem::path partialPath_;  // empty when the file is written directly
  int descriptor_ = -1;
  std::uint64_t written_ = 0;
  std::uint64_t reserved_ = 0;
};

/// AtomicFile, write and commit in one call.
void writeFile(const std::filesystem::path& path, std::string_view text);

/// Makes the folder and its parents where they are missing. Throws mps::Error when it cannot be made, is no
/// folder, or files cannot be created in it.
void makeWritableFolder(const std::filesystem::path& folder);

}  // namespace mps
