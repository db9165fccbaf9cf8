#include <algorithm>
#include <cstdint>
#include <memory>

#include "mps/core/cuda/rows_cuda.cuh"
#include "mps/matrix/matrix_problem.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

/// blockIdx.z goes over copies.
struct CopyArguments {
  std::int64_t rows, columns;  ///< of the destination
  std::int64_t sourceHeight, sourceWidth, sourceStride;
  std::int64_t height, width, stride;
  const std::uint32_t* offsets;     ///< four of each copy
  const std::uint32_t* rowIndices;  ///< null: none
  const std::uint32_t* columnIndices;
};

/// The first row and column of what a copy reads and of what it writes, as they are when a kernel begins: what it stores
/// might be they, for all that a compiler knows.
struct Corner {
  std::int64_t sourceY, sourceX, y, x;

  __device__ explicit Corner(const CopyArguments& a) : Corner(a.offsets + std::size_t{4} * blockIdx.z) {}

 private:
  __device__ explicit Corner(const std::uint32_t* offsets)
      : sourceY(offsets[0]), sourceX(offsets[1]), y(offsets[2]), x(offsets[3]) {}
};

constexpr std::int64_t kPiecesPerThread = 4;

/// Rows stay rows. Adjacent threads copy adjacent elements.
template <class Bits>
__global__ void copyRows(cuda::RowGrid grid, CopyArguments a, const Bits* source, Bits* destination) {
  const Corner corner(a);
  cuda::forEachRow(grid, [&](std::int64_t row) {
    const std::int64_t sourceY = corner.sourceY + row;
    const std::int64_t y = corner.y + (a.rowIndices != nullptr ? a.rowIndices[row] : row);
    if (sourceY >= a.sourceHeight || y >= a.height) return;
    cuda::forEachPiece(grid, [&](std::int64_t column) {
      const std::int64_t sourceX = corner.sourceX + column;
      const std::int64_t x = corner.x + (a.columnIndices != nullptr ? a.columnIndices[column] : column);
      if (sourceX < a.sourceWidth && x < a.width)
        destination[y * a.stride + x] = source[sourceY * a.sourceStride + sourceX];
    });
  });
}

constexpr int kTile = 32;     ///< rows and columns of a block
constexpr int kTileRows = 8;  ///< that its threads copy at once

/// Rows become columns, by way of a tile in shared memory. blockIdx.x goes over tiles of columns, y over those of rows.
template <class Bits>
__global__ void __launch_bounds__(kTile* kTileRows)
    copyTiles(CopyArguments a, const Bits* source, Bits* destination) {
  __shared__ Bits tile[kTile][kTile + 1];
  const Corner corner(a);
  // What lies outside of the source is not copied.
  const std::int64_t columns = min(a.columns, a.sourceHeight - corner.sourceY);
  const std::int64_t rows = min(a.rows, a.sourceWidth - corner.sourceX);
  const std::int64_t firstColumn = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const std::int64_t column = firstColumn + threadIdx.x;
  const std::int64_t x = column >= columns            ? a.width
                         : a.columnIndices != nullptr ? corner.x + a.columnIndices[column]
                                                      : corner.x + column;
  for (std::int64_t firstRow = static_cast<std::int64_t>(blockIdx.y) * kTile; firstRow < rows;
       firstRow += static_cast<std::int64_t>(gridDim.y) * kTile) {
    const Bits* from = source + (corner.sourceY + firstColumn + threadIdx.y) * a.sourceStride +
                       corner.sourceX + firstRow + threadIdx.x;
    const bool hasRow = firstRow + threadIdx.x < rows;
#pragma unroll
    for (int i = 0; i < kTile; i += kTileRows) {
      const int inTile = i + static_cast<int>(threadIdx.y);
      if (hasRow && firstColumn + inTile < columns) tile[inTile][threadIdx.x] = *from;
      from += kTileRows * a.sourceStride;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile; i += kTileRows) {
      const int inTile = i + static_cast<int>(threadIdx.y);
      const std::int64_t row = firstRow + inTile;
      if (row >= rows || x >= a.width) continue;
      const std::int64_t y = corner.y + (a.rowIndices != nullptr ? a.rowIndices[row] : row);
      if (y < a.height) destination[y * a.stride + x] = tile[threadIdx.x][inTile];
    }
    __syncthreads();
  }
}

class CopyPlan final : public Plan {
 public:
  explicit CopyPlan(const MatrixCopyProblem& problem) : problem_(problem) {
    const TensorShape& source = problem.source;
    const TensorShape& destination = problem.destination;
    arguments_.rows = problem.destinationIsTransposed ? problem.columns : problem.rows;
    arguments_.columns = problem.destinationIsTransposed ? problem.rows : problem.columns;
    arguments_.sourceHeight = source.height;
    arguments_.sourceWidth = source.channels;
    arguments_.sourceStride = source.rowStride;
    arguments_.height = destination.height;
    arguments_.width = destination.channels;
    arguments_.stride = destination.rowStride;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    switch (bytesPerChannel(problem_.destination.format)) {
      case 1:
        return copy<std::uint8_t>(stream, operands);
      case 2:
        return copy<std::uint16_t>(stream, operands);
      default:
        return copy<std::uint32_t>(stream, operands);
    }
  }

  [[nodiscard]] std::string describe() const override {
    return transposes() ? "tile 32x32" : "grid-stride loop";
  }

 private:
  [[nodiscard]] bool transposes() const {
    return problem_.sourceIsTransposed != problem_.destinationIsTransposed;
  }
  template <class Bits>
  void copy(mtl::Stream& stream, const Operands& operands) const {
    const auto indices = [&](std::size_t parameter) {
      return reinterpret_cast<const std::uint32_t*>(operands.parameters[parameter]);
    };
    CopyArguments a = arguments_;
    if (a.rows * a.columns == 0) return;
    a.offsets = indices(0);
    if (problem_.hasRowIndices) a.rowIndices = indices(1);
    if (problem_.hasColumnIndices) a.columnIndices = indices(2);
    const auto* const source = reinterpret_cast<const Bits*>(operands.source);
    auto* const destination = reinterpret_cast<Bits*>(operands.destination);
    if (transposes()) {
      constexpr std::int64_t mostBlocks = 65535;
      const dim3 grid(mtl::cuda::blocksFor(a.columns, kTile),
                      static_cast<unsigned>(std::min((a.rows + kTile - 1) / kTile, mostBlocks)), copies());
      return mtl::cuda::launch(stream, copyTiles<Bits>, grid, dim3(kTile, kTileRows), 0, a, source,
                               destination);
    }
    const cuda::RowGrid grid(a.rows, a.columns, kPiecesPerThread);
    const dim3 blocks(grid.grid.x, grid.grid.y, copies());
    mtl::cuda::launch(stream, copyRows<Bits>, blocks, grid.block, 0, grid, a, source, destination);
  }

  [[nodiscard]] unsigned copies() const { return static_cast<unsigned>(problem_.copies); }

  MatrixCopyProblem problem_;
  CopyArguments arguments_{};
};

Preparation prepareCopy(const MatrixCopyProblem& problem) {
  if (!cuda::RowGrid::fits(std::max(problem.rows, problem.columns), std::max(problem.rows, problem.columns)))
    return Refusal{"2^31 rows or columns"};
  return std::make_shared<const CopyPlan>(problem);
}

constexpr Implementation<MatrixCopyProblem> implementations[] = {{"copy", prepareCopy}};

}  // namespace

std::span<const Implementation<MatrixCopyProblem>> matrixCopyImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
