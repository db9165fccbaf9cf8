#include "mps/core/image/pixel_copy.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "mps/core/cpu/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/core/image/pixel_copy.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/cpu/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// No library call for the few bytes of a pixel.
void copyBytes(const std::uint8_t* from, std::uint8_t* to, std::size_t bytes) {
#if HWY_TARGET == HWY_SCALAR
  std::memcpy(to, from, bytes);
#else
  const hn::ScalableTag<std::uint8_t> d;
  constexpr std::size_t lanes = hn::MaxLanes(hn::ScalableTag<std::uint8_t>());
#if HWY_TARGET == HWY_AVX3
  if (bytes < lanes) {
    const auto first = hn::FirstN(d, bytes);
    return hn::BlendedStore(hn::MaskedLoad(first, d, from), first, d, to);
  }
#else
  if (bytes < lanes) return copyShort<lanes>(to, from, bytes);
#endif
  std::size_t i = 0;
  for (; i + lanes <= bytes; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  if (i < bytes) hn::StoreU(hn::LoadU(d, from + bytes - lanes), d, to + bytes - lanes);
#endif
}

constexpr std::size_t kCacheLine = 64;
constexpr std::int64_t kRounding = 32;      ///< bytes of what copies short pixels
constexpr std::int64_t kLongestPair = 128;  ///< bytes of a pixel whose two parts are joined
constexpr std::int64_t kLongRun = 1024;     ///< bytes
constexpr std::int64_t kManyRuns = 64;      ///< from so many on it pays to ask for later ones
constexpr std::int64_t kAhead = 8192;       ///< bytes between what is asked for and what is read

/// Bytes in whole cache lines go by non-temporal stores.
void streamBytes(const std::uint8_t* from, std::uint8_t* to, std::size_t bytes) {
  const std::size_t head = std::min(bytes, -reinterpret_cast<std::uintptr_t>(to) % kCacheLine);
  const std::size_t body = (bytes - head) / kCacheLine * kCacheLine;
  if (head > 0) copyBytes(from, to, head);
  const hn::ScalableTag<std::uint8_t> d;
  for (std::size_t i = head; i < head + body; i += hn::Lanes(d))
    hn::Stream(hn::LoadU(d, from + i), d, to + i);
  if (head + body < bytes) copyBytes(from + head + body, to + head + body, bytes - head - body);
}

/// sums[i] += from[i], converted.
template <class T>
HWY_INLINE void addElements(const T* from, std::size_t count, float* sums) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    storeFloats(d, hn::Add(loadFloats(d, sums + i), loadFloats(d, from + i)), sums + i);
  const std::size_t rest = count - i;
  if (rest > 0)
    storeFloats(d, hn::Add(loadFloats(d, sums + i, rest), loadFloats(d, from + i, rest)), sums + i, rest);
}

/// As convertFromFloats(), by non-temporal stores where vectors are aligned.
template <class T>
HWY_INLINE void streamFromFloats(const float* from, T* to, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) storeOrStream(d, hn::LoadU(d, from + i), to + i, true);
  if (i < count) storeFloats(d, loadFloats(d, from + i, count - i), to + i, count - i);
}

/// Elements that are converted at a time.
constexpr std::int64_t kStage = 512;

void convertElements(const PixelCopy& copy, const std::byte* from, std::byte* to, std::int64_t count,
                     bool streams) {
  if (copy.accumulate)
    return withElementType(copy.inputFormat, [&](auto element) {
      addElements(reinterpret_cast<const decltype(element)*>(from), static_cast<std::size_t>(count),
                  reinterpret_cast<float*>(to));
    });
  alignas(64) float stage[kStage];
  for (std::int64_t begin = 0; begin < count; begin += kStage) {
    const auto part = static_cast<std::size_t>(std::min(kStage, count - begin));
    const float* values = stage;
    if (copy.inputFormat == ImageFeatureChannelFormat::Float32)
      values = reinterpret_cast<const float*>(from) + begin;
    else
      withElementType(copy.inputFormat, [&](auto element) {
        convertToFloats(reinterpret_cast<const decltype(element)*>(from) + begin, stage, part);
      });
    withElementType(copy.destinationFormat, [&](auto element) {
      auto* const target = reinterpret_cast<decltype(element)*>(to) + begin;
      if constexpr (std::is_same_v<decltype(element), Float16>)
        if (streams) return streamFromFloats(values, target, part);
      convertFromFloats(values, target, part);
    });
  }
}

