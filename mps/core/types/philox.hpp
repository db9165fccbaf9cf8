#pragma once

#include <array>
#include <cstdint>

/// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw (2011): four random words are
/// a pure function of a counter and a key, so any element can be drawn anywhere, in any order, with the same
/// result.
///
/// | user | key | counter |
/// |---|---|---|
/// | dropout | seed, low and high word | element index / 8, image index, encode counter, 0 |
/// | MatrixRandomPhilox | seed, low and high word | 0, 0, block number high, low |
namespace mps::detail {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// Where a counter holds the number of a block, when many are drawn one after the other.
enum class PhiloxBlockNumber {
  FirstWord,  ///< in word 0
  LastWords,  ///< low half in word 3, high half in word 2
};

inline constexpr int kPhiloxRounds = 10;
inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr std::uint32_t kPhiloxKeyStep0 = 0x9E3779B9;
inline constexpr std::uint32_t kPhiloxKeyStep1 = 0xBB67AE85;

/// Low and high word of a 64-bit seed.
constexpr PhiloxKey philoxKey(std::uint64_t seed) {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)};
}

/// The four random words of a counter.
constexpr PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t p = std::uint64_t{kPhiloxMultiplier0} * counter[0];
    const std::uint64_t q = std::uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {static_cast<std::uint32_t>(q >> 32U) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(q),
               static_cast<std::uint32_t>(p >> 32U) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p)};
    key[0] += kPhiloxKeyStep0;
    key[1] += kPhiloxKeyStep1;
  }
  return counter;
}

}  // namespace mps::detail
