#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <type_traits>

#include "mps/batch_normalization/batch_normalization_problem.hpp"
#include "mps/core/highway_targets.hpp"
#include "mps/core/neuron_span.hpp"
#include "mps/core/tile_io.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/batch_normalization/batch_normalization_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/neuron_vectors-inl.hpp"
#include "mps/core/vector_runs-inl.hpp"

#ifndef UNMETAL_MPS_BATCH_NORMALIZATION_ROWS
#define UNMETAL_MPS_BATCH_NORMALIZATION_ROWS
namespace mps::detail {

/// Adjacent elements in rows of `length`: a row is one pixel, or several short ones, so that element i of each
/// row is of the same channel. The last row may be shorter.
struct ChannelRows {
  std::size_t elements = 0;
  std::size_t length = 0;
};

/// Numbers of the channels, repeated along a row.
struct ChannelNumbers {
  const float* mean = nullptr;
  const float* scale = nullptr;
  const float* beta = nullptr;
  const float* meanGradient = nullptr;  ///< B / m
  const float* factor = nullptr;        ///< r G / m
  const float* slope = nullptr;         ///< of ReLU and PReLU below 0; null: another neuron, or none
};

}  // namespace mps::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// v, zero in the lanes that are not used.
template <class D, class V>
HWY_INLINE V usedLanes(D /*d*/, AllLanes /*lanes*/, V v) {
  return v;
}
template <class D, class V>
HWY_INLINE V usedLanes(D d, FirstLanes lanes, V v) {
  return hn::IfThenElseZero(hn::FirstN(d, lanes.count), v);
}

/// Calls body(first element, rows at once, elements of each), short rows in groups as far as they go. Of long
/// ones a group would be read in as many places at once, which memory delivers slowly.
template <class Body>
HWY_INLINE void forRowGroups(const ChannelRows& rows, Body&& body) {
  constexpr std::size_t group = 4;
  constexpr std::size_t longRow = 128;
  std::size_t first = 0;
  if (rows.length < longRow)
    for (; first + group * rows.length <= rows.elements; first += group * rows.length)
      body(first, std::integral_constant<std::size_t, group>(), rows.length);
  for (; first < rows.elements; first += rows.length)
    body(first, std::integral_constant<std::size_t, 1>(), std::min(rows.length, rows.elements - first));
}

/// sums += x - shift, squares += (x - shift)^2, in float64. Both have room for a vector behind a row.
void addMoments(const ChannelRows& rows, ConstFloatRun x, const float* shifts, double* sums,
                double* squares) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  forRowGroups(rows, [&](std::size_t first, auto rowsAtOnce, std::size_t count) {
    forVectors(d, count, [&](std::size_t i, auto lanes) {
      const auto shift = hn::PromoteTo(d, lanes.load(df, shifts + i));
      auto sum = hn::LoadU(d, sums + i);
      auto square = hn::LoadU(d, squares + i);
      for (std::size_t row = 0; row < rowsAtOnce; ++row) {
        const auto value = hn::PromoteTo(d, lanes.load(df, x + (first + row * rows.length + i)));
        const auto difference = usedLanes(d, lanes, hn::Sub(value, shift));
        sum = hn::Add(sum, difference);
        square = hn::MulAdd(difference, difference, square);
      }
      hn::StoreU(sum, d, sums + i);
      hn::StoreU(square, d, squares + i);
    });
  });
}

/// z = (x - mean) scale + beta, no two operations in one rounding.
template <class D, class Lanes, class V = hn::Vec<D>>
HWY_INLINE V normalized(D d, Lanes lanes, V x, const ChannelNumbers& numbers, std::size_t i) {
  const V difference = hn::Sub(x, lanes.load(d, numbers.mean + i));
  return hn::Add(hn::Mul(difference, lanes.load(d, numbers.scale + i)), lanes.load(d, numbers.beta + i));
}