/// Reads the lines of runs ahead of their use: past gaps the processor foresees little.
class RunPrefetch {
 public:
  RunPrefetch(std::int64_t bytes, std::int64_t stride) {
    constexpr std::int64_t line = kCacheLine;
    constexpr std::int64_t distance = 4096;
    if (bytes >= stride || bytes < line || bytes >= kLongRun) return;
    bytes_ = bytes;
    ahead_ = distance / stride * stride;
  }
  HWY_INLINE void operator()(const std::byte* from) const {
    for (std::int64_t i = 0; i < bytes_; i += kCacheLine) hwy::Prefetch(from + ahead_ + i);
  }

 private:
  std::int64_t bytes_ = 0;
  std::int64_t ahead_ = 0;
};

/// Whole vectors, which may reach behind `bytes`, at most kLongestPair. Not a loop: the compiler would call the library for it.
HWY_INLINE void copyRoundedUp(const std::uint8_t* from, std::uint8_t* to, std::int64_t bytes) {
#if HWY_TARGET == HWY_SCALAR
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
#else
  const hn::CappedTag<std::uint8_t, kRounding> d;
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(hn::CappedTag<std::uint8_t, kRounding>()));
  unrolled<kLongestPair / lanes>([&](auto vector) HWY_ATTR __attribute__((always_inline)) {
    constexpr std::int64_t i = vector * lanes;
    if (i < bytes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  });
#endif
}

/// Of `count` runs of bytes those that copyRoundedUp() may copy: the last ones would reach behind all.
std::int64_t roundedUp(std::int64_t bytes, std::int64_t stride, std::int64_t count) {
  constexpr std::int64_t most = kRounding - 1;
  return std::max<std::int64_t>(0, count - (most + bytes + stride - 1) / stride);
}

/// Runs of bytes at equal distances.
struct ByteRuns {
  const std::uint8_t* from;
  std::int64_t stride;
  std::int64_t bytes;  ///< of each run

  [[nodiscard]] HWY_INLINE const std::uint8_t* operator[](std::int64_t run) const {
    return from + run * stride;
  }
};

/// Copies short runs to where no gaps are. Their vectors reach behind each run, into the next one, which is written after it.
void copyShortRuns(ByteRuns runs, std::int64_t count, std::uint8_t* to) {
  for (std::int64_t run = 0; run < count; ++run) copyRoundedUp(runs[run], to + run * runs.bytes, runs.bytes);
}

/// Writes `count` rows of `bytes` bytes by non-temporal stores: fill(first, rows, stage) makes some of them, without gaps, and of those
/// whole lines are written. The next stage is filled before: loads would wait for smaller stores just before them.
template <class Fill>
HWY_INLINE void streamStages(std::int64_t count, std::int64_t bytes, Fill&& fill, std::uint8_t* to) {
  constexpr std::int64_t stageBytes = 3072;
  alignas(64) std::uint8_t stages[2][stageBytes + 2 * kCacheLine];
  const std::int64_t most = stageBytes / bytes;
  const auto rowsFrom = [&](std::int64_t first) { return std::min(most, count - first); };
  std::size_t stage = 0;
  fill(0, rowsFrom(0), stages[0]);
  for (std::int64_t first = 0; first < count; first += most, stage = 1 - stage) {
    const std::int64_t next = first + most;
    if (next < count) fill(next, rowsFrom(next), stages[1 - stage]);
    streamBytes(stages[stage], to + first * bytes, static_cast<std::size_t>(rowsFrom(first) * bytes));
  }
}

void streamShortRuns(ByteRuns runs, std::int64_t count, std::uint8_t* to) {
  streamStages(
      count, runs.bytes,
      [&](std::int64_t first, std::int64_t rows, std::uint8_t * stage) HWY_ATTR
      __attribute__((always_inline)) {
        for (std::int64_t run = first; run < first + rows; ++run, stage += runs.bytes) {
          hwy::Prefetch(runs[run] + kAhead);
          hwy::Prefetch(runs[run] + kAhead + runs.bytes - 1);
          copyRoundedUp(runs[run], stage, runs.bytes);
        }
      },
      to);
}

