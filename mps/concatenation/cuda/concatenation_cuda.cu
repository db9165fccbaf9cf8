#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "mps/concatenation/concatenation_problem.hpp"
#include "mps/core/cuda/elements_cuda.cuh"
#include "mps/core/cuda/rows_cuda.cuh"

namespace mps::detail {
namespace {

using cuda::Divider;
using cuda::RowGrid;

struct PartArguments {
  RowGrid grid;  ///< over units of the destination
  Divider height;
  Divider unitsPerPixel;
  std::uint32_t copied;        ///< units of a pixel that are not padding
  std::uint32_t copiedOfBoth;  ///< where there are two inputs
  std::int64_t inputImage, inputRow, inputPixel;
  std::int64_t secondImage, secondRow, secondPixel;
  std::int64_t destinationImage, destinationRow, destinationPixel;
};

/// Makes rows of all pixels that follow one another alike in all tensors, so that no threads of a block are left over.
/// @param second has no channels where it is not there
void joinPixels(TensorShape& from, TensorShape& second, TensorShape& to) {
  const std::array<TensorShape*, 3> shapes{&from, &second, &to};
  const auto all = [&](auto follows) {
    return std::all_of(shapes.begin(), shapes.end(),
                       [&](const TensorShape* shape) { return shape->channels == 0 || follows(*shape); });
  };
  constexpr std::int64_t longest = std::int64_t{1} << 29;
  if (to.width * to.height * to.channels <= longest && all([](const TensorShape& shape) {
        return shape.height == 1 || shape.rowStride == shape.width * shape.pixelStride;
      }))
    for (TensorShape* shape : shapes) {
      shape->width *= shape->height;
      shape->height = 1;
    }
  if (to.height == 1 && to.width * to.images * to.channels <= longest && all([](const TensorShape& shape) {
        return shape.images == 1 || shape.imageStride == shape.width * shape.pixelStride;
      }))
    for (TensorShape* shape : shapes) {
      shape->width *= shape->images;
      shape->images = 1;
    }
}

/// Strides in units. A unit is so many elements.
/// @param units of a piece of the grid @param together pieces of a thread
PartArguments argumentsOf(const ConcatenationProblem& problem, std::int64_t unit, std::int64_t units = 1,
                          std::int64_t together = 1) {
  TensorShape from = problem.input;
  TensorShape second = problem.second;
  TensorShape to = problem.destination;
  joinPixels(from, second, to);
  PartArguments a;
  a.grid = RowGrid(to.images * to.height, to.width * (to.channels / unit) / units, together);
  a.height = Divider(to.height);
  a.unitsPerPixel = Divider(to.channels / unit);
  a.copied = static_cast<std::uint32_t>(from.channels / unit);
  a.copiedOfBoth = static_cast<std::uint32_t>((from.channels + second.channels) / unit);
  a.secondImage = second.imageStride / unit;
  a.secondRow = second.rowStride / unit;
  a.secondPixel = second.pixelStride / unit;
  a.inputImage = from.imageStride / unit;
  a.inputRow = from.rowStride / unit;
  a.inputPixel = from.pixelStride / unit;
  a.destinationImage = to.imageStride / unit;
  a.destinationRow = to.rowStride / unit;
  a.destinationPixel = to.pixelStride / unit;
  return a;
}

/// Calls copy(from, to, isCopied) with the places of this thread's units; padding has no place in the input.
template <class Copy>
__device__ void forEachUnit(const PartArguments& a, Copy copy) {
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    const std::uint32_t image = a.height.divide(row);
    const std::uint32_t y = row - image * a.height.divisor();
    const std::int64_t from = image * a.inputImage + y * a.inputRow;
    const std::int64_t to = image * a.destinationImage + y * a.destinationRow;
    cuda::forEachPiece(a.grid, [&](std::uint32_t piece) {
      const std::uint32_t x = a.unitsPerPixel.divide(piece);
      const std::uint32_t unit = piece - x * a.unitsPerPixel.divisor();
      copy(from + x * a.inputPixel + unit, to + x * a.destinationPixel + unit, unit < a.copied);
    });
  });
}

