#include "train/pictures/folder_scan.hpp"

#include <linux/magic.h>
#include <sys/vfs.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>

#include "mps/core/types/error.hpp"
#include "train/pictures/picture_folder.hpp"
#include "train/text/utf8.hpp"

namespace unmetal::train {
namespace {

using Path = std::filesystem::path;

/// Of one class, and of folders in folders in it: what is beyond was made up, or is no folder of pictures.
constexpr std::size_t mostFolders = 100'000;
constexpr std::size_t deepestFolders = 32;
/// Of a name in a message about that.
constexpr std::size_t longestName = 200;

std::string extensionOf(const Path& path) {
  std::string extension = path.extension().string();
  for (char& letter : extension) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return extension;
}

bool isPictureName(const Path& path) {
  const std::string extension = extensionOf(path);
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg";
}

/// Whether somebody who has such a file means it to be learned from.
bool isNameOfAnotherPicture(const Path& path) {
  constexpr std::array extensions{".gif",  ".webp", ".bmp", ".tif", ".tiff", ".heic",
                                  ".heif", ".avif", ".jxl", ".jp2", ".ppm",  ".pgm"};
  return std::ranges::find(extensions, extensionOf(path)) != extensions.end();
}

/// Names what the kernel makes up: /proc leads to every file there is, and some of its files have no end.
void checkIsOnADisk(const Path& folder) {
  struct statfs status {};
  if (::statfs(folder.c_str(), &status) != 0) return;  // reading it says why
  constexpr std::array<long, 5> systems{PROC_SUPER_MAGIC, SYSFS_MAGIC, DEBUGFS_MAGIC, CGROUP_SUPER_MAGIC,
                                        CGROUP2_SUPER_MAGIC};
  if (std::ranges::find(systems, static_cast<long>(status.f_type)) != systems.end())
    throw mps::Error(folder.string() + " is a folder of the system's, not of pictures");
}

/// What is in a folder, by name. @throws mps::Error
std::vector<Path> entriesOf(const Path& folder) {
  std::vector<Path> entries;
  checkIsOnADisk(folder);
  try {
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (!entry.path().filename().string().starts_with('.')) entries.push_back(entry.path());
  } catch (const std::filesystem::filesystem_error& error) {
    throw mps::Error("cannot read the folder " + folder.string() + ": " + error.code().message());
  }
  std::ranges::sort(entries);
  return entries;
}

enum class EntryKind : std::uint8_t { Folder, Picture, Other };

/// Links are followed. Whether a picture can be read shows when it is decoded. @throws mps::Error for others of which
/// nobody can tell what they are, such as links to nothing
EntryKind kindOf(const Path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(status)) return EntryKind::Folder;
  if (isPictureName(path)) return EntryKind::Picture;
  if (isNameOfAnotherPicture(path))
    throw mps::Error(path.string() + " is of a kind that cannot be read, only PNG and JPEG can");
  if (error) throw mps::Error("cannot read " + path.string() + ": " + error.message());
  return EntryKind::Other;
}

/// Finds the pictures of one class.
class ClassScan {
 public:
  explicit ClassScan(std::vector<std::string>& troubles) : troubles_(troubles) {}

  /// @param root the folder of all classes, to which no link may lead back
  std::vector<Path> run(const Path& root, const Path& folder) {
    above_ = {std::filesystem::canonical(root)};
    return run(folder);
  }
  std::vector<Path> run(const Path& folder) {
    enter(folder);
    return std::move(files_);
  }

 private:
  void enter(const Path& folder) {
    std::error_code error;
    const Path real = std::filesystem::canonical(folder, error);
    if (std::ranges::find(above_, real) != above_.end()) {
      troubles_.push_back(folder.string() + " leads back to " + real.string() + ", a folder above it");
      return;
    }
    if (above_.size() > deepestFolders) {
      troubles_.push_back(folder.string().substr(0, longestName) + " lies more than " +
                          std::to_string(deepestFolders) + " folders deep");
      return;
    }
    if (visited_.size() == mostFolders) {
      if (!isEnough_)
        troubles_.push_back("a class of " + above_[0].string() + " has more than " +
                            std::to_string(mostFolders) + " folders");
      isEnough_ = true;
      return;
    }
    if (!visited_.insert(real).second) {
      troubles_.push_back(folder.string() + " leads to " + real.string() +
                          ", a folder that the class has already");
      return;
    }
    above_.push_back(real);
    try {
      for (const Path& entry : entriesOf(folder)) take(entry);
    } catch (const mps::Error& unreadable) {
      troubles_.emplace_back(unreadable.what());
    }
    above_.pop_back();
  }

  void take(const Path& entry) {
    if (isEnough_) return;
    try {
      const EntryKind kind = kindOf(entry);
      if (kind == EntryKind::Folder) enter(entry);
      if (kind == EntryKind::Picture) files_.push_back(entry);
    } catch (const mps::Error& unreadable) {
      troubles_.emplace_back(unreadable.what());
    }
  }

