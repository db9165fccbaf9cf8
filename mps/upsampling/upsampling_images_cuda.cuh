#pragma once

#include <cuda_pipeline.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "mps/upsampling/upsampling_packs_cuda.cuh"
#include "mtl/cuda/api.hpp"

/// Small images of few channels without gaps that get at least twice as large: a block has some rows of an image, and all
/// that these are made of in shared memory. Its threads wait once or twice, not in each row.
namespace mps::detail::cuda {

/// What a kernel does: Repeat and Upsample store results, Gather the gradient of the source.
enum class ImageWork { Repeat, Upsample, Gather };
inline constexpr int kMostImageReaders = 6;  ///< results of a row or column that a pixel gives shares to

struct ImageArguments {
  Divider channels;
  Divider packs;   ///< of a row of results
  Divider chunks;  ///< of the rows of an image
  std::int32_t images = 0;
  std::int32_t imageStep = 0;  ///< from an image of a block to its next one
  std::int32_t rowsPerChunk = 0;
  std::int32_t rowsOfThread = 0;
  std::int32_t groups = 0;                        ///< threads of a pack of a row
  std::int32_t height = 0;                        ///< of the destination
  std::int32_t inputRow = 0, destinationRow = 0;  ///< elements
  std::int64_t inputImage = 0, destinationImage = 0;
  std::int32_t originX = 0, originY = 0;
  std::int32_t mostInputRows = 0;  ///< of a chunk
  static constexpr std::int64_t kMostChunks = 16;
  Readers inputRows[kMostChunks] = {};  ///< what each chunk reads
  bool accumulate = false;
  const std::byte* input = nullptr;
  std::byte* destination = nullptr;
  AxisTables x;
  AxisTables y;
  unsigned threads = 0;
  unsigned blocks = 0;
  std::size_t sharedBytes = 0;

  static constexpr std::int64_t kMostThreads = 192;
  static constexpr std::size_t kMostBytes = std::size_t{44} << 10;

  /// @param results their shape, or that of their gradients @param pixels of the source @param lanes elements of a pack
  /// @param rows their tables, as the host has them
  /// @return whether kernels may be started
  bool setGrid(const TensorShape& results, const TensorShape& pixels, std::int64_t lanes,
               const AxisTables& rows, ImageWork work);
  /// Blocks go from image to image: their tables take long beside a single one.
  /// @param waves how many times as many blocks there are as a GPU has room for: where they wait for memory most of the time,
  /// those that begin together should not stay together
  void keepBlocks(const void* kernel, int waves);

