#include "train/pictures/resizing.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace unmetal::train {
namespace {

/// One source pixel's part in a destination pixel, along one axis.
struct Share {
  std::size_t source;
  double weight;
};

/// The shares of a destination pixel; their weights add up to 1.
std::vector<Share> sharesOf(std::size_t destination, std::size_t sourceExtent,
                            std::size_t destinationExtent) {
  const double scale = static_cast<double>(sourceExtent) / static_cast<double>(destinationExtent);
  const std::size_t last = sourceExtent - 1;
  if (scale <= 1) {
    const double centre = (static_cast<double>(destination) + 0.5) * scale - 0.5;
    const double clamped = std::clamp(centre, 0.0, static_cast<double>(last));
    const auto left = static_cast<std::size_t>(clamped);
    const double fraction = clamped - static_cast<double>(left);
    return {{left, 1 - fraction}, {std::min(left + 1, last), fraction}};
  }
  const double begin = static_cast<double>(destination) * scale;
  const double end = begin + scale;
  std::vector<Share> shares;
  for (auto source = static_cast<std::size_t>(begin); source <= last; ++source) {
    const auto position = static_cast<double>(source);
    const double covered = std::min(end, position + 1) - std::max(begin, position);
    if (covered <= 0) break;
    shares.push_back({source, covered / scale});
  }
  return shares;
}

std::vector<std::vector<Share>> allShares(std::size_t sourceExtent, std::size_t destinationExtent) {
  std::vector<std::vector<Share>> result;
  for (std::size_t i = 0; i < destinationExtent; ++i) {
    result.push_back(sharesOf(i, sourceExtent, destinationExtent));
  }
  return result;
}

/// Mixed rows for one destination row, not rounded yet.
template <class Value>
void mixRows(std::span<const Value> pixels, const std::vector<Share>& rows, std::span<double> mixed) {
  std::ranges::fill(mixed, 0.0);
  for (const auto& [row, weight] : rows) {
    const Value* source = &pixels[row * mixed.size()];
    for (std::size_t i = 0; i < mixed.size(); ++i) mixed[i] += weight * static_cast<double>(source[i]);
  }
}

template <class Value>
Value rounded(double value) {
  if constexpr (std::is_same_v<Value, float>)
    return static_cast<float>(value);
  else
    return static_cast<Value>(std::clamp(std::lround(value), 0L, 255L));
}

}  // namespace

template <class Value>
std::vector<Value> detail::resized(std::span<const Value> pixels, const Shape& shape, std::size_t height,
                                   std::size_t width) {
  const std::vector<std::vector<Share>> rows = allShares(shape.height, height);
  const std::vector<std::vector<Share>> columns = allShares(shape.width, width);
  std::vector<Value> result;
  result.reserve(height * width * shape.channels);
  std::vector<double> row(shape.width * shape.channels);
  for (std::size_t y = 0; y < height; ++y) {
    mixRows(pixels, rows[y], row);
    for (std::size_t x = 0; x < width; ++x) {
      for (std::size_t channel = 0; channel < shape.channels; ++channel) {
        double sum = 0;
        for (const auto& [column, weight] : columns[x])
          sum += weight * row[column * shape.channels + channel];
        result.push_back(rounded<Value>(sum));
      }
    }
  }
  return result;
}

template std::vector<std::uint8_t> detail::resized(std::span<const std::uint8_t> pixels, const Shape& shape,
                                                   std::size_t height, std::size_t width);
template std::vector<float> detail::resized(std::span<const float> pixels, const Shape& shape,
                                            std::size_t height, std::size_t width);

}  // namespace unmetal::train