/// Of float32 numbers.
template <class Unit>
__device__ Unit sumOf(const Unit& a, const Unit& b) {
  constexpr int count = sizeof(Unit) / sizeof(float);
  float sums[count];
  float others[count];
  memcpy(sums, &a, sizeof a);
  memcpy(others, &b, sizeof b);
#pragma unroll
  for (int i = 0; i < count; ++i) sums[i] += others[i];
  Unit result;
  memcpy(&result, sums, sizeof result);
  return result;
}

/// Units of 16, 8 or 4 bytes or one element. @param accumulate add float32 to what is there
template <class Unit>
__global__ void copyPart(PartArguments a, bool accumulate, const Unit* input, Unit* destination) {
  forEachUnit(a, [&](std::int64_t from, std::int64_t to, bool isCopied) {
    Unit unit{};
    if (isCopied) unit = input[from];
    if constexpr (sizeof(Unit) >= sizeof(float))
      if (accumulate) unit = sumOf(unit, destination[to]);
    destination[to] = unit;
  });
}

/// So many bytes at once.
template <std::size_t bytes>
using BytesOf = std::conditional_t<
    bytes == 16, uint4,
    std::conditional_t<bytes == 8, uint2,
                       std::conditional_t<bytes == 4, unsigned,
                                          std::conditional_t<bytes == 2, unsigned short, unsigned char>>>>;

constexpr std::uint32_t kPiecesTogether = 2;  ///< of a thread, whose loads are on their way together

/// One row of two tensors whose pixels are the parts of the pixels of a third one, the joined one.
template <class Unit>
struct PairRow {
  Unit* first;
  Unit* second;

  __device__ PairRow(const PartArguments& a, std::uint32_t image, std::uint32_t y, Unit* first, Unit* second)
      : first(first + image * a.inputImage + y * a.inputRow),
        second(second + image * a.secondImage + y * a.secondRow) {}

  /// The place of a unit of the joined row; null for padding.
  __device__ Unit* at(const PartArguments& a, std::uint32_t number) const {
    const std::uint32_t x = a.unitsPerPixel.divide(number);
    const std::uint32_t unit = number - x * a.unitsPerPixel.divisor();
    if (unit < a.copied) return first + x * a.inputPixel + unit;
    if (unit < a.copiedOfBoth) return second + x * a.secondPixel + unit - a.copied;
    return nullptr;
  }
};

/// The place of a piece of the joined row. @tparam units of a piece; more than one where rows are dense
template <std::uint32_t units, class Unit>
__device__ Unit* joinedAt(const PartArguments& a, Unit* row, std::uint32_t piece) {
  const std::uint32_t number = piece * units;
  if constexpr (units > 1) return row + number;
  const std::uint32_t x = a.unitsPerPixel.divide(number);
  return row + x * a.destinationPixel + (number - x * a.unitsPerPixel.divisor());
}

/// Calls work(row of the parts, row of the joined tensor, piece) for kPiecesTogether pieces of a thread after one
/// another.
template <class Unit, class Joined, class Work>
__device__ void forEachPair(const PartArguments& a, Unit* first, Unit* second, Joined* joined, Work work) {
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    const std::uint32_t image = a.height.divide(row);
    const std::uint32_t y = row - image * a.height.divisor();
    const PairRow<Unit> parts(a, image, y, first, second);
    Joined* const joinedRow = joined + image * a.destinationImage + y * a.destinationRow;
    const std::uint32_t step = gridDim.x * blockDim.x;
    for (std::uint32_t piece = blockIdx.x * blockDim.x + threadIdx.x; piece < a.grid.pieces;
         piece += kPiecesTogether * step)
      work(parts, joinedRow, piece, step);
  });
}

/// Two inputs at once: what they write are whole lines of memory, which two calls would each load and store.
/// @tparam units that are stored together, a piece of the grid
template <class Unit, std::uint32_t units>
__global__ void copyPair(PartArguments a, const Unit* input, const Unit* second, Unit* destination) {
  using Bytes = BytesOf<sizeof(Unit) * units>;
  forEachPair(a, input, second, destination,
              [&](const PairRow<const Unit>& parts, Unit* to, std::uint32_t piece, std::uint32_t step) {
                Unit values[kPiecesTogether][units] = {};
#pragma unroll
                for (std::uint32_t k = 0; k < kPiecesTogether; ++k) {
                  if (piece + k * step >= a.grid.pieces) continue;
#pragma unroll
                  for (std::uint32_t i = 0; i < units; ++i)
                    if (const Unit* const from = parts.at(a, (piece + k * step) * units + i))
                      values[k][i] = *from;
                }
#pragma unroll
                for (std::uint32_t k = 0; k < kPiecesTogether; ++k) {
                  if (piece + k * step >= a.grid.pieces) continue;
                  Bytes bytes;
                  memcpy(&bytes, values[k], sizeof bytes);
                  *reinterpret_cast<Bytes*>(joinedAt<units>(a, to, piece + k * step)) = bytes;
                }
              });
}

