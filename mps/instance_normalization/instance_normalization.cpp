#include "mps/instance_normalization/instance_normalization.hpp"

#include <functional>
#include <utility>

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/layer/coded_data_sources.hpp"
#include "mps/core/layer/loaded_source.hpp"
#include "mps/core/layer/normalization_parameters.hpp"
#include "mps/core/layer/shared_copies.hpp"
#include "mps/core/types/error.hpp"
#include "mps/instance_normalization/instance_normalization_problem.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {
namespace detail {
namespace {

PreparedCall::Parameter parameter(const std::shared_ptr<mtl::Buffer>& buffer) {
  return {buffer->memory(), 0, false};
}

/// The data source as what readLoaded takes.
struct Loading {
  std::function<bool()> load;
  std::function<void()> purge;
  std::function<std::string()> label;
};

}  // namespace

ImageNormalizationKernel::ImageNormalizationKernel(const char* className, std::shared_ptr<mtl::Device> device,
                                                   const ImageNormalizationDataSource* source,
                                                   std::size_t groups)
    : CNNKernel(std::move(device)) {
  if (source == nullptr) throw Error(className, "dataSource", "null", "a data source");
  channels_ = source->numberOfFeatureChannels();
  if (!source->label().empty()) setLabel(source->label());
  const std::string kernel = describeOwnerOf(*source, className);
  if (channels_ == 0) throw Error(kernel, "numberOfFeatureChannels", "0", "at least 1");
  parameters_.groups = groups == 0 ? channels_ : groups;
  parameters_.epsilon = checkedEpsilon(kernel, source->epsilon());
}

std::function<void()> ImageNormalizationKernel::parameterKeeper() {
  return [this, before = parameters_] { useParameters(before); };
}

KernelRoles ImageNormalizationKernel::roles() {
  return {.layer = this};
}

KernelRoles ImageNormalizationGradientKernel::roles() {
  return {.layerGradient = this};
}

const void* ImageNormalizationKernel::deviceParameters() const {
  return parameters_.sharesGammaAndBeta ? parameters_.gamma.get() : nullptr;
}

void ImageNormalizationKernel::reloadGammaAndBetaFromDataSource() {
  ImageNormalizationDataSource& source = parameterSource();
  if (const auto live = source.deviceGammaAndBeta(device())) {
    checkParameterCount(describe(), "deviceGammaAndBeta", live->numberOfFeatureChannels(), channels_);
    parameters_.gamma = live->gamma();
    parameters_.beta = live->beta();
    parameters_.sharesGammaAndBeta = true;
    return;
  }
  const auto load = [this] {  // purge() balances each load(), one that fails, too
    if (loadSource()) return true;
    purgeSource();
    return false;
  };
  Loading loading{load, [this] { purgeSource(); }, [&] { return source.label(); }};
  readLoaded(describe(), "dataSource", loading, [&] {
    const auto gamma = parameterBuffer(describe(), device(), "gamma", source.gamma(), channels_, 1);
    parameters_.beta = parameterBuffer(describe(), device(), "beta", source.beta(), channels_, 0);
    parameters_.gamma = gamma;
    parameters_.sharesGammaAndBeta = false;
  });
}

void ImageNormalizationKernel::reloadGammaAndBeta(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<CNNNormalizationGammaAndBetaState>& gammaAndBetaState) {
  checkReload(*this, commandBuffer, "gammaAndBetaState", gammaAndBetaState, channels_);
  mtl::RecordingGuard guard(*commandBuffer);
  const auto gamma = recordReloadOf(*this, *commandBuffer, gammaAndBetaState->gamma(), parameters_.gamma);
  parameters_.beta = recordReloadOf(*this, *commandBuffer, gammaAndBetaState->beta(), parameters_.beta);
  parameters_.gamma = gamma;
  parameters_.sharesGammaAndBeta = false;
  guard.keep();
  consumeRead(StateBatch{gammaAndBetaState});
}

void ImageNormalizationKernel::setEpsilon(float epsilon) {
  parameters_.epsilon = checkedEpsilon(describe(), epsilon);
}

void ImageNormalizationKernel::codeParameters(Coder& coder, const ImageNormalizationKernel& usual) {
  if (coder.isDecoding()) {
    channels_ = usual.channels_;
    parameters_ = usual.parameters_;
  }
  codeUnusualPair(coder, device(), "gamma", parameters_.gamma, usual.parameters_.gamma, "beta",
                  parameters_.beta, usual.parameters_.beta);
  if (coder.isDecoding() && parameters_.gamma != usual.parameters_.gamma)
    parameters_.sharesGammaAndBeta = false;
  codeEpsilon(coder, parameters_.epsilon);
  coder.code("groups", parameters_.groups);
  if (parameters_.groups == 0 || channels_ % parameters_.groups != 0)
    coder.refuse("groups", std::to_string(parameters_.groups),
                 "a divisor of " + std::to_string(channels_) + " feature channels");
}

void ImageNormalizationGradientKernel::codeProperties(Coder& coder) {
  CNNGradientKernel::codeProperties(coder);
  coder.code("computesData", computesData_);
}

std::size_t ImageNormalizationKernel::producedFeatureChannels(std::size_t sourceFeatureChannels) const {
  if (sourceFeatureChannels != channels_)
    throw Error(describe(), "sourceImage", std::to_string(sourceFeatureChannels) + " feature channels",
                std::to_string(channels_) + ", as the data source has");
  return channels_;
}

std::shared_ptr<State> ImageNormalizationKernel::makeState(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    std::span<const std::shared_ptr<State>> /*sourceStates*/) const {
  return makeGradientState(
      commandBuffer, std::make_shared<ImageNormalizationGradients>(device(), commandBuffer, 1, channels_), 0);
}

StateBatch ImageNormalizationKernel::makeStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                std::size_t count,
                                                std::span<const StateBatch> /*sourceStates*/) const {
  if (count == 0) return {};
  const auto self = std::static_pointer_cast<const ImageNormalizationKernel>(shared_from_this());
  auto gradients = std::make_shared<ImageNormalizationGradients>(device(), commandBuffer, count, channels_);
  return {[self, commandBuffer, gradients](std::size_t row) {
            return producedBy(*self, self->makeGradientState(commandBuffer, gradients, row));
          },
          count, gradients};
}

