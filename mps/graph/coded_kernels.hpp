#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/arithmetic/compare.hpp"
#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/batch_normalization/check/batch_normalization_fixed_source.hpp"
#include "mps/concatenation/concatenation.hpp"
#include "mps/convolution/check/convolution_fixed_weights.hpp"
#include "mps/convolution/convolution_transpose.hpp"
#include "mps/convolution/fully_connected.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/dropout/dropout.hpp"
#include "mps/gram_matrix/gram_matrix.hpp"
#include "mps/graph/coded_array_kernels.hpp"
#include "mps/graph/coded_kernel.hpp"
#include "mps/graph/coded_matrix_kernels.hpp"
#include "mps/graph/test_network.hpp"
#include "mps/instance_normalization/check/instance_normalization_fixed_source.hpp"
#include "mps/instance_normalization/group_normalization.hpp"
#include "mps/loss/forward_loss.hpp"
#include "mps/loss/loss.hpp"
#include "mps/loss/yolo_loss.hpp"
#include "mps/matrix/matrix_random.hpp"
#include "mps/neuron/neuron.hpp"
#include "mps/normalization/normalization.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mps/pooling/pooling.hpp"
#include "mps/reduction/reduce_binary.hpp"
#include "mps/reduction/reduction.hpp"
#include "mps/reshape/pad.hpp"
#include "mps/reshape/reshape.hpp"
#include "mps/softmax/softmax.hpp"
#include "mps/upsampling/crop_and_resize.hpp"
#include "mps/upsampling/grid_sample.hpp"
#include "mps/upsampling/image_scale.hpp"
#include "mps/upsampling/resize.hpp"
#include "mps/upsampling/upsampling.hpp"

