#include "mps/arithmetic/compare.hpp"

#include "mps/arithmetic/arithmetic_problem.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/types/checked_number.hpp"
#include "mps/core/types/error.hpp"

namespace mps {

using detail::ArithmeticOperation;

ArithmeticOperation NNCompare::operation() const {
  return ArithmeticOperation::Equal;
}

std::shared_ptr<NNCompare> NNCompare::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NNCompare>(new NNCompare(device));
}

void NNCompare::setComparisonType(NNComparisonType type) {
  if (type > NNComparisonType::GreaterOrEqual)
    throw Error(describe(), "comparisonType", std::to_string(static_cast<std::uint64_t>(type)),
                "Equal, NotEqual, Less, LessOrEqual, Greater or GreaterOrEqual");
  comparisonType_ = type;
}

void NNCompare::setThreshold(float threshold) {
  threshold_ = detail::checkedFinite(describe(), "threshold", threshold);
}

void NNCompare::describeOperation(detail::ArithmeticProblem& problem) const {
  const auto first = static_cast<std::uint64_t>(ArithmeticOperation::Equal);
  problem.operation = static_cast<ArithmeticOperation>(first + static_cast<std::uint64_t>(comparisonType_));
  problem.threshold = threshold_;
}

void NNCompare::codeProperties(Coder& coder) {
  CNNArithmetic::codeProperties(coder);
  coder.codeEnumeration("comparisonType", comparisonType_, NNComparisonType::GreaterOrEqual);
  coder.code("threshold", threshold_);
  setThreshold(threshold_);
}

}  // namespace mps
