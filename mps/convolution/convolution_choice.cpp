#include "mps/convolution/convolution_choice.hpp"

#include <limits>
#include <utility>

#include "mps/convolution/convolution_plan_file.hpp"
#include "mps/core/types/error.hpp"

namespace mps::detail {
namespace {

thread_local KeepCandidates* keeper = nullptr;

std::shared_ptr<const Plan> namedPlan(ConvolutionCandidates& candidates, const std::string& problem,
                                      const ConvolutionPlanFile& file, const ConvolutionChoice& choice) {
  std::shared_ptr<const Plan> chosen;
  candidates.find([&](std::int64_t number) { return number == choice.candidate; },
                  [&](std::int64_t, std::shared_ptr<const Plan> plan) {
                    chosen = std::move(plan);
                    return false;
                  });
  if (chosen && chosen->describe() == choice.engine) return chosen;
  throw Error("the plan file " + file.name + " names candidate " + std::to_string(choice.candidate) + ", " +
              choice.engine + ", for the " + problem + ", which " + candidates.library() + " does not offer");
}

std::shared_ptr<const Plan> measuredPlan(ConvolutionCandidates& candidates, const std::string& problem,
                                         ConvolutionTuning& tuning) {
  std::shared_ptr<const Plan> first = candidates.first();
  if (!first) return nullptr;
  ConvolutionChoice choice;
  choice.milliseconds = std::numeric_limits<double>::infinity();
  choice.firstMilliseconds = candidates.milliseconds(*first, choice.milliseconds);
  std::shared_ptr<const Plan> fastest;
  candidates.find([](std::int64_t) { return true; },
                  [&](std::int64_t number, std::shared_ptr<const Plan> plan) {
                    const double milliseconds = candidates.milliseconds(*plan, choice.milliseconds);
                    if (milliseconds < choice.milliseconds) {
                      choice.candidate = number;
                      choice.engine = plan->describe();
                      choice.milliseconds = milliseconds;
                      fastest = std::move(plan);
                    }
                    return true;
                  });
  if (!fastest) return first;
  tuning.add(candidates.device(), candidates.library(), candidates.version(), problem, std::move(choice));
  return fastest;
}

}  // namespace

KeepCandidates::KeepCandidates() {
  keeper = this;
}

KeepCandidates::~KeepCandidates() {
  keeper = nullptr;
}

KeepCandidates* KeepCandidates::current() {
  return keeper;
}

void KeepCandidates::add(ConvolutionCandidates& candidates) {
  candidates.find([](std::int64_t) { return true; },
                  [&](std::int64_t number, std::shared_ptr<const Plan> plan) {
                    candidates_.push_back({number, std::move(plan)});
                    return true;
                  });
}

std::shared_ptr<const Plan> chooseConvolutionPlan(ConvolutionCandidates& candidates,
                                                  const ConvolutionProblem& problem) {
  if (KeepCandidates* const keep = KeepCandidates::current(); keep != nullptr) keep->add(candidates);
  ConvolutionTuning* const tuning = ConvolutionTuning::current();
  const std::string words = tuning != nullptr ? problem.describe() : "";
  if (tuning != nullptr && tuning->wants(words)) return measuredPlan(candidates, words, *tuning);
  const auto file = convolutionPlansInUse();
  if (!file) return candidates.first();
  const ConvolutionChoice* const choice =
      file->choiceOf(candidates.device(), candidates.library(), candidates.version(), problem.describe());
  return choice != nullptr ? namedPlan(candidates, problem.describe(), *file, *choice) : candidates.first();
}

}  // namespace mps::detail