 private:
  [[nodiscard]] Readers inputRowsOf(const AxisTables& rows, std::int32_t begin, std::int32_t end,
                                    bool isForward) const;
};

/// Elements of a row of float32 with a gap behind each `lanes` elements.
__host__ __device__ constexpr std::int32_t withGaps(std::int32_t elements, std::int32_t lanes) {
  return elements + elements / lanes;
}

/// What a row of the destination is the sum of: input rows from `begin` on, counted in packs from the block's first one.
template <int most>
struct RowWeights {
  std::int32_t begin;
  float weights[most];
};

inline Readers ImageArguments::inputRowsOf(const AxisTables& rows, std::int32_t begin, std::int32_t end,
                                           bool isForward) const {
  if (isForward) return {rows.samples[begin].first, rows.samples[end - 1].second + 1};
  Readers all{rows.results, 0};
  for (std::int32_t y = begin; y < end; ++y) {
    const Readers& readers = rows.readers[y];
    if (readers.begin >= readers.end) continue;
    all = {std::min(all.begin, readers.begin), std::max(all.end, readers.end)};
  }
  return all.begin < all.end ? all : Readers{0, 0};
}

inline bool ImageArguments::setGrid(const TensorShape& results, const TensorShape& pixels, std::int64_t lanes,
                                    const AxisTables& rows, ImageWork work) {
  const bool isForward = work != ImageWork::Gather;
  const TensorShape& from = isForward ? pixels : results;
  const TensorShape& to = isForward ? results : pixels;
  const std::int64_t row = results.width * results.channels / lanes;
  const std::int64_t elements = pixels.width * pixels.channels;
  if (row == 0 || row > kMostThreads || elements > row * lanes / 2 || !from.isDense() || !to.isDense())
    return false;
  inputRow = static_cast<std::int32_t>(from.rowStride);
  destinationRow = static_cast<std::int32_t>(to.rowStride);
  inputImage = from.imageStride;
  destinationImage = to.imageStride;
  height = static_cast<std::int32_t>(to.height);
  for (std::int64_t count = 1; count <= kMostChunks; ++count) {
    rowsPerChunk = static_cast<std::int32_t>((to.height + count - 1) / count);
    const std::int64_t chunksOfImage = (to.height + rowsPerChunk - 1) / rowsPerChunk;
    mostInputRows = 0;
    for (std::int64_t chunk = 0; chunk < chunksOfImage; ++chunk) {
      const auto begin = static_cast<std::int32_t>(chunk * rowsPerChunk);
      inputRows[chunk] = inputRowsOf(rows, begin, std::min(begin + rowsPerChunk, height), isForward);
      mostInputRows = std::max(mostInputRows, inputRows[chunk].end - inputRows[chunk].begin);
    }
    const auto bytesOf = [](std::int64_t rowsHeld, std::int64_t bytesOfRow) {
      return static_cast<std::size_t>((rowsHeld * bytesOfRow + 15) / 16 * 16);
    };
    const std::size_t inputBytes = bytesOf(mostInputRows, inputRow * (16 / lanes));
    constexpr std::int64_t bytesOfFloat = sizeof(float);
    switch (work) {
      case ImageWork::Repeat:
        sharedBytes = inputBytes;
        break;
      case ImageWork::Upsample:
        sharedBytes =
            inputBytes +
            bytesOf(mostInputRows, withGaps(inputRow, static_cast<std::int32_t>(lanes) / 2) * bytesOfFloat);
        break;
      case ImageWork::Gather:
        sharedBytes =
            inputBytes +
            bytesOf(rowsPerChunk, withGaps(inputRow, static_cast<std::int32_t>(lanes)) * bytesOfFloat) +
            static_cast<std::size_t>(rowsPerChunk) * sizeof(RowWeights<kMostImageReaders>);
        break;
    }
    if (sharedBytes > kMostBytes) continue;
    if (to.images * chunksOfImage > 0x3FFFFFFF) return false;
    chunks = Divider(chunksOfImage);
    images = imageStep = static_cast<std::int32_t>(to.images);
    blocks = static_cast<unsigned>(to.images * chunksOfImage);
    const std::int64_t most =
        std::max<std::int64_t>(1, kMostThreads / (work == ImageWork::Upsample && lanes == 8 ? 2 : 1) / row);
    rowsOfThread = static_cast<std::int32_t>((rowsPerChunk + most - 1) / most);
    groups = static_cast<std::int32_t>((rowsPerChunk + rowsOfThread - 1) / rowsOfThread);
    threads = static_cast<unsigned>(groups * row);
    packs = Divider(row);
    channels = Divider(results.channels);
    return true;
  }
  return false;
}

inline void ImageArguments::keepBlocks(const void* kernel, int waves) {
  const int processors = mtl::cuda::attributeOfDevice(cudaDevAttrMultiProcessorCount);
  int blocksOfProcessor = 0;
  mtl::cuda::check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocksOfProcessor, kernel,
                                                                 static_cast<int>(threads), sharedBytes),
                   "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  const auto chunksOfImage = static_cast<std::int32_t>(chunks.divisor());
  imageStep = std::clamp(waves * processors * blocksOfProcessor / chunksOfImage, 1, images);
  blocks = static_cast<unsigned>(imageStep * chunksOfImage);
}

/// Which rows of which images a block has, and which pack of a row a thread.
struct ImageBlock {
  std::int32_t image;       ///< the first one
  std::int32_t begin, end;  ///< rows
  Readers input;            ///< rows
  std::int32_t pack;
  std::int32_t group;

