#include "mps/batch_normalization/batch_normalization.hpp"

#include <optional>
#include <span>
#include <utility>

#include "mps/batch_normalization/batch_normalization_problem.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/layer/coded_data_sources.hpp"
#include "mps/core/layer/loaded_source.hpp"
#include "mps/core/layer/normalization_parameters.hpp"
#include "mps/core/layer/shared_copies.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {

using detail::BatchNormalizationOperation;
using detail::BatchNormalizationParameters;
using detail::BatchNormalizationProblem;

namespace {

/// Reads parameters of a data source for one kernel.
class ParameterReader {
 public:
  ParameterReader(std::string kernel, std::shared_ptr<mtl::Device> device,
                  CNNBatchNormalizationDataSource& source, std::size_t channels)
      : kernel_(std::move(kernel)), device_(std::move(device)), source_(source), channels_(channels) {}

  /// Loads the data source when it has values to read that are not on the device.
  void read(BatchNormalizationParameters& parameters, bool gammaAndBeta, bool meanAndVariance) const {
    const auto liveWeights = gammaAndBeta ? source_.deviceGammaAndBeta(device_) : nullptr;
    const auto liveStatistics = meanAndVariance ? source_.deviceMeanAndVariance(device_) : nullptr;
    if (liveWeights) {
      detail::checkParameterCount(kernel_, "deviceGammaAndBeta", liveWeights->numberOfFeatureChannels(),
                                  channels_);
      parameters.gamma = liveWeights->gamma();
      parameters.beta = liveWeights->beta();
      parameters.sharesGammaAndBeta = true;
    }
    if (liveStatistics) {
      detail::checkParameterCount(kernel_, "deviceMeanAndVariance", liveStatistics->numberOfFeatureChannels(),
                                  channels_);
      parameters.mean = liveStatistics->mean();
      parameters.variance = liveStatistics->variance();
    }
    const bool readsWeights = gammaAndBeta && !liveWeights;
    const bool readsStatistics = meanAndVariance && !liveStatistics;
    if (!readsWeights && !readsStatistics) return;
    detail::readLoaded(kernel_, "dataSource", source_, [&] {
      if (readsWeights) {
        const auto gamma = buffer("gamma", source_.gamma(), 1);
        parameters.beta = buffer("beta", source_.beta(), 0);
        parameters.gamma = gamma;
        parameters.sharesGammaAndBeta = false;
      }
      if (readsStatistics) {
        const auto mean = buffer("mean", source_.mean(), 0);
        parameters.variance = buffer("variance", source_.variance(), 1);
        parameters.mean = mean;
      }
    });
  }

  [[nodiscard]] BatchNormalizationParameters readAll() const {
    BatchNormalizationParameters parameters;
    read(parameters, true, true);
    parameters.epsilon = detail::checkedEpsilon(kernel_, source_.epsilon());
    return parameters;
  }

 private:
  [[nodiscard]] std::shared_ptr<mtl::Buffer> buffer(const char* argument, std::span<const float> values,
                                                    float byDefault) const {
    return detail::parameterBuffer(kernel_, device_, argument, values, channels_, byDefault);
  }

  std::string kernel_;
  std::shared_ptr<mtl::Device> device_;
  CNNBatchNormalizationDataSource& source_;
  std::size_t channels_;
};

CNNBatchNormalizationDataSource& checked(const std::shared_ptr<CNNBatchNormalizationDataSource>& source) {
  if (!source) throw Error("CNNBatchNormalization", "dataSource", "null", "a data source");
  if (source->numberOfFeatureChannels() == 0)
    throw Error(detail::describeOwnerOf(*source, "CNNBatchNormalization"), "numberOfFeatureChannels", "0",
                "at least 1");
  return *source;
}

CNNBatchNormalizationState& checkedState(const Kernel& kernel, State* state, std::size_t channels) {
  auto* own = dynamic_cast<CNNBatchNormalizationState*>(state);
  if (own == nullptr)
    throw Error(kernel.describe(), "batchNormalizationState", state == nullptr ? "null" : "of another kind",
                "a CNNBatchNormalizationState");
  if (own->numberOfFeatureChannels() != channels)
    throw Error(kernel.describe(), "batchNormalizationState",
                "of " + std::to_string(own->numberOfFeatureChannels()) + " feature channels",
                std::to_string(channels));
  return *own;
}

detail::PreparedCall::Parameter parameter(const std::shared_ptr<mtl::Buffer>& buffer) {
  return {buffer->memory()};
}

/// Where a statistics call writes. When a predicate leaves it out, the state still counts its elements: what later
/// calls add to is invalid then, and so are mean and variance that no batch before has given values.
void setWrittenStatistics(detail::PreparedCall& prepared, CNNBatchNormalizationState& state) {
  const auto written = [](const std::shared_ptr<mtl::Buffer>& buffer, bool isAddedTo, bool isCounted) {
    return detail::PreparedCall::Parameter{buffer->memory(), 0, true, isAddedTo, isCounted};
  };
  prepared.parameters[2] = written(state.meanOfBatch(), false, state.isFrozen());
  prepared.parameters[3] = written(state.varianceOfBatch(), false, state.isFrozen());
  prepared.parameters[4] = written(state.accumulatedStatistics(), prepared.accumulate, true);
}

void takeRead(State& state) {
  if (state.isTemporary() && state.readCount() > 0) state.setReadCount(state.readCount() - 1);
}

}  // namespace

std::shared_ptr<detail::ForwardRecord> detail::recordOfWholeImages(const ImageDescriptor& sourceImage) {
  auto record = std::make_shared<ForwardRecord>();
  record->kernelClass = "CNNBatchNormalization";
  record->clipRect = {{0, 0, 0}, {sourceImage.width(), sourceImage.height(), 1}};
  record->source = sourceImage;
  record->destination = sourceImage;
  record->sourceFeatureChannels = sourceImage.featureChannels();
  record->destinationFeatureChannels = sourceImage.featureChannels();
  return record;
}

void detail::checkImport(const Kernel& kernel, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const char* argument, const std::shared_ptr<mtl::Buffer>& accumulated,
                         const std::shared_ptr<CNNBatchNormalizationState>& state) {
  checkCommandBuffer(kernel, commandBuffer);
  if (!state) throw Error(kernel.describe(), "batchNormalizationState", "null", "a state");
  checkStates(kernel, "batchNormalizationState", *commandBuffer, StateBatch{state}, 1);
  if (!accumulated) throw Error(kernel.describe(), argument, "null", "a buffer");
  const std::size_t bytes = 2 * state->numberOfFeatureChannels() * sizeof(double);
  if (accumulated->length() != bytes)
    throw Error(kernel.describe(), argument, std::to_string(accumulated->length()) + " bytes",
                std::to_string(bytes) + ", two float64 numbers for each feature channel");
}

CNNBatchNormalization::CNNBatchNormalization(std::shared_ptr<mtl::Device> device,
                                             std::shared_ptr<CNNBatchNormalizationDataSource> dataSource,
                                             const NNNeuronDescriptor& fusedNeuronDescriptor)
    : KernelClass(std::move(device)),
      dataSource_(std::move(dataSource)),
      channels_(checked(dataSource_).numberOfFeatureChannels()),
      neuron_(fusedNeuronDescriptor),
      parameters_(std::make_shared<BatchNormalizationParameters>(
          ParameterReader(detail::describeOwnerOf(*dataSource_, "CNNBatchNormalization"), this->device(),
                          *dataSource_, channels_)
              .readAll())) {
  if (!dataSource_->label().empty()) setLabel(dataSource_->label());
  neuron_.check(describe(), "fusedNeuronDescriptor", channels_);
}

CNNBatchNormalization::CNNBatchNormalization(const CNNBatchNormalization& other)
    : KernelClass(other),
      LayerKernel(other),
      SharedBatchKernel(other),
      NeuronFusion(other),
      dataSource_(other.dataSource_),
      channels_(other.channels_),
      neuron_(other.neuron_),
      parameters_(std::make_shared<BatchNormalizationParameters>(*other.parameters_)),
      flags_(other.flags_),
      computesStatistics_(other.computesStatistics_) {}

