#include <algorithm>
#include <cstring>

#include "mps/core/storage.hpp"
#include "mps/core/tensor_copy.hpp"
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
    const auto pixelBytes = static_cast<std::size_t>(destination.channels * size);
    std::byte* to = operands.destination + destination.offset(image, y, 0, 0) * size;
    if (problem_.fills) return fillRow(static_cast<float>(operands.scalars[0]), to);
    std::int64_t sourceY = problem_.offsetY + y;
    if (problem_.clampEdges) sourceY = std::clamp<std::int64_t>(sourceY, 0, source.height - 1);
    const bool rowInside = sourceY >= 0 && sourceY < source.height;
    if (source.format != destination.format) return convertRow(operands, image, y, sourceY, rowInside);
    const bool adjacent =
        source.pixelStride == source.channels && destination.pixelStride == destination.channels;
    if (rowInside && adjacent && problem_.offsetX >= 0 &&
        problem_.offsetX + destination.width <= source.width) {
      std::memcpy(to, operands.source + source.offset(image, sourceY, problem_.offsetX, 0) * size,
                  pixelBytes * static_cast<std::size_t>(destination.width));
      return;
    }
    for (std::int64_t x = 0; x < destination.width; ++x, to += destination.pixelStride * size) {
      std::int64_t sourceX = problem_.offsetX + x;
      if (problem_.clampEdges) sourceX = std::clamp<std::int64_t>(sourceX, 0, source.width - 1);
      if (rowInside && sourceX >= 0 && sourceX < source.width)
        std::memcpy(to, operands.source + source.offset(image, sourceY, sourceX, 0) * size, pixelBytes);
      else
        std::memset(to, 0, pixelBytes);
    }
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

  void convertRow(const Operands& operands, std::int64_t image, std::int64_t y, std::int64_t sourceY,
                  bool rowInside) const {
    const TensorShape& source = problem_.source;
    const TensorShape& destination = problem_.destination;
    withElementType(source.format, [&](auto from) {
      withElementType(destination.format, [&](auto to) {
        for (std::int64_t x = 0; x < destination.width; ++x) {
          std::int64_t sourceX = problem_.offsetX + x;
          if (problem_.clampEdges) sourceX = std::clamp<std::int64_t>(sourceX, 0, source.width - 1);
          const bool isInside = rowInside && sourceX >= 0 && sourceX < source.width;
          const auto* const read = reinterpret_cast<const decltype(from)*>(operands.source) +
                                   (isInside ? source.offset(image, sourceY, sourceX, 0) : 0);
          auto* const written =
              reinterpret_cast<decltype(to)*>(operands.destination) + destination.offset(image, y, x, 0);
          for (std::int64_t c = 0; c < destination.channels; ++c)
            storeFloat(isInside ? loadFloat(read + c) : 0.0F, written + c);
        }
      });
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
  static constexpr Implementation<TensorCopyProblem> implementations[] = {{"rows", prepareRowCopy}};
  return implementations;
}

}  // namespace mps::detail
