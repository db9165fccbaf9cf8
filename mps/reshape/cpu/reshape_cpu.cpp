#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <vector>

#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/core/image/pixel_copy.hpp"
#include "mps/core/types/storage.hpp"
#include "mps/reshape/reshape_map.hpp"
#include "mps/reshape/reshape_problem.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

/// Elements below which another thread does not pay.
constexpr std::int64_t kGrain = 16384;

std::int64_t elementBytes(const TensorShape& shape) {
  return static_cast<std::int64_t>(bytesPerChannel(shape.format));
}

const std::byte* inputOf(const ReshapeProblem& problem, const Operands& operands) {
  return problem.direction == ReshapeDirection::Forward ? operands.source : operands.gradient;
}

/// Both formats, no strides.
PixelCopy copyBetween(const TensorShape& input, const TensorShape& destination) {
  PixelCopy copy;
  copy.inputFormat = input.format;
  copy.destinationFormat = destination.format;
  copy.inputStride = input.pixelStride;
  copy.destinationStride = destination.pixelStride;
  return copy;
}

bool accumulates(const ReshapeProblem& problem) {
  return problem.direction == ReshapeDirection::Gradient &&
         problem.destination.format == ImageFeatureChannelFormat::Float32;
}

// The order of elements -----------------------------------------------------------------------------------------------

/// Where the elements of one image lie, in their order.
class ElementOrder {
 public:
  ElementOrder(const TensorShape& shape, ReshapeMapping mapping)
      : shape_(shape),
        channelsFirst_(mapping == ReshapeMapping::ChannelsFirst),
        rowIsRun_(shape.pixelStride == shape.channels),
        imageIsRun_(rowIsRun_ && shape.rowStride == shape.width * shape.channels) {}

  /// Element k of image n, and how many from there on are adjacent.
  struct Run {
    std::int64_t offset, length;
  };
  [[nodiscard]] Run at(std::int64_t n, std::int64_t k) const {
    if (channelsFirst_) {
      const std::int64_t pixel = k % (shape_.height * shape_.width);
      return {
          shape_.offset(n, pixel / shape_.width, pixel % shape_.width, k / (shape_.height * shape_.width)),
          1};
    }
    const std::int64_t row = shape_.width * shape_.channels;
    const std::int64_t y = k / row;
    const std::int64_t x = k % row / shape_.channels;
    const std::int64_t c = k % shape_.channels;
    const std::int64_t length = imageIsRun_ ? shape_.height * row - k
                                : rowIsRun_ ? row - k % row
                                            : shape_.channels - c;
    return {shape_.offset(n, y, x, c), length};
  }

 private:
  TensorShape shape_;
  bool channelsFirst_;
  bool rowIsRun_;
  bool imageIsRun_;
};

class OrderPlan final : public Plan {
 public:
  explicit OrderPlan(const ReshapeProblem& problem)
      : problem_(problem), from_(problem.input, problem.mapping), to_(problem.destination, problem.mapping) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& shape = problem_.destination;
    const std::int64_t elements = shape.height * shape.width * shape.channels;
    const std::int64_t pieces = (elements + kGrain - 1) / kGrain;
    const std::byte* const input = inputOf(problem_, operands);
    PixelCopy whole = copyBetween(problem_.input, shape);
    whole.accumulate = operands.accumulate;
    whole.isNonTemporal = problem_.mapping == ReshapeMapping::Order && !operands.accumulate &&
                          usesNonTemporalStores(problem_.input.bytes() + shape.bytes());
    mtl::cpu::asCpu(stream).parallelFor(shape.images * pieces, 1, [&](std::int64_t begin, std::int64_t end) {
      PixelCopy copy = whole;
      for (std::int64_t piece = begin; piece < end; ++piece) {
        const std::int64_t n = piece / pieces;
        const std::int64_t last = std::min(elements, (piece % pieces + 1) * kGrain);
        for (std::int64_t k = piece % pieces * kGrain; k < last; k += copy.channels) {
          const ElementOrder::Run from = from_.at(n, k);
          const ElementOrder::Run to = to_.at(n, k);
          copy.channels = std::min({from.length, to.length, last - k});
          copyPixels(copy, input + from.offset * elementBytes(problem_.input),
                     operands.destination + to.offset * elementBytes(shape), 1);
        }
      }
      if (whole.isNonTemporal) finishNonTemporalStores();
    });
  }

  [[nodiscard]] bool canAccumulate() const override { return accumulates(problem_); }

 private:
  ReshapeProblem problem_;
  ElementOrder from_;
  ElementOrder to_;
};

