#pragma once

#include <filesystem>
#include <vector>

#include "tools/data/dataset.hpp"

namespace unmetal {

/// Reads a folder of pictures: PNG and JPEG files (names that end in .png, .jpg or .jpeg), one sub-folder per class,
/// with further folders inside or not. Classes and files are in the order of their names; names that begin with a
/// dot and files that are no pictures are passed over. Of each class every n-th picture, as many as the options say, is for
/// validation (Split::Test). All are decoded once, by as many threads as there are processors, and kept in memory.
///
/// Pictures cover the wanted size, see coverPicture(); those for training are augmented as the options say. Memory is
/// taken for pictures that could be decoded alone.
///
/// Throws mps::Error in one sentence for a folder without classes, and for what cannot be used: a damaged or empty
/// picture, one of another kind (.gif, .webp, .bmp, .tif, .heic and such), one beside the class folders, folders more than
/// 32 deep, folders of /proc and /sys, a class without pictures or with a name that is not UTF-8, a link to nothing,
/// to a folder above it or to one that its class has already. With the option skipBad these are left out, each with a
/// sentence in Dataset::leftOut. What is wrong with the folders, not with pictures, is looked at for Split::Training
/// alone.
Dataset loadPictureFolder(const std::filesystem::path& folder, Split split,
                          const PictureFolderOptions& options);

/// The PNG and JPEG files in a folder and in those inside it, by name. @throws mps::Error in one sentence for what
/// loadPictureFolder() would not take, and where there is none
std::vector<std::filesystem::path> picturesIn(const std::filesystem::path& folder);

}  // namespace unmetal
