#include "mps/upsampling/upsampling_plain.hpp"

#include <algorithm>

#include "mps/core/storage.hpp"
#include "mps/upsampling/upsampling_taps.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

/// Elements below which another thread does not pay.
constexpr std::int64_t kGrain = 4096;

float load(const TensorShape& shape, const std::byte* memory, std::int64_t offset) {
  return withElementType(shape.format, [&](auto element) {
    return loadFloat(reinterpret_cast<const decltype(element)*>(memory) + offset);
  });
}

void store(const TensorShape& shape, std::byte* memory, std::int64_t offset, float value) {
  withElementType(shape.format, [&](auto element) {
    storeFloat(value, reinterpret_cast<decltype(element)*>(memory) + offset);
  });
}

class PlainUpsampling final : public Plan {
 public:
  explicit PlainUpsampling(const UpsamplingProblem& problem)
      : problem_(problem), rows_(upsamplingRowTaps(problem)), columns_(upsamplingColumnTaps(problem)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& shape = problem_.destination;
    const std::int64_t rowElements = std::max<std::int64_t>(1, shape.width * shape.channels);
    const std::int64_t grain = (kGrain + rowElements - 1) / rowElements;
    mtl::cpu::asCpu(stream).parallelFor(shape.images * shape.height, grain,
                                        [&](std::int64_t begin, std::int64_t end) {
                                          for (std::int64_t row = begin; row < end; ++row)
                                            computeRow(operands, row / shape.height, row % shape.height);
                                        });
  }

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.direction == UpsamplingDirection::Gradient &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  void computeRow(const Operands& operands, std::int64_t n, std::int64_t y) const {
    const TensorShape& shape = problem_.destination;
    for (std::int64_t x = 0; x < shape.width; ++x)
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        const std::int64_t offset = shape.offset(n, y, x, c);
        const float old = operands.accumulate ? load(shape, operands.destination, offset) : 0.0F;
        store(shape, operands.destination, offset, old + sum(operands, n, y, x, c));
      }
  }

  [[nodiscard]] float sum(const Operands& operands, std::int64_t n, std::int64_t y, std::int64_t x,
                          std::int64_t c) const {
    const std::byte* const input =
        problem_.direction == UpsamplingDirection::Forward ? operands.source : operands.gradient;
    float total = 0;
    for (const UpsamplingTap* row = rows_.begin(y); row != rows_.end(y); ++row) {
      float inRow = 0;
      for (const UpsamplingTap* column = columns_.begin(x); column != columns_.end(x); ++column)
        inRow += column->weight *
                 load(problem_.input, input, problem_.input.offset(n, row->input, column->input, c));
      total += row->weight * inRow;
    }
    return total;
  }

  UpsamplingProblem problem_;
  UpsamplingTaps rows_;
  UpsamplingTaps columns_;
};

}  // namespace

Preparation preparePlainUpsampling(const UpsamplingProblem& problem) {
  return std::make_shared<const PlainUpsampling>(problem);
}

}  // namespace mps::detail
