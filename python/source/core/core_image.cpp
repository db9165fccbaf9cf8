#include "mps/core/image/image.hpp"

#include <cstddef>
#include <utility>

#include "mps/core/image/image_allocator.hpp"
#include "mps/core/image/texture_view.hpp"
#include "mtl/buffer.hpp"
#include "python/source/arrays/arrays.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"
#include "python/source/layers/data_source.hpp"

namespace python {
namespace {

using mps::Image;
using mps::ImageBatch;
using mps::ImageDescriptor;

constexpr auto channelsLast = mps::DataLayout::HeightxWidthxFeatureChannels;

void bindEnumerations(nb::module_& module) {
  using mps::PixelFormat;
  nb::enum_<PixelFormat>(module, "PixelFormat", "Metal's names of the pixel formats that images are made of.")
      .value("Invalid", PixelFormat::Invalid)
      .value("R8Unorm", PixelFormat::R8Unorm)
      .value("R16Unorm", PixelFormat::R16Unorm)
      .value("R16Float", PixelFormat::R16Float)
      .value("RG8Unorm", PixelFormat::RG8Unorm)
      .value("R32Float", PixelFormat::R32Float)
      .value("RG16Unorm", PixelFormat::RG16Unorm)
      .value("RG16Float", PixelFormat::RG16Float)
      .value("RGBA8Unorm", PixelFormat::RGBA8Unorm)
      .value("RG32Float", PixelFormat::RG32Float)
      .value("RGBA16Unorm", PixelFormat::RGBA16Unorm)
      .value("RGBA16Float", PixelFormat::RGBA16Float)
      .value("RGBA32Float", PixelFormat::RGBA32Float);
  nb::enum_<mps::TextureType>(module, "TextureType", "What Metal would keep an image in.")
      .value("Type1D", mps::TextureType::Type1D)
      .value("Type2D", mps::TextureType::Type2D)
      .value("Type2DArray", mps::TextureType::Type2DArray);
  flags<mps::TextureUsage>(module, "TextureUsage",
                           "What a texture may be used for. Kept for ported code, without effect.")
      .value("Unknown", mps::TextureUsage::Unknown)
      .value("ShaderRead", mps::TextureUsage::ShaderRead)
      .value("ShaderWrite", mps::TextureUsage::ShaderWrite)
      .value("ShaderReadWrite", mps::TextureUsage::ShaderReadWrite);
  nb::enum_<mps::PurgeableState>(module, "PurgeableState", "Whether memory may be taken away.")
      .value("AllocationDeferred", mps::PurgeableState::AllocationDeferred, "There is no memory yet.")
      .value("KeepCurrent", mps::PurgeableState::KeepCurrent)
      .value("NonVolatile", mps::PurgeableState::NonVolatile)
      .value("Volatile", mps::PurgeableState::Volatile)
      .value("Empty", mps::PurgeableState::Empty);
}

void bindDescriptor(nb::module_& module) {
  nb::class_<ImageDescriptor> descriptor(module, "ImageDescriptor", "Size and format of an image. A value.");
  descriptor.def(nb::init<mps::ImageFeatureChannelFormat, std::size_t, std::size_t, std::size_t, std::size_t,
                          mps::TextureUsage>(),
                 "channel_format"_a, "width"_a, "height"_a, "feature_channels"_a, "number_of_images"_a = 1,
                 "usage"_a = mps::TextureUsage::ShaderReadWrite,
                 "`channel_format`: None_ means float16 once an image is made. `width`, `height`: pixels; "
                 "`number_of_images`: "
                 "stacked in one image. All at least 1.");
  property(descriptor, "width", &ImageDescriptor::width, &ImageDescriptor::setWidth, "Pixels.");
  property(descriptor, "height", &ImageDescriptor::height, &ImageDescriptor::setHeight, "Pixels.");
  property(descriptor, "feature_channels", &ImageDescriptor::featureChannels,
           &ImageDescriptor::setFeatureChannels, "At least 1.");
  property(descriptor, "number_of_images", &ImageDescriptor::numberOfImages,
           &ImageDescriptor::setNumberOfImages, "Images stacked in one.");
  property(descriptor, "channel_format", &ImageDescriptor::channelFormat, &ImageDescriptor::setChannelFormat,
           "Storage of a channel.");
  property(descriptor, "storage_mode", &ImageDescriptor::storageMode, &ImageDescriptor::setStorageMode,
           "Private hides the elements from the host. Managed.");
  property(descriptor, "cpu_cache_mode", &ImageDescriptor::cpuCacheMode, &ImageDescriptor::setCpuCacheMode,
           "Kept for ported code, without effect.");
  property(descriptor, "usage", &ImageDescriptor::usage, &ImageDescriptor::setUsage,
           "Kept for ported code, without effect.");
  readOnly(descriptor, "pixel_format", &ImageDescriptor::pixelFormat,
           "Format of one texel (up to four channels) in Apple's storage.");
  descriptor.def("describe", &ImageDescriptor::describe, "\"float32 28x28x1\", width first.")
      .def("encode", &ImageDescriptor::encode, "coder"_a, "Writes the fields.")
      .def_static("decode", &ImageDescriptor::decode, "coder"_a,
                  "What encode wrote. Raises Error for formats and modes that do not exist.")
      .def("__repr__",
           [](const ImageDescriptor& self) { return "<ImageDescriptor " + self.describe() + ">"; });
}

/// Elements of one stacked image, or a rectangle of them, to and from arrays of the host's.
void bindTransfers(nb::class_<Image>& image) {
  constexpr const char* whole =
      "Elements are the image's own, without conversion: of its type, or bytes (uint8). `layout`: their "
      "order in the "
      "array. `image_index`: which of the stacked images. Raises Error for another type, too small an array, "
      "for one that "
      "is read into and has gaps, and for temporary and private images. Does not wait for the device.";
  constexpr const char* region =
      "The same for pixels of `region` (origin.z and size.depth count images from image_index on) and "
      "channels of "
      "`feature_channel_info`; `strides` describe the array. Raises Error for what lies outside the image.";
  image
      .def(
          "read_bytes",
          [](const Image& self, const WritableHostArray& destination, mps::DataLayout layout,
             std::size_t imageIndex) {
            checkElements("Image", "destination", destination.dtype(),
                          elementType(self.featureChannelFormat()));
            self.readBytes(bytesOf(destination, "Image", "destination"), layout, imageIndex);
          },
          "destination"_a.noconvert(), "layout"_a = channelsLast, "image_index"_a = 0, Released(), whole)
      .def(
          "read_bytes",
          [](const Image& self, const WritableHostArray& destination, mps::DataLayout layout,
             const mps::DataStrides& strides, const mtl::Region& region,
             const mps::ImageReadWriteParams& channels, std::size_t imageIndex) {
            checkElements("Image", "destination", destination.dtype(),
                          elementType(self.featureChannelFormat()));
            self.readBytes(bytesOf(destination, "Image", "destination"), layout, strides, region, channels,
                           imageIndex);
          },
          "destination"_a.noconvert(), "layout"_a, "strides"_a, "region"_a, "feature_channel_info"_a,
          "image_index"_a = 0, Released(), region)
      .def(
          "write_bytes",
          [](Image& self, const HostArray& source, mps::DataLayout layout, std::size_t imageIndex) {
            checkElements("Image", "source", source.dtype(), elementType(self.featureChannelFormat()));
            self.writeBytes(bytesOf(source), layout, imageIndex);
          },
          "source"_a, "layout"_a = channelsLast, "image_index"_a = 0, Released(), whole)
      .def(
          "write_bytes",
          [](Image& self, const HostArray& source, mps::DataLayout layout, const mps::DataStrides& strides,
             const mtl::Region& region, const mps::ImageReadWriteParams& channels, std::size_t imageIndex) {
            checkElements("Image", "source", source.dtype(), elementType(self.featureChannelFormat()));
            self.writeBytes(bytesOf(source), layout, strides, region, channels, imageIndex);
          },
          "source"_a, "layout"_a, "strides"_a, "region"_a, "feature_channel_info"_a, "image_index"_a = 0,
          Released(), region);
}

void bindImage(nb::module_& module) {
  nb::class_<Image> image(
      module, "Image",
      "A picture or activation of width x height pixels with any number of feature channels; optionally "
      "several of them "
      "stacked. Values are stored [image][y][x][channel]. Memory is taken at first use; an image that was "
      "never written reads "
      "as zeros.\n\n"
      "np.asarray(image) and torch.from_dlpack(image) are arrays [y][x][channel] (of stacks "
      "[image][y][x][channel]) that "
      "share its memory; Image.from_array is the way back. unorm8 and unorm16 are uint8 and uint16.");
  image
      .def(nb::new_([](const std::shared_ptr<mtl::Device>& device, const ImageDescriptor& descriptor) {
             return Image::create(device, descriptor);
           }),
           "device"_a, "descriptor"_a, "A permanent image. Raises Error when a size of the descriptor is 0.")
      .def(nb::new_([](const std::shared_ptr<mtl::Buffer>& buffer, std::size_t byteOffset,
                       const ImageDescriptor& descriptor, const mps::ImageStrides& strides) {
             return Image::create(buffer, byteOffset, descriptor, strides);
           }),
           "buffer"_a, "byte_offset"_a, "descriptor"_a, "strides"_a = mps::ImageStrides{},
           "An image over memory of a buffer; nothing is copied. `byte_offset`: of the first element, a "
           "multiple of the "
           "element size. Raises Error when an element would lie outside the buffer.")
      .def(nb::new_([](const std::shared_ptr<Image>& parentImage, std::size_t firstSlice,
                       std::size_t sliceCount, std::size_t featureChannels) {
             return Image::create(parentImage, firstSlice, sliceCount, featureChannels);
           }),
           "parent_image"_a, "first_slice"_a, "slice_count"_a, "feature_channels"_a,
           "A view of slices of four channels: some channels of one image, or whole images of a stack. "
           "Raises Error for others.")
      .def_static(
          "from_array", &imageFromArray, "device"_a.none(), "array"_a, "layout"_a = channelsLast,
          nb::kw_only(), "copy"_a.none() = nb::none(),
          "An image with the elements of an array of three dimensions in the order of `layout`, or a stack "
          "of images "
          "with those of four. Types: float32, float16, uint8 (unorm8), uint16 (unorm16).\n\n"
          "The memory is shared where it is on the device, can be written, and has adjacent channels, as a "
          "channels_last tensor has. `copy`: None copies where it cannot be shared, and kernels that are to "
          "write such a copy "
          "raise Error, because the array would not change. False raises Error where it cannot be shared, "
          "True "
          "always copies: results are in the image then.");
  readOnly(image, "device", &Image::device, "Where it lives.");
  readOnly(image, "width", &Image::width, "Pixels.");
  readOnly(image, "height", &Image::height, "Pixels.");
  readOnly(image, "feature_channels", &Image::featureChannels, "Channels of a pixel.");
  readOnly(image, "number_of_images", &Image::numberOfImages, "Images stacked in this one.");
  readOnly(image, "feature_channel_format", &Image::featureChannelFormat, "Storage of a channel.");
  readOnly(image, "pixel_format", &Image::pixelFormat, "Of a texel in Apple's storage.");
  readOnly(image, "texture_type", &Image::textureType, "Type2D for one image of up to four channels.");
  readOnly(image, "usage", &Image::usage, "The descriptor's.");
  readOnly(image, "descriptor", &Image::descriptor, "Size and format.");
  readOnly(image, "precision", &Image::precision, "Significant bits of a channel.");
  readOnly(image, "pixel_size", &Image::pixelSize, "Bytes of one texel of Apple's storage.");
  readOnly(image, "resource_size", &Image::resourceSize, "Bytes of backing storage; 0 for views.");
  property(image, "label", &Image::label, &Image::setLabel, "For messages; empty by default.");
  image.def(
      "set_purgeable_state", &Image::setPurgeableState, "state"_a,
      "A hint without effect. Returns the state that it was in: NonVolatile, or AllocationDeferred before "
      "memory is taken.");
  readOnly(image, "parent", &Image::parent, "The image that this one is a view of, or None.");
  readOnly(image, "is_temporary", &Image::isTemporary, "Whether it lives on one command buffer.");
  bindTransfers(image);
  bindArrays(image, [](const Image& self) { return elementsOf(self); });
  image
      .def(
          "batch_representation", [](Image& self) { return self.batchRepresentation(); },
          "One image for each stacked image, sharing storage.")
      .def(
          "batch_representation",
          [](Image& self, std::size_t first, std::size_t count) {
            return self.batchRepresentation(first, count);
          },
          "first"_a, "count"_a,
          "The same for images [first, first + count). Raises Error when the range leaves the stack.")
      .def("sub_image_with_feature_channel_range", &Image::subImageWithFeatureChannelRange, "location"_a,
           "length"_a,
           "A view of channels [location, location + length); too long a length is cut to fit. Raises Error "
           "when location is "
           "not a multiple of 4 below feature_channels, or length neither a multiple of 4 nor up to the last "
           "channel.")
      .def("texture", &Image::texture, "Metal's texture of this image: slices of four channels.")
      .def("synchronize", &Image::synchronize, "command_buffer"_a, Released(),
           "Records the copy that makes device results visible to the host. Nothing to do for private, "
           "temporary or "
           "unallocated images. Raises Error after commit.")
      .def_static("default_allocator", &Image::defaultAllocator, "Makes permanent images.")
      .def("describe", &Image::describe, "image \"label\" (float32 28x28x1), width first.")
      .def("__repr__", [](const Image& self) { return "<" + self.describe() + ">"; });

  nb::class_<mps::TemporaryImage, Image> temporary(
      module, "TemporaryImage",
      "Scratch image of one command buffer; its memory serves the next one as soon as read_count is 0. Each "
      "encode call "
      "that reads it takes 1 off, at encode time. Its content starts undefined, and the host cannot read or "
      "write it.");
  temporary.def(nb::new_(&mps::TemporaryImage::create), "command_buffer"_a, "descriptor"_a,
                "Raises Error when a size of the descriptor is 0 or the command buffer was committed.");
  property(temporary, "read_count", &mps::TemporaryImage::readCount, &mps::TemporaryImage::setReadCount,
           "Reads that are still to come; starts at 1. 0 frees the memory now. Raises Error when it was 0 "
           "already.");
  temporary.def_static("default_allocator", &mps::TemporaryImage::defaultAllocator, "Makes temporary images.")
      .def_static(
          "prefetch_storage",
          [](const CommandBufferPointer& commandBuffer, const std::vector<ImageDescriptor>& descriptors) {
            mps::TemporaryImage::prefetchStorage(commandBuffer, descriptors);
          },
          "command_buffer"_a, "descriptors"_a, "A hint that these images will be needed; nothing is done.");
}

void bindTexture(nb::module_& module) {
  nb::class_<mps::DataStrides>(
      module, "DataStrides",
      "Distances between elements of the user's memory, in bytes; 0 means tightly packed.")
      .def(nb::init<std::size_t, std::size_t, std::size_t>(), "bytes_per_column"_a = 0, "bytes_per_row"_a = 0,
           "bytes_per_image"_a = 0)
      .def_rw("bytes_per_column", &mps::DataStrides::bytesPerColumn, "From x to x + 1.")
      .def_rw("bytes_per_row", &mps::DataStrides::bytesPerRow, "From y to y + 1.")
      .def_rw("bytes_per_image", &mps::DataStrides::bytesPerImage, "From one image to the next.");
  nb::class_<mps::ImageStrides>(
      module, "ImageStrides",
      "Distances in memory that an image is laid over, in elements; channels are adjacent; 0 means "
      "tightly packed.")
      .def(nb::init<std::size_t, std::size_t, std::size_t>(), "pixel"_a = 0, "row"_a = 0, "image"_a = 0)
      .def_rw("pixel", &mps::ImageStrides::pixel, "From x to x + 1.")
      .def_rw("row", &mps::ImageStrides::row, "From y to y + 1.")
      .def_rw("image", &mps::ImageStrides::image, "From one image to the next.");
  nb::class_<mps::TextureView>(
      module, "TextureView",
      "An image as Metal's texture: array slice n * ceil(C / 4) + s holds channels 4s to 4s + 3 of image n. "
      "A texel has 1, 2 "
      "or 4 channels; those beyond the image's last read as 0 and are dropped when written.")
      .def(nb::init<ImagePointer>(), "image"_a)
      .def_prop_ro("width", &mps::TextureView::width, "Texels.")
      .def_prop_ro("height", &mps::TextureView::height, "Texels.")
      .def_prop_ro("array_length", &mps::TextureView::arrayLength, "Slices.")
      .def_prop_ro("pixel_format", &mps::TextureView::pixelFormat, "Of a texel.")
      .def(
          "replace",
          [](mps::TextureView& self, const mtl::Region& region, std::size_t slice, const HostArray& bytes,
             std::size_t bytesPerRow) { self.replace(region, slice, bytesOf(bytes), bytesPerRow); },
          "region"_a, "slice"_a, "bytes"_a, "bytes_per_row"_a,
          "Writes the pixels of `region` (z ignored) into one slice. Raises Error for what lies outside the "
          "texture, or too "
          "small an array.")
      .def(
          "get_bytes",
          [](const mps::TextureView& self, const WritableHostArray& bytes, std::size_t bytesPerRow,
             const mtl::Region& region, std::size_t slice) {
            self.getBytes(bytesOf(bytes, "TextureView", "bytes"), bytesPerRow, region, slice);
          },
          "bytes"_a.noconvert(), "bytes_per_row"_a, "region"_a, "slice"_a,
          "Reads them. Raises Error for the same, and for an array that has gaps.");
}

/// An allocator written in Python.
class PythonAllocator final : public mps::ImageAllocator {
 public:
  ImagePointer image(const CommandBufferPointer& commandBuffer, const ImageDescriptor& descriptor,
                     const mps::Kernel& kernel) override {
    const Locked locked;
    return converted<ImagePointer>(
        required<ImageAllocator>(*this, "image")(commandBuffer, descriptor, kernel.shared_from_this()),
        "what image() returns", "an Image");
  }
  ImageBatch imageBatch(const CommandBufferPointer& commandBuffer, const ImageDescriptor& descriptor,
                        const mps::Kernel& kernel, std::size_t count) override {
    const Locked locked;
    const nb::object own = overridden<ImageAllocator>(*this, "image_batch");
    if (!own.is_valid()) return ImageAllocator::imageBatch(commandBuffer, descriptor, kernel, count);
    return converted<ImageBatch>(own(commandBuffer, descriptor, kernel.shared_from_this(), count),
                                 "what image_batch() returns", "an ImageBatch or a list of images");
  }
};

void bindAllocator(nb::module_& module) {
  nb::class_<mps::ImageAllocator, PythonAllocator, mps::SecureCoding>(
      module, "ImageAllocator",
      "Makes the destination images of kernels. A subclass that defines `image`, and may define image_batch, "
      "controls where "
      "results live:\n\n"
      "    class Permanent(unmetal.ImageAllocator):\n"
      "        def image(self, command_buffer, descriptor, kernel):\n"
      "            return unmetal.Image(command_buffer.device, descriptor)")
      .def(nb::init<>())
      .def(
          "image",
          [](mps::ImageAllocator& self, const CommandBufferPointer& commandBuffer,
             const ImageDescriptor& descriptor, const mps::Kernel& kernel) {
            if (isOf<PythonAllocator>(self)) throwNotDefined("image");
            return self.image(commandBuffer, descriptor, kernel);
          },
          "command_buffer"_a, "descriptor"_a, "kernel"_a,
          "One image that lives at least until the command buffer completes, on the buffer's device. The "
          "kernel is "
          "informational. Returning None, or an image of another size, makes the encode raise. Raises "
          "NotImplementedError "
          "where a subclass does not define it.")
      .def(
          "image_batch",
          [](mps::ImageAllocator& self, const CommandBufferPointer& commandBuffer,
             const ImageDescriptor& descriptor, const mps::Kernel& kernel, std::size_t count) {
            return isOf<PythonAllocator>(self)
                       ? self.ImageAllocator::imageBatch(commandBuffer, descriptor, kernel, count)
                       : self.imageBatch(commandBuffer, descriptor, kernel, count);
          },
          "command_buffer"_a, "descriptor"_a, "kernel"_a, "count"_a,
          "`count` images at once; calls `image` for each unless a subclass defines it.");
}

}  // namespace

void bindCoreImage(nb::module_& module) {
  bindEnumerations(module);
  bindDescriptor(module);
  bindAllocator(module);
  bindTexture(module);
  bindImage(module);
}

}  // namespace python
