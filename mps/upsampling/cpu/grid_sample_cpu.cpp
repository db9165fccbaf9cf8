#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/types/storage.hpp"
#include "mps/upsampling/grid_sample_problem.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/upsampling/cpu/grid_sample_cpu.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/cpu/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Neighbouring pixels of a destination row, whose positions are computed together.
class GridPiece {
 public:
  static constexpr std::size_t capacity = 64;

  GridPiece(const GridSampleProblem& problem, const std::byte* grid) : problem_(problem), grid_(grid) {}

  /// Pixels x, x + 1, ... of row y of image n.
  void set(std::int64_t n, std::int64_t y, std::int64_t x, std::size_t count) {
    load(n, y, x, count);
    const hn::ScalableTag<double> d;
    const hn::Rebind<float, decltype(d)> df;
    const Axis columns(d, problem_, problem_.source.width, problem_.offsetX, problem_.source.pixelStride);
    const Axis rows(d, problem_, problem_.source.height, problem_.offsetY, problem_.source.rowStride);
    const auto row = hn::Set(d, static_cast<double>(y));
    for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
      const auto column = hn::Iota(d, static_cast<double>(x + static_cast<std::int64_t>(i)));
      hn::Vec<decltype(df)> columnValue;
      hn::Vec<decltype(df)> rowValue;
      hn::LoadInterleaved2(df, values_.data() + 2 * i, columnValue, rowValue);
      const AxisTaps across = columns.taps(d, hn::PromoteTo(d, columnValue), column);
      const AxisTaps down = rows.taps(d, hn::PromoteTo(d, rowValue), row);
      auto least = hn::Set(df, std::numeric_limits<float>::max());
      for (std::size_t k = 0; k < 4; ++k) {
        const auto weight = hn::DemoteTo(df, hn::Mul(down.weights[k / 2], across.weights[k % 2]));
        hn::StoreU(weight, df, weights_[k].data() + i);
        least = hn::Min(least, weight);
        storeIntegers(d, hn::Add(down.offsets[k / 2], across.offsets[k % 2]), offsets_[k].data() + i);
      }
      hn::StoreU(least, df, least_.data() + i);
    }
  }

  /// Whether all four pixels count: otherwise gridTaps() says which ones do.
  [[nodiscard]] HWY_INLINE bool hasAll(std::size_t i) const {
    return least_[i] >= std::numeric_limits<float>::min();
  }
  /// Of the four source pixels around a position, counted in elements from the image on.
  template <std::size_t k>
  [[nodiscard]] HWY_INLINE std::int64_t offset(std::size_t i) const {
    return offsets_[k][i];
  }
  /// What each of them counts.
  template <std::size_t k>
  [[nodiscard]] HWY_INLINE float weight(std::size_t i) const {
    return weights_[k][i];
  }
  /// Values of the grid.
  [[nodiscard]] float column(std::size_t i) const { return values_[2 * i]; }
  [[nodiscard]] float row(std::size_t i) const { return values_[2 * i + 1]; }

 private:
  using V = hn::Vec<hn::ScalableTag<double>>;

  struct AxisTaps {
    V weights[2];
    V offsets[2];
  };

  /// gridTaps() of an axis.
  struct Axis {
    template <class D>
    Axis(D d, const GridSampleProblem& problem, std::int64_t size, std::int64_t offset, std::int64_t stride)
        : last(hn::Set(d, static_cast<double>(size - 1))),
          origin(hn::Set(d, static_cast<double>(offset))),
          elements(hn::Set(d, static_cast<double>(stride))),
          areCoordinates(problem.usesGridAsCoordinates),
          clamps(problem.edgeMode == ImageEdgeMode::Clamp) {}

    template <class D>
    HWY_INLINE AxisTaps taps(D d, V value, V x) const {
      const V zero = hn::Zero(d);
      const V one = hn::Set(d, 1.0);
      const V two = hn::Set(d, 2.0);
      const V relative =
          areCoordinates ? hn::Mul(hn::Mul(hn::Add(value, one), hn::Set(d, 0.5)), last) : hn::Add(x, value);
      const V position = hn::Add(origin, relative);
      const V inside =
          hn::IfThenElse(hn::Gt(position, hn::Neg(two)), hn::Min(position, hn::Add(last, two)), hn::Neg(two));
      const V pixel = hn::Sub(hn::Floor(hn::Add(inside, two)), two);
      const V fraction = hn::Sub(inside, pixel);
      const V pixels[2] = {pixel, hn::Add(pixel, one)};
      AxisTaps taps{{hn::Sub(one, fraction), fraction}, {}};
      for (std::size_t i = 0; i < 2; ++i) {
        const V clamped = hn::Min(hn::Max(pixels[i], zero), last);
        if (!clamps) taps.weights[i] = hn::IfThenElseZero(hn::Eq(clamped, pixels[i]), taps.weights[i]);
        taps.offsets[i] = hn::Mul(clamped, elements);
      }
      return taps;
    }

    V last;
    V origin;
    V elements;
    bool areCoordinates;
    bool clamps;
  };

  /// Of integers below 2^51: behind this sum they stand in the low bits.
  template <class D>
  static HWY_INLINE void storeIntegers(D d, V values, std::int64_t* to) {
    const hn::RebindToSigned<D> di;
    const V shift = hn::Set(d, 0x1.8p52);
    const auto bits = hn::BitCast(di, hn::Add(values, shift));
    hn::StoreU(hn::Sub(bits, hn::BitCast(di, shift)), di, to);
  }

  void load(std::int64_t n, std::int64_t y, std::int64_t x, std::size_t count) {
    const TensorShape& shape = problem_.grid;
    const std::int64_t first = shape.offset(n, y, x, 0);
    withElementType(shape.format, [&](auto element) HWY_ATTR {
      const auto* from = reinterpret_cast<const decltype(element)*>(grid_) + first;
      if (shape.pixelStride == 2) return convertToFloats(from, values_.data(), 2 * count);
      const hn::CappedTag<float, 1> one;
      for (std::size_t i = 0; i < 2 * count; i += 2, from += shape.pixelStride) {
        values_[i] = hn::GetLane(loadFloats(one, from));
        values_[i + 1] = hn::GetLane(loadFloats(one, from + 1));
      }
    });
  }

  const GridSampleProblem& problem_;
  const std::byte* grid_;
  alignas(64) std::array<float, 2 * capacity> values_{};  // a column, a row and so on
  alignas(64) std::array<std::array<std::int64_t, capacity>, 4> offsets_;
  alignas(64) std::array<std::array<float, capacity>, 4> weights_;
  alignas(64) std::array<float, capacity> least_;  // weight of a pixel
};

