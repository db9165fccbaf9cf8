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

/// Row by row of the destination.
class CopyPlan final : public Plan {
 public:
  explicit CopyPlan(const MatrixCopyProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const std::int64_t rows = problem_.destinationIsTransposed ? problem_.columns : problem_.rows;
    const std::int64_t columns = problem_.destinationIsTransposed ? problem_.rows : problem_.columns;
    const std::int64_t grain = kGrain / std::max<std::int64_t>(1, columns) + 1;
    mtl::cpu::asCpu(stream).parallelFor(rows, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) copyRow(operands, row, columns);
    });
  }

 private:
  static std::uint32_t indexAt(const Operands& operands, std::size_t parameter, std::int64_t place) {
    return reinterpret_cast<const std::uint32_t*>(operands.parameters[parameter])[place];
  }

  void copyRow(const Operands& operands, std::int64_t row, std::int64_t columns) const {
    const TensorShape& source = problem_.source;
    const TensorShape& destination = problem_.destination;
    const std::size_t size = bytesPerChannel(destination.format);
    const bool exchanges = problem_.sourceIsTransposed != problem_.destinationIsTransposed;
    const std::int64_t y =
        indexAt(operands, 0, 2) + (problem_.hasRowIndices ? indexAt(operands, 1, row) : row);
    if (y >= destination.height) return;
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::int64_t sourceY = indexAt(operands, 0, 0) + (exchanges ? column : row);
      const std::int64_t sourceX = indexAt(operands, 0, 1) + (exchanges ? row : column);
      const std::int64_t x =
          indexAt(operands, 0, 3) + (problem_.hasColumnIndices ? indexAt(operands, 2, column) : column);
      if (sourceY >= source.height || sourceX >= source.channels || x >= destination.channels) continue;
      std::memcpy(operands.destination + static_cast<std::size_t>(destination.offset(0, y, 0, x)) * size,
                  operands.source + static_cast<std::size_t>(source.offset(0, sourceY, 0, sourceX)) * size,
                  size);
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
