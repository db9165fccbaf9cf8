#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mps/core/cpu/tile_io.hpp"

/// How kernels that treat every channel by itself, and sum over pixels, cut a tensor.
namespace mps::detail {

/// Adjacent elements in rows of `length`: a row is one pixel, or several short ones, so that element i of each
/// row is of the same channel. The last row may be shorter.
struct ChannelRows {
  std::size_t elements = 0;
  std::size_t length = 0;
};

/// The line (x - mean) scale + shift of every channel, its numbers repeated along a row.
struct ChannelLine {
  const float* mean = nullptr;
  const float* scale = nullptr;
  const float* shift = nullptr;
};

/// It depends on the tensor alone, so results do not depend on the number of threads.
///
/// Tiles of whole pixels (or, of very long pixels, slabs of channels one after the other) make up chunks of
/// adjacent pixels; sums are taken chunk by chunk and then joined in order.
class ChannelLayout {
 public:
  /// Elements of a row, so that the vectors of one row keep the processor busy.
  static constexpr std::int64_t shortestRow = 64;

  std::int64_t pixels = 0;
  std::int64_t channels = 0;
  std::int64_t pixelsPerRow = 1;
  std::int64_t pixelsPerTile = 1;
  std::int64_t slabChannels = 0;  ///< channels of a tile
  std::int64_t tilesPerChunk = 1;
  std::int64_t chunks = 0;

  ChannelLayout(std::int64_t pixelCount, std::int64_t channelCount)
      : pixels(pixelCount), channels(channelCount) {
    constexpr std::int64_t mostChunks = 64;
    constexpr std::int64_t fewestPixels = 64;  // a chunk costs as much as a few pixels to join
    slabChannels = std::min(channels, Tiling::capacity);
    if (channels > 0) pixelsPerTile = std::max<std::int64_t>(1, Tiling::capacity / channels);
    if (channels > 0 && channels < shortestRow)
      while (rowLength() < shortestRow || rowLength() % kMostLanes != 0) ++pixelsPerRow;
    if (pixelsPerTile > pixelsPerRow) pixelsPerTile = pixelsPerTile / pixelsPerRow * pixelsPerRow;
    const std::int64_t tiles = (pixels + pixelsPerTile - 1) / pixelsPerTile;
    tilesPerChunk = std::max({std::int64_t{1}, (tiles + mostChunks - 1) / mostChunks,
                              (fewestPixels + pixelsPerTile - 1) / pixelsPerTile});
    chunks = (tiles + tilesPerChunk - 1) / tilesPerChunk;
  }

  /// Elements of a row, all slabs of it.
  [[nodiscard]] std::int64_t rowLength() const { return pixelsPerRow * channels; }
  /// The same with room for a vector behind it.
  [[nodiscard]] std::int64_t roomyRow() const { return rowLength() + kMostLanes; }
  [[nodiscard]] std::int64_t firstPixel(std::int64_t chunk) const {
    return std::min(pixels, chunk * tilesPerChunk * pixelsPerTile);
  }
  [[nodiscard]] std::int64_t pixelsOf(std::int64_t chunk) const {
    return firstPixel(chunk + 1) - firstPixel(chunk);
  }
  /// Chunks below which another thread does not pay.
  [[nodiscard]] std::int64_t grain() const {
    const std::int64_t slabs = (channels + Tiling::capacity - 1) / Tiling::capacity;
    return std::max<std::int64_t>(1, Tiling::grain / std::max<std::int64_t>(1, tilesPerChunk * slabs));
  }
  [[nodiscard]] ChannelRows rowsOf(const Tile& tile) const {
    return {static_cast<std::size_t>(tile.elements()),
            static_cast<std::size_t>(tile.channels == channels ? rowLength() : tile.channels)};
  }
  /// Calls body(tile) for the tiles of a chunk. @param origin the pixel that the layout begins at
  template <class Body>
  void forTiles(std::int64_t chunk, Body&& body, std::int64_t origin = 0) const {
    const std::int64_t end = firstPixel(chunk + 1);
    for (std::int64_t pixel = firstPixel(chunk); pixel < end; pixel += pixelsPerTile)
      for (std::int64_t channel = 0; channel < channels; channel += slabChannels)
        body(Tile{origin + pixel, std::min(pixelsPerTile, end - pixel), channel,
                  std::min(slabChannels, channels - channel)});
  }
  /// Repeats the numbers of the channels, at the beginning of a row, along it.
  template <class T>
  void repeat(T* row) const {
    for (std::int64_t i = channels; i < rowLength(); ++i) row[i] = row[i - channels];
  }
  /// Adds what a row has of each channel, at its first place.
  void fold(double* row) const {
    for (std::int64_t i = channels; i < rowLength(); i += channels)
      for (std::int64_t c = 0; c < channels; ++c) row[c] += row[i + c];
  }

 private:
  /// No vector has more float32 lanes.
  static constexpr std::int64_t kMostLanes = 16;
};

/// The first pixel of a chunk, along a row: what its values are shifted by before they are squared, so that a
/// large mean destroys nothing. @param origin the pixel that the layout begins at
void loadShifts(const ChannelLayout& layout, const TensorShape& shape, const std::byte* memory,
                std::int64_t chunk, float* shifts, std::int64_t origin = 0);

/// Whether float64 sums of such values, of their squares and of their products are as good as exact. A shift can then
/// follow the sums. float16 has 11 binary digits, float64 has 53: what is lost is nothing beside the spread of the values.
inline bool shiftsSums(const TensorShape& shape) {
  return shape.format == ImageFeatureChannelFormat::Float16;
}

/// Mean and sum of squared differences from it, of every channel.
struct ChannelMoments {
  double* mean = nullptr;
  double* squares = nullptr;
};
/// Joins the moments of `added` more pixels to those of `count` (0: there are none) by Chan's formula.
void joinMoments(std::int64_t channels, double count, const ChannelMoments& moments, double added,
                 const ChannelMoments& others);

}  // namespace mps::detail
