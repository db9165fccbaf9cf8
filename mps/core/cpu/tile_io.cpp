#include "mps/core/cpu/tile_io.hpp"

#include <algorithm>
#include <numeric>

#include "mps/core/cpu/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/core/cpu/tile_io.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/cpu/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Calls call(offset in elements, first value, count) for the pieces of a tile that are adjacent in memory.
template <class Call>
HWY_INLINE void forPieces(const TensorShape& shape, const Tile& tile, Call&& call) {
  std::int64_t x = tile.firstPixel % shape.width;
  std::int64_t y = tile.firstPixel / shape.width % shape.height;
  std::int64_t image = tile.firstPixel / shape.width / shape.height;
  const bool wholeRows = shape.pixelStride == tile.channels;
  std::int64_t done = 0;
  while (done < tile.pixels) {
    const std::int64_t pixels = std::min(shape.width - x, tile.pixels - done);
    const std::int64_t offset = shape.offset(image, y, x, tile.firstChannel);
    const std::int64_t pieces = wholeRows ? 1 : pixels;
    const std::int64_t pieceSize = (wholeRows ? pixels : 1) * tile.channels;
    for (std::int64_t i = 0; i < pieces; ++i)
      call(offset + i * shape.pixelStride, done * tile.channels + i * pieceSize,
           static_cast<std::size_t>(pieceSize));
    done += pixels;
    x = 0;
    if (++y == shape.height) {
      y = 0;
      ++image;
    }
  }
}

void loadPieces(const TensorShape& shape, const std::byte* memory, const Tile& tile, float* buffer) {
  withElementType(shape.format, [&](auto element) {
    const auto* elements = reinterpret_cast<const decltype(element)*>(memory);
    if (shape.isDense())
      return convertToFloats(elements + tile.firstPixel * shape.channels + tile.firstChannel, buffer,
                             static_cast<std::size_t>(tile.elements()));
    forPieces(shape, tile, [&](std::int64_t offset, std::int64_t first, std::size_t count) {
      convertToFloats(elements + offset, buffer + first, count);
    });
  });
}

void storePieces(const TensorShape& shape, std::byte* memory, const Tile& tile, const float* values) {
  withElementType(shape.format, [&](auto element) {
    auto* elements = reinterpret_cast<decltype(element)*>(memory);
    if (shape.isDense())
      return convertFromFloats(values, elements + tile.firstPixel * shape.channels + tile.firstChannel,
                               static_cast<std::size_t>(tile.elements()));
    forPieces(shape, tile, [&](std::int64_t offset, std::int64_t first, std::size_t count) {
      convertFromFloats(values + first, elements + offset, count);
    });
  });
}

