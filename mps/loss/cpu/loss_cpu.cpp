#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/plan/plan.hpp"
#include "mps/core/types/storage.hpp"
#include "mps/loss/cpu/loss_run.hpp"
#include "mps/loss/cpu/loss_tiles.hpp"
#include "mps/loss/loss_numbers.hpp"
#include "mps/loss/loss_problem.hpp"
#include "mtl/cpu/stream.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/loss/cpu/loss_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/loss/cpu/loss_rows-inl.hpp"
#include "mps/loss/cpu/loss_softmax-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// What the items of one thread share.
struct LossBuffers {
  explicit LossBuffers(const LossRun& run) : tiles(run) {}
  LossTiles tiles;
  LossImages images;
  SoftMaxTile softMax;
};

/// Pixels that fit into a tile, perhaps of several images.
void runWholePixels(const LossRun& run, LossBuffers& buffers, const LossItem& item) {
  const Tile tile = run.layout.tile(item, 0);
  const auto channels = static_cast<std::size_t>(tile.channels);
  LossImages& images = buffers.images;
  images.count = static_cast<std::size_t>(item.images);
  images.elements = static_cast<std::size_t>(item.pixels) * channels;
  for (std::size_t n = 0; n < images.count; ++n)
    images.factors[n] = run.factor(item.firstImage + static_cast<std::int64_t>(n));
  const LossRows rows = buffers.tiles.load(tile);
  if (run.problem.lossType == CNNLossType::SoftMaxCrossEntropy) {
    reduceTile(rows, static_cast<std::size_t>(tile.pixels), channels, buffers.softMax);
    runSoftMaxImages(run.numbers, rows, images, channels, buffers.softMax);
  } else {
    runImagesOf(run.problem.lossType, run.numbers, rows, images);
  }
  double* sums = run.sums + run.shareIndex(item);
  for (std::size_t n = 0; n < images.count; ++n) sums[n] = static_cast<double>(images.sums[n]);
  buffers.tiles.store(tile);
}

/// Calls visit(tile, rows, elements) for each slice of the channels of an item's one pixel.
template <class Visit>
void forSlices(const LossRun& run, LossTiles& tiles, const LossItem& item, Visit visit) {
  for (std::int64_t slice = 0; slice < run.layout.slices(); ++slice) {
    const Tile tile = run.layout.tile(item, slice);
    visit(tile, tiles.load(tile), static_cast<std::size_t>(tile.elements()));
  }
}

/// Maximum and sums of a pixel in slices.
void reduceWidePixel(const LossRun& run, LossBuffers& buffers, const LossItem& item, float factor) {
  float largest = -std::numeric_limits<float>::infinity();
  forSlices(run, buffers.tiles, item, [&](const Tile&, const LossRows& rows, std::size_t count) HWY_ATTR {
    largest = std::max(largest, largestPrediction(rows.predictions, count));
  });
  double sum = 0;
  double weightedLabels = 0;
  forSlices(run, buffers.tiles, item, [&](const Tile&, const LossRows& rows, std::size_t count) HWY_ATTR {
    sum += static_cast<double>(sumExponentials<false>(rows.predictions, count, largest, nullptr));
    if (run.numbers.exactSoftMaxGradient)
      weightedLabels += static_cast<double>(sumWeightedLabels(run.numbers, rows, 0, count, factor));
  });
  buffers.softMax.shift[0] = largest;
  buffers.softMax.sum[0] = static_cast<float>(sum);
  buffers.softMax.weightedLabels[0] = static_cast<float>(weightedLabels);
  finishSums(buffers.softMax, 1);
}

