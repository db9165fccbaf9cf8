#include <algorithm>
#include <array>
#include <cstddef>

#include "mps/concatenation/concatenation.hpp"
#include "mps/conform/timing/kernel_bench.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
namespace {

/// Bytes that come from memory with the last `part` bytes of each pixel: a GPU's gives 32 at once, a CPU's 64.
std::size_t bytesOfParts(const mtl::Device& device, std::size_t pixels, std::size_t pixel, std::size_t part) {
  const std::size_t unit = device.kind() == mtl::DeviceKind::CPU ? 64 : 32;
  std::size_t units = 0;
  std::size_t end = 0;  // of the units that have come
  for (std::size_t i = 1; i <= pixels; ++i) {
    const std::size_t begin = std::max(end, (i * pixel - part) / unit);
    end = (i * pixel + unit - 1) / unit;
    units += end - begin;
  }
  return units * unit;
}

/// Two sources of 28x28 pixels with so many channels each, the gradient of the second one, and those of both.
void benchFormat(Bench& bench, std::size_t channels, ImageFeatureChannelFormat format) {
  const auto forward = NNConcatenation::create(bench.device(), 2);
  forward->setChannelAlignment(1);
  const auto gradient = NNConcatenationGradient::create(bench.device(), 1);
  const ImageDescriptor source(format, 28, 28, channels);
  const ImageDescriptor result(format, 28, 28, 2 * channels);
  const std::int64_t batch = bench.batchFor(4 * bytesOf(source));
  const auto count = static_cast<std::size_t>(batch);
  const double sourceBytes = static_cast<double>(batch) * static_cast<double>(bytesOf(source));
  const std::string shape = "2 of 28x28x" + std::to_string(channels);
  const BenchKey key{forward->className(), Direction::Forward, format, shape, batch};
  const BenchKey gradientKey{gradient->className(), Direction::Gradient, format, shape, batch};
  const BenchKey gradientsKey{gradient->className(), Direction::Gradient, format, "both" + shape.substr(1),
                              batch};
  if (std::ranges::none_of(std::array{key, gradientKey, gradientsKey},
                           [&](const BenchKey& row) { return bench.isSelected(row.describe()); }))
    return;

  const std::vector sources(2, benchImages(bench.device(), source, count));
  const ImageBatch results = ImageBatch::create(bench.device(), result, count);
  const StateBatch states = forward->resultStateBatch(sources);
  const auto commandBuffer = bench.device()->newCommandQueue()->commandBuffer();
  forward->encodeBatch(commandBuffer, sources, states, results);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  bench.kernel(key, {.bytes = 4 * sourceBytes},
               [&](const auto& buffer) { forward->encodeBatch(buffer, sources, results); });
  const ImageBatch destinations = ImageBatch::create(bench.device(), source, count);
  const std::size_t part = bytesPerChannel(format) * channels;
  const auto gradientBytes =
      static_cast<double>(bytesOfParts(*bench.device(), count * 28 * 28, 2 * part, part));
  bench.kernel(gradientKey, {.bytes = gradientBytes + sourceBytes}, [&](const auto& buffer) {
    gradient->encodeBatch(buffer, results, sources[1], states, destinations);
  });
  const auto first = NNConcatenationGradient::create(bench.device(), 0);
  const std::array both{ImageBatch::create(bench.device(), source, count), destinations};
  bench.kernel(gradientsKey, {.bytes = 4 * sourceBytes}, [&](const auto& buffer) {
    first->encodeBatchWithNext(buffer, results, sources, states, both);
  });
}

}  // namespace

void benchConcatenation(Bench& bench) {
  for (const std::size_t channels : {std::size_t{64}, std::size_t{12}})
    for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16})
      benchFormat(bench, channels, format);
}

}  // namespace mps::detail
