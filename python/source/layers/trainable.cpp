#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mps/trainable/trainable_batch_normalization.hpp"
#include "mps/trainable/trainable_convolution.hpp"
#include "mps/trainable/trainable_image_normalization.hpp"
#include "mps/trainable/trainable_layer.hpp"
#include "mps/weights/safetensors.hpp"
#include "python/source/arrays/arrays.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {
namespace {

using mps::AdamForm;
using mps::TrainableBatchNormalization;
using mps::TrainableConvolution;
using mps::TrainableGroupNormalization;
using mps::TrainableInstanceNormalization;
using Device = std::shared_ptr<mtl::Device>;
using Optimizer = std::shared_ptr<mps::NNOptimizer>;
using FloatView = nb::ndarray<nb::numpy, const float>;

/// The host's view of values that live on the device; it keeps the layer alive.
template <class Layer>
FloatView viewOf(Layer& self, std::span<const float> values, const std::vector<std::size_t>& shape) {
  return {values.data(), shape.size(), shape.data(), nb::find(self)};
}
template <class Layer>
FloatView viewOf(Layer& self, std::span<const float> values) {
  return viewOf(self, values, std::vector<std::size_t>{values.size()});
}

constexpr const char* viewDocumentation =
    "A view of the device's values, read only: synchronize() and wait first.";

template <class Class, class Getter>
void bindView(Class& layer, const char* name, Getter getter, const char* documentation) {
  layer.def_prop_ro(name, getter, nb::rv_policy::reference, documentation);
}

/// What all of them have.
template <class Layer, class Class>
void bindLayer(Class& layer) {
  readOnly(
      layer, "label", [](const Layer& self) { return self.label(); },
      "Name of the layer, and of its tensors in files.");
  readOnly(
      layer, "optimizer", [](const Layer& self) { return self.optimizer(); },
      "The layer's own, e.g. to set the learning rate; None without one.");
  property(
      layer, "is_frozen", [](const Layer& self) { return self.isFrozen(); },
      [](Layer& self, bool frozen) { self.setFrozen(frozen); }, "A frozen layer is not updated. False.");
  layer
      .def(
          "synchronize",
          [](Layer& self, const CommandBufferPointer& commandBuffer) { self.synchronize(commandBuffer); },
          "command_buffer"_a, "Records the copies that make all values and the optimiser state readable.")
      .def(
          "tensors",
          [](const nb::handle self, bool withOptimizerState) {
            nb::dict tensors;
            for (const mps::SafetensorsTensor& tensor :
                 nb::cast<const Layer&>(self).tensors(withOptimizerState)) {
              const std::vector<std::size_t> shape(tensor.shape.begin(), tensor.shape.end());
              tensors[nb::cast(tensor.name)] = nb::ndarray<nb::numpy, nb::ro>(
                  tensor.bytes.data(), shape.size(), shape.data(), self, nullptr, elementType(tensor.type));
            }
            return tensors;
          },
          "with_optimizer_state"_a = false,
          "A dictionary of arrays named \"<label>.weight\" and so on, and with the optimiser state also "
          "that, for "
          "write_safetensors: views of the device's values, so synchronize() and wait first.")
      .def(
          "read",
          [](Layer& self, const mps::SafetensorsFile& file, bool withOptimizerState) {
            self.read(file, withOptimizerState);
          },
          "file"_a, "with_optimizer_state"_a = false,
          "Takes the values of such tensors. No work may be in flight. Raises Error when one is missing or "
          "has another "
          "shape; nothing has changed then.")
      .def(
          "read_from_pytorch",
          [](Layer& self, const mps::SafetensorsFile& file) { self.readFromPyTorch(file); }, "file"_a,
          "The same from a file with PyTorch's shapes: a convolution's weights are [out][in / groups][kernel "
          "row][kernel "
          "column], or [out][in * kernel row * kernel column] as of a Linear.")
      .def_static("decode", &Layer::decode, "coder"_a, "device"_a.none() = nb::none(),
                  "The layer that encode(coder) wrote: values, optimiser and its state.");
}

void bindEnumerations(nb::module_& module) {
  nb::enum_<AdamForm>(module, "AdamForm", "What a layer's Adam does with the squares of its gradients.")
      .value("Adam", AdamForm::Adam)
      .value("AMSGrad", AdamForm::AMSGrad, "Divides by the root of the largest velocity so far.");
  nb::enum_<mps::WeightInitialization>(
      module, "WeightInitialization",
      "How the weights of a layer start. fan_in: weights that a result sums over, fan_out: "
      "weights that a source value goes into.")
      .value("He", mps::WeightInitialization::He, "Uniform in +-sqrt(6 / fan_in).")
      .value("Glorot", mps::WeightInitialization::Glorot, "Uniform in +-sqrt(6 / (fan_in + fan_out)).")
      .value("Constant", mps::WeightInitialization::Constant, "All weights 0.01.");
  nb::enum_<mps::LayerBiases>(module, "LayerBiases", "Whether a layer has biases.")
      .value("Trained", mps::LayerBiases::Trained, "One per output channel.")
      .value("None_", mps::LayerBiases::None);
}

void bindFilters(nb::module_& module) {
  nb::class_<TrainableConvolution, mps::CNNConvolutionDataSource> layer(
      module, "TrainableConvolution",
      "The ready-made data source of convolution and fully connected layers: weights and optimiser on the "
      "device, updated in "
      "place by recorded work; kernels use its buffers without copies.\n\n"
      "    shape = unmetal.CNNConvolutionDescriptor(5, 5, 1, 32)\n"
      "    adam = unmetal.NNOptimizerAdam(device, 1e-3)\n"
      "    layer = unmetal.TrainableConvolution(device, shape, \"conv1\", seed=1, optimizer=adam)\n"
      "    node = unmetal.CNNConvolutionNode(source, layer)");
  layer.def(nb::new_(&TrainableConvolution::create), "device"_a, "descriptor"_a, "label"_a, "seed"_a,
            "optimizer"_a.none() = nb::none(), "initialization"_a = mps::WeightInitialization::He,
            "adam_form"_a = AdamForm::Adam, "biases"_a = mps::LayerBiases::Trained, Released(),
            "Biases start at 0. `seed`: of the initial weights; give each layer another one. `optimizer`: "
            "copied; None: the "
            "layer is never updated. Raises Error for a wrong descriptor, an optimizer that is not SGD, "
            "RMSProp or Adam, "
            "AMSGrad with another one than Adam.");
  readOnly(layer, "descriptor", &TrainableConvolution::descriptor, "Shape of the layer.");
  readOnly(layer, "data_type", &TrainableConvolution::dataType, "Float32.");
  bindView(
      layer, "weights",
      [](TrainableConvolution& self) {
        const auto shape = self.descriptor();
        const std::size_t taps = shape.kernelHeight() * shape.kernelWidth();
        const std::span<const std::byte> bytes = self.weights();
        return viewOf(self, {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)},
                      {shape.outputFeatureChannels(), shape.kernelHeight(), shape.kernelWidth(),
                       shape.weightsPerOutputChannel() / taps});
      },
      "[out][kernel row][kernel column][in / groups]. A view of the device's values, read only: "
      "synchronize() and wait "
      "first.");
  bindView(
      layer, "bias_terms", [](TrainableConvolution& self) { return viewOf(self, self.biasTerms()); },
      "One per output channel, or none. A view of the device's values, read only: synchronize() and wait "
      "first.");
  layer.attr("constant_weight") = TrainableConvolution::constantWeight;
  readOnly(layer, "adam_form", &TrainableConvolution::adamForm, "What Adam does with the squares.");
  bindLayer<TrainableConvolution>(layer);
}

