#include "mps/core/cpu/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/convolution/cpu/convolution_direct.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "mps/convolution/cpu/convolution_cpu.hpp"
#include "mps/convolution/cpu/convolution_slices.hpp"
#include "mps/convolution/cpu/convolution_staging.hpp"
#include "mps/core/cpu/array_sum.hpp"
#include "mps/core/cpu/vector_io-inl.hpp"

#ifndef UNMETAL_MPS_CONVOLUTION_DIRECT_TYPES
#define UNMETAL_MPS_CONVOLUTION_DIRECT_TYPES
namespace mps::detail {

/// "Window `window` reads pixel `pixel` with tap `tap`", on one axis.
struct Read {
  std::int64_t window;
  std::int64_t tap;
  std::int64_t pixel;
};

/// All reads of one axis inside the source (with edge mode Clamp: all), listed by window, by tap and by
/// pixel. With these lists each operation gathers its own sums, whatever stride, dilation, padding and edge
/// mode are.
class ReadTable {
 public:
  ReadTable(const WindowAxis& axis, ImageEdgeMode edgeMode)
      : byWindow_(static_cast<std::size_t>(axis.destinationSize)),
        byTap_(static_cast<std::size_t>(axis.kernelSize)),
        byPixel_(static_cast<std::size_t>(axis.sourceSize)) {
    for (std::int64_t window = 0; window < axis.destinationSize; ++window)
      for (std::int64_t tap = 0; tap < axis.kernelSize; ++tap) {
        if (axis.sourceSize == 0) continue;
        const std::int64_t at = axis.firstTap(window) + axis.dilation * tap;
        const std::int64_t pixel = std::clamp<std::int64_t>(at, 0, axis.sourceSize - 1);
        if (at != pixel && edgeMode == ImageEdgeMode::Zero) continue;
        const Read read{window, tap, pixel};
        byWindow_[static_cast<std::size_t>(window)].push_back(read);
        byTap_[static_cast<std::size_t>(tap)].push_back(read);
        byPixel_[static_cast<std::size_t>(pixel)].push_back(read);
      }
  }

  [[nodiscard]] std::span<const Read> ofWindow(std::int64_t i) const {
    return byWindow_[static_cast<std::size_t>(i)];
  }
  [[nodiscard]] std::span<const Read> ofTap(std::int64_t i) const {
    return byTap_[static_cast<std::size_t>(i)];
  }
  [[nodiscard]] std::span<const Read> ofPixel(std::int64_t i) const {
    return byPixel_[static_cast<std::size_t>(i)];
  }

 private:
  using Lists = std::vector<std::vector<Read>>;
  Lists byWindow_;
  Lists byTap_;
  Lists byPixel_;
};

/// One result for each channel, which are then computed side by side.
inline bool isDepthwise(const ConvolutionProblem& problem) {
  return problem.inputChannelsPerGroup() == 1 && problem.outputChannelsPerGroup() == 1;
}

/// Each pixel of the result is a sum over the pixels that it is made from: those of the source that its window reads or,
/// for data gradients, the windows that read it. All arrays are dense, of float32.
struct PixelGather {
  /// An image, and channels of a group.
  struct Side {
    std::int64_t height;
    std::int64_t width;
    std::int64_t channels;
  };

  explicit PixelGather(const ConvolutionProblem& problem)
      : isForward(problem.operation == ConvolutionOperation::Forward),
        from{problem.y.sourceSize, problem.x.sourceSize, problem.inputChannelsPerGroup()},
        to{problem.y.destinationSize, problem.x.destinationSize, problem.outputChannelsPerGroup()},
        groups(problem.groups),
        kernelWidth(problem.x.kernelSize) {
    if (!isForward) std::swap(from, to);
    const std::int64_t taps = problem.y.kernelSize * kernelWidth;
    weightsOfGroup = taps * from.channels * to.channels;
    weightsOfTap = isForward ? from.channels * to.channels : to.channels;
    weightsOfChannel = isForward ? to.channels : taps * to.channels;
  }

