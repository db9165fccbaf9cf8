#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mps/instance_normalization/instance_normalization_slice_part_cuda.cuh"

/// Images that no cluster can hold: all blocks run at the same time, and a team of them holds what it can of a slice in
/// shared memory, adds up its sums through global memory, and goes on with the next one. While one team waits for its last
/// block, others on the same multiprocessors keep the memory busy.
namespace mps::detail::cuda {

/// Of a block of a team: more for more bytes on their way, fewer for more registers. @param tensors that are held
template <class T>
constexpr unsigned threadsInTeam(std::int64_t tensors) {
  return tensors == 1 ? 256 : sizeof(T) == sizeof(float) ? 384 : 512;
}

inline constexpr std::int64_t kMostTeamBlocks = 1024;  ///< of all teams
inline constexpr std::int64_t kMostTeams = 8;          ///< they begin one after the other

/// How teams share a problem. A multiprocessor has one block: with more of them teams are larger, and each block reads the
/// sums of all blocks of its team.
struct TeamDivision {
  SliceArguments arguments;
  unsigned blocks = 0;  ///< of all teams; 0: there are none
  unsigned threads = 0;
  std::size_t sharedBytes = 0;
  bool holdsMost = false;  ///< of what a team works on, so that little is read twice

  /// @param shape of the source, perhaps widened @param channels before that @param tensors that are held
  /// @param kept pixels of a thread that are held in registers @param processors of the device @param sharedLimit of a block
  TeamDivision(const TensorShape& shape, std::int64_t lanes, std::int64_t channels,
               std::int64_t groupChannels, std::int64_t tensors, std::int64_t kept, unsigned threadCount,
               std::int64_t processors, std::size_t sharedLimit)
      : threads(threadCount) {
    const bool isWidened = shape.channels != channels;
    const std::int64_t packsOfPixel = shape.channels / lanes;
    const auto canBe = [&](std::int64_t packs) {
      return packs == packsOfPixel ||
             (!isWidened && packsOfPixel % packs == 0 && packs * lanes % groupChannels == 0);
    };
    // About 64 channels, whole lines of the cache: the more there are, the more sums are exchanged.
    std::int64_t packs = std::min(64 / lanes, packsOfPixel);
    while (packs < 32 && !canBe(packs)) ++packs;
    while (packs > 0 && !canBe(packs)) --packs;
    if (packs == 0) return;
    const std::int64_t pixels = shape.width * shape.height;
    const std::int64_t items = shape.images * (packsOfPixel / packs);
    const std::int64_t rows = SliceArguments::rowsOf(packs, threads);
    const auto wide = static_cast<std::size_t>(packs * lanes);
    const std::size_t sumBytes = (2 * threads / 32 + 8) * wide * sizeof(double) + 3 * wide * sizeof(float);
    const std::size_t stepBytes = static_cast<std::size_t>(rows * packs * tensors) * sizeof(uint4);
    if (sharedLimit < sumBytes + stepBytes) return;
    const auto fit = static_cast<std::int64_t>((sharedLimit - sumBytes) / stepBytes);  // steps of pixels
    // As many teams as can hold all that they work on, but two at least: one would leave the memory idle while it waits.
    const std::int64_t most = std::min(processors, kMostTeamBlocks);
    const std::int64_t needed = (pixels + (fit + kept) * rows - 1) / ((fit + kept) * rows);
    const std::int64_t teams = std::min(items, std::clamp<std::int64_t>(most / needed, 2, kMostTeams));
    const std::int64_t each = std::max<std::int64_t>(1, std::min(most / teams, (pixels + rows - 1) / rows));
    const std::int64_t own = (pixels + each - 1) / each;
    const std::int64_t heldSteps = std::min((own + rows - 1) / rows, fit);
    arguments.pixels = static_cast<std::uint32_t>(pixels);
    arguments.pixelsOfBlock = static_cast<std::uint32_t>(own);
    arguments.heldPixels = static_cast<std::uint32_t>(heldSteps * rows);
    arguments.setPacks(packs, threads);
    arguments.channels = Divider(isWidened ? channels : packs * lanes);
    arguments.groupChannels = Divider(groupChannels);
    arguments.team.blocks = static_cast<std::uint32_t>(each);
    arguments.team.teams = static_cast<std::uint32_t>(teams);
    arguments.team.items = static_cast<std::uint32_t>(items);
    arguments.team.slices = Divider(packsOfPixel / packs);
    blocks = static_cast<unsigned>(each * teams);
    sharedBytes = static_cast<std::size_t>(heldSteps) * stepBytes + sumBytes;
    holdsMost = 4 * (heldSteps + kept) * rows >= 3 * own;
  }
};

static __global__ void clearTeams(ulonglong2* sums, std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sums[i] = {};
}

/// A block's share of what its team works on, item after item.
template <class T, unsigned tensors>
struct TeamPart : SlicePart<T, kTeam, tensors> {
  using Base = SlicePart<T, kTeam, tensors>;
  using Inputs = typename Base::Inputs;
  using Packs = typename Base::Packs;
  unsigned item;

