#include "train/network/network.hpp"

#include <algorithm>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mps/loss/loss_node.hpp"
#include "mps/softmax/softmax.hpp"
#include "mtl/device.hpp"
#include "train/network/layer_rules.hpp"
#include "train/network/network_state.hpp"
#include "train/network/weight_values.hpp"

namespace unmetal::train {
namespace {

/// Keeps seeds of layers and of dropout apart, and those of one training from the next one's.
constexpr std::uint64_t seedsOfANetwork = 1000;

bool isSoftmax(const Layer& layer) {
  return std::holds_alternative<SoftmaxLayer>(layer.kind);
}
bool isDropout(const Layer& layer) {
  return std::holds_alternative<DropoutLayer>(layer.kind);
}

void checkFormat(mps::ImageFeatureChannelFormat format) {
  using enum mps::ImageFeatureChannelFormat;
  if (format != Float32 && format != Float16)
    throw mps::Error("Network", "format", "another one", "Float32 or Float16");
}

}  // namespace

namespace detail {

std::size_t NetworkState::add(const LayerKind& kind, const std::vector<std::size_t>& inputs,
                              const std::string& label) {
  Layer layer;
  layer.kind = kind;
  layer.inputs = inputs;
  layer.hasGivenLabel = !label.empty();
  const std::string stem = labelStem(kind);
  std::size_t number = stemCounts[stem];
  if (layer.hasGivenLabel) {
    layer.label = label;
    if (labels.contains(label))
      throw mps::Error(nameOf(kind) + " \"" + label + "\"", "label", "that of another layer",
                       "one of its own");
  } else {
    do layer.label = stem + std::to_string(++number);
    while (labels.contains(layer.label));
  }
  std::vector<Shape> shapes;
  for (const std::size_t input : inputs) shapes.push_back(layers[input].shape);
  applyRules(layer, shapes);
  stemCounts[stem] = number;
  inference = nullptr;
  labels[layer.label] = layers.size();
  checkTensorsOf(layer);
  layers.push_back(std::move(layer));
  return layers.size() - 1;
}

void NetworkState::checkTensorsOf(const Layer& layer) const {
  if (!tensorCheck) return;
  for (const Parameter& parameter : layer.parameters)
    tensorCheck(layer.label + "." + parameter.name, parameter.shape);
}

const Shape& NetworkState::inputOf(const Layer& layer) const {
  return layer.inputs.empty() ? layer.shape : layers[layer.inputs[0]].shape;
}

void NetworkState::checkUse() const {
  std::vector<bool> isUsed(layers.size());
  for (const Layer& layer : layers)
    for (const std::size_t input : layer.inputs) isUsed[input] = true;
  for (std::size_t i = 0; i + 1 < layers.size(); ++i)
    if (!isUsed[i])
      throw mps::Error(nameOf(layers[i].kind) + " \"" + layers[i].label +
                       "\": no layer uses its result, and the result of the network is that of \"" +
                       layers.back().label + "\", which was added last");
  if (layers.size() == 1) throw mps::Error("Network: it has no layers");
}

void NetworkState::makeTrainables() {
  checkUse();
  for (std::size_t i = trainableOf.size(); i < layers.size(); ++i) {
    const Layer& layer = layers[i];
    trainableOf.push_back(makeTrainable(
        layer, inputOf(layer),
        {options.device, optimizer, adamForm, options.seed * seedsOfANetwork + trainables.size()}));
    if (!trainableOf.back()) continue;
    trainableOf.back()->setFrozen(frozen.contains(layer.label));
    trainables.push_back(trainableOf.back());
  }
}

void NetworkState::applyTo(mps::NNGraph& graph) const {
  graph.setFormat(options.format);
  if (options.allowReducedPrecision)
    graph.setOptions(graph.options() | mps::KernelOptions::AllowReducedPrecision);
}

std::size_t NetworkState::indexOf(const std::string& label) const {
  const auto found = labels.find(label);
  if (found == labels.end()) throw mps::Error("Network: there is no layer \"" + label + "\"");
  return found->second;
}

}  // namespace detail

Features::Features(std::shared_ptr<detail::NetworkState> network, std::size_t index)
    : network_(std::move(network)), index_(index) {}

Features Features::then(LayerKind kind, const std::string& label) const {
  return {network_, network_->add(kind, {index_}, label)};
}

const Shape& Features::shape() const {
  return network_->layers[index_].shape;
}

Features Features::convolution(std::size_t channels, Sides kernelSize, const ConvolutionOptions& options,
                               const std::string& label) const {
  return then(ConvolutionLayer{channels, kernelSize, options}, label);
}
Features Features::transposedConvolution(std::size_t channels, Sides kernelSize,
                                         const TransposedConvolutionOptions& options,
                                         const std::string& label) const {
  return then(TransposedConvolutionLayer{channels, kernelSize, options}, label);
}
Features Features::dense(std::size_t channels, const DenseOptions& options, const std::string& label) const {
  return then(DenseLayer{channels, options}, label);
}
Features Features::batchNormalization(const BatchNormalizationOptions& options,
                                      const std::string& label) const {
  return then(BatchNormalizationLayer{options}, label);
}
Features Features::instanceNormalization(float epsilon, const std::string& label) const {
  return then(InstanceNormalizationLayer{epsilon}, label);
}
Features Features::groupNormalization(std::size_t groups, float epsilon, const std::string& label) const {
  return then(GroupNormalizationLayer{groups, epsilon}, label);
}

Features Features::relu(const std::string& label) const {
  return then(ActivationLayer{mps::CNNNeuronType::ReLU}, label);
}
Features Features::leakyRelu(float slope, const std::string& label) const {
  return then(ActivationLayer{mps::CNNNeuronType::ReLU, slope}, label);
}
Features Features::relu6(const std::string& label) const {
  return then(ActivationLayer{mps::CNNNeuronType::ReLUN, 0, 6}, label);
}
Features Features::elu(float alpha, const std::string& label) const {
  return then(ActivationLayer{mps::CNNNeuronType::ELU, alpha}, label);
}
Features Features::gelu(const std::string& label) const {
  return then(ActivationLayer{mps::CNNNeuronType::GeLU}, label);
}
Features Features::sigmoid(const std::string& label) const {
  return then(ActivationLayer{mps::CNNNeuronType::Sigmoid}, label);
}
Features Features::hardSigmoid(const std::string& label) const {
  return then(ActivationLayer{mps::CNNNeuronType::HardSigmoid, 1.0F / 6, 0.5F}, label);
}
Features Features::tanh(const std::string& label) const {
  return then(ActivationLayer{mps::CNNNeuronType::TanH, 1, 1}, label);
}
Features Features::softplus(const std::string& label) const {
  return then(ActivationLayer{mps::CNNNeuronType::SoftPlus, 1, 1}, label);
}
Features Features::softsign(const std::string& label) const {
  return then(ActivationLayer{mps::CNNNeuronType::SoftSign}, label);
}
Features Features::softmax(const std::string& label) const {
  return then(SoftmaxLayer{}, label);
}

Features Features::crossChannelNormalization(const CrossChannelNormalizationOptions& options,
                                             const std::string& label) const {
  return then(CrossChannelNormalizationLayer{options}, label);
}
Features Features::maxPool(Sides kernelSize, const PoolingOptions& options, const std::string& label) const {
  return then(MaxPoolLayer{kernelSize, options}, label);
}
Features Features::averagePool(Sides kernelSize, const PoolingOptions& options,
                               const std::string& label) const {
  return then(AveragePoolLayer{kernelSize, options}, label);
}
Features Features::globalAveragePool(const std::string& label) const {
  return then(GlobalAveragePoolLayer{}, label);
}
Features Features::dropout(float rate, const std::string& label) const {
  return then(DropoutLayer{rate}, label);
}
Features Features::upsample(Sides factor, UpsamplingMode mode, const std::string& label) const {
  return then(UpsamplingLayer{factor, mode}, label);
}
Features Features::add(const Features& other, const std::string& label) const {
  return Network::addTo(network_, AddLayer{}, std::vector{*this, other}, label);
}
Features Features::concatenate(const Features& other, const std::string& label) const {
  return Network::addTo(network_, ConcatenationLayer{}, std::vector{*this, other}, label);
}

Network::Network(const Shape& pictures, const NetworkOptions& options)
    : state_(std::make_shared<detail::NetworkState>()) {
  checkFormat(options.format);
  state_->options = options;
  if (!options.device) state_->options.device = mtl::createSystemDefaultDevice();
  Layer input;
  input.label = "input";
  input.shape = pictures;
  detail::applyRules(input, {});
  state_->labels[input.label] = 0;
  state_->layers.push_back(std::move(input));
}

Network Network::copy() const {
  Network other(inputShape(), options());
  detail::NetworkState& state = *other.state_;
  state.layers = state_->layers;
  state.labels = state_->labels;
  state.stemCounts = state_->stemCounts;
  state.frozen = state_->frozen;
  detail::WeightValues::of(trainableLayers(), device()).giveTo(other.trainableLayers(), device());
  return other;
}

Features Network::addTo(const std::shared_ptr<detail::NetworkState>& state, const LayerKind& kind,
                        std::span<const Features> inputs, const std::string& label) {
  std::vector<std::size_t> indices;
  for (const Features& input : inputs) {
    if (input.network_ != state)
      throw mps::Error(nameOf(kind) + (label.empty() ? "" : " \"" + label + "\""), "input",
                       "of another network", "one of this network");
    indices.push_back(input.index_);
  }
  return {state, state->add(kind, indices, label)};
}

Features Network::input() const {
  return {state_, 0};
}

Features Network::add(const LayerKind& kind, std::span<const Features> inputs,
                      const std::string& label) const {
  return addTo(state_, kind, inputs, label);
}

const std::vector<Layer>& Network::layers() const {
  return state_->layers;
}

const Layer& Network::layer(const std::string& label) const {
  return state_->layers[state_->indexOf(label)];
}

const NetworkOptions& Network::options() const {
  return state_->options;
}

void Network::setFormat(mps::ImageFeatureChannelFormat format) {
  checkFormat(format);
  state_->options.format = format;
  state_->inference = nullptr;
}

std::size_t Network::parameterCount() const {
  std::size_t sum = 0;
  for (const Layer& layer : layers()) sum += layer.trainedParameterCount();
  return sum;
}

double Network::trainingFlops() const {
  double sum = 0;
  for (const Layer& layer : layers()) {
    if (layer.multiplyAdds == 0) continue;
    // Nobody needs the gradient of the pictures.
    sum += (layer.inputs[0] == 0 ? 2 : 3) * 2 * layer.multiplyAdds;
  }
  return sum;
}

const std::shared_ptr<mtl::Device>& Network::device() const {
  return state_->options.device;
}

void Network::setOptimizer(const std::shared_ptr<mps::NNOptimizer>& optimizer, mps::AdamForm adamForm) {
  const detail::NetworkState former = *state_;
  state_->trainables.clear();
  state_->trainableOf.clear();
  state_->inference = nullptr;
  state_->optimizer = optimizer;
  state_->adamForm = adamForm;
  try {
    state_->makeTrainables();
    if (former.trainables.empty()) return;
    // Those that were added since have their seed's.
    const std::span now = std::span(state_->trainables).first(former.trainables.size());
    detail::WeightValues::of(former.trainables, device()).giveTo(now, device());
  } catch (...) {
    *state_ = former;
    throw;
  }
}

void Network::setLearningRate(double rate) {
  for (const auto& layer : trainableLayers())
    if (layer->optimizer()) layer->optimizer()->setLearningRate(static_cast<float>(rate));
}

const std::vector<std::shared_ptr<mps::TrainableLayer>>& Network::trainableLayers() const {
  state_->makeTrainables();
  return state_->trainables;
}

std::shared_ptr<mps::TrainableLayer> Network::trainableLayer(const std::string& label) const {
  const std::size_t index = state_->indexOf(label);
  state_->makeTrainables();
  if (!state_->trainableOf[index])
    throw mps::Error(nameOf(layer(label).kind) + " \"" + label + "\": it has no parameters");
  return state_->trainableOf[index];
}

std::size_t Network::freeze(const std::string& prefix) {
  return setFrozen(prefix, true);
}

std::size_t Network::unfreeze(const std::string& prefix) {
  return setFrozen(prefix, false);
}

bool Network::isFrozen(const std::string& label) const {
  return state_->frozen.contains(layer(label).label);
}

std::size_t Network::setFrozen(const std::string& prefix, bool isFrozen) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < layers().size(); ++i) {
    const Layer& layer = layers()[i];
    if (layer.parameters.empty() || !layer.label.starts_with(prefix)) continue;
    if (isFrozen)
      state_->frozen.insert(layer.label);
    else
      state_->frozen.erase(layer.label);
    if (i < state_->trainableOf.size()) state_->trainableOf[i]->setFrozen(isFrozen);
    ++count;
  }
  if (count == 0)
    throw mps::Error("Network: there is no layer with parameters whose label begins with \"" + prefix + "\"");
  return count;
}