/// dy f'(z) of a neuron that is a line with a kink at 0.
template <class D, class Lanes, class V = hn::Vec<D>>
HWY_INLINE V kinkedGradient(D d, Lanes lanes, V x, V dy, const ChannelNumbers& numbers, std::size_t i) {
  const V z = normalized(d, lanes, x, numbers, i);
  return hn::Mul(dy, kinkedSlope(d, z, lanes.load(d, numbers.slope + i)));
}

/// sums += g, products += g (x - mean), in float64. Both have room for a vector behind a row.
/// @param g where numbers.slope is set dy
void addGradientSums(const ChannelRows& rows, ConstFloatRun g, ConstFloatRun x, const ChannelNumbers& numbers,
                     double* sums, double* products) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto add = [&](auto hasKink) {
    forRowGroups(rows, [&](std::size_t first, auto rowsAtOnce, std::size_t count) {
      forVectors(d, count, [&](std::size_t i, auto lanes) {
        const auto mean = hn::PromoteTo(d, lanes.load(df, numbers.mean + i));
        auto sum = hn::LoadU(d, sums + i);
        auto product = hn::LoadU(d, products + i);
        for (std::size_t row = 0; row < rowsAtOnce; ++row) {
          const std::size_t at = first + row * rows.length + i;
          const auto value = lanes.load(df, x + at);
          auto gradient = lanes.load(df, g + at);
          if constexpr (hasKink) gradient = kinkedGradient(df, lanes, value, gradient, numbers, i);
          const auto wide = hn::PromoteTo(d, gradient);
          const auto difference = usedLanes(d, lanes, hn::Sub(hn::PromoteTo(d, value), mean));
          sum = hn::Add(sum, wide);
          product = hn::MulAdd(wide, difference, product);
        }
        hn::StoreU(sum, d, sums + i);
        hn::StoreU(product, d, products + i);
      });
    });
  };
  if (numbers.slope != nullptr)
    add(std::true_type());
  else
    add(std::false_type());
}

/// Calls body(element, its place in the row, lanes) for the vectors of all rows.
template <class D, class Body>
HWY_INLINE void forRowVectors(D d, const ChannelRows& rows, Body&& body) {
  for (std::size_t first = 0; first < rows.elements; first += rows.length)
    forVectors(d, std::min(rows.length, rows.elements - first),
               [&](std::size_t i, auto lanes) { body(first + i, i, lanes); });
}

/// z of BatchNormalizationProblem. z may be x.
void normalizeRows(const ChannelRows& rows, ConstFloatRun x, const ChannelNumbers& numbers, FloatRun z) {
  const hn::ScalableTag<float> d;
  forRowVectors(d, rows, [&](std::size_t at, std::size_t i, auto lanes) {
    lanes.store(d, normalized(d, lanes, lanes.load(d, x + at), numbers, i), z + at);
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
      const auto difference = hn::Sub(value, lanes.load(d, numbers.mean + i));
      const auto centred = hn::Sub(gradient, lanes.load(d, numbers.meanGradient + i));
      const auto sum = hn::NegMulAdd(difference, lanes.load(d, numbers.factor + i), centred);
      lanes.store(d, hn::Mul(sum, lanes.load(d, numbers.scale + i)), dx + at);
    });
  };
  if (numbers.slope != nullptr)
    compute(std::true_type());
  else
    compute(std::false_type());
}

