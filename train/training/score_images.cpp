#include "train/training/score_images.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "mps/core/image/image.hpp"
#include "mps/core/image/image_descriptor.hpp"
#include "mps/core/types/float16.hpp"
#include "mtl/command_buffer.hpp"

namespace unmetal::train::detail {
namespace {

std::vector<float> valuesOf(const mps::ImageBatch& scores, std::size_t count) {
  constexpr auto layout = mps::DataLayout::HeightxWidthxFeatureChannels;
  std::vector<float> values(count);
  if (scores.descriptor().channelFormat() != mps::ImageFeatureChannelFormat::Float16) {
    scores.readBytes(std::span(values), layout);
    return values;
  }
  std::vector<mps::Float16> stored(count);
  scores.readBytes(std::span(stored), layout);
  std::ranges::transform(stored, values.begin(), [](mps::Float16 value) { return mps::toFloat(value); });
  return values;
}

}  // namespace

std::shared_ptr<mps::Image> ScoreImages::image(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                               const mps::ImageDescriptor& descriptor,
                                               const mps::Kernel& kernel) {
  return mps::TemporaryImage::defaultAllocator()->image(commandBuffer, descriptor, kernel);
}

mps::ImageBatch ScoreImages::imageBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                        const mps::ImageDescriptor& descriptor, const mps::Kernel& kernel,
                                        std::size_t count) {
  mps::ImageBatch* const images = std::exchange(next_, nullptr);
  if (images == nullptr)
    return mps::TemporaryImage::defaultAllocator()->imageBatch(commandBuffer, descriptor, kernel, count);
  if (images->count() != count || images->descriptor() != descriptor)
    *images = mps::ImageBatch::create(commandBuffer->device(), descriptor, count);
  return *images;
}

std::size_t countCorrect(const mps::ImageBatch& scores, std::span<const std::uint32_t> labels) {
  if (labels.empty()) return 0;
  const std::size_t classes = scores.descriptor().featureChannels();
  const std::vector<float> values = valuesOf(scores, labels.size() * classes);
  std::size_t correct = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto own = std::span(values).subspan(i * classes, classes);
    if (static_cast<std::size_t>(std::ranges::max_element(own) - own.begin()) == labels[i]) ++correct;
  }
  return correct;
}

}  // namespace unmetal::train::detail
