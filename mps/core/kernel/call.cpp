#include "mps/core/kernel/call.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "mps/core/image/writable.hpp"
#include "mps/core/plan/tensor_copy.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

/// Keeps permanent memory alive with the command; temporary memory belongs to the heap, which the queue
/// keeps.
void retain(mtl::Command& command, const TensorView& view) {
  if (view.isPermanent) command.retained.push_back(view.memory);
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
  setRun(command, chosen.plan, operands);
  if (source != nullptr) {
    command.reads.push_back(source->mark());
    retain(command, *source);
  }
  checkWritable(label, "destination", *destination.memory);
  command.writes.push_back(destination.mark());
  retain(command, destination);
  commandBuffer.append(std::move(command));
}

/// Copies bytes, or fills with zeros where the source is no block.
void recordBytes(mtl::CommandBuffer& commandBuffer, const std::string& label, const MemoryPlace& source,
                 const MemoryPlace& destination, std::size_t bytes) {
  // Rows of a page or so, so that the copy is shared among threads.
  constexpr std::size_t rowBytes = 16384;
  const auto copy = [&](std::size_t offset, std::size_t rows, std::size_t width) {
    const auto shape =
        TensorShape::dense(1, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(width), 1,
                           ImageFeatureChannelFormat::Unorm8);
    const TensorView from{shape, source.memory, source.byteOffset + offset, true};
    TensorCopyProblem problem;
    problem.fills = source.memory == nullptr;
    recordCopy(commandBuffer, label, problem, problem.fills ? nullptr : &from,
               {shape, destination.memory, destination.byteOffset + offset, true});
  };
  const std::size_t rows = bytes / rowBytes;
  if (rows > 0) copy(0, rows, rowBytes);
  if (bytes % rowBytes > 0) copy(rows * rowBytes, 1, bytes % rowBytes);
}

std::byte* shifted(const TensorView& view, const mtl::Origin& origin) {
  return view.address() +
         view.shape.offset(0, static_cast<std::int64_t>(origin.y), static_cast<std::int64_t>(origin.x), 0) *
             elementSize(view.shape);
}

}  // namespace

void checkSameChannels(const Kernel& kernel, const GradientCall& call) {
  if (call.gradient.channels == call.destination.channels &&
      call.source.channels == call.destination.channels)
    return;
  const auto count = [](const TensorShape& shape) { return std::to_string(shape.channels); };
  throw Error(kernel.describe(), "sourceGradient, sourceImage and destinationGradient",
              count(call.gradient) + ", " + count(call.source) + " and " + count(call.destination) +
                  " feature channels",
              "as many of each");
}

PreparedCall::Parameter PreparedCall::Parameter::of(const TensorView& view, bool isWritten) {
  Parameter parameter{view.memory, view.byteOffset, isWritten};
  if (view.isImage) parameter.bytes = bytesOf(view.shape, view.byteOffset);
  return parameter;
}

mtl::ContentMark PreparedCall::Parameter::mark() const {
  return bytes ? mtl::ContentMark(*memory, *bytes) : mtl::ContentMark(memory);
}

TensorView gather(mtl::CommandBuffer& commandBuffer, const std::string& label, const BatchOperand& operand) {
  if (!operand.isLoose()) return operand.view(commandBuffer, false);
  TensorView gathered;
  gathered.shape = operand.shape();
  gathered.memory = commandBuffer.heap()->allocate(static_cast<std::size_t>(gathered.shape.bytes()));
  gatherInto(commandBuffer, label, operand, gathered);
  return gathered;
}

void gatherInto(mtl::CommandBuffer& commandBuffer, const std::string& label, const BatchOperand& operand,
                const TensorView& tensor) {
  if (!operand.isLoose()) {
    const TensorView images = operand.view(commandBuffer, false);
    return recordCopy(commandBuffer, label, {}, &images, tensor);
  }
  const auto images = operand.looseViews(commandBuffer, false);
  TensorView part = tensor;
  part.shape.images = 1;
  for (std::size_t i = 0; i < images.size(); ++i) {
    part.byteOffset = tensor.byteOffset +
                      i * static_cast<std::size_t>(tensor.shape.imageStride * elementSize(tensor.shape));
    recordCopy(commandBuffer, label, {}, &images[i], part);
  }
}

