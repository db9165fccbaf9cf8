#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/matrix/matrix_problem.hpp"
#include "mtl/cpu/stream.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/matrix/cpu/matrix_image_copy_cpu.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/matrix/cpu/matrix_transpose-inl.hpp"

#ifndef UNMETAL_MPS_MATRIX_COPY_PIECES
#define UNMETAL_MPS_MATRIX_COPY_PIECES
namespace mps::detail {

/// How the pixels of a problem's rows are divided.
struct CopyPieces {
  std::int64_t pixels = 1;     ///< of a piece
  std::int64_t count = 1;      ///< of each row
  bool isNonTemporal = false;  ///< the copy is so large that the caches do not keep its result
};

}  // namespace mps::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Copies adjacent elements, with non-temporal stores where that is asked for; FlushStream() must follow.
template <class Bits>
HWY_INLINE void copyRun(const Bits* from, Bits* to, std::int64_t count, bool isNonTemporal) {
  const hn::ScalableTag<Bits> d;
  const auto elements = static_cast<std::size_t>(count);
  std::size_t i = 0;
  if (isNonTemporal) {
    constexpr std::size_t kLine = 64;
    const std::size_t behind = reinterpret_cast<std::uintptr_t>(to) % kLine;
    i = std::min(elements, (kLine - behind) % kLine / sizeof(Bits));
    std::memcpy(to, from, i * sizeof(Bits));
    for (; i + hn::Lanes(d) <= elements; i += hn::Lanes(d)) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  }
  std::memcpy(to + i, from + i, (elements - i) * sizeof(Bits));
}

/// Asks for the lines of a matrix, in the order of memory, which the blocks are not read in.
template <class Bits>
class LinePrefetch {
 public:
  LinePrefetch() = default;
  LinePrefetch(const Bits* from, std::int64_t stride, std::int64_t rows, std::int64_t columns)
      : from_(from), stride_(stride), rows_(rows), columns_(columns) {}

  /// The next lines of so many elements.
  void advance(std::int64_t elements) {
    while (rows_ > 0 && elements > 0) {
      hwy::Prefetch(from_ + column_);
      elements -= kLine;
      column_ += kLine;
      if (column_ < columns_) continue;
      column_ = 0;
      from_ += stride_;
      --rows_;
    }
  }
  void finish() { advance(std::numeric_limits<std::int64_t>::max()); }

 private:
  static constexpr std::int64_t kLine = 64 / sizeof(Bits);
  const Bits* from_ = nullptr;
  std::int64_t stride_ = 0;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
  std::int64_t column_ = 0;
};

/// to[c * toStride + r] = from[r * fromStride + c]. Blocks are transposed in the cache and written in long
/// runs. `next` is asked for meanwhile, so that memory is read while it is written.
template <class Bits>
void transpose(const Bits* from, std::int64_t fromStride, std::int64_t rows, std::int64_t columns, Bits* to,
               std::int64_t toStride, bool isNonTemporal, LinePrefetch<Bits>& next) {
  constexpr std::int64_t kLine = 64 / sizeof(Bits);
  constexpr std::int64_t kMostRows = 256;
  alignas(64) Bits block[kMostRows * kLine];
  for (std::int64_t r = 0; r < rows; r += kMostRows) {
    const std::int64_t blockRows = std::min(kMostRows, rows - r);
    const std::int64_t mostColumns = kMostRows / blockRows * kLine;
    for (std::int64_t c = 0; c < columns; c += mostColumns) {
      const std::int64_t blockColumns = std::min(mostColumns, columns - c);
      // Memory answers a few requests at a time: they take turns with the squares, or with the runs if these are short.
      const bool isOneRun = toStride == blockRows;
      transposeBlock(
          from + r * fromStride + c, fromStride, blockRows, blockColumns, block,
          [&](std::int64_t squareRows) { next.advance(isOneRun ? squareRows * blockColumns : 0); });
      if (isOneRun) {
        copyRun(block, to + c * toStride, blockRows * blockColumns, isNonTemporal);
        continue;
      }
      for (std::int64_t i = 0; i < blockColumns; ++i) {
        next.advance(blockRows);
        copyRun(block + i * blockRows, to + (c + i) * toStride + r, blockRows, isNonTemporal);
      }
    }
  }
  next.finish();
}

