#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "mps/batch_normalization/batch_normalization_problem.hpp"
#include "mps/core/cpu/channel_layout.hpp"
#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/cpu/tile_io.hpp"
#include "mps/core/neuron/neuron_span.hpp"
#include "mps/core/types/text_stream.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/batch_normalization/cpu/batch_normalization_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/cpu/channel_passes-inl.hpp"
#include "mps/core/neuron/neuron_vectors-inl.hpp"

#ifndef UNMETAL_MPS_BATCH_NORMALIZATION_ROWS
#define UNMETAL_MPS_BATCH_NORMALIZATION_ROWS
namespace mps::detail {

/// Numbers of the channels, repeated along a row.
struct ChannelNumbers {
  ChannelLine line;                     ///< z
  const float* meanGradient = nullptr;  ///< B / m
  const float* factor = nullptr;        ///< r G / m
  const float* slope = nullptr;         ///< of ReLU and PReLU below 0; null: another neuron, or none
};

}  // namespace mps::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// dy f'(z) of a neuron that is a line with a kink at 0.
template <class D, class Lanes, class V = hn::Vec<D>>
HWY_INLINE V kinkedGradient(D d, Lanes lanes, V x, V dy, const ChannelNumbers& numbers, std::size_t i) {
  const V z = onLine(d, lanes, x, numbers.line, i);
  return hn::Mul(dy, kinkedSlope(d, z, lanes.load(d, numbers.slope + i)));
}

/// sums += g, products += g (x - mean), in float64. Both have room for a vector behind a row.
/// @param g where numbers.slope is set dy
/// @param shiftsLater products of x itself
void addGradientSums(const ChannelRows& rows, ConstFloatRun g, ConstFloatRun x, const ChannelNumbers& numbers,
                     bool shiftsLater, double* sums, double* products) {
  const auto add = [&](auto hasKink) {
    const auto gradientOf = [&](auto d, auto lanes, auto value, auto gradient, std::size_t i) HWY_ATTR
        __attribute__((always_inline)) {
      if constexpr (hasKink)
        return kinkedGradient(d, lanes, value, gradient, numbers, i);
      else
        return gradient;
    };
    sumGradientProducts(rows, g, x, shiftsLater ? nullptr : numbers.line.mean, gradientOf, sums, products);
  };
  if (numbers.slope != nullptr)
    add(std::true_type());
  else
    add(std::false_type());
}

/// y = f(z) of a neuron that is a line with a kink at 0. y may be x.
void kinkedRows(const ChannelRows& rows, ConstFloatRun x, const ChannelNumbers& numbers, FloatRun y) {
  const hn::ScalableTag<float> d;
  forRowVectors(d, rows, [&](std::size_t at, std::size_t i, auto lanes) {
    const auto z = onLine(d, lanes, lanes.load(d, x + at), numbers.line, i);
    lanes.store(d, kinkedLine(d, z, lanes.load(d, numbers.slope + i)), y + at);
  });
}

/// y = f(z + addend) of such a neuron. y may be x or the addend.
void kinkedSumRows(const ChannelRows& rows, ConstFloatRun x, ConstFloatRun addend,
                   const ChannelNumbers& numbers, FloatRun y) {
  const hn::ScalableTag<float> d;
  forRowVectors(d, rows, [&](std::size_t at, std::size_t i, auto lanes) {
    const auto z = onLine(d, lanes, lanes.load(d, x + at), numbers.line, i);
    const auto sum = hn::Add(z, lanes.load(d, addend + at));
    lanes.store(d, kinkedLine(d, sum, lanes.load(d, numbers.slope + i)), y + at);
  });
}

/// dx = scale (g - B / m - (x - mean) r G / m). dx may be g or x. @param g where numbers.slope is set dy
void gradientRows(const ChannelRows& rows, ConstFloatRun g, ConstFloatRun x, const ChannelNumbers& numbers,
                  FloatRun dx) {
  const hn::ScalableTag<float> d;
  const auto compute = [&](auto hasKink) {
    forRowVectors(d, rows, [&](std::size_t at, std::size_t i, auto lanes) {
      const auto value = lanes.load(d, x + at);
      auto gradient = lanes.load(d, g + at);
      if constexpr (hasKink) gradient = kinkedGradient(d, lanes, value, gradient, numbers, i);
      const auto difference = hn::Sub(value, lanes.load(d, numbers.line.mean + i));
      const auto centred = hn::Sub(gradient, lanes.load(d, numbers.meanGradient + i));
      const auto sum = hn::NegMulAdd(difference, lanes.load(d, numbers.factor + i), centred);
      lanes.store(d, hn::Mul(sum, lanes.load(d, numbers.line.scale + i)), dx + at);
    });
  };
  if (numbers.slope != nullptr)
    compute(std::true_type());
  else
    compute(std::false_type());
}

