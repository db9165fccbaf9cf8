#include "mps/distributed/communicator.hpp"

#include <algorithm>
#include <utility>

#include "mps/core/array/vector.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/image/writable.hpp"
#include "mps/core/kernel/batch_operand.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/layer/batch_normalization_state.hpp"
#include "mps/core/types/error.hpp"
#include "mps/distributed/collective.hpp"
#include "mtl/back_ends.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {

using detail::Collective;
using detail::CollectiveEngine;
using detail::CollectiveKind;
using detail::CollectiveType;
using detail::CollectiveWork;
using detail::PendingCollective;

namespace {

constexpr const char* communicatorName = "Communicator";

CollectiveType summable(const std::string& found, bool isFloat16, bool isFloat32) {
  if (isFloat16) return CollectiveType::Float16;
  if (isFloat32) return CollectiveType::Float32;
  throw Error(communicatorName, "elements", found, "float16 or float32");
}
CollectiveType summable(DataType type) {
  return summable(name(type), type == DataType::Float16, type == DataType::Float32);
}
CollectiveType summable(const ImageBatch& images) {
  const ImageFeatureChannelFormat format = images.descriptor().channelFormat();
  return summable(images.descriptor().describe(), format == ImageFeatureChannelFormat::Float16,
                  format == ImageFeatureChannelFormat::Float32);
}

Collective sumOf(CollectiveType type) {
  Collective collective;
  collective.type = type;
  return collective;
}

Collective broadcastFrom(int root) {
  Collective collective;
  collective.kind = CollectiveKind::Broadcast;
  collective.root = root;
  return collective;
}

}  // namespace

/// What the commands share; each runs on the device's thread.
class Communicator::Reduction {
 public:
  std::shared_ptr<const CollectiveWork> work;
  std::unique_ptr<PendingCollective> pending;
  std::vector<Part> parts;
};

Communicator::Communicator(std::shared_ptr<mtl::Device> device,
                           std::shared_ptr<detail::CollectiveEngine> engine)
    : device_(std::move(device)),
      engine_(std::move(engine)),
      rank_(engine_ ? engine_->rank() : 0),
      size_(engine_ ? engine_->size() : 1) {}

Communicator::~Communicator() = default;

std::string Communicator::engineName() const {
  return engine_ ? engine_->name() : "none";
}

void Communicator::setTimeout(std::chrono::milliseconds timeout) {
  if (timeout.count() < 1)
    throw Error(communicatorName, "timeout", std::to_string(timeout.count()) + " ms", "at least 1 ms");
  if (engine_) engine_->setTimeout(timeout);
}

std::string Communicator::failure() const {
  const auto failure = engine_ ? engine_->failure() : std::nullopt;
  return failure ? failure->sentence : "";
}

std::vector<int> Communicator::missingRanks() const {
  const auto failure = engine_ ? engine_->failure() : std::nullopt;
  return failure ? failure->missing : std::vector<int>();
}

void Communicator::giveUp() {
  if (engine_) engine_->giveUp();
}

