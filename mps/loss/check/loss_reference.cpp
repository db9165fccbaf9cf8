#include "mps/loss/check/loss_reference.hpp"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace mps::detail {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kElementRoundings = 12;

/// A number and the sum of the absolute values of the terms that it was made of.
struct Term {
  double value = 0;
  double magnitude = 0;
};

/// Loss of one element, its derivative by the prediction and by the label.
struct Element {
  Term loss;
  Term gradient;
  Term labelGradient;
};

/// Prediction and label of one element.
struct Inputs {
  double y;
  double t;
  double smoothed;           ///< t'
  double smoothedMagnitude;  ///< of the two terms of t'
  /// A unorm code is a quotient that float32 rounds: |y| and |t| where that is so, else 0.
  double yRounded;
  double tRounded;

  /// Of the rounding of y - t, beside |y - t|.
  [[nodiscard]] double differenceRounded() const { return yRounded + tRounded; }
};

/// Factor of t in t'.
double smoothingScale(const LossInputs& inputs) {
  return inputs.labelSmoothing > 0 ? 1 - inputs.labelSmoothing : 1;
}

/// Share of the label that smoothing gives to each class.
double smoothingOffset(const LossProblem& problem, const LossInputs& inputs) {
  if (!(inputs.labelSmoothing > 0)) return 0;
  if (problem.lossType == CNNLossType::SigmoidCrossEntropy) return 0.5 * inputs.labelSmoothing;
  return inputs.labelSmoothing / static_cast<double>(problem.numberOfClasses);
}

double sign(double x) {
  if (x > 0) return 1;
  return x < 0 ? -1 : x;
}

Element meanAbsoluteError(const Inputs& in) {
  const double y = in.y;
  const double t = in.t;
  const double m = std::abs(y) + std::abs(t);
  return {{std::abs(y - t), m}, {sign(y - t), 1}, {-sign(y - t), 1}};
}

Element meanSquaredError(const Inputs& in) {
  const double x = in.y - in.t;
  // The rounding of x counts twice in its square.
  const double m = 2 * (std::abs(x) + in.differenceRounded());
  return {{x * x, std::abs(x) * m}, {2 * x, m}, {-2 * x, m}};
}

Element sigmoidCrossEntropy(const Inputs& in, double labelScale) {
  const double y = in.y;
  const double e = std::exp(-std::abs(y));
  const double sigmoid = y >= 0 ? 1 / (1 + e) : e / (1 + e);
  const double positive = y < 0 ? 0 : y;
  const double tail = std::log1p(e);
  return {{positive - y * in.smoothed + tail, positive + std::abs(y) * in.smoothedMagnitude + 2 * tail},
          {sigmoid - in.smoothed, sigmoid + in.smoothedMagnitude},
          {-y * labelScale, std::abs(y * labelScale)}};
}

Element categoricalCrossEntropy(const Inputs& in) {
  const double y = in.y;
  const double t = in.t;
  const double log = y < 0 ? kNaN : std::log(y);
  const double m = std::abs(log) + (in.yRounded > 0 ? 1 : 0);
  const Term labelGradient{-log, m};
  if (t == 0) return {{}, {}, labelGradient};
  return {{-t * log, std::abs(t) * m}, {-t / y, std::abs(t / y)}, labelGradient};
}

Element hinge(double y, double t) {
  const double s = 2 * t - 1;
  const double margin = 1 - s * y;
  const double m = 1 + (std::abs(2 * t) + 1) * std::abs(y);
  const bool inside = s * y < 1;
  return {{margin <= 0 ? 0 : margin, m},
          {inside ? -s : 0, std::abs(2 * t) + 1},
          {inside ? -2 * y : 0, 2 * std::abs(y)}};
}

Element huber(const Inputs& in, double delta) {
  const double x = in.y - in.t;
  const double a = std::abs(x);
  double slope = x;
  if (x > delta) slope = delta;
  if (x < -delta) slope = -delta;
  const double loss = a <= delta ? 0.5 * x * x : 0.5 * delta * delta + delta * (a - delta);
  const double slopeMagnitude = std::abs(slope) + in.differenceRounded();
  const double m = a <= delta ? loss : 0.5 * delta * delta + delta * (a + delta);
  return {{loss, m + std::abs(slope) * in.differenceRounded()},
          {slope, slopeMagnitude},
          {-slope, slopeMagnitude}};
}

Element cosineDistance(double y, double t) {
  return {{y * t, std::abs(y * t)}, {-t, std::abs(t)}, {-y, std::abs(y)}};
}

