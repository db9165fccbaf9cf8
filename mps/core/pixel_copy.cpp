#include "mps/core/pixel_copy.hpp"

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
  if (bytes < lanes) return copyShort<lanes / 2>(to, from, bytes);
  std::size_t i = 0;
  for (; i + lanes <= bytes; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  if (i < bytes) hn::StoreU(hn::LoadU(d, from + bytes - lanes), d, to + bytes - lanes);
#endif
}

constexpr std::size_t kCacheLine = 64;

/// Bytes in whole cache lines go past the caches.
void streamBytes(const std::uint8_t* from, std::uint8_t* to, std::size_t bytes) {
  const std::size_t head = std::min(bytes, -reinterpret_cast<std::uintptr_t>(to) % kCacheLine);
  const std::size_t body = (bytes - head) / kCacheLine * kCacheLine;
  copyBytes(from, to, head);
  const hn::ScalableTag<std::uint8_t> d;
  for (std::size_t i = head; i < head + body; i += hn::Lanes(d))
    hn::Stream(hn::LoadU(d, from + i), d, to + i);
  copyBytes(from + head + body, to + head + body, bytes - head - body);
}

/// Elements that are converted, or added to, at a time.
constexpr std::int64_t kStage = 512;

void convertElements(const PixelCopy& copy, const std::byte* from, std::byte* to, std::int64_t count) {
  alignas(64) float stage[kStage];
  const hn::ScalableTag<float> d;
  for (std::int64_t begin = 0; begin < count; begin += kStage) {
    const auto part = static_cast<std::size_t>(std::min(kStage, count - begin));
    const float* values = stage;
    if (copy.inputFormat == ImageFeatureChannelFormat::Float32)
      values = reinterpret_cast<const float*>(from) + begin;
    else
      withElementType(copy.inputFormat, [&](auto element) {
        convertToFloats(reinterpret_cast<const decltype(element)*>(from) + begin, stage, part);
      });
    if (!copy.accumulate) {
      withElementType(copy.destinationFormat, [&](auto element) {
        convertFromFloats(values, reinterpret_cast<decltype(element)*>(to) + begin, part);
      });
      continue;
    }
    float* const sums = reinterpret_cast<float*>(to) + begin;
    forVectors(d, part, [&](std::size_t i, auto lanes) {
      lanes.store(d, hn::Add(lanes.load(d, sums + i), lanes.load(d, values + i)), sums + i);
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
  for (std::int64_t pixel = 0; pixel < count; ++pixel) {
    const std::byte* const from = input + pixel * copy.inputStride * inputElement;
    std::byte* const to = destination + pixel * copy.destinationStride * element;
    prefetch(from);
    const auto* const source = reinterpret_cast<const std::uint8_t*>(from);
    auto* const target = reinterpret_cast<std::uint8_t*>(to);
    const bool isWholeLines = (reinterpret_cast<std::uintptr_t>(to) | bytes) % kCacheLine == 0;
    if (converts)
      convertElements(copy, from, to, channels);
    else if (copy.pastCaches && (isWholeLines || bytes >= kLongRun))
      streamBytes(source, target, bytes);
    else
      copyBytes(source, target, bytes);
    if (zeroBytes > 0) std::memset(to + bytes, 0, zeroBytes);
  }
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {
namespace {

HWY_EXPORT(copyPixelRuns);

}  // namespace

void copyPixels(const PixelCopy& copy, const std::byte* input, std::byte* destination, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(copyPixelRuns)(copy, input, destination, count);
}

}  // namespace mps::detail

#endif
