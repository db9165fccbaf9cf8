#include "train/pictures/pixel_changes.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace unmetal::train::detail {
namespace {

/// Between which two pixels of a side a place lies.
struct Between {
  std::size_t first = 0;
  std::size_t second = 0;
  float share = 0;  ///< of the second
};

Between between(double place, std::size_t side) {
  const double last = static_cast<double>(side - 1);
  const double inside = std::clamp(place, 0.0, last);
  const auto first = static_cast<std::size_t>(inside);
  return {first, std::min(first + 1, side - 1), static_cast<float>(inside - static_cast<double>(first))};
}

/// Mixes values with others. @param most finite: values stay from 0 to it
float mixed(float value, float other, float factor, float most) {
  const float result = factor * value + (1 - factor) * other;
  return std::isfinite(most) ? std::clamp(result, 0.0F, most) : result;
}

}  // namespace

std::vector<float> moved(std::span<const float> pixels, const Shape& shape, double degrees, double right,
                         double down) {
  const auto [height, width, channels] = shape;
  const double angle = degrees * std::numbers::pi / 180;
  const double cosine = std::cos(angle);
  const double sine = std::sin(angle);
  const double middleX = static_cast<double>(width - 1) / 2;
  const double middleY = static_cast<double>(height - 1) / 2;
  std::vector<float> result(pixels.size());
  float* to = result.data();
  for (std::size_t y = 0; y < height; ++y) {
    const double fromMiddleY = static_cast<double>(y) - middleY - down;
    for (std::size_t x = 0; x < width; ++x) {
      const double fromMiddleX = static_cast<double>(x) - middleX - right;
      const Between column = between(middleX + cosine * fromMiddleX + sine * fromMiddleY, width);
      const Between row = between(middleY - sine * fromMiddleX + cosine * fromMiddleY, height);
      const float* const top = &pixels[row.first * width * channels];
      const float* const bottom = &pixels[row.second * width * channels];
      const std::size_t left = column.first * channels;
      const std::size_t next = column.second * channels;
      for (std::size_t channel = 0; channel < channels; ++channel) {
        const float above = top[left + channel] + column.share * (top[next + channel] - top[left + channel]);
        const float below =
            bottom[left + channel] + column.share * (bottom[next + channel] - bottom[left + channel]);
        *to++ = above + row.share * (below - above);
      }
    }
  }
  return result;
}

void changeBrightness(std::span<float> pixels, float factor, float most) {
  for (float& value : pixels) value = mixed(value, 0, factor, most);
}

void changeContrast(std::span<float> pixels, float factor, float most) {
  double sum = 0;
  for (const float value : pixels) sum += static_cast<double>(value);
  const auto mean = static_cast<float>(sum / static_cast<double>(pixels.size()));
  for (float& value : pixels) value = mixed(value, mean, factor, most);
}

void changeSaturation(std::span<float> pixels, float factor, float most) {
  for (std::size_t i = 0; i + 2 < pixels.size(); i += 3) {
    const float grey = 0.299F * pixels[i] + 0.587F * pixels[i + 1] + 0.114F * pixels[i + 2];
    for (std::size_t channel = 0; channel < 3; ++channel)
      pixels[i + channel] = mixed(pixels[i + channel], grey, factor, most);
  }
}

}  // namespace unmetal::train::detail
