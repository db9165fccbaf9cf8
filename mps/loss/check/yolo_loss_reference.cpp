#include "mps/loss/check/yolo_loss_reference.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace mps::detail {
namespace {

/// Roundings of what a loss is given: the overlap of two boxes has the most, each of its differences, sums and products.
constexpr std::int64_t kInputRoundings = 40;
constexpr std::int64_t kInputTranscendental = 4;
/// An exponential below 2^-126 may be 0, and has factors behind it: as a part of each factor that a rounding multiplies.
constexpr double kUnderflowInRoundings = 0x1p-102;

struct Box {
  double x, y, width, height;
};

double overlap(double centerA, double sizeA, double centerB, double sizeB) {
  const double begin = std::max(centerA - sizeA / 2, centerB - sizeB / 2);
  const double end = std::min(centerA + sizeA / 2, centerB + sizeB / 2);
  return std::max(0.0, end - begin);
}

double overUnion(const Box& a, const Box& b) {
  const double shared = overlap(a.x, a.width, b.x, b.width) * overlap(a.y, a.height, b.y, b.height);
  return shared == 0 ? 0 : shared / (a.width * a.height + b.width * b.height - shared);
}

/// What the roundings of centres and sizes make of an overlap: they count as much as these are larger than the sizes.
double overlapMagnitude(const Box& a, const Box& b) {
  const double width = std::min(a.width, b.width);
  const double height = std::min(a.height, b.height);
  return 1 + (std::abs(a.x) + std::abs(b.x) + a.width + b.width) / width +
         (std::abs(a.y) + std::abs(b.y) + a.height + b.height) / height;
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

/// By a softmax.
double probabilityOf(const std::vector<double>& values, std::size_t channel) {
  const double largest = *std::ranges::max_element(values);
  double sum = 0;
  for (const double value : values) sum += std::exp(value - largest);
  return std::exp(values[channel] - largest) / sum;
}

/// What one part of one anchor of one cell is given.
struct PartInputs {
  std::vector<double> values, targets;
  double factor = 0;           ///< scale, where it counts
  double targetMagnitude = 0;  ///< beside |target|: what its roundings are relative to
};

class YOLOEvaluation {
 public:
  YOLOEvaluation(const YOLOLossProblem& problem, const ReferenceTensor& predictions,
                 const ReferenceTensor& labels, const ReferenceTensor& weights)
      : problem_(problem), predictions_(predictions), labels_(labels), weights_(weights) {
    const bool perElement = problem.reductionType == CNNReductionType::None;
    outputs_.gradient =
        ReferenceTensor(predictions.images, predictions.height, predictions.width, predictions.channels);
    const TensorShape& loss = problem.loss;
    outputs_.loss = perElement ? outputs_.gradient
                               : ReferenceTensor(predictions.images, loss.height, loss.width, loss.channels);
    for (ReferenceTensor* tensor : {&outputs_.gradient, &outputs_.loss}) {
      tensor->magnitude.assign(tensor->values.size(), 0);
      tensor->roundings = kInputRoundings;
      tensor->transcendental = kInputTranscendental;
    }
    if (!perElement) outputs_.loss.roundings += kFloat32Additions;
  }

  YOLOLossOutputs run() {
    std::vector<double> counts(static_cast<std::size_t>(predictions_.images));
    for (std::int64_t n = 0; n < predictions_.images; ++n)
      for (std::int64_t y = 0; y < predictions_.height; ++y)
        for (std::int64_t x = 0; x < predictions_.width; ++x) {
          for (std::int64_t a = 0; a < problem_.anchors(); ++a) evaluate(n, y, x, a);
          for (std::int64_t c = 0; c < predictions_.channels; ++c)
            if (weight(n, y, x, c) != 0) ++counts[static_cast<std::size_t>(n)];
        }
    if (problem_.reductionType != CNNReductionType::None) reduce(counts);
    return std::move(outputs_);
  }

 private:
  [[nodiscard]] double weight(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c) const {
    return weights_.values.empty() ? 1 : weights_.at(n, y, x, c);
  }
  [[nodiscard]] double anchorSize(std::int64_t a, std::int64_t axis) const {
    return static_cast<double>(problem_.anchorBoxes[static_cast<std::size_t>(2 * a + axis)]);
  }
  [[nodiscard]] double overlapWithAnchor(std::int64_t n, std::int64_t y, std::int64_t x,
                                         std::int64_t a) const {
    const std::int64_t first = a * problem_.channelsPerAnchor();
    const double width = labels_.at(n, y, x, first + 2);
    const double height = labels_.at(n, y, x, first + 3);
    if (width <= 0 || height <= 0) return 0;
    return overUnion({0, 0, width, height}, {0, 0, anchorSize(a, 0), anchorSize(a, 1)});
  }

  void evaluate(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t a) {
    const std::int64_t first = a * problem_.channelsPerAnchor();
    const auto raw = [&](std::int64_t c) { return predictions_.at(n, y, x, first + c); };
    const auto label = [&](std::int64_t c) { return labels_.at(n, y, x, first + c); };
    double best = 0;
    for (std::int64_t other = 0; other < problem_.anchors(); ++other)
      best = std::max(best, overlapWithAnchor(n, y, x, other));
    const double own = overlapWithAnchor(n, y, x, a);
    const bool isObject =
        label(4) == 1 && (own == best || own > static_cast<double>(problem_.minIOUForObjectPresence));
    const bool isNoObject = !isObject && own < static_cast<double>(problem_.maxIOUForObjectAbsence);

    PartInputs parts[kYOLOLossParts];
    const Box found{sigmoid(raw(0)), sigmoid(raw(1)), anchorSize(a, 0) * std::exp(raw(2)),
                    anchorSize(a, 1) * std::exp(raw(3))};
    const Box truth{label(0), label(1), label(2), label(3)};
    if (isObject) {
      parts[0] = {{found.x, found.y}, {truth.x, truth.y}, static_cast<double>(problem_.scaleXY), 0};
      const auto size = [&](double labelled, std::int64_t axis) {
        return std::log(labelled / anchorSize(a, axis) + static_cast<double>(1e-5F));
      };
      parts[1] = {{raw(2), raw(3)},
                  {size(truth.width, 0), size(truth.height, 1)},
                  static_cast<double>(problem_.scaleWH),
                  1};
      parts[3].factor = static_cast<double>(problem_.scaleClass);
      for (std::int64_t k = 0; k < problem_.channelsOf(3); ++k) {
        parts[3].values.push_back(raw(5 + k));
        parts[3].targets.push_back(label(5 + k));
      }
    }
    const double scale = isObject     ? static_cast<double>(problem_.scaleObject)
                         : isNoObject ? static_cast<double>(problem_.scaleNoObject)
                                      : 0;
    const bool rescores = isObject && problem_.rescore;
    parts[2] = {{raw(4)},
                {rescores   ? overUnion(found, truth)
                 : isObject ? 1.0
                            : 0.0},
                scale,
                rescores ? overlapMagnitude(found, truth) : 0};
    for (std::size_t part = 0; part < kYOLOLossParts; ++part)
      if (parts[part].factor != 0 && !parts[part].values.empty()) add(n, y, x, a, part, parts[part]);
  }

  /// One part by the reference of CNNLoss.
  void add(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t a, std::size_t part,
           const PartInputs& given) {
    const YOLOLossPart& numbers = problem_.parts[part];
    const auto channels = static_cast<std::int64_t>(given.values.size());
    const std::int64_t first = a * problem_.channelsPerAnchor() + YOLOLossProblem::firstChannelOf(part);
    LossProblem loss;
    loss.lossType = numbers.type;
    loss.reductionType = CNNReductionType::None;
    loss.exactSoftMaxGradient = numbers.exactSoftMaxGradient;
    loss.numberOfClasses = numbers.numberOfClasses;
    loss.countedChannels = channels;
    if (numbers.type == CNNLossType::SoftMaxCrossEntropy && numbers.numberOfClasses > 1)
      loss.countedChannels = std::min(channels, numbers.numberOfClasses);
    loss.predictions = loss.labels = TensorShape::dense(1, 1, 1, channels);
    // Both are rounded before the loss is computed, as unorm codes are.
    loss.predictions.format = loss.labels.format = ImageFeatureChannelFormat::Unorm8;
    LossInputs inputs;
    inputs.predictions = inputs.labels = inputs.weights = ReferenceTensor(1, 1, 1, channels);
    inputs.predictions.values = given.values;
    inputs.labels.values = given.targets;
    for (std::int64_t i = 0; i < channels; ++i)
      inputs.weights.values[static_cast<std::size_t>(i)] = given.factor * weight(n, y, x, first + i);
    inputs.weight = static_cast<double>(numbers.weight);
    inputs.labelSmoothing = static_cast<double>(numbers.labelSmoothing);
    inputs.epsilon = static_cast<double>(numbers.epsilon);
    inputs.delta = static_cast<double>(numbers.delta);
    const LossOutputs computed = lossReference(loss, inputs);
    // Each exact gradient of a softmax has the labels of all channels, with their own weights.
    const bool isExactSoftMax =
        numbers.exactSoftMaxGradient && numbers.type == CNNLossType::SoftMaxCrossEntropy;
    double ofAllTargets = 0;
    for (const double own : inputs.weights.values)
      ofAllTargets += std::abs(inputs.weight * own) * given.targetMagnitude;
    for (std::int64_t i = 0; i < channels; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double p = given.values[at];
      const double chain = part == 0 ? p * (1 - p) : 1;
      const std::size_t to = outputs_.gradient.index(n, y, x, first + i);
      // Of the losses' second derivatives none is above 2.
      const double factor = std::abs(inputs.weight * inputs.weights.values[at]);
      const double ofTarget = factor * (2 * given.targetMagnitude + kUnderflowInRoundings);
      const double ofOthers = isExactSoftMax ? ofAllTargets * probabilityOf(given.values, at) : 0;
      outputs_.gradient.values[to] = computed.gradient.values[at] * chain;
      outputs_.gradient.magnitude[to] =
          (computed.gradient.magnitude[at] + ofTarget + ofOthers) * std::abs(chain);
      const std::size_t sum =
          problem_.reductionType == CNNReductionType::None ? to : outputs_.loss.index(n, 0, 0, 0);
      outputs_.loss.values[sum] += computed.loss.values[at];
      outputs_.loss.magnitude[sum] += computed.loss.magnitude[at] +
                                      std::abs(computed.labelGradient.values[at]) * given.targetMagnitude +
                                      ofTarget;
      for (ReferenceTensor* tensor : {&outputs_.gradient, &outputs_.loss})
        tensor->roundings = std::max(tensor->roundings, kInputRoundings + computed.loss.roundings);
      if (problem_.reductionType != CNNReductionType::None)
        outputs_.loss.roundings =
            std::max(outputs_.loss.roundings, kInputRoundings + kFloat32Additions + computed.loss.roundings);
    }
  }

  void reduce(const std::vector<double>& counts) {
    ReferenceTensor& loss = outputs_.loss;
    double total = 0;
    for (const double count : counts) total += count;
    const auto elements =
        static_cast<double>(predictions_.height * predictions_.width * predictions_.channels);
    const auto first = [&](std::size_t image) {
      return loss.index(static_cast<std::int64_t>(image), 0, 0, 0);
    };
    const auto divide = [&](std::size_t image, double count, double images) {
      const std::size_t i = first(image);
      double by = 1;
      if (problem_.reductionType == CNNReductionType::Mean) by = elements * images;
      if (problem_.reductionType == CNNReductionType::SumByNonZeroWeights) by = count;
      loss.values[i] = by == 0 ? 0 : loss.values[i] / by;
      loss.magnitude[i] = by == 0 ? 0 : loss.magnitude[i] / by;
    };
    if (!problem_.reduceAcrossBatch) {
      for (std::size_t i = 0; i < counts.size(); ++i) divide(i, counts[i], 1);
      return;
    }
    for (std::size_t i = 1; i < counts.size(); ++i) {
      loss.values[0] += std::exchange(loss.values[first(i)], 0);
      loss.magnitude[0] += std::exchange(loss.magnitude[first(i)], 0);
    }
    divide(0, total, static_cast<double>(counts.size()));
  }

  const YOLOLossProblem& problem_;
  const ReferenceTensor& predictions_;
  const ReferenceTensor& labels_;
  const ReferenceTensor& weights_;
  YOLOLossOutputs outputs_;
};

}  // namespace

YOLOLossOutputs yoloLossReference(const YOLOLossProblem& problem, const ReferenceTensor& predictions,
                                  const ReferenceTensor& labels, const ReferenceTensor& weights) {
  return YOLOEvaluation(problem, predictions, labels, weights).run();
}

}  // namespace mps::detail
