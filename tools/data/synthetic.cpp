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

/// Random numbers, 16 with each step of the generator.
void fillWithNoise(std::span<std::uint8_t> pixels, std::uint32_t picture, mps::detail::PhiloxKey key) {
  constexpr std::size_t wordBytes = 4;
  constexpr std::size_t stepBytes = 4 * wordBytes;
  static_assert(extent * extent % stepBytes == 0, "each picture takes whole steps");
  for (std::size_t step = 0; step < pixels.size() / stepBytes; ++step) {
    const auto words = mps::detail::philox({static_cast<std::uint32_t>(step), picture, 0, 0}, key);
    for (std::size_t i = 0; i < stepBytes; ++i) {
      const std::uint32_t byte = (words[i / wordBytes] >> (8 * (i % wordBytes))) & 0xFF;
      pixels[step * stepBytes + i] = static_cast<std::uint8_t>(byte * noiseLevels / 256);
    }
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
  const std::size_t count = isTraining ? 4096 : 1024;
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
