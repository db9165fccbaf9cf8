#pragma once

#include <cstddef>
#include <cstdint>

/// Plain value types of Metal.
namespace mtl {

struct Origin {
  std::size_t x = 0;
  std::size_t y = 0;
  std::size_t z = 0;
  bool operator==(const Origin&) const = default;
};

struct Size {
  std::size_t width = 0;
  std::size_t height = 0;
  std::size_t depth = 0;
  bool operator==(const Size&) const = default;
};

struct Region {
  Origin origin;
  Size size;
  bool operator==(const Region&) const = default;
};

/// Where a buffer's bytes live. On the CPU all of them are host memory; Private hides the bytes from
/// contents().
enum class StorageMode : std::uint64_t { Shared = 0, Managed = 1, Private = 2, Memoryless = 3 };

enum class CPUCacheMode : std::uint64_t { DefaultCache = 0, WriteCombined = 1 };

/// Bits of newBuffer: cache mode in bits 0-3, storage mode in bits 4-7, hazard tracking (0 to 2, as Metal numbers it) in
/// bits 8-9. Only the storage mode has an effect; a buffer is never memoryless.
enum class ResourceOptions : std::uint64_t {
  StorageModeShared = 0x00,
  StorageModeManaged = 0x10,
  StorageModePrivate = 0x20
};

}  // namespace mtl
