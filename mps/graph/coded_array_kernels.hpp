#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "mps/core/array/nd_array.hpp"
#include "mps/gather/gather.hpp"
#include "mps/graph/coded_kernel.hpp"

/// The kernels on arrays of the list in coded_kernels.hpp.
namespace mps::test {

inline std::shared_ptr<NDArray> array(const Device& device, int seed) {
  auto made = NDArray::create(device, NDArrayDescriptor::descriptor(DataType::Float32, {2, side, 3}));
  std::mt19937 random(static_cast<unsigned>(seed));
  Values values(2 * side * 3);
  for (float& value : values) value = static_cast<float>(random() % 16) - 8;
  made->writeBytes(std::span(values));
  return made;
}

/// As many as there are rows along axis 1.
inline std::shared_ptr<NDArray> rowIndices(const Device& device, int seed) {
  auto made = NDArray::create(device, NDArrayDescriptor::descriptor(DataType::UInt32, {side}));
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<std::uint32_t> rows(side);
  for (std::uint32_t& row : rows) row = static_cast<std::uint32_t>(random() % side);
  made->writeBytes(std::span(rows));
  return made;
}

/// A gather, or the gradient behind one.
inline Values ofArray(Kernel& kernel, int seed) {
  const auto& device = kernel.device();
  const auto x = array(device, seed);
  const auto indices = rowIndices(device, seed + 1);
  const auto result = array(device, seed + 2);
  ran(kernel, [&](const auto& buffer) {
    if (auto* gather = dynamic_cast<NDArrayGather*>(&kernel)) {
      gather->encode(buffer, x, indices, result);
      return 0;
    }
    const auto gather = NDArrayGather::create(device);
    gather->setAxis(1);
    const auto state = gather->resultState(x, indices);
    gather->encode(buffer, x, indices, state, array(device, seed));
    dynamic_cast<NDArrayGatherGradient&>(kernel).encode(buffer, x, indices, array(device, seed + 3), state,
                                                        result);
    return 0;
  });
  return valuesOf(result->data());
}

inline void addArrayKernels(std::vector<CodedKernel>& all, const Device& device) {
  const auto gather = NDArrayGather::create(device);
  gather->setAxis(1);
  all.push_back(coded(gather, ofArray));
  all.push_back(coded(NDArrayGatherGradient::create(device), ofArray));
}

}  // namespace mps::test
