#include "train/training/schedule.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "mps/core/types/error.hpp"
#include "train/text/fixed_point.hpp"

namespace unmetal::train {
namespace {

struct NamedKind {
  std::string_view name;
  Schedule::Kind kind;
};
constexpr std::array namedKinds{
    NamedKind{"constant", Schedule::Kind::Constant}, NamedKind{"step", Schedule::Kind::Halves},
    NamedKind{"cosine", Schedule::Kind::Cosine}, NamedKind{"one-cycle", Schedule::Kind::OneCycle}};

constexpr std::string_view stepPrefix = "step:";

/// Takes the number that a text begins with off it. @return whether there is one
bool takeNumber(std::string_view& text, double& number) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ec != std::errc() || !std::isfinite(number)) return false;
  text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()));
  return true;
}

mps::Error unknown(const std::string& text) {
  return mps::Error("the learning rate schedule is \"" + text +
                    "\", expected constant, step, step:EPOCHS, step:EPOCHS:FACTOR, cosine or one-cycle");
}

}  // namespace

Schedule::Schedule(const std::string& text) : kind_(Kind::Constant) {
  for (const NamedKind& named : namedKinds)
    if (text == named.name) {
      kind_ = named.kind;
      return;
    }
  std::string_view rest = text;
  if (!rest.starts_with(stepPrefix)) throw unknown(text);
  rest.remove_prefix(stepPrefix.size());
  double epochs = 0;
  double factor = 0.1;
  if (!takeNumber(rest, epochs)) throw unknown(text);
  if (rest.starts_with(':')) {
    rest.remove_prefix(1);
    if (!takeNumber(rest, factor)) throw unknown(text);
  }
  if (!rest.empty()) throw unknown(text);
  *this = step(epochs, factor);
}

Schedule Schedule::step(double epochs, double factor) {
  if (!std::isfinite(epochs) || epochs <= 0)
    throw mps::Error("Schedule", "epochs of a step", textOf(epochs), "a number above 0");
  if (!(factor > 0 && factor <= 1))
    throw mps::Error("Schedule", "factor of a step", textOf(factor), "above 0 and at most 1");
  Schedule schedule(Kind::Step);
  schedule.stepEpochs_ = epochs;
  schedule.factor_ = factor;
  return schedule;
}

Schedule Schedule::withWarmup(double epochs) const {
  if (!std::isfinite(epochs) || epochs < 0)
    throw mps::Error("Schedule", "epochs of the warm-up", textOf(epochs), "0 or more");
  Schedule schedule = *this;
  schedule.warmupEpochs_ = epochs;
  return schedule;
}

std::string Schedule::text() const {
  if (kind_ == Kind::Step) return "step:" + textOf(stepEpochs_) + ":" + textOf(factor_);
  for (const NamedKind& named : namedKinds)
    if (kind_ == named.kind) return std::string(named.name);
  return {};
}

}  // namespace unmetal::train
