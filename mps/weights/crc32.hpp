#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mps {

/// CRC-32 as in zip and PNG files (polynomial 0x04C11DB7, reflected); the bytes "123456789" give 0xCBF43926.
/// `before` is the value of what comes before `bytes`, so that parts can be added one after the other.
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace mps
