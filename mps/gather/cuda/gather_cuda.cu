#include <cstdint>
#include <memory>
#include <type_traits>

#include "mps/core/cuda/elements_cuda.cuh"
#include "mps/core/cuda/rows_cuda.cuh"
#include "mps/core/plan/fallback_plan.hpp"
#include "mps/gather/cuda/gather_order_cuda.cuh"
#include "mps/gather/gather_problem.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

using cuda::Divider;
using cuda::Indices;
using cuda::RowGrid;

/// The rows of a call's destination, and strides in vectors of 16 bytes or in elements.
struct GatherArguments {
  RowGrid grid;
  Divider height;  ///< of the destination
  std::int64_t fromImage, fromRow, toImage, toRow;

  /// @param lanes elements of a vector
  GatherArguments(const TensorShape& from, const TensorShape& to, std::int64_t lanes)
      : grid(to.images * to.height, to.channels / lanes),
        height(to.height),
        fromImage(from.imageStride / lanes),
        fromRow(from.rowStride / lanes),
        toImage(to.imageStride / lanes),
        toRow(to.rowStride / lanes) {}
};

/// @tparam Vector 16 bytes, or the bits of an element
template <class Vector>
__global__ void copyRows(GatherArguments a, Indices indices, const Vector* source, Vector* destination) {
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    const std::uint32_t n = a.height.divide(row);
    const std::uint32_t i = row - n * a.height.divisor();
    const std::int64_t k = indices.row(i);
    const Vector* const from = source + n * a.fromImage + (k < 0 ? 0 : k) * a.fromRow;
    Vector* const to = destination + n * a.toImage + i * a.toRow;
    cuda::forEachPiece(a.grid,
                       [&](std::uint32_t piece) { __stcs(to + piece, k < 0 ? Vector{} : from[piece]); });
  });
}

/// A thread adds the terms of its part of a row one after the other.
/// @tparam lanes elements that a thread loads together, all of 16 bytes or one
template <class T, int lanes>
__global__ void addRows(GatherArguments a, const std::uint32_t* starts, const std::uint32_t* places,
                        const T* gradient, T* destination) {
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    const std::uint32_t n = a.height.divide(row);
    const std::uint32_t k = row - n * a.height.divisor();
    const std::uint32_t begin = starts[k];
    const std::uint32_t end = starts[k + 1];
    cuda::forEachPiece(a.grid, [&](std::uint32_t piece) {
      const T* const from = gradient + (n * a.fromImage + piece) * lanes;
      T* const to = destination + (n * a.toImage + k * a.toRow + piece) * lanes;
      if constexpr (lanes == 1) {
        float sum = 0;
#pragma unroll 4
        for (std::uint32_t p = begin; p < end; ++p) sum += cuda::load(from + places[p] * a.fromRow);
        cuda::store(sum, to);
      } else {
        cuda::Lanes<T> sums{};
#pragma unroll 4
        for (std::uint32_t p = begin; p < end; ++p) {
          const cuda::Lanes<T> term = cuda::loadLanes(from + places[p] * a.fromRow * lanes);
#pragma unroll
          for (int lane = 0; lane < lanes; ++lane) sums.values[lane] += term.values[lane];
        }
        cuda::storeLanes(sums, to);
      }
    });
  });
}

/// Copies the row of each index. A gradient first sorts the indices by the rows that they name.
class GatherPlanCuda final : public AccessPlan {
 public:
  explicit GatherPlanCuda(const GatherProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const bool isForward = problem_.direction == GatherDirection::Forward;
    if ((isForward ? problem_.result : problem_.source).elements() == 0) return;
    const bool isHalf = problem_.source.format == ImageFeatureChannelFormat::Float16;
    const Indices indices{operands.secondary, problem_.indices, problem_.result.height,
                          problem_.source.height};
    if (!isForward) {
      const auto order = sortOf().sort(stream, indices, operands.scratch);
      return isHalf ? add<Float16>(stream, operands, order) : add<float>(stream, operands, order);
    }
    if (lanes() > 1) return copy<uint4>(stream, operands, indices);
    return isHalf ? copy<std::uint16_t>(stream, operands, indices)
                  : copy<std::uint32_t>(stream, operands, indices);
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    return problem_.direction == GatherDirection::Forward ? 0 : sortOf().scratchBytes();
  }

 protected:
  [[nodiscard]] AccessedTensors accessed(const Operands& operands) const override {
    const bool isForward = problem_.direction == GatherDirection::Forward;
    return {{{problem_.source, isForward ? operands.source : operands.destination},
             {problem_.result, isForward ? operands.destination : operands.gradient}}};
  }

 private:
  [[nodiscard]] cuda::GatherOrder sortOf() const { return {problem_.result.height, problem_.source.height}; }

  template <class Vector>
  void copy(mtl::Stream& stream, const Operands& operands, const Indices& indices) const {
    const auto elementBytes = bytesPerChannel(problem_.source.format);
    const GatherArguments a(problem_.source, problem_.result,
                            static_cast<std::int64_t>(sizeof(Vector) / elementBytes));
    mtl::cuda::launch(stream, copyRows<Vector>, a.grid.grid, a.grid.block, 0, a, indices,
                      reinterpret_cast<const Vector*>(operands.source),
                      reinterpret_cast<Vector*>(operands.destination));
  }

  template <class T>
  void add(mtl::Stream& stream, const Operands& operands, const cuda::GatherOrder::Result& order) const {
    const auto start = [&](auto together) {
      const GatherArguments a(problem_.result, problem_.source, together());
      mtl::cuda::launch(stream, addRows<T, together()>, a.grid.grid, a.grid.block, 0, a, order.starts,
                        order.places, reinterpret_cast<const T*>(operands.gradient),
                        reinterpret_cast<T*>(operands.destination));
    };
    if (lanes() > 1)
      start(std::integral_constant<int, cuda::kLanes<T>>());
    else
      start(std::integral_constant<int, 1>());
  }

  GatherProblem problem_;
};

Preparation prepareElements(const GatherProblem& problem) {
  constexpr std::int64_t kMost = 0x7FFFFFFF - 0x10000;
  const auto isTooLarge = [](const TensorShape& shape) {
    return shape.height > kMost || !RowGrid::fits(shape.images * shape.height, shape.channels);
  };
  if (isTooLarge(problem.source) || isTooLarge(problem.result))
    return Refusal{"about 2^31 rows, or a row of about 2^31 elements"};
  return std::make_shared<const GatherPlanCuda>(problem);
}

constexpr Implementation<GatherProblem> kElements{"thread per element", prepareElements};

constexpr Implementation<GatherProblem> implementations[] = {
    {"16 bytes per thread", prepareVectors<GatherPlanCuda, kElements>}, kElements};

}  // namespace

std::span<const Implementation<GatherProblem>> gatherImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
