#pragma once

#include <bit>
#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

/// The comparisons are in the order of NNComparisonType.
enum class ArithmeticOperation : std::uint8_t {
  Add,
  Subtract,
  Multiply,
  Divide,
  Equal,
  NotEqual,
  Less,
  LessOrEqual,
  Greater,
  GreaterOrEqual
};
constexpr bool isComparison(ArithmeticOperation operation) {
  return operation >= ArithmeticOperation::Equal;
}
const char* name(ArithmeticOperation operation);

enum class ArithmeticDirection : std::uint8_t {
  Forward,
  PrimaryGradient,    ///< with respect to x
  SecondaryGradient,  ///< with respect to y
};

/// All numbers of one call. a is primaryScale, b is secondaryScale.
///
/// | operation | forward r | gradient of x | gradient of y |
/// |---|---|---|---|
/// | Add | a x + b y + bias | a g | a g |
/// | Subtract | a x - b y + bias | a g | a g |
/// | Multiply | (a x)(b y) + bias | (a g)(b z), z = y | (a g)(b z), z = x |
/// | Divide | (a x) / (b y) + bias | (a g) / (b z), z = y | -(a g / b) x / y^2, z = y |
///
/// Comparisons are forward only and use neither scales, bias nor limits: r is 1 where |x - y| <= threshold
/// (Equal), where not (NotEqual), x < y, x <= y, x > y, x >= y; else 0.
///
/// Forward stores r cut to minimumValue ... maximumValue; NaN stays. A limit of -FLT_MAX and FLT_MAX means none
/// (docs/decisions.md, D24). With hasReLU what is below 0 is then -0, as the neuron
/// ReLU with slope 0 gives it. Scales and sign of a gradient are those
/// of its kernel, which need not be those of the forward kernel.
///
/// Width, height and channels of x, y and z are those of the result, or 1: then that axis is repeated. Where
/// an axis of a gradient's destination is 1 and that of g is longer, the values are summed over it. All
/// tensors have the same number of images.
///
/// | operand | Forward | gradients |
/// |---|---|---|
/// | source | x | |
/// | secondary | y | z; Multiply and Divide only |
/// | gradient | | g |
/// | destination | result | gradient of the operand |
/// | saved | mask and x, written | mask and x, read |
///
/// The mask is 1 (stored as unorm8) where minimumValue < r < maximumValue, of limits that mean none any r, else 0; a
/// gradient takes the value 0 where it is 0.
///
/// A division keeps x for the gradient of y, in float16 where x is float16, else in float32.
///
/// Mask and what is kept of x have the size of the result or no images: then there is
/// none. The destination of Forward, and of a gradient that sums nothing, may be the memory of an input that
/// is not repeated, if format and strides are the same. No parameters, no scalars. A gradient can accumulate
/// into a float32 destination.
struct ArithmeticProblem {
  ArithmeticOperation operation = ArithmeticOperation::Add;
  ArithmeticDirection direction = ArithmeticDirection::Forward;
  float primaryScale = 1;
  float secondaryScale = 1;
  float bias = 0;  ///< forward only, as the limits
  float minimumValue = -FLT_MAX;
  float maximumValue = FLT_MAX;
  bool hasReLU = false;   ///< forward only
  float threshold = 0;    ///< of Equal and NotEqual
  TensorShape primary;    ///< x; forward only
  TensorShape secondary;  ///< y or z
  TensorShape gradient;   ///< g; gradients only
  TensorShape destination;
  TensorShape mask;             ///< unorm8, in the saved memory
  TensorShape kept;             ///< float16 or float32, in the saved memory
  std::int64_t maskOffset = 0;  ///< of the first element, in bytes
  std::int64_t keptOffset = 0;  ///< likewise

  bool operator==(const ArithmeticProblem&) const = default;

  [[nodiscard]] bool hasMinimum() const { return minimumValue > -FLT_MAX; }
  [[nodiscard]] bool hasMaximum() const { return maximumValue < FLT_MAX; }
  /// What the result is cut to: the limits, infinite where they mean none; with hasReLU at least -0.
  [[nodiscard]] float lowest() const {
    if (hasReLU && !(minimumValue >= 0)) return -0.0F;
    return hasMinimum() ? minimumValue : -std::numeric_limits<float>::infinity();
  }
  [[nodiscard]] float highest() const {
    return hasMaximum() ? maximumValue : std::numeric_limits<float>::infinity();
  }
  [[nodiscard]] bool isForward() const { return direction == ArithmeticDirection::Forward; }
  [[nodiscard]] bool hasMask() const { return mask.images > 0; }
  [[nodiscard]] bool hasKept() const { return kept.images > 0; }
  /// Whether a gradient reads z.
  [[nodiscard]] bool needsSecondary() const {
    return isForward() || operation == ArithmeticOperation::Multiply ||
           operation == ArithmeticOperation::Divide;
  }
  /// The tensor that the operation runs over, element by element.
  [[nodiscard]] const TensorShape& result() const { return isForward() ? destination : gradient; }
  [[nodiscard]] std::size_t hash() const {
    const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
    return hashOf(operation, direction, bits(primaryScale), bits(secondaryScale), bits(bias),
                  bits(minimumValue), bits(maximumValue), hasReLU, bits(threshold), primary.hash(),
                  secondary.hash(), gradient.hash(), destination.hash(), mask.hash(), kept.hash(), maskOffset,
                  keptOffset);
  }
  /// "add 8x56x56x64 float32, 8x1x1x64 float32 -> 8x56x56x64 float32".
  [[nodiscard]] std::string describe() const;
};

/// What a division keeps of a dividend of this format.
constexpr ImageFeatureChannelFormat keptFormatFor(ImageFeatureChannelFormat dividend) {
  return dividend == ImageFeatureChannelFormat::Float16 ? dividend : ImageFeatureChannelFormat::Float32;
}

/// Sets mask and what is kept, as asked for, to where the saved fields of a result of this shape lie. Returns
/// their bytes for each image.
/// @param kept None: nothing
std::size_t describeSavedFields(ArithmeticProblem& problem, const TensorShape& result, bool mask,
                                ImageFeatureChannelFormat kept);

/// In order of preference; the last one accepts every problem that is in the tables above.
std::span<const Implementation<ArithmeticProblem>> arithmeticImplementationsCpu();
std::span<const Implementation<ArithmeticProblem>> arithmeticImplementationsCuda();
inline constexpr BackEnds<ArithmeticProblem> arithmeticBackEnds{
    arithmeticImplementationsCpu, UNMETAL_CUDA_LIST(arithmeticImplementationsCuda)};

}  // namespace mps::detail