Element logLoss(double y, double t, double epsilon) {
  const double u = y + epsilon;
  const double v = 1 - y + epsilon;
  const double logU = u < 0 ? kNaN : std::log(u);
  const double logV = v < 0 ? kNaN : std::log(v);
  // How much the roundings of the two sums grow when they cancel.
  const double growthU = (std::abs(y) + epsilon) / std::abs(u);
  const double growthV = (1 + std::abs(y) + epsilon) / std::abs(v);
  const double magnitudeU = std::abs(logU) + growthU;
  const double magnitudeV = std::abs(logV) + growthV;
  const double otherLabel = 1 + std::abs(t);
  return {{-t * logU - (1 - t) * logV, std::abs(t) * magnitudeU + otherLabel * magnitudeV},
          {-t / u + (1 - t) / v, std::abs(t / u) * (1 + growthU) + std::abs(otherLabel / v) * (1 + growthV)},
          {-logU + logV, magnitudeU + magnitudeV}};
}

Element kullbackLeiblerDivergence(const Inputs& in) {
  const double y = in.y;
  const double t = in.t;
  const Term gradient{-t, std::abs(t)};
  if (t == 0) return {{}, gradient, {}};
  const double log = t < 0 ? kNaN : std::log(t);
  const double m = std::abs(log) + (in.tRounded > 0 ? 1 : 0) + std::abs(y);
  return {{t * (log - y), std::abs(t) * m}, gradient, {log + 1 - y, 1 + m}};
}

Element element(const LossProblem& problem, const LossInputs& inputs, const Inputs& in) {
  switch (problem.lossType) {
    case CNNLossType::MeanAbsoluteError:
      return meanAbsoluteError(in);
    case CNNLossType::MeanSquaredError:
      return meanSquaredError(in);
    case CNNLossType::SigmoidCrossEntropy:
      return sigmoidCrossEntropy(in, smoothingScale(inputs));
    case CNNLossType::CategoricalCrossEntropy:
      return categoricalCrossEntropy(in);
    case CNNLossType::Hinge:
      return hinge(in.y, in.t);
    case CNNLossType::Huber:
      return huber(in, inputs.delta);
    case CNNLossType::CosineDistance:
      return cosineDistance(in.y, in.t);
    case CNNLossType::Log:
      return logLoss(in.y, in.t, inputs.epsilon);
    case CNNLossType::KullbackLeiblerDivergence:
      return kullbackLeiblerDivergence(in);
    case CNNLossType::SoftMaxCrossEntropy:
    case CNNLossType::Count:
      break;
  }
  return {};
}

/// All channels of one pixel, which softmax mixes. The exact gradient contains w, the factors of the
/// derivatives.
std::vector<Element> softMaxCrossEntropy(const LossProblem& problem, const LossInputs& inputs,
                                         const std::vector<Inputs>& in, const std::vector<double>& w) {
  const std::size_t count = in.size();
  double largest = -std::numeric_limits<double>::infinity();
  for (const Inputs& k : in) largest = k.y > largest ? k.y : largest;
  double sum = 0;
  for (const Inputs& k : in) sum += std::exp(k.y - largest);
  // Roundings of y - largest, seen through exp, as a share of the sum.
  double spread = 0;
  for (const Inputs& k : in) {
    const double z = k.y - largest;
    if (std::isfinite(z)) spread += std::exp(z) / sum * (std::abs(z) + k.yRounded);
  }
  double weightedLabels = 0;
  double weightedMagnitude = 0;
  for (std::size_t k = 0; k < count; ++k) {
    weightedLabels += w[k] * in[k].smoothed;
    weightedMagnitude += std::abs(w[k]) * in[k].smoothedMagnitude;
  }
  std::vector<Element> result(count);
  for (std::size_t k = 0; k < count; ++k) {
    const double z = in[k].y - largest;
    const double logSoftMax = z - std::log(sum);
    const double zMagnitude = std::abs(z) + in[k].yRounded;
    const double logMagnitude = zMagnitude + std::abs(std::log(sum)) + 1 + spread;
    const double p = std::exp(z) / sum;
    const double pMagnitude = p == 0 ? 0 : p * (1 + zMagnitude + spread);
    const double t = in[k].smoothed;
    const double scale = smoothingScale(inputs);
    if (t != 0) result[k].loss = {-t * logSoftMax, in[k].smoothedMagnitude * logMagnitude};
    result[k].gradient = {p - t, pMagnitude + in[k].smoothedMagnitude};
    if (problem.exactSoftMaxGradient) {
      result[k].gradient = {p * weightedLabels - w[k] * t,
                            pMagnitude * weightedMagnitude + std::abs(w[k]) * in[k].smoothedMagnitude};
    }
    result[k].labelGradient = {-logSoftMax * scale, logMagnitude * std::abs(scale)};
  }
  return result;
}