  __device__ explicit ImageBlock(const ImageArguments& a) {
    const std::uint32_t of = a.chunks.divide(blockIdx.x);
    image = static_cast<std::int32_t>(of);
    const auto chunk = static_cast<std::int32_t>(blockIdx.x - of * a.chunks.divisor());
    input = a.inputRows[chunk];
    begin = chunk * a.rowsPerChunk;
    end = min(begin + a.rowsPerChunk, a.height);
    const std::uint32_t ofThread = a.packs.divide(threadIdx.x);
    group = static_cast<std::int32_t>(ofThread);
    pack = static_cast<std::int32_t>(threadIdx.x - ofThread * a.packs.divisor());
  }
};

/// Copies the input rows of a block to shared memory, eight bytes at once.
template <class T>
__device__ void requestRows(const ImageArguments& a, const ImageBlock& block, std::int32_t image, uint2* to) {
  constexpr int few = HalfPack<T>::lanes;
  const auto* const from = reinterpret_cast<const uint2*>(
      reinterpret_cast<const T*>(a.input) + image * a.inputImage + block.input.begin * a.inputRow);
  const std::int32_t count = (block.input.end - block.input.begin) * a.inputRow / few;
  for (auto i = static_cast<std::int32_t>(threadIdx.x); i < count; i += static_cast<std::int32_t>(blockDim.x))
    __pipeline_memcpy_async(to + i, from + i, sizeof(uint2));
  __pipeline_commit();
}

/// Nearest pixels. What a block stores at once is a stretch of memory.
template <class T>
__global__ void __launch_bounds__(ImageArguments::kMostThreads)
    repeatImages(const __grid_constant__ ImageArguments a) {
  constexpr int lanes = kLanes<T>;
  extern __shared__ uint4 memory[];
  const ImageBlock work(a);
  requestRows<T>(a, work, work.image, reinterpret_cast<uint2*>(memory));
  std::int32_t elements[lanes];  // of a row of the input; below 0: none
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) {
    const std::int32_t element = work.pack * lanes + lane;
    const auto x = static_cast<std::int32_t>(a.channels.divide(static_cast<std::uint32_t>(element)));
    const Samples column = a.x.samples[x];
    const auto width = static_cast<std::int32_t>(a.channels.divisor());
    elements[lane] = column.firstWeight != 0 ? column.first * width + element - x * width : -1;
  }
  __pipeline_wait_prior(0);
  __syncthreads();
  const T* const pixels = reinterpret_cast<const T*>(memory) - work.input.begin * a.inputRow;
  T* to = reinterpret_cast<T*>(a.destination) + work.image * a.destinationImage +
          (work.begin + work.group) * a.destinationRow + work.pack * lanes;
  for (std::int32_t y = work.begin + work.group; y < work.end; y += a.groups) {
    const Samples row = a.y.at(y);
    const T* const from = pixels + row.first * a.inputRow;
    T values[lanes] = {};
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane)
      if (row.firstWeight != 0 && elements[lane] >= 0) values[lane] = from[elements[lane]];
    uint4 pack;
    memcpy(&pack, values, sizeof pack);
    *reinterpret_cast<uint4*>(to) = pack;
    to += a.groups * a.destinationRow;
  }
}

