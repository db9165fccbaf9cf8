#include "mps/optimizer/check/optimizer_reference.hpp"

#include <cmath>

namespace mps::detail {
namespace {

constexpr std::int64_t kRoundings = 16;

/// A number and the sum of the absolute values of the terms that it was made of.
struct Term {
  double value = 0;
  double magnitude = 0;
};

Term at(const ReferenceTensor& tensor, std::size_t i) {
  return tensor.values.empty() ? Term() : Term{tensor.values[i], std::abs(tensor.values[i])};
}

void set(ReferenceTensor& tensor, std::size_t i, const Term& term) {
  if (tensor.values.empty()) return;
  tensor.values[i] = term.value;
  tensor.magnitude[i] = term.magnitude;
}

Term scaled(double factor, const Term& term) {
  return {factor * term.value, std::abs(factor) * term.magnitude};
}
Term sum(const Term& a, const Term& b) {
  return {a.value + b.value, a.magnitude + b.magnitude};
}
Term difference(const Term& a, const Term& b) {
  return {a.value - b.value, a.magnitude + b.magnitude};
}
/// An error of a counts twice in its square.
Term square(const Term& a) {
  return {a.value * a.value, 2 * a.magnitude * a.magnitude};
}

/// a / (sqrt(b) + epsilon)
Term quotient(const Term& a, const Term& b, double epsilon) {
  const double denominator = std::sqrt(b.value) + epsilon;
  const double growth = b.value == 0 ? 1 : b.magnitude / std::abs(b.value);
  const double value = a.value / denominator;
  return {value, (a.magnitude + std::abs(a.value) * growth) / std::abs(denominator)};
}

double sign(double x) {
  if (x > 0) return 1;
  return x < 0 ? -1 : 0;
}

Term prepareGradient(const OptimizerRule& rule, const OptimizerNumbers& numbers, double gradient,
                     double value) {
  double g = gradient;
  if (rule.applyGradientClipping) {
    if (g < numbers.gradientClipMin) g = numbers.gradientClipMin;
    if (g > numbers.gradientClipMax) g = numbers.gradientClipMax;
  }
  g = g * numbers.gradientRescale;
  double regularization = 0;
  if (rule.regularizationType == NNRegularizationType::L1)
    regularization = numbers.regularizationScale * sign(value);
  if (rule.regularizationType == NNRegularizationType::L2)
    regularization = numbers.regularizationScale * value;
  return {g + regularization, std::abs(g) + std::abs(regularization)};
}

/// The value to begin with: decoupled weight decay.
Term decayed(const OptimizerRule& rule, const OptimizerNumbers& numbers, const Term& value) {
  if (rule.regularizationType != NNRegularizationType::Decoupled) return value;
  return difference(value, scaled(numbers.regularizationScale, value));
}

struct Element {
  Term value;
  Term momentum;
  Term velocity;
  Term maximumVelocity;
};

Element update(OptimizerKind kind, const OptimizerNumbers& n, const Term& g, Element e) {
  switch (kind) {
    case OptimizerKind::SGD:
      e.value = difference(e.value, scaled(n.learningRate, g));
      break;
    case OptimizerKind::SGDMomentum:
      e.momentum = sum(scaled(n.decay, e.momentum), scaled(n.learningRate, g));
      e.value = difference(e.value, e.momentum);
      break;
    case OptimizerKind::SGDNesterov:
      e.momentum = sum(scaled(n.decay, e.momentum), g);
      e.value = difference(e.value, scaled(n.learningRate, sum(g, scaled(n.decay, e.momentum))));
      break;
    case OptimizerKind::RMSProp:
      e.velocity = sum(scaled(n.decay, e.velocity), scaled(1 - n.decay, square(g)));
      e.value = difference(e.value, scaled(n.learningRate, quotient(g, e.velocity, n.epsilon)));
      break;
    case OptimizerKind::Adam:
    case OptimizerKind::AMSGrad: {
      e.momentum = sum(scaled(n.decay, e.momentum), scaled(1 - n.decay, g));
      e.velocity = sum(scaled(n.beta2, e.velocity), scaled(1 - n.beta2, square(g)));
      if (!(e.maximumVelocity.value > e.velocity.value)) e.maximumVelocity = e.velocity;
      const Term& root = kind == OptimizerKind::Adam ? e.velocity : e.maximumVelocity;
      e.value = difference(e.value, scaled(n.learningRate, quotient(e.momentum, root, n.epsilon)));
      break;
    }
  }
  return e;
}

}  // namespace

OptimizerReferenceTensors optimizerReference(const OptimizerRule& rule, const OptimizerNumbers& numbers,
                                             const OptimizerReferenceTensors& before) {
  OptimizerReferenceTensors after = before;
  for (ReferenceTensor* tensor : {&after.values, &after.momentum, &after.velocity, &after.maximumVelocity}) {
    tensor->magnitude.assign(tensor->values.size(), 0);
    tensor->roundings = kRoundings;
  }
  for (std::size_t i = 0; i < before.values.values.size(); ++i) {
    const Term g = prepareGradient(rule, numbers, before.gradient.values[i], before.values.values[i]);
    const Element element = update(rule.kind, numbers, g,
                                   {decayed(rule, numbers, at(before.values, i)), at(before.momentum, i),
                                    at(before.velocity, i), at(before.maximumVelocity, i)});
    set(after.values, i, element.value);
    set(after.momentum, i, element.momentum);
    set(after.velocity, i, element.velocity);
    set(after.maximumVelocity, i, element.maximumVelocity);
  }
  return after;
}

}  // namespace mps::detail
