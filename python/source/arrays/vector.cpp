#include "mps/core/array/vector.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "python/source/arrays/array_members.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {
namespace {

using mps::Vector;
using mps::VectorDescriptor;

void bindDescriptor(nb::module_& module) {
  nb::class_<VectorDescriptor> descriptor(
      module, "VectorDescriptor",
      "Lengths and type of vectors. A value; a vector that was made from it does not see later changes.");
  descriptor
      .def(nb::new_([](std::size_t length, mps::DataType type) {
             return VectorDescriptor::vectorDescriptor(length, type);
           }),
           "length"_a, "data_type"_a = mps::DataType::Float32,
           "One vector of `length` elements without gaps. Raises Error for an invalid type.")
      .def(nb::new_([](std::size_t length, std::size_t vectors, std::size_t vectorBytes, mps::DataType type) {
             return VectorDescriptor::vectorDescriptor(length, vectors, vectorBytes, type);
           }),
           "length"_a, "vectors"_a, "vector_bytes"_a, "data_type"_a,
           "Several. `vector_bytes`: from one vector to the next, a multiple of the element size, at least "
           "one vector.")
      .def_static(
          "recommended_vector_bytes",
          [](std::size_t length, mps::DataType type) { return VectorDescriptor::vectorBytes(length, type); },
          "length"_a, "data_type"_a,
          "The recommended distance: one element for length 1, else floating types to 16 bytes, integers to "
          "4 "
          "elements.");
  property(descriptor, "length", &VectorDescriptor::length, &VectorDescriptor::setLength,
           "Elements of one vector.");
  readOnly(descriptor, "vectors", &VectorDescriptor::vectors, "How many there are.");
  property(descriptor, "data_type", &VectorDescriptor::dataType, &VectorDescriptor::setDataType,
           "Type of an element.");
  readOnly(
      descriptor, "vector_bytes", [](const VectorDescriptor& self) { return self.vectorBytes(); },
      "Bytes from one vector to the next.");
  descriptor.def("encode", &VectorDescriptor::encode, "coder"_a, "Writes the fields.")
      .def_static("decode", &VectorDescriptor::decode, "coder"_a,
                  "What encode wrote. Raises Error for a type that does not exist.");
}

Elements elementsOfVector(Vector& vector) {
  std::vector<std::size_t> shape{vector.length()};
  std::vector<std::int64_t> strides{1};
  if (vector.vectors() > 1) {
    const std::size_t size = mps::sizeInBytes(vector.dataType());
    shape.insert(shape.begin(), vector.vectors());
    strides.insert(strides.begin(), static_cast<std::int64_t>(vector.vectorBytes() / size));
  }
  return elementsOf("Vector", vector, std::move(shape), std::move(strides), vector.dataType());
}

std::shared_ptr<Vector> fromArray(const std::shared_ptr<mtl::Device>& device, nb::handle array,
                                  std::optional<bool> copy) {
  const GivenArray given = lookAt("Vector", array);
  const std::size_t dimensions = given.array.ndim();
  if (dimensions != 1 && dimensions != 2)
    throw mps::Error("Vector", "array", std::to_string(dimensions) + "-dimensional",
                     "1 dimension, or 2 for several vectors");
  const mps::DataType type = dataTypeOf("Vector", given.array.dtype());
  const std::vector<std::size_t> shape(given.array.shape_ptr(), given.array.shape_ptr() + dimensions);
  const std::vector<std::int64_t> strides(given.array.stride_ptr(), given.array.stride_ptr() + dimensions);
  const Sharing sharing = sharingOf("Vector", device, given, shape, strides, "elements", copy);
  const std::size_t length = shape[dimensions - 1];
  const std::size_t vectors = dimensions == 1 ? 1 : shape[0];
  const std::size_t step = sharing.isShared && vectors > 1 ? static_cast<std::size_t>(strides[0]) : length;
  const auto descriptor =
      VectorDescriptor::vectorDescriptor(length, vectors, step * mps::sizeInBytes(type), type);
  if (sharing.isShared)
    return Vector::create(bufferOver(device, given, (vectors - 1) * step + length), descriptor);
  const HostArray elements = packed(given);
  if (!sharing.why.empty())
    return Vector::create(readOnlyCopy("Vector", device, elements, sharing.why), descriptor);
  auto vector = Vector::create(device, descriptor);
  fill(*vector->data(), elements);
  return vector;
}

void bindVectors(nb::module_& module) {
  nb::class_<Vector> vector(module, "Vector",
                            "One or several vectors in a buffer. Element i of vector v lies at byte offset + "
                            "v * vector_bytes + i * size of "
                            "the type.\n\n"
                            "np.asarray(vector) is an array [element] (of several vectors [vector][element]) "
                            "that shares its memory; "
                            "Vector.from_array is the way back.");
  vector
      .def(nb::new_([](std::shared_ptr<mtl::Buffer> buffer, const VectorDescriptor& descriptor,
                       std::size_t offset) { return Vector::create(std::move(buffer), descriptor, offset); }),
           "buffer"_a, "descriptor"_a, "offset"_a = 0,
           "Shares the buffer. `offset`: bytes, a multiple of the element size. Raises Error when the "
           "vectors overlap or "
           "leave the buffer.")
      .def(nb::new_([](std::shared_ptr<mtl::Device> device, const VectorDescriptor& descriptor) {
             return Vector::create(std::move(device), descriptor);
           }),
           "device"_a, "descriptor"_a, "With a zero-filled buffer of its own, allocated at first use.")
      .def_static("from_array", &fromArray, "device"_a.none(), "array"_a, nb::kw_only(),
                  "copy"_a.none() = nb::none(), sharingDocumentation);
  readOnly(vector, "length", &Vector::length, "Elements of one vector.");
  readOnly(vector, "vectors", &Vector::vectors, "How many there are.");
  readOnly(vector, "vector_bytes", &Vector::vectorBytes, "Bytes from one vector to the next.");
  readOnly(vector, "data_type", &Vector::dataType, "Type of an element.");
  bindArrayMembers(vector, &elementsOfVector);
  nb::class_<mps::TemporaryVector, Vector> temporary(
      module, "TemporaryVector",
      "Scratch vector of one command buffer: private memory, undefined at first, that serves others once "
      "read_count is "
      "0. Each encode that reads it takes 1 off.");
  temporary
      .def(nb::new_(&mps::TemporaryVector::create), "command_buffer"_a, "descriptor"_a,
           "Raises Error after commit.")
      .def_static(
          "prefetch_storage",
          [](const CommandBufferPointer& commandBuffer, const std::vector<VectorDescriptor>& descriptors) {
            mps::TemporaryVector::prefetchStorage(commandBuffer, descriptors);
          },
          "command_buffer"_a, "descriptors"_a, "A hint without effect.");
  bindReadCount(temporary);
}

}  // namespace

void bindVector(nb::module_& module) {
  bindDescriptor(module);
  bindVectors(module);
}

}  // namespace python
