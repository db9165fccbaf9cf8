#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "mps/core/image/image.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/types/error.hpp"
#include "mps/core/types/float16.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

/// What the tests of this folder share. Values are small whole numbers, so results are compared exactly.
namespace mps::testing {

using Values = std::vector<float>;

inline constexpr auto pixelsFirst = DataLayout::HeightxWidthxFeatureChannels;
inline constexpr auto channelsFirst = DataLayout::FeatureChannelsxHeightxWidth;

/// first, first + 1, ...
inline Values counted(std::size_t count, float first = 1) {
  Values values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

inline ImageDescriptor sizeOf(std::size_t width, std::size_t height, std::size_t channels,
                              std::size_t images = 1) {
  return {ImageFeatureChannelFormat::Float32, width, height, channels, images};
}

inline std::size_t elementsOf(const ImageDescriptor& size) {
  return size.width() * size.height() * size.featureChannels() * size.numberOfImages();
}

/// Writes all stacked images of a float32 or float16 image.
inline void fill(Image& image, const Values& values) {
  const std::size_t each = values.size() / image.numberOfImages();
  for (std::size_t n = 0; n < image.numberOfImages(); ++n) {
    const auto part = std::span(values).subspan(n * each, each);
    if (image.featureChannelFormat() == ImageFeatureChannelFormat::Float32) {
      image.writeBytes(part, pixelsFirst, n);
      continue;
    }
    std::vector<Float16> float16Values;
    for (const float value : part) float16Values.push_back(toFloat16(value));
    image.writeBytes(std::span(float16Values), pixelsFirst, n);
  }
}

/// Reads all stacked images of a float32 or float16 image.
inline Values valuesOf(const Image& image) {
  Values values;
  const std::size_t each = image.width() * image.height() * image.featureChannels();
  for (std::size_t n = 0; n < image.numberOfImages(); ++n) {
    if (image.featureChannelFormat() == ImageFeatureChannelFormat::Float32) {
      Values part(each);
      image.readBytes(std::span(part), pixelsFirst, n);
      values.insert(values.end(), part.begin(), part.end());
      continue;
    }
    std::vector<Float16> float16Values(each);
    image.readBytes(std::span(float16Values), pixelsFirst, n);
    for (const Float16 half : float16Values) values.push_back(toFloat(half));
  }
  return values;
}

/// Reads all images of a batch.
inline Values valuesOf(const ImageBatch& batch) {
  Values all;
  for (std::size_t i = 0; i < batch.count(); ++i) {
    const Values values = valuesOf(*batch[i]);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// Reads a buffer of float32 values.
inline Values valuesOf(const std::shared_ptr<mtl::Buffer>& buffer) {
  const auto values = buffer->contentsAs<const float>();
  return {values.begin(), values.end()};
}

/// The text of the Error that a call throws; empty when it throws none.
template <class Function>
std::string errorOf(Function&& function) {
  try {
    function();
  } catch (const mtl::Error& error) {
    return error.what();
  }
  return {};
}

/// Whether a text contains all of the words.
inline ::testing::AssertionResult names(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (text.find(word) == std::string::npos)
      return ::testing::AssertionFailure() << "\"" << word << "\" is not in \"" << text << "\"";
  return ::testing::AssertionSuccess();
}

/// A device of its own for each test, so that counts of memory are the test's.
class DeviceTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::shared_ptr<Image> image(const ImageDescriptor& size) const {
    return Image::create(device_, size);
  }
  [[nodiscard]] std::shared_ptr<Image> image(const ImageDescriptor& size, const Values& values) const {
    auto made = Image::create(device_, size);
    fill(*made, values);
    return made;
  }
  /// An image that no kernel has written: every value is -1000.
  [[nodiscard]] std::shared_ptr<Image> poisoned(const ImageDescriptor& size) const {
    return image(size, Values(elementsOf(size), poison));
  }
  /// A batch in one block.
  [[nodiscard]] ImageBatch batch(const ImageDescriptor& size, std::size_t count, const Values& values) const {
    auto made = ImageBatch::create(device_, size, count);
    made.writeBytes(std::span(values), pixelsFirst);
    return made;
  }
  [[nodiscard]] std::shared_ptr<mtl::CommandBuffer> commands() const { return queue_->commandBuffer(); }
  static void run(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }

  static constexpr float poison = -1000;
  std::shared_ptr<mtl::Device> device_ = mtl::newCPUDevice(2);
  std::shared_ptr<mtl::CommandQueue> queue_ = device_->newCommandQueue();
};

}  // namespace mps::testing
