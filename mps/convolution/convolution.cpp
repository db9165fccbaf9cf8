#include "mps/convolution/convolution.hpp"

#include <algorithm>
#include <any>
#include <variant>

#include "mps/convolution/convolution_problem.hpp"
#include "mps/convolution/convolution_weights.hpp"
#include "mps/convolution/sub_pixel_convolution.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/neuron/neuron_span.hpp"
#include "mps/core/types/as_signed.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {

using detail::ConvolutionOperation;
using detail::ConvolutionProblem;

namespace {

/// What a forward encode leaves in its record.
struct RecordedConvolution {
  detail::RecordedWeights weights;
  bool subPixels = false;
};

using detail::asSigned;

/// The problem of a convolution whose result is spread over more pixels. @param destination those
detail::SubPixelConvolutionProblem subPixelProblem(ConvolutionProblem convolution, std::size_t scaleFactor,
                                                   const detail::TensorShape& destination) {
  const std::int64_t factor = asSigned(scaleFactor);
  convolution.x.destinationSize = (destination.width + factor - 1) / factor;
  convolution.y.destinationSize = (destination.height + factor - 1) / factor;
  convolution.destination = detail::TensorShape::dense(destination.images, convolution.y.destinationSize,
                                                       convolution.x.destinationSize,
                                                       convolution.outputFeatureChannels, destination.format);
  return {std::move(convolution), factor, destination};
}

}  // namespace

CNNConvolution::CNNConvolution(std::shared_ptr<mtl::Device> device,
                               std::shared_ptr<CNNConvolutionDataSource> weights, const char* className)
    : KernelClass(std::move(device)),
      ForwardKernelWithWeights(className, this->device(), std::move(weights)) {
  setLabel(dataSource()->label());
}

std::shared_ptr<CNNConvolution> CNNConvolution::create(const std::shared_ptr<mtl::Device>& device,
                                                       std::shared_ptr<CNNConvolutionDataSource> weights) {
  return std::shared_ptr<CNNConvolution>(new CNNConvolution(device, std::move(weights), "CNNConvolution"));
}

detail::PreparedCall CNNConvolution::prepareForward(const detail::ForwardCall& call) const {
  ConvolutionProblem problem = describedProblem(call.options);
  problem.operation = ConvolutionOperation::Forward;
  problem.x = call.x;
  problem.y = call.y;
  problem.edgeMode = call.edgeMode;
  problem.hasBias = weights()->biases() != nullptr;
  problem.neuron = graphNeuron_.neuronType() != CNNNeuronType::None ? graphNeuron_ : fusedNeuronDescriptor();
  problem.source = call.source;
  problem.destination = call.destination;
  placeWindow(problem);
  detail::PreparedCall prepared;
  prepared.operations = problem.operations();
  if (subPixelScaleFactor() != 1) {
    prepared.plan =
        detail::planFor(*device(), detail::subPixelConvolutionBackEnds,
                        subPixelProblem(std::move(problem), subPixelScaleFactor(), call.destination));
  } else {
    prepared.plan = detail::planFor(*device(), detail::convolutionBackEnds, problem);
  }
  giveWeights(prepared, true);
  return prepared;
}

detail::KernelRoles CNNConvolution::roles() {
  return {.layer = this, .neuronFusion = this};
}

detail::ChannelTraits CNNConvolution::channelTraits() const {
  return {.required = inputFeatureChannels(),
          .roundsToFloat16 = has(options(), KernelOptions::AllowReducedPrecision)};
}

/// A fused neuron has the filters' channels, which those of a sub-pixel convolution's result are not.
CNNConvolution::Answer CNNConvolution::canFuse(const NNNeuronDescriptor& neuron,
                                               bool isDifferentiated) const {
  const bool isFree =
      fusedNeuronDescriptor().neuronType() == CNNNeuronType::None && subPixelScaleFactor() == 1;
  return isFree && (!isDifferentiated || detail::derivativeFromResult(neuron)) ? Answer::GradientApart
                                                                               : Answer::No;
}

std::shared_ptr<detail::ForwardKernelWithWeights> CNNConvolution::shared() {
  return std::static_pointer_cast<CNNConvolution>(shared_from_this());
}

