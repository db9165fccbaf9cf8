#include "tools/data/picture_folder.hpp"

#include <linux/magic.h>
#include <sys/vfs.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cmath>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>

#include "mps/core/error.hpp"
#include "tools/picture.hpp"
#include "tools/text.hpp"

namespace unmetal {
namespace {

using Path = std::filesystem::path;

/// Of one class, and of folders in folders in it: what is beyond was made up, or is no folder of pictures.
constexpr std::size_t mostFolders = 100'000;
constexpr std::size_t deepestFolders = 32;
/// Of a name in a message about that.
constexpr std::size_t longestName = 200;

struct PictureFile {
  Path path;
  std::uint32_t label = 0;
};

struct Contents {
  std::vector<std::string> classNames;
  std::vector<PictureFile> training;
  std::vector<PictureFile> validation;
  std::vector<std::string> troubles;
};

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

Contents scan(const Path& folder, double validation) {
  Contents contents;
  for (const Path& entry : entriesOf(folder)) {
    EntryKind kind = EntryKind::Other;
    try {
      kind = kindOf(entry);
    } catch (const mps::Error& unreadable) {
      contents.troubles.emplace_back(unreadable.what());
    }
    if (kind == EntryKind::Picture)
      contents.troubles.push_back(entry.string() + " lies beside the folders of the classes, not in one");
    if (kind != EntryKind::Folder) continue;
    const std::string name = entry.filename().string();
    if (!isUtf8(name)) {
      contents.troubles.push_back("the folder " + entry.string() + " has a name that is not UTF-8");
      continue;
    }
    const std::vector<Path> files = ClassScan(contents.troubles).run(folder, entry);
    if (files.empty()) {
      contents.troubles.push_back("the folder " + entry.string() + " holds no PNG or JPEG pictures");
      continue;
    }
    if (contents.classNames.size() == mostClasses)
      throw mps::Error(folder.string() + " has more than " + std::to_string(mostClasses) + " classes");
    const auto label = static_cast<std::uint32_t>(contents.classNames.size());
    contents.classNames.push_back(name);
    for (std::size_t i = 0; i < files.size(); ++i)
      (isForValidation(i, validation) ? contents.validation : contents.training).push_back({files[i], label});
  }
  if (contents.classNames.empty())
    throw mps::Error(folder.string() + " has no folders of PNG or JPEG pictures, one for each class");
  return contents;
}

/// Decoded pictures in the order of their files. Memory is taken for blocks of neighbours, and for a block when the
/// first of its pictures is decoded: names of files cost nothing.
class DecodedPictures {
 public:
  DecodedPictures(std::size_t files, std::size_t pictureBytes)
      : pictureBytes_(pictureBytes),
        perBlock_(std::max<std::size_t>(1, blockBytes / pictureBytes)),
        blocks_((files + perBlock_ - 1) / perBlock_),
        isThere_(files, 0) {}

  /// Called by several threads, for different files.
  void add(std::size_t file, std::span<const std::uint8_t> pixels) {
    std::uint8_t* const block = blockOf(file);
    std::ranges::copy(pixels, block + file % perBlock_ * pictureBytes_);
    isThere_[file] = 1;
  }
  [[nodiscard]] bool contains(std::size_t file) const { return isThere_[file] != 0; }
  /// All of them without gaps. A block is given back as soon as it is copied.
  std::vector<std::uint8_t> take() {
    std::vector<std::uint8_t> images;
    images.reserve(pictureBytes_ * static_cast<std::size_t>(std::ranges::count(isThere_, 1)));
    for (std::size_t file = 0; file < isThere_.size(); ++file) {
      auto& block = blocks_[file / perBlock_];
      if (contains(file)) {
        const std::uint8_t* const from = block.get() + file % perBlock_ * pictureBytes_;
        images.insert(images.end(), from, from + pictureBytes_);
      }
      if ((file + 1) % perBlock_ == 0) block.reset();
    }
    blocks_.clear();
    return images;
  }

 private:
  static constexpr std::size_t blockBytes = std::size_t{8} << 20;

  std::uint8_t* blockOf(std::size_t file) {
    const std::lock_guard lock(mutex_);
    auto& block = blocks_[file / perBlock_];
    // Not set to zero: pages that no picture comes to are never touched.
    if (!block) block.reset(new std::uint8_t[perBlock_ * pictureBytes_]);
    return block.get();
  }

  std::size_t pictureBytes_;
  std::size_t perBlock_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<std::uint8_t[]>> blocks_;
  std::vector<std::uint8_t> isThere_;
};

/// Decodes all files, side by side. @return for each what is wrong with it, or nothing
std::vector<std::string> decode(const std::vector<PictureFile>& files, const Dataset& data,
                                DecodedPictures& decoded) {
  std::vector<std::string> troubles(files.size());
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < files.size(); i = next++) {
        try {
          decoded.add(i, coverPicture(readPicture(files[i].path), data.storedHeight(), data.storedWidth(),
                                      data.channels)
                             .pixels);
        } catch (const mps::Error& error) {
          troubles[i] = error.what();
        }
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  };
  const std::size_t threads =
      std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, std::max<std::size_t>(1, files.size()));
  {
    std::vector<std::jthread> workers;
    for (std::size_t i = 1; i < threads; ++i) workers.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
  return troubles;
}

[[noreturn]] void refuse(const std::vector<std::string>& troubles) {
  const std::size_t count = troubles.size() - 1;
  std::string more;
  if (count == 1) more = ", and there is 1 more trouble";
  if (count > 1) more = ", and there are " + std::to_string(count) + " more troubles";
  throw mps::Error(troubles.front() + more + "; --skip-bad goes on without");
}

}  // namespace

std::vector<Path> picturesIn(const Path& folder) {
  std::vector<std::string> troubles;
  std::vector<Path> files = ClassScan(troubles).run(folder);
  if (!troubles.empty()) throw mps::Error(troubles.front());
  if (files.empty()) throw mps::Error("the folder " + folder.string() + " holds no PNG or JPEG pictures");
  return files;
}

Dataset loadPictureFolder(const Path& folder, Split split, const PictureFolderOptions& options) {
  const bool isTraining = split == Split::Training;
  const Contents contents = scan(folder, options.validation);
  const std::vector<PictureFile>& files = isTraining ? contents.training : contents.validation;
  const PictureSize& size = options.size;
  Dataset data{"folder:" + folder.string(), size.height, size.width, size.channels, {}, {}, {}};
  data.classNames = contents.classNames;
  if (isTraining && options.augmentation.crop) data.makeRoomForCrops();
  if (isTraining) data.mirrors = options.augmentation.flip;
  DecodedPictures decoded(files.size(), data.storedSize());
  const std::vector<std::string> troubles = decode(files, data, decoded);
  if (isTraining) data.leftOut = contents.troubles;
  for (const std::string& trouble : troubles)
    if (!trouble.empty()) data.leftOut.push_back(trouble);
  if (!data.leftOut.empty() && !options.skipBad) refuse(data.leftOut);

  for (std::size_t i = 0; i < files.size(); ++i)
    if (decoded.contains(i)) data.labels.push_back(files[i].label);
  data.images = decoded.take();
  if (data.labels.empty())
    throw mps::Error(folder.string() + " has no pictures for " + (isTraining ? "training" : "validation"));
  return data;
}

}  // namespace unmetal
