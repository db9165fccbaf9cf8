#pragma once

#include <span>
#include <string>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

/// Throws when a tensor holds a NaN or an infinity, with the place of the first. Uses Operands::source.
struct FiniteCheckProblem {
  TensorShape source;  ///< float16 or float32

  bool operator==(const FiniteCheckProblem&) const = default;
  [[nodiscard]] std::size_t hash() const { return source.hash(); }
  [[nodiscard]] std::string describe() const { return "finite check of " + source.describe(); }
};

std::span<const Implementation<FiniteCheckProblem>> finiteCheckImplementationsCpu();
std::span<const Implementation<FiniteCheckProblem>> finiteCheckImplementationsCuda();
inline constexpr BackEnds<FiniteCheckProblem> finiteCheckBackEnds{
    finiteCheckImplementationsCpu, UNMETAL_CUDA_LIST(finiteCheckImplementationsCuda)};

/// Throws the error of a value that is not finite. @param place its number among the elements, in order
[[noreturn]] void throwNotFinite(const TensorShape& shape, std::int64_t place);

}  // namespace mps::detail
