#include <cmath>
#include <cstdint>
#include <memory>

#include "mps/core/element_grid_cuda.cuh"
#include "mps/core/philox.hpp"
#include "mps/dropout/dropout_problem.hpp"

namespace mps::detail {
namespace {

using cuda::ElementGrid;
using cuda::ElementPlace;
using cuda::JoinedAxes;

/// The keys of the rounds, which are the same for all elements.
struct PhiloxKeys {
  std::uint32_t words[kPhiloxRounds][2];

  explicit PhiloxKeys(PhiloxKey key) {
    for (auto& round : words) {
      round[0] = key[0];
      round[1] = key[1];
      key[0] += kPhiloxKeyStep0;
      key[1] += kPhiloxKeyStep1;
    }
  }
};

/// The four words of philox().
__device__ uint4 draw(uint4 counter, const PhiloxKeys& keys) {
#pragma unroll
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t p = static_cast<std::uint64_t>(kPhiloxMultiplier0) * counter.x;
    const std::uint64_t q = static_cast<std::uint64_t>(kPhiloxMultiplier1) * counter.z;
    counter = {static_cast<std::uint32_t>(q >> 32U) ^ counter.y ^ keys.words[round][0],
               static_cast<std::uint32_t>(q),
               static_cast<std::uint32_t>(p >> 32U) ^ counter.w ^ keys.words[round][1],
               static_cast<std::uint32_t>(p)};
  }
  return counter;
}

__device__ std::uint32_t wordOf(const uint4& words, std::uint32_t number) {
  return number < 2 ? (number == 0 ? words.x : words.y) : (number == 2 ? words.z : words.w);
}

/// DropoutProblem::maskIndex(), as steps along the axes.
struct MaskIndex {
  std::uint32_t first = 0;
  std::uint32_t row = 0;
  std::uint32_t pixel = 0;
  std::uint32_t channel = 0;

  explicit MaskIndex(const DropoutProblem& problem) {
    const auto at = [&](std::int64_t x, std::int64_t y, std::int64_t channelNumber) {
      return static_cast<std::uint32_t>(problem.maskIndex(x, y, channelNumber));
    };
    first = at(0, 0, 0);
    row = at(0, 1, 0) - first;
    pixel = at(1, 0, 0) - first;
    channel = at(0, 0, 1) - first;
  }
};

struct DropoutFunction {
  MaskIndex index;
  PhiloxKeys keys;
  std::uint32_t firstImage;
  std::uint32_t encodeCounter;
  std::uint32_t threshold;  ///< keep where word >> 8 is smaller
  float keepProbability;
  float reciprocal;  ///< of a power of two, for which it is exact; else 0

  template <class Values>
  __device__ void operator()(const ElementPlace& place, const Values (&in)[1], Values& result) const {
    constexpr int lanes = sizeof(Values) / sizeof(float);
    const std::uint32_t start = index.first + static_cast<std::uint32_t>(place.y) * index.row +
                                static_cast<std::uint32_t>(place.x) * index.pixel +
                                static_cast<std::uint32_t>(place.channel) * index.channel;
    const std::uint32_t image = firstImage + static_cast<std::uint32_t>(place.image);
    const auto block = [&](std::uint32_t number) { return draw({number, image, encodeCounter, 0}, keys); };
    if constexpr (lanes % 4 == 0) {
      if (index.channel == 1 && start % 4 == 0) {
#pragma unroll
        for (int lane = 0; lane < lanes; lane += 4) {
          const uint4 words = block(start / 4 + static_cast<std::uint32_t>(lane / 4));
          apply(in[0], result, lane, words.x);
          apply(in[0], result, lane + 1, words.y);
          apply(in[0], result, lane + 2, words.z);
          apply(in[0], result, lane + 3, words.w);
        }
        return;
      }
    }
    std::uint32_t drawn = start / 4;
    uint4 words = block(drawn);
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      const std::uint32_t i = start + static_cast<std::uint32_t>(lane) * index.channel;
      if (i / 4 != drawn) {
        drawn = i / 4;
        words = block(drawn);
      }
      apply(in[0], result, lane, wordOf(words, i % 4));
    }
  }

 private:
  /// x M / keepProbability; M times NaN or infinity is NaN for M = 0.
  template <class Values>
  __device__ void apply(const Values& in, Values& result, int lane, std::uint32_t word) const {
    const float kept = in.values[lane] * (word >> 8U < threshold ? 1.0F : 0.0F);
    result.values[lane] = reciprocal != 0.0F ? kept * reciprocal : kept / keepProbability;
  }
};

/// (word >> 8) 2^-24 < keepProbability, in integers: exact, as 2^24 times a float is.
std::uint32_t keepThreshold(float keepProbability) {
  return static_cast<std::uint32_t>(std::ceil(static_cast<double>(keepProbability) * 0x1p24));
}

/// 1 / keepProbability where it is exact, else 0.
float exactReciprocal(float keepProbability) {
  int exponent = 0;
  const bool isExact = std::frexp(keepProbability, &exponent) == 0.5F && exponent >= -120;
  return isExact ? 1.0F / keepProbability : 0.0F;
}

/// Whether the elements of an image lie in the mask as they do in a dense tensor.
bool isContiguous(const DropoutProblem& problem) {
  return problem.maskStrideX != 0 && problem.maskStrideY != 0 && problem.maskStrideChannel != 0 &&
         problem.maskWidth == problem.input.width && problem.maskChannels == problem.input.channels;
}

class DropoutPlan final : public Plan {
 public:
  explicit DropoutPlan(const DropoutProblem& problem) : problem_(problem), index_(problem) {
    cuda::joinAxes({&problem_.destination, &problem_.input},
                   isContiguous(problem) ? JoinedAxes::OfAnImage : JoinedAxes::None);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& shape = problem_.destination;
    if (shape.elements() == 0) return;
    const std::byte* const input =
        problem_.direction == DropoutDirection::Forward ? operands.source : operands.gradient;
    cuda::MapArguments<1> arguments;
    arguments.sources[0] = {problem_.input, input};
    arguments.destination = {shape, operands.destination};
    arguments.accumulate = operands.accumulate;
    const DropoutFunction function{index_,
                                   PhiloxKeys(philoxKey(problem_.seed)),
                                   static_cast<std::uint32_t>(operands.scalars[1]),
                                   static_cast<std::uint32_t>(operands.scalars[0]),
                                   keepThreshold(problem_.keepProbability),
                                   problem_.keepProbability,
                                   exactReciprocal(problem_.keepProbability)};
    const bool takesPacks =
        cuda::takesLanes(problem_.input, input) && cuda::takesLanes(shape, operands.destination);
    cuda::withAccess(cuda::commonFormat({&problem_.input, &shape}), takesPacks, [&](auto access) {
      cuda::launchMap<decltype(access)>(stream, arguments, shape, function);
    });
  }

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.direction == DropoutDirection::Gradient &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  DropoutProblem problem_;  ///< with joined axes
  MaskIndex index_;
};

Preparation prepareElements(const DropoutProblem& problem) {
  for (const TensorShape* shape : {&problem.input, &problem.destination})
    if (!ElementGrid::fits(*shape)) return Refusal{ElementGrid::kTooLarge};
  if (problem.maskElements() > 0xFFFFFFFF) return Refusal{"a mask of 2^32 elements"};
  return std::make_shared<const DropoutPlan>(problem);
}

constexpr Implementation<DropoutProblem> implementations[] = {{"elements", prepareElements}};

}  // namespace

std::span<const Implementation<DropoutProblem>> dropoutImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
