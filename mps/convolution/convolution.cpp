#include "mps/convolution/convolution.hpp"

#include <algorithm>
#include <any>
#include <variant>

#include "mps/convolution/convolution_problem.hpp"
#include "mps/convolution/convolution_weights.hpp"
#include "mps/convolution/pooled_convolution.hpp"
#include "mps/core/call.hpp"
#include "mps/core/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {

using detail::ConvolutionOperation;
using detail::ConvolutionProblem;
using detail::ConvolutionWeights;

namespace {

/// What a forward encode leaves in its record.
struct FusedParts {
  bool neuron = false;  ///< the gradient does not differentiate it
  bool normalisation = false;
  bool pools = false;  ///< the result is that of a pooled convolution
};

std::int64_t asSigned(std::size_t value) {
  return static_cast<std::int64_t>(value);
}

const CNNConvolutionDataSource& checked(const char* className,
                                        const std::shared_ptr<CNNConvolutionDataSource>& source) {
  if (!source) throw Error(className, "weights", "null", "a data source");
  return *source;
}

/// The part of a problem that the descriptor fixes.
ConvolutionProblem describedBy(const CNNConvolutionDescriptor& descriptor, const mtl::Device& device,
                               KernelOptions options) {
  ConvolutionProblem problem;
  problem.inputFeatureChannels = asSigned(descriptor.inputFeatureChannels());
  problem.outputFeatureChannels = asSigned(descriptor.outputFeatureChannels());
  problem.groups =
      asSigned(descriptor.channelMultiplier() != 0 ? descriptor.inputFeatureChannels() : descriptor.groups());
  problem.allowReducedPrecision = has(options, KernelOptions::AllowReducedPrecision);
  problem.threadCount = device.threadCount();
  problem.deviceName = device.name();
  for (detail::WindowAxis* axis : {&problem.x, &problem.y}) {
    const bool isX = axis == &problem.x;
    axis->kernelSize = asSigned(isX ? descriptor.kernelWidth() : descriptor.kernelHeight());
    axis->stride = asSigned(isX ? descriptor.strideInPixelsX() : descriptor.strideInPixelsY());
    axis->dilation = asSigned(isX ? descriptor.dilationRateX() : descriptor.dilationRateY());
  }
  return problem;
}

/// The problem of a convolution whose maxima alone are in memory. @param pooled those, or their gradient
detail::PooledConvolutionProblem pooledProblem(ConvolutionProblem convolution,
                                               const detail::TensorShape& pooled) {
  convolution.x.destinationSize = 2 * pooled.width;
  convolution.y.destinationSize = 2 * pooled.height;
  const auto shape =
      detail::TensorShape::dense(pooled.images, convolution.y.destinationSize, convolution.x.destinationSize,
                                 pooled.channels, pooled.format);
  (convolution.operation == ConvolutionOperation::Forward ? convolution.destination : convolution.gradient) =
      shape;
  return {std::move(convolution), pooled};
}

/// Whether the device's implementations take a problem.
bool isTaken(const mtl::Device& device, const detail::PooledConvolutionProblem& problem) {
  const auto implementations = detail::pooledConvolutionBackEnds.of(device);
  return std::ranges::any_of(implementations, [&](const auto& implementation) {
    return std::holds_alternative<std::shared_ptr<const detail::Plan>>(implementation.prepare(problem));
  });
}

detail::PreparedCall::Parameter parameter(const std::shared_ptr<mtl::Memory>& memory, std::size_t offset,
                                          bool isWritten = false) {
  return {memory, offset, isWritten};
}

void takeRead(CNNConvolutionWeightsAndBiasesState& state) {
  if (state.isTemporary() && state.readCount() > 0) state.setReadCount(state.readCount() - 1);
}

}  // namespace

CNNConvolution::CNNConvolution(std::shared_ptr<mtl::Device> device,
                               std::shared_ptr<CNNConvolutionDataSource> weights, const char* className)
    : CNNKernel(std::move(device)),
      dataSource_(std::move(weights)),
      descriptor_(checked(className, dataSource_).descriptor()) {
  descriptor_.check(className);
  if (!dataSource_->label().empty()) setLabel(dataSource_->label());
  weights_ = ConvolutionWeights::read(className, this->device(), *dataSource_, descriptor_);
}

std::shared_ptr<CNNConvolution> CNNConvolution::create(const std::shared_ptr<mtl::Device>& device,
                                                       std::shared_ptr<CNNConvolutionDataSource> weights) {
  return std::shared_ptr<CNNConvolution>(new CNNConvolution(device, std::move(weights), "CNNConvolution"));
}

std::shared_ptr<Kernel> CNNConvolution::clone() const {
  return std::shared_ptr<CNNConvolution>(new CNNConvolution(*this));
}

void CNNConvolution::didMoveToDevice() {
  if (auto other = dataSource_->copy(device())) dataSource_ = std::move(other);
  weights_ = ConvolutionWeights::read(describe(), device(), *dataSource_, descriptor_);
}

void CNNConvolution::reloadWeightsAndBiasesFromDataSource() {
  weights_ = ConvolutionWeights::read(describe(), device(), *dataSource_, descriptor_);
}

void CNNConvolution::reloadWeightsAndBiases(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& state) {
  detail::checkCommandBuffer(*this, commandBuffer);
  if (!state) throw Error(describe(), "state", "null", "weights and biases");
  detail::checkStates(*this, "state", *commandBuffer, StateBatch{state}, 1);
  mtl::RecordingGuard guard(*commandBuffer);
  weights_ = ConvolutionWeights::copy(describe(), *commandBuffer, *state, descriptor_);
  guard.keep();
  takeRead(*state);
}

std::shared_ptr<CNNConvolutionWeightsAndBiasesState> CNNConvolution::exportWeightsAndBiases(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, bool resultStateCanBeTemporary) {
  detail::checkCommandBuffer(*this, commandBuffer);
  auto state = resultStateCanBeTemporary
                   ? CNNConvolutionWeightsAndBiasesState::createTemporary(commandBuffer, descriptor_)
                   : CNNConvolutionWeightsAndBiasesState::create(device(), descriptor_);
  mtl::RecordingGuard guard(*commandBuffer);
  weights_->copyTo(describe(), *commandBuffer, *state);
  guard.keep();
  return state;
}

detail::PreparedCall CNNConvolution::prepareForward(const detail::ForwardCall& call) const {
  ConvolutionProblem problem = describedBy(descriptor_, *device(), call.options);
  problem.operation = ConvolutionOperation::Forward;
  problem.x = call.x;
  problem.y = call.y;
  problem.edgeMode = call.edgeMode;
  problem.hasBias = weights_->biases() != nullptr;
  problem.neuron = graphNeuron_.neuronType() != CNNNeuronType::None ? graphNeuron_ : fusedNeuronDescriptor();
  problem.source = call.source;
  problem.destination = call.destination;
  placeWindow(problem);
  detail::PreparedCall prepared;
  if (pools_) {
    const detail::PooledConvolutionProblem pooled = pooledProblem(problem, call.destination);
    prepared.plan = detail::planFor(*device(), detail::pooledConvolutionBackEnds, pooled);
    if (call.wantsSavedFields) prepared.savedBytes = pooled.savedBytes();
  } else {
    prepared.plan = detail::planFor(*device(), detail::convolutionBackEnds, problem);
  }
  prepared.parameters[0] = parameter(weights_->weights(), weights_->weightsOffset());
  prepared.parameters[1] = parameter(weights_->biases(), weights_->biasesOffset());
  return prepared;
}

std::shared_ptr<State> CNNConvolution::makeState(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const {
  return CNNConvolutionGradientState::create(
      device(), commandBuffer, descriptor_,
      std::static_pointer_cast<const CNNConvolution>(shared_from_this()));
}

void CNNConvolution::describeForward(std::any& family) const {
  family = FusedParts{fusedNeuronDescriptor().neuronType() != CNNNeuronType::None,
                      descriptor_.folding() != nullptr, pools_};
}

bool CNNConvolution::canPool(const ImageDescriptor& source, const ImageDescriptor& result,
                             std::size_t count) const {
  constexpr auto float32 = ImageFeatureChannelFormat::Float32;
  if (source.channelFormat() != float32 || result.channelFormat() != float32) return false;
  // The CPU's implementation is there for tests.
  const bool gains =
      device()->kind() == mtl::DeviceKind::CUDA || detail::forcedImplementation() == detail::kPlainPooled;
  if (!gains || result.width() % 2 != 0 || result.height() % 2 != 0) return false;
  const auto shapeOf = [&](const ImageDescriptor& size, std::size_t divisor) {
    return detail::TensorShape::dense(asSigned(count), asSigned(size.height() / divisor),
                                      asSigned(size.width() / divisor), asSigned(size.featureChannels()),
                                      float32);
  };
  ConvolutionProblem problem = describedBy(descriptor_, *device(), options());
  problem.edgeMode = edgeMode();
  problem.hasBias = true;
  problem.source = shapeOf(source, 1);
  problem.x.sourceSize = problem.source.width;
  problem.y.sourceSize = problem.source.height;
  problem.x.offset = offset().x;
  problem.y.offset = offset().y;
  problem.neuron = graphNeuron_;
  placeWindow(problem);
  const bool takesForward = isTaken(*device(), pooledProblem(problem, shapeOf(result, 2)));
  problem.operation = ConvolutionOperation::WeightsGradient;
  problem.neuron = {};
  return takesForward && isTaken(*device(), pooledProblem(problem, shapeOf(result, 2)));
}

CNNConvolutionGradient::CNNConvolutionGradient(std::shared_ptr<mtl::Device> device,
                                               std::shared_ptr<CNNConvolutionDataSource> weights,
                                               const char* className)
    : CNNGradientKernel(std::move(device)),
      dataSource_(std::move(weights)),
      descriptor_(checked(className, dataSource_).descriptor()) {
  descriptor_.check(className);
  if (!dataSource_->label().empty()) setLabel(dataSource_->label());
  weights_ = ConvolutionWeights::read(className, this->device(), *dataSource_, descriptor_);
  primary_.strideInPixelsX.transfer(descriptor_.strideInPixelsX());
  primary_.strideInPixelsY.transfer(descriptor_.strideInPixelsY());
  secondary_.strideInPixelsX.transfer(descriptor_.strideInPixelsX());
  secondary_.strideInPixelsY.transfer(descriptor_.strideInPixelsY());
  secondary_.kernelWidth.transfer(descriptor_.kernelWidth());
  secondary_.kernelHeight.transfer(descriptor_.kernelHeight());
  secondary_.dilationRateX.transfer(descriptor_.dilationRateX());
  secondary_.dilationRateY.transfer(descriptor_.dilationRateY());
}

std::shared_ptr<CNNConvolutionGradient> CNNConvolutionGradient::create(
    const std::shared_ptr<mtl::Device>& device, std::shared_ptr<CNNConvolutionDataSource> weights) {
  return std::shared_ptr<CNNConvolutionGradient>(
      new CNNConvolutionGradient(device, std::move(weights), "CNNConvolutionGradient"));
}

std::shared_ptr<Kernel> CNNConvolutionGradient::clone() const {
  return std::shared_ptr<CNNConvolutionGradient>(new CNNConvolutionGradient(*this));
}

void CNNConvolutionGradient::didMoveToDevice() {
  if (auto other = dataSource_->copy(device())) dataSource_ = std::move(other);
  reloadWeightsAndBiasesFromDataSource();
}

void CNNConvolutionGradient::reloadWeightsAndBiasesFromDataSource() {
  weights_ = ConvolutionWeights::read(describe(), device(), *dataSource_, descriptor_);
  adoptsWeights_ = false;
}

void CNNConvolutionGradient::reloadWeightsAndBiases(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& state) {
  detail::checkCommandBuffer(*this, commandBuffer);
  if (!state) throw Error(describe(), "state", "null", "weights and biases");
  detail::checkStates(*this, "state", *commandBuffer, StateBatch{state}, 1);
  mtl::RecordingGuard guard(*commandBuffer);
  weights_ = ConvolutionWeights::copy(describe(), *commandBuffer, *state, descriptor_);
  guard.keep();
  adoptsWeights_ = false;
  takeRead(*state);
}

bool CNNConvolutionGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "CNNConvolution";
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
  if (const auto* fused = std::any_cast<FusedParts>(&record.family);
      fused != nullptr && (fused->neuron || fused->normalisation)) {
    const std::string part = fused->neuron ? "fused neuron" : "folded batch normalisation";
    throw Error(describe(), "gradientState",
                "of a convolution with a " + part + ", whose derivative would be missing",
                "of one without; put it into a kernel of its own");
  }
  if (record.kernelWidth != descriptor_.kernelWidth() || record.kernelHeight != descriptor_.kernelHeight() ||
      record.strideInPixelsX != descriptor_.strideInPixelsX() ||
      record.strideInPixelsY != descriptor_.strideInPixelsY() ||
      record.dilationRateX != descriptor_.dilationRateX() ||
      record.dilationRateY != descriptor_.dilationRateY() ||
      record.destinationFeatureChannels != descriptor_.outputFeatureChannels())
    throw Error(describe(), "weights", descriptor_.describe(),
                "the data source of the forward kernel of gradientState");
}

