#pragma once

#include <cuda_pipeline.h>

#include <type_traits>

#include "mps/upsampling/upsampling_cuda.cuh"

/// Rows of pixels of few channels without gaps: a group of threads goes down some rows of an image, two adjacent elements
/// at once, and exchanges columns through shared memory.
namespace mps::detail::cuda {

inline constexpr int kPairsOfThread = 3;
inline constexpr std::int64_t kMostRowThreads = 384;  ///< of a group, which is a block beyond 32

struct RowsArguments {
  Divider channels;
  Divider chunks;  ///< of the rows of an image
  std::uint32_t groups = 0;
  std::int32_t rowsPerChunk = 0;
  std::int32_t height = 0;                            ///< of the destination
  std::int32_t inputPairs = 0, destinationPairs = 0;  ///< of a row
  std::int32_t originX = 0, originY = 0;
  bool accumulate = false;
  SourceView input;
  ResultView destination;
  AxisTables x;
  AxisTables y;
  bool isDeep = false;  ///< so many input rows are on their way to a group: kDeep, or else kShallow
  dim3 block;
  unsigned blocks = 0;
  std::size_t sharedBytes = 0;

  /// @return whether rows are short enough
  bool setGrid(const TensorShape& from, const TensorShape& to, std::size_t bytesOfPair) {
    const std::int64_t pairs = std::max(from.width * from.channels, to.width * to.channels) / 2;
    const std::int64_t threads = (pairs + 32 * kPairsOfThread - 1) / (32 * kPairsOfThread) * 32;
    if (threads > kMostRowThreads) return false;
    const std::int64_t perBlock = threads == 32 ? 4 : 1;
    // Enough threads for a large GPU come first.
    constexpr std::int64_t enough = std::int64_t{1} << 19;
    const std::int64_t rows = std::clamp<std::int64_t>(to.height * to.images * threads / enough, 4, 64);
    const std::int64_t count = (to.height + rows - 1) / rows;
    rowsPerChunk = static_cast<std::int32_t>((to.height + count - 1) / count);
    chunks = Divider((to.height + rowsPerChunk - 1) / rowsPerChunk);
    channels = Divider(to.channels);
    if (to.images * chunks.divisor() > 0x7FFFFFFF) return false;
    groups = static_cast<std::uint32_t>(to.images * chunks.divisor());
    height = static_cast<std::int32_t>(to.height);
    inputPairs = static_cast<std::int32_t>(from.width * from.channels / 2);
    destinationPairs = static_cast<std::int32_t>(to.width * to.channels / 2);
    block = dim3(static_cast<unsigned>(threads), static_cast<unsigned>(perBlock));
    blocks = mtl::cuda::blocksFor(groups, static_cast<unsigned>(perBlock));
    const auto bytesWith = [&](int rowsAhead) {
      return block.y * (2 * sizeof(float) * static_cast<std::size_t>(floatsOfRow()) +
                        static_cast<std::size_t>(rowsAhead * inputPairs) * bytesOfPair);
    };
    isDeep = bytesWith(kDeep) <= kMostBytes;
    sharedBytes = bytesWith(isDeep ? kDeep : kShallow);
    return sharedBytes <= kMostBytes;
  }
  /// Floats of a row in shared memory, and behind it a 0.
  [[nodiscard]] __host__ __device__ std::int32_t floatsOfRow() const { return 2 * inputPairs + 2; }
  static constexpr int kDeep = 8;
  static constexpr int kShallow = 2;
  static constexpr std::size_t kMostBytes = std::size_t{48} << 10;
};

/// The work of a group of threads, and what it shares.
struct RowsWork {
  bool isAny;
  std::int32_t image;
  std::int32_t begin;
  std::int32_t end;
  std::int32_t floats;
  float* rows;  ///< of this group: two
  std::int32_t parity = 0;

