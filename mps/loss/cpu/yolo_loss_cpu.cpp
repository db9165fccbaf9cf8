#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/cpu/tile_io.hpp"
#include "mps/core/types/storage.hpp"
#include "mps/loss/cpu/yolo_loss_run.hpp"
#include "mtl/cpu/stream.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/loss/cpu/yolo_loss_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/loss/cpu/loss_rows-inl.hpp"
#include "mps/loss/cpu/loss_softmax-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

using Floats = hn::ScalableTag<float>;

/// What the loss of one part is given, and what it gives.
struct PartRows {
  /// @param size multiple of a vector
  explicit PartRows(std::size_t size)
      : values(size), targets(size), weights(size), gradient(size), loss(size) {}
  std::vector<float> values, targets, weights, gradient, loss;
};

/// Memory of a thread.
struct YOLOBuffers {
  explicit YOLOBuffers(const YOLORun& run)
      : predictions(elements(run)),
        labels(elements(run)),
        weights(elements(run)),
        float16s(anchors(run)),
        gradient(elements(run)),
        loss(run.perElement() ? elements(run) : 0),
        anchorSizes(2 * anchors(run)),
        sizes(2 * anchors(run)),
        overlaps(anchors(run)),
        position(2 * anchors(run)),
        size(2 * anchors(run)),
        confidence(anchors(run)),
        classes(elements(run)),
        lengths(2 * anchors(run)) {}

  [[nodiscard]] static std::size_t wholeVectors(std::int64_t count) {
    constexpr std::size_t lanes = hn::MaxLanes(Floats());
    return (static_cast<std::size_t>(count) + lanes - 1) / lanes * lanes;
  }
  [[nodiscard]] static std::size_t elements(const YOLORun& run) {
    return wholeVectors(run.layout.cellsOfTile * run.layout.channels);
  }
  [[nodiscard]] static std::size_t anchors(const YOLORun& run) {
    return wholeVectors(run.layout.cellsOfTile * run.problem.anchors());
  }

  std::vector<float> predictions,
      labels;                         ///< the tile, where it is not adjacent float32 or float16 in memory
  std::vector<float> weights;         ///< the tile, where it is not adjacent float32
  std::vector<Float16> float16s;      ///< of a channel
  std::vector<float> gradient, loss;  ///< the tile; 0 between two tiles but for the confidences
  std::vector<float> anchorSizes;     ///< all widths, then all heights
  std::vector<float> sizes;           ///< of the labels, likewise
  std::vector<float> overlaps;        ///< of labels and anchors, one for each anchor
  std::vector<std::size_t> objects;   ///< anchors of the tile that have one
  PartRows position, size, confidence, classes;
  std::vector<float> lengths;  ///< of what found and true boxes share, of each object along both axes
  LossImages images;
  SoftMaxTile softMax;
};

/// Losses and gradients of `pixels` pixels with `channels` channels each.
void runPart(CNNLossType type, const LossNumbers& numbers, std::size_t pixels, std::size_t channels,
             PartRows& part, YOLOBuffers& buffers) {
  LossRows rows;
  rows.wantsLoss = true;
  const std::size_t most = std::max<std::size_t>(1, static_cast<std::size_t>(kLossTile) / channels);
  for (std::size_t first = 0; first < pixels; first += most) {
    const std::size_t count = std::min(most, pixels - first);
    rows.predictions = part.values.data() + first * channels;
    rows.labels = part.targets.data() + first * channels;
    rows.weights = part.weights.data() + first * channels;
    rows.gradient = part.gradient.data() + first * channels;
    rows.loss = part.loss.data() + first * channels;
    LossImages& images = buffers.images;
    images.count = 1;
    images.elements = count * channels;
    images.factors[0] = numbers.weight;
    SoftMaxTile& softMax = buffers.softMax;
    if (type != CNNLossType::SoftMaxCrossEntropy) {
      runImagesOf(type, numbers, rows, images);
    } else if (images.elements <= static_cast<std::size_t>(kLossTile)) {
      reducePixels<false>(rows.predictions, count, channels, softMax);
      runSoftMaxImages(numbers, rows, images, channels, softMax);
    } else {  // one pixel, whose exponentials do not fit
      softMax.shift[0] = largestPrediction(rows.predictions, channels);
      softMax.sum[0] = sumExponentials<false>(rows.predictions, channels, softMax.shift[0], nullptr);
      softMax.weightedLabels[0] = sumWeightedLabels(numbers, rows, 0, channels, images.factors[0]);
      finishSums(softMax, 1);
      hn::Vec<Floats> sum = hn::Zero(Floats());
      runPixel<false, false>(numbers, rows, 0, channels, images.factors[0], softMax, 0, nullptr, sum);
    }
  }
}

