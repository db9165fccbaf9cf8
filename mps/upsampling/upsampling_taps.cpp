#include "mps/upsampling/upsampling_taps.hpp"

#include <algorithm>
#include <bit>
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

/// What the elements of a group, a vector of a tile, read.
struct Group {
  std::vector<std::int64_t> elements;  ///< for tap 0 of each lane; -1: no tap
  std::vector<float> weights;          ///< for each lane of each tap
  bool isFull = true;

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
};

/// @param begin element of the destination row
Group groupOf(const UpsamplingTaps& columns, const UpsamplingTile& tile, std::int64_t channels,
              std::int64_t begin, const UpsamplingGroups& groups) {
  Group group{std::vector<std::int64_t>(groups.lanes, -1), std::vector<float>(groups.taps * groups.lanes)};
  for (std::size_t lane = 0; lane < groups.lanes; ++lane) {
    const std::int64_t element = begin + static_cast<std::int64_t>(lane);
    const std::int64_t x = element / channels;
    if (x >= tile.end) break;
    const UpsamplingTap* const taps = columns.begin(x);
    const UpsamplingTap* const end = columns.end(x);
    if (end - taps < static_cast<std::ptrdiff_t>(groups.taps)) group.isFull = false;
    if (taps == end) continue;
    group.elements[lane] = (taps->input - tile.inputBegin) * channels + element % channels;
    for (const UpsamplingTap* tap = taps; tap != end; ++tap)
      group.weights[static_cast<std::size_t>(tap->input - taps->input) * groups.lanes + lane] = tap->weight;
  }
  return group;
}

/// @param span elements that a tap reads  @param taps elements from the first tap's to the last one's
UpsamplingLookup lookupOf(std::int64_t span, std::int64_t taps, std::int64_t lanes) {
  if (span + taps <= lanes) return UpsamplingLookup::OneVectorForAllTaps;
  if (span <= lanes) return UpsamplingLookup::OneVector;
  if (span <= 2 * lanes && span + taps <= 3 * lanes) return UpsamplingLookup::ThreeVectorsForAllTaps;
  if (span <= 2 * lanes) return UpsamplingLookup::TwoVectors;
  return span <= 4 * lanes ? UpsamplingLookup::FourVectors : UpsamplingLookup::Elements;
}

std::int64_t vectorsOf(UpsamplingLookup lookup) {
  switch (lookup) {
    case UpsamplingLookup::OneVectorForAllTaps:
    case UpsamplingLookup::OneVector:
      return 1;
    case UpsamplingLookup::TwoVectors:
      return 2;
    case UpsamplingLookup::ThreeVectorsForAllTaps:
      return 3;
    case UpsamplingLookup::FourVectors:
      return 4;
    case UpsamplingLookup::Elements:
      break;
  }
  return 0;
}

UpsamplingGroups groupsOf(const UpsamplingTaps& columns, const std::vector<UpsamplingTile>& tiles,
                          const TensorShape& destination, std::size_t lanes) {
  UpsamplingGroups groups;
  const std::int64_t channels = destination.channels;
  const std::int64_t taps = largestSpan(columns, destination.width);
  if (taps > UpsamplingGroups::mostTaps) return groups;
  groups.lanes = lanes;
  groups.taps = static_cast<std::size_t>(taps);
  std::int64_t span = 1;
  std::int64_t last =
      -UpsamplingLayout::capacity;  // element that a group begins with, counted from the tile's end
  for (const UpsamplingTile& tile : tiles) {
    groups.ofTile.push_back(groups.first.size());
    for (std::int64_t e = tile.begin * channels; e < tile.end * channels;
         e += static_cast<std::int64_t>(lanes)) {
      const Group group = groupOf(columns, tile, channels, e, groups);
      const std::int64_t first = group.first();
      span = std::max(span, group.span());
      last = std::max(last, first - (tile.inputEnd - tile.inputBegin) * channels);
      groups.first.push_back(static_cast<std::int32_t>(first));
      groups.isFull.push_back(group.isFull);
      for (const std::int64_t element : group.elements)
        groups.indices.push_back(element < 0 ? 0 : static_cast<std::int32_t>(element - first));
      groups.weights.insert(groups.weights.end(), group.weights.begin(), group.weights.end());
    }
  }
  groups.lookup = lookupOf(span, (taps - 1) * channels, static_cast<std::int64_t>(lanes));
  const std::int64_t reach = last + vectorsOf(groups.lookup) * static_cast<std::int64_t>(lanes);
  groups.room = (taps - 1) * channels + std::max<std::int64_t>(0, reach);
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

namespace {

/// Whether each destination row is one input row.
bool copiesRows(const UpsamplingTaps& rows, std::int64_t height) {
  for (std::int64_t y = 0; y < height; ++y)
    if (rows.end(y) - rows.begin(y) != 1 || rows.begin(y)->weight != 1) return false;
  return true;
}

/// Destination rows whose input rows are summed one after the other. More of them at once are read faster than they come.
std::int64_t rowsReadAtOnce(const UpsamplingProblem& problem) {
  constexpr std::int64_t mostBytes = 3072;
  const std::int64_t bytes = problem.input.height * problem.input.width * problem.input.channels *
                             static_cast<std::int64_t>(bytesPerChannel(problem.input.format)) /
                             std::max<std::int64_t>(1, problem.destination.height);
  return std::clamp<std::int64_t>(mostBytes / std::max<std::int64_t>(1, bytes), 1,
                                  UpsamplingLayout::mostRowsAtOnce);
}

std::int64_t powerOfTwo(std::int64_t least) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(least)));
}