/// How results are written.
struct GridStores {
  bool streams = false;

  template <class D, class T, class V = hn::Vec<D>>
  HWY_INLINE void operator()(D d, AllLanes, V value, T* to) const {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, Float16>)
      storeOrStream(d, value, to, streams);
    else
      storeFloats(d, value, to);
  }
  template <class D, class T, class V = hn::Vec<D>>
  HWY_INLINE void operator()(D d, FirstLanes lanes, V value, T* to) const {
    storeFloats(d, value, to, lanes.count);
  }
};

/// Rows of the destination. T and U are the types of source and destination.
template <class T, class U>
class GridRows {
 public:
  GridRows(const GridSampleProblem& problem, const Operands& operands, bool streams)
      : problem_(problem),
        source_(reinterpret_cast<const T*>(operands.source)),
        destination_(reinterpret_cast<U*>(operands.destination)),
        channels_(static_cast<std::size_t>(problem.destination.channels)),
        store_{streams},
        piece_(problem, operands.secondary) {}

  void compute(std::int64_t n, std::int64_t y) {
    const TensorShape& to = problem_.destination;
    constexpr auto most = static_cast<std::int64_t>(GridPiece::capacity);
    for (std::int64_t x = 0; x < to.width; x += most) {
      const auto count = static_cast<std::size_t>(std::min(most, to.width - x));
      piece_.set(n, y, x, count);
      image_ = source_ + problem_.source.offset(n, 0, 0, 0);
      U* written = destination_ + to.offset(n, y, x, 0);
      for (std::size_t i = 0; i < count; ++i, written += to.pixelStride) {
        if (i + kAhead < count) prefetch(i + kAhead);
        if (piece_.hasAll(i))
          sumFour(i, written);
        else
          sumSome(i, y, x + static_cast<std::int64_t>(i), written);
      }
    }
  }

 private:
  static constexpr std::size_t kAhead = 8;

  /// Neighbours of the destination may lie anywhere in the source, which the processor does not foresee.
  HWY_INLINE void prefetch(std::size_t i) const {
    constexpr std::size_t line = 64 / sizeof(T);
    const std::size_t count = std::min(channels_, 4 * line);
    const T* const first = image_ + piece_.offset<0>(i);
    const T* const second = image_ + piece_.offset<1>(i);
    const T* const third = image_ + piece_.offset<2>(i);
    const T* const fourth = image_ + piece_.offset<3>(i);
    for (std::size_t c = 0; c < count; c += line) {
      hwy::Prefetch(first + c);
      hwy::Prefetch(second + c);
      hwy::Prefetch(third + c);
      hwy::Prefetch(fourth + c);
    }
  }

