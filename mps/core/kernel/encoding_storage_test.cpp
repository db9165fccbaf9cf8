#include <gtest/gtest.h>

#include "mps/core/testing/test_kernels.hpp"
#include "mtl/memory.hpp"

/// encodingStorageSize and batchEncodingStorageSize.
namespace mps::testing::encoding_storage_test {
namespace {

class EncodingStorage : public ScaleGradientTest {
 protected:
  std::shared_ptr<Image> source_ = image(sizeOf(3, 2, 1), counted(6));
  std::shared_ptr<Image> result_ = image(sizeOf(3, 2, 1));
};

TEST_F(EncodingStorage, NeedsNoDestination) {
  scale_->setScratchBytes(1000);
  scale_->setOffset({1, 0, 0});
  EXPECT_EQ(scale_->encodingStorageSize(source_), 1000U);
  EXPECT_EQ(scale_->batchEncodingStorageSize(ImageBatch{source_, result_}), 1000U);
  EXPECT_EQ(scale_->offset(), (Offset{1, 0, 0})) << "a question changes nothing";
  EXPECT_EQ(source_->storage()->allocatedMemory() == nullptr, false);
  EXPECT_EQ(result_->storage()->allocatedMemory(), nullptr) << "nor does it take memory";
}

TEST_F(EncodingStorage, TakesAStackOfImages) {
  scale_->setScratchBytes(1000);
  auto size = sizeOf(3, 2, 1);
  size.setNumberOfImages(4);
  EXPECT_EQ(scale_->encodingStorageSize(image(size)), 1000U);
}

TEST_F(EncodingStorage, OfAGradientKernelWithItsState) {
  const auto state = forward(source_, result_);
  gradient_->setScratchBytes(500);
  const auto incoming = image(sizeOf(3, 2, 1), counted(6));
  const std::shared_ptr<State> states[] = {state};
  EXPECT_EQ(gradient_->encodingStorageSize(incoming, source_, states), 500U);
  EXPECT_EQ(gradient_->encodingStorageSize(incoming, source_, states, image(sizeOf(3, 2, 1))), 500U);
  const StateBatch batches[] = {StateBatch{state}};
  EXPECT_EQ(gradient_->batchEncodingStorageSize(ImageBatch{incoming}, ImageBatch{source_}, batches), 500U);
  EXPECT_EQ(gradient_->encodingStorageSize(incoming, source_), 500U) << "without a state";
  const auto buffer = commands();
  gradient_->encode(buffer, incoming, source_, state);
  EXPECT_EQ(queue_->heap()->peakBytes(), 512U) << "what an encode really takes";
}

TEST_F(EncodingStorage, OfAGradientKernelRefusesWhatTheEncodeRefuses) {
  const auto state = forward(source_, result_);
  const std::shared_ptr<State> states[] = {state};
  const auto small = image(sizeOf(1, 1, 1), {1});
  EXPECT_TRUE(names(errorOf([&] { (void)gradient_->encodingStorageSize(small, source_, states); }),
                    {"ScaleGradient", "sourceGradient"}));
}

TEST_F(EncodingStorage, OfTwoSourcesIsZeroWithoutScratchMemory) {
  const auto join = Join::create(device_);
  EXPECT_EQ(join->encodingStorageSize(source_, result_), 0U);
  EXPECT_EQ(join->batchEncodingStorageSize(ImageBatch{}, ImageBatch{}), 0U);
  EXPECT_TRUE(names(errorOf([&] { (void)join->batchEncodingStorageSize(ImageBatch{source_}, ImageBatch{}); }),
                    {"Join", "secondaryImages"}));
}

TEST_F(EncodingStorage, StatesAreMadeWithTheArgumentsOfTheDocumentedSelectors) {
  const auto join = Join::create(device_);
  join->setMakesState(true);
  const auto digits = Digits::create(device_, 2);
  digits->setMakesState(true);
  const std::shared_ptr<State> none[] = {State::create(device_, {})};
  const StateBatch slots[] = {StateBatch{none[0]}};
  const ImageBatch source{source_};
  const ImageBatch result{result_};
  const auto buffer = commands();
  EXPECT_EQ(scale_->resultStateBatch(source, slots, result).count(), 1U);
  EXPECT_EQ(scale_->temporaryResultStateBatch(buffer, source, slots, result).count(), 1U);
  EXPECT_NE(join->resultState(source_, source_, none, result_), nullptr);
  EXPECT_NE(join->temporaryResultState(buffer, source_, source_, none, result_), nullptr);
  EXPECT_EQ(join->resultStateBatch(source, source, slots, result).count(), 1U);
  EXPECT_EQ(join->temporaryResultStateBatch(buffer, source, source, slots, result).count(), 1U);
  const std::shared_ptr<Image> images[] = {source_, source_};
  const ImageBatch batches[] = {source, source};
  EXPECT_NE(digits->resultState(images, none, result_), nullptr);
  EXPECT_NE(digits->temporaryResultState(buffer, images, none, result_), nullptr);
  EXPECT_EQ(digits->resultStateBatch(batches, slots, result).count(), 1U);
  EXPECT_EQ(digits->temporaryResultStateBatch(buffer, batches, slots, result).count(), 1U);
}

}  // namespace
}  // namespace mps::testing::encoding_storage_test
