#include "mps/convolution/kernel_with_weights.hpp"

#include <tuple>

#include "mps/convolution/convolution_problem.hpp"
#include "mps/convolution/convolution_update.hpp"
#include "mps/convolution/convolution_weights.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/cnn_binary_kernel.hpp"
#include "mps/core/layer/coded_data_sources.hpp"
#include "mps/core/layer/loaded_source.hpp"
#include "mps/core/layer/shared_copies.hpp"
#include "mps/core/types/as_signed.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
namespace {

const CNNConvolutionDataSource& checked(const char* className,
                                        const std::shared_ptr<CNNConvolutionDataSource>& source) {
  if (!source) throw Error(className, "weights", "null", "a data source");
  return *source;
}

/// Whether the weights of one serve the other.
bool haveSameShape(const CNNConvolutionDescriptor& a, const CNNConvolutionDescriptor& b) {
  const auto numbers = [](const CNNConvolutionDescriptor& d) {
    return std::tuple(d.kernelWidth(), d.kernelHeight(), d.inputFeatureChannels(), d.outputFeatureChannels(),
                      d.groups(), d.channelMultiplier());
  };
  return numbers(a) == numbers(b);
}

void takeRead(CNNConvolutionWeightsAndBiasesState& state) {
  if (state.isTemporary() && state.readCount() > 0) state.setReadCount(state.readCount() - 1);
}

void checkDifferentiable(const std::string& kernel, const CNNConvolutionDescriptor& descriptor) {
  if (descriptor.subPixelScaleFactor() != 1)
    throw Error(kernel, "weights", "of a sub-pixel convolution",
                "subPixelScaleFactor 1: back-propagation through sub-pixels is not supported");
}

}  // namespace

KernelWithWeights::KernelWithWeights(const char* className, const std::shared_ptr<mtl::Device>& device,
                                     std::shared_ptr<CNNConvolutionDataSource> dataSource)
    : dataSource_(std::move(dataSource)), descriptor_(checked(className, dataSource_).descriptor()) {
  const std::string kernel = describeOwnerOf(*dataSource_, className);
  descriptor_.check(kernel);
  weights_ = ConvolutionWeights::read(kernel, device, *dataSource_, descriptor_);
}

void KernelWithWeights::useWeights(std::shared_ptr<const ConvolutionWeights> weights) {
  if (weights == weights_) return;
  weights_ = std::move(weights);
  countChange();
}

std::function<void()> KernelWithWeights::parameterKeeper() {
  return [this, before = weights_] { useWeights(before); };
}

void KernelWithWeights::read() {
  useWeights(ConvolutionWeights::read(kernel().describe(), kernel().device(), *dataSource_, descriptor_));
}

void KernelWithWeights::didCopyKernel(bool hasMoved) {
  if (!replaceByCopy(dataSource_, kernel().device()) && !hasMoved) return;
  read();
  didRead(false);
}

void KernelWithWeights::reloadWeightsAndBiasesFromDataSource() {
  read();
  didRead(true);
}

void KernelWithWeights::reloadWeightsAndBiases(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& state) {
  checkCommandBuffer(kernel(), commandBuffer);
  if (!state) throw Error(kernel().describe(), "state", "null", "weights and biases");
  checkStates(kernel(), "state", *commandBuffer, StateBatch{state}, 1);
  mtl::RecordingGuard guard(*commandBuffer);
  useWeights(weights_->reloaded(kernel().describe(), *commandBuffer, *state, descriptor_));
  guard.keep();
  didRead(true);
  takeRead(*state);
}

ConvolutionProblem KernelWithWeights::describedProblem(KernelOptions options) const {
  ConvolutionProblem problem;
  problem.inputFeatureChannels = asSigned(descriptor_.inputFeatureChannels());
  problem.outputFeatureChannels = asSigned(descriptor_.outputFeatureChannels());
  problem.groups = asSigned(descriptor_.channelMultiplier() != 0 ? descriptor_.inputFeatureChannels()
                                                                 : descriptor_.groups());
  problem.allowReducedPrecision = has(options, KernelOptions::AllowReducedPrecision);
  problem.threadCount = kernel().device()->threadCount();
  problem.deviceName = kernel().device()->name();
  problem.x.kernelSize = asSigned(descriptor_.kernelWidth());
  problem.x.stride = asSigned(descriptor_.strideInPixelsX());
  problem.x.dilation = asSigned(descriptor_.dilationRateX());
  problem.y.kernelSize = asSigned(descriptor_.kernelHeight());
  problem.y.stride = asSigned(descriptor_.strideInPixelsY());
  problem.y.dilation = asSigned(descriptor_.dilationRateY());
  return problem;
}