void CNNConvolution::adjustDestination(ImageDescriptor& destination, const ImageDescriptor& /*source*/) {
  destination.setWidth(destination.width() * subPixelScaleFactor());
  destination.setHeight(destination.height() * subPixelScaleFactor());
}

std::shared_ptr<State> CNNConvolution::makeState(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    std::span<const std::shared_ptr<State>> /*sourceStates*/) const {
  return CNNConvolutionGradientState::create(
      device(), commandBuffer, descriptor(),
      std::static_pointer_cast<const CNNConvolution>(shared_from_this()), weights()->biases() != nullptr);
}

void CNNConvolution::describeForward(std::any& family) const {
  family = RecordedConvolution{recordedWeights(), subPixelScaleFactor() != 1};
}

CNNConvolutionGradient::CNNConvolutionGradient(std::shared_ptr<mtl::Device> device,
                                               std::shared_ptr<CNNConvolutionDataSource> weights,
                                               const char* className)
    : KernelClass(std::move(device)),
      GradientKernelWithWeights(className, this->device(), std::move(weights)) {
  setLabel(dataSource()->label());
  primary_.strideInPixelsX.transfer(descriptor().strideInPixelsX());
  primary_.strideInPixelsY.transfer(descriptor().strideInPixelsY());
  secondary_.strideInPixelsX.transfer(descriptor().strideInPixelsX());
  secondary_.strideInPixelsY.transfer(descriptor().strideInPixelsY());
  secondary_.kernelWidth.transfer(descriptor().kernelWidth());
  secondary_.kernelHeight.transfer(descriptor().kernelHeight());
  secondary_.dilationRateX.transfer(descriptor().dilationRateX());
  secondary_.dilationRateY.transfer(descriptor().dilationRateY());
}

std::shared_ptr<CNNConvolutionGradient> CNNConvolutionGradient::create(
    const std::shared_ptr<mtl::Device>& device, std::shared_ptr<CNNConvolutionDataSource> weights) {
  return std::shared_ptr<CNNConvolutionGradient>(
      new CNNConvolutionGradient(device, std::move(weights), "CNNConvolutionGradient"));
}

bool CNNConvolutionGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "CNNConvolution";
}

detail::KernelRoles CNNConvolutionGradient::roles() {
  return {.layer = this, .layerGradient = this};
}

detail::ChannelTraits CNNConvolutionGradient::channelTraits() const {
  return {.roundsToFloat16 = has(options(), KernelOptions::AllowReducedPrecision)};
}

CNNConvolutionGradient::Geometry CNNConvolutionGradient::geometryFor(const detail::ForwardRecord& record,
                                                                     const Offset& /*gradientOrigin*/) const {
  const auto dilated = [](std::size_t kernel, std::size_t dilation) {
    return asSigned((kernel - 1) * dilation + 1);
  };
  const std::int64_t width = dilated(record.kernelWidth, record.dilationRateX);
  const std::int64_t height = dilated(record.kernelHeight, record.dilationRateY);
  return {{},
          {record.offset.x - width / 2, record.offset.y - height / 2, 0},
          -record.offset.x + (width % 2 == 0 ? 1 : 0),
          -record.offset.y + (height % 2 == 0 ? 1 : 0)};
}

void CNNConvolutionGradient::transferOwnProperties(const detail::ForwardRecord& record) {
  const auto& recorded = std::any_cast<const RecordedConvolution&>(record.family);
  if (recorded.subPixels)
    throw Error(describe(), "gradientState", "of a sub-pixel convolution",
                "of one with subPixelScaleFactor 1: back-propagation through sub-pixels is not supported");
  checkForward(record, recorded.weights);
}

void CNNConvolutionGradient::willEncode(State& gradientState) {
  const auto* state = dynamic_cast<CNNConvolutionGradientState*>(&gradientState);
  if (state != nullptr && state->convolution()) adoptWeights(*state->convolution());
}

void CNNConvolutionGradient::didEncode(const detail::GradientCall& call) {
  if (auto* state = dynamic_cast<CNNConvolutionGradientState*>(call.state.get())) didEncodeWith(*state);
}

