#include "mps/core/call.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "mps/core/error.hpp"
#include "mps/core/tensor_copy.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

std::int64_t elementSize(const TensorShape& shape) {
  return static_cast<std::int64_t>(bytesPerChannel(shape.format));
}

/// The distance between the images of a list, in bytes, when it is the same everywhere and not negative.
std::optional<std::int64_t> evenSpacing(std::span<const std::shared_ptr<Image>> images) {
  if (images.size() == 1) return 0;
  const auto distance = [](const Image& a, const Image& b) {
    return static_cast<std::int64_t>(b.byteOffset()) - static_cast<std::int64_t>(a.byteOffset());
  };
  const std::int64_t spacing = distance(*images[0], *images[1]);
  if (spacing < 0) return std::nullopt;
  for (std::size_t i = 1; i < images.size(); ++i) {
    if (images[i]->storage() != images[0]->storage() || distance(*images[i - 1], *images[i]) != spacing)
      return std::nullopt;
  }
  return spacing;
}

/// Appends one copy (or fill) command.
void recordCopy(mtl::CommandBuffer& commandBuffer, const std::string& label, TensorCopyProblem problem,
                const TensorView* source, const TensorView& destination) {
  if (source != nullptr) problem.source = source->shape;
  problem.destination = destination.shape;
  const ChosenPlan chosen = planFor(*commandBuffer.device(), tensorCopyBackEnds, problem);
  Operands operands;
  operands.source = source != nullptr ? source->address() : nullptr;
  operands.destination = destination.address();
  mtl::Command command;
  command.label = label;
  command.run = [plan = chosen.plan, operands](mtl::Stream& stream) { plan->run(stream, operands); };
  if (source != nullptr) command.reads.push_back(source->memory);
  command.writes.push_back(destination.memory);
  commandBuffer.append(std::move(command));
}

/// Keeps permanent memory alive with the command; temporary memory belongs to the heap, which the queue keeps.
void retain(mtl::Command& command, const BatchOperand& operand, const std::shared_ptr<mtl::Memory>& memory) {
  if (operand.isRetained()) command.retained.push_back(memory);
}

std::byte* shifted(const TensorView& view, const mtl::Origin& origin) {
  return view.address() + view.shape.offset(0, static_cast<std::int64_t>(origin.y),
                                            static_cast<std::int64_t>(origin.x), 0) *
                              elementSize(view.shape);
}

std::string imageList(const ImageBatch& images, std::size_t i) {
  return images.count() == 1 ? std::string() : "image " + std::to_string(i) + " of the batch, ";
}

/// Whether two ranges of memory of one storage share an element.
bool overlap(const BatchOperand& a, const BatchOperand& b) {
  const TensorShape x = a.shape();
  const TensorShape y = b.shape();
  const auto begin = [](const BatchOperand& o) { return static_cast<std::int64_t>(o.byteOffset()); };
  const auto end = [&](const BatchOperand& o, const TensorShape& s) {
    return begin(o) + (s.offset(s.images - 1, s.height - 1, s.width - 1, s.channels - 1) + 1) * elementSize(s);
  };
  if (end(a, x) <= begin(b) || end(b, y) <= begin(a)) return false;
  if (x.pixelStride != y.pixelStride || x.format != y.format) return true;
  const std::int64_t firstA = begin(a) / elementSize(x) % x.pixelStride;
  const std::int64_t firstB = begin(b) / elementSize(y) % y.pixelStride;
  return firstA < firstB + y.channels && firstB < firstA + x.channels;
}

}  // namespace

BatchOperand::BatchOperand(const ImageBatch& batch) : batch_(batch) {
  if (const auto block = batch.blockStorage()) {
    storage_ = block;
    shape_ = block->shape();
    baseByteOffset_ = block->byteOffset() + batch.firstInBlock() * static_cast<std::size_t>(shape_.imageStride * elementSize(shape_));
    shape_.images = static_cast<std::int64_t>(batch.count());
    return;
  }
  const auto images = batch.looseImages();
  shape_ = images.front()->shape();
  const auto spacing = evenSpacing(images);
  loose_ = !spacing.has_value();
  if (loose_) return;
  storage_ = images.front()->storage();
  baseByteOffset_ = images.front()->byteOffset();
  if (images.size() > 1) {
    shape_.images = static_cast<std::int64_t>(images.size());
    shape_.imageStride = *spacing / elementSize(shape_);
  }
}