template <class Layer, class Class>
void bindNormalization(Class& layer) {
  readOnly(
      layer, "number_of_feature_channels", [](const Layer& self) { return self.numberOfFeatureChannels(); },
      "Channels of the images.");
  readOnly(
      layer, "epsilon", [](const Layer& self) { return self.epsilon(); }, "Added to the variance.");
  bindView(
      layer, "gamma", [](Layer& self) { return viewOf(self, self.gamma()); }, viewDocumentation);
  bindView(
      layer, "beta", [](Layer& self) { return viewOf(self, self.beta()); }, viewDocumentation);
  bindLayer<Layer>(layer);
}

void bindNormalizations(nb::module_& module) {
  nb::class_<TrainableBatchNormalization, mps::CNNBatchNormalizationDataSource> batch(
      module, "TrainableBatchNormalization",
      "The ready-made data source of batch normalisation: gamma, beta, running statistics and optimiser on "
      "the device, "
      "updated in place by recorded work. Each update moves the running statistics towards those of the "
      "batch:\n\n"
      "    running = running + (1 - momentum) (batch - running)");
  batch.def(
      nb::new_(&TrainableBatchNormalization::create), "device"_a, "number_of_feature_channels"_a, "label"_a,
      "optimizer"_a.none() = nb::none(), "momentum"_a = TrainableBatchNormalization::defaultMomentum,
      "epsilon"_a = TrainableBatchNormalization::defaultEpsilon, "adam_form"_a = AdamForm::Adam, Released(),
      "gamma starts at 1, beta at 0, the running mean at 0 and the running variance at 1. `optimizer`: of "
      "gamma and beta, "
      "copied; None: they are never updated. `momentum`: 0 (the last batch's statistics) to 1 (never "
      "updated).");
  bindNormalization<TrainableBatchNormalization>(batch);
  bindView(
      batch, "mean", [](TrainableBatchNormalization& self) { return viewOf(self, self.mean()); },
      viewDocumentation);
  bindView(
      batch, "variance", [](TrainableBatchNormalization& self) { return viewOf(self, self.variance()); },
      viewDocumentation);
  batch.attr("default_momentum") = TrainableBatchNormalization::defaultMomentum;
  batch.attr("default_epsilon") = TrainableBatchNormalization::defaultEpsilon;
  readOnly(batch, "momentum", &TrainableBatchNormalization::momentum, "Share of the old running statistics.");

  nb::class_<TrainableInstanceNormalization, mps::CNNInstanceNormalizationDataSource> instance(
      module, "TrainableInstanceNormalization",
      "The ready-made data source of instance normalisation: gamma, beta and optimiser on the device, "
      "updated in place.");
  instance.def(nb::new_(&TrainableInstanceNormalization::create), "device"_a, "number_of_feature_channels"_a,
               "label"_a, "optimizer"_a.none() = nb::none(),
               "epsilon"_a = TrainableInstanceNormalization::defaultEpsilon, "adam_form"_a = AdamForm::Adam,
               Released(),
               "gamma starts at 1, beta at 0. `optimizer`: copied; None: they are never updated.");
  bindNormalization<TrainableInstanceNormalization>(instance);

  nb::class_<TrainableGroupNormalization, mps::CNNGroupNormalizationDataSource> group(
      module, "TrainableGroupNormalization",
      "The ready-made data source of group normalisation: gamma, beta and optimiser on the device, updated "
      "in place.");
  group.def(nb::new_(&TrainableGroupNormalization::create), "device"_a, "number_of_feature_channels"_a,
            "number_of_groups"_a, "label"_a, "optimizer"_a.none() = nb::none(),
            "epsilon"_a = TrainableGroupNormalization::defaultEpsilon, "adam_form"_a = AdamForm::Adam,
            Released(),
            "gamma starts at 1, beta at 0. Raises Error also when the groups do not divide the channels.");
  readOnly(group, "number_of_groups", &TrainableGroupNormalization::numberOfGroups,
           "Groups of adjacent channels that have mean and variance in common.");
  bindNormalization<TrainableGroupNormalization>(group);
}

}  // namespace

void bindTrainable(nb::module_& module) {
  module.def(
      "add_trainable_decoders", &mps::addTrainableDecoders, "coder"_a,
      "Lets a coder find the ready-made data sources, when a kernel that has one is decoded by itself. "
      "NNGraph.decode does it.");
  bindEnumerations(module);
  bindFilters(module);
  bindNormalizations(module);
}

}  // namespace python
