#include "train/data/normalization.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "mps/core/types/error.hpp"

namespace unmetal::train {

Normalization Normalization::imagenet() {
  return {{0.485F, 0.456F, 0.406F}, {0.229F, 0.224F, 0.225F}};
}

void normalize(std::span<float> pixels, const Normalization& normalization) {
  const std::size_t channels = normalization.mean.size();
  for (std::size_t i = 0; i < pixels.size(); i += channels)
    for (std::size_t channel = 0; channel < channels; ++channel)
      pixels[i + channel] =
          (pixels[i + channel] - normalization.mean[channel]) / normalization.deviation[channel];
}

void checkNormalization(const Normalization& normalization, const Shape& pictures) {
  const auto& [mean, deviation] = normalization;
  if (mean.size() != pictures.channels || deviation.size() != pictures.channels)
    throw mps::Error("normalization: there are " + std::to_string(mean.size()) + " means and " +
                     std::to_string(deviation.size()) + " deviations, expected one for each channel of " +
                     describe(pictures));
  const auto isFinite = [](float value) { return std::isfinite(value); };
  const auto isDeviation = [](float value) { return std::isfinite(value) && value > 0; };
  if (!std::ranges::all_of(mean, isFinite)) throw mps::Error("normalization: a mean is not finite");
  if (!std::ranges::all_of(deviation, isDeviation))
    throw mps::Error("normalization: a deviation is not a number above 0");
}

}  // namespace unmetal::train
