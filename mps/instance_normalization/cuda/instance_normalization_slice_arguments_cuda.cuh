#pragma once

#include <cstdint>
#include <numeric>

#include "mps/instance_normalization/cuda/instance_normalization_cuda.cuh"

/// What kernels know of a slice, which is some channels of an image, whole groups of them, and how the blocks of a
/// thread-block cluster exchange their sums: they write into one another's shared memory.
namespace mps::detail::cuda {

/// Blocks of one slice, which follow one another along x, share their memory from compute capability 9.0 on.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define UNMETAL_BLOCKS_OF_SLICE(blocks)
#else
#define UNMETAL_BLOCKS_OF_SLICE(blocks) __cluster_dims__(blocks)
#endif

/// @name Between the blocks of a slice: each sends its sums to all of them, and whoever waits until the bytes have come needs
/// no fences, which would wait for all memory.
/// @{
/// All threads take part.
__device__ inline void arriveInSlice() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
__device__ inline void waitInSlice() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}
__device__ inline std::uint32_t sharedAddress(const void* address) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(address));
}
/// Makes a barrier for bytes that come. One thread does, before it arrives in the slice.
__device__ inline void makeMailbox(std::uint64_t* barrier) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(sharedAddress(barrier)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
/// One thread says how many bytes the mailbox gets next, before it or after they have come.
__device__ inline void expectMail(std::uint64_t* barrier, std::uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sharedAddress(barrier)),
               "r"(bytes)
               : "memory");
#endif
}
/// @param place, barrier addresses in this block's shared memory, which stand for the same ones in that of another block
__device__ inline void sendMail(double value, const double* place, const std::uint64_t* barrier,
                                unsigned block) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  std::uint32_t to = 0;
  std::uint32_t toBarrier = 0;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(sharedAddress(place)), "r"(block));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(toBarrier) : "r"(sharedAddress(barrier)), "r"(block));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(to),
               "l"(__double_as_longlong(value)), "r"(toBarrier)
               : "memory");
#endif
}
/// Waits until the bytes of a round, 0 or 1, have come.
__device__ inline void waitForMail(const std::uint64_t* barrier, unsigned round) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  std::uint32_t isThere = 0;
  while (isThere == 0)
    asm volatile(
        "{ .reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(isThere)
        : "r"(sharedAddress(barrier)), "r"(round)
        : "memory");
#endif
}
/// @}

inline constexpr std::uint32_t kSliceStages = 4;  ///< of pixels, that are waited for one after the other

struct SliceArguments {
  SourceView source;
  SourceView gradient;  ///< of gradients
  ResultView destination;
  std::uint32_t pixels = 0;         ///< of an image
  std::uint32_t pixelsOfBlock = 0;  ///< at most
  std::uint32_t vectors = 0;        ///< of 16 bytes of a slice, at most 32
  std::uint32_t rows = 0;        ///< pixels that a block accesses at once, whole lines of the cache if it can
  std::uint32_t stageSteps = 0;  ///< pixels of a thread in each stage
  Divider channels;              ///< of a slice, as the caller has them
  Divider groupChannels;
  double imagePixels = 0;           ///< as the caller has them
  double inversePixels = 0;         ///< 1 / imagePixels
  double inverseGroupElements = 0;  ///< 1 / m
  double epsilon = 0;
  GroupStatistics statistics;  ///< to save, or for gradients to read; or no memory
  const float* gamma = nullptr;
  const float* beta = nullptr;
  // Of gradients.
  ImageSums sums;                  ///< what B and G go to where the next is null
  float* gammaGradient = nullptr;  ///< rows of channels
  float* betaGradient = nullptr;
  bool computesData = true;
  bool accumulate = false;

  /// Sets how blocks of so many threads go over vectors of pixels. @pre pixelsOfBlock is set
  void setVectors(std::int64_t vectorCount, std::int64_t threads) {
    vectors = static_cast<std::uint32_t>(vectorCount);
    rows = static_cast<std::uint32_t>(rowsOf(vectorCount, threads));
    stageSteps = (pixelsOfBlock + kSliceStages * rows - 1) / (kSliceStages * rows);
  }
  /// Pixels that such a block accesses at once.
  static std::int64_t rowsOf(std::int64_t vectorCount, std::int64_t threads) {
    const std::int64_t all = threads / vectorCount;
    const std::int64_t rowsOfLines = 8 / std::gcd(vectorCount, std::int64_t{8});
    return all >= 4 * rowsOfLines ? all - all % rowsOfLines : all;
  }
  /// The caller's channel of a slice behind a widened one.
  [[nodiscard]] __device__ std::uint32_t channelOf(std::uint32_t i) const {
    return i - channels.divide(i) * channels.divisor();
  }
  /// Of a channel as the caller has it.
  [[nodiscard]] __device__ std::uint32_t groupOf(std::uint32_t c) const { return groupChannels.divide(c); }
};

}  // namespace mps::detail::cuda
