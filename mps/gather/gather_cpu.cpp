#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>

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

/// Whole images, whose rows have no gaps: adds each row of the gradient where it came from.
template <class T>
HWY_INLINE void sumImagesOf(const GatherSums& sums, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kPiece = 1024;  ///< elements that are converted together
  alignas(64) float totals[kMostGatherSums];
  alignas(64) float values[kPiece];
  const std::int64_t channels = sums.gradient.channels;
  const std::int64_t rows = kPiece / channels;
  const auto size = static_cast<std::size_t>(sums.destination.height * channels);
  for (std::int64_t n = begin; n < end; ++n) {
    std::fill_n(totals, size, 0.0F);
    const auto* const from = reinterpret_cast<const T*>(sums.gradientMemory) + n * sums.gradient.imageStride;
    for (std::int64_t first = 0; first < sums.gradient.height; first += rows) {
      const std::int64_t count = std::min(rows, sums.gradient.height - first);
      convertToFloats(from + first * channels, values, static_cast<std::size_t>(count * channels));
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t k = sums.rows[first + i];
        if (k < 0) continue;
        for (std::int64_t c = 0; c < channels; ++c) totals[k * channels + c] += values[i * channels + c];
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

constexpr std::int64_t kGrain = 16384;     ///< elements that a thread takes at least
constexpr std::int64_t kColumns = 4096;    ///< of a row that are summed at a time: long rows are shared
constexpr std::int64_t kShortestRow = 16;  ///< elements that vectors of a row alone pay for

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
    stream.parallelFor(
        result.images * result.height, grainFor(source.channels), [&](std::int64_t begin, std::int64_t end) {
          while (begin < end) {
            const std::int64_t n = begin / result.height;
            const std::int64_t first = begin % result.height;
            const std::int64_t last = std::min(result.height, first + end - begin);
            copyImageRows(indices, first, last, from + n * source.imageStride, to + n * result.imageStride);
            begin += last - first;
          }
        });
  }

  template <class Bits, class Index>
  void copyImageRows(const Index* indices, std::int64_t first, std::int64_t last, const Bits* from,
                     Bits* to) const {
    const std::int64_t channels = problem_.source.channels;
    const std::int64_t rows = problem_.source.height;
    const std::int64_t fromStride = problem_.source.rowStride;
    const std::int64_t toStride = problem_.result.rowStride;
    const auto forRows = [&](auto&& visit) {
      for (std::int64_t i = first; i < last; ++i) {
        const auto k = static_cast<std::int64_t>(indices[i]);
        visit(to + i * toStride, k >= 0 && k < rows ? from + k * fromStride : nullptr);
      }
    };
    // One element is no call of a function.
    if (channels == 1)
      forRows([](Bits* place, const Bits* row) { *place = row != nullptr ? *row : Bits{}; });
    else
      forRows([&](Bits* place, const Bits* row) {
        if (row != nullptr)
          std::copy_n(row, channels, place);
        else
          std::fill_n(place, channels, Bits{});
      });
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
    auto* const rows = reinterpret_cast<std::int64_t*>(operands.scratch);
    withIndices(problem_.indices, operands.secondary, [&](const auto* indices) {
      for (std::int64_t i = 0; i < problem_.result.height; ++i) {
        const auto k = static_cast<std::int64_t>(indices[i]);
        rows[i] = k < problem_.source.height ? k : -1;
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
    return static_cast<std::size_t>(problem_.result.height) * sizeof(std::int64_t);
  }

 private:
  GatherProblem problem_;
};

Preparation prepareImages(const GatherProblem& problem) {
  const TensorShape& source = problem.source;
  if (problem.direction == GatherDirection::Forward) return Refusal{"no gradient"};
  if (source.channels >= kShortestRow) return Refusal{"rows that are long enough for vectors"};
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