std::shared_ptr<mps::NNImageNode> Network::makeNodes(const std::shared_ptr<mps::NNImageNode>& pictures,
                                                     GraphKind kind) const {
  state_->makeTrainables();
  std::vector<std::shared_ptr<mps::NNImageNode>> images{pictures};
  std::uint64_t dropouts = 0;
  for (std::size_t i = 1; i < layers().size(); ++i) {
    const Layer& layer = layers()[i];
    std::vector<std::shared_ptr<mps::NNImageNode>> sources;
    std::vector<Shape> shapes;
    for (const std::size_t input : layer.inputs) {
      sources.push_back(images[input]);
      shapes.push_back(layers()[input].shape);
    }
    const bool isLeftOut = isDropout(layer)
                               ? kind == GraphKind::Inference
                               : kind == GraphKind::Training && isSoftmax(layer) && i + 1 == layers().size();
    const std::uint64_t seed = (options().seed + 1) * seedsOfANetwork - 1 - dropouts;
    if (isDropout(layer)) ++dropouts;
    images.push_back(isLeftOut ? sources[0]
                               : detail::makeNode(layer, shapes, sources, state_->trainableOf[i],
                                                  {seed, state_->frozen.contains(layer.label)}));
  }
  return images.back();
}

TrainingGraph Network::makeTrainingGraph(std::size_t batchSize,
                                         const std::shared_ptr<mps::ImageAllocator>& scoreImages) const {
  const Shape& output = outputShape();
  if (output.height != 1 || output.width != 1)
    throw mps::Error("Network", "result of \"" + layers().back().label + "\"", describe(output),
                     "1x1 pixel with a score for each class");
  if (!state_->optimizer)
    throw mps::Error("Network: a training graph needs layers with an optimiser, see setOptimizer()");
  if (batchSize == 0) throw mps::Error("Network", "batchSize", "0", "at least 1");
  TrainingGraph training;
  if (options().format == mps::ImageFeatureChannelFormat::Float16)
    training.lossScale = mps::LossScale::create(device());
  const auto scores = makeNodes(mps::NNImageNode::create(), GraphKind::Training);
  if (scoreImages) scores->setImageAllocator(scoreImages);
  auto descriptor =
      mps::CNNLossDescriptor::create(mps::CNNLossType::SoftMaxCrossEntropy, mps::CNNReductionType::Sum);
  descriptor.setWeight(1.0F / static_cast<float>(batchSize));
  descriptor.setLossScale(training.lossScale);
  std::vector<std::shared_ptr<mps::NNImageNode>> results;
  for (const auto& terminus : mps::CNNLossNode::create(scores, descriptor)->trainingGraph(nullptr))
    results.push_back(terminus->resultImage());
  training.graph = mps::NNGraph::create(device(), results, std::vector<bool>(results.size(), false));
  for (const auto& layer : trainableLayers()) layer->optimizer()->setLossScale(training.lossScale);
  state_->applyTo(*training.graph);
  return training;
}

std::shared_ptr<mps::NNGraph> Network::makeInferenceGraph() const {
  const auto result = makeNodes(mps::NNImageNode::create(), GraphKind::Inference);
  const auto probabilities =
      isSoftmax(layers().back()) ? result : mps::CNNSoftMaxNode::create(result)->resultImage();
  probabilities->setFormat(mps::ImageFeatureChannelFormat::Float32);
  auto graph = mps::NNGraph::create(device(), probabilities);
  state_->applyTo(*graph);
  return graph;
}

void Network::setNormalization(const std::optional<Normalization>& normalization) {
  if (normalization) checkNormalization(*normalization, inputShape());
  state_->normalization = normalization;
}

const std::optional<Normalization>& Network::normalization() const {
  return state_->normalization;
}

void Network::setTensorCheck(TensorCheck check) {
  state_->tensorCheck = std::move(check);
  for (const Layer& layer : state_->layers) state_->checkTensorsOf(layer);
}

}  // namespace unmetal::train
