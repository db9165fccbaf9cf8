#include "train/learning_rate_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "mps/core/error.hpp"

namespace unmetal::train {

LearningRateSchedule::LearningRateSchedule(std::string_view name, double initialRate,
                                           std::uint64_t totalSteps)
    : kind_(Kind::Constant), initialRate_(initialRate), totalSteps_(totalSteps) {
  if (name == "step") {
    kind_ = Kind::Step;
  } else if (name == "cosine") {
    kind_ = Kind::Cosine;
  } else if (name != "constant") {
    throw mps::Error("the learning rate schedule is \"" + std::string(name) +
                     "\", expected constant, step or cosine");
  }
  if (!std::isfinite(initialRate) || initialRate <= 0) {
    throw mps::Error("the learning rate is " + std::to_string(initialRate) + ", expected a number above 0");
  }
  if (totalSteps == 0) throw mps::Error("the learning rate schedule has 0 steps, expected at least 1");
}

double LearningRateSchedule::rateAt(std::uint64_t step) const {
  const double progress = static_cast<double>(std::min(step, totalSteps_)) / static_cast<double>(totalSteps_);
  switch (kind_) {
    case Kind::Constant:
      return initialRate_;
    case Kind::Step:
      return progress < 0.5 ? initialRate_ : initialRate_ / (progress < 0.75 ? 10 : 100);
    case Kind::Cosine:
      return initialRate_ * (1 + std::cos(std::numbers::pi * progress)) / 2;
  }
  return initialRate_;
}

}  // namespace unmetal::train
