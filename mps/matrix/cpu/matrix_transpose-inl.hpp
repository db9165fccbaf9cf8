// Blocks of matrices, transposed, once per instruction set. Include it after hwy/highway.h in a file that
// hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

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

/// Transposes a square of as many elements as 16 bytes have: each round interleaves its upper and its lower rows. The
/// indices i... are those of the upper rows; written out, so that the rows stay in registers.
template <class Bits, std::size_t... i>
HWY_INLINE void transposeSquare(const Bits* from, std::int64_t fromStride, Bits* to, std::int64_t toStride,
                                std::index_sequence<i...> /*upper*/) {
  const hn::Full128<Bits> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::size_t kUpper = sizeof...(i);
  const auto row = [](std::size_t index, std::int64_t stride) {
    return static_cast<std::int64_t>(index) * stride;
  };
  V low[kUpper] = {hn::LoadU(d, from + row(i, fromStride))...};
  V high[kUpper] = {hn::LoadU(d, from + row(i + kUpper, fromStride))...};
  const auto interleave = [&]() HWY_ATTR {
    V mixed[2 * kUpper];
    ((mixed[2 * i] = hn::InterleaveLower(d, low[i], high[i]),
      mixed[2 * i + 1] = hn::InterleaveUpper(d, low[i], high[i])),
     ...);
    ((low[i] = mixed[i], high[i] = mixed[i + kUpper]), ...);
  };
  interleave();
  interleave();
  if constexpr (kUpper > 2) interleave();
  if constexpr (kUpper > 4) interleave();
  (hn::StoreU(low[i], d, to + row(i, toStride)), ...);
  (hn::StoreU(high[i], d, to + row(i + kUpper, toStride)), ...);
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

#else

template <class Bits, class Before>
HWY_INLINE void transposeBlock(const Bits* from, std::int64_t fromStride, std::int64_t rows,
                               std::int64_t columns, Bits* to, Before&& before) {
  before(rows);
  transposeElements(from, fromStride, rows, columns, to, rows);
}

#endif

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