/// Asks for runs line by line, not one after the other: a processor that sees a run read from its beginning to its end
/// fetches what lies behind it, too.
HWY_INLINE void fetchRuns(const std::uint8_t* from, ByteRuns runs, std::int64_t count) {
  for (std::int64_t i = 0; i < runs.bytes; i += static_cast<std::int64_t>(kCacheLine))
    for (std::int64_t run = 0; run < count; ++run) hwy::Prefetch(from + run * runs.stride + i);
}

/// Runs of whole lines, by non-temporal stores.
void streamLines(ByteRuns runs, std::int64_t count, std::uint8_t* to, std::int64_t toStride) {
  constexpr std::int64_t groupBytes = kAhead / 2;
  const hn::ScalableTag<std::uint8_t> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const bool haveGaps = runs.stride > runs.bytes;
  const std::int64_t group = haveGaps ? std::max<std::int64_t>(1, groupBytes / runs.stride) : 1;
  const std::int64_t ahead = haveGaps ? 2 * group * runs.stride : kAhead;
  const std::uint8_t* from = runs.from;
  for (std::int64_t first = 0; first < count; first += group) {
    const std::int64_t rest = std::min(group, count - first);
    fetchRuns(from + ahead, runs, rest);
    for (std::int64_t run = 0; run < rest; ++run, from += runs.stride, to += toStride)
      for (std::int64_t i = 0; i < runs.bytes; i += step) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  }
}

/// Copies the first runs in the best way that there is for them, and returns how many.
std::int64_t copyRuns(const ByteRuns& runs, std::int64_t count, std::uint8_t* to, std::int64_t toStride,
                      bool isNonTemporal) {
  constexpr auto line = static_cast<std::int64_t>(kCacheLine);
  const bool areLines =
      reinterpret_cast<std::uintptr_t>(to) % kCacheLine == 0 && (toStride | runs.bytes) % line == 0;
  if (isNonTemporal && areLines && runs.bytes < kLongRun && count >= kManyRuns) {
    streamLines(runs, count, to, toStride);
    return count;
  }
  if (runs.bytes == 0 || runs.bytes >= line || toStride != runs.bytes || runs.stride == 0) return 0;
  const std::int64_t copied = roundedUp(runs.bytes, std::min(runs.bytes, runs.stride), count);
  if (isNonTemporal && copied >= kManyRuns)
    streamShortRuns(runs, copied, to);
  else
    copyShortRuns(runs, copied, to);
  return copied;
}

void copyPixelRuns(const PixelCopy& copy, const std::byte* input, std::byte* destination,
                   std::int64_t count) {
  std::int64_t channels = copy.channels;
  if (copy.zeros == 0 && copy.inputStride == channels && copy.destinationStride == channels) {
    channels *= count;
    count = std::min<std::int64_t>(count, 1);
  }
  const auto inputElement = static_cast<std::int64_t>(bytesPerChannel(copy.inputFormat));
  const auto element = static_cast<std::int64_t>(bytesPerChannel(copy.destinationFormat));
  const auto bytes = static_cast<std::size_t>(channels * element);
  const auto zeroBytes = static_cast<std::size_t>(copy.zeros * element);
  const bool converts = copy.accumulate || copy.inputFormat != copy.destinationFormat;
  const RunPrefetch prefetch(channels * inputElement, copy.inputStride * inputElement);
  const ByteRuns runs{reinterpret_cast<const std::uint8_t*>(input), copy.inputStride * inputElement,
                      channels * element};
  const std::int64_t first = converts || zeroBytes > 0
                                 ? 0
                                 : copyRuns(runs, count, reinterpret_cast<std::uint8_t*>(destination),
                                            copy.destinationStride * element, copy.isNonTemporal);
  for (std::int64_t pixel = first; pixel < count; ++pixel) {
    const std::byte* const from = input + pixel * copy.inputStride * inputElement;
    std::byte* const to = destination + pixel * copy.destinationStride * element;
    prefetch(from);
    const auto* const source = reinterpret_cast<const std::uint8_t*>(from);
    auto* const target = reinterpret_cast<std::uint8_t*>(to);
    const bool isWholeLines = (reinterpret_cast<std::uintptr_t>(to) | bytes) % kCacheLine == 0;
    const bool streams = copy.isNonTemporal && (isWholeLines || channels * element >= kLongRun);
    if (converts)
      convertElements(copy, from, to, channels, streams);
    else if (streams)
      streamBytes(source, target, bytes);
    else
      copyBytes(source, target, bytes);
    if (zeroBytes > 0) std::memset(to + bytes, 0, zeroBytes);
  }
}

