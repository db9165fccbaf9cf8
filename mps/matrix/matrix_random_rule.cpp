#include "mps/matrix/matrix_random_rule.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "mps/core/types/text_stream.hpp"

namespace mps::detail {
namespace {

/// Phi(x).
double cumulativeNormal(double x) {
  return std::erfc(-x / std::numbers::sqrt2) / 2;
}

RandomRule constantRule(float value) {
  RandomRule rule;
  rule.isConstant = true;
  rule.minimum = value;
  return rule;
}

RandomRule normalRule(const MatrixRandomProblem& problem) {
  if (problem.standardDeviation == 0)
    return constantRule(std::clamp(problem.mean, problem.minimum, problem.maximum));
  RandomRule rule;
  rule.numbers = RandomNumbers::Normal;
  rule.minimum = problem.minimum;
  rule.maximum = problem.maximum;
  rule.mean = static_cast<double>(problem.mean);
  rule.scale = static_cast<double>(problem.standardDeviation);
  rule.least = 0x1p-24;
  if (std::isinf(problem.minimum) && std::isinf(problem.maximum)) return rule;
  const double low = (static_cast<double>(problem.minimum) - rule.mean) / rule.scale;
  const double high = (static_cast<double>(problem.maximum) - rule.mean) / rule.scale;
  // Above the mean u is near 1 and has no digits left: there 1 - u is computed with.
  const double sign = low > 0 ? -1 : 1;
  const double a = cumulativeNormal(sign * low);
  const double b = cumulativeNormal(sign * high);
  if (a == b) return constantRule(low > 0 ? problem.minimum : problem.maximum);
  rule.scale *= sign;
  rule.width = b - a;
  rule.first = a + rule.width * 0x1p-24;
  rule.least = std::numeric_limits<double>::min();
  return rule;
}

}  // namespace

RandomRule ruleOf(const MatrixRandomProblem& problem) {
  if (problem.numbers == RandomNumbers::Normal) return normalRule(problem);
  RandomRule rule;
  rule.numbers = problem.numbers;
  if (problem.numbers != RandomNumbers::Uniform) return rule;
  if (problem.minimum == problem.maximum) return constantRule(problem.minimum);
  rule.minimum = problem.minimum;
  rule.maximum = problem.maximum;
  rule.range = problem.maximum - problem.minimum;
  rule.belowMaximum = std::nextafter(problem.maximum, problem.minimum);
  return rule;
}

void seedMTGP32(std::uint32_t seed, std::span<std::uint32_t, kMTGP32StateWords> state) {
  constexpr MTGP32Constants constants;
  const std::uint32_t hidden = constants.recursion[2] ^ (constants.recursion[3] << 16U);
  std::uint32_t fill = hidden + (hidden >> 16U);
  fill = (fill + (fill >> 8U)) & 0xFFU;
  std::ranges::fill(state, fill * 0x01010101U);
  state[0] = seed;
  state[1] = hidden;
  for (std::uint32_t i = 1; i < kMTGP32StateWords; ++i)
    state[i] ^= 1812433253U * (state[i - 1] ^ (state[i - 1] >> 30U)) + i;
}

std::string MatrixRandomProblem::describe() const {
  constexpr const char* kNames[] = {"words", "unit interval", "uniform", "normal"};
  TextStream text;
  text << (generator == RandomGenerator::Philox ? "Philox " : "MTGP32 ")
       << kNames[static_cast<std::size_t>(numbers)];
  if (numbers == RandomNumbers::Normal) text << " " << mean << " " << standardDeviation << " bounds";
  if (numbers == RandomNumbers::Uniform || numbers == RandomNumbers::Normal)
    text << " " << minimum << " " << maximum;
  if (generator == RandomGenerator::Philox) text << ", seed " << seed;
  text << ", " << destination.describe();
  return text.str();
}

}  // namespace mps::detail