void addPieces(const TensorShape& shape, std::byte* memory, const Tile& tile, const float* values) {
  const hn::ScalableTag<float> d;
  auto* elements = reinterpret_cast<float*>(memory);
  forPieces(shape, tile, [&](std::int64_t offset, std::int64_t first, std::size_t count) {
    forVectors(d, count, [&](std::size_t i, auto lanes) {
      float* to = elements + offset + i;
      lanes.store(d, hn::Add(lanes.load(d, to), lanes.load(d, values + first + i)), to);
    });
  });
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(loadPieces);
HWY_EXPORT(storePieces);
HWY_EXPORT(addPieces);

namespace {

/// Offset of the tile's first element if its elements are adjacent in memory, else -1.
std::int64_t adjacentOffset(const TensorShape& shape, const Tile& tile) {
  if (shape.isDense()) return tile.firstPixel * shape.channels + tile.firstChannel;
  const std::int64_t x = tile.firstPixel % shape.width;
  const bool oneRow = x + tile.pixels <= shape.width;
  if (!oneRow || (tile.pixels > 1 && shape.pixelStride != tile.channels)) return -1;
  return shape.offset(tile.firstPixel / shape.width / shape.height,
                      tile.firstPixel / shape.width % shape.height, x, tile.firstChannel);
}

/// The same of float32 alone.
std::int64_t directOffset(const TensorShape& shape, const Tile& tile) {
  return shape.format == ImageFeatureChannelFormat::Float32 ? adjacentOffset(shape, tile) : -1;
}

}  // namespace

namespace {

/// So many that tiles begin at whole vectors, if that many fit.
std::int64_t pixelsPerTile(std::int64_t channels) {
  constexpr std::int64_t mostLanes = 16;
  if (channels <= 0) return 1;
  const std::int64_t pixels = std::max<std::int64_t>(1, Tiling::capacity / channels);
  const std::int64_t unit = mostLanes / std::gcd(channels, mostLanes);
  return pixels < unit ? pixels : pixels / unit * unit;
}

}  // namespace

Tiling::Tiling(std::int64_t pixels, std::int64_t channels)
    : pixels_(pixels),
      channels_(channels),
      pixelsPerTile_(pixelsPerTile(channels)),
      tilesPerPixel_((channels + capacity - 1) / capacity),
      count_((pixels + pixelsPerTile_ - 1) / pixelsPerTile_ * tilesPerPixel_) {}

Tile Tiling::operator[](std::int64_t i) const {
  const std::int64_t firstPixel = i / tilesPerPixel_ * pixelsPerTile_;
  const std::int64_t firstChannel = i % tilesPerPixel_ * capacity;
  return {firstPixel, std::min(pixelsPerTile_, pixels_ - firstPixel), firstChannel,
          std::min(channels_ - firstChannel, tilesPerPixel_ > 1 ? capacity : channels_)};
}

const float* loadTile(const TensorShape& shape, const std::byte* memory, const Tile& tile, float* buffer) {
  const std::int64_t offset = directOffset(shape, tile);
  if (offset >= 0) return reinterpret_cast<const float*>(memory) + offset;
  HWY_DYNAMIC_DISPATCH(loadPieces)(shape, memory, tile, buffer);
  return buffer;
}

float* tileTarget(const TensorShape& shape, std::byte* memory, const Tile& tile, float* buffer,
                  bool accumulate) {
  const std::int64_t offset = accumulate ? -1 : directOffset(shape, tile);
  return offset >= 0 ? reinterpret_cast<float*>(memory) + offset : buffer;
}

ConstFloatRun loadRun(const TensorShape& shape, const std::byte* memory, const Tile& tile, float* buffer) {
  if (shape.format == ImageFeatureChannelFormat::Float16)
    if (const std::int64_t offset = adjacentOffset(shape, tile); offset >= 0)
      return ConstFloatRun(reinterpret_cast<const Float16*>(memory) + offset);
  return loadTile(shape, memory, tile, buffer);
}

FloatRun runTarget(const TensorShape& shape, std::byte* memory, const Tile& tile, float* buffer,
                   bool accumulate) {
  const std::int64_t offset = accumulate ? -1 : adjacentOffset(shape, tile);
  const bool isHalf = shape.format == ImageFeatureChannelFormat::Float16;
  if (offset < 0 || (!isHalf && shape.format != ImageFeatureChannelFormat::Float32)) return buffer;
  FloatRun run = isHalf ? FloatRun(reinterpret_cast<Float16*>(memory) + offset)
                        : FloatRun(reinterpret_cast<float*>(memory) + offset);
  run.isNonTemporal = isNonTemporal(shape);
  return run;
}

void storeTile(const TensorShape& shape, std::byte* memory, const Tile& tile, FloatRun values,
               bool accumulate) {
  if (!values.isHalf) storeTile(shape, memory, tile, static_cast<const float*>(values.address), accumulate);
}

void storeTile(const TensorShape& shape, std::byte* memory, const Tile& tile, const float* values,
               bool accumulate) {
  if (accumulate)
    HWY_DYNAMIC_DISPATCH(addPieces)(shape, memory, tile, values);
  else if (directOffset(shape, tile) < 0)
    HWY_DYNAMIC_DISPATCH(storePieces)(shape, memory, tile, values);
}

}  // namespace mps::detail

#endif  // HWY_ONCE