BatchOperand BatchOperand::sizeOnly(const TensorShape& shape) {
  BatchOperand operand;
  operand.shape_ = shape;
  return operand;
}

BatchOperand BatchOperand::ofMemory(const TensorShape& shape, std::shared_ptr<mtl::Memory> memory,
                                    std::size_t byteOffset) {
  BatchOperand operand = ofScratch(shape, std::move(memory));
  operand.memoryIsPermanent_ = true;
  operand.baseByteOffset_ = byteOffset;
  return operand;
}

BatchOperand BatchOperand::ofScratch(const TensorShape& shape, std::shared_ptr<mtl::Memory> memory) {
  BatchOperand operand;
  operand.shape_ = shape;
  operand.scratch_ = std::move(memory);
  return operand;
}

TensorShape BatchOperand::shape() const {
  if (!loose_) return shape_;
  return TensorShape::dense(static_cast<std::int64_t>(batch_.count()), shape_.height, shape_.width,
                            shape_.channels, shape_.format);
}

void BatchOperand::selectChannels(std::int64_t first, std::int64_t count) {
  elementOffset_ += first;
  shape_.channels = count;
}

void BatchOperand::selectRegion(std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height) {
  elementOffset_ += y * shape_.rowStride + x * shape_.pixelStride;
  shape_.width = width;
  shape_.height = height;
}

void BatchOperand::selectImages(std::int64_t first, std::int64_t count) {
  elementOffset_ += first * shape_.imageStride;
  shape_.images = count;
}

std::size_t BatchOperand::byteOffset() const {
  return baseByteOffset_ + static_cast<std::size_t>(elementOffset_ * elementSize(shape_));
}

bool BatchOperand::coversStorage() const {
  return shape_.elements() == storage_->shape().elements();
}

TensorView BatchOperand::view(bool forWriting) const {
  if (scratch_) return {shape_, scratch_, byteOffset()};
  return {shape_, forWriting ? storage_->memoryForWriting(coversStorage()) : storage_->memoryForReading(),
          byteOffset()};
}

std::vector<TensorView> BatchOperand::looseViews(bool forWriting) const {
  std::vector<TensorView> views;
  for (const auto& image : batch_.looseImages()) {
    TensorView view;
    view.shape = shape_;
    view.shape.images = 1;
    const bool whole = shape_.elements() == image->storage()->shape().elements();
    view.memory = forWriting ? image->storage()->memoryForWriting(whole) : image->storage()->memoryForReading();
    view.byteOffset = image->byteOffset() + static_cast<std::size_t>(elementOffset_ * elementSize(shape_));
    views.push_back(std::move(view));
  }
  return views;
}

TensorView gather(mtl::CommandBuffer& commandBuffer, const std::string& label, const BatchOperand& operand) {
  if (!operand.isLoose()) return operand.view(false);
  TensorView gathered;
  gathered.shape = operand.shape();
  gathered.memory = commandBuffer.heap()->allocate(static_cast<std::size_t>(gathered.shape.bytes()));
  const auto images = operand.looseViews(false);
  TensorView part = gathered;
  part.shape.images = 1;
  for (std::size_t i = 0; i < images.size(); ++i) {
    part.byteOffset = i * static_cast<std::size_t>(gathered.shape.imageStride * elementSize(gathered.shape));
    recordCopy(commandBuffer, label, {}, &images[i], part);
  }
  return gathered;
}

void scatter(mtl::CommandBuffer& commandBuffer, const std::string& label, const TensorView& tensor,
             const BatchOperand& operand) {
  const auto images = operand.looseViews(true);
  TensorView part = tensor;
  part.shape.images = 1;
  for (std::size_t i = 0; i < images.size(); ++i) {
    part.byteOffset =
        tensor.byteOffset + i * static_cast<std::size_t>(tensor.shape.imageStride * elementSize(tensor.shape));
    recordCopy(commandBuffer, label, {}, &part, images[i]);
  }
}

