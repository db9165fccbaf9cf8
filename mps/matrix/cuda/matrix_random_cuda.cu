#include <algorithm>
#include <type_traits>

#include "mps/core/cuda/philox_cuda.cuh"
#include "mps/matrix/matrix_random_rule.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

/// Elements in the order of the problem, and where they lie.
struct RandomPlaces {
  std::int64_t count = 0;
  std::int64_t columns = 1, rows = 1;
  std::int64_t matrixStride = 0, rowStride = 0;

  RandomPlaces() = default;
  explicit RandomPlaces(const TensorShape& shape)
      : count(shape.elements()),
        columns(shape.channels),
        rows(shape.height),
        matrixStride(shape.imageStride),
        rowStride(shape.rowStride) {}
  [[nodiscard]] __device__ std::int64_t at(std::int64_t element) const {
    if (columns == count) return element;
    const std::int64_t row = element / columns;
    return row / rows * matrixStride + row % rows * rowStride + element % columns;
  }
};

template <int count>
__device__ double polynomial(const double (&c)[count], double x) {
  double result = c[count - 1];
#pragma unroll
  for (int i = count - 2; i >= 0; --i) result = fma(result, x, c[i]);
  return result;
}

/// Whether u is near 0 or 1, where the quantile takes a logarithm.
__device__ bool isInTail(double u) {
  return fabs(u - 0.5) > 0.425;
}
/// x with Phi(x) = u in the centre, and in the tails for 0 < u < 1.
__device__ double centralQuantile(double u) {
  constexpr NormalQuantileCoefficients c;
  const double q = u - 0.5;
  const double r = fma(-q, q, 0.180625);
  return q * (polynomial(c.centre, r) / polynomial(c.underCentre, r));
}
__device__ double tailQuantile(double u) {
  constexpr NormalQuantileCoefficients c;
  const double s = sqrt(-log(fmin(u, 1.0 - u)));
  const double size = s > 5.0 ? polynomial(c.far, s - 5.0) / polynomial(c.underFar, s - 5.0)
                              : polynomial(c.near, s - 1.6) / polynomial(c.underNear, s - 1.6);
  return copysign(size, u - 0.5);
}

/// The upper bits of a word as a fraction.
__device__ float fractionOf(std::uint32_t word) {
  return __uint_as_float(__funnelshift_r(word, 0x7FU, 9)) - 1.0F;  // 23 bits behind the exponent of 1
}
/// u of RandomRule's normal distribution.
__device__ double probabilityOf(const RandomRule& rule, std::uint32_t word) {
  return fmax(fma(rule.width, static_cast<double>(fractionOf(word)), rule.first), rule.least);
}
__device__ std::uint32_t normalOf(const RandomRule& rule, double quantile) {
  const auto value = static_cast<float>(fma(rule.scale, quantile, rule.mean));
  return __float_as_uint(fminf(fmaxf(value, rule.minimum), rule.maximum));
}

/// What a word becomes, as the bits of an element. @tparam numbers of the rule, which is not constant
template <RandomNumbers numbers>
__device__ std::uint32_t numberOf(const RandomRule& rule, std::uint32_t word) {
  if constexpr (numbers == RandomNumbers::Words) {
    return word;
  } else if constexpr (numbers == RandomNumbers::UnitInterval) {
    return __float_as_uint(fractionOf(word));
  } else if constexpr (numbers == RandomNumbers::Uniform) {
    return __float_as_uint(fminf(fmaf(rule.range, fractionOf(word), rule.minimum), rule.belowMaximum));
  } else {
    const double u = probabilityOf(rule, word);
    return normalOf(rule, isInTail(u) ? tailQuantile(u) : centralQuantile(u));
  }
}

constexpr unsigned kWarp = 32;

