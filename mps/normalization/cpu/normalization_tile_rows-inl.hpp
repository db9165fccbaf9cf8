// A tile's rows of source, gradient and destination, once per instruction set. Include it after hwy/highway.h in a file
// that hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_NORMALIZATION_TILE_ROWS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_NORMALIZATION_TILE_ROWS_INL_HPP
#undef UNMETAL_MPS_NORMALIZATION_TILE_ROWS_INL_HPP
#else
#define UNMETAL_MPS_NORMALIZATION_TILE_ROWS_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/core/cpu/vector_runs-inl.hpp"
#include "mps/normalization/cpu/normalization_tiles.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The columns whose statistics a row of windows needs: `count` from source column `first` on, those outside
/// included, of which [begin, end) are read.
struct WindowColumns {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Where the rows of a tile come from and go to.
class TileRows {
 protected:
  TileRows(const NormalizationProblem& problem, const WindowTiles& tiles, const Operands& operands,
           std::byte* working)
      : problem_(problem),
        tiles_(tiles),
        operands_(operands),
        next_(reinterpret_cast<float*>(working)),
        streams_(usesNonTemporalStoresForRows(
            problem.source.bytes() + problem.gradient.bytes() + problem.destination.bytes(),
            problem.destination)) {
    converted_ = take(tiles.keptRows);
    zeros_ = take(1);
    std::fill_n(zeros_, tiles.rowFloats, 0.0F);
  }

  /// Rows of the working memory.
  float* take(std::int64_t rows) {
    float* const taken = next_;
    next_ += static_cast<std::size_t>(rows) * tiles_.rowFloats;
    return taken;
  }

  void beginTile() { std::fill_n(convertedRow_, tiles_.keptRows, std::int64_t{-1}); }

  [[nodiscard]] std::size_t floats(std::int64_t columns) const {
    return static_cast<std::size_t>(columns * channels_);
  }

  void setWindows(const WindowRange& windows) {
    windows_ = windows;
    const WindowAxis& axis = problem_.x;
    read_.first = axis.firstTap(windows.begin);
    read_.count = windows.end - windows.begin + axis.kernelSize - 1;
    const std::int64_t end = read_.first + read_.count;
    if (problem_.edgeMode == ImageEdgeMode::Clamp) {
      read_.begin = std::clamp<std::int64_t>(read_.first, 0, axis.sourceSize - 1);
      read_.end = std::clamp<std::int64_t>(end - 1, 0, axis.sourceSize - 1) + 1;
    } else {
      read_.begin = std::clamp<std::int64_t>(read_.first, 0, axis.sourceSize);
      read_.end = std::clamp<std::int64_t>(end, read_.begin, axis.sourceSize);
    }
  }

  /// The columns that are read, of a row of the source, as float32.
  const float* sourceRow(std::int64_t y) {
    if (y < 0 || y >= problem_.y.sourceSize) {
      if (problem_.edgeMode != ImageEdgeMode::Clamp) return zeros_;
      y = std::clamp<std::int64_t>(y, 0, problem_.y.sourceSize - 1);
    }
    const std::int64_t width = read_.end - read_.begin;
    if (const float* direct = directRow(problem_.source, operands_.source, y, read_.begin, width))
      return direct;
    const auto slot = static_cast<std::size_t>(y % tiles_.keptRows);
    float* const row = converted_ + slot * tiles_.rowFloats;
    if (convertedRow_[slot] != y) {
      convertRow(problem_.source, operands_.source, y, read_.begin, width, row);
      convertedRow_[slot] = y;
    }
    return row;
  }

  /// Where float32 elements lie side by side; else null.
  const float* directRow(const TensorShape& shape, const std::byte* memory, std::int64_t y, std::int64_t x,
                         std::int64_t width) const {
    if (shape.format != ImageFeatureChannelFormat::Float32) return nullptr;
    if (shape.pixelStride != channels_ && width > 1) return nullptr;
    return reinterpret_cast<const float*>(memory) + shape.offset(image_, y, x, firstChannel_);
  }
  /// The incoming gradients of the windows of a row, where they lie side by side, else as float32 in the buffer.
  ConstFloatRun gradientRow(std::int64_t y, std::int64_t width, float* buffer) const {
    const TensorShape& shape = problem_.gradient;
    if (const float* direct = directRow(shape, operands_.gradient, y, windows_.begin, width)) return direct;
    if (shape.format == ImageFeatureChannelFormat::Float16 && shape.pixelStride == channels_)
      return ConstFloatRun(reinterpret_cast<const Float16*>(operands_.gradient) +
                           shape.offset(image_, y, windows_.begin, firstChannel_));
    convertRow(shape, operands_.gradient, y, windows_.begin, width, buffer);
    return buffer;
  }
  void convertRow(const TensorShape& shape, const std::byte* memory, std::int64_t y, std::int64_t x,
                  std::int64_t width, float* to) const {
    const bool isAdjacent = shape.pixelStride == channels_;
    const std::size_t length = floats(isAdjacent ? width : 1);
    for (std::int64_t i = 0; i < (isAdjacent ? 1 : width); ++i)
      withElementType(shape.format, [&](auto element) {
        convertToFloats(reinterpret_cast<const decltype(element)*>(memory) +
                            shape.offset(image_, y, x + i, firstChannel_),
                        to + static_cast<std::size_t>(i) * length, length);
      });
  }