/// The gradients of two sources at once: of what is read each line of memory holds parts of both. Unit by unit, so
/// that the threads of a warp store adjacent ones.
template <class Unit>
__global__ void splitPair(PartArguments a, const Unit* gradient, Unit* destination, Unit* second) {
  forEachPair(a, destination, second, gradient,
              [&](const PairRow<Unit>& parts, const Unit* from, std::uint32_t piece, std::uint32_t step) {
                Unit values[kPiecesTogether] = {};
#pragma unroll
                for (std::uint32_t k = 0; k < kPiecesTogether; ++k)
                  if (piece + k * step < a.grid.pieces) values[k] = *joinedAt<1>(a, from, piece + k * step);
#pragma unroll
                for (std::uint32_t k = 0; k < kPiecesTogether; ++k)
                  if (piece + k * step < a.grid.pieces) *parts.at(a, piece + k * step) = values[k];
              });
}

/// Element by element, where formats differ.
__global__ void convertPart(PartArguments a, ImageFeatureChannelFormat inputFormat,
                            ImageFeatureChannelFormat destinationFormat, bool accumulate,
                            const std::byte* input, std::byte* destination) {
  forEachUnit(a, [&](std::int64_t from, std::int64_t to, bool isCopied) {
    float value = isCopied ? cuda::loadAs(inputFormat, input, from) : 0.0F;
    if (accumulate) value += cuda::loadAs(destinationFormat, destination, to);
    cuda::storeAs(value, destinationFormat, destination, to);
  });
}

class PartPlan final : public Plan {
 public:
  explicit PartPlan(const ConcatenationProblem& problem) : problem_(problem) {}

  [[nodiscard]] std::string describe() const override {
    if (!isSameFormat()) return "one element per thread";
    return std::string(problem_.hasSecond() ? "both sources at once, " : "") +
           "as many bytes per thread as addresses allow";
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& from = problem_.input;
    const TensorShape& to = problem_.destination;
    if (to.elements() == 0) return;
    const std::byte* const input = isForward() ? operands.source : operands.gradient;
    std::byte* const destination = operands.destination;
    if (!isSameFormat()) {
      if (problem_.hasSecond()) return runOneByOne(stream, operands);
      const PartArguments a = argumentsOf(problem_, 1);
      return mtl::cuda::launch(stream, convertPart, a.grid.grid, a.grid.block, 0, a, from.format, to.format,
                               operands.accumulate, input, destination);
    }
    const auto element = static_cast<std::int64_t>(bytesPerChannel(to.format));
    std::int64_t lengths = 0;
    for (const TensorShape* shape : {&from, &problem_.second, &to})
      if (shape->channels > 0)
        lengths |= shape->channels | shape->pixelStride | shape->rowStride | shape->imageStride;
    const std::int64_t mixed = lengths * element | reinterpret_cast<std::intptr_t>(input) |
                               reinterpret_cast<std::intptr_t>(secondOf(operands)) |
                               reinterpret_cast<std::intptr_t>(destination);
    const auto start = [&](auto unit) {
      return problem_.hasSecond() ? startPair(stream, unit, operands) : startPart(stream, unit, operands);
    };
    if (mixed % 16 == 0)
      start(uint4{});
    else if (mixed % 8 == 0)
      start(uint2{});
    else if (mixed % 4 == 0)
      start(0U);
    else if (mixed % 2 == 0)
      start(static_cast<unsigned short>(0));
    else
      start(static_cast<unsigned char>(0));
  }

  [[nodiscard]] bool canAccumulate() const override { return problem_.canAccumulate(); }