// Padding and slices --------------------------------------------------------------------------------------------------

/// One axis of the forward result.
class AxisMap {
 public:
  AxisMap(const ReshapeAxis& axis, ImageEdgeMode edgeMode, std::int64_t resultSize, std::int64_t sourceSize)
      : before_(axis.before),
        begin_(std::clamp<std::int64_t>(axis.before, 0, resultSize)),
        end_(std::clamp<std::int64_t>(axis.before + sourceSize, begin_, resultSize)) {
    readers_.resize(static_cast<std::size_t>(sourceSize));
    for (std::int64_t i = 0; i < resultSize; ++i) {
      source_.push_back(mappedIndex(edgeMode, i - axis.before, sourceSize));
      if (source_.back() >= 0) readers_[static_cast<std::size_t>(source_.back())].push_back(i);
    }
  }
  /// Source index of a result index; -1 for none.
  [[nodiscard]] std::int64_t source(std::int64_t result) const {
    return source_[static_cast<std::size_t>(result)];
  }
  /// Result indices that read a source index, in their order.
  [[nodiscard]] const std::vector<std::int64_t>& readers(std::int64_t source) const {
    return readers_[static_cast<std::size_t>(source)];
  }
  /// Result indices [begin, end) lie inside the source: index i reads i - before.
  [[nodiscard]] std::int64_t begin() const { return begin_; }
  [[nodiscard]] std::int64_t end() const { return end_; }
  [[nodiscard]] std::int64_t before() const { return before_; }
  [[nodiscard]] bool isInside(std::int64_t result) const { return result >= begin_ && result < end_; }

  struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    [[nodiscard]] bool isEmpty() const { return begin == end; }
  };
  /// The longest range of result indices that lie inside the source and read what no other one reads.
  [[nodiscard]] Range soleReaders() const {
    Range longest;
    for (std::int64_t i = begin_; i < end_; ++i) {
      const std::int64_t first = i;
      while (i < end_ && readers(source(i)).size() == 1) ++i;
      if (i - first > longest.end - longest.begin) longest = {first, i};
    }
    return longest;
  }

 private:
  std::int64_t before_;
  std::int64_t begin_;
  std::int64_t end_;
  std::vector<std::int64_t> source_;
  std::vector<std::vector<std::int64_t>> readers_;
};

/// Sums that vectors reach without crossing lines of the cache.
struct alignas(64) SumLine {
  float values[16];
};

class AxesPlan final : public Plan {
 public:
  explicit AxesPlan(const ReshapeProblem& problem)
      : problem_(problem),
        x_(problem.x, problem.edgeMode, problem.result().width, problem.source().width),
        y_(problem.y, problem.edgeMode, problem.result().height, problem.source().height),
        c_(problem.channels, problem.edgeMode, problem.result().channels, problem.source().channels),
        readsOnce_(problem.edgeMode == ImageEdgeMode::Zero || problem.edgeMode == ImageEdgeMode::Constant),
        copiesChannels_(readsOnce_ || (c_.begin() == 0 && c_.end() == problem.result().channels)) {
    if (copiesChannels_ && problem.result().channels == problem.source().channels)
      soleColumns_ = x_.soleReaders();
    if (problem.direction == ReshapeDirection::Forward && readsOnce_) {
      outsidePixel_ = fillPixel(false);
      insidePixel_ = fillPixel(true);
    }
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& shape = problem_.destination;
    const std::int64_t rowElements = std::max<std::int64_t>(
        1, std::max(shape.width * shape.channels, problem_.input.width * problem_.input.channels));
    const bool isForward = problem_.direction == ReshapeDirection::Forward;
    const bool streams =
        !operands.accumulate && usesNonTemporalStores(problem_.input.bytes() + shape.bytes());
    const std::byte* const input = inputOf(problem_, operands);
    mtl::cpu::asCpu(stream).parallelFor(
        shape.images * shape.height, kGrain / rowElements + 1, [&](std::int64_t begin, std::int64_t end) {
          std::vector<SumLine> sums;
          for (std::int64_t row = begin; row < end; ++row) {
            const std::int64_t n = row / shape.height;
            const std::int64_t y = row % shape.height;
            std::byte* const to = operands.destination + shape.offset(n, y, 0, 0) * elementBytes(shape);
            if (isForward)
              forwardRow(input, n, y_.source(y), to, streams);
            else if (readsOnce_)
              sliceRow(input, n, y, to, operands.accumulate, streams);
            else
              sumRow(input, n, y, to, operands.accumulate, streams, sums);
          }
          if (streams) finishNonTemporalStores();
        });
  }

