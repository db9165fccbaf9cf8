#include "fuzz/random_calls/call.hpp"

#include <utility>

#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace unmetal::random_calls {

const char* name(Numbers numbers) {
  switch (numbers) {
    case Numbers::Uniform:
      return "uniform";
    case Numbers::Positive:
      return "positive";
    case Numbers::Integers:
      return "integers";
    case Numbers::AwayFromZero:
      return "away from zero";
    case Numbers::ZeroOrOne:
      return "zero or one";
    case Numbers::Probabilities:
      return "probabilities";
  }
  return "";
}

Call::Call(std::shared_ptr<mtl::Device> device, std::shared_ptr<mtl::CommandQueue> queue, std::uint64_t seed,
           const Limits& limits)
    : device(std::move(device)), queue(std::move(queue)), random(seed), limits(limits) {}

double Call::number(Numbers numbers) {
  switch (numbers) {
    case Numbers::Uniform:
      return random.real(-1, 1);
    case Numbers::Positive:
      return random.real(0.05, 1);
    case Numbers::Integers:
      return static_cast<double>(random.integer(-3, 3));
    case Numbers::AwayFromZero: {
      const double size = random.real(0.5, 2);
      return random.chance(0.5) ? size : -size;
    }
    case Numbers::ZeroOrOne:
      return static_cast<double>(random.integer(0, 1));
    case Numbers::Probabilities:
      return random.real(0.02, 0.98);
  }
  return 0;
}

std::vector<float> Call::vector(std::size_t count, Numbers numbers) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(number(numbers));
  return values;
}

std::size_t Call::side() {
  const double which = random.real(0, 1);
  if (which < 0.12) return 1;
  return random.size(1, which < 0.7 ? 10 : 40);
}

std::size_t Call::matrixSide() {
  const double which = random.real(0, 1);
  if (which < 0.05) return random.size(200, 1500);
  return which < 0.35 ? random.size(1, 130) : side();
}

std::size_t Call::channels() {
  if (random.chance(0.5))
    return random.oneOf<std::size_t>({1, 2, 3, 4, 5, 7, 8, 12, 16, 20, 24, 32, 33, 40, 48, 64});
  return random.size(1, 70);
}

mps::ImageFeatureChannelFormat Call::anyFormat() {
  using Format = mps::ImageFeatureChannelFormat;
  const double which = random.real(0, 1);
  if (which < 0.8) return which < 0.4 ? Format::Float32 : Format::Float16;
  return which < 0.9 ? Format::Unorm8 : Format::Unorm16;
}

mps::ImageFeatureChannelFormat Call::floatFormat() {
  return random.chance(0.5) ? mps::ImageFeatureChannelFormat::Float32
                            : mps::ImageFeatureChannelFormat::Float16;
}

mps::ImageFeatureChannelFormat Call::resultFormat() {
  return random.chance(0.01) ? mps::ImageFeatureChannelFormat::Unorm8 : floatFormat();
}

mps::ImageDescriptor Call::imageSizes(std::size_t images, std::size_t elements) {
  std::size_t width = side();
  std::size_t height = side();
  std::size_t channelCount = channels();
  const double extreme = random.real(0, 1);
  const std::size_t longSide = random.size(1000, limits.longestSide);
  if (extreme < 0.06) {
    (extreme < 0.03 ? width : height) = longSide;
    (extreme < 0.03 ? height : width) = random.size(1, 3);
    channelCount = random.size(1, 9);
  } else if (extreme < 0.13) {
    // Beside thousands of channels those that one block of a GPU takes at once: up to 256 vectors of four.
    channelCount = extreme < 0.09 ? longSide : random.size(257, 1100);
    width = random.size(1, 3);
    height = random.size(1, 3);
  }
  while (width * height * channelCount * images > elements) {
    std::size_t& largest =
        channelCount >= width && channelCount >= height ? channelCount : (width >= height ? width : height);
    largest = (largest + 1) / 2;
  }
  return {anyFormat(), width, height, channelCount};
}

CommandBufferPointer Call::begin() const {
  return queue->commandBuffer();
}

void Call::finish(const CommandBufferPointer& commandBuffer) {
  stage += ", run";
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

Observation& Call::observe(Observation observation) {
  observations.push_back(std::move(observation));
  return observations.back();
}

void Call::observeBuffer(const char* buffersName, const std::shared_ptr<mtl::Buffer>& buffer,
                         const Tolerance& tolerance, ElementFormat format) {
  if (!buffer) return;
  Observation observation;
  observation.name = buffersName;
  observation.format = format;
  observation.tolerance = tolerance;
  observation.synchronize = [buffer](const auto& commandBuffer) { buffer->synchronize(*commandBuffer); };
  observation.read = [buffer] {
    const auto bytes = buffer->contentsAs<const std::byte>();
    return Bytes(bytes.begin(), bytes.end());
  };
  observe(std::move(observation));
}

void reduceTo(std::size_t most, std::size_t& first, std::size_t& second, std::size_t factor) {
  while (first * second * factor > most && first * second > 1) {
    std::size_t& larger = first >= second ? first : second;
    larger = (larger + 1) / 2;
  }
}

}  // namespace unmetal::random_calls
