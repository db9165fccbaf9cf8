#include "tools/data/synthetic.hpp"

#include <algorithm>

#include "mps/core/philox.hpp"

namespace unmetal {
namespace {

constexpr std::size_t extent = 28;
constexpr std::size_t classes = 10;
constexpr std::size_t columns = 4;  // of the grid that the classes' squares stand on
constexpr std::size_t cell = 7;
constexpr std::size_t square = 5;
constexpr unsigned noiseLevels = 96;
constexpr unsigned darkestSquare = 160;

/// Bytes of random numbers, 16 with each step of the generator.
void fillWithNoise(std::span<std::uint8_t> pixels, std::uint32_t picture, mps::detail::PhiloxKey key) {
  mps::detail::PhiloxCounter words{};
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    if (i % 16 == 0) words = mps::detail::philox({static_cast<std::uint32_t>(i / 16), picture, 0, 0}, key);
    const std::uint32_t byte = (words[i % 16 / 4] >> (8 * (i % 4))) & 0xFF;
    pixels[i] = static_cast<std::uint8_t>(byte * noiseLevels / 256);
  }
}

void drawSquare(std::span<std::uint8_t> pixels, std::size_t label, std::uint32_t picture,
                mps::detail::PhiloxKey key) {
  const mps::detail::PhiloxCounter random = mps::detail::philox({0, picture, 1, 0}, key);
  const std::size_t left = label % columns * cell + random[0] % (cell - square + 1);
  const std::size_t top = label / columns * cell + random[1] % (cell - square + 1);
  const auto brightness = static_cast<std::uint8_t>(darkestSquare + random[2] % (256 - darkestSquare));
  for (std::size_t y = top; y < top + square; ++y) {
    std::ranges::fill(pixels.subspan(y * extent + left, square), brightness);
  }
}

}  // namespace

Dataset makeSyntheticDataset(Split split) {
  const bool isTraining = split == Split::Training;
  const std::size_t count = isTraining ? 8192 : 1024;
  const mps::detail::PhiloxKey key{isTraining ? 1U : 2U, 0};
  Dataset data{"synthetic", extent, extent, 1, std::vector<std::uint8_t>(count * extent * extent), {}, {}};
  for (std::size_t label = 0; label < classes; ++label)
    data.classNames.push_back("square " + std::to_string(label));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t label = i % classes;
    const auto picture = static_cast<std::uint32_t>(i);
    const std::span pixels = std::span(data.images).subspan(i * data.imageSize(), data.imageSize());
    fillWithNoise(pixels, picture, key);
    drawSquare(pixels, label, picture, key);
    data.labels.push_back(static_cast<std::uint8_t>(label));
  }
  return data;
}

}  // namespace unmetal
