#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "mps/conform/bench.hpp"
#include "mps/core/cnn_gradient_kernel.hpp"
#include "mps/core/cnn_kernel.hpp"
#include "mps/core/image_batch.hpp"
#include "mps/core/state.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

/// What the families' bench functions share: batches of images, and the timing of forward and gradient
/// kernels.
namespace mps::detail {

inline std::size_t bytesOf(const ImageDescriptor& descriptor) {
  return descriptor.width() * descriptor.height() * descriptor.featureChannels() *
         bytesPerChannel(descriptor.channelFormat());
}

/// One block of images with values from a little above 0 to 1. They repeat from image to image, or after some images
/// where images are small: to make them all would take longer than what is timed.
inline ImageBatch benchImages(const std::shared_ptr<mtl::Device>& device, const ImageDescriptor& descriptor,
                              std::size_t count) {
  constexpr std::size_t kDifferentBytes = std::size_t{4} << 20U;
  const std::size_t different = std::min(count, kDifferentBytes / bytesOf(descriptor) + 1);
  const TensorShape shape =
      TensorShape::dense(static_cast<std::int64_t>(different), static_cast<std::int64_t>(descriptor.height()),
                         static_cast<std::int64_t>(descriptor.width()),
                         static_cast<std::int64_t>(descriptor.featureChannels()), descriptor.channelFormat());
  std::vector<double> values =
      randomValues(static_cast<std::size_t>(shape.elements()), 1, RandomKind::Positive);
  for (double& value : values) value = 0.03125 + 0.9375 * value;
  std::vector<std::byte> bytes(count * bytesOf(descriptor));
  const auto differentBytes = static_cast<std::size_t>(shape.bytes());
  writeTensor(shape, bytes.data(), values);
  for (std::size_t begin = differentBytes; begin < bytes.size(); begin += differentBytes)
    std::memcpy(bytes.data() + begin, bytes.data(), std::min(differentBytes, bytes.size() - begin));
  ImageBatch images = ImageBatch::create(device, descriptor, count);
  images.writeBytes(std::span<const std::byte>(bytes), DataLayout::HeightxWidthxFeatureChannels);
  return images;
}

/// A forward kernel and its gradient kernel, which may be null.
struct BenchPair {
  std::shared_ptr<CNNKernel> forward;
  std::shared_ptr<CNNGradientKernel> gradient;
  std::string shape;
  ImageDescriptor source;
  enum class Input { Nothing, Source, Result } gradientReads = Input::Source;
  /// Saved for the gradient, for each value of the result.
  double savedBytesPerValue = 0;
  /// Of one image, of the forward kernel; 0 for kernels that memory bounds. The gradient does twice as many.
  double flops = 0;
  /// Read by each kernel and, as gradients, written by the gradient kernel.
  double parameterBytes = 0;
  /// 0: as many as make the working set come from memory.
  std::int64_t batch = 0;
};

/// Rows of forward and gradient kernel, in float32 and float16.
inline void benchPair(Bench& bench, BenchPair pair) {
  for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16}) {
    pair.source.setChannelFormat(format);
    ImageDescriptor result = pair.forward->sizeDestination(pair.source);
    result.setChannelFormat(format);
    const auto sourceBytes = static_cast<double>(bytesOf(pair.source));
    const auto resultBytes = static_cast<double>(bytesOf(result));
    const double savedBytes =
        pair.savedBytesPerValue * resultBytes / static_cast<double>(bytesPerChannel(format));
    const std::int64_t batch =
        pair.batch > 0 ? pair.batch : bench.batchFor(bytesOf(pair.source) + bytesOf(result));
    const auto images = static_cast<double>(batch);
    const auto count = static_cast<std::size_t>(batch);
    const BenchKey forwardKey{pair.forward->className(), Direction::Forward, format, pair.shape, batch};
    BenchKey gradientKey = forwardKey;
    gradientKey.direction = Direction::Gradient;
    if (pair.gradient) gradientKey.kernel = pair.gradient->className();
    const bool wantsForward = bench.isSelected(forwardKey.describe());
    const bool wantsGradient = pair.gradient != nullptr && bench.isSelected(gradientKey.describe());
    if (!wantsForward && !wantsGradient) continue;

    const ImageBatch sources = benchImages(bench.device(), pair.source, count);
    const ImageBatch results = ImageBatch::create(bench.device(), result, count);
    if (wantsForward)
      bench.kernel(
          forwardKey,
          {.bytes = images * (sourceBytes + resultBytes) + pair.parameterBytes, .flops = images * pair.flops},
          [&](const auto& commandBuffer) { pair.forward->encodeBatch(commandBuffer, sources, results); });
    if (!wantsGradient) continue;

    const StateBatch states = pair.forward->resultStateBatch(sources);
    const auto commandBuffer = bench.device()->newCommandQueue()->commandBuffer();
    pair.forward->encodeBatch(commandBuffer, sources, states, results);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    const ImageBatch gradients = benchImages(bench.device(), result, count);
    const ImageBatch destinations = ImageBatch::create(bench.device(), pair.source, count);
    const double inputBytes = pair.gradientReads == BenchPair::Input::Nothing  ? 0
                              : pair.gradientReads == BenchPair::Input::Source ? sourceBytes
                                                                               : resultBytes;
    const ImageBatch& input = pair.gradientReads == BenchPair::Input::Result ? results : sources;
    bench.kernel(
        gradientKey,
        {.bytes = images * (resultBytes + sourceBytes + inputBytes + savedBytes) + 2 * pair.parameterBytes,
         .flops = 2 * images * pair.flops},
        [&](const auto& buffer) {
          pair.gradient->encodeBatch(buffer, gradients, input, states, destinations);
        });
  }
}

}  // namespace mps::detail
