// Blocks of matrices, transposed, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_MATRIX_MATRIX_TRANSPOSE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_MATRIX_MATRIX_TRANSPOSE_INL_HPP
#undef UNMETAL_MPS_MATRIX_MATRIX_TRANSPOSE_INL_HPP
#else
#define UNMETAL_MPS_MATRIX_MATRIX_TRANSPOSE_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <utility>

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

#if HWY_TARGET != HWY_SCALAR

/// Stores the blocks of 16 bytes of a vector, `stride` elements apart.
template <class D, class Bits = hn::TFromD<D>>
HWY_INLINE void storeBlocks(D d, hn::Vec<D> value, Bits* to, std::int64_t stride) {
  constexpr std::size_t bytes = hn::MaxLanes(D()) * sizeof(Bits);
  if constexpr (bytes == 16) {
    hn::StoreU(value, d, to);
  } else {
    const hn::Half<D> half;
    constexpr auto blocks = static_cast<std::int64_t>(bytes / 16 / 2);
    storeBlocks(half, hn::LowerHalf(half, value), to, stride);
    storeBlocks(half, hn::UpperHalf(half, value), to + blocks * stride, stride);
  }
}

/// Transposes squares of as many elements as 16 bytes have, side by side in vectors of D: each round interleaves the two
/// halves of their rows. The indices i... are those of half the rows; written out, so that the rows stay in registers.
template <class D, class Bits, std::size_t... i>
HWY_INLINE void transposeSquares(D d, const Bits* from, std::int64_t fromStride, Bits* to,
                                 std::int64_t toStride, std::index_sequence<i...> /*half*/) {
  using V = hn::Vec<D>;
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
  const std::int64_t square = row(2 * kHalf, toStride);
  (storeBlocks(d, low[i], to + row(i, toStride), square), ...);
  (storeBlocks(d, high[i], to + row(i + kHalf, toStride), square), ...);
}

/// The same of one square.
template <class Bits, std::size_t... i>
HWY_INLINE void transposeSquare(const Bits* from, std::int64_t fromStride, Bits* to, std::int64_t toStride,
                                std::index_sequence<i...> half) {
  transposeSquares(hn::Full128<Bits>(), from, fromStride, to, toStride, half);
}

/// to[c * rows + r] = from[r * fromStride + c].
/// @param before before(n) is called ahead of n more rows, but for a rest
template <class Bits, class Before>
HWY_INLINE void transposeBlock(const Bits* from, std::int64_t fromStride, std::int64_t rows,
                               std::int64_t columns, Bits* to, Before&& before) {
  constexpr std::int64_t kSide = 16 / sizeof(Bits);
  const std::int64_t wholeRows = rows / kSide * kSide;
  const std::int64_t wholeColumns = columns / kSide * kSide;
  for (std::int64_t r = 0; r < wholeRows; r += kSide) {
    before(kSide);
    for (std::int64_t c = 0; c < wholeColumns; c += kSide)
      transposeSquare(from + r * fromStride + c, fromStride, to + c * rows + r, rows,
                      std::make_index_sequence<kSide / 2>());
  }
  transposeElements(from + wholeColumns, fromStride, wholeRows, columns - wholeColumns,
                    to + wholeColumns * rows, rows);
  transposeElements(from + wholeRows * fromStride, fromStride, rows - wholeRows, columns, to + wholeRows,
                    rows);
}

/// The same for more columns than the first cache has lines: each vector is read once, and what fills lines of `to` is
/// written before the next columns.
template <class Bits>
HWY_INLINE void transposeManyColumns(const Bits* from, std::int64_t fromStride, std::int64_t rows,
                                     std::int64_t columns, Bits* to) {
  const hn::ScalableTag<Bits> d;
  constexpr std::int64_t side = 16 / sizeof(Bits);
  constexpr std::int64_t together = 64 / sizeof(Bits);
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t wholeRows = rows / together * together;
  const std::int64_t wholeColumns = columns / step * step;
  for (std::int64_t first = 0; first < wholeRows; first += together)
    for (std::int64_t c = 0; c < wholeColumns; c += step)
      for (std::int64_t r = first; r < first + together; r += side) {
        const Bits* const square = from + r * fromStride + c;
        for (std::int64_t k = 0; k < side; ++k)
          __builtin_prefetch(square + (together + k) * fromStride, 0, 2);
        transposeSquares(d, square, fromStride, to + c * rows + r, rows,
                         std::make_index_sequence<side / 2>());
      }
  transposeElements(from + wholeColumns, fromStride, wholeRows, columns - wholeColumns,
                    to + wholeColumns * rows, rows);
  transposeElements(from + wholeRows * fromStride, fromStride, rows - wholeRows, columns, to + wholeRows,
                    rows);
}

#else

template <class Bits, class Before>
HWY_INLINE void transposeBlock(const Bits* from, std::int64_t fromStride, std::int64_t rows,
                               std::int64_t columns, Bits* to, Before&& before) {
  before(rows);
  transposeElements(from, fromStride, rows, columns, to, rows);
}

template <class Bits>
HWY_INLINE void transposeManyColumns(const Bits* from, std::int64_t fromStride, std::int64_t rows,
                                     std::int64_t columns, Bits* to) {
  transposeElements(from, fromStride, rows, columns, to, rows);
}

#endif

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
