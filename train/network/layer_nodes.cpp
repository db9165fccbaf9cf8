#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/batch_normalization/batch_normalization_node.hpp"
#include "mps/concatenation/concatenation_node.hpp"
#include "mps/convolution/convolution_node.hpp"
#include "mps/core/kernel/padding.hpp"
#include "mps/dropout/dropout.hpp"
#include "mps/instance_normalization/instance_normalization_node.hpp"
#include "mps/neuron/neuron_node.hpp"
#include "mps/normalization/normalization_node.hpp"
#include "mps/pooling/pooling_node.hpp"
#include "mps/reshape/reshape_node.hpp"
#include "mps/softmax/softmax.hpp"
#include "mps/trainable/explicit_padding.hpp"
#include "mps/trainable/trainable_batch_normalization.hpp"
#include "mps/trainable/trainable_image_normalization.hpp"
#include "mps/upsampling/upsampling_node.hpp"
#include "train/network/layer_rules.hpp"

namespace unmetal::train::detail {
namespace {

using Trainable = std::shared_ptr<mps::TrainableLayer>;
using Node = std::shared_ptr<mps::NNFilterNode>;

std::shared_ptr<mps::NNPadding> paddingWith(mps::NNPaddingMethod size) {
  return mps::NNDefaultPadding::create(size);
}

/// Makes the arrays of one layer.
struct TrainableMaker {
  const Layer& layer;
  const Shape& input;
  const LayerSetting& setting;

  Trainable convolution(mps::CNNConvolutionDescriptor descriptor, const Sides& stride, bool biases,
                        mps::WeightInitialization initialization) const {
    descriptor.setStrideInPixelsX(stride.width);
    descriptor.setStrideInPixelsY(stride.height);
    return mps::TrainableConvolution::create(setting.device, descriptor, layer.label, setting.seed,
                                             setting.optimizer, initialization, setting.adamForm,
                                             biases ? mps::LayerBiases::Trained : mps::LayerBiases::None);
  }
  Trainable operator()(const ConvolutionLayer& kind) const {
    auto descriptor = mps::CNNConvolutionDescriptor::create(kind.kernelSize.width, kind.kernelSize.height,
                                                            input.channels, kind.channels);
    descriptor.setDilationRateX(kind.options.dilation.width);
    descriptor.setDilationRateY(kind.options.dilation.height);
    descriptor.setGroups(kind.options.groups);
    return convolution(descriptor, kind.options.stride, kind.options.biases, kind.options.initialization);
  }
  Trainable operator()(const TransposedConvolutionLayer& kind) const {
    return convolution(mps::CNNConvolutionDescriptor::create(kind.kernelSize.width, kind.kernelSize.height,
                                                             input.channels, kind.channels),
                       kind.options.stride, kind.options.biases, kind.options.initialization);
  }
  Trainable operator()(const DenseLayer& kind) const {
    return convolution(
        mps::CNNConvolutionDescriptor::create(input.width, input.height, input.channels, kind.channels), 1,
        kind.options.biases, kind.options.initialization);
  }
  Trainable operator()(const BatchNormalizationLayer& kind) const {
    return mps::TrainableBatchNormalization::create(setting.device, input.channels, layer.label,
                                                    setting.optimizer, kind.options.momentum,
                                                    kind.options.epsilon, setting.adamForm);
  }
  Trainable operator()(const InstanceNormalizationLayer& kind) const {
    return mps::TrainableInstanceNormalization::create(setting.device, input.channels, layer.label,
                                                       setting.optimizer, kind.epsilon, setting.adamForm);
  }
  Trainable operator()(const GroupNormalizationLayer& kind) const {
    return mps::TrainableGroupNormalization::create(setting.device, input.channels, kind.groups, layer.label,
                                                    setting.optimizer, kind.epsilon, setting.adamForm);
  }
  template <class Kind>
  Trainable operator()(const Kind& /*kind*/) const {
    return nullptr;
  }
};

std::shared_ptr<mps::NNPadding> explicitPadding(const Margins& margins, const Shape& result) {
  return std::make_shared<mps::detail::ExplicitPadding>(
      mps::detail::ExplicitPadding::Geometry{margins.left, margins.top, result.width, result.height});
}

/// Makes the node of one layer.
struct NodeMaker {
  const Layer& layer;
  std::span<const Shape> inputs;
  const std::vector<std::shared_ptr<mps::NNImageNode>>& sources;
  const Trainable& trainable;
  const NodeSetting& setting;