void scatter(mtl::CommandBuffer& commandBuffer, const std::string& label, const TensorView& tensor,
             const BatchOperand& operand) {
  const auto images = operand.looseViews(commandBuffer, true);
  TensorView part = tensor;
  part.shape.images = 1;
  for (std::size_t i = 0; i < images.size(); ++i) {
    part.byteOffset = tensor.byteOffset +
                      i * static_cast<std::size_t>(tensor.shape.imageStride * elementSize(tensor.shape));
    recordCopy(commandBuffer, label, {}, &part, images[i]);
  }
}

namespace {
thread_local const CallObserver::Function* callObserver = nullptr;
}  // namespace

CallObserver::CallObserver(Function function) : function_(std::move(function)), previous_(callObserver) {
  callObserver = &function_;
}

CallObserver::~CallObserver() {
  callObserver = previous_;
}

bool CallObserver::isActive() {
  return callObserver != nullptr;
}

void setRun(mtl::Command& command, std::shared_ptr<const Plan> plan, const Operands& operands) {
  if (!plan->readsResults()) {
    command.replay.work = plan;
    auto number = command.replay.numbers.begin();
    const auto add = [&](const std::byte* address) { *number++ = reinterpret_cast<std::uintptr_t>(address); };
    add(operands.source);
    add(operands.secondary);
    add(operands.gradient);
    add(operands.destination);
    add(operands.saved);
    add(operands.scratch);
    for (const std::byte* parameter : operands.parameters) add(parameter);
    for (const double scalar : operands.scalars) *number++ = std::bit_cast<std::uint64_t>(scalar);
    *number = operands.accumulate ? 1 : 0;
  }
  command.run = [plan = std::move(plan), operands](mtl::Stream& stream) { plan->run(stream, operands); };
}

void recordCall(mtl::CommandBuffer& commandBuffer, const std::string& label, const PreparedCall& prepared,
                const CallOperands& call) {
  if (callObserver != nullptr) (*callObserver)(prepared, call);
  Operands operands;
  operands.scalars = prepared.scalars;
  operands.accumulate = prepared.accumulate;
  mtl::Command command;
  command.label = label;
  command.operations = prepared.operations;
  std::vector<std::shared_ptr<mtl::Memory>> temporaries;  // hold heap blocks until the command stands
  // First what is most likely to fail: nothing has changed by then.
  if (const std::size_t bytes = prepared.plan.plan->scratchBytes(); bytes > 0) {
    temporaries.push_back(commandBuffer.heap()->allocate(bytes));
    operands.scratch = temporaries.back()->address();
  }

  const auto bindInput = [&](const BatchOperand* operand, const mtl::Origin& origin) -> const std::byte* {
    if (operand == nullptr) return nullptr;
    const TensorView view = gather(commandBuffer, label, *operand);
    command.reads.push_back(view.mark());
    retain(command, view);
    temporaries.push_back(view.memory);
    return shifted(view, origin);
  };
  if (prepared.readsSource) operands.source = bindInput(call.source, prepared.sourceOrigin);
  operands.secondary = bindInput(call.secondary, {});
  if (prepared.sourceIsSecondary) operands.secondary = std::exchange(operands.source, nullptr);
  if (prepared.readsGradient) operands.gradient = bindInput(call.gradient, prepared.gradientOrigin);
  if (prepared.exchangesSourceAndGradient) std::swap(operands.source, operands.gradient);

  const auto bindOutput = [&](const BatchOperand& operand) {
    TensorView view;
    if (operand.isLoose()) {
      view.shape = operand.shape();
      view.memory = commandBuffer.heap()->allocate(static_cast<std::size_t>(view.shape.bytes()));
      temporaries.push_back(view.memory);
    } else {
      view = operand.view(commandBuffer, true);
      checkWritable(label, "destination", *view.memory);
      retain(command, view);
    }
    command.writes.push_back(view.mark());
    return view;
  };
  TensorView destination;
  const bool writes = call.destination != nullptr && prepared.writesDestination;
  if (writes) {
    destination = bindOutput(*call.destination);
    if (prepared.zeroDestinationFirst) {
      TensorCopyProblem zeros;
      zeros.fills = true;
      recordCopy(commandBuffer, label, zeros, nullptr, destination);
    }
    operands.destination = shifted(destination, prepared.destinationOrigin);
  }
  TensorView second;
  if (call.secondDestination != nullptr) {
    second = bindOutput(*call.secondDestination);
    operands.parameters[0] = second.address();
  }
  if (call.saved) {
    operands.saved = call.saved->address() + call.savedByteOffset;
    command.retained.push_back(call.saved);
    (prepared.readsSavedFields ? command.reads : command.writes).push_back(call.saved);
  }
  for (std::size_t i = 0; i < prepared.parameters.size(); ++i) {
    const auto& parameter = prepared.parameters[i];
    if (!parameter.memory) continue;
    operands.parameters[i] = parameter.memory->address() + parameter.byteOffset;
    if (parameter.isWritten) checkWritable(label, "result", *parameter.memory);
    command.retained.push_back(parameter.memory);
    (parameter.isWritten ? command.writes : command.reads).push_back(parameter.mark());
    if (parameter.isAddedTo) command.reads.push_back(parameter.mark());
    if (parameter.isCounted && commandBuffer.mayLeaveOut()) command.lacking.push_back(parameter.mark());
  }
  if (prepared.destinationParameter)
    operands.parameters.at(*prepared.destinationParameter) = operands.destination;
  setRun(command, prepared.plan.plan, operands);
  commandBuffer.append(std::move(command));

  if (writes && call.destination->isLoose()) scatter(commandBuffer, label, destination, *call.destination);
  if (call.secondDestination != nullptr && call.secondDestination->isLoose())
    scatter(commandBuffer, label, second, *call.secondDestination);
}