/// Adjacent pixels of one row of an image.
struct CopiedPixels {
  std::int64_t image = 0;
  std::int64_t y = 0;
  std::int64_t first = 0;
  std::int64_t pixels = 0;
};

inline CopiedPixels pieceOf(const ImageMatrixCopyProblem& problem, const CopyPieces& pieces, std::int64_t i) {
  const TensorShape& images = problem.images;
  const std::int64_t row = i / pieces.count;
  const std::int64_t first = i % pieces.count * pieces.pixels;
  return {row / images.height, row % images.height, first, std::min(pieces.pixels, images.width - first)};
}

/// Where a run begins in the images, and in the matrix if channels come first.
inline std::int64_t inImages(const ImageMatrixCopyProblem& problem, const CopiedPixels& run) {
  return problem.images.offset(run.image, run.y, run.first, 0);
}
inline std::int64_t inPlane(const ImageMatrixCopyProblem& problem, const CopiedPixels& run) {
  return problem.matrix.offset(0, run.image, 0, run.y * problem.images.width + run.first);
}

/// Transposes pieces [begin, end): channels first.
template <class Bits>
void transposePieces(const ImageMatrixCopyProblem& problem, const CopyPieces& pieces,
                     const Operands& operands, std::int64_t begin, std::int64_t end) {
  const TensorShape& images = problem.images;
  const std::int64_t plane = images.height * images.width;
  const auto* from = reinterpret_cast<const Bits*>(operands.source);
  auto* to = reinterpret_cast<Bits*>(operands.destination);
  const auto linesOf = [&](std::int64_t i) {
    if (i >= end) return LinePrefetch<Bits>();
    const CopiedPixels run = pieceOf(problem, pieces, i);
    return problem.toMatrix
               ? LinePrefetch<Bits>(from + inImages(problem, run), images.pixelStride, run.pixels,
                                    images.channels)
               : LinePrefetch<Bits>(from + inPlane(problem, run), plane, images.channels, run.pixels);
  };
  linesOf(begin).finish();
  for (std::int64_t i = begin; i < end; ++i) {
    const CopiedPixels run = pieceOf(problem, pieces, i);
    const std::int64_t imageAt = inImages(problem, run);
    const std::int64_t planeAt = inPlane(problem, run);
    LinePrefetch<Bits> next = linesOf(i + 1);
    if (problem.toMatrix)
      transpose(from + imageAt, images.pixelStride, run.pixels, images.channels, to + planeAt, plane,
                pieces.isNonTemporal, next);
    else
      transpose(from + planeAt, plane, images.channels, run.pixels, to + imageAt, images.pixelStride,
                pieces.isNonTemporal, next);
  }
}

/// Copies a run of pixels: channels last.
template <class Bits>
void copyPixels(const ImageMatrixCopyProblem& problem, const Operands& operands, const CopiedPixels& pixels,
                bool isNonTemporal) {
  const TensorShape& images = problem.images;
  const std::int64_t imageAt = inImages(problem, pixels);
  const std::int64_t pixel = pixels.y * images.width + pixels.first;
  const std::int64_t rowAt = problem.matrix.offset(0, pixels.image, 0, pixel * images.channels);
  const auto* from = reinterpret_cast<const Bits*>(operands.source);
  auto* to = reinterpret_cast<Bits*>(operands.destination);
  const bool adjacent = images.pixelStride == images.channels;
  const std::int64_t run = adjacent ? pixels.pixels * images.channels : images.channels;
  for (std::int64_t p = 0; p < (adjacent ? 1 : pixels.pixels); ++p) {
    const std::int64_t inImage = imageAt + p * images.pixelStride;
    const std::int64_t inRow = rowAt + p * images.channels;
    copyRun(from + (problem.toMatrix ? inImage : inRow), to + (problem.toMatrix ? inRow : inImage), run,
            isNonTemporal);
  }
}