/// Sets what is about pixels that do not fill a vector. @param slots that hold a destination row's input rows
void packRows(UpsamplingLayout& layout, const UpsamplingProblem& problem, std::int64_t slots) {
  const TensorShape& destination = problem.destination;
  const bool isColumnsFirst = layout.slots > 0;
  const std::int64_t most = isColumnsFirst ? UpsamplingLayout::mostRowsAtOnce : rowsReadAtOnce(problem);
  std::int64_t length = 0;
  for (const UpsamplingTile& tile : layout.tiles)
    length = std::max(length, isColumnsFirst ? tile.end - tile.begin : tile.inputEnd - tile.inputBegin);
  length = length * destination.channels + (isColumnsFirst ? 0 : layout.groups.room);
  layout.slotStride = (length + kLargestVector - 1) / kLargestVector * kLargestVector;
  const std::int64_t several = isColumnsFirst ? powerOfTwo(slots + most - 1) : most;
  if (layout.tiles.size() == 1 && destination.rowStride == destination.width * destination.channels &&
      destination.rowStride * most <= UpsamplingLayout::capacity && several <= UpsamplingLayout::mostSlots &&
      several * layout.slotStride <= UpsamplingLayout::capacity)
    layout.rowsAtOnce = most;
  if (!isColumnsFirst) return;
  layout.slots = layout.rowsAtOnce > 1 ? several : powerOfTwo(slots);
  layout.copiesRows = copiesRows(layout.rows, destination.height);
}

/// The pair of two sums. @param ownEnd,nextEnd behind their last taps
UpsamplingPair pairOf(const UpsamplingTap* own, const UpsamplingTap* ownEnd, const UpsamplingTap* next,
                      const UpsamplingTap* nextEnd) {
  constexpr std::ptrdiff_t least = 4;
  UpsamplingPair pair;
  const std::ptrdiff_t all = (ownEnd - own) + (nextEnd - next);
  if (all > static_cast<std::ptrdiff_t>(UpsamplingPair::most) || all < 2 * least) return pair;
  while (own != ownEnd || next != nextEnd) {
    const bool hasOwn = own != ownEnd && (next == nextEnd || own->input <= next->input);
    const bool hasNext = next != nextEnd && (own == ownEnd || next->input <= own->input);
    SharedTap& tap = pair.taps[pair.count++];
    tap = {hasOwn ? own->input : next->input, {}, {hasOwn, hasNext}};
    if (hasOwn) tap.weights[0] = (own++)->weight;
    if (hasNext) tap.weights[1] = (next++)->weight;
  }
  if (all - static_cast<std::ptrdiff_t>(pair.count) < least) pair.count = 0;
  return pair;
}

/// Pair i is of positions 2 i and 2 i + 1; empty where all would be made one by one.
std::vector<UpsamplingPair> pairsOf(const UpsamplingTaps& taps, std::int64_t positions) {
  std::vector<UpsamplingPair> pairs;
  for (std::int64_t i = 0; i + 1 < positions; i += 2)
    pairs.push_back(pairOf(taps.begin(i), taps.end(i), taps.begin(i + 1), taps.end(i + 1)));
  const auto isJoined = [](const UpsamplingPair& pair) { return pair.count > 0; };
  if (std::none_of(pairs.begin(), pairs.end(), isJoined)) pairs.clear();
  return pairs;
}

/// Input rows of a destination row, or of a pair of them.
std::int64_t slotsOfRows(const UpsamplingLayout& layout, std::int64_t height) {
  std::int64_t slots = largestSpan(layout.rows, height);
  for (const UpsamplingPair& pair : layout.rowPairs)
    if (pair.count > 0) slots = std::max(slots, pair.taps[pair.count - 1].input + 1 - pair.taps[0].input);
  return slots;
}

}  // namespace

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
  const bool areShort = channels <= UpsamplingGroups::mostChannels && destination.pixelStride == channels;
  if (!areShort) {
    layout.rowPairs = pairsOf(layout.rows, destination.height);
    layout.columnPairs = pairsOf(layout.columns, destination.width);
  }
  const std::int64_t slots = slotsOfRows(layout, destination.height);
  const bool isLarger = problem.input.height < destination.height;
  const std::int64_t slotLength = (isLarger ? UpsamplingLayout::capacity : UpsamplingLayout::room) /
                                  (areShort ? powerOfTwo(slots) : slots) / kLargestVector * kLargestVector;
  const std::int64_t mostResults = slotLength / channels;
  const bool areFew = isLarger ? slots <= UpsamplingLayout::mostSlots
                               : !layout.rowPairs.empty() && slots <= UpsamplingLayout::mostSlotsOfSmaller &&
                                     problem.input.format == ImageFeatureChannelFormat::Float32;
  if (areFew && mostResults > 0 && layout.channelStep == channels && destination.pixelStride == channels) {
    layout.slotLength = slotLength;
    layout.slots = slots;
    for (UpsamplingPair& pair : layout.rowPairs)
      for (std::size_t k = 0; k < pair.count; ++k) pair.taps[k].input %= slots;
  }
  layout.tiles = tilesOf(layout.columns, destination.width, capacity / layout.channelStep,
                         layout.slots > 0 ? mostResults
                         : areShort       ? capacity / channels
                                          : destination.width);
  if (areShort) layout.groups = groupsOf(layout.columns, layout.tiles, destination, lanes);
  if (layout.groups.taps > 0) packRows(layout, problem, slots);
  return layout;
}

}  // namespace mps::detail
