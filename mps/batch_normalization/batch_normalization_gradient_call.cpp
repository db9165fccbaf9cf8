#include <algorithm>
#include <utility>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/batch_normalization/batch_normalization_problem.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"
#include "mtl/memory.hpp"

namespace mps {

using detail::BatchNormalizationGradientKernel;
using detail::BatchNormalizationParameters;
using detail::BatchNormalizationProblem;
using detail::GradientCall;

namespace {

detail::PreparedCall::Parameter parameterOf(const std::shared_ptr<mtl::Buffer>& buffer) {
  return {buffer->memory()};
}

void setParameters(detail::PreparedCall& prepared, const BatchNormalizationParameters& parameters) {
  prepared.parameters[0] = parameterOf(parameters.gamma);
  prepared.parameters[1] = parameterOf(parameters.beta);
  prepared.parameters[2] = parameterOf(parameters.mean);
  prepared.parameters[3] = parameterOf(parameters.variance);
}

/// How many slopes it must have is the state's to say.
void checkType(const char* className, const NNNeuronDescriptor& neuron) {
  neuron.check(className, "fusedNeuronDescriptor", 0);
}

std::uint64_t elementsOf(const GradientCall& call) {
  return static_cast<std::uint64_t>(call.gradient.pixels());
}

bool haveSameSize(const detail::TensorShape& a, const detail::TensorShape& b) {
  return a.images == b.images && a.height == b.height && a.width == b.width && a.channels == b.channels;
}

/// Elements that the statistics gradient will have seen after this call.
std::uint64_t elementsAfter(const CNNBatchNormalizationState& state, const GradientCall& call) {
  return (state.addsGradientStatistics() ? state.gradientElementCount() : 0) + elementsOf(call);
}

/// @throws Error unless the statistics gradient has seen what the statistics have.
void checkIsComplete(const Kernel& kernel, const CNNBatchNormalizationState& state, const GradientCall& call,
                     std::uint64_t elements) {
  if (state.isFrozen() || elements == state.elementCount()) return;
  const auto perImage = static_cast<std::uint64_t>(call.gradient.height * call.gradient.width);
  const std::uint64_t missing = state.elementCount() - elements;
  throw Error(
      kernel.describe(), "gradientState",
      "short of the statistics gradient of " + std::to_string((missing + perImage - 1) / perImage) +
          " images",
      "one of the whole batch, " + std::to_string(state.elementCount()) + " elements per feature channel");
}

}  // namespace

BatchNormalizationGradientKernel::BatchNormalizationGradientKernel(
    std::shared_ptr<mtl::Device> device, const NNNeuronDescriptor& fusedNeuronDescriptor)
    : CNNGradientKernel(std::move(device)), neuron_(fusedNeuronDescriptor) {}

detail::BatchRecord BatchNormalizationGradientKernel::forwardRecord(const ImageDescriptor& sourceImage,
                                                                    const StateBatch& states) const {
  const auto* state = dynamic_cast<const CNNBatchNormalizationState*>(states[0].get());
  if (state == nullptr)
    throw Error(describe(), "gradientState", "of another kind", "a CNNBatchNormalizationState");
  for (std::size_t i = 1; i < states.count() && !states.sharedState(); ++i)
    if (states[i].get() != state)
      throw Error(describe(), "gradientStates", "several states", "one, which the images of a batch share");
  auto record = recordOfWholeImages(sourceImage);
  if (const auto& last = state->record()) {
    *record = *last;
    for (ImageDescriptor* image : {&record->source, &record->destination}) {
      image->setWidth(sourceImage.width());
      image->setHeight(sourceImage.height());
    }
    record->clipRect.size.width = sourceImage.width();
    record->clipRect.size.height = sourceImage.height();
  } else {
    record->family = state->batchNormalization()->fusedNeuronDescriptor();
  }
  return {record, 0, true};
}

void BatchNormalizationGradientKernel::transferOwnProperties(const ForwardRecord& record) {
  const auto* forward = std::any_cast<NNNeuronDescriptor>(&record.family);
  if (forward != nullptr && !forward->isSameFunction(neuron_))
    throw Error(describe(), "fusedNeuronDescriptor", neuron_.describe(),
                forward->describe() + ", that of the forward kernel");
}

CNNBatchNormalizationState& BatchNormalizationGradientKernel::stateOf(const GradientCall& call) const {
  auto* state = dynamic_cast<CNNBatchNormalizationState*>(call.state.get());
  if (state == nullptr)
    throw Error(describe(), "gradientState", call.state ? "of another kind" : "missing",
                "a CNNBatchNormalizationState");
  if (call.primaryOffset.x != 0 || call.primaryOffset.y != 0 || call.secondaryOffset.x != 0 ||
      call.secondaryOffset.y != 0 || call.clipRectIsSet)
    throw Error(describe(), "offset or clipRect", "set", "as it was: batch statistics are of whole images");
  if (!haveSameSize(call.gradient, call.source) || !haveSameSize(call.gradient, call.destination))
    throw Error(
        describe(), "sourceGradient, sourceImage and destinationGradient",
        call.gradient.describe() + ", " + call.source.describe() + " and " + call.destination.describe(),
        "of the same size");
  if (static_cast<std::size_t>(call.gradient.channels) != state->numberOfFeatureChannels())
    throw Error(describe(), "sourceGradient", std::to_string(call.gradient.channels) + " feature channels",
                std::to_string(state->numberOfFeatureChannels()) + ", as batchNormalizationState has");
  return *state;
}

BatchNormalizationProblem BatchNormalizationGradientKernel::problemOf(
    const GradientCall& call, const BatchNormalizationParameters& parameters) const {
  BatchNormalizationProblem problem;
  problem.neuron = neuron_;
  problem.epsilon = parameters.epsilon;
  problem.source = call.source;
  problem.gradient = call.gradient;
  return problem;
}

detail::PreparedCall BatchNormalizationGradientKernel::prepareStatistics(
    const GradientCall& call, CNNBatchNormalizationState& state) const {
  if (!state.isFrozen() && elementsAfter(state, call) > state.elementCount())
    throw Error(describe(), "sourceImages",
                std::to_string(elementsAfter(state, call)) + " elements per feature channel so far",
                "at most " + std::to_string(state.elementCount()) + ", those of the statistics");
  const BatchNormalizationParameters parameters = state.parametersForGradient();
  BatchNormalizationProblem problem = problemOf(call, parameters);
  problem.operation = BatchNormalizationOperation::StatisticsGradient;
  PreparedCall prepared;
  prepared.plan = planFor(*device(), batchNormalizationBackEnds, problem);
  prepared.writesDestination = false;
  prepared.accumulate = state.addsGradientStatistics();
  setParameters(prepared, parameters);
  prepared.parameters[4] = {state.accumulatedGradients()->memory(), 0, true, prepared.accumulate};
  prepared.parameters[5] = {state.gammaGradient()->memory(), 0, true};
  prepared.parameters[6] = {state.betaGradient()->memory(), 0, true};
  prepared.parameters[7] = {state.statisticsGradients()->memory(), 0, true};
  return prepared;
}

detail::PreparedCall BatchNormalizationGradientKernel::prepareData(const GradientCall& call,
                                                                   CNNBatchNormalizationState& state) const {
  const BatchNormalizationParameters parameters = state.parametersForGradient();
  BatchNormalizationProblem problem = problemOf(call, parameters);
  problem.operation = BatchNormalizationOperation::Gradient;
  problem.hasConstantStatistics = state.isFrozen();
  problem.destination = call.destination;
  PreparedCall prepared;
  prepared.plan = planFor(*device(), batchNormalizationBackEnds, problem);
  prepared.readsSource = problem.readsSource();
  prepared.scalars[0] = static_cast<double>(state.elementCount());
  setParameters(prepared, parameters);
  if (!state.isFrozen()) prepared.parameters[4] = parameterOf(state.accumulatedGradients());
  return prepared;
}

std::shared_ptr<CNNBatchNormalizationStatisticsGradient> CNNBatchNormalizationStatisticsGradient::create(
    const std::shared_ptr<mtl::Device>& device, const NNNeuronDescriptor& fusedNeuronDescriptor) {
  checkType("CNNBatchNormalizationStatisticsGradient", fusedNeuronDescriptor);
  return std::shared_ptr<CNNBatchNormalizationStatisticsGradient>(
      new CNNBatchNormalizationStatisticsGradient(device, fusedNeuronDescriptor));
}

std::vector<detail::PreparedCall> CNNBatchNormalizationStatisticsGradient::prepareGradient(
    const GradientCall& call) const {
  CNNBatchNormalizationState& state = stateOf(call);
  std::vector<detail::PreparedCall> calls{prepareStatistics(call, state)};
  if (!computesData_) return calls;
  checkIsComplete(*this, state, call, elementsAfter(state, call));
  calls.push_back(prepareData(call, state));
  return calls;
}

void CNNBatchNormalizationStatisticsGradient::didEncode(const GradientCall& call) {
  CNNBatchNormalizationState& state = stateOf(call);
  state.didEncodeGradientStatistics(elementsOf(call));
  if (computesData_) state.didEncodeGradient();
}

void CNNBatchNormalizationStatisticsGradient::encodeBatch(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceGradients,
    const ImageBatch& sourceImages,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) {
  detail::checkCommandBuffer(*this, commandBuffer);
  if (!batchNormalizationState) throw Error(describe(), "batchNormalizationState", "null", "a state");
  detail::checkCount(*this, "sourceImages", sourceImages.count(), sourceGradients.count());
  if (sourceGradients.empty()) return encodeNone(*commandBuffer, *batchNormalizationState);
  const StateBatch states{batchNormalizationState};
  if (!has(options(), KernelOptions::SkipAPIValidation)) {
    detail::checkSources(*this, "sourceGradients", *commandBuffer, sourceGradients);
    detail::checkSources(*this, "sourceImages", *commandBuffer, sourceImages);
    detail::checkNotStacked(*this, "sourceGradients", sourceGradients);
    detail::checkNotStacked(*this, "sourceImages", sourceImages);
    detail::checkStates(*this, "batchNormalizationState", *commandBuffer, states, 1);
  }
  transferProperties(*forwardRecord(sourceImages.descriptor(), states).record, sourceGradients.descriptor());
  detail::BatchOperand gradient(sourceGradients);
  detail::BatchOperand source(sourceImages);
  detail::BatchOperand sizes = detail::BatchOperand::sizeOnly(source.shape());
  GradientCall call = resolveCall(gradient, source, sizes, nullptr, false);
  call.state = batchNormalizationState;
  mtl::RecordingGuard guard(*commandBuffer);
  const detail::PreparedCall prepared = prepareStatistics(call, stateOf(call));
  batchNormalizationState->willEncode(*commandBuffer);
  batchNormalizationState->willEncodeGradient(*commandBuffer);
  detail::CallOperands operands;
  operands.gradient = &gradient;
  operands.source = &source;
  detail::recordCall(*commandBuffer, *this, prepared, operands);
  guard.keep();
  batchNormalizationState->didEncodeGradientStatistics(elementsOf(call));
  detail::consumeRead(sourceGradients, describe());
  detail::consumeRead(sourceImages, describe());
  detail::consumeRead(states);
}

void CNNBatchNormalizationStatisticsGradient::encodeNone(mtl::CommandBuffer& commandBuffer,
                                                         CNNBatchNormalizationState& state) const {
  mtl::RecordingGuard guard(commandBuffer);
  state.willEncode(commandBuffer);
  if (!state.addsGradientStatistics()) state.clearGradients(commandBuffer);
  guard.keep();
  state.didEncodeGradientStatistics(0);
}

void CNNBatchNormalizationStatisticsGradient::importGradients(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<mtl::Buffer>& accumulatedGradients,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) {
  detail::checkImport(*this, commandBuffer, "accumulatedGradients", accumulatedGradients,
                      batchNormalizationState);
  mtl::RecordingGuard guard(*commandBuffer);
  batchNormalizationState->willEncode(*commandBuffer);
  if (!batchNormalizationState->addsGradientStatistics())
    batchNormalizationState->clearGradients(*commandBuffer);
  const auto to = batchNormalizationState->accumulatedGradients();
  detail::recordMemoryCopy(*commandBuffer, describe(), accumulatedGradients->memory(), 0, to->memory(), 0,
                           to->length());
  guard.keep();
  batchNormalizationState->didImportGradients();
}

std::shared_ptr<CNNBatchNormalizationGradient> CNNBatchNormalizationGradient::create(
    const std::shared_ptr<mtl::Device>& device, const NNNeuronDescriptor& fusedNeuronDescriptor) {
  checkType("CNNBatchNormalizationGradient", fusedNeuronDescriptor);
  return std::shared_ptr<CNNBatchNormalizationGradient>(
      new CNNBatchNormalizationGradient(device, fusedNeuronDescriptor));
}

std::vector<detail::PreparedCall> CNNBatchNormalizationGradient::prepareGradient(
    const GradientCall& call) const {
  CNNBatchNormalizationState& state = stateOf(call);
  if (!state.hasGradientStatistics())
    throw Error(describe(), "gradientState", "without a statistics gradient",
                "one that CNNBatchNormalizationStatisticsGradient has encoded with");
  checkIsComplete(*this, state, call, state.gradientElementCount());
  return {prepareData(call, state)};
}

void CNNBatchNormalizationGradient::didEncode(const GradientCall& call) {
  stateOf(call).didEncodeGradient();
}

void CNNBatchNormalizationGradient::encodeBatch(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceGradients,
    const ImageBatch& sourceImages,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState,
    const ImageBatch& destinationGradients) {
  if (!batchNormalizationState) throw Error(describe(), "batchNormalizationState", "null", "a state");
  encodeBatch(commandBuffer, sourceGradients, sourceImages,
              StateBatch(batchNormalizationState, sourceGradients.count()), destinationGradients);
}

ImageBatch CNNBatchNormalizationGradient::encodeBatch(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceGradients,
    const ImageBatch& sourceImages,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) {
  if (!batchNormalizationState) throw Error(describe(), "batchNormalizationState", "null", "a state");
  return encodeBatch(commandBuffer, sourceGradients, sourceImages,
                     StateBatch(batchNormalizationState, sourceGradients.count()));
}

void BatchNormalizationGradientKernel::codeProperties(Coder& coder) {
  CNNGradientKernel::codeProperties(coder);
  coder.code("fusedNeuronDescriptor", neuron_);
}

void CNNBatchNormalizationStatisticsGradient::codeProperties(Coder& coder) {
  BatchNormalizationGradientKernel::codeProperties(coder);
  coder.code("computesData", computesData_);
}

}  // namespace mps
