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

/// The line of the table for the vector that begins with an element of the destination row.
void addLine(FewChannelTable& table, const UpsamplingTaps& columns, const UpsamplingTile& tile,
             std::int64_t channels, std::int64_t begin) {
  constexpr std::int64_t none = -1;
  const std::size_t lanes = table.lanes;
  std::vector<std::int64_t> elements(lanes, none);
  const std::size_t weights = table.weights.size();
  table.weights.resize(weights + table.taps * lanes);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t last = 0;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    const std::int64_t element = begin + static_cast<std::int64_t>(lane);
    const std::int64_t x = element / channels;
    if (x >= tile.end) break;
    const UpsamplingTap* const taps = columns.begin(x);
    const UpsamplingTap* const end = columns.end(x);
    if (taps == end) continue;
    elements[lane] = (taps->input - tile.inputBegin) * channels + element % channels;
    least = std::min(least, elements[lane]);
    last = std::max(last, elements[lane]);
    for (const UpsamplingTap* tap = taps; tap != end; ++tap)
      table.weights[weights + static_cast<std::size_t>(tap->input - taps->input) * lanes + lane] =
          tap->weight;
  }
  if (least > last) least = last = 0;
  table.first.push_back(static_cast<std::int32_t>(least));
  for (const std::int64_t element : elements)
    table.indices.push_back(element == none ? 0 : static_cast<std::int32_t>(element - least));
  const std::int64_t span = last + 1 - least + (static_cast<std::int64_t>(table.taps) - 1) * channels;
  table.areInTwoVectors &= span <= 2 * static_cast<std::int64_t>(lanes);
}

FewChannelTable fewChannelTable(const UpsamplingTaps& columns, const std::vector<UpsamplingTile>& tiles,
                                const TensorShape& destination, std::size_t lanes) {
  FewChannelTable table;
  const std::int64_t taps = largestSpan(columns, destination.width);
  if (taps > FewChannelTable::mostTaps) return table;
  table.lanes = lanes;
  table.taps = static_cast<std::size_t>(taps);
  table.areInTwoVectors = true;
  const std::int64_t channels = destination.channels;
  for (const UpsamplingTile& tile : tiles) {
    table.ofTile.push_back(table.first.size());
    for (std::int64_t element = tile.begin * channels; element < tile.end * channels;
         element += static_cast<std::int64_t>(lanes))
      addLine(table, columns, tile, channels, element);
  }
  return table;
}

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
  const bool areFew = channels <= FewChannelTable::mostChannels && destination.pixelStride == channels;
  const std::int64_t slots = largestSpan(layout.rows, destination.height);
  const std::int64_t slotLength = capacity / slots / kLargestVector * kLargestVector;
  const std::int64_t mostResults = slotLength / channels;
  if (problem.input.height < destination.height && slots <= UpsamplingLayout::mostSlots && mostResults > 0 &&
      layout.channelStep == channels && destination.pixelStride == channels) {
    layout.slotLength = slotLength;
    layout.slots = slots;
  }
  layout.tiles = tilesOf(layout.columns, destination.width, capacity / layout.channelStep,
                         layout.slots > 0 ? mostResults
                         : areFew         ? capacity / channels
                                          : destination.width);
  if (areFew) layout.fewChannels = fewChannelTable(layout.columns, layout.tiles, destination, lanes);
  return layout;
}

}  // namespace mps::detail
