#include <cstddef>
#include <memory>
#include <utility>

#include "mps/normalization/normalization_node.hpp"
#include "mps/pooling/pooling_node.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/graph/nodes.hpp"

namespace python {
namespace {

template <class Node, class Class>
void bindWindow(Class& node) {
  readOnly(node, "kernel_width", &Node::kernelWidth, "Window in pixels.");
  readOnly(node, "kernel_height", &Node::kernelHeight, "Window in pixels.");
  readOnly(node, "stride_in_pixels_x", &Node::strideInPixelsX, "Step from window to window.");
  readOnly(node, "stride_in_pixels_y", &Node::strideInPixelsY, "Step from window to window.");
}

template <class Node>
void bindPooling(nb::module_& module, const char* name, const char* documentation) {
  nb::class_<Node, mps::CNNPoolingNode>(module, name, documentation)
      .def(nb::new_([](ImageNode source, std::size_t size) { return Node::create(std::move(source), size); }),
           "source"_a, "filter_size"_a, "Kernel and stride of the same size.")
      .def(nb::new_([](ImageNode source, std::size_t size, std::size_t stride) {
             return Node::create(std::move(source), size, stride);
           }),
           "source"_a, "filter_size"_a, "stride"_a, "The same on both axes.")
      .def(nb::new_([](ImageNode source, std::size_t width, std::size_t height, std::size_t strideX,
                       std::size_t strideY) {
             return Node::create(std::move(source), width, height, strideX, strideY);
           }),
           "source"_a, "kernel_width"_a, "kernel_height"_a, "stride_in_pixels_x"_a, "stride_in_pixels_y"_a,
           "All at least 1.");
}
template <class Node>
void bindPoolingGradient(nb::module_& module, const char* name, const char* documentation) {
  nb::class_<Node, mps::CNNPoolingGradientNode>(module, name, documentation)
      .def(nb::new_(&Node::create), "source_gradient"_a, "source_image"_a, "gradient_state"_a,
           "kernel_width"_a, "kernel_height"_a, "stride_in_pixels_x"_a, "stride_in_pixels_y"_a,
           "padding_policy"_a.none() = nb::none(),
           "`source_image`: the forward source; sizes are those of the forward node. `padding_policy` None: "
           "the default.");
}

template <class Node, class Class>
void bindDilation(Class& node) {
  readOnly(node, "dilation_rate_x", &Node::dilationRateX, "Pixels from tap to tap.");
  readOnly(node, "dilation_rate_y", &Node::dilationRateY, "Pixels from tap to tap.");
}

void bindPoolingNodes(nb::module_& module) {
  using namespace mps;
  FilterClass<CNNPoolingNode> pooling(module, "CNNPoolingNode",
                                      "Base of the forward pooling nodes. Their kernels have edge mode "
                                      "Clamp; padding is Same, centred, remainder to the top "
                                      "left, unless padding_policy says otherwise.");
  bindWindow<CNNPoolingNode>(pooling);
  bindPooling<CNNPoolingMaxNode>(module, "CNNPoolingMaxNode", "Stands for CNNPoolingMax.");
  bindPooling<CNNPoolingAverageNode>(
      module, "CNNPoolingAverageNode",
      "Stands for CNNPoolingAverage: with Clamp, pixels outside the image do not count.");
  bindPooling<CNNPoolingL2NormNode>(module, "CNNPoolingL2NormNode", "Stands for CNNPoolingL2Norm.");
  using Dilated = CNNDilatedPoolingMaxNode;
  nb::class_<Dilated, CNNPoolingNode> dilated(module, "CNNDilatedPoolingMaxNode",
                                              "Stands for CNNDilatedPoolingMax.");
  dilated
      .def(nb::new_(
               [](ImageNode source, std::size_t size) { return Dilated::create(std::move(source), size); }),
           "source"_a, "filter_size"_a, "Kernel, stride and dilation of the same size.")
      .def(nb::new_([](ImageNode source, std::size_t size, std::size_t stride, std::size_t rate) {
             return Dilated::create(std::move(source), size, stride, rate);
           }),
           "source"_a, "filter_size"_a, "stride"_a, "dilation_rate"_a, "The same on both axes.")
      .def(nb::new_([](ImageNode source, std::size_t width, std::size_t height, std::size_t strideX,
                       std::size_t strideY, std::size_t rateX, std::size_t rateY) {
             return Dilated::create(std::move(source), width, height, strideX, strideY, rateX, rateY);
           }),
           "source"_a, "kernel_width"_a, "kernel_height"_a, "stride_in_pixels_x"_a, "stride_in_pixels_y"_a,
           "dilation_rate_x"_a, "dilation_rate_y"_a, "All at least 1.");
  bindDilation<Dilated>(dilated);

  GradientClass<CNNPoolingGradientNode> gradient(module, "CNNPoolingGradientNode",
                                                 "Base of the pooling gradient nodes. Sizes are those of the "
                                                 "forward node; the geometry comes from the gradient state.");
  bindWindow<CNNPoolingGradientNode>(gradient);
  bindPoolingGradient<CNNPoolingMaxGradientNode>(module, "CNNPoolingMaxGradientNode",
                                                 "Stands for CNNPoolingMaxGradient.");
  bindPoolingGradient<CNNPoolingAverageGradientNode>(module, "CNNPoolingAverageGradientNode",
                                                     "Stands for CNNPoolingAverageGradient.");
  bindPoolingGradient<CNNPoolingL2NormGradientNode>(module, "CNNPoolingL2NormGradientNode",
                                                    "Stands for CNNPoolingL2NormGradient.");
  using DilatedGradient = CNNDilatedPoolingMaxGradientNode;
  nb::class_<DilatedGradient, CNNPoolingGradientNode> dilatedGradient(
      module, "CNNDilatedPoolingMaxGradientNode", "Stands for CNNDilatedPoolingMaxGradient.");
  dilatedGradient.def(nb::new_(&DilatedGradient::create), "source_gradient"_a, "source_image"_a,
                      "gradient_state"_a, "kernel_width"_a, "kernel_height"_a, "stride_in_pixels_x"_a,
                      "stride_in_pixels_y"_a, "dilation_rate_x"_a, "dilation_rate_y"_a,
                      "`source_image`: the forward source; sizes are those of the forward node.");
  bindDilation<DilatedGradient>(dilatedGradient);
}

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

void bindNormalizationNodes(nb::module_& module) {
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

}  // namespace

void bindWindowNodes(nb::module_& module) {
  bindPoolingNodes(module);
  bindNormalizationNodes(module);
}

}  // namespace python
