#include <cstddef>
#include <limits>
#include <string>

#include "mps/core/image/image_batch.hpp"
#include "python/source/arrays/arrays.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"
#include "python/source/binding/sequences.hpp"

namespace python {
namespace {

using mps::ImageBatch;

/// Calls a function of Python with each distinct image; what it returns other than None ends the walk.
nb::object iterate(const ImageBatch& batch, const nb::callable& function) {
  nb::object last = nb::none();
  mps::ImageBatchIterate(batch, [&](const ImagePointer& image, std::size_t index) {
    last = function(image, index);
    constexpr std::int64_t goOn = std::numeric_limits<std::int64_t>::min();
    return last.is_none() ? goOn : 0;
  });
  return last;
}

void bindTransfers(nb::class_<ImageBatch>& batch) {
  batch
      .def(
          "write_bytes",
          [](const ImageBatch& self, const HostArray& source, mps::DataLayout layout) {
            if (!self.empty())
              checkElements("ImageBatch", "source", source.dtype(),
                            elementType(self.descriptor().channelFormat()));
            self.writeBytes(bytesOf(source), layout);
          },
          "source"_a, "layout"_a = channelsLast, Released(),
          "All images in one copy, one after the other in `source`. Raises Error for "
          "another type, too "
          "small an array, and temporary images.")
      .def(
          "read_bytes",
          [](const ImageBatch& self, const WritableHostArray& destination, mps::DataLayout layout) {
            if (!self.empty())
              checkElements("ImageBatch", "destination", destination.dtype(),
                            elementType(self.descriptor().channelFormat()));
            self.readBytes(bytesOf(destination, "ImageBatch", "destination"), layout);
          },
          "destination"_a.noconvert(), "layout"_a = channelsLast, Released(),
          "The mirror of write_bytes. Raises Error for an array that has gaps, too. Does not wait for the "
          "device.");
}

}  // namespace

void bindCoreBatch(nb::module_& module) {
  nb::class_<ImageBatch> batch(module, "ImageBatch",
                               "Images of one size and format that are processed together. A list of images "
                               "is one, too, wherever a batch is "
                               "expected; where they are not evenly spaced in memory it costs a copy.\n\n"
                               "np.asarray(batch) and torch.from_dlpack(batch) are arrays "
                               "[image][y][x][channel] that share the memory of a batch "
                               "that is one block; ImageBatch.from_array is the way back.");
  batch.def(nb::init<>(), "No images.")
      .def(nb::init_implicit<Images>(), "images"_a,
           "Loose images, each with number_of_images 1, all of one size, number of channels and format "
           "(checked when "
           "encoded).")
      .def(
          "__init__",
          [](ImageBatch* self, const std::shared_ptr<mtl::Device>& device,
             const mps::ImageDescriptor& descriptor,
             std::size_t count) { new (self) ImageBatch(ImageBatch::create(device, descriptor, count)); },
          "device"_a, "descriptor"_a, "count"_a,
          "A permanent batch in one block. Raises Error when a size of the descriptor is 0 or "
          "number_of_images is not 1.")
      .def_static("create_temporary", &ImageBatch::createTemporary, "command_buffer"_a, "descriptor"_a,
                  "count"_a, "A temporary batch in one block of the command buffer's heap.")
      .def_static("from_array", &batchFromArray, "device"_a.none(), "array"_a, "layout"_a = channelsLast,
                  nb::kw_only(), "copy"_a.none() = nb::none(),
                  "Images with the elements of an array of four dimensions in the order of `layout`; types, "
                  "sharing and "
                  "`copy` as for Image.from_array.")
      .def_prop_ro("count", &ImageBatch::count, "Number of images; len(batch), too.")
      .def_prop_ro("empty", &ImageBatch::empty, "Whether there are none.")
      .def("slice", &ImageBatch::slice, "first"_a, "count"_a,
           "Images [first, first + count) of the same memory. Raises Error when the range leaves the batch.")
      .def_prop_ro("descriptor", &ImageBatch::descriptor, nb::rv_policy::copy,
                   "Size and format of each image. Raises Error when there are none.")
      .def_prop_ro("is_temporary", &ImageBatch::isTemporary, "Whether they live on one command buffer.")
      .def("increment_read_count", &mps::ImageBatchIncrementReadCount, "amount"_a,
           "Adds `amount`, which may be negative, to read_count once for each distinct temporary image whose "
           "count is not "
           "0; never below 0. Returns the number of distinct images.")
      .def("synchronize", &mps::ImageBatchSynchronize, "command_buffer"_a, Released(),
           "Image.synchronize once for each distinct image.")
      .def_prop_ro("resource_size", &mps::ImageBatchResourceSize,
                   "Bytes of backing storage, distinct images once.")
      .def("iterate", &iterate, "function"_a,
           "Calls function(image, index) once for each distinct image, index being its first position, until "
           "it returns "
           "something other than None; returns that.");
  bindSequence<ImageBatch, mps::Image>(
      batch, "Image", "Those images. With step 1 they share the batch's memory as one block.");
  bindTransfers(batch);
  bindArrays(batch, [](const ImageBatch& self) { return elementsOf(self); });
  batch.def("__repr__", [](const ImageBatch& self) {
    return "<ImageBatch of " + std::to_string(self.count()) +
           (self.empty() ? ">" : ": " + self.descriptor().describe() + ">");
  });
}

}  // namespace python
