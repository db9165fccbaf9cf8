#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "mps/core/kernel/command_buffer.hpp"
#include "mps/core/types/error.hpp"
#include "mps/distributed/test_collectives.hpp"
#include "mps/weights/test_folder.hpp"

/// Ranks that are threads, and what every communicator refuses.
namespace mps::communicator_test {
namespace {

using test::bufferOf;
using test::encodeNow;
using test::runAll;
using test::runRanks;

class ThreadRanks : public ::testing::TestWithParam<std::size_t> {};
class SeveralThreadRanks : public ThreadRanks {};

TEST_P(ThreadRanks, SumBuffers) {
  runAll(test::ranks(GetParam()), test::sumsBuffers);
}
TEST_P(ThreadRanks, SumFloat16) {
  runAll(test::ranks(GetParam()), test::sumsFloat16);
}
TEST_P(ThreadRanks, SumVectors) {
  runAll(test::ranks(GetParam()), test::sumsVectors);
}
TEST_P(ThreadRanks, SumStates) {
  runAll(test::ranks(GetParam()), test::sumsStates);
}
TEST_P(ThreadRanks, SumImages) {
  runAll(test::ranks(GetParam()), test::sumsImages);
}
TEST_P(ThreadRanks, SumWhileOthersRun) {
  runAll(test::ranks(GetParam()), test::sumsWhileOthersRun);
}
TEST_P(ThreadRanks, GatherInTheOrderOfRanks) {
  runAll(test::ranks(GetParam()), test::gathersInTheOrderOfRanks);
}
TEST_P(ThreadRanks, BroadcastFromEachRank) {
  runAll(test::ranks(GetParam()), test::broadcastsFromEachRank);
}
TEST_P(ThreadRanks, GatherTexts) {
  runAll(test::ranks(GetParam()), test::gathersTexts);
}
TEST_P(SeveralThreadRanks, NameValuesThatDiffer) {
  runAll(test::ranks(GetParam()), test::namesValuesThatDiffer);
}
TEST_P(SeveralThreadRanks, FindWhatDiffers) {
  runAll(test::ranks(GetParam()), test::findsWhatDiffers);
}

/// One thread can serve all: nothing waits before the first command buffer is waited for.
TEST_P(ThreadRanks, AreEncodedByOneThread) {
  const auto communicators = test::ranks(GetParam());
  std::vector<std::shared_ptr<mtl::Buffer>> buffers;
  std::vector<std::shared_ptr<mtl::CommandBuffer>> pending;
  for (const auto& communicator : communicators) {
    buffers.push_back(bufferOf(*communicator, test::valuesOf(communicator->rank(), 100)));
    pending.push_back(communicator->device()->newCommandQueue()->commandBuffer());
    communicator->allReduce(pending.back(), buffers.back());
    pending.back()->commit();
  }
  for (const auto& commandBuffer : pending) commandBuffer->throwIfFailed();
  for (const auto& buffer : buffers) {
    test::expectSums(buffer->contentsAs<float>(), static_cast<int>(GetParam()), test::floatRoundoff);
    EXPECT_TRUE(std::ranges::equal(buffer->contentsAs<float>(), buffers[0]->contentsAs<float>()));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadRanks, ::testing::Values(1, 2, 3, 4, 8));
INSTANTIATE_TEST_SUITE_P(Sizes, SeveralThreadRanks, ::testing::Values(2, 3, 4, 8));

TEST(Communicator, KnowsItsPlace) {
  const auto communicators = test::ranks(3);
  ASSERT_EQ(communicators.size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(communicators[static_cast<std::size_t>(rank)]->rank(), rank);
    EXPECT_EQ(communicators[static_cast<std::size_t>(rank)]->size(), 3);
    EXPECT_EQ(communicators[static_cast<std::size_t>(rank)]->engineName(), "threads");
  }
  EXPECT_EQ(test::ranks(1)[0]->engineName(), "none");
}

TEST(Communicator, OfOneRecordsNothing) {
  const auto communicator = Communicator::create(mtl::createSystemDefaultDevice());
  const auto buffer = bufferOf(*communicator, test::valuesOf(0, 4));
  const auto commandBuffer = communicator->device()->newCommandQueue()->commandBuffer();
  communicator->allReduce(commandBuffer, buffer);
  communicator->broadcast(commandBuffer, buffer);
  communicator->agree(commandBuffer, {{"a", buffer}});
  communicator->allGather(commandBuffer, buffer, buffer);
  communicator->finish(commandBuffer, communicator->startAllReduce(commandBuffer, {buffer}));
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
}

/// A test is launched by nobody.
TEST(Communicator, OfAnEnvironmentWithoutLauncherIsOfOne) {
  const auto communicator = Communicator::fromEnvironment(mtl::createSystemDefaultDevice());
  EXPECT_EQ(communicator->size(), 1);
  EXPECT_EQ(communicator->engineName(), "none");
}

TEST(Communicator, RefusesWhatItCannotDo) {
  const auto device = mtl::newCPUDevice(1);
  const auto communicator = Communicator::create(device);
  const auto commandBuffer = device->newCommandQueue()->commandBuffer();
  const auto buffer = device->newBuffer(16);
  const auto foreign = mtl::newCPUDevice(1)->newBuffer(16);
  const std::vector<std::pair<std::function<void()>, std::string>> cases{
      {[&] { (void)Communicator::create(nullptr); }, "device is null"},
      {[&] { (void)Communicator::createGroup({}); }, "devices is an empty list"},
      {[&] {
         (void)Communicator::createGroup({device, device});
       },
       "cpu twice"},
      {[&] { communicator->setTimeout(std::chrono::milliseconds(0)); }, "timeout is 0 ms"},
      {[&] { communicator->allReduce(nullptr, buffer); }, "commandBuffer is null"},
      {[&] { communicator->allReduce(commandBuffer, std::shared_ptr<mtl::Buffer>()); }, "buffer is null"},
      {[&] { communicator->allReduce(commandBuffer, std::shared_ptr<State>()); }, "state is null"},
      {[&] { communicator->allReduce(commandBuffer, std::shared_ptr<Vector>()); }, "vector is null"},
      {[&] { communicator->allReduce(commandBuffer, ImageBatch()); }, "images is an empty batch"},
      {[&] { communicator->allReduce(commandBuffer, foreign); }, "buffer is of cpu"},
      {[&] { communicator->allReduce(commandBuffer, buffer, DataType::Int32); },
       "elements is Int32, expected float16 or float32"},
      {[&] { communicator->allGather(commandBuffer, buffer, device->newBuffer(20)); },
       "all is 20 bytes, expected 16: 1 times 16"},
      {[&] { communicator->broadcast(commandBuffer, buffer, 1); }, "root is 1, expected 0 to 0"},
      {[&] { communicator->agree("--name", std::string(201, 'x')); }, "--name is 201 bytes long"},
      {[&] { (void)communicator->gather(std::string(1001, 'x')); }, "value is 1001 bytes long"},
      {[&] { (void)Communicator::fromEnvironment(nullptr); }, "device is null"},
      {[&] { (void)Communicator::fromEnvironment(device, CommunicatorEngine::Nccl); },
       "engine is NCCL, expected MPI for a CPU device"},
  };
  for (const auto& [function, expected] : cases)
    EXPECT_NE(detail::errorOf<Error>(function).find(expected), std::string::npos)
        << detail::errorOf<Error>(function) << " / " << expected;
}

TEST(Communicator, RefusesAPredicate) {
  const auto communicators = test::ranks(2);
  const auto device = communicators[0]->device();
  const auto commandBuffer = CommandBuffer::create(device->newCommandQueue());
  commandBuffer->setPredicate(Predicate::create(device));
  const auto buffer = device->newBuffer(16);
  EXPECT_NE(detail::errorOf<Error>([&] {
              communicators[0]->allReduce(commandBuffer, buffer);
            }).find("one with a predicate"),
            std::string::npos);
}

TEST(Communicator, ARankThatDoesNotComeIsNamed) {
  const auto communicators = test::ranks(3);
  for (const auto& communicator : communicators) communicator->setTimeout(std::chrono::milliseconds(20));
  const auto errors = runRanks(communicators, [&](const auto& communicator) {
    if (communicator->rank() == 1) return;
    encodeNow(*communicator, [&](const auto& commandBuffer) {
      communicator->allReduce(commandBuffer, bufferOf(*communicator, test::valuesOf(0, 10)));
    });
  });
  const std::string expected =
      "Communicator: all-reduce of 10 float32: rank 1 of 3 did not come to it within 100 ms";
  EXPECT_EQ(errors, (std::vector<std::string>{expected, "", expected}));
  EXPECT_EQ("Communicator: " + communicators[0]->failure(), expected);
  EXPECT_EQ(communicators[2]->missingRanks(), std::vector<int>{1});
  EXPECT_EQ(communicators[1]->failure(), "");
}

TEST(Communicator, ARankThatLetsGoStopsTheOthersAtOnce) {
  auto communicators = test::ranks(2);
  communicators.pop_back();
  const auto errors =
      runRanks(communicators, [&](const auto& communicator) { communicator->agree("a", "b"); });
  EXPECT_NE(errors[0].find("rank 1 has let go of its communicator"), std::string::npos) << errors[0];
}

TEST(Communicator, OperationsThatAreNotTheSameFailOnAllRanks) {
  const auto errors = runRanks(test::ranks(2), [&](const auto& communicator) {
    encodeNow(*communicator, [&](const auto& commandBuffer) {
      communicator->allReduce(commandBuffer,
                              bufferOf(*communicator, test::valuesOf(0, communicator->rank() == 0 ? 4 : 5)));
    });
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("rank 0 came with: all-reduce of 4 float32; rank 1 with: all-reduce of 5 float32"),
              std::string::npos)
        << error;
}

}  // namespace
}  // namespace mps::communicator_test