void ImageNormalizationKernel::checkCall(const ForwardCall& call) const {
  const bool isWhole = call.offset.x == 0 && call.offset.y == 0 && call.clipRect.origin.x == 0 &&
                       call.clipRect.origin.y == 0 && call.x.destinationSize == call.x.sourceSize &&
                       call.y.destinationSize == call.y.sourceSize;
  if (!isWhole)
    throw Error(describe(), "offset, clipRect or destinationImage", "a part of the source",
                "the whole images: their statistics are those of all pixels");
  if (call.state) {
    const auto* state = dynamic_cast<const ImageNormalizationGradientState*>(call.state.get());
    if (state == nullptr)
      throw Error(describe(), "destinationState", "of another kind", "one of this kernel's resultState");
    if (state->numberOfFeatureChannels() != channels_)
      throw Error(describe(), "destinationState",
                  "of " + std::to_string(state->numberOfFeatureChannels()) + " feature channels",
                  std::to_string(channels_));
  }
}

PreparedCall ImageNormalizationKernel::prepareForward(const ForwardCall& call) const {
  InstanceNormalizationProblem problem;
  problem.operation = InstanceNormalizationOperation::Forward;
  problem.groups = static_cast<std::int64_t>(parameters_.groups);
  problem.epsilon = parameters_.epsilon;
  problem.hasSavedStatistics = call.wantsSavedFields;
  problem.source = call.source;
  problem.destination = call.destination;
  PreparedCall prepared;
  prepared.plan = planFor(*device(), instanceNormalizationBackEnds, problem);
  if (problem.hasSavedStatistics)
    prepared.savedBytes = static_cast<std::size_t>(call.source.images) * problem.savedBytesPerImage();
  prepared.parameters[0] = parameter(parameters_.gamma);
  prepared.parameters[1] = parameter(parameters_.beta);
  return prepared;
}

bool ImageNormalizationGradientKernel::takesTogether(const StateBatch& states) const {
  return gradientRowsOf(describe(), states).gradients != nullptr;
}

