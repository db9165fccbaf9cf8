#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>

#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/core/types/philox.hpp"
#include "mps/matrix/matrix_random_rule.hpp"
#include "mtl/cpu/stream.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/matrix/cpu/matrix_random_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// Highway's functions need the header above.
#include <hwy/contrib/math/math-inl.h>

#include "mps/core/cpu/non_temporal_runs-inl.hpp"
#include "mps/core/cpu/philox_vectors-inl.hpp"
#include "mps/core/cpu/vector_math-inl.hpp"

#ifndef UNMETAL_MPS_MATRIX_RANDOM_RULE
#define UNMETAL_MPS_MATRIX_RANDOM_RULE
namespace mps::detail {

/// Numbers that are made together.
constexpr std::size_t kRandomTile = 2048;
/// What philoxNumbers() and mtgp32Words() may write behind the words that they were asked for.
constexpr std::size_t kRandomSlack = 128;
using RandomBuffer = std::array<float, kRandomTile + kRandomSlack>;

constexpr MTGP32Constants kMTGP32;
/// Words of the sequence that are made before they are turned into numbers.
constexpr std::size_t kMTGP32Chunk = 256 * kRandomTile;

}  // namespace mps::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// table[index & 15] of a table that is linear over exclusive or, from its entries 1, 2, 4 and 8.
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

/// The same for many indices: vectors of 16 lanes hold the whole table.
template <class D>
class LinearTable {
 public:
  using V = hn::Vec<D>;
  HWY_INLINE explicit LinearTable(const std::array<std::uint32_t, 4>& basis)
      : basis_(basis), table_(tableEntry(D(), basis, hn::Iota(D(), 0))) {}
  HWY_INLINE V at(V index) const {
    if constexpr (hn::MaxLanes(D()) == 16)
      return hn::TableLookupLanes(table_, hn::IndicesFromVec(D(), hn::And(index, hn::Set(D(), 15))));
    else
      return tableEntry(D(), basis_, index);
  }

 private:
  std::array<std::uint32_t, 4> basis_;
  V table_;
};

/// Writes `count` words behind the state that the sequence begins with, and up to a vector more.
void mtgp32Sequence(std::uint32_t* sequence, std::size_t count) {
  const hn::ScalableTag<std::uint32_t> d;
  using V = hn::Vec<decltype(d)>;
  const LinearTable<decltype(d)> recursion(kMTGP32.recursion);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const std::uint32_t* s = sequence + i;
    const V mixed = hn::Xor(hn::And(hn::LoadU(d, s), hn::Set(d, kMTGP32.mask)), hn::LoadU(d, s + 1));
    const V x = hn::Xor(mixed, hn::ShiftLeft<kMTGP32.shift1>(mixed));
    const V y = hn::Xor(x, hn::ShiftRight<kMTGP32.shift2>(hn::LoadU(d, s + kMTGP32.position)));
    hn::StoreU(hn::Xor(y, recursion.at(y)), d, sequence + i + kMTGP32StateWords);
  }
}

/// The words of a sequence.
void mtgp32Words(const std::uint32_t* sequence, std::size_t count, float* to) {
  const hn::ScalableTag<float> df;
  const hn::ScalableTag<std::uint32_t> d;
  using V = hn::Vec<decltype(d)>;
  const LinearTable<decltype(d)> tempering(kMTGP32.tempering);
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    V v = hn::LoadU(d, sequence + i + kMTGP32.position - 1);
    v = hn::Xor(v, hn::ShiftRight<16>(v));
    v = hn::Xor(v, hn::ShiftRight<8>(v));
    const V word = hn::Xor(hn::LoadU(d, sequence + i + kMTGP32StateWords), tempering.at(v));
    hn::StoreU(hn::BitCast(df, word), df, to + i);
  }
}

/// x with Phi(x) = u: algorithm AS 241 of Wichura (1988), relative error about 1e-16, where
/// |u - 1/2| <= kCentralPart.
constexpr double kCentralPart = 0.425;
template <class D, class V = hn::Vec<D>>
HWY_INLINE V centralQuantile(D d, V u) {
  constexpr NormalQuantileCoefficients c;
  const V q = hn::Sub(u, hn::Set(d, 0.5));
  const V r = hn::NegMulAdd(q, q, hn::Set(d, 0.180625));
  return hn::Mul(q, hn::Div(evaluateTerms<0, 1>(d, r, c.centre), evaluateTerms<0, 1>(d, r, c.underCentre)));
}
/// The same for the other u between 0 and 1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tailQuantile(D d, V u) {
  constexpr NormalQuantileCoefficients c;
  const V tail = hn::Min(u, hn::Sub(hn::Set(d, 1.0), u));
  const V s = hn::Sqrt(hn::Neg(hn::Log(d, tail)));
  const V near = hn::Sub(s, hn::Set(d, 1.6));
  V size = hn::Div(evaluateTerms<0, 1>(d, near, c.near), evaluateTerms<0, 1>(d, near, c.underNear));
  const auto isFar = hn::Gt(s, hn::Set(d, 5.0));
  if (!hn::AllFalse(d, isFar)) {
    const V far = hn::Sub(s, hn::Set(d, 5.0));
    size = hn::IfThenElse(
        isFar, hn::Div(evaluateTerms<0, 1>(d, far, c.far), evaluateTerms<0, 1>(d, far, c.underFar)), size);
  }
  return hn::CopySign(size, hn::Sub(u, hn::Set(d, 0.5)));
}

