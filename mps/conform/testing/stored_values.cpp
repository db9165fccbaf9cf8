#include "mps/conform/testing/stored_values.hpp"

#include <cstring>
#include <functional>
#include <span>

#include "mps/conform/compare.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

void synchronize(mtl::Device& device,
                 const std::function<void(const std::shared_ptr<mtl::CommandBuffer>&)>& record) {
  const auto commandBuffer = device.newCommandQueue()->commandBuffer();
  record(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

}  // namespace

ReferenceTensor storedValues(const ImageBatch& images) {
  const ImageDescriptor& size = images.descriptor();
  const auto shape =
      TensorShape::dense(static_cast<std::int64_t>(images.count()), static_cast<std::int64_t>(size.height()),
                         static_cast<std::int64_t>(size.width()),
                         static_cast<std::int64_t>(size.featureChannels()), size.channelFormat());
  synchronize(*images[0]->device(),
              [&](const auto& commandBuffer) { ImageBatchSynchronize(images, commandBuffer); });
  std::vector<std::byte> stored(static_cast<std::size_t>(shape.bytes()));
  images.readBytes(std::span(stored), DataLayout::HeightxWidthxFeatureChannels);
  ReferenceTensor tensor(shape.images, shape.height, shape.width, shape.channels);
  tensor.values = readTensor(shape, stored.data());
  return tensor;
}

std::vector<double> storedFloats(const std::shared_ptr<mtl::Device>& device,
                                 const std::shared_ptr<mtl::Memory>& memory, std::size_t byteOffset,
                                 std::size_t count) {
  synchronize(*device, [&](const auto& commandBuffer) { memory->synchronize(*commandBuffer); });
  std::vector<float> stored(count);
  std::memcpy(stored.data(), memory->contents() + byteOffset, count * sizeof(float));
  return {stored.begin(), stored.end()};
}

}  // namespace mps::detail
