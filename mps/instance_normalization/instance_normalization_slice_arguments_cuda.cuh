#pragma once

#include <cstdint>
#include <numeric>

#include "mps/instance_normalization/instance_normalization_cuda.cuh"

/// What kernels know of a slice, which is some channels of an image, whole groups of them, and how the blocks that work on
/// one exchange their sums: those of a cluster read one another's shared memory, those of a team global memory.
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

/// In place of a number of blocks of a slice: they are a team, see instance_normalization_teams_cuda.cuh.
inline constexpr unsigned kTeam = 0;

struct TeamArguments {
  std::uint32_t blocks = 1;  ///< of a team
  std::uint32_t teams = 1;
  std::uint32_t items = 0;  ///< slices of all images
  Divider slices;           ///< of an image
  // 0 at first.
  ulonglong2* sums = nullptr;   ///< [team][parity of its round][block][which][channel]
  ulonglong2* begun = nullptr;  ///< [team][block]
};

inline constexpr std::uint32_t kSliceStages = 4;  ///< of pixels, that are waited for one after the other

struct SliceArguments {
  SourceView source;
  SourceView gradient;  ///< of gradients
  ResultView destination;
  std::uint32_t pixels = 0;         ///< of an image
  std::uint32_t pixelsOfBlock = 0;  ///< at most
  std::uint32_t heldPixels = 0;     ///< of a block in its shared memory, at most
  std::uint32_t packs = 0;          ///< of 16 bytes of a slice, at most 32
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
  TeamArguments team;

  /// Sets how blocks of so many threads go over packs of pixels. @pre heldPixels is set
  void setPacks(std::int64_t packCount, std::int64_t threads) {
    packs = static_cast<std::uint32_t>(packCount);
    rows = static_cast<std::uint32_t>(rowsOf(packCount, threads));
    stageSteps = (heldPixels + kSliceStages * rows - 1) / (kSliceStages * rows);
  }
  /// Pixels that such a block accesses at once.
  static std::int64_t rowsOf(std::int64_t packCount, std::int64_t threads) {
    const std::int64_t all = threads / packCount;
    const std::int64_t rowsOfLines = 8 / std::gcd(packCount, std::int64_t{8});
    return all >= 4 * rowsOfLines ? all - all % rowsOfLines : all;
  }
  /// The caller's channel of a slice behind a widened one.
  [[nodiscard]] __device__ std::uint32_t channelOf(std::uint32_t i) const {
    return i - channels.divide(i) * channels.divisor();
  }
  /// Of a channel as the caller has it.
  [[nodiscard]] __device__ std::uint32_t groupOf(std::uint32_t c) const { return groupChannels.divide(c); }
};

/// @name A float64 number between blocks, in two words, each of which has half of it and a tag: so whoever finds the tag has
/// the number, and nobody waits for fences. The tag is not 0, which memory has at first.
/// @{
__device__ inline void sendTagged(double value, std::uint32_t tag, ulonglong2* to) {
  const auto bits = static_cast<std::uint64_t>(__double_as_longlong(value));
  const std::uint64_t high = static_cast<std::uint64_t>(tag) << 32;
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(high | (bits & 0xFFFFFFFF)),
               "l"(high | (bits >> 32))
               : "memory");
}
__device__ inline ulonglong2 receiveTagged(const ulonglong2* from) {
  ulonglong2 words;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(words.x), "=l"(words.y)
               : "l"(from)
               : "memory");
  return words;
}
__device__ inline bool hasTag(const ulonglong2& words, std::uint32_t tag) {
  return words.x >> 32 == tag && words.y >> 32 == tag;
}
__device__ inline double valueOf(const ulonglong2& words) {
  return __hiloint2double(static_cast<int>(words.y), static_cast<int>(words.x));
}
/// @}

/// Sums of all blocks of a team. Of two rounds that follow one another each has memory of its own: who is one round ahead
/// must not overwrite what is still read.
/// @param round how often this block has been here before @param ownSums [which][wide], of this block
/// @param partial memory for two doubles per warp and channel @param result as ownSums
__device__ inline void joinInTeam(const SliceArguments& a, unsigned round, const double* ownSums,
                                  double* partial, std::uint32_t wide, double* result) {
  constexpr std::uint32_t ahead = 12;
  const std::uint32_t channels = a.channels.divisor();
  const std::uint32_t values = 2 * channels;
  const std::uint32_t blocks = a.team.blocks;
  const auto placeOf = [&](std::uint32_t value) {
    return value < channels ? value : wide + value - channels;
  };
  __syncthreads();
  ulonglong2* const sums =
      a.team.sums + static_cast<std::int64_t>(blockIdx.x / blocks * 2 + round % 2) * blocks * values;
  for (std::uint32_t value = threadIdx.x; value < values; value += blockDim.x)
    sendTagged(ownSums[placeOf(value)], round + 1, sums + blockIdx.x % blocks * values + value);
  // As many threads as there are for each value.
  const std::uint32_t parts = min(blockDim.x / 32, max(1U, blockDim.x / values));
  for (std::uint32_t i = threadIdx.x; i < parts * values; i += blockDim.x) {
    const std::uint32_t part = i / values;
    const ulonglong2* const from = sums + (i - part * values);
    double sum = 0;
    for (std::uint32_t block = part; block < blocks; block += ahead * parts) {
      ulonglong2 words[ahead] = {};
      bool areThere = false;
      while (!areThere) {  // what has come is not asked for again: the memory has others to serve
        areThere = true;
#pragma unroll
        for (std::uint32_t k = 0; k < ahead; ++k)
          if (block + k * parts < blocks && !hasTag(words[k], round + 1))
            words[k] = receiveTagged(from + (block + k * parts) * values);
#pragma unroll
        for (std::uint32_t k = 0; k < ahead; ++k)
          if (block + k * parts < blocks) areThere = areThere && hasTag(words[k], round + 1);
      }
#pragma unroll
      for (std::uint32_t k = 0; k < ahead; ++k)
        if (block + k * parts < blocks) sum += valueOf(words[k]);
    }
    partial[i] = sum;
  }
  __syncthreads();
  for (std::uint32_t value = threadIdx.x; value < values; value += blockDim.x) {
    double sum = 0;
    for (std::uint32_t part = 0; part < parts; ++part) sum += partial[part * values + value];
    result[placeOf(value)] = sum;
  }
}

}  // namespace mps::detail::cuda
