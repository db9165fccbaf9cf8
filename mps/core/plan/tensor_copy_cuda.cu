#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

#include "mps/core/cuda/elements_cuda.cuh"
#include "mps/core/cuda/rows_cuda.cuh"
#include "mps/core/plan/fallback_plan.hpp"
#include "mps/core/plan/tensor_copy.hpp"

namespace mps::detail {
namespace {

using cuda::Divider;
using cuda::RowGrid;

/// Lengths along a tensor, in bytes.
struct ByteStrides {
  std::int64_t image, row, pixel;

  ByteStrides() = default;
  explicit ByteStrides(const TensorShape& shape)
      : image(shape.imageStride * size(shape)),
        row(shape.rowStride * size(shape)),
        pixel(shape.pixelStride * size(shape)) {}
  static std::int64_t size(const TensorShape& shape) {
    return static_cast<std::int64_t>(bytesPerChannel(shape.format));
  }
};

struct CopyArguments {
  RowGrid grid;  ///< over units of the destination
  Divider height;
  Divider unitsPerPixel;
  ByteStrides source, destination;
  std::int64_t sourceElement, destinationElement;  ///< bytes
  std::int64_t sourceHeight, sourceWidth, offsetX, offsetY;
  bool clampEdges, fills;
  uint4 outside;  ///< what stands where nothing is read: elements side by side
};

__device__ std::int64_t clampInto(std::int64_t value, std::int64_t size) {
  return value < 0 ? 0 : value < size ? value : size - 1;
}

/// Calls copy(from, to) with the places of this thread's units, which have so many bytes in the source and in
/// the destination; `from` is null outside the source.
template <class Copy>
__device__ void forEachUnit(const CopyArguments& a, std::uint32_t sourceBytes, std::uint32_t destinationBytes,
                            const std::byte* source, std::byte* destination, Copy copy) {
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    const std::uint32_t image = a.height.divide(row);
    const std::uint32_t y = row - image * a.height.divisor();
    std::int64_t sourceY = a.offsetY + y;
    if (a.clampEdges) sourceY = clampInto(sourceY, a.sourceHeight);
    const bool rowInside = !a.fills && sourceY >= 0 && sourceY < a.sourceHeight;
    const std::byte* const from = source + image * a.source.image + sourceY * a.source.row;
    std::byte* const to = destination + image * a.destination.image + y * a.destination.row;
    cuda::forEachPiece(a.grid, [&](std::uint32_t piece) {
      const std::uint32_t x = a.unitsPerPixel.divide(piece);
      const std::uint32_t unit = piece - x * a.unitsPerPixel.divisor();
      std::int64_t sourceX = a.offsetX + x;
      if (a.clampEdges) sourceX = clampInto(sourceX, a.sourceWidth);
      const bool isInside = rowInside && sourceX >= 0 && sourceX < a.sourceWidth;
      copy(isInside ? from + sourceX * a.source.pixel + unit * sourceBytes : nullptr,
           to + x * a.destination.pixel + unit * destinationBytes);
    });
  });
}

/// One unit, an element or 16 bytes, is accessed at once.
template <class Unit>
__global__ void copyRows(CopyArguments a, const std::byte* source, std::byte* destination) {
  Unit outside;
  memcpy(&outside, &a.outside, sizeof outside);
  forEachUnit(a, sizeof(Unit), sizeof(Unit), source, destination, [&](const std::byte* from, std::byte* to) {
    Unit unit = outside;
    if (from != nullptr) unit = *reinterpret_cast<const Unit*>(from);
    *reinterpret_cast<Unit*>(to) = unit;
  });
}

/// A unit is an element.
__global__ void convertRows(CopyArguments a, ImageFeatureChannelFormat fromFormat,
                            ImageFeatureChannelFormat toFormat, const std::byte* source,
                            std::byte* destination) {
  forEachUnit(a, static_cast<std::uint32_t>(a.sourceElement),
              static_cast<std::uint32_t>(a.destinationElement), source, destination,
              [&](const std::byte* from, std::byte* to) {
                cuda::storeAs(from != nullptr ? cuda::loadAs(fromFormat, from, 0) : 0.0F, toFormat, to, 0);
              });
}

/// Elements that a pixel may grow to.
constexpr std::int64_t kLongestRun = std::int64_t{1} << 28U;

/// Neighbouring pixels and rows that are copied whole become longer pixels: fewer and larger units.
TensorCopyProblem withMergedRuns(TensorCopyProblem problem) {
  TensorShape& from = problem.source;
  TensorShape& to = problem.destination;
  const bool readsAll = problem.fills || (problem.offsetX == 0 && from.width == to.width);
  const bool adjacent = to.pixelStride == to.channels && (problem.fills || from.pixelStride == from.channels);
  if (!readsAll || !adjacent || to.width * to.channels > kLongestRun) return problem;
  const auto merge = [](TensorShape& shape) {
    shape.channels *= shape.width;
    shape.pixelStride = shape.channels;
    shape.width = 1;
  };
  merge(from);
  merge(to);
  const bool readsAllRows = problem.fills || (problem.offsetY == 0 && from.height == to.height);
  const bool rowsAdjacent = to.rowStride == to.channels && (problem.fills || from.rowStride == from.channels);
  if (!readsAllRows || !rowsAdjacent || to.height * to.channels > kLongestRun) return problem;
  const auto mergeRows = [](TensorShape& shape) {
    shape.channels *= shape.height;
    shape.rowStride = shape.pixelStride = shape.channels;
    shape.height = 1;
  };
  mergeRows(from);
  mergeRows(to);
  return problem;
}

