#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numbers>
#include <sstream>
#include <string>

#include "mps/core/highway_targets.hpp"
#include "mps/core/philox.hpp"
#include "mps/matrix/matrix_problem.hpp"
#include "mtl/cpu/stream.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/matrix/matrix_random_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// Highway's functions need the header above.
#include <hwy/contrib/math/math-inl.h>

#include "mps/core/philox_vectors-inl.hpp"

#ifndef UNMETAL_MPS_MATRIX_RANDOM_RULE
#define UNMETAL_MPS_MATRIX_RANDOM_RULE
namespace mps::detail {

/// Numbers that are made together.
inline constexpr std::size_t kRandomTile = 2048;
/// What philoxWords() and mtgp32Words() may write behind the words that they were asked for.
inline constexpr std::size_t kRandomSlack = 128;
using RandomBuffer = std::array<float, kRandomTile + kRandomSlack>;

/// MatrixRandomProblem's distribution, ready to be applied.
struct RandomRule {
  RandomNumbers numbers = RandomNumbers::Words;
  bool isConstant = false;  ///< every number is `minimum`
  float minimum = 0;
  float maximum = 0;
  float range = 0;         ///< uniform: maximum - minimum
  float belowMaximum = 0;  ///< uniform
  double mean = 0;
  double scale = 0;  ///< normal: the standard deviation; negative when u is counted from above
  double first = 0;  ///< normal: u = first + width t
  double width = 1;
  double least = 0;  ///< normal: the smallest u
};

namespace mtgp32 {
inline constexpr std::size_t kPosition = 84;
inline constexpr int kShift1 = 12;
inline constexpr int kShift2 = 4;
inline constexpr std::uint32_t kMask = 0xFFF80000;
/// Entries 1, 2, 4 and 8 of the two tables, which are linear over exclusive or.
inline constexpr std::array<std::uint32_t, 4> kRecursion{0x71588353, 0xDFA887C1, 0x4BA66C6E, 0xA53DA0AE};
inline constexpr std::array<std::uint32_t, 4> kTempering{0x200040BB, 0x1082C61E, 0x10021C03, 0x0003F0B9};
}  // namespace mtgp32

/// The state and the words that follow it.
using MTGP32Sequence = std::array<std::uint32_t, kMTGP32StateWords + kRandomTile + kRandomSlack>;

}  // namespace mps::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void philoxWords(std::uint64_t seed, std::uint64_t firstBlock, std::size_t count, float* to) {
  const hn::ScalableTag<float> d;
  const PhiloxCounter counter = {0, 0, static_cast<std::uint32_t>(firstBlock >> 32U),
                                 static_cast<std::uint32_t>(firstBlock)};
  forPhiloxWords<PhiloxBlockNumber::LastWords>(
      counter, philoxKey(seed), (count + 3) / 4,
      [&](std::size_t i, auto words) HWY_ATTR { hn::StoreU(hn::BitCast(d, words), d, to + i); });
}

/// table[index & 15].
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tableEntry(D d, const std::array<std::uint32_t, 4>& basis, V index) {
  const hn::RebindToSigned<D> di;
  // The bit as a mask: into the sign, then over all bits.
  const auto part = [&](V shifted, std::uint32_t value) HWY_ATTR {
    return hn::And(hn::BitCast(d, hn::ShiftRight<31>(hn::BitCast(di, shifted))), hn::Set(d, value));
  };
  const V low = hn::Xor(part(hn::ShiftLeft<31>(index), basis[0]), part(hn::ShiftLeft<30>(index), basis[1]));
  const V high = hn::Xor(part(hn::ShiftLeft<29>(index), basis[2]), part(hn::ShiftLeft<28>(index), basis[3]));
  return hn::Xor(low, high);
}

/// The words after the state that the sequence begins with, and the sequence that they come from.
void mtgp32Words(std::uint32_t* sequence, std::size_t count, float* to) {
  const hn::ScalableTag<float> df;
  const hn::ScalableTag<std::uint32_t> d;
  using V = hn::Vec<decltype(d)>;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const std::uint32_t* s = sequence + i;
    const V mixed = hn::Xor(hn::And(hn::LoadU(d, s), hn::Set(d, mtgp32::kMask)), hn::LoadU(d, s + 1));
    const V x = hn::Xor(mixed, hn::ShiftLeft<mtgp32::kShift1>(mixed));
    const V y = hn::Xor(x, hn::ShiftRight<mtgp32::kShift2>(hn::LoadU(d, s + mtgp32::kPosition)));
    const V next = hn::Xor(y, tableEntry(d, mtgp32::kRecursion, y));
    hn::StoreU(next, d, sequence + i + kMTGP32StateWords);
    V v = hn::LoadU(d, s + mtgp32::kPosition - 1);
    v = hn::Xor(v, hn::ShiftRight<16>(v));
    v = hn::Xor(v, hn::ShiftRight<8>(v));
    hn::StoreU(hn::BitCast(df, hn::Xor(next, tableEntry(d, mtgp32::kTempering, v))), df, to + i);
  }
}

