#include "fuzz/fuzz_target.hpp"
#include "train/data/idx.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return unmetal::fuzz::readUntrusted(data, size, [](std::span<const std::byte> bytes) {
    const unmetal::train::IdxArray array = unmetal::train::parseIdx(bytes, "input");
    std::uint64_t count = 1;
    for (const std::uint64_t extent : array.shape) count *= extent;
    if (count != array.values.size()) std::abort();
  });
}
