#pragma once

#include <cuda_pipeline.h>

#include <algorithm>
#include <cstdint>

#include "mps/upsampling/cuda/upsampling_cuda.cuh"

/// Dense rows of pixels of few channels that become at least twice as long: a thread for each 16 bytes of a row of results,
/// or of their gradients, and for 8 bytes of a row of source pixels. The threads of a row go down some rows of an image and
/// exchange columns through shared memory. A block has the same rows of some images.
namespace mps::detail::cuda {

inline constexpr std::int64_t kFewChannelThreads = 256;  ///< of a block, at most

/// The rows of the input one after the other, some of which are on their way to shared memory. A thread sees its own
/// elements. @tparam Vector uint4, or uint2 of source pixels
template <class T, class Vector>
class RowStream {
 public:
  static constexpr int depth = 4;

  /// @param from the elements in row 0 @param ring of `threads` vectors for each row on its way, this thread's first
  /// @param end of the rows that are wanted, so that none beyond it is loaded; 0: none is, and all count as 0
  __device__ RowStream(const T* from, std::int64_t stride, Vector* ring, unsigned threads, std::int32_t end)
      : from_(from), ring_(ring), stride_(stride), threads_(threads), end_(end) {}
  __device__ Vector get(std::int32_t row) {
    if (row != next_) {
      __pipeline_wait_prior(0);
      requested_ = from_ + row * stride_;
      for (std::int32_t i = 0; i < depth - 1; ++i) request(row + i);
    }
    request(row + depth - 1);
    next_ = row + 1;
    __pipeline_wait_prior(depth - 1);
    return row < end_ ? *slot(row) : Vector{};
  }

 private:
  [[nodiscard]] __device__ Vector* slot(std::int32_t row) const {
    return ring_ + static_cast<unsigned>(row) % depth * threads_;
  }
  __device__ void request(std::int32_t row) {
    if (row < end_) __pipeline_memcpy_async(slot(row), requested_, sizeof(Vector));
    __pipeline_commit();
    requested_ += stride_;
  }

  const T* from_;
  const T* requested_ = nullptr;  ///< what is requested next
  Vector* ring_;
  std::int64_t stride_;
  unsigned threads_;
  std::int32_t end_;
  std::int32_t next_ = -1;
};

/// Eight bytes of elements of type T, float or Float16, as float32.
template <class T>
struct EightBytes {
  static constexpr int lanes = kLanes<T> / 2;
  float values[lanes];
};
__device__ inline EightBytes<float> eightBytesOf(uint2 bits, const float* /*type*/) {
  return {{__uint_as_float(bits.x), __uint_as_float(bits.y)}};
}
__device__ inline EightBytes<Float16> eightBytesOf(uint2 bits, const Float16* /*type*/) {
  const float2 a = float2Of(bits.x);
  const float2 b = float2Of(bits.y);
  return {{a.x, a.y, b.x, b.y}};
}
__device__ inline uint2 bitsOf(const EightBytes<float>& some) {
  return {__float_as_uint(some.values[0]), __float_as_uint(some.values[1])};
}
__device__ inline uint2 bitsOf(const EightBytes<Float16>& some) {
  return {toHalves(some.values[0], some.values[1]), toHalves(some.values[2], some.values[3])};
}

struct FewChannelArguments {
  Divider channels;
  Divider vectors;  ///< of 16 bytes in a row of results
  Divider chunks;   ///< of the rows of an image
  std::uint32_t images = 0, imagesPerBlock = 1;
  std::int32_t rowsPerChunk = 0;
  std::int32_t height = 0;    ///< of the destination
  std::int32_t elements = 0;  ///< of a row of source pixels
  std::int32_t originX = 0, originY = 0;
  bool accumulate = false;
  SourceView input;
  ResultView destination;
  AxisTables x;
  AxisTables y;
  unsigned threads = 0;
  unsigned blocks = 0;
  std::size_t sharedBytes = 0;

  /// Rows that are on their way to a thread.
  static constexpr int kDepth = RowStream<float, uint4>::depth;

