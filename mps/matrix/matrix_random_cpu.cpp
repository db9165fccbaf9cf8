#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "mps/core/highway_targets.hpp"
#include "mps/core/philox.hpp"
#include "mps/matrix/matrix_random_rule.hpp"
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
constexpr std::size_t kRandomTile = 2048;
/// What philoxWords() and mtgp32Words() may write behind the words that they were asked for.
constexpr std::size_t kRandomSlack = 128;
using RandomBuffer = std::array<float, kRandomTile + kRandomSlack>;

constexpr MTGP32Constants kMTGP32;

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
    const V mixed = hn::Xor(hn::And(hn::LoadU(d, s), hn::Set(d, kMTGP32.mask)), hn::LoadU(d, s + 1));
    const V x = hn::Xor(mixed, hn::ShiftLeft<kMTGP32.shift1>(mixed));
    const V y = hn::Xor(x, hn::ShiftRight<kMTGP32.shift2>(hn::LoadU(d, s + kMTGP32.position)));
    const V next = hn::Xor(y, tableEntry(d, kMTGP32.recursion, y));
    hn::StoreU(next, d, sequence + i + kMTGP32StateWords);
    V v = hn::LoadU(d, s + kMTGP32.position - 1);
    v = hn::Xor(v, hn::ShiftRight<16>(v));
    v = hn::Xor(v, hn::ShiftRight<8>(v));
    hn::StoreU(hn::BitCast(df, hn::Xor(next, tableEntry(d, kMTGP32.tempering, v))), df, to + i);
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
  constexpr NormalQuantileCoefficients c;
  const V q = hn::Sub(u, hn::Set(d, 0.5));
  const V r = hn::NegMulAdd(q, q, hn::Set(d, 0.180625));
  const V central = hn::Mul(q, hn::Div(polynomial(d, r, c.centre), polynomial(d, r, c.underCentre)));
  const auto isCentral = hn::Le(hn::Abs(q), hn::Set(d, 0.425));
  if (hn::AllTrue(d, isCentral)) return central;

  const V tail = hn::Min(u, hn::Sub(hn::Set(d, 1.0), u));
  const V s = hn::Sqrt(hn::Neg(hn::Log(d, tail)));
  const V near = hn::Sub(s, hn::Set(d, 1.6));
  V size = hn::Div(polynomial(d, near, c.near), polynomial(d, near, c.underNear));
  const auto isFar = hn::Gt(s, hn::Set(d, 5.0));
  if (!hn::AllFalse(d, isFar)) {
    const V far = hn::Sub(s, hn::Set(d, 5.0));
    size = hn::IfThenElse(isFar, hn::Div(polynomial(d, far, c.far), polynomial(d, far, c.underFar)), size);
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

}  // namespace

std::span<const Implementation<MatrixRandomProblem>> matrixRandomImplementationsCpu() {
  static constexpr Implementation<MatrixRandomProblem> implementations[] = {{"vector", prepareRandom}};
  return implementations;
}

}  // namespace mps::detail
#endif
