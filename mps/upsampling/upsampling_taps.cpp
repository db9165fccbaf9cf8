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
                                    std::int64_t mostInputs, std::int64_t mostResults) {
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
      if (joined.inputEnd - joined.inputBegin <= mostInputs && joined.end - joined.begin <= mostResults) {
        last = joined;
        continue;
      }
    }
    tiles.push_back(one);
  }
  return tiles;
}

/// Inputs from the first to the last one of the destination position that has most; 1 where none has any.
std::int64_t largestSpan(const UpsamplingTaps& taps, std::int64_t positions) {
  std::int64_t largest = 1;
  for (std::int64_t i = 0; i < positions; ++i) largest = std::max(largest, taps.span(i));
  return largest;
}

/// Writes what a tap of a group reads: for each lane the input element, or -1, beside its weight.
class GroupTap {
 public:
  explicit GroupTap(std::size_t lanes) : elements(lanes, -1), weights(lanes) {}

  [[nodiscard]] std::int64_t first() const {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t element : elements)
      if (element >= 0) least = std::min(least, element);
    return least == std::numeric_limits<std::int64_t>::max() ? 0 : least;
  }
  /// Elements from the first to the last one.
  [[nodiscard]] std::int64_t span() const {
    return std::max<std::int64_t>(*std::max_element(elements.begin(), elements.end()) + 1 - first(), 1);
  }

  std::vector<std::int64_t> elements;
  std::vector<float> weights;
};

UpsamplingGroups groupsOf(const UpsamplingTaps& columns, const std::vector<UpsamplingTile>& tiles,
                          const TensorShape& destination, std::size_t lanes) {
  UpsamplingGroups groups;
  const std::int64_t channels = destination.channels;
  std::size_t most = 1;
  for (std::int64_t x = 0; x < destination.width; ++x)
    most = std::max<std::size_t>(most, static_cast<std::size_t>(columns.end(x) - columns.begin(x)));
  if (channels > UpsamplingGroups::mostChannels || most > UpsamplingGroups::mostTaps ||
      destination.pixelStride != channels)
    return groups;
  groups.lanes = lanes;
  groups.taps = most;
  std::vector<GroupTap> all;
  std::int64_t span = 1;
  for (const UpsamplingTile& tile : tiles) {
    groups.ofTile.push_back(all.size() / groups.taps);
    for (std::int64_t e = tile.begin * channels; e < tile.end * channels;
         e += static_cast<std::int64_t>(lanes))
      for (std::size_t k = 0; k < groups.taps; ++k) {
        GroupTap& tap = all.emplace_back(lanes);
        for (std::size_t lane = 0; lane < lanes; ++lane) {
          const std::int64_t element = e + static_cast<std::int64_t>(lane);
          const std::int64_t x = element / channels;
          if (x >= tile.end) break;
          if (columns.end(x) - columns.begin(x) <= static_cast<std::ptrdiff_t>(k)) {
            groups.hasFewerTaps = true;
            continue;
          }
          const UpsamplingTap& column = columns.begin(x)[k];
          tap.elements[lane] = (column.input - tile.inputBegin) * channels + element % channels;
          tap.weights[lane] = column.weight;
        }
        span = std::max(span, tap.span());
      }
  }
  const auto vectors = (static_cast<std::size_t>(span) + lanes - 1) / lanes;
  groups.vectors = vectors <= UpsamplingGroups::mostVectors ? vectors : 0;
  for (const GroupTap& tap : all) {
    const std::int64_t first = tap.first();
    groups.first.push_back(static_cast<std::int32_t>(first));
    for (const std::int64_t element : tap.elements)
      groups.indices.push_back(element < 0 ? 0 : static_cast<std::int32_t>(element - first));
    groups.weights.insert(groups.weights.end(), tap.weights.begin(), tap.weights.end());
  }
  return groups;
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

UpsamplingLayout upsamplingLayout(const UpsamplingProblem& problem, std::size_t lanes) {
  UpsamplingLayout layout;
  layout.rows = upsamplingRowTaps(problem);
  layout.columns = upsamplingColumnTaps(problem);
  const TensorShape& destination = problem.destination;
  const std::int64_t channels = destination.channels;
  const std::int64_t widest = largestSpan(layout.columns, destination.width);
  constexpr std::int64_t capacity = UpsamplingLayout::capacity;
  layout.channelStep =
      channels * widest <= capacity ? channels : capacity / widest / kLargestVector * kLargestVector;
  if (layout.channelStep == 0) return layout;
  const std::int64_t slots = largestSpan(layout.rows, destination.height);
  const std::int64_t mostResults = UpsamplingLayout::slotLength(slots) / channels;
  if (problem.input.height < destination.height && slots <= UpsamplingLayout::mostSlots && mostResults > 0 &&
      layout.channelStep == channels && destination.pixelStride == channels)
    layout.slots = slots;
  layout.tiles = tilesOf(layout.columns, destination.width, capacity / layout.channelStep,
                         layout.slots > 0 ? mostResults : destination.width);
  layout.groups = groupsOf(layout.columns, layout.tiles, destination, lanes);
  return layout;
}

}  // namespace mps::detail