  /// @param results their shape, or that of their gradients @param pixels of the source @param lanes elements of 16 bytes
  /// @return whether kernels may be started
  bool setGrid(const TensorShape& results, const TensorShape& pixels, std::int64_t lanes, bool isForward) {
    const std::int64_t row = results.width * results.channels / lanes;
    elements = static_cast<std::int32_t>(pixels.width * pixels.channels);
    if (row == 0 || row > kFewChannelThreads || elements > row * lanes / 2) return false;
    const TensorShape& destination = isForward ? results : pixels;
    // Small blocks: their threads wait for one another in each row.
    imagesPerBlock = static_cast<std::uint32_t>(std::max<std::int64_t>(1, kFewChannelThreads / 2 / row));
    // Enough threads for a large GPU come first.
    constexpr std::int64_t enough = std::int64_t{1} << 18;
    const std::int64_t rows =
        std::clamp<std::int64_t>(destination.height * destination.images * row / enough, 8, 64);
    const std::int64_t count = (destination.height + rows - 1) / rows;
    rowsPerChunk = static_cast<std::int32_t>((destination.height + count - 1) / count);
    chunks = Divider((destination.height + rowsPerChunk - 1) / rowsPerChunk);
    channels = Divider(results.channels);
    vectors = Divider(row);
    images = static_cast<std::uint32_t>(destination.images);
    height = static_cast<std::int32_t>(destination.height);
    threads = static_cast<unsigned>(imagesPerBlock * row);
    const std::int64_t groups = (destination.images + imagesPerBlock - 1) / imagesPerBlock;
    if (groups * chunks.divisor() > 0x7FFFFFFF) return false;
    blocks = static_cast<unsigned>(groups * chunks.divisor());
    const std::int64_t floats =
        isForward ? floatsOfRow(elements, lanes / 2) : floatsOfRow(row * lanes, lanes);
    sharedBytes = static_cast<std::size_t>(2 * imagesPerBlock * floats) * sizeof(float) +
                  static_cast<std::size_t>(kDepth * threads) * (isForward ? sizeof(uint2) : sizeof(uint4));
    return true;
  }
  /// A row in shared memory has a gap behind each `lanes` elements, so that threads next to one another find them in
  /// different banks; behind the row there is a 0.
  static __host__ __device__ std::int64_t floatsOfRow(std::int64_t count, std::int64_t lanes) {
    return count + count / lanes + 1;
  }
};

/// The work of a thread.
struct RowWork {
  bool isAny;
  std::int32_t place;
  std::int32_t image;
  std::int32_t begin;
  std::int32_t end;
  std::int32_t floats;
  float* rows;  ///< of the threads of its row: two
  std::int32_t parity = 0;

