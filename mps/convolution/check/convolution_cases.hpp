#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>
#include <vector>

#include "mps/convolution/convolution_problem.hpp"

/// The problems that tests, conform and bench share.
namespace mps::detail {

/// Padding policy "same" with the remainder at top and left, the default.
constexpr WindowAxis sameWindow(std::int64_t size, std::int64_t kernel, std::int64_t stride = 1,
                                std::int64_t dilation = 1) {
  const std::int64_t dilated = (kernel - 1) * dilation + 1;
  const std::int64_t windows = (size + stride - 1) / stride;
  const std::int64_t extra = (windows - 1) * stride + dilated - size;
  return {size, windows, kernel, stride, dilation, dilated / 2 - (extra + 1) / 2};
}

/// Padding policy "valid", windows from the first pixel on.
constexpr WindowAxis validWindow(std::int64_t size, std::int64_t kernel, std::int64_t stride = 1,
                                 std::int64_t dilation = 1) {
  const std::int64_t dilated = (kernel - 1) * dilation + 1;
  return {size, (size - dilated) / stride + 1, kernel, stride, dilation, dilated / 2};
}

/// One window that is the whole source.
constexpr WindowAxis wholeWindow(std::int64_t size) {
  return {size, 1, size, 1, 1, size / 2};
}

/// The partner's axis of a transposed convolution (ConvolutionProblem).
/// @param shift T, offset * stride + kernelOffset
constexpr WindowAxis transposedWindow(std::int64_t size, std::int64_t resultSize, std::int64_t kernel,
                                      std::int64_t stride, std::int64_t shift, std::int64_t dilation = 1) {
  const std::int64_t dilated = (kernel - 1) * dilation + 1;
  return {resultSize, size, kernel, stride, dilation, (dilated % 2 == 0 ? 1 : 0) - shift};
}

/// How the tensors of a case lie in memory.
enum class ConvolutionLayout {
  Dense,
  Strided,        ///< strided pixels, rows and images
  RepeatedImage,  ///< the inputs' images are all the same memory
};

struct ConvolutionCase {
  std::string_view name;
  std::int64_t images = 1;
  WindowAxis y;
  WindowAxis x;
  std::int64_t inputs = 1;
  std::int64_t outputs = 1;
  std::int64_t groups = 1;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
  bool transposed = false;
  bool hasBias = true;
  NNNeuronDescriptor neuron = {};
  ConvolutionLayout layout = ConvolutionLayout::Dense;

  /// @param sourceFormat of the forward source
  /// @param resultFormat of the forward result, of the incoming gradient and of the data gradient
  [[nodiscard]] ConvolutionProblem problem(ConvolutionOperation operation,
                                           ImageFeatureChannelFormat sourceFormat,
                                           ImageFeatureChannelFormat resultFormat) const {
    ConvolutionProblem problem;
    problem.operation = operation;
    problem.y = y;
    problem.x = x;
    problem.groups = groups;
    problem.inputFeatureChannels = inputs;
    problem.outputFeatureChannels = outputs;
    problem.edgeMode = edgeMode;
    problem.transposed = transposed;
    problem.hasBias = hasBias;
    const bool isResult =
        operation == (transposed ? ConvolutionOperation::DataGradient : ConvolutionOperation::Forward);
    if (isResult) problem.neuron = neuron;
    if (operation == ConvolutionOperation::DataGradient && !transposed) problem.hasBias = false;
    if (operation == ConvolutionOperation::Forward && transposed) problem.hasBias = false;

    const auto large = [&](ImageFeatureChannelFormat format, bool written) {
      return tensor(y.sourceSize, x.sourceSize, inputs, format, written);
    };
    const auto small = [&](ImageFeatureChannelFormat format, bool written) {
      return tensor(y.destinationSize, x.destinationSize, outputs, format, written);
    };
    switch (operation) {
      case ConvolutionOperation::Forward:
        problem.source = large(sourceFormat, false);
        problem.destination = small(resultFormat, true);
        break;
      case ConvolutionOperation::DataGradient:
        problem.gradient = small(transposed ? sourceFormat : resultFormat, false);
        problem.destination = large(resultFormat, true);
        break;
      case ConvolutionOperation::WeightsGradient:
        problem.source = large(transposed ? resultFormat : sourceFormat, false);
        problem.gradient = small(transposed ? sourceFormat : resultFormat, false);
        break;
    }
    return problem;
  }

