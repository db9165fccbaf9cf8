#include "mps/upsampling/upsampling_taps.hpp"

#include <algorithm>
#include <limits>

#include "mps/upsampling/upsampling_samples.hpp"

namespace mps::detail {
namespace {

/// Largest vector of any instruction set, in floats.
constexpr std::int64_t kLargestVector = 16;

/// Columns of a tile beside the next one: all of them in one tile where they fit.
std::vector<UpsamplingTile> tilesOf(const UpsamplingTaps& columns, std::int64_t width,
                                    std::int64_t mostInputs) {
  std::vector<UpsamplingTile> tiles;
  for (std::int64_t x = 0; x < width; ++x) {
    UpsamplingTile one{x, x + 1, 0, 0};
    if (columns.begin(x) != columns.end(x)) {
      one.inputBegin = columns.begin(x)->input;
      one.inputEnd = (columns.end(x) - 1)->input + 1;
    }
    if (!tiles.empty()) {
      UpsamplingTile& last = tiles.back();
      UpsamplingTile joined{last.begin, one.end, last.inputBegin, last.inputEnd};
      if (last.inputBegin == last.inputEnd) {
        joined.inputBegin = one.inputBegin;
        joined.inputEnd = one.inputEnd;
      } else if (one.inputBegin != one.inputEnd) {
        joined.inputBegin = std::min(last.inputBegin, one.inputBegin);
        joined.inputEnd = std::max(last.inputEnd, one.inputEnd);
      }
      if (joined.inputEnd - joined.inputBegin <= mostInputs) {
        last = joined;
        continue;
      }
    }
    tiles.push_back(one);
  }
  return tiles;
}

UpsamplingElements elementsOf(const UpsamplingTaps& columns, const TensorShape& input,
                              const TensorShape& destination) {
  UpsamplingElements elements;
  const std::int64_t channels = destination.channels;
  std::int64_t most = 1;
  std::int64_t before = 0;
  for (std::int64_t x = 0; x < destination.width; ++x) {
    if (columns.begin(x) == columns.end(x)) continue;
    if (columns.begin(x)->input < before) return elements;  // mirrored
    before = columns.begin(x)->input;
    most = std::max<std::int64_t>(most, columns.end(x) - columns.begin(x));
  }
  constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();
  if (channels > UpsamplingElements::mostChannels || most > UpsamplingElements::mostTaps ||
      destination.pixelStride != channels || input.width * channels > largest)
    return elements;
  const auto asIndex = [&](std::int64_t column) { return static_cast<std::int32_t>(column * channels); };
  elements.taps = static_cast<std::size_t>(most);
  elements.stride = static_cast<std::size_t>(destination.width * channels) + UpsamplingElements::padding;
  elements.indices.resize(elements.taps * elements.stride);
  elements.weights.resize(elements.taps * elements.stride);
  elements.begin.resize(elements.stride);
  elements.end.resize(elements.stride);
  std::size_t e = 0;
  for (std::int64_t x = 0; x < destination.width; ++x)
    for (std::int64_t c = 0; c < channels; ++c, ++e) {
      std::size_t k = e;
      for (const UpsamplingTap* tap = columns.begin(x); tap != columns.end(x); ++tap, k += elements.stride) {
        elements.indices[k] = asIndex(tap->input) + static_cast<std::int32_t>(c);
        elements.weights[k] = tap->weight;
      }
      const bool isEmpty = columns.begin(x) == columns.end(x);
      if (!isEmpty) {
        elements.begin[e] = asIndex(columns.begin(x)->input);
        elements.end[e] = asIndex((columns.end(x) - 1)->input + 1);
      } else if (e > 0) {
        elements.end[e] = elements.end[e - 1];  // so that ends ascend
      }
    }
  return elements;
}

}  // namespace

namespace {

/// Calls visit(source pixel, weight) for what a result is made of, in ascending order.
template <class Visit>
void forEachSample(const UpsamplingProblem& problem, const UpsamplingAxis& axis, std::int64_t x,
                   Visit visit) {
  if (problem.sampling != UpsamplingSampling::LanczosScale) {
    const UpsamplingSamples samples = upsamplingSamples(problem.sampling, problem.edgeMode, axis, x);
    visit(samples.first, samples.firstWeight);
    visit(samples.second, samples.secondWeight);
    return;
  }
  const LanczosSamples samples = lanczosSamples(problem.edgeMode, axis, x);
  double sum = 0;
  for (std::int64_t i = samples.first; i < samples.end; ++i) sum += lanczosWeight(samples, i);
  for (std::int64_t i = samples.first; i < samples.end; ++i) visit(i, lanczosWeight(samples, i) / sum);
}

}  // namespace

UpsamplingTaps::UpsamplingTaps(const UpsamplingProblem& problem, const UpsamplingAxis& axis,
                               std::int64_t inputSize, std::int64_t destinationSize) {
  std::vector<std::vector<UpsamplingTap>> lists(static_cast<std::size_t>(destinationSize));
  const bool isForward = problem.direction == UpsamplingDirection::Forward;
  const std::int64_t results = isForward ? destinationSize : inputSize;
  for (std::int64_t i = 0; i < results; ++i) {
    const auto add = [&](std::int64_t pixel, double weight) {
      const std::int64_t to = isForward ? i : pixel - axis.destinationOrigin;
      if (weight == 0 || to < 0 || to >= destinationSize) return;
      lists[static_cast<std::size_t>(to)].push_back({isForward ? pixel : i, static_cast<float>(weight)});
    };
    forEachSample(problem, axis, isForward ? i : axis.firstResult + i, add);
  }
  first_.push_back(0);
  for (const auto& list : lists) {
    taps_.insert(taps_.end(), list.begin(), list.end());
    first_.push_back(taps_.size());
  }
}

UpsamplingTaps upsamplingRowTaps(const UpsamplingProblem& problem) {
  return {problem, problem.y, problem.input.height, problem.destination.height};
}

UpsamplingTaps upsamplingColumnTaps(const UpsamplingProblem& problem) {
  return {problem, problem.x, problem.input.width, problem.destination.width};
}

UpsamplingLayout upsamplingLayout(const UpsamplingProblem& problem) {
  UpsamplingLayout layout;
  layout.rows = upsamplingRowTaps(problem);
  layout.columns = upsamplingColumnTaps(problem);
  std::int64_t widest = 1;
  for (std::int64_t x = 0; x < problem.destination.width; ++x)
    widest = std::max(widest, layout.columns.span(x));
  const std::int64_t channels = problem.destination.channels;
  constexpr std::int64_t capacity = UpsamplingLayout::capacity;
  layout.channelStep =
      channels * widest <= capacity ? channels : capacity / widest / kLargestVector * kLargestVector;
  if (layout.channelStep > 0)
    layout.tiles = tilesOf(layout.columns, problem.destination.width, capacity / layout.channelStep);
  layout.elements = elementsOf(layout.columns, problem.input, problem.destination);
  return layout;
}

}  // namespace mps::detail