mtl::CommandBuffer& Communicator::checked(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const {
  if (!commandBuffer) throw Error(communicatorName, "commandBuffer", "null", "a command buffer");
  commandBuffer->checkOpen();
  commandBuffer->checkDevice(communicatorName, device_);
  if (commandBuffer->mayLeaveOut())
    throw Error(communicatorName, "commandBuffer", "one with a predicate",
                "one without: a rank that leaves an operation out stops the others");
  return *commandBuffer;
}

Communicator::Part Communicator::partOf(const char* argument,
                                        const std::shared_ptr<mtl::Buffer>& buffer) const {
  if (!buffer) throw Error(communicatorName, argument, "null", "a buffer");
  if (buffer->device() != device_)
    throw Error(communicatorName, argument, "of " + mtl::nameForMessages(*buffer->device()),
                "one of " + mtl::nameForMessages(*device_));
  return {buffer->memory(), 0, buffer->length()};
}

std::vector<Communicator::Part> Communicator::partsOf(const std::shared_ptr<Vector>& vector) const {
  if (!vector) throw Error(communicatorName, "vector", "null", "a vector");
  const Part whole = partOf("vector", vector->data());
  std::vector<Part> parts;
  for (std::size_t i = 0; i < vector->vectors(); ++i)
    parts.push_back({whole.memory, vector->offset() + i * vector->vectorBytes(),
                     vector->length() * sizeInBytes(vector->dataType())});
  return parts;
}

std::vector<Communicator::Part> Communicator::partsOf(const std::shared_ptr<State>& state) const {
  if (!state) throw Error(communicatorName, "state", "null", "a state");
  std::vector<Part> parts;
  if (auto* normalization = dynamic_cast<CNNBatchNormalizationState*>(state.get())) {
    parts.push_back(partOf("state", normalization->gammaGradient()));
    parts.push_back(partOf("state", normalization->betaGradient()));
    return parts;
  }
  for (std::size_t i = 0; i < state->resourceCount(); ++i)
    parts.push_back(partOf("state", state->resource(i)));
  return parts;
}

void Communicator::checkRoot(int root) const {
  if (root < 0 || root >= size_)
    throw Error(communicatorName, "root", std::to_string(root), "0 to " + std::to_string(size_ - 1));
}

void Communicator::record(mtl::CommandBuffer& commandBuffer, Collective collective,
                          const std::vector<Part>& parts, const Part* source) const {
  if (!engine_) return;
  mtl::Command command;
  for (const Part& part : parts) {
    detail::checkWritable(communicatorName, "result", *part.memory);
    collective.arrays.push_back(
        {part.memory->address() + part.byteOffset, part.bytes / detail::sizeOf(collective.type)});
    const mtl::ContentMark mark(*part.memory, {part.byteOffset, part.bytes});
    if (collective.kind != CollectiveKind::AllGather) command.reads.push_back(mark);
    command.writes.push_back(mark);
    command.retained.push_back(part.memory);
  }
  if (source != nullptr) {
    collective.source = source->memory->address() + source->byteOffset;
    command.reads.emplace_back(*source->memory, mtl::ByteRegion(source->byteOffset, source->bytes));
    command.retained.push_back(source->memory);
  }
  command.label = communicatorName;
  const auto work = CollectiveEngine::workOf(engine_, std::move(collective));
  command.replay.work = work;
  command.run = [work](mtl::Stream& stream) {
    work->engine->start(stream, work->collective, false)->finish(stream);
  };
  commandBuffer.append(std::move(command));
}

void Communicator::recordWithImages(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                    Collective collective, const ImageBatch& images) const {
  mtl::CommandBuffer& buffer = checked(commandBuffer);
  if (images.empty()) throw Error(communicatorName, "images", "an empty batch", "at least one image");
  const detail::BatchOperand operand(images, true);
  if (!engine_) return;
  mtl::RecordingGuard guard(buffer);
  const auto partOfTensor = [](const detail::TensorView& tensor) {
    return Part{tensor.memory, tensor.byteOffset, static_cast<std::size_t>(tensor.shape.bytes())};
  };
  if (!operand.isLoose()) {
    const detail::TensorView view = operand.view(buffer, false);
    if (view.shape.isDense()) {
      record(buffer, std::move(collective), {partOfTensor(view)});
      return guard.keep();
    }
  }
  detail::TensorView dense;
  const detail::TensorShape shape = operand.shape();
  dense.shape =
      detail::TensorShape::dense(shape.images, shape.height, shape.width, shape.channels, shape.format);
  dense.memory = buffer.heap()->allocate(static_cast<std::size_t>(dense.shape.bytes()));
  detail::gatherInto(buffer, communicatorName, operand, dense);
  record(buffer, std::move(collective), {partOfTensor(dense)});
  if (operand.isLoose())
    detail::scatter(buffer, communicatorName, dense, operand);
  else
    detail::gatherInto(buffer, communicatorName, detail::BatchOperand::ofScratch(dense.shape, dense.memory),
                       operand.view(buffer, true));
  guard.keep();
}

void Communicator::allReduce(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const std::shared_ptr<mtl::Buffer>& buffer, DataType dataType) {
  record(checked(commandBuffer), sumOf(summable(dataType)), {partOf("buffer", buffer)});
}

void Communicator::allReduce(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const std::shared_ptr<Vector>& vector) {
  const std::vector<Part> parts = partsOf(vector);
  record(checked(commandBuffer), sumOf(summable(vector->dataType())), parts);
}

void Communicator::allReduce(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const std::shared_ptr<State>& state) {
  record(checked(commandBuffer), sumOf(CollectiveType::Float32), partsOf(state));
}

void Communicator::allReduce(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const ImageBatch& images) {
  recordWithImages(commandBuffer, images.empty() ? Collective{} : sumOf(summable(images)), images);
}

void Communicator::allReduceDoubles(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                    const std::shared_ptr<mtl::Buffer>& buffer) {
  record(checked(commandBuffer), sumOf(CollectiveType::Float64), {partOf("buffer", buffer)});
}

void Communicator::allGather(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const std::shared_ptr<mtl::Buffer>& own,
                             const std::shared_ptr<mtl::Buffer>& all) {
  mtl::CommandBuffer& buffer = checked(commandBuffer);
  const Part source = partOf("own", own);
  const Part destination = partOf("all", all);
  const std::size_t expected = source.bytes * static_cast<std::size_t>(size_);
  if (destination.bytes != expected)
    throw Error(
        communicatorName, "all", std::to_string(destination.bytes) + " bytes",
        std::to_string(expected) + ": " + std::to_string(size_) + " times " + std::to_string(source.bytes));
  if (engine_) {
    Collective collective;
    collective.kind = CollectiveKind::AllGather;
    record(buffer, std::move(collective), {destination}, &source);
  } else if (own != all) {
    detail::recordMemoryCopy(buffer, communicatorName, source.memory, 0, destination.memory, 0, source.bytes);
  }
}

void Communicator::broadcast(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const std::shared_ptr<mtl::Buffer>& buffer, int root) {
  checkRoot(root);
  record(checked(commandBuffer), broadcastFrom(root), {partOf("buffer", buffer)});
}

void Communicator::broadcast(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const std::shared_ptr<Vector>& vector, int root) {
  checkRoot(root);
  record(checked(commandBuffer), broadcastFrom(root), partsOf(vector));
}

void Communicator::broadcast(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const std::shared_ptr<State>& state, int root) {
  checkRoot(root);
  record(checked(commandBuffer), broadcastFrom(root), partsOf(state));
}

void Communicator::broadcast(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const ImageBatch& images, int root) {
  checkRoot(root);
  recordWithImages(commandBuffer, broadcastFrom(root), images);
}

std::shared_ptr<Communicator::Reduction> Communicator::startAllReduce(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::vector<std::shared_ptr<mtl::Buffer>>& buffers) {
  mtl::CommandBuffer& recorded = checked(commandBuffer);
  auto reduction = std::make_shared<Reduction>();
  if (!engine_) return reduction;
  Collective sum = sumOf(CollectiveType::Float32);
  mtl::Command command;
  command.label = communicatorName;
  for (const auto& buffer : buffers) {
    const Part part = partOf("buffers", buffer);
    reduction->parts.push_back(part);
    sum.arrays.push_back({part.memory->address(), part.bytes / sizeof(float)});
    command.reads.emplace_back(part.memory);
    command.writes.emplace_back(part.memory);
    command.retained.push_back(part.memory);
  }
  reduction->work = CollectiveEngine::workOf(engine_, std::move(sum));
  command.replay.work = {reduction->work, &reduction->work->begin};
  command.run = [reduction](mtl::Stream& stream) {
    reduction->pending = reduction->work->engine->start(stream, reduction->work->collective, true);
  };
  recorded.append(std::move(command));
  return reduction;
}

void Communicator::finish(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                          const std::shared_ptr<Reduction>& reduction) {
  if (!engine_) return;
  mtl::Command command;
  command.label = communicatorName;
  for (const Part& part : reduction->parts) {
    command.reads.emplace_back(part.memory);
    command.writes.emplace_back(part.memory);
    command.retained.push_back(part.memory);
  }
  command.replay.work = {reduction->work, &reduction->work->end};
  command.run = [reduction](mtl::Stream& stream) {
    const auto pending = std::move(reduction->pending);
    pending->finish(stream);
  };
  checked(commandBuffer).append(std::move(command));
}

void Communicator::recordProgress(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  if (!engine_ || !engine_->needsProgress()) return;
  mtl::Command command;
  command.label = communicatorName;
  command.run = [engine = engine_](mtl::Stream& /*stream*/) { engine->progress(); };
  checked(commandBuffer).append(std::move(command));
}

}  // namespace mps