/// dx = scale g and sums += g, these in float64, with room for a vector behind a row. dx may be g.
void scaleAndSumRows(const ChannelRows& rows, ConstFloatRun g, const ChannelNumbers& numbers, double* sums,
                     FloatRun dx) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  forRowVectors(d, rows, [&](std::size_t at, std::size_t i, auto lanes) {
    const auto gradient = lanes.load(df, g + at);
    lanes.store(df, hn::Mul(gradient, lanes.load(df, numbers.line.scale + i)), dx + at);
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i), hn::PromoteTo(d, gradient)), d, sums + i);
  });
}

/// dx = scale g. dx may be g.
void scaleRows(const ChannelRows& rows, ConstFloatRun g, const ChannelNumbers& numbers, FloatRun dx) {
  const hn::ScalableTag<float> d;
  forRowVectors(d, rows, [&](std::size_t at, std::size_t i, auto lanes) {
    lanes.store(d, hn::Mul(lanes.load(d, g + at), lanes.load(d, numbers.line.scale + i)), dx + at);
  });
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(sumMoments);
HWY_EXPORT(momentsFromSums);
HWY_EXPORT(subtractMeans);
HWY_EXPORT(addGradientSums);
HWY_EXPORT(normalizeRows);
HWY_EXPORT(kinkedRows);
HWY_EXPORT(kinkedSumRows);
HWY_EXPORT(gradientRows);
HWY_EXPORT(scaleRows);
HWY_EXPORT(scaleAndSumRows);

namespace {

using Operation = BatchNormalizationOperation;

template <class T>
T* at(const Operands& operands, std::size_t parameter) {
  return reinterpret_cast<T*>(operands.parameters[parameter]);
}

/// What all operations on a tensor share: the layout and, at the beginning of the scratch memory, the numbers of
/// the channels along a row.
class ChannelPlan : public Plan {
 public:
  ChannelPlan(const BatchNormalizationProblem& problem, const TensorShape& shape)
      : problem_(problem), layout_(shape.pixels(), shape.channels) {}

 protected:
  static constexpr std::size_t kNumberRows = 6;
  [[nodiscard]] std::size_t numberBytes() const {
    return kNumberRows * static_cast<std::size_t>(layout_.roomyRow()) * sizeof(float);
  }

  /// Fills the numbers of every channel.
  ChannelNumbers channelNumbers(const Operands& operands, bool withSums) const {
    auto* rows = reinterpret_cast<float*>(operands.scratch);
    std::array<float*, kNumberRows> number{};
    for (std::size_t i = 0; i < kNumberRows; ++i)
      number[i] = rows + i * static_cast<std::size_t>(layout_.roomyRow());
    const auto channels = static_cast<std::size_t>(layout_.channels);
    const bool isPReLU = problem_.neuron.neuronType() == CNNNeuronType::PReLU;
    for (std::size_t c = 0; c < channels; ++c) {
      const double r = inverseDeviation(operands, c);
      number[0][c] = at<const float>(operands, 2)[c];
      number[1][c] = static_cast<float>(static_cast<double>(at<const float>(operands, 0)[c]) * r);
      number[2][c] = at<const float>(operands, 1)[c];
      const double* sums = at<const double>(operands, 4);
      number[3][c] = withSums ? static_cast<float>(sums[c] / operands.scalars[0]) : 0;
      number[4][c] = withSums ? static_cast<float>(r * (sums[channels + c] / operands.scalars[0])) : 0;
      number[5][c] = isPReLU ? problem_.neuron.data()[c] : problem_.neuron.a();
    }
    for (float* row : number) layout_.repeat(row);
    return {{number[0], number[1], number[2]}, number[3], number[4], hasKink() ? number[5] : nullptr};
  }

  [[nodiscard]] double inverseDeviation(const Operands& operands, std::size_t channel) const {
    const auto variance = static_cast<double>(at<const float>(operands, 3)[channel]);
    return 1 / std::sqrt(variance + static_cast<double>(problem_.epsilon));
  }

  /// The numbers of a tile's first channel on.
  static ChannelNumbers from(const ChannelNumbers& numbers, const Tile& tile) {
    const auto first = static_cast<std::size_t>(tile.firstChannel);
    return {{numbers.line.mean + first, numbers.line.scale + first, numbers.line.shift + first},
            numbers.meanGradient + first,
            numbers.factor + first,
            numbers.slope == nullptr ? nullptr : numbers.slope + first};
  }

  [[nodiscard]] bool hasNeuron() const { return problem_.neuron.neuronType() != CNNNeuronType::None; }

  /// Neurons whose derivative the sums and gradients compute themselves.
  [[nodiscard]] bool hasKink() const {
    return problem_.neuron.neuronType() == CNNNeuronType::ReLU ||
           problem_.neuron.neuronType() == CNNNeuronType::PReLU;
  }

  /// z, in `buffer`.
  ConstFloatRun lines(const Tile& tile, const ChannelNumbers& numbers, ConstFloatRun x, float* buffer) const {
    HWY_DYNAMIC_DISPATCH(normalizeRows)(layout_.rowsOf(tile), x, numbers.line, true, FloatRun(buffer));
    return buffer;
  }
  static NeuronRun runOf(const Tile& tile) { return {tile.pixels, tile.channels, tile.firstChannel}; }

  /// g = dy f'(z): in `buffer` where there is a neuron, else dy itself.
  ConstFloatRun neuronGradient(const Tile& tile, const ChannelNumbers& numbers, ConstFloatRun x,
                               ConstFloatRun dy, float* buffer) const {
    if (!hasNeuron()) return dy;
    const ConstFloatRun z = lines(tile, numbers, x, buffer);
    neuronGradients(problem_.neuron, runOf(tile), z, dy, FloatRun(buffer));
    return buffer;
  }

  BatchNormalizationProblem problem_;
  ChannelLayout layout_;
};

/// Sums over pixels, in float64. A chunk leaves two numbers per channel in the scratch memory.
class SumPlan : public ChannelPlan {
 public:
  using ChannelPlan::ChannelPlan;
  [[nodiscard]] bool canAccumulate() const override { return true; }
  [[nodiscard]] std::size_t scratchBytes() const override {
    return sumsOffset() + static_cast<std::size_t>(layout_.chunks) * chunkBytes();
  }

 protected:
  [[nodiscard]] std::size_t sumsOffset() const { return (numberBytes() + 63) / 64 * 64; }
  [[nodiscard]] std::size_t rowBytes() const {
    return static_cast<std::size_t>(layout_.roomyRow()) * sizeof(double);
  }
  [[nodiscard]] std::size_t chunkBytes() const { return 2 * rowBytes(); }
  /// The first (0) or second (1) sums of a chunk.
  [[nodiscard]] double* sums(const Operands& operands, std::int64_t chunk, std::size_t which) const {
    return reinterpret_cast<double*>(operands.scratch + sumsOffset() +
                                     static_cast<std::size_t>(chunk) * chunkBytes() + which * rowBytes());
  }
  /// Zero sums of a chunk.
  void clear(const Operands& operands, std::int64_t chunk) const {
    std::fill_n(sums(operands, chunk, 0), 2 * layout_.roomyRow(), 0.0);
  }
  template <class Body>
  void forChunks(mtl::Stream& stream, Body&& body) const {
    mtl::cpu::asCpu(stream).parallelFor(layout_.chunks, layout_.grain(),
                                        [&](std::int64_t begin, std::int64_t end) {
                                          for (std::int64_t chunk = begin; chunk < end; ++chunk) body(chunk);
                                        });
  }
};

/// Mean and variance. Each chunk subtracts its first pixel before it sums and squares, so that a large mean
/// destroys nothing.
class StatisticsPlan final : public SumPlan {
 public:
  explicit StatisticsPlan(const BatchNormalizationProblem& problem) : SumPlan(problem, problem.source) {}
  [[nodiscard]] std::size_t scratchBytes() const override {
    return SumPlan::scratchBytes() + static_cast<std::size_t>(layout_.chunks) * shiftBytes();
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    forChunks(stream, [&](std::int64_t chunk) { sumChunk(operands, chunk); });
    join(operands);
  }

 private:
  [[nodiscard]] std::size_t shiftBytes() const {
    return static_cast<std::size_t>(layout_.roomyRow()) * sizeof(float);
  }

  /// Leaves mean and sum of squared differences of each channel.
  void sumChunk(const Operands& operands, std::int64_t chunk) const {
    auto* shifts = reinterpret_cast<float*>(operands.scratch + SumPlan::scratchBytes() +
                                            static_cast<std::size_t>(chunk) * shiftBytes());
    const bool shiftsLater = shiftsSums(problem_.source);
    loadShifts(layout_, problem_.source, operands.source, chunk, shifts);
    clear(operands, chunk);
    double* first = sums(operands, chunk, 0);
    double* second = sums(operands, chunk, 1);
    layout_.forTiles(chunk, [&](const Tile& tile) {
      alignas(64) float buffer[Tiling::capacity];
      HWY_DYNAMIC_DISPATCH(sumMoments)
      (layout_.rowsOf(tile), loadRun(problem_.source, operands.source, tile, buffer),
       shiftsLater ? nullptr : shifts + tile.firstChannel, first + tile.firstChannel,
       second + tile.firstChannel);
    });
    HWY_DYNAMIC_DISPATCH(momentsFromSums)
    (layout_, shifts, static_cast<double>(layout_.pixelsOf(chunk)), shiftsLater, {first, second});
  }

  /// Chan's formula, chunk after chunk, into the accumulators; then what kernels and users read.
  void join(const Operands& operands) const {
    double count = operands.accumulate ? operands.scalars[0] : 0;
    double* mean = at<double>(operands, 4);
    double* squares = mean + layout_.channels;
    for (std::int64_t chunk = 0; chunk < layout_.chunks; ++chunk) {
      const auto added = static_cast<double>(layout_.pixelsOf(chunk));
      joinMoments(layout_.channels, count, {mean, squares}, added,
                  {sums(operands, chunk, 0), sums(operands, chunk, 1)});
      count += added;
    }
    for (std::int64_t c = 0; c < layout_.channels; ++c) {
      at<float>(operands, 2)[c] = static_cast<float>(mean[c]);
      const double variance = squares[c] / count;
      at<float>(operands, 3)[c] = static_cast<float>(variance < 0 ? 0 : variance);
    }
  }
};

/// B, G and the gradients that follow from them.
class StatisticsGradientPlan final : public SumPlan {
 public:
  explicit StatisticsGradientPlan(const BatchNormalizationProblem& problem)
      : SumPlan(problem, problem.source) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const ChannelNumbers numbers = channelNumbers(operands, false);
    forChunks(stream, [&](std::int64_t chunk) { sumChunk(operands, numbers, chunk); });
    join(operands);
  }

 private:
  void sumChunk(const Operands& operands, const ChannelNumbers& numbers, std::int64_t chunk) const {
    clear(operands, chunk);
    const bool shiftsLater = shiftsSums(problem_.source);
    double* first = sums(operands, chunk, 0);
    double* second = sums(operands, chunk, 1);
    layout_.forTiles(chunk, [&](const Tile& tile) {
      alignas(64) float sourceBuffer[Tiling::capacity];
      alignas(64) float gradientBuffer[Tiling::capacity];
      alignas(64) float neuronBuffer[Tiling::capacity];
      const ChannelNumbers own = from(numbers, tile);
      const ConstFloatRun x = loadRun(problem_.source, operands.source, tile, sourceBuffer);
      const ConstFloatRun dy = loadRun(problem_.gradient, operands.gradient, tile, gradientBuffer);
      const ConstFloatRun g = hasKink() ? dy : neuronGradient(tile, own, x, dy, neuronBuffer);
      HWY_DYNAMIC_DISPATCH(addGradientSums)
      (layout_.rowsOf(tile), g, x, own, shiftsLater, first + tile.firstChannel, second + tile.firstChannel);
    });
    layout_.fold(first);
    layout_.fold(second);
    if (shiftsLater) HWY_DYNAMIC_DISPATCH(subtractMeans)
    (static_cast<std::size_t>(layout_.channels), numbers.line.mean, first, second);
  }

  void join(const Operands& operands) const {
    const auto channels = static_cast<std::size_t>(layout_.channels);
    double* sum = at<double>(operands, 4);
    double* product = sum + channels;
    for (std::size_t c = 0; c < channels; ++c) {
      double addedSum = 0;
      double addedProduct = 0;
      for (std::int64_t chunk = 0; chunk < layout_.chunks; ++chunk) {
        addedSum += sums(operands, chunk, 0)[c];
        addedProduct += sums(operands, chunk, 1)[c];
      }
      const double r = inverseDeviation(operands, c);
      const auto gamma = static_cast<double>(at<const float>(operands, 0)[c]);
      sum[c] = (operands.accumulate ? sum[c] : 0) + addedSum;
      product[c] = (operands.accumulate ? product[c] : 0) + r * addedProduct;
      at<float>(operands, 5)[c] = static_cast<float>(product[c]);
      at<float>(operands, 6)[c] = static_cast<float>(sum[c]);
      at<float>(operands, 7)[c] = static_cast<float>(-gamma * r * sum[c]);
      at<float>(operands, 7)[channels + c] = static_cast<float>(-gamma * r * r * product[c] / 2);
    }
  }
};

/// B and dx, which does not depend on it, in one pass.
class BetaAndDataGradientPlan final : public SumPlan {
 public:
  explicit BetaAndDataGradientPlan(const BatchNormalizationProblem& problem)
      : SumPlan(problem, problem.source) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const ChannelNumbers numbers = channelNumbers(operands, false);
    forChunks(stream, [&](std::int64_t chunk) { computeChunk(operands, numbers, chunk); });
    for (std::size_t c = 0; c < static_cast<std::size_t>(layout_.channels); ++c) {
      double added = 0;
      for (std::int64_t chunk = 0; chunk < layout_.chunks; ++chunk) added += sums(operands, chunk, 0)[c];
      double& sum = at<double>(operands, 4)[c];
      sum = (operands.accumulate ? sum : 0) + added;
      at<float>(operands, 6)[c] = static_cast<float>(sum);
    }
  }

 private:
  void computeChunk(const Operands& operands, const ChannelNumbers& numbers, std::int64_t chunk) const {
    clear(operands, chunk);
    double* sum = sums(operands, chunk, 0);
    layout_.forTiles(chunk, [&](const Tile& tile) {
      alignas(64) float sourceBuffer[Tiling::capacity];
      alignas(64) float gradientBuffer[Tiling::capacity];
      alignas(64) float neuronBuffer[Tiling::capacity];
      alignas(64) float resultBuffer[Tiling::capacity];
      const ConstFloatRun x = loadRun(problem_.source, operands.source, tile, sourceBuffer);
      const ConstFloatRun dy = loadRun(problem_.gradient, operands.gradient, tile, gradientBuffer);
      const FloatRun dx = runTarget(problem_.destination, operands.destination, tile, resultBuffer);
      const ChannelNumbers own = from(numbers, tile);
      const ConstFloatRun g = neuronGradient(tile, own, x, dy, neuronBuffer);
      HWY_DYNAMIC_DISPATCH(scaleAndSumRows)(layout_.rowsOf(tile), g, own, sum + tile.firstChannel, dx);
      storeTile(problem_.destination, operands.destination, tile, dx);
    });
    finishNonTemporalStores();
    layout_.fold(sum);
  }
};

