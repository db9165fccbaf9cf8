#include "mps/pooling/pooling.hpp"

#include <cstddef>
#include <utility>

#include "mps/pooling/pooling_node.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"
#include "python/source/graph/nodes.hpp"

namespace python {
namespace {

/// The constructor that most of them have: `create` with a window and a step.
template <class KernelType, class Class>
void bindWindow(Class& bound, const char* documentation) {
  bound.def(nb::new_(&KernelType::create), "device"_a, "kernel_width"_a, "kernel_height"_a,
            "stride_in_pixels_x"_a = 1, "stride_in_pixels_y"_a = 1, documentation);
}
template <class KernelType, class Class>
void bindDilatedWindow(Class& bound, const char* documentation) {
  bound.def(nb::new_(&KernelType::create), "device"_a, "kernel_width"_a, "kernel_height"_a,
            "dilation_rate_x"_a, "dilation_rate_y"_a, "stride_in_pixels_x"_a, "stride_in_pixels_y"_a,
            documentation);
}
template <class KernelType, class Class>
void bindZeroPadSize(Class& bound) {
  constexpr const char* documentation =
      "Width of the band of zeros that the divisor counts, in pixels; with Clamp only. 0. Of a gradient "
      "kernel: taken from "
      "the state unless set.";
  property(bound, "zero_pad_size_x", &KernelType::zeroPadSizeX, &KernelType::setZeroPadSizeX, documentation);
  property(bound, "zero_pad_size_y", &KernelType::zeroPadSizeY, &KernelType::setZeroPadSizeY, documentation);
}

constexpr const char* windowDocumentation =
    "`kernel_width`, `kernel_height`: window in pixels, odd or even, at least 1; `stride_in_pixels_x`, "
    "`stride_in_pixels_y`: step from window to window, at least 1. Raises Error for a 0.";
constexpr const char* dilatedWindowDocumentation =
    "`dilation_rate_x`, `dilation_rate_y`: pixels from tap to tap, at least 1; the others as for "
    "CNNPoolingMax.";
constexpr const char* gradientDocumentation = "Parameters are those of the forward kernel.";

void bindForward(nb::module_& module) {
  using namespace mps;
  const nb::class_<CNNPooling, CNNKernel> base(
      module, "CNNPooling",
      "Base of the pooling kernels: one number of each window and feature channel. Sources: every format; "
      "destinations: "
      "float16, float32. Kernels take edge mode Zero by default; graph nodes take Clamp.");
  auto maximum = kernelClass<CNNPoolingMax, CNNPooling>(
      module, "CNNPoolingMax",
      "out(x, y, c) = max over taps of in(tap, c).\n\n"
      "Zero: taps outside count as 0, so a window that touches the border never gives less than 0. Clamp: "
      "they repeat the "
      "nearest edge pixel, the same as limiting the window to the image. NaN propagates.");
  bindWindow<CNNPoolingMax>(maximum, windowDocumentation);
  auto average = kernelClass<CNNPoolingAverage, CNNPooling>(
      module, "CNNPoolingAverage",
      "out(x, y, c) = sum over taps inside the image of in(tap, c), divided by N.\n\n"
      "Zero: N = kernel_width * kernel_height always. Clamp: N = number of taps inside the image grown by "
      "zero_pad_size_x "
      "columns left and right and zero_pad_size_y rows above and below; the result is 0 where N is 0. "
      "zero_pad_size p "
      "with Clamp is PyTorch's padding p.");
  bindWindow<CNNPoolingAverage>(average, windowDocumentation);
  bindZeroPadSize<CNNPoolingAverage>(average);
  auto norm =
      kernelClass<CNNPoolingL2Norm, CNNPooling>(module, "CNNPoolingL2Norm",
                                                "out(x, y, c) = sqrt(sum over taps inside the image of "
                                                "in(tap, c)^2), not divided by the window's size.");
  bindWindow<CNNPoolingL2Norm>(norm, windowDocumentation);
  auto dilated = kernelClass<CNNDilatedPoolingMax, CNNPooling>(
      module, "CNNDilatedPoolingMax", "Maximum over taps that are dilation_rate pixels apart.");
  bindDilatedWindow<CNNDilatedPoolingMax>(dilated, dilatedWindowDocumentation);
}

void bindGradients(nb::module_& module) {
  using namespace mps;
  nb::class_<CNNPoolingGradient, CNNGradientKernel> gradient(
      module, "CNNPoolingGradient",
      "Base of the pooling gradients:\n\n"
      "    dIn(y) = sum over windows x in [0, n) of g(primary_offset + x) * d out(x) / d in(y)\n"
      "    n      = min(source_size, size of the gradient image - primary_offset), per axis\n\n"
      "The state sets primary_offset to the forward clip origin, source_size to the clip size, "
      "secondary_offset to the "
      "forward offset. Pixels without a window are 0.");
  property(gradient, "source_size", &CNNPoolingGradient::sourceSize, &CNNPoolingGradient::setSourceSize,
           "How many gradient pixels count, from primary_offset on. All.");
  auto maximum = kernelClass<CNNPoolingMaxGradient, CNNPoolingGradient>(
      module, "CNNPoolingMaxGradient",
      "d out(x) / d in(y) = 1 where y is the chosen maximum of window x, else 0. Chosen is the first NaN, "
      "else the first "
      "maximum in row-major order of the taps; a pixel wins against an equal zero outside. The gradient of a "
      "window whose "
      "maximum lies outside is dropped (Zero) or goes to the edge pixel (Clamp).");
  bindWindow<CNNPoolingMaxGradient>(maximum, gradientDocumentation);
  auto average = kernelClass<CNNPoolingAverageGradient, CNNPoolingGradient>(
      module, "CNNPoolingAverageGradient",
      "dIn(y) = sum over windows x that contain y of g(x) / N(x), N as in the forward pass. Only the size of "
      "the source image "
      "counts: an unwritten temporary image will do.");
  bindWindow<CNNPoolingAverageGradient>(average, gradientDocumentation);
  bindZeroPadSize<CNNPoolingAverageGradient>(average);
  auto norm = kernelClass<CNNPoolingL2NormGradient, CNNPoolingGradient>(
      module, "CNNPoolingL2NormGradient",
      "dIn(y) = in(y) * sum over windows x that contain y of g(x) / out(x), with 0 for a window whose norm "
      "is 0.");
  bindWindow<CNNPoolingL2NormGradient>(norm, gradientDocumentation);
  auto dilated = kernelClass<CNNDilatedPoolingMaxGradient, CNNPoolingGradient>(
      module, "CNNDilatedPoolingMaxGradient",
      "The gradient of CNNDilatedPoolingMax; rules as for CNNPoolingMaxGradient.");
  bindDilatedWindow<CNNDilatedPoolingMaxGradient>(
      dilated,
      "Parameters are those of the forward kernel; the rates read back as secondary_dilation_rate_x and -y.");
}

template <class Node, class Class>
void bindNodeWindow(Class& node) {
  readOnly(node, "kernel_width", &Node::kernelWidth, "Window in pixels.");
  readOnly(node, "kernel_height", &Node::kernelHeight, "Window in pixels.");
  readOnly(node, "stride_in_pixels_x", &Node::strideInPixelsX, "Step from window to window.");
  readOnly(node, "stride_in_pixels_y", &Node::strideInPixelsY, "Step from window to window.");
}

template <class Node>
void bindNode(nb::module_& module, const char* name, const char* documentation) {
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
void bindGradientNode(nb::module_& module, const char* name, const char* documentation) {
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

void bindForwardNodes(nb::module_& module) {
  using namespace mps;
  FilterClass<CNNPoolingNode> pooling(module, "CNNPoolingNode",
                                      "Base of the forward pooling nodes. Their kernels have edge mode "
                                      "Clamp; padding is Same, centred, remainder to the top "
                                      "left, unless padding_policy says otherwise.");
  bindNodeWindow<CNNPoolingNode>(pooling);
  bindNode<CNNPoolingMaxNode>(module, "CNNPoolingMaxNode", "Stands for CNNPoolingMax.");
  bindNode<CNNPoolingAverageNode>(
      module, "CNNPoolingAverageNode",
      "Stands for CNNPoolingAverage: with Clamp, pixels outside the image do not count.");
  bindNode<CNNPoolingL2NormNode>(module, "CNNPoolingL2NormNode", "Stands for CNNPoolingL2Norm.");
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
}

void bindGradientNodes(nb::module_& module) {
  using namespace mps;
  GradientClass<CNNPoolingGradientNode> gradient(module, "CNNPoolingGradientNode",
                                                 "Base of the pooling gradient nodes. Sizes are those of the "
                                                 "forward node; the geometry comes from the gradient state.");
  bindNodeWindow<CNNPoolingGradientNode>(gradient);
  bindGradientNode<CNNPoolingMaxGradientNode>(module, "CNNPoolingMaxGradientNode",
                                              "Stands for CNNPoolingMaxGradient.");
  bindGradientNode<CNNPoolingAverageGradientNode>(module, "CNNPoolingAverageGradientNode",
                                                  "Stands for CNNPoolingAverageGradient.");
  bindGradientNode<CNNPoolingL2NormGradientNode>(module, "CNNPoolingL2NormGradientNode",
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

}  // namespace

void bindPooling(nb::module_& module) {
  bindForward(module);
  bindGradients(module);
}
void bindPoolingNodes(nb::module_& module) {
  bindForwardNodes(module);
  bindGradientNodes(module);
}

}  // namespace python