  template <class Source>
  [[nodiscard]] std::shared_ptr<Source> weights() const {
    return std::dynamic_pointer_cast<Source>(trainable);
  }
  void pad(const Node& node, Padding padding, const Margins& margins) const {
    if (padding == Padding::Valid)
      node->setPaddingPolicy(paddingWith(mps::NNPaddingMethod::SizeValidOnly));
    else if (padding == Padding::Explicit)
      node->setPaddingPolicy(explicitPadding(margins, layer.shape));
  }
  template <class Pooling>
  Node pooling(const Sides& kernelSize, const PoolingOptions& options) const {
    const Sides stride = options.stride == 0 ? kernelSize : options.stride;
    Node node = Pooling::create(sources[0], kernelSize.width, kernelSize.height, stride.width, stride.height);
    pad(node, options.padding, options.margins);
    return node;
  }

  Node operator()(const InputLayer& /*kind*/) const { return nullptr; }
  Node operator()(const ConvolutionLayer& kind) const {
    Node node = mps::CNNConvolutionNode::create(sources[0], weights<mps::TrainableConvolution>());
    pad(node, kind.options.padding, kind.options.margins);
    return node;
  }
  Node operator()(const TransposedConvolutionLayer& kind) const {
    Node node = mps::CNNConvolutionTransposeNode::create(sources[0], weights<mps::TrainableConvolution>());
    node->setPaddingPolicy(paddingWith(mps::NNPaddingMethod::SizeFull));
    if (kind.options.margins != Margins{})
      node->setPaddingPolicy(explicitPadding(kind.options.margins, layer.shape));
    return node;
  }
  Node operator()(const DenseLayer& /*kind*/) const {
    return mps::CNNFullyConnectedNode::create(sources[0], weights<mps::TrainableConvolution>());
  }
  Node operator()(const BatchNormalizationLayer& /*kind*/) const {
    const auto node =
        mps::CNNBatchNormalizationNode::create(sources[0], weights<mps::TrainableBatchNormalization>());
    if (setting.isFrozen) node->setFlags(mps::CNNBatchNormalizationFlags::CalculateStatisticsNever);
    return node;
  }
  Node operator()(const InstanceNormalizationLayer& /*kind*/) const {
    return mps::CNNInstanceNormalizationNode::create(sources[0],
                                                     weights<mps::TrainableInstanceNormalization>());
  }
  Node operator()(const GroupNormalizationLayer& /*kind*/) const {
    return mps::CNNGroupNormalizationNode::create(sources[0], weights<mps::TrainableGroupNormalization>());
  }
  Node operator()(const CrossChannelNormalizationLayer& kind) const {
    const auto node = mps::CNNCrossChannelNormalizationNode::create(sources[0], kind.options.size);
    node->setAlpha(kind.options.alpha);
    node->setBeta(kind.options.beta);
    node->setDelta(kind.options.delta);
    return node;
  }
  Node operator()(const ActivationLayer& kind) const {
    return mps::CNNNeuronNode::create(sources[0],
                                      mps::NNNeuronDescriptor::create(kind.type, kind.a, kind.b, kind.c));
  }
  Node operator()(const MaxPoolLayer& kind) const {
    return pooling<mps::CNNPoolingMaxNode>(kind.kernelSize, kind.options);
  }
  Node operator()(const AveragePoolLayer& kind) const {
    return pooling<mps::CNNPoolingAverageNode>(kind.kernelSize, kind.options);
  }
  Node operator()(const NormPoolLayer& kind) const {
    return pooling<mps::CNNPoolingL2NormNode>(kind.kernelSize, kind.options);
  }
  Node operator()(const GlobalAveragePoolLayer& /*kind*/) const {
    const Shape& input = inputs[0];
    Node node =
        mps::CNNPoolingAverageNode::create(sources[0], input.width, input.height, input.width, input.height);
    node->setPaddingPolicy(paddingWith(mps::NNPaddingMethod::SizeValidOnly));
    return node;
  }
  Node operator()(const DropoutLayer& kind) const {
    return mps::CNNDropoutNode::create(sources[0], 1 - kind.rate, setting.dropoutSeed);
  }
  Node operator()(const UpsamplingLayer& kind) const {
    if (kind.mode == UpsamplingMode::Nearest)
      return mps::CNNUpsamplingNearestNode::create(sources[0], kind.factor.width, kind.factor.height);
    const auto node = mps::CNNUpsamplingBilinearNode::create(
        sources[0], kind.factor.width, kind.factor.height, kind.mode == UpsamplingMode::BilinearAlignCorners);
    node->setHalfPixelCenters(kind.mode == UpsamplingMode::Bilinear);
    return node;
  }
  Node operator()(const SoftmaxLayer& /*kind*/) const { return mps::CNNSoftMaxNode::create(sources[0]); }
  Node operator()(const AddLayer& /*kind*/) const {
    return mps::NNAdditionNode::create(sources[0], sources[1]);
  }
  Node operator()(const ConcatenationLayer& /*kind*/) const {
    const auto node = mps::NNConcatenationNode::create(sources);
    node->setChannelAlignment(1);
    return node;
  }
  Node operator()(const ArithmeticLayer& kind) const {
    if (kind.operation == ArithmeticOperation::Subtract) return arithmetic<mps::NNSubtractionNode>();
    if (kind.operation == ArithmeticOperation::Multiply) return arithmetic<mps::NNMultiplicationNode>();
    return arithmetic<mps::NNDivisionNode>();
  }
  /// What has one row, column or channel has it for all.
  template <class Arithmetic>
  [[nodiscard]] Node arithmetic() const {
    const auto stride = [](std::size_t extent) { return std::size_t{extent == 1 ? 0U : 1U}; };
    const Shape& first = inputs[0];
    const Shape& second = inputs[1];
    const auto node = Arithmetic::create(sources[0], sources[1]);
    node->setPrimaryStrideInPixelsX(stride(first.width));
    node->setPrimaryStrideInPixelsY(stride(first.height));
    node->setPrimaryStrideInFeatureChannels(stride(first.channels));
    node->setSecondaryStrideInPixelsX(stride(second.width));
    node->setSecondaryStrideInPixelsY(stride(second.height));
    node->setSecondaryStrideInFeatureChannels(stride(second.channels));
    return node;
  }
  Node operator()(const PadLayer& kind) const {
    const auto mode = kind.content == PaddingContent::Constant ? mps::ImageEdgeMode::Constant
                      : kind.content == PaddingContent::Edge   ? mps::ImageEdgeMode::Clamp
                                                               : mps::ImageEdgeMode::Mirror;
    const auto node = mps::NNPadNode::create(sources[0], {kind.margins.left, kind.margins.top, 0},
                                             {kind.margins.right, kind.margins.bottom, 0}, mode);
    node->setFillValue(kind.value);
    return node;
  }
};

}  // namespace

std::shared_ptr<mps::TrainableLayer> makeTrainable(const Layer& layer, const Shape& input,
                                                   const LayerSetting& setting) {
  return std::visit(TrainableMaker{layer, input, setting}, layer.kind);
}

std::shared_ptr<mps::NNImageNode> makeNode(const Layer& layer, std::span<const Shape> inputs,
                                           const std::vector<std::shared_ptr<mps::NNImageNode>>& sources,
                                           const std::shared_ptr<mps::TrainableLayer>& trainable,
                                           const NodeSetting& setting) {
  const Node node = std::visit(NodeMaker{layer, inputs, sources, trainable, setting}, layer.kind);
  if (trainable || layer.hasGivenLabel) node->setLabel(layer.label);
  return node->resultImage();
}

}  // namespace unmetal::train::detail
