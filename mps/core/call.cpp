#include "mps/core/call.hpp"

#include <algorithm>
#include <bit>
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
    command.reads.push_back(source->memory);
    retain(command, *source);
  }
  command.writes.push_back(destination.memory);
  retain(command, destination);
  commandBuffer.append(std::move(command));
}

std::byte* shifted(const TensorView& view, const mtl::Origin& origin) {
  return view.address() +
         view.shape.offset(0, static_cast<std::int64_t>(origin.y), static_cast<std::int64_t>(origin.x), 0) *
             elementSize(view.shape);
}

std::string imageList(const ImageBatch& images, std::size_t i) {
  return images.count() == 1 ? std::string() : "image " + std::to_string(i) + " of the batch, ";
}

/// What two operands have in common when they lie in the same memory.
const void* identity(const BatchOperand& operand) {
  const auto memory = operand.storage()->allocatedMemory();
  return memory ? static_cast<const void*>(memory.get()) : operand.storage().get();
}

/// Whether [0, lengthA) and [distance, distance + lengthB) meet when both repeat with the same period.
bool meetPeriodically(std::int64_t distance, std::int64_t period, std::int64_t lengthA,
                      std::int64_t lengthB) {
  const std::int64_t phase = (distance % period + period) % period;
  return phase < lengthA || phase + lengthB > period;
}

/// Whether two tensors in one memory share an element; when unsure, true.
bool overlap(const BatchOperand& a, const BatchOperand& b) {
  const TensorShape x = a.shape();
  const TensorShape y = b.shape();
  const auto end = [](const BatchOperand& o, const TensorShape& s) {
    return static_cast<std::int64_t>(o.byteOffset()) +
           (s.offset(s.images - 1, s.height - 1, s.width - 1, s.channels - 1) + 1) * elementSize(s);
  };
  const auto distanceInBytes =
      static_cast<std::int64_t>(b.byteOffset()) - static_cast<std::int64_t>(a.byteOffset());
  if (end(a, x) <= static_cast<std::int64_t>(b.byteOffset()) ||
      end(b, y) <= static_cast<std::int64_t>(a.byteOffset()))
    return false;
  if (x.format != y.format || distanceInBytes % elementSize(x) != 0) return true;
  const std::int64_t distance = distanceInBytes / elementSize(x);
  const auto rowLength = [](const TensorShape& s) { return (s.width - 1) * s.pixelStride + s.channels; };
  const auto divides = [](const TensorShape& s) {
    return s.rowStride % s.pixelStride == 0 && (s.images == 1 || s.imageStride % s.rowStride == 0);
  };
  if (x.pixelStride != y.pixelStride || x.rowStride != y.rowStride || !divides(x) || !divides(y)) return true;
  return meetPeriodically(distance, x.pixelStride, x.channels, y.channels) &&
         meetPeriodically(distance, x.rowStride, rowLength(x), rowLength(y));
}

}  // namespace

BatchOperand::BatchOperand(const ImageBatch& batch, bool isWritten) : batch_(batch) {
  if (const auto block = batch.blockStorage()) {
    storage_ = block;
    shape_ = block->shape();
    baseByteOffset_ =
        block->byteOffset() +
        batch.firstInBlock() * static_cast<std::size_t>(shape_.imageStride * elementSize(shape_));
    shape_.images = static_cast<std::int64_t>(batch.count());
    return;
  }
  const auto images = batch.looseImages();
  shape_ = images.front()->shape();
  if (images.size() > 1) {
    const auto spacing = evenSpacing(images);
    loose_ = !spacing || (isWritten && *spacing == 0);
    if (loose_) return;
    shape_.images = static_cast<std::int64_t>(images.size());
    shape_.imageStride = *spacing / elementSize(shape_);
  }
  storage_ = images.front()->storage();
  baseByteOffset_ = images.front()->byteOffset();
}

bool BatchOperand::isStack() const {
  return batch_.count() == 1 && !batch_.blockStorage();
}

BatchOperand BatchOperand::sizeOnly(const TensorShape& shape) {
  BatchOperand operand;
  operand.shape_ = shape;
  return operand;
}

BatchOperand BatchOperand::ofMemory(const TensorShape& shape, std::shared_ptr<mtl::Memory> memory,
                                    std::size_t byteOffset, bool isPermanent) {
  BatchOperand operand = ofScratch(shape, std::move(memory));
  operand.memoryIsPermanent_ = isPermanent;
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
  firstChannel_ += first;
  shape_.channels = count;
}

void BatchOperand::selectRegion(std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height) {
  firstX_ += x;
  firstY_ += y;
  shape_.width = width;
  shape_.height = height;
}

void BatchOperand::selectImages(std::int64_t first, std::int64_t count) {
  firstImage_ += first;
  shape_.images = count;
}

std::size_t BatchOperand::byteOffset() const {
  const std::int64_t elements = shape_.offset(firstImage_, firstY_, firstX_, firstChannel_);
  return baseByteOffset_ + static_cast<std::size_t>(elements * elementSize(shape_));
}

TensorView BatchOperand::view(bool forWriting) const {
  if (scratch_) return {shape_, scratch_, byteOffset(), memoryIsPermanent_};
  const bool whole = shape_.elements() == storage_->shape().elements();
  return {shape_, forWriting ? storage_->memoryForWriting(whole) : storage_->memoryForReading(), byteOffset(),
          !storage_->isTemporary()};
}

std::vector<TensorView> BatchOperand::looseViews(bool forWriting) const {
  std::vector<TensorView> views;
  for (const auto& image : batch_.looseImages()) {
    BatchOperand part(ImageBatch::of(image));
    part.selectChannels(firstChannel_, shape_.channels);
    part.selectRegion(firstX_, firstY_, shape_.width, shape_.height);
    views.push_back(part.view(forWriting));
  }
  return views;
}

TensorView gather(mtl::CommandBuffer& commandBuffer, const std::string& label, const BatchOperand& operand) {
  if (!operand.isLoose()) return operand.view(false);
  TensorView gathered;
  gathered.shape = operand.shape();
  gathered.memory = commandBuffer.heap()->allocate(static_cast<std::size_t>(gathered.shape.bytes()));
  gatherInto(commandBuffer, label, operand, gathered);
  return gathered;
}

void gatherInto(mtl::CommandBuffer& commandBuffer, const std::string& label, const BatchOperand& operand,
                const TensorView& tensor) {
  if (!operand.isLoose()) {
    const TensorView images = operand.view(false);
    return recordCopy(commandBuffer, label, {}, &images, tensor);
  }
  const auto images = operand.looseViews(false);
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
  const auto images = operand.looseViews(true);
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
  std::vector<std::shared_ptr<mtl::Memory>> temporaries;  // hold heap blocks until the command stands
  // First what is most likely to fail: nothing has changed by then.
  if (const std::size_t bytes = prepared.plan.plan->scratchBytes(); bytes > 0) {
    temporaries.push_back(commandBuffer.heap()->allocate(bytes));
    operands.scratch = temporaries.back()->address();
  }

  const auto bindInput = [&](const BatchOperand* operand, const mtl::Origin& origin) -> const std::byte* {
    if (operand == nullptr) return nullptr;
    const TensorView view = gather(commandBuffer, label, *operand);
    command.reads.push_back(view.memory);
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
      view = operand.view(true);
      retain(command, view);
    }
    command.writes.push_back(view.memory);
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
    command.retained.push_back(parameter.memory);
    (parameter.isWritten ? command.writes : command.reads).push_back(parameter.memory);
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
  // Rows of a page or so, so that the copy is shared among threads.
  constexpr std::size_t rowBytes = 16384;
  const auto copy = [&](std::size_t offset, std::size_t rows, std::size_t width) {
    const auto shape =
        TensorShape::dense(1, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(width), 1,
                           ImageFeatureChannelFormat::Unorm8);
    const TensorView from{shape, source, sourceOffset + offset, true};
    recordCopy(commandBuffer, label, {}, &from, {shape, destination, destinationOffset + offset, true});
  };
  const std::size_t rows = bytes / rowBytes;
  if (rows > 0) copy(0, rows, rowBytes);
  if (bytes % rowBytes > 0) copy(rows * rowBytes, 1, bytes % rowBytes);
}