/// Sums of columns stay in registers while rows are made of them.
template <class T>
__global__ void __launch_bounds__(ImageArguments::kMostThreads, 4)
    upsampleImages(const __grid_constant__ ImageArguments a) {
  constexpr int lanes = kLanes<T>;
  constexpr int few = HalfPack<T>::lanes;
  extern __shared__ uint4 memory[];
  const ImageBlock work(a);
  const std::int32_t firstRow = work.input.begin;
  const std::int32_t halfPacks = (work.input.end - firstRow) * a.inputRow / few;
  auto* const raw = reinterpret_cast<uint2*>(memory);
  auto* const pixels = reinterpret_cast<float*>(memory + (a.mostInputRows * a.inputRow + lanes - 1) / lanes);
  requestRows<T>(a, work, work.image, raw);
  // What counts nothing is not looked at: the 0 in a gap is.
  std::int32_t firsts[lanes];
  std::int32_t seconds[lanes];
  float firstWeights[lanes];
  float secondWeights[lanes];
  const std::int32_t rowFloats = withGaps(a.inputRow, few);
  const auto width = static_cast<std::int32_t>(a.channels.divisor());
#pragma unroll
  for (int i = 0; i < lanes; ++i) {
    const std::int32_t element = work.pack * lanes + i;
    const auto x = static_cast<std::int32_t>(a.channels.divide(static_cast<std::uint32_t>(element)));
    const Samples samples = a.x.samples[x];
    const auto placeOf = [&](std::int32_t pixel, float weight) {
      const std::int32_t place = weight != 0 ? withGaps(pixel * width + element - x * width, few) : few;
      return place * static_cast<std::int32_t>(sizeof(float));
    };
    firsts[i] = placeOf(samples.first, samples.firstWeight);
    seconds[i] = placeOf(samples.second, samples.secondWeight);
    firstWeights[i] = samples.firstWeight;
    secondWeights[i] = samples.secondWeight;
  }
  const auto sumOf = [&](std::int32_t row, float(&sums)[lanes]) {
    const float* const at = pixels + (row - firstRow) * rowFloats;
#pragma unroll
    for (int i = 0; i < lanes; ++i)
      sums[i] =
          fmaf(secondWeights[i], PackWork::at(at, seconds[i]), firstWeights[i] * PackWork::at(at, firsts[i]));
  };
  const std::int32_t begin = work.begin + work.group * a.rowsOfThread;
  const std::int32_t end = min(begin + a.rowsOfThread, work.end);
  for (std::int32_t image = work.image; image < a.images; image += a.imageStep) {
    __pipeline_wait_prior(0);
    __syncthreads();
    for (auto i = static_cast<std::int32_t>(threadIdx.x); i < halfPacks;
         i += static_cast<std::int32_t>(blockDim.x)) {
      const HalfPack<T> values = halfPackOf(raw[i], static_cast<const T*>(nullptr));
#pragma unroll
      for (int k = 0; k < few; ++k) pixels[i * (few + 1) + k] = values.values[k];
      pixels[i * (few + 1) + few] = 0;
    }
    __syncthreads();
    if (image + a.imageStep < a.images) requestRows<T>(a, work, image + a.imageStep, raw);
    T* to = reinterpret_cast<T*>(a.destination) + image * a.destinationImage + begin * a.destinationRow +
            work.pack * lanes;
    float firstSum[lanes] = {};
    float secondSum[lanes] = {};
    std::int32_t firstHeld = -1;
    std::int32_t secondHeld = -1;
    Samples next = a.y.at(begin);
#pragma unroll 1
    for (std::int32_t y = begin; y < end; ++y) {
      const Samples rows = next;
      next = a.y.at(y + 1);
      Lanes<T> sum{};
      if (rows.firstWeight != 0) {
        if (firstHeld != rows.first) {
          if (secondHeld == rows.first) {
#pragma unroll
            for (int i = 0; i < lanes; ++i) firstSum[i] = secondSum[i];
          } else {
            sumOf(rows.first, firstSum);
          }
        }
        firstHeld = rows.first;
#pragma unroll
        for (int i = 0; i < lanes; ++i) sum.values[i] = rows.firstWeight * firstSum[i];
      }
      if (rows.secondWeight != 0) {
        if (secondHeld != rows.second) sumOf(rows.second, secondSum);
        secondHeld = rows.second;
#pragma unroll
        for (int i = 0; i < lanes; ++i) sum.values[i] = fmaf(rows.secondWeight, secondSum[i], sum.values[i]);
      }
      storeLanes(sum, to);
      to += a.destinationRow;
    }
  }
}