  bool isForward;
  Side from;
  Side to;
  std::int64_t groups;
  std::int64_t kernelWidth;
  /// From one group, tap or channel that is summed over to the next one's weights; where isDepthwise() weights are
  /// [kH][kW][channel].
  std::int64_t weightsOfGroup = 0;
  std::int64_t weightsOfTap = 0;
  std::int64_t weightsOfChannel = 0;
  const float* read = nullptr;
  const float* weights = nullptr;
  const float* bias = nullptr;
  float* result = nullptr;
};

}  // namespace mps::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {
namespace {

constexpr std::size_t kVectors = 4;  // sums that are kept in registers at once

/// Adjacent channels, several whole vectors.
template <std::size_t count>
struct WholeVectors {
  static constexpr std::size_t kCount = count;
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const float* from, std::size_t i) const {
    return hn::LoadU(d, from + i * hn::Lanes(d));
  }
  template <class D, class V>
  HWY_INLINE void store(D d, V value, float* to, std::size_t i) const {
    hn::StoreU(value, d, to + i * hn::Lanes(d));
  }
};

/// Fewer adjacent channels than a vector has lanes.
struct PartOfVector {
  static constexpr std::size_t kCount = 1;
  std::size_t lanes;
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const float* from, std::size_t /*i*/) const {
    return loadFloats(d, from, lanes);
  }
  template <class D, class V>
  HWY_INLINE void store(D d, V value, float* to, std::size_t /*i*/) const {
    storeFloats(d, value, to, lanes);
  }
};

/// Sums of one pixel or weight, for the channels of a block.
template <class Block>
class Sums {
 public:
  HWY_INLINE Sums(Block block, const float* start) : block_(block) {
    const hn::ScalableTag<float> d;
    for (std::size_t i = 0; i < Block::kCount; ++i)
      sums_[i] = start == nullptr ? hn::Zero(d) : block.load(d, start, i);
  }
  /// sums += factor * values.
  HWY_INLINE void add(float factor, const float* values) {
    const hn::ScalableTag<float> d;
    const auto factors = hn::Set(d, factor);
    for (std::size_t i = 0; i < Block::kCount; ++i)
      sums_[i] = hn::MulAdd(factors, block_.load(d, values, i), sums_[i]);
  }
  /// sums += factors * values, each with its own factor.
  HWY_INLINE void addProducts(const float* factors, const float* values) {
    const hn::ScalableTag<float> d;
    for (std::size_t i = 0; i < Block::kCount; ++i)
      sums_[i] = hn::MulAdd(block_.load(d, factors, i), block_.load(d, values, i), sums_[i]);
  }
  HWY_INLINE void store(float* to) const {
    const hn::ScalableTag<float> d;
    for (std::size_t i = 0; i < Block::kCount; ++i) block_.store(d, sums_[i], to, i);
  }

 private:
  Block block_;
  hn::Vec<hn::ScalableTag<float>> sums_[Block::kCount];
};

/// Calls body(first channel, block) for blocks that cover `channels`.
template <class Body>
HWY_INLINE void forBlocks(std::int64_t channels, Body&& body) {
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<float>());
  const auto count = static_cast<std::size_t>(channels);
  std::size_t i = 0;
  for (; i + kVectors * lanes <= count; i += kVectors * lanes) body(i, WholeVectors<kVectors>{});
  for (; i + lanes <= count; i += lanes) body(i, WholeVectors<1>{});
  if (i < count) body(i, PartOfVector{count - i});
}

/// One row of the result of one image.
void sumRow(const PixelGather& p, const ReadTable& rows, const ReadTable& columns, std::int64_t image,
            std::int64_t y) {
  const auto readsOf = [&](const ReadTable& table, std::int64_t i) {
    return p.isForward ? table.ofWindow(i) : table.ofPixel(i);
  };
  const auto placeOf = [&](const Read& read) { return p.isForward ? read.pixel : read.window; };
  const bool depthwise = p.from.channels == 1 && p.to.channels == 1;
  for (std::int64_t x = 0; x < p.to.width; ++x) {
    float* const pixel = p.result + ((image * p.to.height + y) * p.to.width + x) * p.groups * p.to.channels;
    const auto sumOf = [&](auto block, std::int64_t channel, auto add) {
      Sums sums(block, p.bias == nullptr ? nullptr : p.bias + channel);
      for (const Read& row : readsOf(rows, y))
        for (const Read& column : readsOf(columns, x))
          add(sums, row.tap * p.kernelWidth + column.tap,
              p.read + ((image * p.from.height + placeOf(row)) * p.from.width + placeOf(column)) * p.groups *
                           p.from.channels);
      sums.store(pixel + channel);
    };
    if (depthwise) {
      forBlocks(p.groups, [&](std::size_t first, auto block) {
        sumOf(block, static_cast<std::int64_t>(first), [&](auto& sums, std::int64_t tap, const float* from) {
          sums.addProducts(p.weights + tap * p.groups + first, from + first);
        });
      });
      continue;
    }
    for (std::int64_t group = 0; group < p.groups; ++group)
      forBlocks(p.to.channels, [&](std::size_t first, auto block) {
        const std::int64_t channel = group * p.to.channels + static_cast<std::int64_t>(first);
        sumOf(block, channel, [&](auto& sums, std::int64_t tap, const float* from) {
          const float* const weights = p.weights + group * p.weightsOfGroup + tap * p.weightsOfTap + first;
          for (std::int64_t c = 0; c < p.from.channels; ++c)
            sums.add(from[group * p.from.channels + c], weights + c * p.weightsOfChannel);
        });
      });
  }
}

