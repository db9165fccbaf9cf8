#include "mps/core/types/float16.hpp"

#include <bit>
#include <cmath>

namespace mps {
namespace {

constexpr std::uint32_t halfSign = 0x8000;
constexpr std::uint32_t halfInfinity = 0x7C00;
constexpr std::uint32_t halfQuietNaN = 0x7E00;
constexpr std::uint32_t halfPayload = 0x03FF;

}  // namespace

float toFloat(Float16 value) {
  const std::uint32_t magnitude = value.bits & ~halfSign;
  const std::uint32_t sign = (value.bits & halfSign) << 16U;
  if (magnitude < 0x0400U) {
    const float subnormal = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(subnormal) | sign);
  }
  std::uint32_t bits = (magnitude << 13U) + ((127U - 15U) << 23U);
  if (magnitude >= halfInfinity) bits |= 0x7F800000U;
  return std::bit_cast<float>(bits | sign);
}

Float16 toFloat16(float value) {
  return toFloat16(static_cast<double>(value));
}

Float16 toFloat16(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint32_t>(bits >> 48U) & halfSign;
  const double magnitude = std::abs(value);
  std::uint32_t result = 0;
  if (std::isnan(value)) {
    result = halfQuietNaN | (static_cast<std::uint32_t>(bits >> 42U) & halfPayload);
  } else if (magnitude >= 65520.0) {  // half a unit above the largest finite value
    result = halfInfinity;
  } else if (magnitude < 0x1p-14) {
    // The sum has its last place at 2^-24, the unit of the subnormals, so the addition rounds as wanted.
    const auto aligned = std::bit_cast<std::uint64_t>(magnitude + 0x1p28);
    result = static_cast<std::uint32_t>(aligned & 0x7FFU);
  } else {
    const std::uint64_t magnitudeBits = std::bit_cast<std::uint64_t>(magnitude);
    const std::uint64_t odd = (magnitudeBits >> 42U) & 1U;
    const std::uint64_t rounded = (magnitudeBits + ((std::uint64_t{1} << 41U) - 1U) + odd) >> 42U;
    result = static_cast<std::uint32_t>(rounded - (std::uint64_t{1023 - 15} << 10U));
  }
  return {static_cast<std::uint16_t>(result | sign)};
}

}  // namespace mps
