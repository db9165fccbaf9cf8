#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "mps/batch_normalization/batch_normalization_node.hpp"
#include "mps/convolution/convolution_node.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/instance_normalization/instance_normalization_node.hpp"
#include "mps/loss/forward_loss.hpp"
#include "mps/loss/loss_node.hpp"
#include "mps/neuron/neuron_node.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/graph/nodes.hpp"

namespace python {
namespace {

using Weights = std::shared_ptr<mps::CNNConvolutionDataSource>;

template <class Node>
GradientClass<Node> convolutionGradient(nb::module_& module, const char* name, const char* documentation) {
  GradientClass<Node> gradient(module, name, documentation);
  gradient.def(nb::new_(&Node::create), "source_gradient"_a, "source_image"_a, "convolution_gradient_state"_a,
               "weights"_a.none() = nb::none(),
               "`source_image`: the forward source. `weights` None: the data source of the forward node.");
  return gradient;
}

void bindConvolutionNodes(nb::module_& module) {
  using namespace mps;
  emptyClass<CNNConvolutionGradientStateNode, NNGradientStateNode>(
      module, "CNNConvolutionGradientStateNode", "Stands for a CNNConvolutionGradientState.");
  emptyClass<CNNConvolutionTransposeGradientStateNode, CNNConvolutionGradientStateNode>(
      module, "CNNConvolutionTransposeGradientStateNode",
      "Stands for a CNNConvolutionTransposeGradientState.");
  FilterClass<CNNConvolutionNode> convolution(module, "CNNConvolutionNode",
                                              "Stands for CNNConvolution. For training the data source's "
                                              "descriptor holds no neuron: put a neuron node behind, the "
                                              "graph fuses it where that is allowed.");
  convolution.def(nb::new_(&CNNConvolutionNode::create), "source"_a, "weights"_a);
  readOnly(convolution, "weights", &CNNConvolutionNode::weights, "The data source.");
  property(convolution, "accumulator_precision", &CNNConvolutionNode::accumulatorPrecision,
           &CNNConvolutionNode::setAccumulatorPrecision, "Float.");
  readOnly(
      convolution, "convolution_gradient_state", [](CNNConvolutionNode& self) { return self.resultState(); },
      "The state for the gradient.");
  bindTrainingStyle(convolution);
  nb::class_<CNNFullyConnectedNode, CNNConvolutionNode>(
      module, "CNNFullyConnectedNode",
      "Stands for CNNFullyConnected: valid-only padding, the kernel as large as the source.")
      .def(nb::new_(&CNNFullyConnectedNode::create), "source"_a, "weights"_a);
  nb::class_<CNNConvolutionTransposeNode, CNNConvolutionNode>(module, "CNNConvolutionTransposeNode",
                                                              "Stands for CNNConvolutionTranspose.")
      .def(nb::new_([](ImageNode source, Weights weights, StateNode undone) {
             return CNNConvolutionTransposeNode::create(std::move(source), std::move(undone),
                                                        std::move(weights));
           }),
           "source"_a, "weights"_a, "convolution_gradient_state"_a.none() = nb::none(),
           "`convolution_gradient_state`: that of the convolution node to undo, the result has the size of "
           "that node's "
           "source; None: the padding policy decides. Raises Error for the state of another kind of node.");

  auto gradient = convolutionGradient<CNNConvolutionGradientNode>(
      module, "CNNConvolutionGradientNode",
      "Stands for CNNConvolutionGradient. The graph decides which gradients are computed: those that "
      "something needs.");
  readOnly(gradient, "weights", &CNNConvolutionGradientNode::weights, "The data source.");
  bindTrainingStyle(gradient);
  constexpr const char* created = "As CNNConvolutionGradientNode's.";
  nb::class_<CNNFullyConnectedGradientNode, CNNConvolutionGradientNode>(
      module, "CNNFullyConnectedGradientNode", "Stands for CNNFullyConnectedGradient.")
      .def(nb::new_(&CNNFullyConnectedGradientNode::create), "source_gradient"_a, "source_image"_a,
           "convolution_gradient_state"_a, "weights"_a.none() = nb::none(), created);
  nb::class_<CNNConvolutionTransposeGradientNode, CNNConvolutionGradientNode>(
      module, "CNNConvolutionTransposeGradientNode", "Stands for CNNConvolutionTransposeGradient.")
      .def(nb::new_(&CNNConvolutionTransposeGradientNode::create), "source_gradient"_a, "source_image"_a,
           "convolution_transpose_gradient_state"_a, "weights"_a.none() = nb::none(), created);
}

/// Node and gradient node of a normalisation with a data source.
template <class Node, class GradientNode>
FilterClass<Node> bindNormalization(nb::module_& module, const char* name, const char* documentation,
                                    const char* gradientName, const char* gradientDocumentation) {
  FilterClass<Node> node(module, name, documentation);
  node.def(nb::new_(&Node::create), "source"_a, "data_source"_a);
  readOnly(node, "data_source", &Node::dataSource, "Where the parameters come from.");
  bindTrainingStyle(node);
  auto gradient = plainGradient<GradientNode>(module, gradientName, gradientDocumentation);
  bindTrainingStyle(gradient);
  return node;
}

void bindNormalizationNodes(nb::module_& module) {
  using namespace mps;
  auto batch = bindNormalization<CNNBatchNormalizationNode, CNNBatchNormalizationGradientNode>(
      module, "CNNBatchNormalizationNode",
      "Stands for CNNBatchNormalization, in training with CNNBatchNormalizationStatistics before it. The "
      "same nodes in a "
      "graph without gradients use the data source's running statistics.",
      "CNNBatchNormalizationGradientNode",
      "Stands for CNNBatchNormalizationStatisticsGradient and CNNBatchNormalizationGradient behind it; the "
      "latter only where "
      "somebody reads the result.");
  property(batch, "flags", &CNNBatchNormalizationNode::flags, &CNNBatchNormalizationNode::setFlags,
           "Default: statistics of the batch in training, the data source's otherwise.");
  bindNormalization<CNNInstanceNormalizationNode, CNNInstanceNormalizationGradientNode>(
      module, "CNNInstanceNormalizationNode", "Stands for CNNInstanceNormalization.",
      "CNNInstanceNormalizationGradientNode", "Stands for CNNInstanceNormalizationGradient.");
  bindNormalization<CNNGroupNormalizationNode, CNNGroupNormalizationGradientNode>(
      module, "CNNGroupNormalizationNode", "Stands for CNNGroupNormalization.",
      "CNNGroupNormalizationGradientNode", "Stands for CNNGroupNormalizationGradient.");
}

template <class Node>
nb::class_<Node, mps::CNNNeuronNode> neuronNode(nb::module_& module, const char* name,
                                                const char* documentation) {
  return {module, name, documentation};
}
/// With parameters a; a and b; a, b and c, and their defaults.
template <class Node>
void bindNeuron(nb::module_& module, const char* name, const char* documentation) {
  neuronNode<Node>(module, name, documentation).def(nb::new_(&Node::create), "source"_a);
}
template <class Node>
void bindNeuron(nb::module_& module, const char* name, float a, const char* documentation) {
  neuronNode<Node>(module, name, documentation).def(nb::new_(&Node::create), "source"_a, "a"_a = a);
}
template <class Node>
void bindNeuron(nb::module_& module, const char* name, float a, float b, const char* documentation) {
  neuronNode<Node>(module, name, documentation)
      .def(nb::new_(&Node::create), "source"_a, "a"_a = a, "b"_a = b);
}
template <class Node>
void bindNeuron(nb::module_& module, const char* name, float a, float b, float c, const char* documentation) {
  neuronNode<Node>(module, name, documentation)
      .def(nb::new_(&Node::create), "source"_a, "a"_a = a, "b"_a = b, "c"_a = c);
}

void bindNeuronNodes(nb::module_& module) {
  using namespace mps;
  FilterClass<CNNNeuronNode> node(module, "CNNNeuronNode",
                                  "Stands for CNNNeuron; the base of the nodes of each type.");
  node.def(nb::new_(&CNNNeuronNode::create), "source"_a, "descriptor"_a,
           "The node of the descriptor's type.");
  readOnly(node, "a", &CNNNeuronNode::a, "Parameter a.");
  readOnly(node, "b", &CNNNeuronNode::b, "Parameter b.");
  readOnly(node, "c", &CNNNeuronNode::c, "Parameter c.");
  readOnly(node, "descriptor", &CNNNeuronNode::descriptor, "The function.");
  bindNeuron<CNNNeuronLinearNode>(module, "CNNNeuronLinearNode", 1, 0, "a x + b.");
  bindNeuron<CNNNeuronReLUNode>(module, "CNNNeuronReLUNode", 0, "x if x >= 0 else a x.");
  bindNeuron<CNNNeuronSigmoidNode>(module, "CNNNeuronSigmoidNode", "1 / (1 + exp(-x)).");
  bindNeuron<CNNNeuronHardSigmoidNode>(module, "CNNNeuronHardSigmoidNode", 0.2F, 0.5F,
                                       "a x + b, clamped to [0, 1].");
  bindNeuron<CNNNeuronTanHNode>(module, "CNNNeuronTanHNode", 1, 1, "a tanh(b x).");
  bindNeuron<CNNNeuronAbsoluteNode>(module, "CNNNeuronAbsoluteNode", "|x|.");
  bindNeuron<CNNNeuronSoftPlusNode>(module, "CNNNeuronSoftPlusNode", 1, 1, "a ln(1 + exp(b x)).");
  bindNeuron<CNNNeuronSoftSignNode>(module, "CNNNeuronSoftSignNode", "x / (1 + |x|).");
  bindNeuron<CNNNeuronELUNode>(module, "CNNNeuronELUNode", 1, "x if x >= 0 else a (exp(x) - 1).");
  bindNeuron<CNNNeuronReLUNNode>(module, "CNNNeuronReLUNNode", 1, 6,
                                 "min(x if x >= 0 else a x, b). ReLU6 is a = 0.");
  bindNeuron<CNNNeuronPowerNode>(module, "CNNNeuronPowerNode", 1, 0, 1, "(a x + b)^c.");
  bindNeuron<CNNNeuronExponentialNode>(module, "CNNNeuronExponentialNode", 1, 0, -1,
                                       "c^(a x + b); c = -1 means base e.");
  bindNeuron<CNNNeuronLogarithmNode>(module, "CNNNeuronLogarithmNode", 1, 0, -1,
                                     "log_c(a x + b); c = -1 means base e.");
  bindNeuron<CNNNeuronGeLUNode>(module, "CNNNeuronGeLUNode", "0.5 x (1 + erf(x / sqrt(2))).");
  neuronNode<CNNNeuronPReLUNode>(module, "CNNNeuronPReLUNode",
                                 "x if x >= 0 else a_c x, one slope per channel.")
      .def(nb::new_([](ImageNode source, const std::vector<float>& slopes) {
             return CNNNeuronPReLUNode::create(std::move(source), slopes);
           }),
           "source"_a, "a_data"_a);
  GradientClass<CNNNeuronGradientNode> gradient(module, "CNNNeuronGradientNode",
                                                "Stands for CNNNeuronGradient.");
  gradient.def(nb::new_(&CNNNeuronGradientNode::create), "source_gradient"_a, "source_image"_a,
               "gradient_state"_a, "descriptor"_a, "`source_image`: the forward source.");
  readOnly(gradient, "descriptor", &CNNNeuronGradientNode::descriptor, "The function.");
}

/// What nodes of losses tell of their descriptor.
template <class Node, class Class>
void bindLossProperties(Class& node) {
  readOnly(
      node, "descriptor", [](const Node& self) { return self.descriptor(); },
      "A copy of what the node was made with.");
  readOnly(
      node, "loss_type", [](const Node& self) { return self.lossType(); }, "Loss of one element.");
  readOnly(
      node, "reduction_type", [](const Node& self) { return self.reductionType(); },
      "How the losses of an image become one.");
  readOnly(
      node, "reduce_across_batch", [](const Node& self) { return self.reduceAcrossBatch(); },
      "Whether the batch has one loss.");
  readOnly(
      node, "number_of_classes", [](const Node& self) { return self.numberOfClasses(); },
      "Channels that count, where above 1.");
  readOnly(
      node, "weight", [](const Node& self) { return self.weight(); }, "Factor of loss and gradient.");
  readOnly(
      node, "label_smoothing", [](const Node& self) { return self.labelSmoothing(); },
      "s of the cross entropies.");
  readOnly(
      node, "epsilon", [](const Node& self) { return self.epsilon(); }, "Of Log.");
  readOnly(
      node, "delta", [](const Node& self) { return self.delta(); }, "Of Huber.");
  node.def_prop_rw(
      "property_call_back", [](const Node& self) { return self.propertyCallBack(); },
      [](Node& self, std::shared_ptr<mps::NNLossCallback> callback) {
        self.setPropertyCallBack(std::move(callback));
      },
      nb::for_setter(nb::arg("callback").none()),
      "Asked for the weight at each encode. None: the weight counts.");
}

void bindLossNodes(nb::module_& module) {
  using namespace mps;
  emptyClass<NNLabelsNode, NNStateNode>(
      module, "NNLabelsNode",
      "Stands for the labels that the application gives to each encode; a source state of the graph.");
  FilterClass<CNNLossNode> loss(module, "CNNLossNode",
                                "Stands for CNNLoss. The result image is the gradient of the predictions: "
                                "call training_graph() on this node.");
  loss.def(nb::new_(&CNNLossNode::create), "source"_a, "loss_descriptor"_a, "`source`: the predictions.");
  readOnly(loss, "input_labels", &CNNLossNode::inputLabels,
           "Where the labels come in; give it a handle when the graph has several source states.");
  readOnly(loss, "descriptor", &CNNLossNode::descriptor, "A copy of what the node was made with.");

  FilterClass<NNForwardLossNode> forward(module, "NNForwardLossNode",
                                         "Stands for NNForwardLoss: predictions and labels, and weights if "
                                         "there are any, are images of the graph. Make an "
                                         "NNInitialGradientNode of the result, or of what other nodes make "
                                         "of it, and call training_graph() on that.");
  forward.def(nb::new_([](ImageNode source, ImageNode labels, const CNNLossDescriptor& descriptor,
                          ImageNode weights) {
                return NNForwardLossNode::create(std::move(source), std::move(labels), std::move(weights),
                                                 descriptor);
              }),
              "source"_a, "labels"_a, "loss_descriptor"_a, "weights"_a.none() = nb::none(),
              "`source`: the predictions.");
  bindLossProperties<NNForwardLossNode>(forward);
  GradientClass<NNLossGradientNode> gradient(module, "NNLossGradientNode", "Stands for NNLossGradient.");
  gradient.def(nb::new_([](ImageNode sourceGradient, ImageNode source, ImageNode labels, StateNode state,
                           const CNNLossDescriptor& descriptor, bool ofLabels, ImageNode weights) {
                 return NNLossGradientNode::create(std::move(sourceGradient), std::move(source),
                                                   std::move(labels), std::move(weights), std::move(state),
                                                   descriptor, ofLabels);
               }),
               "source_gradient"_a, "source_image"_a, "labels"_a, "gradient_state"_a.none(),
               "loss_descriptor"_a, "is_labels_gradient_filter"_a = false, "weights"_a.none() = nb::none(),
               "`gradient_state`: of the forward node, whose numbers then count; or None.");
  readOnly(gradient, "is_labels_gradient_filter", &NNLossGradientNode::isLabelsGradientFilter,
           "Whether the result is the gradient of the labels.");
  bindLossProperties<NNLossGradientNode>(gradient);
  FilterClass<NNInitialGradientNode>(module, "NNInitialGradientNode",
                                     "Stands for NNInitialGradient: the result, ones, is the gradient of the "
                                     "source with respect to itself. Call "
                                     "training_graph() on this node.")
      .def(nb::new_(&NNInitialGradientNode::create), "source"_a);
}

}  // namespace

void bindLayerNodes(nb::module_& module) {
  bindConvolutionNodes(module);
  bindNormalizationNodes(module);
  bindNeuronNodes(module);
  bindLossNodes(module);
}

}  // namespace python