/// A list of kernels of every class, with properties that are not the defaults, and what they compute: for tests of
/// coding and for the corpus of the fuzz targets. A new class adds its line to everyKernel.
namespace mps::test {

inline Values forward(Kernel& kernel, int seed) {
  auto& unary = dynamic_cast<CNNKernel&>(kernel);
  unary.setDestinationImageAllocator(Image::defaultAllocator());
  return valuesOf(
      *ran(kernel, [&](const auto& buffer) { return unary.encode(buffer, source(kernel, seed)); }));
}

inline Values ofRegions(Kernel& kernel, int seed) {
  auto& crop = dynamic_cast<NNCropAndResizeBilinear&>(kernel);
  crop.setDestinationImageAllocator(Image::defaultAllocator());
  return valuesOf(
      *ran(kernel, [&](const auto& buffer) { return crop.encode(buffer, source(kernel, seed)); }));
}

inline Values ofTwo(Kernel& kernel, int seed) {
  auto& binary = dynamic_cast<CNNBinaryKernel&>(kernel);
  binary.setDestinationImageAllocator(Image::defaultAllocator());
  return valuesOf(*ran(kernel, [&](const auto& buffer) {
    return binary.encode(buffer, source(kernel, seed), source(kernel, seed + 1));
  }));
}

inline Values ofSeveral(Kernel& kernel, int seed) {
  auto& multiary = dynamic_cast<CNNMultiaryKernel&>(kernel);
  multiary.setDestinationImageAllocator(Image::defaultAllocator());
  const std::vector<std::shared_ptr<Image>> sources{source(kernel, seed), source(kernel, seed + 1)};
  return valuesOf(*ran(kernel, [&](const auto& buffer) { return multiary.encode(buffer, sources); }));
}

/// What a gradient kernel takes.
struct GradientArguments {
  std::shared_ptr<Image> sourceGradient, sourceImage;
  std::shared_ptr<State> state;
};

/// Encodes a forward kernel for a gradient kernel.
inline GradientArguments argumentsBehind(Kernel& first, Kernel& gradient,
                                         const std::shared_ptr<mtl::CommandBuffer>& buffer, int seed) {
  const auto x = source(gradient, seed);
  std::shared_ptr<State> state;
  std::shared_ptr<Image> y;
  dynamic_cast<detail::ImageKernel&>(first).setDestinationImageAllocator(Image::defaultAllocator());
  if (auto* unary = dynamic_cast<CNNKernel*>(&first)) {
    y = unary->encode(buffer, x, state, false);
  } else if (auto* binary = dynamic_cast<CNNBinaryKernel*>(&first)) {
    y = binary->encode(buffer, x, source(gradient, seed + 1), state, false);
  } else {
    const std::vector<std::shared_ptr<Image>> sources{x, source(gradient, seed + 1)};
    y = dynamic_cast<CNNMultiaryKernel&>(first).encode(buffer, sources, state, false);
  }
  const bool takesResult = gradient.className().find("SoftMax") != std::string::npos;
  return {image(gradient.device(), y->descriptor(), seed + 2), takesResult ? y : x, state};
}

/// A gradient behind a forward kernel that `make` makes.
inline Compute gradientOf(Make make) {
  return [make = std::move(make)](Kernel& kernel, int seed) {
    auto& gradient = dynamic_cast<CNNGradientKernel&>(kernel);
    gradient.setDestinationImageAllocator(Image::defaultAllocator());
    const auto first = make(kernel.device());
    return valuesOf(*ran(kernel, [&](const auto& buffer) {
      const GradientArguments arguments = argumentsBehind(*first, kernel, buffer, seed);
      return gradient.encode(buffer, arguments.sourceGradient, arguments.sourceImage, arguments.state);
    }));
  };
}

/// A batch of one through the kernels of batch normalisation, up to the one that is tested.
inline Values ofBatchNormalization(Kernel& kernel, int seed) {
  const auto& device = kernel.device();
  const auto normalization =
      CNNBatchNormalization::create(device, detail::FixedBatchNormalization::create(channels));
  auto* statistics = dynamic_cast<CNNBatchNormalizationStatistics*>(&kernel);
  const auto ownStatistics = CNNBatchNormalizationStatistics::create(device);
  const ImageBatch x{source(kernel, seed)};
  const ImageBatch y = ImageBatch::create(device, sizeOf(side, side, channels), 1);
  const ImageBatch dy{source(kernel, seed + 1)};
  const ImageBatch dx = ImageBatch::create(device, sizeOf(side, side, channels), 1);
  const auto state = std::static_pointer_cast<CNNBatchNormalizationState>(normalization->resultState(x[0]));
  ran(kernel, [&](const auto& buffer) {
    (statistics != nullptr ? statistics : ownStatistics.get())->encodeBatch(buffer, x, state);
    normalization->encodeBatch(buffer, x, state, y);
    if (statistics != nullptr) return 0;
    if (auto* sums = dynamic_cast<CNNBatchNormalizationStatisticsGradient*>(&kernel)) {
      sums->encodeBatch(buffer, dy, x, state);
      CNNBatchNormalizationGradient::create(device)->encodeBatch(buffer, dy, x, state, dx);
    } else {
      CNNBatchNormalizationStatisticsGradient::create(device)->encodeBatch(buffer, dy, x, state);
      dynamic_cast<CNNBatchNormalizationGradient&>(kernel).encodeBatch(buffer, dy, x, state, dx);
    }
    return 0;
  });
  return valuesOf(statistics != nullptr ? y : dx);
}

inline Values ofLoss(Kernel& kernel, int seed) {
  auto& loss = dynamic_cast<CNNLoss&>(kernel);
  loss.setDestinationImageAllocator(Image::defaultAllocator());
  const auto labels = CNNLossLabels::create(kernel.device(), {1, 1, 1}, source(kernel, seed + 1), nullptr);
  return valuesOf(
      *ran(kernel, [&](const auto& buffer) { return loss.encode(buffer, source(kernel, seed), labels); }));
}

/// Cells with two anchors and two classes.
inline Values ofBoxes(Kernel& kernel, int seed) {
  const ImageDescriptor cells = sizeOf(side, side, 2 * (5 + 2));
  auto& loss = dynamic_cast<CNNYOLOLoss&>(kernel);
  loss.setDestinationImageAllocator(Image::defaultAllocator());
  const auto labels =
      CNNLossLabels::create(kernel.device(), {1, 1, 1}, image(kernel.device(), cells, seed + 1), nullptr);
  return valuesOf(*ran(kernel, [&](const auto& buffer) {
    return loss.encode(buffer, image(kernel.device(), cells, seed), labels);
  }));
}

/// A forward loss, or the gradient of one.
inline Values ofImageLosses(Kernel& kernel, int seed) {
  const auto& device = kernel.device();
  auto* gradient = dynamic_cast<NNLossGradient*>(&kernel);
  const auto loss = gradient != nullptr ? NNForwardLoss::create(device, gradient->descriptor())
                                        : std::dynamic_pointer_cast<NNForwardLoss>(kernel.shared_from_this());
  loss->setDestinationImageAllocator(Image::defaultAllocator());
  if (gradient != nullptr) gradient->setDestinationImageAllocator(Image::defaultAllocator());
  const ImageBatch x{source(kernel, seed)};
  const ImageBatch labels{source(kernel, seed + 1)};
  return valuesOf(ran(kernel, [&](const auto& buffer) {
    StateBatch states;
    ImageBatch y = loss->encodeBatch(buffer, x, labels, ImageBatch{}, states, false);
    if (gradient == nullptr) return y;
    return gradient->encodeBatch(buffer, ImageBatch{image(device, y.descriptor(), seed + 2)}, x, labels,
                                 ImageBatch{}, states);
  }));
}

inline Values ofVectors(Kernel& kernel, int seed) {
  const auto& device = kernel.device();
  const bool isRandom = dynamic_cast<MatrixRandom*>(&kernel) != nullptr;
  const auto result = isRandom ? vector(device, 0, 1000) : vector(device, seed);
  ran(kernel, [&](const auto& buffer) {
    const auto gradient = vector(device, seed + 1);
    const auto values = vector(device, seed + 2);
    const auto first = vector(device, seed + 3);
    const auto second = vector(device, seed + 4);
    if (auto* random = dynamic_cast<MatrixRandom*>(&kernel))
      random->encode(buffer, result);
    else if (auto* sgd = dynamic_cast<NNOptimizerStochasticGradientDescent*>(&kernel))
      sgd->encode(buffer, gradient, values, first, result);
    else if (auto* rmsProp = dynamic_cast<NNOptimizerRMSProp*>(&kernel))
      rmsProp->encode(buffer, gradient, values, first, result);
    else
      dynamic_cast<NNOptimizerAdam&>(kernel).encode(buffer, gradient, values, first, second, result);
    return 0;
  });
  return valuesOf(result->data());
}

inline std::shared_ptr<CNNConvolutionDataSource> weights(std::size_t kernel, std::size_t out) {
  const auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(kernel, kernel, channels, out);
  Values values(descriptor.weightCount());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) / 4 - 0.5F;
  return std::make_shared<detail::FixedWeights>(descriptor, values, Values(out, 0.25F));
}

