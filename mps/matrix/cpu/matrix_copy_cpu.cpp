#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/core/image/pixel_copy.hpp"
#include "mps/matrix/matrix_problem.hpp"
#include "mtl/cpu/stream.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/matrix/cpu/matrix_copy_cpu.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/matrix/cpu/matrix_transpose-inl.hpp"

#ifndef UNMETAL_MPS_MATRIX_COPY_TILES
#define UNMETAL_MPS_MATRIX_COPY_TILES
namespace mps::detail {
namespace {

constexpr std::int64_t kLineBytes = 64;

/// Rows of the destination that are exchanged together, a line of a cache of each: they stay in the first cache.
/// @param size of an element, in bytes
constexpr std::int64_t rowsTogether(std::int64_t size) {
  return 1024 / size;
}

/// Rows that are `stride` elements apart.
template <class Bits>
struct SourceRows {
  const Bits* first;
  std::int64_t stride;
  std::int64_t count;
};

}  // namespace
}  // namespace mps::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Stores whole vectors, with non-temporal stores if that is asked for, and the rest.
template <class Bits>
HWY_INLINE void storeRow(const Bits* from, std::int64_t count, Bits* to, bool isNonTemporal) {
  const hn::ScalableTag<Bits> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  if (isNonTemporal && reinterpret_cast<std::uintptr_t>(to) % (hn::Lanes(d) * sizeof(Bits)) == 0)
    for (; i + step <= count; i += step) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  else
    for (; i + step <= count; i += step) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  for (; i < count; ++i) to[i] = from[i];
}

/// Tile by tile: to[c][r] = from.first[r * from.stride + c], where to[c] is not null.
template <class Bits>
void transposeRowsOf(const SourceRows<Bits>& from, std::int64_t columns, bool isNonTemporal,
                     Bits* const* to) {
  constexpr std::int64_t line = kLineBytes / std::int64_t{sizeof(Bits)};
  alignas(kLineBytes) Bits tile[rowsTogether(sizeof(Bits)) * line];
  for (std::int64_t r = 0; r < from.count; r += line) {
    const std::int64_t count = std::min(line, from.count - r);
    transposeBlock(from.first + r * from.stride, from.stride, count, columns, tile,
                   [](std::int64_t /*rows*/) {});
    for (std::int64_t c = 0; c < columns; ++c)
      if (to[c] != nullptr) storeRow(tile + c * count, count, to[c] + r, isNonTemporal);
  }
}

