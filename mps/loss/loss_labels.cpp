#include "mps/loss/loss_labels.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {
namespace {

ImageDescriptor float32(const mtl::Size& size) {
  return {ImageFeatureChannelFormat::Float32, size.width, size.height, size.depth};
}

/// Bytes from the first element to the end of the last; saturates.
std::size_t extentOf(const CNNLossDataDescriptor& data) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  const mtl::Size& size = data.size();
  const bool planes = data.layout() == DataLayout::FeatureChannelsxHeightxWidth;
  std::size_t extent = size.width * (planes ? 1 : size.depth) * sizeof(float);
  const auto add = [&](std::size_t steps, std::size_t stride) {
    const bool fits = steps == 0 || stride <= (most - extent) / steps;
    extent = fits ? extent + steps * stride : most;
  };
  add(size.height - 1, data.bytesPerRow());
  if (planes) add(size.depth - 1, data.bytesPerImage());
  return extent;
}

std::shared_ptr<Image> imageOf(const std::shared_ptr<mtl::Device>& device,
                               const CNNLossDataDescriptor& data) {
  const mtl::Size& size = data.size();
  auto image = Image::create(device, float32(size));
  const bool planes = data.layout() == DataLayout::FeatureChannelsxHeightxWidth;
  const auto bytes = std::as_bytes(data.data());
  if (const std::size_t extent = extentOf(data); extent > bytes.size())
    throw Error("CNNLossDataDescriptor", "data", std::to_string(bytes.size()) + " bytes",
                std::to_string(extent) + " for its strides");
  if (!planes) {
    image->writeBytes(bytes, data.layout(), {0, data.bytesPerRow(), data.bytesPerImage()},
                      {{0, 0, 0}, {size.width, size.height, 1}}, {0, size.depth});
    return image;
  }
  // bytesPerImage is the distance of channel planes here, which an image transfer cannot express: repack.
  std::vector<float> values(size.width * size.height * size.depth);
  for (std::size_t c = 0; c < size.depth; ++c) {
    for (std::size_t y = 0; y < size.height; ++y)
      std::memcpy(values.data() + (c * size.height + y) * size.width,
                  bytes.data() + c * data.bytesPerImage() + y * data.bytesPerRow(),
                  size.width * sizeof(float));
  }
  image->writeBytes(std::span<const float>(values), data.layout());
  return image;
}

}  // namespace

CNNLossDataDescriptor::CNNLossDataDescriptor(std::span<const float> data, DataLayout layout,
                                             const mtl::Size& size)
    : data_(data), layout_(layout), size_(size) {
  const bool planes = layout == DataLayout::FeatureChannelsxHeightxWidth;
  bytesPerRow_ = size.width * (planes ? 1 : size.depth) * sizeof(float);
  bytesPerImage_ = size.height * bytesPerRow_;
}

CNNLossDataDescriptor CNNLossDataDescriptor::create(std::span<const float> data, DataLayout layout,
                                                    const mtl::Size& size) {
  if (size.width == 0 || size.height == 0 || size.depth == 0)
    throw Error("CNNLossDataDescriptor", "size", "0 along an axis", "at least 1");
  const std::size_t rows = data.size() / size.width / size.depth;  // cannot overflow
  if (rows < size.height)
    throw Error(
        "CNNLossDataDescriptor", "data", std::to_string(data.size()) + " values",
        std::to_string(size.width) + "x" + std::to_string(size.height) + "x" + std::to_string(size.depth));
  return {data, layout, size};
}

CNNLossLabels::CNNLossLabels(const std::shared_ptr<mtl::Device>& device,
                             std::shared_ptr<detail::LossLabelsBlock> block, std::size_t index)
    : State(device, StateResourceList{}), block_(std::move(block)), index_(index) {}