void KernelWithWeights::giveWeights(PreparedCall& call, bool withBiases) const {
  call.parameters[0] = {weights_->weights(), weights_->weightsOffset()};
  if (withBiases) call.parameters[1] = {weights_->biases(), weights_->biasesOffset()};
}

std::shared_ptr<CNNConvolutionWeightsAndBiasesState> ForwardKernelWithWeights::exportWeightsAndBiases(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, bool resultStateCanBeTemporary) {
  checkCommandBuffer(kernel(), commandBuffer);
  auto state = CNNConvolutionWeightsAndBiasesState::createFor(
      kernel().device(), resultStateCanBeTemporary ? commandBuffer : nullptr, descriptor(),
      weights()->biases() != nullptr);
  mtl::RecordingGuard guard(*commandBuffer);
  weights()->copyTo(kernel().describe(), *commandBuffer, *state);
  guard.keep();
  state->setProducer(kernel().describe());
  return state;
}

GradientKernelWithWeights::GradientKernelWithWeights(const char* className,
                                                     const std::shared_ptr<mtl::Device>& device,
                                                     std::shared_ptr<CNNConvolutionDataSource> dataSource)
    : KernelWithWeights(className, device, std::move(dataSource)) {
  checkDifferentiable(describeOwnerOf(*this->dataSource(), className), descriptor());
}

RecordedWeights ForwardKernelWithWeights::recordedWeights() const {
  return {descriptor().inputFeatureChannels(), descriptor().groups(), descriptor().channelMultiplier(),
          descriptor().fusedNeuronDescriptor().neuronType() != CNNNeuronType::None,
          descriptor().folding() != nullptr};
}

const void* ForwardKernelWithWeights::deviceParameters() const {
  return weights()->isShared() ? weights()->weights().get() : nullptr;
}

std::shared_ptr<LayerUpdate> ForwardKernelWithWeights::makeUpdate(
    const std::vector<std::shared_ptr<ImageKernel>>& gradients, NNTrainingStyle style) {
  std::vector<std::shared_ptr<GradientKernelWithWeights>> own;
  for (const auto& gradient : gradients)
    if (auto kernel = std::dynamic_pointer_cast<GradientKernelWithWeights>(gradient))
      own.push_back(std::move(kernel));
  if (own.empty()) return nullptr;
  return makeConvolutionUpdate(kernel().device(), shared(), std::move(own), style);
}

void GradientKernelWithWeights::leaveOutMissingParameters() {
  const auto live = dataSource()->deviceWeightsAndBiases(kernel().device());
  if (live && live->biasCount() == 0) computesBiases_ = false;
}

void GradientKernelWithWeights::shareParameters(const LayerKernel& forward) {
  if (const auto* from = dynamic_cast<const KernelWithWeights*>(&forward)) shareWeights(*from);
}

void GradientKernelWithWeights::chooseGradients(bool ofData, bool ofParameters) {
  gradientOption_ = ofData && ofParameters ? CNNConvolutionGradientOption::All
                    : ofData               ? CNNConvolutionGradientOption::GradientWithData
                                           : CNNConvolutionGradientOption::GradientWithWeightsAndBias;
}

bool GradientKernelWithWeights::computesData() const {
  return has(gradientOption_, CNNConvolutionGradientOption::GradientWithData);
}

bool GradientKernelWithWeights::computesWeights() const {
  return has(gradientOption_, CNNConvolutionGradientOption::GradientWithWeightsAndBias);
}

void GradientKernelWithWeights::checkForward(const ForwardRecord& record,
                                             const RecordedWeights& weights) const {
  if (weights.neuron || weights.normalisation) {
    const std::string part = weights.neuron ? "fused neuron" : "folded batch normalisation";
    throw Error(kernel().describe(), "gradientState",
                "of a convolution with a " + part + ", whose derivative would be missing",
                "of one without; put it into a kernel of its own");
  }
  const CNNConvolutionDescriptor& own = descriptor();
  if (record.kernelWidth != own.kernelWidth() || record.kernelHeight != own.kernelHeight() ||
      record.strideInPixelsX != own.strideInPixelsX() || record.strideInPixelsY != own.strideInPixelsY() ||
      record.dilationRateX != own.dilationRateX() || record.dilationRateY != own.dilationRateY() ||
      record.destinationFeatureChannels != own.outputFeatureChannels() ||
      weights.inputFeatureChannels != own.inputFeatureChannels() || weights.groups != own.groups() ||
      weights.channelMultiplier != own.channelMultiplier())
    throw Error(kernel().describe(), "weights", own.describe(),
                "the data source of the forward kernel of gradientState");
}

