#include "mps/normalization/normalization_node.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/graph/nodes.hpp"

namespace python {
namespace {

template <class Node, class Class>
void bindParameters(Class& node, const char* alpha, const char* beta, const char* delta) {
  property(node, "alpha", &Node::alpha, &Node::setAlpha, alpha);
  property(node, "beta", &Node::beta, &Node::setBeta, beta);
  property(node, "delta", &Node::delta, &Node::setDelta, delta);
}
template <class Node, class Class>
void bindKernelSize(Class& node) {
  property(node, "kernel_width", &Node::kernelWidth, &Node::setKernelWidth, "Window in pixels.");
  property(node, "kernel_height", &Node::kernelHeight, &Node::setKernelHeight, "Window in pixels.");
}
template <class Node, class Class>
void bindContrast(Class& node) {
  property(node, "p0", &Node::p0, &Node::setP0, "1.");
  property(node, "pm", &Node::pm, &Node::setPm, "0.");
  property(node, "ps", &Node::ps, &Node::setPs, "1.");
}

}  // namespace

void bindLocalNormalizationNodes(nb::module_& module) {
  using namespace mps;
  FilterClass<CNNNormalizationNode> base(
      module, "CNNNormalizationNode",
      "Base of the normalisations by what lies around a value. Parameters and sizes are "
      "those of the kernels, which check them.");
  bindParameters<CNNNormalizationNode>(base, "1, not negative.", "5.", "1.");
  nb::class_<CNNSpatialNormalizationNode, CNNNormalizationNode> spatial(
      module, "CNNSpatialNormalizationNode", "Stands for CNNSpatialNormalization.");
  spatial.def(nb::new_(&CNNSpatialNormalizationNode::create), "source"_a, "kernel_size"_a = 5,
              "`kernel_size`: width and height.");
  bindKernelSize<CNNSpatialNormalizationNode>(spatial);
  using Contrast = CNNLocalContrastNormalizationNode;
  nb::class_<Contrast, CNNNormalizationNode> contrast(
      module, "CNNLocalContrastNormalizationNode",
      "Stands for CNNLocalContrastNormalization. alpha 1 (the bare kernel: 0), beta 0.5, delta 1/1024.");
  contrast.def(nb::new_(&Contrast::create), "source"_a, "kernel_size"_a = 5,
               "`kernel_size`: width and height.");
  bindKernelSize<Contrast>(contrast);
  bindContrast<Contrast>(contrast);
  using Cross = CNNCrossChannelNormalizationNode;
  nb::class_<Cross, CNNNormalizationNode> cross(module, "CNNCrossChannelNormalizationNode",
                                                "Stands for CNNCrossChannelNormalization.");
  cross.def(nb::new_(&Cross::create), "source"_a, "kernel_size"_a = 5,
            "`kernel_size`: channels of a window.");
  property(cross, "kernel_size_in_feature_channels", &Cross::kernelSizeInFeatureChannels,
           &Cross::setKernelSizeInFeatureChannels, "Channels of a window.");

  using SpatialGradient = CNNSpatialNormalizationGradientNode;
  GradientClass<SpatialGradient> spatialGradient(module, "CNNSpatialNormalizationGradientNode",
                                                 "Stands for CNNSpatialNormalizationGradient.");
  spatialGradient.def(nb::new_(&SpatialGradient::create), "source_gradient"_a, "source_image"_a,
                      "gradient_state"_a, "kernel_size"_a, "`source_image`: the forward source.");
  bindKernelSize<SpatialGradient>(spatialGradient);
  bindParameters<SpatialGradient>(spatialGradient, "1.", "5.", "1.");
  using ContrastGradient = CNNLocalContrastNormalizationGradientNode;
  GradientClass<ContrastGradient> contrastGradient(module, "CNNLocalContrastNormalizationGradientNode",
                                                   "Stands for CNNLocalContrastNormalizationGradient. Of "
                                                   "nodes that a forward node made, what that node has.");
  contrastGradient.def(nb::new_(&ContrastGradient::create), "source_gradient"_a, "source_image"_a,
                       "gradient_state"_a, "kernel_width"_a, "kernel_height"_a,
                       "`source_image`: the forward source.");
  readOnly(contrastGradient, "kernel_width", &ContrastGradient::kernelWidth, "Window in pixels.");
  readOnly(contrastGradient, "kernel_height", &ContrastGradient::kernelHeight, "Window in pixels.");
  bindParameters<ContrastGradient>(contrastGradient, "0.", "0.5.", "1/1024.");
  bindContrast<ContrastGradient>(contrastGradient);
  using CrossGradient = CNNCrossChannelNormalizationGradientNode;
  GradientClass<CrossGradient> crossGradient(
      module, "CNNCrossChannelNormalizationGradientNode",
      "Stands for CNNCrossChannelNormalizationGradient; alpha, beta and delta come from the gradient state.");
  crossGradient.def(nb::new_(&CrossGradient::create), "source_gradient"_a, "source_image"_a,
                    "gradient_state"_a, "kernel_size"_a, "`source_image`: the forward source.");
  readOnly(crossGradient, "kernel_size_in_feature_channels", &CrossGradient::kernelSizeInFeatureChannels,
           "Channels of a window.");
}

}  // namespace python
