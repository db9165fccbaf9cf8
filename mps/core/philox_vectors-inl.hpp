// Philox4x32-10 on vectors, once per instruction set: the words of philox.hpp. Include it after hwy/highway.h
// in a file that hwy/foreach_target.h compiles several times; mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_CORE_PHILOX_VECTORS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_CORE_PHILOX_VECTORS_INL_HPP
#undef UNMETAL_MPS_CORE_PHILOX_VECTORS_INL_HPP
#else
#define UNMETAL_MPS_CORE_PHILOX_VECTORS_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "mps/core/philox.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

/// Calls store(first word, words) for the words of at least `blocks` blocks, from `counter` on, in order; up
/// to 31 blocks more. `words` is a vector of std::uint32_t.
/// @tparam place where in the counter the number of the block is
template <PhiloxBlockNumber place = PhiloxBlockNumber::FirstWord, class Store>
HWY_INLINE void forPhiloxWords(PhiloxCounter counter, PhiloxKey key, std::size_t blocks, Store&& store) {
  const hn::ScalableTag<std::uint32_t> d;
  for (std::size_t block = 0; block < blocks; ++block) {
    const PhiloxCounter words = philox(counter, key);
    for (std::size_t i = 0; i < 4; ++i) store(4 * block + i, hn::Set(d, words[i]));
    if constexpr (place == PhiloxBlockNumber::FirstWord)
      ++counter[0];
    else if (++counter[3] == 0)
      ++counter[2];
  }
}

#else

/// The counters of some blocks: each 64-bit lane holds one word of one block in its lower half; what the
/// upper halves hold is not used.
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

/// Calls store(offset, words) for the words of a vector of blocks, in order.
template <class D, class V = hn::Vec<D>, class Store>
HWY_INLINE void storePhiloxWords(D /*d*/, const PhiloxVectors<V>& blocks, std::size_t offset, Store&& store) {
  const hn::Repartition<std::uint32_t, D> dw;
  const auto first = evenLanesOfBlocks(dw, hn::BitCast(dw, blocks.c0), hn::BitCast(dw, blocks.c1));
  const auto second = evenLanesOfBlocks(dw, hn::BitCast(dw, blocks.c2), hn::BitCast(dw, blocks.c3));
  store(offset, evenLanesOfBlocks(dw, first, second));
  store(offset + hn::Lanes(dw), oddLanesOfBlocks(dw, first, second));
}

/// As above.
template <PhiloxBlockNumber place = PhiloxBlockNumber::FirstWord, class Store>
HWY_INLINE void forPhiloxWords(PhiloxCounter counter, PhiloxKey key, std::size_t blocks, Store&& store) {
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
    storePhiloxWords(d, vectors[0], 4 * done, store);
    storePhiloxWords(d, vectors[1], 4 * (done + lanes), store);
    storePhiloxWords(d, vectors[2], 4 * (done + 2 * lanes), store);
    storePhiloxWords(d, vectors[3], 4 * (done + 3 * lanes), store);
    block = hn::Add(fourth, step);
  }
}

#endif

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
