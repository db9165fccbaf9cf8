#include <algorithm>
#include <thread>

#include "mps/normalization/normalization_cpu.hpp"
#include "mps/normalization/normalization_narrow.hpp"
#include "mps/normalization/normalization_windows.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {

bool isNarrow(const NormalizationProblem& problem) {
  const TensorShape& shape = problem.destination;
  if (problem.kind == NormalizationKind::CrossChannel || problem.edgeMode != ImageEdgeMode::Zero ||
      !isAroundEach(problem.x, NarrowRuns::size, problem.destinationOriginX, shape.width) ||
      !isAroundEach(problem.y, NarrowRuns::size, problem.destinationOriginY, shape.height) ||
      shape.elements() == 0 || shape.channels > NarrowRuns::mostChannels ||
      shape.width * shape.channels > NarrowRuns::capacity)
    return false;
  if (shape.format != ImageFeatureChannelFormat::Float16 &&
      shape.format != ImageFeatureChannelFormat::Float32)
    return false;
  const auto fits = [&](const TensorShape& operand) {
    return operand.format == shape.format && operand.pixelStride == shape.channels;
  };
  return fits(shape) && fits(problem.source) && (!problem.isGradient() || fits(problem.gradient));
}

namespace {

/// Elements below which another thread does not pay.
constexpr std::int64_t kGrainOfNarrow = 4096;

class NarrowPlan final : public Plan {
 public:
  explicit NarrowPlan(const NormalizationProblem& problem)
      : problem_(problem),
        steps_(problem.destination.images * NarrowRuns::steps(problem.destination.height)) {
    // A few parts for each processor, so that any number of threads shares them evenly.
    const auto most = std::int64_t{4} * std::max(1U, std::thread::hardware_concurrency());
    parts_ =
        std::clamp<std::int64_t>(problem.destination.elements() / kGrainOfNarrow, 1, std::min(steps_, most));
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::asCpu(stream).parallelFor(parts_, 1, [&](std::int64_t begin, std::int64_t end) {
      // Parts that one thread takes are neighbours: one range, with the first part's memory.
      std::byte* const working = operands.scratch + static_cast<std::size_t>(begin) * kWorkingBytes;
      normalizeNarrow(problem_, operands, working, steps_ * begin / parts_, steps_ * end / parts_);
    });
  }
  [[nodiscard]] std::size_t scratchBytes() const override {
    return static_cast<std::size_t>(parts_) * kWorkingBytes;
  }
  [[nodiscard]] bool canAccumulate() const override {
    return problem_.isGradient() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  static constexpr std::size_t kWorkingBytes = NarrowRuns::workingFloats * sizeof(float);

  NormalizationProblem problem_;
  std::int64_t steps_;
  std::int64_t parts_;
};

}  // namespace

Preparation prepareNarrow(const NormalizationProblem& problem) {
  if (!isNarrow(problem))
    return Refusal{"not windows of 5 x 5 pixels around each one, over pixels of few channels"};
  return std::make_shared<const NarrowPlan>(problem);
}

}  // namespace mps::detail