 private:
  [[nodiscard]] TensorShape tensor(std::int64_t height, std::int64_t width, std::int64_t channels,
                                   ImageFeatureChannelFormat format, bool written) const {
    TensorShape shape = TensorShape::dense(images, height, width, channels, format);
    if (layout == ConvolutionLayout::Strided) {
      shape.pixelStride = channels + 3;
      shape.rowStride = width * shape.pixelStride + 5;
      shape.imageStride = height * shape.rowStride + 7;
    }
    if (layout == ConvolutionLayout::RepeatedImage && !written) shape.imageStride = 0;
    return shape;
  }
};

/// Whether a case takes part of a second in float64: larger than caches, or than what is converted at once.
inline bool isLarge(const ConvolutionCase& convolution) {
  return convolution.images * convolution.y.sourceSize * convolution.x.sourceSize * convolution.inputs >
         1'000'000;
}

/// For GoogleTest's messages.
inline void PrintTo(const ConvolutionCase& convolution, std::ostream* stream) {
  *stream << convolution.name;
}

/// Awkward on purpose; small enough for a float64 reference, but for the last one, which is larger than
/// caches.
inline std::vector<ConvolutionCase> convolutionCases() {
  using enum ImageEdgeMode;
  using enum ConvolutionLayout;
  const auto neuron = [](CNNNeuronType type, float a = 0, float b = 0, float c = 0) {
    return NNNeuronDescriptor::cnnNeuronDescriptor(type, a, b, c);
  };
  std::vector<float> slopes(17);
  for (std::size_t i = 0; i < slopes.size(); ++i) slopes[i] = 0.125F * static_cast<float>(i);

  // clang-format off
  return {
      // Shapes and channel counts.
      {.name = "OnePixel", .y = sameWindow(1, 1), .x = sameWindow(1, 1), .inputs = 5, .outputs = 3},
      {.name = "PixelUnder3x3", .images = 3, .y = sameWindow(1, 3), .x = sameWindow(1, 3), .inputs = 4, .outputs = 17},
      {.name = "FirstLayer5x5", .images = 3, .y = sameWindow(14, 5), .x = sameWindow(14, 5), .inputs = 1, .outputs = 32},
      {.name = "SecondLayer5x5", .images = 2, .y = sameWindow(5, 5), .x = sameWindow(6, 5), .inputs = 32, .outputs = 64},
      {.name = "SameStride2TopLeft", .images = 3, .y = sameWindow(10, 7, 2), .x = sameWindow(12, 7, 2), .inputs = 3, .outputs = 48},
      {.name = "Channels3To5", .images = 3, .y = sameWindow(9, 3), .x = sameWindow(8, 3), .inputs = 3, .outputs = 5},
      {.name = "Channels5To4", .y = sameWindow(6, 3), .x = sameWindow(9, 3), .inputs = 5, .outputs = 4, .hasBias = false},
      {.name = "Channels16To17", .images = 3, .y = sameWindow(7, 3), .x = sameWindow(6, 3), .inputs = 16, .outputs = 17},
      {.name = "Channels17To16", .y = sameWindow(5, 3), .x = sameWindow(7, 3), .inputs = 17, .outputs = 16},
      {.name = "Channels64To64", .images = 2, .y = sameWindow(5, 3), .x = sameWindow(6, 3), .inputs = 64, .outputs = 64},
      {.name = "Channels16To1", .images = 2, .y = sameWindow(8, 3), .x = sameWindow(9, 3), .inputs = 16, .outputs = 1},
      {.name = "Wide1x7", .images = 2, .y = sameWindow(4, 1), .x = sameWindow(17, 7), .inputs = 4, .outputs = 8},
      {.name = "Tall7x1", .images = 2, .y = sameWindow(17, 7), .x = sameWindow(4, 1), .inputs = 4, .outputs = 8},
      {.name = "Over256Taps", .y = sameWindow(18, 17), .x = sameWindow(11, 17), .inputs = 3, .outputs = 4},
      // First layers: tiles side by side and below each other, several groups of channels and of taps.
      {.name = "FirstLayer3x3", .images = 2, .y = sameWindow(9, 3), .x = sameWindow(70, 3), .inputs = 1, .outputs = 36},
      {.name = "FirstLayer3x3Color", .images = 3, .y = sameWindow(17, 3), .x = sameWindow(18, 3), .inputs = 3, .outputs = 16, .neuron = neuron(CNNNeuronType::ReLU, 0.25F)},
      {.name = "FirstLayer5x5Rows", .y = sameWindow(41, 5, 2), .x = validWindow(26, 5), .inputs = 2, .outputs = 64, .edgeMode = Clamp},
      {.name = "FirstLayer11x11Stride4", .images = 2, .y = validWindow(23, 11, 4), .x = validWindow(31, 11, 4), .inputs = 3, .outputs = 8},
      // Windows: even, strided, dilated, every offset, larger than the image.
      {.name = "Even2x2", .images = 3, .y = sameWindow(6, 2), .x = sameWindow(7, 2), .inputs = 5, .outputs = 6},
      {.name = "Even4x4Stride2", .y = sameWindow(9, 4, 2), .x = sameWindow(10, 4, 2), .inputs = 16, .outputs = 16},
      {.name = "StrideOverKernel", .images = 3, .y = sameWindow(11, 2, 3), .x = sameWindow(10, 1, 3), .inputs = 4, .outputs = 5},
      {.name = "Pointwise", .images = 3, .y = sameWindow(5, 1), .x = sameWindow(6, 1), .inputs = 17, .outputs = 16},
      {.name = "PointwiseStride2", .images = 2, .y = sameWindow(8, 1, 2), .x = sameWindow(9, 1, 2), .inputs = 16, .outputs = 33},
      {.name = "PointwiseStrideAndDilation", .y = {8, 2, 1, 4, 4, 5}, .x = {19, 7, 1, 3, 2, -4}, .inputs = 2, .outputs = 1},
      {.name = "Dilated3x3", .images = 2, .y = sameWindow(9, 3, 1, 2), .x = sameWindow(11, 3, 1, 3), .inputs = 16, .outputs = 5},
      {.name = "DilatedEvenStride2", .y = {9, 3, 2, 2, 3, 1}, .x = {8, 4, 2, 2, 3, 1}, .inputs = 3, .outputs = 4},
      {.name = "Valid", .images = 3, .y = validWindow(9, 3, 2), .x = validWindow(8, 5), .inputs = 5, .outputs = 16},
      {.name = "Full", .y = {5, 7, 3, 1, 1, -1}, .x = {4, 6, 3, 1, 1, -1}, .inputs = 4, .outputs = 4},
      {.name = "OffsetNegative", .images = 2, .y = {7, 5, 3, 1, 1, -2}, .x = {6, 6, 3, 2, 1, -3}, .inputs = 16, .outputs = 16},
      {.name = "OffsetPositive", .images = 2, .y = {9, 3, 3, 1, 1, 4}, .x = {8, 3, 3, 1, 1, 3}, .inputs = 4, .outputs = 16},
      {.name = "OffsetBeyondSource", .y = {5, 4, 3, 1, 1, 4}, .x = {5, 5, 3, 1, 1, 3}, .inputs = 3, .outputs = 4},
      {.name = "ClipRectInside", .images = 3, .y = {12, 4, 3, 1, 1, 5}, .x = {13, 5, 3, 2, 1, 2}, .inputs = 5, .outputs = 17},
      {.name = "KernelOverImage", .images = 2, .y = sameWindow(3, 7), .x = sameWindow(2, 5), .inputs = 16, .outputs = 16},
      {.name = "FarWindowsOfOnePixel", .images = 5, .y = {1, 38, 5, 3, 1, 0}, .x = {1, 10, 5, 1, 1, 0}, .inputs = 26, .outputs = 48},
      {.name = "FarWindowsDilated", .images = 16, .y = {2, 12, 7, 1, 2, 3}, .x = {4, 1, 7, 2, 1, 3}, .inputs = 8, .outputs = 32},
      {.name = "FarWindowsBesideAColumn", .images = 16, .y = {4, 1, 3, 3, 1, 1}, .x = {1, 9, 1, 2, 1, 0}, .inputs = 46, .outputs = 48},
      {.name = "TallEven2x2", .y = sameWindow(421, 2), .x = sameWindow(3, 2), .inputs = 4, .outputs = 63},
      {.name = "FarOutside", .y = {4, 12, 3, 1, 1, -4}, .x = {4, 12, 3, 1, 1, -5}, .inputs = 4, .outputs = 4},
      // Edge mode Clamp.
      {.name = "Clamp3x3", .images = 3, .y = sameWindow(6, 3), .x = sameWindow(7, 3), .inputs = 5, .outputs = 16, .edgeMode = Clamp},
      {.name = "ClampOnePixel", .y = sameWindow(1, 3), .x = sameWindow(1, 5), .inputs = 3, .outputs = 4, .edgeMode = Clamp},
      {.name = "ClampOneWindow5x5", .y = {1, 1, 5, 1, 1, 5}, .x = {1, 1, 5, 1, 1, -1}, .inputs = 64, .outputs = 38, .edgeMode = Clamp},
      {.name = "ClampDilatedStride", .y = {7, 5, 3, 2, 2, -1}, .x = {6, 4, 2, 2, 3, 3}, .inputs = 4, .outputs = 5, .edgeMode = Clamp},
      {.name = "ClampNothingOutside", .y = validWindow(6, 3), .x = validWindow(5, 3), .inputs = 16, .outputs = 16, .edgeMode = Clamp},
      {.name = "ClampCut", .y = {9, 3, 2, 1, 1, 4}, .x = {8, 7, 3, 1, 1, 3}, .inputs = 3, .outputs = 4, .edgeMode = Clamp},
      // Groups and depth-wise.
      {.name = "Groups2", .images = 3, .y = sameWindow(6, 3), .x = sameWindow(5, 3), .inputs = 6, .outputs = 10, .groups = 2},
      {.name = "Groups4Of16", .images = 2, .y = sameWindow(7, 3), .x = sameWindow(7, 3), .inputs = 64, .outputs = 64, .groups = 4},
      {.name = "GroupsPointwise", .y = sameWindow(4, 1), .x = sameWindow(5, 1), .inputs = 8, .outputs = 12, .groups = 4},
      {.name = "GroupsClamp", .y = sameWindow(5, 3), .x = sameWindow(5, 3), .inputs = 9, .outputs = 9, .groups = 3, .edgeMode = Clamp},
      {.name = "DepthWise", .images = 3, .y = sameWindow(7, 3), .x = sameWindow(8, 3), .inputs = 17, .outputs = 17, .groups = 17},
      {.name = "DepthWiseStride2", .images = 2, .y = sameWindow(9, 3, 2), .x = sameWindow(8, 3, 2), .inputs = 64, .outputs = 64, .groups = 64},
      {.name = "DepthWiseDilated", .y = sameWindow(9, 3, 1, 2), .x = sameWindow(9, 3, 1, 2), .inputs = 16, .outputs = 16, .groups = 16},
      {.name = "DepthWiseOneChannel", .images = 3, .y = sameWindow(9, 5), .x = sameWindow(10, 3), .inputs = 1, .outputs = 1},
      {.name = "DepthWiseStride3Channels3", .images = 2, .y = sameWindow(11, 4, 3), .x = sameWindow(16, 5, 3), .inputs = 3, .outputs = 3, .groups = 3},
      {.name = "DepthWiseStride2Dilated3", .images = 2, .y = {13, 6, 3, 2, 3, 1}, .x = {14, 7, 4, 2, 3, 2}, .inputs = 17, .outputs = 17, .groups = 17},
      {.name = "DepthWiseStride3Dilated2", .y = {13, 5, 3, 3, 2, -1}, .x = {17, 6, 7, 3, 2, 0}, .inputs = 16, .outputs = 16, .groups = 16},
      {.name = "DepthWiseStrideOverKernel", .images = 2, .y = sameWindow(11, 2, 3), .x = sameWindow(10, 1, 3), .inputs = 16, .outputs = 16, .groups = 16, .hasBias = false},
      {.name = "DepthWiseStrideOverImage", .y = sameWindow(2, 3, 4), .x = sameWindow(3, 2, 5), .inputs = 4, .outputs = 4, .groups = 4},
      {.name = "DepthWiseEven", .y = sameWindow(7, 2), .x = sameWindow(13, 4), .inputs = 33, .outputs = 33, .groups = 33},
      {.name = "DepthWiseOffsetNegative", .images = 2, .y = {7, 5, 3, 1, 1, -2}, .x = {6, 6, 3, 2, 1, -3}, .inputs = 16, .outputs = 16, .groups = 16},
      {.name = "DepthWiseOffsetPositive", .images = 2, .y = {9, 3, 3, 1, 1, 4}, .x = {8, 3, 3, 1, 1, 3}, .inputs = 17, .outputs = 17, .groups = 17},
      {.name = "DepthWiseFarOutside", .y = {4, 12, 3, 1, 1, -4}, .x = {4, 12, 3, 1, 1, -5}, .inputs = 5, .outputs = 5, .groups = 5},
      {.name = "DepthWiseKernelOverImage", .images = 2, .y = sameWindow(3, 7), .x = sameWindow(2, 5), .inputs = 16, .outputs = 16, .groups = 16},
      {.name = "DepthWiseReLU", .images = 2, .y = sameWindow(6, 3), .x = sameWindow(9, 3), .inputs = 17, .outputs = 17, .groups = 17, .neuron = neuron(CNNNeuronType::ReLU)},
      {.name = "DepthWiseSigmoidStrided", .images = 2, .y = sameWindow(5, 3), .x = sameWindow(8, 3), .inputs = 16, .outputs = 16, .groups = 16, .neuron = neuron(CNNNeuronType::Sigmoid), .layout = Strided},
      {.name = "DepthWiseStrided", .images = 3, .y = sameWindow(7, 3, 2), .x = sameWindow(12, 3), .inputs = 19, .outputs = 19, .groups = 19, .layout = Strided},
      {.name = "DepthWiseRepeatedImage", .images = 3, .y = sameWindow(6, 3), .x = sameWindow(5, 3), .inputs = 4, .outputs = 4, .groups = 4, .layout = RepeatedImage},
      {.name = "DepthWiseMultiplier3", .images = 3, .y = sameWindow(6, 3), .x = sameWindow(7, 3), .inputs = 5, .outputs = 15, .groups = 5},
      {.name = "DepthWiseMultiplier2Even", .y = sameWindow(6, 2), .x = sameWindow(6, 4), .inputs = 16, .outputs = 32, .groups = 16},
      // Fully connected.
      {.name = "FullyConnected", .images = 3, .y = wholeWindow(7), .x = wholeWindow(7), .inputs = 16, .outputs = 40},
      {.name = "FullyConnectedEven", .images = 5, .y = wholeWindow(4), .x = wholeWindow(6), .inputs = 5, .outputs = 10},
      {.name = "FullyConnectedVector", .images = 16, .y = wholeWindow(1), .x = wholeWindow(1), .inputs = 64, .outputs = 10},
      {.name = "FullyConnectedOneImage", .y = wholeWindow(3), .x = wholeWindow(3), .inputs = 17, .outputs = 1},
      {.name = "FullyConnectedStrided", .images = 3, .y = wholeWindow(3), .x = wholeWindow(4), .inputs = 5, .outputs = 7, .layout = Strided},
      // Fused neurons.
      {.name = "ReLU", .images = 3, .y = sameWindow(7, 3), .x = sameWindow(6, 3), .inputs = 5, .outputs = 17, .neuron = neuron(CNNNeuronType::ReLU)},
      {.name = "LeakyReLU", .y = sameWindow(7, 3), .x = sameWindow(6, 3), .inputs = 16, .outputs = 16, .neuron = neuron(CNNNeuronType::ReLU, 0.25F)},
      {.name = "PReLU", .images = 2, .y = sameWindow(5, 3), .x = sameWindow(6, 3), .inputs = 4, .outputs = 17, .neuron = NNNeuronDescriptor::cnnNeuronPReLUDescriptor(slopes)},
      {.name = "Sigmoid", .images = 2, .y = sameWindow(5, 3), .x = sameWindow(6, 3), .inputs = 4, .outputs = 16, .neuron = neuron(CNNNeuronType::Sigmoid), .layout = Strided},
      {.name = "TanH", .images = 3, .y = wholeWindow(3), .x = wholeWindow(3), .inputs = 4, .outputs = 33, .neuron = neuron(CNNNeuronType::TanH, 1.5F, 0.5F)},
      {.name = "GeLU", .y = sameWindow(5, 1), .x = sameWindow(6, 1), .inputs = 16, .outputs = 16, .neuron = neuron(CNNNeuronType::GeLU)},
      {.name = "ReLUWithoutBias", .y = sameWindow(5, 3), .x = sameWindow(6, 3), .inputs = 3, .outputs = 4, .hasBias = false, .neuron = neuron(CNNNeuronType::ReLU)},
      // Transposed.
      {.name = "Transposed", .images = 3, .y = transposedWindow(4, 7, 3, 2, 0), .x = transposedWindow(5, 9, 3, 2, 0), .inputs = 5, .outputs = 16, .transposed = true},
      {.name = "TransposedEven", .y = transposedWindow(4, 8, 4, 2, 1), .x = transposedWindow(3, 6, 4, 2, 1), .inputs = 16, .outputs = 17, .transposed = true},
      {.name = "TransposedFull", .y = transposedWindow(3, 7, 3, 2, -1), .x = transposedWindow(4, 9, 3, 2, -1), .inputs = 3, .outputs = 4, .transposed = true, .neuron = neuron(CNNNeuronType::ReLU)},
      {.name = "TransposedValid", .y = transposedWindow(5, 7, 3, 2, 1), .x = transposedWindow(5, 7, 3, 2, 1), .inputs = 4, .outputs = 4, .transposed = true, .hasBias = false},
      {.name = "TransposedGroupsDilated", .y = transposedWindow(4, 12, 3, 3, 0, 2), .x = transposedWindow(4, 13, 2, 3, 1, 3), .inputs = 6, .outputs = 4, .groups = 2, .transposed = true},
      {.name = "TransposedUncovered", .y = transposedWindow(3, 14, 2, 4, 0), .x = transposedWindow(3, 13, 1, 4, -1), .inputs = 4, .outputs = 3, .transposed = true, .neuron = neuron(CNNNeuronType::Sigmoid), .layout = Strided},
      // Memory.
      {.name = "Strided", .images = 3, .y = sameWindow(7, 3), .x = sameWindow(8, 3), .inputs = 5, .outputs = 16, .layout = Strided},
      {.name = "StridedChannels16", .images = 2, .y = sameWindow(6, 3, 2), .x = sameWindow(6, 3, 2), .inputs = 16, .outputs = 32, .layout = Strided},
      {.name = "StridedPointwise", .images = 2, .y = sameWindow(5, 1), .x = sameWindow(6, 1), .inputs = 16, .outputs = 16, .layout = Strided},
      {.name = "StridedClamp", .images = 2, .y = sameWindow(5, 3), .x = sameWindow(6, 3), .inputs = 4, .outputs = 5, .edgeMode = Clamp, .layout = Strided},
      {.name = "RepeatedImage", .images = 3, .y = sameWindow(6, 3), .x = sameWindow(5, 3), .inputs = 4, .outputs = 5, .layout = RepeatedImage},
      {.name = "NoImages", .images = 0, .y = sameWindow(6, 3), .x = sameWindow(5, 3), .inputs = 4, .outputs = 5},
      {.name = "ManyImages", .images = 5, .y = sameWindow(64, 3), .x = sameWindow(64, 3), .inputs = 64, .outputs = 64, .groups = 64, .edgeMode = Clamp},
      {.name = "ManyImagesPointwise", .images = 6, .y = sameWindow(64, 1), .x = sameWindow(64, 1), .inputs = 64, .outputs = 16},
      {.name = "ManyImagesTransposed", .images = 6, .y = transposedWindow(32, 128, 4, 4, 0), .x = transposedWindow(32, 128, 4, 4, 0), .inputs = 16, .outputs = 8, .transposed = true, .layout = Strided},
      // Work that is divided among threads: rows of few images, pixels that are summed, output channels.
      {.name = "DividedRows", .images = 1, .y = sameWindow(27, 3), .x = sameWindow(24, 3), .inputs = 32, .outputs = 40},
      {.name = "DividedRowsStride2", .images = 2, .y = sameWindow(31, 5, 2), .x = sameWindow(29, 5, 2), .inputs = 24, .outputs = 33, .layout = Strided},
      {.name = "DividedRowsStrideOverKernel", .images = 1, .y = validWindow(61, 2, 3), .x = validWindow(61, 2, 3), .inputs = 48, .outputs = 64},
      {.name = "DividedRowsDilated", .images = 1, .y = sameWindow(30, 3, 1, 3), .x = sameWindow(22, 3), .inputs = 32, .outputs = 48},
      {.name = "DividedRowsClamped", .images = 1, .y = sameWindow(28, 5), .x = sameWindow(20, 5), .inputs = 16, .outputs = 32, .edgeMode = Clamp},
      {.name = "DividedRowsTransposed", .images = 1, .y = transposedWindow(20, 40, 4, 2, 1), .x = transposedWindow(18, 36, 4, 2, 1), .inputs = 24, .outputs = 32, .transposed = true, .neuron = neuron(CNNNeuronType::ReLU)},
      {.name = "DividedPixels", .images = 5, .y = sameWindow(32, 3), .x = sameWindow(32, 3), .inputs = 12, .outputs = 20},
      {.name = "DividedChannels", .images = 3, .y = sameWindow(8, 3), .x = sameWindow(8, 3), .inputs = 40, .outputs = 150},
      {.name = "DividedWeights", .images = 2, .y = sameWindow(6, 3), .x = sameWindow(5, 3), .inputs = 256, .outputs = 150, .neuron = neuron(CNNNeuronType::ReLU), .layout = Strided},
      {.name = "DividedWeightsTransposed", .images = 2, .y = transposedWindow(4, 8, 3, 2, 1), .x = transposedWindow(3, 6, 3, 2, 1), .inputs = 150, .outputs = 256, .transposed = true},
      {.name = "DividedProduct", .images = 80, .y = wholeWindow(5), .x = wholeWindow(7), .inputs = 24, .outputs = 130},
      {.name = "DividedPointwise", .images = 3, .y = sameWindow(40, 1), .x = sameWindow(45, 1), .inputs = 40, .outputs = 70},
      {.name = "ManyPixelsDepthwise", .images = 3, .y = sameWindow(50, 1), .x = sameWindow(50, 3), .inputs = 48, .outputs = 48, .groups = 48},
      // Single pixels, some left out, of fewer channels than a vector has.
      {.name = "PointwiseStride2FewChannels", .images = 5, .y = sameWindow(24, 1, 2), .x = sameWindow(24, 1, 2), .inputs = 3, .outputs = 13},
      {.name = "PointwiseStride2ManyPixels", .y = sameWindow(96, 1, 2), .x = sameWindow(96, 1, 2), .inputs = 3, .outputs = 5},
      {.name = "PointwiseStride2To13Channels", .images = 3, .y = sameWindow(28, 1, 2), .x = sameWindow(16, 1), .inputs = 13, .outputs = 5, .hasBias = false},
      {.name = "TransposedPointwiseFewResults", .images = 3, .y = transposedWindow(12, 24, 1, 2, 0), .x = transposedWindow(14, 42, 1, 3, 0), .inputs = 7, .outputs = 24, .transposed = true},
  };
  // clang-format on
}

}  // namespace mps::detail
