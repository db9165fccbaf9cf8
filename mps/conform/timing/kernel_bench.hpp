#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/conform/timing/bench.hpp"
#include "mps/core/array/matrix.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

/// What the families' bench functions share: batches of images, matrices, and the timing of forward and gradient
/// kernels.
namespace mps::detail {

inline std::size_t bytesOf(const ImageDescriptor& descriptor) {
  return descriptor.width() * descriptor.height() * descriptor.featureChannels() *
         bytesPerChannel(descriptor.channelFormat());
}

/// The bytes of so many elements, with values from a little above 0 to 1.
inline std::vector<std::byte> benchValues(ImageFeatureChannelFormat format, std::size_t count) {
  std::vector<double> values = randomValues(count, 1, RandomKind::Positive);
  for (double& value : values) value = 0.03125 + 0.9375 * value;
  std::vector<std::byte> bytes(count * bytesPerChannel(format));
  writeTensor(TensorShape::dense(1, 1, 1, static_cast<std::int64_t>(count), format), bytes.data(), values);
  return bytes;
}

/// Pieces of a tensor whose values differ. The others repeat them: to make them all would take longer than what is timed.
inline std::size_t differentPieces(std::size_t pieceBytes, std::size_t count) {
  constexpr std::size_t kDifferentBytes = std::size_t{1} << 20U;
  return std::min(count, kDifferentBytes / pieceBytes + 1);
}
/// Lets the bytes from `written` on repeat those before, up to `bytes`; on the device.
inline void repeatBytes(const std::shared_ptr<mtl::Device>& device,
                        const std::shared_ptr<mtl::Memory>& memory, std::size_t written, std::size_t bytes) {
  const auto commandBuffer = device->newCommandQueue()->commandBuffer();
  for (; written < bytes; written += std::min(written, bytes - written))
    recordMemoryCopy(*commandBuffer, "bench values", memory, 0, memory, written,
                     std::min(written, bytes - written));
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

/// One block of images with such values.
inline ImageBatch benchImages(const std::shared_ptr<mtl::Device>& device, const ImageDescriptor& descriptor,
                              std::size_t count) {
  const std::size_t different = differentPieces(bytesOf(descriptor), count);
  const std::size_t elements = descriptor.width() * descriptor.height() * descriptor.featureChannels();
  const std::vector<std::byte> bytes = benchValues(descriptor.channelFormat(), different * elements);
  ImageBatch images = ImageBatch::create(device, descriptor, count);
  images.slice(0, different)
      .writeBytes(std::span<const std::byte>(bytes), DataLayout::HeightxWidthxFeatureChannels);
  const auto storage = images.blockStorage();
  const std::size_t imageBytes =
      static_cast<std::size_t>(storage->shape().imageStride) * bytesPerChannel(descriptor.channelFormat());
  repeatBytes(device, storage->memory(), different * imageBytes, count * imageBytes);
  return images;
}

/// A matrix with such values. @param format Float32 or Float16
inline std::shared_ptr<Matrix> benchMatrix(const std::shared_ptr<mtl::Device>& device, std::size_t rows,
                                           std::size_t columns, ImageFeatureChannelFormat format) {
  const DataType type = format == ImageFeatureChannelFormat::Float16 ? DataType::Float16 : DataType::Float32;
  auto matrix = Matrix::create(
      device, MatrixDescriptor::matrixDescriptor(rows, columns, columns * sizeInBytes(type), type));
  const std::size_t different = differentPieces(columns * sizeInBytes(type), rows);
  const std::vector<std::byte> bytes = benchValues(format, different * columns);
  const auto& memory = matrix->data()->memory();
  memory->write(0, bytes);
  repeatBytes(device, memory, bytes.size(), rows * columns * sizeInBytes(type));
  return matrix;
}

/// What a kernel on matrices records; the last matrix is the result.
using EncodeMatrices =
    std::function<void(const std::shared_ptr<mtl::CommandBuffer>&, std::span<const std::shared_ptr<Matrix>>)>;

/// A row in float32 and one in float16 of a kernel that reads and writes `count` matrices of so many columns, with as many
/// rows, the row's batch, as make the working set come from memory.
/// @param passes how often all but the last must be read: twice where a result needs sums of whole columns first
inline void benchMatrices(Bench& bench, const Kernel& kernel, Direction direction, const std::string& shape,
                          std::size_t columns, std::size_t count, const EncodeMatrices& encode,
                          std::size_t passes = 1) {
  for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16}) {
    const std::size_t rowBytes = count * columns * bytesPerChannel(format);
    const std::int64_t rows = bench.batchFor(rowBytes);
    const BenchKey key{kernel.className(), direction, format, shape, rows};
    if (!bench.isSelected(key.describe())) continue;
    std::vector<std::shared_ptr<Matrix>> matrices;
    for (std::size_t i = 0; i < count; ++i)
      matrices.push_back(benchMatrix(bench.device(), static_cast<std::size_t>(rows), columns, format));
    const std::size_t movedBytes = rowBytes / count * ((count - 1) * passes + 1);
    bench.kernel(key, {.bytes = static_cast<double>(rows) * static_cast<double>(movedBytes)},
                 [&](const auto& commandBuffer) { encode(commandBuffer, matrices); });
  }
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

/// Beside rows of the usual working set: a large image, 112x112x64, and the batch in which networks have it.
constexpr std::int64_t kLargeImageBatch = 64;

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
