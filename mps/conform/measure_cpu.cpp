#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>

#include "mps/conform/measure.hpp"
#include "mps/conform/run_on_device.hpp"
#include "mtl/cpu/onednn.hpp"
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
  using dnnl::memory;
  const mtl::cpu::OneDnnThreads threads(device->threadCount());
  const memory::dims dims{kMatrixSize, kMatrixSize};
  const memory::desc plain(dims, memory::data_type::f32, memory::format_tag::ab);
  const memory::desc any(dims, memory::data_type::f32, memory::format_tag::any);
  const mtl::cpu::OneDnnPrimitive matmul = mtl::cpu::oneDnnProduct(plain, any, plain);
  const auto allocate = [&](int argument) {
    auto block = device->allocate(matmul.argument(argument).get_size());
    std::memset(block->address(), 0x3C, block->length());  // 0.0115 in every element
    return block;
  };
  const auto source = allocate(DNNL_ARG_SRC);
  const auto weights = allocate(DNNL_ARG_WEIGHTS);
  const auto destination = allocate(DNNL_ARG_DST);
  const auto scratch = device->allocate(matmul.scratchpadBytes());
  const auto multiply = [&](mtl::Stream& stream) {
    const mtl::cpu::OneDnnThreads here(mtl::cpu::asCpu(stream).threadCount());
    matmul.run({{DNNL_ARG_SRC, source->address()},
                {DNNL_ARG_WEIGHTS, weights->address()},
                {DNNL_ARG_DST, destination->address()}},
               scratch->address());
  };
  const Timing timing =
      timeRepeated([&](int repetitions) { return runOnDevice(device, "matmul", multiply, repetitions); });
  return 2.0 * kMatrixSize * kMatrixSize * kMatrixSize / timing.milliseconds * 1e-6;
}

}  // namespace mps::detail
