#include "mps/conform/timing/kernel_bench.hpp"
#include "mps/convolution/check/convolution_fixed_weights.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/convolution/fully_connected.hpp"

namespace mps::detail {
namespace {

std::shared_ptr<FixedWeights> weightsOf(const CNNConvolutionDescriptor& descriptor) {
  const std::vector<double> values = randomValues(descriptor.weightCount(), 1, RandomKind::Uniform);
  return std::make_shared<FixedWeights>(descriptor, std::vector<float>(values.begin(), values.end()),
                                        std::vector<float>(descriptor.outputFeatureChannels(), 0.5F));
}

double parameterBytesOf(const CNNConvolutionDescriptor& descriptor) {
  return static_cast<double>(descriptor.weightCount() + descriptor.outputFeatureChannels()) * sizeof(float);
}

/// As PyTorch is timed: on a GPU TF32, and float16 where images are.
KernelOptions optionsOn(const std::shared_ptr<mtl::Device>& device) {
  return device->kind() == mtl::DeviceKind::CUDA ? KernelOptions::AllowReducedPrecision : KernelOptions::None;
}

/// @param descriptor of a layer whose result has `resultPixels` pixels
template <class Forward, class Gradient>
void benchLayer(Bench& bench, const std::string& shape, const CNNConvolutionDescriptor& descriptor,
                std::size_t size, std::size_t resultPixels, std::int64_t batch) {
  const auto weights = weightsOf(descriptor);
  const auto forward = Forward::create(bench.device(), weights);
  forward->setOptions(optionsOn(bench.device()));
  const auto gradient = Gradient::create(bench.device(), weights);
  gradient->setOptions(optionsOn(bench.device()));
  benchPair(bench,
            {.forward = forward,
             .gradient = gradient,
             .shape = shape,
             .source = {ImageFeatureChannelFormat::Float32, size, size, descriptor.inputFeatureChannels()},
             .flops = 2 * static_cast<double>(descriptor.weightCount() * resultPixels),
             .parameterBytes = parameterBytesOf(descriptor),
             .batch = batch});
}

void benchConvolutionLayer(Bench& bench, const std::string& shape, std::size_t size, std::size_t kernel,
                           std::size_t inputs, std::size_t outputs, std::int64_t batch) {
  benchLayer<CNNConvolution, CNNConvolutionGradient>(
      bench, shape, CNNConvolutionDescriptor::cnnConvolutionDescriptor(kernel, kernel, inputs, outputs), size,
      size * size, batch);
}

void benchFullyConnectedLayer(Bench& bench, const std::string& shape, std::size_t size, std::size_t inputs,
                              std::size_t outputs, std::int64_t batch) {
  benchLayer<CNNFullyConnected, CNNFullyConnectedGradient>(
      bench, shape, CNNConvolutionDescriptor::cnnConvolutionDescriptor(size, size, inputs, outputs), size, 1,
      batch);
}

/// Has no gradient.
void benchSubPixels(Bench& bench, std::int64_t batch) {
  auto descriptor = CNNSubPixelConvolutionDescriptor::cnnConvolutionDescriptor(3, 3, 64, 64);
  descriptor.setSubPixelScaleFactor(2);
  const auto forward = CNNConvolution::create(bench.device(), weightsOf(descriptor));
  forward->setOptions(optionsOn(bench.device()));
  benchPair(bench, {.forward = forward,
                    .gradient = nullptr,
                    .shape = "56x56x64 to 64, kernel 3x3, sub-pixels 2",
                    .source = {ImageFeatureChannelFormat::Float32, 56, 56, 64},
                    .flops = 2 * static_cast<double>(descriptor.weightCount() * 56 * 56),
                    .parameterBytes = parameterBytesOf(descriptor),
                    .batch = batch});
}

}  // namespace

/// The layers of mnist-cnn, and some of larger nets.
void benchConvolution(Bench& bench) {
  constexpr std::int64_t kBatch = 64;
  constexpr std::int64_t kLargeBatch = 32;
  benchConvolutionLayer(bench, "28x28x1 to 32, kernel 5x5", 28, 5, 1, 32, kBatch);
  benchConvolutionLayer(bench, "14x14x32 to 64, kernel 5x5", 14, 5, 32, 64, kBatch);
  benchConvolutionLayer(bench, "56x56x64 to 64, kernel 3x3", 56, 3, 64, 64, kLargeBatch);
  benchConvolutionLayer(bench, "56x56x64 to 64, kernel 1x1", 56, 1, 64, 64, kLargeBatch);
  benchLayer<CNNConvolution, CNNConvolutionGradient>(
      bench, "56x56x64 depth-wise, kernel 3x3",
      CNNDepthWiseConvolutionDescriptor::cnnConvolutionDescriptor(3, 3, 64, 64), 56, 56 * 56, kLargeBatch);
  benchSubPixels(bench, kLargeBatch);
  benchFullyConnectedLayer(bench, "7x7x64 to 1024", 7, 64, 1024, kBatch);
  benchFullyConnectedLayer(bench, "1x1x1024 to 10", 1, 1024, 10, kBatch);
}

}  // namespace mps::detail
