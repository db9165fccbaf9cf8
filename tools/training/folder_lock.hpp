#pragma once

#include <filesystem>

namespace unmetal {

/// Keeps other trainings out of a folder while it lives, by a lock (flock) on the file `.lock` in it, which holds the
/// process's number. It ends with the process however that ends; the destructor removes the file.
class FolderLock {
 public:
  /// @throws mps::Error in one sentence when another training has the folder, or the file cannot be made
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  [[nodiscard]] bool isFile() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace unmetal
