#include <cmath>

#include "mps/neuron/neuron.hpp"
#include "onnx/export/step.hpp"

/// Functions of each value.
namespace unmetal::onnx::detail {
namespace {

/// a x + b
std::string addLine(const Step& step, const std::string& value, const mps::NNNeuronDescriptor& neuron) {
  return step.shifted(step.scaled(value, neuron.a()), neuron.b());
}

std::string addReLU(const Step& step, const std::string& value, float slope) {
  return slope == 0 ? step.add("Relu", {value}) : step.add("LeakyRelu", {value}, {{"alpha", slope}});
}

std::string addReLUN(const Step& step, const std::string& value, const mps::NNNeuronDescriptor& neuron) {
  if (neuron.a() == 0 && neuron.b() >= 0)
    return step.add(
        "Clip", {value, step.model.constant("minimum", 0.0F), step.model.constant("maximum", neuron.b())});
  return step.add("Min", {addReLU(step, value, neuron.a()), step.model.constant("maximum", neuron.b())});
}

std::string addPReLU(const Step& step, const std::string& value, const mps::NNNeuronDescriptor& neuron,
                     std::int64_t channels) {
  neuron.check(step.name, "descriptor", static_cast<std::size_t>(channels));
  const auto slopes = neuron.data().first(static_cast<std::size_t>(channels));
  return step.add("PRelu",
                  {value, step.model.constant("slope", {channels, 1, 1}, {slopes.begin(), slopes.end()})});
}

/// Base -1 means e.
std::string addExponential(const Step& step, const std::string& value,
                           const mps::NNNeuronDescriptor& neuron) {
  const std::string exponent = addLine(step, value, neuron);
  if (neuron.c() == -1) return step.add("Exp", {exponent});
  return step.add("Pow", {step.model.constant("base", neuron.c()), exponent});
}

std::string addLogarithm(const Step& step, const std::string& value, const mps::NNNeuronDescriptor& neuron) {
  const std::string logarithm = step.add("Log", {addLine(step, value, neuron)});
  return neuron.c() == -1 ? logarithm : step.scaled(logarithm, 1 / std::log(neuron.c()));
}

/// 0.5 x (1 + erf(x sqrt(0.5))): the operator Gelu is younger than the operator set.
std::string addGeLU(const Step& step, const std::string& value) {
  const std::string error = step.add("Erf", {step.scaled(value, std::sqrt(0.5F))});
  return step.add("Mul", {step.scaled(value, 0.5F), step.shifted(error, 1)});
}

}  // namespace

std::string addNeuron(const Step& step, const std::string& value, const mps::NNNeuronDescriptor& neuron,
                      std::int64_t channels) {
  using enum mps::CNNNeuronType;
  switch (neuron.neuronType()) {
    case None:
      return value;
    case ReLU:
      return addReLU(step, value, neuron.a());
    case Linear:
      return addLine(step, value, neuron);
    case Sigmoid:
      return step.add("Sigmoid", {value});
    case HardSigmoid:
      return step.add("HardSigmoid", {value}, {{"alpha", neuron.a()}, {"beta", neuron.b()}});
    case TanH:
      return step.scaled(step.add("Tanh", {step.scaled(value, neuron.b())}), neuron.a());
    case Absolute:
      return step.add("Abs", {value});
    case SoftPlus:
      return step.scaled(step.add("Softplus", {step.scaled(value, neuron.b())}), neuron.a());
    case SoftSign:
      return step.add("Softsign", {value});
    case ELU:
      return step.add("Elu", {value}, {{"alpha", neuron.a()}});
    case PReLU:
      return addPReLU(step, value, neuron, channels);
    case ReLUN:
      return addReLUN(step, value, neuron);
    case Power:
      return step.add("Pow", {addLine(step, value, neuron), step.model.constant("exponent", neuron.c())});
    case Exponential:
      return addExponential(step, value, neuron);
    case Logarithm:
      return addLogarithm(step, value, neuron);
    case GeLU:
    case Count:
      break;
  }
  return addGeLU(step, value);
}

std::optional<std::string> translateNeuron(const Step& step) {
  const auto* neuron = step.as<mps::CNNNeuron>();
  if (neuron == nullptr) return std::nullopt;
  const Picture source = step.pointwiseSource(*neuron);
  return addNeuron(step, source.value, neuron->descriptor(), source.channels);
}

}  // namespace unmetal::onnx::detail
