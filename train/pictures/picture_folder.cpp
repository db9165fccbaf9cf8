#include "train/pictures/picture_folder.hpp"

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mtl/cpu/processors.hpp"
#include "train/pictures/folder_scan.hpp"
#include "train/pictures/picture.hpp"

namespace unmetal::train {
namespace detail {

/// Decoded pictures in the order of their files. Memory is taken for blocks of neighbours, and for a block when the
/// first of its pictures is decoded: names of files cost nothing.
class DecodedPictures {
 public:
  /// @param files of which those that fit in `bytes` are kept
  DecodedPictures(std::size_t files, std::size_t pictureBytes, std::uint64_t bytes)
      : pictureBytes_(pictureBytes),
        perBlock_(std::max<std::size_t>(1, blockBytes / pictureBytes)),
        kept_(static_cast<std::size_t>(std::min<std::uint64_t>(files, bytes / pictureBytes))),
        blocks_((kept_ + perBlock_ - 1) / perBlock_) {}

  [[nodiscard]] bool keeps(std::size_t file) const { return file < kept_; }
  /// Called by several threads, for different files.
  void add(std::size_t file, std::span<const std::uint8_t> pixels) {
    std::uint8_t* const block = blockOf(file);
    std::ranges::copy(pixels, block + file % perBlock_ * pictureBytes_);
  }
  /// Of one that was added.
  [[nodiscard]] const std::uint8_t* pixels(std::size_t file) const {
    return blocks_[file / perBlock_].get() + file % perBlock_ * pictureBytes_;
  }

  /// File of each picture.
  std::vector<std::size_t> numbers;

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
  std::size_t kept_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<std::uint8_t[]>> blocks_;
};

}  // namespace detail

namespace {

constexpr std::uint64_t mostMemory = std::uint64_t{2} << 30;

std::uint64_t defaultMemory() {
  const auto pages = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES)));
  const auto bytes = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PAGESIZE)));
  return std::min(mostMemory, pages * bytes / 2);
}

void checkOptions(const PictureFolderOptions& options) {
  constexpr std::size_t longestSide = 4096;
  const auto& [height, width, channels] = options.size;
  const auto isSide = [](std::size_t side) { return side >= 1 && side <= longestSide; };
  if (!isSide(height) || !isSide(width) || (channels != 1 && channels != 3))
    throw mps::Error("PictureFolder", "size", describe(options.size),
                     "sides from 1 to 4096 and 1 or 3 channels");
  if (!(options.validation > 0 && options.validation < 1))
    throw mps::Error("PictureFolder", "validation", std::to_string(options.validation),
                     "a share above 0 and below 1");
}

std::vector<std::uint8_t> decodedPixels(const std::filesystem::path& file, const Shape& shape) {
  return readPicture(file, shape.height, shape.width, shape.channels).pixels;
}

/// Decodes all files, side by side. @return for each what is wrong with it, or nothing
std::vector<std::string> decodeAll(const std::vector<detail::PictureFile>& files, const Shape& shape,
                                   std::size_t mostThreads, detail::DecodedPictures& decoded) {
  std::vector<std::string> troubles(files.size());
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < files.size(); i = next++) {
        try {
          const std::vector<std::uint8_t> pixels = decodedPixels(files[i].path, shape);
          if (decoded.keeps(i)) decoded.add(i, pixels);
        } catch (const mps::Error& error) {
          troubles[i] = error.what();
        }
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  };
  const std::size_t wanted =
      mostThreads != 0 ? mostThreads : static_cast<std::size_t>(mtl::cpu::defaultThreadCount());
  const std::size_t threads = std::clamp<std::size_t>(wanted, 1, std::max<std::size_t>(1, files.size()));
  {
    std::vector<std::jthread> workers;
    for (std::size_t i = 1; i < threads; ++i) workers.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
  return troubles;
}

[[noreturn]] void refuse(const std::vector<std::string>& troubles, const std::string& skipBadName) {
  const std::size_t count = troubles.size() - 1;
  std::string more;
  if (count == 1) more = ", and there is 1 more trouble";
  if (count > 1) more = ", and there are " + std::to_string(count) + " more troubles";
  throw mps::Error(troubles.front() + more + "; " + skipBadName + " goes on without");
}

}  // namespace

PictureFolder::PictureFolder(const std::filesystem::path& folder, Split split,
                             const PictureFolderOptions& options)
    : shape_(options.size) {
  checkOptions(options);
  const bool isTraining = split == Split::Training;
  detail::FolderContents contents = detail::scanFolder(folder, options.validation);
  const std::vector<detail::PictureFile>& files = isTraining ? contents.training : contents.validation;
  classNames_ = std::move(contents.classNames);
  decoded_ = std::make_unique<detail::DecodedPictures>(files.size(), shape_.count(),
                                                       options.memory.value_or(defaultMemory()));
  const std::vector<std::string> troubles = decodeAll(files, shape_, options.threads, *decoded_);
  if (isTraining) leftOut_ = std::move(contents.troubles);
  for (const std::string& trouble : troubles)
    if (!trouble.empty()) leftOut_.push_back(trouble);
  if (!leftOut_.empty() && !options.skipBad) refuse(leftOut_, options.skipBadName);
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!troubles[i].empty()) continue;
    files_.push_back(files[i].path);
    labels_.push_back(files[i].label);
    decoded_->numbers.push_back(i);
  }
  if (labels_.empty())
    throw mps::Error(folder.string() + " has no pictures for " + (isTraining ? "training" : "validation"));
}

PictureFolder::~PictureFolder() = default;
PictureFolder::PictureFolder(PictureFolder&&) noexcept = default;
PictureFolder& PictureFolder::operator=(PictureFolder&&) noexcept = default;

std::uint32_t PictureFolder::load(std::size_t index, std::span<float> pixels) const {
  return loadFromBytes(index, pixels);
}

std::uint32_t PictureFolder::loadBytes(std::size_t index, std::span<std::uint8_t> pixels) const {
  const std::size_t number = decoded_->numbers[index];
  if (decoded_->keeps(number))
    std::copy_n(decoded_->pixels(number), pixels.size(), pixels.begin());
  else
    std::ranges::copy(decodedPixels(files_[index], shape_), pixels.begin());
  return labels_[index];
}

std::size_t PictureFolder::sizeInMemory() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      decoded_->numbers, [this](std::size_t number) { return decoded_->keeps(number); }));
}

}  // namespace unmetal::train
