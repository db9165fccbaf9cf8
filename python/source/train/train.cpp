#include <nanobind/ndarray.h>
#include <nanobind/stl/variant.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mps/trainable/trainable_batch_normalization.hpp"
#include "mps/trainable/trainable_convolution.hpp"
#include "mps/trainable/trainable_image_normalization.hpp"
#include "python/source/binding/bind.hpp"
#include "python/source/train/train.hpp"
#include "unmetal_train.hpp"

namespace python {
namespace {

namespace train = unmetal::train;
using train::Features;
using train::Network;
using Device = std::shared_ptr<mtl::Device>;
/// A layer with its own class, which Python knows; the base class it does not.
using AnyLayer = std::variant<
    std::shared_ptr<mps::TrainableConvolution>, std::shared_ptr<mps::TrainableBatchNormalization>,
    std::shared_ptr<mps::TrainableInstanceNormalization>, std::shared_ptr<mps::TrainableGroupNormalization>>;

AnyLayer withItsClass(const std::shared_ptr<mps::TrainableLayer>& layer) {
  if (auto convolution = std::dynamic_pointer_cast<mps::TrainableConvolution>(layer)) return convolution;
  if (auto batch = std::dynamic_pointer_cast<mps::TrainableBatchNormalization>(layer)) return batch;
  if (auto instance = std::dynamic_pointer_cast<mps::TrainableInstanceNormalization>(layer)) return instance;
  return std::dynamic_pointer_cast<mps::TrainableGroupNormalization>(layer);
}

/// An array that owns its numbers: one row for each picture.
Floats rowsOf(std::vector<float> values, std::size_t columns) {
  auto* owned = new std::vector<float>(std::move(values));
  const nb::capsule owner(owned,
                          [](void* pointer) noexcept { delete static_cast<std::vector<float>*>(pointer); });
  return Floats(owned->data(), {owned->size() / columns, columns}, owner);
}

std::vector<float> probabilitiesOf(const Network& network, const GivenArray& pictures) {
  const train::Shape shape = shapeOf(pictures, "Network");
  if (shape != network.inputShape())
    throw mps::Error("Network", "shape of a picture", describe(shape), describe(network.inputShape()));
  const std::vector<float> pixels = pixelsOf(pictures, "Network");
  const LockReleased released;
  return network.predict(pixels);
}

}  // namespace

Floats predict(const Network& network, const GivenArray& pictures) {
  return rowsOf(probabilitiesOf(network, pictures), network.outputShape().count());
}

namespace {

void bindNormalization(nb::module_& module) {
  using train::Normalization;
  nb::class_<Normalization> normalization(module, "Normalization",
                                          "(value - mean) / deviation of the values of each channel.");
  normalization.def(
      "__init__",
      [](Normalization* self, const std::vector<float>& mean, const std::vector<float>& deviation) {
        new (self) Normalization{mean, deviation};
      },
      "mean"_a, "deviation"_a, "A number for each channel; deviations are above 0.");
  readOnly(
      normalization, "mean", [](const Normalization& self) { return self.mean; }, "Of each channel.");
  readOnly(
      normalization, "deviation", [](const Normalization& self) { return self.deviation; },
      "Of each channel.");
  normalization
      .def_static("imagenet", &Normalization::imagenet, "Of ImageNet's pictures, in red, green, blue.")
      .def_static(
          "of",
          [](const train::Dataset& data) {
            const LockReleased released;
            return Normalization::of(data);
          },
          "data"_a, "Mean and standard deviation of all pixels of a data set.");
}

void bindWeightedLayers(nb::class_<Features>& features) {
  features
      .def(
          "convolution",
          [](const Features& self, std::size_t channels, std::size_t kernelSize, std::size_t stride,
             train::Padding padding, std::size_t dilation, std::size_t groups, bool biases,
             mps::WeightInitialization initialization, const std::string& label) {
            return self.convolution(channels, kernelSize,
                                    {stride, padding, dilation, groups, biases, initialization}, label);
          },
          "channels"_a, "kernel_size"_a, nb::kw_only(), "stride"_a = 1, "padding"_a = train::Padding::Same,
          "dilation"_a = 1, "groups"_a = 1, "biases"_a = true,
          "initialization"_a = mps::WeightInitialization::He, "label"_a = "",
          "With padding Same: ceil(size / stride) pixels.")
      .def(
          "transposed_convolution",
          [](const Features& self, std::size_t channels, std::size_t kernelSize, std::size_t stride,
             bool biases, mps::WeightInitialization initialization, const std::string& label) {
            return self.transposedConvolution(channels, kernelSize, {stride, biases, initialization}, label);
          },
          "channels"_a, "kernel_size"_a, nb::kw_only(), "stride"_a = 2, "biases"_a = true,
          "initialization"_a = mps::WeightInitialization::He, "label"_a = "",
          "(size - 1) * stride + kernel_size pixels.")
      .def(
          "dense",
          [](const Features& self, std::size_t channels, bool biases,
             mps::WeightInitialization initialization, const std::string& label) {
            return self.dense(channels, {biases, initialization}, label);
          },
          "channels"_a, nb::kw_only(), "biases"_a = true, "initialization"_a = mps::WeightInitialization::He,
          "label"_a = "", "Over the whole picture.")
      .def(
          "batch_normalization",
          [](const Features& self, float momentum, float epsilon, const std::string& label) {
            return self.batchNormalization({momentum, epsilon}, label);
          },
          nb::kw_only(), "momentum"_a = 0.9F, "epsilon"_a = 1e-5F, "label"_a = "",
          "momentum is the share of the running statistics that a step keeps: 1 minus PyTorch's.")
      .def("instance_normalization", &Features::instanceNormalization, nb::kw_only(), "epsilon"_a = 1e-5F,
           "label"_a = "", "Of each channel of each picture.")
      .def("group_normalization", &Features::groupNormalization, "groups"_a, nb::kw_only(),
           "epsilon"_a = 1e-5F, "label"_a = "", "groups divides the channels.");
}

void bindLayersWithoutWeights(nb::class_<Features>& features) {
  const auto activation = [&](const char* name, Features (Features::*add)(const std::string&) const,
                              const char* documentation) {
    features.def(name, add, nb::kw_only(), "label"_a = "", documentation);
  };
  activation("relu", &Features::relu, "max(x, 0).");
  activation("relu6", &Features::relu6, "min(max(x, 0), 6).");
  activation("gelu", &Features::gelu, "The exact form.");
  activation("sigmoid", &Features::sigmoid, "1 / (1 + exp(-x)).");
  activation("hard_sigmoid", &Features::hardSigmoid, "PyTorch's: clamp(x / 6 + 1 / 2, 0, 1).");
  activation("tanh", &Features::tanh, "tanh(x).");
  activation("softplus", &Features::softplus, "log(1 + exp(x)).");
  activation("softsign", &Features::softsign, "x / (1 + |x|).");
  activation("softmax", &Features::softmax, "Over the channels of each pixel.");
  activation("global_average_pool", &Features::globalAveragePool, "One pixel: the mean of each channel.");
  const auto pool =
      [&](const char* name,
          Features (Features::*add)(train::Sides, const train::PoolingOptions&, const std::string&) const,
          const char* documentation) {
        features.def(
            name,
            [add](const Features& self, std::size_t kernelSize, std::size_t stride, train::Padding padding,
                  const std::string& label) {
              return (self.*add)(kernelSize, {stride, padding}, label);
            },
            "kernel_size"_a, nb::kw_only(), "stride"_a = 0, "padding"_a = train::Padding::Valid,
            "label"_a = "", documentation);
      };
  pool("max_pool", &Features::maxPool, "A stride of 0 is the kernel's size.");
  pool("average_pool", &Features::averagePool,
       "A stride of 0 is the kernel's size. Pixels outside do not count.");
  features
      .def("leaky_relu", &Features::leakyRelu, "slope"_a = 0.01F, nb::kw_only(), "label"_a = "",
           "slope of negative values.")
      .def("elu", &Features::elu, "alpha"_a = 1.0F, nb::kw_only(), "label"_a = "",
           "x, or alpha (exp(x) - 1) below 0.")
      .def(
          "cross_channel_normalization",
          [](const Features& self, std::size_t size, float alpha, float beta, float delta,
             const std::string& label) {
            return self.crossChannelNormalization({size, alpha, beta, delta}, label);
          },
          nb::kw_only(), "size"_a = 5, "alpha"_a = 1e-4F, "beta"_a = 0.75F, "delta"_a = 2.0F, "label"_a = "",
          "Values are divided by (delta + alpha * mean of the squares of `size` channels) to the power of "
          "beta.")
      .def("dropout", &Features::dropout, "rate"_a = 0.5F, nb::kw_only(), "label"_a = "",
           "rate of the values that training sets to 0.")
      .def(
          "upsample",
          [](const Features& self, std::size_t factor, train::UpsamplingMode mode, const std::string& label) {
            return self.upsample(factor, mode, label);
          },
          "factor"_a = 2, "mode"_a = train::UpsamplingMode::Nearest, nb::kw_only(), "label"_a = "",
          "factor times as wide and high.")
      .def("add", &Features::add, "other"_a, nb::kw_only(), "label"_a = "", "The sum of both, of one shape.")
      .def(
          "__add__", [](const Features& self, const Features& other) { return self + other; }, "other"_a,
          nb::is_operator(), "The sum of both, of one shape.")
      .def("concatenate", &Features::concatenate, "other"_a, nb::kw_only(), "label"_a = "",
           "The channels of this one, then those of the other one.");
  readOnly(
      features, "shape", [](const Features& self) { return extentsOf(self.shape()); },
      "(height, width, channels).");
  readOnly(
      features, "height", [](const Features& self) { return self.height(); }, "In pixels.");
  readOnly(
      features, "width", [](const Features& self) { return self.width(); }, "In pixels.");
  readOnly(
      features, "channels", [](const Features& self) { return self.channels(); }, "Of each pixel.");
}

void bindNetwork(nb::module_& module) {
  nb::class_<Network> network(
      module, "Network",
      "A convolutional network: its layers in the order in which they were added, and their weights.");
  network.def(
      "__init__",
      [](Network* self, const Extents& pictures, std::uint64_t seed, const Device& device,
         mps::ImageFeatureChannelFormat format) {
        new (self) Network(shapeOf(pictures), {.seed = seed, .device = device, .format = format});
      },
      "pictures"_a, nb::kw_only(), "seed"_a = 0, "device"_a.none() = nb::none(),
      "format"_a = mps::ImageFeatureChannelFormat::Float32,
      "pictures: (height, width, channels). seed of weights and dropout. device None: the default one.");
  readOnly(
      network, "input", [](const Network& self) { return self.input(); }, "The pictures, to add layers to.");
  readOnly(
      network, "input_shape", [](const Network& self) { return extentsOf(self.inputShape()); },
      "(height, width, channels).");
  readOnly(
      network, "output_shape", [](const Network& self) { return extentsOf(self.outputShape()); },
      "(height, width, channels).");
  readOnly(
      network, "parameter_count", [](const Network& self) { return self.parameterCount(); },
      "Weights, biases, and what normalisations scale and add.");
  readOnly(
      network, "trainable_layers",
      [](const Network& self) {
        std::vector<AnyLayer> layers;
        for (const auto& layer : self.trainableLayers()) layers.push_back(withItsClass(layer));
        return layers;
      },
      "The layers with weights, in their order: those of the network, not copies.");
  readOnly(
      network, "labels",
      [](const Network& self) {
        std::vector<std::string> labels;
        for (const train::Layer& layer : self.layers()) labels.push_back(layer.label);
        return labels;
      },
      "Of all layers, from the pictures on.");
  network.def_prop_rw(
      "normalization", [](const Network& self) { return self.normalization(); },
      [](Network& self, const std::optional<train::Normalization>& normalization) {
        self.setNormalization(normalization);
      },
      nb::for_setter(nb::arg("normalization").none()),
      "Applied to all pictures that the network learns from and predicts, and stored in its files; or None.");
  network
      .def("summary", &Network::summary,
           "A table of layers: label and kind, shape of the result, parameters, memory, multiply-adds.")
      .def(
          "evaluate",
          [](const Network& self, const train::Dataset& data) {
            const LockReleased released;
            return self.evaluate(data);
          },
          "data"_a, "Counts what is right.")
      .def("predict", &predict, "pictures"_a,
           "The probabilities of each class, a row for each picture of an array "
           "[picture][row][column][channel], or "
           "without channels, of uint8 or float32.")
      .def(
          "make_inference_graph",
          [](const Network& self, bool softmax) {
            if (softmax) return self.makeInferenceGraph();
            return mps::NNGraph::create(
                self.device(), self.makeNodes(mps::NNImageNode::create(), train::GraphKind::Inference));
          },
          "softmax"_a = true, Released(),
          "From pictures to probabilities, or without the softmax to the results as they are.")
      .def("save", &Network::save, "path"_a, Released(),
           "Writes the layers and their weights as safetensors.")
      .def(
          "load_weights",
          [](Network& self, const std::filesystem::path& path, bool keepHead) {
            return self.loadWeights(path, keepHead ? train::Head::Own : train::Head::OfFile);
          },
          "path"_a, nb::kw_only(), "keep_head"_a = false, Released(),
          "Takes the weights of a file with the same labels and shapes. keep_head: the last layer with "
          "weights keeps its "
          "values where it does not fit; its label is returned then, else None.")
      .def("freeze", &Network::freeze, "prefix"_a,
           "Keeps the layers whose labels begin so as they are in trainings that are made later. How many "
           "they are.")
      .def("unfreeze", &Network::unfreeze, "prefix"_a, "The other way round.")
      .def("is_frozen", &Network::isFrozen, "label"_a, "Whether trainings leave the layer alone.")
      .def("copy", &Network::copy, Released(), "Another network with the same layers and values.")
      .def_static(
          "load",
          [](const std::filesystem::path& path, const Device& device, std::uint64_t seed,
             std::size_t classes) {
            const LockReleased released;
            return Network::load(path, {.seed = seed, .device = device}, {.classes = classes});
          },
          "path"_a, nb::kw_only(), "device"_a.none() = nb::none(), "seed"_a = 0, "classes"_a = 0,
          "A network of a file that save() has written; the file says of what layers. classes: of another "
          "head, "
          "which begins anew; 0: that of the file.")
      .def_static(
          "from_file",
          [](const std::filesystem::path& path, const Device& device, std::uint64_t seed,
             const std::optional<Extents>& pictures, std::size_t classes) {
            const LockReleased released;
            train::LoadOptions loading;
            loading.classes = classes;
            if (pictures) loading.pictures = shapeOf(*pictures);
            return Network::fromFile(path, {.seed = seed, .device = device}, loading);
          },
          "path"_a, nb::kw_only(), "device"_a.none() = nb::none(), "seed"_a = 0,
          "pictures"_a.none() = nb::none(), "classes"_a = 0,
          "A network that a JSON file describes. pictures, (height, width, channels), and classes are of the "
          "data, where "
          "the file does not say them.");
}

}  // namespace

void bindTrain(nb::module_& module) {
  nb::enum_<train::Padding>(module, "Padding", "How large the result of a layer with a window is.")
      .value("Same", train::Padding::Same, "ceil(size / stride); windows are centred.")
      .value("Valid", train::Padding::Valid, "No window leaves the picture.");
  nb::enum_<train::UpsamplingMode>(module, "UpsamplingMode", "How pixels become more.")
      .value("Nearest", train::UpsamplingMode::Nearest, "Each is repeated.")
      .value("Bilinear", train::UpsamplingMode::Bilinear, "Between the centres of pixels.");
  bindEvaluation(module);
  bindDatasets(module);
  bindNormalization(module);
  nb::class_<Features> features(
      module, "Features",
      "What a layer of a network makes of a picture: a handle to chain further layers on.");
  bindWeightedLayers(features);
  bindLayersWithoutWeights(features);
  bindNetwork(module);
  bindTrainer(module);
}

}  // namespace python
