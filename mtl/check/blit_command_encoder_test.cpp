#include "mtl/blit_command_encoder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "mtl/buffer.hpp"
#include "mtl/check/command_test_tools.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/error.hpp"
#include "mtl/memory.hpp"
#include "mtl/read_only_memory.hpp"

namespace mtl::blit_command_encoder_test {
namespace {

using Bytes = std::vector<std::uint8_t>;

class BlitEncoder : public ::testing::Test {
 protected:
  [[nodiscard]] std::shared_ptr<Buffer> buffer(const Bytes& bytes) const {
    return device_->newBuffer(std::as_bytes(std::span(bytes)));
  }
  static Bytes counted(std::size_t count, std::uint8_t first = 0) {
    Bytes bytes(count);
    std::iota(bytes.begin(), bytes.end(), first);
    return bytes;
  }
  static Bytes bytesOf(const Buffer& buffer) {
    const auto bytes = buffer.contentsAs<std::uint8_t>();
    return {bytes.begin(), bytes.end()};
  }
  /// Of what a call throws; empty when nothing.
  static std::string errorOf(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
  void run() const {
    blit_->endEncoding();
    commandBuffer_->commit();
    commandBuffer_->throwIfFailed();
  }

  std::shared_ptr<Device> device_ = newCPUDevice(2);
  std::shared_ptr<CommandBuffer> commandBuffer_ = device_->newCommandQueue()->commandBuffer();
  std::shared_ptr<BlitCommandEncoder> blit_ = commandBuffer_->blitCommandEncoder();
};

TEST_F(BlitEncoder, ReadsReadOnlyMemoryAndDoesNotWriteIt) {
  const auto original = buffer(counted(8));
  const auto copy = std::make_shared<Buffer>(
      device_, std::make_shared<ReadOnlyMemory>(original->memory(), "a copy", "an original"),
      StorageMode::Shared);
  const auto destination = buffer(Bytes(8));
  const std::string sentence = ": the buffer to write is a copy, expected an original";
  EXPECT_EQ(errorOf([&] { blit_->copyFromBuffer(destination, 0, copy, 0, 8); }),
            "BlitCommandEncoder: copyFromBuffer" + sentence);
  EXPECT_EQ(errorOf([&] { blit_->fillBuffer(copy, 2, 3, 7); }), "BlitCommandEncoder: fillBuffer" + sentence);
  blit_->copyFromBuffer(copy, 0, destination, 0, 8);
  run();
  EXPECT_EQ(bytesOf(*destination), counted(8));
  EXPECT_EQ(bytesOf(*original), counted(8));
}

TEST_F(BlitEncoder, CopiesAPartToAPart) {
  const auto source = buffer(counted(10));
  const auto destination = buffer(counted(8, 100));
  blit_->copyFromBuffer(source, 3, destination, 1, 5);
  EXPECT_EQ(bytesOf(*destination), counted(8, 100)) << "it runs after the commit";
  blit_->synchronizeResource(destination);
  run();
  EXPECT_EQ(bytesOf(*destination), (Bytes{100, 3, 4, 5, 6, 7, 106, 107}));
  EXPECT_EQ(bytesOf(*source), counted(10));
}

TEST_F(BlitEncoder, FillsAPart) {
  const auto buffer = this->buffer(counted(6));
  blit_->fillBuffer(buffer, 2, 3, 0xAB);
  run();
  EXPECT_EQ(bytesOf(*buffer), (Bytes{0, 1, 0xAB, 0xAB, 0xAB, 5}));
}

/// More than one thread's share, and no multiple of anything.
TEST_F(BlitEncoder, CopiesAndFillsALargeBuffer) {
  constexpr std::size_t length = (std::size_t{3} << 20U) + 13;
  const Bytes bytes = counted(length);
  const auto source = buffer(bytes);
  const auto copy = buffer(Bytes(length, 0xEE));
  const auto filled = buffer(Bytes(length + 2, 0xEE));
  blit_->copyFromBuffer(source, 0, copy, 0, length);
  blit_->fillBuffer(filled, 1, length, 7);
  run();
  EXPECT_EQ(bytesOf(*copy), bytes);
  Bytes expected(length + 2, 7);
  expected.front() = expected.back() = 0xEE;
  EXPECT_EQ(bytesOf(*filled), expected);
}

TEST_F(BlitEncoder, RunsInTheOrderOfEncodingWithOtherWork) {
  const auto first = buffer(Bytes(4, 1));
  const auto second = buffer(Bytes(4, 2));
  Bytes seen;
  blit_->fillBuffer(first, 0, 4, 9);
  blit_->copyFromBuffer(first, 0, second, 0, 2);
  blit_->endEncoding();
  commandBuffer_->append(testing::call([&] { seen = bytesOf(*second); }));
  blit_ = commandBuffer_->blitCommandEncoder();
  blit_->fillBuffer(second, 0, 4, 0);
  run();
  EXPECT_EQ(seen, (Bytes{9, 9, 2, 2}));
  EXPECT_EQ(bytesOf(*second), Bytes(4, 0));
}

TEST_F(BlitEncoder, CopiesWithinABufferBetweenPartsThatDoNotOverlap) {
  const auto buffer = this->buffer(counted(8));
  blit_->copyFromBuffer(buffer, 0, buffer, 4, 4);
  run();
  EXPECT_EQ(bytesOf(*buffer), (Bytes{0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST_F(BlitEncoder, TakesPrivateBuffersAndKeepsThemAlive) {
  const auto result = buffer(Bytes(4, 0));
  {
    const auto hidden = device_->newBuffer(4, ResourceOptions::StorageModePrivate);
    blit_->fillBuffer(hidden, 0, 4, 5);
    blit_->synchronizeResource(hidden);  // nothing to do
    blit_->copyFromBuffer(hidden, 0, result, 0, 4);
  }
  run();
  EXPECT_EQ(bytesOf(*result), Bytes(4, 5));
}

TEST_F(BlitEncoder, NoBytesRecordNothing) {
  const auto buffer = this->buffer(counted(4));
  blit_->copyFromBuffer(buffer, 4, buffer, 4, 0);
  blit_->fillBuffer(buffer, 0, 0, 1);
  EXPECT_EQ(commandBuffer_->commandCount(), 0U);
}

TEST_F(BlitEncoder, RefusesRangesThatLeaveABufferAndOverlap) {
  const auto small = buffer(counted(4));
  const auto large = buffer(counted(8));
  const std::size_t huge = ~std::size_t{0};
  EXPECT_NE(errorOf([&] { blit_->copyFromBuffer(small, 1, large, 0, 4); }), "");
  EXPECT_NE(errorOf([&] { blit_->copyFromBuffer(large, 0, small, 3, 2); }), "");
  EXPECT_NE(errorOf([&] { blit_->copyFromBuffer(small, 5, large, 0, 0); }), "");
  EXPECT_NE(errorOf([&] { blit_->copyFromBuffer(small, 1, large, 0, huge); }), "");
  EXPECT_NE(errorOf([&] { blit_->fillBuffer(small, 2, 3, 0); }), "");
  EXPECT_NE(errorOf([&] { blit_->fillBuffer(small, huge, 2, 0); }), "");
  EXPECT_EQ(errorOf([&] { blit_->copyFromBuffer(large, 2, large, 0, 3); }),
            "BlitCommandEncoder: copyFromBuffer between ranges that overlap");
  EXPECT_EQ(errorOf([&] { blit_->fillBuffer(small, 3, 2, 0); }),
            "BlitCommandEncoder: fillBuffer of 2 bytes from 3 leaves a buffer of 4 bytes");
  EXPECT_EQ(commandBuffer_->commandCount(), 0U);
}

TEST_F(BlitEncoder, RefusesNullAndBuffersOfAnotherDevice) {
  const auto own = buffer(counted(4));
  const auto foreign = newCPUDevice(1)->newBuffer(4);
  for (const auto& wrong : {std::shared_ptr<Buffer>(), foreign}) {
    EXPECT_NE(errorOf([&] { blit_->copyFromBuffer(wrong, 0, own, 0, 1); }), "");
    EXPECT_NE(errorOf([&] { blit_->copyFromBuffer(own, 0, wrong, 0, 1); }), "");
    EXPECT_NE(errorOf([&] { blit_->fillBuffer(wrong, 0, 1, 0); }), "");
    EXPECT_NE(errorOf([&] { blit_->synchronizeResource(wrong); }), "");
  }
  EXPECT_EQ(commandBuffer_->commandCount(), 0U);
}

TEST_F(BlitEncoder, NothingElseIsEncodedOrCommittedWhileItIsOpen) {
  const auto buffer = this->buffer(counted(4));
  EXPECT_NE(errorOf([&] { commandBuffer_->commit(); }).find("endEncoding"), std::string::npos);
  EXPECT_NE(errorOf([&] { commandBuffer_->blitCommandEncoder(); }).find("endEncoding"), std::string::npos);
  EXPECT_NE(errorOf([&] { commandBuffer_->checkOpen(); }).find("endEncoding"), std::string::npos);
  EXPECT_NE(errorOf([&] { buffer->synchronize(*commandBuffer_); }).find("endEncoding"), std::string::npos);
  EXPECT_EQ(commandBuffer_->status(), CommandBufferStatus::NotEnqueued);
  blit_ = nullptr;  // ends it
  EXPECT_EQ(errorOf([&] { commandBuffer_->commit(); }), "");
}

TEST_F(BlitEncoder, RecordsNothingAfterItsEndOrTheCommit) {
  const auto buffer = this->buffer(counted(4));
  blit_->endEncoding();
  blit_->endEncoding();
  EXPECT_NE(errorOf([&] { blit_->fillBuffer(buffer, 0, 4, 0); }).find("after endEncoding"),
            std::string::npos);
  EXPECT_NE(errorOf([&] { blit_->copyFromBuffer(buffer, 0, buffer, 2, 2); }), "");
  EXPECT_NE(errorOf([&] { blit_->synchronizeResource(buffer); }), "");
  commandBuffer_->commit();
  EXPECT_NE(errorOf([&] { commandBuffer_->blitCommandEncoder(); }).find("after commit"), std::string::npos);
}

/// A failed command leaves its destination invalid: a copy from there fails, too, until the bytes are written.
TEST_F(BlitEncoder, ContentThatIsNotThereIsNotCopied) {
  const auto broken = buffer(counted(4));
  const auto other = buffer(counted(4));
  broken->memory()->setFailure("planted");
  const auto outcome = [&](const std::function<void(BlitCommandEncoder&)>& encode) {
    const auto commandBuffer = commandBuffer_->commandQueue()->commandBuffer();
    encode(*commandBuffer->blitCommandEncoder());
    commandBuffer->commit();
    commandBuffer->waitUntilCompleted();
    const auto error = commandBuffer->error();
    return error ? error->message : std::string();
  };
  EXPECT_EQ(outcome([&](BlitCommandEncoder& blit) { blit.copyFromBuffer(broken, 0, other, 0, 2); }),
            "planted");
  other->memory()->clearFailure();
  EXPECT_EQ(outcome([&](BlitCommandEncoder& blit) { blit.fillBuffer(broken, 0, 3, 0); }), "");
  EXPECT_EQ(outcome([&](BlitCommandEncoder& blit) { blit.copyFromBuffer(broken, 0, other, 0, 3); }), "");
  EXPECT_EQ(outcome([&](BlitCommandEncoder& blit) { blit.copyFromBuffer(broken, 2, other, 2, 2); }),
            "planted");
  EXPECT_EQ(outcome([&](BlitCommandEncoder& blit) { blit.copyFromBuffer(other, 0, other, 2, 2); }), "")
      << "what comes first was good all the time";
  EXPECT_EQ(outcome([&](BlitCommandEncoder& blit) { blit.copyFromBuffer(other, 0, broken, 2, 2); }), "");
  EXPECT_EQ(broken->memory()->failure(), "");
  EXPECT_EQ(other->memory()->failure(), "");
}

}  // namespace
}  // namespace mtl::blit_command_encoder_test