void transposeRows8(const SourceRows<std::uint8_t>& from, std::int64_t columns, bool isNonTemporal,
                    std::uint8_t* const* to) {
  transposeRowsOf(from, columns, isNonTemporal, to);
}
void transposeRows16(const SourceRows<std::uint16_t>& from, std::int64_t columns, bool isNonTemporal,
                     std::uint16_t* const* to) {
  transposeRowsOf(from, columns, isNonTemporal, to);
}
void transposeRows32(const SourceRows<std::uint32_t>& from, std::int64_t columns, bool isNonTemporal,
                     std::uint32_t* const* to) {
  transposeRowsOf(from, columns, isNonTemporal, to);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {
namespace {

HWY_EXPORT(transposeRows8);
HWY_EXPORT(transposeRows16);
HWY_EXPORT(transposeRows32);

constexpr std::int64_t kGrain = 16384;  ///< elements that a thread takes at least
/// A few rows of the destination after the other.
class CopyPlan final : public Plan {
 public:
  explicit CopyPlan(const MatrixCopyProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const std::int64_t rows = problem_.destinationIsTransposed ? problem_.columns : problem_.rows;
    const std::int64_t columns = problem_.destinationIsTransposed ? problem_.rows : problem_.columns;
    const auto size = static_cast<std::int64_t>(bytesPerChannel(problem_.destination.format));
    const std::int64_t step = kLineBytes / size;  // so that no two threads read a line
    const std::int64_t steps = (rows + step - 1) / step;
    const std::int64_t grain = kGrain / (step * std::max<std::int64_t>(1, columns)) + 1;
    mtl::cpu::asCpu(stream).parallelFor(
        problem_.copies * steps, grain, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t at = begin; at < end;) {
            const std::int64_t copy = at / steps;
            const std::int64_t next = std::min(end, (copy + 1) * steps);
            Operands ofCopy = operands;
            ofCopy.parameters[0] += copy * std::int64_t{4 * sizeof(std::uint32_t)};
            copyRowsOf(size, ofCopy, (at - copy * steps) * step, std::min((next - copy * steps) * step, rows),
                       columns);
            at = next;
          }
        });
  }

 private:
  static std::uint32_t indexAt(const Operands& operands, std::size_t parameter, std::int64_t place) {
    return reinterpret_cast<const std::uint32_t*>(operands.parameters[parameter])[place];
  }
  [[nodiscard]] std::int64_t destinationRow(const Operands& operands, std::int64_t row) const {
    return indexAt(operands, 0, 2) + (problem_.hasRowIndices ? indexAt(operands, 1, row) : row);
  }

  void copyRowsOf(std::int64_t size, const Operands& operands, std::int64_t begin, std::int64_t end,
                  std::int64_t columns) const {
    switch (size) {
      case 1:
        return copyRows<std::uint8_t>(operands, begin, end, columns);
      case 2:
        return copyRows<std::uint16_t>(operands, begin, end, columns);
      default:
        return copyRows<std::uint32_t>(operands, begin, end, columns);
    }
  }

  template <class Bits>
  void copyRows(const Operands& operands, std::int64_t begin, std::int64_t end, std::int64_t columns) const {
    const bool exchanges = problem_.sourceIsTransposed != problem_.destinationIsTransposed;
    if (problem_.hasColumnIndices) {
      for (std::int64_t row = begin; row < end; ++row) copyElements<Bits>(operands, row, columns);
      return;
    }
    // Nothing is left out within these. Offsets are those of the copy.
    const std::int64_t sourceY = indexAt(operands, 0, 0);
    const std::int64_t sourceX = indexAt(operands, 0, 1);
    const std::int64_t sourceRows = problem_.source.height - sourceY;
    const std::int64_t sourceColumns = problem_.source.channels - sourceX;
    columns = std::min({columns, exchanges ? sourceRows : sourceColumns,
                        problem_.destination.channels - std::int64_t{indexAt(operands, 0, 3)}});
    end = std::min(end, exchanges ? sourceColumns : sourceRows);
    if (columns <= 0) return;
    if (exchanges) return exchangeRows<Bits>(operands, begin, end, columns);
    PixelCopy copy;
    copy.inputFormat = copy.destinationFormat = problem_.destination.format;
    copy.channels = columns;
    copy.isNonTemporal = usesNonTemporalStores(2 * problem_.copies * problem_.rows * problem_.columns *
                                               std::int64_t{sizeof(Bits)});
    for (std::int64_t row = begin; row < end; ++row)
      if (Bits* to = destinationAt<Bits>(operands, row))
        copyPixels(copy, reinterpret_cast<const std::byte*>(sourceAt<Bits>(operands, sourceY + row, sourceX)),
                   reinterpret_cast<std::byte*>(to), 1);
    if (copy.isNonTemporal) finishNonTemporalStores();
  }

  /// A few rows of the destination at a time. A part of a matrix that is larger than the caches has non-temporal stores,
  /// too: the matrix's other parts will have taken its place.
  template <class Bits>
  void exchangeRows(const Operands& operands, std::int64_t begin, std::int64_t end,
                    std::int64_t columns) const {
    constexpr std::int64_t together = rowsTogether(sizeof(Bits));
    const bool isNonTemporal =
        usesNonTemporalStoresForRows(2 * problem_.destination.bytes(), problem_.destination);
    std::array<Bits*, static_cast<std::size_t>(together)> to;
    for (std::int64_t row = begin; row < end; row += together) {
      const std::int64_t rows = std::min(together, end - row);
      for (std::int64_t i = 0; i < rows; ++i)
        to[static_cast<std::size_t>(i)] = destinationAt<Bits>(operands, row + i);
      const Bits* const from =
          sourceAt<Bits>(operands, indexAt(operands, 0, 0), indexAt(operands, 0, 1) + row);
      transpose(SourceRows<Bits>{from, problem_.source.rowStride, columns}, rows, isNonTemporal, to.data());
    }
    if (isNonTemporal) finishNonTemporalStores();
  }

  static void transpose(const SourceRows<std::uint8_t>& from, std::int64_t columns, bool isNonTemporal,
                        std::uint8_t* const* to) {
    HWY_DYNAMIC_DISPATCH(transposeRows8)(from, columns, isNonTemporal, to);
  }
  static void transpose(const SourceRows<std::uint16_t>& from, std::int64_t columns, bool isNonTemporal,
                        std::uint16_t* const* to) {
    HWY_DYNAMIC_DISPATCH(transposeRows16)(from, columns, isNonTemporal, to);
  }
  static void transpose(const SourceRows<std::uint32_t>& from, std::int64_t columns, bool isNonTemporal,
                        std::uint32_t* const* to) {
    HWY_DYNAMIC_DISPATCH(transposeRows32)(from, columns, isNonTemporal, to);
  }

  /// Row `row` of the copy, from its first column on; null where the destination has none.
  template <class Bits>
  [[nodiscard]] Bits* destinationAt(const Operands& operands, std::int64_t row) const {
    const TensorShape& destination = problem_.destination;
    const std::int64_t y = destinationRow(operands, row);
    if (y >= destination.height) return nullptr;
    return reinterpret_cast<Bits*>(operands.destination) +
           destination.offset(0, y, 0, indexAt(operands, 0, 3));
  }
  template <class Bits>
  [[nodiscard]] const Bits* sourceAt(const Operands& operands, std::int64_t y, std::int64_t x) const {
    return reinterpret_cast<const Bits*>(operands.source) + problem_.source.offset(0, y, 0, x);
  }

  /// A row whose columns are permuted.
  template <class Bits>
  void copyElements(const Operands& operands, std::int64_t row, std::int64_t columns) const {
    const TensorShape& source = problem_.source;
    const TensorShape& destination = problem_.destination;
    const bool exchanges = problem_.sourceIsTransposed != problem_.destinationIsTransposed;
    const std::int64_t y = destinationRow(operands, row);
    if (y >= destination.height) return;
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t sourceY = indexAt(operands, 0, 0) + (exchanges ? column : row);
      const std::int64_t sourceX = indexAt(operands, 0, 1) + (exchanges ? row : column);
      const std::int64_t x = std::int64_t{indexAt(operands, 0, 3)} + indexAt(operands, 2, column);
      if (sourceY >= source.height || sourceX >= source.channels || x >= destination.channels) continue;
      reinterpret_cast<Bits*>(operands.destination)[destination.offset(0, y, 0, x)] =
          *sourceAt<Bits>(operands, sourceY, sourceX);
    }
  }

  MatrixCopyProblem problem_;
};

Preparation prepareCopy(const MatrixCopyProblem& problem) {
  return std::make_shared<const CopyPlan>(problem);
}

}  // namespace

std::string MatrixCopyProblem::describe() const {
  std::string text =
      "copy of " + std::to_string(rows) + "x" + std::to_string(columns) + " of " + source.describe();
  if (sourceIsTransposed) text += " transposed";
  text += " into " + destination.describe();
  if (destinationIsTransposed) text += " transposed";
  if (hasRowIndices) text += ", rows permuted";
  if (hasColumnIndices) text += ", columns permuted";
  if (copies > 1) text += ", " + std::to_string(copies) + " times";
  return text;
}

std::span<const Implementation<MatrixCopyProblem>> matrixCopyImplementationsCpu() {
  static constexpr std::array<Implementation<MatrixCopyProblem>, 1> implementations{{{"copy", prepareCopy}}};
  return implementations;
}

}  // namespace mps::detail

#endif  // HWY_ONCE
