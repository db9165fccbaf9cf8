#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>

#include "mps/matrix/matrix_problem.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

constexpr std::int64_t kGrain = 16384;  ///< elements that a thread takes at least
/// What is exchanged together: rows of the destination that are so many bytes of the source's rows, and their columns.
/// Rows lie in pages of their own: fewer bytes of each cost more of looking up pages than of memory.
constexpr std::int64_t kTileBytes = 256;
constexpr std::int64_t kTileColumns = 64;

/// A few rows of the destination after the other.
class CopyPlan final : public Plan {
 public:
  explicit CopyPlan(const MatrixCopyProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const std::int64_t rows = problem_.destinationIsTransposed ? problem_.columns : problem_.rows;
    const std::int64_t columns = problem_.destinationIsTransposed ? problem_.rows : problem_.columns;
    const auto size = static_cast<std::int64_t>(bytesPerChannel(problem_.destination.format));
    const std::int64_t tileRows = kTileBytes / size;
    const std::int64_t tiles = (rows + tileRows - 1) / tileRows;
    const std::int64_t grain = kGrain / (tileRows * std::max<std::int64_t>(1, columns)) + 1;
    mtl::cpu::asCpu(stream).parallelFor(tiles, grain, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t first = begin * tileRows;
      const std::int64_t last = std::min(end * tileRows, rows);
      switch (size) {
        case 1:
          return copyRows<std::uint8_t>(operands, first, last, columns);
        case 2:
          return copyRows<std::uint16_t>(operands, first, last, columns);
        default:
          return copyRows<std::uint32_t>(operands, first, last, columns);
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

  template <class Bits>
  void copyRows(const Operands& operands, std::int64_t begin, std::int64_t end, std::int64_t columns) const {
    const bool exchanges = problem_.sourceIsTransposed != problem_.destinationIsTransposed;
    if (problem_.hasColumnIndices) {
      for (std::int64_t row = begin; row < end; ++row) copyElements<Bits>(operands, row, columns);
      return;
    }
    // Nothing is left out within these.
    const std::int64_t sourceY = indexAt(operands, 0, 0);
    const std::int64_t sourceX = indexAt(operands, 0, 1);
    const std::int64_t sourceRows = problem_.source.height - sourceY;
    const std::int64_t sourceColumns = problem_.source.channels - sourceX;
    columns = std::min({columns, exchanges ? sourceRows : sourceColumns,
                        problem_.destination.channels - std::int64_t{indexAt(operands, 0, 3)}});
    end = std::min(end, exchanges ? sourceColumns : sourceRows);
    if (columns <= 0) return;
    if (!exchanges) {
      for (std::int64_t row = begin; row < end; ++row)
        if (Bits* to = destinationAt<Bits>(operands, row))
          std::memcpy(to, sourceAt<Bits>(operands, sourceY + row, sourceX),
                      static_cast<std::size_t>(columns) * sizeof(Bits));
      return;
    }
    constexpr std::int64_t tileRows = kTileBytes / std::int64_t{sizeof(Bits)};
    for (std::int64_t row = begin; row < end; row += tileRows)
      for (std::int64_t column = 0; column < columns; column += kTileColumns)
        exchangeTile<Bits>(operands, row, std::min(tileRows, end - row), column,
                           std::min(kTileColumns, columns - column));
  }

  template <class Bits>
  void exchangeTile(const Operands& operands, std::int64_t row, std::int64_t rows, std::int64_t column,
                    std::int64_t columns) const {
    std::array<std::array<Bits, kTileColumns>, kTileBytes / sizeof(Bits)> tile;
    const std::int64_t sourceY = indexAt(operands, 0, 0) + column;
    const std::int64_t sourceX = indexAt(operands, 0, 1) + row;
    for (std::int64_t i = 0; i < columns; ++i) {
      const Bits* const from = sourceAt<Bits>(operands, sourceY + i, sourceX);
      for (std::int64_t j = 0; j < rows; ++j)
        tile[static_cast<std::size_t>(j)][static_cast<std::size_t>(i)] = from[j];
    }
    for (std::int64_t j = 0; j < rows; ++j)
      if (Bits* to = destinationAt<Bits>(operands, row + j))
        std::copy_n(tile[static_cast<std::size_t>(j)].data(), columns, to + column);
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

Preparation prepareRows(const MatrixCopyProblem& problem) {
  return std::make_shared<const CopyPlan>(problem);
}

constexpr std::array<Implementation<MatrixCopyProblem>, 1> kImplementations{{{"rows", prepareRows}}};

}  // namespace

std::string MatrixCopyProblem::describe() const {
  std::string text =
      "copy of " + std::to_string(rows) + "x" + std::to_string(columns) + " of " + source.describe();
  if (sourceIsTransposed) text += " transposed";
  text += " into " + destination.describe();
  if (destinationIsTransposed) text += " transposed";
  if (hasRowIndices) text += ", rows permuted";
  if (hasColumnIndices) text += ", columns permuted";
  return text;
}

std::span<const Implementation<MatrixCopyProblem>> matrixCopyImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail
