#include "mps/convolution/convolution_transpose.hpp"

#include <any>
#include <utility>

#include "mps/convolution/convolution_problem.hpp"
#include "mps/convolution/convolution_weights.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/types/as_signed.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/command_buffer.hpp"

namespace mps {

using detail::ConvolutionOperation;
using detail::ConvolutionProblem;

namespace {

/// What a forward encode leaves in its record.
struct RecordedTranspose {
  detail::RecordedWeights weights;
  Offset placement;  ///< T
};

using detail::asSigned;

/// The problem of the partner, an ordinary convolution from the larger to the smaller image. @param own as the
/// transposed convolution's descriptor says
ConvolutionProblem partnerOf(ConvolutionProblem own) {
  std::swap(own.inputFeatureChannels, own.outputFeatureChannels);
  own.transposed = true;
  return own;
}

void checkDescriptor(const std::string& kernel, const CNNConvolutionDescriptor& descriptor) {
  if (descriptor.channelMultiplier() != 0)
    throw Error(kernel, "weights", "of a depth-wise convolution", "groups instead");
  if (descriptor.subPixelScaleFactor() != 1)
    throw Error(kernel, "subPixelScaleFactor", std::to_string(descriptor.subPixelScaleFactor()), "1");
}

void place(detail::WindowAxis& partner, std::int64_t larger, std::int64_t smaller, std::int64_t shift) {
  partner.sourceSize = larger;
  partner.destinationSize = smaller;
  partner.offset = (partner.dilatedSize() % 2 == 0 ? 1 : 0) - shift;
}

}  // namespace

CNNConvolutionTranspose::CNNConvolutionTranspose(std::shared_ptr<mtl::Device> device,
                                                 std::shared_ptr<CNNConvolutionDataSource> weights)
    : KernelClass(std::move(device)),
      ForwardKernelWithWeights("CNNConvolutionTranspose", this->device(), std::move(weights)) {
  setLabel(dataSource()->label());
  checkDescriptor(describe(), descriptor());
}

std::shared_ptr<CNNConvolutionTranspose> CNNConvolutionTranspose::create(
    const std::shared_ptr<mtl::Device>& device, std::shared_ptr<CNNConvolutionDataSource> weights) {
  return std::shared_ptr<CNNConvolutionTranspose>(new CNNConvolutionTranspose(device, std::move(weights)));
}

void CNNConvolutionTranspose::setPlacement(const Offset& placement) {
  setOffset({0, 0, placement.z});
  kernelOffsetX_.transfer(placement.x);
  kernelOffsetY_.transfer(placement.y);
}

Offset CNNConvolutionTranspose::placementUndoing(const Offset& offset) const {
  const auto axis = [](std::size_t kernel, std::size_t dilation, std::int64_t center) {
    return ((kernel - 1) * dilation + 1) % 2 == 0 ? 1 - center : -center;
  };
  return {axis(kernelWidth(), dilationRateX(), offset.x), axis(kernelHeight(), dilationRateY(), offset.y),
          this->offset().z};
}

detail::KernelRoles CNNConvolutionTranspose::roles() {
  return {.layer = this};
}

std::shared_ptr<detail::ForwardKernelWithWeights> CNNConvolutionTranspose::shared() {
  return std::static_pointer_cast<CNNConvolutionTranspose>(shared_from_this());
}

ImageDescriptor CNNConvolutionTranspose::sizeUndoing(const ImageDescriptor& source,
                                                     const ImageDescriptor& undone, const Offset& placement) {
  setPlacement(placementUndoing(placement));
  return destinationOf(source, undone.width(), undone.height());
}

const detail::ForwardRecord& CNNConvolutionTranspose::recordOfUndone(const State* state) const {
  const auto* undone = dynamic_cast<const CNNConvolutionGradientState*>(state);
  const auto refuse = [&](const char* found) {
    throw Error(describe(), "convolutionGradientState", found, "the state of the convolution to undo");
  };
  if (undone == nullptr) refuse(state == nullptr ? "null" : "a state of another kind");
  if (!undone->record()) refuse("a state that no kernel has encoded with");
  if (undone->record()->kernelClass != "CNNConvolution") refuse("a state of another kernel");
  return *undone->record();
}

void CNNConvolutionTranspose::placeBy(const State& undone) {
  const Offset placement = placementUndoing(recordOfUndone(&undone).offset);
  if (!kernelOffsetX_.isSet()) kernelOffsetX_.transfer(placement.x);
  if (!kernelOffsetY_.isSet()) kernelOffsetY_.transfer(placement.y);
}

ImageBatch CNNConvolutionTranspose::encodeUndoing(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                  const ImageBatch& sourceImages, const StateBatch& undone,
                                                  StateBatch* destinationStates,
                                                  bool destinationStatesAreTemporary) {
  detail::checkCommandBuffer(*this, commandBuffer);
  if (destinationStates != nullptr) *destinationStates = {};
  detail::checkNotEmpty(*this, "sourceImages", sourceImages);
  detail::checkNotStacked(*this, "sourceImages", sourceImages);
  detail::checkStates(*this, "convolutionGradientStates", *commandBuffer, undone, sourceImages.count());
  const detail::ForwardRecord& record = recordOfUndone(undone[0].get());
  const Offset before = offset();
  const Offset placed = placement();
  try {
    ImageDescriptor size = sizeUndoing(sourceImages.descriptor(), record.source, record.offset);
    size.setNumberOfImages(1);
    ImageBatch destinations = detail::allocateImages(*this, *destinationImageAllocator(), commandBuffer, size,
                                                     sourceImages.count());
    StateBatch made;
    if (destinationStates != nullptr) {
      const StateBatch slots[] = {undone};
      made = destinationStatesAreTemporary ? temporaryResultStateBatch(commandBuffer, sourceImages, slots)
                                           : resultStateBatch(sourceImages, slots);
    }
    CNNKernel::encodeBatch(commandBuffer, sourceImages, made, destinations);
    if (destinationStates != nullptr) *destinationStates = made;
    detail::consumeRead(undone);
    return destinations;
  } catch (...) {
    setPlacement(placed);
    setOffset(before);
    throw;
  }
}

std::shared_ptr<Image> CNNConvolutionTranspose::encode(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const std::shared_ptr<Image>& sourceImage,
    const std::shared_ptr<State>& convolutionGradientState) {
  return encodeUndoing(commandBuffer, detail::batchOf(*this, "sourceImage", sourceImage),
                       StateBatch(convolutionGradientState, 1), nullptr, false)[0];
}

ImageBatch CNNConvolutionTranspose::encodeBatch(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceImages,
    const CNNConvolutionGradientStateBatch& convolutionGradientStates) {
  return encodeUndoing(commandBuffer, sourceImages, convolutionGradientStates, nullptr, false);
}

std::shared_ptr<Image> CNNConvolutionTranspose::encode(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const std::shared_ptr<Image>& sourceImage,
    const std::shared_ptr<State>& convolutionGradientState, std::shared_ptr<State>& destinationState,
    bool destinationStateIsTemporary) {
  StateBatch states;
  const ImageBatch images =
      encodeUndoing(commandBuffer, detail::batchOf(*this, "sourceImage", sourceImage),
                    StateBatch(convolutionGradientState, 1), &states, destinationStateIsTemporary);
  destinationState = states[0];
  return images[0];
}

ImageBatch CNNConvolutionTranspose::encodeBatch(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceImages,
    const CNNConvolutionGradientStateBatch& convolutionGradientStates, StateBatch& destinationStates,
    bool destinationStatesAreTemporary) {
  return encodeUndoing(commandBuffer, sourceImages, convolutionGradientStates, &destinationStates,
                       destinationStatesAreTemporary);
}

void CNNConvolutionTranspose::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                     const std::shared_ptr<Image>& sourceImage,
                                     const std::shared_ptr<State>& state,
                                     const std::shared_ptr<Image>& destinationImage) {
  encodeBatch(commandBuffer, detail::batchOf(*this, "sourceImage", sourceImage), StateBatch(state, 1),
              detail::batchOf(*this, "destinationImage", destinationImage));
}

void CNNConvolutionTranspose::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                          const ImageBatch& sourceImages, const StateBatch& states,
                                          const ImageBatch& destinationImages) {
  const auto own =
      states.empty() ? nullptr : std::dynamic_pointer_cast<CNNConvolutionTransposeGradientState>(states[0]);
  if (sourceImages.empty() || states.empty() || (own && !own->convolutionGradientState()))
    return CNNKernel::encodeBatch(commandBuffer, sourceImages, states, destinationImages);
  const StateBatch undone = own ? StateBatch(own->convolutionGradientState(), sourceImages.count()) : states;
  detail::checkCommandBuffer(*this, commandBuffer);
  detail::checkStates(*this, "convolutionGradientStates", *commandBuffer, undone, sourceImages.count());
  placeBy(*undone[0]);
  CNNKernel::encodeBatch(commandBuffer, sourceImages, own ? states : StateBatch(), destinationImages);
  detail::consumeRead(undone);
}

void CNNConvolutionTranspose::encodeWithSourceStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                     const ImageBatch& sourceImages,
                                                     const StateBatch& sourceStates,
                                                     const StateBatch& destinationStates,
                                                     const ImageBatch& destinationImages) {
  CNNKernel::encodeBatch(commandBuffer, sourceImages, destinationStates, destinationImages);
  detail::consumeRead(sourceStates);
}

std::shared_ptr<State> CNNConvolutionTranspose::makeState(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    std::span<const std::shared_ptr<State>> sourceStates) const {
  std::shared_ptr<CNNConvolutionGradientState> undone;
  if (!sourceStates.empty()) {
    undone = std::dynamic_pointer_cast<CNNConvolutionGradientState>(sourceStates[0]);
    if (!undone || sourceStates.size() > 1)
      throw Error(describe(), "sourceStates", "other states", "the state of the convolution to undo");
  }
  return CNNConvolutionTransposeGradientState::create(
      device(), commandBuffer, descriptor(),
      std::static_pointer_cast<const CNNConvolutionTranspose>(shared_from_this()), std::move(undone),
      weights()->biases() != nullptr);
}

void CNNConvolutionTranspose::describeForward(std::any& family) const {
  const Offset placement{offset().x * asSigned(strideInPixelsX()) + kernelOffsetX(),
                         offset().y * asSigned(strideInPixelsY()) + kernelOffsetY(), 0};
  family = RecordedTranspose{recordedWeights(), placement};
}

detail::PreparedCall CNNConvolutionTranspose::prepareForward(const detail::ForwardCall& call) const {
  detail::checkPosition(*this, "kernelOffsetX", kernelOffsetX());
  detail::checkPosition(*this, "kernelOffsetY", kernelOffsetY());
  if (call.edgeMode != ImageEdgeMode::Zero)
    throw Error(describe(), "edgeMode", "Clamp", "Zero: zeros lie between and around the source's pixels");
  if (call.state && std::dynamic_pointer_cast<CNNConvolutionTransposeGradientState>(call.state) == nullptr)
    throw Error(describe(), "destinationState", "a state of another kind",
                "a CNNConvolutionTransposeGradientState");
  ConvolutionProblem problem = partnerOf(describedProblem(call.options));
  problem.operation = ConvolutionOperation::DataGradient;
  problem.hasBias = weights()->biases() != nullptr;
  problem.neuron = descriptor().fusedNeuronDescriptor();
  place(problem.x, call.destination.width, call.source.width,
        call.x.offset * call.x.stride + kernelOffsetX());
  place(problem.y, call.destination.height, call.source.height,
        call.y.offset * call.y.stride + kernelOffsetY());
  problem.gradient = call.source;
  problem.destination = call.destination;
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::convolutionBackEnds, problem);
  prepared.operations = problem.operations();
  prepared.exchangesSourceAndGradient = true;
  giveWeights(prepared, true);
  return prepared;
}

CNNConvolutionTransposeGradient::CNNConvolutionTransposeGradient(
    std::shared_ptr<mtl::Device> device, std::shared_ptr<CNNConvolutionDataSource> weights)
    : KernelClass(std::move(device)),
      GradientKernelWithWeights("CNNConvolutionTransposeGradient", this->device(), std::move(weights)) {
  setLabel(dataSource()->label());
  secondary_.strideInPixelsX.transfer(descriptor().strideInPixelsX());
  secondary_.strideInPixelsY.transfer(descriptor().strideInPixelsY());
  secondary_.kernelWidth.transfer(descriptor().kernelWidth());
  secondary_.kernelHeight.transfer(descriptor().kernelHeight());
  secondary_.dilationRateX.transfer(descriptor().dilationRateX());
  secondary_.dilationRateY.transfer(descriptor().dilationRateY());
}

std::shared_ptr<CNNConvolutionTransposeGradient> CNNConvolutionTransposeGradient::create(
    const std::shared_ptr<mtl::Device>& device, std::shared_ptr<CNNConvolutionDataSource> weights) {
  return std::shared_ptr<CNNConvolutionTransposeGradient>(
      new CNNConvolutionTransposeGradient(device, std::move(weights)));
}

bool CNNConvolutionTransposeGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "CNNConvolutionTranspose";
}

detail::KernelRoles CNNConvolutionTransposeGradient::roles() {
  return {.layer = this, .layerGradient = this};
}