/// Sums of rows first, through shared memory those of columns. @tparam most results of a row or column that a pixel gives
/// shares to
template <class T, int most>
__global__ void __launch_bounds__(ImageArguments::kMostThreads, most > 4 ? 2 : 5)
    gatherImages(const __grid_constant__ ImageArguments a) {
  constexpr int lanes = kLanes<T>;
  constexpr int few = HalfPack<T>::lanes;
  extern __shared__ uint4 memory[];
  const ImageBlock work(a);
  const auto packs = static_cast<std::int32_t>(a.packs.divisor());
  const std::int32_t rowFloats = withGaps(a.inputRow, lanes);
  const std::int32_t firstRow = work.input.begin;
  auto* const sums = reinterpret_cast<float*>(memory + a.mostInputRows * packs);
  auto* const rowWeights = reinterpret_cast<RowWeights<most>*>(sums + a.rowsPerChunk * rowFloats);
  const auto request = [&](std::int32_t image) {
    const auto* const from =
        reinterpret_cast<const uint4*>(reinterpret_cast<const T*>(a.input) + image * a.inputImage) +
        firstRow * packs;
    for (auto i = static_cast<std::int32_t>(threadIdx.x); i < (work.input.end - firstRow) * packs;
         i += static_cast<std::int32_t>(blockDim.x))
      __pipeline_memcpy_async(memory + i, from + i, sizeof(uint4));
    __pipeline_commit();
  };
  request(work.image);
  for (std::int32_t y = work.begin + static_cast<std::int32_t>(threadIdx.x); y < work.end;
       y += static_cast<std::int32_t>(blockDim.x)) {
    const Readers readers = a.y.readers[y];
    RowWeights<most>& row = rowWeights[y - work.begin];
    row.begin = (readers.begin - firstRow) * packs;
#pragma unroll
    for (int k = 0; k < most; ++k)
      row.weights[k] =
          readers.begin + k < readers.end ? weightOf(a.y.at(readers.begin + k), y + a.originY) : 0.0F;
  }
  // What counts nothing is not looked at: the 0 in a gap is.
  std::int32_t places[few][most];
  float weights[few][most];
  const auto width = static_cast<std::int32_t>(a.channels.divisor());
  const bool isInside = work.pack * few < a.destinationRow;
#pragma unroll
  for (int i = 0; i < few; ++i) {
    const std::int32_t element = work.pack * few + i;
    const auto x = static_cast<std::int32_t>(a.channels.divide(static_cast<std::uint32_t>(element)));
    const Readers readers = isInside ? a.x.readers[x] : Readers{0, 0};
#pragma unroll
    for (int k = 0; k < most; ++k) {
      const std::int32_t result = readers.begin + k;
      weights[i][k] = result < readers.end ? weightOf(a.x.at(result), x + a.originX) : 0.0F;
      places[i][k] = weights[i][k] != 0 ? withGaps(result * width + element - x * width, lanes) : lanes;
    }
  }
  const std::int32_t rows = work.end - work.begin;
  for (std::int32_t image = work.image; image < a.images; image += a.imageStep) {
    __pipeline_wait_prior(0);
    __syncthreads();
    for (std::int32_t y = work.group; y < rows; y += a.groups) {
      const RowWeights<most>& row = rowWeights[y];
      const uint4* const at = memory + row.begin + work.pack;
      float sum[lanes] = {};
#pragma unroll
      for (int k = 0; k < most; ++k) {
        const float weight = row.weights[k];
        if (weight == 0) continue;
        const uint4 fetched = at[k * packs];
        const Lanes<T> values = lanesOf(fetched, static_cast<const T*>(nullptr));
#pragma unroll
        for (int i = 0; i < lanes; ++i) sum[i] = fmaf(weight, values.values[i], sum[i]);
      }
      float* const to = sums + y * rowFloats + work.pack * (lanes + 1);
#pragma unroll
      for (int i = 0; i < lanes; ++i) to[i] = sum[i];
      if (work.pack == 0) to[lanes] = 0;
    }
    __syncthreads();
    if (image + a.imageStep < a.images) request(image + a.imageStep);
    if (!isInside) continue;
    T* to = reinterpret_cast<T*>(a.destination) + image * a.destinationImage +
            (work.begin + work.group) * a.destinationRow + work.pack * few;
    for (std::int32_t y = work.group; y < rows; y += a.groups) {
      const float* const row = sums + y * rowFloats;
      HalfPack<T> result{};
#pragma unroll
      for (int i = 0; i < few; ++i)
#pragma unroll
        for (int k = 0; k < most; ++k)
          result.values[i] = fmaf(weights[i][k], row[places[i][k]], result.values[i]);
      auto* const at = reinterpret_cast<uint2*>(to);
      if (a.accumulate) {
        const HalfPack<T> old = halfPackOf(*at, static_cast<const T*>(nullptr));
#pragma unroll
        for (int i = 0; i < few; ++i) result.values[i] += old.values[i];
      }
      *at = bitsOf(result);
      to += a.groups * a.destinationRow;
    }
  }
}

}  // namespace mps::detail::cuda