inline std::shared_ptr<detail::FixedBatchNormalization> batchNormalizationValues() {
  auto values = detail::FixedBatchNormalization::create(channels);
  values->gammas = {1, -2, 3, 0.5F};
  values->means = {0.5F, 1, -1, 0};
  values->variances = {1, 2, 3, 4};
  return values;
}

inline NNOptimizerDescriptor optimizerDescriptor() {
  return {0.125F, 2, true, 3, -1, NNRegularizationType::L1, 0.25F};
}

template <class Kernel>
inline CodedKernel unary(std::shared_ptr<Kernel> kernel) {
  return coded(std::move(kernel), forward);
}

/// Forward and gradient kernels that `make` and `makeGradient` make.
template <class Make, class MakeGradient>
void addPair(std::vector<CodedKernel>& kernels, const Device& device, Make make, MakeGradient makeGradient,
             const Compute& compute) {
  kernels.push_back(coded(make(device), compute));
  kernels.push_back(coded(makeGradient(device), gradientOf(make)));
  kernels.back().forward = make;
}

inline std::vector<CodedKernel> everyKernel(const Device& device) {
  std::vector<CodedKernel> all;
  const auto add = [&](auto make, auto makeGradient, const Compute& compute = forward) {
    addPair(all, device, make, makeGradient, compute);
  };
  add([](const Device& d) { return CNNPoolingMax::create(d, 3, 2, 2, 1); },
      [](const Device& d) { return CNNPoolingMaxGradient::create(d, 3, 2, 2, 1); });
  add(
      [](const Device& d) {
        auto kernel = CNNPoolingAverage::create(d, 3, 2, 1, 2);
        kernel->setEdgeMode(ImageEdgeMode::Clamp);
        kernel->setZeroPadSizeX(1);
        return kernel;
      },
      [](const Device& d) { return CNNPoolingAverageGradient::create(d, 3, 2, 1, 2); });
  add([](const Device& d) { return CNNPoolingL2Norm::create(d, 2, 3, 1, 2); },
      [](const Device& d) { return CNNPoolingL2NormGradient::create(d, 2, 3, 1, 2); });
  add([](const Device& d) { return CNNDilatedPoolingMax::create(d, 2, 2, 2, 1, 1, 2); },
      [](const Device& d) { return CNNDilatedPoolingMaxGradient::create(d, 2, 2, 2, 1, 1, 2); });
  add([](const Device& d) { return CNNUpsamplingNearest::create(d, 2, 3); },
      [](const Device& d) { return CNNUpsamplingNearestGradient::create(d, 2, 3); });
  add(
      [](const Device& d) {
        auto kernel = CNNUpsamplingBilinear::create(d, 3, 2);
        kernel->setHalfPixelCenters(true);
        return kernel;
      },
      [](const Device& d) { return CNNUpsamplingBilinearGradient::create(d, 3, 2); });
  add([](const Device& d) { return CNNConvolution::create(d, weights(3, 3)); },
      [](const Device& d) { return CNNConvolutionGradient::create(d, weights(3, 3)); });
  add([](const Device& d) { return CNNFullyConnected::create(d, weights(side, 5)); },
      [](const Device& d) { return CNNFullyConnectedGradient::create(d, weights(side, 5)); });
  add([](const Device& d) { return CNNConvolutionTranspose::create(d, weights(2, 3)); },
      [](const Device& d) { return CNNConvolutionTransposeGradient::create(d, weights(2, 3)); });
  const auto prelu = NNNeuronDescriptor::cnnNeuronPReLUDescriptor(Values{0.5F, 2, -1, 0.25F});
  add([=](const Device& d) { return CNNNeuron::create(d, prelu); },
      [=](const Device& d) { return CNNNeuronGradient::create(d, prelu); });
  all.push_back(unary(CNNBatchNormalization::create(device, batchNormalizationValues(), prelu)));
  all.push_back(coded(CNNBatchNormalizationStatistics::create(device), ofBatchNormalization));
  all.push_back(coded(CNNBatchNormalizationStatisticsGradient::create(device), ofBatchNormalization));
  all.push_back(coded(CNNBatchNormalizationGradient::create(device), ofBatchNormalization));
  add(
      [](const Device& d) {
        return CNNInstanceNormalization::create(d, detail::FixedInstanceNormalization::create(channels));
      },
      [](const Device& d) { return CNNInstanceNormalizationGradient::create(d); });
  add(
      [](const Device& d) {
        return CNNGroupNormalization::create(d, detail::FixedGroupNormalization::create(channels, 2));
      },
      [](const Device& d) { return CNNGroupNormalizationGradient::create(d); });
  add([](const Device& d) { return CNNSpatialNormalization::create(d, 3, 2); },
      [](const Device& d) { return CNNSpatialNormalizationGradient::create(d, 3, 2); });
  add(
      [](const Device& d) {
        auto kernel = CNNLocalContrastNormalization::create(d, 2, 3);
        kernel->setAlpha(0.5F);
        return kernel;
      },
      [](const Device& d) { return CNNLocalContrastNormalizationGradient::create(d, 2, 3); });
  add([](const Device& d) { return CNNCrossChannelNormalization::create(d, 3); },
      [](const Device& d) { return CNNCrossChannelNormalizationGradient::create(d, 3); });
  const auto addArithmetic = [&](auto make, auto makeGradient) { add(make, makeGradient, ofTwo); };
  addArithmetic([](const Device& d) { return CNNAdd::create(d); },
                [](const Device& d) { return CNNAddGradient::create(d, true); });
  addArithmetic([](const Device& d) { return CNNSubtract::create(d); },
                [](const Device& d) { return CNNSubtractGradient::create(d, true); });
  addArithmetic([](const Device& d) { return CNNMultiply::create(d); },
                [](const Device& d) { return CNNMultiplyGradient::create(d, true); });
  addArithmetic([](const Device& d) { return CNNDivide::create(d); },
                [](const Device& d) { return CNNDivideGradient::create(d, true); });
  add([](const Device& d) { return NNConcatenation::create(d, 2); },
      [](const Device& d) { return NNConcatenationGradient::create(d, 0); }, ofSeveral);
  add(
      [](const Device& d) {
        auto kernel = NNReshape::create(d);
        kernel->setReshapedSize(side * channels, 1, side);
        return kernel;
      },
      [](const Device& d) { return NNReshapeGradient::create(d); });
  add(
      [](const Device& d) {
        return NNPad::create(d, {1, 2, 3}, {3, 1, 2}, Values{1, 2, 3, 4, 5, 6, 7, 8, 9});
      },
      [](const Device& d) { return NNPadGradient::create(d); });
  all.push_back(unary(NNSlice::create(device)));
  add([](const Device& d) { return NNGramMatrixCalculation::create(d, 0.5F); },
      [](const Device& d) { return NNGramMatrixCalculationGradient::create(d, 2); });
  all.push_back(unary(NNReduceRowMin::create(device)));
  all.push_back(unary(NNReduceRowSum::create(device)));
  all.push_back(unary(NNReduceRowMean::create(device)));
  all.push_back(unary(NNReduceColumnMin::create(device)));
  all.push_back(unary(NNReduceColumnMax::create(device)));
  all.push_back(unary(NNReduceColumnSum::create(device)));
  all.push_back(unary(NNReduceColumnMean::create(device)));
  all.push_back(unary(NNReduceFeatureChannelsMin::create(device)));
  all.push_back(unary(NNReduceFeatureChannelsMax::create(device)));
  all.push_back(unary(NNReduceFeatureChannelsMean::create(device)));
  all.push_back(unary(NNReduceFeatureChannelsArgumentMin::create(device)));
  all.push_back(unary(NNReduceFeatureChannelsArgumentMax::create(device)));
  const auto sum = NNReduceFeatureChannelsSum::create(device);
  sum->setWeight(3);
  all.push_back(unary(sum));
  all.push_back(unary(NNReduceSpatialMean::create(device)));
  add(
      [](const Device& d) {
        auto kernel = NNReduceRowMax::create(d);
        kernel->setClipRectSource({{1, 0, 0}, {2, 3, 1}});
        return kernel;
      },
      [](const Device& d) {
        return NNReduceUnaryGradient::create(d, ReductionOperation::Max, ReductionAxis::Row);
      });
  add([](const Device& d) { return CNNSoftMax::create(d); },
      [](const Device& d) { return CNNSoftMaxGradient::create(d); });
  add([](const Device& d) { return CNNLogSoftMax::create(d); },
      [](const Device& d) { return CNNLogSoftMaxGradient::create(d); });
  add(
      [](const Device& d) {
        auto kernel = CNNDropout::create(d, 0.5F, 77);
        kernel->setEncodeCount(5);
        return kernel;
      },
      [](const Device& d) { return CNNDropoutGradient::create(d, 0.5F, 77); });
  auto descriptor = CNNLossDescriptor::cnnLossDescriptor(CNNLossType::Huber, CNNReductionType::Mean);
  descriptor.setDelta(0.5F);
  descriptor.setWeight(3);
  descriptor.setLossScale(LossScale::create(device));
  all.push_back(coded(CNNLoss::create(device, descriptor), ofLoss));
  descriptor.setLossScale(nullptr);
  auto boxes = CNNYOLOLossDescriptor::cnnLossDescriptor(
      CNNLossType::Huber, CNNLossType::MeanSquaredError, CNNLossType::SigmoidCrossEntropy,
      CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Mean, std::vector<float>{1, 2, 3, 0.5F}, 2);
  boxes.setScaleXY(7);
  boxes.setMinIOUForObjectPresence(0.25F);
  all.push_back(coded(CNNYOLOLoss::create(device, boxes), ofBoxes));
  all.push_back(coded(NNForwardLoss::create(device, descriptor), ofImageLosses));
  all.push_back(coded(NNLossGradient::create(device, descriptor), ofImageLosses));
  all.push_back(unary(NNInitialGradient::create(device)));
  const auto compare = NNCompare::create(device);
  compare->setComparisonType(NNComparisonType::Less);
  compare->setThreshold(0.5F);
  all.push_back(coded(compare, ofTwo));
  all.push_back(coded(NNReduceFeatureChannelsAndWeightsMean::create(device), ofTwo));
  all.push_back(coded(NNReduceFeatureChannelsAndWeightsSum::create(device, true), ofTwo));
  add(
      [](const Device& d) {
        auto kernel = NNResizeBilinear::create(d, 7, 3);
        kernel->setHalfPixelCenters(true);
        return kernel;
      },
      [](const Device& d) { return NNResizeBilinearGradient::create(d); });
  const auto scaled = [](auto kernel) {
    kernel->setScaleTransform(ScaleTransform{1.5, 0.5, -0.25, 1});
    return kernel;
  };
  add([&](const Device& d) { return scaled(ImageBilinearScale::create(d, 5, 3)); },
      [](const Device& d) { return ImageBilinearScaleGradient::create(d); });
  add([&](const Device& d) { return scaled(ImageLanczosScale::create(d, 3, 5)); },
      [](const Device& d) { return ImageLanczosScaleGradient::create(d); });
  const auto gridSample = NNGridSample::create(device);
  gridSample->setUseGridValueAsInputCoordinate(false);
  gridSample->setPrimaryEdgeMode(ImageEdgeMode::Clamp);
  all.push_back(coded(gridSample, ofTwo));
  const std::vector<NormalizedRegion> regions{{0.25, 0.5, 0.5, -0.25}, {}};
  all.push_back(coded(NNCropAndResizeBilinear::create(device, 3, 2, regions), ofRegions));
  addMatrixKernels(all, device);
  addArrayKernels(all, device);
  const auto uniform = MatrixRandomDistributionDescriptor::uniformDistributionDescriptor(-3, 4);
  all.push_back(coded(MatrixRandomPhilox::create(device, DataType::Float32, 9, uniform), ofVectors));
  all.push_back(coded(MatrixRandomMTGP32::create(device, DataType::Float32, 9, uniform), ofVectors));
  all.push_back(coded(NNOptimizerStochasticGradientDescent::create(device, 0.5F, true, optimizerDescriptor()),
                      ofVectors));
  all.push_back(coded(NNOptimizerRMSProp::create(device, 0.75, 0.125F, optimizerDescriptor()), ofVectors));
  all.push_back(
      coded(NNOptimizerAdam::create(device, 0.5, 0.75, 0.125F, 6, optimizerDescriptor()), ofVectors));
  for (const CodedKernel& one : all) one.kernel->setLabel("a label");
  return all;
}

}  // namespace mps::test
