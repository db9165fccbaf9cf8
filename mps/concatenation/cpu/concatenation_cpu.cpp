#include <algorithm>
#include <array>

#include "mps/concatenation/concatenation_problem.hpp"
#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/core/image/pixel_copy.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

/// Elements below which another thread does not pay.
constexpr std::int64_t kGrain = 16384;

/// Copies rows of one source, or back.
class SourceRows {
 public:
  explicit SourceRows(const ConcatenationProblem& problem) : problem_(problem) {
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
    copy_.isNonTemporal = usesNonTemporalStores(2 * extent);
  }

  [[nodiscard]] PixelCopy copyFor(const Operands& operands) const {
    PixelCopy copy = copy_;
    copy.accumulate = operands.accumulate;
    copy.isNonTemporal = copy_.isNonTemporal && !operands.accumulate;
    return copy;
  }

  [[nodiscard]] const std::byte* inputRow(const std::byte* input, std::int64_t row) const {
    return input + offsetOf(problem_.input, row);
  }
  [[nodiscard]] std::byte* destinationRow(std::byte* destination, std::int64_t row) const {
    return destination + offsetOf(problem_.destination, row);
  }

 private:
  [[nodiscard]] std::int64_t offsetOf(const TensorShape& shape, std::int64_t row) const {
    return shape.offset(row / shape.height, row % shape.height, 0, 0) *
           static_cast<std::int64_t>(bytesPerChannel(shape.format));
  }

  ConcatenationProblem problem_;
  PixelCopy copy_;
};

/// Whether the pixels of a row go on behind its end, at the same distance, with those of the next one.
bool areRowsAdjacent(const TensorShape& shape) {
  return shape.rowStride == shape.width * shape.pixelStride &&
         (shape.images <= 1 || shape.imageStride == shape.height * shape.rowStride);
}

/// Calls copyRows(begin, end) for all rows of a destination.
template <class CopyRows>
void forRows(mtl::Stream& stream, const TensorShape& shape, bool isNonTemporal, CopyRows&& copyRows) {
  const std::int64_t rowElements = std::max<std::int64_t>(1, shape.width * shape.channels);
  mtl::cpu::asCpu(stream).parallelFor(shape.images * shape.height, kGrain / rowElements + 1,
                                      [&](std::int64_t begin, std::int64_t end) {
                                        copyRows(begin, end);
                                        if (isNonTemporal) finishNonTemporalStores();
                                      });
}

class RowPlan final : public Plan {
 public:
  explicit RowPlan(const ConcatenationProblem& problem) : problem_(problem), rows_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const bool isForward = problem_.direction == ConcatenationDirection::Forward;
    const std::byte* const input = isForward ? operands.source : operands.gradient;
    const PixelCopy copy = rows_.copyFor(operands);
    const bool areAdjacent = areRowsAdjacent(problem_.input) && areRowsAdjacent(problem_.destination);
    forRows(stream, problem_.destination, copy.isNonTemporal, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t rows = areAdjacent ? end - begin : 1;
      for (std::int64_t row = begin; row < end; row += rows)
        copyPixels(copy, rows_.inputRow(input, row), rows_.destinationRow(operands.destination, row),
                   rows * problem_.destination.width);
    });
  }

  [[nodiscard]] bool canAccumulate() const override { return problem_.canAccumulate(); }

 private:
  ConcatenationProblem problem_;
  SourceRows rows_;
};

/// Two sources, row by row, or all adjacent ones at once: their pixels share lines of the cache.
class PairPlan final : public Plan {
 public:
  explicit PairPlan(const ConcatenationProblem& problem)
      : problem_(problem), first_(problem.ofSource(false)), second_(problem.ofSource(true)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const PixelCopy first = first_.copyFor(operands);
    const PixelCopy second = second_.copyFor(operands);
    const bool areAdjacent = areRowsAdjacent(problem_.input) && areRowsAdjacent(problem_.second) &&
                             areRowsAdjacent(problem_.destination);
    forRows(stream, problem_.destination, first.isNonTemporal, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t rows = areAdjacent ? end - begin : 1;
      for (std::int64_t row = begin; row < end; row += rows)
        copyPixelPairs(first, first_.inputRow(operands.source, row), second,
                       second_.inputRow(operands.secondary, row),
                       first_.destinationRow(operands.destination, row), rows * problem_.destination.width);
    });
  }

 private:
  ConcatenationProblem problem_;
  SourceRows first_;
  SourceRows second_;
};

/// The gradients of two sources, some pixels of one and then of the other: in memory their parts share lines of the
/// cache.
class SplitPlan final : public Plan {
 public:
  explicit SplitPlan(const ConcatenationProblem& problem)
      : problem_(problem), first_(problem.ofSource(false)), second_(problem.ofSource(true)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const PixelCopy first = first_.copyFor(operands);
    const PixelCopy second = second_.copyFor(operands);
    const TensorShape& input = problem_.input;
    const auto element = static_cast<std::int64_t>(bytesPerChannel(input.format));
    const std::byte* const behind = operands.gradient + problem_.firstChannels() * element;
    const std::int64_t together = pixelsTogether(input.pixelStride * element);
    const bool areAdjacent =
        areRowsAdjacent(input) && areRowsAdjacent(problem_.destination) && areRowsAdjacent(problem_.second);
    forRows(stream, input, first.isNonTemporal || second.isNonTemporal,
            [&](std::int64_t begin, std::int64_t end) {
              const std::int64_t rows = areAdjacent ? end - begin : 1;
              for (std::int64_t row = begin; row < end; row += rows)
                for (std::int64_t pixel = 0; pixel < rows * input.width; pixel += together) {
                  const std::int64_t pixels = std::min(together, rows * input.width - pixel);
                  copyPart(first_, first, operands.gradient, operands.destination, row, pixel, pixels);
                  copyPart(second_, second, behind, operands.parameters[0], row, pixel, pixels);
                }
            });
  }

 private:
  /// As many as stay in a core's own cache; whole lines of every part.
  static std::int64_t pixelsTogether(std::int64_t pixelBytes) {
    constexpr std::int64_t cached = 131072;
    constexpr std::int64_t least = 64;
    return std::max<std::int64_t>(1, cached / std::max<std::int64_t>(1, pixelBytes) / least) * least;
  }
  static void copyPart(const SourceRows& rows, const PixelCopy& copy, const std::byte* input,
                       std::byte* destination, std::int64_t row, std::int64_t pixel, std::int64_t pixels) {
    const auto bytes = [&](std::int64_t stride, ImageFeatureChannelFormat format) {
      return pixel * stride * static_cast<std::int64_t>(bytesPerChannel(format));
    };
    copyPixels(copy, rows.inputRow(input, row) + bytes(copy.inputStride, copy.inputFormat),
               rows.destinationRow(destination, row) + bytes(copy.destinationStride, copy.destinationFormat),
               pixels);
  }

  ConcatenationProblem problem_;
  SourceRows first_;
  SourceRows second_;
};

Preparation prepareRows(const ConcatenationProblem& problem) {
  if (problem.hasSecond() && problem.direction == ConcatenationDirection::Gradient)
    return std::make_shared<const SplitPlan>(problem);
  if (problem.hasSecond()) return std::make_shared<const PairPlan>(problem);
  return std::make_shared<const RowPlan>(problem);
}

constexpr std::array<Implementation<ConcatenationProblem>, 1> kImplementations{{{"copy", prepareRows}}};

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
