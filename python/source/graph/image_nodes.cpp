#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/concatenation/concatenation_node.hpp"
#include "mps/dropout/dropout.hpp"
#include "mps/gram_matrix/gram_matrix.hpp"
#include "mps/gram_matrix/gram_matrix_node.hpp"
#include "mps/reduction/reduction_node.hpp"
#include "mps/reshape/reshape_node.hpp"
#include "mps/softmax/softmax.hpp"
#include "mps/upsampling/image_scale.hpp"
#include "mps/upsampling/scale_node.hpp"
#include "mps/upsampling/upsampling_node.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/graph/nodes.hpp"

namespace python {
namespace {

using mps::NNArithmeticGradientNode;
using mps::NNBinaryArithmeticNode;

template <class Node>
auto bindOperation(nb::module_& module, const char* name, const char* documentation) {
  return nb::class_<Node, NNBinaryArithmeticNode>(module, name, documentation)
      .def(nb::new_([](ImageNode left, ImageNode right) {
             return Node::create(std::move(left), std::move(right));
           }),
           "left_source"_a, "right_source"_a)
      .def(nb::new_([](const ImageNodes& sources) { return Node::create(sources); }), "sources"_a,
           "Raises Error unless there are exactly two.");
}
template <class Node>
void bindOperationGradient(nb::module_& module, const char* name, const char* documentation) {
  nb::class_<Node, NNArithmeticGradientNode>(module, name, documentation)
      .def(nb::new_([](ImageNode gradient, ImageNode source, StateNode state, bool isSecondary) {
             return Node::create(std::move(gradient), std::move(source), std::move(state), isSecondary);
           }),
           "source_gradient"_a, "source_image"_a, "gradient_state"_a, "is_secondary_source_filter"_a)
      .def(nb::new_([](const ImageNodes& gradientImages, const std::shared_ptr<mps::NNFilterNode>& forward,
                       bool isSecondary) { return Node::create(gradientImages, forward, isSecondary); }),
           "gradient_images"_a, "forward_filter"_a, "is_secondary_source_filter"_a,
           "`gradient_images`: the gradient of the result, and the forward image.");
}

/// What forward and gradient nodes of the arithmetic have.
template <class Node, class Class>
void bindScales(Class& node) {
  property(node, "primary_scale", &Node::primaryScale, &Node::setPrimaryScale, "a, factor on x. 1.");
  property(node, "secondary_scale", &Node::secondaryScale, &Node::setSecondaryScale, "b, factor on y. 1.");
  property(node, "bias", &Node::bias, &Node::setBias, "Added to the result of the operation. 0.");
  property(node, "secondary_stride_in_pixels_x", &Node::secondaryStrideInPixelsX,
           &Node::setSecondaryStrideInPixelsX, "0 repeats a column of the secondary source. 1.");
  property(node, "secondary_stride_in_pixels_y", &Node::secondaryStrideInPixelsY,
           &Node::setSecondaryStrideInPixelsY, "0 repeats a row of the secondary source. 1.");
  property(node, "secondary_stride_in_feature_channels", &Node::secondaryStrideInFeatureChannels,
           &Node::setSecondaryStrideInFeatureChannels, "0 repeats a channel of the secondary source. 1.");
  property(node, "minimum_value", &Node::minimumValue, &Node::setMinimumValue,
           "Limit of the result. The least float32, which means none.");
  property(node, "maximum_value", &Node::maximumValue, &Node::setMaximumValue,
           "Limit of the result. The greatest float32, which means none.");
}

void bindArithmeticNodes(nb::module_& module) {
  using namespace mps;
  emptyClass<NNArithmeticGradientStateNode, NNBinaryGradientStateNode>(
      module, "NNArithmeticGradientStateNode", "Stands for a CNNArithmeticGradientState.");
  FilterClass<NNBinaryArithmeticNode> base(
      module, "NNBinaryArithmeticNode",
      "Base of the nodes with a left and a right source; left is x, the primary source of the kernel, right "
      "is y. Two gradient "
      "nodes: [0] of the left source, [1] of the right one; they copy the properties when they are made.");
  bindScales<NNBinaryArithmeticNode>(base);
  property(base, "primary_stride_in_pixels_x", &NNBinaryArithmeticNode::primaryStrideInPixelsX,
           &NNBinaryArithmeticNode::setPrimaryStrideInPixelsX,
           "0 repeats a column of the primary source. 1.");
  property(base, "primary_stride_in_pixels_y", &NNBinaryArithmeticNode::primaryStrideInPixelsY,
           &NNBinaryArithmeticNode::setPrimaryStrideInPixelsY, "0 repeats a row of the primary source. 1.");
  property(base, "primary_stride_in_feature_channels",
           &NNBinaryArithmeticNode::primaryStrideInFeatureChannels,
           &NNBinaryArithmeticNode::setPrimaryStrideInFeatureChannels,
           "0 repeats a channel of the primary source. 1.");
  readOnly(base, "gradient_class", &NNBinaryArithmeticNode::gradientClass,
           "Class name of the gradient nodes, \"NNAdditionGradientNode\"; empty where there are none.");
  bindOperation<NNAdditionNode>(module, "NNAdditionNode", "clamp(a x + b y + bias).");
  bindOperation<NNSubtractionNode>(module, "NNSubtractionNode", "clamp(a x - b y + bias).");
  bindOperation<NNMultiplicationNode>(module, "NNMultiplicationNode", "clamp(a x * b y + bias).");
  bindOperation<NNDivisionNode>(module, "NNDivisionNode", "clamp(a x / (b y) + bias).");
  auto comparison = bindOperation<NNComparisonNode>(
      module, "NNComparisonNode",
      "1 where a comparison of x with y holds, else 0; of the base's properties only the strides are used. "
      "It has no "
      "gradient: training_graph() through it raises Error.");
  property(comparison, "comparison_type", &NNComparisonNode::comparisonType,
           &NNComparisonNode::setComparisonType, "Equal.");

  GradientClass<NNArithmeticGradientNode> gradient(
      module, "NNArithmeticGradientNode",
      "Base of the gradient nodes. Properties as of CNNArithmeticGradient; the nodes that a forward node "
      "makes have the scales "
      "that give its exact gradient.");
  bindScales<NNArithmeticGradientNode>(gradient);
  readOnly(gradient, "is_secondary_source_filter", &NNArithmeticGradientNode::isSecondarySourceFilter,
           "Whether the result is the gradient of the right source.");
  bindOperationGradient<NNAdditionGradientNode>(module, "NNAdditionGradientNode",
                                                "Stands for CNNAddGradient.");
  bindOperationGradient<NNSubtractionGradientNode>(module, "NNSubtractionGradientNode",
                                                   "Stands for CNNSubtractGradient.");
  bindOperationGradient<NNMultiplicationGradientNode>(module, "NNMultiplicationGradientNode",
                                                      "Stands for CNNMultiplyGradient.");
  bindOperationGradient<NNDivisionGradientNode>(module, "NNDivisionGradientNode",
                                                "Stands for CNNDivideGradient.");
}

template <class Node>
void bindReduction(nb::module_& module, const char* name, const char* documentation) {
  nb::class_<Node, mps::NNUnaryReductionNode>(module, name, documentation)
      .def(nb::new_(&Node::create), "source"_a);
}

void bindReductionNodes(nb::module_& module) {
  using namespace mps;
  FilterClass<NNUnaryReductionNode> base(module, "NNUnaryReductionNode",
                                         "Base of the nodes that reduce one source. All but the arguments of "
                                         "minimum and maximum have a gradient.");
  property(base, "clip_rect_source", &NNUnaryReductionNode::clipRectSource,
           &NNUnaryReductionNode::setClipRectSource, "The part of the source that is reduced. RectNoClip.");
  bindReduction<NNReductionRowMinNode>(module, "NNReductionRowMinNode", "Least value of each row.");
  bindReduction<NNReductionRowMaxNode>(module, "NNReductionRowMaxNode", "Greatest value of each row.");
  bindReduction<NNReductionRowSumNode>(module, "NNReductionRowSumNode", "Sum of each row.");
  bindReduction<NNReductionRowMeanNode>(module, "NNReductionRowMeanNode", "Mean of each row.");
  bindReduction<NNReductionColumnMinNode>(module, "NNReductionColumnMinNode", "Least value of each column.");
  bindReduction<NNReductionColumnMaxNode>(module, "NNReductionColumnMaxNode",
                                          "Greatest value of each column.");
  bindReduction<NNReductionColumnSumNode>(module, "NNReductionColumnSumNode", "Sum of each column.");
  bindReduction<NNReductionColumnMeanNode>(module, "NNReductionColumnMeanNode", "Mean of each column.");
  bindReduction<NNReductionFeatureChannelsMinNode>(module, "NNReductionFeatureChannelsMinNode",
                                                   "Least value of the channels of a pixel.");
  bindReduction<NNReductionFeatureChannelsMaxNode>(module, "NNReductionFeatureChannelsMaxNode",
                                                   "Greatest value of the channels of a pixel.");
  bindReduction<NNReductionFeatureChannelsMeanNode>(module, "NNReductionFeatureChannelsMeanNode",
                                                    "Mean of the channels of a pixel.");
  bindReduction<NNReductionFeatureChannelsArgumentMinNode>(
      module, "NNReductionFeatureChannelsArgumentMinNode", "The channel of the least value of a pixel.");
  bindReduction<NNReductionFeatureChannelsArgumentMaxNode>(
      module, "NNReductionFeatureChannelsArgumentMaxNode", "The channel of the greatest value of a pixel.");
  bindReduction<NNReductionSpatialMeanNode>(
      module, "NNReductionSpatialMeanNode",
      "Mean of all pixels, channel by channel: global average pooling, 1 x 1 x C.");
  nb::class_<NNReductionFeatureChannelsSumNode, NNUnaryReductionNode> sum(
      module, "NNReductionFeatureChannelsSumNode", "weight * the sum over the channels of a pixel.");
  sum.def(nb::new_(&NNReductionFeatureChannelsSumNode::create), "source"_a);
  property(sum, "weight", &NNReductionFeatureChannelsSumNode::weight,
           &NNReductionFeatureChannelsSumNode::setWeight, "Factor. 1.");
  emptyClass<NNUnaryReductionGradientNode, mps::NNGradientFilterNode>(
      module, "NNUnaryReductionGradientNode",
      "Stands for NNReduceUnaryGradient; made by the nodes of the reductions.");
  nb::class_<NNReductionSpatialMeanGradientNode, NNUnaryReductionGradientNode>(
      module, "NNReductionSpatialMeanGradientNode", "That of the spatial mean, g / number of pixels.")
      .def(nb::new_(&NNReductionSpatialMeanGradientNode::create), "source_gradient"_a, "source_image"_a,
           "gradient_state"_a, "`source_image`: the forward source.");
}

void bindShapes(nb::module_& module) {
  using namespace mps;
  FilterClass<NNConcatenationNode> concatenation(module, "NNConcatenationNode",
                                                 "Stands for NNConcatenation: the feature channels of its "
                                                 "sources side by side. All must have one width and height. "
                                                 "gradient_filters() gives one node for each source.");
  concatenation.def(nb::new_([](const ImageNodes& sources) { return NNConcatenationNode::create(sources); }),
                    "sources"_a,
                    "At least one; the same image may come more than once. Raises Error for none.");
  property(concatenation, "channel_alignment", &NNConcatenationNode::channelAlignment,
           &NNConcatenationNode::setChannelAlignment,
           "4: each source is padded with zeros to a multiple of four channels, and a convolution behind it "
           "must have as many "
           "input channels. With 1 nothing is padded. Raises Error for another number.");
  GradientClass<NNConcatenationGradientNode> slice(module, "NNConcatenationGradientNode",
                                                   "Stands for NNConcatenationGradient.");
  slice.def(
      nb::new_(&NNConcatenationGradientNode::create), "source_gradient"_a, "source_image"_a,
      "gradient_state"_a, "source_index"_a.none() = nb::none(),
      "`source_image`: the forward source whose slice this is. `source_index`: which one it is; None: the "
      "first one that "
      "is `source_image`. Raises Error for a state that is not that of a concatenation of `source_image`.");
  readOnly(slice, "source_index", &NNConcatenationGradientNode::sourceIndex,
           "Which source of the concatenation.");

  FilterClass<NNReshapeNode> reshape(
      module, "NNReshapeNode",
      "Stands for NNReshape: an image of this shape, which has as many elements as the source.");
  reshape.def(nb::new_(&NNReshapeNode::create), "source"_a, "result_width"_a, "result_height"_a,
              "result_feature_channels"_a);
  property(reshape, "channels_first", &NNReshapeNode::channelsFirst, &NNReshapeNode::setChannelsFirst,
           "The kernel's. False.");
  plainGradient<NNReshapeGradientNode>(module, "NNReshapeGradientNode", "Stands for NNReshapeGradient.");
  FilterClass<NNPadNode> pad(
      module, "NNPadNode",
      "Stands for NNPad. The result is larger by both paddings, whatever padding_policy says.");
  pad.def(nb::new_(&NNPadNode::create), "source"_a, "padding_size_before"_a, "padding_size_after"_a,
          "edge_mode"_a);
  property(pad, "fill_value", &NNPadNode::fillValue, &NNPadNode::setFillValue, "With edge mode Constant. 0.");
  plainGradient<NNPadGradientNode>(module, "NNPadGradientNode", "Stands for NNPadGradient.");

  FilterClass<NNGramMatrixCalculationNode> gram(module, "NNGramMatrixCalculationNode",
                                                "Stands for NNGramMatrixCalculation.");
  gram.def(nb::new_(&NNGramMatrixCalculationNode::create), "source"_a, "alpha"_a = 1.0F);
  readOnly(gram, "alpha", &NNGramMatrixCalculationNode::alpha, "Factor.");
  gram.def_prop_rw("property_call_back", &NNGramMatrixCalculationNode::propertyCallBack,
                   &NNGramMatrixCalculationNode::setPropertyCallBack,
                   nb::for_setter(nb::arg("callback").none()),
                   "Asked for alpha at each encode of the graph; its answer replaces alpha, in the gradient "
                   "of that encode, "
                   "too. None.");
  GradientClass<NNGramMatrixCalculationGradientNode> gramGradient(
      module, "NNGramMatrixCalculationGradientNode",
      "Stands for NNGramMatrixCalculationGradient. What the forward encode recorded goes before alpha.");
  gramGradient.def(nb::new_(&NNGramMatrixCalculationGradientNode::create), "source_gradient"_a,
                   "source_image"_a, "gradient_state"_a, "alpha"_a = 1.0F,
                   "`source_image`: the forward source.");
  readOnly(gramGradient, "alpha", &NNGramMatrixCalculationGradientNode::alpha, "Factor.");
}

void bindScaling(nb::module_& module) {
  using namespace mps;
  FilterClass<CNNUpsamplingNode> upsampling(module, "CNNUpsamplingNode",
                                            "Base of the upsampling nodes: the result is scale_factor_x "
                                            "times as wide and scale_factor_y times as high as the source, "
                                            "whatever padding_policy says.");
  readOnly(upsampling, "scale_factor_x", &CNNUpsamplingNode::scaleFactorX, "A whole number.");
  readOnly(upsampling, "scale_factor_y", &CNNUpsamplingNode::scaleFactorY, "A whole number.");
  nb::class_<CNNUpsamplingNearestNode, CNNUpsamplingNode>(module, "CNNUpsamplingNearestNode",
                                                          "Stands for CNNUpsamplingNearest.")
      .def(nb::new_(&CNNUpsamplingNearestNode::create), "source"_a, "integer_scale_factor_x"_a,
           "integer_scale_factor_y"_a);
  nb::class_<CNNUpsamplingBilinearNode, CNNUpsamplingNode> bilinear(module, "CNNUpsamplingBilinearNode",
                                                                    "Stands for CNNUpsamplingBilinear.");
  bilinear.def(nb::new_(&CNNUpsamplingBilinearNode::create), "source"_a, "integer_scale_factor_x"_a,
               "integer_scale_factor_y"_a, "align_corners"_a = false);
  readOnly(bilinear, "align_corners", &CNNUpsamplingBilinearNode::alignCorners,
           "Whether the corners of source and result coincide.");
  property(bilinear, "half_pixel_centers", &CNNUpsamplingBilinearNode::halfPixelCenters,
           &CNNUpsamplingBilinearNode::setHalfPixelCenters,
           "Whether pixels are sampled at their centres. False.");
  GradientClass<CNNUpsamplingGradientNode> gradient(
      module, "CNNUpsamplingGradientNode",
      "Base of the upsampling gradient nodes. The factors are those of the forward node; how it aligned its "
      "samples comes from "
      "the gradient state.");
  readOnly(gradient, "scale_factor_x", &CNNUpsamplingGradientNode::scaleFactorX, "The forward node's.");
  readOnly(gradient, "scale_factor_y", &CNNUpsamplingGradientNode::scaleFactorY, "The forward node's.");
  nb::class_<CNNUpsamplingNearestGradientNode, CNNUpsamplingGradientNode>(
      module, "CNNUpsamplingNearestGradientNode", "Stands for CNNUpsamplingNearestGradient.")
      .def(nb::new_(&CNNUpsamplingNearestGradientNode::create), "source_gradient"_a, "source_image"_a,
           "gradient_state"_a, "scale_factor_x"_a, "scale_factor_y"_a, "`source_image`: the forward source.");
  nb::class_<CNNUpsamplingBilinearGradientNode, CNNUpsamplingGradientNode>(
      module, "CNNUpsamplingBilinearGradientNode", "Stands for CNNUpsamplingBilinearGradient.")
      .def(nb::new_(&CNNUpsamplingBilinearGradientNode::create), "source_gradient"_a, "source_image"_a,
           "gradient_state"_a, "scale_factor_x"_a, "scale_factor_y"_a, "`source_image`: the forward source.");

  FilterClass<NNScaleNode> scale(module, "NNScaleNode",
                                 "Base of the nodes that give an image another size. The source fills the "
                                 "result, or lies where the transform provider "
                                 "says, which is asked at each encode of the graph for each image.");
  readOnly(scale, "output_size", &NNScaleNode::outputSize,
           "Width and height of the result, whatever padding_policy says; depth 1.");
  readOnly(scale, "transform_provider", &NNScaleNode::transformProvider,
           "Who places the source; None: it fills the result.");
  const auto bindScale = [&module]<class Node>(Node*, const char* name, const char* documentation) {
    nb::class_<Node, NNScaleNode>(module, name, documentation)
        .def(nb::new_([](ImageNode source, const mtl::Size& size,
                         std::shared_ptr<ImageTransformProvider> provider) {
               return Node::create(std::move(source), std::move(provider), size);
             }),
             "source"_a, "output_size"_a, "transform_provider"_a.none() = nb::none(),
             "Raises Error for another depth than 1.");
  };
  bindScale(static_cast<NNBilinearScaleNode*>(nullptr), "NNBilinearScaleNode",
            "Stands for NNResizeBilinear with half_pixel_centers. With a provider it stands for "
            "ImageBilinearScale.");
  bindScale(static_cast<NNLanczosScaleNode*>(nullptr), "NNLanczosScaleNode", "Stands for ImageLanczosScale.");
  plainGradient<NNBilinearScaleGradientNode>(
      module, "NNBilinearScaleGradientNode",
      "Stands for NNResizeBilinearGradient, or for ImageBilinearScaleGradient where the forward node has a "
      "transform provider.");
  plainGradient<NNLanczosScaleGradientNode>(module, "NNLanczosScaleGradientNode",
                                            "Stands for ImageLanczosScaleGradient.");
}

template <class Node, class Class>
void bindDropoutProperties(Class& node) {
  readOnly(node, "keep_probability", &Node::keepProbability, "Share of values that stay.");
  readOnly(node, "seed", &Node::seed, "Of the random numbers.");
  readOnly(node, "mask_stride_in_pixels", &Node::maskStrideInPixels,
           "Pixels and channels that share a random number.");
}

void bindOthers(nb::module_& module) {
  using namespace mps;
  FilterClass<CNNDropoutNode> dropout(module, "CNNDropoutNode", "Stands for CNNDropout.");
  dropout.def(nb::new_(&CNNDropoutNode::create), "source"_a, "keep_probability"_a = 0.5F, "seed"_a = 0,
              "mask_stride_in_pixels"_a = mtl::Size{1, 1, 1});
  bindDropoutProperties<CNNDropoutNode>(dropout);
  GradientClass<CNNDropoutGradientNode> gradient(module, "CNNDropoutGradientNode",
                                                 "Stands for CNNDropoutGradient.");
  gradient.def(nb::new_(&CNNDropoutGradientNode::create), "source_gradient"_a, "source_image"_a,
               "gradient_state"_a, "keep_probability"_a, "seed"_a, "mask_stride_in_pixels"_a,
               "All as of the forward node.");
  bindDropoutProperties<CNNDropoutGradientNode>(gradient);

  FilterClass<CNNSoftMaxNode>(
      module, "CNNSoftMaxNode",
      "Stands for CNNSoftMax. Before a softmax cross-entropy loss it stays a second softmax.")
      .def(nb::new_(&CNNSoftMaxNode::create), "source"_a);
  FilterClass<CNNLogSoftMaxNode>(module, "CNNLogSoftMaxNode", "Stands for CNNLogSoftMax.")
      .def(nb::new_(&CNNLogSoftMaxNode::create), "source"_a);
  constexpr const char* created =
      "`source_image`: the forward result. Raises Error when it is what the forward filter of the state "
      "reads.";
  GradientClass<CNNSoftMaxGradientNode>(module, "CNNSoftMaxGradientNode", "Stands for CNNSoftMaxGradient.")
      .def(nb::new_(&CNNSoftMaxGradientNode::create), "source_gradient"_a, "source_image"_a,
           "gradient_state"_a, created);
  GradientClass<CNNLogSoftMaxGradientNode>(module, "CNNLogSoftMaxGradientNode",
                                           "Stands for CNNLogSoftMaxGradient.")
      .def(nb::new_(&CNNLogSoftMaxGradientNode::create), "source_gradient"_a, "source_image"_a,
           "gradient_state"_a, created);
}

}  // namespace

void bindImageNodes(nb::module_& module) {
  bindArithmeticNodes(module);
  bindReductionNodes(module);
  bindShapes(module);
  bindScaling(module);
  bindOthers(module);
}

}  // namespace python
