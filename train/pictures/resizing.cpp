#include "train/pictures/resizing.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

namespace unmetal::train::detail {
namespace {

/// What the pixels of an axis are made of, with weights that add up to 1.
template <class Weight>
class Shares {
 public:
  /// Of one pixel: the sources from `first` on.
  struct Pixel {
    std::size_t first = 0;
    std::span<const Weight> weights;
  };

  Shares(std::size_t sourceExtent, std::size_t destinationExtent) {
    const double scale = static_cast<double>(sourceExtent) / static_cast<double>(destinationExtent);
    for (std::size_t i = 0; i < destinationExtent; ++i) {
      firsts_.push_back(scale <= 1 ? addMixture(i, scale, sourceExtent - 1)
                                   : addMean(i, scale, sourceExtent));
      ends_.push_back(weights_.size());
    }
  }

  [[nodiscard]] Pixel operator[](std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return {firsts_[i], std::span(weights_).subspan(begin, ends_[i] - begin)};
  }

 private:
  /// Of the two nearest pixels. @return the first of them
  std::size_t addMixture(std::size_t destination, double scale, std::size_t last) {
    const double centre = (static_cast<double>(destination) + 0.5) * scale - 0.5;
    const double clamped = std::clamp(centre, 0.0, static_cast<double>(last));
    const auto left = static_cast<std::size_t>(clamped);
    const double fraction = clamped - static_cast<double>(left);
    weights_.push_back(static_cast<Weight>(1 - fraction));
    if (left < last) weights_.push_back(static_cast<Weight>(fraction));
    return left;
  }
  /// Of all pixels that are covered, as far as they are. @return the first of them
  std::size_t addMean(std::size_t destination, double scale, std::size_t sourceExtent) {
    const double begin = static_cast<double>(destination) * scale;
    const double end = begin + scale;
    const auto first = static_cast<std::size_t>(begin);
    for (std::size_t source = first; source < sourceExtent; ++source) {
      const auto position = static_cast<double>(source);
      const double covered = std::min(end, position + 1) - std::max(begin, position);
      if (covered <= 0) break;
      weights_.push_back(static_cast<Weight>(covered / scale));
    }
    return first;
  }

  std::vector<Weight> weights_;
  std::vector<std::size_t> firsts_;
  std::vector<std::size_t> ends_;
};

/// Mixed rows for one destination row, not rounded yet.
template <class Value, class Sum>
void mixRows(const PictureView<Value>& picture, const typename Shares<Sum>::Pixel& rows,
             std::span<Sum> mixed) {
  const Value* source = picture.pixels + rows.first * picture.rowStride;
  const std::size_t count = mixed.size();
  Sum* const to = mixed.data();
  for (std::size_t k = 0; k < rows.weights.size(); ++k, source += picture.rowStride) {
    const Sum weight = rows.weights[k];
    if (k == 0)
      for (std::size_t i = 0; i < count; ++i) to[i] = weight * static_cast<Sum>(source[i]);
    else
      for (std::size_t i = 0; i < count; ++i) to[i] += weight * static_cast<Sum>(source[i]);
  }
}

template <std::size_t channels, class Sum>
void mixColumns(std::span<const Sum> row, const Shares<Sum>& columns, std::size_t width, Sum* to) {
  for (std::size_t x = 0; x < width; ++x) {
    const auto [first, weights] = columns[x];
    const Sum* from = row.data() + first * channels;
    std::array<Sum, channels> sums{};
    for (const Sum weight : weights) {
      for (std::size_t channel = 0; channel < channels; ++channel) sums[channel] += weight * from[channel];
      from += channels;
    }
    to = std::ranges::copy(sums, to).out;
  }
}

template <class Sum>
void mixColumns(std::span<const Sum> row, std::size_t channels, const Shares<Sum>& columns, std::size_t width,
                Sum* to) {
  if (channels == 1) return mixColumns<1>(row, columns, width, to);
  if (channels == 3) return mixColumns<3>(row, columns, width, to);
  for (std::size_t x = 0; x < width; ++x) {
    const auto [first, weights] = columns[x];
    for (std::size_t channel = 0; channel < channels; ++channel) {
      Sum sum = 0;
      for (std::size_t k = 0; k < weights.size(); ++k)
        sum += weights[k] * row[(first + k) * channels + channel];
      *to++ = sum;
    }
  }
}

/// Sums are from 0 to 255 where they become bytes.
template <class Value, class Sum>
void round(std::span<const Sum> sums, Value* to) {
  constexpr bool isByte = std::is_same_v<Value, std::uint8_t>;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if constexpr (isByte)
      to[i] = static_cast<Value>(static_cast<int>(sums[i] + Sum(0.5)));
    else
      to[i] = static_cast<Value>(sums[i]);
  }
}

}  // namespace

template <class Value>
std::vector<Value> resized(const PictureView<Value>& picture, std::size_t height, std::size_t width) {
  using Sum = std::conditional_t<std::is_same_v<Value, std::uint8_t>, float, double>;
  const std::size_t channels = picture.shape.channels;
  const Shares<Sum> rows(picture.shape.height, height);
  const Shares<Sum> columns(picture.shape.width, width);
  std::vector<Value> result(height * width * channels);
  std::vector<Sum> row(picture.shape.width * channels);
  std::vector<Sum> sums(width * channels);
  for (std::size_t y = 0; y < height; ++y) {
    mixRows<Value, Sum>(picture, rows[y], row);
    mixColumns<Sum>(row, channels, columns, width, sums.data());
    round<Value, Sum>(sums, &result[y * sums.size()]);
  }
  return result;
}

template std::vector<std::uint8_t> resized(const PictureView<std::uint8_t>& picture, std::size_t height,
                                           std::size_t width);
template std::vector<float> resized(const PictureView<float>& picture, std::size_t height, std::size_t width);

}  // namespace unmetal::train::detail
