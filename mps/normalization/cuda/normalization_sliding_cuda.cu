#include "mps/normalization/cuda/normalization_sliding_cuda.cuh"

#include <cfloat>
#include <memory>
#include <type_traits>

#include "mps/normalization/cuda/normalization_cuda.hpp"

namespace mps::detail {
namespace {

namespace sliding = cuda::sliding_window;
using cuda::Divider;
using sliding::Arguments;

/// How blocks divide the tensor that is written.
struct Division {
  std::int64_t channels = 1;  ///< of a slice
  std::int64_t slices = 1;
  std::int64_t pixels = 1;  ///< of a tile, without those beside it that a window sees
  std::int64_t tiles = 1;
  std::int64_t rows = 1;  ///< of a chunk
  std::int64_t chunks = 1;
  std::int64_t threads = 1;
  std::int64_t pairs = 1;  ///< of images

  /// @param beside pixels of a row that a block reads beside those that it writes
  Division(const TensorShape& shape, std::int64_t beside, std::int64_t windowHeight)
      : pairs((shape.images + sliding::kImages - 1) / sliding::kImages) {
    // A sector of memory holds eight float32; what more channels cost is that fewer pixels share those beside.
    constexpr std::int64_t fewest = 6;
    constexpr std::int64_t most = 16;
    std::int64_t least = INT64_MAX;
    for (std::int64_t each = std::min(fewest, shape.channels); each <= std::min(most, shape.channels);
         ++each) {
      const std::int64_t widest = sliding::kThreads / each - beside;
      const std::int64_t tileCount = (shape.width + widest - 1) / widest;
      const std::int64_t width = (shape.width + tileCount - 1) / tileCount;
      const std::int64_t sliceCount = (shape.channels + each - 1) / each;
      const std::int64_t work = tileCount * (width + beside) * sliceCount * each;
      if (work > least) continue;
      least = work;
      channels = each;
      slices = sliceCount;
      pixels = width;
      tiles = tileCount;
    }
    threads = ((pixels + beside) * channels + 31) / 32 * 32;
    // Enough blocks for a large GPU come first; each chunk begins with rows that the one before it has, too.
    constexpr std::int64_t wanted = 2048;
    const std::int64_t leastRows = std::max<std::int64_t>(16, 4 * windowHeight);
    const std::int64_t wantedRows = shape.height * std::max<std::int64_t>(1, pairs * slices * tiles) / wanted;
    chunks = (shape.height + std::max(leastRows, wantedRows) - 1) / std::max(leastRows, wantedRows);
    rows = (shape.height + chunks - 1) / chunks;
    chunks = (shape.height + rows - 1) / rows;
  }
  [[nodiscard]] bool fits() const { return pairs * slices <= 0x7FFFFFFF / (tiles * chunks); }
  [[nodiscard]] std::int64_t blocks() const { return pairs * chunks * slices * tiles; }
};

template <class T>
class SlidingPlan final : public Plan {
 public:
  explicit SlidingPlan(const NormalizationProblem& problem) : problem_(problem) {}

  static Division divisionOf(const NormalizationProblem& problem) {
    return {problem.destination, (problem.x.kernelSize - 1) * (problem.isGradient() ? 2 : 1),
            problem.y.kernelSize};
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.destination.elements() == 0) return;
    const bool isFive = problem_.x.kernelSize == 5 && problem_.y.kernelSize == 5;
    const bool isContrast = problem_.kind == NormalizationKind::LocalContrast;
    const auto start = [&](auto contrast, auto most) {
      if (problem_.isGradient())
        launch<contrast(), true, most()>(stream, operands);
      else
        launch<contrast(), false, most()>(stream, operands);
    };
    using Widest = std::integral_constant<int, sliding::kWidestWindow>;
    using Five = std::integral_constant<int, 5>;
    if (isContrast)
      isFive ? start(std::true_type(), Five()) : start(std::true_type(), Widest());
    else
      isFive ? start(std::false_type(), Five()) : start(std::false_type(), Widest());
  }