  __device__ explicit TeamPart(const SliceArguments& a)
      : Base(a, 0, 0, blockIdx.x % a.team.blocks), item(blockIdx.x / a.team.blocks) {
    moveTo(a, item);
  }
  __device__ void moveTo(const SliceArguments& a, unsigned newItem) {
    item = newItem;
    this->image = a.team.slices.divide(item);
    this->channel = static_cast<std::int64_t>(item - this->image * a.team.slices.divisor()) * this->wide;
  }

  /// Starts to load the first item as soon as the team before has its own: teams that began together would stay together, and
  /// leave the memory idle together.
  __device__ void begin(const SliceArguments& a) const {
    if (threadIdx.x == 0 && blockIdx.x >= a.team.blocks)
      while (!hasTag(receiveTagged(a.team.begun + blockIdx.x - a.team.blocks), 1)) {
      }
    __syncthreads();
    load(a);
    this->loadPixels(a);
    __pipeline_wait_prior(0);
    if (threadIdx.x == 0) sendTagged(0, 1, a.team.begun + blockIdx.x);
  }
  /// Starts to load what there is for channels and groups of the item.
  __device__ void load(const SliceArguments& a) const {
    this->loadParameters(a, a.groupOf(a.channels.divisor()),
                         a.groupOf(static_cast<std::uint32_t>(this->channel)));
  }

  /// Calls store(i, packs) for all pixels, and begins to load the next item's.
  template <class Store>
  __device__ void storeAndGoOn(const SliceArguments& a, const typename Base::Kept& kept, Store store) {
    const unsigned next = item + a.team.teams;
    const bool hasNext = next < a.team.items;
    TeamPart other = *this;
    if (hasNext) other.moveTo(a, next);
    const Inputs from = other.inputs(a);
    if (hasNext) other.load(a);
    this->forEachKept(kept, store);
    this->forEachStage([&](std::uint32_t begin, std::uint32_t end) {
      // Some at once: fetch() keeps the compiler from reading the next pack before it.
      constexpr std::uint32_t ahead = 4 / tensors;
      for (std::uint32_t i = begin; i < end; i += ahead) {
        Packs packs[ahead];
#pragma unroll
        for (std::uint32_t k = 0; k < ahead; ++k)
          if (i + k < end) this->readHeld(i + k, packs[k]);
#pragma unroll
        for (std::uint32_t k = 0; k < ahead; ++k)
          if (i + k < end) store(i + k, packs[k]);
        if (!hasNext) continue;
#pragma unroll
        for (std::uint32_t k = 0; k < ahead; ++k)
          if (i + k < end) this->fetch(a, from, i + k);
      }
    });
    if (hasNext)
      for (std::uint32_t i = this->heldCount; i < this->count; ++i) {
        const auto pixels = static_cast<std::int64_t>(i * this->rows);
        prefetch(from.source + pixels * a.source.pixel);
        if constexpr (tensors == 2) prefetch(from.gradient + pixels * a.gradient.pixel);
      }
    this->forEachOther(a, store);
    if (hasNext)
      moveTo(a, next);
    else
      item = next;
  }

 private:
  __device__ static void prefetch(const T* address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
  }
};

template <class T>
__global__ void __launch_bounds__(threadsInTeam<T>(1), 1) normalizeInTeams(SliceArguments a) {
  TeamPart<T, 1> part(a);
  const std::uint32_t groups = a.groupOf(a.channels.divisor());
  part.begin(a);
  for (unsigned round = 0; part.item < a.team.items; ++round) {
    const std::int64_t firstGroup = a.groupOf(static_cast<std::uint32_t>(part.channel));
    part.waitForParameters();
    typename TeamPart<T, 1>::Kept kept;
    part.findStatistics(a, round, groups, firstGroup, kept);
    float rows[3][kLanes<T>];
    part.findLines(a, rows);
    T* const to = reinterpret_cast<T*>(a.destination.memory) + part.offset(a.destination, 0);
    const std::int64_t stride = static_cast<std::int64_t>(part.rows) * a.destination.pixel;
    part.storeAndGoOn(a, kept, [&](std::uint32_t i, const uint4(&packs)[1]) {
      storeLanes(part.normalized(packs, rows), to + i * stride);
    });
  }
}

/// B, G, and dx where it is asked for. Statistics are there.
template <class T>
__global__ void __launch_bounds__(threadsInTeam<T>(2), 1) gradientInTeams(SliceArguments a) {
  TeamPart<T, 2> part(a);
  part.begin(a);
  for (unsigned round = 0; part.item < a.team.items; ++round) {
    part.waitForParameters();
    typename TeamPart<T, 2>::Kept kept;
    part.sumGradients(a, round, kept);
    float rows[4][kLanes<T>];
    part.finishGradients(a, rows);
    T* const to = reinterpret_cast<T*>(a.destination.memory) + part.offset(a.destination, 0);
    const std::int64_t stride = static_cast<std::int64_t>(part.rows) * a.destination.pixel;
    part.storeAndGoOn(a, kept, [&](std::uint32_t i, const uint4(&packs)[2]) {
      if (a.computesData) part.storeGradient(part.gradientOf(packs, rows), to + i * stride, a.accumulate);
    });
  }
}

}  // namespace mps::detail::cuda
