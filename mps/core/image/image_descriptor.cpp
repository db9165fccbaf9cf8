#include "mps/core/image/image_descriptor.hpp"

#include <limits>

#include "mps/core/coding/coder.hpp"
#include "mps/core/coding/core_decoders.hpp"
#include "mps/core/types/error.hpp"

namespace mps {

PixelFormat ImageDescriptor::pixelFormat() const {
  if (featureChannels_ == 0) return PixelFormat::Invalid;
  const std::size_t row = featureChannels_ > 2 ? 2 : featureChannels_ - 1;
  switch (channelFormat_) {
    case ImageFeatureChannelFormat::Unorm8: {
      constexpr PixelFormat formats[] = {PixelFormat::R8Unorm, PixelFormat::RG8Unorm,
                                         PixelFormat::RGBA8Unorm};
      return formats[row];
    }
    case ImageFeatureChannelFormat::Unorm16: {
      constexpr PixelFormat formats[] = {PixelFormat::R16Unorm, PixelFormat::RG16Unorm,
                                         PixelFormat::RGBA16Unorm};
      return formats[row];
    }
    case ImageFeatureChannelFormat::None:
    case ImageFeatureChannelFormat::Float16: {
      constexpr PixelFormat formats[] = {PixelFormat::R16Float, PixelFormat::RG16Float,
                                         PixelFormat::RGBA16Float};
      return formats[row];
    }
    case ImageFeatureChannelFormat::Float32: {
      constexpr PixelFormat formats[] = {PixelFormat::R32Float, PixelFormat::RG32Float,
                                         PixelFormat::RGBA32Float};
      return formats[row];
    }
  }
  return PixelFormat::Invalid;
}

std::string ImageDescriptor::describe() const {
  std::string text = std::string(name(channelFormat_)) + " " + std::to_string(width_) + "x" +
                     std::to_string(height_) + "x" + std::to_string(featureChannels_);
  if (numberOfImages_ != 1) text += " x " + std::to_string(numberOfImages_) + " images";
  return text;
}

void ImageDescriptor::encode(Coder& coder) const {
  ImageDescriptor(*this).codeFields(coder);
}

ImageDescriptor ImageDescriptor::decode(Coder& coder) {
  detail::checkDecodes(coder, "ImageDescriptor");
  ImageDescriptor descriptor;
  descriptor.codeFields(coder);
  return descriptor;
}

void ImageDescriptor::codeFields(Coder& coder) {
  coder.codeClass("ImageDescriptor");
  coder.codeEnumeration("channelFormat", channelFormat_, ImageFeatureChannelFormat::Float32);
  coder.code("width", width_);
  coder.code("height", height_);
  coder.code("featureChannels", featureChannels_);
  coder.code("numberOfImages", numberOfImages_);
  coder.codeEnumeration("storageMode", storageMode_, mtl::StorageMode::Memoryless);
  coder.codeEnumeration("cpuCacheMode", cpuCacheMode_, mtl::CPUCacheMode::WriteCombined);
  coder.codeEnumeration("usage", usage_, TextureUsage::ShaderReadWrite);
}

ImageDescriptor detail::resolvedDescriptor(const char* className, ImageDescriptor descriptor) {
  if (descriptor.channelFormat() == ImageFeatureChannelFormat::None)
    descriptor.setChannelFormat(ImageFeatureChannelFormat::Float16);
  constexpr std::size_t most = std::numeric_limits<std::int64_t>::max() / 8;  // elements of up to 4 bytes
  std::size_t elements = 1;
  for (const std::size_t size :
       {descriptor.width(), descriptor.height(), descriptor.featureChannels(), descriptor.numberOfImages()}) {
    if (size == 0 || size > most / elements)
      throw Error(className, "imageDescriptor", descriptor.describe(),
                  "sizes from 1 to what memory can hold");
    elements *= size;
  }
  return descriptor;
}

void detail::checkElementSize(const char* className, ImageFeatureChannelFormat format, std::size_t size) {
  if (size != bytesPerChannel(format))
    throw Error(className, "element size", std::to_string(size) + " bytes",
                std::to_string(bytesPerChannel(format)) + ", the size of a " + name(format) + " channel");
}

}  // namespace mps