/// Number of terms that a reduction divides by.
double divisor(const LossProblem& problem, double elements, double nonZeroWeights) {
  switch (problem.reductionType) {
    case CNNReductionType::Mean:
      return problem.lossType == CNNLossType::SoftMaxCrossEntropy
                 ? elements / static_cast<double>(problem.countedChannels)
                 : elements;
    case CNNReductionType::SumByNonZeroWeights:
      return nonZeroWeights;
    default:
      return 1;
  }
}

/// The loops over a batch.
class Evaluation {
 public:
  Evaluation(const LossProblem& problem, const LossInputs& inputs)
      : problem_(problem),
        inputs_(inputs),
        images_(inputs.predictions.images),
        height_(inputs.predictions.height),
        width_(inputs.predictions.width) {}

  LossOutputs run() {
    prepareOutputs();
    countWeights();
    for (std::int64_t n = 0; n < images_; ++n)
      for (std::int64_t y = 0; y < height_; ++y)
        for (std::int64_t x = 0; x < width_; ++x) pixel(n, y, x);
    if (!perElement()) reduce();
    return std::move(outputs_);
  }

 private:
  [[nodiscard]] bool perElement() const { return problem_.reductionType == CNNReductionType::None; }

  void prepareOutputs() {
    const auto& p = inputs_.predictions;
    outputs_.gradient = outputs_.labelGradient = ReferenceTensor(images_, height_, width_, p.channels);
    outputs_.loss = perElement() ? ReferenceTensor(images_, height_, width_, p.channels)
                                 : ReferenceTensor(images_, 1, 1, 1);
    const bool softMax = problem_.lossType == CNNLossType::SoftMaxCrossEntropy;
    for (ReferenceTensor* tensor : {&outputs_.gradient, &outputs_.labelGradient, &outputs_.loss}) {
      tensor->magnitude.assign(tensor->values.size(), 0);
      tensor->roundings = kElementRoundings + (softMax ? problem_.countedChannels : 0);
      tensor->transcendental = 2;
    }
    if (!perElement()) outputs_.loss.roundings += kFloat32Additions;
    sums_.assign(static_cast<std::size_t>(images_), {});
  }

  [[nodiscard]] bool leftOut(std::int64_t n, std::int64_t y, std::int64_t x) const {
    return problem_.labelKind != LossLabels::Dense &&
           inputs_.labels.at(n, y, x, 0) >= static_cast<double>(problem_.countedChannels);
  }

  [[nodiscard]] double elementWeight(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t k) const {
    if (leftOut(n, y, x)) return 0;
    if (inputs_.weights.values.empty()) return 1;
    return inputs_.weights.at(n, y, x, inputs_.weights.channels == 1 ? 0 : k);
  }

  [[nodiscard]] double label(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t k) const {
    if (problem_.labelKind == LossLabels::Dense) return inputs_.labels.at(n, y, x, k);
    return inputs_.labels.at(n, y, x, 0) == static_cast<double>(k) ? 1 : 0;
  }

  void countWeights() {
    nonZeroWeights_.assign(static_cast<std::size_t>(images_), 0);
    for (std::int64_t n = 0; n < images_; ++n)
      for (std::int64_t y = 0; y < height_; ++y)
        for (std::int64_t x = 0; x < width_; ++x)
          for (std::int64_t k = 0; k < problem_.countedChannels; ++k)
            if (elementWeight(n, y, x, k) != 0) {
              nonZeroWeights_[static_cast<std::size_t>(n)] += 1;
              batchNonZeroWeights_ += 1;
            }
  }

  /// The divisor of image n's loss, or of the batch's.
  [[nodiscard]] double divisorOf(std::int64_t n) const {
    const auto elements = static_cast<double>(height_ * width_ * problem_.countedChannels);
    if (problem_.reduceAcrossBatch)
      return divisor(problem_, elements * static_cast<double>(images_), batchNonZeroWeights_);
    return divisor(problem_, elements, nonZeroWeights_[static_cast<std::size_t>(n)]);
  }