/// 16 bytes of elements with that number.
uint4 filledWith(float number, ImageFeatureChannelFormat format) {
  uint4 filled{};
  withElementType(format, [&](auto element) {
    storeFloat(number, &element);
    for (std::size_t byte = 0; byte < sizeof filled; byte += sizeof element)
      std::memcpy(reinterpret_cast<std::byte*>(&filled) + byte, &element, sizeof element);
  });
  return filled;
}

CopyArguments argumentsOf(const TensorCopyProblem& problem, std::int64_t unitBytes) {
  const TensorShape& to = problem.destination;
  const std::int64_t unitsPerPixel = to.channels * ByteStrides::size(to) / unitBytes;
  CopyArguments a;
  a.grid = RowGrid(to.images * to.height, to.width * unitsPerPixel);
  a.height = Divider(to.height);
  a.unitsPerPixel = Divider(unitsPerPixel);
  a.source = ByteStrides(problem.source);
  a.destination = ByteStrides(to);
  a.sourceElement = ByteStrides::size(problem.source);
  a.destinationElement = ByteStrides::size(to);
  a.sourceHeight = problem.source.height;
  a.sourceWidth = problem.source.width;
  a.offsetX = problem.offsetX;
  a.offsetY = problem.offsetY;
  a.clampEdges = problem.clampEdges;
  a.fills = problem.fills;
  a.outside = {};
  return a;
}

/// @tparam Unit has the bits of an element, or 16 bytes
template <class Unit>
class CopyPlan final : public SelectivePlan {
 public:
  /// @param problem withMergedRuns()
  explicit CopyPlan(const TensorCopyProblem& problem) : problem_(problem) {}

  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    return objectionToUnaligned({sourceOf(operands), operands.destination}, sizeof(Unit));
  }
  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& to = problem_.destination;
    if (to.elements() == 0) return;
    CopyArguments a = argumentsOf(problem_, sizeof(Unit));
    if (problem_.fills) a.outside = filledWith(static_cast<float>(operands.scalars[0]), to.format);
    mtl::cuda::launch(stream, copyRows<Unit>, a.grid.grid, a.grid.block, 0, a, sourceOf(operands),
                      operands.destination);
  }

 private:
  [[nodiscard]] const std::byte* sourceOf(const Operands& operands) const {
    return problem_.fills ? nullptr : operands.source;
  }

  TensorCopyProblem problem_;
};

class ConvertPlan final : public Plan {
 public:
  /// @param problem withMergedRuns()
  explicit ConvertPlan(const TensorCopyProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& to = problem_.destination;
    if (to.elements() == 0) return;
    const CopyArguments a = argumentsOf(problem_, ByteStrides::size(to));
    mtl::cuda::launch(stream, convertRows, a.grid.grid, a.grid.block, 0, a, problem_.source.format, to.format,
                      operands.source, operands.destination);
  }

 private:
  TensorCopyProblem problem_;
};

bool converts(const TensorCopyProblem& problem) {
  return !problem.fills && problem.source.format != problem.destination.format;
}

Preparation prepareElements(const TensorCopyProblem& problem) {
  const TensorShape& to = problem.destination;
  if (!RowGrid::fits(to.images * to.height, to.width * to.channels * ByteStrides::size(to)))
    return Refusal{"a row of 2 GiB or more, or 2^31 rows"};
  const TensorCopyProblem merged = withMergedRuns(problem);
  if (converts(problem)) return std::make_shared<const ConvertPlan>(merged);
  switch (bytesPerChannel(to.format)) {
    case 1:
      return std::make_shared<const CopyPlan<std::uint8_t>>(merged);
    case 2:
      return std::make_shared<const CopyPlan<std::uint16_t>>(merged);
    default:
      return std::make_shared<const CopyPlan<std::uint32_t>>(merged);
  }
}

constexpr Implementation<TensorCopyProblem> kElements{"grid-stride copy", prepareElements};

/// Earns copies of whole images, which have long runs.
Preparation prepareVectors(const TensorCopyProblem& problem) {
  if (converts(problem)) return Refusal{"formats that differ"};
  const TensorCopyProblem merged = withMergedRuns(problem);
  if (!takesLanes(merged.destination) || (!merged.fills && !takesLanes(merged.source)))
    return Refusal{"channels or strides that are no multiples of 16 bytes"};
  return withFallback(std::make_shared<const CopyPlan<uint4>>(merged), kElements, problem);
}

constexpr Implementation<TensorCopyProblem> implementations[] = {
    {"grid-stride copy, 16 bytes per thread", prepareVectors}, kElements};

}  // namespace

std::span<const Implementation<TensorCopyProblem>> tensorCopyImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