/// The gradients of the weights of one output channel and one tap, over the whole batch.
void weightsGradientTap(const ConvolutionProblem& problem, const ReadTable& rows, const ReadTable& columns,
                        const float* sources, const float* gradients, float* results, std::int64_t k,
                        std::int64_t q, std::int64_t p) {
  const std::int64_t inputs = problem.inputChannelsPerGroup();
  const std::int64_t group = k / problem.outputChannelsPerGroup();
  float* result = results + ((k * problem.y.kernelSize + q) * problem.x.kernelSize + p) * inputs;
  forBlocks(inputs, [&](std::size_t first, auto block) {
    Sums sums(block, nullptr);
    for (std::int64_t n = 0; n < problem.images(); ++n)
      for (const Read& row : rows.ofTap(q)) {
        const float* gradient = gradients + (n * problem.y.destinationSize + row.window) *
                                                problem.x.destinationSize * problem.outputFeatureChannels;
        const float* source = sources + (n * problem.y.sourceSize + row.pixel) * problem.x.sourceSize *
                                            problem.inputFeatureChannels;
        for (const Read& column : columns.ofTap(p))
          sums.add(gradient[column.window * problem.outputFeatureChannels + k],
                   source + column.pixel * problem.inputFeatureChannels + group * inputs + first);
      }
    sums.store(result + first);
  });
}

}  // namespace
}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {
namespace {

HWY_EXPORT(sumRow);
HWY_EXPORT(weightsGradientTap);

constexpr std::int64_t kProductsPerRange = 64 * 1024;

class DirectPlan final : public Plan {
 public:
  explicit DirectPlan(const ConvolutionProblem& problem)
      : problem_(problem), rows_(problem.y, problem.edgeMode), columns_(problem.x, problem.edgeMode) {
    const auto weightBytes = static_cast<std::size_t>(problem.weightCount()) * sizeof(float);
    if (problem.operation != ConvolutionOperation::DataGradient)
      source_ = StagedInput(problem.source, scratch_);
    if (problem.operation != ConvolutionOperation::Forward)
      gradient_ = StagedInput(problem.gradient, scratch_);
    if (problem.operation != ConvolutionOperation::WeightsGradient)
      destination_ = StagedOutput(problem, scratch_);
    weights_ = scratch_.reserve(weightBytes);
    reorderedWeights_ = scratch_.reserve(weightBytes);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    if (problem_.operation == ConvolutionOperation::WeightsGradient)
      runWeightsGradient(cpu, operands);
    else
      runPixels(cpu, operands);
  }

  [[nodiscard]] std::size_t scratchBytes() const override { return scratch_.bytes(); }
  [[nodiscard]] bool canAccumulate() const override { return problem_.accumulate; }

 private:
  [[nodiscard]] float* floats(const Operands& operands, std::size_t offset) const {
    return reinterpret_cast<float*>(operands.scratch + offset);
  }

  /// The weights as those of an ordinary convolution, OHWI.
  const float* ordinaryWeights(mtl::cpu::Stream& stream, const Operands& operands) const {
    const auto* given = reinterpret_cast<const float*>(operands.parameters[0]);
    if (!problem_.transposed) return given;
    float* ordinary = floats(operands, weights_);
    partnerWeights(stream, problem_, given, ordinary);
    return ordinary;
  }

  /// OHWI -> [group][kH][kW][in / groups][out / groups] or, where isDepthwise(), [kH][kW][channel], so that channels of
  /// results are neighbours.
  const float* reorderWeights(mtl::cpu::Stream& stream, const float* weights, float* reordered) const {
    const std::int64_t inputs = problem_.inputChannelsPerGroup();
    const std::int64_t outputs = problem_.outputChannelsPerGroup();
    const std::int64_t perOutput = problem_.y.kernelSize * problem_.x.kernelSize * inputs;
    const bool depthwise = isDepthwise(problem_);
    stream.parallelFor(problem_.outputFeatureChannels,
                       std::max<std::int64_t>(1, kProductsPerRange / perOutput),
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t k = begin; k < end; ++k)
                           for (std::int64_t i = 0; i < perOutput; ++i)
                             reordered[depthwise ? i * problem_.groups + k
                                                 : (k / outputs * perOutput + i) * outputs + k % outputs] =
                                 weights[k * perOutput + i];
                       });
    return reordered;
  }

  /// Rows of which one makes it worth while to wake another thread.
  [[nodiscard]] std::int64_t grain(std::int64_t pixelsPerRow, std::int64_t productsPerPixel) const {
    return std::max<std::int64_t>(
        1, kProductsPerRange / std::max<std::int64_t>(1, pixelsPerRow * productsPerPixel));
  }

  /// Forward, or the data gradient.
  void runPixels(mtl::cpu::Stream& stream, const Operands& operands) const {
    PixelGather sums(problem_);
    sums.read = sums.isForward ? source_.load(stream, operands.source, operands.scratch)
                               : gradient_.load(stream, operands.gradient, operands.scratch);
    sums.weights = ordinaryWeights(stream, operands);
    if (sums.isForward || isDepthwise(problem_))
      sums.weights = reorderWeights(stream, sums.weights, floats(operands, reorderedWeights_));
    // That of a transposed convolution belongs to its partner's data gradient, and is added at last.
    const auto* const bias =
        problem_.hasBias ? reinterpret_cast<const float*>(operands.parameters[1]) : nullptr;
    if (sums.isForward && !problem_.transposed) sums.bias = bias;
    sums.result = destination_.target(operands);
    const std::int64_t height = sums.to.height;
    stream.parallelFor(problem_.images() * height, grain(sums.to.width, problem_.weightCount()),
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t i = begin; i < end; ++i) HWY_DYNAMIC_DISPATCH(sumRow)
                         (sums, rows_, columns_, i / height, i % height);
                       });
    destination_.store(stream, operands, !sums.isForward && problem_.transposed ? bias : nullptr);
  }

  void runWeightsGradient(mtl::cpu::Stream& stream, const Operands& operands) const {
    const float* const source = source_.load(stream, operands.source, operands.scratch);
    const float* const gradient = gradient_.load(stream, operands.gradient, operands.scratch);
    float* const result = floats(operands, weights_);
    const std::int64_t width = problem_.x.kernelSize;
    const std::int64_t taps = problem_.y.kernelSize * width;
    const std::int64_t productsPerTap =
        problem_.gradient.pixels() * std::max<std::int64_t>(1, problem_.inputChannelsPerGroup());
    stream.parallelFor(problem_.outputFeatureChannels * taps, grain(1, productsPerTap),
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t i = begin; i < end; ++i) HWY_DYNAMIC_DISPATCH(weightsGradientTap)
                         (problem_, rows_, columns_, source, gradient, result, i / taps, i % taps / width,
                          i % width);
                       });

    auto* weightGradients = reinterpret_cast<float*>(operands.parameters[2]);
    if (problem_.transposed)
      transposedWeights(stream, problem_, result, weightGradients, operands.accumulate);
    else
      sumArrays(stream, result, 1, problem_.weightCount(), weightGradients, operands.accumulate);
    if (!problem_.hasBias) return;
    const TensorShape& summed = problem_.transposed ? problem_.source : problem_.gradient;
    sumPixels(stream, problem_.transposed ? source : gradient, summed.pixels(), summed.channels,
              reinterpret_cast<float*>(operands.parameters[3]), operands.accumulate);
  }

  ConvolutionProblem problem_;
  ReadTable rows_;
  ReadTable columns_;
  ScratchLayout scratch_;
  StagedInput source_;
  StagedInput gradient_;
  StagedOutput destination_;
  std::size_t weights_ = 0;  ///< of an ordinary convolution; or their gradients
  std::size_t reorderedWeights_ = 0;
};

Preparation prepareBatchDirect(const ConvolutionProblem& problem) {
  return std::make_shared<const DirectPlan>(problem);
}

}  // namespace

Preparation prepareConvolutionDirect(const ConvolutionProblem& problem) {
  return prepareInSlices(problem, prepareBatchDirect);
}

}  // namespace mps::detail

#endif
