#include "mps/graph/run/step_scratch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

/// Where the steps of a graph take the memory that they work in.
namespace mps::step_scratch_test {
namespace {

using testing::Values;

/// Twice its source; it fills its scratch memory before and after.
class Doubling final : public testing::Scale {
 public:
  Doubling(std::shared_ptr<mtl::Device> device, std::size_t scratchBytes)
      : Scale(std::move(device), 2), bytes_(scratchBytes) {}
  [[nodiscard]] bool repeatsCommands() const override { return true; }
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override {
    detail::PreparedCall prepared = Scale::prepareForward(call);
    prepared.plan = testing::planOf(
        [bytes = bytes_, to = call.destination](const detail::Operands& operands) {
          if (bytes > 0) std::memset(operands.scratch, 0xFF, bytes);
          const auto* const source = reinterpret_cast<const float*>(operands.source);
          auto* const destination = reinterpret_cast<float*>(operands.destination);
          for (std::int64_t i = 0; i < to.elements(); ++i) destination[i] = 2 * source[i];
          if (bytes > 0) std::memset(operands.scratch, 0xFF, bytes);
        },
        bytes_);
    return prepared;
  }

 private:
  std::size_t bytes_;
};

class DoublingNode final : public NNFilterNode {
 public:
  DoublingNode(const std::shared_ptr<NNImageNode>& source, std::size_t scratchBytes)
      : NNFilterNode({source}), bytes_(scratchBytes) {}
  [[nodiscard]] std::string className() const override { return "DoublingNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(
      const std::shared_ptr<mtl::Device>& device) const override {
    return std::make_shared<Doubling>(device, bytes_);
  }

 private:
  std::size_t bytes_;
};

/// The CPU, with the largest of the sums that it had allocated at a time.
class WatchedDevice final : public mtl::Device {
 public:
  WatchedDevice() : Device("cpu") {}
  [[nodiscard]] std::size_t peakBytes() const { return peakBytes_; }
  [[nodiscard]] int releases() const { return releases_; }
  [[nodiscard]] mtl::DeviceKind kind() const override { return mtl::DeviceKind::CPU; }
  [[nodiscard]] std::string description() const override { return cpu_->description(); }
  [[nodiscard]] std::size_t recommendedMaxWorkingSetSize() const override {
    return cpu_->recommendedMaxWorkingSetSize();
  }
  [[nodiscard]] std::size_t currentAllocatedSize() const override { return cpu_->currentAllocatedSize(); }
  [[nodiscard]] std::size_t systemAllocationCount() const override { return cpu_->systemAllocationCount(); }
  [[nodiscard]] int threadCount() const override { return cpu_->threadCount(); }
  void setThreadCount(int count) override { cpu_->setThreadCount(count); }
  std::shared_ptr<mtl::Memory> allocate(std::size_t bytes) override {
    auto memory = cpu_->allocate(bytes);
    peakBytes_ = std::max(peakBytes_, cpu_->currentAllocatedSize());
    return memory;
  }
  void releaseRecycledMemory() override {
    cpu_->releaseRecycledMemory();
    ++releases_;
  }
  std::shared_ptr<mtl::Executor> newExecutor() override { return cpu_->newExecutor(); }

 private:
  std::shared_ptr<mtl::Device> cpu_ = mtl::newCPUDevice(1);
  std::size_t peakBytes_ = 0;
  int releases_ = 0;
};

constexpr std::size_t kWidth = 1024;
constexpr std::size_t kHeight = 1536;
constexpr std::size_t kImageBytes =
    kWidth * kHeight * sizeof(float);  // whole pages of 2 MiB, as the device takes them

/// y + 8 y of y = 2 x: images y, 2 y, 4 y and 8 y, of which three need memory at the same time.
class Doublings {
 public:
  /// @param scratch of the steps that make 2 y, 4 y and 8 y
  explicit Doublings(const std::array<std::size_t, 3>& scratch) {
    std::vector<std::shared_ptr<DoublingNode>> nodes{
        std::make_shared<DoublingNode>(NNImageNode::create(), 0)};
    for (const std::size_t bytes : scratch)
      nodes.push_back(std::make_shared<DoublingNode>(nodes.back()->resultImage(), bytes));
    const auto sum = NNAdditionNode::create(nodes.front()->resultImage(), nodes.back()->resultImage());
    graph_ = NNGraph::create(device_, sum->resultImage());
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i % 1000);
    source_->writeBytes(std::span<const float>(values_), DataLayout::HeightxWidthxFeatureChannels);
    before_ = device_->currentAllocatedSize();
    for (float& value : values_) value *= 18;
  }

