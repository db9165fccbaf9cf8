#include "mps/graph/run/step_scratch.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
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

/// The CPU, with a limit to what a single allocation may have.
class ScarceDevice final : public mtl::Device {
 public:
  ScarceDevice() : Device("cpu") {}
  void setMostBytes(std::size_t bytes) { mostBytes_ = bytes; }
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
    if (bytes > mostBytes_) throw std::bad_alloc();
    return cpu_->allocate(bytes);
  }
  std::shared_ptr<mtl::Executor> newExecutor() override { return cpu_->newExecutor(); }

 private:
  std::shared_ptr<mtl::Device> cpu_ = mtl::newCPUDevice(1);
  std::size_t mostBytes_ = std::numeric_limits<std::size_t>::max();
};

constexpr std::size_t kWidth = 1024;
constexpr std::size_t kHeight = 1536;
constexpr std::size_t kImageBytes =
    kWidth * kHeight * sizeof(float);  // whole pages of 2 MiB, as the device takes them

/// Encodes y + 8 y of y = 2 x some times: images y, 2 y, 4 y and 8 y, of which three need memory at the same time.
/// @param scratch of the steps that make 2 y, 4 y and 8 y
/// @param mostBytes of a single allocation from the second encode on
/// @return what the device has allocated after each encode
std::vector<std::size_t> bytesOfEncodes(const std::array<std::size_t, 3>& scratch,
                                        std::size_t mostBytes = std::numeric_limits<std::size_t>::max()) {
  const auto device = std::make_shared<ScarceDevice>();
  const auto queue = device->newCommandQueue();
  Values values(kWidth * kHeight);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  std::vector<std::shared_ptr<DoublingNode>> nodes{std::make_shared<DoublingNode>(NNImageNode::create(), 0)};
  for (const std::size_t bytes : scratch)
    nodes.push_back(std::make_shared<DoublingNode>(nodes.back()->resultImage(), bytes));
  const auto sum = NNAdditionNode::create(nodes.front()->resultImage(), nodes.back()->resultImage());
  const auto graph = NNGraph::create(device, sum->resultImage());
  const auto source = Image::create(device, testing::sizeOf(kWidth, kHeight, 1));
  source->writeBytes(std::span<const float>(values), DataLayout::HeightxWidthxFeatureChannels);
  const std::size_t before = device->currentAllocatedSize();
  for (float& value : values) value *= 18;
  std::vector<std::size_t> allocated;
  for (int encode = 0; encode < 4; ++encode) {
    if (encode == 1) device->setMostBytes(mostBytes);
    const auto buffer = queue->commandBuffer();
    const auto result = graph->encode(buffer, {source});
    buffer->commit();
    buffer->throwIfFailed();
    EXPECT_TRUE(testing::valuesOf(*result) == values) << "encode " << encode;
    allocated.push_back(device->currentAllocatedSize() - before);
  }
  return allocated;
}

TEST(StepScratch, LiesWhereNoImageIsDuringThatStep) {
  const auto without = bytesOfEncodes({0, 0, 0});
  EXPECT_EQ(bytesOfEncodes({kImageBytes, 0, 0}), without) << "the place of 4 y is free";
  EXPECT_EQ(bytesOfEncodes({0, kImageBytes, 0}).back(), without.back() + kImageBytes) << "no place is free";
}

TEST(StepScratch, IsInOnePieceFromTheSecondEncodeOn) {
  const auto without = bytesOfEncodes({0, 0, 0});
  const auto with = bytesOfEncodes({2 * kImageBytes, 3 * kImageBytes, 5 * kImageBytes});
  EXPECT_EQ(with[0] - without[0], 10 * kImageBytes);
  for (const std::size_t encode : {1U, 2U, 3U}) EXPECT_EQ(with[encode] - without[encode], 5 * kImageBytes);
}

TEST(StepScratch, StaysInPiecesWhereThereIsNoMemoryForOne) {
  const std::array<std::size_t, 3> scratch{2 * kImageBytes, 3 * kImageBytes, 5 * kImageBytes};
  const auto allocated = bytesOfEncodes(scratch, 4 * kImageBytes);
  EXPECT_EQ(allocated, std::vector(4, bytesOfEncodes(scratch)[0]));
}

}  // namespace
}  // namespace mps::step_scratch_test