void CNNConvolutionGradient::checkRepeatedEdges(const detail::GradientCall& call) const {
  if (!call.record || !call.clipRectIsSet || call.edgeMode != ImageEdgeMode::Clamp) return;
  if (call.destination.elements() > 0 &&
      (call.destination.width < call.source.width || call.destination.height < call.source.height))
    throw Error(describe(), "clipRect", "less than the source",
                "all of it: with edgeMode Clamp its edge gets what lies outside of it");
}

std::vector<detail::PreparedCall> CNNConvolutionGradient::prepareGradient(
    const detail::GradientCall& call) const {
  checkCall(call);

  ConvolutionProblem common = describedProblem(call.options);
  common.edgeMode = call.edgeMode;
  common.gradient = call.gradient;
  mtl::Origin gradientOrigin;
  if (call.record) {  // of a whole result the part counts that was written
    const mtl::Region& clip = call.record->clipRect;
    const auto cut = [](std::int64_t& size, std::size_t written, std::size_t first, std::size_t& origin) {
      if (size <= asSigned(written)) return;
      size = asSigned(written);
      origin = first;
    };
    cut(common.gradient.width, clip.size.width, clip.origin.x, gradientOrigin.x);
    cut(common.gradient.height, clip.size.height, clip.origin.y, gradientOrigin.y);
  }
  common.x.destinationSize = common.gradient.width;
  common.y.destinationSize = common.gradient.height;
  std::vector<detail::PreparedCall> calls;

  if (computesData()) {
    checkRepeatedEdges(call);
    ConvolutionProblem problem = common;
    problem.operation = ConvolutionOperation::DataGradient;
    problem.accumulate = call.accumulate;
    problem.x.stride = asSigned(primaryStrideInPixelsX());
    problem.y.stride = asSigned(primaryStrideInPixelsY());
    // With a state, destination and source coordinates agree.
    const mtl::Origin first = call.record ? call.clipRect.origin : mtl::Origin{};
    const auto place = [](detail::WindowAxis& axis, std::int64_t size, std::int64_t primary,
                          std::int64_t kernelOffset, std::size_t firstPixel) {
      axis.sourceSize = size;
      axis.offset = (axis.dilatedSize() % 2 == 0 ? 1 : 0) - (primary * axis.stride + kernelOffset) -
                    asSigned(firstPixel);
    };
    place(problem.x, call.destination.width, call.primaryOffset.x, call.kernelOffsetX, first.x);
    place(problem.y, call.destination.height, call.primaryOffset.y, call.kernelOffsetY, first.y);
    problem.destination = call.destination;
    placeWindow(problem);
    detail::PreparedCall prepared;
    if (call.destination.elements() > 0)
      prepared.plan = detail::planFor(*device(), detail::convolutionBackEnds, problem);
    prepared.operations = problem.operations();
    giveWeights(prepared, false);
    prepared.readsSource = false;
    prepared.gradientOrigin = gradientOrigin;
    calls.push_back(std::move(prepared));
  }
  if (!computesWeights()) return calls;

  CNNConvolutionGradientState& state = stateOf(call);
  ConvolutionProblem problem = common;
  problem.operation = ConvolutionOperation::WeightsGradient;
  problem.x.stride = call.strideInPixelsX;
  problem.y.stride = call.strideInPixelsY;
  const auto place = [](detail::WindowAxis& axis, std::int64_t size, std::int64_t firstTap) {
    axis.sourceSize = size;
    axis.offset = firstTap + axis.dilatedSize() / 2;
  };
  place(problem.x, call.source.width, call.secondaryOffset.x);
  place(problem.y, call.source.height, call.secondaryOffset.y);
  problem.source = call.source;
  problem.hasBias = computesBiases();
  problem.accumulate = state.isAccumulating();
  placeWindow(problem);
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::convolutionBackEnds, problem);
  prepared.operations = problem.operations();
  giveGradients(prepared, state);
  prepared.gradientOrigin = gradientOrigin;
  calls.push_back(std::move(prepared));
  return calls;
}

void CNNConvolution::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  codeWeights(coder);
  coder.code("graphNeuron", graphNeuron_);
}

void CNNConvolutionGradient::codeProperties(Coder& coder) {
  CNNGradientKernel::codeProperties(coder);
  codeWeights(coder);
  checkWindow(coder, secondary_);
}

}  // namespace mps