void recordCall(mtl::CommandBuffer& commandBuffer, const std::string& label, const PreparedCall& prepared,
                const CallOperands& call) {
  Operands operands;
  operands.scalars = prepared.scalars;
  operands.accumulate = prepared.accumulate;
  mtl::Command command;
  command.label = label;
  std::vector<std::shared_ptr<mtl::Memory>> temporaries;  // hold heap blocks until the command stands

  const auto bindInput = [&](const BatchOperand* operand, const mtl::Origin& origin) -> const std::byte* {
    if (operand == nullptr) return nullptr;
    const TensorView view = gather(commandBuffer, label, *operand);
    command.reads.push_back(view.memory);
    if (operand->isLoose())
      temporaries.push_back(view.memory);
    else
      retain(command, *operand, view.memory);
    return shifted(view, origin);
  };
  if (prepared.readsSource) operands.source = bindInput(call.source, prepared.sourceOrigin);
  operands.secondary = bindInput(call.secondary, {});
  if (prepared.sourceIsSecondary) operands.secondary = std::exchange(operands.source, nullptr);
  if (prepared.readsGradient) operands.gradient = bindInput(call.gradient, prepared.gradientOrigin);

  TensorView destination;
  bool scatters = false;
  if (call.destination != nullptr && prepared.writesDestination) {
    if (call.destination->isLoose()) {
      scatters = true;
      destination.shape = call.destination->shape();
      destination.memory = commandBuffer.heap()->allocate(static_cast<std::size_t>(destination.shape.bytes()));
      temporaries.push_back(destination.memory);
    } else {
      destination = call.destination->view(true);
      retain(command, *call.destination, destination.memory);
    }
    if (prepared.zeroDestinationFirst) {
      TensorCopyProblem zeros;
      zeros.fillWithZeros = true;
      recordCopy(commandBuffer, label, zeros, nullptr, destination);
    }
    operands.destination = shifted(destination, prepared.destinationOrigin);
    command.writes.push_back(destination.memory);
  }
  if (call.saved) {
    operands.saved = call.saved->address() + call.savedByteOffset;
    command.retained.push_back(call.saved);
  }
  for (std::size_t i = 0; i < prepared.parameters.size(); ++i) {
    const auto& parameter = prepared.parameters[i];
    if (!parameter.memory) continue;
    operands.parameters[i] = parameter.memory->address() + parameter.byteOffset;
    command.retained.push_back(parameter.memory);
    (parameter.isWritten ? command.writes : command.reads).push_back(parameter.memory);
  }
  if (const std::size_t bytes = prepared.plan.plan->scratchBytes(); bytes > 0) {
    temporaries.push_back(commandBuffer.heap()->allocate(bytes));
    operands.scratch = temporaries.back()->address();
  }
  command.run = [plan = prepared.plan.plan, operands](mtl::Stream& stream) { plan->run(stream, operands); };
  commandBuffer.append(std::move(command));

  if (scatters) scatter(commandBuffer, label, destination, *call.destination);
}

void recordMemoryCopy(mtl::CommandBuffer& commandBuffer, const std::string& label,
                      const std::shared_ptr<mtl::Memory>& source, std::size_t sourceOffset,
                      const std::shared_ptr<mtl::Memory>& destination, std::size_t destinationOffset,
                      std::size_t bytes) {
  // Rows of a page or so, so that the copy is shared among threads.
  constexpr std::size_t rowBytes = 16384;
  const auto copy = [&](std::size_t offset, std::size_t rows, std::size_t width) {
    const auto shape = TensorShape::dense(1, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(width), 1,
                                          ImageFeatureChannelFormat::Unorm8);
    const TensorView from{shape, source, sourceOffset + offset};
    recordCopy(commandBuffer, label, {}, &from, {shape, destination, destinationOffset + offset});
  };
  const std::size_t rows = bytes / rowBytes;
  if (rows > 0) copy(0, rows, rowBytes);
  if (bytes % rowBytes > 0) copy(rows * rowBytes, 1, bytes % rowBytes);
  mtl::Command keepAlive;
  keepAlive.label = label;
  keepAlive.run = [](mtl::Stream&) {};
  keepAlive.retained = {source, destination};
  commandBuffer.append(std::move(keepAlive));
}

