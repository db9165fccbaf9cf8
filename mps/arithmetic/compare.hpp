#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/core/kernel/kernel_class.hpp"

/// Comparison of two images, element by element (MPSCNNMath.h).
namespace mps {

/// When a comparison of x with y gives 1 (MPSNNComparisonType). Consecutive numbers, no bits.
enum class NNComparisonType : std::uint64_t {
  Equal = 0,     ///< |x - y| <= threshold
  NotEqual = 1,  ///< not that
  Less = 2,
  LessOrEqual = 3,
  Greater = 4,
  GreaterOrEqual = 5
};

/// 1 where the comparison of the primary source x with the secondary source y holds, else 0 (MPSNNCompare). Comparisons
/// with NaN do not hold, but for NotEqual. Strides of 0 repeat a source as in all arithmetic kernels; scales, bias and
/// limits are not used, nor is threshold in the comparisons that order. Makes no state: there is no gradient.
class NNCompare final : public detail::KernelClass<NNCompare, CNNArithmetic, "NNCompare"> {
 public:
  static std::shared_ptr<NNCompare> create(const std::shared_ptr<mtl::Device>& device);
  /// Equal.
  [[nodiscard]] NNComparisonType comparisonType() const { return comparisonType_; }
  /// @throws Error for a number that is none of the types
  void setComparisonType(NNComparisonType type);
  /// 0. @throws Error unless it is finite
  [[nodiscard]] float threshold() const { return threshold_; }
  void setThreshold(float threshold);

 protected:
  using KernelClass::KernelClass;
  NNCompare(const NNCompare&) = default;
  [[nodiscard]] detail::ArithmeticOperation operation() const override;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] bool makesState() const override { return false; }
  void describeOperation(detail::ArithmeticProblem& problem) const override;

 private:
  friend KernelClass;
  NNComparisonType comparisonType_ = NNComparisonType::Equal;
  float threshold_ = 0;
};

}  // namespace mps
