#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mps/conform/testing/test_matrices.hpp"
#include "mps/conform/timing/kernel_bench.hpp"
#include "mps/gather/check/gather_cases.hpp"
#include "mps/gather/gather.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
namespace {

/// What is gathered from and how often, for a row's batch.
struct GatherSize {
  std::size_t axis;   ///< the last one of two, or the first
  std::size_t other;  ///< length of the other dimension
  std::size_t rows;   ///< length along the axis
  std::size_t count;  ///< indices

  /// @param along the length along the axis
  [[nodiscard]] std::vector<std::size_t> lengths(std::size_t along) const {
    return axis == 0 ? std::vector{along, other} : std::vector{other, along};
  }
};

struct GatherShape {
  const char* name;
  GatherSize (*sizeFor)(std::size_t batch);
  std::int64_t batch = 0;  ///< 0: as many as make the working set come from memory
};

/// The batch is the number of indices, of columns that of rows.
const GatherShape kShapes[] = {
    {"rows of 768, 4 for each index",
     [](std::size_t batch) {
       return GatherSize{1, 768, 4 * batch, batch};
     }},
    {"2048 rows of 256",
     [](std::size_t batch) {
       return GatherSize{1, 256, 2048, batch};
     }},
    {"4096 of 4096 columns",
     [](std::size_t batch) {
       return GatherSize{0, batch, 4096, 4096};
     }},
    {"small table of 2048x256",
     [](std::size_t batch) {
       return GatherSize{1, 256, 2048, batch};
     },
     1024},
};

std::size_t elementsOf(const GatherSize& size, std::size_t along) {
  return size.other * along;
}
/// Elements that the kernel reads and writes: forward gathers read each row that is named once.
std::size_t movedElements(const GatherSize& size, Direction direction, std::size_t named) {
  return elementsOf(size, size.count) + elementsOf(size, direction == Direction::Forward ? named : size.rows);
}

/// What one of many in a batch adds decides: rows that stay the same fit into caches.
std::int64_t batchOf(const Bench& bench, const GatherShape& shape, Direction direction,
                     ImageFeatureChannelFormat format) {
  if (shape.batch > 0) return shape.batch;
  const auto moved = [&](std::size_t batch) {
    const GatherSize size = shape.sizeFor(batch);
    return movedElements(size, direction, std::min(size.rows, size.count));
  };
  return bench.batchFor((moved(1U << 20U) >> 20U) * bytesPerChannel(format));
}

void benchShape(Bench& bench, const GatherShape& shape, Direction direction,
                ImageFeatureChannelFormat format) {
  const bool isForward = direction == Direction::Forward;
  const std::int64_t batch = batchOf(bench, shape, direction, format);
  const BenchKey key{isForward ? "NDArrayGather" : "NDArrayGatherGradient", direction, format, shape.name,
                     batch};
  if (!bench.isSelected(key.describe())) return;
  const GatherSize size = shape.sizeFor(static_cast<std::size_t>(batch));
  const auto& device = bench.device();
  const auto array = [&](std::size_t along) {
    auto made =
        NDArray::create(device, NDArrayDescriptor::descriptor(dataTypeOf(format), size.lengths(along)));
    const std::vector<std::byte> zeros(bytesOf(made->descriptor()));
    made->writeBytes(std::span(zeros));
    return made;
  };
  const auto source = array(size.rows);
  const auto result = array(size.count);
  const auto indices = NDArray::create(device, NDArrayDescriptor::descriptor(DataType::UInt32, {size.count}));
  const GatherCase rows{.name = "",
                        .rows = static_cast<std::int64_t>(size.rows),
                        .count = static_cast<std::int64_t>(size.count)};
  const std::vector<std::int64_t> numbers = rows.numbers(1);
  const std::vector<std::byte> stored = storedIndices(GatherIndices::UInt32, numbers);
  indices->writeBytes(std::span(stored));
  // Elements of columns share lines of memory, so that all are read.
  const std::size_t named = size.axis == 0 ? size.rows : std::set(numbers.begin(), numbers.end()).size();
  const std::size_t bytes = movedElements(size, direction, named) * bytesPerChannel(format) + stored.size();
  const auto gather = NDArrayGather::create(device);
  gather->setAxis(size.axis);
  if (isForward)
    return bench.kernel(key, {.bytes = static_cast<double>(bytes)}, [&](const auto& commandBuffer) {
      gather->encode(commandBuffer, source, indices, result);
    });
  std::shared_ptr<State> state;
  gather->encode(device->newCommandQueue()->commandBuffer(), source, indices, state, false)->setReadCount(0);
  const auto gradient = NDArrayGatherGradient::create(device);
  const auto sourceGradient = NDArray::create(device, source->descriptor());
  bench.kernel(key, {.bytes = static_cast<double>(bytes)}, [&](const auto& commandBuffer) {
    gradient->encode(commandBuffer, source, indices, result, state, sourceGradient);
  });
}

}  // namespace

void benchGather(Bench& bench) {
  for (const GatherShape& shape : kShapes)
    for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16})
      for (const auto direction : {Direction::Forward, Direction::Gradient})
        benchShape(bench, shape, direction, format);
}

}  // namespace mps::detail