std::shared_ptr<CNNBatchNormalization> CNNBatchNormalization::create(
    const std::shared_ptr<mtl::Device>& device, std::shared_ptr<CNNBatchNormalizationDataSource> dataSource,
    const NNNeuronDescriptor& fusedNeuronDescriptor) {
  return std::shared_ptr<CNNBatchNormalization>(
      new CNNBatchNormalization(device, std::move(dataSource), fusedNeuronDescriptor));
}

void CNNBatchNormalization::didCopy(bool hasMoved) {
  if (!detail::replaceByCopy(dataSource_, device()) && !hasMoved) return;
  const float epsilon = parameters_->epsilon;
  *parameters_ = ParameterReader(describe(), device(), *dataSource_, channels_).readAll();
  parameters_->epsilon = epsilon;
}

void CNNBatchNormalization::setEpsilon(float epsilon) {
  parameters_->epsilon = detail::checkedEpsilon(describe(), epsilon);
  countChange();
}

void CNNBatchNormalization::reloadGammaAndBetaFromDataSource() {
  ParameterReader(describe(), device(), *dataSource_, channels_).read(*parameters_, true, false);
  countChange();
}

void CNNBatchNormalization::reloadMeanAndVarianceFromDataSource() {
  ParameterReader(describe(), device(), *dataSource_, channels_).read(*parameters_, false, true);
  countChange();
}

void CNNBatchNormalization::reloadDataSource(std::shared_ptr<CNNBatchNormalizationDataSource> dataSource) {
  if (checked(dataSource).numberOfFeatureChannels() != channels_)
    throw Error(describe(), "dataSource",
                "of " + std::to_string(dataSource->numberOfFeatureChannels()) + " feature channels",
                std::to_string(channels_));
  useParameters(ParameterReader(describe(), device(), *dataSource, channels_).readAll());
  dataSource_ = std::move(dataSource);
}

void CNNBatchNormalization::reloadGammaAndBeta(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<CNNNormalizationGammaAndBetaState>& gammaAndBetaState) {
  detail::checkReload(*this, commandBuffer, "gammaAndBetaState", gammaAndBetaState, channels_);
  mtl::RecordingGuard guard(*commandBuffer);
  const auto gamma =
      detail::recordReloadOf(*this, *commandBuffer, gammaAndBetaState->gamma(), parameters_->gamma);
  parameters_->beta =
      detail::recordReloadOf(*this, *commandBuffer, gammaAndBetaState->beta(), parameters_->beta);
  parameters_->gamma = gamma;
  parameters_->sharesGammaAndBeta = false;
  countChange();
  guard.keep();
  takeRead(*gammaAndBetaState);
}

void CNNBatchNormalization::reloadMeanAndVariance(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<CNNNormalizationMeanAndVarianceState>& meanAndVarianceState) {
  detail::checkReload(*this, commandBuffer, "meanAndVarianceState", meanAndVarianceState, channels_);
  mtl::RecordingGuard guard(*commandBuffer);
  const auto mean =
      detail::recordReloadOf(*this, *commandBuffer, meanAndVarianceState->mean(), parameters_->mean);
  parameters_->variance =
      detail::recordReloadOf(*this, *commandBuffer, meanAndVarianceState->variance(), parameters_->variance);
  parameters_->mean = mean;
  countChange();
  guard.keep();
  takeRead(*meanAndVarianceState);
}

std::size_t CNNBatchNormalization::producedFeatureChannels(std::size_t sourceFeatureChannels) const {
  if (sourceFeatureChannels != channels_)
    throw Error(describe(), "sourceImage", std::to_string(sourceFeatureChannels) + " feature channels",
                std::to_string(channels_) + ", as the data source has");
  return channels_;
}

std::shared_ptr<State> CNNBatchNormalization::makeState(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    std::span<const std::shared_ptr<State>> /*sourceStates*/) const {
  return CNNBatchNormalizationState::create(
      device(), commandBuffer, channels_,
      std::static_pointer_cast<const CNNBatchNormalization>(shared_from_this()), parameters_);
}

BatchNormalizationParameters CNNBatchNormalization::parametersFor(const std::shared_ptr<State>& state) const {
  BatchNormalizationParameters parameters = *parameters_;
  if (!state) return parameters;
  auto& statistics = checkedState(*this, state.get(), channels_);
  parameters.mean = statistics.mean();
  parameters.variance = statistics.variance();
  return parameters;
}

