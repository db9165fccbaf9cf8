#pragma once

#include <cstdint>
#include <string>

namespace unmetal::train {

/// How the learning rate goes over a training: r is the training's rate, T the number of its steps, t a step counted from 0.
///
/// | text | made by | rate at step t |
/// |---|---|---|
/// | `constant` | constant() | r |
/// | `step` | step() | r before T/2, r/10 before 3T/4, r/100 from there on |
/// | `step:EPOCHS`, `step:EPOCHS:FACTOR` | step(epochs, factor) | r factor^floor(t / steps of so many epochs): PyTorch's StepLR; FACTOR is 0.1 |
/// | `cosine` | cosine() | r (1 + cos(pi t / T)) / 2: from r down to almost 0 |
/// | `one-cycle` | oneCycle() | along cosines from r/25 at t = 0 up to r at 0.3 T - 1 and down to r/250,000 at T - 1: PyTorch's OneCycleLR |
///
/// With a warm-up of w steps in front, step t < w has (t + 1) / w of the rate with which the schedule begins; then the schedule
/// runs, over T - w steps.
class Schedule {
 public:
  enum class Kind : std::uint8_t { Constant, Halves, Step, Cosine, OneCycle };

  /// A text of the table. @throws mps::Error for another one @{
  Schedule(const std::string& text);
  Schedule(const char* text) : Schedule(std::string(text)) {}
  /// @}
  static Schedule constant() { return Schedule(Kind::Constant); }
  static Schedule step() { return Schedule(Kind::Halves); }
  /// @param epochs above 0, not only whole ones @param factor above 0, at most 1 @throws mps::Error for others
  static Schedule step(double epochs, double factor = 0.1);
  static Schedule cosine() { return Schedule(Kind::Cosine); }
  static Schedule oneCycle() { return Schedule(Kind::OneCycle); }
  /// The same behind a linear warm-up. @param epochs at least 0, not only whole ones @throws mps::Error for others
  [[nodiscard]] Schedule withWarmup(double epochs) const;

  [[nodiscard]] Kind kind() const { return kind_; }
  /// Of Kind::Step. @{
  [[nodiscard]] double stepEpochs() const { return stepEpochs_; }
  [[nodiscard]] double factor() const { return factor_; }
  /// @}
  [[nodiscard]] double warmupEpochs() const { return warmupEpochs_; }
  /// The text that makes it, but for the warm-up.
  [[nodiscard]] std::string text() const;

  bool operator==(const Schedule&) const = default;

 private:
  explicit Schedule(Kind kind) : kind_(kind) {}

  Kind kind_;
  double stepEpochs_ = 0;
  double factor_ = 0.1;
  double warmupEpochs_ = 0;
};

}  // namespace unmetal::train
