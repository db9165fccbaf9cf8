#include "mps/convolution/convolution.hpp"

#include <algorithm>
#include <limits>
#include <memory>

#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/families/convolution_weights.hpp"
#include "fuzz/random_calls/images.hpp"
#include "fuzz/random_calls/kernel_settings.hpp"
#include "mps/convolution/convolution_transpose.hpp"
#include "mps/convolution/fully_connected.hpp"

namespace unmetal::random_calls {
namespace {

constexpr std::size_t kMostWeights = 1'000'000;

/// Windows and channels of a convolution.
struct ConvolutionSizes {
  std::size_t width = 1;
  std::size_t height = 1;
  std::size_t inputs = 1;
  std::size_t outputs = 1;
  std::size_t groups = 1;

  void drawGroups(RandomNumbers& random, std::size_t most) {
    groups = random.size(1, most);
    inputs = groups * random.size(1, 8);
    outputs = groups * random.size(1, 8);
  }
};

/// All channels of images of a few pixels, else so many that a call takes no longer than those of other families.
std::size_t inputsOf(const mps::ImageDescriptor& source, std::size_t most) {
  const bool isTiny = source.width() * source.height() <= 9;
  return isTiny ? source.featureChannels() : std::min(source.featureChannels(), most);
}

void drawStridesAndDilation(Call& call, mps::CNNConvolutionDescriptor& descriptor, double chanceOfStrides,
                            std::size_t mostDilation) {
  RandomNumbers& random = call.random;
  if (random.chance(chanceOfStrides)) {
    descriptor.setStrideInPixelsX(random.size(1, 4));
    descriptor.setStrideInPixelsY(random.size(1, 4));
  }
  if (random.chance(0.3)) {
    descriptor.setDilationRateX(random.size(1, mostDilation));
    descriptor.setDilationRateY(random.size(1, mostDilation));
  }
}

enum class ConvolutionKind { Plain, DepthWise, SubPixel };

ConvolutionSizes drawSizes(Call& call, const mps::ImageDescriptor& source, ConvolutionKind kind) {
  RandomNumbers& random = call.random;
  ConvolutionSizes sizes;
  sizes.width = random.size(1, random.chance(0.1) ? 11 : 5);
  sizes.height = random.chance(0.6) ? sizes.width : random.size(1, 7);
  sizes.inputs = inputsOf(source, 130);
  sizes.outputs = call.channels();
  switch (kind) {
    case ConvolutionKind::DepthWise:
      sizes.outputs = sizes.inputs * random.size(1, 4);
      break;
    case ConvolutionKind::SubPixel:
      sizes.outputs = 4 * random.size(1, 6);
      break;
    case ConvolutionKind::Plain:
      if (random.chance(0.25)) sizes.drawGroups(random, 8);
      if (sizes.groups == 1) reduceTo(kMostWeights, sizes.inputs, sizes.outputs, sizes.width * sizes.height);
  }
  return sizes;
}

mps::CNNConvolutionDescriptor describedBy(const ConvolutionSizes& sizes, ConvolutionKind kind) {
  if (kind == ConvolutionKind::DepthWise)
    return mps::CNNDepthWiseConvolutionDescriptor::cnnConvolutionDescriptor(sizes.width, sizes.height,
                                                                            sizes.inputs, sizes.outputs);
  if (kind == ConvolutionKind::SubPixel) {
    auto descriptor = mps::CNNSubPixelConvolutionDescriptor::cnnConvolutionDescriptor(
        sizes.width, sizes.height, sizes.inputs, sizes.outputs);
    descriptor.setSubPixelScaleFactor(2);
    return descriptor;
  }
  auto descriptor = mps::CNNConvolutionDescriptor::cnnConvolutionDescriptor(sizes.width, sizes.height,
                                                                            sizes.inputs, sizes.outputs);
  descriptor.setGroups(sizes.groups);
  return descriptor;
}

void fuse(Call& call, mps::CNNConvolutionDescriptor& descriptor, bool withGradient) {
  RandomNumbers& random = call.random;
  const std::size_t outputs = descriptor.outputFeatureChannels();
  // Gradient kernels refuse a fused neuron.
  if (random.chance(withGradient ? 0.03 : 0.5)) descriptor.setFusedNeuronDescriptor(anyNeuron(call, outputs));
  if (withGradient || !random.chance(0.1)) return;
  const auto mean = call.vector(outputs, Numbers::Uniform);
  const auto variance = call.vector(outputs, Numbers::Positive);
  const auto gamma = call.vector(outputs, Numbers::Uniform);
  const auto beta = call.vector(outputs, Numbers::Uniform);
  descriptor.setBatchNormalizationParametersForInference(mean, variance, gamma, beta, 0.01F);
  call.noted("batchNormalization", true);
}

/// Weights say how many channels are read: an offset needs a wider image, of which without one the rest is left out, and
/// other channels are an error, which is seldom wanted.
void restrictChannels(Call& call, mps::CNNKernel& kernel, bool isWider, std::size_t inputs) {
  const bool hasOffset = isWider && call.random.chance(0.5);
  kernel.setSourceFeatureChannelOffset(call.noted("sourceChannelOffset", hasOffset ? std::size_t{4} : 0));
  if (!call.random.chance(0.1))
    kernel.setSourceFeatureChannelMaxCount(isWider && !hasOffset ? inputs
                                                                 : std::numeric_limits<std::size_t>::max());
}

}  // namespace

void callConvolution(Call& call) {
  RandomNumbers& random = call.random;
  mps::ImageDescriptor source = call.imageSizes(5, call.limits.elements / 4);
  const double which = random.real(0, 1);
  const auto kind = which < 0.25 ? ConvolutionKind::DepthWise
                                 : (which < 0.29 ? ConvolutionKind::SubPixel : ConvolutionKind::Plain);
  const ConvolutionSizes sizes = drawSizes(call, source, kind);
  mps::CNNConvolutionDescriptor descriptor = describedBy(sizes, kind);
  drawStridesAndDilation(call, descriptor, 0.4, 4);
  const bool withGradient = kind != ConvolutionKind::SubPixel && random.chance(0.6);
  fuse(call, descriptor, withGradient);
  call.noted("kind", kind);
  describeConvolution(call, descriptor);

  const auto weights = anyWeights(call, descriptor);
  const auto kernel = mps::CNNConvolution::create(call.device, weights);
  std::shared_ptr<mps::CNNConvolutionGradient> gradient;
  if (withGradient) {
    gradient = mps::CNNConvolutionGradient::create(call.device, weights);
    gradient->setGradientOption(anyGradientOption(call));
  }
  const bool isWider = random.chance(0.15);
  source.setFeatureChannels(sizes.inputs + (isWider ? 4 * random.size(1, 2) : 0));
  setProperties(call, *kernel, source);
  restrictChannels(call, *kernel, isWider, sizes.inputs);
  setPrecision(call, descriptor, *kernel, gradient.get());
  const auto option = gradient ? gradient->gradientOption() : mps::CNNConvolutionGradientOption::All;
  callLayer(call, *kernel, gradient.get(), source, convolutionCall(call, *kernel, option));
}

void callTransposedConvolution(Call& call) {
  RandomNumbers& random = call.random;
  mps::ImageDescriptor source = call.imageSizes(5, call.limits.elements / 16);
  ConvolutionSizes sizes;
  sizes.width = random.size(1, 5);
  sizes.height = random.size(1, 5);
  sizes.inputs = inputsOf(source, 70);
  sizes.outputs = call.channels();
  if (random.chance(0.2)) sizes.drawGroups(random, 4);
  if (sizes.groups == 1) reduceTo(kMostWeights, sizes.inputs, sizes.outputs, sizes.width * sizes.height);
  source.setFeatureChannels(sizes.inputs);
  mps::CNNConvolutionDescriptor descriptor = describedBy(sizes, ConvolutionKind::Plain);
  drawStridesAndDilation(call, descriptor, 0.6, 3);
  const bool withGradient = random.chance(0.6);
  if (!withGradient && random.chance(0.5))
    descriptor.setFusedNeuronDescriptor(anyNeuron(call, sizes.outputs));
  describeConvolution(call, descriptor);

  const auto weights = anyWeights(call, descriptor);
  const auto kernel = mps::CNNConvolutionTranspose::create(call.device, weights);
  std::shared_ptr<mps::CNNConvolutionTransposeGradient> gradient;
  if (withGradient) {
    gradient = mps::CNNConvolutionTransposeGradient::create(call.device, weights);
    gradient->setGradientOption(anyGradientOption(call));
  }
  setProperties(call, *kernel, source);
  if (!random.chance(0.03)) kernel->setEdgeMode(mps::ImageEdgeMode::Zero);  // the only one
  restrictChannels(call, *kernel, false, sizes.inputs);
  if (random.chance(0.3)) {
    kernel->setKernelOffsetX(call.noted("kernelOffsetX", random.integer(-3, 3)));
    kernel->setKernelOffsetY(call.noted("kernelOffsetY", random.integer(-3, 3)));
  }
  setPrecision(call, descriptor, *kernel, gradient.get());
  const auto option = gradient ? gradient->gradientOption() : mps::CNNConvolutionGradientOption::All;
  callLayer(call, *kernel, gradient.get(), source, convolutionCall(call, *kernel, option));
}

void callFullyConnected(Call& call) {
  RandomNumbers& random = call.random;
  const mps::ImageDescriptor source = call.imageSizes(5, 6'000);
  const std::size_t outputs = random.chance(0.1) ? random.size(100, 1'100) : call.channels();
  auto descriptor = mps::CNNConvolutionDescriptor::cnnConvolutionDescriptor(
      source.width(), source.height(), source.featureChannels(), outputs);
  const bool withGradient = random.chance(0.6);
  if (!withGradient && random.chance(0.5)) descriptor.setFusedNeuronDescriptor(anyNeuron(call, outputs));
  describeConvolution(call, descriptor);

  const auto weights = anyWeights(call, descriptor);
  const auto kernel = mps::CNNFullyConnected::create(call.device, weights);
  std::shared_ptr<mps::CNNFullyConnectedGradient> gradient;
  if (withGradient) {
    gradient = mps::CNNFullyConnectedGradient::create(call.device, weights);
    gradient->setGradientOption(anyGradientOption(call));
  }
  if (random.chance(0.2))
    kernel->setDestinationFeatureChannelOffset(call.noted("destinationChannelOffset", 4 * random.size(1, 3)));
  if (random.chance(0.1)) kernel->setClipRect(clipRectangle(call, 1, 1, 1));
  setPrecision(call, descriptor, *kernel, gradient.get());
  const auto option = gradient ? gradient->gradientOption() : mps::CNNConvolutionGradientOption::All;
  LayerCall layer = convolutionCall(call, *kernel, option);
  layer.anySizeOfResult = random.chance(0.1);
  callLayer(call, *kernel, gradient.get(), source, layer);
}

}  // namespace unmetal::random_calls
