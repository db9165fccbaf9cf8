#include "fuzz/random_calls/images.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"

namespace unmetal::random_calls {
namespace {

constexpr auto kPixelsFirst = mps::DataLayout::HeightxWidthxFeatureChannels;

enum class Arrangement { Block, Part, Loose, Reversed, ChannelRange, Gaps, Buffer, Mixed, Stack };

/// The images, and what holds them and the memory around them.
struct Placed {
  Images images;
  mps::ImageBatch whole;                ///< where they are of images
  std::shared_ptr<mtl::Buffer> buffer;  ///< where they are of a buffer
};

std::size_t bytesOf(const mps::ImageBatch& images) {
  const mps::ImageDescriptor& size = images.descriptor();
  return images.count() * size.numberOfImages() * size.width() * size.height() * size.featureChannels() *
         mps::bytesPerChannel(size.channelFormat());
}

Bytes bytesIn(const mps::ImageBatch& images) {
  Bytes bytes(bytesOf(images));
  const std::size_t stacked = images.descriptor().numberOfImages();
  if (images.count() > 1 || stacked == 1) {
    images.readBytes(std::span<std::byte>(bytes), kPixelsFirst);
    return bytes;
  }
  const std::size_t each = bytes.size() / stacked;
  for (std::size_t i = 0; i < stacked; ++i)
    images[0]->readBytes(std::span(bytes).subspan(i * each, each), kPixelsFirst, i);
  return bytes;
}

std::vector<std::shared_ptr<mps::Image>> listOf(
    std::size_t count, const std::function<std::shared_ptr<mps::Image>(std::size_t)>& image) {
  std::vector<std::shared_ptr<mps::Image>> images;
  for (std::size_t i = 0; i < count; ++i) images.push_back(image(i));
  return images;
}

Placed placeChannelRange(Call& call, const mps::ImageDescriptor& size, std::size_t count) {
  const std::size_t channels = size.featureChannels();
  const std::size_t before = call.noted("channelsBefore", 4 * call.random.size(1, 3));
  // A range of channels ends at a multiple of four or with the image.
  const std::size_t behind = channels % 4 == 0 ? call.random.size(0, 9) : 0;
  mps::ImageDescriptor wide = size;
  wide.setFeatureChannels(call.noted("channelsOfAll", before + channels + behind));
  Placed placed;
  placed.whole = mps::ImageBatch::create(call.device, wide, count);
  placed.images.batch = listOf(count, [&](std::size_t i) {
    return placed.whole[i]->subImageWithFeatureChannelRange(before, channels);
  });
  return placed;
}

Placed placeInBuffer(Call& call, const mps::ImageDescriptor& size, std::size_t count,
                     std::size_t longestGap) {
  mps::ImageStrides strides;
  strides.pixel = call.noted("pixel", size.featureChannels() + call.random.size(0, longestGap));
  strides.row = call.noted("row", strides.pixel * size.width() + call.random.size(0, longestGap));
  strides.image = call.noted("image", strides.row * size.height() + call.random.size(0, longestGap));
  const std::size_t offset = call.noted("offset", call.random.size(0, 9));
  const std::size_t step = mps::bytesPerChannel(size.channelFormat());
  Placed placed;
  placed.buffer = call.device->newBuffer((offset + strides.image * count + 8) * step);
  placed.images.batch = listOf(count, [&](std::size_t i) {
    return mps::Image::create(placed.buffer, (offset + i * strides.image) * step, size, strides);
  });
  return placed;
}

Placed placeStack(Call& call, mps::ImageDescriptor size, std::size_t count) {
  size.setNumberOfImages(count);
  Placed placed;
  placed.images.image = mps::Image::create(call.device, size);
  placed.whole = placed.images.batch = placed.images.image->batchRepresentation();
  return placed;
}

Placed place(Call& call, const mps::ImageDescriptor& size, std::size_t count, Arrangement arrangement) {
  Placed placed;
  const auto alone = [&](std::size_t) { return mps::Image::create(call.device, size); };
  switch (arrangement) {
    case Arrangement::Block:
      placed.whole = placed.images.batch = mps::ImageBatch::create(call.device, size, count);
      break;
    case Arrangement::Part:
      placed.whole = mps::ImageBatch::create(call.device, size, count + 2);
      placed.images.batch = placed.whole.slice(1, count);
      break;
    case Arrangement::Loose:
      placed.whole = placed.images.batch = listOf(count, alone);
      break;
    case Arrangement::Reversed:
      placed.whole = mps::ImageBatch::create(call.device, size, count);
      placed.images.batch = listOf(count, [&](std::size_t i) { return placed.whole[count - 1 - i]; });
      break;
    case Arrangement::Mixed: {
      const mps::ImageBatch block = mps::ImageBatch::create(call.device, size, count);
      placed.whole = placed.images.batch =
          listOf(count, [&](std::size_t i) { return call.random.chance(0.5) ? block[i] : alone(i); });
      break;
    }
    case Arrangement::ChannelRange:
      return placeChannelRange(call, size, count);
    case Arrangement::Gaps:
      return placeInBuffer(call, size, count, 5);
    case Arrangement::Buffer:
      return placeInBuffer(call, size, count, 0);
    case Arrangement::Stack:
      return placeStack(call, size, count);
  }
  return placed;
}

void fillWithSentinels(const Placed& placed, ElementFormat format) {
  Bytes bytes(placed.buffer ? placed.buffer->length() : bytesOf(placed.whole));
  fillWithSentinel(format, bytes);
  if (!placed.buffer) return placed.whole.writeBytes(std::span<const std::byte>(bytes), kPixelsFirst);
  std::ranges::copy(bytes, placed.buffer->contentsAs<std::byte>().begin());
  placed.buffer->didModifyRange(0, placed.buffer->length());
}

void fillWithValues(const Images& images, ElementFormat format, const ElementValue& value) {
  Bytes bytes(bytesOf(images.batch));
  const std::size_t step = bytesPerElement(format);
  for (std::size_t i = 0; i * step < bytes.size(); ++i) store(format, bytes.data() + i * step, value(i));
  images.batch.writeBytes(std::span<const std::byte>(bytes), kPixelsFirst);
}

/// Observes the images and all memory around them.
Observation& observe(Call& call, const char* name, const Placed& placed, ElementFormat format) {
  if (placed.buffer) {
    call.observeBuffer(name, placed.buffer, {}, format);
  } else {
    Observation observation;
    observation.name = name;
    observation.format = format;
    observation.synchronize = [whole = placed.whole](const auto& commandBuffer) {
      mps::ImageBatchSynchronize(whole, commandBuffer);
    };
    observation.read = [whole = placed.whole] { return bytesIn(whole); };
    call.observe(std::move(observation));
  }
  Observation& observation = call.observations.back();
  const CommandBufferPointer commandBuffer = call.begin();
  observation.synchronize(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  observation.before = observation.read();
  return observation;
}

Images make(Call& call, const char* name, mps::ImageDescriptor size, std::size_t count, const char* content,
            const ElementValue& value, Stacked stacked) {
  using enum Arrangement;
  size.setNumberOfImages(1);
  const Arrangement arrangement = stacked == Stacked::Yes
                                      ? Stack
                                      : call.random.oneOf({Block, Block, Block, Part, Loose, Reversed,
                                                           ChannelRange, Gaps, Gaps, Mixed, Buffer});
  call.description << ' ' << name << "=(" << size.describe() << ", " << count << " images, arrangement "
                   << static_cast<int>(arrangement) << ", " << content << ')';
  Placed placed = place(call, size, count, arrangement);
  if (!placed.images.image && count == 1) placed.images.image = placed.images.batch[0];
  const ElementFormat format = formatOf(size.channelFormat());
  fillWithSentinels(placed, format);
  if (value) fillWithValues(placed.images, format, value);
  placed.images.observation = &observe(call, name, placed, format);
  return placed.images;
}

}  // namespace

Images makeSources(Call& call, const char* name, const mps::ImageDescriptor& size, std::size_t count,
                   Numbers numbers, Stacked stacked) {
  Images images = make(
      call, name, size, count, random_calls::name(numbers), [&](std::size_t) { return call.number(numbers); },
      stacked);
  images.observation->role = Role::Source;
  return images;
}

Images makeSources(Call& call, const char* name, const mps::ImageDescriptor& size, std::size_t count,
                   const ElementValue& values) {
  Images images = make(call, name, size, count, "chosen", values, Stacked::No);
  images.observation->role = Role::Source;
  return images;
}

Images makeDestinations(Call& call, const char* name, const mps::ImageDescriptor& size, std::size_t count,
                        const Tolerance& tolerance, Stacked stacked) {
  Images images = make(call, name, size, count, "sentinels", {}, stacked);
  images.observation->tolerance = tolerance;
  return images;
}

void observeImages(Call& call, const char* name, const mps::ImageBatch& images, const Tolerance& tolerance) {
  const mps::ImageDescriptor& size = images.descriptor();
  call.description << ' ' << name << "=(" << size.describe() << ", " << images.count() << " images)";
  Observation observation;
  observation.name = name;
  observation.format = formatOf(size.channelFormat());
  observation.tolerance = tolerance;
  observation.synchronize = [images](const auto& commandBuffer) {
    mps::ImageBatchSynchronize(images, commandBuffer);
  };
  observation.read = [images] { return bytesIn(images); };
  call.observe(std::move(observation));
}

mps::ImageBatch partOf(const mps::ImageBatch& images, std::size_t first, std::size_t count) {
  return listOf(count, [&](std::size_t i) { return images[first + i]; });
}

mps::ImageDescriptor withFormat(mps::ImageDescriptor size, mps::ImageFeatureChannelFormat format) {
  size.setChannelFormat(format);
  return size;
}

mtl::Region clipRectangle(Call& call, std::size_t farthest, std::size_t shortest, std::size_t longest) {
  RandomNumbers& random = call.random;
  mtl::Region region = mps::RectNoClip;
  region.origin.x = random.size(0, farthest);
  region.origin.y = random.size(0, farthest);
  region.size.width = random.size(shortest, longest);
  region.size.height = random.size(shortest, longest);
  call.description << " clip=" << region.origin.x << ',' << region.origin.y << ',' << region.size.width << 'x'
                   << region.size.height;
  return region;
}

}  // namespace unmetal::random_calls