std::vector<PreparedCall> ImageNormalizationGradientKernel::prepareGradient(const GradientCall& call) const {
  if (!call.record) throw Error(describe(), "gradientState", "missing", "the state of the forward pass");
  const ImageNormalizationRows rows = gradientRowsOf(describe(), call.states);
  if (call.primaryOffset.x != 0 || call.primaryOffset.y != 0 || call.secondaryOffset.x != 0 ||
      call.secondaryOffset.y != 0 || call.clipRect.origin.x != 0 || call.clipRect.origin.y != 0)
    throw Error(describe(), "offset or clipRect", "set", "as it was: statistics are those of whole images");
  const auto haveSameSize = [](const TensorShape& a, const TensorShape& b) {
    return a.images == b.images && a.height == b.height && a.width == b.width && a.channels == b.channels;
  };
  if (!haveSameSize(call.gradient, call.source) || !haveSameSize(call.gradient, call.destination))
    throw Error(
        describe(), "sourceGradient, sourceImage and destinationGradient",
        call.gradient.describe() + ", " + call.source.describe() + " and " + call.destination.describe(),
        "of the same size");
  const auto& forward = std::any_cast<const ImageNormalizationParameters&>(call.record->family);
  InstanceNormalizationProblem problem;
  problem.operation = InstanceNormalizationOperation::Gradient;
  problem.groups = static_cast<std::int64_t>(forward.groups);
  problem.epsilon = forward.epsilon;
  problem.hasSavedStatistics = call.savedFieldsFit;
  problem.sumsImages = rows.rows == 1 && call.source.images != 1;  // no images: sums of nothing
  problem.computesData = computesData_;
  problem.source = call.source;
  problem.gradient = call.gradient;
  if (computesData_) problem.destination = call.destination;
  PreparedCall prepared;
  prepared.plan = planFor(*device(), instanceNormalizationBackEnds, problem);
  prepared.readsSavedFields = problem.hasSavedStatistics;
  prepared.writesDestination = computesData_;
  prepared.parameters[0] = parameter(forward.gamma);
  const auto memory = rows.gradients->memory();
  prepared.parameters[2] = {memory, rows.gradients->gammaOffset(rows.firstRow), true};
  prepared.parameters[3] = {memory, rows.gradients->betaOffset(rows.firstRow), true};
  return {prepared};
}

void ImageNormalizationGradientKernel::didEncode(const GradientCall& call) {
  const ImageNormalizationRows rows = gradientRowsOf(describe(), call.states);
  rows.gradients->didEncodeGradient(rows.firstRow, rows.rows);
}

}  // namespace detail

CNNInstanceNormalization::CNNInstanceNormalization(
    std::shared_ptr<mtl::Device> device, std::shared_ptr<CNNInstanceNormalizationDataSource> dataSource)
    : KernelClass("CNNInstanceNormalization", std::move(device), dataSource.get(), 0),
      dataSource_(std::move(dataSource)) {}

std::shared_ptr<CNNInstanceNormalization> CNNInstanceNormalization::create(
    const std::shared_ptr<mtl::Device>& device,
    std::shared_ptr<CNNInstanceNormalizationDataSource> dataSource) {
  auto kernel =
      std::shared_ptr<CNNInstanceNormalization>(new CNNInstanceNormalization(device, std::move(dataSource)));
  kernel->reloadGammaAndBetaFromDataSource();
  return kernel;
}

void CNNInstanceNormalization::didCopy(bool hasMoved) {
  if (detail::replaceByCopy(dataSource_, device()) || hasMoved) reloadGammaAndBetaFromDataSource();
}

void CNNInstanceNormalization::reloadDataSource(
    std::shared_ptr<CNNInstanceNormalizationDataSource> dataSource) {
  if (!dataSource) throw Error(describe(), "dataSource", "null", "a data source");
  if (dataSource->numberOfFeatureChannels() != numberOfFeatureChannels())
    throw Error(describe(), "dataSource",
                "of " + std::to_string(dataSource->numberOfFeatureChannels()) + " feature channels",
                std::to_string(numberOfFeatureChannels()));
  const float epsilon = detail::checkedEpsilon(describe(), dataSource->epsilon());
  std::swap(dataSource_, dataSource);
  try {
    reloadGammaAndBetaFromDataSource();
  } catch (...) {
    std::swap(dataSource_, dataSource);
    throw;
  }
  setEpsilon(epsilon);
}

std::shared_ptr<State> CNNInstanceNormalization::makeGradientState(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    std::shared_ptr<detail::ImageNormalizationGradients> gradients, std::size_t row) const {
  return CNNInstanceNormalizationGradientState::create(
      commandBuffer, std::move(gradients), row,
      std::static_pointer_cast<const CNNInstanceNormalization>(shared_from_this()));
}

std::shared_ptr<CNNInstanceNormalizationGradient> CNNInstanceNormalizationGradient::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<CNNInstanceNormalizationGradient>(new CNNInstanceNormalizationGradient(device));
}

void CNNInstanceNormalization::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  const auto source =
      detail::codeDataSource<detail::CodedInstanceNormalizationDataSource>(coder, dataSource_);
  codeParameters(coder, *create(device(), source));
}

}  // namespace mps
