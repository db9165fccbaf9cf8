#include "mps/arithmetic/check/arithmetic_reference.hpp"

#include <cfloat>
#include <cmath>
#include <cstdint>

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

ReferenceTensor arithmeticDerivative(const ArithmeticProblem& problem, const std::vector<double>& kept,
                                     const ReferenceTensor& z) {
  ReferenceTensor derivative = emptyTensor(problem.kept);
  forEachElement(problem.kept, [&](std::int64_t n, std::int64_t row, std::int64_t column, std::int64_t c) {
    const std::size_t i = derivative.index(n, row, column, c);
    const double y = z.values[operandIndex(z, n, row, column, c)];
    derivative.values[i] = -kept[i] / y / y;
  });
  return derivative;
}

ArithmeticReference arithmeticForwardReference(const ArithmeticProblem& problem, const ReferenceTensor& x,
                                               const ReferenceTensor& y) {
  ArithmeticReference reference{emptyTensor(problem.destination), emptyTensor(problem.destination),
                                emptyTensor(problem.destination), emptyTensor(problem.destination)};
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
                   const bool noMinimum = problem.minimumValue <= -FLT_MAX;
                   const bool noMaximum = problem.maximumValue >= FLT_MAX;
                   const std::size_t i = reference.result.index(n, row, column, c);
                   const bool isInside = (noMinimum || minimum < r) && (noMaximum || r < maximum);
                   reference.mask.values[i] = isInside ? 1 : 0;
                   reference.derivative.values[i] = -xValue / yValue / yValue;
                   reference.kept.values[i] = xValue;
                   reference.kept.magnitude[i] = std::abs(reference.kept.values[i]);
                   if (!noMaximum && r > maximum) r = maximum;
                   if (!noMinimum && r < minimum) r = minimum;
                   if (problem.hasReLU && r < 0) r = -0.0;
                   reference.result.values[i] = r;
                   reference.result.magnitude[i] = magnitude;
                 });
  reference.result.roundings = 4;
  return reference;
}

ReferenceTensor arithmeticGradientReference(const ArithmeticProblem& problem, const ReferenceTensor& g,
                                            const ReferenceTensor& z, const ReferenceTensor& mask,
                                            const ReferenceTensor& derivative) {
  ReferenceTensor sum = emptyTensor(problem.destination);
  forEachElement(problem.gradient,
                 [&](std::int64_t n, std::int64_t row, std::int64_t column, std::int64_t c) {
                   const std::size_t i = g.index(n, row, column, c);
                   if (problem.hasMask() && mask.values[i] == 0) return;
                   double value = static_cast<double>(problem.primaryScale) * g.values[i];
                   const auto b = static_cast<double>(problem.secondaryScale);
                   if (problem.operation == ArithmeticOperation::Divide &&
                       problem.direction == ArithmeticDirection::SecondaryGradient) {
                     value = value / b * derivative.values[i];
                   } else if (problem.operation == ArithmeticOperation::Multiply ||
                              problem.operation == ArithmeticOperation::Divide) {
                     const double bz = b * z.values[operandIndex(z, n, row, column, c)];
                     value = problem.operation == ArithmeticOperation::Multiply ? value * bz : value / bz;
                   }
                   sum.add(operandIndex(sum, n, row, column, c), value);
                 });
  const std::int64_t terms =
      sum.values.empty() ? 0 : problem.gradient.elements() / static_cast<std::int64_t>(sum.values.size());
  sum.roundings = 4 + terms;
  return sum;
}

}  // namespace mps::detail
