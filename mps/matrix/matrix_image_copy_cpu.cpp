#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "mps/matrix/matrix_problem.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

/// Pixels that are copied together: their channels stay in the cache while one after the other is written.
constexpr std::int64_t kPixels = 64;
/// A side of the squares that are transposed.
constexpr std::int64_t kSide = 16;
/// Bytes below which another thread does not pay.
constexpr std::int64_t kGrainBytes = 65536;

/// to[c * toStride + p] = from[p * fromStride + c] for `rows` values of p and `columns` of c.
template <class Bits>
void transpose(const Bits* from, std::int64_t fromStride, std::int64_t rows, std::int64_t columns, Bits* to,
               std::int64_t toStride) {
  for (std::int64_t c = 0; c < columns; c += kSide)
    for (std::int64_t p = 0; p < rows; p += kSide) {
      const std::int64_t endC = std::min(columns, c + kSide);
      const std::int64_t endP = std::min(rows, p + kSide);
      for (std::int64_t i = c; i < endC; ++i)
        for (std::int64_t j = p; j < endP; ++j) to[i * toStride + j] = from[j * fromStride + i];
    }
}

/// Copies pixels [first, first + pixels) of row y of image n.
template <class Bits>
void copyPixels(const ImageMatrixCopyProblem& problem, const Operands& operands, std::int64_t n,
                std::int64_t y, std::int64_t first, std::int64_t pixels) {
  const TensorShape& images = problem.images;
  const std::int64_t imageAt = images.offset(n, y, first, 0);
  const std::int64_t pixel = y * images.width + first;
  const std::int64_t rowAt =
      problem.matrix.offset(0, n, 0, problem.channelsFirst ? pixel : pixel * images.channels);
  const auto* from = reinterpret_cast<const Bits*>(operands.source);
  auto* to = reinterpret_cast<Bits*>(operands.destination);
  const std::int64_t plane = images.height * images.width;
  if (problem.channelsFirst && images.channels > 1 && plane > 1) {
    if (problem.toMatrix)
      transpose(from + imageAt, images.pixelStride, pixels, images.channels, to + rowAt, plane);
    else
      transpose(from + rowAt, plane, images.channels, pixels, to + imageAt, images.pixelStride);
    return;
  }
  const bool adjacent = images.pixelStride == images.channels;
  const std::int64_t run = adjacent ? pixels * images.channels : images.channels;
  for (std::int64_t p = 0; p < (adjacent ? 1 : pixels); ++p) {
    const std::int64_t inImage = imageAt + p * images.pixelStride;
    const std::int64_t inRow = rowAt + p * images.channels;
    std::memcpy(to + (problem.toMatrix ? inRow : inImage), from + (problem.toMatrix ? inImage : inRow),
                static_cast<std::size_t>(run) * sizeof(Bits));
  }
}

class ImageMatrixCopyPlan final : public Plan {
 public:
  explicit ImageMatrixCopyPlan(const ImageMatrixCopyProblem& problem) : problem_(problem) {
    // Evenly spaced pixels of an image are one row, so that short rows do not make short pieces.
    TensorShape& images = problem_.images;
    if (images.rowStride != images.width * images.pixelStride) return;
    images.width *= images.height;
    images.rowStride *= images.height;
    images.height = 1;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    switch (bytesPerChannel(problem_.images.format)) {
      case 1:
        return copy<std::uint8_t>(stream, operands);
      case 2:
        return copy<std::uint16_t>(stream, operands);
      default:
        return copy<std::uint32_t>(stream, operands);
    }
  }

 private:
  template <class Bits>
  void copy(mtl::Stream& stream, const Operands& operands) const {
    const TensorShape& images = problem_.images;
    const std::int64_t pieces = (images.width + kPixels - 1) / kPixels;
    const std::int64_t pieceBytes =
        std::min(images.width, kPixels) * images.channels * static_cast<std::int64_t>(sizeof(Bits));
    mtl::cpu::asCpu(stream).parallelFor(
        images.images * images.height * pieces, kGrainBytes / std::max<std::int64_t>(1, pieceBytes) + 1,
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t row = i / pieces;
            const std::int64_t first = i % pieces * kPixels;
            copyPixels<Bits>(problem_, operands, row / images.height, row % images.height, first,
                             std::min(kPixels, images.width - first));
          }
        });
  }

  ImageMatrixCopyProblem problem_;
};

Preparation prepareBlocks(const ImageMatrixCopyProblem& problem) {
  return std::make_shared<const ImageMatrixCopyPlan>(problem);
}

constexpr Implementation<ImageMatrixCopyProblem> kImplementations[] = {{"blocks", prepareBlocks}};

}  // namespace

std::span<const Implementation<ImageMatrixCopyProblem>> imageMatrixCopyImplementationsCpu() {
  return kImplementations;
}

std::string ImageMatrixCopyProblem::describe() const {
  const std::string image = "images " + images.describe();
  const std::string rows = "matrix " + matrix.describe();
  return (toMatrix ? image + " to " + rows : rows + " to " + image) +
         (channelsFirst ? ", channels first" : ", channels last");
}

}  // namespace mps::detail
