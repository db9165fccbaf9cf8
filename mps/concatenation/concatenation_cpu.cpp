#include <algorithm>
#include <array>

#include "mps/concatenation/concatenation_problem.hpp"
#include "mps/core/pixel_copy.hpp"
#include "mps/core/streamed_stores.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

/// Elements below which another thread does not pay.
constexpr std::int64_t kGrain = 16384;

class RowPlan final : public Plan {
 public:
  explicit RowPlan(const ConcatenationProblem& problem) : problem_(problem) {
    const TensorShape& input = problem.input;
    const TensorShape& destination = problem.destination;
    copy_.inputFormat = input.format;
    copy_.destinationFormat = destination.format;
    copy_.channels = input.channels;
    copy_.zeros = destination.channels - input.channels;
    copy_.inputStride = input.pixelStride;
    copy_.destinationStride = destination.pixelStride;
    // Of the whole image: its parts are written one soon after the other.
    const auto extent = destination.pixels() * destination.pixelStride *
                        static_cast<std::int64_t>(bytesPerChannel(destination.format));
    copy_.pastCaches = writesPastCaches(2 * extent);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& shape = problem_.destination;
    const bool isForward = problem_.direction == ConcatenationDirection::Forward;
    const std::byte* const input = isForward ? operands.source : operands.gradient;
    PixelCopy copy = copy_;
    copy.accumulate = operands.accumulate;
    copy.pastCaches = copy_.pastCaches && !operands.accumulate;
    const std::int64_t rowElements = std::max<std::int64_t>(1, shape.width * shape.channels);
    mtl::cpu::asCpu(stream).parallelFor(shape.images * shape.height, kGrain / rowElements + 1,
                                        [&](std::int64_t begin, std::int64_t end) {
                                          for (std::int64_t row = begin; row < end; ++row)
                                            copyRow(copy, input, operands.destination, row);
                                          if (copy.pastCaches) finishStreaming();
                                        });
  }

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.direction == ConcatenationDirection::Gradient &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  void copyRow(const PixelCopy& copy, const std::byte* input, std::byte* destination,
               std::int64_t row) const {
    const std::int64_t image = row / problem_.destination.height;
    const std::int64_t y = row % problem_.destination.height;
    const auto offset = [&](const TensorShape& shape) {
      return shape.offset(image, y, 0, 0) * static_cast<std::int64_t>(bytesPerChannel(shape.format));
    };
    copyPixels(copy, input + offset(problem_.input), destination + offset(problem_.destination),
               problem_.destination.width);
  }

  ConcatenationProblem problem_;
  PixelCopy copy_;
};

/// Two sources, one after the other.
class PairPlan final : public Plan {
 public:
  explicit PairPlan(const ConcatenationProblem& problem)
      : first_(problem.ofSource(false)), second_(problem.ofSource(true)) {
    secondOffset_ =
        problem.input.channels * static_cast<std::int64_t>(bytesPerChannel(problem.destination.format));
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    first_.run(stream, operands);
    Operands ofSecond = operands;
    ofSecond.source = operands.secondary;
    ofSecond.destination += secondOffset_;
    second_.run(stream, ofSecond);
  }

 private:
  RowPlan first_;
  RowPlan second_;
  std::int64_t secondOffset_;
};

Preparation prepareRows(const ConcatenationProblem& problem) {
  if (problem.hasSecond()) return std::make_shared<const PairPlan>(problem);
  return std::make_shared<const RowPlan>(problem);
}

constexpr std::array<Implementation<ConcatenationProblem>, 1> kImplementations{{{"rows", prepareRows}}};

}  // namespace

std::string ConcatenationProblem::describe() const {
  return (direction == ConcatenationDirection::Forward ? "concatenation " : "concatenation gradient ") +
         input.describe() + (hasSecond() ? " and " + second.describe() : "") + " -> " +
         destination.describe();
}

std::span<const Implementation<ConcatenationProblem>> concatenationImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail
