#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "mps/core/highway_targets.hpp"
#include "mps/core/storage.hpp"
#include "mps/gather/gather_sums.hpp"
#include "mtl/cpu/stream.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/gather/gather_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/vector_io-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// to[c] = the sum of from[place * stride + c] over places, in order.
template <class T>
HWY_INLINE void sumRow(const T* from, std::int64_t stride, const std::int64_t* places,
                       const std::int64_t* lastPlace, std::int64_t count, T* to) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  // Several vectors at a time: the rows are far apart.
  for (; c + 4 * step <= count; c += 4 * step) {
    auto sum0 = hn::Zero(d);
    auto sum1 = sum0;
    auto sum2 = sum0;
    auto sum3 = sum0;
    for (const auto* place = places; place != lastPlace; ++place) {
      const T* const row = from + *place * stride + c;
      sum0 = hn::Add(sum0, loadFloats(d, row));
      sum1 = hn::Add(sum1, loadFloats(d, row + step));
      sum2 = hn::Add(sum2, loadFloats(d, row + 2 * step));
      sum3 = hn::Add(sum3, loadFloats(d, row + 3 * step));
    }
    storeFloats(d, sum0, to + c);
    storeFloats(d, sum1, to + c + step);
    storeFloats(d, sum2, to + c + 2 * step);
    storeFloats(d, sum3, to + c + 3 * step);
  }
  for (; c < count; c += step) {
    auto sum = hn::Zero(d);
    if (c + step <= count) {
      for (const auto* place = places; place != lastPlace; ++place)
        sum = hn::Add(sum, loadFloats(d, from + *place * stride + c));
      storeFloats(d, sum, to + c);
    } else {
      const auto rest = static_cast<std::size_t>(count - c);
      for (const auto* place = places; place != lastPlace; ++place)
        sum = hn::Add(sum, loadFloats(d, from + *place * stride + c, rest));
      storeFloats(d, sum, to + c, rest);
    }
  }
}

/// Parts of rows of the destination: part p is the (p mod parts)th one of a row, of `columns` elements.
template <class T>
HWY_INLINE void sumPartsOf(const GatherSums& sums, std::int64_t columns, std::int64_t begin,
                           std::int64_t end) {
  const TensorShape& to = sums.destination;
  const auto* const gradient = reinterpret_cast<const T*>(sums.gradientMemory);
  auto* const destination = reinterpret_cast<T*>(sums.destinationMemory);
  const std::int64_t parts = (to.channels + columns - 1) / columns;
  for (std::int64_t part = begin; part < end; ++part) {
    const std::int64_t row = part / parts;
    const std::int64_t n = row / to.height;
    const std::int64_t k = row % to.height;
    const std::int64_t first = part % parts * columns;
    sumRow(gradient + sums.gradient.offset(n, 0, 0, first), sums.gradient.rowStride,
           sums.places + sums.starts[k], sums.places + sums.starts[k + 1],
           std::min(columns, to.channels - first), destination + to.offset(n, k, 0, first));
  }
}

void sumParts(const GatherSums& sums, std::int64_t columns, std::int64_t begin, std::int64_t end) {
  if (sums.destination.format == ImageFeatureChannelFormat::Float16)
    sumPartsOf<Float16>(sums, columns, begin, end);
  else
    sumPartsOf<float>(sums, columns, begin, end);
}

/// totals[rows[i] * channels + c] += values[i * channels + c], in order.
HWY_INLINE void addRows(const std::uint16_t* rows, std::int64_t count, const float* values,
                        std::int64_t channels, float* totals) {
  if (channels == 1) {
    std::int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
      totals[rows[i]] += values[i];
      totals[rows[i + 1]] += values[i + 1];
      totals[rows[i + 2]] += values[i + 2];
      totals[rows[i + 3]] += values[i + 3];
    }
    for (; i < count; ++i) totals[rows[i]] += values[i];
    return;
  }
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t c = 0; c < channels; ++c) totals[rows[i] * channels + c] += values[i * channels + c];
}

/// Whole images, whose rows have no gaps: adds each row of the gradient where it came from.
template <class T>
HWY_INLINE void sumImagesOf(const GatherSums& sums, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kPiece = 1024;  ///< elements that are converted together
  alignas(64) float totals[kMostGatherSums + kGatherVectorRow];
  alignas(64) float values[kPiece];
  const std::int64_t channels = sums.gradient.channels;
  const std::int64_t rows = kPiece / channels;
  const auto size = static_cast<std::size_t>(sums.destination.height * channels);
  for (std::int64_t n = begin; n < end; ++n) {
    std::fill_n(totals, size + static_cast<std::size_t>(channels), 0.0F);
    const auto* const from = reinterpret_cast<const T*>(sums.gradientMemory) + n * sums.gradient.imageStride;
    if constexpr (std::is_same_v<T, float>) {
      addRows(sums.rows, sums.gradient.height, from, channels, totals);
    } else {
      for (std::int64_t first = 0; first < sums.gradient.height; first += rows) {
        const std::int64_t count = std::min(rows, sums.gradient.height - first);
        convertToFloats(from + first * channels, values, static_cast<std::size_t>(count * channels));
        addRows(sums.rows + first, count, values, channels, totals);
      }
    }
    convertFromFloats(totals, reinterpret_cast<T*>(sums.destinationMemory) + n * sums.destination.imageStride,
                      size);
  }
}

void sumImages(const GatherSums& sums, std::int64_t begin, std::int64_t end) {
  if (sums.destination.format == ImageFeatureChannelFormat::Float16)
    sumImagesOf<Float16>(sums, begin, end);
  else
    sumImagesOf<float>(sums, begin, end);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(sumParts);
HWY_EXPORT(sumImages);

namespace {

constexpr std::int64_t kGrain = 16384;   ///< elements that a thread takes at least
constexpr std::int64_t kColumns = 4096;  ///< of a row that are summed at a time: long rows are shared

std::int64_t grainFor(std::int64_t elements) {
  return kGrain / std::max<std::int64_t>(1, elements) + 1;
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
    stream.parallelFor(
        result.images * result.height, grainFor(source.channels), [&](std::int64_t begin, std::int64_t end) {
          while (begin < end) {
            const std::int64_t n = begin / result.height;
            const std::int64_t first = begin % result.height;
            const std::int64_t last = std::min(result.height, first + end - begin);
            const Bits* const image = from + n * source.imageStride;
            Bits* const copy = to + n * result.imageStride;
            if (areElements)
              copyElements(indices + first, last - first, image, n + 1 < result.images, copy + first);
            else
              copyImageRows(indices, first, last, image, copy);
            begin += last - first;
          }
        });
  }

  /// to[i] = from[indices[i]]. Of the source's next image all lines are asked for in order, in which the indices do not.
  template <class Bits, class Index>
  void copyElements(const Index* indices, std::int64_t count, const Bits* from, bool hasNext,
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
      const std::int64_t last = std::min(count, first + piece);
      std::int64_t i = first;
      for (; i + 4 <= last; i += 4) {
        const Bits a = from[indices[i]];
        const Bits b = from[indices[i + 1]];
        const Bits c = from[indices[i + 2]];
        const Bits d = from[indices[i + 3]];
        to[i] = a;
        to[i + 1] = b;
        to[i + 2] = c;
        to[i + 3] = d;
      }
      for (; i < last; ++i) to[i] = from[indices[i]];
    }
  }

  template <class Bits, class Index>
  void copyImageRows(const Index* indices, std::int64_t first, std::int64_t last, const Bits* from,
                     Bits* to) const {
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
      if (const Bits* const row = rowOf(i))
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
    const std::int64_t parts = (destination.channels + kColumns - 1) / kColumns;
    stream.parallelFor(destination.images * destination.height * parts,
                       grainFor(std::min(destination.channels, kColumns)),
                       [&](std::int64_t begin, std::int64_t end) {
                         HWY_DYNAMIC_DISPATCH(sumParts)(sums, kColumns, begin, end);
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
    auto* const rows = reinterpret_cast<std::uint16_t*>(operands.scratch);
    withIndices(problem_.indices, operands.secondary, [&](const auto* indices) {
      const std::int64_t height = problem_.source.height;
      for (std::int64_t i = 0; i < problem_.result.height; ++i) {
        const auto k = static_cast<std::int64_t>(indices[i]);
        rows[i] = static_cast<std::uint16_t>(k >= 0 && k < height ? k : height);
      }
    });
    GatherSums sums = sumsOf(problem_, operands);
    sums.rows = rows;
    mtl::cpu::asCpu(stream).parallelFor(
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

constexpr std::array<Implementation<GatherProblem>, 2> kImplementations{
    {{"images", prepareImages}, {"rows", prepareRows}}};

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