namespace {

/// While alive, what this thread encodes with a kernel is ReLU(result + images).
class SumOfStep {
 public:
  SumOfStep(const CNNBatchNormalization& kernel, mtl::CommandBuffer& commandBuffer, const ImageBatch& images)
      : kernel_(kernel), commandBuffer_(commandBuffer), images_(images), before_(current) {
    current = this;
  }
  ~SumOfStep() { current = before_; }
  SumOfStep(const SumOfStep&) = delete;
  SumOfStep& operator=(const SumOfStep&) = delete;

  /// The one of a kernel's encode; null: none.
  static const SumOfStep* of(const CNNBatchNormalization& kernel) {
    return current != nullptr && &current->kernel_ == &kernel ? current : nullptr;
  }
  [[nodiscard]] detail::TensorView addend() const {
    return detail::BatchOperand(images_).view(commandBuffer_, false);
  }

 private:
  static thread_local const SumOfStep* current;
  const CNNBatchNormalization& kernel_;
  mtl::CommandBuffer& commandBuffer_;
  const ImageBatch& images_;
  const SumOfStep* before_;
};

thread_local const SumOfStep* SumOfStep::current = nullptr;

}  // namespace

detail::PreparedCall CNNBatchNormalization::prepareForward(const detail::ForwardCall& call) const {
  const BatchNormalizationParameters used = parametersFor(call.state);
  BatchNormalizationProblem problem;
  problem.operation = BatchNormalizationOperation::Forward;
  problem.neuron = neuron_;
  problem.epsilon = used.epsilon;
  problem.source = call.source;
  problem.destination = call.destination;
  detail::PreparedCall prepared;
  if (const SumOfStep* const sum = SumOfStep::of(*this)) {
    const detail::TensorView addend = sum->addend();
    problem.neuron = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU);
    problem.addend = addend.shape;
    prepared.parameters[4] = detail::PreparedCall::Parameter::of(addend);
  }
  prepared.plan = detail::planFor(*device(), detail::batchNormalizationBackEnds, problem);
  prepared.parameters[0] = parameter(used.gamma);
  prepared.parameters[1] = parameter(used.beta);
  prepared.parameters[2] = parameter(used.mean);
  prepared.parameters[3] = parameter(used.variance);
  return prepared;
}

void CNNBatchNormalization::didEncode(const detail::ForwardCall& call) {
  if (!call.state) return;
  checkedState(*this, call.state.get(), channels_).didEncodeNormalization(parametersFor(call.state));
  takeRead(*call.state);
}

void CNNBatchNormalization::encodeBatch(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceImages,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState,
    const ImageBatch& destinationImages) {
  checkedState(*this, batchNormalizationState.get(), channels_);
  encodeBatch(commandBuffer, sourceImages, StateBatch(batchNormalizationState, sourceImages.count()),
              destinationImages);
}

void CNNBatchNormalization::reloadFromDataSource() {
  reloadGammaAndBetaFromDataSource();
  reloadMeanAndVarianceFromDataSource();
}

void CNNBatchNormalization::useParameters(const detail::BatchNormalizationParameters& parameters) {
  *parameters_ = parameters;
  countChange();
}

std::function<void()> CNNBatchNormalization::parameterKeeper() {
  return [this, before = *parameters_] { useParameters(before); };
}

detail::KernelRoles CNNBatchNormalization::roles() {
  const bool writesWhole = clipRect() == RectNoClip && destinationFeatureChannelOffset() == 0;
  return {.layer = this,
          .sharedBatch = this,
          .neuronFusion = this,
          .addsSecondSource = writesWhole && neuron_.neuronType() == CNNNeuronType::None};
}

CNNBatchNormalization::Answer CNNBatchNormalization::canFuse(const NNNeuronDescriptor& neuron,
                                                             bool /*isDifferentiated*/) const {
  const bool hasSlopes =
      neuron.neuronType() != CNNNeuronType::PReLU || neuron.data().size() >= numberOfFeatureChannels();
  return neuron_.neuronType() == CNNNeuronType::None && hasSlopes ? Answer::GradientIncluded : Answer::No;
}

detail::KernelRoles detail::BatchNormalizationGradientKernel::roles() {
  return {.neuronFusion = this};
}

detail::KernelRoles CNNBatchNormalizationStatisticsGradient::roles() {
  return {.layerGradient = this, .sharedBatch = this, .neuronFusion = this};
}

const void* CNNBatchNormalization::deviceParameters() const {
  return parameters_->sharesGammaAndBeta ? parameters_->gamma.get() : nullptr;
}

void CNNBatchNormalization::chooseTraining(bool hasGradient) {
  computesStatistics_ = flags_ == CNNBatchNormalizationFlags::CalculateStatisticsAlways ||
                        (flags_ == CNNBatchNormalizationFlags::CalculateStatisticsAutomatic && hasGradient);
}

void CNNBatchNormalization::encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                       std::span<const ImageBatch> sources,
                                       const StateBatch& destinationStates,
                                       const ImageBatch& destinationImages) {
  const ImageBatch& sourceImages = sources[0];
  StateBatch states = destinationStates;
  // The graph counts the reads of the steps behind this one, and one of this step's source.
  StateBatchIncrementReadCount(states, 1);
  if (computesStatistics_) {
    if (states.empty()) states = temporaryResultStateBatch(commandBuffer, sourceImages);
    ImageBatchIncrementReadCount(sourceImages, 1);
    encodeStatistics(commandBuffer, sourceImages, sourceImages.descriptor(),
                     std::static_pointer_cast<CNNBatchNormalizationState>(states[0]));
  }
  std::optional<SumOfStep> sum;
  if (sources.size() > 1) sum.emplace(*this, *commandBuffer, sources[1]);
  encodeBatch(commandBuffer, sourceImages, states, destinationImages);
}

std::shared_ptr<CNNBatchNormalizationStatistics> CNNBatchNormalizationStatistics::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<CNNBatchNormalizationStatistics>(new CNNBatchNormalizationStatistics(device));
}

detail::PreparedCall CNNBatchNormalizationStatistics::prepareForward(
    const detail::ForwardCall& /*call*/) const {
  throw Error(describe(), "destinationImage", "given", "none: encodeBatch with a batchNormalizationState");
}

void CNNBatchNormalizationStatistics::encodeBatch(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& sourceImages,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) {
  detail::checkCommandBuffer(*this, commandBuffer);
  if (!batchNormalizationState) throw Error(describe(), "batchNormalizationState", "null", "a state");
  if (sourceImages.empty()) return encodeNone(*commandBuffer, *batchNormalizationState);
  if (!has(options(), KernelOptions::SkipAPIValidation)) {
    detail::checkSources(*this, "sourceImages", *commandBuffer, sourceImages);
    detail::checkNotStacked(*this, "sourceImages", sourceImages);
    detail::checkStates(*this, "batchNormalizationState", *commandBuffer, StateBatch{batchNormalizationState},
                        1);
  }
  if (offset() != Offset{} || clipRect() != RectNoClip)
    throw Error(describe(), "offset or clipRect", "set", "as it was: statistics are those of whole images");
  CNNBatchNormalizationState& state = *batchNormalizationState;
  detail::BatchOperand source(sourceImages);
  detail::BatchOperand sizes = detail::BatchOperand::sizeOnly(source.shape());
  const detail::ForwardCall call = resolveCall(source, sizes, false);
  checkedState(*this, &state, static_cast<std::size_t>(call.source.channels));

  mtl::RecordingGuard guard(*commandBuffer);
  BatchNormalizationProblem problem;
  problem.operation = BatchNormalizationOperation::Statistics;
  problem.source = call.source;
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::batchNormalizationBackEnds, problem);
  prepared.writesDestination = false;
  prepared.accumulate = state.addsStatistics();
  prepared.scalars[0] = prepared.accumulate ? static_cast<double>(state.elementCount()) : 0;
  setWrittenStatistics(prepared, state);
  state.willEncode(*commandBuffer);
  detail::CallOperands operands;
  operands.source = &source;
  detail::recordCall(*commandBuffer, *this, prepared, operands);
  guard.keep();

  auto record = detail::recordOfWholeImages(sourceImages.descriptor());
  record->imageCount = sourceImages.count();
  record->sourceFeatureChannelOffset = sourceFeatureChannelOffset();
  record->sourceFeatureChannels = state.numberOfFeatureChannels();
  record->destinationFeatureChannelOffset = sourceFeatureChannelOffset();
  record->destinationFeatureChannels = state.numberOfFeatureChannels();
  record->family = state.batchNormalization()->fusedNeuronDescriptor();
  state.setRecord(std::move(record), 0);
  state.didEncodeStatistics(static_cast<std::uint64_t>(call.source.pixels()));
  detail::consumeRead(sourceImages, describe());
}

