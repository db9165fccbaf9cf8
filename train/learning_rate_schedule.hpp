#pragma once

#include <cstdint>
#include <string_view>

namespace unmetal::train {

/// The learning rate of each training step, a function of the step alone, so that a resumed run goes on
/// alike.
///
/// | name | rate at step t of T |
/// |---|---|
/// | `constant` | r |
/// | `step` | r before T/2, r/10 before 3T/4, r/100 from there on |
/// | `cosine` | r (1 + cos(pi t / T)) / 2: from r down to almost 0 |
///
/// Steps from T on have the rate that t = T gives.
class LearningRateSchedule {
 public:
  /// @param name        one of the table
  /// @param initialRate r, finite and above 0
  /// @param totalSteps  T, steps of all epochs together, at least 1
  /// Throws mps::Error when one is not so.
  LearningRateSchedule(std::string_view name, double initialRate, std::uint64_t totalSteps);

  double rateAt(std::uint64_t step) const;

 private:
  enum class Kind { Constant, Step, Cosine };

  Kind kind_;
  double initialRate_;
  std::uint64_t totalSteps_;
};

}  // namespace unmetal::train
