#include "fuzz/fuzz_target.hpp"
#include "mps/weights/safetensors.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return unmetal::fuzz::readUntrusted(data, size, [](std::span<const std::byte> bytes) {
    const auto file = mps::SafetensorsFile::parse(bytes, "input");
    for (const mps::SafetensorsTensor& tensor : file.tensors()) {
      // BF16 becomes twice as long.
      if (tensor.bytes.size() > 2 * bytes.size()) std::abort();
      if (tensor.type != mps::DataType::Float32 && tensor.type != mps::DataType::Float16) continue;
      if (file.floats(tensor.name, tensor.shape).size() * mps::sizeInBytes(tensor.type) !=
          tensor.bytes.size())
        std::abort();
    }
  });
}
