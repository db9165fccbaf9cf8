#include <cstring>
#include <utility>

#include "mps/conform/measure.hpp"
#include "mps/conform/run_on_device.hpp"
#include "mps/core/product_cpu.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

/// The figures of the CPU.
namespace mps::detail {
namespace {

constexpr std::int64_t kMatrixSize = 2048;
constexpr std::int64_t kCopyGrain = 64 << 10;

}  // namespace

void copyOnCpu(mtl::Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes) {
  mtl::cpu::asCpu(stream).parallelFor(
      static_cast<std::int64_t>(bytes), kCopyGrain, [&](std::int64_t begin, std::int64_t end) {
        std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
      });
}

double matmulRate(const std::shared_ptr<mtl::Device>& device) {
  if (device->kind() != mtl::DeviceKind::CPU) return 0;
  ProductShape shape;
  shape.rows = shape.columns = shape.interior = kMatrixSize;
  shape.left = shape.right = shape.result = {0, kMatrixSize, 1};
  const DividedProduct product(shape, device->threadCount());
  const auto allocate = [&] {
    auto block = device->allocate(static_cast<std::size_t>(kMatrixSize * kMatrixSize) * sizeof(float));
    std::memset(block->address(), 0x3C, block->length());  // 0.0115 in every element
    return block;
  };
  const auto left = allocate();
  const auto right = allocate();
  const auto result = allocate();
  const auto scratch = device->allocate(product.scratchBytes());
  const auto floats = [](const auto& block) { return reinterpret_cast<float*>(block->address()); };
  const auto multiply = [&](mtl::Stream& stream) {
    product.run(mtl::cpu::asCpu(stream), floats(left), floats(right), nullptr, floats(result), scratch->address());
  };
  const Timing timing =
      timeRepeated([&](int repetitions) { return runOnDevice(device, "matmul", multiply, repetitions); });
  return 2.0 * kMatrixSize * kMatrixSize * kMatrixSize / timing.milliseconds * 1e-6;
}

}  // namespace mps::detail
