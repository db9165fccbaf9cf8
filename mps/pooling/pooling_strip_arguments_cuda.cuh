#pragma once

#include "mps/pooling/pooling_windows_cuda.cuh"

namespace mps::detail::cuda {

inline constexpr unsigned kStripThreads = 256;
inline constexpr unsigned kCellThreads = 128;  ///< of gradients

/// A tap outside that stands for the first or the last pixel of an axis. The pixel's cell reads windows `cell`, `cell` -
/// dilation and so on; this one it reads as if it were one of those, by another tap.
struct ClampedTap {
  static constexpr std::int32_t kNone = -0x7FFFFFFF;

  std::int32_t cell = kNone;  ///< the window of which the cell's first pixel is tap 0
  std::int32_t back = 0;      ///< in place of window `reader` = cell - dilation * back
  std::int32_t reader = kNone;
  std::int32_t window = 0;  ///< that has the tap
  std::int32_t tap = 0;     ///< of several taps that stand for the pixel the first, which alone is chosen
  std::int32_t asTap = 0;
  bool isAlone = false;  ///< window `reader` does not exist: the cell reads no other tap
};

/// All that are clamped along an axis.
struct ClampedTaps {
  ClampedTap taps[4];
  /// Windows that exist and are read as themselves alone.
  std::int32_t firstOrdinary = 0;
  std::uint32_t ordinaries = 0;
  bool areKnown = true;  ///< else there are more, or cells read two windows in one place

  ClampedTaps() = default;
  /// @param clamps whether taps outside stand for pixels
  ClampedTaps(const WindowAxis& axis, bool clamps);

  [[nodiscard]] __device__ bool isOrdinary(std::int32_t window) const {
    return static_cast<std::uint32_t>(window - firstOrdinary) < ordinaries;
  }
  /// What is read in the place of a window.
  [[nodiscard]] __device__ std::int32_t windowOf(std::int32_t reader) const {
    std::int32_t window = reader;
#pragma unroll
    for (const ClampedTap& clamped : taps)
      if (clamped.reader == reader) window = clamped.window;
    return window;
  }

 private:
  void add(const WindowAxis& axis, std::int64_t pixel);
};

/// One call, for kernels whose threads go down strips of lines. Lines and columns are those of the windows,
/// or, in a gradient, of cells: stride x stride pixels, of which the first one is tap 0 of a window.
struct StripArguments : PoolingArguments {
  Divider columns;
  Divider strips;  ///< of a column, those of all phases of a dilation
  std::uint32_t lines = 0;
  std::uint32_t length = 1;  ///< most lines of a strip
  std::uint32_t threads = 0;
  std::int32_t firstLine = 0;  ///< number of the first line's and column's window
  std::int32_t firstColumn = 0;
  std::int64_t savedImage = 0;  ///< distances in saved places
  std::int64_t savedRow = 0;
  std::int32_t savedPixel = 0;
  std::int64_t gradientStep = 0;  ///< from a line of cells to the strip's next
  std::int64_t savedStep = 0;
  std::int64_t destinationStep = 0;
  ClampedTaps clampedY, clampedX;

  StripArguments() = default;
  explicit StripArguments(const PoolingProblem& problem)
      : PoolingArguments(problem),
        savedImage(problem.y.destinationSize * problem.x.destinationSize * problem.source.channels),
        savedRow(problem.x.destinationSize * problem.source.channels),
        savedPixel(static_cast<std::int32_t>(problem.source.channels)),
        gradientStep(problem.y.dilation * gradient.row),
        savedStep(problem.y.dilation * savedRow),
        destinationStep(problem.y.dilation * problem.y.stride * destination.row),
        clampedY(problem.y, clamps),
        clampedX(problem.x, clamps) {}
  /// @param longest lines of a strip
  void cover(std::int64_t images, std::int64_t lineCount, std::int64_t columnCount, std::int64_t packCount,
             std::int64_t longest);
  [[nodiscard]] unsigned blocks(unsigned blockThreads) const {
    return std::max(1U, (threads + blockThreads - 1) / blockThreads);
  }
};

/// Addresses of a call; all but those that PoolingProblem says are not used are multiples of 16.
template <class T>
struct PoolingAddresses {
  const T* source;
  const T* gradient;
  T* destination;
  std::uint8_t* saved;
};

/// Windows of 2 x 2 and 3 x 3 taps at strides 1, dilated or not, and 2.
class PoolingStrips {
 public:
  /// Of problems that PoolingArguments fit.
  static bool takes(const PoolingProblem& problem);
  /// Whether the gradient of these windows, which overlap, is gathered in strips: of maxima and averages.
  static bool takesGradient(const PoolingProblem& problem);

  explicit PoolingStrips(const PoolingProblem& problem);

  /// The forward pass. Of maxima the destination may be null, or the saved places.
  template <class T>
  void pool(mtl::Stream& stream, const PoolingAddresses<T>& at) const;
  /// The gradient; of maxima from saved places.
  template <class T>
  void gather(mtl::Stream& stream, const PoolingAddresses<T>& at, bool accumulate) const;

 private:
  PoolingKind kind_;
  StripArguments windows_;
  StripArguments cells_;
};

}  // namespace mps::detail::cuda