template <class D, class V = hn::Vec<D>, std::size_t count>
HWY_INLINE V polynomial(D d, V x, const double (&c)[count]) {
  V result = hn::Set(d, c[count - 1]);
  for (std::size_t i = count - 1; i-- > 0;) result = hn::MulAdd(result, x, hn::Set(d, c[i]));
  return result;
}

/// x with Phi(x) = u for 0 < u < 1: algorithm AS 241 of Wichura (1988), relative error about 1e-16.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V normalQuantile(D d, V u) {
  constexpr double kA[] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                           1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                           3.3430575583588128105e+4, 2.5090809287301226727e+3};
  constexpr double kB[] = {1.0,
                           4.2313330701600911252e+1,
                           6.8718700749205790830e+2,
                           5.3941960214247511077e+3,
                           2.1213794301586595867e+4,
                           3.9307895800092710610e+4,
                           2.8729085735721942674e+4,
                           5.2264952788528545610e+3};
  constexpr double kC[] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                           3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                           2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr double kD[] = {1.0,
                           2.05319162663775882187e0,
                           1.67638483018380384940e0,
                           6.89767334985100004550e-1,
                           1.48103976427480074590e-1,
                           1.51986665636164571966e-2,
                           5.47593808499534494600e-4,
                           1.05075007164441684324e-9};
  constexpr double kE[] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                           2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                           2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr double kF[] = {1.0,
                           5.99832206555887937690e-1,
                           1.36929880922735805310e-1,
                           1.48753612908506148525e-2,
                           7.86869131145613259100e-4,
                           1.84631831751005468180e-5,
                           1.42151175831644588870e-7,
                           2.04426310338993978564e-15};
  const V q = hn::Sub(u, hn::Set(d, 0.5));
  const V r = hn::NegMulAdd(q, q, hn::Set(d, 0.180625));
  const V central = hn::Mul(q, hn::Div(polynomial(d, r, kA), polynomial(d, r, kB)));
  const auto isCentral = hn::Le(hn::Abs(q), hn::Set(d, 0.425));
  if (hn::AllTrue(d, isCentral)) return central;

  const V tail = hn::Min(u, hn::Sub(hn::Set(d, 1.0), u));
  const V s = hn::Sqrt(hn::Neg(hn::Log(d, tail)));
  const V near = hn::Sub(s, hn::Set(d, 1.6));
  V size = hn::Div(polynomial(d, near, kC), polynomial(d, near, kD));
  const auto isFar = hn::Gt(s, hn::Set(d, 5.0));
  if (!hn::AllFalse(d, isFar)) {
    const V far = hn::Sub(s, hn::Set(d, 5.0));
    size = hn::IfThenElse(isFar, hn::Div(polynomial(d, far, kE), polynomial(d, far, kF)), size);
  }
  return hn::IfThenElse(isCentral, central, hn::CopySign(size, q));
}

/// t of each word, in place.
void toUnitInterval(std::size_t count, float* values) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto bits = hn::ShiftRight<9>(hn::BitCast(du, hn::LoadU(d, values + i)));
    const auto t = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, bits)), hn::Set(d, 0x1p-23F));
    hn::StoreU(t, d, values + i);
  }
}

/// minimum + range t with one rounding, on every instruction set.
void toUniform(const RandomRule& rule, std::size_t count, float* values) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
#if HWY_NATIVE_FMA
    const auto value = hn::MulAdd(hn::Set(d, rule.range), hn::LoadU(d, values + i), hn::Set(d, rule.minimum));
#else
    for (std::size_t lane = i; lane < i + hn::Lanes(d); ++lane)
      values[lane] = std::fma(rule.range, values[lane], rule.minimum);
    const auto value = hn::LoadU(d, values + i);
#endif
    const auto isInside = hn::Lt(value, hn::Set(d, rule.maximum));
    hn::StoreU(hn::IfThenElse(isInside, value, hn::Set(d, rule.belowMaximum)), d, values + i);
  }
}

void toNormal(const RandomRule& rule, std::size_t count, float* values) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto minimum = hn::Set(df, rule.minimum);
  const auto maximum = hn::Set(df, rule.maximum);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto t = hn::PromoteTo(d, hn::LoadU(df, values + i));
    const auto u =
        hn::Max(hn::MulAdd(hn::Set(d, rule.width), t, hn::Set(d, rule.first)), hn::Set(d, rule.least));
    const auto value = hn::MulAdd(hn::Set(d, rule.scale), normalQuantile(d, u), hn::Set(d, rule.mean));
    hn::StoreU(hn::Min(hn::Max(hn::DemoteTo(df, value), minimum), maximum), df, values + i);
  }
}

