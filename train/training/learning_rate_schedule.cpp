#include "train/training/learning_rate_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "mps/core/types/error.hpp"

namespace unmetal::train {
namespace {

/// From `first` to `last` along half a cosine. @param progress 0 to 1
double alongCosine(double first, double last, double progress) {
  return last + (first - last) / 2 * (1 + std::cos(std::numbers::pi * progress));
}

std::uint64_t checkedSteps(const Schedule& schedule, std::uint64_t stepsPerEpoch, std::uint64_t epochs) {
  if (stepsPerEpoch == 0 || epochs == 0)
    throw mps::Error("the learning rate schedule has 0 steps, expected at least 1");
  if (schedule.warmupEpochs() >= static_cast<double>(epochs))
    throw mps::Error("the warm-up is " + std::to_string(schedule.warmupEpochs()) +
                     " epochs, expected fewer than the training's " + std::to_string(epochs));
  return stepsPerEpoch * epochs;
}

}  // namespace

LearningRateSchedule::LearningRateSchedule(const Schedule& schedule, double initialRate,
                                           std::uint64_t stepsPerEpoch, std::uint64_t epochs)
    : schedule_(schedule),
      initialRate_(initialRate),
      stepsPerEpoch_(static_cast<double>(stepsPerEpoch)),
      warmupSteps_(0),
      steps_(checkedSteps(schedule, stepsPerEpoch, epochs)) {
  if (!std::isfinite(initialRate) || initialRate <= 0)
    throw mps::Error("the learning rate is " + std::to_string(initialRate) + ", expected a number above 0");
  const auto warmup = static_cast<std::uint64_t>(std::llround(schedule.warmupEpochs() * stepsPerEpoch_));
  warmupSteps_ = std::min(warmup, steps_ - 1);
  steps_ -= warmupSteps_;
}

double LearningRateSchedule::rateAt(std::uint64_t step) const {
  if (step >= warmupSteps_) return rateAfterWarmup(std::min(step - warmupSteps_, steps_));
  return rateAfterWarmup(0) * static_cast<double>(step + 1) / static_cast<double>(warmupSteps_);
}

double LearningRateSchedule::rateAfterWarmup(std::uint64_t step) const {
  const double progress = static_cast<double>(step) / static_cast<double>(steps_);
  switch (schedule_.kind()) {
    case Schedule::Kind::Constant:
      return initialRate_;
    case Schedule::Kind::Halves:
      return progress < 0.5 ? initialRate_ : initialRate_ / (progress < 0.75 ? 10 : 100);
    case Schedule::Kind::Step: {
      const double size = std::max(std::round(schedule_.stepEpochs() * stepsPerEpoch_), 1.0);
      return initialRate_ * std::pow(schedule_.factor(), std::floor(static_cast<double>(step) / size));
    }
    case Schedule::Kind::Cosine:
      return alongCosine(initialRate_, 0, progress);
    case Schedule::Kind::OneCycle:
      return oneCycle(static_cast<double>(std::min(step, steps_ - 1)));
  }
  return initialRate_;
}

double LearningRateSchedule::oneCycle(double step) const {
  constexpr double risingShare = 0.3;
  const double first = initialRate_ / 25;
  const double last = first / 1e4;
  const double end = static_cast<double>(steps_) - 1;
  const double peak = std::max(risingShare * static_cast<double>(steps_) - 1, 0.0);
  if (step < peak) return alongCosine(first, initialRate_, step / peak);
  return step == peak ? initialRate_ : alongCosine(initialRate_, last, (step - peak) / (end - peak));
}

}  // namespace unmetal::train