/// t of words.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V unitInterval(D d, V words) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::ShiftRight<9>(hn::BitCast(du, words));
  return hn::Mul(hn::ConvertTo(d, hn::BitCast(di, bits)), hn::Set(d, 0x1p-23F));
}

void toUnitInterval(std::size_t count, float* values) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d))
    hn::StoreU(unitInterval(d, hn::LoadU(d, values + i)), d, values + i);
}

/// minimum + range t of words, with one rounding on every instruction set.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V uniformNumbers(D d, const RandomRule& rule, V words) {
  const V t = unitInterval(d, words);
#if HWY_NATIVE_FMA
  const V value = hn::MulAdd(hn::Set(d, rule.range), t, hn::Set(d, rule.minimum));
#else
  alignas(64) std::array<float, hn::MaxLanes(D())> lanes;
  hn::Store(t, d, lanes.data());
  for (float& lane : lanes) lane = std::fma(rule.range, lane, rule.minimum);
  const V value = hn::Load(d, lanes.data());
#endif
  return hn::IfThenElse(hn::Lt(value, hn::Set(d, rule.maximum)), value, hn::Set(d, rule.belowMaximum));
}

void toUniform(const RandomRule& rule, std::size_t count, float* values) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d))
    hn::StoreU(uniformNumbers(d, rule, hn::LoadU(d, values + i)), d, values + i);
}

void toNormal(const RandomRule& rule, std::size_t count, float* values) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto t = hn::PromoteTo(d, unitInterval(df, hn::LoadU(df, values + i)));
    const auto u =
        hn::Max(hn::MulAdd(hn::Set(d, rule.width), t, hn::Set(d, rule.first)), hn::Set(d, rule.least));
    auto quantile = centralQuantile(d, u);
    const auto isTail = hn::Gt(hn::Abs(hn::Sub(u, hn::Set(d, 0.5))), hn::Set(d, kCentralPart));
    if (!hn::AllFalse(d, isTail)) quantile = hn::IfThenElse(isTail, tailQuantile(d, u), quantile);
    const auto number = hn::DemoteTo(df, hn::MulAdd(hn::Set(d, rule.scale), quantile, hn::Set(d, rule.mean)));
    hn::StoreU(hn::Min(hn::Max(number, hn::Set(df, rule.minimum)), hn::Set(df, rule.maximum)), df,
               values + i);
  }
}

/// Words to numbers, in place; up to a vector more.
void toNumbers(const RandomRule& rule, std::size_t count, float* values) {
  if (rule.isConstant) return static_cast<void>(std::fill_n(values, count, rule.minimum));
  if (rule.numbers == RandomNumbers::UnitInterval) toUnitInterval(count, values);
  if (rule.numbers == RandomNumbers::Uniform) toUniform(rule, count, values);
  if (rule.numbers == RandomNumbers::Normal) toNormal(rule, count, values);
}

/// Numbers of the words from a block on; up to kRandomSlack more. Those that are made of one word each become numbers before they
/// are stored.
void philoxNumbers(const RandomRule& rule, std::uint64_t seed, std::uint64_t firstBlock, std::size_t count,
                   float* to) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const PhiloxCounter counter = {0, 0, static_cast<std::uint32_t>(firstBlock >> 32U),
                                 static_cast<std::uint32_t>(firstBlock)};
  const auto store = [&](auto number) HWY_ATTR __attribute__((always_inline)) {
    forPhiloxWords<PhiloxBlockNumber::LastWords>(
        counter, philoxKey(seed),
        (count + 3) / 4, [&](std::size_t i, auto words) HWY_ATTR __attribute__((always_inline)) {
          hn::StoreU(number(hn::BitCast(d, words)), d, to + i);
        });
  };
  const RandomRule own = rule;  // which no store can change
  if (!own.isConstant && own.numbers == RandomNumbers::UnitInterval)
    return store([&](V words) HWY_ATTR { return unitInterval(d, words); });
  if (!own.isConstant && own.numbers == RandomNumbers::Uniform)
    return store([&](V words) HWY_ATTR { return uniformNumbers(d, own, words); });
  store([](V words) HWY_ATTR { return words; });
  toNumbers(own, count, to);
}

