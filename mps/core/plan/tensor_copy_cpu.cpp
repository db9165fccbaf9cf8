#include <algorithm>
#include <cstring>

#include "mps/core/image/pixel_copy.hpp"
#include "mps/core/plan/tensor_copy.hpp"
#include "mps/core/types/storage.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

class RowCopy final : public Plan {
 public:
  explicit RowCopy(const TensorCopyProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& destination = problem_.destination;
    const std::int64_t rowElements = std::max<std::int64_t>(1, destination.width * destination.channels);
    mtl::cpu::asCpu(stream).parallelFor(destination.images * destination.height, 32768 / rowElements + 1,
                                        [&](std::int64_t begin, std::int64_t end) {
                                          for (std::int64_t row = begin; row < end; ++row)
                                            copyRow(operands, row / destination.height,
                                                    row % destination.height);
                                        });
  }

 private:
  void copyRow(const Operands& operands, std::int64_t image, std::int64_t y) const {
    const TensorShape& source = problem_.source;
    const TensorShape& destination = problem_.destination;
    const auto size = static_cast<std::int64_t>(bytesPerChannel(destination.format));
    std::byte* to = operands.destination + destination.offset(image, y, 0, 0) * size;
    if (problem_.fills) return fillRow(static_cast<float>(operands.scalars[0]), to);
    const std::int64_t sourceY = problem_.offsetY + y;
    const bool isInside = sourceY >= 0 && sourceY < source.height;
    if (!isInside && !problem_.clampEdges) return fillZeros(to, destination.width);
    const auto sourceSize = static_cast<std::int64_t>(bytesPerChannel(source.format));
    const std::byte* const from =
        operands.source +
        source.offset(image, std::clamp<std::int64_t>(sourceY, 0, source.height - 1), 0, 0) * sourceSize;
    const PixelCopy pixels{.inputFormat = source.format,
                           .destinationFormat = destination.format,
                           .channels = destination.channels,
                           .inputStride = source.pixelStride,
                           .destinationStride = destination.pixelStride};
    const auto copy = [&](std::int64_t sourceX, std::int64_t x, std::int64_t count) {
      copyPixels(pixels, from + sourceX * source.pixelStride * sourceSize,
                 to + x * destination.pixelStride * size, count);
    };
    // The columns inside the source; those before and behind them repeat its edge, or are 0.
    const std::int64_t begin = std::clamp<std::int64_t>(-problem_.offsetX, 0, destination.width);
    const std::int64_t end =
        std::clamp<std::int64_t>(source.width - problem_.offsetX, begin, destination.width);
    if (begin < end) copy(problem_.offsetX + begin, begin, end - begin);
    if (!problem_.clampEdges) {
      fillZeros(to, begin);
      return fillZeros(to + end * destination.pixelStride * size, destination.width - end);
    }
    for (std::int64_t x = 0; x < begin; ++x) copy(0, x, 1);
    for (std::int64_t x = end; x < destination.width; ++x) copy(source.width - 1, x, 1);
  }

  void fillZeros(std::byte* to, std::int64_t pixels) const {
    const TensorShape& destination = problem_.destination;
    const auto size = static_cast<std::int64_t>(bytesPerChannel(destination.format));
    for (std::int64_t x = 0; x < pixels; ++x, to += destination.pixelStride * size)
      std::memset(to, 0, static_cast<std::size_t>(destination.channels * size));
  }

  void fillRow(float number, std::byte* row) const {
    const TensorShape& destination = problem_.destination;
    withElementType(destination.format, [&](auto element) {
      storeFloat(number, &element);
      auto* to = reinterpret_cast<decltype(element)*>(row);
      if (destination.pixelStride == destination.channels) {
        std::fill_n(to, destination.width * destination.channels, element);
        return;
      }
      for (std::int64_t x = 0; x < destination.width; ++x, to += destination.pixelStride)
        std::fill_n(to, destination.channels, element);
    });
  }

  TensorCopyProblem problem_;
};

Preparation prepareRowCopy(const TensorCopyProblem& problem) {
  return std::make_shared<const RowCopy>(problem);
}

}  // namespace

std::string TensorCopyProblem::describe() const {
  return (fills ? std::string("number") : "copy of " + source.describe()) + " into " + destination.describe();
}

std::span<const Implementation<TensorCopyProblem>> tensorCopyImplementationsCpu() {
  static constexpr Implementation<TensorCopyProblem> implementations[] = {
      {"parallel loop over rows", prepareRowCopy}};
  return implementations;
}

}  // namespace mps::detail
