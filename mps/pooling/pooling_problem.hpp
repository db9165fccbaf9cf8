#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"
#include "mps/core/types/types.hpp"
#include "mps/core/types/window_geometry.hpp"
#include "mps/pooling/pooling_kind.hpp"

namespace mps::detail {

/// The taps of a window, on one axis, that can hold its maximum: those inside and, with `clamps`, on each side the
/// first that stands for the border pixel, unless a tap inside reads that. A loop over [begin, end) visits their
/// pixels in order.
struct TapsOfMaximum {
  std::int64_t begin;
  std::int64_t end;

  constexpr TapsOfMaximum(const WindowAxis& axis, std::int64_t window, bool clamps)
      : begin(axis.firstInside(window)),
        end(axis.endInside(window)),
        first_(axis.firstTap(window)),
        dilation_(axis.dilation),
        last_(axis.sourceSize - 1),
        firstInside_(begin) {
    if (!clamps) return;
    const bool standsBefore = begin > 0 && (begin == axis.kernelSize || coordinate(begin) != 0);
    const bool standsBehind = end < axis.kernelSize && (end == 0 || coordinate(end - 1) != last_);
    if (standsBefore) --begin;
    if (standsBehind) ++end;
  }
  /// The number of tap i of the loop.
  [[nodiscard]] constexpr std::int64_t tap(std::int64_t i) const { return i < firstInside_ ? 0 : i; }
  [[nodiscard]] constexpr std::int64_t pixel(std::int64_t i) const {
    return i < firstInside_ ? 0 : std::min(coordinate(i), last_);
  }
  [[nodiscard]] constexpr std::int64_t count() const { return end - begin; }

 private:
  [[nodiscard]] constexpr std::int64_t coordinate(std::int64_t i) const { return first_ + dilation_ * i; }

  std::int64_t first_;
  std::int64_t dilation_;
  std::int64_t last_;
  std::int64_t firstInside_;
};

/// Taps of a window, on one axis, that count for average pooling: all, or, with edge mode Clamp, those in the source
/// and the band of zeros around it.
constexpr std::int64_t countedTaps(const WindowAxis& axis, std::int64_t window, ImageEdgeMode edgeMode,
                                   std::int64_t zeroPadSize) {
  if (edgeMode == ImageEdgeMode::Zero) return axis.kernelSize;
  WindowAxis padded = axis;  // the zeros make a larger image
  padded.sourceSize += 2 * zeroPadSize;
  padded.offset += zeroPadSize;
  return std::max<std::int64_t>(0, padded.endInside(window) - padded.firstInside(window));
}

/// What plans and classes have to know about a function. pooling_operations-inl.hpp has the functions.
struct PoolingTraits {
  std::string_view name;
  /// One tap is the result: it has an index, and the whole gradient. Of taps outside the source it sees zeros, or with
  /// Clamp the nearest pixels; others see nothing there.
  bool selects = false;
  bool countsTaps = false;  ///< the result depends on the number of taps that count, see countedTaps()
  bool isLinear = false;    ///< in the source, which the gradient does not read then
};
PoolingTraits traitsOf(PoolingKind kind);

enum class PoolingDirection : std::uint8_t { Forward, Gradient };

/// All numbers of one pooling call, forward or gradient.
///
/// | operand     | forward                               | gradient                                              |
/// |-------------|---------------------------------------|-------------------------------------------------------|
/// | source      | forward source                        | the same; may be null where !readsSource()            |
/// | gradient    |                                       | gradient of the forward destination                   |
/// | destination | forward destination, clip rectangle   | gradient of the source                                |
/// | saved       | written where saveIndices is set      | read where useIndices is set; not changed             |
///
/// No parameters, no scalars. Every destination element is written.
///
/// Saved indices: for each window and channel the chosen tap p + kernelWidth * q, or noIndex() where an
/// outside zero won. They lie densely in the order image, y, x, channel over the windows (y.destinationSize
/// rows of x.destinationSize), in elements of indexBytes(). With edge mode Clamp a tap outside stands for the
/// pixel it is clamped to. The chosen tap is the first NaN, otherwise the first maximum, in row-major order;
/// an outside zero is chosen only where it is greater than all taps inside. Where several taps of an axis stand for
/// the chosen pixel, the number is that of the one inside, else of the first (TapsOfMaximum).
///
/// With afterReLU the gradient includes the derivative of the ReLU that made the source, which left the sign bit
/// of what it cut off (neuron_span.hpp): a window whose maximum has its sign bit set and is no NaN has
/// noIndex(), and its gradient goes nowhere. The maximum itself is as ever.
struct PoolingProblem {
  PoolingKind kind = PoolingKind::Max;
  PoolingDirection direction = PoolingDirection::Forward;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;  ///< Zero or Clamp
  std::int64_t zeroPadSizeX = 0;                 ///< Average with Clamp only, at least 0
  std::int64_t zeroPadSizeY = 0;
  /// Placement of the windows. sourceSize is the size of the source; destinationSize the number of windows:
  /// the size of the forward clip rectangle, in the gradient the number of gradient pixels that count.
  WindowAxis x;
  WindowAxis y;
  TensorShape source;
  TensorShape destination;
  TensorShape gradient;  ///< gradient only
  /// Gradient only: the source coordinate that destination pixel 0 stands for.
  /// Destination pixels that stand for nothing inside the source become 0.
  std::int64_t destinationOriginX = 0;
  std::int64_t destinationOriginY = 0;
  bool saveIndices = false;  ///< forward only, of what selects a tap
  bool useIndices = false;   ///< gradient only, of the same
  bool afterReLU = false;    ///< of the same: where indices are saved, and in the gradient

