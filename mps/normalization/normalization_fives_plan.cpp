#include <algorithm>
#include <thread>

#include "mps/normalization/normalization_cpu.hpp"
#include "mps/normalization/normalization_fives.hpp"
#include "mps/normalization/normalization_windows.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {

FiveTiles::FiveTiles(const NormalizationProblem& problem) : power(problem.beta) {
  const TensorShape& shape = problem.destination;
  columnStep = std::min(shape.width, capacity);
  strips = std::clamp<std::int64_t>(capacity / columnStep, 1, shape.channels / lanes);
  const std::int64_t columns = columnsAround();
  const std::int64_t fields = problem.kind == NormalizationKind::LocalContrast ? 2 : 1;
  // T and means of two rows; of each strip sums of four rows of each field, what centers add in as many, two results.
  const std::int64_t vectors = columns * (4 + strips * (4 * fields + 4 + 2));
  workingFloats = static_cast<std::size_t>((vectors + 40 * gap) * lanes);
}

bool isOfFives(const NormalizationProblem& problem) {
  const TensorShape& shape = problem.destination;
  if (problem.kind == NormalizationKind::CrossChannel || problem.edgeMode != ImageEdgeMode::Zero ||
      !isAroundEach(problem.x, FiveTiles::size, problem.destinationOriginX, shape.width) ||
      !isAroundEach(problem.y, FiveTiles::size, problem.destinationOriginY, shape.height) ||
      shape.elements() == 0 || shape.channels % FiveTiles::lanes != 0)
    return false;
  const auto areOf = [&](ImageFeatureChannelFormat format) {
    return problem.source.format == format && shape.format == format &&
           (!problem.isGradient() || problem.gradient.format == format);
  };
  // The others in float32 wait for memory, which rows that are read one after the other keep busier.
  return areOf(ImageFeatureChannelFormat::Float16) ||
         (areOf(ImageFeatureChannelFormat::Float32) && problem.isGradient() &&
          problem.kind == NormalizationKind::LocalContrast);
}

namespace {

/// Elements below which another thread does not pay.
constexpr std::int64_t kGrainOfFives = 4096;

class FivesPlan final : public Plan {
 public:
  explicit FivesPlan(const NormalizationProblem& problem)
      : problem_(problem),
        tiles_(problem),
        steps_(problem.destination.images * FiveTiles::steps(problem.destination.height)) {
    // A few parts for each processor, so that any number of threads shares them evenly.
    const auto most = std::int64_t{4} * std::max(1U, std::thread::hardware_concurrency());
    parts_ =
        std::clamp<std::int64_t>(problem.destination.elements() / kGrainOfFives, 1, std::min(steps_, most));
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::asCpu(stream).parallelFor(parts_, 1, [&](std::int64_t begin, std::int64_t end) {
      // Parts that one thread takes are neighbours: one range, with the first part's memory.
      std::byte* const working = operands.scratch + static_cast<std::size_t>(begin) * workingBytes();
      normalizeFives(problem_, tiles_, operands, working, steps_ * begin / parts_, steps_ * end / parts_);
    });
  }
  [[nodiscard]] std::size_t scratchBytes() const override {
    return static_cast<std::size_t>(parts_) * workingBytes();
  }
  [[nodiscard]] bool canAccumulate() const override {
    return problem_.isGradient() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  [[nodiscard]] std::size_t workingBytes() const { return tiles_.workingFloats * sizeof(float); }

  NormalizationProblem problem_;
  FiveTiles tiles_;
  std::int64_t steps_;
  std::int64_t parts_;
};

}  // namespace

Preparation prepareFives(const NormalizationProblem& problem) {
  if (!isOfFives(problem))
    return Refusal{"not windows of 5 x 5 pixels around each one, over whole vectors of one format"};
  return std::make_shared<const FivesPlan>(problem);
}

}  // namespace mps::detail