void recordZeros(mtl::CommandBuffer& commandBuffer, const std::string& label,
                 const BatchOperand& destination) {
  TensorCopyProblem zeros;
  zeros.fills = true;
  if (!destination.isLoose()) return recordCopy(commandBuffer, label, zeros, nullptr, destination.view(true));
  for (const TensorView& view : destination.looseViews(true))
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

ForwardRecord::Place placeOf(const BatchOperand& operand) {
  if (!operand.storage()) return {};
  return {operand.storage(), operand.byteOffset(), operand.shape().imageStride};
}

void selectImages(const Kernel& kernel, std::span<const SourceImages> sources, BatchOperand& destination,
                  mtl::Region& clip) {
  const std::int64_t written = destination.shape().images;
  const auto refuse = [&](const std::string& property, const std::string& found, std::int64_t most) {
    throw Error(kernel.describe(), property, found,
                destination.isStack()
                    ? "at most " + std::to_string(most) + ", what source and destination have"
                    : "its default: the images of a batch are no stack");
  };
  const std::int64_t lastFirst = destination.isStack() ? written - 1 : 0;
  if (clip.origin.z > static_cast<std::size_t>(lastFirst))
    refuse("clipRect.origin.z", std::to_string(clip.origin.z), lastFirst);
  const auto origin = static_cast<std::int64_t>(clip.origin.z);
  std::int64_t count = written - origin;
  for (const SourceImages& source : sources) {
    const std::int64_t images = source.operand->shape().images;
    const std::int64_t last = destination.isStack() ? images - 1 : 0;
    if (source.first < 0 || source.first > last) refuse(source.property, std::to_string(source.first), last);
    count = std::min(count, images - source.first);
  }
  if (destination.isStack() && clip.size.depth != RectNoClip.size.depth) {
    if (clip.size.depth > static_cast<std::size_t>(count))
      refuse("clipRect.size.depth", std::to_string(clip.size.depth), count);
    count = static_cast<std::int64_t>(clip.size.depth);
  } else if (clip.size.depth == 0) {
    count = 0;
  }
  clip.size.depth = static_cast<std::size_t>(count);
  destination.selectImages(origin, count);
  for (const SourceImages& source : sources) source.operand->selectImages(source.first, count);
}

void checkCommandBuffer(const Kernel& kernel, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  if (!commandBuffer) throw Error(kernel.describe(), "commandBuffer", "null", "a command buffer");
  if (commandBuffer->device() != kernel.device())
    throw Error(kernel.describe(), "commandBuffer", "of device " + commandBuffer->device()->name(),
                "of the kernel's device " + kernel.device()->name());
  commandBuffer->checkOpen();
}

namespace {

bool isLike(const ImageDescriptor& a, const ImageDescriptor& b) {
  return a.width() == b.width() && a.height() == b.height() && a.featureChannels() == b.featureChannels() &&
         a.numberOfImages() == b.numberOfImages() && a.channelFormat() == b.channelFormat();
}

void checkImages(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                 const ImageBatch& images) {
  const auto checkStorage = [&](ImageStorage& storage, std::size_t i) {
    if (storage.device() != kernel.device())
      throw Error(kernel.describe(), argument,
                  imageList(images, i) + "of another device " + storage.device()->name(),
                  "of the kernel's device " + kernel.device()->name());
    if (storage.isTemporary() && !storage.belongsTo(commandBuffer))
      throw Error(kernel.describe(), argument,
                  imageList(images, i) + "a temporary image of another command buffer",
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
        temporary != nullptr && (temporary->readCount() == 0 || loose[i]->storage()->isReleased()))
      released(*loose[i]->storage(), i);
    if (!isLike(loose[i]->descriptor(), loose[0]->descriptor()))
      throw Error(kernel.describe(), argument, imageList(images, i) + loose[i]->describe(),
                  "like the first, " + loose[0]->describe());
  }
}

}  // namespace

void checkSources(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                  const ImageBatch& images) {
  checkImages(kernel, argument, commandBuffer, images);
  const auto checkContent = [&](const ImageStorage& storage) {
    const auto memory = storage.allocatedMemory();
    if (!memory) return;
    if (const auto failure = memory->failure(); !failure.empty())
      throw Error(kernel.describe() + ": " + argument +
                  " is invalid because an earlier command failed: " + failure);
  };
  if (const auto block = images.blockStorage()) return checkContent(*block);
  for (const auto& image : images.looseImages()) checkContent(*image->storage());
}

void checkDestinations(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                       const ImageBatch& images) {
  checkImages(kernel, argument, commandBuffer, images);
  const ImageFeatureChannelFormat format = images.descriptor().channelFormat();
  if (format != ImageFeatureChannelFormat::Float16 && format != ImageFeatureChannelFormat::Float32)
    throw Error(kernel.describe(), argument, name(format),
                "float16 or float32; unorm images are sources only");
}

void checkNoAlias(const Kernel& kernel, const char* sourceArgument, const ImageBatch& sources,
                  const ImageBatch& destinations, bool inPlace) {
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
  const auto isSame = [](const BatchOperand& a, const BatchOperand& b) {
    return a.byteOffset() == b.byteOffset() && a.shape() == b.shape();
  };
  std::unordered_set<const void*> written;
  for (const auto& operand : to) written.insert(identity(operand));
  for (const auto& from : parts(sources)) {
    if (!written.contains(identity(from))) continue;
    for (const auto& operand : to)
      if (identity(operand) == identity(from) && overlap(from, operand) &&
          !(inPlace && to.size() == 1 && isSame(from, operand)))
        alias();
  }
}

void checkStates(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                 const StateBatch& states, std::size_t imageCount) {
  checkCount(kernel, argument, states.count(), imageCount);
  for (const auto& state : states.existing()) {
    if (state->device() && state->device() != kernel.device())
      throw Error(kernel.describe(), argument, "a state of device " + state->device()->name(),
                  "of the kernel's device " + kernel.device()->name());
    if (!state->isTemporary()) continue;
    if (!state->belongsTo(commandBuffer))
      throw Error(kernel.describe(), argument, "a temporary state of another command buffer",
                  "one of this buffer");
    if (state->readCount() == 0)
      throw Error(kernel.describe(), argument,
                  "a temporary state" +
                      (state->label().empty() ? std::string() : " \"" + state->label() + "\"") +
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
      throw Error(kernel.describe(), argument, "a stack, " + image->describe(),
                  "images with numberOfImages 1");
}

ImageBatch allocateImages(const Kernel& kernel, ImageAllocator& allocator,
                          const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                          const ImageDescriptor& descriptor, std::size_t count) {
  const bool isStack = count == 1 && descriptor.numberOfImages() > 1;
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
