#include "mps/graph/nn_graph.hpp"

#include <algorithm>
#include <limits>

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/layer/layer_kernel.hpp"
#include "mps/core/layer/shared_copies.hpp"
#include "mps/core/types/checked_number.hpp"
#include "mps/core/types/error.hpp"
#include "mps/distributed/batch_share.hpp"
#include "mps/distributed/communicator.hpp"
#include "mps/graph/coding/graph_coding.hpp"
#include "mps/graph/compile/graph_program.hpp"
#include "mps/graph/run/graph_executor.hpp"
#include "mtl/back_ends.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace mps {

using detail::GraphProgram;

NNGraph::NNGraph(std::shared_ptr<mtl::Device> device, std::shared_ptr<GraphProgram> program)
    : Kernel(std::move(device)),
      program_(std::move(program)),
      executor_(std::make_shared<detail::GraphExecutor>(this->device(), program_)) {}

NNGraph::NNGraph(const NNGraph& other)
    : Kernel(other),
      program_(std::make_shared<GraphProgram>(*other.program_)),
      format_(other.format_),
      allocator_(other.allocator_),
      outputStateIsTemporary_(other.outputStateIsTemporary_),
      stopsAtNonFiniteValues_(other.stopsAtNonFiniteValues_),
      gradientNormLimit_(other.gradientNormLimit_) {}

NNGraph::~NNGraph() = default;

std::shared_ptr<NNGraph> NNGraph::create(const std::shared_ptr<mtl::Device>& device,
                                         const std::vector<std::shared_ptr<NNImageNode>>& resultImages,
                                         const std::vector<bool>& resultsAreNeeded) {
  if (!device) throw Error("NNGraph", "device", "null", "a device");
  return std::shared_ptr<NNGraph>(
      new NNGraph(device, detail::compileGraph(device, resultImages, resultsAreNeeded)));
}

std::shared_ptr<Kernel> NNGraph::clone() const {
  return std::shared_ptr<NNGraph>(new NNGraph(*this));
}

void NNGraph::didCopy(bool /*hasMoved*/) {
  const auto isLoss = [](const detail::ProgramStep& step) {
    return step.kernel->derivativeTraits().beginsGradients;
  };
  {
    const detail::SharedCopies copies;
    // Losses last: their scale is that of the optimisers, which data sources may have copied.
    for (const bool areLosses : {false, true})
      for (detail::ProgramStep& step : program_->steps)
        if (isLoss(step) == areLosses)
          step.kernel = std::static_pointer_cast<detail::ImageKernel>(step.kernel->copy(device()));
  }
  std::vector<NNTrainingStyle> styles;
  for (detail::ProgramStep& step : program_->steps) {
    styles.push_back(step.update ? step.update->style() : NNTrainingStyle::UpdateDeviceNone);
    if (step.forward == detail::nowhere) continue;
    // A gradient kernel has the parameters of its forward kernel.
    const detail::LayerKernel* const forward = program_->steps[step.forward].kernel->roles().layer;
    if (detail::LayerGradientKernel* const gradient = step.kernel->roles().layerGradient;
        gradient != nullptr && forward != nullptr)
      gradient->shareParameters(*forward);
  }
  createUpdates(*program_, styles);
  executor_ = std::make_shared<detail::GraphExecutor>(device(), program_);
}

void NNGraph::setOptions(KernelOptions options) {
  Kernel::setOptions(options);
  for (const detail::ProgramStep& step : program_->steps) step.kernel->setOptions(options);
  executor_->forgetRecordings();
}

const std::vector<std::shared_ptr<Handle>>& NNGraph::sourceImageHandles() const {
  return program_->sourceImageHandles;
}
const std::vector<std::shared_ptr<Handle>>& NNGraph::sourceStateHandles() const {
  return program_->sourceStateHandles;
}
const std::vector<std::shared_ptr<Handle>>& NNGraph::intermediateImageHandles() const {
  return program_->intermediateImageHandles;
}
const std::vector<std::shared_ptr<Handle>>& NNGraph::resultStateHandles() const {
  return program_->resultStateHandles;
}
std::shared_ptr<Handle> NNGraph::resultHandle() const {
  return program_->firstResultIsNeeded ? program_->images[program_->results[0]].handle : nullptr;
}
bool NNGraph::resultImageIsNeeded() const {
  return program_->firstResultIsNeeded;
}