  /// @param count elements of rows in shared memory @param lanes of a thread @param memory for them
  __device__ RowWork(const FewChannelArguments& a, std::int32_t count, std::int32_t lanes, float* memory)
      : floats(static_cast<std::int32_t>(FewChannelArguments::floatsOfRow(count, lanes))) {
    const std::uint32_t group = a.chunks.divide(blockIdx.x);
    const std::uint32_t ofBlock = a.vectors.divide(threadIdx.x);
    const std::uint32_t of = group * a.imagesPerBlock + ofBlock;
    place = static_cast<std::int32_t>(threadIdx.x - ofBlock * a.vectors.divisor());
    isAny = of < a.images;
    image = static_cast<std::int32_t>(of);
    begin = static_cast<std::int32_t>(blockIdx.x - group * a.chunks.divisor()) * a.rowsPerChunk;
    end = min(begin + a.rowsPerChunk, a.height);
    rows = memory + ofBlock * 2 * floats;
    if (place < 2) rows[(place + 1) * floats - 1] = 0;
    if (a.vectors.divisor() == 1) rows[2 * floats - 1] = 0;
  }
  /// The elements of this thread in row 0 of the input.
  template <class T>
  [[nodiscard]] const __device__ T* from(const SourceView& input, std::int32_t lanes) const {
    return reinterpret_cast<const T*>(input.memory) + image * input.image + place * lanes;
  }
  /// Bytes from the beginning of a row to an element that lies in it with a gap behind each `lanes` ones, or to the 0.
  [[nodiscard]] __device__ std::int32_t bytesTo(std::int32_t element, std::int32_t lanes, bool isRead) const {
    return static_cast<std::int32_t>(sizeof(float)) * (isRead ? element + element / lanes : floats - 1);
  }
  [[nodiscard]] __device__ static float at(const float* row, std::int32_t bytes) {
    return *reinterpret_cast<const float*>(reinterpret_cast<const std::byte*>(row) + bytes);
  }
  /// Lets all threads have what this one has of a row. What it returns stays as it is until the next but one call.
  template <int lanes>
  __device__ const float* share(const float (&values)[lanes], bool isInside) {
    float* const row = rows + parity * floats;
    parity ^= 1;
    if (isInside)
#pragma unroll
      for (int i = 0; i < lanes; ++i) row[place * (lanes + 1) + i] = values[i];
    __syncthreads();
    return row;
  }
};

template <class T>
__global__ void __launch_bounds__(kFewChannelThreads, 3) upsampleFewChannels(FewChannelArguments a) {
  constexpr int lanes = kLanes<T>;
  constexpr int few = EightBytes<T>::lanes;
  extern __shared__ uint4 memory[];
  auto* const ring = reinterpret_cast<uint2*>(memory);
  RowWork work(a, a.elements, few, reinterpret_cast<float*>(ring + FewChannelArguments::kDepth * blockDim.x));
  // What counts nothing is not looked at: the 0 behind the row is.
  std::int32_t firsts[lanes];
  std::int32_t seconds[lanes];
  float firstWeights[lanes];
  float secondWeights[lanes];
  const auto width = static_cast<std::int32_t>(a.channels.divisor());
#pragma unroll
  for (int i = 0; i < lanes; ++i) {
    const std::int32_t element = work.place * lanes + i;
    const auto x = static_cast<std::int32_t>(a.channels.divide(static_cast<std::uint32_t>(element)));
    const Samples samples = a.x.samples[x];
    const std::int32_t first = samples.first * width + element - x * width;
    const std::int32_t second = samples.second * width + element - x * width;
    firsts[i] = work.bytesTo(first, few, samples.firstWeight != 0);
    seconds[i] = work.bytesTo(second, few, samples.secondWeight != 0);
    firstWeights[i] = samples.firstWeight;
    secondWeights[i] = samples.secondWeight;
  }
  const bool isInside = work.isAny && work.place * few < a.elements;
  // Of the rows of a crop the last one may be the first one.
  const std::int32_t lastRow = max(a.y.samples[work.begin].second, a.y.samples[work.end - 1].second);
  RowStream<T, uint2> input(work.from<T>(a.input, few), a.input.row, ring + threadIdx.x, blockDim.x,
                            isInside ? lastRow + 1 : 0);
  const auto sumOf = [&](std::int32_t row, float(&sums)[lanes]) {
    const float* const shared =
        work.share(eightBytesOf(input.get(row), static_cast<const T*>(nullptr)).values, isInside);
#pragma unroll
    for (int i = 0; i < lanes; ++i)
      sums[i] = fmaf(secondWeights[i], RowWork::at(shared, seconds[i]),
                     firstWeights[i] * RowWork::at(shared, firsts[i]));
  };
  T* const to =
      reinterpret_cast<T*>(a.destination.memory) + work.image * a.destination.image + work.place * lanes;
  float firstSum[lanes] = {};
  float secondSum[lanes] = {};
  std::int32_t firstRow = -1;
  std::int32_t secondRow = -1;
  Samples next = a.y.samples[work.begin];
  for (std::int32_t y = work.begin; y < work.end; ++y) {
    const Samples rows = next;
    next = a.y.samples[min(y + 1, work.end - 1)];
    Lanes<T> sum{};
    if (rows.firstWeight != 0) {
      if (firstRow != rows.first) {
        if (secondRow == rows.first) {
#pragma unroll
          for (int i = 0; i < lanes; ++i) firstSum[i] = secondSum[i];
        } else {
          sumOf(rows.first, firstSum);
        }
      }
      firstRow = rows.first;
#pragma unroll
      for (int i = 0; i < lanes; ++i) sum.values[i] = rows.firstWeight * firstSum[i];
    }
    if (rows.secondWeight != 0) {
      if (secondRow != rows.second) sumOf(rows.second, secondSum);
      secondRow = rows.second;
#pragma unroll
      for (int i = 0; i < lanes; ++i) sum.values[i] = fmaf(rows.secondWeight, secondSum[i], sum.values[i]);
    }
    if (work.isAny) storeLanes(sum, to + y * a.destination.row);
  }
}

/// @tparam most results of a row that a pixel gives shares to
template <class T, int most>
__global__ void __launch_bounds__(kFewChannelThreads, most > 4 ? 2 : 3)
    gatherFewChannels(FewChannelArguments a) {
  constexpr int lanes = kLanes<T>;
  constexpr int few = EightBytes<T>::lanes;
  extern __shared__ uint4 memory[];
  RowWork work(a, static_cast<std::int32_t>(a.vectors.divisor()) * lanes, lanes,
               reinterpret_cast<float*>(memory + FewChannelArguments::kDepth * blockDim.x));
  // What counts nothing is not looked at: the 0 behind the row is.
  std::int32_t places[few][most];
  float weights[few][most];
  const auto width = static_cast<std::int32_t>(a.channels.divisor());
  const bool isInside = work.isAny && work.place * few < a.elements;
#pragma unroll
  for (int i = 0; i < few; ++i) {
    const std::int32_t element = work.place * few + i;
    const auto x = static_cast<std::int32_t>(a.channels.divide(static_cast<std::uint32_t>(element)));
    const Readers readers = isInside ? a.x.readers[x] : Readers{0, 0};
#pragma unroll
    for (int k = 0; k < most; ++k) {
      const std::int32_t result = readers.begin + k;
      const std::int32_t place = result * width + element - x * width;
      const Samples samples = a.x.at(result);
      weights[i][k] = result < readers.end ? weightOf(samples, x + a.originX) : 0.0F;
      places[i][k] = work.bytesTo(place, lanes, weights[i][k] != 0);
    }
  }
  const std::int32_t lastEnd = a.y.readers[work.end - 1].end;  // 0: nothing is read by the last row
  RowStream<T, uint4> input(work.from<T>(a.input, lanes), a.input.row, memory + threadIdx.x, blockDim.x,
                            !work.isAny   ? 0
                            : lastEnd > 0 ? lastEnd
                                          : a.y.results);
  T* const to =
      reinterpret_cast<T*>(a.destination.memory) + work.image * a.destination.image + work.place * few;
  float sum[lanes] = {};
  float next[lanes] = {};  // of the row below: a result counts in two rows at most
  std::int32_t row = 0;
  for (std::int32_t y = work.begin; y < work.end; ++y) {
    const Readers rows = a.y.readers[y];
    const std::int32_t pixel = y + a.originY;
    for (row = max(row, rows.begin); row < rows.end; ++row) {
      const Samples samples = a.y.samples[row];
      const Lanes<T> values = lanesOf(input.get(row), static_cast<const T*>(nullptr));
      const float weight = weightOf(samples, pixel);
      const float nextWeight = weightOf(samples, pixel + 1);
      if (weight != 0)
#pragma unroll
        for (int i = 0; i < lanes; ++i) sum[i] = fmaf(weight, values.values[i], sum[i]);
      if (nextWeight != 0)
#pragma unroll
        for (int i = 0; i < lanes; ++i) next[i] = fmaf(nextWeight, values.values[i], next[i]);
    }
    const float* const shared = work.share(sum, true);
    EightBytes<T> result{};
#pragma unroll
    for (int i = 0; i < few; ++i)
#pragma unroll
      for (int k = 0; k < most; ++k)
        result.values[i] = fmaf(weights[i][k], RowWork::at(shared, places[i][k]), result.values[i]);
    if (isInside) {
      auto* const at = reinterpret_cast<uint2*>(to + y * a.destination.row);
      if (a.accumulate) {
        const EightBytes<T> old = eightBytesOf(*at, static_cast<const T*>(nullptr));
#pragma unroll
        for (int i = 0; i < few; ++i) result.values[i] += old.values[i];
      }
      *at = bitsOf(result);
    }
#pragma unroll
    for (int i = 0; i < lanes; ++i) {
      sum[i] = next[i];
      next[i] = 0;
    }
  }
}

}  // namespace mps::detail::cuda
