#include "mps/core/kernel/batch_operand.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mps/core/types/strides.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

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
    TensorShape all = shape_;
    all.images = static_cast<std::int64_t>(images.size());
    all.imageStride = spacing.value_or(0) / elementSize(shape_);
    loose_ = !spacing || (isWritten && !elementsAreApart(all));
    if (loose_) return;
    shape_ = all;
  }
  storage_ = images.front()->storage();
  baseByteOffset_ = images.front()->byteOffset();
}

std::size_t BatchOperand::firstImageIn(const ImageBatch& whole) const {
  const auto block = whole.blockStorage();
  return block && batch_.blockStorage() == block && batch_.firstInBlock() > whole.firstInBlock()
             ? batch_.firstInBlock() - whole.firstInBlock()
             : 0;
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

TensorView BatchOperand::view(mtl::CommandBuffer& commandBuffer, bool forWriting) const {
  if (scratch_) return memoryView();
  const bool whole = shape_.elements() == storage_->shape().elements();
  return {shape_,
          forWriting ? storage_->memoryForWriting(commandBuffer, whole)
                     : storage_->memoryForReading(commandBuffer),
          byteOffset(), !storage_->isTemporary(), true};
}

std::vector<TensorView> BatchOperand::looseViews(mtl::CommandBuffer& commandBuffer, bool forWriting) const {
  std::vector<TensorView> views;
  for (const auto& image : batch_.looseImages()) {
    BatchOperand part(ImageBatch::of(image));
    part.selectChannels(firstChannel_, shape_.channels);
    part.selectRegion(firstX_, firstY_, shape_.width, shape_.height);
    views.push_back(part.view(commandBuffer, forWriting));
  }
  return views;
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

}  // namespace mps::detail
