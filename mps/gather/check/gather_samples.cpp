#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/core/array/nd_array.hpp"
#include "mps/gather/gather.hpp"

namespace mps::test {
namespace {

std::shared_ptr<NDArray> array(const Device& device, int seed) {
  auto made = NDArray::create(device, NDArrayDescriptor::descriptor(DataType::Float32, {2, side, 3}));
  std::mt19937 random(static_cast<unsigned>(seed));
  Values values(2 * side * 3);
  for (float& value : values) value = static_cast<float>(random() % 16) - 8;
  made->writeBytes(std::span(values));
  return made;
}

/// As many as there are rows along axis 1.
std::shared_ptr<NDArray> rowIndices(const Device& device, int seed) {
  auto made = NDArray::create(device, NDArrayDescriptor::descriptor(DataType::UInt32, {side}));
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<std::uint32_t> rows(side);
  for (std::uint32_t& row : rows) row = static_cast<std::uint32_t>(random() % side);
  made->writeBytes(std::span(rows));
  return made;
}

/// A gather, or the gradient behind one.
Values ofArray(Kernel& kernel, int seed) {
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

}  // namespace

void addGatherSamples(KernelSamples& samples) {
  const auto gather = NDArrayGather::create(samples.device());
  gather->setAxis(1);
  samples.add(gather, ofArray);
  samples.add(NDArrayGatherGradient::create(samples.device()), ofArray);
}

}  // namespace mps::test