void streamNumbers(const float* from, std::size_t count, float* to) {
  streamValues(from, count, to);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mps::detail {
namespace {

HWY_EXPORT(philoxNumbers);
HWY_EXPORT(mtgp32Sequence);
HWY_EXPORT(mtgp32Words);
HWY_EXPORT(toNumbers);
HWY_EXPORT(streamNumbers);

/// Tiles below which another thread does not pay.
constexpr std::int64_t kRandomGrain = 4;

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
      runMTGP32(mtl::cpu::asCpu(stream), operands);
  }
  [[nodiscard]] std::size_t scratchBytes() const override {
    if (problem_.generator == RandomGenerator::Philox) return 0;
    return (kMTGP32StateWords + std::min(kMTGP32Chunk, elementCount()) + kRandomSlack) *
           sizeof(std::uint32_t);
  }

 private:
  void runPhilox(const mtl::cpu::Stream& stream, const Operands& operands) const {
    const auto firstBlock = static_cast<std::uint64_t>(operands.scalars[0]);
    fill(stream, operands.destination, 0, elementCount(),
         [&](std::size_t first, std::size_t count, float* numbers) {
           HWY_DYNAMIC_DISPATCH(philoxNumbers)(rule_, problem_.seed, firstBlock + first / 4, count, numbers);
         });
  }

  /// One thread makes the sequence, in which each word follows from those before it.
  void runMTGP32(const mtl::cpu::Stream& stream, const Operands& operands) const {
    const std::size_t elements = elementCount();
    auto* const state = reinterpret_cast<std::uint32_t*>(operands.parameters[0]);
    auto* const sequence = reinterpret_cast<std::uint32_t*>(operands.scratch);
    std::copy_n(state, kMTGP32StateWords, sequence);
    for (std::size_t first = 0; first < elements; first += kMTGP32Chunk) {
      const std::size_t count = std::min(kMTGP32Chunk, elements - first);
      HWY_DYNAMIC_DISPATCH(mtgp32Sequence)(sequence, count);
      fill(stream, operands.destination, first, count,
           [&](std::size_t tile, std::size_t tileCount, float* numbers) {
             HWY_DYNAMIC_DISPATCH(mtgp32Words)(sequence + (tile - first), tileCount, numbers);
             HWY_DYNAMIC_DISPATCH(toNumbers)(rule_, tileCount, numbers);
           });
      std::copy_n(sequence + count, kMTGP32StateWords, sequence);
    }
    std::copy_n(sequence, kMTGP32StateWords, state);
  }

  /// Writes `count` elements from `first` on, from make(first element, count, numbers).
  template <class Make>
  void fill(const mtl::cpu::Stream& stream, std::byte* destination, std::size_t first, std::size_t count,
            const Make& make) const {
    const bool isNonTemporal = usesNonTemporalStores(shape_.bytes());
    const auto tiles = static_cast<std::int64_t>((count + kRandomTile - 1) / kRandomTile);
    stream.parallelFor(tiles, kRandomGrain, [&](std::int64_t begin, std::int64_t end) {
      alignas(64) RandomBuffer buffer;
      for (std::int64_t tile = begin; tile < end; ++tile) {
        const std::size_t done = static_cast<std::size_t>(tile) * kRandomTile;
        const std::size_t tileCount = std::min(kRandomTile, count - done);
        make(first + done, tileCount, buffer.data());
        store(buffer, first + done, tileCount, destination, isNonTemporal);
      }
      if (isNonTemporal) finishNonTemporalStores();
    });
  }

  /// Writes numbers to the elements from `first` on.
  void store(const RandomBuffer& numbers, std::size_t first, std::size_t count, std::byte* destination,
             bool isNonTemporal) const {
    const auto columns = static_cast<std::size_t>(shape_.channels);
    auto* const elements = reinterpret_cast<float*>(destination);
    for (std::size_t done = 0; done < count;) {
      const std::size_t column = (first + done) % columns;
      const auto row = static_cast<std::int64_t>((first + done) / columns);
      const std::size_t run = std::min(columns - column, count - done);
      float* const to = elements + shape_.offset(row / shape_.height, row % shape_.height, 0,
                                                 static_cast<std::int64_t>(column));
      if (isNonTemporal)
        HWY_DYNAMIC_DISPATCH(streamNumbers)(numbers.data() + done, run, to);
      else
        std::copy_n(numbers.data() + done, run, to);
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
  static constexpr Implementation<MatrixRandomProblem> implementations[] = {{"vectorised", prepareRandom}};
  return implementations;
}

}  // namespace mps::detail
#endif
