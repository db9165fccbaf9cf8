#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"
#include "mps/reduction/reduction_operation.hpp"

namespace mps::detail {

/// What an operation is to classes and plans. The functions themselves: cpu/reduction_vectors-inl.hpp and
/// cuda/reduction_cuda.cuh.
struct ReductionTraits {
  std::string_view name;    ///< as in the names of classes
  bool sums = false;        ///< else it takes an extremum
  bool divides = false;     ///< by the number of elements
  bool isMinimum = false;   ///< of extrema
  bool isArgument = false;  ///< the result is the extremum's index; there is no gradient

  /// Whether a gradient reads the source.
  [[nodiscard]] constexpr bool selects() const { return !sums && !isArgument; }
};
constexpr ReductionTraits traitsOf(ReductionOperation operation) {
  switch (operation) {
    case ReductionOperation::Min:
      return {.name = "Min", .isMinimum = true};
    case ReductionOperation::Max:
      return {.name = "Max"};
    case ReductionOperation::Sum:
      return {.name = "Sum", .sums = true};
    case ReductionOperation::Mean:
      return {.name = "Mean", .sums = true, .divides = true};
    case ReductionOperation::ArgumentMin:
      return {.name = "ArgumentMin", .isMinimum = true, .isArgument = true};
    case ReductionOperation::ArgumentMax:
      break;
  }
  return {.name = "ArgumentMax", .isArgument = true};
}

enum class ReductionDirection : std::uint8_t { Forward, Gradient };

/// All numbers of one call. The reduced axes of the result have size 1.
///
///     forward    result = reduce(source)
///     gradient   Sum        dSource = scale * g
///                Mean       dSource = g / count
///                Min, Max   dSource = g at the selected element, the first one of equals, 0 elsewhere
///
/// reduce gives scale * sum, sum / count, the extremum (NaN where there is one), or its index, the lowest of equals,
/// counted from the first element.
///
/// | operand     | forward  | gradient                          |
/// |-------------|----------|-----------------------------------|
/// | source      | `source` | `source`; Min and Max only        |
/// | gradient    |          | `result`, the incoming gradient   |
/// | destination | `result` | `destination`, of source's size   |
///
/// No parameters, no scalars, nothing saved. A gradient can accumulate into a float32 destination.
struct ReductionProblem {
  ReductionDirection direction = ReductionDirection::Forward;
  ReductionOperation operation = ReductionOperation::Sum;
  ReductionAxis axis = ReductionAxis::Row;
  float scale = 1;  ///< of Sum
  TensorShape source;
  TensorShape result;
  TensorShape destination;  ///< of a gradient

  bool operator==(const ReductionProblem&) const = default;
  [[nodiscard]] std::size_t hash() const {
    return hashOf(direction, operation, axis, std::bit_cast<std::uint32_t>(scale), source.hash(),
                  result.hash(), destination.hash());
  }
  /// One line with every number.
  [[nodiscard]] std::string describe() const;
  /// Elements of the source for each one of the result.
  [[nodiscard]] std::int64_t count() const {
    switch (axis) {
      case ReductionAxis::Row:
        return source.width;
      case ReductionAxis::Column:
        return source.height;
      case ReductionAxis::Spatial:
        return source.width * source.height;
      case ReductionAxis::FeatureChannels:
        break;
    }
    return source.channels;
  }
  /// Whether a gradient reads the source.
  [[nodiscard]] bool selects() const { return traitsOf(operation).selects(); }
  /// What sums are multiplied by, or divided by.
  [[nodiscard]] float factor() const {
    return traitsOf(operation).divides ? static_cast<float>(count()) : scale;
  }
};

/// The result's shape for a source's. Dense.
TensorShape reducedShape(const TensorShape& source, ReductionAxis axis, ImageFeatureChannelFormat format);

/// In order of preference; the last one accepts every problem.
std::span<const Implementation<ReductionProblem>> reductionImplementationsCpu();
std::span<const Implementation<ReductionProblem>> reductionImplementationsCuda();
inline constexpr BackEnds<ReductionProblem> reductionBackEnds{
    reductionImplementationsCpu, UNMETAL_CUDA_LIST(reductionImplementationsCuda)};

}  // namespace mps::detail
