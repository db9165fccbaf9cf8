#pragma once

#include <cstdint>

#include "train/training/schedule.hpp"

namespace unmetal::train {

/// The learning rate of each step of one training, as Schedule says: a function of the step alone, so that a resumed run goes
/// on alike. Steps from the end on have the rate that the end gives.
class LearningRateSchedule {
 public:
  /// @param initialRate   r, finite and above 0
  /// @param stepsPerEpoch at least 1
  /// @param epochs        at least 1, and more than the warm-up has
  /// @throws mps::Error when one is not so
  LearningRateSchedule(const Schedule& schedule, double initialRate, std::uint64_t stepsPerEpoch,
                       std::uint64_t epochs);

  [[nodiscard]] double rateAt(std::uint64_t step) const;

 private:
  [[nodiscard]] double rateAfterWarmup(std::uint64_t step) const;
  [[nodiscard]] double oneCycle(double step) const;

  Schedule schedule_;
  double initialRate_;
  double stepsPerEpoch_;
  std::uint64_t warmupSteps_;
  std::uint64_t steps_;  ///< without the warm-up
};

}  // namespace unmetal::train
