#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace mtl {
class Device;
class Memory;
}  // namespace mtl

/// Coding of float32 values that lie on a device. The library's own.
namespace mps {
class Coder;
}

namespace mps::detail {

/// float32 values in a block of memory; none without a block.
struct FloatsInMemory {
  std::shared_ptr<mtl::Memory> memory;
  std::size_t byteOffset = 0;
  std::size_t count = 0;
};

/// Runs the copy to the host: contents() are what the device holds. No work on the memory may be in flight.
void bringToHost(mtl::Device& device, mtl::Memory& memory);

/// The values, after bringToHost().
std::vector<float> floatsOf(mtl::Device& device, const FloatsInMemory& values);

/// Values that usually are what an object's data source gives: written where they differ, otherwise left out.
/// @return what was read; nothing when writing and where they were left out
/// @throws Error when neither `usual.count` nor, for values that may be missing, none were read
std::optional<std::vector<float>> codeUnusualFloats(Coder& coder, std::string_view key, mtl::Device& device,
                                                    const FloatsInMemory& values, const FloatsInMemory& usual,
                                                    std::size_t count, bool mayBeMissing = false);

}  // namespace mps::detail