void recordZeros(mtl::CommandBuffer& commandBuffer, const std::string& label, const BatchOperand& destination) {
  TensorCopyProblem zeros;
  zeros.fillWithZeros = true;
  if (!destination.isLoose()) return recordCopy(commandBuffer, label, zeros, nullptr, destination.view(true));
  for (const TensorView& view : destination.looseViews(true)) recordCopy(commandBuffer, label, zeros, nullptr, view);
}

BatchOperand recordEdgeCopy(mtl::CommandBuffer& commandBuffer, const std::string& label, const BatchOperand& source,
                            std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height,
                            ImageEdgeMode edgeMode) {
  const TensorView from = gather(commandBuffer, label, source);
  const auto shape = TensorShape::dense(from.shape.images, height, width, from.shape.channels, from.shape.format);
  auto memory = commandBuffer.heap()->allocate(static_cast<std::size_t>(shape.bytes()));
  TensorCopyProblem problem;
  problem.clampEdges = edgeMode == ImageEdgeMode::Clamp;
  problem.offsetX = x;
  problem.offsetY = y;
  recordCopy(commandBuffer, label, problem, &from, {shape, memory, 0});
  return BatchOperand::ofScratch(shape, std::move(memory));
}

void checkCommandBuffer(const Kernel& kernel, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  if (!commandBuffer) throw Error(kernel.describe(), "commandBuffer", "null", "a command buffer");
  if (commandBuffer->device() != kernel.device())
    throw Error(kernel.describe(), "commandBuffer", "of device " + commandBuffer->device()->name(),
                "of the kernel's device " + kernel.device()->name());
  commandBuffer->checkOpen();
}

namespace {

void checkImages(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                 const ImageBatch& images) {
  const auto checkStorage = [&](ImageStorage& storage, std::size_t i) {
    if (storage.device() != kernel.device())
      throw Error(kernel.describe(), argument, imageList(images, i) + "of another device " + storage.device()->name(),
                  "of the kernel's device " + kernel.device()->name());
    if (storage.isTemporary() && !storage.belongsTo(commandBuffer))
      throw Error(kernel.describe(), argument, imageList(images, i) + "a temporary image of another command buffer",
                  "a temporary image of this one");
  };
  const auto released = [&](const ImageStorage& storage, std::size_t i) {
    const auto clause = [](const char* verb, const std::string& who) {
      return who.empty() ? std::string() : std::string(", ") + verb + " by " + who;
    };
    throw Error(kernel.describe(), argument,
                imageList(images, i) + "a temporary image whose readCount is 0" +
                    clause("written", storage.producer()) + clause("last read", storage.lastReader()),
                "one that still has reads left; raise its readCount before the earlier read");
  };
  if (const auto block = images.blockStorage()) {
    checkStorage(*block, 0);
    if (!block->isTemporary()) return;
    for (std::size_t i = 0; i < images.count(); ++i)
      if (block->readCount(images.firstInBlock() + i) == 0) released(*block, i);
    return;
  }
  const auto loose = images.looseImages();
  for (std::size_t i = 0; i < loose.size(); ++i) {
    checkStorage(*loose[i]->storage(), i);
    if (const auto* temporary = dynamic_cast<const TemporaryImage*>(loose[i].get());
        temporary != nullptr && temporary->readCount() == 0)
      released(*loose[i]->storage(), i);
    if (!(loose[i]->descriptor() == loose[0]->descriptor()))
      throw Error(kernel.describe(), argument, imageList(images, i) + loose[i]->describe(),
                  "like the first, " + loose[0]->describe());
  }
}

}  // namespace

void checkSources(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                  const ImageBatch& images) {
  checkImages(kernel, argument, commandBuffer, images);
  const auto checkContent = [&](const ImageStorage& storage) {
    if (!storage.isAllocated()) return;
    if (const auto failure = const_cast<ImageStorage&>(storage).memory()->failure(); !failure.empty())
      throw Error(kernel.describe() + ": " + argument + " is invalid because an earlier command failed: " + failure);
  };
  if (const auto block = images.blockStorage()) return checkContent(*block);
  for (const auto& image : images.looseImages()) checkContent(*image->storage());
}

