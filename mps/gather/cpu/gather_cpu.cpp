#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/core/types/storage.hpp"
#include "mps/gather/cpu/gather_sums.hpp"
#include "mtl/cpu/stream.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/gather/cpu/gather_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/cpu/non_temporal_runs-inl.hpp"
#include "mps/gather/cpu/gather_rows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Copies bytes with non-temporal stores.
void streamRow(const std::byte* from, std::int64_t bytes, std::byte* to) {
  streamValues(from, static_cast<std::size_t>(bytes), to);
}

void sumParts(const GatherSums& sums, std::int64_t begin, std::int64_t end) {
  if (sums.destination.format == ImageFeatureChannelFormat::Float16)
    sumPartsOf<Float16>(sums, begin, end);
  else
    sumPartsOf<float>(sums, begin, end);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(streamRow);
HWY_EXPORT(sumParts);

namespace {

constexpr std::int64_t kGrain = 16384;  ///< elements that a thread takes at least

constexpr std::int64_t kShortRow = 256;  ///< bytes below which a row is not worth a call

std::int64_t grainFor(std::int64_t elements) {
  return kGrain / std::max<std::int64_t>(1, elements) + 1;
}

/// Copies the row of each index. A gradient of long rows, or of many, first sorts the indices by the rows that they name.
class GatherPlanCpu final : public Plan {
 public:
  explicit GatherPlanCpu(const GatherProblem& problem) : problem_(problem) {}

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

  /// Of a gradient: where the indices of each row begin in the order of rows, and the indices in this order.
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
    const bool isShort = result.channels * std::int64_t{sizeof(Bits)} < kShortRow;
    const bool isNonTemporal = !isShort && usesNonTemporalStoresForRows(2 * result.bytes(), result);
    stream.parallelFor(
        result.images * result.height, grainFor(source.channels), [&](std::int64_t begin, std::int64_t end) {
          while (begin < end) {
            const std::int64_t n = begin / result.height;
            const std::int64_t first = begin % result.height;
            const std::int64_t last = std::min(result.height, first + end - begin);
            const Bits* const image = from + n * source.imageStride;
            const Bits* const next = n + 1 < result.images ? image + source.imageStride : image;
            Bits* const copy = to + n * result.imageStride;
            if (result.channels == 1)
              copyShortRows(std::integral_constant<std::int64_t, 1>(), indices, first, last, image, next,
                            copy);
            else if (isShort)
              copyShortRows(result.channels, indices, first, last, image, next, copy);
            else
              copyLongRows(indices, first, last, image, isNonTemporal, copy);
            begin += last - first;
          }
          if (isNonTemporal) finishNonTemporalStores();
        });
  }

  /// Null: the index names no row.
  template <class Bits, class Index>
  [[nodiscard]] const Bits* rowOf(Index index, const Bits* from) const {
    const auto k = static_cast<std::int64_t>(index);
    return k >= 0 && k < problem_.source.height ? from + k * problem_.source.rowStride : nullptr;
  }

  /// @param channels of a row, a number that the compiler knows where there is one
  /// @param next the image whose rows are prefetched: those of the same indices, which lie anywhere
  template <class Bits, class Index, class Channels>
  void copyShortRows(Channels channels, const Index* indices, std::int64_t first, std::int64_t last,
                     const Bits* from, const Bits* next, Bits* to) const {
    const std::int64_t stride = problem_.source.rowStride;
    const std::int64_t step = problem_.result.rowStride;
    const auto rows = static_cast<std::uint64_t>(problem_.source.height);
    Bits* place = to + first * step;
    for (std::int64_t i = first; i < last; ++i, place += step) {
      // A negative number is a large one without its sign; what names no row reads the first, without a branch.
      const auto k = static_cast<std::uint64_t>(static_cast<std::int64_t>(indices[i]));
      const bool isRow = k < rows;
      const std::int64_t row = isRow ? static_cast<std::int64_t>(k) * stride : 0;
      __builtin_prefetch(next + row, 0, 2);
      for (std::int64_t c = 0; c < channels; ++c) {
        const Bits value = from[row + c];
        place[c] = isRow ? value : Bits{};
      }
    }
  }

  template <class Bits, class Index>
  void copyLongRows(const Index* indices, std::int64_t first, std::int64_t last, const Bits* from,
                    bool isNonTemporal, Bits* to) const {
    const std::int64_t channels = problem_.source.channels;
    constexpr std::int64_t line = 64 / std::int64_t{sizeof(Bits)};
    constexpr std::int64_t most = 4096 / std::int64_t{sizeof(Bits)};  // a longer row's end comes by itself
    for (std::int64_t i = first; i < last; ++i) {
      // The next row lies anywhere.
      if (const Bits* const next = i + 1 < last ? rowOf(indices[i + 1], from) : nullptr)
        for (std::int64_t c = 0; c < std::min(channels, most); c += line) __builtin_prefetch(next + c, 0, 2);
      Bits* const place = to + i * problem_.result.rowStride;
      const Bits* const row = rowOf(indices[i], from);
      if (row != nullptr && isNonTemporal) HWY_DYNAMIC_DISPATCH(streamRow)
      (reinterpret_cast<const std::byte*>(row), channels * std::int64_t{sizeof(Bits)},
       reinterpret_cast<std::byte*>(place));
      else if (row != nullptr) std::copy_n(row, channels, place);
      else std::fill_n(place, channels, Bits{});
    }
  }

  /// Sorts the numbers of the indices by counting, which keeps those of equal indices in order.
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
    const std::int64_t rows = destination.height;
    const std::int64_t channels = destination.channels;
    const bool takesImages = channels < kGatherVectorRow && rows * channels <= kGatherColumns;
    auto* const starts = reinterpret_cast<std::int64_t*>(operands.scratch);
    std::int64_t* const places = starts + rows + 1;
    if (takesImages)
      std::transform(indices, indices + problem_.result.height, places, [&](Index index) {
        const auto k = static_cast<std::int64_t>(index);
        return channels * (k >= 0 && k < rows ? k : rows);
      });
    else
      order(indices, starts, places);
    const GatherSums sums{
        problem_.result,
        destination,
        operands.gradient,
        operands.destination,
        takesImages ? nullptr : starts,
        places,
        usesNonTemporalStoresForRows(destination.bytes() + problem_.result.bytes(), destination)};
    const std::int64_t partsOfRow = (channels + kGatherColumns - 1) / kGatherColumns;
    const std::int64_t parts = destination.images * (takesImages ? 1 : rows * partsOfRow);
    const std::int64_t elements = takesImages ? rows * channels : std::min(channels, kGatherColumns);
    stream.parallelFor(parts, grainFor(elements), [&](std::int64_t begin, std::int64_t end) {
      HWY_DYNAMIC_DISPATCH(sumParts)(sums, begin, end);
    });
  }

  GatherProblem problem_;
};

Preparation prepareGather(const GatherProblem& problem) {
  return std::make_shared<const GatherPlanCpu>(problem);
}

constexpr std::array<Implementation<GatherProblem>, 1> kImplementations{{{"sorted indices", prepareGather}}};

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