CNNConvolutionTransposeGradient::Geometry CNNConvolutionTransposeGradient::geometryFor(
    const detail::ForwardRecord& record, const Offset& gradientOrigin) const {
  const Offset& placement = std::any_cast<const RecordedTranspose&>(record.family).placement;
  return {gradientOrigin, {}, placement.x, placement.y};
}

void CNNConvolutionTransposeGradient::transferOwnProperties(const detail::ForwardRecord& record) {
  checkForward(record, std::any_cast<const RecordedTranspose&>(record.family).weights);
}

void CNNConvolutionTransposeGradient::willEncode(State& gradientState) {
  const auto* state = dynamic_cast<CNNConvolutionTransposeGradientState*>(&gradientState);
  if (state != nullptr) adoptWeights(*state->convolutionTranspose());
}

void CNNConvolutionTransposeGradient::didEncode(const detail::GradientCall& call) {
  if (auto* state = dynamic_cast<CNNConvolutionGradientState*>(call.state.get())) didEncodeWith(*state);
}

std::vector<detail::PreparedCall> CNNConvolutionTransposeGradient::prepareGradient(
    const detail::GradientCall& call) const {
  checkCall(call);
  const auto inside = [&](std::int64_t first, std::int64_t size) {
    if (first < 0 || first > size)
      throw Error(describe(), "primaryOffset", std::to_string(first),
                  "a pixel of sourceGradient, 0 to " + std::to_string(size));
    return size - first;
  };
  // The part that the forward pass has written.
  detail::TensorShape gradient = call.gradient;
  gradient.width = inside(call.primaryOffset.x, gradient.width);
  gradient.height = inside(call.primaryOffset.y, gradient.height);
  if (call.record) {
    gradient.width = std::min(gradient.width, asSigned(call.record->clipRect.size.width));
    gradient.height = std::min(gradient.height, asSigned(call.record->clipRect.size.height));
  }
  ConvolutionProblem common = partnerOf(describedProblem(call.options));
  common.source = gradient;
  const auto prepare = [&](ConvolutionOperation operation, const detail::TensorShape& smaller) {
    ConvolutionProblem problem = common;
    problem.operation = operation;
    // With a state, destination and source coordinates agree.
    const bool isCut = call.record && operation == ConvolutionOperation::Forward;
    const mtl::Origin first = isCut ? call.clipRect.origin : mtl::Origin{};
    place(problem.x, gradient.width, smaller.width,
          call.kernelOffsetX - asSigned(first.x) * problem.x.stride);
    place(problem.y, gradient.height, smaller.height,
          call.kernelOffsetY - asSigned(first.y) * problem.y.stride);
    (operation == ConvolutionOperation::Forward ? problem.destination : problem.gradient) = smaller;
    return problem;
  };
  const auto callOf = [&](const ConvolutionProblem& problem) {
    detail::PreparedCall prepared;
    const bool isData = problem.operation == ConvolutionOperation::Forward;
    if (!isData || problem.destination.elements() > 0)
      prepared.plan = detail::planFor(*device(), detail::convolutionBackEnds, problem);
    prepared.operations = problem.operations();
    prepared.exchangesSourceAndGradient = true;
    prepared.gradientOrigin = {static_cast<std::size_t>(call.primaryOffset.x),
                               static_cast<std::size_t>(call.primaryOffset.y), 0};
    return prepared;
  };
  std::vector<detail::PreparedCall> calls;
  if (computesData()) {
    calls.push_back(callOf(prepare(ConvolutionOperation::Forward, call.destination)));
    calls.back().readsSource = false;
    giveWeights(calls.back(), false);
  }
  if (computesWeights()) {
    CNNConvolutionGradientState& state = stateOf(call);
    ConvolutionProblem problem = prepare(ConvolutionOperation::WeightsGradient, call.source);
    problem.hasBias = computesBiases();
    problem.accumulate = state.isAccumulating();
    calls.push_back(callOf(problem));
    giveGradients(calls.back(), state);
  }
  return calls;
}

void CNNConvolutionTranspose::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  codeWeights(coder);
  kernelOffsetX_.code(coder, "kernelOffsetX");
  kernelOffsetY_.code(coder, "kernelOffsetY");
  checkDescriptor(describe(), descriptor());
}

void CNNConvolutionTransposeGradient::codeProperties(Coder& coder) {
  CNNGradientKernel::codeProperties(coder);
  codeWeights(coder);
  checkWindow(coder, secondary_);
}

}  // namespace mps
