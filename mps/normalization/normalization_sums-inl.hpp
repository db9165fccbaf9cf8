// Sums over rows of float32 values, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_NORMALIZATION_SUMS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_NORMALIZATION_SUMS_INL_HPP
#undef UNMETAL_MPS_NORMALIZATION_SUMS_INL_HPP
#else
#define UNMETAL_MPS_NORMALIZATION_SUMS_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <type_traits>

#include "mps/core/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Calls body(i, lanes, number of vectors) over `count` floats: four vectors at a time, then single ones.
template <class D, class Body>
HWY_INLINE void forVectorsByFour(D d, std::size_t count, Body&& body) {
  const std::size_t step = 4 * hn::Lanes(d);
  const std::size_t whole = count / step * step;
  for (std::size_t i = 0; i < whole; i += step) body(i, AllLanes{}, std::integral_constant<std::size_t, 4>());
  forVectors(d, count - whole, [&](std::size_t i, auto lanes) {
    body(whole + i, lanes, std::integral_constant<std::size_t, 1>());
  });
}

/// to = the sum of the squares of the rows.
HWY_INLINE void sumSquares(const float* const* rows, std::size_t count, float* to, std::size_t length) {
  const hn::ScalableTag<float> d;
  const std::size_t step = hn::Lanes(d);
  forVectorsByFour(d, length, [&](std::size_t i, auto lanes, auto vectors) {
    hn::Vec<decltype(d)> sums[vectors];
    for (auto& sum : sums) sum = hn::Zero(d);
    for (std::size_t j = 0; j < count; ++j)
      for (std::size_t k = 0; k < vectors; ++k) {
        const auto x = lanes.load(d, rows[j] + i + k * step);
        sums[k] = hn::MulAdd(x, x, sums[k]);
      }
    for (std::size_t k = 0; k < vectors; ++k) lanes.store(d, sums[k], to + i + k * step);
  });
}

/// means = the mean of the rows; squares = the sum of the squared distances from it.
HWY_INLINE void meanAndSquares(const float* const* rows, std::size_t count, float* means, float* squares,
                               std::size_t length) {
  const hn::ScalableTag<float> d;
  const std::size_t step = hn::Lanes(d);
  const auto share = hn::Set(d, 1.0F / static_cast<float>(count));
  forVectorsByFour(d, length, [&](std::size_t i, auto lanes, auto vectors) {
    hn::Vec<decltype(d)> sums[vectors];
    hn::Vec<decltype(d)> mean[vectors];
    for (auto& sum : sums) sum = hn::Zero(d);
    for (std::size_t j = 0; j < count; ++j)
      for (std::size_t k = 0; k < vectors; ++k)
        sums[k] = hn::Add(sums[k], lanes.load(d, rows[j] + i + k * step));
    for (std::size_t k = 0; k < vectors; ++k) {
      mean[k] = hn::Mul(sums[k], share);
      sums[k] = hn::Zero(d);
    }
    for (std::size_t j = 0; j < count; ++j)
      for (std::size_t k = 0; k < vectors; ++k) {
        const auto distance = hn::Sub(lanes.load(d, rows[j] + i + k * step), mean[k]);
        sums[k] = hn::MulAdd(distance, distance, sums[k]);
      }
    for (std::size_t k = 0; k < vectors; ++k) {
      lanes.store(d, mean[k], means + i + k * step);
      lanes.store(d, sums[k], squares + i + k * step);
    }
  });
}

/// to = the weighted sum of the rows.
HWY_INLINE void sumRows(const float* const* rows, const float* weights, std::size_t count, float* to,
                        std::size_t length) {
  const hn::ScalableTag<float> d;
  const std::size_t step = hn::Lanes(d);
  forVectorsByFour(d, length, [&](std::size_t i, auto lanes, auto vectors) {
    hn::Vec<decltype(d)> sums[vectors];
    for (auto& sum : sums) sum = hn::Zero(d);
    for (std::size_t j = 0; j < count; ++j) {
      const auto weight = hn::Set(d, weights[j]);
      for (std::size_t k = 0; k < vectors; ++k)
        sums[k] = hn::MulAdd(lanes.load(d, rows[j] + i + k * step), weight, sums[k]);
    }
    for (std::size_t k = 0; k < vectors; ++k) lanes.store(d, sums[k], to + i + k * step);
  });
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
