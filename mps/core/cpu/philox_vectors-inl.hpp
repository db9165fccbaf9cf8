// Philox4x32-10 on vectors, once per instruction set: the words of philox.hpp. Include it after hwy/highway.h
// in a file that hwy/foreach_target.h compiles several times; mps/core/cpu/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_CORE_PHILOX_VECTORS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_CORE_PHILOX_VECTORS_INL_HPP
#undef UNMETAL_MPS_CORE_PHILOX_VECTORS_INL_HPP
#else
#define UNMETAL_MPS_CORE_PHILOX_VECTORS_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "mps/core/types/philox.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

/// Vectors of words that forPhiloxGroups() draws together.
constexpr std::size_t kPhiloxGroup = 4;

/// Calls use(first word, words) for the words of at least `blocks` blocks, from `counter` on, in order; up to 31
/// blocks more. `words` are kPhiloxGroup vectors of std::uint32_t.
/// @tparam place where in the counter the number of the block is
template <PhiloxBlockNumber place = PhiloxBlockNumber::FirstWord, class Use>
HWY_INLINE void forPhiloxGroups(PhiloxCounter counter, PhiloxKey key, std::size_t blocks, Use&& use) {
  const hn::ScalableTag<std::uint32_t> d;
  for (std::size_t block = 0; block < blocks; ++block) {
    const PhiloxCounter drawn = philox(counter, key);
    const hn::Vec<decltype(d)> words[kPhiloxGroup] = {hn::Set(d, drawn[0]), hn::Set(d, drawn[1]),
                                                      hn::Set(d, drawn[2]), hn::Set(d, drawn[3])};
    use(4 * block, words);
    if constexpr (place == PhiloxBlockNumber::FirstWord)
      ++counter[0];
    else if (++counter[3] == 0)
      ++counter[2];
  }
}

#else

constexpr std::size_t kPhiloxGroup = 8;

/// The counters of some blocks: each 64-bit lane holds one word of one block in its lower half; what the
/// upper 32 bits hold is not used.
template <class V>
struct PhiloxVectors {
  V c0, c1, c2, c3;
};

/// One round.
template <class D, class V = hn::Vec<D> >
HWY_INLINE PhiloxVectors<V> philoxRound(D /*d*/, const PhiloxVectors<V>& counter, V key0, V key1) {
  const hn::Repartition<std::uint32_t, D> dw;
  const V p = hn::MulEven(hn::BitCast(dw, counter.c0), hn::Set(dw, kPhiloxMultiplier0));
  const V q = hn::MulEven(hn::BitCast(dw, counter.c2), hn::Set(dw, kPhiloxMultiplier1));
  return {hn::Xor3(hn::ShiftRight<32>(q), counter.c1, key0), q,
          hn::Xor3(hn::ShiftRight<32>(p), counter.c3, key1), p};
}

/// The rounds from `round` on, of four vectors of counters: each round waits for the one before it, so that
/// fewer would leave the multipliers idle. No loop, so that all stays in registers.
template <int round = 0, class D, class V = hn::Vec<D> >
HWY_INLINE void philoxRounds(D d, const V (&keys)[kPhiloxRounds][2], PhiloxVectors<V> (&blocks)[4]) {
  if constexpr (round < kPhiloxRounds) {
    const V key0 = keys[round][0];
    const V key1 = keys[round][1];
    blocks[0] = philoxRound(d, blocks[0], key0, key1);
    blocks[1] = philoxRound(d, blocks[1], key0, key1);
    blocks[2] = philoxRound(d, blocks[2], key0, key1);
    blocks[3] = philoxRound(d, blocks[3], key0, key1);
    philoxRounds<round + 1>(d, keys, blocks);
  }
}

/// In each block of 16 bytes: lanes 0 and 2 of a, then of b; or 1 and 3.
template <class D, class V = hn::Vec<D> >
HWY_INLINE V evenLanesOfBlocks(D d, V a, V b) {
#if HWY_TARGET == HWY_AVX3
  const auto mixed = _mm512_shuffle_ps(_mm512_castsi512_ps(a.raw), _mm512_castsi512_ps(b.raw), 0x88);
  return hn::BitCast(d, hn::Vec<hn::Rebind<float, D> >{mixed});
#elif HWY_TARGET == HWY_AVX2
  const auto mixed = _mm256_shuffle_ps(_mm256_castsi256_ps(a.raw), _mm256_castsi256_ps(b.raw), 0x88);
  return hn::BitCast(d, hn::Vec<hn::Rebind<float, D> >{mixed});
#else
  return hn::ConcatEven(d, b, a);  // a vector is a block
#endif
}
template <class D, class V = hn::Vec<D> >
HWY_INLINE V oddLanesOfBlocks(D d, V a, V b) {
#if HWY_TARGET == HWY_AVX3
  const auto mixed = _mm512_shuffle_ps(_mm512_castsi512_ps(a.raw), _mm512_castsi512_ps(b.raw), 0xDD);
  return hn::BitCast(d, hn::Vec<hn::Rebind<float, D> >{mixed});
#elif HWY_TARGET == HWY_AVX2
  const auto mixed = _mm256_shuffle_ps(_mm256_castsi256_ps(a.raw), _mm256_castsi256_ps(b.raw), 0xDD);
  return hn::BitCast(d, hn::Vec<hn::Rebind<float, D> >{mixed});
#else
  return hn::ConcatOdd(d, b, a);
#endif
}

