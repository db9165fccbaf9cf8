#pragma once

#include <cstdint>
#include <string_view>

namespace unmetal {

/// CRC-32C (Castagnoli: polynomial 0x1EDC6F41, reflected); the bytes "123456789" give 0xE3069283.
std::uint32_t crc32c(std::string_view bytes);
/// As records of TensorFlow keep it, so that the checksum of something with a checksum in it is no special number: turned
/// by 15 bits, plus a constant.
std::uint32_t maskedCrc32c(std::string_view bytes);

}  // namespace unmetal
