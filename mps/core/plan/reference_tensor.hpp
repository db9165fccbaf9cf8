#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace mps::detail {

/// Dense NHWC tensor in float64, for the references that the kernels are judged by.
///
/// Beside each value a reference fills what bounds a float32 computation of it (docs/decisions.md, D22). `magnitude` is
/// the sum of the absolute values of the terms that were added, or |value| when nothing was added. `roundings` is the
/// number of float32 roundings on the longest path: products, additions, one scale or division. `transcendental` counts
/// the exp, log, tanh, pow, erf and roots on that path, with 4 units in the last place each.
struct ReferenceTensor {
  std::int64_t images = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::vector<double> values;
  std::vector<double> magnitude;  ///< empty: |value|
  std::int64_t roundings = 0;
  std::int64_t transcendental = 0;

  ReferenceTensor() = default;
  ReferenceTensor(std::int64_t imageCount, std::int64_t imageHeight, std::int64_t imageWidth,
                  std::int64_t channelCount)
      : images(imageCount),
        height(imageHeight),
        width(imageWidth),
        channels(channelCount),
        values(static_cast<std::size_t>(imageCount * imageHeight * imageWidth * channelCount)) {}

  [[nodiscard]] std::size_t index(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) const {
    return static_cast<std::size_t>(((n * height + y) * width + x) * channels + c);
  }
  double& at(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) {
    return values[index(n, y, x, c)];
  }
  [[nodiscard]] double at(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) const {
    return values[index(n, y, x, c)];
  }
  /// Adds a term to a value and its absolute value to the magnitude.
  void add(std::size_t i, double term) {
    if (magnitude.empty()) magnitude.resize(values.size());
    values[i] += term;
    magnitude[i] += term < 0 ? -term : term;
  }
};

/// Adds one term to each value, and a rounding: what a kernel that adds to its destination computes.
inline void addTerms(ReferenceTensor& tensor, std::span<const double> terms) {
  if (tensor.magnitude.empty())
    for (const double value : tensor.values) tensor.magnitude.push_back(value < 0 ? -value : value);
  for (std::size_t i = 0; i < terms.size(); ++i) tensor.add(i, terms[i]);
  ++tensor.roundings;
}

}  // namespace mps::detail
