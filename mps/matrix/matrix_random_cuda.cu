#include <algorithm>

#include "mps/core/philox.hpp"
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

/// x with Phi(x) = u for 0 < u < 1.
__device__ double normalQuantile(double u) {
  constexpr NormalQuantileCoefficients c;
  const double q = u - 0.5;
  if (fabs(q) <= 0.425) {
    const double r = fma(-q, q, 0.180625);
    return q * (polynomial(c.centre, r) / polynomial(c.underCentre, r));
  }
  const double s = sqrt(-log(fmin(u, 1.0 - u)));
  const double size = s > 5.0 ? polynomial(c.far, s - 5.0) / polynomial(c.underFar, s - 5.0)
                              : polynomial(c.near, s - 1.6) / polynomial(c.underNear, s - 1.6);
  return copysign(size, q);
}

/// What a word becomes, as the bits of an element.
__device__ std::uint32_t numberOf(const RandomRule& rule, std::uint32_t word) {
  if (rule.isConstant) return __float_as_uint(rule.minimum);
  const float t = static_cast<float>(word >> 9U) * 0x1p-23F;
  switch (rule.numbers) {
    case RandomNumbers::Words:
      return word;
    case RandomNumbers::UnitInterval:
      return __float_as_uint(t);
    case RandomNumbers::Uniform: {
      const float value = fmaf(rule.range, t, rule.minimum);
      return __float_as_uint(value < rule.maximum ? value : rule.belowMaximum);
    }
    case RandomNumbers::Normal:
      break;
  }
  const double u = fmax(fma(rule.width, static_cast<double>(t), rule.first), rule.least);
  const auto value = static_cast<float>(fma(rule.scale, normalQuantile(u), rule.mean));
  return __float_as_uint(fminf(fmaxf(value, rule.minimum), rule.maximum));
}

/// @param inWords the destination is a multiple of 16, and dense: blocks are stored whole
__global__ void fillPhilox(RandomPlaces places, RandomRule rule, std::uint64_t seed, std::uint64_t firstBlock,
                           bool inWords, std::uint32_t* destination) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t blocks = (places.count + 3) / 4;
  for (std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; b < blocks;
       b += step) {
    const std::uint64_t number = firstBlock + static_cast<std::uint64_t>(b);
    const PhiloxCounter words =
        philox({0, 0, static_cast<std::uint32_t>(number >> 32U), static_cast<std::uint32_t>(number)},
               philoxKey(seed));
    if (inWords && 4 * b + 4 <= places.count) {
      reinterpret_cast<uint4*>(destination)[b] = {numberOf(rule, words[0]), numberOf(rule, words[1]),
                                                  numberOf(rule, words[2]), numberOf(rule, words[3])};
      continue;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (4 * b + k < places.count) destination[places.at(4 * b + k)] = numberOf(rule, words[k]);
  }
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
__global__ void convertWords(RandomPlaces places, RandomRule rule, std::uint32_t* destination) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; e < places.count;
       e += step) {
    std::uint32_t& element = destination[places.at(e)];
    element = numberOf(rule, element);
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
    if (problem_.generator == RandomGenerator::Philox) {
      const bool inWords = places_.columns == places_.count &&
                           reinterpret_cast<std::uintptr_t>(destination) % sizeof(uint4) == 0;
      mtl::cuda::launch(stream, fillPhilox, blocksFor((places_.count + 3) / 4),
                        dim3(mtl::cuda::kBlockThreads), 0, places_, rule_, problem_.seed,
                        static_cast<std::uint64_t>(operands.scalars[0]), inWords, destination);
      return;
    }
    auto* const state = reinterpret_cast<std::uint32_t*>(operands.parameters[0]);
    mtl::cuda::launch(stream, fillMTGP32, dim3(1), dim3(kMTGP32Threads), 0, places_, state, destination);
    if (rule_.isConstant || rule_.numbers != RandomNumbers::Words)
      mtl::cuda::launch(stream, convertWords, blocksFor(places_.count), dim3(mtl::cuda::kBlockThreads), 0,
                        places_, rule_, destination);
  }

 private:
  static dim3 blocksFor(std::int64_t threads) {
    constexpr std::int64_t kMostThreads = std::int64_t{1} << 24U;  // each then works on several items
    return {mtl::cuda::blocksFor(std::min(threads, kMostThreads))};
  }

  MatrixRandomProblem problem_;
  RandomRule rule_;
  RandomPlaces places_;
};

Preparation prepareRandom(const MatrixRandomProblem& problem) {
  return std::make_shared<const RandomPlan>(problem);
}

constexpr Implementation<MatrixRandomProblem> kImplementations[] = {{"threads", prepareRandom}};

}  // namespace

std::span<const Implementation<MatrixRandomProblem>> matrixRandomImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
