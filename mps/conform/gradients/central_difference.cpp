#include "mps/conform/gradients/central_difference.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <unordered_set>

#include "mps/conform/tolerance.hpp"
#include "mps/core/types/text_stream.hpp"

namespace mps::detail {
namespace {

constexpr std::array kSteps{1e-4, 1e-5, 1e-6, 1e-7};
constexpr std::size_t kTriesPerElement = 4;

/// The derivative, or nothing next to a kink. @param scale what errors are relative to
std::optional<double> derivative(const std::function<double(double)>& change, double x, double scale) {
  for (const double step : kSteps) {
    const double h = step * std::max(1.0, std::abs(x));
    const double forward = change(h);
    const double backward = change(-h);
    const double halfForward = change(h / 2);
    const double halfBackward = change(-h / 2);
    const double first = (forward - backward) / (2 * h);
    const double halfFirst = (halfForward - halfBackward) / h;
    // In a smooth function the second one shrinks with the step; a kink at any distance below h disturbs one
    // of the two.
    const double second = (forward + backward) / h;
    const double halfSecond = 2 * (halfForward + halfBackward) / h;
    const double disturbance = std::max(std::abs(first - halfFirst), std::abs(second - 2 * halfSecond));
    if (disturbance <= kDerivativeTolerance * scale / 2) return halfFirst;
  }
  return std::nullopt;
}

/// Elements to look at, each once.
class Selection {
 public:
  Selection(const std::vector<double>& gradient, std::mt19937_64& random)
      : gradient_(gradient), random_(random) {}

  std::optional<std::size_t> next() {
    if (taken_.size() == gradient_.size()) return std::nullopt;
    constexpr int tries = 64;
    const bool wantsNonZero = taken_.size() % 2 == 0;
    std::size_t i = taken_.empty() ? largest() : drawn();
    for (int n = 0; n < tries && (taken_.contains(i) || (wantsNonZero && gradient_[i] == 0)); ++n)
      i = drawn();
    while (taken_.contains(i)) i = (i + 1) % gradient_.size();
    taken_.insert(i);
    return i;
  }

 private:
  [[nodiscard]] std::size_t largest() const {
    const auto less = [](double a, double b) { return std::abs(a) < std::abs(b); };
    return static_cast<std::size_t>(std::max_element(gradient_.begin(), gradient_.end(), less) -
                                    gradient_.begin());
  }
  std::size_t drawn() { return random_() % gradient_.size(); }

  const std::vector<double>& gradient_;
  std::mt19937_64& random_;
  std::unordered_set<std::size_t> taken_;
};

std::string describeElement(const ReferenceTensor& tensor, std::size_t i) {
  auto rest = static_cast<std::int64_t>(i);
  const std::int64_t channel = rest % tensor.channels;
  rest /= tensor.channels;
  const std::int64_t x = rest % tensor.width;
  rest /= tensor.width;
  return "image " + std::to_string(rest / tensor.height) + ", y " + std::to_string(rest % tensor.height) +
         ", x " + std::to_string(x) + ", channel " + std::to_string(channel);
}

}  // namespace

DerivativeComparison compareDerivative(const ReferenceTensor& gradient, const std::vector<double>& at,
                                       const Change& change, std::size_t elements, std::mt19937_64& random) {
  DerivativeComparison comparison;
  double largest = 0;
  for (std::size_t i = 0; i < gradient.values.size(); ++i)
    largest =
        std::max(largest, gradient.magnitude.empty() ? std::abs(gradient.values[i]) : gradient.magnitude[i]);
  Selection selection(gradient.values, random);
  const std::size_t most = kTriesPerElement * elements;
  for (std::size_t n = 0; n < most && comparison.elements < static_cast<std::int64_t>(elements); ++n) {
    const auto i = selection.next();
    if (!i) break;
    const double expected = gradient.values[*i];
    const double scale = std::max(std::abs(expected), kDerivativeFloor * largest);
    const auto found = derivative([&](double h) { return change(*i, h); }, at[*i], scale);
    if (!found) {
      ++comparison.skipped;
      continue;
    }
    ++comparison.elements;
    const double error = std::abs(*found - expected);
    const double relative = error == 0 ? 0 : error / scale;
    if (!(relative <= comparison.worst)) comparison.worst = relative;
    if (relative <= kDerivativeTolerance || !comparison.report.empty()) continue;
    TextStream text;
    text.precision(9);
    text << "  " << describeElement(gradient, *i) << ": the gradient is " << expected
         << ", central differences give " << *found << '\n';
    comparison.report = text.str();
  }
  if (comparison.elements == 0)
    comparison.report = "  every element that was tried lies next to a tie or a kink: give other inputs\n";
  return comparison;
}

}  // namespace mps::detail