/// What intervals around two centres share; the comparisons are those of intersectionOverUnion().
template <class D, class V>
HWY_INLINE V sharedLength(D d, V centerA, V sizeA, V centerB, V sizeB) {
  const V half = hn::Set(d, 0.5F);
  const V halfA = hn::Mul(sizeA, half);
  const V halfB = hn::Mul(sizeB, half);
  const V beginA = hn::Sub(centerA, halfA);
  const V beginB = hn::Sub(centerB, halfB);
  const V endA = hn::Add(centerA, halfA);
  const V endB = hn::Add(centerB, halfB);
  const V length = hn::Sub(hn::IfThenElse(hn::Lt(endA, endB), endA, endB),
                           hn::IfThenElse(hn::Gt(beginA, beginB), beginA, beginB));
  return hn::IfThenElseZero(hn::Gt(length, hn::Zero(d)), length);
}

/// The same around one centre.
template <class D, class V>
HWY_INLINE V sharedLength(D d, V sizeA, V sizeB) {
  const V length = hn::IfThenElse(hn::Lt(sizeA, sizeB), sizeA, sizeB);
  return hn::IfThenElseZero(hn::Gt(length, hn::Zero(d)), length);
}

template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0F);
  const V e = vectorExpNonPositive(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

/// Asks for the memory of the next tile, as far away as the results that are being written: reading and computing would take
/// turns otherwise.
class TileAhead {
 public:
  /// @param tile that is being computed
  TileAhead(const TensorShape& shape, const std::byte* memory, const Tile& tile) : begin_(memory) {
    const std::int64_t end = tile.firstPixel + 2 * tile.pixels;
    if (!shape.isDense() || end > shape.images * shape.height * shape.width) return;
    bytes_ = bytesPerChannel(shape.format);
    begin_ += static_cast<std::size_t>((tile.firstPixel + tile.pixels) * tile.channels) * bytes_;
  }
  HWY_INLINE void ask(std::size_t element) const { __builtin_prefetch(begin_ + element * bytes_, 0, 2); }

 private:
  const std::byte* begin_;
  std::size_t bytes_ = 0;
};

/// Computes one tile after the other. Of most anchors nothing counts but the confidence; those that have an object are
/// gathered, so that the losses of all parts run over adjacent values.
class TileOfCells {
 public:
  explicit TileOfCells(const YOLORun& run)
      : run_(run),
        problem_(run.problem),
        buffers_(run),
        perAnchor_(static_cast<std::size_t>(problem_.channelsPerAnchor())),
        anchorsOfCell_(static_cast<std::size_t>(problem_.anchors())),
        room_(buffers_.overlaps.size()) {
    for (std::size_t i = 0; i < room_; ++i) {
      const std::size_t anchor = 2 * (i % anchorsOfCell_);
      buffers_.anchorSizes[i] = problem_.anchorBoxes[anchor];
      buffers_.anchorSizes[room_ + i] = problem_.anchorBoxes[anchor + 1];
    }
  }

  void run(std::int64_t number) {
    load(number);
    assignAnchors();
    findBoxes();
    runPart(problem_.parts[2].type, run_.numbers[2], anchors_, 1, buffers_.confidence, buffers_);
    storeShares(number);
    runObjects(number);
    storeResults();
  }

 private:
  void load(std::int64_t number) {
    tile_ = run_.layout.tile(number);
    anchors_ = static_cast<std::size_t>(tile_.pixels) * anchorsOfCell_;
    predictions_ = loadRun(problem_.predictions, run_.predictions, tile_, buffers_.predictions.data());
    labels_ = loadRun(problem_.labels, run_.labels, tile_, buffers_.labels.data());
    weights_ = run_.weights == nullptr
                   ? nullptr
                   : loadTile(problem_.weights, run_.weights, tile_, buffers_.weights.data());
    loadChannel(labels_, 2, buffers_.sizes.data());
    loadChannel(labels_, 3, buffers_.sizes.data() + room_);
    loadChannel(labels_, 4, buffers_.confidence.targets.data());
    loadChannel(predictions_, 4, buffers_.confidence.values.data());
  }

  /// to[i] = a channel of anchor i. Most others of a tile are never looked at.
  void loadChannel(ConstFloatRun tile, std::size_t channel, float* to) {
    const auto copy = [&](const auto* from, auto* values) {
      for (std::size_t i = 0; i < anchors_; ++i) values[i] = from[i * perAnchor_ + channel];
    };
    if (!tile.isHalf) return copy(static_cast<const float*>(tile.address), to);
    copy(static_cast<const Float16*>(tile.address), buffers_.float16s.data());
    convertToFloats(buffers_.float16s.data(), to, anchors_);
  }

  static void loadValues(ConstFloatRun from, std::size_t count, float* to) {
    if (from.isHalf)
      convertToFloats(static_cast<const Float16*>(from.address), to, count);
    else
      std::copy_n(static_cast<const float*>(from.address), count, to);
  }

  [[nodiscard]] float weightOf(std::size_t element) const {
    return weights_ == nullptr ? 1.0F : weights_[element];
  }

  /// Confidences of anchors without an object, and which ones have one. What does not count has values for which all
  /// losses are finite.
  void assignAnchors() {
    const Floats d;
    using V = hn::Vec<Floats>;
    const V zero = hn::Zero(d);
    const V half = hn::Set(d, 0.5F);
    const V one = hn::Set(d, 1.0F);
    const V absence = hn::Set(d, problem_.maxIOUForObjectAbsence);
    const V scale = hn::Set(d, problem_.scaleNoObject);
    PartRows& confidence = buffers_.confidence;
    marked_.clear();
    for (std::size_t i = 0; i < anchors_; i += hn::Lanes(d)) {
      const V width = hn::LoadU(d, buffers_.sizes.data() + i);
      const V height = hn::LoadU(d, buffers_.sizes.data() + room_ + i);
      const V anchorWidth = hn::LoadU(d, buffers_.anchorSizes.data() + i);
      const V anchorHeight = hn::LoadU(d, buffers_.anchorSizes.data() + room_ + i);
      const V shared = hn::Mul(sharedLength(d, width, anchorWidth), sharedLength(d, height, anchorHeight));
      const V both = hn::Sub(hn::Add(hn::Mul(width, height), hn::Mul(anchorWidth, anchorHeight)), shared);
      const V overlap = hn::IfThenElseZero(hn::Gt(shared, zero), hn::Div(shared, both));
      hn::StoreU(overlap, d, buffers_.overlaps.data() + i);
      const V weight = hn::IfThenElseZero(hn::Lt(overlap, absence), scale);
      const auto counts = hn::Ne(weight, zero);
      const V label = hn::LoadU(d, confidence.targets.data() + i);
      if (!hn::AllFalse(d, hn::Eq(label, one)))
        for (std::size_t j = i; j < std::min(i + hn::Lanes(d), anchors_); ++j)
          if (confidence.targets[j] == 1.0F) marked_.push_back(j);
      const V value = hn::LoadU(d, confidence.values.data() + i);
      hn::StoreU(hn::IfThenElse(counts, value, half), d, confidence.values.data() + i);
      hn::StoreU(hn::IfThenElse(counts, zero, half), d, confidence.targets.data() + i);
      hn::StoreU(weight, d, confidence.weights.data() + i);
    }
    if (weights_ != nullptr)
      for (std::size_t i = 0; i < anchors_; ++i)
        if (confidence.weights[i] != 0) confidence.weights[i] *= weights_[i * perAnchor_ + 4];
    buffers_.objects.clear();
    for (const std::size_t i : marked_)
      if (isObject(i)) buffers_.objects.push_back(i);
  }

  /// Of an anchor whose label has confidence 1.
  [[nodiscard]] bool isObject(std::size_t anchor) const {
    const float* const ofCell = buffers_.overlaps.data() + anchor / anchorsOfCell_ * anchorsOfCell_;
    float best = 0;
    for (std::size_t i = 0; i < anchorsOfCell_; ++i) best = std::max(best, ofCell[i]);
    return assignment(1, buffers_.overlaps[anchor], best, problem_.minIOUForObjectPresence,
                      problem_.maxIOUForObjectAbsence)
        .isObject;
  }

  /// Values and targets of the objects' positions, sizes and confidences.
  void findBoxes() {
    constexpr float tiny = 1e-5F;
    const Floats d;
    using V = hn::Vec<Floats>;
    const std::size_t count = buffers_.objects.size();
    PartRows& position = buffers_.position;
    PartRows& size = buffers_.size;
    // Until they are computed the true sizes lie in the targets, and the anchors' in the weights.
    for (std::size_t o = 0; o < count; ++o) {
      const std::size_t anchor = buffers_.objects[o];
      const std::size_t element = anchor * perAnchor_;
      loadValues(predictions_ + element, 2, position.values.data() + 2 * o);
      loadValues(labels_ + element, 2, position.targets.data() + 2 * o);
      loadValues(predictions_ + (element + 2), 2, size.values.data() + 2 * o);
      loadValues(labels_ + (element + 2), 2, size.targets.data() + 2 * o);
      size.weights[2 * o] = buffers_.anchorSizes[anchor];
      size.weights[2 * o + 1] = buffers_.anchorSizes[room_ + anchor];
    }
    for (std::size_t i = 0; i < 2 * count; i += hn::Lanes(d)) {
      const V center = sigmoid(d, hn::LoadU(d, position.values.data() + i));
      const V anchor = hn::LoadU(d, size.weights.data() + i);
      const V found = hn::Mul(anchor, vectorExp(d, hn::LoadU(d, size.values.data() + i)));
      const V truth = hn::LoadU(d, size.targets.data() + i);
      const V length = sharedLength(d, center, found, hn::LoadU(d, position.targets.data() + i), truth);
      hn::StoreU(center, d, position.values.data() + i);
      hn::StoreU(length, d, buffers_.lengths.data() + i);
      hn::StoreU(found, d, size.gradient.data() + i);
      hn::StoreU(truth, d, size.loss.data() + i);
      hn::StoreU(vectorLog(d, hn::Add(hn::Div(truth, anchor), hn::Set(d, tiny))), d, size.targets.data() + i);
    }
    if (problem_.scaleObject == 0) return excludeConfidences();
    PartRows& confidence = buffers_.confidence;
    for (std::size_t o = 0; o < count; ++o) {
      const std::size_t anchor = buffers_.objects[o];
      const std::size_t element = anchor * perAnchor_ + 4;
      loadValues(predictions_ + element, 1, confidence.values.data() + anchor);
      confidence.targets[anchor] = problem_.rescore ? foundOverUnion(o) : 1.0F;
      confidence.weights[anchor] = problem_.scaleObject * weightOf(element);
    }
  }

  /// Of the boxes of an object.
  [[nodiscard]] float foundOverUnion(std::size_t object) const {
    const auto product = [&](const std::vector<float>& sizes) {
      return sizes[2 * object] * sizes[2 * object + 1];
    };
    const float shared = product(buffers_.lengths);
    return shared > 0 ? shared / (product(buffers_.size.gradient) + product(buffers_.size.loss) - shared)
                      : 0.0F;
  }

  void excludeConfidences() {
    PartRows& confidence = buffers_.confidence;
    for (const std::size_t anchor : buffers_.objects) {
      confidence.values[anchor] = confidence.targets[anchor] = 0.5F;
      confidence.weights[anchor] = 0;
    }
  }

  /// Losses of the confidences, and the weights that are not 0, of each image.
  void storeShares(std::int64_t number) {
    const std::int64_t ofImage = run_.layout.cellsOfImage;
    const std::int64_t end = tile_.firstPixel + tile_.pixels;
    for (std::int64_t first = tile_.firstPixel; first < end;) {
      const std::int64_t image = first / ofImage;
      const std::int64_t last = std::min(end, (image + 1) * ofImage);
      const auto cell = static_cast<std::size_t>(first - tile_.firstPixel);
      const auto cells = static_cast<std::size_t>(last - first);
      const std::int64_t share = YOLOLayout::share(number, image);
      run_.sums[share] = static_cast<double>(
          sumOf(buffers_.confidence.loss.data() + cell * anchorsOfCell_, cells * anchorsOfCell_));
      if (problem_.countsWeights()) {
        const std::size_t channels = anchorsOfCell_ * perAnchor_;
        run_.counts[share] = static_cast<double>(
            countNonZero(weights_ + cell * channels, static_cast<std::int64_t>(cells * channels)));
      }
      first = last;
    }
  }

  static float sumOf(const float* values, std::size_t count) {
    const Floats d;
    hn::Vec<Floats> sum = hn::Zero(d);
    forVectors(d, count,
               [&](std::size_t i, auto lanes) HWY_ATTR { sum = hn::Add(sum, lanes.load(d, values + i)); });
    return hn::GetLane(hn::SumOfLanes(d, sum));
  }

  /// Positions, sizes and classes.
  void runObjects(std::int64_t number) {
    if (buffers_.objects.empty()) return;
    runObjects(number, 0, problem_.scaleXY, buffers_.position);
    runObjects(number, 1, problem_.scaleWH, buffers_.size);
    const auto channels = static_cast<std::size_t>(problem_.countedChannelsOf(3));
    if (channels == 0) return;
    std::size_t to = 0;
    for (const std::size_t anchor : buffers_.objects) {
      const std::size_t from = anchor * perAnchor_ + 5;
      loadValues(predictions_ + from, channels, buffers_.classes.values.data() + to);
      loadValues(labels_ + from, channels, buffers_.classes.targets.data() + to);
      to += channels;
    }
    runObjects(number, 3, problem_.scaleClass, buffers_.classes);
  }

  void runObjects(std::int64_t number, std::size_t part, float scale, PartRows& rows) {
    if (scale == 0) return;
    const auto channels = static_cast<std::size_t>(problem_.countedChannelsOf(part));
    const auto firstChannel = static_cast<std::size_t>(YOLOLossProblem::firstChannelOf(part));
    const std::vector<std::size_t>& objects = buffers_.objects;
    std::size_t i = 0;
    for (const std::size_t anchor : objects)
      for (std::size_t c = 0; c < channels; ++c)
        rows.weights[i++] = scale * weightOf(anchor * perAnchor_ + firstChannel + c);
    runPart(problem_.parts[part].type, run_.numbers[part], objects.size(), channels, rows, buffers_);
    i = 0;
    for (const std::size_t anchor : objects) {
      const std::size_t to = anchor * perAnchor_ + firstChannel;
      double sum = 0;
      for (std::size_t c = 0; c < channels; ++c, ++i) {
        // The derivative of a position's sigmoid.
        const float chain = part == 0 ? rows.values[i] * (1 - rows.values[i]) : 1.0F;
        buffers_.gradient[to + c] = rows.gradient[i] * chain;
        if (run_.perElement()) buffers_.loss[to + c] = rows.loss[i];
        sum += static_cast<double>(rows.loss[i]);
      }
      const auto cell = static_cast<std::int64_t>(anchor / anchorsOfCell_);
      run_.sums[YOLOLayout::share(number, (tile_.firstPixel + cell) / run_.layout.cellsOfImage)] += sum;
    }
  }

  void storeResults() {
    storeResult(problem_.gradient, run_.gradient, buffers_.confidence.gradient, buffers_.gradient);
    if (run_.perElement()) storeResult(problem_.loss, run_.loss, buffers_.confidence.loss, buffers_.loss);
  }

  /// @param values the tile but for the confidences; leaves it ready for the next tile
  void storeResult(const TensorShape& shape, std::byte* memory, const std::vector<float>& confidences,
                   std::vector<float>& values) const {
    const Floats d;
    for (std::size_t i = 0; i < anchors_; ++i) values[i * perAnchor_ + 4] = confidences[i];
    const FloatRun to = runTarget(shape, memory, tile_, values.data());
    if (to.address == values.data()) {
      storeTile(shape, memory, tile_, to);
    } else {
      const TileAhead predictions(problem_.predictions, run_.predictions, tile_);
      const TileAhead labels(problem_.labels, run_.labels, tile_);
      forVectors(
          d, anchors_ * perAnchor_, [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
            predictions.ask(i);
            labels.ask(i);
            lanes.store(d, lanes.load(d, values.data() + i), to + i);
          });
    }
    for (const std::size_t anchor : buffers_.objects)
      std::fill_n(values.data() + anchor * perAnchor_, perAnchor_, 0.0F);
  }

  const YOLORun& run_;
  const YOLOLossProblem& problem_;
  YOLOBuffers buffers_;
  std::size_t perAnchor_;
  std::size_t anchorsOfCell_;
  std::size_t room_;  ///< for anchors of a tile
  std::vector<std::size_t> marked_;

  Tile tile_;
  std::size_t anchors_ = 0;  ///< of the tile
  ConstFloatRun predictions_;
  ConstFloatRun labels_;
  const float* weights_ = nullptr;
};

void runTiles(const YOLORun& run, std::int64_t begin, std::int64_t end) {
  TileOfCells tile(run);
  for (std::int64_t i = begin; i < end; ++i) tile.run(i);
  finishNonTemporalStores();
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {
namespace {

HWY_EXPORT(runTiles);

class TilesPlan final : public Plan {
 public:
  explicit TilesPlan(const YOLOLossProblem& problem) : problem_(problem), layout_(problem) {}

  [[nodiscard]] std::size_t scratchBytes() const override {
    return 2 * static_cast<std::size_t>(layout_.shares()) * sizeof(double);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    YOLORun run{.problem = problem_, .layout = layout_, .numbers = {}};
    for (std::size_t i = 0; i < kYOLOLossParts; ++i) run.numbers[i] = problem_.parts[i].lossNumbers();
    run.predictions = operands.source;
    run.labels = operands.secondary;
    run.weights = problem_.weights.channels > 0 ? operands.parameters[0] : nullptr;
    run.gradient = operands.destination;
    run.loss = operands.parameters[1];
    run.sums = reinterpret_cast<double*>(operands.scratch);
    run.counts = run.sums + layout_.shares();
    mtl::cpu::asCpu(stream).parallelFor(layout_.tiles, Tiling::grain,
                                        [&](std::int64_t begin, std::int64_t end) {
                                          HWY_DYNAMIC_DISPATCH(runTiles)(run, begin, end);
                                        });
    if (!run.perElement()) storeLosses(run);
  }

 private:
  void storeLosses(const YOLORun& run) const {
    double total = 0;
    double totalCount = 0;
    const auto quotient = [&](double sum, double count) {
      const double by = problem_.countsWeights() ? count : problem_.divisor();
      return by == 0 ? 0.0F : static_cast<float>(sum / by);
    };
    for (std::int64_t n = 0; n < layout_.images; ++n) {
      double sum = 0;
      double count = 0;
      const std::int64_t firstCell = n * layout_.cellsOfImage;
      const std::int64_t lastCell = firstCell + layout_.cellsOfImage - 1;
      for (std::int64_t t = firstCell / layout_.cellsOfTile; t <= lastCell / layout_.cellsOfTile; ++t) {
        const std::int64_t share = YOLOLayout::share(t, n);
        sum += run.sums[share];
        if (problem_.countsWeights()) count += run.counts[share];
      }
      total += sum;
      totalCount += count;
      fillLoss(run, n, problem_.reduceAcrossBatch ? 0.0F : quotient(sum, count));
    }
    if (problem_.reduceAcrossBatch && layout_.images > 0) fillLoss(run, 0, quotient(total, totalCount));
  }

  /// The first element gets the value, the others 0.
  void fillLoss(const YOLORun& run, std::int64_t image, float value) const {
    const TensorShape& shape = problem_.loss;
    withElementType(shape.format, [&](auto element) {
      auto* const to = reinterpret_cast<decltype(element)*>(run.loss);
      for (std::int64_t y = 0; y < shape.height; ++y)
        for (std::int64_t x = 0; x < shape.width; ++x)
          for (std::int64_t c = 0; c < shape.channels; ++c)
            storeFloat(y == 0 && x == 0 && c == 0 ? value : 0.0F, to + shape.offset(image, y, x, c));
    });
  }

  YOLOLossProblem problem_;
  YOLOLayout layout_;
};

Preparation prepareTiles(const YOLOLossProblem& problem) {
  return std::make_shared<const TilesPlan>(problem);
}

constexpr Implementation<YOLOLossProblem> kImplementations[] = {{"tiles", prepareTiles}};

}  // namespace

std::span<const Implementation<YOLOLossProblem>> yoloLossImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail

#endif  // HWY_ONCE
