#include "mps/core/layer/convolution_state.hpp"

#include "mps/core/kernel/call.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"

namespace mps {
namespace {

constexpr const char* weightsStateName = "CNNConvolutionWeightsAndBiasesState";

StateResourceList buffersOf(const CNNConvolutionDescriptor& descriptor) {
  return {descriptor.weightCount() * sizeof(float), descriptor.outputFeatureChannels() * sizeof(float)};
}

void checkRange(const char* argument, const mtl::Buffer& buffer, std::size_t offset, std::size_t count) {
  const std::size_t bytes = count * sizeof(float);
  if (offset % sizeof(float) != 0)
    throw Error(weightsStateName, argument, "at byte " + std::to_string(offset), "at a multiple of 4");
  if (offset > buffer.length() || bytes > buffer.length() - offset)
    throw Error(weightsStateName, argument, std::to_string(buffer.length()) + " bytes",
                "at least " + std::to_string(offset + bytes));
}

}  // namespace

std::shared_ptr<CNNConvolutionWeightsAndBiasesState> CNNConvolutionWeightsAndBiasesState::create(
    std::shared_ptr<mtl::Buffer> weights, std::shared_ptr<mtl::Buffer> biases) {
  if (!weights) throw Error(weightsStateName, "weights", "null", "a buffer");
  const auto weightCount = weights->length() / sizeof(float);
  const auto biasCount = biases ? biases->length() / sizeof(float) : 0;
  std::vector<std::shared_ptr<mtl::Buffer>> buffers{std::move(weights)};
  if (biases) buffers.push_back(std::move(biases));
  auto state = std::shared_ptr<CNNConvolutionWeightsAndBiasesState>(
      new CNNConvolutionWeightsAndBiasesState(std::move(buffers)));
  state->weightCount_ = weightCount;
  state->biasCount_ = biasCount;
  return state;
}

std::shared_ptr<CNNConvolutionWeightsAndBiasesState> CNNConvolutionWeightsAndBiasesState::create(
    std::shared_ptr<mtl::Buffer> weights, std::size_t weightsOffset, std::shared_ptr<mtl::Buffer> biases,
    std::size_t biasesOffset, const CNNConvolutionDescriptor& descriptor) {
  auto state = create(std::move(weights), std::move(biases));
  checkRange("weights", *state->weights(), weightsOffset, descriptor.weightCount());
  state->weightsOffset_ = weightsOffset;
  state->weightCount_ = descriptor.weightCount();
  if (const auto buffer = state->biases()) {
    checkRange("biases", *buffer, biasesOffset, descriptor.outputFeatureChannels());
    const std::size_t weightsEnd = weightsOffset + descriptor.weightCount() * sizeof(float);
    const std::size_t biasesEnd = biasesOffset + descriptor.outputFeatureChannels() * sizeof(float);
    if (buffer->memory() == state->weights()->memory() && weightsOffset < biasesEnd &&
        biasesOffset < weightsEnd)
      throw Error(weightsStateName, "biasesOffset", std::to_string(biasesOffset),
                  "one whose range does not overlap that of the weights, bytes " +
                      std::to_string(weightsOffset) + " to " + std::to_string(weightsEnd));
    state->biasesOffset_ = biasesOffset;
    state->biasCount_ = descriptor.outputFeatureChannels();
  }
  return state;
}

std::shared_ptr<CNNConvolutionWeightsAndBiasesState> CNNConvolutionWeightsAndBiasesState::create(
    const std::shared_ptr<mtl::Device>& device, const CNNConvolutionDescriptor& descriptor) {
  auto state = createFor(device, nullptr, descriptor, true);
  state->mayHaveUnusedBiases_ = true;
  return state;
}

std::shared_ptr<CNNConvolutionWeightsAndBiasesState> CNNConvolutionWeightsAndBiasesState::createTemporary(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const CNNConvolutionDescriptor& descriptor) {
  auto state = createFor(nullptr, commandBuffer, descriptor, true);
  state->mayHaveUnusedBiases_ = true;
  return state;
}

std::shared_ptr<CNNConvolutionWeightsAndBiasesState> CNNConvolutionWeightsAndBiasesState::createFor(
    const std::shared_ptr<mtl::Device>& device, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const CNNConvolutionDescriptor& descriptor, bool hasBiases) {
  StateResourceList buffers = buffersOf(descriptor);
  if (!hasBiases) buffers = {descriptor.weightCount() * sizeof(float)};
  auto state = std::shared_ptr<CNNConvolutionWeightsAndBiasesState>(
      commandBuffer ? new CNNConvolutionWeightsAndBiasesState(commandBuffer, buffers)
                    : new CNNConvolutionWeightsAndBiasesState(device, buffers));
  state->weightCount_ = descriptor.weightCount();
  state->biasCount_ = hasBiases ? descriptor.outputFeatureChannels() : 0;
  return state;
}

std::shared_ptr<CNNConvolutionGradientState> CNNConvolutionGradientState::create(
    const std::shared_ptr<mtl::Device>& device, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const CNNConvolutionDescriptor& descriptor, std::shared_ptr<const CNNConvolution> convolution,
    bool hasBiases) {
  const StateResourceList buffers = buffersOf(descriptor);
  auto state = std::shared_ptr<CNNConvolutionGradientState>(
      commandBuffer ? new CNNConvolutionGradientState(commandBuffer, buffers)
                    : new CNNConvolutionGradientState(device, buffers));
  state->convolution_ = std::move(convolution);
  state->hasBiases_ = hasBiases;
  state->leaveUninitialised();
  return state;
}

void CNNConvolutionGradientState::willEncodeGradient(mtl::CommandBuffer& commandBuffer) {
  if (accumulating_) return;
  const auto clear = [weights = gradientForWeights()->memory(),
                      biases = gradientForBiases()->memory()](mtl::CommandBuffer& buffer) {
    detail::recordZerosAlways(buffer, "CNNConvolutionGradientState", weights);
    detail::recordZerosAlways(buffer, "CNNConvolutionGradientState", biases);
  };
  if (commandBuffer.mayLeaveOut()) clear(commandBuffer);
  commandBuffer.ifDropped(clear);
}

std::shared_ptr<CNNConvolutionTransposeGradientState> CNNConvolutionTransposeGradientState::create(
    const std::shared_ptr<mtl::Device>& device, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const CNNConvolutionDescriptor& descriptor,
    std::shared_ptr<const CNNConvolutionTranspose> convolutionTranspose,
    std::shared_ptr<CNNConvolutionGradientState> convolutionGradientState, bool hasBiases) {
  const StateResourceList buffers = buffersOf(descriptor);
  auto state = std::shared_ptr<CNNConvolutionTransposeGradientState>(
      commandBuffer ? new CNNConvolutionTransposeGradientState(commandBuffer, buffers)
                    : new CNNConvolutionTransposeGradientState(device, buffers));
  state->convolutionTranspose_ = std::move(convolutionTranspose);
  state->setHasBiases(hasBiases);
  if (convolutionGradientState) state->setConvolution(convolutionGradientState->convolution());
  state->convolutionGradientState_ = std::move(convolutionGradientState);
  state->leaveUninitialised();
  return state;
}

}  // namespace mps
