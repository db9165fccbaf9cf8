#include <utility>

#include "mps/core/coding/coded_floats.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/trainable/explicit_padding.hpp"
#include "mps/trainable/trainable_batch_normalization.hpp"
#include "mps/trainable/trainable_convolution.hpp"
#include "mps/trainable/trainable_image_normalization.hpp"
#include "mtl/buffer.hpp"
#include "mtl/device.hpp"

/// Coding of the ready-made data sources.
namespace mps {
namespace detail {
namespace {

template <class Optimizer>
void addOptimizer(Coder& coder, const char* className) {
  coder.setDecoder(className, [](Coder& data, const std::shared_ptr<mtl::Device>& device) {
    return Optimizer::decode(data, device);
  });
}

std::vector<float> valuesOf(mtl::Device& device, const mtl::Buffer& buffer) {
  return floatsOf(device, {buffer.memory(), 0, buffer.length() / sizeof(float)});
}

void write(const Coder& coder, const std::vector<float>& values, mtl::Buffer& buffer) {
  if (values.size() * sizeof(float) != buffer.length())
    coder.refuse("values", std::to_string(values.size()), std::to_string(buffer.length() / sizeof(float)));
  std::memcpy(buffer.contents(), values.data(), buffer.length());
  buffer.didModifyRange(0, buffer.length());
}

void codeArrays(Coder& coder, const char* key, std::vector<std::vector<float>>& arrays) {
  coder.codeList(key, arrays, [&](std::vector<float>& values) { coder.code("values", values); });
}

/// Before memory is taken for them: the layer's arrays have these lengths.
void checkLengths(const Coder& coder, const CodedLayer& layer, const std::vector<std::size_t>& lengths) {
  bool areRight = layer.values.size() == lengths.size();
  for (std::size_t i = 0; areRight && i < lengths.size(); ++i)
    areRight = layer.values[i].size() == lengths[i];
  if (!areRight) coder.refuse("values", "arrays of other lengths", "those of the layer");
}

}  // namespace

void CodedLayer::code(Coder& coder) {
  addOptimizer<NNOptimizerStochasticGradientDescent>(coder, "NNOptimizerStochasticGradientDescent");
  addOptimizer<NNOptimizerRMSProp>(coder, "NNOptimizerRMSProp");
  addOptimizer<NNOptimizerAdam>(coder, "NNOptimizerAdam");
  coder.code("label", label);
  coder.codeOptional("optimizer", optimizer);
  coder.codeEnumeration("adamForm", adamForm, AdamForm::AMSGrad);
  coder.code("isFrozen", frozen);
  codeArrays(coder, "values", values);
  codeArrays(coder, "slots", slots);
}

CodedLayer OptimizerSlots::coded(mtl::Device& device, const std::string& label, bool frozen) const {
  CodedLayer layer{label, optimizer_, adamForm_, frozen, {}, {}};
  for (const TrainableArray& array : arrays_) layer.values.push_back(valuesOf(device, *array.buffer));
  for (const Slot& slot : slots_)
    for (const auto& vector : slot) layer.slots.push_back(valuesOf(device, *vector->data()));
  return layer;
}

void OptimizerSlots::take(const Coder& coder, const CodedLayer& layer) {
  if (layer.slots.size() != slots_.size() * arrays_.size())
    coder.refuse("slots", std::to_string(layer.slots.size()), std::to_string(slots_.size() * arrays_.size()));
  for (std::size_t part = 0; part < arrays_.size(); ++part)
    write(coder, layer.values[part], *arrays_[part].buffer);
  for (std::size_t i = 0; i < slots_.size(); ++i)
    for (std::size_t part = 0; part < arrays_.size(); ++part)
      write(coder, layer.slots[i * arrays_.size() + part], *slots_[i][part]->data());
}

void TrainableGammaAndBeta::encode(Coder& coder) const {
  coder.encode("numberOfFeatureChannels", channels_);
  coder.encode("epsilon", epsilon_);
  slots_.coded(*device_, label_, frozen_).code(coder);
}

TrainableGammaAndBeta TrainableGammaAndBeta::decode(const std::string& className, Coder& coder,
                                                    const std::shared_ptr<mtl::Device>& device) {
  std::size_t channels = 0;
  float epsilon = 0;
  CodedLayer layer;
  coder.decode("numberOfFeatureChannels", channels);
  coder.decode("epsilon", epsilon);
  layer.code(coder);
  checkLengths(coder, layer, {channels, channels});
  TrainableGammaAndBeta values(className, deviceToDecodeOn(coder, device), channels, layer.label,
                               layer.optimizer, epsilon, layer.adamForm);
  values.slots_.take(coder, layer);
  values.frozen_ = layer.frozen;
  return values;
}

}  // namespace detail

using detail::CodedLayer;

void TrainableConvolution::encode(Coder& coder) const {
  coder.codeClass(className());
  coder.encode("descriptor", descriptor_);
  slots_.coded(*device_, label_, frozen_).code(coder);
}

std::shared_ptr<TrainableConvolution> TrainableConvolution::decode(
    Coder& coder, const std::shared_ptr<mtl::Device>& device) {
  coder.codeClass("TrainableConvolution");
  auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 1, 1);
  CodedLayer layer;
  coder.decode("descriptor", descriptor);
  layer.code(coder);
  std::vector<std::size_t> lengths{descriptor.weightCount()};
  const bool hasBiases = layer.values.size() == 2;
  if (hasBiases) lengths.push_back(descriptor.outputFeatureChannels());
  detail::checkLengths(coder, layer, lengths);
  auto source = std::shared_ptr<TrainableConvolution>(new TrainableConvolution(
      detail::deviceToDecodeOn(coder, device), descriptor, layer.label, layer.optimizer, layer.adamForm,
      hasBiases ? LayerBiases::Trained : LayerBiases::None));
  source->slots_.take(coder, layer);
  source->frozen_ = layer.frozen;
  return source;
}

