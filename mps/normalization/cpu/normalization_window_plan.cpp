#include <algorithm>
#include <cstdlib>
#include <thread>

#include "mps/normalization/cpu/normalization_cpu.hpp"
#include "mps/normalization/cpu/normalization_tiles.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {

WindowTiles::WindowTiles(const NormalizationProblem& problem) : power(problem.beta) {
  const std::int64_t beside = problem.x.kernelSize - 1;
  const std::int64_t width = problem.destination.width;
  const std::int64_t channels = problem.destination.channels;
  if (problem.x.kernelSize > capacity || problem.y.kernelSize > mostRows) return;
  // Columns beside the tile are computed once more for the tile next to it: four times as many of its own.
  const std::int64_t wanted = std::min(width, 4 * beside + 1);
  const std::int64_t most = std::max<std::int64_t>(1, capacity / (wanted + beside));
  constexpr std::int64_t largestVector = 16;
  channelStep = std::clamp<std::int64_t>(channels, 1,
                                         most < largestVector ? most : most / largestVector * largestVector);
  columnStep = std::clamp<std::int64_t>(capacity / channelStep - beside, 1, std::max<std::int64_t>(1, width));
  const std::int64_t floats = channelStep * (columnStep + 2 * beside);
  rowFloats = static_cast<std::size_t>((std::max(floats, problem.x.kernelSize) + 15) / 16 * 16);
  const std::int64_t height = problem.y.kernelSize;
  rowsAtOnce = height > 1 ? 2 : 1;
  keptRows = height + rowsAtOnce - 1;
  workingRows = keptRows + 11;
  if (problem.isGradient()) {
    // Windows are computed from an even one on.
    const std::int64_t firstSeeing =
        problem.destinationOriginY - (height - 1 - height / 2) - problem.y.offset;
    if (rowsAtOnce == 2) keptRows = (height + 2 + std::abs(firstSeeing % 2)) / 2 * 2;
    const std::int64_t fields = problem.kind == NormalizationKind::LocalContrast ? 3 : 2;
    workingRows = keptRows + 13 + fields * (2 + keptRows);
  }
}

namespace {

/// Elements below which another thread does not pay.
constexpr std::int64_t kGrainOfWindows = 4096;

class WindowPlan final : public Plan {
 public:
  WindowPlan(const NormalizationProblem& problem, const WindowTiles& tiles)
      : problem_(problem),
        tiles_(tiles),
        steps_(problem.destination.images * tiles.steps(problem.destination.height)),
        workingBytes_(static_cast<std::size_t>(tiles.workingRows) * tiles.rowFloats * sizeof(float)) {
    // A few parts for each processor, so that any number of threads shares them evenly.
    const auto most = std::int64_t{4} * std::max(1U, std::thread::hardware_concurrency());
    parts_ = std::clamp<std::int64_t>(problem.destination.elements() / kGrainOfWindows, 1,
                                      std::max<std::int64_t>(1, std::min(steps_, most)));
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::asCpu(stream).parallelFor(parts_, 1, [&](std::int64_t begin, std::int64_t end) {
      // Parts that one thread takes are neighbours: one range, with the first part's memory.
      std::byte* const working = operands.scratch + static_cast<std::size_t>(begin) * workingBytes_;
      normalizeWindowRows(problem_, tiles_, operands, working, steps_ * begin / parts_,
                          steps_ * end / parts_);
    });
  }
  [[nodiscard]] std::size_t scratchBytes() const override {
    return static_cast<std::size_t>(parts_) * workingBytes_;
  }
  [[nodiscard]] bool canAccumulate() const override {
    return problem_.isGradient() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  NormalizationProblem problem_;
  WindowTiles tiles_;
  std::int64_t steps_;
  std::int64_t parts_;
  std::size_t workingBytes_;
};

/// Whether a window lies wholly outside the source.
bool hasDistantWindows(const WindowAxis& axis) {
  return axis.offset < -((axis.kernelSize - 1) / 2) ||
         axis.destinationSize - 1 > axis.sourceSize - 1 - axis.offset + axis.kernelSize / 2;
}

}  // namespace

Preparation prepareWindowNormalization(const NormalizationProblem& problem) {
  if (problem.kind == NormalizationKind::CrossChannel) return Refusal{"windows of channels"};
  const WindowTiles tiles(problem);
  if (tiles.channelStep == 0) return Refusal{"the window is larger than the working memory"};
  if (problem.edgeMode == ImageEdgeMode::Clamp &&
      (hasDistantWindows(problem.x) || hasDistantWindows(problem.y)))
    return Refusal{"windows lie wholly outside the source and stand for its edge"};
  return std::make_shared<const WindowPlan>(problem, tiles);
}

}  // namespace mps::detail
