#include "train/training/learning_rate_finder.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "mps/core/types/error.hpp"

namespace unmetal::train {
namespace {

constexpr double smoothing = 0.9;
constexpr double mostGrowth = 4;  ///< of the smoothed loss over its lowest value
/// Where the smoothed loss has risen so far above its lowest value, rates are too large: what it does behind is luck.
constexpr double riseOfTooLarge = 1.25;

void checkRange(const LearningRateRange& range) {
  if (!(range.lowest > 0) || !(range.highest > range.lowest) || !std::isfinite(range.highest))
    throw mps::Error("findLearningRate", "range",
                     std::to_string(range.lowest) + " to " + std::to_string(range.highest),
                     "a positive rate and a larger one");
  if (range.steps < 2)
    throw mps::Error("findLearningRate", "steps", std::to_string(range.steps), "at least 2");
}

/// Follows the losses of a training.
class Curve {
 public:
  /// @return whether it is worth while to go on
  bool add(double rate, double loss) {
    average_ = smoothing * average_ + (1 - smoothing) * loss;
    const double steps = static_cast<double>(curve_.points.size()) + 1;
    const double smoothed = average_ / (1 - std::pow(smoothing, steps));
    curve_.points.push_back({rate, loss, smoothed});
    lowest_ = curve_.points.size() == 1 ? smoothed : std::min(lowest_, smoothed);
    return smoothed <= mostGrowth * lowest_;
  }
  LearningRateCurve finished() {
    const auto& points = curve_.points;
    std::size_t lowest = 0;
    for (std::size_t i = 1;
         i < points.size() && points[i].smoothed <= riseOfTooLarge * points[lowest].smoothed; ++i)
      if (points[i].smoothed < points[lowest].smoothed) lowest = i;
    if (lowest > 0) curve_.suggestion = points[lowest].learningRate / 10;
    return std::move(curve_);
  }

 private:
  LearningRateCurve curve_;
  double average_ = 0;
  double lowest_ = 0;
};

}  // namespace

LearningRateCurve findLearningRate(const Network& network, const Dataset& training,
                                   const TrainerOptions& options, const LearningRateRange& range) {
  checkRange(range);
  Curve curve;
  TrainerOptions own = options;
  own.epochs = 1;
  own.schedule = Schedule::constant();
  own.learningRate = range.lowest;
  own.keepBest = false;
  own.patience = 0;
  own.averageDecay = 0;
  own.onEpoch = nullptr;
  std::uint64_t steps = 0;
  own.onStep = [&](const StepReport& report) {
    return curve.add(report.learningRate, report.loss) && ++steps < range.steps;
  };
  const double growth = std::log(range.highest / range.lowest) / static_cast<double>(range.steps - 1);
  Trainer(network.copy(), own).runWithRates(training, range.steps, [&](std::uint64_t step) {
    return range.lowest * std::exp(growth * static_cast<double>(step));
  });
  return curve.finished();
}

}  // namespace unmetal::train