  __device__ explicit RowsWork(const RowsArguments& a) : floats(a.floatsOfRow()) {
    extern __shared__ float shared[];
    rows = shared + threadIdx.y * 2 * floats;
    const std::uint32_t group = blockIdx.x * blockDim.y + threadIdx.y;
    isAny = group < a.groups;
    const std::uint32_t ofImage = a.chunks.divide(group);
    image = static_cast<std::int32_t>(ofImage);
    begin = static_cast<std::int32_t>(group - ofImage * a.chunks.divisor()) * a.rowsPerChunk;
    end = min(begin + a.rowsPerChunk, a.height);
    if (threadIdx.x < 2) rows[(threadIdx.x + 1) * floats - 2] = 0;
  }
  [[nodiscard]] __device__ std::int32_t zero() const { return floats - 2; }
  [[nodiscard]] __device__ static std::int32_t pair(int q) {
    return static_cast<std::int32_t>(threadIdx.x + static_cast<unsigned>(q) * blockDim.x);
  }
  /// Lets all threads of the group have a row. What it returns stays as it is until the next but one call.
  __device__ const float* share(const float2 (&values)[kPairsOfThread], std::int32_t pairs) {
    float* const row = rows + parity * floats;
    parity ^= 1;
#pragma unroll
    for (int q = 0; q < kPairsOfThread; ++q)
      if (pair(q) < pairs) *reinterpret_cast<float2*>(row + 2 * pair(q)) = values[q];
    if (blockDim.x == 32)
      __syncwarp();
    else
      __syncthreads();
    return row;
  }
};

template <class T>
using StoredPair = std::conditional_t<sizeof(T) == sizeof(float), float2, unsigned>;

__device__ inline float2 pairOf(float2 stored) {
  return stored;
}
__device__ inline float2 pairOf(unsigned stored) {
  return halvesOf(stored);
}
__device__ inline void storePair(float2 values, float2* to) {
  *to = values;
}
__device__ inline void storePair(float2 values, unsigned* to) {
  *to = toHalves(values.x, values.y);
}

/// The input's rows one after the other, some of which are on their way to shared memory. A thread sees its own pairs.
template <class T>
class RowStream {
 public:
  /// @param end of the rows that are wanted, so that none beyond it is loaded
  __device__ RowStream(const RowsArguments& a, const RowsWork& work, std::int32_t end)
      : from_(reinterpret_cast<const StoredPair<T>*>(reinterpret_cast<const T*>(a.input.memory) +
                                                     work.image * a.input.image) +
              threadIdx.x),
        pairs_(a.inputPairs),
        depth_(a.isDeep ? RowsArguments::kDeep : RowsArguments::kShallow),
        end_(end) {
    extern __shared__ float shared[];
    ring_ = reinterpret_cast<StoredPair<T>*>(shared + blockDim.y * 2 * work.floats) +
            threadIdx.y * depth_ * pairs_ + threadIdx.x;
    stride_ = a.input.row / 2;
  }
  __device__ void get(std::int32_t row, float2 (&values)[kPairsOfThread]) {
    if (row < first_ || row >= min(behind_, end_)) {
      __pipeline_wait_prior(0);
      behind_ = row;
    } else if (row > first_ + 1) {
      // A row that is passed over has to be there before another one is asked for in its place.
      if (row == first_ + 2 && depth_ == RowsArguments::kDeep)
        __pipeline_wait_prior(RowsArguments::kDeep - 2);
      else
        __pipeline_wait_prior(0);
    }
    first_ = row;
    for (; behind_ < first_ + depth_; ++behind_) {
      if (behind_ < end_ || behind_ == row) request(behind_);
      __pipeline_commit();
    }
    if (depth_ == RowsArguments::kDeep)
      __pipeline_wait_prior(RowsArguments::kDeep - 1);
    else
      __pipeline_wait_prior(RowsArguments::kShallow - 1);
    const StoredPair<T>* const slot = slotOf(row);
#pragma unroll
    for (int q = 0; q < kPairsOfThread; ++q) {
      values[q] = {};
      if (RowsWork::pair(q) < pairs_) values[q] = pairOf(slot[static_cast<unsigned>(q) * blockDim.x]);
    }
  }

 private:
  [[nodiscard]] __device__ StoredPair<T>* slotOf(std::int32_t row) const {
    return ring_ + (row & (depth_ - 1)) * pairs_;
  }
  __device__ void request(std::int32_t row) const {
    StoredPair<T>* const slot = slotOf(row);
#pragma unroll
    for (int q = 0; q < kPairsOfThread; ++q) {
      const unsigned at = static_cast<unsigned>(q) * blockDim.x;
      if (RowsWork::pair(q) < pairs_)
        __pipeline_memcpy_async(slot + at, from_ + row * stride_ + at, sizeof(StoredPair<T>));
    }
  }