void CNNConvolutionGradient::willEncode(State& gradientState) {
  auto* state = dynamic_cast<CNNConvolutionGradientState*>(&gradientState);
  if (state == nullptr || !state->convolution() || !adoptsWeights_) return;
  shareWeights(*state->convolution());
}

void CNNConvolutionGradient::didEncode(const detail::GradientCall& call) {
  auto* state = dynamic_cast<CNNConvolutionGradientState*>(call.state.get());
  if (state == nullptr) return;
  adoptsWeights_ = false;
  if (has(gradientOption_, CNNConvolutionGradientOption::GradientWithWeightsAndBias))
    state->setAccumulating(true);
}

std::vector<detail::PreparedCall> CNNConvolutionGradient::prepareGradient(
    const detail::GradientCall& call) const {
  const auto checkChannels = [&](const char* argument, std::int64_t found, std::size_t expected) {
    if (found != asSigned(expected))
      throw Error(describe(), argument, std::to_string(found) + " feature channels",
                  std::to_string(expected));
  };
  const auto* const parts = call.record ? std::any_cast<FusedParts>(&call.record->family) : nullptr;
  const bool pools = parts != nullptr && parts->pools;
  if (pools && (has(gradientOption_, CNNConvolutionGradientOption::GradientWithData) || !call.savedFieldsFit))
    throw Error(describe(), "gradientState", "of a forward pass that has kept maxima alone",
                "GradientWithWeightsAndBias, and the forward source");
  checkChannels("sourceGradient", call.gradient.channels, descriptor_.outputFeatureChannels());
  checkChannels("sourceImage", call.source.channels, descriptor_.inputFeatureChannels());

  ConvolutionProblem common = describedBy(descriptor_, *device(), call.options);
  common.edgeMode = call.edgeMode;
  common.gradient = call.gradient;
  common.x.destinationSize = call.gradient.width;
  common.y.destinationSize = call.gradient.height;
  std::vector<detail::PreparedCall> calls;

  if (has(gradientOption_, CNNConvolutionGradientOption::GradientWithData)) {
    ConvolutionProblem problem = common;
    problem.operation = ConvolutionOperation::DataGradient;
    problem.accumulate = call.accumulate;
    problem.x.stride = asSigned(primaryStrideInPixelsX());
    problem.y.stride = asSigned(primaryStrideInPixelsY());
    const auto place = [](detail::WindowAxis& axis, std::int64_t size, std::int64_t primary,
                          std::int64_t kernelOffset) {
      axis.sourceSize = size;
      axis.offset = (axis.dilatedSize() % 2 == 0 ? 1 : 0) - (primary * axis.stride + kernelOffset);
    };
    place(problem.x, call.destination.width, call.primaryOffset.x, call.kernelOffsetX);
    place(problem.y, call.destination.height, call.primaryOffset.y, call.kernelOffsetY);
    problem.destination = call.destination;
    placeWindow(problem);
    detail::PreparedCall prepared;
    prepared.plan = detail::planFor(*device(), detail::convolutionBackEnds, problem);
    prepared.parameters[0] = parameter(weights_->weights(), weights_->weightsOffset());
    prepared.readsSource = false;
    calls.push_back(std::move(prepared));
  }
  if (!has(gradientOption_, CNNConvolutionGradientOption::GradientWithWeightsAndBias)) return calls;

  auto* state = dynamic_cast<CNNConvolutionGradientState*>(call.state.get());
  if (state == nullptr) {
    if (call.state)
      throw Error(describe(), "gradientState", "a state of another kind", "a CNNConvolutionGradientState");
    throw Error(describe(), "gradientOption", "with weights and bias in an encode without a gradient state",
                "GradientWithData");
  }
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
  problem.hasBias = true;
  problem.accumulate = state->isAccumulating();
  placeWindow(problem);
  detail::PreparedCall prepared;
  prepared.readsSavedFields = pools;
  prepared.plan = pools ? detail::planFor(*device(), detail::pooledConvolutionBackEnds,
                                          pooledProblem(problem, call.gradient))
                        : detail::planFor(*device(), detail::convolutionBackEnds, problem);
  prepared.accumulate = problem.accumulate;
  prepared.parameters[2] = parameter(state->gradientForWeights()->memory(), 0, true);
  prepared.parameters[3] = parameter(state->gradientForBiases()->memory(), 0, true);
  prepared.writesDestination = false;
  calls.push_back(std::move(prepared));
  return calls;
}

}  // namespace mps