  /// What the derivative of element k is multiplied with, beside its own weight.
  [[nodiscard]] double factor(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t k) const {
    const auto& g = inputs_.sourceGradient;
    if (perElement()) return inputs_.weight * (g.values.empty() ? 1 : g.at(n, y, x, k));
    const double incoming = g.values.empty() ? 1 : g.at(problem_.reduceAcrossBatch ? 0 : n, 0, 0, 0);
    const double d = problem_.divideGradient ? divisorOf(n) : 1;
    return d == 0 ? 0 : inputs_.weight * incoming / d;
  }

  [[nodiscard]] Inputs inputsOf(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t k) const {
    const double t = label(n, y, x, k);
    const double scale = smoothingScale(inputs_);
    const double offset = smoothingOffset(problem_, inputs_);
    const double prediction = inputs_.predictions.at(n, y, x, k);
    const auto rounded = [](const TensorShape& shape, double value) {
      const auto format = shape.format;
      return format == ImageFeatureChannelFormat::Unorm8 || format == ImageFeatureChannelFormat::Unorm16
                 ? std::abs(value)
                 : 0;
    };
    return {prediction,
            t,
            t * scale + offset,
            std::abs(t * scale) + offset,
            rounded(problem_.predictions, prediction),
            rounded(problem_.labels, t)};
  }

  void pixel(std::int64_t n, std::int64_t y, std::int64_t x) {
    if (leftOut(n, y, x)) return;
    const auto count = static_cast<std::size_t>(problem_.countedChannels);
    std::vector<Inputs> in(count);
    std::vector<double> w(count);
    std::vector<double> incoming(count);  // weights and incoming gradients
    for (std::size_t k = 0; k < count; ++k) {
      in[k] = inputsOf(n, y, x, static_cast<std::int64_t>(k));
      w[k] = elementWeight(n, y, x, static_cast<std::int64_t>(k));
      incoming[k] = w[k] * factor(n, y, x, static_cast<std::int64_t>(k));
    }
    const bool softMax = problem_.lossType == CNNLossType::SoftMaxCrossEntropy;
    std::vector<Element> elements(count);
    if (softMax) elements = softMaxCrossEntropy(problem_, inputs_, in, incoming);
    const bool weighted = softMax && problem_.exactSoftMaxGradient;  // the factors are already in it
    for (std::size_t k = 0; k < count; ++k) {
      if (!softMax) elements[k] = element(problem_, inputs_, in[k]);
      const auto channel = static_cast<std::int64_t>(k);
      const std::size_t i = outputs_.gradient.index(n, y, x, channel);
      set(outputs_.gradient, i, elements[k].gradient, weighted ? 1 : incoming[k]);
      set(outputs_.labelGradient, i, elements[k].labelGradient, incoming[k]);
      addLoss(n, i, elements[k].loss, w[k]);
    }
  }

  static void set(ReferenceTensor& tensor, std::size_t i, const Term& term, double factor) {
    tensor.values[i] = factor * term.value;
    tensor.magnitude[i] = std::abs(factor) * term.magnitude;
  }

  void addLoss(std::int64_t n, std::size_t i, const Term& term, double w) {
    if (perElement()) return set(outputs_.loss, i, term, inputs_.weight * w);
    Term& sum = sums_[static_cast<std::size_t>(n)];
    sum.value += inputs_.weight * w * term.value;
    sum.magnitude += std::abs(inputs_.weight * w) * term.magnitude;
  }

  void reduce() {
    auto& loss = outputs_.loss;
    for (std::int64_t n = 0; n < images_; ++n) {
      const std::size_t to = problem_.reduceAcrossBatch ? 0 : static_cast<std::size_t>(n);
      const Term& sum = sums_[static_cast<std::size_t>(n)];
      const bool cosine = problem_.lossType == CNNLossType::CosineDistance;
      const double d = divisorOf(n);
      loss.values[to] += d == 0 ? 0 : (cosine ? inputs_.weight - sum.value : sum.value) / d;
      loss.magnitude[to] +=
          d == 0 ? 0 : (cosine ? std::abs(inputs_.weight) + sum.magnitude : sum.magnitude) / d;
    }
  }

  const LossProblem& problem_;
  const LossInputs& inputs_;
  std::int64_t images_;
  std::int64_t height_;
  std::int64_t width_;
  LossOutputs outputs_;
  std::vector<Term> sums_;
  std::vector<double> nonZeroWeights_;
  double batchNonZeroWeights_ = 0;
};

}  // namespace

LossOutputs lossReference(const LossProblem& problem, const LossInputs& inputs) {
  return Evaluation(problem, inputs).run();
}

}  // namespace mps::detail