/// Four words of each thread of a warp. The few in the tails are dealt out again, so that all threads work on them.
/// @param queue 4 numbers for each thread of the warp
__device__ uint4 normalsOf(const RandomRule& rule, const uint4& words, double* queue) {
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned before = (1U << lane) - 1U;
  const std::uint32_t word[]{words.x, words.y, words.z, words.w};
  double quantiles[4];
  unsigned places[4];
  bool isTail[4];
  unsigned count = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const double u = probabilityOf(rule, word[k]);
    isTail[k] = isInTail(u);
    const unsigned tails = __ballot_sync(0xFFFFFFFFU, isTail[k]);
    places[k] = count + static_cast<unsigned>(__popc(tails & before));
    count += static_cast<unsigned>(__popc(tails));
    if (isTail[k]) queue[places[k]] = u;
    quantiles[k] = centralQuantile(u);
  }
  __syncwarp();
  for (unsigned i = lane; i < count; i += kWarp) queue[i] = tailQuantile(queue[i]);
  __syncwarp();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (isTail[k]) quantiles[k] = queue[places[k]];
  __syncwarp();
  return {normalOf(rule, quantiles[0]), normalOf(rule, quantiles[1]), normalOf(rule, quantiles[2]),
          normalOf(rule, quantiles[3])};
}

/// Calls body(std::integral_constant) with the kind of numbers.
template <class Body>
void withNumbers(RandomNumbers numbers, Body body) {
  using enum RandomNumbers;
  switch (numbers) {
    case Words:
      return body(std::integral_constant<RandomNumbers, Words>());
    case UnitInterval:
      return body(std::integral_constant<RandomNumbers, UnitInterval>());
    case Uniform:
      return body(std::integral_constant<RandomNumbers, Uniform>());
    case Normal:
      return body(std::integral_constant<RandomNumbers, Normal>());
  }
}

/// A thread draws a block of four words. What they become goes by way of shared memory, so that adjacent
/// threads store adjacent elements. Addresses need no alignment.
template <RandomNumbers numbers>
__global__ void fillPhilox(RandomPlaces places, RandomRule rule, cuda::PhiloxKeys keys,
                           std::uint64_t firstBlock, std::uint32_t* destination) {
  constexpr bool isNormal = numbers == RandomNumbers::Normal;
  __shared__ double queues[isNormal ? 4 * mtl::cuda::kBlockThreads : 1];
  __shared__ uint4 drawn[mtl::cuda::kBlockThreads];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned firstOfWarp = threadIdx.x - lane;
  const auto* const ofWarp = reinterpret_cast<const std::uint32_t*>(drawn + firstOfWarp);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t blocks = (places.count + 3) / 4;
  // All threads of a warp stay in the loop.
#pragma unroll 1
  for (std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; b - lane < blocks;
       b += step) {
    const std::uint64_t number = firstBlock + static_cast<std::uint64_t>(b);
    const uint4 words = cuda::draw(
        {0, 0, static_cast<std::uint32_t>(number >> 32U), static_cast<std::uint32_t>(number)}, keys);
    if constexpr (isNormal)
      drawn[threadIdx.x] = normalsOf(rule, words, queues + firstOfWarp * 4);
    else
      drawn[threadIdx.x] = {numberOf<numbers>(rule, words.x), numberOf<numbers>(rule, words.y),
                            numberOf<numbers>(rule, words.z), numberOf<numbers>(rule, words.w)};
    __syncwarp();
    const std::int64_t first = 4 * (b - lane);
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
      const unsigned i = k * kWarp + lane;
      if (first + i < places.count) destination[places.at(first + i)] = ofWarp[i];
    }
    __syncwarp();
  }
}

__global__ void fillConstant(RandomPlaces places, float value, std::uint32_t* destination) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; e < places.count;
       e += step)
    destination[places.at(e)] = __float_as_uint(value);
}

/// table[index & 15] of a table that is linear over exclusive or.
__device__ std::uint32_t tableEntry(const std::array<std::uint32_t, 4>& basis, std::uint32_t index) {
  std::uint32_t entry = 0;
#pragma unroll
  for (unsigned bit = 0; bit < 4; ++bit)
    if ((index >> bit & 1U) != 0) entry ^= basis[bit];
  return entry;
}

/// Threads of the one block: as many words, at most kMTGP32StateWords - position, follow from older ones only.
constexpr unsigned kMTGP32Threads = 256;

