// Numbers of each channel of an image, from its sums, once per instruction set. Include it after hwy/highway.h in a file
// that hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_INSTANCE_NORMALIZATION_CHANNELS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_INSTANCE_NORMALIZATION_CHANNELS_INL_HPP
#undef UNMETAL_MPS_INSTANCE_NORMALIZATION_CHANNELS_INL_HPP
#else
#define UNMETAL_MPS_INSTANCE_NORMALIZATION_CHANNELS_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "mps/core/cpu/vector_math-inl.hpp"
#include "mps/core/cpu/vector_runs-inl.hpp"
#include "mps/instance_normalization/cpu/instance_normalization_channels.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// sums += added, row by row.
inline void addImageSums(std::size_t length, const double* added, double* sums) {
  const hn::ScalableTag<double> d;
  for (std::size_t i = 0; i < length; i += hn::Lanes(d))
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i), hn::LoadU(d, added + i)), d, sums + i);
}

/// r = 1 / sqrt(M2 / pixels + epsilon).
inline void inverseDeviations(const ImageChannels& image, float epsilon) {
  const hn::ScalableTag<double> d;
  const auto count = hn::Set(d, image.pixels);
  const auto added = hn::Set(d, static_cast<double>(epsilon));
  for (std::size_t c = 0; c < image.channels; c += hn::Lanes(d)) {
    const auto variance = hn::Div(hn::LoadU(d, image.second + c), count);
    const auto positive = hn::IfThenElse(hn::Lt(variance, hn::Zero(d)), hn::Zero(d), variance);
    hn::StoreU(hn::Div(hn::Set(d, 1.0), hn::Sqrt(hn::Add(positive, added))), d, image.r + c);
  }
}

/// The float32 numbers next to the means.
inline void nearMeans(const ImageChannels& image, float* near) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  for (std::size_t c = 0; c < image.channels; c += hn::Lanes(d))
    hn::StoreU(roundedToFloat(df, hn::LoadU(d, image.mean + c)), df, near + c);
}

/// What a mean is more than the float32 number next to it.
template <class D>
HWY_INLINE hn::Vec<D> restOfMean(D d, const ImageChannels& image, const float* near, std::size_t c) {
  const hn::Rebind<float, D> df;
  return hn::Sub(hn::LoadU(d, image.mean + c), hn::PromoteTo(d, hn::LoadU(df, near + c)));
}

/// The lines y = (x - near) scale + shift, given `near`.
inline void imageLines(const ImageChannels& image, const float* gamma, const float* beta, const float* near,
                       float* scale, float* shift) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  forVectors(d, image.channels, [&](std::size_t c, auto lanes) {
    const auto factor = hn::PromoteTo(d, lanes.load(df, gamma + c));
    const auto rounded = roundedToFloat(df, hn::Mul(factor, hn::LoadU(d, image.r + c)));
    const auto rest = restOfMean(d, image, near, c);
    const auto sum =
        hn::NegMulAdd(rest, hn::PromoteTo(d, rounded), hn::PromoteTo(d, lanes.load(df, beta + c)));
    hn::StoreU(rounded, df, scale + c);
    hn::StoreU(roundedToFloat(df, sum), df, shift + c);
  });
}

/// From sums of dy and of dy (x - near) to G, gamma B and gamma G.
inline void weighGradientSums(const ImageChannels& image, const float* gamma, const float* near) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  forVectors(d, image.channels, [&](std::size_t c, auto lanes) {
    const auto factor = hn::PromoteTo(d, lanes.load(df, gamma + c));
    const auto sum = hn::LoadU(d, image.first + c);
    const auto product = hn::NegMulAdd(restOfMean(d, image, near, c), sum, hn::LoadU(d, image.second + c));
    const auto ofDeviation = hn::Mul(hn::LoadU(d, image.r + c), product);
    hn::StoreU(ofDeviation, d, image.second + c);
    hn::StoreU(hn::Mul(factor, sum), d, image.weighted + c);
    hn::StoreU(hn::Mul(factor, ofDeviation), d, image.weightedBy + c);
  });
}

/// Numbers of the gradient, given those next to the means and the sums over the groups of `count` values.
inline void imageGradientLines(const ImageChannels& image, double count, const float* near,
                               float* meanGradient, float* factor, float* inverseDeviation) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto values = hn::Set(d, count);
  for (std::size_t c = 0; c < image.channels; c += hn::Lanes(d)) {
    const auto r = hn::LoadU(d, image.r + c);
    const auto share = hn::Div(hn::LoadU(d, image.weightedBy + c), values);
    const auto rounded = roundedToFloat(df, hn::Mul(r, share));
    const auto mean = hn::Div(hn::LoadU(d, image.weighted + c), values);
    const auto rest = restOfMean(d, image, near, c);
    hn::StoreU(roundedToFloat(df, hn::NegMulAdd(rest, hn::PromoteTo(d, rounded), mean)), df,
               meanGradient + c);
    hn::StoreU(rounded, df, factor + c);
    hn::StoreU(roundedToFloat(df, r), df, inverseDeviation + c);
  }
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