void NNGraph::setDestinationImageAllocator(std::shared_ptr<ImageAllocator> allocator) {
  if (!allocator) throw Error(describe(), "destinationImageAllocator", "null", "an image allocator");
  allocator_ = std::move(allocator);
}

void NNGraph::setCommunicator(std::shared_ptr<Communicator> communicator) {
  if (communicator && communicator->device() != device())
    throw Error(describe(), "communicator", "of " + mtl::nameForMessages(*communicator->device()),
                "one of " + mtl::nameForMessages(*device()));
  communicator_ = std::move(communicator);
}

void NNGraph::setBatchShare(std::size_t firstImage, std::size_t totalCount) {
  if (firstImage > totalCount || totalCount == 0)
    throw Error(describe(), "firstImage and totalCount",
                std::to_string(firstImage) + " and " + std::to_string(totalCount), "a place in a batch");
  firstImage_ = firstImage;
  totalCount_ = totalCount;
}

detail::BatchShare NNGraph::batchShare(std::size_t imageCount) const {
  detail::BatchShare share{firstImage_, imageCount, totalCount_};
  if (totalCount_ == 0) {
    share.firstImage = imageCount * static_cast<std::size_t>(communicator_->rank());
    share.totalCount = imageCount * static_cast<std::size_t>(communicator_->size());
  }
  if (share.totalCount == 0 || imageCount > share.totalCount - share.firstImage)
    throw Error(
        describe(), "sourceImages",
        std::to_string(imageCount) + " images from number " + std::to_string(share.firstImage) + " on",
        "a part of the " + std::to_string(share.totalCount) + " of all ranks, as setBatchShare said");
  if (synchronizesBatchNormalization_) share.statistics = communicator_;
  return share;
}

void NNGraph::encodeAgreement(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const {
  executor_->encodeAgreement(*this, commandBuffer);
}

ImageBatch NNGraph::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                ArrayRef<ImageBatch> sourceImages, ArrayRef<StateBatch> sourceStates,
                                std::vector<ImageBatch>* intermediateImages,
                                std::vector<StateBatch>* destinationStates) {
  return executor_->encode(*this, commandBuffer, sourceImages, sourceStates, intermediateImages,
                           destinationStates, false);
}

detail::GraphTrace NNGraph::trace(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                  ArrayRef<ImageBatch> sourceImages, ArrayRef<StateBatch> sourceStates) {
  const std::vector<std::uint64_t> counters = randomCounters();
  detail::GraphTrace trace = executor_->trace(*this, commandBuffer, sourceImages, sourceStates);
  setRandomCounters(counters);
  return trace;
}

std::shared_ptr<Image> NNGraph::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                       ArrayRef<std::shared_ptr<Image>> sourceImages,
                                       ArrayRef<std::shared_ptr<State>> sourceStates,
                                       std::vector<std::shared_ptr<Image>>* intermediateImages,
                                       std::vector<std::shared_ptr<State>>* destinationStates) {
  const auto holdsSeveral = [](const auto& image) { return image && image->numberOfImages() > 1; };
  const bool isStack = std::ranges::any_of(sourceImages, holdsSeveral);
  if (isStack && !(sourceStates.empty() && resultStateHandles().empty()))
    throw Error(describe(), "sourceImages", (*std::ranges::find_if(sourceImages, holdsSeveral))->describe(),
                "images with numberOfImages 1: the graph takes or exports states, one for each image");
  std::vector<ImageBatch> images;
  std::vector<StateBatch> states;
  for (const auto& image : sourceImages)
    images.push_back(isStack && image ? image->batchRepresentation() : ImageBatch{image});
  for (const auto& state : sourceStates) states.push_back(StateBatch{state});
  std::vector<ImageBatch> intermediateBatches;
  std::vector<StateBatch> stateBatches;
  const ImageBatch result =
      executor_->encode(*this, commandBuffer, images, states, &intermediateBatches, &stateBatches, isStack);
  if (isStack)
    for (const auto& image : sourceImages) ImageBatchIncrementReadCount(ImageBatch{image}, -1);
  if (intermediateImages != nullptr)
    for (const ImageBatch& batch : intermediateBatches) intermediateImages->push_back(batch[0]);
  if (destinationStates != nullptr)
    for (const StateBatch& batch : stateBatches) destinationStates->push_back(batch[0]);
  return result.empty() ? nullptr : result[0];
}