void GradientKernelWithWeights::checkCall(const GradientCall& call) const {
  if (call.edgeMode != ImageEdgeMode::Zero && call.edgeMode != ImageEdgeMode::Clamp &&
      !has(kernel().options(), KernelOptions::SkipAPIValidation))
    throw Error(kernel().describe(), "secondaryEdgeMode", mps::name(call.edgeMode), "Zero or Clamp");
  const auto check = [&](const char* argument, std::int64_t found, std::size_t expected) {
    if (found != asSigned(expected))
      throw Error(kernel().describe(), argument, std::to_string(found) + " feature channels",
                  std::to_string(expected));
  };
  check("sourceGradient", call.gradient.channels, descriptor().outputFeatureChannels());
  check("sourceImage", call.source.channels, descriptor().inputFeatureChannels());
}

CNNConvolutionGradientState& GradientKernelWithWeights::stateOf(const GradientCall& call) const {
  if (!call.state)
    throw Error(kernel().describe(), "gradientOption",
                "with weights and bias in an encode without a gradient state", "GradientWithData");
  auto* state = dynamic_cast<CNNConvolutionGradientState*>(call.state.get());
  if (state == nullptr)
    throw Error(kernel().describe(), "gradientState", "a state of another kind",
                "a CNNConvolutionGradientState");
  const auto check = [&](std::size_t buffer, const char* what, std::size_t count) {
    if (const std::size_t found = state->bufferSize(buffer) / sizeof(float); found != count)
      throw Error(kernel().describe(), "gradientState", "with " + std::to_string(found) + " " + what,
                  std::to_string(count) + ", that of a kernel with this data source");
  };
  check(0, "weights", descriptor().weightCount());
  check(1, "biases", descriptor().outputFeatureChannels());
  return *state;
}

void GradientKernelWithWeights::adoptWeights(const KernelWithWeights& forward) {
  if (!adoptsWeights_) return;
  if (!haveSameShape(forward.descriptor(), descriptor()))
    throw Error(kernel().describe(), "gradientState",
                "made by a kernel of " + forward.descriptor().describe(),
                "by one of " + descriptor().describe());
  shareWeights(forward);
}

void GradientKernelWithWeights::giveGradients(PreparedCall& call, CNNConvolutionGradientState& state) const {
  call.accumulate = state.isAccumulating();
  call.parameters[2] = {state.gradientForWeights()->memory(), 0, true, call.accumulate};
  call.parameters[3] = {state.gradientForBiases()->memory(), 0, true, call.accumulate};
  call.writesDestination = false;
}

void GradientKernelWithWeights::didEncodeWith(CNNConvolutionGradientState& state) {
  adoptsWeights_ = false;
  if (computesWeights()) state.setAccumulating(true);
}

void KernelWithWeights::codeWeights(Coder& coder) {
  const auto source = codeDataSource<CodedConvolutionDataSource>(coder, dataSource_);
  coder.code("descriptor", descriptor_);
  descriptor_.check(kernel().className());
  const auto& device = kernel().device();
  const auto usual = ConvolutionWeights::read(kernel().className(), device, *source, descriptor_);
  const auto weights = ConvolutionWeights::code(coder, *device, weights_, usual, descriptor_);
  if (coder.isDecoding()) weights_ = weights;
}

void ForwardKernelWithWeights::codeWeights(Coder& coder) {
  KernelWithWeights::codeWeights(coder);
  coder.codeEnumeration("accumulatorPrecisionOption", precision_,
                        NNConvolutionAccumulatorPrecisionOption::Float);
}

void GradientKernelWithWeights::codeWeights(Coder& coder) {
  KernelWithWeights::codeWeights(coder);
  checkDifferentiable(kernel().className(), descriptor());
  coder.code("adoptsWeights", adoptsWeights_);
  coder.codeBits("gradientOption", gradientOption_, CNNConvolutionGradientOption::All);
}

void GradientKernelWithWeights::checkWindow(const Coder& coder, const SourceProperties& source) const {
  if (source.kernelWidth.get() != descriptor().kernelWidth() ||
      source.kernelHeight.get() != descriptor().kernelHeight() ||
      source.dilationRateX.get() != descriptor().dilationRateX() ||
      source.dilationRateY.get() != descriptor().dilationRateY())
    coder.refuse("secondary", "a window of another size", "that of " + descriptor().describe());
}

}  // namespace mps::detail