 private:
  [[nodiscard]] bool isForward() const { return problem_.direction == ConcatenationDirection::Forward; }
  [[nodiscard]] bool isSameFormat() const {
    const ImageFeatureChannelFormat format = problem_.destination.format;
    return problem_.input.format == format && (!problem_.hasSecond() || problem_.second.format == format);
  }
  /// The memory of the second source or of its gradient; null where this plan has none.
  [[nodiscard]] const std::byte* secondOf(const Operands& operands) const {
    if (!problem_.hasSecond()) return nullptr;  // what is there belongs to the plan that runs this one
    return isForward() ? operands.secondary : operands.parameters[0];
  }
  [[nodiscard]] std::int64_t elementsOf(std::size_t unitBytes) const {
    return static_cast<std::int64_t>(unitBytes / bytesPerChannel(problem_.destination.format));
  }

  void runOneByOne(mtl::Stream& stream, const Operands& operands) const {
    PartPlan(problem_.ofSource(false)).run(stream, operands);
    Operands ofSecond = operands;
    const TensorShape& joined = isForward() ? problem_.destination : problem_.input;
    const auto skipped = problem_.firstChannels() * static_cast<std::int64_t>(bytesPerChannel(joined.format));
    if (isForward()) {
      ofSecond.source = operands.secondary;
      ofSecond.destination += skipped;
    } else {
      ofSecond.gradient += skipped;
      ofSecond.destination = operands.parameters[0];
    }
    PartPlan(problem_.ofSource(true)).run(stream, ofSecond);
  }

  template <class Unit>
  void startPart(mtl::Stream& stream, Unit /*unit*/, const Operands& operands) const {
    const std::byte* const input = isForward() ? operands.source : operands.gradient;
    const PartArguments a = argumentsOf(problem_, elementsOf(sizeof(Unit)));
    mtl::cuda::launch(stream, copyPart<Unit>, a.grid.grid, a.grid.block, 0, a, operands.accumulate,
                      reinterpret_cast<const Unit*>(input), reinterpret_cast<Unit*>(operands.destination));
  }

  template <class Unit>
  void startPair(mtl::Stream& stream, Unit /*unit*/, const Operands& operands) const {
    ConcatenationProblem places = problem_;  // the joined tensor in place of the destination
    if (!isForward()) std::swap(places.input, places.destination);
    if (!isForward()) {
      const PartArguments a = argumentsOf(places, elementsOf(sizeof(Unit)), 1, kPiecesTogether);
      return mtl::cuda::launch(stream, splitPair<Unit>, a.grid.grid, a.grid.block, 0, a,
                               reinterpret_cast<const Unit*>(operands.gradient),
                               reinterpret_cast<Unit*>(operands.destination),
                               reinterpret_cast<Unit*>(operands.parameters[0]));
    }
    const auto start = [&](auto units) {
      const PartArguments a = argumentsOf(places, elementsOf(sizeof(Unit)), units(), kPiecesTogether);
      mtl::cuda::launch(stream, copyPair<Unit, units()>, a.grid.grid, a.grid.block, 0, a,
                        reinterpret_cast<const Unit*>(operands.source),
                        reinterpret_cast<const Unit*>(operands.secondary),
                        reinterpret_cast<Unit*>(operands.destination));
    };
    if constexpr (sizeof(Unit) < 16)
      if (isWide(problem_.destination, operands.destination))
        return start(std::integral_constant<std::uint32_t, 16 / sizeof(Unit)>());
    start(std::integral_constant<std::uint32_t, 1>());
  }

  /// Whether rows are whole vectors of 16 bytes, dense.
  [[nodiscard]] static bool isWide(const TensorShape& joined, const std::byte* address) {
    const auto element = static_cast<std::int64_t>(bytesPerChannel(joined.format));
    const std::int64_t mixed =
        (joined.width * joined.channels | joined.rowStride | joined.imageStride) * element |
        reinterpret_cast<std::intptr_t>(address);
    return joined.pixelStride == joined.channels && mixed % 16 == 0;
  }

  ConcatenationProblem problem_;
};

Preparation prepareParts(const ConcatenationProblem& problem) {
  for (const TensorShape* shape : {&problem.destination, &problem.input})
    if (!RowGrid::fits(shape->images * shape->height, shape->width * shape->channels * 4))
      return Refusal{"a row of 2 GiB or more, or 2^31 rows"};
  return std::make_shared<const PartPlan>(problem);
}

constexpr std::array<Implementation<ConcatenationProblem>, 1> kImplementations{{{"copy", prepareParts}}};

}  // namespace

std::span<const Implementation<ConcatenationProblem>> concatenationImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
