#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

/// Ten classes of 12 x 12 pictures that a small network learns in seconds: a bright 3 x 3 spot at a place
/// that depends on the class, over noise.
struct SyntheticDigits {
  static constexpr std::size_t size = 12;
  static constexpr std::size_t classes = 10;

  std::vector<float> pixels;         ///< [picture][y][x]
  std::vector<std::uint8_t> labels;  ///< [picture]

  SyntheticDigits(std::size_t count, std::uint32_t seed) : pixels(count * size * size), labels(count) {
    const auto random = [&seed] {  // xorshift
      seed ^= seed << 13U;
      seed ^= seed >> 17U;
      seed ^= seed << 5U;
      return seed;
    };
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t label = random() % classes;
      labels[i] = static_cast<std::uint8_t>(label);
      for (std::size_t p = 0; p < size * size; ++p)
        pixels[i * size * size + p] = static_cast<float>(random() % 1000) / 4000.0F;
      const std::size_t left = 1 + label % 4 * 2 + random() % 2;
      const std::size_t top = 1 + label / 4 * 3 + random() % 2;
      for (std::size_t y = 0; y < 3; ++y)
        for (std::size_t x = 0; x < 3; ++x) pixels[(i * size + top + y) * size + left + x] += 0.75F;
    }
  }
};
