#include "mps/core/coding/coded_floats.hpp"

#include <cstring>

#include "mps/core/coding/coder.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {

void bringToHost(mtl::Device& device, mtl::Memory& memory) {
  const auto commandBuffer = device.newCommandQueue()->commandBuffer();
  memory.synchronize(*commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

std::vector<float> floatsOf(mtl::Device& device, const FloatsInMemory& values) {
  std::vector<float> floats(values.memory ? values.count : 0);
  if (floats.empty()) return floats;
  bringToHost(device, *values.memory);
  std::memcpy(floats.data(), values.memory->contents() + values.byteOffset, floats.size() * sizeof(float));
  return floats;
}

std::optional<std::vector<float>> codeUnusualFloats(Coder& coder, std::string_view key, mtl::Device& device,
                                                    const FloatsInMemory& values, const FloatsInMemory& usual,
                                                    std::size_t count, bool mayBeMissing) {
  if (coder.isDecoding()) {
    if (!coder.contains(key)) return std::nullopt;
    std::vector<float> found;
    coder.decode(key, found);
    if (found.size() != count && !(mayBeMissing && found.empty()))
      coder.refuse(key, std::to_string(found.size()) + " values", std::to_string(count));
    return found;
  }
  const std::vector<float> now = floatsOf(device, values);
  const std::vector<float> then = floatsOf(device, usual);
  if (now.size() != then.size() ||
      (!now.empty() && std::memcmp(now.data(), then.data(), now.size() * sizeof(float)) != 0))
    coder.encode(key, now);
  return std::nullopt;
}

}  // namespace mps::detail
