#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "mps/core/array/array_storage.hpp"
#include "mps/core/array/matrix.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/kernel/command_buffer.hpp"
#include "mps/core/testing/test_kernels.hpp"

/// What the library says without failing: the logs of a command buffer, and the commentary of verbose kernels.
namespace mps::testing::logs_test {
namespace {

class Logs : public ScaleTest {
 protected:
  std::shared_ptr<Image> source_ = image(sizeOf(3, 2, 1), counted(6));
};

TEST_F(Logs, D15ATemporaryImageThatIsLetGoWithReadsLeftIsALineAndNoError) {
  const auto scale = Scale::create(device_);
  scale->setLabel("lost");
  const auto buffer = commands();
  auto result = scale->encode(buffer, source_);
  EXPECT_TRUE(buffer->logs().empty()) << "somebody may still read it";
  result.reset();
  ASSERT_EQ(buffer->logs().size(), 1U);
  EXPECT_TRUE(names(buffer->logs()[0], {"temporary image", "2x3x1 float32", "Scale \"lost\"", "1 read left"}))
      << buffer->logs()[0];
  run(buffer);
  EXPECT_EQ(buffer->logs().size(), 1U) << "to be seen after completion too";
}

TEST_F(Logs, D15OneThatWasReadOrFreedIsNoLine) {
  const auto buffer = commands();
  scale_->encode(buffer, Scale::create(device_)->encode(buffer, source_));
  std::static_pointer_cast<TemporaryImage>(Scale::create(device_)->encode(buffer, source_))->setReadCount(0);
  EXPECT_TRUE(buffer->logs().empty());
}

TEST_F(Logs, D15OfABatchAllReadsAreCounted) {
  const auto buffer = commands();
  {
    const auto images = ImageBatch::createTemporary(buffer, sizeOf(1, 1, 1), 3);
    ImageBatchIncrementReadCount(images.slice(0, 1), 1);
  }
  ASSERT_EQ(buffer->logs().size(), 1U);
  EXPECT_TRUE(names(buffer->logs()[0], {"4 reads left"})) << buffer->logs()[0];
}

TEST_F(Logs, D15ATemporaryStateIsALineToo) {
  StateResourceList list;
  list.appendBuffer(16);
  const auto buffer = commands();
  State::createTemporary(buffer, list)->setLabel("mask");
  ASSERT_EQ(buffer->logs().size(), 1U);
  EXPECT_TRUE(names(buffer->logs()[0], {"temporary state \"mask\"", "1 read left"})) << buffer->logs()[0];
  State::createTemporary(buffer, list)->setReadCount(0);
  EXPECT_EQ(buffer->logs().size(), 1U);
}

TEST_F(Logs, D15ATemporaryVectorOrMatrixIsALineToo) {
  const auto buffer = commands();
  TemporaryVector::create(buffer, VectorDescriptor::vectorDescriptor(4, DataType::Float32));
  TemporaryMatrix::create(buffer, MatrixDescriptor::matrixDescriptor(2, 2, 8, DataType::Float32))
      ->setReadCount(3);
  ASSERT_EQ(buffer->logs().size(), 2U);
  EXPECT_TRUE(names(buffer->logs()[0], {"TemporaryVector", "1 read left"})) << buffer->logs()[0];
  EXPECT_TRUE(names(buffer->logs()[1], {"TemporaryMatrix", "3 reads left"})) << buffer->logs()[1];
  TemporaryVector::create(buffer, VectorDescriptor::vectorDescriptor(4, DataType::Float32))->setReadCount(0);
  EXPECT_EQ(buffer->logs().size(), 2U);
}

TEST_F(Logs, D15AFailedEncodeSaysNothingMore) {
  const auto scale = Scale::create(device_);
  scale->setSourceFeatureChannelOffset(3);
  const auto buffer = commands();
  EXPECT_NE(errorOf([&] { scale->encode(buffer, source_); }), "");
  EXPECT_TRUE(buffer->logs().empty());
}

TEST_F(Logs, OfABufferInPiecesAreThoseOfAllPieces) {
  const auto buffer = CommandBuffer::create(queue_);
  const auto first = buffer->rootCommandBuffer();
  auto image = TemporaryImage::create(buffer, sizeOf(1, 1, 1));
  buffer->commitAndContinue();
  image.reset();
  EXPECT_EQ(buffer->logs().size(), 1U);
  EXPECT_EQ(first->logs(), buffer->logs());
}

TEST_F(Logs, D15OneThatIsStillHeldIsALineWhenTheBufferHasCompleted) {
  const auto scale = Scale::create(device_);
  scale->setLabel("lost");
  const auto buffer = commands();
  auto result = scale->encode(buffer, source_);
  result->setLabel("features");
  EXPECT_TRUE(buffer->logs().empty());
  run(buffer);
  ASSERT_EQ(buffer->logs().size(), 1U);
  EXPECT_EQ(buffer->logs()[0],
            "temporary image \"features\" (1x2x3x1 float32), written by Scale \"lost\", has 1 read left");
  result.reset();
  EXPECT_EQ(buffer->logs().size(), 1U) << "not twice";
}

TEST_F(Logs, D15StatesAndArraysNameTheirProducers) {
  const auto buffer = commands();
  StateResourceList list;
  list.appendBuffer(16);
  const auto state = State::createTemporary(buffer, list);
  state->setLabel("mask");
  state->setProducer("Kernel \"of it\"");
  const auto vector =
      TemporaryVector::create(buffer, VectorDescriptor::vectorDescriptor(4, DataType::Float32));
  vector->storage().setProducer("Kernel \"of that\"");
  run(buffer);
  const auto logs = buffer->logs();
  ASSERT_EQ(logs.size(), 2U);
  for (const char* line : {"temporary state \"mask\" of Kernel \"of it\" has 1 read left",
                           "TemporaryVector, written by Kernel \"of that\", has 1 read left"})
    EXPECT_NE(std::find(logs.begin(), logs.end(), line), logs.end()) << line;
}

TEST_F(Logs, D15BetweenThePiecesOfABufferReadsMayStillCome) {
  const auto buffer = CommandBuffer::create(queue_);
  const auto first = buffer->rootCommandBuffer();
  const auto read = TemporaryImage::create(buffer, sizeOf(1, 1, 1));
  const auto unread = TemporaryImage::create(buffer, sizeOf(2, 1, 1));
  buffer->commitAndContinue();
  first->waitUntilCompleted();
  EXPECT_TRUE(buffer->logs().empty());
  scale_->encode(buffer, read, image(sizeOf(1, 1, 1)));
  buffer->commit();
  buffer->waitUntilCompleted();
  ASSERT_EQ(buffer->logs().size(), 1U);
  EXPECT_TRUE(names(buffer->logs()[0], {"1x1x2x1", "1 read left"})) << buffer->logs()[0];
}

TEST_F(Logs, D15AfterTheLastPieceThatIsDroppedNobodyReads) {
  auto buffer = CommandBuffer::create(queue_);
  const auto first = buffer->rootCommandBuffer();
  const auto unread = TemporaryImage::create(buffer, sizeOf(2, 1, 1));
  buffer->commitAndContinue();
  first->waitUntilCompleted();
  EXPECT_TRUE(first->logs().empty());
  buffer.reset();
  EXPECT_EQ(first->logs().size(), 1U);
}

TEST_F(Logs, ReadsThatAreLeftArePrintedWhenAskedFor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own, which reads the variable anew
  const auto lose = [] {
    const auto device = mtl::newCPUDevice(1);
    const auto buffer = device->newCommandQueue()->commandBuffer();
    const auto held = TemporaryImage::create(buffer, sizeOf(2, 1, 1));
    held->setLabel("held");
    buffer->commit();
    buffer->waitUntilCompleted();
    std::exit(0);
  };
  setenv("UNMETAL_VERBOSE", "dispatch,reads", 1);
  EXPECT_EXIT(lose(), ::testing::ExitedWithCode(0),
              "^unmetal: temporary image \"held\" \\(1x1x2x1 float32\\) has 1 read left\n$");
  setenv("UNMETAL_VERBOSE", "dispatch", 1);
  EXPECT_EXIT(lose(), ::testing::ExitedWithCode(0), "^$");
  unsetenv("UNMETAL_VERBOSE");
}

TEST_F(Logs, HaveABound) {
  const auto buffer = commands();
  for (int i = 0; i < 200; ++i) TemporaryImage::create(buffer, sizeOf(1, 1, 1));
  EXPECT_EQ(buffer->logs().size(), 100U);
}

/// What a function prints on stderr.
template <class Function>
std::string printedBy(Function&& function) {
  ::testing::internal::CaptureStderr();
  function();
  return ::testing::internal::GetCapturedStderr();
}

TEST_F(Logs, AVerboseKernelNamesItsImplementationAtEachEncode) {
  const auto kernel = permanentScale();
  kernel->setLabel("speaks");
  const auto encode = [&] { kernel->encode(commands(), source_); };
  EXPECT_EQ(printedBy(encode), "");
  kernel->setOptions(KernelOptions::Verbose);
  EXPECT_EQ(printedBy(encode), "unmetal: Scale \"speaks\": test\n");
  EXPECT_EQ(printedBy(encode), "unmetal: Scale \"speaks\": test\n");
}

TEST_F(Logs, KernelsAreVerboseFromTheStartWhenTheEnvironmentSaysSo) {
  setenv("MPS_LOG_INFO", "1", 1);
  const auto kernel = Scale::create(device_);
  unsetenv("MPS_LOG_INFO");
  EXPECT_EQ(kernel->options(), KernelOptions::Verbose);
  EXPECT_EQ(Scale::create(device_)->options(), KernelOptions::None);
}

}  // namespace
}  // namespace mps::testing::logs_test