/// The words of a vector of blocks, in order.
template <class D, class V = hn::Vec<D>, class W>
HWY_INLINE void orderPhiloxWords(D /*d*/, const PhiloxVectors<V>& blocks, W& lower, W& upper) {
  const hn::Repartition<std::uint32_t, D> dw;
  const W first = evenLanesOfBlocks(dw, hn::BitCast(dw, blocks.c0), hn::BitCast(dw, blocks.c1));
  const W second = evenLanesOfBlocks(dw, hn::BitCast(dw, blocks.c2), hn::BitCast(dw, blocks.c3));
  lower = evenLanesOfBlocks(dw, first, second);
  upper = oddLanesOfBlocks(dw, first, second);
}

/// As above.
template <PhiloxBlockNumber place = PhiloxBlockNumber::FirstWord, class Use>
HWY_INLINE void forPhiloxGroups(PhiloxCounter counter, PhiloxKey key, std::size_t blocks, Use&& use) {
  const hn::ScalableTag<std::uint64_t> d;
  using V = hn::Vec<decltype(d)>;
  const std::size_t lanes = hn::Lanes(d);
  V keys[kPhiloxRounds][2];
  for (int round = 0; round < kPhiloxRounds; ++round) {
    keys[round][0] = hn::Set(d, std::uint64_t{key[0]});
    keys[round][1] = hn::Set(d, std::uint64_t{key[1]});
    key[0] += kPhiloxKeyStep0;
    key[1] += kPhiloxKeyStep1;
  }

  // Even lanes take the first half of a vector's blocks, odd lanes the second: interleaving then gives their
  // order.
  HWY_ALIGN std::uint64_t order[hn::MaxLanes(d)];
  for (std::size_t i = 0; i < lanes; ++i) order[i] = i / 2 + (i % 2) * (lanes / 2);
  constexpr bool isLast = place == PhiloxBlockNumber::LastWords;
  const std::uint64_t first = isLast ? std::uint64_t{counter[2]} << 32U | counter[3] : counter[0];
  V block = hn::Add(hn::Load(d, order), hn::Set(d, first));
  const V step = hn::Set(d, std::uint64_t{lanes});
  const V c0 = hn::Set(d, std::uint64_t{counter[0]});
  const V c1 = hn::Set(d, std::uint64_t{counter[1]});
  const V c2 = hn::Set(d, std::uint64_t{counter[2]});
  const V c3 = hn::Set(d, std::uint64_t{counter[3]});
  const auto counters = [&](V number) HWY_ATTR {
    if constexpr (isLast)
      return PhiloxVectors<V>{c0, c1, hn::ShiftRight<32>(number), number};
    else
      return PhiloxVectors<V>{number, c1, c2, c3};
  };
  for (std::size_t done = 0; done < blocks; done += 4 * lanes) {
    const V second = hn::Add(block, step);
    const V third = hn::Add(second, step);
    const V fourth = hn::Add(third, step);
    PhiloxVectors<V> vectors[4] = {counters(block), counters(second), counters(third), counters(fourth)};
    philoxRounds(d, keys, vectors);
    hn::Vec<hn::ScalableTag<std::uint32_t> > words[kPhiloxGroup];
    orderPhiloxWords(d, vectors[0], words[0], words[1]);
    orderPhiloxWords(d, vectors[1], words[2], words[3]);
    orderPhiloxWords(d, vectors[2], words[4], words[5]);
    orderPhiloxWords(d, vectors[3], words[6], words[7]);
    use(4 * done, words);
    block = hn::Add(fourth, step);
  }
}

#endif

/// Calls visit(i, words[i]) for the vectors of a group. No loop, so that all stays in registers.
template <std::size_t i = 0, class Words, class Visit>
HWY_INLINE void forPhiloxVectors(const Words& words, Visit&& visit) {
  if constexpr (i < kPhiloxGroup) {
    visit(i, words[i]);
    forPhiloxVectors<i + 1>(words, visit);
  }
}

/// Calls store(first word, words) for each vector of the words of forPhiloxGroups().
template <PhiloxBlockNumber place = PhiloxBlockNumber::FirstWord, class Store>
HWY_INLINE void forPhiloxWords(PhiloxCounter counter, PhiloxKey key, std::size_t blocks, Store&& store) {
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<std::uint32_t>());
  forPhiloxGroups<place>(
      counter, key,
      blocks, [&](std::size_t first, const auto& words) HWY_ATTR __attribute__((always_inline)) {
        forPhiloxVectors(
            words, [&](std::size_t i, auto vector) HWY_ATTR
            __attribute__((always_inline)) { store(first + i * lanes, vector); });
      });
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
