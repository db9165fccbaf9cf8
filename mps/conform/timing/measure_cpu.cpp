#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>

#include "mps/conform/run_on_device.hpp"
#include "mps/conform/timing/measure.hpp"
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
  // Each thread multiplies rows of its own, with the right matrix in the layout that oneDNN likes best.
  const std::int64_t threads = device->threadCount();
  const std::int64_t rows = (kMatrixSize + threads - 1) / threads;
  using dnnl::memory;
  const auto describe = [](std::int64_t height, memory::format_tag tag) {
    return memory::desc({height, kMatrixSize}, memory::data_type::f32, tag);
  };
  const memory::desc plain = describe(rows, memory::format_tag::ab);
  const mtl::cpu::OneDnnPrimitive product =
      mtl::cpu::oneDnnProduct(plain, describe(kMatrixSize, memory::format_tag::any), plain);
  const auto allocate = [&](std::size_t bytes) {
    auto block = device->allocate(bytes);
    std::memset(block->address(), 0x3C, block->length());  // 0.0115 in every element
    return block;
  };
  const std::size_t ofRows = product.argument(DNNL_ARG_SRC).get_size();
  const auto left = allocate(ofRows * static_cast<std::size_t>(threads));
  const auto right = allocate(product.argument(DNNL_ARG_WEIGHTS).get_size());
  const auto result = allocate(ofRows * static_cast<std::size_t>(threads));
  const auto scratch = allocate(product.scratchpadBytes() * static_cast<std::size_t>(threads));
  const auto multiply = [&](mtl::Stream& stream) {
    mtl::cpu::asCpu(stream).forEach(threads, static_cast<int>(threads), [&](std::int64_t i, int /*thread*/) {
      const auto at = static_cast<std::size_t>(i);
      product.run({{DNNL_ARG_SRC, left->address() + at * ofRows},
                   {DNNL_ARG_WEIGHTS, right->address()},
                   {DNNL_ARG_DST, result->address() + at * ofRows}},
                  scratch->address() + at * product.scratchpadBytes());
    });
  };
  const Timing timing =
      timeRepeated([&](int repetitions) { return runOnDevice(device, "matmul", multiply, repetitions); });
  return 2.0 * static_cast<double>(rows * threads) * kMatrixSize * kMatrixSize / timing.milliseconds * 1e-6;
}

}  // namespace mps::detail
