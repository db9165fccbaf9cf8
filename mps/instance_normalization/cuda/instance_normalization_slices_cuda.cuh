#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <span>

#include "mps/instance_normalization/cuda/instance_normalization_slice_part_cuda.cuh"

/// A few blocks for some channels of an image, whole groups of them: they hold the pixels in shared memory, so that each
/// is read once, and read one another's sums there.
namespace mps::detail::cuda {

/// How the slices of a problem are cut.
struct SliceDivision {
  SliceArguments arguments;
  unsigned slices = 0;  ///< 0: an image is too large
  unsigned blocks = 1;  ///< of a slice: 1, 2, 4 or 8
  unsigned threads = 0;
  std::size_t sharedBytes = 0;

  /// How many blocks of a multiprocessor take turns in loading, adding and storing, and how many vectors slices have at
  /// least: the L2 cache answers for a line of 128 bytes as fast as for a part of it.
  struct Preference {
    std::int64_t fewestVectors;
    unsigned neighbours;
    unsigned mostBlocks;  ///< of a slice; those alone wait for no others
  };
  /// Best first. @param sums of a thread, two for each: sixteen take so long that turns matter more than lines
  static std::span<const Preference> preferences(std::int64_t sums) {
    static constexpr Preference few[] = {{8, 4, 1}, {8, 3, 1}, {8, 4, 8}, {8, 2, 8}, {4, 4, 8},
                                         {4, 2, 8}, {2, 4, 8}, {2, 2, 8}, {4, 1, 8}, {2, 1, 8}};
    static constexpr Preference many[] = {{8, 4, 1}, {8, 3, 1}, {4, 4, 8}, {8, 2, 8}, {4, 2, 8},
                                          {2, 4, 8}, {2, 2, 8}, {4, 1, 8}, {2, 1, 8}};
    return sums < 16 ? std::span<const Preference>(few) : many;
  }

  /// As many threads as there may be, without a warp of which some have no pixels, if there is such a number.
  static unsigned threadsFor(std::int64_t vectors, unsigned most) {
    const auto whole = static_cast<unsigned>(std::lcm(vectors, std::int64_t{32}));
    const unsigned used = most - most % whole;
    return used >= kFewestSliceThreads && 4 * used >= 3 * most ? used : most;
  }

  /// @param shape of the source, perhaps widened @param channels before that @param tensors that are held
  /// @param mostBlocks of a slice @param sharedLimit of a block @param sharedOfProcessor of all of its blocks
  SliceDivision(const TensorShape& shape, std::int64_t lanes, std::int64_t channels,
                std::int64_t groupChannels, std::int64_t tensors, unsigned mostBlocks,
                std::size_t sharedLimit, std::size_t sharedOfProcessor) {
    const bool isWidened = shape.channels != channels;
    const std::int64_t vectorsOfPixel = shape.channels / lanes;
    const std::int64_t pixels = shape.width * shape.height;
    for (const auto& [fewestVectors, neighbours, most] : preferences(lanes * tensors)) {
      const std::size_t limit = std::min(sharedLimit, sharedOfProcessor / neighbours - 1024);
      for (blocks = 1; blocks <= std::min(most, mostBlocks); blocks *= 2)
        for (std::int64_t vectors = std::min<std::int64_t>(32, vectorsOfPixel); vectors > 0; --vectors) {
          const bool isWhole = vectors == vectorsOfPixel;
          if (!isWhole && (isWidened || vectors < fewestVectors || vectorsOfPixel % vectors != 0 ||
                           vectors * lanes % groupChannels != 0))
            continue;
          threads = threadsFor(vectors, kMostSliceThreads / std::bit_ceil(neighbours));
          const auto wide = static_cast<std::size_t>(vectors * lanes);
          const std::int64_t own = (pixels + blocks - 1) / blocks;
          sharedBytes = static_cast<std::size_t>(own * vectors * tensors) * sizeof(uint4) +
                        (2 * threads / 32 + (blocks > 1 ? 2 * blocks : 0) + 2) * wide * sizeof(double) +
                        3 * wide * sizeof(float) + sizeof(std::uint64_t);
          if (sharedBytes > limit) continue;
          arguments.pixels = static_cast<std::uint32_t>(pixels);
          arguments.pixelsOfBlock = static_cast<std::uint32_t>(own);
          arguments.setVectors(vectors, threads);
          arguments.channels = Divider(isWidened ? channels : vectors * lanes);
          arguments.groupChannels = Divider(groupChannels);
          slices = static_cast<unsigned>(vectorsOfPixel / vectors);
          return;
        }
    }
  }
};

template <class T, unsigned blocks>
__global__ void UNMETAL_BLOCKS_OF_SLICE(blocks) __launch_bounds__(kMostSliceThreads, 1)
    normalizeSlices(SliceArguments a) {
  const SlicePart<T, blocks, 1> part(a, blockIdx.y, blockIdx.x / blocks, blockIdx.x % blocks);
  const std::uint32_t groups = a.groupOf(a.channels.divisor());
  const std::int64_t firstGroup = static_cast<std::int64_t>(blockIdx.x / blocks) * groups;
  part.loadParameters(a, groups, firstGroup);
  part.loadPixels(a);
  part.waitForParameters();
  part.findStatistics(a, 0, groups, firstGroup);
  float rows[3][kLanes<T>];
  part.findLines(a, rows);
  T* const to = reinterpret_cast<T*>(a.destination.memory) + part.offset(a.destination, 0);
  const std::int64_t stride = static_cast<std::int64_t>(part.rows) * a.destination.pixel;
#pragma unroll 4
  for (std::uint32_t i = 0; i < part.count; ++i) {
    uint4 vectors[1];
    part.readHeld(i, vectors);
    storeLanes(part.normalized(vectors, rows), to + i * stride);
  }
}

/// B, G, and dx where it is asked for.
template <class T, unsigned blocks>
__global__ void UNMETAL_BLOCKS_OF_SLICE(blocks) __launch_bounds__(kMostSliceThreads, 1)
    gradientOfSlices(SliceArguments a) {
  const SlicePart<T, blocks, 2> part(a, blockIdx.y, blockIdx.x / blocks, blockIdx.x % blocks);
  const std::uint32_t groups = a.groupOf(a.channels.divisor());
  const std::int64_t firstGroup = static_cast<std::int64_t>(blockIdx.x / blocks) * groups;
  part.loadParameters(a, groups, firstGroup);
  part.loadPixels(a);
  part.waitForParameters();
  const bool findsStatistics = a.statistics.memory == nullptr;
  if (findsStatistics) {
    part.findStatistics(a, 0, groups, firstGroup);
    if constexpr (blocks > 1) part.openMailbox(a);
  }
  part.sumGradients(a, findsStatistics ? 1 : 0);
  float rows[4][kLanes<T>];
  part.finishGradients(a, rows);
  if (a.computesData) {
    T* const to = reinterpret_cast<T*>(a.destination.memory) + part.offset(a.destination, 0);
    const std::int64_t stride = static_cast<std::int64_t>(part.rows) * a.destination.pixel;
#pragma unroll 2
    for (std::uint32_t i = 0; i < part.count; ++i) {
      uint4 vectors[2];
      part.readHeld(i, vectors);
      part.storeGradient(part.gradientOf(vectors, rows), to + i * stride, a.accumulate);
    }
  }
}

}  // namespace mps::detail::cuda