  const StoredPair<T>* from_;
  StoredPair<T>* ring_;
  std::int64_t stride_;  ///< from row to row, in pairs
  std::int32_t pairs_;
  std::int32_t depth_;
  std::int32_t end_;
  std::int32_t first_ = 0;
  std::int32_t behind_ = -1;  ///< the last one on its way
};

/// Stores the pairs of this thread in a row of the destination.
template <class T>
__device__ void storeRow(const RowsArguments& a, std::int32_t image, std::int32_t row,
                         const float2 (&values)[kPairsOfThread]) {
  auto* const to = reinterpret_cast<StoredPair<T>*>(reinterpret_cast<T*>(a.destination.memory) +
                                                    image * a.destination.image + row * a.destination.row);
#pragma unroll
  for (int q = 0; q < kPairsOfThread; ++q) {
    if (RowsWork::pair(q) >= a.destinationPairs) continue;
    float2 sum = values[q];
    if (a.accumulate) {
      const float2 old = pairOf(to[RowsWork::pair(q)]);
      sum = {sum.x + old.x, sum.y + old.y};
    }
    storePair(sum, to + RowsWork::pair(q));
  }
}

__device__ inline void addWeighted(float2 (&sums)[kPairsOfThread], float weight,
                                   const float2 (&values)[kPairsOfThread]) {
#pragma unroll
  for (int q = 0; q < kPairsOfThread; ++q) {
    sums[q].x = fmaf(weight, values[q].x, sums[q].x);
    sums[q].y = fmaf(weight, values[q].y, sums[q].y);
  }
}

template <class T>
__global__ void __launch_bounds__(kMostRowThreads) upsampleRows(RowsArguments a) {
  RowsWork work(a);
  if (!work.isAny) return;
  // What counts nothing is not looked at: the 0 behind the row is.
  std::int32_t firsts[kPairsOfThread][2];
  std::int32_t seconds[kPairsOfThread][2];
  float2 firstWeights[kPairsOfThread];
  float2 secondWeights[kPairsOfThread];
#pragma unroll
  for (int q = 0; q < kPairsOfThread; ++q) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const std::int32_t element = 2 * work.pair(q) + e;
      Samples samples{0, 0, 0, 0};
      std::int32_t channel = 0;
      if (work.pair(q) < a.destinationPairs) {
        const std::uint32_t x = a.channels.divide(static_cast<std::uint32_t>(element));
        channel = element - static_cast<std::int32_t>(x * a.channels.divisor());
        samples = a.x.samples[x];
      }
      const auto width = static_cast<std::int32_t>(a.channels.divisor());
      firsts[q][e] = samples.firstWeight != 0 ? samples.first * width + channel : work.zero();
      seconds[q][e] = samples.secondWeight != 0 ? samples.second * width + channel : work.zero();
      (e == 0 ? firstWeights[q].x : firstWeights[q].y) = samples.firstWeight;
      (e == 0 ? secondWeights[q].x : secondWeights[q].y) = samples.secondWeight;
    }
  }
  RowStream<T> input(a, work, a.y.samples[work.end - 1].second + 1);
  const auto sumOf = [&](std::int32_t row, float2(&sums)[kPairsOfThread]) {
    float2 values[kPairsOfThread];
    input.get(row, values);
    const float* const shared = work.share(values, a.inputPairs);
#pragma unroll
    for (int q = 0; q < kPairsOfThread; ++q)
      sums[q] = {fmaf(secondWeights[q].x, shared[seconds[q][0]], firstWeights[q].x * shared[firsts[q][0]]),
                 fmaf(secondWeights[q].y, shared[seconds[q][1]], firstWeights[q].y * shared[firsts[q][1]])};
  };
  float2 firstSum[kPairsOfThread] = {};
  float2 secondSum[kPairsOfThread] = {};
  std::int32_t firstRow = -1;
  std::int32_t secondRow = -1;
  for (std::int32_t y = work.begin; y < work.end; ++y) {
    const Samples rows = a.y.samples[y];
    float2 sum[kPairsOfThread] = {};
    if (rows.firstWeight != 0) {
      if (firstRow != rows.first) {
        if (secondRow == rows.first) {
#pragma unroll
          for (int q = 0; q < kPairsOfThread; ++q) firstSum[q] = secondSum[q];
        } else {
          sumOf(rows.first, firstSum);
        }
      }
      firstRow = rows.first;
      addWeighted(sum, rows.firstWeight, firstSum);
    }
    if (rows.secondWeight != 0) {
      if (secondRow != rows.second) sumOf(rows.second, secondSum);
      secondRow = rows.second;
      addWeighted(sum, rows.secondWeight, secondSum);
    }
    storeRow<T>(a, work.image, y, sum);
  }
}

