#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "mps/concatenation/concatenation_problem.hpp"
#include "mps/core/cuda/elements_cuda.cuh"
#include "mps/core/cuda/rows_cuda.cuh"
#include "mps/core/plan/fallback_plan.hpp"

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

/// Strides in units. A unit is so many elements. @param together units of a thread
PartArguments argumentsOf(const ConcatenationProblem& problem, std::int64_t unit, std::int64_t together = 1) {
  TensorShape from = problem.input;
  TensorShape second = problem.second;
  TensorShape to = problem.destination;
  joinPixels(from, second, to);
  PartArguments a;
  a.grid = RowGrid(to.images * to.height, to.width * (to.channels / unit), together);
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

/// @param accumulate add float32 to what is there
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

/// The place of a unit of the joined row.
template <class Unit>
__device__ Unit* joinedAt(const PartArguments& a, Unit* row, std::uint32_t number) {
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
template <class Unit>
__global__ void copyPair(PartArguments a, const Unit* input, const Unit* second, Unit* destination) {
  forEachPair(a, input, second, destination,
              [&](const PairRow<const Unit>& parts, Unit* to, std::uint32_t piece, std::uint32_t step) {
                Unit values[kPiecesTogether] = {};
#pragma unroll
                for (std::uint32_t k = 0; k < kPiecesTogether; ++k) {
                  if (piece + k * step >= a.grid.pieces) continue;
                  if (const Unit* const from = parts.at(a, piece + k * step)) values[k] = *from;
                }
#pragma unroll
                for (std::uint32_t k = 0; k < kPiecesTogether; ++k)
                  if (piece + k * step < a.grid.pieces) *joinedAt(a, to, piece + k * step) = values[k];
              });
}

/// The gradients of two sources at once: of what is read each line of memory holds parts of both.
template <class Unit>
__global__ void splitPair(PartArguments a, const Unit* gradient, Unit* destination, Unit* second) {
  forEachPair(a, destination, second, gradient,
              [&](const PairRow<Unit>& parts, const Unit* from, std::uint32_t piece, std::uint32_t step) {
                Unit values[kPiecesTogether] = {};
#pragma unroll
                for (std::uint32_t k = 0; k < kPiecesTogether; ++k)
                  if (piece + k * step < a.grid.pieces) values[k] = *joinedAt(a, from, piece + k * step);
#pragma unroll
                for (std::uint32_t k = 0; k < kPiecesTogether; ++k)
                  if (piece + k * step < a.grid.pieces) *parts.at(a, piece + k * step) = values[k];
              });
}

__global__ void convertPart(PartArguments a, ImageFeatureChannelFormat inputFormat,
                            ImageFeatureChannelFormat destinationFormat, bool accumulate,
                            const std::byte* input, std::byte* destination) {
  forEachUnit(a, [&](std::int64_t from, std::int64_t to, bool isCopied) {
    float value = isCopied ? cuda::loadAs(inputFormat, input, from) : 0.0F;
    if (accumulate) value += cuda::loadAs(destinationFormat, destination, to);
    cuda::storeAs(value, destinationFormat, destination, to);
  });
}

bool isForward(const ConcatenationProblem& problem) {
  return problem.direction == ConcatenationDirection::Forward;
}

const std::byte* inputOf(const ConcatenationProblem& problem, const Operands& operands) {
  return isForward(problem) ? operands.source : operands.gradient;
}

/// Formats that differ, a source after the other.
class ConvertPlan final : public Plan {
 public:
  explicit ConvertPlan(const ConcatenationProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const std::byte* input = inputOf(problem_, operands);
    std::byte* destination = operands.destination;
    if (!problem_.hasSecond()) return convert(stream, problem_, input, destination, operands.accumulate);
    convert(stream, problem_.ofSource(false), input, destination, false);
    const TensorShape& joined = isForward(problem_) ? problem_.destination : problem_.input;
    const auto skipped = problem_.firstChannels() * static_cast<std::int64_t>(bytesPerChannel(joined.format));
    if (isForward(problem_))
      convert(stream, problem_.ofSource(true), operands.secondary, destination + skipped, false);
    else
      convert(stream, problem_.ofSource(true), input + skipped, operands.parameters[0], false);
  }
  [[nodiscard]] bool canAccumulate() const override { return problem_.canAccumulate(); }

 private:
  static void convert(mtl::Stream& stream, const ConcatenationProblem& problem, const std::byte* input,
                      std::byte* destination, bool accumulate) {
    if (problem.destination.elements() == 0) return;
    const PartArguments a = argumentsOf(problem, 1);
    mtl::cuda::launch(stream, convertPart, a.grid.grid, a.grid.block, 0, a, problem.input.format,
                      problem.destination.format, accumulate, input, destination);
  }

  ConcatenationProblem problem_;
};

/// One format. @tparam Unit has the bits of an element, 8 bytes or 16
template <class Unit>
class CopyPlan final : public SelectivePlan {
 public:
  explicit CopyPlan(const ConcatenationProblem& problem) : problem_(problem) {}

  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    return objectionToUnaligned({inputOf(problem_, operands), secondOf(operands), operands.destination},
                                sizeof(Unit));
  }
  [[nodiscard]] std::string describe() const override {
    return problem_.hasSecond() ? "both sources at once" : "";
  }
  [[nodiscard]] bool canAccumulate() const override { return problem_.canAccumulate(); }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.destination.elements() == 0) return;
    const auto unit = static_cast<std::int64_t>(sizeof(Unit) / bytesPerChannel(problem_.destination.format));
    const auto* const input = reinterpret_cast<const Unit*>(inputOf(problem_, operands));
    auto* const destination = reinterpret_cast<Unit*>(operands.destination);
    if (!problem_.hasSecond()) {
      const PartArguments a = argumentsOf(problem_, unit);
      return mtl::cuda::launch(stream, copyPart<Unit>, a.grid.grid, a.grid.block, 0, a, operands.accumulate,
                               input, destination);
    }
    ConcatenationProblem places = problem_;  // the joined tensor in place of the destination
    if (!isForward(problem_)) std::swap(places.input, places.destination);
    const PartArguments a = argumentsOf(places, unit, kPiecesTogether);
    if (isForward(problem_))
      mtl::cuda::launch(stream, copyPair<Unit>, a.grid.grid, a.grid.block, 0, a, input,
                        reinterpret_cast<const Unit*>(operands.secondary), destination);
    else
      mtl::cuda::launch(stream, splitPair<Unit>, a.grid.grid, a.grid.block, 0, a, input, destination,
                        reinterpret_cast<Unit*>(operands.parameters[0]));
  }

 private:
  /// The memory of the second source or of its gradient; null where this plan has none.
  [[nodiscard]] const std::byte* secondOf(const Operands& operands) const {
    if (!problem_.hasSecond()) return nullptr;  // what is there belongs to the plan that runs this one
    return isForward(problem_) ? operands.secondary : operands.parameters[0];
  }

  ConcatenationProblem problem_;
};

