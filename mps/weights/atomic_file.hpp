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
/// The bytes go to a file of the same folder that has no name where the file system can do that, and else is called
/// `<name>.partial-<16 random digits>`; commit() brings them to the disk, gives them such a name and renames that to
/// `name`. Until then, and after any failure, a file that was there before stays byte for byte as it was; the
/// destructor removes what is not committed. A partial file is made anew, never through a link or an old file of that
/// name, and locked (flock) while it is written.
///
/// A symbolic link is followed: the file that it points to is replaced. A name that is a device or a pipe
/// (/dev/stdout) cannot be replaced and is written directly. Of several writers of one name the last one to commit
/// wins.
///
/// Every member function throws mps::Error, one sentence with the name and the trouble, for example
/// "cannot write run/checkpoint.safetensors: No space left on device".
class AtomicFile {
 public:
  /// Opens the partial file and removes those of the same name that killed processes have left. Throws when the folder
  /// is missing or not writable, or `path` is a folder.
  /// @param mayHaveNoName false: it has a name from the beginning, as where the file system wants one
  explicit AtomicFile(const std::filesystem::path& path, bool mayHaveNoName = true);
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

  /// Removes what killed processes have left of files of this name: every `<name>.partial-<letters and digits>` that
  /// nobody has locked. Nothing is thrown.
  static void removeAbandoned(const std::filesystem::path& path);

 private:
  void openPartialFile(bool mayHaveNoName);
  bool openWithoutName();
  bool openWithName();
  void giveName();
  void close() noexcept;
  [[noreturn]] void fail(int errorNumber) const;

  std::string shownName_;
  std::filesystem::path path_;
  std::filesystem::path partialPath_;  // empty while the file has no name
  bool isDirect_ = false;              // written under its own name
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
