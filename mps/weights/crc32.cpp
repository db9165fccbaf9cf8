#include "mps/weights/crc32.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace mps {
namespace {

static_assert(std::endian::native == std::endian::little, "words below are read as little endian");

constexpr std::size_t wordBytes = sizeof(std::uint64_t);
using Table = std::array<std::uint32_t, 256>;

/// tables[k][b]: the remainder of byte b followed by k zero bytes, so that eight bytes take one step.
constexpr std::array<Table, wordBytes> makeTables() {
  constexpr std::uint32_t reflectedPolynomial = 0xEDB88320U;
  std::array<Table, wordBytes> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit)
      remainder = (remainder >> 1) ^ ((remainder & 1) ? reflectedPolynomial : 0);
    tables[0][byte] = remainder;
  }
  for (std::size_t zeros = 1; zeros < wordBytes; ++zeros) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t shorter = tables[zeros - 1][byte];
      tables[zeros][byte] = (shorter >> 8) ^ tables[0][shorter & 0xFF];
    }
  }
  return tables;
}

constexpr std::array<Table, wordBytes> tables = makeTables();

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t remainder = ~before;
  while (bytes.size() >= wordBytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), wordBytes);
    word ^= remainder;
    remainder = 0;
    for (std::size_t i = 0; i < wordBytes; ++i)
      remainder ^= tables[wordBytes - 1 - i][(word >> (8 * i)) & 0xFF];
    bytes = bytes.subspan(wordBytes);
  }
  for (const std::byte byte : bytes) {
    remainder = (remainder >> 8) ^ tables[0][(remainder ^ std::to_integer<std::uint32_t>(byte)) & 0xFF];
  }
  return ~remainder;
}

}  // namespace mps