std::shared_ptr<CNNLossLabels> CNNLossLabels::create(const std::shared_ptr<mtl::Device>& device,
                                                     const CNNLossDataDescriptor& labelsDescriptor) {
  return create(device, {1, 1, 1}, labelsDescriptor, std::nullopt);
}

std::shared_ptr<CNNLossLabels> CNNLossLabels::create(
    const std::shared_ptr<mtl::Device>& device, const mtl::Size& lossImageSize,
    const CNNLossDataDescriptor& labelsDescriptor,
    const std::optional<CNNLossDataDescriptor>& weightsDescriptor) {
  if (!device) throw Error("CNNLossLabels", "device", "null", "a device");
  return create(device, lossImageSize, imageOf(device, labelsDescriptor),
                weightsDescriptor ? imageOf(device, *weightsDescriptor) : nullptr);
}

std::shared_ptr<CNNLossLabels> CNNLossLabels::create(const std::shared_ptr<mtl::Device>& device,
                                                     const mtl::Size& lossImageSize,
                                                     std::shared_ptr<Image> labelsImage,
                                                     std::shared_ptr<Image> weightsImage) {
  if (!device) throw Error("CNNLossLabels", "device", "null", "a device");
  if (!labelsImage) throw Error("CNNLossLabels", "labelsImage", "null", "an image");
  const ImageBatch weights = weightsImage ? ImageBatch{std::move(weightsImage)} : ImageBatch{};
  return std::make_shared<detail::LossLabelsBlock>(device, lossImageSize, ImageBatch{std::move(labelsImage)},
                                                   weights)
      ->state(0);
}

StateBatch CNNLossLabels::createBatch(const std::shared_ptr<mtl::Device>& device,
                                      const mtl::Size& lossImageSize, const ImageBatch& labelsImages,
                                      const ImageBatch& weightsImages) {
  if (!device) throw Error("CNNLossLabels", "device", "null", "a device");
  if (!weightsImages.empty() && weightsImages.count() != labelsImages.count())
    throw Error("CNNLossLabels", "weightsImages", std::to_string(weightsImages.count()) + " images",
                std::to_string(labelsImages.count()));
  return std::make_shared<detail::LossLabelsBlock>(device, lossImageSize, labelsImages, weightsImages)
      ->batch();
}

StateBatch CNNLossLabels::createClassBatch(const std::shared_ptr<mtl::Device>& device, std::size_t count,
                                           std::size_t numberOfClasses) {
  if (!device) throw Error("CNNLossLabels", "device", "null", "a device");
  return std::make_shared<detail::LossLabelsBlock>(device, count, numberOfClasses)->batch();
}

void CNNLossLabels::writeClassIndices(const StateBatch& labels, std::span<const std::uint32_t> indices) {
  const detail::LossOperands operands = detail::lossOperands("CNNLossLabels", labels);
  if (!operands.classIndices) throw Error("CNNLossLabels", "labels", "dense", "made by createClassBatch");
  if (indices.size() != labels.count())
    throw Error("CNNLossLabels", "indices", std::to_string(indices.size()), std::to_string(labels.count()));
  if (operands.numberOfClasses > 0)
    if (const auto wrong = detail::wrongClassIndex(indices, operands.numberOfClasses); !wrong.empty())
      throw Error("CNNLossLabels: " + wrong);
  const std::size_t first = operands.firstIndex * sizeof(std::uint32_t);
  std::memcpy(operands.classIndices->contents() + first, indices.data(), indices.size_bytes());
  operands.classIndices->didModifyRange(first, indices.size_bytes());
}

void CNNLossLabels::writeClassIndices(const StateBatch& labels, std::span<const std::uint8_t> indices) {
  writeClassIndices(labels, std::vector<std::uint32_t>(indices.begin(), indices.end()));
}

ImageBatch CNNLossLabels::lossImages(const StateBatch& labels) {
  return detail::lossOperands("CNNLossLabels", labels).losses;
}

std::shared_ptr<Image> CNNLossLabels::lossImage() const {
  return block_->losses()[index_];
}