/// The outputs of a slice of a pixel that went through reduceWidePixel(); returns the sum of w l.
float runSoftMaxSlice(const LossRun& run, const LossRows& rows, std::size_t count, float factor,
                      const SoftMaxTile& softMax) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> sum = hn::Zero(d);
  runPixel<false, false>(run.numbers, rows, 0, count, factor, softMax, 0, nullptr, sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void runWidePixel(const LossRun& run, LossBuffers& buffers, const LossItem& item) {
  const bool isSoftMax = run.problem.lossType == CNNLossType::SoftMaxCrossEntropy;
  LossImages& images = buffers.images;
  images.count = 1;
  images.factors[0] = run.factor(item.firstImage);
  if (isSoftMax) reduceWidePixel(run, buffers, item, images.factors[0]);
  double sum = 0;
  forSlices(run, buffers.tiles, item, [&](const Tile& tile, const LossRows& rows, std::size_t count) {
    if (isSoftMax) {
      images.sums[0] = runSoftMaxSlice(run, rows, count, images.factors[0], buffers.softMax);
    } else {
      images.elements = count;
      runImagesOf(run.problem.lossType, run.numbers, rows, images);
    }
    sum += static_cast<double>(images.sums[0]);
    buffers.tiles.store(tile);
  });
  run.sums[run.shareIndex(item)] = sum;
}

void runItems(const LossRun& run, std::int64_t begin, std::int64_t end) {
  LossBuffers buffers(run);
  for (std::int64_t i = begin; i < end; ++i) {
    const LossItem item = run.layout.item(i);
    if (run.layout.slices() > 1)
      runWidePixel(run, buffers, item);
    else
      runWholePixels(run, buffers, item);
  }
  finishNonTemporalStores();
}

/// Counts the weights that are not 0.
void countItems(const LossRun& run, std::int64_t begin, std::int64_t end) {
  LossTiles tiles(run);
  for (std::int64_t i = begin; i < end; ++i) {
    const LossItem item = run.layout.item(i);
    std::int64_t* counts = run.counts + run.shareIndex(item);
    for (std::int64_t slice = 0; slice < run.layout.slices(); ++slice) {
      const Tile tile = run.layout.tile(item, slice);
      const std::int64_t elements = tile.elements() / item.images;
      const ConstFloatRun weights = tiles.loadWeightsToCount(tile);
      for (std::int64_t n = 0; n < item.images; ++n) {
        const std::int64_t count =
            weights ? countNonZero(weights + static_cast<std::size_t>(n * elements), elements) : elements;
        std::int64_t& share = counts[n];
        share = slice == 0 ? count : share + count;
      }
    }
  }
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mps::detail {
namespace {

HWY_EXPORT(runItems);
HWY_EXPORT(countItems);

/// Elements below which a second thread does not pay.
constexpr std::int64_t kGrainOfArithmetic = 16384;
constexpr std::int64_t kGrainOfTranscendental = 4096;

bool isTranscendental(CNNLossType type) {
  return type == CNNLossType::SoftMaxCrossEntropy || type == CNNLossType::SigmoidCrossEntropy ||
         type == CNNLossType::CategoricalCrossEntropy || type == CNNLossType::Log ||
         type == CNNLossType::KullbackLeiblerDivergence;
}

class LossPlan final : public Plan {
 public:
  explicit LossPlan(const LossProblem& problem)
      : whole_(problem), problem_(narrowed(problem)), layout_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    LossRun run = prepareRun(operands);
    const std::int64_t elementsPerItem = layout_.imagesPerItem * layout_.pixelsPerItem * layout_.channels;
    const std::int64_t grain =
        (isTranscendental(problem_.lossType) ? kGrainOfTranscendental : kGrainOfArithmetic) / elementsPerItem;
    if (countsWeights(problem_))
      cpu.parallelFor(layout_.items, grain, [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(countItems)(run, begin, end);
      });
    setDivisors(run);
    cpu.parallelFor(layout_.items, grain, [&](std::int64_t begin, std::int64_t end) {
      HWY_DYNAMIC_DISPATCH(runItems)(run, begin, end);
    });
    if (problem_.loss.channels > 0 && !run.perElement()) storeLosses(run);
    if (!operands.accumulate) zeroOthers(stream, whole_.gradient, run.gradient);
    zeroOthers(stream, whole_.labelGradient, run.labelGradient);
    if (run.perElement()) zeroOthers(stream, whole_.loss, run.loss);
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    const std::int64_t shares = layout_.images * layout_.itemsPerImage;
    const std::int64_t counts = countsWeights(problem_) ? shares : 0;
    return static_cast<std::size_t>(shares + counts + layout_.images) * sizeof(double);
  }
  [[nodiscard]] bool canAccumulate() const override {
    return problem_.gradient.channels > 0 && problem_.gradient.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  [[nodiscard]] LossRun prepareRun(const Operands& operands) const {
    LossRun run{.problem = problem_, .layout = layout_, .numbers = lossNumbers(problem_, operands)};
    run.weight = operands.scalars[0];
    run.accumulate = operands.accumulate;
    run.predictions = operands.source;
    run.labels = operands.secondary;
    run.weights = operands.parameters[0];
    run.sourceGradient = operands.gradient;
    run.gradient = operands.destination;
    run.loss = operands.parameters[1];
    run.labelGradient = operands.parameters[2];
    const std::int64_t shares = layout_.images * layout_.itemsPerImage;
    run.divisors = reinterpret_cast<double*>(operands.scratch);
    run.sums = run.divisors + layout_.images;
    static_assert(sizeof(std::int64_t) == sizeof(double));
    run.counts = reinterpret_cast<std::int64_t*>(run.sums + shares);
    return run;
  }

  /// The divisor of the reduction for each image, or for the batch in each of them.
  void setDivisors(LossRun& run) const {
    double batch = 0;
    for (std::int64_t n = 0; n < layout_.images; ++n) {
      run.divisors[n] = divisorOfImage(run, n);
      batch += run.divisors[n];
    }
    if (problem_.reduceAcrossBatch && problem_.reductionType != CNNReductionType::Sum)
      std::fill_n(run.divisors, layout_.images, batch);
  }

  [[nodiscard]] double divisorOfImage(const LossRun& run, std::int64_t image) const {
    if (!countsWeights(problem_)) return lossDivisor(problem_);
    std::int64_t count = 0;
    for (std::int64_t j = 0; j < layout_.itemsPerImage; ++j)
      count += run.counts[image * layout_.itemsPerImage + j];
    return static_cast<double>(count);
  }

  /// The losses of the images, each in the first element of its loss image; 0 in the others.
  void storeLosses(const LossRun& run) const {
    const TensorShape& shape = problem_.loss;
    withElementType(shape.format, [&](auto type) {
      auto* to = reinterpret_cast<decltype(type)*>(run.loss);
      if (shape.elements() > shape.images) fillWithZeros(shape, to);
      double batch = 0;
      for (std::int64_t n = 0; n < layout_.images; ++n) {
        const double loss = lossOfImage(run, n);
        batch += loss;
        storeFloat(problem_.reduceAcrossBatch ? 0.0F : static_cast<float>(loss), to + n * shape.imageStride);
      }
      if (problem_.reduceAcrossBatch && layout_.images > 0) storeFloat(static_cast<float>(batch), to);
    });
  }

  template <class Element>
  static void fillWithZeros(const TensorShape& shape, Element* to) {
    for (std::int64_t n = 0; n < shape.images; ++n)
      for (std::int64_t y = 0; y < shape.height; ++y)
        for (std::int64_t x = 0; x < shape.width; ++x)
          for (std::int64_t c = 0; c < shape.channels; ++c) storeFloat(0.0F, to + shape.offset(n, y, x, c));
  }

  [[nodiscard]] static double lossOfImage(const LossRun& run, std::int64_t image) {
    const LossLayout& layout = run.layout;
    double sum = 0;
    for (std::int64_t j = 0; j < layout.itemsPerImage; ++j) sum += run.sums[image * layout.itemsPerImage + j];
    if (run.problem.lossType == CNNLossType::CosineDistance) sum = 1 - sum;
    return run.divisors[image] == 0 ? 0 : run.weight * sum / run.divisors[image];
  }

  /// The channels that do not count.
  void zeroOthers(mtl::Stream& stream, TensorShape shape, std::byte* memory) const {
    if (shape.channels <= layout_.channels) return;
    const auto counted = static_cast<std::size_t>(layout_.channels) * bytesPerChannel(shape.format);
    shape.channels -= layout_.channels;
    forEachTile(stream, Tiling(shape.pixels(), shape.channels), [&](const Tile& tile) {
      float buffer[Tiling::capacity];
      float* const zeros = tileTarget(shape, memory + counted, tile, buffer);
      std::fill_n(zeros, tile.elements(), 0.0F);
      storeTile(shape, memory + counted, tile, zeros);
    });
  }

  LossProblem whole_;
  LossProblem problem_;  ///< narrowed()
  LossLayout layout_;
};

Preparation prepareLoss(const LossProblem& problem) {
  return std::make_shared<const LossPlan>(problem);
}

constexpr Implementation<LossProblem> kImplementations[] = {{"vectorised tiles", prepareLoss}};

/// ", name shape", or nothing when the tensor is not there.
std::string describeTensor(const char* name, const TensorShape& shape) {
  return shape.channels == 0 ? std::string() : std::string(", ") + name + " " + shape.describe();
}

}  // namespace

std::span<const Implementation<LossProblem>> lossImplementationsCpu() {
  return kImplementations;
}

const char* name(CNNLossType type) {
  switch (type) {
    case CNNLossType::MeanAbsoluteError:
      return "MeanAbsoluteError";
    case CNNLossType::MeanSquaredError:
      return "MeanSquaredError";
    case CNNLossType::SoftMaxCrossEntropy:
      return "SoftMaxCrossEntropy";
    case CNNLossType::SigmoidCrossEntropy:
      return "SigmoidCrossEntropy";
    case CNNLossType::CategoricalCrossEntropy:
      return "CategoricalCrossEntropy";
    case CNNLossType::Hinge:
      return "Hinge";
    case CNNLossType::Huber:
      return "Huber";
    case CNNLossType::CosineDistance:
      return "CosineDistance";
    case CNNLossType::Log:
      return "Log";
    case CNNLossType::KullbackLeiblerDivergence:
      return "KullbackLeiblerDivergence";
    case CNNLossType::Count:
      break;
  }
  return "unknown";
}

const char* name(CNNReductionType type) {
  switch (type) {
    case CNNReductionType::None:
      return "None";
    case CNNReductionType::Sum:
      return "Sum";
    case CNNReductionType::Mean:
      return "Mean";
    case CNNReductionType::SumByNonZeroWeights:
      return "SumByNonZeroWeights";
    case CNNReductionType::Count:
      break;
  }
  return "unknown";
}

std::string LossProblem::describe() const {
  std::string text = std::string("loss ") + name(lossType) + " " + name(reductionType);
  if (reduceAcrossBatch) text += " across the batch";
  if (divideGradient) text += ", gradient divided";
  if (exactSoftMaxGradient) text += ", exact gradient";
  text +=
      ", " + std::to_string(countedChannels) + " channels, " + std::to_string(numberOfClasses) + " classes";
  text += describeTensor("predictions", predictions);
  text += describeTensor(labelKind == LossLabels::Dense ? "labels" : "class indices", labels);
  text += describeTensor("weights", weights) + describeTensor("source gradient", sourceGradient);
  return text + describeTensor("gradient", gradient) + describeTensor("loss", loss) +
         describeTensor("label gradient", labelGradient);
}

}  // namespace mps::detail
#endif
