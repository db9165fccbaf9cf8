#include "mps/arithmetic/arithmetic_reference.hpp"

#include <cmath>

namespace mps::detail {
namespace {

/// The element of an operand that belongs to one of the result; axes of size 1 are repeated.
std::size_t operandIndex(const ReferenceTensor& operand, std::int64_t n, std::int64_t y, std::int64_t x,
                         std::int64_t c) {
  return operand.index(n, operand.height == 1 ? 0 : y, operand.width == 1 ? 0 : x,
                       operand.channels == 1 ? 0 : c);
}

/// Calls body(n, y, x, c) for every element.
template <class Body>
void forEachElement(const TensorShape& shape, Body&& body) {
  for (std::int64_t n = 0; n < shape.images; ++n)
    for (std::int64_t y = 0; y < shape.height; ++y)
      for (std::int64_t x = 0; x < shape.width; ++x)
        for (std::int64_t c = 0; c < shape.channels; ++c) body(n, y, x, c);
}

ReferenceTensor emptyTensor(const TensorShape& shape) {
  ReferenceTensor tensor(shape.images, shape.height, shape.width, shape.channels);
  tensor.magnitude.resize(tensor.values.size());
  return tensor;
}

/// Section 5.4.
bool holds(const ArithmeticProblem& problem, double x, double y) {
  const bool isNear = std::abs(x - y) <= static_cast<double>(problem.threshold);
  switch (problem.operation) {
    case ArithmeticOperation::Equal:
      return isNear;
    case ArithmeticOperation::NotEqual:
      return !isNear;
    case ArithmeticOperation::Less:
      return x < y;
    case ArithmeticOperation::LessOrEqual:
      return x <= y;
    case ArithmeticOperation::Greater:
      return x > y;
    default:
      return x >= y;
  }
}

}  // namespace

ArithmeticReference arithmeticForwardReference(const ArithmeticProblem& problem, const ReferenceTensor& x,
                                               const ReferenceTensor& y) {
  ArithmeticReference reference{emptyTensor(problem.destination), emptyTensor(problem.destination),
                                emptyTensor(problem.destination)};
  forEachElement(problem.destination,
                 [&](std::int64_t n, std::int64_t row, std::int64_t column, std::int64_t c) {
                   const double xValue = x.values[operandIndex(x, n, row, column, c)];
                   const double yValue = y.values[operandIndex(y, n, row, column, c)];
                   if (isComparison(problem.operation)) {
                     const std::size_t at = reference.result.index(n, row, column, c);
                     reference.result.values[at] = holds(problem, xValue, yValue) ? 1 : 0;
                     return;
                   }
                   const double ax = static_cast<double>(problem.primaryScale) * xValue;
                   const double by = static_cast<double>(problem.secondaryScale) * yValue;
                   const double bias = static_cast<double>(problem.bias);
                   double r = 0;
                   double magnitude = 0;
                   switch (problem.operation) {
                     case ArithmeticOperation::Add:
                       r = ax + by + bias;
                       magnitude = std::abs(ax) + std::abs(by) + std::abs(bias);
                       break;
                     case ArithmeticOperation::Subtract:
                       r = ax - by + bias;
                       magnitude = std::abs(ax) + std::abs(by) + std::abs(bias);
                       break;
                     case ArithmeticOperation::Multiply:
                       r = ax * by + bias;
                       magnitude = std::abs(ax * by) + std::abs(bias);
                       break;
                     case ArithmeticOperation::Divide:
                       r = ax / by + bias;
                       magnitude = std::abs(ax / by) + std::abs(bias);
                       break;
                     default:
                       break;
                   }
                   const double minimum = static_cast<double>(problem.minimumValue);
                   const double maximum = static_cast<double>(problem.maximumValue);
                   const std::size_t i = reference.result.index(n, row, column, c);
                   reference.mask.values[i] = minimum < r && r < maximum ? 1 : 0;
                   reference.quotient.values[i] = xValue / yValue;
                   reference.quotient.magnitude[i] = std::abs(xValue / yValue);
                   if (r > maximum) r = maximum;
                   if (r < minimum) r = minimum;
                   if (problem.hasReLU && r < 0) r = -0.0;
                   reference.result.values[i] = r;
                   reference.result.magnitude[i] = magnitude;
                 });
  reference.result.roundings = 4;
  reference.quotient.roundings = 1;
  return reference;
}

ReferenceTensor arithmeticGradientReference(const ArithmeticProblem& problem, const ReferenceTensor& g,
                                            const ReferenceTensor& z, const ReferenceTensor& mask,
                                            const ReferenceTensor& quotient) {
  ReferenceTensor sum = emptyTensor(problem.destination);
  forEachElement(
      problem.gradient, [&](std::int64_t n, std::int64_t row, std::int64_t column, std::int64_t c) {
        const std::size_t i = g.index(n, row, column, c);
        if (problem.hasMask() && mask.values[i] == 0) return;
        double value = static_cast<double>(problem.primaryScale) * g.values[i];
        if (problem.operation == ArithmeticOperation::Multiply ||
            problem.operation == ArithmeticOperation::Divide) {
          const double bz =
              static_cast<double>(problem.secondaryScale) * z.values[operandIndex(z, n, row, column, c)];
          value = problem.operation == ArithmeticOperation::Multiply ? value * bz : value / bz;
        }
        if (problem.operation == ArithmeticOperation::Divide &&
            problem.direction == ArithmeticDirection::SecondaryGradient)
          value = -value * quotient.values[i];
        sum.add(operandIndex(sum, n, row, column, c), value);
      });
  const std::int64_t terms =
      sum.values.empty() ? 0 : problem.gradient.elements() / static_cast<std::int64_t>(sum.values.size());
  sum.roundings = 4 + terms;
  return sum;
}

}  // namespace mps::detail
