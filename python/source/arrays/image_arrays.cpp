#include <algorithm>
#include <array>
#include <string>

#include "mps/core/image/image_storage.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/memory.hpp"
#include "python/source/arrays/arrays.hpp"

namespace python {
namespace {

using mps::DataLayout;
using mps::Image;
using mps::ImageBatch;
using mps::ImageFeatureChannelFormat;

/// The format whose elements an array of that type holds; None when there is none.
ImageFeatureChannelFormat formatOf(nb::dlpack::dtype type) {
  for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16,
                            ImageFeatureChannelFormat::Unorm8, ImageFeatureChannelFormat::Unorm16})
    if (elementType(format) == type) return format;
  return ImageFeatureChannelFormat::None;
}

/// An array seen as [image][height][width][channel].
struct Axes {
  std::array<std::size_t, 4> shape{};
  std::array<std::int64_t, 4> strides{};
};
enum Axis : std::size_t { imageAxis, rowAxis, columnAxis, channelAxis };

/// Where each of the four axes is in an array of four dimensions.
std::array<std::size_t, 4> order(DataLayout layout) {
  if (layout == DataLayout::FeatureChannelsxHeightxWidth) return {0, 2, 3, 1};
  return {0, 1, 2, 3};
}

Axes axesOf(const char* className, const nb::ndarray<nb::ro>& array, DataLayout layout, bool isBatch) {
  const std::size_t dimensions = array.ndim();
  if (dimensions != 4 && (isBatch || dimensions != 3))
    throw mps::Error(className, "array", std::to_string(dimensions) + "-dimensional",
                     isBatch ? "4 dimensions" : "3 dimensions, or 4 for a stack of images");
  Axes axes;
  const auto places = order(layout);
  for (std::size_t axis = 0; axis < 4; ++axis) {
    const std::size_t place = places[axis] + dimensions;
    axes.shape[axis] = place < 4 ? 1 : array.shape(place - 4);
    axes.strides[axis] = place < 4 ? 0 : array.stride(place - 4);
  }
  return axes;
}

mps::ImageDescriptor descriptorOf(const Axes& axes, ImageFeatureChannelFormat format) {
  return {format, axes.shape[columnAxis], axes.shape[rowAxis], axes.shape[channelAxis],
          axes.shape[imageAxis]};
}

ImagePointer over(const std::shared_ptr<mtl::Device>& device, const GivenArray& given, const Axes& axes,
                  const mps::ImageDescriptor& descriptor) {
  const auto stride = [&](Axis axis) {
    return axes.shape[axis] == 1 ? 0 : static_cast<std::size_t>(axes.strides[axis]);
  };
  std::size_t elements = 1;
  for (std::size_t axis = 0; axis < 4; ++axis)
    elements += (axes.shape[axis] - 1) * stride(static_cast<Axis>(axis));
  return Image::create(bufferOver(device, given, elements), 0, descriptor,
                       {stride(columnAxis), stride(rowAxis), stride(imageAxis)});
}

/// The elements in the order of an image's.
HostArray channelsInside(const GivenArray& given, DataLayout layout) {
  return layout == DataLayout::FeatureChannelsxHeightxWidth ? packed(given, -3, -1) : packed(given);
}

/// What an array is to an image, once it was looked at.
struct Examined {
  GivenArray given;
  Axes axes;
  mps::ImageDescriptor descriptor;
  Sharing sharing;
};

Examined examine(const char* className, const std::shared_ptr<mtl::Device>& device, nb::handle array,
                 DataLayout layout, std::optional<bool> copy, bool isBatch) {
  Examined found;
  found.given = lookAt(className, array);
  const nb::dlpack::dtype type = found.given.array.dtype();
  const auto format = formatOf(type);
  if (format == ImageFeatureChannelFormat::None)
    throw mps::Error(className, "array", nameOf(type), "float32, float16, uint8 or uint16");
  found.axes = axesOf(className, found.given.array, layout, isBatch);
  found.descriptor = descriptorOf(found.axes, format);
  (void)mps::detail::resolvedDescriptor(className, found.descriptor);
  found.sharing =
      sharingOf(className, device, found.given, found.axes.shape, found.axes.strides, "channels", copy);
  return found;
}

