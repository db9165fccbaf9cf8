#include "mps/neuron/neuron.hpp"

#include <nanobind/operators.h>

#include <cstddef>
#include <vector>

#include "mps/core/neuron/neuron_descriptor.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {
namespace {

using mps::CNNNeuronType;
using mps::NNNeuronDescriptor;
using Device = std::shared_ptr<mtl::Device>;

void bindType(nb::module_& module) {
  nb::enum_<CNNNeuronType>(module, "CNNNeuronType", "Activation functions.")
      .value("None_", CNNNeuronType::None, "x")
      .value("ReLU", CNNNeuronType::ReLU, "x if x >= 0 else a x")
      .value("Linear", CNNNeuronType::Linear, "a x + b")
      .value("Sigmoid", CNNNeuronType::Sigmoid, "1 / (1 + exp(-x))")
      .value("HardSigmoid", CNNNeuronType::HardSigmoid, "a x + b, clamped to [0, 1]")
      .value("TanH", CNNNeuronType::TanH, "a tanh(b x)")
      .value("Absolute", CNNNeuronType::Absolute, "|x|")
      .value("SoftPlus", CNNNeuronType::SoftPlus, "a ln(1 + exp(b x))")
      .value("SoftSign", CNNNeuronType::SoftSign, "x / (1 + |x|)")
      .value("ELU", CNNNeuronType::ELU, "x if x >= 0 else a (exp(x) - 1)")
      .value("PReLU", CNNNeuronType::PReLU, "x if x >= 0 else a_c x, one slope for each channel c")
      .value("ReLUN", CNNNeuronType::ReLUN, "min(x if x >= 0 else a x, b); ReLU6 is a = 0, b = 6")
      .value("Power", CNNNeuronType::Power, "(a x + b)^c")
      .value("Exponential", CNNNeuronType::Exponential, "c^(a x + b); c = -1 means base e")
      .value("Logarithm", CNNNeuronType::Logarithm, "log_c(a x + b); c = -1 means base e")
      .value("GeLU", CNNNeuronType::GeLU, "0.5 x (1 + erf(x / sqrt(2)))");
}

/// Parameters that are not given take the type's defaults.
NNNeuronDescriptor descriptorOf(CNNNeuronType type, const std::optional<float>& a,
                                const std::optional<float>& b, const std::optional<float>& c) {
  NNNeuronDescriptor descriptor = NNNeuronDescriptor::cnnNeuronDescriptor(type);
  if (a) descriptor.setA(*a);
  if (b) descriptor.setB(*b);
  if (c) descriptor.setC(*c);
  return descriptor;
}

template <class Described>
std::vector<float> slopesOf(const Described& self) {
  return {self.data().begin(), self.data().end()};
}

void bindDescriptor(nb::module_& module) {
  nb::class_<NNNeuronDescriptor> descriptor(
      module, "NNNeuronDescriptor",
      "An activation function and its parameters. A value: kernels copy it when they are made.\n\n"
      "Parameters that are not given take the documented defaults, 0 where a type has no such one: Linear a "
      "= 1, b = 0; "
      "HardSigmoid a = 0.2, b = 0.5; TanH and SoftPlus a = b = 1; ELU a = 1; ReLUN a = 1, b = 6; Power a = "
      "1, b = 0, c = 1; "
      "Exponential and Logarithm a = 1, b = 0, c = -1 (base e).");
  descriptor
      .def(nb::new_(&descriptorOf), "neuron_type"_a = CNNNeuronType::None, "a"_a.none() = nb::none(),
           "b"_a.none() = nb::none(), "c"_a.none() = nb::none(), "That function; None_ is the identity.")
      .def_static(
          "cnn_neuron_prelu_descriptor",
          [](const std::vector<float>& data) { return NNNeuronDescriptor::cnnNeuronPReLUDescriptor(data); },
          "data"_a,
          "PReLU with one slope for each channel, the first for the first channel that the kernel reads. A "
          "kernel that "
          "processes more channels than there are slopes raises Error.");
  property(descriptor, "neuron_type", &NNNeuronDescriptor::neuronType, &NNNeuronDescriptor::setNeuronType,
           "The function.");
  property(descriptor, "a", &NNNeuronDescriptor::a, &NNNeuronDescriptor::setA, "Parameter a.");
  property(descriptor, "b", &NNNeuronDescriptor::b, &NNNeuronDescriptor::setB, "Parameter b.");
  property(descriptor, "c", &NNNeuronDescriptor::c, &NNNeuronDescriptor::setC, "Parameter c.");
  property(
      descriptor, "data", &slopesOf<NNNeuronDescriptor>,
      [](NNNeuronDescriptor& self, const std::vector<float>& data) { self.setData(data); },
      "PReLU's slopes, a list; empty for the other types.");
  descriptor
      .def("is_same_function", &NNNeuronDescriptor::isSameFunction, "other"_a,
           "Whether type, slopes and the parameters that the type uses are the same.")
      .def(nb::self == nb::self)
      .def("__hash__", &NNNeuronDescriptor::hash)
      .def("encode", &NNNeuronDescriptor::encode, "coder"_a, "Writes the fields.")
      .def_static("decode", &NNNeuronDescriptor::decode, "coder"_a,
                  "What encode wrote. Raises Error for a type that does not exist.")
      .def("describe", &NNNeuronDescriptor::describe, "\"ReLU a=0.1\", \"GeLU\".")
      .def("__repr__",
           [](const NNNeuronDescriptor& self) { return "<NNNeuronDescriptor " + self.describe() + ">"; });
}

/// What forward and gradient kernel tell of their function.
template <class KernelType, class Class>
void bindFunction(Class& bound) {
  readOnly(bound, "neuron_type", &KernelType::neuronType, "The function.");
  readOnly(bound, "a", &KernelType::a, "Parameter a.");
  readOnly(bound, "b", &KernelType::b, "Parameter b.");
  readOnly(bound, "c", &KernelType::c, "Parameter c.");
  readOnly(bound, "data", &slopesOf<KernelType>, "PReLU's slopes, a list.");
  readOnly(bound, "descriptor", &KernelType::descriptor, "A copy of the descriptor.");
}

template <class KernelType>
using NeuronClass = nb::class_<KernelType, mps::CNNNeuron>;

/// Apple's older classes, one for each function.
void bindShorthands(nb::module_& module) {
  using namespace mps;
  NeuronClass<CNNNeuronLinear>(module, "CNNNeuronLinear", "a x + b.")
      .def(nb::new_(&CNNNeuronLinear::create), "device"_a, "a"_a, "b"_a);
  NeuronClass<CNNNeuronReLU>(module, "CNNNeuronReLU", "x if x >= 0 else a x.")
      .def(nb::new_(&CNNNeuronReLU::create), "device"_a, "a"_a = 0.0F);
  NeuronClass<CNNNeuronPReLU>(module, "CNNNeuronPReLU",
                              "x if x >= 0 else a_c x, one slope per channel, copied.")
      .def(nb::new_([](const Device& device, const std::vector<float>& slopes) {
             return CNNNeuronPReLU::create(device, slopes);
           }),
           "device"_a, "a"_a);
  NeuronClass<CNNNeuronSigmoid>(module, "CNNNeuronSigmoid", "1 / (1 + exp(-x)).")
      .def(nb::new_(&CNNNeuronSigmoid::create), "device"_a);
  NeuronClass<CNNNeuronHardSigmoid>(module, "CNNNeuronHardSigmoid", "a x + b, clamped to [0, 1].")
      .def(nb::new_(&CNNNeuronHardSigmoid::create), "device"_a, "a"_a, "b"_a);
  NeuronClass<CNNNeuronTanH>(module, "CNNNeuronTanH", "a tanh(b x).")
      .def(nb::new_(&CNNNeuronTanH::create), "device"_a, "a"_a = 1.0F, "b"_a = 1.0F);
  NeuronClass<CNNNeuronAbsolute>(module, "CNNNeuronAbsolute", "|x|.")
      .def(nb::new_(&CNNNeuronAbsolute::create), "device"_a);
  NeuronClass<CNNNeuronSoftPlus>(module, "CNNNeuronSoftPlus", "a ln(1 + exp(b x)).")
      .def(nb::new_(&CNNNeuronSoftPlus::create), "device"_a, "a"_a = 1.0F, "b"_a = 1.0F);
  NeuronClass<CNNNeuronSoftSign>(module, "CNNNeuronSoftSign", "x / (1 + |x|).")
      .def(nb::new_(&CNNNeuronSoftSign::create), "device"_a);
  NeuronClass<CNNNeuronELU>(module, "CNNNeuronELU", "x if x >= 0 else a (exp(x) - 1).")
      .def(nb::new_(&CNNNeuronELU::create), "device"_a, "a"_a = 1.0F);
  NeuronClass<CNNNeuronReLUN>(module, "CNNNeuronReLUN",
                              "min(x if x >= 0 else a x, b); ReLU6 is a = 0, b = 6.")
      .def(nb::new_(&CNNNeuronReLUN::create), "device"_a, "a"_a, "b"_a);
  NeuronClass<CNNNeuronPower>(module, "CNNNeuronPower", "(a x + b)^c.")
      .def(nb::new_(&CNNNeuronPower::create), "device"_a, "a"_a, "b"_a, "c"_a);
  NeuronClass<CNNNeuronExponential>(module, "CNNNeuronExponential", "c^(a x + b), base e for c = -1.")
      .def(nb::new_(&CNNNeuronExponential::create), "device"_a, "a"_a, "b"_a, "c"_a);
  NeuronClass<CNNNeuronLogarithm>(module, "CNNNeuronLogarithm", "log_c(a x + b), base e for c = -1.")
      .def(nb::new_(&CNNNeuronLogarithm::create), "device"_a, "a"_a, "b"_a, "c"_a);
}

}  // namespace

void bindNeuron(nb::module_& module) {
  bindType(module);
  bindDescriptor(module);
  auto neuron = kernelClass<mps::CNNNeuron, mps::CNNKernel>(
      module, "CNNNeuron",
      "result(x, y, c) = f(source(x, y, c)). Sources: every format; results: float16, float32. The "
      "destination may be the "
      "source.");
  neuron.def(nb::new_(&mps::CNNNeuron::create), "device"_a, "neuron_descriptor"_a,
             "Takes a copy of the descriptor. Raises Error for PReLU without slopes.");
  bindFunction<mps::CNNNeuron>(neuron);
  auto gradient = kernelClass<mps::CNNNeuronGradient, mps::CNNGradientKernel>(
      module, "CNNNeuronGradient",
      "dx = dy f'(x), x being the forward source. Gradients with respect to parameters are not computed.");
  gradient.def(nb::new_(&mps::CNNNeuronGradient::create), "device"_a, "neuron_descriptor"_a,
               "The descriptor is that of the forward kernel, else encodes raise Error.");
  bindFunction<mps::CNNNeuronGradient>(gradient);
  bindShorthands(module);
}

}  // namespace python
