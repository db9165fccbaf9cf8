#include "mps/conform/shared_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "mps/conform/run_on_device.hpp"
#include "mps/conform/testing/test_kernels_cuda.hpp"
#include "mtl/back_ends.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail::shared_memory_cuda_test {
namespace {

constexpr unsigned kBlocks = 1024;
constexpr std::size_t kWords = std::size_t{kBlocks} * testing::kSharedWords;

/// What kernels find in shared memory into which one before wrote threes.
std::vector<std::int32_t> foundWords(const std::shared_ptr<mtl::Device>& gpu, bool isPoisoned) {
  std::vector<std::int32_t> found(kWords);
  const auto memory = gpu->allocate(kWords * sizeof(std::int32_t));
  runOnDevice(gpu, "shared memory", [&](mtl::Stream& stream) {
    testing::setSharedMemory(stream, kBlocks, 3);
    if (isPoisoned) poisonSharedMemory(stream);
    testing::copyUnsetSharedMemory(stream, kBlocks, reinterpret_cast<std::int32_t*>(memory->address()));
    stream.read(memory->address(), std::as_writable_bytes(std::span(found)));
  });
  return found;
}

/// All but what the GPU keeps for itself in each block.
TEST(SharedMemory, KernelsFindItPoisoned) {
  for (const auto& gpu : mtl::cudaDevices()) {
    const auto most = static_cast<std::ptrdiff_t>(0.95 * kWords);
    EXPECT_EQ(std::ranges::count(foundWords(gpu, false), -1), 0) << gpu->name();
    EXPECT_GT(std::ranges::count(foundWords(gpu, true), -1), most) << gpu->name();
  }
}

}  // namespace
}  // namespace mps::detail::shared_memory_cuda_test
