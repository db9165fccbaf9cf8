#include "train/pictures/synthetic.hpp"

#include <algorithm>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mps/core/types/philox.hpp"

namespace unmetal::train {
namespace {

constexpr std::size_t squareClasses = 10;
constexpr std::size_t columns = 4;  // of the grid that the classes' squares stand on
constexpr unsigned noiseLevels = 96;
constexpr unsigned darkestSquare = 160;
/// Large pictures are fewer.
constexpr std::size_t mostBytes = std::size_t{1} << 26;
constexpr std::size_t leastPictures = 256;

/// Random numbers, 16 with each step of the generator.
void fillWithNoise(std::span<std::uint8_t> pixels, std::uint32_t picture, mps::detail::PhiloxKey key) {
  constexpr std::size_t wordBytes = 4;
  constexpr std::size_t stepBytes = 4 * wordBytes;
  for (std::size_t first = 0; first < pixels.size(); first += stepBytes) {
    const auto words =
        mps::detail::philox({static_cast<std::uint32_t>(first / stepBytes), picture, 0, 0}, key);
    for (std::size_t i = 0; i < std::min(stepBytes, pixels.size() - first); ++i) {
      const std::uint32_t byte = (words[i / wordBytes] >> (8 * (i % wordBytes))) & 0xFF;
      pixels[first + i] = static_cast<std::uint8_t>(byte * noiseLevels / 256);
    }
  }
}

/// A square, as far as the picture is one, somewhere in the cell of its class.
void drawSquare(std::span<std::uint8_t> pixels, const Shape& shape, std::size_t label, std::uint32_t picture,
                mps::detail::PhiloxKey key) {
  const std::size_t cellWidth = shape.width / columns;
  const std::size_t cellHeight = shape.height / columns;
  const std::size_t width = std::max<std::size_t>(1, cellWidth * 5 / 7);
  const std::size_t height = std::max<std::size_t>(1, cellHeight * 5 / 7);
  const mps::detail::PhiloxCounter random = mps::detail::philox({0, picture, 1, 0}, key);
  const std::size_t left = label % columns * cellWidth + random[0] % (cellWidth - width + 1);
  const std::size_t top = label / columns * cellHeight + random[1] % (cellHeight - height + 1);
  const auto brightness = static_cast<std::uint8_t>(darkestSquare + random[2] % (256 - darkestSquare));
  for (std::size_t y = top; y < top + height; ++y) {
    std::ranges::fill(pixels.subspan((y * shape.width + left) * shape.channels, width * shape.channels),
                      brightness);
  }
}

MemoryDataset squaresOf(Split split, const Shape& shape) {
  constexpr std::size_t mostSide = 16384;
  constexpr std::size_t mostChannels = 1024;
  const auto isSide = [](std::size_t side) { return side >= columns && side <= mostSide; };
  if (!isSide(shape.height) || !isSide(shape.width) || shape.channels == 0 || shape.channels > mostChannels)
    throw mps::Error("SyntheticDataset", "shape", describe(shape),
                     "sides from 4 to 16384 and 1 to 1024 channels");
  const bool isTraining = split == Split::Training;
  const std::size_t size = shape.count();
  const std::size_t trainingCount = std::clamp(mostBytes / size, leastPictures, std::size_t{4096});
  const std::size_t count = isTraining ? trainingCount : trainingCount / 4;
  const mps::detail::PhiloxKey key{isTraining ? 1U : 2U, 0};
  std::vector<std::uint8_t> images(count * size);
  std::vector<std::uint32_t> labels;
  std::vector<std::string> names;
  for (std::size_t label = 0; label < squareClasses; ++label)
    names.push_back("square " + std::to_string(label));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t label = i % squareClasses;
    const auto picture = static_cast<std::uint32_t>(i);
    const std::span pixels = std::span(images).subspan(i * size, size);
    fillWithNoise(pixels, picture, key);
    drawSquare(pixels, shape, label, picture, key);
    labels.push_back(static_cast<std::uint32_t>(label));
  }
  return {shape, std::move(images), std::move(labels), std::move(names)};
}

}  // namespace

SyntheticDataset::SyntheticDataset(Split split, const Shape& shape)
    : MemoryDataset(squaresOf(split, shape)) {}

}  // namespace unmetal::train
