#include <cmath>

#include "mps/core/types/philox.hpp"
#include "mps/matrix/check/matrix_reference.hpp"

namespace mps::detail {
namespace {

/// A table that is linear over exclusive or, from the entries 1, 2, 4 and 8.
std::uint32_t entry(const std::uint32_t (&basis)[4], std::uint32_t index) {
  std::uint32_t result = 0;
  for (std::uint32_t bit = 0; bit < 4; ++bit)
    if ((index >> bit & 1U) != 0) result ^= basis[bit];
  return result;
}

constexpr std::uint32_t kRecursion[4] = {0x71588353, 0xdfa887c1, 0x4ba66c6e, 0xa53da0ae};
constexpr std::uint32_t kTempering[4] = {0x200040bb, 0x1082c61e, 0x10021c03, 0x0003f0b9};

double cumulative(double x) {
  return std::erfc(-x / std::sqrt(2.0)) / 2;
}

double boundedNormal(const MatrixRandomProblem& problem, double t) {
  const auto mean = static_cast<double>(problem.mean);
  const auto deviation = static_cast<double>(problem.standardDeviation);
  const auto minimum = static_cast<double>(problem.minimum);
  const auto maximum = static_cast<double>(problem.maximum);
  const double low = (minimum - mean) / deviation;
  const double high = (maximum - mean) / deviation;
  const double sign = low > 0 ? -1 : 1;  // above the mean the mirrored distribution has the digits
  const double a = cumulative(sign * low);
  const double b = cumulative(sign * high);
  if (a == b) return low > 0 ? minimum : maximum;
  const double u = a + (b - a) * (t + 0x1p-24);
  return std::fmin(std::fmax(mean + deviation * sign * normalQuantileReference(u), minimum), maximum);
}

double normal(const MatrixRandomProblem& problem, double t) {
  const auto mean = static_cast<double>(problem.mean);
  const auto deviation = static_cast<double>(problem.standardDeviation);
  const bool isBounded = std::isfinite(problem.minimum) || std::isfinite(problem.maximum);
  if (deviation == 0)
    return std::fmin(std::fmax(mean, static_cast<double>(problem.minimum)),
                     static_cast<double>(problem.maximum));
  if (isBounded) return boundedNormal(problem, t);
  return mean + deviation * normalQuantileReference(t == 0 ? 0x1p-24 : t);
}

float uniform(const MatrixRandomProblem& problem, float t) {
  if (problem.minimum == problem.maximum) return problem.minimum;
  const float value = std::fma(problem.maximum - problem.minimum, t, problem.minimum);
  return value < problem.maximum ? value : std::nextafter(problem.maximum, problem.minimum);
}

}  // namespace

std::vector<std::uint32_t> mtgp32Reference(std::uint32_t seed, std::size_t skipped, std::size_t count) {
  constexpr std::size_t kSize = 351;
  constexpr std::size_t kPosition = 84;
  constexpr std::uint32_t kMask = 0xfff80000;
  const std::uint32_t hidden = entry(kRecursion, 4) ^ entry(kRecursion, 8) << 16U;
  std::uint32_t filling = hidden;
  filling += filling >> 16U;
  filling += filling >> 8U;
  filling &= 0xffU;
  std::vector<std::uint32_t> s(kSize, filling * 0x01010101U);
  s[0] = seed;
  s[1] = hidden;
  for (std::size_t i = 1; i < kSize; ++i)
    s[i] ^= 1812433253U * (s[i - 1] ^ s[i - 1] >> 30U) + static_cast<std::uint32_t>(i);
  std::vector<std::uint32_t> words;
  for (std::size_t i = 0; i < skipped + count; ++i) {
    std::uint32_t x = (s[i] & kMask) ^ s[i + 1];
    x ^= x << 12U;
    const std::uint32_t y = x ^ s[i + kPosition] >> 4U;
    s.push_back(y ^ entry(kRecursion, y & 15U));
    std::uint32_t v = s[i + kPosition - 1];
    v ^= v >> 16U;
    v ^= v >> 8U;
    if (i >= skipped) words.push_back(s.back() ^ entry(kTempering, v & 15U));
  }
  return words;
}

std::vector<std::uint32_t> philoxReference(std::uint64_t seed, std::uint64_t firstBlock, std::size_t count) {
  std::vector<std::uint32_t> words;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t block = firstBlock + i / 4;
    const PhiloxCounter drawn =
        philox({0, 0, static_cast<std::uint32_t>(block >> 32U), static_cast<std::uint32_t>(block)},
               {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)});
    words.push_back(drawn[i % 4]);
  }
  return words;
}

double normalQuantileReference(double p) {
  // ln Phi is concave: from the left Newton's method climbs to the solution without passing it.
  if (p >= 0.5) return p == 0.5 ? 0 : -normalQuantileReference(1 - p);
  double x = -std::sqrt(-2 * std::log(p));
  for (int i = 0; i < 60; ++i) {
    const double phi = std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
    const double step = (std::log(p) - std::log(cumulative(x))) * cumulative(x) / phi;
    if (!(step > 1e-16)) break;
    x += step;
  }
  return x;
}

ReferenceTensor matrixRandomReference(const MatrixRandomProblem& problem,
                                      const std::vector<std::uint32_t>& words) {
  const TensorShape& shape = problem.destination;
  const bool isWords = problem.numbers == RandomNumbers::Words;
  ReferenceTensor result(shape.images, shape.height, shape.width, shape.channels * (isWords ? 2 : 1));
  result.roundings = problem.numbers == RandomNumbers::Normal ? 1 : 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const double t = static_cast<double>(words[i] >> 9U) * 0x1p-23;
    switch (problem.numbers) {
      case RandomNumbers::Words:
        result.values[2 * i] = (words[i] & 0xffffU) / 65535.0;
        result.values[2 * i + 1] = (words[i] >> 16U) / 65535.0;
        break;
      case RandomNumbers::UnitInterval:
        result.values[i] = t;
        break;
      case RandomNumbers::Uniform:
        result.values[i] = static_cast<double>(uniform(problem, static_cast<float>(t)));
        break;
      case RandomNumbers::Normal:
        result.values[i] = normal(problem, t);
        break;
    }
  }
  return result;
}

}  // namespace mps::detail