  /// Elements of a row that is read next: they come to the second-level cache while this one is computed.
  class RowAhead {
   public:
    RowAhead(const TensorShape& shape, const std::byte* address)
        : address_(address), bytes_(bytesPerChannel(shape.format)) {}
    HWY_INLINE void fetch(std::size_t i) const { __builtin_prefetch(address_ + i * bytes_, 0, 2); }

   private:
    const std::byte* address_;
    std::size_t bytes_;
  };
  RowAhead rowAhead(const TensorShape& shape, const std::byte* memory, std::int64_t y, std::int64_t x) const {
    const std::int64_t row = std::max<std::int64_t>(0, std::min(y, shape.height - 1));
    const auto bytes = static_cast<std::int64_t>(bytesPerChannel(shape.format));
    return {shape, memory + shape.offset(image_, row, x, firstChannel_) * bytes};
  }
  void zero(FloatRun to, std::int64_t begin, std::int64_t end) const {
    if (addsInPlace_ || end <= begin) return;
    const hn::ScalableTag<float> d;
    forVectors(
        d, floats(end - begin), [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          lanes.store(d, hn::Zero(d), to + (floats(begin) + i));
        });
  }

  /// Where to compute a row of the tile: in the destination if its elements lie side by side, else in the buffer.
  FloatRun target(std::int64_t y, float* buffer) {
    const TensorShape& shape = problem_.destination;
    const std::int64_t offset = shape.offset(image_, y, firstColumn_, firstChannel_);
    const bool isAdjacent = shape.pixelStride == channels_ || columns_ == 1;
    const bool isHalf = shape.format == ImageFeatureChannelFormat::Float16;
    isDirect_ = isAdjacent && (isHalf || shape.format == ImageFeatureChannelFormat::Float32);
    addsInPlace_ = isDirect_ && operands_.accumulate;
    if (!isDirect_) return buffer;
    FloatRun run = isHalf ? FloatRun(reinterpret_cast<Float16*>(operands_.destination) + offset)
                          : FloatRun(reinterpret_cast<float*>(operands_.destination) + offset);
    run.isNonTemporal = streams_;
    return run;
  }

  void storeTarget(std::int64_t y, const float* buffer) const {
    if (isDirect_) return;
    const hn::ScalableTag<float> d;
    const TensorShape& shape = problem_.destination;
    for (std::int64_t i = 0; i < columns_; ++i) {
      const float* const from = buffer + floats(i);
      const std::int64_t offset = shape.offset(image_, y, firstColumn_ + i, firstChannel_);
      if (operands_.accumulate) {
        float* const to = reinterpret_cast<float*>(operands_.destination) + offset;
        forVectors(d, floats(1), [&](std::size_t k, auto lanes) {
          lanes.store(d, hn::Add(lanes.load(d, to + k), lanes.load(d, from + k)), to + k);
        });
        continue;
      }
      withElementType(shape.format, [&](auto element) {
        convertFromFloats(from, reinterpret_cast<decltype(element)*>(operands_.destination) + offset,
                          floats(1));
      });
    }
  }

  const NormalizationProblem& problem_;
  const WindowTiles& tiles_;
  const Operands& operands_;
  bool addsInPlace_ = false;

  // The tile.
  std::int64_t image_ = 0;
  std::int64_t firstChannel_ = 0;
  std::int64_t channels_ = 0;
  std::int64_t firstColumn_ = 0;  ///< of the destination
  std::int64_t columns_ = 0;
  WindowRange windows_;  ///< along a row
  WindowColumns read_;
  float* zeros_;  ///< a row

 private:
  float* next_;
  bool streams_;
  bool isDirect_ = false;
  std::int64_t convertedRow_[WindowTiles::mostKept];
  float* converted_;
};

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