/// The results in a row that read an element, with what it counts in the first ones.
struct RowReaders {
  static constexpr int most = 4;
  std::int32_t first = 0;  ///< element of the row
  std::int32_t count = 0;
  float weights[most];

  __device__ void set(const RowsArguments& a, std::int32_t element) {
    const std::uint32_t x = a.channels.divide(static_cast<std::uint32_t>(element));
    const auto width = static_cast<std::int32_t>(a.channels.divisor());
    const Readers readers = a.x.readers[x];
    count = readers.end - readers.begin;
    first = readers.begin * width + element - static_cast<std::int32_t>(x) * width;
#pragma unroll
    for (int i = 0; i < most; ++i) weights[i] = i < count ? weightAt(a, x, readers.begin + i) : 0.0F;
  }
  [[nodiscard]] __device__ float sum(const RowsArguments& a, const float* row, std::int32_t zero) const {
    const auto width = static_cast<std::int32_t>(a.channels.divisor());
    float result = 0;
#pragma unroll
    for (int i = 0; i < most; ++i)
      result = fmaf(weights[i], row[weights[i] != 0 ? first + i * width : zero], result);
    return result;
  }
  /// What those beyond the first ones add.
  [[nodiscard]] __device__ float rest(const RowsArguments& a, std::int32_t element, const float* row) const {
    const auto width = static_cast<std::int32_t>(a.channels.divisor());
    const std::uint32_t x = a.channels.divide(static_cast<std::uint32_t>(element));
    float result = 0;
    for (std::int32_t i = most; i < count; ++i) {
      const float weight = weightAt(a, x, a.x.readers[x].begin + i);
      if (weight != 0) result = fmaf(weight, row[first + i * width], result);
    }
    return result;
  }

 private:
  [[nodiscard]] __device__ static float weightAt(const RowsArguments& a, std::uint32_t x,
                                                 std::int32_t result) {
    return weightOf(a.x.samples[result], static_cast<std::int32_t>(x) + a.originX);
  }
};

template <class T>
__global__ void __launch_bounds__(kMostRowThreads) gatherRows(RowsArguments a) {
  RowsWork work(a);
  if (!work.isAny) return;
  RowReaders readers[kPairsOfThread][2];
#pragma unroll
  for (int q = 0; q < kPairsOfThread; ++q)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      readers[q][e] = {};
      if (work.pair(q) < a.destinationPairs) readers[q][e].set(a, 2 * work.pair(q) + e);
    }
  const std::int32_t lastEnd = a.y.readers[work.end - 1].end;  // 0: nothing is read
  RowStream<T> input(a, work, lastEnd > 0 ? lastEnd : a.y.results);
  float2 sum[kPairsOfThread] = {};
  float2 next[kPairsOfThread] = {};  // of the row below: a result counts in two rows at most
  std::int32_t row = 0;
  for (std::int32_t y = work.begin; y < work.end; ++y) {
    const Readers rows = a.y.readers[y];
    const std::int32_t pixel = y + a.originY;
    for (row = max(row, rows.begin); row < rows.end; ++row) {
      float2 values[kPairsOfThread];
      input.get(row, values);
      const Samples samples = a.y.samples[row];
      const float weight = weightOf(samples, pixel);
      const float nextWeight = weightOf(samples, pixel + 1);
      if (weight != 0) addWeighted(sum, weight, values);
      if (nextWeight != 0) addWeighted(next, nextWeight, values);
    }
    const float* const shared = work.share(sum, a.inputPairs);
    float2 result[kPairsOfThread] = {};
#pragma unroll
    for (int q = 0; q < kPairsOfThread; ++q) {
      if (work.pair(q) < a.destinationPairs) {
        result[q] = {readers[q][0].sum(a, shared, work.zero()), readers[q][1].sum(a, shared, work.zero())};
        if (max(readers[q][0].count, readers[q][1].count) > RowReaders::most) {
          result[q].x += readers[q][0].rest(a, 2 * work.pair(q), shared);
          result[q].y += readers[q][1].rest(a, 2 * work.pair(q) + 1, shared);
        }
      }
      sum[q] = next[q];
      next[q] = {};
    }
    storeRow<T>(a, work.image, y, result);
  }
}

}  // namespace mps::detail::cuda