  /// The weighted sum of four pixels, as most positions have.
  HWY_INLINE void sumFour(std::size_t i, U* to) const {
    const hn::ScalableTag<float> d;
    const T* const first = image_ + piece_.offset<0>(i);
    const T* const second = image_ + piece_.offset<1>(i);
    const T* const third = image_ + piece_.offset<2>(i);
    const T* const fourth = image_ + piece_.offset<3>(i);
    const auto firstWeight = hn::Set(d, piece_.weight<0>(i));
    const auto secondWeight = hn::Set(d, piece_.weight<1>(i));
    const auto thirdWeight = hn::Set(d, piece_.weight<2>(i));
    const auto fourthWeight = hn::Set(d, piece_.weight<3>(i));
    forVectors(
        d, channels_, [&](std::size_t c, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          auto sum = hn::Mul(load(d, lanes, first + c), firstWeight);
          sum = hn::MulAdd(load(d, lanes, second + c), secondWeight, sum);
          sum = hn::MulAdd(load(d, lanes, third + c), thirdWeight, sum);
          sum = hn::MulAdd(load(d, lanes, fourth + c), fourthWeight, sum);
          store_(d, lanes, sum, to + c);
        });
  }

  /// Of those that have another weight than 0.
  void sumSome(std::size_t i, std::int64_t y, std::int64_t x, U* to) const {
    const hn::ScalableTag<float> d;
    const TensorShape& from = problem_.source;
    const GridTaps columns = gridTaps(problem_, piece_.column(i), x, from.width, problem_.offsetX);
    const GridTaps rows = gridTaps(problem_, piece_.row(i), y, from.height, problem_.offsetY);
    forVectors(
        d, channels_, [&](std::size_t c, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          auto sum = hn::Zero(d);
          for (std::size_t j = 0; j < 2; ++j) {
            if (rows.weights[j] == 0) continue;
            auto inRow = hn::Zero(d);
            for (std::size_t k = 0; k < 2; ++k) {
              if (columns.weights[k] == 0) continue;
              const T* const pixel =
                  image_ + rows.pixels[j] * from.rowStride + columns.pixels[k] * from.pixelStride;
              inRow = hn::MulAdd(hn::Set(d, columns.weights[k]), load(d, lanes, pixel + c), inRow);
            }
            sum = hn::MulAdd(hn::Set(d, rows.weights[j]), inRow, sum);
          }
          store_(d, lanes, sum, to + c);
        });
  }

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, AllLanes, const T* from) {
    return loadFloats(d, from);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, FirstLanes lanes, const T* from) {
    return loadFloats(d, from, lanes.count);
  }

  const GridSampleProblem& problem_;
  const T* source_;
  U* destination_;
  std::size_t channels_;
  GridStores store_;
  GridPiece piece_;
  const T* image_ = nullptr;
};

/// Rows [begin, end), counted through all images.
void sampleGridRows(const GridSampleProblem& problem, const Operands& operands, bool streams,
                    std::int64_t begin, std::int64_t end) {
  withElementType(problem.source.format, [&](auto source) {
    withElementType(problem.destination.format, [&](auto result) {
      GridRows<decltype(source), decltype(result)> rows(problem, operands, streams);
      const std::int64_t height = problem.destination.height;
      for (std::int64_t row = begin; row < end; ++row) rows.compute(row / height, row % height);
    });
  });
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <memory>

#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

HWY_EXPORT(sampleGridRows);

/// Row by row of the destination.
class GridSamplePlan final : public Plan {
 public:
  explicit GridSamplePlan(const GridSampleProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    constexpr std::int64_t grain = 4096;  // elements below which another thread does not pay
    const TensorShape& to = problem_.destination;
    const std::int64_t rowElements = std::max<std::int64_t>(1, to.width * to.channels);
    const bool streams = usesNonTemporalStoresForRows(problem_.source.bytes() + to.bytes(), to);
    mtl::cpu::asCpu(stream).parallelFor(
        to.images * to.height, grain / rowElements + 1, [&](std::int64_t begin, std::int64_t end) {
          HWY_DYNAMIC_DISPATCH(sampleGridRows)(problem_, operands, streams, begin, end);
          if (streams) finishNonTemporalStores();
        });
  }

 private:
  GridSampleProblem problem_;
};

Preparation prepareVectors(const GridSampleProblem& problem) {
  return std::make_shared<const GridSamplePlan>(problem);
}

constexpr Implementation<GridSampleProblem> implementations[] = {{"vectors", prepareVectors}};

}  // namespace

std::string GridSampleProblem::describe() const {
  return std::string("grid sample, ") + (usesGridAsCoordinates ? "coordinates" : "displacements") +
         (edgeMode == ImageEdgeMode::Clamp ? ", clamped edges" : ", zero edges") + ", offset " +
         std::to_string(offsetX) + "," + std::to_string(offsetY) + ", " + source.describe() + " by " +
         grid.describe() + " -> " + destination.describe();
}

std::span<const Implementation<GridSampleProblem>> gridSampleImplementationsCpu() {
  return implementations;
}

}  // namespace mps::detail

#endif  // HWY_ONCE
