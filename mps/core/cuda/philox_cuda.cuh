#pragma once

#include <cuda_runtime.h>

#include "mps/core/types/philox.hpp"

namespace mps::detail::cuda {

/// The keys of the rounds, which are the same for all counters.
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
__device__ inline uint4 draw(uint4 counter, const PhiloxKeys& keys) {
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

}  // namespace mps::detail::cuda