bool isOneFormat(const ConcatenationProblem& problem) {
  const ImageFeatureChannelFormat format = problem.destination.format;
  return problem.input.format == format && (!problem.hasSecond() || problem.second.format == format);
}

Preparation prepareElements(const ConcatenationProblem& problem) {
  for (const TensorShape* shape : {&problem.destination, &problem.input})
    if (!RowGrid::fits(shape->images * shape->height, shape->width * shape->channels * 4))
      return Refusal{"a row of 2 GiB or more, or 2^31 rows"};
  if (!isOneFormat(problem)) return std::make_shared<const ConvertPlan>(problem);
  switch (bytesPerChannel(problem.destination.format)) {
    case 1:
      return std::make_shared<const CopyPlan<std::uint8_t>>(problem);
    case 2:
      return std::make_shared<const CopyPlan<std::uint16_t>>(problem);
    default:
      return std::make_shared<const CopyPlan<std::uint32_t>>(problem);
  }
}

constexpr Implementation<ConcatenationProblem> kElements{"thread per element", prepareElements};

/// Earns the concatenations of U-Net and DenseNet, whose parts are multiples of 16 bytes, in float16 of 8.
Preparation prepareVectors(const ConcatenationProblem& problem) {
  if (!isOneFormat(problem)) return Refusal{"formats that differ"};
  const std::array<const TensorShape*, 3> shapes{&problem.input, &problem.second, &problem.destination};
  const auto takes = [&](std::size_t bytes) {
    return std::all_of(shapes.begin(), shapes.end(), [&](const TensorShape* shape) {
      return shape->channels == 0 || takesLanes(*shape, bytes);
    });
  };
  if (takes(sizeof(uint4)))
    return withFallback(std::make_shared<const CopyPlan<uint4>>(problem), kElements, problem);
  if (takes(sizeof(uint2)))
    return withFallback(std::make_shared<const CopyPlan<uint2>>(problem), kElements, problem);
  return Refusal{"channels or strides that are no multiples of 8 bytes"};
}

constexpr std::array<Implementation<ConcatenationProblem>, 2> kImplementations{
    {{"8 or 16 bytes per thread", prepareVectors}, kElements}};

}  // namespace

std::span<const Implementation<ConcatenationProblem>> concatenationImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