void TrainableBatchNormalization::encode(Coder& coder) const {
  coder.codeClass(className());
  coder.encode("numberOfFeatureChannels", channels_);
  coder.encode("momentum", momentum_);
  coder.encode("epsilon", epsilon_);
  slots_.coded(*device_, label_, frozen_).code(coder);
  coder.encode("mean", detail::valuesOf(*device_, *meanAndVariance_->mean()));
  coder.encode("variance", detail::valuesOf(*device_, *meanAndVariance_->variance()));
}

std::shared_ptr<TrainableBatchNormalization> TrainableBatchNormalization::decode(
    Coder& coder, const std::shared_ptr<mtl::Device>& device) {
  coder.codeClass("TrainableBatchNormalization");
  std::size_t channels = 0;
  float momentum = 0;
  float epsilon = 0;
  CodedLayer layer;
  std::vector<float> mean;
  std::vector<float> variance;
  coder.decode("numberOfFeatureChannels", channels);
  coder.decode("momentum", momentum);
  coder.decode("epsilon", epsilon);
  layer.code(coder);
  coder.decode("mean", mean);
  coder.decode("variance", variance);
  detail::checkLengths(coder, layer, {channels, channels});
  auto source = create(detail::deviceToDecodeOn(coder, device), channels, layer.label, layer.optimizer,
                       momentum, epsilon, layer.adamForm);
  source->slots_.take(coder, layer);
  detail::write(coder, mean, *source->meanAndVariance_->mean());
  detail::write(coder, variance, *source->meanAndVariance_->variance());
  source->frozen_ = layer.frozen;
  return source;
}

void TrainableInstanceNormalization::encode(Coder& coder) const {
  coder.codeClass(className());
  values_.encode(coder);
}

std::shared_ptr<TrainableInstanceNormalization> TrainableInstanceNormalization::decode(
    Coder& coder, const std::shared_ptr<mtl::Device>& device) {
  constexpr const char* name = "TrainableInstanceNormalization";
  coder.codeClass(name);
  return std::shared_ptr<TrainableInstanceNormalization>(
      new TrainableInstanceNormalization(detail::TrainableGammaAndBeta::decode(name, coder, device)));
}

void TrainableGroupNormalization::encode(Coder& coder) const {
  coder.codeClass(className());
  coder.encode("numberOfGroups", groups_);
  values_.encode(coder);
}

std::shared_ptr<TrainableGroupNormalization> TrainableGroupNormalization::decode(
    Coder& coder, const std::shared_ptr<mtl::Device>& device) {
  constexpr const char* name = "TrainableGroupNormalization";
  coder.codeClass(name);
  std::size_t groups = 0;
  coder.decode("numberOfGroups", groups);
  auto values = detail::TrainableGammaAndBeta::decode(name, coder, device);
  if (groups == 0 || values.channels() % groups != 0)
    coder.refuse("numberOfGroups", std::to_string(groups),
                 "a divisor of " + std::to_string(values.channels()) + " feature channels");
  return std::shared_ptr<TrainableGroupNormalization>(
      new TrainableGroupNormalization(std::move(values), groups));
}

namespace {

template <class Source>
void addDataSource(Coder& coder, const char* className) {
  coder.setDecoder(className, [](Coder& data, const std::shared_ptr<mtl::Device>& device) {
    return Source::decode(data, device);
  });
}

}  // namespace

void addTrainableDecoders(Coder& coder) {
  coder.setDecoder("ExplicitPadding", [](Coder& data, const std::shared_ptr<mtl::Device>& /*device*/) {
    return detail::ExplicitPadding::decode(data);
  });
  addDataSource<TrainableConvolution>(coder, "TrainableConvolution");
  addDataSource<TrainableBatchNormalization>(coder, "TrainableBatchNormalization");
  addDataSource<TrainableInstanceNormalization>(coder, "TrainableInstanceNormalization");
  addDataSource<TrainableGroupNormalization>(coder, "TrainableGroupNormalization");
}

}  // namespace mps