/// Words to numbers, in place; up to a vector more.
void toNumbers(const RandomRule& rule, std::size_t count, float* values) {
  if (rule.isConstant) return static_cast<void>(std::fill_n(values, count, rule.minimum));
  if (rule.numbers == RandomNumbers::Words) return;
  toUnitInterval(count, values);
  if (rule.numbers == RandomNumbers::Uniform) toUniform(rule, count, values);
  if (rule.numbers == RandomNumbers::Normal) toNormal(rule, count, values);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mps::detail {
namespace {

HWY_EXPORT(philoxWords);
HWY_EXPORT(mtgp32Words);
HWY_EXPORT(toNumbers);

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

class RandomPlan final : public Plan {
 public:
  explicit RandomPlan(const MatrixRandomProblem& problem)
      : problem_(problem), shape_(problem.destination), rule_(ruleOf(problem)) {
    if (shape_.isDense()) shape_ = TensorShape::dense(1, 1, 1, shape_.elements());
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.generator == RandomGenerator::Philox)
      runPhilox(mtl::cpu::asCpu(stream), operands);
    else
      runMTGP32(operands);
  }

 private:
  void runPhilox(mtl::cpu::Stream& stream, const Operands& operands) const {
    const auto firstBlock = static_cast<std::uint64_t>(operands.scalars[0]);
    const std::size_t elements = elementCount();
    const std::size_t tiles = (elements + kRandomTile - 1) / kRandomTile;
    constexpr std::int64_t kGrain = 4;
    stream.parallelFor(static_cast<std::int64_t>(tiles), kGrain, [&](std::int64_t begin, std::int64_t end) {
      alignas(64) RandomBuffer buffer;
      for (std::int64_t tile = begin; tile < end; ++tile) {
        const std::size_t first = static_cast<std::size_t>(tile) * kRandomTile;
        const std::size_t count = std::min(kRandomTile, elements - first);
        HWY_DYNAMIC_DISPATCH(philoxWords)(problem_.seed, firstBlock + first / 4, count, buffer.data());
        store(buffer, first, count, operands.destination);
      }
    });
  }

  /// In one thread: each word follows from those before it.
  void runMTGP32(const Operands& operands) const {
    const std::size_t elements = elementCount();
    auto* state = reinterpret_cast<std::uint32_t*>(operands.parameters[0]);
    alignas(64) RandomBuffer buffer;
    MTGP32Sequence sequence;
    std::copy_n(state, kMTGP32StateWords, sequence.begin());
    for (std::size_t first = 0; first < elements; first += kRandomTile) {
      const std::size_t count = std::min(kRandomTile, elements - first);
      HWY_DYNAMIC_DISPATCH(mtgp32Words)(sequence.data(), count, buffer.data());
      std::copy_n(sequence.data() + count, kMTGP32StateWords, sequence.begin());
      store(buffer, first, count, operands.destination);
    }
    std::copy_n(sequence.begin(), kMTGP32StateWords, state);
  }

  /// Turns words into numbers and writes them to the elements from `first` on.
  void store(RandomBuffer& words, std::size_t first, std::size_t count, std::byte* destination) const {
    HWY_DYNAMIC_DISPATCH(toNumbers)(rule_, count, words.data());
    const auto columns = static_cast<std::size_t>(shape_.channels);
    for (std::size_t done = 0; done < count;) {
      const std::size_t column = (first + done) % columns;
      const auto row = static_cast<std::int64_t>((first + done) / columns);
      const std::size_t run = std::min(columns - column, count - done);
      const std::int64_t at =
          shape_.offset(row / shape_.height, row % shape_.height, 0, static_cast<std::int64_t>(column));
      std::memcpy(destination + at * static_cast<std::int64_t>(sizeof(float)), words.data() + done,
                  run * sizeof(float));
      done += run;
    }
  }

  [[nodiscard]] std::size_t elementCount() const { return static_cast<std::size_t>(shape_.elements()); }

  MatrixRandomProblem problem_;
  TensorShape shape_;
  RandomRule rule_;
};

Preparation prepareRandom(const MatrixRandomProblem& problem) {
  return std::make_shared<const RandomPlan>(problem);
}

constexpr Implementation<MatrixRandomProblem> kImplementations[] = {{"vector", prepareRandom}};

}  // namespace

std::span<const Implementation<MatrixRandomProblem>> matrixRandomImplementationsCpu() {
  return kImplementations;
}

void seedMTGP32(std::uint32_t seed, std::span<std::uint32_t, kMTGP32StateWords> state) {
  const std::uint32_t hidden = mtgp32::kRecursion[2] ^ (mtgp32::kRecursion[3] << 16U);
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
  std::ostringstream text;
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
#endif
