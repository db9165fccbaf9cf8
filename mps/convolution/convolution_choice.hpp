#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mps/convolution/convolution_problem.hpp"

/// Which of a library's candidates computes a convolution.
namespace mps::detail {

/// What a library offers for one problem, numbered in its order.
class ConvolutionCandidates {
 public:
  using Wanted = std::function<bool(std::int64_t number)>;
  /// @return whether to go on
  using Take = std::function<bool(std::int64_t number, std::shared_ptr<const Plan> plan)>;

  virtual ~ConvolutionCandidates() = default;
  ConvolutionCandidates() = default;
  ConvolutionCandidates(const ConvolutionCandidates&) = delete;
  ConvolutionCandidates& operator=(const ConvolutionCandidates&) = delete;

  [[nodiscard]] virtual std::string device() const = 0;  ///< its model
  [[nodiscard]] virtual std::string library() const = 0;
  [[nodiscard]] virtual std::string version() const = 0;
  /// What is taken when nobody chooses, or null.
  virtual std::shared_ptr<const Plan> first() = 0;
  /// Calls take() with the candidates that may be used and are wanted, in order.
  virtual void find(const Wanted& wanted, const Take& take) = 0;
  /// Time of a run; it may be measured roughly when it is far above `best`.
  virtual double milliseconds(const Plan& plan, double best) = 0;
};

/// While alive, chooseConvolutionPlan() also makes all that a library offers, in this thread, and keeps it; for tests. There
/// is one at a time.
class KeepCandidates {
 public:
  struct Candidate {
    std::int64_t number;
    std::shared_ptr<const Plan> plan;
  };

  KeepCandidates();
  ~KeepCandidates();
  KeepCandidates(const KeepCandidates&) = delete;
  KeepCandidates& operator=(const KeepCandidates&) = delete;

  /// The one that is alive in this thread, or null.
  static KeepCandidates* current();

  void add(ConvolutionCandidates& candidates);
  /// Those that may be used, in order.
  [[nodiscard]] const std::vector<Candidate>& candidates() const { return candidates_; }

 private:
  std::vector<Candidate> candidates_;
};

/// The fastest candidate, which is noted, while a ConvolutionTuning wants the problem; else the one that the plan file
/// in use names; else the first. Null when there is none. @throws Error when the plan file is for another device or
/// version, or names a candidate that the library does not offer.
std::shared_ptr<const Plan> chooseConvolutionPlan(ConvolutionCandidates& candidates,
                                                  const ConvolutionProblem& problem);

}  // namespace mps::detail
