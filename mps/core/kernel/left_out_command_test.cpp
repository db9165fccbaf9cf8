#include <gtest/gtest.h>

#include <cstring>

#include "mps/core/kernel/command_buffer.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mtl/buffer.hpp"
#include "mtl/memory.hpp"

/// What a predicate of 0 leaves as it was: values, and whether they can be used.
namespace mps::testing::left_out_command_test {
namespace {

class LeftOutCommand : public ScaleTest {
 protected:
  /// An image whose writer failed.
  std::shared_ptr<Image> invalidImage() {
    auto result = poisoned(sizeOf(2, 1, 1));
    const auto broken = Scale::create(device_);
    broken->setFailure("no luck");
    const auto buffer = commands();
    broken->encode(buffer, source_, result);
    buffer->commit();
    buffer->waitUntilCompleted();
    return result;
  }
  /// Writes the source, doubled, under a predicate of that value.
  void write(const std::shared_ptr<Image>& result, const std::shared_ptr<Predicate>& predicate) {
    const auto buffer = CommandBuffer::create(queue_);
    buffer->setPredicate(predicate);
    scale_->encode(buffer, source_, result);
    run(buffer);
  }
  std::shared_ptr<Predicate> predicateOf(std::uint32_t value) {
    auto predicate = Predicate::create(device_);
    std::memcpy(predicate->predicateBuffer()->contents(), &value, sizeof value);
    return predicate;
  }
  std::shared_ptr<Image> source_ = image(sizeOf(2, 1, 1), {1, 2});
};

TEST_F(LeftOutCommand, AnInvalidImageStaysInvalid) {
  const auto result = invalidImage();
  write(result, predicateOf(0));
  EXPECT_TRUE(names(errorOf([&] { valuesOf(*result); }), {"no luck"}));
  write(result, predicateOf(1));
  EXPECT_EQ(valuesOf(*result), (Values{2, 4})) << "valid again, because it was written";
}

TEST_F(LeftOutCommand, AnInvalidSourceOfACommandThatIsLeftOutIsNoFailure) {
  const auto source = image(sizeOf(2, 1, 1), {1, 2});
  const auto broken = Scale::create(device_);
  broken->setFailure("no luck");
  const auto first = commands();
  broken->encode(first, source_, source);
  const auto second = CommandBuffer::create(queue_);
  second->setPredicate(predicateOf(0));
  const auto result = poisoned(sizeOf(2, 1, 1));
  scale_->encode(second, source, result);
  first->commit();
  second->commit();
  second->throwIfFailed();
  EXPECT_EQ(valuesOf(*result), (Values{poison, poison}));
}

TEST_F(LeftOutCommand, APredicateThatNoCommandCouldWriteFailsTheCommand) {
  const auto predicate = predicateOf(1);
  predicate->predicateBuffer()->memory()->setFailure("no luck");
  const auto buffer = CommandBuffer::create(queue_);
  buffer->setPredicate(predicate);
  const auto result = poisoned(sizeOf(2, 1, 1));
  scale_->encode(buffer, source_, result);
  buffer->commit();
  EXPECT_TRUE(names(errorOf([&] { buffer->throwIfFailed(); }), {"Scale", "predicate", "no luck"}));
  EXPECT_TRUE(names(errorOf([&] { valuesOf(*result); }), {"no luck"}));
}

}  // namespace
}  // namespace mps::testing::left_out_command_test
