#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace unmetal::train::detail {

/// The file of a picture in a folder of classes.
struct PictureFile {
  std::filesystem::path path;
  std::uint32_t label = 0;
};

/// What lies in a folder of pictures, see PictureFolder.
struct FolderContents {
  std::vector<std::string> classNames;
  std::vector<PictureFile> training;
  std::vector<PictureFile> validation;
  /// A sentence for each thing that cannot be used.
  std::vector<std::string> troubles;
};

/// @param validation the share of each class, where the folder has none for it
/// @throws mps::Error for a folder without classes, or with too many
FolderContents scanFolder(const std::filesystem::path& folder, double validation);

}  // namespace unmetal::train::detail