void checkDestinations(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                       const ImageBatch& images) {
  checkImages(kernel, argument, commandBuffer, images);
  const ImageFeatureChannelFormat format = images.descriptor().channelFormat();
  if (format != ImageFeatureChannelFormat::Float16 && format != ImageFeatureChannelFormat::Float32)
    throw Error(kernel.describe(), argument, name(format), "float16 or float32; unorm images are sources only");
}

void checkNoAlias(const Kernel& kernel, const char* sourceArgument, const ImageBatch& sources,
                  const ImageBatch& destinations) {
  const auto alias = [&] {
    throw Error(kernel.describe(), "destination", std::string("sharing memory with ") + sourceArgument,
                "memory of its own");
  };
  const auto parts = [](const ImageBatch& batch) {
    std::vector<BatchOperand> operands;
    const BatchOperand whole(batch);
    if (!whole.isLoose()) return std::vector<BatchOperand>{whole};
    for (const auto& image : batch.looseImages()) operands.emplace_back(ImageBatch::of(image));
    return operands;
  };
  const auto to = parts(destinations);
  std::unordered_set<const ImageStorage*> written;
  for (const auto& operand : to) written.insert(operand.storage().get());
  for (const auto& from : parts(sources)) {
    if (!written.contains(from.storage().get())) continue;
    for (const auto& operand : to)
      if (operand.storage() == from.storage() && overlap(from, operand)) alias();
  }
}

void checkStates(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                 const StateBatch& states, std::size_t imageCount) {
  checkCount(kernel, argument, states.count(), imageCount);
  for (const auto& state : states.distinct()) {
    if (state->device() && state->device() != kernel.device())
      throw Error(kernel.describe(), argument, "a state of device " + state->device()->name(),
                  "of the kernel's device " + kernel.device()->name());
    if (!state->isTemporary()) continue;
    if (!state->belongsTo(commandBuffer))
      throw Error(kernel.describe(), argument, "a temporary state of another command buffer", "one of this buffer");
    if (state->readCount() == 0)
      throw Error(kernel.describe(), argument,
                  "a temporary state" + (state->label().empty() ? std::string() : " \"" + state->label() + "\"") +
                      " whose readCount is 0",
                  "one that still has reads left");
  }
}

void checkCount(const Kernel& kernel, const char* argument, std::size_t found, std::size_t expected) {
  if (found != expected)
    throw Error(kernel.describe(), argument, "a batch of " + std::to_string(found), std::to_string(expected));
}

void checkChannelOffset(const Kernel& kernel, const char* property, std::size_t offset) {
  if (offset % 4 != 0) throw Error(kernel.describe(), property, std::to_string(offset), "a multiple of 4");
}

void checkNotStacked(const Kernel& kernel, const char* argument, const ImageBatch& images) {
  if (images.blockStorage()) return;
  for (const auto& image : images.looseImages())
    if (image->numberOfImages() != 1)
      throw Error(kernel.describe(), argument, "a stack, " + image->describe(), "images with numberOfImages 1");
}

ImageBatch allocateImages(const Kernel& kernel, ImageAllocator& allocator,
                          const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                          const ImageDescriptor& descriptor, std::size_t count) {
  ImageBatch images = allocator.imageBatch(commandBuffer, descriptor, kernel, count);
  if (images.count() != count)
    throw Error(kernel.describe(), "destinationImageAllocator", std::to_string(images.count()) + " images",
                std::to_string(count));
  const ImageDescriptor& made = images.descriptor();
  if (made.width() != descriptor.width() || made.height() != descriptor.height() ||
      made.featureChannels() != descriptor.featureChannels())
    throw Error(kernel.describe(), "destinationImageAllocator", made.describe(), descriptor.describe());
  return images;
}

void consumeRead(const ImageBatch& images, const std::string& reader) {
  if (const auto block = images.blockStorage()) {
    if (block->isTemporary()) block->setLastReader(reader);
  } else {
    for (const auto& image : images.looseImages())
      if (image->isTemporary()) image->storage()->setLastReader(reader);
  }
  ImageBatchIncrementReadCount(images, -1);
}

void consumeRead(const StateBatch& states) { StateBatchIncrementReadCount(states, -1); }

}  // namespace mps::detail
