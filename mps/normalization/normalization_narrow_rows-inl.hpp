// Rows of pixels that are narrower than a vector, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_NORMALIZATION_NARROW_ROWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_NORMALIZATION_NARROW_ROWS_INL_HPP
#undef UNMETAL_MPS_NORMALIZATION_NARROW_ROWS_INL_HPP
#else
#define UNMETAL_MPS_NORMALIZATION_NARROW_ROWS_INL_HPP
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mps/core/streamed_runs-inl.hpp"
#include "mps/core/streamed_stores.hpp"
#include "mps/core/vector_runs-inl.hpp"
#include "mps/normalization/normalization_narrow.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
HWY_INLINE hn::Vec<hn::ScalableTag<float>> loadElements(AllLanes /*lanes*/, const T* from) {
  return loadFloats(hn::ScalableTag<float>(), from);
}
template <class T>
HWY_INLINE hn::Vec<hn::ScalableTag<float>> loadElements(FirstLanes lanes, const T* from) {
  return loadFloats(hn::ScalableTag<float>(), from, lanes.count);
}
template <class T, class V>
HWY_INLINE void storeElements(AllLanes /*lanes*/, V value, T* to) {
  storeFloats(hn::ScalableTag<float>(), value, to);
}
template <class T, class V>
HWY_INLINE void storeElements(FirstLanes lanes, V value, T* to) {
  storeFloats(hn::ScalableTag<float>(), value, to, lanes.count);
}

/// Adjacent results on their way past the caches: rows begin amid cache lines, which are written whole.
template <class T>
class StagedResults {
 public:
  /// @param memory of all results between two calls of place(), and two cache lines
  explicit StagedResults(T* memory) : memory_(memory) {}

  /// Where `count` results that belong at `to` are to be put.
  T* place(T* to, std::size_t count) {
    if (to == to_ + (end_ - begin_)) {
      writeLines();
    } else {
      finish();
      to_ = to;
      begin_ = end_ = reinterpret_cast<std::uintptr_t>(to) % kLine / sizeof(T);
    }
    end_ += count;
    return memory_ + (end_ - count);
  }
  void finish() {
    if (end_ > begin_) streamValues(memory_ + begin_, end_ - begin_, to_);
    begin_ = end_;
  }

 private:
  static constexpr std::size_t kLine = 64;

  void writeLines() {
    constexpr std::size_t line = kLine / sizeof(T);
    const std::size_t lines = end_ / line * line;
    if (lines <= begin_) return;
    if (begin_ != 0)
      streamValues(memory_ + begin_, lines - begin_, to_);
    else
      for (std::size_t i = 0; i < lines; i += line) streamLine(memory_ + i, to_ + i);
    to_ += lines - begin_;
    std::memcpy(memory_, memory_ + lines, kLine);
    begin_ = 0;
    end_ -= lines;
  }
  static HWY_INLINE void streamLine(const T* from, T* to) {
    const hn::ScalableTag<std::uint8_t> d;
    for (std::size_t i = 0; i < kLine; i += hn::Lanes(d))
      hn::Stream(hn::Load(d, reinterpret_cast<const std::uint8_t*>(from) + i), d,
                 reinterpret_cast<std::uint8_t*>(to) + i);
  }

  T* memory_;
  T* to_ = nullptr;
  std::size_t begin_ = 0;  ///< of what is not written yet: as far behind a cache line's begin as `to_`
  std::size_t end_ = 0;
};

/// Where rows come from and go to.
template <class T>
class NarrowRows {
 protected:
  using Rows = NarrowRuns::Rows;
  static constexpr std::int64_t kRow = NarrowRuns::rowFloats;

  NarrowRows(const NormalizationProblem& problem, const Operands& operands, std::byte* working)
      : problem_(problem),
        operands_(operands),
        height_(problem.destination.height),
        length_(static_cast<std::size_t>(problem.destination.width * problem.destination.channels)),
        rows_(reinterpret_cast<float*>(working) + NarrowRuns::margin),
        streams_(!operands.accumulate &&
                 problem.destination.rowStride == static_cast<std::int64_t>(length_) &&
                 writesPastCaches(problem.source.bytes() + problem.gradient.bytes() +
                                  problem.destination.bytes())),
        staged_(reinterpret_cast<T*>(rows_ + Rows::staged * kRow)) {
    for (std::int64_t row = 0; row < Rows::count; ++row)
      std::fill_n(rows_ + row * kRow - NarrowRuns::margin,
                  length_ + 2 * NarrowRuns::margin + NarrowRuns::lanes, 0.0F);
  }

  void beginImage(std::int64_t n) {
    image_ = n;
    std::fill_n(kept_, Rows::sources, std::int64_t{-1});
  }

  /// A row of the source as float32, with zeros beside it.
  const float* sourceRow(std::int64_t y) {
    if (y < 0 || y >= height_) return rows_ + Rows::zeros * kRow;
    float* const row = keptRow(y);
    std::int64_t& kept = kept_[y % Rows::sources];
    if (kept != y) convertRow(address(problem_.source, operands_.source, y), row);
    kept = y;
    return row;
  }
  /// Where a row of the source is, if it is one.
  [[nodiscard]] float* keptRow(std::int64_t y) const {
    return rows_ + (Rows::source + (y & (Rows::sources - 1))) * kRow;
  }
  const T* gradientRow(std::int64_t y) const {
    const T* const row = address(problem_.gradient, operands_.gradient, y);
    fetchAhead(row);
    return row;
  }

  /// Begins `rows` rows of results from y on; what else is computed of two is not wanted.
  void beginResults(std::int64_t y, std::int64_t rows) {
    results_[0] = results_[1] = reinterpret_cast<T*>(rows_ + Rows::unwanted * kRow);
    if (rows == 0) return;
    T* const to = reinterpret_cast<T*>(operands_.destination) + problem_.destination.offset(image_, y, 0, 0);
    results_[0] = streams_ ? staged_.place(to, static_cast<std::size_t>(rows) * length_) : to;
    if (rows == 2) results_[1] = results_[0] + problem_.destination.rowStride;
  }
  [[nodiscard]] T* result(std::int64_t k) const { return results_[k]; }
  void finish() { staged_.finish(); }

 private:
  const T* address(const TensorShape& shape, const std::byte* memory, std::int64_t y) const {
    return reinterpret_cast<const T*>(memory) + shape.offset(image_, y, 0, 0);
  }
  /// Asks for a row's worth of memory some way behind one.
  void fetchAhead(const T* row) const {
    constexpr std::size_t line = 64;
    constexpr std::size_t distance = 2048;
    const auto* const from = reinterpret_cast<const std::byte*>(row) + distance;
    for (std::size_t i = 0; i < length_ * sizeof(T); i += line) __builtin_prefetch(from + i, 0, 3);
  }
  HWY_NOINLINE void convertRow(const T* from, float* to) const {
    const hn::ScalableTag<float> d;
    fetchAhead(from);
    forVectors(
        d, length_, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          hn::Store(loadElements(lanes, from + i), d, to + i);
        });
  }

 protected:
  const NormalizationProblem& problem_;
  const Operands& operands_;
  const std::int64_t height_;
  const std::size_t length_;  ///< of a row
  float* const rows_;         ///< of working memory

 private:
  const bool streams_;
  StagedResults<T> staged_;
  std::int64_t kept_[Rows::sources] = {};
  std::int64_t image_ = 0;
  T* results_[2] = {};
};

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