  bool operator==(const PoolingProblem&) const = default;

  [[nodiscard]] PoolingTraits traits() const { return traitsOf(kind); }
  /// Whether taps outside stand for the nearest pixels.
  [[nodiscard]] bool clampsTaps() const { return traits().selects && edgeMode == ImageEdgeMode::Clamp; }
  [[nodiscard]] bool readsSource() const {
    return direction == PoolingDirection::Forward || !(traits().isLinear || useIndices);
  }
  [[nodiscard]] constexpr std::int64_t taps() const { return x.kernelSize * y.kernelSize; }
  /// Bytes of one saved index: 1 for windows of up to 255 taps, then 2 and 4.
  [[nodiscard]] constexpr std::size_t indexBytes() const {
    if (taps() <= 0xFF) return 1;
    return taps() <= 0xFFFF ? 2 : 4;
  }
  /// The index that stands for "an outside zero won": the largest number of indexBytes() bytes.
  [[nodiscard]] constexpr std::uint32_t noIndex() const { return 0xFFFFFFFFU >> (32U - 8U * indexBytes()); }
  [[nodiscard]] std::int64_t windows() const { return source.images * y.destinationSize * x.destinationSize; }
  /// Size of Operands::saved.
  [[nodiscard]] std::size_t savedBytes() const {
    return static_cast<std::size_t>(windows() * source.channels) * indexBytes();
  }

  [[nodiscard]] std::size_t hash() const {
    return hashOf(kind, direction, edgeMode, zeroPadSizeX, zeroPadSizeY, x.hash(), y.hash(), source.hash(),
                  destination.hash(), gradient.hash(), destinationOriginX, destinationOriginY, saveIndices,
                  useIndices, afterReLU);
  }
  /// One line with every number, e.g. "Max pooling, zero edges, kernel 3x3 stride 2x2 offset 1,1, 8x56x56x64
  /// float32 -> 8x28x28x64 float32".
  [[nodiscard]] std::string describe() const;
};

/// In order of preference; the last one accepts every problem.
std::span<const Implementation<PoolingProblem>> poolingImplementationsCpu();
std::span<const Implementation<PoolingProblem>> poolingImplementationsCuda();
inline constexpr BackEnds<PoolingProblem> poolingBackEnds{poolingImplementationsCpu,
                                                          UNMETAL_CUDA_LIST(poolingImplementationsCuda)};

}  // namespace mps::detail
