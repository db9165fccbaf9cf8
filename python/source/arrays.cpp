#include "python/source/arrays.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "mps/core/error.hpp"
#include "mps/core/image_storage.hpp"
#include "mtl/buffer.hpp"
#include "mtl/memory.hpp"
#include "python/source/interpreter.hpp"

namespace python {
namespace {

using mps::DataLayout;
using mps::Image;
using mps::ImageBatch;
using mps::ImageFeatureChannelFormat;
using AnyArray = nb::ndarray<>;
using ReadableArray = nb::ndarray<nb::ro>;

/// Memory of an array, which it keeps alive.
class ArrayMemory final : public mtl::Memory {
 public:
  ArrayMemory(std::byte* address, std::size_t length, AnyArray array)
      : Memory(address, length), array_(heldForLibrary(std::move(array))) {}

 private:
  std::shared_ptr<AnyArray> array_;
};

int dlpackKind(const mtl::Device& device) {
  return device.kind() == mtl::DeviceKind::CPU ? nb::device::cpu::value : nb::device::cuda::value;
}
/// The number in "cuda:1".
int dlpackNumber(const mtl::Device& device) {
  const std::size_t colon = device.name().find(':');
  return colon == std::string::npos ? 0 : std::stoi(device.name().substr(colon + 1));
}

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

Axes axesOf(const char* className, const ReadableArray& array, DataLayout layout, bool isBatch) {
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

/// Why the memory cannot be an image's; empty when it can.
std::string obstacle(const mtl::Device& device, const ReadableArray& array, const Axes& axes,
                     bool isWritable) {
  if (array.device_type() != dlpackKind(device)) return "on another device";
  if (!isWritable) return "read-only";
  if (reinterpret_cast<std::uintptr_t>(array.data()) % array.itemsize() != 0) return "not aligned";
  // Each axis steps over all that lies within it.
  std::int64_t within = 1;
  for (const Axis axis : {channelAxis, columnAxis, rowAxis, imageAxis}) {
    const auto count = static_cast<std::int64_t>(axes.shape[axis]);
    if (count == 1) continue;
    const std::int64_t stride = axes.strides[axis];
    if (axis == channelAxis && stride != 1) return "of channels that are not adjacent";
    if (stride < within) return "of strides that overlap or run backwards";
    within = (count - 1) * stride + within;
  }
  return {};
}

mps::ImageDescriptor descriptorOf(const Axes& axes, ImageFeatureChannelFormat format) {
  return {format, axes.shape[columnAxis], axes.shape[rowAxis], axes.shape[channelAxis],
          axes.shape[imageAxis]};
}

ImagePointer over(const std::shared_ptr<mtl::Device>& device, const AnyArray& array, const Axes& axes,
                  const mps::ImageDescriptor& descriptor) {
  const auto stride = [&](Axis axis) {
    return axes.shape[axis] == 1 ? 0 : static_cast<std::size_t>(axes.strides[axis]);
  };
  std::size_t elements = 1;
  for (std::size_t axis = 0; axis < 4; ++axis)
    elements += (axes.shape[axis] - 1) * stride(static_cast<Axis>(axis));
  const std::size_t length = elements * array.itemsize();
  auto memory = std::make_shared<ArrayMemory>(static_cast<std::byte*>(array.data()), length, array);
  const auto buffer = std::make_shared<mtl::Buffer>(device, std::move(memory), mtl::StorageMode::Shared);
  return Image::create(buffer, 0, descriptor, {stride(columnAxis), stride(rowAxis), stride(imageAxis)});
}

/// The elements in the order of an image's, without gaps.
HostArray packed(nb::handle owner, const ReadableArray& array, DataLayout layout) {
  const nb::module_ numpy = nb::module_::import_("numpy");
  const std::vector<std::size_t> shape(array.shape_ptr(), array.shape_ptr() + array.ndim());
  nb::object packed = nb::cast(nb::ndarray<nb::ro, nb::numpy>(array.data(), shape.size(), shape.data(), owner,
                                                              array.stride_ptr(), array.dtype()));
  if (layout == DataLayout::FeatureChannelsxHeightxWidth) packed = numpy.attr("moveaxis")(packed, -3, -1);
  return nb::cast<HostArray>(numpy.attr("ascontiguousarray")(packed));
}

/// What an array is, once it was looked at.
struct Examined {
  ReadableArray array;
  AnyArray writable;  ///< not valid: read-only
  Axes axes;
  mps::ImageDescriptor descriptor;
  bool isShared = false;
};

Examined examine(const char* className, const std::shared_ptr<mtl::Device>& device, nb::handle given,
                 DataLayout layout, std::optional<bool> copy, bool isBatch) {
  if (!device) throw mps::Error(className, "device", "null", "a device");
  Examined found;
  if (!nb::try_cast(given, found.writable, false) && !nb::try_cast(given, found.array, false))
    throw mps::Error(className, "array", "a " + std::string(nb::inst_name(given).c_str()),
                     "an array that has elements in memory (DLPack or buffer protocol)");
  if (found.writable.is_valid()) found.array = ReadableArray(found.writable);
  const auto format = formatOf(found.array.dtype());
  if (format == ImageFeatureChannelFormat::None)
    throw mps::Error(className, "array", nameOf(found.array.dtype()), "float32, float16, uint8 or uint16");
  found.axes = axesOf(className, found.array, layout, isBatch);
  found.descriptor = descriptorOf(found.axes, format);
  (void)mps::detail::resolvedDescriptor(className, found.descriptor);
  const std::string why = obstacle(*device, found.array, found.axes, found.writable.is_valid());
  found.isShared = why.empty() && !copy.value_or(false);
  if (!why.empty() && !copy.value_or(true))
    throw mps::Error(className, "array", why, "memory that can be shared, or copy=None");
  if (!found.isShared && found.array.device_type() != nb::device::cpu::value)
    throw mps::Error(className, "array", why.empty() ? "memory of a GPU" : why + ", memory of a GPU",
                     "memory of the host, or of device " + device->name() + " with adjacent channels");
  return found;
}

void checkVisible(const Image& image) {
  if (image.isTemporary())
    throw mps::Error("Image", "array", "of a temporary " + image.describe(), "a permanent image");
  if (image.descriptor().storageMode() == mtl::StorageMode::Private)
    throw mps::Error("Image", "array", "of a private " + image.describe(), "storage that the host can see");
}

}  // namespace

std::string nameOf(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(type.code);
  const char* kind = code == Code::Int       ? "int"
                     : code == Code::UInt    ? "uint"
                     : code == Code::Float   ? "float"
                     : code == Code::Bfloat  ? "bfloat"
                     : code == Code::Complex ? "complex"
                     : code == Code::Bool    ? "bool"
                                             : "type";
  return kind + std::to_string(type.bits);
}

nb::dlpack::dtype elementType(ImageFeatureChannelFormat format) {
  const auto bits = static_cast<std::uint8_t>(8 * mps::bytesPerChannel(format));
  const bool isFloat =
      format == ImageFeatureChannelFormat::Float32 || format == ImageFeatureChannelFormat::Float16;
  const auto code = isFloat ? nb::dlpack::dtype_code::Float : nb::dlpack::dtype_code::UInt;
  return {static_cast<std::uint8_t>(code), bits, 1};
}

void checkElements(const char* className, const char* argument, nb::dlpack::dtype type,
                   ImageFeatureChannelFormat format) {
  if (type == elementType(format) || type == nb::dtype<std::uint8_t>()) return;
  throw mps::Error(className, argument, nameOf(type), nameOf(elementType(format)));
}

Elements elementsOf(const Image& image) {
  checkVisible(image);
  const auto memory = image.storage()->memoryForReading();
  if (const std::string failure = memory->failure(); !failure.empty())
    throw mps::Error(image.describe() + " is invalid: " + failure);
  const mps::detail::TensorShape& shape = image.shape();
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

nb::object numpyArray(const Elements& elements, nb::handle owner, nb::handle type, std::optional<bool> copy) {
  if (elements.device->kind() != mtl::DeviceKind::CPU)
    throw mps::Error("Image", "device", elements.device->name(),
                     "the host's for NumPy: read_bytes copies, torch.from_dlpack shares");
  nb::object array =
      nb::cast(nb::ndarray<nb::numpy>(elements.address, elements.shape.size(), elements.shape.data(), owner,
                                      elements.strides.data(), elements.type));
  if (!type.is_none()) {
    nb::object converted = array.attr("astype")(type, "copy"_a = false);
    if (!converted.is(array) && !copy.value_or(true)) {
      const std::string message = "elements are " + nameOf(elements.type) + ": another type is a copy";
      throw nb::value_error(message.c_str());
    }
    if (!converted.is(array)) return converted;
  }
  return copy.value_or(false) ? array.attr("copy")() : array;
}

nb::object dlpackArray(const Elements& elements, nb::handle owner, const nb::kwargs& arguments) {
  const nb::object array = nb::cast(nb::ndarray<nb::array_api>(
      elements.address, elements.shape.size(), elements.shape.data(), owner, elements.strides.data(),
      elements.type, dlpackKind(*elements.device), dlpackNumber(*elements.device)));
  return array.attr("__dlpack__")(**arguments);
}

nb::tuple dlpackDevice(const mtl::Device& device) {
  return nb::make_tuple(dlpackKind(device), dlpackNumber(device));
}

ImagePointer imageFromArray(const std::shared_ptr<mtl::Device>& device, nb::handle array, DataLayout layout,
                            std::optional<bool> copy) {
  const Examined found = examine("Image", device, array, layout, copy, false);
  if (found.isShared) return over(device, found.writable, found.axes, found.descriptor);
  const HostArray elements = packed(array, found.array, layout);
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
  if (found.isShared)
    return over(device, found.writable, found.axes, found.descriptor)->batchRepresentation();
  const std::size_t count = found.descriptor.numberOfImages();
  found.descriptor.setNumberOfImages(1);
  ImageBatch batch = ImageBatch::create(device, found.descriptor, count);
  batch.writeBytes(bytesOf(packed(array, found.array, layout)), DataLayout::HeightxWidthxFeatureChannels);
  return batch;
}

}  // namespace python