  [[nodiscard]] bool canAccumulate() const override { return accumulates(problem_); }

 private:
  [[nodiscard]] const std::byte* inputAt(const std::byte* input, std::int64_t n, std::int64_t y,
                                         std::int64_t x, std::int64_t c) const {
    return input + problem_.input.offset(n, y, x, c) * elementBytes(problem_.input);
  }

  /// A result pixel without source elements, in the destination's format. @param isInside in x and y
  [[nodiscard]] std::vector<std::byte> fillPixel(bool isInside) const {
    const TensorShape& shape = problem_.destination;
    std::vector<std::byte> pixel(static_cast<std::size_t>(shape.channels * elementBytes(shape)));
    const bool fillsAll = problem_.edgeMode == ImageEdgeMode::Constant && !isInside;
    withElementType(shape.format, [&](auto element) {
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        const bool isFilled = !problem_.fill.empty() && (fillsAll || !c_.isInside(c));
        storeFloat(isFilled ? problem_.fill[static_cast<std::size_t>(c)] : 0.0F, &element);
        std::memcpy(pixel.data() + c * elementBytes(shape), &element, sizeof element);
      }
    });
    return pixel;
  }

  void forwardRow(const std::byte* input, std::int64_t n, std::int64_t sourceY, std::byte* to,
                  bool streams) const {
    const std::int64_t width = problem_.destination.width;
    const std::int64_t stride = problem_.destination.pixelStride * elementBytes(problem_.destination);
    if (sourceY < 0) return fillPixels(outsidePixel_, to, width);
    for (std::int64_t x = 0; x < width;) {
      const bool isInside = x_.isInside(x);
      const std::int64_t count = isInside ? x_.end() - x : 1;
      if (x_.source(x) < 0)
        fillPixels(outsidePixel_, to + x * stride, count);
      else
        forwardPixels(inputAt(input, n, sourceY, x_.source(x), 0), to + x * stride, count, streams);
      x += count;
    }
  }

  void fillPixels(const std::vector<std::byte>& pixel, std::byte* to, std::int64_t count) const {
    const std::int64_t stride = problem_.destination.pixelStride * elementBytes(problem_.destination);
    for (std::int64_t x = 0; x < count; ++x) std::memcpy(to + x * stride, pixel.data(), pixel.size());
  }

  /// Adjacent result pixels that read adjacent source pixels.
  void forwardPixels(const std::byte* from, std::byte* to, std::int64_t count, bool streams) const {
    const TensorShape& shape = problem_.destination;
    const std::int64_t element = elementBytes(shape);
    if (!copiesChannels_) return mapChannels(from, to, count);
    PixelCopy copy = copyBetween(problem_.input, shape);
    copy.channels = c_.end() - c_.begin();
    copy.isNonTemporal = streams;
    const std::int64_t first = (c_.begin() - c_.before()) * elementBytes(problem_.input);
    copyPixels(copy, from + first, to + c_.begin() * element, count);
    if (copy.channels == shape.channels) return;
    const auto head = static_cast<std::size_t>(c_.begin() * element);
    const auto tail = static_cast<std::size_t>((shape.channels - c_.end()) * element);
    for (std::int64_t x = 0; x < count; ++x) {
      std::byte* const pixel = to + x * shape.pixelStride * element;
      std::memcpy(pixel, insidePixel_.data(), head);
      std::memcpy(pixel + c_.end() * element, insidePixel_.data() + c_.end() * element, tail);
    }
  }

  /// Channels that are mirrored or repeated, one by one.
  void mapChannels(const std::byte* from, std::byte* to, std::int64_t count) const {
    const TensorShape& shape = problem_.destination;
    withElementType(problem_.input.format, [&](auto input) {
      withElementType(shape.format, [&](auto output) {
        for (std::int64_t x = 0; x < count; ++x) {
          const auto* const read =
              reinterpret_cast<const decltype(input)*>(from) + x * problem_.input.pixelStride;
          auto* const written = reinterpret_cast<decltype(output)*>(to) + x * shape.pixelStride;
          for (std::int64_t c = 0; c < shape.channels; ++c)
            storeFloat(loadFloat(read + c_.source(c)), written + c);
        }
      });
    });
  }

  /// A row of the gradient where each source element was read once at most.
  void sliceRow(const std::byte* input, std::int64_t n, std::int64_t y, std::byte* to, bool accumulate,
                bool streams) const {
    const TensorShape& shape = problem_.destination;
    const std::int64_t element = elementBytes(shape);
    const bool isRead = !y_.readers(y).empty() && x_.begin() < x_.end() && c_.begin() < c_.end();
    const std::int64_t firstX = isRead ? x_.begin() - x_.before() : 0;
    const std::int64_t countX = isRead ? x_.end() - x_.begin() : 0;
    const std::int64_t firstC = isRead ? c_.begin() - c_.before() : 0;
    const std::int64_t countC = isRead ? c_.end() - c_.begin() : 0;
    if (!accumulate && (countX < shape.width || countC < shape.channels))
      for (std::int64_t x = 0; x < shape.width; ++x)
        if (countC < shape.channels || x < firstX || x >= firstX + countX)
          std::memset(to + x * shape.pixelStride * element, 0,
                      static_cast<std::size_t>(shape.channels * element));
    if (!isRead) return;
    PixelCopy copy = copyBetween(problem_.input, shape);
    copy.channels = countC;
    copy.accumulate = accumulate;
    copy.isNonTemporal = streams;
    copyPixels(copy, inputAt(input, n, y_.readers(y).front(), x_.begin(), c_.begin()),
               to + (firstX * shape.pixelStride + firstC) * element, countX);
  }

  /// A row of the gradient where elements were read more than once: those are summed in float32, in the order of the
  /// result.
  void sumRow(const std::byte* input, std::int64_t n, std::int64_t y, std::byte* to, bool accumulate,
              bool streams, std::vector<SumLine>& lines) const {
    const TensorShape& shape = problem_.destination;
    const std::vector<std::int64_t>& rows = y_.readers(y);
    const AxisMap::Range read = rows.empty() ? AxisMap::Range{} : soleColumns_;
    const std::int64_t first = read.isEmpty() ? 0 : x_.source(read.begin);
    const std::int64_t last = first + read.end - read.begin;
    lines.resize(static_cast<std::size_t>(shape.width * shape.channels) / std::size(SumLine{}.values) + 1);
    float* const sums = lines.front().values;
    std::fill_n(sums, first * shape.channels, 0.0F);
    std::fill(sums + last * shape.channels, sums + shape.width * shape.channels, 0.0F);
    PixelCopy once = copyBetween(problem_.input, shape);
    once.channels = shape.channels;
    once.accumulate = accumulate;
    once.isNonTemporal = streams;
    PixelCopy store = once;
    store.inputFormat = ImageFeatureChannelFormat::Float32;
    store.inputStride = shape.channels;
    const bool isSummed = rows.size() > 1;
    for (const std::int64_t row : rows) {
      const std::byte* const from = inputAt(input, n, row, 0, 0);
      prefetchRow(from + problem_.input.rowStride * elementBytes(problem_.input));
      addPixels(from, {0, read.begin}, sums);
      if (isSummed)
        sumOnce(inputAt(input, n, row, read.begin, 0), last - first, row == rows.front(),
                sums + first * shape.channels);
      addPixels(from, {read.end, problem_.input.width}, sums);
    }
    const auto storePixels = [&](const PixelCopy& copy, const std::byte* from, std::int64_t begin,
                                 std::int64_t end) {
      copyPixels(copy, from, to + begin * shape.pixelStride * elementBytes(shape), end - begin);
    };
    const auto* const summed = reinterpret_cast<const std::byte*>(sums);
    const std::int64_t pixelOfSums = shape.channels * std::int64_t{sizeof(float)};
    if (isSummed || read.isEmpty()) return storePixels(store, summed, 0, shape.width);
    storePixels(store, summed, 0, first);
    storePixels(once, inputAt(input, n, rows.front(), read.begin, 0), first, last);
    storePixels(store, summed + last * pixelOfSums, last, shape.width);
  }

  /// Adds adjacent pixels of a row to as many sums, or begins them.
  void sumOnce(const std::byte* from, std::int64_t pixels, bool begins, float* sums) const {
    PixelCopy add = copyBetween(problem_.input, problem_.destination);
    add.destinationFormat = ImageFeatureChannelFormat::Float32;
    add.destinationStride = problem_.destination.channels;
    add.channels = problem_.destination.channels;
    add.accumulate = !begins;
    copyPixels(add, from, reinterpret_cast<std::byte*>(sums), pixels);
  }

  /// Asks for a row of the incoming gradient: the processor does not foresee in which order its pixels are read. GCC would
  /// leave out a call, which has no effect that it knows.
  [[gnu::always_inline]] void prefetchRow(const std::byte* row) const {
    constexpr std::int64_t cacheLine = 64;
    const std::int64_t bytes =
        problem_.input.width * problem_.input.pixelStride * elementBytes(problem_.input);
    for (std::int64_t i = 0; i < bytes; i += cacheLine) __builtin_prefetch(row + i, 0, 2);
  }

  /// Adds some pixels of a row of the incoming gradient to what they read.
  void addPixels(const std::byte* row, AxisMap::Range pixels, float* sums) const {
    const TensorShape& shape = problem_.destination;
    PixelCopy add;
    add.inputFormat = problem_.input.format;
    add.inputStride = problem_.input.pixelStride;
    add.destinationStride = shape.channels;
    add.channels = problem_.input.channels;
    add.accumulate = true;
    const std::int64_t firstC = copiesChannels_ ? c_.begin() - c_.before() : 0;
    for (std::int64_t x = pixels.begin; x < pixels.end;) {
      const std::int64_t count = copiesChannels_ && x_.isInside(x) ? std::min(x_.end(), pixels.end) - x : 1;
      float* const sum = sums + x_.source(x) * shape.channels + firstC;
      const std::byte* const from = row + x * problem_.input.pixelStride * elementBytes(problem_.input);
      if (copiesChannels_)
        copyPixels(add, from, reinterpret_cast<std::byte*>(sum), count);
      else
        addChannels(from, sum);
      x += count;
    }
  }

  void addChannels(const std::byte* from, float* sums) const {
    withElementType(problem_.input.format, [&](auto element) {
      const auto* const read = reinterpret_cast<const decltype(element)*>(from);
      for (std::int64_t c = 0; c < problem_.input.channels; ++c) sums[c_.source(c)] += loadFloat(read + c);
    });
  }

  ReshapeProblem problem_;
  AxisMap x_;
  AxisMap y_;
  AxisMap c_;
  bool readsOnce_;
  bool copiesChannels_;  ///< those inside the source follow one another, the others are filled
  AxisMap::Range
      soleColumns_;  ///< result columns that alone read what they do; none where channels are mapped
  std::vector<std::byte> outsidePixel_;
  std::vector<std::byte> insidePixel_;
};