  [[nodiscard]] std::shared_ptr<mtl::CommandBuffer> commandBuffer() const { return queue_->commandBuffer(); }
  [[nodiscard]] std::shared_ptr<Image> encode(const std::shared_ptr<mtl::CommandBuffer>& buffer) const {
    return graph_->encode(buffer, {source_});
  }
  [[nodiscard]] bool isRight(const Image& result) const { return testing::valuesOf(result) == values_; }
  /// What the device has allocated for encodes.
  [[nodiscard]] std::size_t bytes() const { return device_->currentAllocatedSize() - before_; }
  [[nodiscard]] std::size_t peakBytes() const { return device_->peakBytes() - before_; }
  /// How often the device gave memory back to the system.
  [[nodiscard]] int releases() const { return device_->releases(); }

  /// Encodes four times. @return what the device has allocated after each
  std::vector<std::size_t> bytesOfEncodes() {
    std::vector<std::size_t> allocated;
    for (int number = 0; number < 4; ++number) {
      const auto buffer = commandBuffer();
      const auto result = encode(buffer);
      buffer->commit();
      buffer->throwIfFailed();
      EXPECT_TRUE(isRight(*result)) << "encode " << number;
      allocated.push_back(bytes());
    }
    return allocated;
  }

 private:
  std::shared_ptr<WatchedDevice> device_ = std::make_shared<WatchedDevice>();
  std::shared_ptr<mtl::CommandQueue> queue_ = device_->newCommandQueue();
  std::shared_ptr<NNGraph> graph_;
  std::shared_ptr<Image> source_ = Image::create(device_, testing::sizeOf(kWidth, kHeight, 1));
  Values values_ = Values(kWidth * kHeight);
  std::size_t before_ = 0;
};

std::vector<std::size_t> bytesOfEncodes(const std::array<std::size_t, 3>& scratch) {
  return Doublings(scratch).bytesOfEncodes();
}

TEST(StepScratch, LiesWhereNoImageIsDuringThatStep) {
  const auto without = bytesOfEncodes({0, 0, 0});
  EXPECT_EQ(bytesOfEncodes({kImageBytes, 0, 0}), without) << "the place of 4 y is free";
  EXPECT_EQ(bytesOfEncodes({0, kImageBytes, 0}).back(), without.back() + kImageBytes) << "no place is free";
}

TEST(StepScratch, IsPlacedWithTheImagesFromTheSecondEncodeOn) {
  const std::size_t without = bytesOfEncodes({0, 0, 0}).back();
  const auto whereTwoImagesLive = bytesOfEncodes({2 * kImageBytes, 0, 0});
  EXPECT_EQ(whereTwoImagesLive[0] - without, 2 * kImageBytes);
  const auto everywhere = bytesOfEncodes({2 * kImageBytes, 3 * kImageBytes, 5 * kImageBytes});
  EXPECT_EQ(everywhere[0] - without, 10 * kImageBytes);
  for (const std::size_t encode : {1U, 2U, 3U}) {
    EXPECT_EQ(whereTwoImagesLive[encode] - without, kImageBytes);
    EXPECT_EQ(everywhere[encode] - without, 5 * kImageBytes);
  }
}

TEST(StepScratch, OldAndNewPlacesAreNotThereTogether) {
  const Doublings doublings({2 * kImageBytes, 3 * kImageBytes, 5 * kImageBytes});
  const auto first = doublings.commandBuffer();
  static_cast<void>(doublings.encode(first));
  first->commit();
  const std::size_t atFirst = doublings.bytes();
  for (int encode = 0; encode < 3; ++encode) {
    const auto buffer = doublings.commandBuffer();
    const auto result = doublings.encode(buffer);
    buffer->commit();
    buffer->throwIfFailed();
    EXPECT_TRUE(doublings.isRight(*result)) << "encode " << encode;
  }
  EXPECT_EQ(doublings.peakBytes(), atFirst);
  EXPECT_EQ(doublings.releases(), 1) << "memory of the old places is of no use to later encodes";
  EXPECT_LT(doublings.bytes(), atFirst);
}

TEST(StepScratch, StaysWhileItsCommandsAreNotCommitted) {
  const Doublings doublings({2 * kImageBytes, 3 * kImageBytes, 5 * kImageBytes});
  const auto buffer = doublings.commandBuffer();
  const auto first = doublings.encode(buffer);
  const std::size_t atFirst = doublings.bytes();
  const auto second = doublings.encode(buffer);
  EXPECT_GE(doublings.bytes(), atFirst);
  buffer->commit();
  buffer->throwIfFailed();
  EXPECT_TRUE(doublings.isRight(*first));
  EXPECT_TRUE(doublings.isRight(*second));
  const std::size_t inPieces = doublings.bytes();
  const auto later = doublings.commandBuffer();
  const auto third = doublings.encode(later);
  later->commit();
  later->throwIfFailed();
  EXPECT_TRUE(doublings.isRight(*third));
  EXPECT_LT(doublings.bytes(), inPieces);
}

}  // namespace
}  // namespace mps::step_scratch_test
