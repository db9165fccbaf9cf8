#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/conform/guarded/guarded_memory.hpp"
#include "mps/core/array/nd_array.hpp"
#include "mps/core/plan/reference_tensor.hpp"
#include "mps/gather/check/gather_cases.hpp"
#include "mtl/device.hpp"

/// Indices and arrays of calls, for tests and conform.
namespace mps::detail {

/// Indices on a device, between guards. The address sanitizer stops a CPU's kernels that read behind them; on a GPU the
/// last one lies there once more, so that it counts where a kernel takes one too many.
class GuardedIndices {
 public:
  GuardedIndices(const std::shared_ptr<mtl::Device>& device, GatherIndices type,
                 std::span<const std::int64_t> numbers)
      : stored_(storedIndices(type, withLastAgain(*device, numbers))), memory_(device, stored_.size()) {
    std::memcpy(memory_.bytes().data(), stored_.data(), stored_.size());
    memory_.didModify();
  }
  [[nodiscard]] const std::byte* address() const { return memory_.address(); }
  [[nodiscard]] bool areUnchanged() {
    memory_.synchronize();
    return std::memcmp(memory_.bytes().data(), stored_.data(), stored_.size()) == 0 && memory_.guardsIntact();
  }

 private:
  [[nodiscard]] static std::vector<std::int64_t> withLastAgain(const mtl::Device& device,
                                                               std::span<const std::int64_t> numbers) {
    std::vector<std::int64_t> all(numbers.begin(), numbers.end());
    if (device.kind() != mtl::DeviceKind::CPU && !all.empty()) all.push_back(all.back());
    return all;
  }

  std::vector<std::byte> stored_;
  GuardedMemory memory_;
};

/// The elements of an array as a row.
inline TensorShape rowOf(const NDArray& array) {
  std::int64_t elements = 1;
  for (std::size_t dimension = 0; dimension < array.numberOfDimensions(); ++dimension)
    elements *= static_cast<std::int64_t>(array.lengthOfDimension(dimension));
  return TensorShape::dense(1, 1, 1, elements,
                            array.dataType() == DataType::Float16 ? ImageFeatureChannelFormat::Float16
                                                                  : ImageFeatureChannelFormat::Float32);
}
inline std::size_t elementsOf(const NDArray& array) {
  return static_cast<std::size_t>(rowOf(array).elements());
}
inline std::vector<double> load(const NDArray& array) {
  std::vector<std::byte> bytes(bytesOf(array.descriptor()));
  array.readBytes(std::span(bytes));
  return readTensor(rowOf(array), bytes.data());
}
/// @return the numbers as stored
inline std::vector<double> store(NDArray& array, std::span<const double> values) {
  std::vector<std::byte> bytes(bytesOf(array.descriptor()));
  writeTensor(rowOf(array), bytes.data(), values);
  array.writeBytes(std::span(bytes));
  return readTensor(rowOf(array), bytes.data());
}
inline void poison(NDArray& array) {
  std::vector<std::byte> bytes(bytesOf(array.descriptor()));
  fillWithPoison(bytes);
  array.writeBytes(std::span(bytes));
}

inline ReferenceTensor tensorOf(const TensorShape& shape, std::vector<double> values) {
  ReferenceTensor tensor(shape.images, shape.height, shape.width, shape.channels);
  tensor.values = std::move(values);
  return tensor;
}

/// All arrays of a gather and its gradient.
struct GatherArrays {
  std::size_t axis;
  std::vector<std::int64_t> numbers;  ///< the indices, some of which name no row
  std::shared_ptr<NDArray> source, indices, result, resultGradient, sourceGradient;

  /// @param types of the elements and of the indices
  GatherArrays(const std::shared_ptr<mtl::Device>& device, std::vector<std::size_t> lengths,
               std::size_t along, std::size_t count, std::pair<DataType, DataType> types, std::uint64_t seed)
      : axis(along) {
    const GatherCase item{.name = "",
                          .rows = static_cast<std::int64_t>(lengths[along]),
                          .count = static_cast<std::int64_t>(count),
                          .pattern = GatherPattern::Outside,
                          .indices = types.second == DataType::UInt16  ? GatherIndices::UInt16
                                     : types.second == DataType::Int32 ? GatherIndices::Int32
                                                                       : GatherIndices::UInt32};
    numbers = item.numbers(seed);
    const auto whole = NDArrayDescriptor::descriptor(types.first, lengths);
    lengths[along] = count;
    const auto part = NDArrayDescriptor::descriptor(types.first, lengths);
    source = NDArray::create(device, whole);
    sourceGradient = NDArray::create(device, whole);
    result = NDArray::create(device, part);
    resultGradient = NDArray::create(device, part);
    indices = NDArray::create(device, NDArrayDescriptor::descriptor(types.second, {count}));
    const std::vector<std::byte> stored = storedIndices(item.indices, numbers);
    indices->writeBytes(std::span(stored));
  }

  /// What lies before the axis, along it and behind it.
  [[nodiscard]] GatherProblem problem(GatherDirection direction) const {
    const auto shapeOf = [&](const NDArray& array) {
      TensorShape shape = TensorShape::dense(1, 1, 1, 1, rowOf(array).format);
      for (std::size_t dimension = 0; dimension < array.numberOfDimensions(); ++dimension)
        (dimension < axis    ? shape.channels
         : dimension == axis ? shape.height
                             : shape.images) *= static_cast<std::int64_t>(array.lengthOfDimension(dimension));
      return shape;
    };
    GatherProblem problem;
    problem.direction = direction;
    problem.source = shapeOf(*source);
    problem.result = shapeOf(*result);
    return problem;
  }
};

}  // namespace mps::detail
