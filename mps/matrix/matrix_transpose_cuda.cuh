#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "mps/core/rows_cuda.cuh"

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

// Sixteen bytes at once. The image side is a multiple of 16 bytes everywhere, the matrix side of `unit`.

/// Up to 16 bytes of the matrix. @param bytes that are there, a multiple of `unit`
template <class Unit>
__device__ uint4 loadUnits(const void* from, int bytes) {
  constexpr int count = static_cast<int>(sizeof(uint4) / sizeof(Unit));
  Unit units[count]{};
#pragma unroll
  for (int i = 0; i < count; ++i)
    if (i * static_cast<int>(sizeof(Unit)) < bytes) units[i] = static_cast<const Unit*>(from)[i];
  uint4 pack;
  memcpy(&pack, units, sizeof pack);
  return pack;
}
template <class Unit>
__device__ void storeUnits(const uint4& pack, void* to, int bytes) {
  constexpr int count = static_cast<int>(sizeof(uint4) / sizeof(Unit));
  Unit units[count];
  memcpy(units, &pack, sizeof pack);
#pragma unroll
  for (int i = 0; i < count; ++i)
    if (i * static_cast<int>(sizeof(Unit)) < bytes) static_cast<Unit*>(to)[i] = units[i];
}
__device__ inline uint4 loadPack(const void* from, int bytes, int unit) {
  switch (unit) {
    case 16:
      return loadUnits<uint4>(from, bytes);
    case 8:
      return loadUnits<uint2>(from, bytes);
    case 4:
      return loadUnits<unsigned>(from, bytes);
    default:
      return loadUnits<std::uint16_t>(from, bytes);
  }
}
__device__ inline void storePack(const uint4& pack, void* to, int bytes, int unit) {
  switch (unit) {
    case 16:
      return storeUnits<uint4>(pack, to, bytes);
    case 8:
      return storeUnits<uint2>(pack, to, bytes);
    case 4:
      return storeUnits<unsigned>(pack, to, bytes);
    default:
      return storeUnits<std::uint16_t>(pack, to, bytes);
  }
}

inline constexpr unsigned kPackThreads = 256;
inline constexpr int kPackLines = 64;
inline constexpr int kLinePacks = 8;  ///< of a tile
/// Columns of a tile: 8 packs.
template <class Bits>
inline constexpr int kPackColumns = kLinePacks* static_cast<int>(sizeof(uint4) / sizeof(Bits));

/// @tparam Bits of two or four bytes
template <class Bits, bool toMatrix>
__global__ void __launch_bounds__(kPackThreads)
    transposePacks(TransposeArguments a, int unit, const Bits* source, Bits* destination) {
  constexpr int lanes = static_cast<int>(sizeof(uint4) / sizeof(Bits));
  constexpr int passes = kPackLines * kLinePacks / static_cast<int>(kPackThreads);
  constexpr int square = kLinePacks * lanes;  // lines that one pass of the way out takes
  // Packs of a line change places such that neither way has two threads of a warp in one bank.
  __shared__ uint4 tile[kPackLines][kLinePacks];
  const TransposeTile at(a, kPackLines, kPackColumns<Bits>);
  const auto thread = static_cast<int>(threadIdx.x);
  const auto bytesOf = [](std::int64_t elements) {
    return static_cast<int>(min(elements, std::int64_t{lanes}) * static_cast<std::int64_t>(sizeof(Bits)));
  };
  uint4 packs[passes];
#pragma unroll
  for (int k = 0; k < passes; ++k) {
    const std::int64_t line = at.firstLine + thread / kLinePacks + k * kPackLines / passes;
    const std::int64_t column = at.firstColumn + thread % kLinePacks * lanes;
    packs[k] = {0, 0, 0, 0};
    if (line >= a.lines || column >= a.columns) continue;
    if constexpr (toMatrix)
      packs[k] = *reinterpret_cast<const uint4*>(source + a.inImage(at.image, line, column));
    else
      packs[k] = loadPack(source + a.inMatrix(at.image, column, line), bytesOf(a.columns - column), unit);
  }
#pragma unroll
  for (int k = 0; k < passes; ++k) {
    const int line = thread / kLinePacks + k * kPackLines / passes;
    tile[line][thread % kLinePacks ^ line / lanes % kLinePacks] = packs[k];
  }
  __syncthreads();
  const auto store = [&](std::int64_t line, std::int64_t column, const uint4& pack) {
    if (line >= a.lines || column >= a.columns) return;
    if constexpr (toMatrix)
      storePack(pack, destination + a.inMatrix(at.image, line, column), bytesOf(a.lines - line), unit);
    else
      *reinterpret_cast<uint4*>(destination + a.inImage(at.image, column, line)) = pack;
  };
  const int group = thread % kLinePacks;  // of lines, which become a pack
  const int word = thread / kLinePacks;   // of a line
#pragma unroll
  for (int first = 0; first < kPackLines; first += square) {
    unsigned words[lanes];
#pragma unroll
    for (int i = 0; i < lanes; ++i)
      words[i] =
          reinterpret_cast<const unsigned*>(&tile[first + group * lanes + i][word / 4 ^ group])[word % 4];
    const std::int64_t line = at.firstLine + first + group * lanes;
    if constexpr (sizeof(Bits) == 4) {
      store(line, at.firstColumn + word, {words[0], words[1], words[2], words[3]});
    } else {
      const std::int64_t column = at.firstColumn + 2 * word;
      const auto halvesOf = [&](unsigned which) {
        return uint4{__byte_perm(words[0], words[1], which), __byte_perm(words[2], words[3], which),
                     __byte_perm(words[4], words[5], which), __byte_perm(words[6], words[7], which)};
      };
      store(line, column, halvesOf(0x5410));
      store(line, column + 1, halvesOf(0x7632));
    }
  }
}

