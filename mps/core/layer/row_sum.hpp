#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mtl {
class CommandBuffer;
class Memory;
}  // namespace mtl

/// Sums of the same array over the images of a batch: what per-image gradients of parameters add up to.
namespace mps::detail {

/// Operands: source, `rows` rows of `count` float32 values without gaps; destination, `count` of them. Sums are
/// float64, from the first row to the last or in a fixed tree.
struct RowSumProblem {
  std::int64_t rows = 0;
  std::int64_t count = 0;

  bool operator==(const RowSumProblem&) const = default;
  [[nodiscard]] std::size_t hash() const { return hashOf(rows, count); }
  [[nodiscard]] std::string describe() const {
    return "sum of " + std::to_string(rows) + " rows of " + std::to_string(count) + " values";
  }
};

std::span<const Implementation<RowSumProblem>> rowSumImplementationsCpu();
std::span<const Implementation<RowSumProblem>> rowSumImplementationsCuda();
inline constexpr BackEnds<RowSumProblem> rowSumBackEnds{rowSumImplementationsCpu,
                                                        UNMETAL_CUDA_LIST(rowSumImplementationsCuda)};

/// Records the sum; both blocks stay alive until it ran.
void recordRowSum(mtl::CommandBuffer& commandBuffer, const std::string& label, const RowSumProblem& problem,
                  const std::shared_ptr<mtl::Memory>& rows, std::size_t rowsOffset,
                  const std::shared_ptr<mtl::Memory>& sum, std::size_t sumOffset);

}  // namespace mps::detail