void recordCall(mtl::CommandBuffer& commandBuffer, const Kernel& kernel, const PreparedCall& prepared,
                const CallOperands& operands) {
  comment(kernel, prepared.plan);
  const BatchOperand* images = operands.destination != nullptr ? operands.destination : operands.source;
  const std::int64_t count = images != nullptr ? std::max<std::int64_t>(1, images->shape().images) : 1;
  kernel.checkDecodedBytes("memory to work in", static_cast<double>(prepared.plan.plan->scratchBytes()) /
                                                    static_cast<double>(count));
  recordCall(commandBuffer, kernel.describe(), prepared, operands);
}

void comment(const Kernel& kernel, const ChosenPlan& chosen) {
  if (!has(kernel.options(), KernelOptions::Verbose)) return;
  std::string line = kernel.describe() + ": " + std::string(chosen.implementation);
  if (const std::string words = chosen.plan->describe(); !words.empty()) line += " " + words;
  printDispatch(line);
}

void recordMemoryCopy(mtl::CommandBuffer& commandBuffer, const std::string& label,
                      const std::shared_ptr<mtl::Memory>& source, std::size_t sourceOffset,
                      const std::shared_ptr<mtl::Memory>& destination, std::size_t destinationOffset,
                      std::size_t bytes) {
  recordBytes(commandBuffer, label, {source, sourceOffset}, {destination, destinationOffset}, bytes);
}

std::shared_ptr<mtl::Memory> recordReload(mtl::CommandBuffer& commandBuffer, const std::string& label,
                                          const MemoryPlace& source, const MemoryPlace& present,
                                          std::size_t bytes) {
  auto memory = commandBuffer.device()->allocate(bytes);
  const auto keepPresent = [=](mtl::CommandBuffer& other) {
    recordBytes(other, label, present, {memory, 0}, bytes);
  };
  if (commandBuffer.mayLeaveOut()) {
    mtl::CommandBuffer always(commandBuffer.submission());
    keepPresent(always);
  }
  recordBytes(commandBuffer, label, source, {memory, 0}, bytes);
  // The normal path pays for no copy: only a buffer that is dropped makes another one run.
  commandBuffer.ifDropped(keepPresent);
  memory->setFailure(label + ": the command buffer with the reload of these values has not run yet");
  return memory;
}

