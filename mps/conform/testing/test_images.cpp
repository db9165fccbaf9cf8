#include "mps/conform/testing/test_images.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "mps/conform/compare.hpp"
#include "mps/conform/guarded/guarded_memory.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
namespace {

constexpr DataLayout kLayout = DataLayout::HeightxWidthxFeatureChannels;
constexpr std::size_t kChannelsBefore = 4;
constexpr std::array kBatchForms{BatchForm::Block, BatchForm::Slice, BatchForm::Loose, BatchForm::Reversed,
                                 BatchForm::ChannelRange};

std::vector<std::shared_ptr<Image>> imagesOf(
    std::size_t count, const std::function<std::shared_ptr<Image>(std::size_t)>& image) {
  std::vector<std::shared_ptr<Image>> images;
  for (std::size_t i = 0; i < count; ++i) images.push_back(image(i));
  return images;
}

/// A channel range of full length ends with the image or covers a multiple of four channels.
std::size_t channelsBehind(std::size_t channels) {
  return channels % 4 == 0 ? 4 : 0;
}

}  // namespace

std::span<const BatchForm> batchForms() {
  return kBatchForms;
}

TestImages::TestImages(const std::shared_ptr<mtl::Device>& device, BatchForm form,
                       const ImageDescriptor& descriptor, std::size_t count)
    : descriptor_(descriptor), count_(count) {
  switch (form) {
    case BatchForm::Block:
      batch_ = whole_ = ImageBatch::create(device, descriptor, count);
      break;
    case BatchForm::Slice:
      whole_ = ImageBatch::create(device, descriptor, count + 2);
      batch_ = whole_.slice(1, count);
      break;
    case BatchForm::Loose:
      batch_ = whole_ = imagesOf(count, [&](std::size_t) { return Image::create(device, descriptor); });
      break;
    case BatchForm::Reversed:
      whole_ = ImageBatch::create(device, descriptor, count);
      batch_ = imagesOf(count, [&](std::size_t i) { return whole_[count - 1 - i]; });
      break;
    case BatchForm::ChannelRange: {
      const std::size_t channels = descriptor.featureChannels();
      ImageDescriptor wider = descriptor;
      wider.setFeatureChannels(kChannelsBefore + channels + channelsBehind(channels));
      whole_ = ImageBatch::create(device, wider, count);
      batch_ = imagesOf(count, [&](std::size_t i) {
        return whole_[i]->subImageWithFeatureChannelRange(kChannelsBefore, channels);
      });
      break;
    }
    case BatchForm::StackedImage: {
      ImageDescriptor stack = descriptor;
      stack.setNumberOfImages(count);
      const auto image = Image::create(device, stack);
      single_ = image;
      batch_ = whole_ = image->batchRepresentation();
      break;
    }
  }
  belongs_ = markElements();
  poison();
}

const ImageBatch& TestImages::batch() const {
  return batch_;
}

std::shared_ptr<Image> TestImages::image() const {
  if (single_) return single_;
  if (count_ != 1) throw Error("TestImages", "count", std::to_string(count_), "1, or a stacked image");
  return batch_[0];
}

std::size_t TestImages::storedBytes(const ImageBatch& batch) {
  const ImageDescriptor& d = batch.descriptor();
  return batch.count() * d.width() * d.height() * d.featureChannels() * bytesPerChannel(d.channelFormat());
}

TensorShape TestImages::shape() const {
  return TensorShape::dense(static_cast<std::int64_t>(count_),
                            static_cast<std::int64_t>(descriptor_.height()),
                            static_cast<std::int64_t>(descriptor_.width()),
                            static_cast<std::int64_t>(descriptor_.featureChannels()), format());
}

/// For each byte of the whole memory, whether it is one of the batch's.
std::vector<bool> TestImages::markElements() {
  whole_.writeBytes(std::span<const std::byte>(std::vector<std::byte>(storedBytes(whole_))), kLayout);
  const std::vector<std::byte> marks(storedBytes(batch_), std::byte{1});
  batch_.writeBytes(std::span<const std::byte>(marks), kLayout);
  const std::vector<std::byte> marked = readStored(whole_);
  std::vector<bool> belongs(marked.size());
  std::transform(marked.begin(), marked.end(), belongs.begin(),
                 [](std::byte byte) { return byte != std::byte{0}; });
  return belongs;
}

std::vector<std::byte> TestImages::readStored(const ImageBatch& batch) const {
  const auto commandBuffer = batch[0]->device()->newCommandQueue()->commandBuffer();
  ImageBatchSynchronize(batch, commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  std::vector<std::byte> stored(storedBytes(batch));
  batch.readBytes(std::span<std::byte>(stored), kLayout);
  return stored;
}

void TestImages::store(void (*fillSurroundings)(std::span<std::byte>), std::vector<std::byte> elements) {
  surroundings_.resize(storedBytes(whole_));
  fillSurroundings(surroundings_);
  whole_.writeBytes(std::span<const std::byte>(surroundings_), kLayout);
  written_ = std::move(elements);
  batch_.writeBytes(std::span<const std::byte>(written_), kLayout);
}

void TestImages::write(std::span<const double> values) {
  std::vector<std::byte> stored(storedBytes(batch_));
  writeTensor(shape(), stored.data(), values);
  store(fillWithPoison, std::move(stored));
}

void TestImages::poison() {
  std::vector<std::byte> stored(storedBytes(batch_));
  fillWithPoison(stored);
  store(fillWithGuard, std::move(stored));
}

std::vector<double> TestImages::read() const {
  return readTensor(shape(), readStored(batch_).data());
}

ReferenceTensor TestImages::reference() const {
  const TensorShape s = shape();
  ReferenceTensor tensor(s.images, s.height, s.width, s.channels);
  tensor.values = readTensor(s, written_.data());
  return tensor;
}

bool TestImages::isUnchanged() const {
  return readStored(batch_) == written_ && surroundingsIntact();
}

bool TestImages::surroundingsIntact() const {
  const std::vector<std::byte> stored = readStored(whole_);
  for (std::size_t i = 0; i < stored.size(); ++i)
    if (!belongs_[i] && stored[i] != surroundings_[i]) return false;
  return true;
}

}  // namespace mps::detail