  [[nodiscard]] std::string describe() const override {
    const Division division = divisionOf(problem_);
    return "tiles of " + std::to_string(division.pixels) + " columns and " +
           std::to_string(division.channels) + " channels of two images";
  }
  [[nodiscard]] bool canAccumulate() const override {
    return problem_.isGradient() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  [[nodiscard]] Arguments argumentsFor(const Operands& operands, const Division& division) const {
    const TensorShape& shape = problem_.destination;
    Arguments a;
    a.x = {problem_.x, shape.width, problem_.isGradient(), problem_.destinationOriginX};
    a.y = {problem_.y, shape.height, problem_.isGradient(), problem_.destinationOriginY};
    a.tiles = Divider(division.tiles);
    a.slices = Divider(division.slices);
    a.chunks = Divider(division.chunks);
    a.channelsOfSlice = Divider(division.channels);
    a.pixelsOfTile = static_cast<std::int32_t>(division.pixels);
    a.rowsOfChunk = static_cast<std::int32_t>(division.rows);
    a.images = static_cast<std::int32_t>(shape.images);
    a.channels = static_cast<std::int32_t>(shape.channels);
    a.clamps = problem_.edgeMode == ImageEdgeMode::Clamp;
    a.accumulate = operands.accumulate;
    a.source = {problem_.source, operands.source};
    a.gradient = {problem_.gradient, operands.gradient};
    a.destination = {shape, operands.destination};
    const auto taps = static_cast<float>(problem_.taps());
    a.ofWindow = 1 / taps;
    a.ofRow = 1 / static_cast<float>(problem_.x.kernelSize);
    a.delta = problem_.delta;
    a.ofSquares = problem_.alpha / taps;
    a.p0 = problem_.p0;
    a.pm = problem_.pm;
    a.ps = problem_.ps;
    a.ofSum = 2 * problem_.alpha * problem_.beta / taps;
    a.ofMean = problem_.p0 / taps;
    a.rule = PowerRule(problem_.beta);
    a.isNormal = problem_.alpha >= 0 && problem_.delta >= FLT_MIN;
    return a;
  }

  template <bool isContrast, bool isGradient, int most>
  void launch(mtl::Stream& stream, const Operands& operands) const {
    const Division division = divisionOf(problem_);
    Arguments a = argumentsFor(operands, division);
    a.rowLength = static_cast<std::int32_t>(division.threads + (most - 1) * division.channels);
    mtl::cuda::launch(
        stream, sliding::normalizeColumns<T, isContrast, isGradient, most>,
        dim3(static_cast<unsigned>(division.blocks())), dim3(static_cast<unsigned>(division.threads)),
        static_cast<std::size_t>(a.rowLength) * sliding::kSharedBytes<isContrast, isGradient, most>, a);
  }

  NormalizationProblem problem_;
};

}  // namespace

Preparation prepareNormalizationSlidingCuda(const NormalizationProblem& problem) {
  using Format = ImageFeatureChannelFormat;
  constexpr std::int64_t most = std::int64_t{1} << 29;
  const TensorShape* const gradient = problem.isGradient() ? &problem.gradient : nullptr;
  if (problem.kind == NormalizationKind::CrossChannel) return Refusal{"windows of channels"};
  if (problem.isGradient() && problem.edgeMode == ImageEdgeMode::Clamp)
    return Refusal{"a gradient of pixels that stand for those beyond the edge"};
  if (std::max(problem.x.kernelSize, problem.y.kernelSize) > sliding::kWidestWindow)
    return Refusal{"windows of more than seven pixels by seven"};
  for (const std::int64_t number :
       {problem.x.offset, problem.y.offset, problem.destinationOriginX, problem.destinationOriginY})
    if (number < -most || number > most) return Refusal{"an offset of about 2^29 pixels"};
  for (const TensorShape* shape : {&problem.source, &problem.destination, gradient})
    if (shape != nullptr &&
        (!cuda::ElementGrid::fits(*shape) || std::max(shape->width, shape->height) > most))
      return Refusal{cuda::ElementGrid::kTooLarge};
  const Format format = cuda::commonFormat({&problem.source, &problem.destination, gradient});
  if (format != Format::Float32 && format != Format::Float16)
    return Refusal{"not all float32 and not all float16"};
  if (problem.destination.elements() > 0 && !SlidingPlan<float>::divisionOf(problem).fits())
    return Refusal{cuda::ElementGrid::kTooLarge};
  if (format == Format::Float32) return std::make_shared<const SlidingPlan<float>>(problem);
  return std::make_shared<const SlidingPlan<Float16>>(problem);
}

}  // namespace mps::detail