/// y or dx, tile by tile.
class ElementPlan final : public ChannelPlan {
 public:
  explicit ElementPlan(const BatchNormalizationProblem& problem)
      : ChannelPlan(problem, problem.destination) {}
  [[nodiscard]] std::size_t scratchBytes() const override { return numberBytes(); }
  [[nodiscard]] bool canAccumulate() const override {
    return problem_.operation == Operation::Gradient &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const bool isForward = problem_.operation == Operation::Forward;
    const ChannelNumbers numbers = channelNumbers(operands, !isForward && !problem_.hasConstantStatistics);
    forEachTile(stream, Tiling(layout_.pixels, layout_.channels), [&](const Tile& tile) {
      alignas(64) float buffer[Tiling::capacity];
      const FloatRun target =
          runTarget(problem_.destination, operands.destination, tile, buffer, operands.accumulate);
      if (isForward)
        forward(operands, from(numbers, tile), tile, target);
      else
        gradient(operands, from(numbers, tile), tile, target);
      storeTile(problem_.destination, operands.destination, tile, target, operands.accumulate);
    });
  }

 private:
  void forward(const Operands& operands, const ChannelNumbers& numbers, const Tile& tile,
               FloatRun target) const {
    alignas(64) float sourceBuffer[Tiling::capacity];
    const ConstFloatRun x = loadRun(problem_.source, operands.source, tile, sourceBuffer);
    if (problem_.hasAddend()) {
      alignas(64) float addendBuffer[Tiling::capacity];
      const ConstFloatRun addend = loadRun(problem_.addend, operands.parameters[4], tile, addendBuffer);
      HWY_DYNAMIC_DISPATCH(kinkedSumRows)(layout_.rowsOf(tile), x, addend, numbers, target);
    } else if (hasKink()) {
      HWY_DYNAMIC_DISPATCH(kinkedRows)(layout_.rowsOf(tile), x, numbers, target);
    } else if (hasNeuron()) {
      alignas(64) float lineBuffer[Tiling::capacity];
      neuronValues(problem_.neuron, runOf(tile), lines(tile, numbers, x, lineBuffer), target);
    } else {
      HWY_DYNAMIC_DISPATCH(normalizeRows)(layout_.rowsOf(tile), x, numbers.line, false, target);
    }
  }

