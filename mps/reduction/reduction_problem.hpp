#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"
#include "mps/reduction/reduction_operation.hpp"

namespace mps::detail {

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
  [[nodiscard]] bool selects() const {
    return operation == ReductionOperation::Min || operation == ReductionOperation::Max;
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
