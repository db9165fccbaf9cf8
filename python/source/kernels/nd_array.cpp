#include "mps/core/array/nd_array.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "mps/core/array/nd_array_kernel.hpp"
#include "mps/gather/gather.hpp"
#include "mtl/buffer.hpp"
#include "python/source/arrays/array_members.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/kernels/kernels.hpp"

namespace python {

using mps::NDArray;
using mps::NDArrayDescriptor;
using ArrayPointer = std::shared_ptr<NDArray>;

namespace {

/// The slowest dimension first, as NumPy has them.
Elements elementsOfArray(NDArray& array) {
  std::vector<std::size_t> shape;
  for (std::size_t i = array.numberOfDimensions(); i-- > 0;) shape.push_back(array.lengthOfDimension(i));
  std::vector<std::int64_t> strides = stridesWithoutGaps(shape);
  return elementsOf("NDArray", array, std::move(shape), std::move(strides), array.dataType());
}

ArrayPointer fromArray(const std::shared_ptr<mtl::Device>& device, nb::handle array) {
  const GivenArray given = lookAt("NDArray", array);
  std::vector<std::size_t> lengths(given.array.shape_ptr(), given.array.shape_ptr() + given.array.ndim());
  std::reverse(lengths.begin(), lengths.end());
  const auto descriptor =
      NDArrayDescriptor::descriptor(dataTypeOf("NDArray", given.array.dtype()), std::move(lengths));
  (void)sharingOf("NDArray", device, given, {}, {}, "elements", true);  // checks device and memory
  auto made = NDArray::create(device, descriptor);
  made->writeBytes(bytesOf(packed(given)));
  return made;
}

void bindDescriptor(nb::module_& module) {
  nb::class_<NDArrayDescriptor> descriptor(
      module, "NDArrayDescriptor",
      "Type and lengths of an array of up to 16 dimensions. A value. Dimension 0 is the fastest one, as with "
      "Apple: a matrix of "
      "3 rows of 5 columns has the lengths [5, 3], the reverse of NumPy's shape.");
  descriptor
      .def_static("descriptor", &NDArrayDescriptor::descriptor, "data_type"_a, "dimension_sizes"_a,
                  "`dimension_sizes`: the fastest first. Raises Error for a type of no whole bytes, no "
                  "dimension or more than "
                  "16, a length of 0, and what memory cannot hold.")
      .def("length_of_dimension", &NDArrayDescriptor::lengthOfDimension, "dimension"_a,
           "1 for dimensions that the array does not have.")
      .def("describe", &NDArrayDescriptor::describe, "\"Float32 5x3\", the fastest dimension first.")
      .def("encode", &NDArrayDescriptor::encode, "coder"_a, "Writes the fields.")
      .def_static("decode", &NDArrayDescriptor::decode, "coder"_a,
                  "What encode wrote. Raises Error for what `descriptor` refuses.")
      .def("__repr__",
           [](const NDArrayDescriptor& self) { return "<NDArrayDescriptor " + self.describe() + ">"; });
  descriptor.attr("k_most_dimensions") = NDArrayDescriptor::kMostDimensions;
  readOnly(descriptor, "data_type", &NDArrayDescriptor::dataType, "Of an element.");
  readOnly(descriptor, "number_of_dimensions", &NDArrayDescriptor::numberOfDimensions, "1 to 16.");
}

void bindArray(nb::module_& module) {
  nb::class_<NDArray> array(module, "NDArray",
                            "An array of numbers of any shape. Its elements lie without gaps in `data`, "
                            "dimension 0 the fastest.\n\n"
                            "np.asarray(array) shares its memory and has the dimensions in reverse, the "
                            "fastest last; NDArray.from_array is the way "
                            "back.");
  array
      .def(nb::new_([](std::shared_ptr<mtl::Device> device, const NDArrayDescriptor& descriptor) {
             return NDArray::create(std::move(device), descriptor);
           }),
           "device"_a, "descriptor"_a, "Filled with zeros; the memory is taken at first use.")
      .def_static(
          "from_array", &fromArray, "device"_a.none(), "array"_a,
          "With a copy of the elements, always: results are in the NDArray and not in the array. The last "
          "axis of the array becomes dimension 0.");
  readOnly(array, "descriptor", &NDArray::descriptor, "Type and lengths.");
  readOnly(array, "data_type", &NDArray::dataType, "Of an element.");
  readOnly(array, "number_of_dimensions", &NDArray::numberOfDimensions, "1 to 16.");
  array
      .def("length_of_dimension", &NDArray::lengthOfDimension, "dimension"_a,
           "1 for dimensions that the array does not have.")
      .def(
          "read_bytes",
          [](const NDArray& self, const WritableHostArray& destination) {
            checkElements("NDArray", "destination", destination.dtype(), elementType(self.dataType()));
            self.readBytes(bytesOf(destination, "NDArray", "destination"));
          },
          "destination"_a.noconvert(), Released(),
          "Copies all elements, as they lie in memory. What a device has written shows after synchronize and "
          "completion. "
          "Raises Error for another type or number of bytes, an array that has gaps, a temporary array, and "
          "content that a failed "
          "command should "
          "have written.")
      .def(
          "write_bytes",
          [](NDArray& self, const HostArray& source) {
            checkElements("NDArray", "source", source.dtype(), elementType(self.dataType()));
            self.writeBytes(bytesOf(source));
          },
          "source"_a, Released(),
          "Sets all elements; no encoded work may still read the old ones. Raises Error for another type or "
          "number of bytes, "
          "and a temporary array.");
  bindArrayMembers(array, &elementsOfArray);

  nb::class_<mps::TemporaryNDArray, NDArray> temporary(
      module, "TemporaryNDArray",
      "Scratch array of one command buffer: private memory, undefined at first, that serves others once "
      "read_count is 0. "
      "Each encode that reads it takes 1 off.");
  temporary.def(nb::new_(&mps::TemporaryNDArray::create), "command_buffer"_a, "descriptor"_a,
                "Raises Error after commit.");
  bindReadCount(temporary);
}

void bindForward(nb::module_& module) {
  using mps::NDArrayBinaryKernel;
  const nb::class_<mps::NDArrayGradientState, mps::State> state(
      module, "NDArrayGradientState",
      "What a forward kernel on arrays leaves for its gradient: types and lengths of the arrays, and its "
      "properties at that "
      "moment. It has no resources and is never temporary.");
  nb::class_<NDArrayBinaryKernel, mps::Kernel> kernel(
      module, "NDArrayBinaryKernel",
      "Base of kernels with two source arrays. An encode takes one read off each temporary array that it is "
      "given. All raise "
      "Error before anything is recorded.");
  bindCoding(kernel);
  constexpr const char* into =
      "Records the kernel; `result_state`, made by result_state, becomes the state for the gradient.";
  constexpr const char* returning =
      "Records the kernel and returns its temporary result; with `output_state_is_temporary` (of no effect: "
      "states have no "
      "resources) also the state for the gradient: (array, state).";
  kernel
      .def("destination_array_descriptor", &NDArrayBinaryKernel::destinationArrayDescriptor,
           "primary_source_array"_a, "secondary_source_array"_a,
           "Type and lengths of the result. Raises Error for sources that the kernel cannot take.")
      .def(
          "result_state",
          [](const NDArrayBinaryKernel& self, const ArrayPointer& primary, const ArrayPointer& secondary,
             const States& states, const ArrayPointer& destination) {
            return self.resultState(primary, secondary, states, destination);
          },
          "primary_source_array"_a, "secondary_source_array"_a, "source_states"_a = States{},
          "destination_array"_a.none() = nb::none(), "A state to encode with, which says nothing yet.");
  bindEncode<Single, ArrayPointer, ArrayPointer>(kernel, returning, "primary_source_array"_a,
                                                 "secondary_source_array"_a);
  kernel.def(
      "encode",
      [](NDArrayBinaryKernel& self, const CommandBufferPointer& commandBuffer, const ArrayPointer& primary,
         const ArrayPointer& secondary, bool temporary) {
        StatePointer state;
        auto array = self.encode(commandBuffer, primary, secondary, state, temporary);
        return std::pair(std::move(array), std::move(state));
      },
      "command_buffer"_a, "primary_source_array"_a, "secondary_source_array"_a, nb::kw_only(),
      "output_state_is_temporary"_a, Released(), returning);
  bindEncode<Single, ArrayPointer, ArrayPointer, ArrayPointer>(
      kernel, into, "primary_source_array"_a, "secondary_source_array"_a, "destination_array"_a);
  bindEncode<Single, ArrayPointer, ArrayPointer, StatePointer, ArrayPointer>(
      kernel, into, "primary_source_array"_a, "secondary_source_array"_a, "result_state"_a,
      "destination_array"_a);
}

void bindGradient(nb::module_& module) {
  using Gradient = mps::NDArrayBinaryPrimaryGradientKernel;
  nb::class_<Gradient, mps::Kernel> gradient(module, "NDArrayBinaryPrimaryGradientKernel",
                                             "Base of kernels that compute the gradient for the primary "
                                             "source of a kernel with two. The source arrays are those of "
                                             "the forward call; of the primary one only the size counts.");
  bindCoding(gradient);
  constexpr const char* documentation =
      "Records the gradient; without a destination a temporary one is made and returned. Raises Error also "
      "for a state that no "
      "forward kernel has filled, and for arrays of other lengths or types than it tells.";
  bindEncode<Single, ArrayPointer, ArrayPointer, ArrayPointer, StatePointer>(
      gradient, documentation, "primary_source_array"_a, "secondary_source_array"_a, "source_gradient"_a,
      "gradient_state"_a);
  bindEncode<Single, ArrayPointer, ArrayPointer, ArrayPointer, StatePointer, ArrayPointer>(
      gradient, documentation, "primary_source_array"_a, "secondary_source_array"_a, "source_gradient"_a,
      "gradient_state"_a, "destination_array"_a);
}

void bindGather(nb::module_& module) {
  using namespace mps;
  nb::class_<NDArrayGatherGradientState, NDArrayGradientState> state(module, "NDArrayGatherGradientState",
                                                                     "State of one gather for its gradient.");
  state.def(nb::new_(&NDArrayGatherGradientState::create), "device"_a);
  readOnly(state, "axis", &NDArrayGatherGradientState::axis, "That of the forward kernel when it encoded.");
  auto gather = kernelClass<NDArrayGather, NDArrayBinaryKernel>(
      module, "NDArrayGather",
      "Takes the parts of an array that indices name, along one axis:\n\n"
      "    result(..., i, ...) = primary(..., indices(i), ...)      i and indices(i) stand in dimension "
      "`axis`\n\n"
      "The primary array is Float32 or Float16, the secondary one, the indices, UInt32, Int32 or UInt16 of "
      "one dimension. "
      "An index that names no part gives zeros, and its gradient goes nowhere.");
  gather.def(nb::new_(&NDArrayGather::create), "device"_a);
  property(gather, "axis", &NDArrayGather::axis, &NDArrayGather::setAxis,
           "The dimension of the primary array that indices count in; dimension 0 is the fastest. 0.");
  kernelClass<NDArrayGatherGradient, NDArrayBinaryPrimaryGradientKernel>(
      module, "NDArrayGatherGradient",
      "Gradient of NDArrayGather for its primary array:\n\n"
      "    dPrimary(..., k, ...) = sum over all i with indices(i) = k of dResult(..., i, ...)\n\n"
      "Sums are float32, added in the order of i and rounded once.")
      .def(nb::new_(&NDArrayGatherGradient::create), "device"_a);
}

}  // namespace

void bindNDArray(nb::module_& module) {
  bindDescriptor(module);
  bindArray(module);
  bindForward(module);
  bindGradient(module);
  bindGather(module);
}

}  // namespace python