void recordZerosAlways(mtl::CommandBuffer& commandBuffer, const std::string& label,
                       const std::shared_ptr<mtl::Memory>& memory) {
  mtl::CommandBuffer always(commandBuffer.submission());
  recordBytes(always, label, {}, {memory, 0}, memory->length());
}

void recordZeros(mtl::CommandBuffer& commandBuffer, const std::string& label,
                 const BatchOperand& destination) {
  TensorCopyProblem zeros;
  zeros.fills = true;
  if (!destination.isLoose())
    return recordCopy(commandBuffer, label, zeros, nullptr, destination.view(commandBuffer, true));
  for (const TensorView& view : destination.looseViews(commandBuffer, true))
    recordCopy(commandBuffer, label, zeros, nullptr, view);
}

BatchOperand recordEdgeCopy(mtl::CommandBuffer& commandBuffer, const std::string& label,
                            const BatchOperand& source, std::int64_t x, std::int64_t y, std::int64_t width,
                            std::int64_t height, ImageEdgeMode edgeMode) {
  const TensorView from = gather(commandBuffer, label, source);
  const auto shape =
      TensorShape::dense(from.shape.images, height, width, from.shape.channels, from.shape.format);
  auto memory = commandBuffer.heap()->allocate(static_cast<std::size_t>(shape.bytes()));
  TensorCopyProblem problem;
  problem.clampEdges = edgeMode == ImageEdgeMode::Clamp;
  problem.offsetX = x;
  problem.offsetY = y;
  recordCopy(commandBuffer, label, problem, &from, {shape, memory, 0});
  return BatchOperand::ofScratch(shape, std::move(memory));
}

void checkDecodedSize(const Kernel& kernel, const ImageDescriptor& descriptor) {
  kernel.checkDecodedBytes(
      "destinationImage",
      static_cast<double>(descriptor.width()) * static_cast<double>(descriptor.height()) *
          static_cast<double>(descriptor.featureChannels()) *
          static_cast<double>(std::max<std::size_t>(1, bytesPerChannel(descriptor.channelFormat()))));
}

ImageBatch allocateImages(const Kernel& kernel, ImageAllocator& allocator,
                          const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                          const ImageDescriptor& descriptor, std::size_t count) {
  checkDecodedSize(kernel, descriptor);
  const bool isStack = count == 1 && descriptor.numberOfImages() > 1;
  mtl::RecordingGuard guard(*commandBuffer);  // the allocator may be the user's
  ImageBatch images = isStack ? ImageBatch::of(allocator.image(commandBuffer, descriptor, kernel))
                              : allocator.imageBatch(commandBuffer, descriptor, kernel, count);
  if (images.count() != count)
    throw Error(kernel.describe(), "destinationImageAllocator", std::to_string(images.count()) + " images",
                std::to_string(count));
  const ImageDescriptor& made = images.descriptor();
  if (made.width() != descriptor.width() || made.height() != descriptor.height() ||
      made.featureChannels() != descriptor.featureChannels() ||
      made.numberOfImages() != descriptor.numberOfImages())
    throw Error(kernel.describe(), "destinationImageAllocator", made.describe(), descriptor.describe());
  guard.keep();
  return images;
}

ImageBatch batchOf(const Kernel& kernel, const char* argument, const std::shared_ptr<Image>& image) {
  if (!image) throw Error(kernel.describe(), argument, "null", "an image");
  return ImageBatch::of(image);
}

ImageBatch standIns(const std::shared_ptr<mtl::Device>& device, const ImageDescriptor& size,
                    std::size_t count) {
  return size.numberOfImages() > 1 ? ImageBatch::of(Image::create(device, size))
                                   : ImageBatch::create(device, size, count);
}

std::shared_ptr<State> producedBy(const Kernel& kernel, std::shared_ptr<State> state) {
  if (state->isTemporary()) state->setProducer(kernel.describe());
  return state;
}

void setProducer(const ImageBatch& images, const std::string& producer) {
  if (const auto block = images.blockStorage()) return block->setProducer(producer);
  for (const auto& image : images.looseImages()) image->storage()->setProducer(producer);
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

void consumeRead(const StateBatch& states) {
  StateBatchIncrementReadCount(states, -1);
}

}  // namespace mps::detail
