#include "mps/core/neuron/neuron_reference.hpp"

#include <cmath>
#include <limits>
#include <numbers>

namespace mps::detail {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double slope(const NNNeuronDescriptor& neuron, std::int64_t channel) {
  return neuron.neuronType() == CNNNeuronType::PReLU ? neuron.data()[static_cast<std::size_t>(channel)]
                                                     : neuron.a();
}

/// slope * x for negative x; a zero slope gives -0 also for an infinite x.
double negativeSide(double slope, double x) {
  if (std::isnan(x)) return x;
  return slope == 0 ? -slope : slope * x;
}

/// ln of the base of Exponential and Logarithm, where c = -1 stands for e; NaN for a negative base.
double naturalLogOfBase(const NNNeuronDescriptor& neuron) {
  return neuron.c() == -1.0F ? 1 : std::log(static_cast<double>(neuron.c()));
}

/// Exponential with a base that is zero or negative, but for the -1 that stands for e.
bool hasNoDerivative(const NNNeuronDescriptor& neuron) {
  return !(neuron.c() > 0 || neuron.c() == -1.0F);
}

/// Absolute terms of the argument a x + b that can be off by a rounding.
double argumentMagnitude(const NNNeuronDescriptor& neuron, double x) {
  if (neuron.a() == 1.0F && neuron.b() == 0.0F) return 0;
  return std::abs(static_cast<double>(neuron.a()) * x) + std::abs(static_cast<double>(neuron.b()));
}

double sigmoid(double x) {
  const double e = std::exp(-std::abs(x));
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

double normalDistribution(double x) {
  return 0.5 * std::erfc(-x * std::numbers::sqrt2 / 2);
}

double normalDensity(double x) {
  return std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2;
}

}  // namespace

double neuronValue(const NNNeuronDescriptor& neuron, double x, std::int64_t channel) {
  const double a = neuron.a();
  const double b = neuron.b();
  const double c = neuron.c();
  switch (neuron.neuronType()) {
    case CNNNeuronType::None:
      return x;
    case CNNNeuronType::ReLU:
    case CNNNeuronType::PReLU:
      return x >= 0 ? x + 0.0 : negativeSide(slope(neuron, channel), x);
    case CNNNeuronType::Linear:
      return a * x + b;
    case CNNNeuronType::Sigmoid:
      return std::isnan(x) ? x : sigmoid(x);
    case CNNNeuronType::HardSigmoid: {
      const double v = a * x + b;
      if (v < 0) return 0;
      return v > 1 ? 1 : v;
    }
    case CNNNeuronType::TanH:
      return a * std::tanh(b * x);
    case CNNNeuronType::Absolute:
      return std::abs(x);
    case CNNNeuronType::SoftPlus: {
      const double v = b * x;
      return a * ((v < 0 ? 0 : v) + std::log1p(std::exp(-std::abs(v))));
    }
    case CNNNeuronType::SoftSign:
      return x / (1 + std::abs(x));
    case CNNNeuronType::ELU:
      return x >= 0 ? x + 0.0 : a * std::expm1(x);
    case CNNNeuronType::ReLUN: {
      const double v = x >= 0 ? x + 0.0 : negativeSide(a, x);
      return v > b ? b : v;
    }
    case CNNNeuronType::Power:
      return std::pow(a * x + b, c);
    case CNNNeuronType::Exponential:
      return neuron.c() == -1.0F ? std::exp(a * x + b) : std::pow(c, a * x + b);
    case CNNNeuronType::Logarithm:
      return std::log(a * x + b) / naturalLogOfBase(neuron);
    case CNNNeuronType::GeLU:
      return x * normalDistribution(x);
    case CNNNeuronType::Count:
      break;
  }
  return kNaN;
}

double neuronDerivative(const NNNeuronDescriptor& neuron, double x, std::int64_t channel) {
  const double a = neuron.a();
  const double b = neuron.b();
  const double c = neuron.c();
  switch (neuron.neuronType()) {
    case CNNNeuronType::None:
      return 1;
    case CNNNeuronType::Linear:
      return a;
    case CNNNeuronType::Power:
      return c == 0 ? 0 : a * c * std::pow(a * x + b, c - 1);
    default:
      break;
  }
  if (std::isnan(x)) return x;
  switch (neuron.neuronType()) {
    case CNNNeuronType::ReLU:
    case CNNNeuronType::PReLU:
      return x >= 0 ? 1 : slope(neuron, channel);
    case CNNNeuronType::Sigmoid: {
      const double e = std::exp(-std::abs(x));
      return e / ((1 + e) * (1 + e));
    }
    case CNNNeuronType::HardSigmoid: {
      // Product and sum as float32: with a = 0.2 and b = 0.5, x = 2.5 and x = -2.5 lie on the bounds,
      // although the stored a is above 0.2.
      const auto product = static_cast<float>(a * x);
      const float v = product + neuron.b();
      return v >= 0 && v <= 1 ? a : 0;
    }
    case CNNNeuronType::TanH: {
      const double hyperbolicCosine = std::cosh(b * x);
      return a * b / (hyperbolicCosine * hyperbolicCosine);
    }
    case CNNNeuronType::Absolute:
      return x > 0 ? 1 : (x < 0 ? -1 : 0);
    case CNNNeuronType::SoftPlus:
      return a * b * sigmoid(b * x);
    case CNNNeuronType::SoftSign:
      return 1 / ((1 + std::abs(x)) * (1 + std::abs(x)));
    case CNNNeuronType::ELU:
      return x >= 0 ? 1 : a * std::exp(x);
    case CNNNeuronType::ReLUN: {
      const double v = x >= 0 ? x : negativeSide(a, x);
      if (v >= b) return 0;
      return x >= 0 ? 1 : a;
    }
    case CNNNeuronType::Exponential:
      return hasNoDerivative(neuron) ? kNaN : a * naturalLogOfBase(neuron) * neuronValue(neuron, x);
    case CNNNeuronType::Logarithm:
      return a / (naturalLogOfBase(neuron) * (a * x + b));
    case CNNNeuronType::GeLU:
      return normalDistribution(x) + x * normalDensity(x);
    default:
      break;
  }
  return kNaN;
}

double neuronDerivativeFromResult(const NNNeuronDescriptor& neuron, double y, std::int64_t channel) {
  const double a = neuron.a();
  const double b = neuron.b();
  switch (neuron.neuronType()) {
    case CNNNeuronType::None:
      return 1;
    case CNNNeuronType::Linear:
      return a;
    default:
      break;
  }
  if (std::isnan(y)) return y;
  switch (neuron.neuronType()) {
    case CNNNeuronType::ReLU:
    case CNNNeuronType::PReLU:
      return std::signbit(y) ? slope(neuron, channel) : 1;
    case CNNNeuronType::ReLUN:
      if (y >= b) return 0;
      return std::signbit(y) ? a : 1;
    case CNNNeuronType::ELU:
      return std::signbit(y) ? y + a : 1;
    case CNNNeuronType::Sigmoid:
      return y * (1 - y);
    case CNNNeuronType::TanH:
      return a * b * (1 - y / a * (y / a));
    case CNNNeuronType::SoftPlus:
      return -a * b * std::expm1(-y / a);
    case CNNNeuronType::SoftSign:
      return (1 - std::abs(y)) * (1 - std::abs(y));
    case CNNNeuronType::Exponential:
      return hasNoDerivative(neuron) ? kNaN : a * naturalLogOfBase(neuron) * y;
    default:
      return kNaN;
  }
}

NeuronBound neuronValueBound(const NNNeuronDescriptor& neuron, double x, std::int64_t channel) {
  const double value = std::abs(neuronValue(neuron, x, channel));
  const double a = neuron.a();
  const double b = neuron.b();
  const double c = neuron.c();
  switch (neuron.neuronType()) {
    case CNNNeuronType::Linear:
    case CNNNeuronType::HardSigmoid:
      return {std::abs(a * x) + std::abs(b), 2, 0};
    case CNNNeuronType::Sigmoid:
      return {value, 2, 1};
    case CNNNeuronType::TanH:
      return {value + std::abs(neuronDerivative(neuron, x) * x), 3, 1};
    case CNNNeuronType::SoftPlus:
      return {value + std::abs(neuronDerivative(neuron, x) * x), 4, 2};
    case CNNNeuronType::SoftSign:
      return {value, 2, 0};
    case CNNNeuronType::ELU:
      return {value, 1, 1};
    case CNNNeuronType::Power:
      return {value + std::abs(c * std::pow(a * x + b, c - 1)) * argumentMagnitude(neuron, x), 2, 1};
    case CNNNeuronType::Exponential:
      return {value * (1 + std::abs(naturalLogOfBase(neuron)) * argumentMagnitude(neuron, x)), 2, 1};
    case CNNNeuronType::Logarithm:
      return {value + std::abs(argumentMagnitude(neuron, x) / ((a * x + b) * naturalLogOfBase(neuron))), 4,
              1};
    case CNNNeuronType::GeLU:
      return {value, 1, 2};
    default:
      return {value, 2, 0};  // a product, and the scale of a store to a unorm format
  }
}

NeuronBound neuronDerivativeBound(const NNNeuronDescriptor& neuron, double x, std::int64_t channel) {
  const double value = std::abs(neuronDerivative(neuron, x, channel));
  const double a = neuron.a();
  const double b = neuron.b();
  const double c = neuron.c();
  switch (neuron.neuronType()) {
    case CNNNeuronType::Sigmoid:
      return {value, 4, 1};
    case CNNNeuronType::TanH:
      return {value * (1 + 2 * std::abs(b * x)), 8, 1};
    case CNNNeuronType::SoftPlus:
      return {value * (1 + std::abs(b * x)), 5, 1};
    case CNNNeuronType::SoftSign:
      return {value, 5, 0};
    case CNNNeuronType::ELU:
      return {value, 1, 1};
    case CNNNeuronType::Power: {
      const double u = a * x + b;
      const double exponentRounded = std::abs(std::log(std::abs(u)) * (c - 1));
      const double argumentRounded = std::abs((c - 1) / u) * argumentMagnitude(neuron, x);
      return {value * (1 + exponentRounded + argumentRounded), 4, 1};
    }
    case CNNNeuronType::Exponential:
      return {value * (1 + std::abs(naturalLogOfBase(neuron)) * argumentMagnitude(neuron, x)), 5, 1};
    case CNNNeuronType::Logarithm:
      return {value * (1 + std::abs(argumentMagnitude(neuron, x) / (a * x + b))), 5, 0};
    case CNNNeuronType::GeLU:
      return {normalDistribution(x) + std::abs(x * normalDensity(x)), 2, 2};
    default:
      return {value, 0, 0};
  }
}

NeuronBound neuronDerivativeFromResultBound(const NNNeuronDescriptor& neuron, double y,
                                            std::int64_t channel) {
  const double value = std::abs(neuronDerivativeFromResult(neuron, y, channel));
  const double a = neuron.a();
  const double b = neuron.b();
  switch (neuron.neuronType()) {
    case CNNNeuronType::Sigmoid:
      return {std::abs(y) * (1 + std::abs(y)), 2, 0};
    case CNNNeuronType::TanH:
      return {std::abs(a * b) * (1 + y / a * (y / a)), 8, 0};
    case CNNNeuronType::SoftPlus:
      return {value + std::abs(b * y) * std::exp(-y / a), 5, 1};
    case CNNNeuronType::SoftSign:
      return {value, 4, 0};
    case CNNNeuronType::ELU:
      return {value, 2, 0};  // a product, and the scale of a store to a unorm format
    case CNNNeuronType::Exponential:
      return {value, 4, 0};
    default:
      return {value, 0, 0};
  }
}

}  // namespace mps::detail