std::shared_ptr<Image> CNNLossLabels::labelsImage() const {
  return block_->labels().empty() ? nullptr : block_->labels()[index_];
}

std::shared_ptr<Image> CNNLossLabels::weightsImage() const {
  return block_->weights().empty() ? nullptr : block_->weights()[index_];
}

void CNNLossLabels::synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  lossImage()->synchronize(commandBuffer);
}

namespace detail {

LossLabelsBlock::LossLabelsBlock(std::shared_ptr<mtl::Device> device, const mtl::Size& lossImageSize,
                                 ImageBatch labels, ImageBatch weights)
    : device_(std::move(device)),
      labels_(std::move(labels)),
      weights_(std::move(weights)),
      losses_(ImageBatch::create(device_, float32(lossImageSize), labels_.count())) {}

LossLabelsBlock::LossLabelsBlock(std::shared_ptr<mtl::Device> device, std::size_t count,
                                 std::size_t numberOfClasses)
    : device_(std::move(device)),
      losses_(ImageBatch::create(device_, float32({1, 1, 1}), count)),
      classIndices_(device_->newBuffer(count * sizeof(std::uint32_t))),
      numberOfClasses_(numberOfClasses) {}

std::shared_ptr<CNNLossLabels> LossLabelsBlock::state(std::size_t index) {
  return std::shared_ptr<CNNLossLabels>(new CNNLossLabels(device_, shared_from_this(), index));
}

StateBatch LossLabelsBlock::batch() {
  const auto self = shared_from_this();
  return {[self](std::size_t i) { return self->state(i); }, losses_.count(), self};
}

LossOperands lossOperands(const std::string& kernel, const StateBatch& labels) {
  if (const auto block = std::dynamic_pointer_cast<LossLabelsBlock>(labels.block())) {
    const std::size_t first = labels.firstInBlock();
    const auto part = [&](const ImageBatch& images) {
      return images.empty() ? images : images.slice(first, labels.count());
    };
    return {
        part(block->labels()),   part(block->weights()), part(block->losses()), block->classIndices(), first,
        block->numberOfClasses()};
  }
  std::vector<std::shared_ptr<Image>> targets;
  std::vector<std::shared_ptr<Image>> weights;
  std::vector<std::shared_ptr<Image>> losses;
  for (std::size_t i = 0; i < labels.count(); ++i) {
    const auto state = std::dynamic_pointer_cast<CNNLossLabels>(labels[i]);
    if (!state) throw Error(kernel, "labels", "a state of another kind", "CNNLossLabels");
    if (labels.count() == 1 && state->lossBlock()->classIndices())
      return {{},
              {},
              ImageBatch{state->lossImage()},
              state->lossBlock()->classIndices(),
              state->indexInBlock(),
              state->lossBlock()->numberOfClasses()};
    if (!state->labelsImage())
      throw Error(kernel, "labels", "class indices of several batches",
                  "those of one batch, or dense labels");
    targets.push_back(state->labelsImage());
    losses.push_back(state->lossImage());
    if (auto image = state->weightsImage()) weights.push_back(std::move(image));
  }
  if (!weights.empty() && weights.size() != targets.size())
    throw Error(kernel, "labels", "some with and some without weights", "all or none with weights");
  return {targets, weights.empty() ? ImageBatch{} : ImageBatch(weights), losses, nullptr, 0, 0};
}

std::string wrongClassIndex(std::span<const std::uint32_t> indices, std::size_t classes) {
  const auto wrong = std::ranges::find_if(indices, [&](std::uint32_t index) { return index >= classes; });
  if (wrong == indices.end()) return {};
  return "image " + std::to_string(wrong - indices.begin()) + " has class index " + std::to_string(*wrong) +
         ", expected less than " + std::to_string(classes) + ", the number of classes";
}

}  // namespace detail
}  // namespace mps