/// The words after the state, which moves on by as many.
__global__ void fillMTGP32(RandomPlaces places, std::uint32_t* state, std::uint32_t* destination) {
  constexpr MTGP32Constants c;
  constexpr unsigned ring = 1024;  // beyond all words that threads one round apart access
  __shared__ std::uint32_t sequence[ring];
  const auto word = [&](std::int64_t number) -> std::uint32_t& {
    return sequence[static_cast<std::uint64_t>(number) % ring];
  };
  constexpr auto stateWords = static_cast<std::int64_t>(kMTGP32StateWords);
  constexpr auto position = static_cast<std::int64_t>(c.position);
  for (std::int64_t n = threadIdx.x; n < stateWords; n += kMTGP32Threads) word(n) = state[n];
  __syncthreads();
  for (std::int64_t first = 0; first < places.count; first += kMTGP32Threads) {
    const std::int64_t n = first + threadIdx.x;
    const std::uint32_t mixed = (word(n) & c.mask) ^ word(n + 1);
    const std::uint32_t y = mixed ^ mixed << c.shift1 ^ word(n + position) >> c.shift2;
    const std::uint32_t next = y ^ tableEntry(c.recursion, y);
    std::uint32_t v = word(n + position - 1);
    v ^= v >> 16U;
    v ^= v >> 8U;
    word(n + stateWords) = next;
    if (n < places.count) destination[places.at(n)] = next ^ tableEntry(c.tempering, v);
    __syncthreads();
  }
  for (std::int64_t n = threadIdx.x; n < stateWords; n += kMTGP32Threads) state[n] = word(places.count + n);
}

/// Words to numbers, in place.
template <RandomNumbers numbers>
__global__ void convertWords(RandomPlaces places, RandomRule rule, std::uint32_t* destination) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; e < places.count;
       e += step) {
    std::uint32_t& element = destination[places.at(e)];
    element = numberOf<numbers>(rule, element);
  }
}

class RandomPlan final : public Plan {
 public:
  explicit RandomPlan(const MatrixRandomProblem& problem) : problem_(problem), rule_(ruleOf(problem)) {
    TensorShape shape = problem.destination;
    if (shape.isDense()) shape = TensorShape::dense(1, 1, 1, shape.elements());
    places_ = RandomPlaces(shape);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (places_.count == 0) return;
    auto* const destination = reinterpret_cast<std::uint32_t*>(operands.destination);
    const dim3 block(mtl::cuda::kBlockThreads);
    const bool isPhilox = problem_.generator == RandomGenerator::Philox;
    if (!isPhilox)
      mtl::cuda::launch(stream, fillMTGP32, dim3(1), dim3(kMTGP32Threads), 0, places_,
                        reinterpret_cast<std::uint32_t*>(operands.parameters[0]), destination);
    if (rule_.isConstant)
      return mtl::cuda::launch(stream, fillConstant, blocksFor(places_.count), block, 0, places_,
                               rule_.minimum, destination);
    withNumbers(rule_.numbers, [&](auto numbers) {
      if (isPhilox) {
        mtl::cuda::launch(stream, fillPhilox<numbers()>, blocksFor((places_.count + 3) / 4), block, 0,
                          places_, rule_, cuda::PhiloxKeys(philoxKey(problem_.seed)),
                          static_cast<std::uint64_t>(operands.scalars[0]), destination);
      } else if constexpr (numbers() != RandomNumbers::Words) {
        mtl::cuda::launch(stream, convertWords<numbers()>, blocksFor(places_.count), block, 0, places_, rule_,
                          destination);
      }
    });
  }

 private:
  static dim3 blocksFor(std::int64_t threads) {
    constexpr std::int64_t kMostThreads = std::int64_t{1} << 20U;  // each then works on several items
    return {mtl::cuda::blocksFor(std::min(threads, kMostThreads))};
  }

  MatrixRandomProblem problem_;
  RandomRule rule_;
  RandomPlaces places_;
};

Preparation prepareRandom(const MatrixRandomProblem& problem) {
  return std::make_shared<const RandomPlan>(problem);
}

constexpr Implementation<MatrixRandomProblem> kImplementations[] = {{"grid-stride loop", prepareRandom}};

}  // namespace

std::span<const Implementation<MatrixRandomProblem>> matrixRandomImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
