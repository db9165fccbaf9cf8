#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "mps/core/highway_targets.hpp"
#include "mps/core/storage.hpp"
#include "mps/core/streamed_stores.hpp"
#include "mps/gather/gather_sums.hpp"
#include "mtl/cpu/stream.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/gather/gather_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/streamed_runs-inl.hpp"
#include "mps/gather/gather_blocks-inl.hpp"
#include "mps/gather/gather_images-inl.hpp"
#include "mps/gather/gather_rows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Copies bytes past the caches.
void streamRow(const std::byte* from, std::int64_t bytes, std::byte* to) {
  streamValues(from, static_cast<std::size_t>(bytes), to);
}

void sumParts(const GatherSums& sums, std::int64_t begin, std::int64_t end) {
  if (sums.destination.format == ImageFeatureChannelFormat::Float16)
    sumPartsOf<Float16>(sums, begin, end);
  else
    sumPartsOf<float>(sums, begin, end);
}

void sumImages(const GatherSums& sums, std::int64_t begin, std::int64_t end) {
  if (sums.destination.format == ImageFeatureChannelFormat::Float16)
    sumImagesOf<Float16>(sums, begin, end);
  else
    sumImagesOf<float>(sums, begin, end);
}

void sumBlocks(const GatherSums& sums, std::int64_t begin, std::int64_t end, float* totals) {
  if (sums.destination.format == ImageFeatureChannelFormat::Float16)
    sumBlocksOf<Float16>(sums, begin, end, totals);
  else
    sumBlocksOf<float>(sums, begin, end, totals);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(streamRow);
HWY_EXPORT(sumParts);
HWY_EXPORT(sumImages);
HWY_EXPORT(sumBlocks);

namespace {

constexpr std::int64_t kGrain = 16384;  ///< elements that a thread takes at least

constexpr std::int64_t kShortRow = 256;  ///< bytes below which a row is not worth a call

std::int64_t grainFor(std::int64_t elements) {
  return kGrain / std::max<std::int64_t>(1, elements) + 1;
}

/// Whether images of one element after the other are written past the caches, each to the end of a line.
bool writesImagesPastCaches(const TensorShape& destination, std::int64_t bytesMoved) {
  const auto imageBytes =
      destination.imageStride * static_cast<std::int64_t>(bytesPerChannel(destination.format));
  return imageBytes % 64 == 0 && writesPastCaches(bytesMoved);
}

/// Stores the row that each index names, or the number of rows.
void nameRows(const mtl::cpu::Stream& threads, const GatherProblem& problem, const std::byte* indices,
              std::uint16_t* rows) {
  withIndices(problem.indices, indices, [&](const auto* numbers) {
    const std::int64_t height = problem.source.height;
    threads.parallelFor(problem.result.height, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto k = static_cast<std::int64_t>(numbers[i]);
        rows[i] = static_cast<std::uint16_t>(k >= 0 && k < height ? k : height);
      }
    });
  });
}

GatherSums sumsOf(const GatherProblem& problem, const Operands& operands) {
  GatherSums sums{};
  sums.gradient = problem.result;
  sums.destination = problem.source;
  sums.gradientMemory = operands.gradient;
  sums.destinationMemory = operands.destination;
  return sums;
}

/// Copies, and sums row by row of the destination.
class RowPlan final : public Plan {
 public:
  explicit RowPlan(const GatherProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const mtl::cpu::Stream& threads = mtl::cpu::asCpu(stream);
    withIndices(problem_.indices, operands.secondary, [&](const auto* indices) {
      if (problem_.direction == GatherDirection::Gradient)
        sumRows(threads, operands, indices);
      else if (problem_.source.format == ImageFeatureChannelFormat::Float16)
        copyRows<std::uint16_t>(threads, operands, indices);
      else
        copyRows<std::uint32_t>(threads, operands, indices);
    });
  }

  /// Of a gradient: where the places of a row's indices begin, and the places.
  [[nodiscard]] std::size_t scratchBytes() const override {
    if (problem_.direction == GatherDirection::Forward) return 0;
    return static_cast<std::size_t>(problem_.source.height + 1 + problem_.result.height) *
           sizeof(std::int64_t);
  }

 private:
  template <class Bits, class Index>
  void copyRows(const mtl::cpu::Stream& stream, const Operands& operands, const Index* indices) const {
    const TensorShape& source = problem_.source;
    const TensorShape& result = problem_.result;
    const auto* const from = reinterpret_cast<const Bits*>(operands.source);
    auto* const to = reinterpret_cast<Bits*>(operands.destination);
    const bool areElements =
        source.channels == 1 && source.rowStride == 1 && result.rowStride == 1 &&
        std::all_of(indices, indices + result.height, [&](Index index) {
          return static_cast<std::int64_t>(index) >= 0 && static_cast<std::int64_t>(index) < source.height;
        });
    const std::int64_t bytesMoved = 2 * result.bytes();
    const bool pastCaches = areElements ? writesImagesPastCaches(result, bytesMoved)
                                        : result.channels * std::int64_t{sizeof(Bits)} >= kShortRow &&
                                              writesRowsPastCaches(bytesMoved, result);
    stream.parallelFor(result.images * result.height, grainFor(source.channels),
                       [&](std::int64_t begin, std::int64_t end) {
                         while (begin < end) {
                           const std::int64_t n = begin / result.height;
                           const std::int64_t first = begin % result.height;
                           const std::int64_t last = std::min(result.height, first + end - begin);
                           const Bits* const image = from + n * source.imageStride;
                           Bits* const copy = to + n * result.imageStride;
                           if (areElements)
                             copyElements(indices + first, last - first, image, n + 1 < result.images,
                                          pastCaches, copy + first);
                           else
                             copyImageRows(indices, first, last, image, pastCaches, copy);
                           begin += last - first;
                         }
                         if (pastCaches) finishStreaming();
                       });
  }

  /// to[i] = from[indices[i]]. Of the source's next image all lines are asked for in order, in which the indices do not.
  template <class Bits, class Index>
  void copyElements(const Index* indices, std::int64_t count, const Bits* from, bool hasNext, bool pastCaches,
                    Bits* to) const {
    constexpr std::int64_t piece = 256;
    constexpr std::int64_t line = 64 / std::int64_t{sizeof(Bits)};
    const std::int64_t height = problem_.source.height;
    const Bits* const next = from + problem_.source.imageStride;
    const std::int64_t ahead = (height * piece / count + line) / line * line;
    std::int64_t asked = hasNext ? 0 : height;
    for (std::int64_t first = 0; first < count; first += piece) {
      for (const std::int64_t end = std::min(height, asked + ahead); asked < end; asked += line)
        __builtin_prefetch(next + asked, 0, 2);
      const std::int64_t some = std::min(count - first, piece);
      alignas(64) Bits together[piece];
      Bits* const place = pastCaches ? together : to + first;
      std::int64_t i = 0;
      for (; i + 4 <= some; i += 4) {
        const Bits a = from[indices[first + i]];
        const Bits b = from[indices[first + i + 1]];
        const Bits c = from[indices[first + i + 2]];
        const Bits d = from[indices[first + i + 3]];
        putFour(a, b, c, d, place + i);
      }
      for (; i < some; ++i) place[i] = from[indices[first + i]];
      if (pastCaches) stream(together, some, to + first);
    }
  }

  /// Elements of 16 bits with one store, of which a processor does fewer than loads.
  template <class Bits>
  static void putFour(Bits a, Bits b, Bits c, Bits d, Bits* to) {
    if constexpr (sizeof(Bits) == 2) {
      static_assert(std::endian::native == std::endian::little, "the first element is the lowest bits");
      const std::uint64_t all =
          a | std::uint64_t{b} << 16U | std::uint64_t{c} << 32U | std::uint64_t{d} << 48U;
      std::memcpy(to, &all, sizeof(all));
    } else {
      to[0] = a;
      to[1] = b;
      to[2] = c;
      to[3] = d;
    }
  }

  template <class Bits>
  static void stream(const Bits* from, std::int64_t count, Bits* to) {
    HWY_DYNAMIC_DISPATCH(streamRow)
    (reinterpret_cast<const std::byte*>(from), count * std::int64_t{sizeof(Bits)},
     reinterpret_cast<std::byte*>(to));
  }

