#include "tools/tensorboard/crc32c.hpp"

#include <array>
#include <bit>

namespace unmetal {
namespace {

constexpr std::array<std::uint32_t, 256> castagnoliTable() {
  constexpr std::uint32_t polynomial = 0x82F63B78;  // reflected
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1U) ^ ((value & 1U) != 0 ? polynomial : 0);
    table[byte] = value;
  }
  return table;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto table = castagnoliTable();
  std::uint32_t value = ~0U;
  for (const char byte : bytes)
    value = (value >> 8U) ^ table[(value ^ static_cast<std::uint8_t>(byte)) & 0xFFU];
  return ~value;
}

std::uint32_t maskedCrc32c(std::string_view bytes) {
  constexpr std::uint32_t summand = 0xA282EAD8;
  return std::rotr(crc32c(bytes), 15) + summand;
}

}  // namespace unmetal