std::shared_ptr<Image> NNGraph::executeAsync(ArrayRef<std::shared_ptr<Image>> sourceImages,
                                             NNGraphCompletionHandler handler) {
  if (!handler) throw Error(describe(), "completionHandler", "empty", "a function");
  if (!resultImageIsNeeded())
    throw Error(describe(), "resultImageIsNeeded", "false",
                "true: the handler gets the result, or a message");
  if (!queue_) queue_ = device()->newCommandQueue();
  const auto commandBuffer = queue_->commandBuffer();
  auto result = encode(commandBuffer, sourceImages);
  if (result) result->synchronize(commandBuffer);
  commandBuffer->addCompletedHandler([result, handler = std::move(handler)](mtl::CommandBuffer& completed) {
    const auto error = completed.error();
    handler(error ? nullptr : result, error ? error->message : std::string());
  });
  commandBuffer->commit();
  return result;
}

void NNGraph::reloadFromDataSources() {
  std::vector<std::function<void()>> putBack;
  try {
    for (const detail::ProgramStep& step : program_->steps) {
      detail::LayerKernel* const layer = step.kernel->roles().layer;
      if (layer == nullptr) continue;
      putBack.push_back(layer->parameterKeeper());
      layer->reloadFromDataSource();
    }
  } catch (...) {
    for (const auto& keeper : putBack) keeper();
    throw;
  }
}

std::vector<std::uint64_t> NNGraph::randomCounters() const {
  std::vector<std::uint64_t> counters;
  for (const detail::ProgramStep& step : program_->steps)
    if (const detail::RandomKernel* const random = step.kernel->roles().random)
      counters.push_back(random->encodeCount());
  return counters;
}

void NNGraph::setRandomCounters(std::span<const std::uint64_t> counters) {
  if (counters.size() != randomCounters().size())
    throw Error(describe(), "counters", std::to_string(counters.size()),
                std::to_string(randomCounters().size()));
  for (const std::uint64_t counter : counters)
    if (counter > std::numeric_limits<std::uint32_t>::max())
      throw Error(describe(), "counters", std::to_string(counter), "less than 2^32");
  std::size_t next = 0;
  for (const detail::ProgramStep& step : program_->steps)
    if (detail::RandomKernel* const random = step.kernel->roles().random)
      random->setEncodeCount(static_cast<std::uint32_t>(counters[next++]));
}

std::size_t NNGraph::readCountForSourceImage(std::size_t index) const {
  if (index >= program_->sourceImages.size())
    throw Error(describe(), "index", std::to_string(index),
                "less than " + std::to_string(program_->sourceImages.size()));
  return 1;
}

std::size_t NNGraph::readCountForSourceState(std::size_t index) const {
  if (index >= program_->sourceStates.size())
    throw Error(describe(), "index", std::to_string(index),
                "less than " + std::to_string(program_->sourceStates.size()));
  return 1;
}

void NNGraph::setGradientNormLimit(float limit) {
  gradientNormLimit_ = detail::checkedNotNegative(describe(), "gradientNormLimit", limit);
}

std::size_t NNGraph::plannedTemporaryBytes() const {
  const detail::GraphLayout* layout = executor_->lastLayout();
  return layout == nullptr ? 0 : layout->plan.peakBytes;
}

NNGraph::NNGraph(std::shared_ptr<mtl::Device> device, detail::Decoding decoding)
    : Kernel(std::move(device), decoding), program_(std::make_shared<GraphProgram>()) {}

std::shared_ptr<NNGraph> NNGraph::decode(Coder& coder, const std::shared_ptr<mtl::Device>& device) {
  detail::addGraphDecoders(coder);
  return detail::decodeAs<NNGraph>(coder, device);
}

void NNGraph::codeProperties(Coder& coder) {
  Kernel::codeProperties(coder);
  coder.codeEnumeration("format", format_, ImageFeatureChannelFormat::Float32);
  coder.code("destinationImageAllocator", allocator_);
  coder.code("outputStateIsTemporary", outputStateIsTemporary_);
  coder.code("stopsAtNonFiniteValues", stopsAtNonFiniteValues_);
  // Earlier versions have written none.
  if (!coder.isDecoding() || coder.contains("gradientNormLimit"))
    coder.code("gradientNormLimit", gradientNormLimit_);
  setGradientNormLimit(gradientNormLimit_);
  detail::codeProgram(coder, *program_);
  if (coder.isDecoding()) executor_ = std::make_shared<detail::GraphExecutor>(device(), program_);
}

}  // namespace mps