  void gradient(const Operands& operands, const ChannelNumbers& numbers, const Tile& tile,
                FloatRun target) const {
    alignas(64) float sourceBuffer[Tiling::capacity];
    alignas(64) float gradientBuffer[Tiling::capacity];
    alignas(64) float neuronBuffer[Tiling::capacity];
    const ConstFloatRun dy = loadRun(problem_.gradient, operands.gradient, tile, gradientBuffer);
    const ChannelRows rows = layout_.rowsOf(tile);
    ConstFloatRun x;
    if (problem_.readsSource()) x = loadRun(problem_.source, operands.source, tile, sourceBuffer);
    if (problem_.hasConstantStatistics) {
      const ConstFloatRun g = neuronGradient(tile, numbers, x, dy, neuronBuffer);
      HWY_DYNAMIC_DISPATCH(scaleRows)(rows, g, numbers, target);
      return;
    }
    const ConstFloatRun g = hasKink() ? dy : neuronGradient(tile, numbers, x, dy, neuronBuffer);
    HWY_DYNAMIC_DISPATCH(gradientRows)(rows, g, x, numbers, target);
  }
};

Preparation prepareTiles(const BatchNormalizationProblem& problem) {
  switch (problem.operation) {
    case Operation::Statistics:
      return std::make_shared<const StatisticsPlan>(problem);
    case Operation::StatisticsGradient:
      if (problem.storesDataGradient()) return std::make_shared<const BetaAndDataGradientPlan>(problem);
      return std::make_shared<const StatisticsGradientPlan>(problem);
    case Operation::Forward:
    case Operation::Gradient:
      break;
  }
  return std::make_shared<const ElementPlan>(problem);
}

constexpr std::array<Implementation<BatchNormalizationProblem>, 1> kImplementations{
    {{"tiles", prepareTiles}}};

}  // namespace

std::string BatchNormalizationProblem::describe() const {
  constexpr std::array<const char*, 4> names{"statistics", "forward", "statistics gradient", "gradient"};
  TextStream text;
  text << "batch normalization " << names[static_cast<std::size_t>(operation)];
  if (hasConstantStatistics) text << " with constant statistics";
  if (neuron.neuronType() != CNNNeuronType::None) text << ", " << neuron.describe();
  text << ", epsilon " << epsilon << ", " << source.describe();
  if (operation == Operation::StatisticsGradient || operation == Operation::Gradient)
    text << ", gradient " << gradient.describe();
  if (hasAddend()) text << ", addend " << addend.describe();
  if (operation == Operation::Forward || operation == Operation::Gradient || storesDataGradient())
    text << " -> " << destination.describe();
  return text.str();
}

std::span<const Implementation<BatchNormalizationProblem>> batchNormalizationImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail

#endif  // HWY_ONCE
