#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/plan_for.hpp"
#include "mps/core/tensor_shape.hpp"
#include "mps/core/types.hpp"
#include "mps/core/window_geometry.hpp"

namespace mps::detail {

/// What a window computes; dilated max pooling is Max with a dilation in the axes.
enum class PoolingKind : std::uint8_t { Max, Average, L2Norm };

enum class PoolingDirection : std::uint8_t { Forward, Gradient };

/// All numbers of one pooling call, forward or gradient (spec/02 section 3).
///
/// | operand     | forward                             | gradient |
/// |-------------|-------------------------------------|--------------------------------------------------------|
/// | source      | forward source                      | forward source; may be null for Average and where |
/// |             |                                     | useIndices is set: then only its size counts | |
/// gradient    |                                     | gradient of the forward destination | | destination |
/// forward destination, clip rectangle | gradient of the source                                 | | saved |
/// written where saveIndices is set    | read where useIndices is set; not changed              |
///
/// No parameters, no scalars. Every destination element is written.
///
/// Saved indices: for each window and channel the chosen tap p + kernelWidth * q, or noIndex() where an
/// outside zero won. They lie densely in the order image, y, x, channel over the windows (y.destinationSize
/// rows of x.destinationSize), in elements of indexBytes(). With edge mode Clamp a tap outside stands for the
/// pixel it is clamped to. The chosen tap is the first NaN, otherwise the first maximum, in row-major order;
/// an outside zero is chosen only where it is greater than all taps inside.
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
  /// Gradient only: the source coordinate that destination pixel 0 stands for (y0 in spec/02 section 3.6).
  /// Destination pixels that stand for nothing inside the source become 0.
  std::int64_t destinationOriginX = 0;
  std::int64_t destinationOriginY = 0;
  bool saveIndices = false;  ///< Max forward only
  bool useIndices = false;   ///< Max gradient only
  bool afterReLU = false;    ///< Max only: where indices are saved, and in the gradient

  bool operator==(const PoolingProblem&) const = default;

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
  /// One line with every number, e.g. "max pooling, zero edges, kernel 3x3 stride 2x2 offset 1,1, 8x56x56x64
  /// float32 -> 8x28x28x64 float32".
  [[nodiscard]] std::string describe() const;
};

/// In order of preference; the last one accepts every problem.
std::span<const Implementation<PoolingProblem>> poolingImplementationsCpu();
std::span<const Implementation<PoolingProblem>> poolingImplementationsCuda();
inline constexpr BackEnds<PoolingProblem> poolingBackEnds{poolingImplementationsCpu,
                                                          UNMETAL_CUDA_LIST(poolingImplementationsCuda)};

}  // namespace mps::detail