void checkVisible(const Image& image) {
  if (image.isTemporary())
    throw mps::Error("Image", "array", "of a temporary " + image.describe(), "a permanent image");
  if (image.descriptor().storageMode() == mtl::StorageMode::Private)
    throw mps::Error("Image", "array", "of a private " + image.describe(), "storage that the host can see");
}

}  // namespace

Elements elementsOf(const Image& image) {
  checkVisible(image);
  const auto memory = image.storage()->memoryForReading();
  const mps::detail::TensorShape& shape = image.shape();
  if (const std::string failure = memory->failure(mps::detail::bytesOf(shape, image.byteOffset()));
      !failure.empty())
    throw mps::Error(image.describe() + " is invalid: " + failure);
  Elements elements;
  elements.address = memory->address() + image.byteOffset();
  elements.shape = {image.height(), image.width(), image.featureChannels()};
  elements.strides = {shape.rowStride, shape.pixelStride, 1};
  if (image.numberOfImages() > 1) {
    elements.shape.insert(elements.shape.begin(), image.numberOfImages());
    elements.strides.insert(elements.strides.begin(), shape.imageStride);
  }
  elements.type = elementType(image.featureChannelFormat());
  elements.device = image.device();
  return elements;
}

Elements elementsOf(const ImageBatch& batch) {
  const mps::ImageDescriptor& descriptor = batch.descriptor();  // throws for no images
  Elements elements = elementsOf(*batch[0]);
  std::int64_t stride = batch.count() > 1 ? 0 : batch[0]->shape().imageStride;
  const auto bytes = static_cast<std::int64_t>(mps::bytesPerChannel(descriptor.channelFormat()));
  for (std::size_t i = 1; i < batch.count(); ++i) {
    const ImagePointer image = batch[i];
    const std::int64_t step = elementsOf(*image).address - elements.address;
    if (i == 1) stride = step / bytes;
    if (image->descriptor() != descriptor || image->storage() != batch[0]->storage() ||
        image->shape() != batch[0]->shape() || step != static_cast<std::int64_t>(i) * stride * bytes)
      throw mps::Error("ImageBatch", "images", "loose", "evenly spaced in one memory to be one array");
  }
  if (descriptor.numberOfImages() != 1)
    throw mps::Error("ImageBatch", "numberOfImages", std::to_string(descriptor.numberOfImages()), "1");
  elements.shape.insert(elements.shape.begin(), batch.count());
  elements.strides.insert(elements.strides.begin(), stride);
  return elements;
}

ImagePointer imageFromArray(const std::shared_ptr<mtl::Device>& device, nb::handle array, DataLayout layout,
                            std::optional<bool> copy) {
  const Examined found = examine("Image", device, array, layout, copy, false);
  if (found.sharing.isShared) return over(device, found.given, found.axes, found.descriptor);
  const HostArray elements = channelsInside(found.given, layout);
  if (!found.sharing.why.empty())
    return Image::create(readOnlyCopy("Image", device, elements, found.sharing.why), 0, found.descriptor);
  ImagePointer image = Image::create(device, found.descriptor);
  const std::span<const std::byte> bytes = bytesOf(elements);
  const std::size_t step = bytes.size() / found.descriptor.numberOfImages();
  for (std::size_t i = 0; i < found.descriptor.numberOfImages(); ++i)
    image->writeBytes(bytes.subspan(i * step, step), DataLayout::HeightxWidthxFeatureChannels, i);
  return image;
}

ImageBatch batchFromArray(const std::shared_ptr<mtl::Device>& device, nb::handle array, DataLayout layout,
                          std::optional<bool> copy) {
  Examined found = examine("ImageBatch", device, array, layout, copy, true);
  if (found.sharing.isShared)
    return over(device, found.given, found.axes, found.descriptor)->batchRepresentation();
  const HostArray elements = channelsInside(found.given, layout);
  if (!found.sharing.why.empty())
    return Image::create(readOnlyCopy("ImageBatch", device, elements, found.sharing.why), 0, found.descriptor)
        ->batchRepresentation();
  const std::size_t count = found.descriptor.numberOfImages();
  found.descriptor.setNumberOfImages(1);
  ImageBatch batch = ImageBatch::create(device, found.descriptor, count);
  batch.writeBytes(bytesOf(elements), DataLayout::HeightxWidthxFeatureChannels);
  return batch;
}

}  // namespace python
