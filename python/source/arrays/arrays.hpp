#pragma once

#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mps/core/array/array.hpp"
#include "mtl/buffer.hpp"
#include "python/source/binding/bind.hpp"

/// Arrays of NumPy and of whoever speaks DLPack: over the memory of images, vectors and matrices, and these over theirs.
namespace python {

/// An array of the host's without gaps. A tensor of PyTorch that negates its elements is resolved where arguments are
/// converted.
struct HostArray : nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu> {
  using Array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
  HostArray() = default;
  explicit HostArray(const Array& array) : Array(array) {}
};
/// One that is written, in any order: nanobind would write into a copy where it puts the elements in order. Arguments
/// of this type carry noconvert(), for the same reason. No tensor that negates its elements.
struct WritableHostArray : nb::ndarray<nb::device::cpu> {
  using Array = nb::ndarray<nb::device::cpu>;
  WritableHostArray() = default;
  explicit WritableHostArray(const Array& array) : Array(array) {}
};

/// The array itself; of a tensor of PyTorch that negates its elements when they are read, which DLPack does not say, a
/// tensor with the negated elements in memory.
nb::object resolved(nb::handle array);

inline std::span<const std::byte> bytesOf(const HostArray& array) {
  return {static_cast<const std::byte*>(array.data()), array.nbytes()};
}
/// The bytes of an array that is written. @throws mps::Error naming class and argument, when the array has gaps or
/// elements in another order
std::span<std::byte> bytesOf(const WritableHostArray& array, const char* className, const char* argument);

/// "float32", "uint8", ...
std::string nameOf(nb::dlpack::dtype type);
/// What elements of that format are to others: unorm8 and unorm16 are whole numbers.
nb::dlpack::dtype elementType(mps::ImageFeatureChannelFormat format);
nb::dlpack::dtype elementType(mps::DataType type);
/// Elements of that type, or plain bytes (uint8). @throws mps::Error naming class and argument
void checkElements(const char* className, const char* argument, nb::dlpack::dtype found,
                   nb::dlpack::dtype expected);

/// Elements in memory, as an array describes them; strides in elements.
struct Elements {
  const char* className = "Image";
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

/// Of that shape, strides and type in the buffer of a vector or matrix, from its offset on.
/// @throws mps::Error for temporary storage, and for content that a failed command should have written
Elements elementsOf(const char* className, mps::detail::Array& array, std::vector<std::size_t> shape,
                    std::vector<std::int64_t> strides, mps::DataType type);

/// The methods `__array__`, `__dlpack__` and `__dlpack_device__`: arrays that share the memory and keep the object alive.
nb::object numpyArray(const Elements& elements, nb::handle owner, nb::handle type, std::optional<bool> copy);
nb::object dlpackArray(const Elements& elements, nb::handle owner, const nb::kwargs& arguments);
nb::tuple dlpackDevice(const mtl::Device& device);
/// @param elementsOf gives the Elements of an object
template <class Class, class ElementsOf>
void bindArrays(Class& bound, ElementsOf elementsOf) {
  using Type = typename Class::Type;
  bound
      .def(
          "__array__",
          [elementsOf](nb::handle self, nb::handle type, std::optional<bool> copy) {
            return numpyArray(elementsOf(nb::cast<Type&>(self)), self, type, copy);
          },
          "dtype"_a.none() = nb::none(), "copy"_a.none() = nb::none(),
          "For NumPy: np.asarray shares the memory. Work in flight is not waited for. Raises Error for "
          "temporary, private "
          "and invalid images, and for those of a GPU.")
      .def(
          "__dlpack__",
          [elementsOf](nb::handle self, const nb::kwargs& arguments) {
            return dlpackArray(elementsOf(nb::cast<Type&>(self)), self, arguments);
          },
          "For torch.from_dlpack and the like, which share the memory. Work in flight is not waited for, "
          "except for what a GPU was given so far, whichever stream is asked for.")
      .def(
          "__dlpack_device__", [elementsOf](Type& self) { return dlpackDevice(*elementsOf(self).device); },
          "Kind and number of the device, as DLPack counts them: (1, 0) is the CPU, (2, n) cuda:n.");
}

/// An array that somebody gave, looked at.
struct GivenArray {
  nb::object owner;
  nb::ndarray<nb::ro> array;
  nb::ndarray<> writable;  ///< not valid: read-only
  std::string obstacle;    ///< why `array` is not the memory that was given; empty: it is
};
/// What becomes of an array's memory.
struct Sharing {
  bool isShared = false;
  std::string why;  ///< of a copy that was not asked for: why the memory is not shared; else empty
};
/// @throws mps::Error when it has no elements in memory
GivenArray lookAt(const char* className, nb::handle given);
/// Whether the memory becomes the object's, or a copy. @param shape,strides the slowest axis first, in elements
/// @param innermost what lies along the last axis, for messages  @param why what else is in the way; empty: nothing
/// @param copy None: only where the memory cannot be shared
/// @throws mps::Error when sharing is asked for and impossible, and for memory of a GPU that cannot be shared
Sharing sharingOf(const char* className, const std::shared_ptr<mtl::Device>& device, const GivenArray& given,
                  std::span<const std::size_t> shape, std::span<const std::int64_t> strides,
                  const char* innermost, std::optional<bool> copy, std::string why = {});
/// The array's memory, which the buffer keeps alive. @param elements from the first one to the last one
std::shared_ptr<mtl::Buffer> bufferOver(const std::shared_ptr<mtl::Device>& device, const GivenArray& given,
                                        std::size_t elements);
/// The elements without gaps. @param from,to an axis that is moved, as numpy.moveaxis does
HostArray packed(const GivenArray& given, int from = -1, int to = -1);
/// Copies elements to the beginning of a buffer.
void fill(mtl::Buffer& buffer, const HostArray& elements);
/// A buffer with a copy that was not asked for: no command may write it, because the array would not change.
/// @param why the memory is not shared
std::shared_ptr<mtl::Buffer> readOnlyCopy(const char* className, const std::shared_ptr<mtl::Device>& device,
                                          const HostArray& elements, const std::string& why);

inline constexpr const char* sharingDocumentation =
    "The memory is shared where it is on the device, can be written, and has adjacent elements along the "
    "last axis. "
    "`copy`: None copies where it cannot be shared, and kernels that are to write such a copy raise Error, "
    "because the array "
    "would not change. False raises Error where it cannot be shared, True always copies: results are in the "
    "object then.";

/// An image, or a stack of them, with the elements of an array. @param copy None: only where the memory cannot be shared
/// @throws mps::Error for another type or number of dimensions, and when sharing is asked for and impossible
ImagePointer imageFromArray(const std::shared_ptr<mtl::Device>& device, nb::handle array,
                            mps::DataLayout layout, std::optional<bool> copy);
mps::ImageBatch batchFromArray(const std::shared_ptr<mtl::Device>& device, nb::handle array,
                               mps::DataLayout layout, std::optional<bool> copy);

}  // namespace python

namespace nanobind::detail {

template <>
struct type_caster<python::HostArray> {
  NB_TYPE_CASTER(python::HostArray, type_caster<python::HostArray::Array>::Name)

  bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    try {
      const object elements = python::resolved(source);
      if (!elements.is(source) && (flags & cast_flags::convert) == 0) return false;
      type_caster<python::HostArray::Array> caster;
      if (!caster.from_python(elements, flags, cleanup)) return false;
      value = python::HostArray(caster.value);
      return true;
    } catch (const python_error&) {
      return false;
    }
  }
};

template <>
struct type_caster<python::WritableHostArray> {
  NB_TYPE_CASTER(python::WritableHostArray, type_caster<python::WritableHostArray::Array>::Name)

  bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    try {
      type_caster<python::WritableHostArray::Array> caster;
      if (!python::resolved(source).is(source) || !caster.from_python(source, flags, cleanup)) return false;
      value = python::WritableHostArray(caster.value);
      return true;
    } catch (const python_error&) {
      return false;
    }
  }
};

}  // namespace nanobind::detail