// Small images to the matrix: a block takes all pixels of 128 bytes of channels, so that what it writes is one stretch.

/// Pixels of `channels` channels, transposed, in shared memory: words of 4 bytes, with 1 or 2 pixels.
template <class Bits>
struct WholeTile {
  static constexpr int lanes = static_cast<int>(sizeof(uint4) / sizeof(Bits));
  static constexpr int channels = kLinePacks * lanes;
  static constexpr int pixelsOfWord = static_cast<int>(sizeof(unsigned) / sizeof(Bits));
  static constexpr int pixelsOfUnit = 4;             ///< what a thread stores at once
  static constexpr std::int64_t kMostPixels = 4096;  ///< so that the numbers below are small
  static constexpr std::size_t kMostBytes = std::size_t{48} << 10U;

  /// Words of a channel: all banks, so that the places below decide on the bank alone.
  __host__ __device__ static int pitch(std::int64_t pixels) {
    return static_cast<int>((pixels + 32 * pixelsOfWord - 1) / (32 * pixelsOfWord)) * 32;
  }
  static std::size_t bytes(std::int64_t pixels) {
    return static_cast<std::size_t>(pitch(pixels)) * channels * sizeof(unsigned);
  }
  /// Four words stay together, and change places such that the packs of a pixel do not share banks.
  __device__ static int place(int pitch, int channel, int word) {
    return channel * pitch + (word ^ channel / lanes * 4);
  }
};

template <class Bits>
__global__ void __launch_bounds__(kPackThreads)
    transposeWhole(TransposeArguments a, Divider units, const Bits* source, Bits* destination) {
  using Tile = WholeTile<Bits>;
  constexpr int lanes = Tile::lanes;
  constexpr int pixelsOfWord = Tile::pixelsOfWord;
  extern __shared__ uint4 wholeTile[];
  auto* const words = reinterpret_cast<unsigned*>(wholeTile);
  const TransposeTile at(a, static_cast<int>(a.lines), Tile::channels);
  const auto pixels = static_cast<int>(a.lines);
  const int pitch = Tile::pitch(a.lines);
  const auto thread = static_cast<int>(threadIdx.x);
  const int pack = thread % kLinePacks;
  const std::int64_t column = at.firstColumn + pack * lanes;
  if (column < a.columns) {
#pragma unroll 4
    for (int word = thread / kLinePacks; word * pixelsOfWord < pixels;
         word += static_cast<int>(kPackThreads) / kLinePacks) {
      uint4 packs[pixelsOfWord];
#pragma unroll
      for (int i = 0; i < pixelsOfWord; ++i)
        packs[i] =
            *reinterpret_cast<const uint4*>(source + a.inImage(at.image, word * pixelsOfWord + i, column));
      unsigned parts[pixelsOfWord][4];
      memcpy(parts, packs, sizeof parts);
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        unsigned& to = words[Tile::place(pitch, pack * lanes + lane, word)];
        if constexpr (pixelsOfWord == 1)
          to = parts[0][lane];
        else
          to = __byte_perm(parts[0][lane / 2], parts[1][lane / 2], lane % 2 == 0 ? 0x5410 : 0x7632);
      }
    }
  }
  __syncthreads();
  const auto columnsLeft = static_cast<int>(min(a.columns - at.firstColumn, std::int64_t{Tile::channels}));
  Bits* const to = destination + a.inMatrix(at.image, 0, at.firstColumn);
  const std::uint32_t count = units.divisor() * static_cast<std::uint32_t>(columnsLeft);
#pragma unroll 4
  for (std::uint32_t unit = threadIdx.x; unit < count; unit += kPackThreads) {
    const std::uint32_t channel = units.divide(unit);
    const std::uint32_t ofChannel = unit - channel * units.divisor();
    constexpr int wordsOfUnit = Tile::pixelsOfUnit / pixelsOfWord;
    const int place =
        Tile::place(pitch, static_cast<int>(channel), static_cast<int>(ofChannel) * wordsOfUnit);
    using Unit = std::conditional_t<wordsOfUnit == 4, uint4, uint2>;
    reinterpret_cast<Unit*>(to)[unit] = *reinterpret_cast<const Unit*>(words + place);
  }
}

}  // namespace mps::detail::cuda
