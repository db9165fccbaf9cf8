#pragma once

#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "python/source/bind.hpp"

/// Arrays of NumPy and of whoever speaks DLPack: over the memory of images, and images over theirs.
namespace python {

/// An array of the host's without gaps, and one that may be written.
using HostArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using WritableHostArray = nb::ndarray<nb::c_contig, nb::device::cpu>;

inline std::span<const std::byte> bytesOf(const HostArray& array) {
  return {static_cast<const std::byte*>(array.data()), array.nbytes()};
}
inline std::span<std::byte> bytesOf(const WritableHostArray& array) {
  return {static_cast<std::byte*>(array.data()), array.nbytes()};
}

/// "float32", "uint8", ...
std::string nameOf(nb::dlpack::dtype type);
/// What elements of that format are to others: unorm8 and unorm16 are whole numbers.
nb::dlpack::dtype elementType(mps::ImageFeatureChannelFormat format);
/// Elements of the format, or plain bytes (uint8). @throws mps::Error naming class and argument
void checkElements(const char* className, const char* argument, nb::dlpack::dtype type,
                   mps::ImageFeatureChannelFormat format);

/// Elements in memory, as an array describes them; strides in elements.
struct Elements {
  std::byte* address = nullptr;
  std::vector<std::size_t> shape;
  std::vector<std::int64_t> strides;
  nb::dlpack::dtype type;
  std::shared_ptr<mtl::Device> device;
};

/// [height][width][channel], with the images in front when several are stacked.
/// @throws mps::Error for a temporary, private or invalid image
Elements elementsOf(const mps::Image& image);
/// [image][height][width][channel]. @throws mps::Error also for images that are not evenly spaced in one memory
Elements elementsOf(const mps::ImageBatch& batch);

/// The methods `__array__`, `__dlpack__` and `__dlpack_device__`: arrays that share the memory and keep the object alive.
nb::object numpyArray(const Elements& elements, nb::handle owner, nb::handle type, std::optional<bool> copy);
nb::object dlpackArray(const Elements& elements, nb::handle owner, const nb::kwargs& arguments);
nb::tuple dlpackDevice(const mtl::Device& device);
template <class Class>
void bindArrays(Class& bound) {
  using Type = typename Class::Type;
  bound
      .def(
          "__array__",
          [](nb::handle self, nb::handle type, std::optional<bool> copy) {
            return numpyArray(elementsOf(nb::cast<const Type&>(self)), self, type, copy);
          },
          "dtype"_a.none() = nb::none(), "copy"_a.none() = nb::none(),
          "For NumPy: np.asarray shares the memory. Work in flight is not waited for. Raises Error for "
          "temporary, private "
          "and invalid images, and for those of a GPU.")
      .def(
          "__dlpack__",
          [](nb::handle self, const nb::kwargs& arguments) {
            return dlpackArray(elementsOf(nb::cast<const Type&>(self)), self, arguments);
          },
          "For torch.from_dlpack and the like, which share the memory, also of a GPU. Work in flight is not "
          "waited for.")
      .def(
          "__dlpack_device__", [](const Type& self) { return dlpackDevice(*elementsOf(self).device); },
          "Kind and number of the device, as DLPack counts them: (1, 0) is the CPU, (2, n) cuda:n.");
}

/// An image, or a stack of them, with the elements of an array. @param copy None: only where the memory cannot be shared
/// @throws mps::Error for another type or number of dimensions, and when sharing is asked for and impossible
ImagePointer imageFromArray(const std::shared_ptr<mtl::Device>& device, nb::handle array,
                            mps::DataLayout layout, std::optional<bool> copy);
mps::ImageBatch batchFromArray(const std::shared_ptr<mtl::Device>& device, nb::handle array,
                               mps::DataLayout layout, std::optional<bool> copy);

}  // namespace python