void CNNBatchNormalizationStatistics::encodeNone(mtl::CommandBuffer& commandBuffer,
                                                 CNNBatchNormalizationState& state) const {
  mtl::RecordingGuard guard(commandBuffer);
  state.willEncode(commandBuffer);
  if (!state.addsStatistics())
    detail::recordZerosAlways(commandBuffer, describe(), state.accumulatedStatistics()->memory());
  guard.keep();
  state.didEncodeStatistics(0);
}

void CNNBatchNormalizationStatistics::importStatistics(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<mtl::Buffer>& accumulatedStatistics, std::uint64_t elementCount,
    const std::shared_ptr<CNNBatchNormalizationState>& batchNormalizationState) {
  if (elementCount == 0) throw Error(describe(), "elementCount", "0", "at least 1");
  detail::checkImport(*this, commandBuffer, "accumulatedStatistics", accumulatedStatistics,
                      batchNormalizationState);
  CNNBatchNormalizationState& state = *batchNormalizationState;
  mtl::RecordingGuard guard(*commandBuffer);
  const auto to = state.accumulatedStatistics();
  detail::recordMemoryCopy(*commandBuffer, describe(), accumulatedStatistics->memory(), 0, to->memory(), 0,
                           to->length());
  recordStatisticsOf(*commandBuffer, elementCount, state);
  guard.keep();
  state.didImportStatistics(elementCount);
}

void CNNBatchNormalizationStatistics::recordStatisticsOf(mtl::CommandBuffer& commandBuffer,
                                                         std::uint64_t elementCount,
                                                         CNNBatchNormalizationState& state) const {
  // Statistics of no pixels, added to what was copied: what kernels and users read follows from it.
  BatchNormalizationProblem problem;
  problem.operation = BatchNormalizationOperation::Statistics;
  problem.source =
      detail::TensorShape::dense(0, 0, 0, static_cast<std::int64_t>(state.numberOfFeatureChannels()));
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::batchNormalizationBackEnds, problem);
  prepared.writesDestination = false;
  prepared.accumulate = true;
  prepared.scalars[0] = static_cast<double>(elementCount);
  setWrittenStatistics(prepared, state);
  state.willEncode(commandBuffer);
  detail::recordCall(commandBuffer, *this, prepared, {});
}

void CNNBatchNormalization::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  const auto source = detail::codeDataSource<detail::CodedBatchNormalizationDataSource>(coder, dataSource_);
  coder.code("fusedNeuronDescriptor", neuron_);
  const auto kernel = create(device(), source, neuron_);
  const BatchNormalizationParameters& usual = kernel->parameters();
  if (coder.isDecoding()) {
    channels_ = kernel->channels_;
    *parameters_ = usual;
  }
  detail::codeUnusualPair(coder, device(), "gamma", parameters_->gamma, usual.gamma, "beta",
                          parameters_->beta, usual.beta);
  detail::codeUnusualPair(coder, device(), "mean", parameters_->mean, usual.mean, "variance",
                          parameters_->variance, usual.variance);
  if (coder.isDecoding() && parameters_->gamma != usual.gamma) parameters_->sharesGammaAndBeta = false;
  detail::codeEpsilon(coder, parameters_->epsilon);
  coder.codeEnumeration("flags", flags_, CNNBatchNormalizationFlags::CalculateStatisticsMask);
  coder.code("computesStatistics", computesStatistics_);
}

}  // namespace mps
