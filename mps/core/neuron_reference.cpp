#include "mps/core/neuron_reference.hpp"

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
    case CNNNeuronType::Logarithm: {
      const double natural = std::log(a * x + b);
      return neuron.c() == -1.0F ? natural : natural / std::log(c);
    }
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
      const double v = a * x + b;
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
    case CNNNeuronType::Exponential: {
      if (neuron.c() == -1.0F) return a * std::exp(a * x + b);
      return c <= 0 ? kNaN : a * std::log(c) * std::pow(c, a * x + b);
    }
    case CNNNeuronType::Logarithm:
      return neuron.c() == -1.0F ? a / (a * x + b) : a / (std::log(c) * (a * x + b));
    case CNNNeuronType::GeLU:
      return normalDistribution(x) + x * normalDensity(x);
    default:
      break;
  }
  return kNaN;
}

}  // namespace mps::detail