template <class Bits>
void copyPiecesOf(const ImageMatrixCopyProblem& problem, const CopyPieces& pieces, const Operands& operands,
                  std::int64_t begin, std::int64_t end) {
  const TensorShape& images = problem.images;
  if (problem.channelsFirst && images.channels > 1 && images.height * images.width > 1)
    return transposePieces<Bits>(problem, pieces, operands, begin, end);
  for (std::int64_t i = begin; i < end; ++i)
    copyPixels<Bits>(problem, operands, pieceOf(problem, pieces, i), pieces.isNonTemporal);
}

/// Copies pieces [begin, end) of all rows of all images.
void copyPieces(const ImageMatrixCopyProblem& problem, const CopyPieces& pieces, const Operands& operands,
                std::int64_t begin, std::int64_t end) {
  switch (bytesPerChannel(problem.images.format)) {
    case 1:
      copyPiecesOf<std::uint8_t>(problem, pieces, operands, begin, end);
      break;
    case 2:
      copyPiecesOf<std::uint16_t>(problem, pieces, operands, begin, end);
      break;
    default:
      copyPiecesOf<std::uint32_t>(problem, pieces, operands, begin, end);
  }
  if (pieces.isNonTemporal) hwy::FlushStream();
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mps::detail {
namespace {

HWY_EXPORT(copyPieces);

/// What a piece may have: its lines of memory are read again for each block of channels.
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 18U;
constexpr std::int64_t kMostPixels = 512;
/// Bytes below which another thread does not pay.
constexpr std::int64_t kGrainBytes = 65536;

class ImageMatrixCopyPlan final : public Plan {
 public:
  explicit ImageMatrixCopyPlan(const ImageMatrixCopyProblem& problem) : problem_(problem) {
    // Evenly spaced pixels of an image are one row, so that short rows do not make short pieces.
    TensorShape& images = problem_.images;
    if (images.rowStride == images.width * images.pixelStride) {
      images.width *= images.height;
      images.rowStride *= images.height;
      images.height = 1;
    }
    pieces_.pixels =
        std::clamp<std::int64_t>(kPieceBytes / std::max<std::int64_t>(1, pixelBytes()), 16,
                                 std::min(kMostPixels, std::max<std::int64_t>(16, images.width)));
    pieces_.count = (images.width + pieces_.pixels - 1) / pieces_.pixels;
    pieces_.isNonTemporal = usesNonTemporalStores(2 * images.bytes());
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& images = problem_.images;
    const std::int64_t pieceBytes = pieces_.pixels * pixelBytes();
    mtl::cpu::asCpu(stream).parallelFor(
        images.images * images.height * pieces_.count,
        kGrainBytes / std::max<std::int64_t>(1, pieceBytes) + 1, [&](std::int64_t begin, std::int64_t end) {
          HWY_DYNAMIC_DISPATCH(copyPieces)(problem_, pieces_, operands, begin, end);
        });
  }

 private:
  [[nodiscard]] std::int64_t pixelBytes() const {
    return problem_.images.channels * static_cast<std::int64_t>(bytesPerChannel(problem_.images.format));
  }

  ImageMatrixCopyProblem problem_;
  CopyPieces pieces_;
};

Preparation prepareCopy(const ImageMatrixCopyProblem& problem) {
  return std::make_shared<const ImageMatrixCopyPlan>(problem);
}

}  // namespace

std::span<const Implementation<ImageMatrixCopyProblem>> imageMatrixCopyImplementationsCpu() {
  static constexpr Implementation<ImageMatrixCopyProblem> implementations[] = {
      {"transpose or copy", prepareCopy}};
  return implementations;
}

std::string ImageMatrixCopyProblem::describe() const {
  const std::string image = "images " + images.describe();
  const std::string rows = "matrix " + matrix.describe();
  return (toMatrix ? image + " to " + rows : rows + " to " + image) +
         (channelsFirst ? ", channels first" : ", channels last");
}

}  // namespace mps::detail
#endif
