#include <gtest/gtest.h>

#include <limits>
#include <new>

#include "mps/core/image/image_storage.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mtl/memory.hpp"

/// A failed encode is rolled back: commands, read counts, memory and offset are as before (design section 9).
namespace mps::kernel_rollback_test {
namespace {

using testing::counted;
using testing::Join;
using testing::Scale;
using testing::ScaleGradient;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;

class KernelRollback : public testing::DeviceTest {
 protected:
  /// What must not change.
  struct Snapshot {
    std::size_t commands, heapBytes, deviceBytes;
    Offset offset;
    bool operator==(const Snapshot&) const = default;
  };
  [[nodiscard]] Snapshot snapshot() const {
    return {commands_->commandCount(), queue_->heap()->usedBytes(), device_->currentAllocatedSize(),
            scale_->offset()};
  }
  std::shared_ptr<TemporaryImage> written(std::size_t readCount) {
    auto image = TemporaryImage::create(commands_, sizeOf(4, 4, 4));
    scale_->encode(commands_, source_, image);
    image->setReadCount(readCount);
    return image;
  }
  /// Runs what must throw and compares.
  template <class Function>
  void expectNoTrace(Function&& function) {
    const Snapshot before = snapshot();
    EXPECT_ANY_THROW(function());
    EXPECT_EQ(snapshot(), before);
  }

