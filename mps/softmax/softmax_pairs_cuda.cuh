#pragma once

#include "mps/softmax/softmax_dense_cuda.cuh"

/// Softmax of halves in a small odd number of channels, without gaps. A thread has two neighbouring pixels, which are
/// as many words as a pixel has channels: it reads words, and those of the threads lie in different banks.
namespace mps::detail::cuda {

inline constexpr unsigned kPairThreads = 128;
/// Whole words of a pixel at most.
inline constexpr unsigned kPairWords = 12;
inline constexpr unsigned kPairChannels = 2 * kPairWords + 1;
inline constexpr unsigned kPairBlocks = 7;  ///< of a multiprocessor at least: what registers are left for

struct PairSoftMax {
  std::uint32_t channels = 1;
  std::uint32_t rounds = 1;  ///< pairs of a thread, one after the other
  std::int64_t pixels = 0;

  static bool fits(std::int64_t channels) { return channels % 2 == 1 && channels <= kPairChannels; }

  PairSoftMax() = default;
  /// @param channelCount that fits
  PairSoftMax(std::int64_t channelCount, std::int64_t pixelCount)
      : channels(static_cast<std::uint32_t>(channelCount)),
        rounds(kPairChannels / channels),
        pixels(pixelCount) {}
  /// Of a chunk; a multiple of 8, so that chunks begin at multiples of 16 bytes.
  [[nodiscard]] __host__ __device__ std::uint32_t chunkPixels() const { return 2 * kPairThreads * rounds; }
  [[nodiscard]] std::int64_t chunks() const { return (pixels + chunkPixels() - 1) / chunkPixels(); }
};

/// The words of two pixels in shared memory: of the first one from the front, of the second one from the back, and in
/// the one between the last channel of the first and the first one of the second.
struct PairWords {
  unsigned* words;
  std::uint32_t half;  ///< whole words of a pixel

  /// Calls visit(i) for the words of a pixel, and for the one between where their number is odd.
  template <class Visit>
  __device__ void forEach(Visit visit) const {
#pragma unroll
    for (std::uint32_t i = 0; i < kPairWords; i += 2) {
      if (i >= half) break;
      visit(i);
      visit(i + 1);
    }
  }
  [[nodiscard]] __device__ unsigned first(std::uint32_t i) const {
    return words[i];
  }
  [[nodiscard]] __device__ unsigned second(std::uint32_t i) const {
    return words[2 * half - i];
  }
  /// The word between. forEach from now on finds `others` there.
  [[nodiscard]] __device__ float2 takeBetween(unsigned others) const {
    const unsigned between = words[half];
    words[half] = others;
    return halvesOf(between);
  }
  __device__ void storeFirst(std::uint32_t i, float low, float high) const {
    words[i] = toHalves(low, high);
  }
  __device__ void storeSecond(std::uint32_t i, float low, float high) const {
    words[2 * half - i] = toHalves(low, high);
  }
  /// The last of the stores.
  __device__ void storeBetween(float ofFirst, float ofSecond) const {
    words[half] = toHalves(ofFirst, ofSecond);
  }
};

/// The larger halves of two words.
__device__ inline unsigned largerHalves(unsigned a, unsigned b) {
  __half2 both[2];
  memcpy(&both[0], &a, sizeof a);
  memcpy(&both[1], &b, sizeof b);
  const __half2 larger = __hmax2(both[0], both[1]);
  memcpy(&a, &larger, sizeof larger);
  return a;
}
__device__ inline float largestOf(unsigned word, float largest) {
  const float2 both = halvesOf(word);
  return fmaxf(fmaxf(both.x, both.y), largest);
}

/// y or l of both pixels, in the place of x.
template <bool isLog>
__device__ void softMaxPair(const PairWords& words) {
  constexpr unsigned lowest = 0xFC00FC00U;
  const float2 between = words.takeBetween(lowest);
  // NaN may be left out: it makes the sum of exponentials NaN.
  unsigned largestOfFirst = lowest;
  unsigned largestOfSecond = lowest;
  words.forEach([&](std::uint32_t i) {
    largestOfFirst = largerHalves(largestOfFirst, words.first(i));
    largestOfSecond = largerHalves(largestOfSecond, words.second(i));
  });
  const float shifts[2] = {largestOf(largestOfFirst, between.x), largestOf(largestOfSecond, between.y)};
  float sums[2] = {0, 0};
  const auto takePower = [&](float value, int pixel) {
    value -= shifts[pixel];
    const float power = exponential(value);
    sums[pixel] += power;
    return isLog ? value : power;
  };
  float2 first[kPairWords];
  float2 second[kPairWords];
  words.forEach([&](std::uint32_t i) {
    const float2 a = halvesOf(words.first(i));
    const float2 b = halvesOf(words.second(i));
    first[i] = {takePower(a.x, 0), takePower(a.y, 0)};
    second[i] = {takePower(b.x, 1), takePower(b.y, 1)};
  });
  const float2 last{takePower(between.x, 0), takePower(between.y, 1)};
  const LastStep a(isLog, sums[0]);
  const LastStep b(isLog, sums[1]);
  words.forEach([&](std::uint32_t i) {
    words.storeFirst(i, a(first[i].x), a(first[i].y));
    words.storeSecond(i, b(second[i].x), b(second[i].y));
  });
  words.storeBetween(a(last.x), b(last.y));
}

/// dx of both pixels, in the place of dy. @param results y or l
template <bool isLog>
__device__ void softMaxPairGradient(const PairWords& results, const PairWords& words) {
  const float2 lastResult = results.takeBetween(0);
  const float2 lastGradient = words.takeBetween(0);
  float sums[2] = {0, 0};
  const auto add = [&](float2 result, float2 gradient, float& sum) {
    sum = isLog ? sum + gradient.x : fmaf(gradient.x, result.x, sum);
    sum = isLog ? sum + gradient.y : fmaf(gradient.y, result.y, sum);
  };
  words.forEach([&](std::uint32_t i) {
    add(halvesOf(results.first(i)), halvesOf(words.first(i)), sums[0]);
    add(halvesOf(results.second(i)), halvesOf(words.second(i)), sums[1]);
  });
  add({lastResult.x, 0}, {lastGradient.x, 0}, sums[0]);
  add({lastResult.y, 0}, {lastGradient.y, 0}, sums[1]);
  // Where exp l is not rounded to 0 as a half, |l| < 18.
  const auto gradientOfPixel = [&](float result, float gradient, int pixel) {
    return isLog ? fmaf(-exponential(result), sums[pixel], gradient) : result * (gradient - sums[pixel]);
  };
  words.forEach([&](std::uint32_t i) {
    const float2 a = halvesOf(results.first(i));
    const float2 b = halvesOf(results.second(i));
    const float2 da = halvesOf(words.first(i));
    const float2 db = halvesOf(words.second(i));
    words.storeFirst(i, gradientOfPixel(a.x, da.x, 0), gradientOfPixel(a.y, da.y, 0));
    words.storeSecond(i, gradientOfPixel(b.x, db.x, 1), gradientOfPixel(b.y, db.y, 1));
  });
  words.storeBetween(gradientOfPixel(lastResult.x, lastGradient.x, 0),
                     gradientOfPixel(lastResult.y, lastGradient.y, 1));
}

template <SoftMaxDirection direction, bool isLog>
__global__ void __launch_bounds__(kPairThreads, kPairBlocks)
    softMaxPairs(PairSoftMax a, const Float16* input, const Float16* gradient, Float16* destination) {
  constexpr bool isForward = direction == SoftMaxDirection::Forward;
  constexpr unsigned chunkWords = kPairChannels * kPairThreads;
  __shared__ uint4 memory[(isForward ? 1 : 2) * chunkWords / 4];
  unsigned* const inputs = reinterpret_cast<unsigned*>(memory);
  unsigned* const results = isForward ? inputs : inputs + chunkWords;  // dy, then dx
  const std::int64_t firstPixel = static_cast<std::int64_t>(blockIdx.x) * a.chunkPixels();
  const auto count =
      static_cast<std::uint32_t>(min(static_cast<std::int64_t>(a.chunkPixels()), a.pixels - firstPixel)) *
      a.channels;
  const std::int64_t first = firstPixel * a.channels;
  fetchChunk<kPairThreads>(input + first, count, reinterpret_cast<Float16*>(inputs));
  if constexpr (!isForward)
    fetchChunk<kPairThreads>(gradient + first, count, reinterpret_cast<Float16*>(results));
  finishFetching();

  // What pixels behind the last one hold does not count.
  for (std::uint32_t round = 0; round < a.rounds; ++round) {
    const std::uint32_t begin = (threadIdx.x + round * kPairThreads) * a.channels;
    const PairWords words{results + begin, a.channels / 2};
    if constexpr (isForward)
      softMaxPair<isLog>(words);
    else
      softMaxPairGradient<isLog>({inputs + begin, words.half}, words);
  }
  __syncthreads();
  storeChunk<kPairThreads>(reinterpret_cast<const Float16*>(results), count, destination + first, false);
}

}  // namespace mps::detail::cuda
