#pragma once

#include <cstddef>
#include <string>

#include "mps/core/types/types.hpp"
#include "mtl/types.hpp"

namespace mps {

class Coder;

/// Metal's names of the twelve pixel formats that images are made of.
enum class PixelFormat : std::uint64_t {
  Invalid = 0,
  R8Unorm = 10,
  R16Unorm = 20,
  R16Float = 25,
  RG8Unorm = 30,
  R32Float = 55,
  RG16Unorm = 60,
  RG16Float = 65,
  RGBA8Unorm = 70,
  RG32Float = 105,
  RGBA16Unorm = 110,
  RGBA16Float = 115,
  RGBA32Float = 125,
};

/// What Metal would keep an image in; its numbers.
enum class TextureType : std::uint64_t { Type1D = 0, Type2D = 2, Type2DArray = 3 };

/// What a texture may be used for; bits as in Metal. Kept for ported code, without effect here.
enum class TextureUsage : std::uint64_t { Unknown = 0, ShaderRead = 1, ShaderWrite = 2, ShaderReadWrite = 3 };

/// Size and format of an image (MPSImageDescriptor). A value: copies are independent.
class ImageDescriptor {
 public:
  /// 1 x 1 x 1, one image, format None.
  ImageDescriptor() = default;
  /// @param channelFormat  None means float16 once an image is made (Apple's choice); say Float32 for float32
  /// @param width,height   pixels, at least 1
  /// @param featureChannels at least 1
  /// @param numberOfImages images stacked in one Image, at least 1
  ImageDescriptor(ImageFeatureChannelFormat channelFormat, std::size_t width, std::size_t height,
                  std::size_t featureChannels, std::size_t numberOfImages = 1,
                  TextureUsage usage = TextureUsage::ShaderReadWrite)
      : channelFormat_(channelFormat),
        width_(width),
        height_(height),
        featureChannels_(featureChannels),
        numberOfImages_(numberOfImages),
        usage_(usage) {}
  /// The same as the constructor.
  static ImageDescriptor create(ImageFeatureChannelFormat channelFormat, std::size_t width,
                                std::size_t height, std::size_t featureChannels,
                                std::size_t numberOfImages = 1,
                                TextureUsage usage = TextureUsage::ShaderReadWrite) {
    return {channelFormat, width, height, featureChannels, numberOfImages, usage};
  }

  [[nodiscard]] std::size_t width() const { return width_; }
  void setWidth(std::size_t width) { width_ = width; }
  [[nodiscard]] std::size_t height() const { return height_; }
  void setHeight(std::size_t height) { height_ = height; }
  [[nodiscard]] std::size_t featureChannels() const { return featureChannels_; }
  void setFeatureChannels(std::size_t featureChannels) { featureChannels_ = featureChannels; }
  [[nodiscard]] std::size_t numberOfImages() const { return numberOfImages_; }
  void setNumberOfImages(std::size_t numberOfImages) { numberOfImages_ = numberOfImages; }
  [[nodiscard]] ImageFeatureChannelFormat channelFormat() const { return channelFormat_; }
  void setChannelFormat(ImageFeatureChannelFormat channelFormat) { channelFormat_ = channelFormat; }
  [[nodiscard]] mtl::StorageMode storageMode() const { return storageMode_; }
  void setStorageMode(mtl::StorageMode storageMode) { storageMode_ = storageMode; }
  [[nodiscard]] mtl::CPUCacheMode cpuCacheMode() const { return cpuCacheMode_; }
  void setCpuCacheMode(mtl::CPUCacheMode cpuCacheMode) { cpuCacheMode_ = cpuCacheMode; }
  [[nodiscard]] TextureUsage usage() const { return usage_; }
  void setUsage(TextureUsage usage) { usage_ = usage; }

  /// Format of one texel (up to four channels) in Apple's storage; Invalid for 0 channels.
  [[nodiscard]] PixelFormat pixelFormat() const;
  /// "float32 28x28x1", width first, with " x N images" for stacks.
  [[nodiscard]] std::string describe() const;

  void encode(Coder& coder) const;
  /// @throws Error for formats, modes and usages that do not exist
  static ImageDescriptor decode(Coder& coder);
  bool operator==(const ImageDescriptor&) const = default;

 private:
  void codeFields(Coder& coder);

  ImageFeatureChannelFormat channelFormat_ = ImageFeatureChannelFormat::None;
  std::size_t width_ = 1;
  std::size_t height_ = 1;
  std::size_t featureChannels_ = 1;
  std::size_t numberOfImages_ = 1;
  mtl::StorageMode storageMode_ = mtl::StorageMode::Managed;
  mtl::CPUCacheMode cpuCacheMode_ = mtl::CPUCacheMode::DefaultCache;
  TextureUsage usage_ = TextureUsage::ShaderReadWrite;
};

namespace detail {
/// The descriptor with a format: None becomes float16.
/// @throws Error, in the name of `className`, when a size is 0 or more than memory can hold.
ImageDescriptor resolvedDescriptor(const char* className, ImageDescriptor descriptor);
/// Of elements that are copied as they are. @throws Error, in the name of `className`, for another size than a channel's.
void checkElementSize(const char* className, ImageFeatureChannelFormat format, std::size_t size);
}  // namespace detail

}  // namespace mps
