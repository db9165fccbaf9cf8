#pragma once

#include <cstdint>

#include "mps/core/cuda/rows_cuda.cuh"

/// Copies between images and matrices with channels first: of a pixel the channels are adjacent in the image,
/// of a channel the pixels in the matrix. Blocks transpose tiles in shared memory.
namespace mps::detail::cuda {

/// Lines are what the source has adjacent elements of: pixels to the matrix, channels to the images. Their
/// elements are columns.
struct TransposeArguments {
  Divider lineTiles;
  Divider columnTiles;
  Divider width;
  std::int64_t tiles = 0;
  std::int64_t lines = 1;
  std::int64_t columns = 1;
  std::int64_t pixels = 1;  ///< of an image
  std::int64_t imageStride = 0, rowStride = 0, pixelStride = 0;
  std::int64_t matrixRowStride = 0;

  [[nodiscard]] __device__ std::int64_t inImage(std::int64_t image, std::int64_t pixel,
                                                std::int64_t channel) const {
    const std::uint32_t row = width.divide(static_cast<std::uint32_t>(pixel));
    return image * imageStride + row * rowStride + (pixel - row * width.divisor()) * pixelStride + channel;
  }
  [[nodiscard]] __device__ std::int64_t inMatrix(std::int64_t image, std::int64_t pixel,
                                                 std::int64_t channel) const {
    return image * matrixRowStride + channel * pixels + pixel;
  }
};

/// The tile of a block.
struct TransposeTile {
  std::int64_t image;
  std::int64_t firstLine;
  std::int64_t firstColumn;

  __device__ TransposeTile(const TransposeArguments& a, int lines, int columns) {
    const std::uint32_t lineTile = a.columnTiles.divide(blockIdx.x);
    const std::uint32_t number = a.lineTiles.divide(lineTile);
    image = number;
    firstLine = static_cast<std::int64_t>(lineTile - number * a.lineTiles.divisor()) * lines;
    firstColumn = static_cast<std::int64_t>(blockIdx.x - lineTile * a.columnTiles.divisor()) * columns;
  }
};

inline constexpr int kTileSide = 32;
inline constexpr int kTileRows = 8;

/// Element by element. @tparam Bits as wide as an element
template <class Bits, bool toMatrix>
__global__ void transposeElements(TransposeArguments a, const Bits* source, Bits* destination) {
  __shared__ Bits tile[kTileSide][kTileSide + 1];
  const TransposeTile at(a, kTileSide, kTileSide);
  const auto x = static_cast<int>(threadIdx.x);
  const auto y = static_cast<int>(threadIdx.y);
#pragma unroll
  for (int k = 0; k < kTileSide; k += kTileRows) {
    const std::int64_t line = at.firstLine + y + k;
    const std::int64_t column = at.firstColumn + x;
    if (line >= a.lines || column >= a.columns) continue;
    tile[y + k][x] =
        source[toMatrix ? a.inImage(at.image, line, column) : a.inMatrix(at.image, column, line)];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kTileSide; k += kTileRows) {
    const std::int64_t line = at.firstLine + x;
    const std::int64_t column = at.firstColumn + y + k;
    if (line >= a.lines || column >= a.columns) continue;
    destination[toMatrix ? a.inMatrix(at.image, line, column) : a.inImage(at.image, column, line)] =
        tile[x][y + k];
  }
}

}  // namespace mps::detail::cuda