  static constexpr std::size_t tooMuch = std::numeric_limits<std::size_t>::max() / 2;
  std::shared_ptr<mtl::CommandBuffer> commands_ = queue_->commandBuffer();
  std::shared_ptr<Scale> scale_ = Scale::create(device_);
  std::shared_ptr<Image> source_ = image(sizeOf(4, 4, 4), counted(64));
};

TEST_F(KernelRollback, WithoutMemoryForTheKernelNothingHasHappened) {
  const auto temporary = written(2);
  const auto fresh = TemporaryImage::create(commands_, sizeOf(4, 4, 4));
  const auto unwritten = image(sizeOf(4, 4, 4));
  scale_->setOffset({1, 2, 0});
  scale_->setScratchBytes(tooMuch);
  expectNoTrace([&] { scale_->encode(commands_, temporary, fresh); });
  expectNoTrace([&] { scale_->encode(commands_, temporary, unwritten); });
  expectNoTrace([&] { scale_->encode(commands_, temporary); });
  std::shared_ptr<State> state;
  expectNoTrace([&] { scale_->encode(commands_, temporary, state, true); });
  EXPECT_EQ(state, nullptr);
  EXPECT_EQ(temporary->readCount(), 2U);
  EXPECT_EQ(fresh->readCount(), 1U);
  EXPECT_EQ(scale_->encodes(), 1);
  EXPECT_EQ(valuesOf(*unwritten), Values(64, 0)) << "still never written";
}

TEST_F(KernelRollback, LooseBatchesLeaveNoCopiesBehind) {
  const ImageBatch sources{source_, image(sizeOf(4, 4, 4)), written(1)};
  const ImageBatch results{image(sizeOf(4, 4, 4)), image(sizeOf(4, 4, 4)), image(sizeOf(4, 4, 4))};
  scale_->setScratchBytes(tooMuch);
  expectNoTrace([&] { scale_->encodeBatch(commands_, sources, results); });
  expectNoTrace([&] { scale_->encodeBatch(commands_, sources); });
  EXPECT_EQ(static_cast<TemporaryImage&>(*sources[2]).readCount(), 1U);
}

TEST_F(KernelRollback, EdgeCopiesLeaveNothingBehind) {
  const auto temporary = written(1);
  const auto result = image(sizeOf(4, 4, 4), Values(64, poison));
  scale_->setOffset({-3, 0, 0});
  scale_->setScratchBytes(tooMuch);
  expectNoTrace([&] { scale_->encode(commands_, temporary, result); });
  EXPECT_EQ(temporary->readCount(), 1U);
}

TEST_F(KernelRollback, ARefusedStateKeepsItsOldRecord) {
  const auto state = scale_->resultState(source_);
  scale_->encode(commands_, source_, state, image(sizeOf(4, 4, 4)));
  const auto record = dynamic_cast<NNGradientState&>(*state).record();
  scale_->setScratchBytes(tooMuch);
  EXPECT_ANY_THROW(scale_->encode(commands_, source_, state, image(sizeOf(4, 4, 4))));
  EXPECT_EQ(dynamic_cast<NNGradientState&>(*state).record(), record);
}

TEST_F(KernelRollback, TheEncodeWorksOnceTheCauseIsGone) {
  const auto temporary = written(1);
  const auto result = image(sizeOf(4, 4, 4));
  scale_->setScratchBytes(tooMuch);
  EXPECT_ANY_THROW(scale_->encode(commands_, temporary, result));
  scale_->setScratchBytes(0);
  scale_->encode(commands_, temporary, result);
  run(commands_);
  EXPECT_EQ(valuesOf(*result)[63], 256);
}

TEST_F(KernelRollback, BinaryKernels) {
  const auto join = Join::create(device_);
  const auto a = written(1);
  const auto b = written(1);
  join->setScratchBytes(tooMuch);
  join->setPrimaryOffset({3, 2, 1});
  expectNoTrace([&] { join->encode(commands_, a, b, image(sizeOf(4, 4, 4))); });
  expectNoTrace([&] { join->encode(commands_, a, b); });
  EXPECT_EQ(a->readCount(), 1U);
  EXPECT_EQ(b->readCount(), 1U);
  EXPECT_EQ(join->primaryOffset(), (Offset{3, 2, 1}));
}

TEST_F(KernelRollback, GradientKernels) {
  const auto gradientKernel = ScaleGradient::create(device_);
  std::shared_ptr<State> state;
  scale_->encode(commands_, source_, state, false);
  const auto gradient = written(1);
  const auto temporary = written(1);
  const auto result = image(sizeOf(4, 4, 4));
  gradientKernel->setFailingCall(1);
  expectNoTrace([&] { gradientKernel->encode(commands_, gradient, temporary, state); });
  EXPECT_EQ(gradientKernel->secondarySourceFeatureChannelMaxCount(), std::numeric_limits<std::size_t>::max());
  gradientKernel->setFailingCall(2);
  expectNoTrace([&] { gradientKernel->encode(commands_, gradient, temporary, state, result); });
  EXPECT_EQ(gradient->readCount(), 1U);
  EXPECT_EQ(temporary->readCount(), 1U);
}

TEST_F(KernelRollback, ABatchThatIsTakenOneByOneIsRolledBackWhole) {
  const auto gradientKernel = ScaleGradient::create(device_);
  gradientKernel->setNeedsOrder(true);
  StateBatch states;
  const auto sources = batch(sizeOf(4, 4, 4), 3, counted(192));
  scale_->encodeBatch(commands_, sources, states, false);
  const StateBatch reversed{states[2], states[1], states[0]};
  const ImageBatch gradients{written(1), written(1), written(1)};
  gradientKernel->setFailingCall(3);
  expectNoTrace([&] { gradientKernel->encodeBatch(commands_, gradients, sources, reversed); });
  EXPECT_EQ(gradientKernel->calls(), 3);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(static_cast<TemporaryImage&>(*gradients[i]).readCount(), 1U);
  gradientKernel->setFailingCall(0);
  const auto made = gradientKernel->encodeBatch(commands_, gradients, sources, reversed);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(static_cast<TemporaryImage&>(*gradients[i]).readCount(), 0U);
  EXPECT_EQ(made.count(), 3U);
}

TEST_F(KernelRollback, ABatchThatIsTakenOneByOneCountsARepeatedImageOnce) {
  const auto gradientKernel = ScaleGradient::create(device_);
  gradientKernel->setNeedsOrder(true);
  StateBatch states;
  const auto sources = batch(sizeOf(4, 4, 4), 2, counted(128));
  scale_->encodeBatch(commands_, sources, states, false);
  const auto gradient = written(2);
  gradientKernel->encodeBatch(commands_, ImageBatch{gradient, gradient}, sources,
                              StateBatch{states[1], states[0]});
  EXPECT_EQ(gradient->readCount(), 1U);
}

}  // namespace
}  // namespace mps::kernel_rollback_test
