#include "mps/core/layer/image_normalization_state.hpp"

#include <any>
#include <utility>

#include "mps/core/image/forward_record.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {
namespace detail {

ImageNormalizationGradients::ImageNormalizationGradients(std::shared_ptr<mtl::Device> device,
                                                         std::shared_ptr<mtl::CommandBuffer> commandBuffer,
                                                         std::size_t images, std::size_t channels)
    : device_(std::move(device)),
      commandBuffer_(std::move(commandBuffer)),
      images_(images),
      channels_(channels),
      encodes_(images) {}

std::shared_ptr<mtl::Memory> ImageNormalizationGradients::memory() {
  const std::lock_guard lock(mutex_);
  if (auto memory = commandBuffer_ ? temporaryMemory_.lock() : memory_) return memory;
  const std::size_t bytes = 2 * images_ * rowBytes();
  if (!commandBuffer_) return memory_ = device_->allocate(bytes);
  auto memory = commandBuffer_->heap()->allocate(bytes);
  temporaryMemory_ = memory;
  return memory;
}

void ImageNormalizationGradients::synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  if (!commandBuffer) throw Error("State", "commandBuffer", "null", "a command buffer");
  commandBuffer->checkOpen();
  commandBuffer->checkDevice("State", device_);
  if (!commandBuffer_) memory()->synchronize(*commandBuffer);
}

struct ImageNormalizationGradients::EncodesOfBuffer {
  const mtl::Submission* buffer = nullptr;  ///< which holds this object
  Encodes encodes;
};

void ImageNormalizationGradients::willEncode(mtl::CommandBuffer& commandBuffer) {
  const mtl::Submission* const buffer = commandBuffer.submission().get();
  if (const auto last = ofBuffer_.lock(); last && last->buffer == buffer) return;
  const auto ofBuffer = std::make_shared<EncodesOfBuffer>(EncodesOfBuffer{buffer, Encodes(images_)});
  ofBuffer_ = ofBuffer;
  commandBuffer.ifDropped([ofBuffer, self = weak_from_this()](mtl::CommandBuffer& /*instead*/) {
    const auto gradients = self.lock();
    if (!gradients) return;
    for (std::size_t i = 0; i < ofBuffer->encodes.size(); ++i) gradients->encodes_[i] -= ofBuffer->encodes[i];
  });
}

void ImageNormalizationGradients::didEncodeGradient(std::size_t firstImage, std::size_t count) {
  const auto ofBuffer = ofBuffer_.lock();
  for (std::size_t i = firstImage; i < firstImage + count; ++i) {
    ++encodes_[i];
    if (ofBuffer) ++ofBuffer->encodes[i];
  }
}

ImageNormalizationGradientState::ImageNormalizationGradientState(
    std::shared_ptr<ImageNormalizationGradients> gradients, std::size_t row)
    : NNGradientState(gradients->device(), StateResourceList{gradients->rowBytes(), gradients->rowBytes()}),
      gradients_(std::move(gradients)),
      row_(row) {
  takeBuffers();
}

ImageNormalizationGradientState::ImageNormalizationGradientState(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    std::shared_ptr<ImageNormalizationGradients> gradients, std::size_t row)
    : NNGradientState(commandBuffer, StateResourceList{gradients->rowBytes(), gradients->rowBytes()}),
      gradients_(std::move(gradients)),
      row_(row) {
  takeBuffers();
}

void ImageNormalizationGradientState::takeBuffers() {
  const auto memory = gradients_->memory();
  const auto row = [&](std::size_t offset) {
    return std::make_shared<mtl::Buffer>(
        device(), std::make_shared<mtl::MemoryPart>(memory, offset, gradients_->rowBytes()),
        isTemporary() ? mtl::StorageMode::Private : mtl::StorageMode::Managed);
  };
  useBuffer(0, row(gradients_->gammaOffset(row_)));
  useBuffer(1, row(gradients_->betaOffset(row_)));
}

const ImageNormalizationParameters* ImageNormalizationGradientState::parameters() const {
  return record() ? std::any_cast<ImageNormalizationParameters>(&record()->family) : nullptr;
}

std::shared_ptr<mtl::Buffer> ImageNormalizationGradientState::gamma() const {
  return parameters() != nullptr ? parameters()->gamma : nullptr;
}

std::shared_ptr<mtl::Buffer> ImageNormalizationGradientState::beta() const {
  return parameters() != nullptr ? parameters()->beta : nullptr;
}

void ImageNormalizationGradientState::synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  State::synchronize(commandBuffer);
  if (parameters() == nullptr) return;
  gamma()->synchronize(*commandBuffer);
  beta()->synchronize(*commandBuffer);
}

}  // namespace detail

std::shared_ptr<CNNInstanceNormalizationGradientState> CNNInstanceNormalizationGradientState::create(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    std::shared_ptr<detail::ImageNormalizationGradients> gradients, std::size_t row,
    std::shared_ptr<const CNNInstanceNormalization> instanceNormalization) {
  auto state = std::shared_ptr<CNNInstanceNormalizationGradientState>(
      commandBuffer ? new CNNInstanceNormalizationGradientState(commandBuffer, std::move(gradients), row)
                    : new CNNInstanceNormalizationGradientState(std::move(gradients), row));
  state->instanceNormalization_ = std::move(instanceNormalization);
  return state;
}

std::shared_ptr<CNNGroupNormalizationGradientState> CNNGroupNormalizationGradientState::create(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    std::shared_ptr<detail::ImageNormalizationGradients> gradients, std::size_t row,
    std::shared_ptr<const CNNGroupNormalization> groupNormalization) {
  auto state = std::shared_ptr<CNNGroupNormalizationGradientState>(
      commandBuffer ? new CNNGroupNormalizationGradientState(commandBuffer, std::move(gradients), row)
                    : new CNNGroupNormalizationGradientState(std::move(gradients), row));
  state->groupNormalization_ = std::move(groupNormalization);
  return state;
}

detail::ImageNormalizationRows detail::gradientRowsOf(const std::string& kernel, const StateBatch& states) {
  const auto rowOf = [&](const std::shared_ptr<State>& state) {
    const auto* own = dynamic_cast<const ImageNormalizationGradientState*>(state.get());
    if (own == nullptr)
      throw Error(kernel, "gradientStates", "a state of another kind",
                  "one of an instance or group normalization");
    return ImageNormalizationRows{own->gradients(), own->gradientRow(), 1};
  };
  ImageNormalizationRows result = rowOf(states[0]);
  result.rows = states.count();
  if (states.block() == result.gradients) return result;
  const std::size_t count = result.rows = states.sharedState() ? 1 : states.count();
  for (std::size_t i = 1; i < count; ++i) {
    const ImageNormalizationRows next = rowOf(states[i]);
    if (next.gradients != result.gradients || next.firstRow != result.firstRow + i)
      result.gradients = nullptr;
    if (!result.gradients) break;
  }
  return result;
}

}  // namespace mps
