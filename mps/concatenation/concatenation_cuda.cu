#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "mps/concatenation/concatenation_problem.hpp"
#include "mps/core/elements_cuda.cuh"
#include "mps/core/rows_cuda.cuh"

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

/// Units of 16, 8 or 4 bytes or one element.
template <class Unit>
__global__ void copyPart(PartArguments a, const Unit* input, Unit* destination) {
  forEachUnit(a, [&](std::int64_t from, std::int64_t to, bool isCopied) {
    Unit unit{};
    if (isCopied) unit = input[from];
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

/// Two inputs at once: what they write are whole lines of memory, which two calls would each load and store.
/// @tparam units that are stored together, a piece of the grid; more than one where the destination has no gaps
template <class Unit, std::uint32_t units>
__global__ void copyPair(PartArguments a, const Unit* input, const Unit* second, Unit* destination) {
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    const std::uint32_t image = a.height.divide(row);
    const std::uint32_t y = row - image * a.height.divisor();
    const Unit* const inputRow = input + image * a.inputImage + y * a.inputRow;
    const Unit* const secondRow = second + image * a.secondImage + y * a.secondRow;
    Unit* const to = destination + image * a.destinationImage + y * a.destinationRow;
    const std::uint32_t step = gridDim.x * blockDim.x;
    for (std::uint32_t piece = blockIdx.x * blockDim.x + threadIdx.x; piece < a.grid.pieces;
         piece += kPiecesTogether * step) {
      Unit values[kPiecesTogether][units] = {};
#pragma unroll
      for (std::uint32_t k = 0; k < kPiecesTogether; ++k) {
        if (piece + k * step >= a.grid.pieces) continue;
#pragma unroll
        for (std::uint32_t i = 0; i < units; ++i) {
          const std::uint32_t number = (piece + k * step) * units + i;
          const std::uint32_t x = a.unitsPerPixel.divide(number);
          const std::uint32_t unit = number - x * a.unitsPerPixel.divisor();
          if (unit < a.copied)
            values[k][i] = inputRow[x * a.inputPixel + unit];
          else if (unit < a.copiedOfBoth)
            values[k][i] = secondRow[x * a.secondPixel + unit - a.copied];
        }
      }
#pragma unroll
      for (std::uint32_t k = 0; k < kPiecesTogether; ++k) {
        if (piece + k * step >= a.grid.pieces) continue;
        const std::uint32_t number = (piece + k * step) * units;
        Unit* at;
        if constexpr (units == 1) {
          const std::uint32_t x = a.unitsPerPixel.divide(number);
          at = to + x * a.destinationPixel + (number - x * a.unitsPerPixel.divisor());
        } else {
          at = to + number;
        }
        BytesOf<sizeof(Unit) * units> bytes;
        memcpy(&bytes, values[k], sizeof bytes);
        *reinterpret_cast<BytesOf<sizeof(Unit) * units>*>(at) = bytes;
      }
    }
  });
}

/// Four sums of float32 at once.
__global__ void addPart4(PartArguments a, const float4* input, float4* destination) {
  forEachUnit(a, [&](std::int64_t from, std::int64_t to, bool) {
    const float4 added = input[from];
    float4 sum = destination[to];
    sum.x += added.x;
    sum.y += added.y;
    sum.z += added.z;
    sum.w += added.w;
    destination[to] = sum;
  });
}

/// Element by element, where formats differ or the destination is added to.
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

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& from = problem_.input;
    const TensorShape& to = problem_.destination;
    if (to.elements() == 0) return;
    const std::byte* const input =
        problem_.direction == ConcatenationDirection::Forward ? operands.source : operands.gradient;
    std::byte* const destination = operands.destination;
    const bool isSame = from.format == to.format;
    if (problem_.hasSecond() && (!isSame || problem_.second.format != to.format)) {
      PartPlan(problem_.ofSource(false)).run(stream, operands);
      Operands ofSecond = operands;
      ofSecond.source = operands.secondary;
      ofSecond.destination += from.channels * static_cast<std::int64_t>(bytesPerChannel(to.format));
      return PartPlan(problem_.ofSource(true)).run(stream, ofSecond);
    }
    if (operands.accumulate && isSame && cuda::takesLanes(from, input) && cuda::takesLanes(to, destination)) {
      const PartArguments a = argumentsOf(problem_, 4);
      return mtl::cuda::launch(stream, addPart4, a.grid.grid, a.grid.block, 0, a,
                               reinterpret_cast<const float4*>(input),
                               reinterpret_cast<float4*>(destination));
    }
    if (operands.accumulate || !isSame) {
      const PartArguments a = argumentsOf(problem_, 1);
      return mtl::cuda::launch(stream, convertPart, a.grid.grid, a.grid.block, 0, a, from.format, to.format,
                               operands.accumulate, input, destination);
    }
    const auto element = static_cast<std::int64_t>(bytesPerChannel(to.format));
    const auto copy = [&](auto unit) {
      using Unit = decltype(unit);
      const std::int64_t unitElements = static_cast<std::int64_t>(sizeof(Unit)) / element;
      const auto startPair = [&](auto units) {
        const PartArguments a = argumentsOf(problem_, unitElements, units(), kPiecesTogether);
        mtl::cuda::launch(stream, copyPair<Unit, units()>, a.grid.grid, a.grid.block, 0, a,
                          reinterpret_cast<const Unit*>(input),
                          reinterpret_cast<const Unit*>(operands.secondary),
                          reinterpret_cast<Unit*>(destination));
      };
      if (problem_.hasSecond()) {
        if constexpr (sizeof(Unit) < 16)
          if (storesWide(destination))
            return startPair(std::integral_constant<std::uint32_t, 16 / sizeof(Unit)>());
        return startPair(std::integral_constant<std::uint32_t, 1>());
      }
      const PartArguments a = argumentsOf(problem_, unitElements);
      mtl::cuda::launch(stream, copyPart<Unit>, a.grid.grid, a.grid.block, 0, a,
                        reinterpret_cast<const Unit*>(input), reinterpret_cast<Unit*>(destination));
    };
    std::int64_t lengths = 0;
    for (const TensorShape* shape : {&from, &problem_.second, &to})
      if (shape->channels > 0)
        lengths |= shape->channels | shape->pixelStride | shape->rowStride | shape->imageStride;
    const std::int64_t mixed = lengths * element | reinterpret_cast<std::intptr_t>(input) |
                               reinterpret_cast<std::intptr_t>(operands.secondary) |
                               reinterpret_cast<std::intptr_t>(destination);
    if (mixed % 16 == 0)
      copy(uint4{});
    else if (mixed % 8 == 0)
      copy(uint2{});
    else if (mixed % 4 == 0)
      copy(0U);
    else if (mixed % 2 == 0)
      copy(static_cast<unsigned short>(0));
    else
      copy(static_cast<unsigned char>(0));
  }

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.direction == ConcatenationDirection::Gradient &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  /// Whether rows of the destination are whole packs of 16 bytes, without gaps.
  [[nodiscard]] bool storesWide(const std::byte* address) const {
    const TensorShape& to = problem_.destination;
    const auto element = static_cast<std::int64_t>(bytesPerChannel(to.format));
    const std::int64_t mixed = (to.width * to.channels | to.rowStride | to.imageStride) * element |
                               reinterpret_cast<std::intptr_t>(address);
    return to.pixelStride == to.channels && mixed % 16 == 0;
  }

  ConcatenationProblem problem_;
};

Preparation prepareParts(const ConcatenationProblem& problem) {
  const TensorShape& to = problem.destination;
  if (!RowGrid::fits(to.images * to.height, to.width * to.channels * 4))
    return Refusal{"a row of 2 GiB or more, or 2^31 rows"};
  return std::make_shared<const PartPlan>(problem);
}

constexpr std::array<Implementation<ConcatenationProblem>, 1> kImplementations{{{"rows", prepareParts}}};

}  // namespace

std::span<const Implementation<ConcatenationProblem>> concatenationImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
