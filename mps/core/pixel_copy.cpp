#include "mps/core/pixel_copy.hpp"

#include <algorithm>
#include <type_traits>

#include "mps/core/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/core/pixel_copy.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/vector_runs-inl.hpp"

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
  if (bytes < lanes) return copyShort<lanes / 2>(to, from, bytes);
#endif
  std::size_t i = 0;
  for (; i + lanes <= bytes; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  if (i < bytes) hn::StoreU(hn::LoadU(d, from + bytes - lanes), d, to + bytes - lanes);
#endif
}

constexpr std::size_t kCacheLine = 64;
constexpr std::int64_t kRounding = 32;      ///< bytes of what copies short pixels
constexpr std::int64_t kLongestPair = 128;  ///< bytes of a pixel whose two parts are joined

/// Bytes in whole cache lines go past the caches.
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

/// As convertFromFloats(), past the caches where vectors are aligned.
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
    constexpr std::int64_t longRun = 1024;
    constexpr std::int64_t distance = 4096;
    if (bytes >= stride || bytes < line || bytes >= longRun) return;
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

/// Whole vectors, which may reach behind `bytes`.
HWY_INLINE void copyRoundedUp(const std::uint8_t* from, std::uint8_t* to, std::int64_t bytes) {
  const hn::CappedTag<std::uint8_t, kRounding> d;
  for (std::int64_t i = 0; i < bytes; i += static_cast<std::int64_t>(hn::Lanes(d)))
    hn::StoreU(hn::LoadU(d, from + i), d, to + i);
}

/// Of `count` runs of bytes those that copyRoundedUp() may copy: the last ones would reach behind all.
std::int64_t roundedUp(std::int64_t bytes, std::int64_t stride, std::int64_t count) {
  constexpr std::int64_t most = kRounding - 1;
  return std::max<std::int64_t>(0, count - (most + bytes + stride - 1) / stride);
}

/// Copies short pixels to where no gaps are, and returns how many: their vectors reach into the next pixel, which is written
/// after them. The last ones are left.
std::int64_t copyShortPixels(const std::uint8_t* from, std::int64_t fromStride, std::uint8_t* to,
                             std::int64_t bytes, std::int64_t count) {
  const std::int64_t copied = roundedUp(bytes, std::min(bytes, fromStride), count);
  for (std::int64_t pixel = 0; pixel < copied; ++pixel)
    copyRoundedUp(from + pixel * fromStride, to + pixel * bytes, bytes);
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
  constexpr std::size_t kLongRun = 1024;
  const RunPrefetch prefetch(channels * inputElement, copy.inputStride * inputElement);
  const bool areShort = bytes > 0 && bytes < kCacheLine && zeroBytes == 0 && !converts &&
                        copy.destinationStride == channels && copy.inputStride > 0;
  const std::int64_t first =
      areShort
          ? copyShortPixels(reinterpret_cast<const std::uint8_t*>(input), copy.inputStride * inputElement,
                            reinterpret_cast<std::uint8_t*>(destination), channels * element, count)
          : 0;
  for (std::int64_t pixel = first; pixel < count; ++pixel) {
    const std::byte* const from = input + pixel * copy.inputStride * inputElement;
    std::byte* const to = destination + pixel * copy.destinationStride * element;
    prefetch(from);
    const auto* const source = reinterpret_cast<const std::uint8_t*>(from);
    auto* const target = reinterpret_cast<std::uint8_t*>(to);
    const bool isWholeLines = (reinterpret_cast<std::uintptr_t>(to) | bytes) % kCacheLine == 0;
    const bool streams = copy.pastCaches && (isWholeLines || bytes >= kLongRun);
    if (converts)
      convertElements(copy, from, to, channels, streams);
    else if (streams)
      streamBytes(source, target, bytes);
    else
      copyBytes(source, target, bytes);
    if (zeroBytes > 0) std::memset(to + bytes, 0, zeroBytes);
  }
}

/// A run of short parts of pixels for copyRoundedUp().
struct ShortParts {
  const std::uint8_t* from;
  std::int64_t stride;
  std::int64_t bytes;
};

/// Pixels of two short parts, without gaps behind each other.
HWY_INLINE void joinShortParts(const ShortParts& first, const ShortParts& second, std::int64_t begin,
                               std::int64_t count, std::uint8_t* to) {
  for (std::int64_t pixel = begin; pixel < begin + count; ++pixel) {
    copyRoundedUp(first.from + pixel * first.stride, to, first.bytes);
    copyRoundedUp(second.from + pixel * second.stride, to + first.bytes, second.bytes);
    to += first.bytes + second.bytes;
  }
}

/// The same past the caches: a stage makes whole lines of the parts.
void streamShortParts(const ShortParts& first, const ShortParts& second, std::int64_t count,
                      std::uint8_t* to) {
  constexpr std::int64_t stagePixels = 64;
  alignas(64) std::uint8_t stage[stagePixels * kLongestPair + kRounding];
  const std::int64_t stride = first.bytes + second.bytes;
  for (std::int64_t begin = 0; begin < count; begin += stagePixels) {
    const std::int64_t pixels = std::min(stagePixels, count - begin);
    joinShortParts(first, second, begin, pixels, stage);
    streamBytes(stage, to + begin * stride, static_cast<std::size_t>(pixels * stride));
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
  const std::int64_t firstStride = first.inputStride * element;
  const std::int64_t secondStride = second.inputStride * element;
  const std::int64_t least = std::min({firstStride, secondStride, firstBytes, secondBytes});
  const bool areShort = isCopied(first) && isCopied(second) && firstBytes + secondBytes == stride &&
                        stride <= kLongestPair && least > 0;
  const std::int64_t copied = areShort ? roundedUp(std::max(firstBytes, secondBytes), least, count) : 0;
  const ShortParts a{reinterpret_cast<const std::uint8_t*>(firstInput), firstStride, firstBytes};
  const ShortParts b{reinterpret_cast<const std::uint8_t*>(secondInput), secondStride, secondBytes};
  auto* const to = reinterpret_cast<std::uint8_t*>(destination);
  if (first.pastCaches)
    streamShortParts(a, b, copied, to);
  else
    joinShortParts(a, b, 0, copied, to);
  destination += copied * stride;
  copyPixelRuns(first, firstInput + copied * firstStride, destination, count - copied);
  copyPixelRuns(second, secondInput + copied * secondStride, destination + firstBytes, count - copied);
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
