#include <gtest/gtest.h>

#include "mps/core/kernel/command_buffer.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mtl/command.hpp"

/// An image that was never written reads as zeros, though its only write was recorded and did not happen.
namespace mps::testing::first_write_test {
namespace {

class FirstWrite : public ScaleTest {
 protected:
  /// An image without memory, which will be recycled memory full of numbers.
  std::shared_ptr<Image> fresh() {
    { const auto old = poisoned(size_); }
    return image(size_);
  }
  std::shared_ptr<CommandBuffer> leavingOut() {
    auto buffer = CommandBuffer::create(queue_);
    buffer->setPredicate(Predicate::create(device_));  // 0
    return buffer;
  }

  const ImageDescriptor size_ = sizeOf(2, 2, 1);
  const Values zeros_ = Values(4);
  const Values in_ = counted(4);
  const std::shared_ptr<Image> source_ = image(size_, in_);
};

TEST_F(FirstWrite, ThatWasDroppedLeavesZeros) {
  const auto result = fresh();
  scale_->encode(commands(), source_, result);
  EXPECT_EQ(valuesOf(*result), zeros_);

  const auto next = fresh();
  scale_->encode(commands(), source_, next);
  const auto reader = commands();
  const auto copy = scale_->encode(reader, next);
  run(reader);
  EXPECT_EQ(valuesOf(*copy), zeros_) << "for a command, too";
}

TEST_F(FirstWrite, OfABatchThatWasDroppedLeavesZeros) {
  { const auto old = batch(size_, 2, Values(8, poison)); }
  const auto block = ImageBatch::create(device_, size_, 2);
  const ImageBatch loose{fresh(), fresh()};
  for (const ImageBatch& results : {block, loose}) {
    scale_->encodeBatch(commands(), ImageBatch{source_, source_}, results);
    EXPECT_EQ(valuesOf(results), Values(8));
  }
}

TEST_F(FirstWrite, ThatAPredicateLeftOutLeavesZeros) {
  const auto result = fresh();
  const auto buffer = leavingOut();
  scale_->encode(buffer, source_, result);
  run(buffer);
  EXPECT_EQ(valuesOf(*result), zeros_);
}

TEST_F(FirstWrite, OfAnEncodeThatWasTakenBackLeavesZeros) {
  const auto result = fresh();
  const auto buffer = commands();
  {
    const mtl::RecordingGuard guard(*buffer);
    scale_->encode(buffer, source_, result);
  }
  const auto copy = scale_->encode(buffer, result);
  run(buffer);
  EXPECT_EQ(valuesOf(*copy), zeros_);
  EXPECT_EQ(valuesOf(*result), zeros_);
}

TEST_F(FirstWrite, ThatIsDroppedLaterLeavesZerosToThoseBehindIt) {
  const auto result = fresh();
  auto writer = commands();
  scale_->encode(writer, source_, result);
  writer->enqueue();
  const auto reader = commands();
  const auto copy = scale_->encode(reader, result);
  reader->commit();
  writer = nullptr;
  reader->throwIfFailed();
  EXPECT_EQ(valuesOf(*copy), zeros_);
}

TEST_F(FirstWrite, ThatIsCommittedAfterItsReadersLeavesZerosToThem) {
  const auto result = fresh();
  const auto writer = commands();
  scale_->encode(writer, source_, result);
  const auto reader = commands();
  const auto copy = scale_->encode(reader, result);
  run(reader);
  EXPECT_EQ(valuesOf(*copy), zeros_);
  run(writer);
  EXPECT_EQ(valuesOf(*result), scaled(in_));
}

TEST_F(FirstWrite, ThatHappensIsReadByThoseBehindIt) {
  const auto result = fresh();
  const auto writer = commands();
  scale_->encode(writer, source_, result);
  const auto inside = scale_->encode(writer, result);
  writer->enqueue();
  const auto before = commands();
  const auto encodedBefore = scale_->encode(before, result);
  before->commit();
  writer->commit();
  const auto after = commands();
  const auto encodedAfter = scale_->encode(after, result);
  run(after);
  for (const auto& copy : {inside, encodedBefore, encodedAfter}) EXPECT_EQ(valuesOf(*copy), scaled(in_, 4));
  EXPECT_EQ(valuesOf(*result), scaled(in_));
}

TEST_F(FirstWrite, ThatIsDroppedTakesNothingFromOtherWrites) {
  for (const bool byTheHost : {false, true}) {
    const auto result = fresh();
    auto dropped = commands();
    scale_->encode(dropped, source_, result);
    const auto other = commands();
    if (byTheHost)
      fill(*result, scaled(in_));
    else
      scale_->encode(other, source_, result);
    run(other);
    dropped = nullptr;
    EXPECT_EQ(valuesOf(*result), scaled(in_)) << byTheHost;
  }
}

}  // namespace
}  // namespace mps::testing::first_write_test