Preparation prepareRows(const ReshapeProblem& problem) {
  if (problem.isReshape()) return std::make_shared<const OrderPlan>(problem);
  return std::make_shared<const AxesPlan>(problem);
}

constexpr std::array<Implementation<ReshapeProblem>, 1> kImplementations{{{"row copies", prepareRows}}};

}  // namespace

std::size_t ReshapeProblem::hash() const {
  std::size_t seed = hashOf(direction, mapping, edgeMode, x.before, y.before, channels.before, input.hash(),
                            destination.hash());
  for (const float value : fill) seed = hashCombine(seed, std::bit_cast<std::uint32_t>(value));
  return seed;
}

std::string ReshapeProblem::describe() const {
  std::string text = isReshape() ? "reshape" : "padding";
  if (mapping == ReshapeMapping::ChannelsFirst) text += " with the channels first";
  if (direction == ReshapeDirection::Gradient) text += " gradient";
  if (!isReshape())
    text += ", edge mode " + std::string(mps::name(edgeMode)) + ", source at " + std::to_string(x.before) +
            "," + std::to_string(y.before) + "," + std::to_string(channels.before);
  return text + ", " + input.describe() + " -> " + destination.describe();
}

std::span<const Implementation<ReshapeProblem>> reshapeImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail
