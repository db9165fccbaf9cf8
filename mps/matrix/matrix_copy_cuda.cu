#include <algorithm>
#include <cstdint>
#include <memory>

#include "mps/core/rows_cuda.cuh"
#include "mps/matrix/matrix_problem.hpp"
#include "mps/matrix/matrix_transpose_cuda.cuh"
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

/// Rows stay rows. A thread copies the elements of 16 bytes, together where both places are a multiple of 16.
template <class Bits>
__global__ void copyRows(cuda::RowGrid grid, CopyArguments a, const Bits* source, Bits* destination) {
  constexpr std::int64_t lanes = 16 / sizeof(Bits);
  const Corner corner(a);
  cuda::forEachRow(grid, [&](std::int64_t row) {
    const std::int64_t sourceY = corner.sourceY + row;
    const std::int64_t y = corner.y + (a.rowIndices != nullptr ? a.rowIndices[row] : row);
    if (sourceY >= a.sourceHeight || y >= a.height) return;
    const Bits* const from = source + sourceY * a.sourceStride;
    Bits* const to = destination + y * a.stride;
    cuda::forEachPiece(grid, [&](std::int64_t piece) {
      const std::int64_t first = piece * lanes;
      const std::int64_t sourceX = corner.sourceX + first;
      const std::int64_t x = corner.x + first;
      const std::int64_t end = min(lanes, a.columns - first);
      if (end == lanes && a.columnIndices == nullptr && sourceX + lanes <= a.sourceWidth &&
          x + lanes <= a.width && reinterpret_cast<std::uintptr_t>(from + sourceX) % 16 == 0 &&
          reinterpret_cast<std::uintptr_t>(to + x) % 16 == 0) {
        *reinterpret_cast<uint4*>(to + x) = *reinterpret_cast<const uint4*>(from + sourceX);
        return;
      }
      for (std::int64_t lane = 0; lane < end; ++lane) {
        const std::int64_t place =
            a.columnIndices != nullptr ? corner.x + a.columnIndices[first + lane] : x + lane;
        if (sourceX + lane < a.sourceWidth && place < a.width) to[place] = from[sourceX + lane];
      }
    });
  });
}

constexpr int kTile = 64;     ///< rows and columns of a block
constexpr int kTileRows = 4;  ///< that its threads copy at once

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

/// Tiles of the source in bands of some columns, so that those of the blocks that run together make long pieces of rows of
/// either matrix.
struct PackTiles {
  static constexpr std::int64_t kWidestBand = 32;

  cuda::Divider bandWidth;
  cuda::Divider tilesOfBand;
  std::int64_t count = 0;

  PackTiles(std::int64_t lines, std::int64_t columns) {
    const std::int64_t across = std::min(columns, kWidestBand);
    bandWidth = cuda::Divider(across);
    tilesOfBand = cuda::Divider(lines * across);
    count = (columns + across - 1) / across * lines * across;
  }
};

/// Columns of a tile are this many times kPackColumns, so that tiles of all formats are squares.
template <class Bits>
constexpr int kTileParts = cuda::kPackLines / cuda::kPackColumns<Bits>;

/// Moves a square of kPackLines elements by way of shared memory; columns are its lines then.
/// transposePacks does the same with code of its own: it was up to 13 % slower through functions.
/// @tparam Bits of two or four bytes
/// @param load load(line, column): the pack of a line of the tile that begins at that column
/// @param store store(line, column, pack): elements of a column that begin at that line
template <class Bits, class Load, class Store>
__device__ void transposeTile(Load load, Store store) {
  constexpr int lanes = static_cast<int>(sizeof(uint4) / sizeof(Bits));
  constexpr int passes = cuda::kPackLines * cuda::kLinePacks / static_cast<int>(cuda::kPackThreads);
  constexpr int square = cuda::kLinePacks * lanes;  // lines that one pass of the way out takes
  // Packs of a line change places such that neither way has two threads of a warp in one bank.
  constexpr int parts = kTileParts<Bits>;
  constexpr int width = cuda::kPackColumns<Bits>;
  __shared__ uint4 tile[parts][cuda::kPackLines][cuda::kLinePacks];
  const auto thread = static_cast<int>(threadIdx.x);
  uint4 packs[passes][parts];
#pragma unroll
  for (int k = 0; k < passes; ++k)
#pragma unroll
    for (int part = 0; part < parts; ++part)
      packs[k][part] = load(thread / cuda::kLinePacks + k * cuda::kPackLines / passes,
                            part * width + thread % cuda::kLinePacks * lanes);
#pragma unroll
  for (int k = 0; k < passes; ++k) {
    const int line = thread / cuda::kLinePacks + k * cuda::kPackLines / passes;
#pragma unroll
    for (int part = 0; part < parts; ++part)
      tile[part][line][thread % cuda::kLinePacks ^ line / lanes % cuda::kLinePacks] = packs[k][part];
  }
  __syncthreads();
  const int group = thread % cuda::kLinePacks;  // of lines, which become a pack
  const int word = thread / cuda::kLinePacks;   // of a line
#pragma unroll
  for (int part = 0; part < parts; ++part)
#pragma unroll
    for (int first = 0; first < cuda::kPackLines; first += square) {
      unsigned words[lanes];
#pragma unroll
      for (int i = 0; i < lanes; ++i)
        words[i] = reinterpret_cast<const unsigned*>(
            &tile[part][first + group * lanes + i][word / 4 ^ group])[word % 4];
      const int line = first + group * lanes;
      if constexpr (sizeof(Bits) == 4) {
        store(line, part * width + word, uint4{words[0], words[1], words[2], words[3]});
      } else {
        const auto halvesOf = [&](unsigned which) {
          return uint4{__byte_perm(words[0], words[1], which), __byte_perm(words[2], words[3], which),
                       __byte_perm(words[4], words[5], which), __byte_perm(words[6], words[7], which)};
        };
        store(line, part * width + 2 * word, halvesOf(0x5410));
        store(line, part * width + 2 * word + 1, halvesOf(0x7632));
      }
    }
}

/// copyTiles without indices, 16 bytes at once where both places are a multiple of 16. The strides are.
template <class Bits>
__global__ void __launch_bounds__(cuda::kPackThreads)
    copyPackTiles(PackTiles tiles, CopyArguments a, const Bits* source, Bits* destination) {
  constexpr int lanes = static_cast<int>(sizeof(uint4) / sizeof(Bits));
  const std::uint32_t band = tiles.tilesOfBand.divide(blockIdx.x);
  const std::uint32_t ofBand = blockIdx.x - band * tiles.tilesOfBand.divisor();
  const std::uint32_t lineTile = tiles.bandWidth.divide(ofBand);
  const std::uint32_t columnTile = ofBand + (band - lineTile) * tiles.bandWidth.divisor();
  const std::int64_t firstLine = static_cast<std::int64_t>(lineTile) * cuda::kPackLines;
  const std::int64_t firstColumn = static_cast<std::int64_t>(columnTile) * cuda::kPackLines;
  const Corner corner(a);
  // Of the source, whose rows become columns. What lies outside of either matrix is not copied.
  const std::int64_t lines =
      min(a.columns, min(a.sourceHeight - corner.sourceY, a.width - corner.x)) - firstLine;
  const std::int64_t columns =
      min(a.rows, min(a.sourceWidth - corner.sourceX, a.height - corner.y)) - firstColumn;
  if (lines <= 0 || columns <= 0) return;
  const Bits* const from =
      source + (corner.sourceY + firstLine) * a.sourceStride + corner.sourceX + firstColumn;
  Bits* const to = destination + (corner.y + firstColumn) * a.stride + corner.x + firstLine;
  const bool takesPacks = reinterpret_cast<std::uintptr_t>(from) % 16 == 0;
  const bool givesPacks = reinterpret_cast<std::uintptr_t>(to) % 16 == 0;
  transposeTile<Bits>(
      [&](int line, int column) -> uint4 {
        if (line >= lines || column >= columns) return {0, 0, 0, 0};
        const Bits* const pack = from + line * a.sourceStride + column;
        if (takesPacks && column + lanes <= columns) return __ldcs(reinterpret_cast<const uint4*>(pack));
        const auto elements = static_cast<int>(min(columns - column, std::int64_t{lanes}));
        return cuda::loadUnits<Bits>(pack, elements * static_cast<int>(sizeof(Bits)));
      },
      [&](int line, int column, const uint4& pack) {
        if (line >= lines || column >= columns) return;
        Bits* const place = to + column * a.stride + line;
        if (givesPacks && line + lanes <= lines) {
          __stcs(reinterpret_cast<uint4*>(place), pack);
          return;
        }
        const auto elements = static_cast<int>(min(lines - line, std::int64_t{lanes}));
        cuda::storeUnits<Bits>(pack, place, elements * static_cast<int>(sizeof(Bits)));
      });
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

 private:
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
    if (problem_.sourceIsTransposed != problem_.destinationIsTransposed) {
      if constexpr (sizeof(Bits) > 1)
        if (takesPackTiles(sizeof(Bits))) return copyPacks(stream, a, source, destination);
      constexpr std::int64_t mostBlocks = 65535;
      const dim3 grid(mtl::cuda::blocksFor(a.columns, kTile),
                      static_cast<unsigned>(std::min((a.rows + kTile - 1) / kTile, mostBlocks)), copies());
      return mtl::cuda::launch(stream, copyTiles<Bits>, grid, dim3(kTile, kTileRows), 0, a, source,
                               destination);
    }
    constexpr std::int64_t lanes = 16 / sizeof(Bits);
    const cuda::RowGrid grid(a.rows, (a.columns + lanes - 1) / lanes);
    const dim3 blocks(grid.grid.x, grid.grid.y, copies());
    mtl::cuda::launch(stream, copyRows<Bits>, blocks, grid.block, 0, grid, a, source, destination);
  }

  [[nodiscard]] bool takesPackTiles(std::size_t bytes) const {
    const auto strides = static_cast<std::size_t>(arguments_.sourceStride | arguments_.stride);
    return !problem_.hasRowIndices && !problem_.hasColumnIndices && strides * bytes % 16 == 0;
  }
  template <class Bits>
  void copyPacks(mtl::Stream& stream, const CopyArguments& a, const Bits* source, Bits* destination) const {
    const auto tilesOf = [](std::int64_t size, std::int64_t side) { return (size + side - 1) / side; };
    const PackTiles tiles(tilesOf(std::min({a.columns, a.sourceHeight, a.width}), cuda::kPackLines),
                          tilesOf(std::min({a.rows, a.sourceWidth, a.height}), cuda::kPackLines));
    if (tiles.count == 0) return;
    mtl::cuda::launch(stream, copyPackTiles<Bits>, dim3(static_cast<unsigned>(tiles.count), 1, copies()),
                      dim3(cuda::kPackThreads), 0, tiles, a, source, destination);
  }

  [[nodiscard]] unsigned copies() const { return static_cast<unsigned>(problem_.copies); }

  MatrixCopyProblem problem_;
  CopyArguments arguments_{};
};

Preparation prepareElements(const MatrixCopyProblem& problem) {
  if (!cuda::RowGrid::fits(std::max(problem.rows, problem.columns), std::max(problem.rows, problem.columns)))
    return Refusal{"2^31 rows or columns"};
  return std::make_shared<const CopyPlan>(problem);
}

constexpr Implementation<MatrixCopyProblem> implementations[] = {{"elements", prepareElements}};

}  // namespace

std::span<const Implementation<MatrixCopyProblem>> matrixCopyImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
