#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "mps/core/highway_targets.hpp"
#include "mps/matrix/matrix_problem.hpp"
#include "mtl/cpu/stream.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/matrix/matrix_image_copy_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// to[c * toStride + r] = from[r * fromStride + c].
template <class Bits>
HWY_INLINE void transposeElements(const Bits* from, std::int64_t fromStride, std::int64_t rows,
                                  std::int64_t columns, Bits* to, std::int64_t toStride) {
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t r = 0; r < rows; ++r) to[c * toStride + r] = from[r * fromStride + c];
}

#if HWY_TARGET == HWY_SCALAR

template <class Bits>
void transpose(const Bits* from, std::int64_t fromStride, std::int64_t rows, std::int64_t columns, Bits* to,
               std::int64_t toStride) {
  transposeElements(from, fromStride, rows, columns, to, toStride);
}

#else

/// Transposes a square of as many elements as 16 bytes have: each round interleaves the two halves of its
/// rows. The indices i... are those of half the rows; written out, so that the rows stay in registers.
template <class Bits, std::size_t... i>
HWY_INLINE void transposeSquare(const Bits* from, std::int64_t fromStride, Bits* to, std::int64_t toStride,
                                std::index_sequence<i...> /*half*/) {
  const hn::Full128<Bits> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::size_t kHalf = sizeof...(i);
  const auto row = [](std::size_t index, std::int64_t stride) {
    return static_cast<std::int64_t>(index) * stride;
  };
  V low[kHalf] = {hn::LoadU(d, from + row(i, fromStride))...};
  V high[kHalf] = {hn::LoadU(d, from + row(i + kHalf, fromStride))...};
  const auto interleave = [&]() HWY_ATTR {
    V mixed[2 * kHalf];
    ((mixed[2 * i] = hn::InterleaveLower(d, low[i], high[i]),
      mixed[2 * i + 1] = hn::InterleaveUpper(d, low[i], high[i])),
     ...);
    ((low[i] = mixed[i], high[i] = mixed[i + kHalf]), ...);
  };
  interleave();
  interleave();
  if constexpr (kHalf > 2) interleave();
  if constexpr (kHalf > 4) interleave();
  (hn::StoreU(low[i], d, to + row(i, toStride)), ...);
  (hn::StoreU(high[i], d, to + row(i + kHalf, toStride)), ...);
}

/// to[c * toStride + r] = from[r * fromStride + c], in blocks whose lines of memory stay in the cache.
template <class Bits>
void transpose(const Bits* from, std::int64_t fromStride, std::int64_t rows, std::int64_t columns, Bits* to,
               std::int64_t toStride) {
  constexpr std::int64_t kSide = 16 / sizeof(Bits);
  constexpr std::int64_t kBlock = 64 / sizeof(Bits);
  const std::int64_t wholeRows = rows / kSide * kSide;
  const std::int64_t wholeColumns = columns / kSide * kSide;
  for (std::int64_t block = 0; block < wholeColumns; block += kBlock) {
    const std::int64_t end = std::min(wholeColumns, block + kBlock);
    for (std::int64_t r = 0; r < wholeRows; r += kSide)
      for (std::int64_t c = block; c < end; c += kSide)
        transposeSquare(from + r * fromStride + c, fromStride, to + c * toStride + r, toStride,
                        std::make_index_sequence<kSide / 2>());
  }
  transposeElements(from + wholeColumns, fromStride, wholeRows, columns - wholeColumns,
                    to + wholeColumns * toStride, toStride);
  transposeElements(from + wholeRows * fromStride, fromStride, rows - wholeRows, columns, to + wholeRows,
                    toStride);
}

#endif

void transpose8(const std::uint8_t* from, std::int64_t fromStride, std::int64_t rows, std::int64_t columns,
                std::uint8_t* to, std::int64_t toStride) {
  transpose(from, fromStride, rows, columns, to, toStride);
}

void transpose16(const std::uint16_t* from, std::int64_t fromStride, std::int64_t rows, std::int64_t columns,
                 std::uint16_t* to, std::int64_t toStride) {
  transpose(from, fromStride, rows, columns, to, toStride);
}

void transpose32(const std::uint32_t* from, std::int64_t fromStride, std::int64_t rows, std::int64_t columns,
                 std::uint32_t* to, std::int64_t toStride) {
  transpose(from, fromStride, rows, columns, to, toStride);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mps::detail {
namespace {

HWY_EXPORT(transpose8);
HWY_EXPORT(transpose16);
HWY_EXPORT(transpose32);

void transpose(const std::uint8_t* from, std::int64_t fromStride, std::int64_t rows, std::int64_t columns,
               std::uint8_t* to, std::int64_t toStride) {
  HWY_DYNAMIC_DISPATCH(transpose8)(from, fromStride, rows, columns, to, toStride);
}
void transpose(const std::uint16_t* from, std::int64_t fromStride, std::int64_t rows, std::int64_t columns,
               std::uint16_t* to, std::int64_t toStride) {
  HWY_DYNAMIC_DISPATCH(transpose16)(from, fromStride, rows, columns, to, toStride);
}
void transpose(const std::uint32_t* from, std::int64_t fromStride, std::int64_t rows, std::int64_t columns,
               std::uint32_t* to, std::int64_t toStride) {
  HWY_DYNAMIC_DISPATCH(transpose32)(from, fromStride, rows, columns, to, toStride);
}

/// Pixels that are copied together: their channels stay in the cache while one after the other is written.
constexpr std::int64_t kPixels = 64;
/// Bytes below which another thread does not pay.
constexpr std::int64_t kGrainBytes = 65536;

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
#endif
