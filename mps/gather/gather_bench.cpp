#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "mps/conform/kernel_bench.hpp"
#include "mps/conform/test_matrices.hpp"
#include "mps/gather/gather.hpp"
#include "mps/gather/gather_cases.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
namespace {

struct GatherSize {
  const char* shape;
  std::vector<std::size_t> lengths;
  std::size_t axis;
  std::size_t count;
};

void benchSize(Bench& bench, const GatherSize& size, ImageFeatureChannelFormat format) {
  const BenchKey forwardKey{"NDArrayGather", Direction::Forward, format, size.shape, 1};
  const BenchKey gradientKey{"NDArrayGatherGradient", Direction::Gradient, format, size.shape, 1};
  if (!bench.isSelected(forwardKey.describe()) && !bench.isSelected(gradientKey.describe())) return;
  const auto& device = bench.device();
  const auto array = [&](std::vector<std::size_t> lengths) {
    auto made =
        NDArray::create(device, NDArrayDescriptor::descriptor(dataTypeOf(format), std::move(lengths)));
    const std::vector<std::byte> zeros(bytesOf(made->descriptor()));
    made->writeBytes(std::span(zeros));
    return made;
  };
  std::vector<std::size_t> resultLengths = size.lengths;
  resultLengths[size.axis] = size.count;
  const auto source = array(size.lengths);
  const auto sourceGradient = array(size.lengths);
  const auto result = array(resultLengths);
  const auto indices = NDArray::create(device, NDArrayDescriptor::descriptor(DataType::UInt32, {size.count}));
  const GatherCase rows{.name = "",
                        .rows = static_cast<std::int64_t>(size.lengths[size.axis]),
                        .count = static_cast<std::int64_t>(size.count)};
  const std::vector<std::byte> stored = storedIndices(GatherIndices::UInt32, rows.numbers(1));
  indices->writeBytes(std::span(stored));
  const auto gather = NDArrayGather::create(device);
  gather->setAxis(size.axis);
  std::shared_ptr<State> state;
  gather->encode(device->newCommandQueue()->commandBuffer(), source, indices, state, false)->setReadCount(0);
  const auto resultBytes = static_cast<double>(bytesOf(result->descriptor()));
  const auto sourceBytes = static_cast<double>(bytesOf(source->descriptor()));
  const auto indexBytes = static_cast<double>(stored.size());
  bench.kernel(forwardKey, {.bytes = 2 * resultBytes + indexBytes},
               [&](const auto& commandBuffer) { gather->encode(commandBuffer, source, indices, result); });
  const auto gradient = NDArrayGatherGradient::create(device);
  bench.kernel(gradientKey, {.bytes = resultBytes + sourceBytes + indexBytes},
               [&](const auto& commandBuffer) {
                 gradient->encode(commandBuffer, source, indices, result, state, sourceGradient);
               });
}

}  // namespace

void benchGather(Bench& bench) {
  const std::vector<GatherSize> sizes = {{"30000 rows of 768, 8192 indices", {768, 30000}, 1, 8192},
                                         {"2048 rows of 256, 65536 indices", {256, 2048}, 1, 65536},
                                         {"4096 columns of 4096, 4096 indices", {4096, 4096}, 0, 4096}};
  for (const GatherSize& size : sizes)
    for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16})
      benchSize(bench, size, format);
}

}  // namespace mps::detail