  template <class Bits, class Index>
  void copyImageRows(const Index* indices, std::int64_t first, std::int64_t last, const Bits* from,
                     bool pastCaches, Bits* to) const {
    const std::int64_t channels = problem_.source.channels;
    const std::int64_t rows = problem_.source.height;
    const auto rowOf = [&](std::int64_t i) -> const Bits* {
      const auto k = static_cast<std::int64_t>(indices[i]);
      return k >= 0 && k < rows ? from + k * problem_.source.rowStride : nullptr;
    };
    constexpr std::int64_t line = 64 / std::int64_t{sizeof(Bits)};
    constexpr std::int64_t most = 4096 / std::int64_t{sizeof(Bits)};  // a longer row's end comes by itself
    for (std::int64_t i = first; i < last; ++i) {
      // The next row lies anywhere.
      if (const Bits* const next = i + 1 < last ? rowOf(i + 1) : nullptr)
        for (std::int64_t c = 0; c < std::min(channels, most); c += line) __builtin_prefetch(next + c, 0, 2);
      Bits* const place = to + i * problem_.result.rowStride;
      const Bits* const row = rowOf(i);
      if (row != nullptr && pastCaches)
        stream(row, channels, place);
      else if (row != nullptr)
        std::copy_n(row, channels, place);
      else
        std::fill_n(place, channels, Bits{});
    }
  }

  /// Sorts the places of the indices by counting, which keeps equal ones in order.
  template <class Index>
  void order(const Index* indices, std::int64_t* starts, std::int64_t* places) const {
    const std::int64_t rows = problem_.source.height;
    const auto forPlaces = [&](auto&& visit) {
      for (std::int64_t i = 0; i < problem_.result.height; ++i)
        if (const auto k = static_cast<std::int64_t>(indices[i]); k >= 0 && k < rows) visit(k, i);
    };
    std::fill_n(starts, rows + 1, 0);
    forPlaces([&](std::int64_t k, std::int64_t /*i*/) { ++starts[k + 1]; });
    for (std::int64_t k = 0; k < rows; ++k) starts[k + 1] += starts[k];
    // Each start moves on to where the next row begins; then all go to the row behind.
    forPlaces([&](std::int64_t k, std::int64_t i) { places[starts[k]++] = i; });
    std::copy_backward(starts, starts + rows, starts + rows + 1);
    starts[0] = 0;
  }

  template <class Index>
  void sumRows(const mtl::cpu::Stream& stream, const Operands& operands, const Index* indices) const {
    const TensorShape& destination = problem_.source;
    auto* const starts = reinterpret_cast<std::int64_t*>(operands.scratch);
    std::int64_t* const places = starts + destination.height + 1;
    order(indices, starts, places);
    GatherSums sums = sumsOf(problem_, operands);
    sums.starts = starts;
    sums.places = places;
    sums.pastCaches = writesRowsPastCaches(destination.bytes() + problem_.result.bytes(), destination);
    const std::int64_t parts = (destination.channels + kGatherColumns - 1) / kGatherColumns;
    stream.parallelFor(destination.images * destination.height * parts,
                       grainFor(std::min(destination.channels, kGatherColumns)),
                       [&](std::int64_t begin, std::int64_t end) {
                         HWY_DYNAMIC_DISPATCH(sumParts)(sums, begin, end);
                       });
  }

  GatherProblem problem_;
};

Preparation prepareRows(const GatherProblem& problem) {
  return std::make_shared<const RowPlan>(problem);
}

/// Gradients of short rows, image by image: to the bits of RowPlan.
class ImagePlan final : public Plan {
 public:
  explicit ImagePlan(const GatherProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const mtl::cpu::Stream& threads = mtl::cpu::asCpu(stream);
    auto* const rows = reinterpret_cast<std::uint16_t*>(operands.scratch);
    nameRows(threads, problem_, operands.secondary, rows);
    GatherSums sums = sumsOf(problem_, operands);
    sums.rows = rows;
    sums.pastCaches =
        writesImagesPastCaches(problem_.source, problem_.source.bytes() + problem_.result.bytes());
    threads.parallelFor(
        problem_.source.images,
        grainFor((problem_.source.height + problem_.result.height) * problem_.source.channels),
        [&](std::int64_t begin, std::int64_t end) {
          HWY_DYNAMIC_DISPATCH(sumImages)
          (sums, begin, end);
        });
  }

  /// The row that each index names.
  [[nodiscard]] std::size_t scratchBytes() const override {
    return static_cast<std::size_t>(problem_.result.height) * sizeof(std::uint16_t);
  }

 private:
  GatherProblem problem_;
};

Preparation prepareImages(const GatherProblem& problem) {
  const TensorShape& source = problem.source;
  if (problem.direction == GatherDirection::Forward) return Refusal{"no gradient"};
  if (source.channels >= kGatherVectorRow) return Refusal{"rows that are long enough for vectors"};
  if (source.height * source.channels > kMostGatherSums) return Refusal{"more sums than are kept together"};
  if (source.rowStride != source.channels || problem.result.rowStride != source.channels)
    return Refusal{"gaps between rows"};
  return std::make_shared<const ImagePlan>(problem);
}

/// Gradients whose rows have many terms each, a block of columns after the other: memory is read in order, and the sums of a
/// block stay in the second cache. To the bits of RowPlan, which takes what is in caches, and has work for more threads than
/// there are blocks.
class BlockPlan final : public Plan {
 public:
  explicit BlockPlan(const GatherProblem& problem)
      : problem_(problem),
        byRows_(problem),
        blocks_(problem.source.images * gatherBlocks(problem.source.channels)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const mtl::cpu::Stream& threads = mtl::cpu::asCpu(stream);
    const std::int64_t workers = threads.rangeCount(problem_.result.elements(), kGrain);
    const bool isLarge = writesPastCaches(problem_.source.bytes() + problem_.result.bytes());
    if (!isLarge || workers > std::min(blocks_, kMostWorkers)) return byRows_.run(stream, operands);
    GatherSums sums = sumsOf(problem_, operands);
    auto* const rows = reinterpret_cast<std::uint16_t*>(operands.scratch);
    nameRows(threads, problem_, operands.secondary, rows);
    sums.rows = rows;
    auto* const totals = reinterpret_cast<float*>(operands.scratch + bytesOfRows());
    const auto firstBlock = [&](std::int64_t worker) { return worker * blocks_ / workers; };
    threads.parallelFor(workers, 1, [&](std::int64_t begin, std::int64_t end) {
      HWY_DYNAMIC_DISPATCH(sumBlocks)
      (sums, firstBlock(begin), firstBlock(end), totals + begin * totalsOfWorker());
    });
  }

  /// Of few threads the row that each index names, and the sums of a block for each thread.
  [[nodiscard]] std::size_t scratchBytes() const override {
    const std::int64_t totals = std::min(blocks_, kMostWorkers) * totalsOfWorker();
    return std::max(byRows_.scratchBytes(), bytesOfRows() + static_cast<std::size_t>(totals) * sizeof(float));
  }

 private:
  static constexpr std::int64_t kMostWorkers = 64;

  [[nodiscard]] std::size_t bytesOfRows() const {
    constexpr std::size_t line = 64;
    return (static_cast<std::size_t>(problem_.result.height) * sizeof(std::uint16_t) + line - 1) / line *
           line;
  }
  [[nodiscard]] std::int64_t totalsOfWorker() const { return (problem_.source.height + 1) * kGatherBlock; }

  GatherProblem problem_;
  RowPlan byRows_;
  std::int64_t blocks_;  ///< of all images
};

Preparation prepareBlocks(const GatherProblem& problem) {
  constexpr std::int64_t manyTerms = 8;
  constexpr std::int64_t longRow = 512;  ///< bytes; such rows are read fast wherever they lie
  const TensorShape& source = problem.source;
  if (problem.direction == GatherDirection::Forward) return Refusal{"no gradient"};
  if (source.height > kMostGatherBlockRows) return Refusal{"more sums than stay in a cache"};
  if (problem.result.height < manyTerms * source.height) return Refusal{"few terms for each row"};
  if (source.channels * static_cast<std::int64_t>(bytesPerChannel(source.format)) >= longRow)
    return Refusal{"rows that are long enough to be read anywhere"};
  return std::make_shared<const BlockPlan>(problem);
}

constexpr std::array<Implementation<GatherProblem>, 3> kImplementations{
    {{"images", prepareImages}, {"blocks", prepareBlocks}, {"rows", prepareRows}}};

const char* name(GatherIndices indices) {
  switch (indices) {
    case GatherIndices::UInt16:
      return "UInt16";
    case GatherIndices::Int32:
      return "Int32";
    case GatherIndices::UInt32:
      break;
  }
  return "UInt32";
}

}  // namespace

std::string GatherProblem::describe() const {
  const bool isForward = direction == GatherDirection::Forward;
  return (isForward ? "gather of " + source.describe() + " into " + result.describe()
                    : "gather gradient of " + result.describe() + " into " + source.describe()) +
         " by " + name(indices);
}

std::span<const Implementation<GatherProblem>> gatherImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail

#endif  // HWY_ONCE
