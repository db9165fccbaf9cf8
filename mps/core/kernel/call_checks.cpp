#include "mps/core/kernel/call_checks.hpp"

#include <string>
#include <unordered_set>
#include <vector>

#include "mps/core/kernel/batch_operand.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/back_ends.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

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

bool isLike(const ImageDescriptor& a, const ImageDescriptor& b) {
  return a.width() == b.width() && a.height() == b.height() && a.featureChannels() == b.featureChannels() &&
         a.numberOfImages() == b.numberOfImages() && a.channelFormat() == b.channelFormat();
}

void checkImages(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                 const ImageBatch& images) {
  const auto checkStorage = [&](ImageStorage& storage, std::size_t i) {
    if (storage.device() != kernel.device())
      throw Error(kernel.describe(), argument,
                  imageList(images, i) + "of another device " + mtl::nameForMessages(*storage.device()),
                  "of the kernel's device " + mtl::nameForMessages(*kernel.device()));
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

void checkCommandBuffer(const Kernel& kernel, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  if (!commandBuffer) throw Error(kernel.describe(), "commandBuffer", "null", "a command buffer");
  if (commandBuffer->device() != kernel.device())
    throw Error(kernel.describe(), "commandBuffer",
                "of device " + mtl::nameForMessages(*commandBuffer->device()),
                "of the kernel's device " + mtl::nameForMessages(*kernel.device()));
  commandBuffer->checkOpen();
}

void checkSources(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                  const ImageBatch& images) {
  checkImages(kernel, argument, commandBuffer, images);
  const auto checkContent = [&](const ImageStorage& storage, const TensorShape& shape,
                                std::size_t byteOffset) {
    const auto memory = storage.allocatedMemory();
    if (!memory) return;
    if (const auto failure = memory->failure(bytesOf(shape, byteOffset)); !failure.empty())
      throw Error(kernel.describe() + ": " + argument +
                  " is invalid because an earlier command failed: " + failure);
  };
  if (const auto block = images.blockStorage()) {
    const BatchOperand operand(images);
    return checkContent(*block, operand.shape(), operand.byteOffset());
  }
  for (const auto& image : images.looseImages())
    checkContent(*image->storage(), image->shape(), image->byteOffset());
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
      throw Error(kernel.describe(), argument, "a state of device " + mtl::nameForMessages(*state->device()),
                  "of the kernel's device " + mtl::nameForMessages(*kernel.device()));
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

void checkNotEmpty(const Kernel& kernel, const char* argument, const ImageBatch& images) {
  if (images.empty()) throw Error(kernel.describe(), argument, "an empty batch", "at least one image");
}

void checkChannelOffset(const Kernel& kernel, const char* property, std::size_t offset) {
  if (offset % 4 != 0) throw Error(kernel.describe(), property, std::to_string(offset), "a multiple of 4");
}

namespace {

constexpr std::int64_t kMostPixels = std::int64_t{1} << 31U;

}  // namespace

void checkPosition(const Kernel& kernel, const char* property, std::int64_t position) {
  if (position < -kMostPixels || position > kMostPixels)
    throw Error(kernel.describe(), property, std::to_string(position), "-2^31 to 2^31");
}

void checkOffset(const Kernel& kernel, const char* property, const Offset& offset) {
  for (const std::int64_t position : {offset.x, offset.y, offset.z})
    checkPosition(kernel, property, position);
}

void checkStride(const Kernel& kernel, const char* property, std::size_t stride) {
  if (stride > static_cast<std::size_t>(kMostPixels))
    throw Error(kernel.describe(), property, std::to_string(stride), "at most 2^31");
}

void checkNotStacked(const Kernel& kernel, const char* argument, const ImageBatch& images) {
  if (images.blockStorage()) return;
  for (const auto& image : images.looseImages())
    if (image->numberOfImages() != 1)
      throw Error(kernel.describe(), argument, "a stack, " + image->describe(),
                  "images with numberOfImages 1");
}

}  // namespace mps::detail