  std::vector<std::string>& troubles_;
  std::vector<Path> above_;
  /// All that were looked at: folders with links to each other are not walked on every way there is.
  std::set<Path> visited_;
  bool isEnough_ = false;
  std::vector<Path> files_;
};

/// Whether number i is one of those that are spread evenly over a class.
bool isForValidation(std::size_t i, double share) {
  const auto until = [share](std::size_t count) { return std::floor(static_cast<double>(count) * share); };
  return until(i + 1) > until(i);
}

/// The folders of the classes in a folder, and what else is wrong with it.
std::vector<Path> classFoldersOf(const Path& folder, std::vector<std::string>& troubles) {
  std::vector<Path> folders;
  for (const Path& entry : entriesOf(folder)) {
    EntryKind kind = EntryKind::Other;
    try {
      kind = kindOf(entry);
    } catch (const mps::Error& unreadable) {
      troubles.emplace_back(unreadable.what());
    }
    if (kind == EntryKind::Picture)
      troubles.push_back(entry.string() + " lies beside the folders of the classes, not in one");
    if (kind != EntryKind::Folder) continue;
    if (detail::isUtf8(entry.filename().string()))
      folders.push_back(entry);
    else
      troubles.push_back("the folder " + entry.string() + " has a name that is not UTF-8");
  }
  return folders;
}

/// The pictures of a class; of none there is a trouble.
std::vector<Path> picturesOfClass(const Path& root, const Path& folder, std::vector<std::string>& troubles) {
  std::vector<Path> files = ClassScan(troubles).run(root, folder);
  if (files.empty()) troubles.push_back("the folder " + folder.string() + " holds no PNG or JPEG pictures");
  return files;
}

std::uint32_t addClass(const Path& root, const std::string& name, detail::FolderContents& contents) {
  if (contents.classNames.size() == mostClasses)
    throw mps::Error(root.string() + " has more than " + std::to_string(mostClasses) + " classes");
  contents.classNames.push_back(name);
  return static_cast<std::uint32_t>(contents.classNames.size() - 1);
}

/// Classes whose pictures are divided by a share. @param validation 0: all are for training
void scanClasses(const Path& folder, double validation, detail::FolderContents& contents) {
  for (const Path& entry : classFoldersOf(folder, contents.troubles)) {
    const std::vector<Path> files = picturesOfClass(folder, entry, contents.troubles);
    if (files.empty()) continue;
    const std::uint32_t label = addClass(folder, entry.filename().string(), contents);
    for (std::size_t i = 0; i < files.size(); ++i)
      (isForValidation(i, validation) ? contents.validation : contents.training).push_back({files[i], label});
  }
  if (contents.classNames.empty())
    throw mps::Error(folder.string() + " has no folders of PNG or JPEG pictures, one for each class");
}

/// Pictures for validation in classes that training pictures have.
void scanValidation(const Path& folder, const Path& training, detail::FolderContents& contents) {
  for (const Path& entry : classFoldersOf(folder, contents.troubles)) {
    const std::string name = entry.filename().string();
    const auto found = std::ranges::find(contents.classNames, name);
    if (found == contents.classNames.end()) {
      contents.troubles.push_back("the folder " + entry.string() + " is of a class that " +
                                  training.string() + " has no pictures of");
      continue;
    }
    const auto label = static_cast<std::uint32_t>(found - contents.classNames.begin());
    for (const Path& file : picturesOfClass(folder, entry, contents.troubles))
      contents.validation.push_back({file, label});
  }
}

/// The folder of pictures for validation where a folder has no others beside that and `train`; or an empty path.
Path validationFolderOf(const Path& folder) {
  Path found;
  bool hasTraining = false;
  constexpr std::array names{"val", "validation", "test"};
  std::size_t best = names.size();
  for (const Path& entry : entriesOf(folder)) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(entry, ignored)) continue;
    const std::string name = entry.filename().string();
    if (name == "train") {
      hasTraining = true;
      continue;
    }
    const auto place = static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
    if (place == names.size()) return {};
    if (place < best) found = entry;
    best = std::min(best, place);
  }
  return hasTraining ? found : Path();
}

}  // namespace

detail::FolderContents detail::scanFolder(const Path& folder, double validation) {
  FolderContents contents;
  const Path validationFolder = validationFolderOf(folder);
  if (validationFolder.empty()) {
    scanClasses(folder, validation, contents);
    return contents;
  }
  for (const Path& entry : entriesOf(folder))
    if (isPictureName(entry))
      contents.troubles.push_back(entry.string() + " lies beside the folders train and " +
                                  validationFolder.filename().string() + ", not in one");
  const Path training = folder / "train";
  scanClasses(training, 0, contents);
  scanValidation(validationFolder, training, contents);
  return contents;
}

std::vector<Path> picturesIn(const Path& folder) {
  std::vector<std::string> troubles;
  std::vector<Path> files = ClassScan(troubles).run(folder);
  if (!troubles.empty()) throw mps::Error(troubles.front());
  if (files.empty()) throw mps::Error("the folder " + folder.string() + " holds no PNG or JPEG pictures");
  return files;
}

}  // namespace unmetal::train
