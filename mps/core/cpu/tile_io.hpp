#pragma once

#include <cstddef>
#include <cstdint>

#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/core/types/float_run.hpp"
#include "mps/core/types/tensor_shape.hpp"
#include "mtl/cpu/stream.hpp"

/// Cuts tensors into tiles of float32 values that fit into the first-level cache, for kernels that treat
/// every element or every pixel by itself: load, compute in place, store. Formats and strides end here.
namespace mps::detail {

/// A piece of a tensor: adjacent pixels (in the order image, y, x) with all channels, or a range of the
/// channels of one pixel.
struct Tile {
  std::int64_t firstPixel = 0;
  std::int64_t pixels = 0;
  std::int64_t firstChannel = 0;
  std::int64_t channels = 0;
  [[nodiscard]] std::int64_t elements() const { return pixels * channels; }
};

/// The tiles of a tensor, in order.
class Tiling {
 public:
  /// Largest number of elements of a tile: two float32 buffers and three pieces of float16 images fit into a
  /// cache of 32 KiB.
  static constexpr std::int64_t capacity = 2048;
  /// Number of tiles below which another thread does not pay.
  static constexpr std::int64_t grain = 8;

  Tiling(std::int64_t pixels, std::int64_t channels);

  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] Tile operator[](std::int64_t i) const;

 private:
  std::int64_t pixels_;
  std::int64_t channels_;
  std::int64_t pixelsPerTile_;
  std::int64_t tilesPerPixel_;  ///< 1 unless a pixel alone is larger than a tile
  std::int64_t count_;
};

/// Room for the elements of a tile. Nothing is set to 0, as an array of Float16 would be.
template <class Element>
union TileBuffer {
  TileBuffer() {}  // NOLINT: a defaulted one would be deleted
  alignas(64) Element elements[Tiling::capacity];
};

/// Converts the elements of a tile to float32, one pixel after the other, into `buffer`. Where they already
/// lie in memory like that, nothing is copied and their address is returned, else `buffer`.
const float* loadTile(const TensorShape& shape, const std::byte* memory, const Tile& tile, float* buffer);

/// Where to compute a tile of a destination. It is the destination's memory if its elements lie there as dense float32
/// and the results are not added to them, else `buffer`. storeTile() must follow, with the same `accumulate`.
float* tileTarget(const TensorShape& shape, std::byte* memory, const Tile& tile, float* buffer,
                  bool accumulate = false);

/// The elements of a tile where they lie, if they are adjacent float16 or float32, else as float32 in
/// `buffer`.
ConstFloatRun loadRun(const TensorShape& shape, const std::byte* memory, const Tile& tile, float* buffer);

/// Where to store the elements of a tile. It is the destination's memory under the same condition, if the results are
/// not added to them, else `buffer`. storeTile() must follow. Where stores of the run are non-temporal and no forEachTile()
/// is around it, finishNonTemporalStores() must follow the last tile of a thread.
FloatRun runTarget(const TensorShape& shape, std::byte* memory, const Tile& tile, float* buffer,
                   bool accumulate = false);

/// Rounds what tileTarget() or runTarget() returned to the elements of the tile; nothing to do where it was
/// the memory itself.
/// @param accumulate add to the elements; float32 only
void storeTile(const TensorShape& shape, std::byte* memory, const Tile& tile, const float* values,
               bool accumulate = false);
void storeTile(const TensorShape& shape, std::byte* memory, const Tile& tile, FloatRun values,
               bool accumulate = false);

/// Calls body(tile) for every tile, on the stream's threads.
template <class Body>
void forEachTile(mtl::Stream& stream, const Tiling& tiling, Body&& body) {
  mtl::cpu::asCpu(stream).parallelFor(tiling.count(), Tiling::grain,
                                      [&](std::int64_t begin, std::int64_t end) {
                                        for (std::int64_t i = begin; i < end; ++i) body(tiling[i]);
                                        finishNonTemporalStores();
                                      });
}

}  // namespace mps::detail
