#include "mps/conform/kernel_cases.hpp"
#include "mps/conform/testing/stored_values.hpp"
#include "mps/convolution/check/convolution_cases.hpp"
#include "mps/convolution/check/convolution_fixed_weights.hpp"
#include "mps/convolution/check/convolution_reference.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/convolution/convolution_transpose.hpp"
#include "mps/convolution/fully_connected.hpp"
#include "mtl/buffer.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
namespace {

using ConvolutionImplementation = Implementation<ConvolutionProblem>;
using Values = std::vector<double>;

/// Whether the neuron keeps small integers, or multiples of 1/8 of them, exact.
bool isExact(const NNNeuronDescriptor& neuron) {
  const CNNNeuronType type = neuron.neuronType();
  return type == CNNNeuronType::None || type == CNNNeuronType::ReLU || type == CNNNeuronType::PReLU;
}

/// Few inputs may all be 0.
Zeros expectedZeros(const ConvolutionProblem& problem) {
  constexpr std::int64_t kFew = 64;
  const bool hasFew = (problem.source.channels > 0 && problem.source.elements() < kFew) ||
                      (problem.gradient.channels > 0 && problem.gradient.elements() < kFew) ||
                      problem.weightCount() < kFew;
  return hasFew ? Zeros::Expected : Zeros::Suspicious;
}

constexpr std::string_view kTensorCores = "tensor cores";

/// Whether an implementation computes something else where inputs may be rounded: the libraries of a GPU do, and tensor cores
/// take nothing else.
bool heedsPermissionToRound(const ConvolutionImplementation& implementation, const mtl::Device& device) {
  return device.kind() == mtl::DeviceKind::CUDA &&
         (implementation.name == "cudnn" || implementation.name == "matmul" ||
          implementation.name == kTensorCores);
}

/// Whether the result is exact where inputs may be rounded. cuDNN's weight gradients of two float16 images are float16
/// first, which holds integers up to 2048: ten times the deviation of a sum of 1024 products of -4 ... 4.
bool staysExactRounded(const ConvolutionProblem& problem) {
  constexpr std::int64_t kMostTerms = 1024;
  return problem.operation != ConvolutionOperation::WeightsGradient ||
         problem.source.format != ImageFeatureChannelFormat::Float16 ||
         problem.gradient.images * problem.gradient.height * problem.gradient.width <= kMostTerms;
}

void runPlan(ConformRun& run, const ConvolutionImplementation& implementation, ConvolutionProblem problem,
             Tier tier) {
  problem.threadCount = run.device()->threadCount();
  problem.deviceName = run.device()->name();
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  const TensorShape weightShape = TensorShape::dense(1, 1, 1, problem.weightCount());
  const TensorShape biasShape = TensorShape::dense(1, 1, 1, problem.biasCount());
  const RandomKind kind = valuesFor(tier, weightShape.format);
  TestTensor source = run.source(problem.source, valuesFor(tier, problem.source.format), 1);
  TestTensor gradient = run.source(problem.gradient, valuesFor(tier, problem.gradient.format), 1);
  TestTensor weights = run.source(weightShape, kind, 1);
  TestTensor bias = run.source(biasShape, kind, 1);
  TestTensor destination = run.destination(problem.destination);
  TestTensor weightGradients = run.destination(weightShape, 3);
  TestTensor biasGradients = run.destination(biasShape, 5);
  const auto before = [&](TestTensor& output) {
    if (!problem.accumulate) return Values();
    Values values =
        run.values(static_cast<std::size_t>(output.shape().elements()), RandomKind::SmallIntegers);
    output.write(values);
    return values;
  };
  const Values imageBefore = before(destination);
  const Values weightsBefore = before(weightGradients);
  const Values biasBefore = before(biasGradients);
  Operands operands;
  operands.source = source.address();
  operands.gradient = gradient.address();
  operands.destination = destination.address();
  operands.parameters = {weights.address(), bias.address(), weightGradients.address(),
                         biasGradients.address()};
  operands.accumulate = problem.accumulate;
  run.execute(*plan, operands);
  for (TestTensor* input : {&source, &gradient, &weights, &bias})
    run.require(input->isUnchanged(), "an input was written");
  const Values biasValues = problem.hasBias ? bias.read() : Values();
  const Zeros zeros = expectedZeros(problem);
  const auto check = [&](ReferenceTensor expected, TestTensor& found, const Values& terms) {
    if (problem.accumulate) addTerms(expected, terms);
    run.check(expected, found, zeros);
  };
  switch (problem.operation) {
    case ConvolutionOperation::Forward:
      check(convolutionForwardReference(problem, source.reference(), weights.read(), biasValues), destination,
            imageBefore);
      break;
    case ConvolutionOperation::DataGradient:
      check(convolutionDataGradientReference(problem, gradient.reference(), weights.read(), biasValues),
            destination, imageBefore);
      break;
    case ConvolutionOperation::WeightsGradient: {
      const auto expected =
          convolutionWeightsGradientReference(problem, source.reference(), gradient.reference());
      check(expected.weights, weightGradients, weightsBefore);
      if (problem.hasBias) check(expected.bias, biasGradients, biasBefore);
      break;
    }
  }
}

enum class LayerKind { Convolution, FullyConnected, Transpose };

/// A layer of the public kernels.
struct Layer {
  std::string name;
  std::size_t kernel = 1;
  std::size_t stride = 1;
  std::size_t dilation = 1;
  bool isDepthWise = false;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
};

CNNConvolutionDescriptor describedBy(const Layer& layer, const KernelBatch& batch, bool isFullyConnected) {
  constexpr std::size_t kOutputs = 10;
  if (isFullyConnected)
    return CNNConvolutionDescriptor::cnnConvolutionDescriptor(batch.width, batch.height, batch.channels,
                                                              kOutputs);
  CNNConvolutionDescriptor descriptor =
      layer.isDepthWise ? CNNDepthWiseConvolutionDescriptor::cnnConvolutionDescriptor(
                              layer.kernel, layer.kernel, batch.channels, 2 * batch.channels)
                        : CNNConvolutionDescriptor::cnnConvolutionDescriptor(layer.kernel, layer.kernel,
                                                                             batch.channels, kOutputs);
  descriptor.setStrideInPixelsX(layer.stride);
  descriptor.setStrideInPixelsY(layer.stride);
  descriptor.setDilationRateX(layer.dilation);
  descriptor.setDilationRateY(layer.dilation);
  return descriptor;
}

std::vector<float> toFloats(const Values& values) {
  return {values.begin(), values.end()};
}

void checkParameterGradients(ConformRun& run, const ConvolutionParameterGradients& expected,
                             const StateBatch& states) {
  const auto state = std::dynamic_pointer_cast<CNNConvolutionGradientState>(states.sharedState());
  run.require(state != nullptr, "the images do not share a gradient state");
  if (!state) return;
  const auto check = [&](const ReferenceTensor& reference, const std::shared_ptr<mtl::Buffer>& buffer) {
    const Values found = storedFloats(run.device(), buffer->memory(), 0, buffer->length() / sizeof(float));
    run.check(reference, found, ImageFeatureChannelFormat::Float32, Zeros::Expected);
  };
  check(expected.weights, state->gradientForWeights());
  check(expected.bias, state->gradientForBiases());
}

template <class Forward, class Gradient>
void runKernel(ConformRun& run, const Layer& layer, const KernelBatch& batch, bool isForward,
               ConformFormats formats, Tier tier) {
  constexpr bool isFullyConnected = std::is_same_v<Forward, CNNFullyConnected>;
  const CNNConvolutionDescriptor descriptor = describedBy(layer, batch, isFullyConnected);
  const RandomKind kind = valuesFor(tier, ImageFeatureChannelFormat::Float32);
  const auto parameters =
      std::make_shared<FixedWeights>(descriptor, toFloats(run.values(descriptor.weightCount(), kind)),
                                     toFloats(run.values(descriptor.outputFeatureChannels(), kind)));
  const auto forward = Forward::create(run.device(), parameters);
  forward->setEdgeMode(layer.edgeMode);
  const TestImages sources =
      run.sources(batch.form, batch.descriptor(formats.source), batch.count, valuesFor(tier, formats.source));
  const ImageDescriptor result = forward->sizeDestination(sources.batch().descriptor());

  ConvolutionProblem problem;
  problem.edgeMode = layer.edgeMode;
  problem.inputFeatureChannels = static_cast<std::int64_t>(descriptor.inputFeatureChannels());
  problem.outputFeatureChannels = static_cast<std::int64_t>(descriptor.outputFeatureChannels());
  problem.groups = layer.isDepthWise ? problem.inputFeatureChannels : 1;
  problem.hasBias = true;
  const auto axis = [&](std::size_t size, std::size_t windows, std::int64_t offset) {
    if (isFullyConnected) return wholeWindow(static_cast<std::int64_t>(size));
    return WindowAxis{static_cast<std::int64_t>(size),           static_cast<std::int64_t>(windows),
                      static_cast<std::int64_t>(layer.kernel),   static_cast<std::int64_t>(layer.stride),
                      static_cast<std::int64_t>(layer.dilation), offset};
  };
  problem.x = axis(batch.width, result.width(), forward->offset().x);
  problem.y = axis(batch.height, result.height(), forward->offset().y);
  problem.source = sources.shape();
  const TensorShape resultShape =
      TensorShape::dense(problem.source.images, problem.y.destinationSize, problem.x.destinationSize,
                         problem.outputFeatureChannels, formats.result);
  const auto floats = [](auto values) { return Values(values.begin(), values.end()); };
  const auto stored = parameters->weights();
  const Values weights =
      floats(std::span(reinterpret_cast<const float*>(stored.data()), stored.size() / sizeof(float)));
  if (isForward) {
    problem.destination = resultShape;
    runForwardKernel(run, *forward, sources, batch.form, formats.result, [&](const ReferenceTensor& source) {
      return convolutionForwardReference(problem, source, weights, floats(parameters->biasTerms()));
    });
    return;
  }

  const auto gradient = Gradient::create(run.device(), parameters);
  const GradientImages images =
      gradientImages(run, *forward, sources, batch.form, formats.result, valuesFor(tier, formats.result));
  if (!encodeGradientKernel(run, *forward, *gradient, sources, false, images)) return;
  problem.gradient = resultShape;
  problem.operation = ConvolutionOperation::WeightsGradient;
  checkParameterGradients(
      run, convolutionWeightsGradientReference(problem, sources.reference(), images.gradients.reference()),
      images.states);
  problem.operation = ConvolutionOperation::DataGradient;
  problem.hasBias = false;
  problem.destination = problem.source;
  problem.destination.format = formats.result;
  problem.source = {};
  run.check(convolutionDataGradientReference(problem, images.gradients.reference(), weights, {}),
            images.destinations, Zeros::Expected);
}

/// As runKernel, of transposed convolution.
void runTransposeKernel(ConformRun& run, const Layer& layer, const KernelBatch& batch, bool isForward,
                        ConformFormats formats, Tier tier) {
  const CNNConvolutionDescriptor descriptor = describedBy(layer, batch, false);
  const RandomKind kind = valuesFor(tier, ImageFeatureChannelFormat::Float32);
  const Values weights = run.values(descriptor.weightCount(), kind);
  const Values biases = run.values(descriptor.outputFeatureChannels(), kind);
  const auto parameters = std::make_shared<FixedWeights>(descriptor, toFloats(weights), toFloats(biases));
  const auto forward = CNNConvolutionTranspose::create(run.device(), parameters);
  const TestImages sources =
      run.sources(batch.form, batch.descriptor(formats.source), batch.count, valuesFor(tier, formats.source));
  const ImageDescriptor result = forward->sizeDestination(sources.batch().descriptor());

  ConvolutionProblem problem;
  problem.transposed = true;
  problem.operation = ConvolutionOperation::DataGradient;
  problem.inputFeatureChannels = static_cast<std::int64_t>(descriptor.outputFeatureChannels());
  problem.outputFeatureChannels = static_cast<std::int64_t>(descriptor.inputFeatureChannels());
  problem.hasBias = true;
  const auto axis = [&](std::size_t size, std::size_t enlarged, std::int64_t shift) {
    return transposedWindow(static_cast<std::int64_t>(size), static_cast<std::int64_t>(enlarged),
                            static_cast<std::int64_t>(layer.kernel), static_cast<std::int64_t>(layer.stride),
                            shift, static_cast<std::int64_t>(layer.dilation));
  };
  problem.x = axis(batch.width, result.width(), forward->kernelOffsetX());
  problem.y = axis(batch.height, result.height(), forward->kernelOffsetY());
  problem.gradient = sources.shape();
  const TensorShape resultShape =
      TensorShape::dense(problem.gradient.images, problem.y.sourceSize, problem.x.sourceSize,
                         problem.inputFeatureChannels, formats.result);
  if (isForward) {
    problem.destination = resultShape;
    runForwardKernel(run, *forward, sources, batch.form, formats.result, [&](const ReferenceTensor& source) {
      return convolutionDataGradientReference(problem, source, weights, biases);
    });
    return;
  }

  const auto gradient = CNNConvolutionTransposeGradient::create(run.device(), parameters);
  const GradientImages images =
      gradientImages(run, *forward, sources, batch.form, formats.result, valuesFor(tier, formats.result));
  if (!encodeGradientKernel(run, *forward, *gradient, sources, false, images)) return;
  problem.source = resultShape;
  problem.operation = ConvolutionOperation::WeightsGradient;
  checkParameterGradients(
      run, convolutionWeightsGradientReference(problem, images.gradients.reference(), sources.reference()),
      images.states);
  problem.operation = ConvolutionOperation::Forward;
  problem.hasBias = false;
  problem.destination = problem.gradient;
  problem.destination.format = formats.result;
  problem.gradient = {};
  run.check(convolutionForwardReference(problem, images.gradients.reference(), weights, {}),
            images.destinations, Zeros::Expected);
}

LayerKind kindOf(const ConvolutionCase& one) {
  if (one.transposed) return LayerKind::Transpose;
  const bool coversSource = one.x == wholeWindow(one.x.sourceSize) &&
                            one.y == wholeWindow(one.y.sourceSize) && one.groups == 1 &&
                            one.edgeMode == ImageEdgeMode::Zero;
  return coversSource ? LayerKind::FullyConnected : LayerKind::Convolution;
}

/// The shared table but for the cases that compare nothing or take long, and some with many results.
/// @param hasManyRows also one that takes long
std::vector<ConvolutionCase> planCases(LayerKind kind, bool hasManyRows) {
  std::vector<ConvolutionCase> cases = {
      {.name = "FullyConnectedManyImages",
       .images = 64,
       .y = wholeWindow(1),
       .x = wholeWindow(1),
       .inputs = 16,
       .outputs = 300},
      {.name = "FullyConnectedFewChannels",
       .images = 64,
       .y = wholeWindow(2),
       .x = wholeWindow(2),
       .inputs = 3,
       .outputs = 300},
      {.name = "PointwiseManyPixels",
       .images = 4,
       .y = sameWindow(16, 1),
       .x = sameWindow(17, 1),
       .inputs = 16,
       .outputs = 16},
  };
  // More rows of a gradient than what the blocks of a GPU take at once.
  if (hasManyRows)
    cases.push_back({.name = "ManyRows",
                     .images = 18,
                     .y = sameWindow(14, 5),
                     .x = sameWindow(14, 3),
                     .inputs = 32,
                     .outputs = 64});
  for (const ConvolutionCase& one : convolutionCases())
    if (one.name != "NoImages") cases.push_back(one);
  std::erase_if(cases, [&](const ConvolutionCase& one) { return kindOf(one) != kind; });
  return cases;
}

std::vector<Layer> layers(LayerKind kind) {
  using enum ImageEdgeMode;
  switch (kind) {
    case LayerKind::FullyConnected:
      return {{"WholeImage"}};
    case LayerKind::Transpose:
      return {{"Kernel3x3Stride2", 3, 2, 1, false, Zero},
              {"Kernel4x4Stride2", 4, 2, 1, false, Zero},
              {"Kernel2x2Stride3", 2, 3, 1, false, Zero},
              {"Dilated3x3", 3, 1, 2, false, Zero}};
    case LayerKind::Convolution:
      break;
  }
  return {{"Kernel3x3", 3, 1, 1, false, Zero},
          {"Kernel2x2Stride2", 2, 2, 1, false, Zero},
          {"Dilated3x3Clamp", 3, 1, 2, false, Clamp},
          {"Pointwise", 1, 1, 1, false, Zero},
          {"DepthWise3x3", 3, 1, 1, true, Zero}};
}

const char* className(LayerKind kind) {
  switch (kind) {
    case LayerKind::FullyConnected:
      return "CNNFullyConnected";
    case LayerKind::Transpose:
      return "CNNConvolutionTranspose";
    case LayerKind::Convolution:
      break;
  }
  return "CNNConvolution";
}

void runLayer(ConformRun& run, LayerKind kind, const Layer& layer, const KernelBatch& batch, bool isForward,
              ConformFormats formats, Tier tier) {
  switch (kind) {
    case LayerKind::Convolution:
      return runKernel<CNNConvolution, CNNConvolutionGradient>(run, layer, batch, isForward, formats, tier);
    case LayerKind::FullyConnected:
      return runKernel<CNNFullyConnected, CNNFullyConnectedGradient>(run, layer, batch, isForward, formats,
                                                                     tier);
    case LayerKind::Transpose:
      return runTransposeKernel(run, layer, batch, isForward, formats, tier);
  }
}

/// A problem as it is and, where results are floats, added to what is there.
void addPlanCases(std::vector<ConformCase>& cases, const ConvolutionImplementation& implementation,
                  const std::string& shape, ConvolutionProblem problem, bool floatResults, Tier tier) {
  const std::string text =
      shape + " " + name(problem.operation) + (problem.allowReducedPrecision ? " that may round" : "");
  cases.push_back({text, [=](ConformRun& run) { runPlan(run, implementation, problem, tier); }});
  if (!floatResults || problem.operation == ConvolutionOperation::Forward) return;
  problem.accumulate = true;
  cases.push_back(
      {text + " accumulating", [=](ConformRun& run) { runPlan(run, implementation, problem, tier); }});
}

void conformDirection(Conform& conform, LayerKind kind, const ConvolutionImplementation& implementation,
                      bool isForward, ConformFormats formats, Tier tier) {
  const ConformKey key{std::string(className(kind)) + (isForward ? "" : "Gradient"),
                       isForward ? Direction::Forward : Direction::Gradient, formats.source,
                       std::string(implementation.name), tier};
  if (!conform.isSelected(key)) return;
  // A transposed convolution is the data gradient of its partner.
  const ConvolutionOperation forward =
      kind == LayerKind::Transpose ? ConvolutionOperation::DataGradient : ConvolutionOperation::Forward;
  const bool floatResults = formats.result == ImageFeatureChannelFormat::Float32;
  std::vector<bool> permissions{false};
  if (tier == Tier::Exact && heedsPermissionToRound(implementation, *conform.device()))
    permissions.push_back(true);
  std::vector<ConformCase> cases;
  for (const ConvolutionCase& one : planCases(kind, implementation.name == kTensorCores))
    for (const ConvolutionOperation operation :
         {ConvolutionOperation::Forward, ConvolutionOperation::DataGradient,
          ConvolutionOperation::WeightsGradient}) {
      if ((operation == forward) != isForward) continue;
      ConvolutionProblem problem = one.problem(operation, formats.source, formats.result);
      if (tier == Tier::Exact && !isExact(problem.neuron)) continue;
      for (const bool mayRound : permissions) {
        if (mayRound && !staysExactRounded(problem)) continue;
        problem.allowReducedPrecision = mayRound;
        addPlanCases(cases, implementation, std::string(one.name), problem, floatResults, tier);
      }
    }
  for (const Layer& layer : layers(kind))
    for (const KernelBatch& batch : kernelBatches())
      cases.push_back({layer.name + batch.name, [=](ConformRun& run) {
                         runLayer(run, kind, layer, batch, isForward, formats, tier);
                       }});
  conformRow(conform, key, cases);
}

}  // namespace

void conformConvolution(Conform& conform) {
  for (const LayerKind kind : {LayerKind::Convolution, LayerKind::FullyConnected, LayerKind::Transpose})
    for (const ConvolutionImplementation& implementation : conform.implementations(convolutionBackEnds))
      for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
        for (const ConformFormats formats : kForwardFormats)
          conformDirection(conform, kind, implementation, true, formats, tier);
        for (const auto format : kGradientFormats)
          conformDirection(conform, kind, implementation, false, {format, format}, tier);
      }
}

}  // namespace mps::detail