/// Pixels of two short parts, without gaps behind each other.
HWY_INLINE void joinShortRuns(const ByteRuns& first, const ByteRuns& second, std::int64_t begin,
                              std::int64_t count, std::uint8_t* to) {
  for (std::int64_t pixel = begin; pixel < begin + count; ++pixel) {
    copyRoundedUp(first[pixel], to, first.bytes);
    copyRoundedUp(second[pixel], to + first.bytes, second.bytes);
    to += first.bytes + second.bytes;
  }
}

/// Pixels of two parts side by side. A part's vectors reach into the next one, which is written after them.
void copyPairRuns(const PixelCopy& first, const std::byte* firstInput, const PixelCopy& second,
                  const std::byte* secondInput, std::byte* destination, std::int64_t count) {
  const auto element = static_cast<std::int64_t>(bytesPerChannel(first.destinationFormat));
  const std::int64_t firstBytes = first.channels * element;
  const std::int64_t secondBytes = second.channels * element;
  const std::int64_t stride = first.destinationStride * element;
  const auto isCopied = [&](const PixelCopy& copy) {
    return copy.inputFormat == copy.destinationFormat && !copy.accumulate && copy.zeros == 0;
  };
  const auto inputStride = [](const PixelCopy& copy) {
    return copy.inputStride * static_cast<std::int64_t>(bytesPerChannel(copy.inputFormat));
  };
  const std::int64_t firstStride = inputStride(first);
  const std::int64_t secondStride = inputStride(second);
  const std::int64_t least = std::min({firstStride, secondStride, firstBytes, secondBytes});
  const bool areShort = isCopied(first) && isCopied(second) && firstBytes + secondBytes == stride &&
                        stride <= kLongestPair && least > 0;
  const std::int64_t copied = areShort ? roundedUp(std::max(firstBytes, secondBytes), least, count) : 0;
  const ByteRuns a{reinterpret_cast<const std::uint8_t*>(firstInput), firstStride, firstBytes};
  const ByteRuns b{reinterpret_cast<const std::uint8_t*>(secondInput), secondStride, secondBytes};
  auto* const to = reinterpret_cast<std::uint8_t*>(destination);
  if (first.isNonTemporal)
    streamStages(
        copied, stride,
        [&](std::int64_t begin, std::int64_t rows, std::uint8_t * stage) HWY_ATTR
        __attribute__((always_inline)) { joinShortRuns(a, b, begin, rows, stage); },
        to);
  else
    joinShortRuns(a, b, 0, copied, to);
  constexpr std::int64_t together = kManyRuns;  // pixels whose parts are written one soon after the other
  for (std::int64_t pixel = copied; pixel < count; pixel += together) {
    const std::int64_t pixels = std::min(together, count - pixel);
    std::byte* const part = destination + pixel * stride;
    copyPixelRuns(first, firstInput + pixel * firstStride, part, pixels);
    copyPixelRuns(second, secondInput + pixel * secondStride, part + firstBytes, pixels);
  }
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {
namespace {

HWY_EXPORT(copyPixelRuns);
HWY_EXPORT(copyPairRuns);

}  // namespace

void copyPixels(const PixelCopy& copy, const std::byte* input, std::byte* destination, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(copyPixelRuns)(copy, input, destination, count);
}

void copyPixelPairs(const PixelCopy& first, const std::byte* firstInput, const PixelCopy& second,
                    const std::byte* secondInput, std::byte* destination, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(copyPairRuns)(first, firstInput, second, secondInput, destination, count);
}

}  // namespace mps::detail

#endif