/// dx = scale g. dx may be g.
void scaleRows(const ChannelRows& rows, ConstFloatRun g, const ChannelNumbers& numbers, FloatRun dx) {
  const hn::ScalableTag<float> d;
  forRowVectors(d, rows, [&](std::size_t at, std::size_t i, auto lanes) {
    lanes.store(d, hn::Mul(lanes.load(d, g + at), lanes.load(d, numbers.scale + i)), dx + at);
  });
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(addMoments);
HWY_EXPORT(addGradientSums);
HWY_EXPORT(normalizeRows);
HWY_EXPORT(gradientRows);
HWY_EXPORT(scaleRows);

namespace {

using Operation = BatchNormalizationOperation;

/// No vector has more float32 lanes.
constexpr std::int64_t kMostLanes = 16;
/// Elements of a row, so that the vectors of one row keep the processor busy.
constexpr std::int64_t kShortestRow = 64;

template <class T>
T* at(const Operands& operands, std::size_t parameter) {
  return reinterpret_cast<T*>(operands.parameters[parameter]);
}

/// How a tensor is cut. It depends on the tensor alone, so results do not depend on the number of threads.
///
/// Tiles of whole pixels (or, of very long pixels, slabs of channels one after the other) make up chunks of
/// adjacent pixels; sums are taken chunk by chunk and then joined in order.
struct ChannelLayout {
  std::int64_t pixels = 0;
  std::int64_t channels = 0;
  std::int64_t pixelsPerRow = 1;
  std::int64_t pixelsPerTile = 1;
  std::int64_t slabChannels = 0;  ///< channels of a tile
  std::int64_t tilesPerChunk = 1;
  std::int64_t chunks = 0;

  explicit ChannelLayout(const TensorShape& shape) : pixels(shape.pixels()), channels(shape.channels) {
    constexpr std::int64_t mostChunks = 64;
    constexpr std::int64_t fewestPixels = 64;  // a chunk costs as much as a few pixels to join
    slabChannels = std::min(channels, Tiling::capacity);
    if (channels > 0) pixelsPerTile = std::max<std::int64_t>(1, Tiling::capacity / channels);
    if (channels > 0 && channels < kShortestRow)
      while (rowLength() < kShortestRow || rowLength() % kMostLanes != 0) ++pixelsPerRow;
    if (pixelsPerTile > pixelsPerRow) pixelsPerTile = pixelsPerTile / pixelsPerRow * pixelsPerRow;
    const std::int64_t tiles = (pixels + pixelsPerTile - 1) / pixelsPerTile;
    tilesPerChunk = std::max({std::int64_t{1}, (tiles + mostChunks - 1) / mostChunks,
                              (fewestPixels + pixelsPerTile - 1) / pixelsPerTile});
    chunks = (tiles + tilesPerChunk - 1) / tilesPerChunk;
  }

  /// Elements of a row, all slabs of it.
  [[nodiscard]] std::int64_t rowLength() const { return pixelsPerRow * channels; }
  /// The same with room for a vector behind it.
  [[nodiscard]] std::int64_t roomyRow() const { return rowLength() + kMostLanes; }
  [[nodiscard]] std::int64_t firstPixel(std::int64_t chunk) const {
    return std::min(pixels, chunk * tilesPerChunk * pixelsPerTile);
  }
  [[nodiscard]] std::int64_t pixelsOf(std::int64_t chunk) const {
    return firstPixel(chunk + 1) - firstPixel(chunk);
  }
  /// Chunks below which another thread does not pay.
  [[nodiscard]] std::int64_t grain() const {
    const std::int64_t slabs = (channels + Tiling::capacity - 1) / Tiling::capacity;
    return std::max<std::int64_t>(1, Tiling::grain / std::max<std::int64_t>(1, tilesPerChunk * slabs));
  }
  [[nodiscard]] ChannelRows rowsOf(const Tile& tile) const {
    return {static_cast<std::size_t>(tile.elements()),
            static_cast<std::size_t>(tile.channels == channels ? rowLength() : tile.channels)};
  }
  /// Calls body(tile) for the tiles of a chunk.
  template <class Body>
  void forTiles(std::int64_t chunk, Body&& body) const {
    const std::int64_t end = firstPixel(chunk + 1);
    for (std::int64_t pixel = firstPixel(chunk); pixel < end; pixel += pixelsPerTile)
      for (std::int64_t channel = 0; channel < channels; channel += slabChannels)
        body(Tile{pixel, std::min(pixelsPerTile, end - pixel), channel,
                  std::min(slabChannels, channels - channel)});
  }
};

/// What all operations on a tensor share: the layout and, at the beginning of the scratch memory, the numbers of
/// the channels along a row.
class ChannelPlan : public Plan {
 public:
  ChannelPlan(const BatchNormalizationProblem& problem, const TensorShape& shape)
      : problem_(problem), layout_(shape) {}

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
    for (float* row : number)
      for (std::size_t j = channels; j < static_cast<std::size_t>(layout_.rowLength()); ++j)
        row[j] = row[j - channels];
    return {number[0], number[1], number[2], number[3], number[4], hasKink() ? number[5] : nullptr};
  }

  [[nodiscard]] double inverseDeviation(const Operands& operands, std::size_t channel) const {
    const auto variance = static_cast<double>(at<const float>(operands, 3)[channel]);
    return 1 / std::sqrt(variance + static_cast<double>(problem_.epsilon));
  }

  /// The numbers of a tile's first channel on.
  static ChannelNumbers from(const ChannelNumbers& numbers, const Tile& tile) {
    const auto first = static_cast<std::size_t>(tile.firstChannel);
    return {numbers.mean + first,   numbers.scale + first,
            numbers.beta + first,   numbers.meanGradient + first,
            numbers.factor + first, numbers.slope == nullptr ? nullptr : numbers.slope + first};
  }

  [[nodiscard]] bool hasNeuron() const { return problem_.neuron.neuronType() != CNNNeuronType::None; }

  /// Neurons whose derivative the sums and gradients compute themselves.
  [[nodiscard]] bool hasKink() const {
    return problem_.neuron.neuronType() == CNNNeuronType::ReLU ||
           problem_.neuron.neuronType() == CNNNeuronType::PReLU;
  }

  /// g = dy f'(z): in `buffer` where there is a neuron, else dy itself.
  ConstFloatRun neuronGradient(const Tile& tile, const ChannelNumbers& numbers, ConstFloatRun x,
                               ConstFloatRun dy, float* buffer) const {
    if (!hasNeuron()) return dy;
    HWY_DYNAMIC_DISPATCH(normalizeRows)(layout_.rowsOf(tile), x, numbers, buffer);
    neuronGradients(problem_.neuron, {tile.pixels, tile.channels, tile.firstChannel}, buffer, dy, buffer);
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
  /// Adds what a row has of each channel, at its first place.
  void foldRow(double* row) const {
    for (std::int64_t i = layout_.channels; i < layout_.rowLength(); ++i) row[i % layout_.channels] += row[i];
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
    loadShifts(operands, chunk, shifts);
    clear(operands, chunk);
    double* first = sums(operands, chunk, 0);
    double* second = sums(operands, chunk, 1);
    layout_.forTiles(chunk, [&](const Tile& tile) {
      alignas(64) float buffer[Tiling::capacity];
      HWY_DYNAMIC_DISPATCH(addMoments)
      (layout_.rowsOf(tile), loadRun(problem_.source, operands.source, tile, buffer),
       shifts + tile.firstChannel, first + tile.firstChannel, second + tile.firstChannel);
    });
    foldRow(first);
    foldRow(second);
    const auto count = static_cast<double>(layout_.pixelsOf(chunk));
    for (std::int64_t c = 0; c < layout_.channels; ++c) {
      const double sum = first[c];
      first[c] = static_cast<double>(shifts[c]) + sum / count;
      second[c] -= sum * (sum / count);
    }
  }

  void loadShifts(const Operands& operands, std::int64_t chunk, float* shifts) const {
    for (std::int64_t c = 0; c < layout_.channels; c += layout_.slabChannels) {
      alignas(64) float buffer[Tiling::capacity];
      const Tile tile{layout_.firstPixel(chunk), 1, c, std::min(layout_.slabChannels, layout_.channels - c)};
      std::copy_n(loadTile(problem_.source, operands.source, tile, buffer), tile.channels, shifts + c);
    }
    // An infinite one would make NaN of every difference.
    for (std::int64_t c = 0; c < layout_.channels; ++c) shifts[c] = std::isfinite(shifts[c]) ? shifts[c] : 0;
    for (std::int64_t i = layout_.channels; i < layout_.rowLength(); ++i)
      shifts[i] = shifts[i - layout_.channels];
  }

  /// Chan's formula, chunk after chunk, into the accumulators; then what kernels and users read.
  void join(const Operands& operands) const {
    double count = operands.accumulate ? operands.scalars[0] : 0;
    double* mean = at<double>(operands, 4);
    double* squares = mean + layout_.channels;
    for (std::int64_t chunk = 0; chunk < layout_.chunks; ++chunk) {
      const auto added = static_cast<double>(layout_.pixelsOf(chunk));
      const double* otherMean = sums(operands, chunk, 0);
      const double* otherSquares = sums(operands, chunk, 1);
      if (count == 0) {
        std::copy_n(otherMean, layout_.channels, mean);
        std::copy_n(otherSquares, layout_.channels, squares);
      } else {
        const double part = added / (count + added);
        const double weight = count * part;
        for (std::int64_t c = 0; c < layout_.channels; ++c) {
          const double difference = otherMean[c] - mean[c];
          mean[c] += difference * part;
          squares[c] += otherSquares[c] + difference * difference * weight;
        }
      }
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
      (layout_.rowsOf(tile), g, x, own, first + tile.firstChannel, second + tile.firstChannel);
    });
    foldRow(first);
    foldRow(second);
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
    alignas(64) float neuronBuffer[Tiling::capacity];
    const ConstFloatRun x = loadRun(problem_.source, operands.source, tile, sourceBuffer);
    HWY_DYNAMIC_DISPATCH(normalizeRows)
    (layout_.rowsOf(tile), x, numbers, hasNeuron() ? FloatRun(neuronBuffer) : target);
    if (hasNeuron())
      neuronValues(problem_.neuron, {tile.pixels, tile.channels, tile.firstChannel}, neuronBuffer, target);
  }

  void gradient(const Operands& operands, const ChannelNumbers& numbers, const Tile& tile,
                FloatRun target) const {
    alignas(64) float sourceBuffer[Tiling::capacity];
    alignas(64) float gradientBuffer[Tiling::capacity];
    alignas(64) float neuronBuffer[Tiling::capacity];
    const ConstFloatRun dy = loadRun(problem_.gradient, operands.gradient, tile, gradientBuffer);
    ConstFloatRun x;
    if (problem_.readsSource()) x = loadRun(problem_.source, operands.source, tile, sourceBuffer);
    const bool isConstant = problem_.hasConstantStatistics;
    const bool needsGradient = isConstant || !hasKink();
    const ConstFloatRun g = needsGradient ? neuronGradient(tile, numbers, x, dy, neuronBuffer) : dy;
    if (isConstant)
      HWY_DYNAMIC_DISPATCH(scaleRows)(layout_.rowsOf(tile), g, numbers, target);
    else
      HWY_DYNAMIC_DISPATCH(gradientRows)(layout_.rowsOf(tile), g, x, numbers, target);
  }
};

Preparation prepareTiles(const BatchNormalizationProblem& problem) {
  switch (problem.operation) {
    case Operation::Statistics:
      return std::make_shared<const StatisticsPlan>(problem);
    case Operation::StatisticsGradient:
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
  std::ostringstream text;
  text << "batch normalization " << names[static_cast<std::size_t>(operation)];
  if (hasConstantStatistics) text << " with constant statistics";
  if (neuron.neuronType() != CNNNeuronType::None) text << ", " << neuron.describe();
  text << ", epsilon " << epsilon << ", " << source.describe();
  if (operation == Operation::StatisticsGradient || operation == Operation::Gradient)
    text << ", gradient " << gradient.describe();
  if (operation == Operation::Forward || operation == Operation::Gradient)
    text << " -> " << destination.describe();
  return text.str();
}

std::span<const Implementation<BatchNormalizationProblem>> batchNormalizationImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail

#endif  // HWY_ONCE
