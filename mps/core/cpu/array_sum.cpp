#include "mps/core/cpu/array_sum.hpp"

#include "mps/core/cpu/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/core/cpu/array_sum.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <vector>

#include "mps/core/cpu/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {
namespace {

/// Elements [begin, end) of the sum.
void sumRange(const float* arrays, std::int64_t count, std::int64_t elements, std::int64_t begin,
              std::int64_t end, float* result, bool accumulate) {
  const hn::ScalableTag<float> d;
  forVectors(d, static_cast<std::size_t>(end - begin), [&](std::size_t i, auto lanes) {
    const float* at = arrays + begin + static_cast<std::int64_t>(i);
    float* to = result + begin + static_cast<std::int64_t>(i);
    auto sum = lanes.load(d, at);
    for (std::int64_t array = 1; array < count; ++array)
      sum = hn::Add(sum, lanes.load(d, at + array * elements));
    if (accumulate) sum = hn::Add(lanes.load(d, to), sum);
    lanes.store(d, sum, to);
  });
}

}  // namespace
}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {
namespace {

HWY_EXPORT(sumRange);

/// Elements that are worth a thread.
constexpr std::int64_t kGrain = 16 * 1024;

}  // namespace

void sumArrays(const mtl::cpu::Stream& stream, const float* arrays, std::int64_t count, std::int64_t elements,
               float* result, bool accumulate) {
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / count);
  stream.parallelFor(elements, grain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(sumRange)(arrays, count, elements, begin, end, result, accumulate);
  });
}

void sumArrays(const mtl::cpu::Stream& stream, std::span<const ArraySum> sums, std::int64_t count) {
  struct Range {
    ArraySum of;
    std::int64_t begin;
    std::int64_t end;
  };
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / count);
  std::vector<Range> ranges;
  for (const ArraySum& sum : sums)
    for (std::int64_t begin = 0; begin < sum.elements; begin += grain)
      ranges.push_back({sum, begin, std::min(begin + grain, sum.elements)});
  stream.forEach(
      static_cast<std::int64_t>(ranges.size()), stream.threadCount(), [&](std::int64_t i, int /*thread*/) {
        const auto& [sum, begin, end] = ranges[static_cast<std::size_t>(i)];
        HWY_DYNAMIC_DISPATCH(sumRange)(sum.first, count, sum.elements, begin, end, sum.first, false);
      });
}

void addArray(const float* from, std::int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(sumRange)(from, 1, count, 0, count, to, true);
}

}  // namespace mps::detail

#endif
