#include "mps/core/image/state.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "mps/core/image/forward_record.hpp"
#include "mps/core/image/gradient_state.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mtl/buffer.hpp"
#include "mtl/memory.hpp"

namespace mps::state_test {
namespace {

using testing::counted;
using testing::errorOf;
using testing::names;
using testing::Scale;
using testing::ScaleGradient;
using testing::sizeOf;

class StateTest : public testing::DeviceTest {};

TEST_F(StateTest, APermanentStateHasZeroFilledBuffersThatItTakesAtFirstUse) {
  for (int round = 0; round < 2; ++round) {
    const auto state = State::create(device_, StateResourceList{64, 256});
    EXPECT_FALSE(state->isTemporary());
    EXPECT_EQ(state->readCount(), 0U);
    EXPECT_EQ(state->resourceCount(), 2U);
    EXPECT_EQ(state->resource(0, false), nullptr);
    EXPECT_EQ(state->bufferSize(0), 64U);
    EXPECT_EQ(state->bufferSize(1), 256U);
    EXPECT_EQ(state->bufferSize(2), 0U);
    EXPECT_EQ(state->resourceType(1), StateResourceType::Buffer);
    EXPECT_EQ(state->resourceType(2), StateResourceType::None);
    EXPECT_EQ(state->textureInfo(0), StateTextureInfo());
    EXPECT_EQ(state->resourceSize(), 320U);
    const auto buffer = state->resource(1);
    EXPECT_EQ(state->resource(1), buffer);
    EXPECT_EQ(state->resource(1, false), buffer);
    EXPECT_EQ(buffer->length(), 256U);
    for (const float value : buffer->contentsAs<float>()) EXPECT_EQ(value, 0);
    std::memset(buffer->contents(), 0xFF, 256);
    EXPECT_TRUE(names(errorOf([&] { state->resource(2); }), {"index", "2"}));
  }
}

TEST_F(StateTest, BuffersAreAppendedInOrder) {
  StateResourceList list;
  list.appendBuffer(4);
  list.appendBuffer(12);
  const auto state = State::create(device_, list);
  EXPECT_EQ(state->bufferSize(0), 4U);
  EXPECT_EQ(state->bufferSize(1), 12U);
}

TEST_F(StateTest, AStateAroundBuffersOfTheCallerOwnsNothing) {
  const auto buffer = device_->newBuffer(16);
  const auto state = State::create({buffer});
  EXPECT_EQ(state->resource(0, false), buffer);
  EXPECT_EQ(state->resourceSize(), 0U);
  EXPECT_EQ(state->bufferSize(0), 16U);
  EXPECT_EQ(state->device(), device_);
  EXPECT_EQ(State::create(std::vector<std::shared_ptr<mtl::Buffer>>{})->resourceCount(), 0U);
  EXPECT_NE(errorOf([] { State::create({std::shared_ptr<mtl::Buffer>()}); }), "");
  EXPECT_NE(errorOf([] { State::create(std::shared_ptr<mtl::Device>(), StateResourceList{4}); }), "");
}

TEST_F(StateTest, APermanentStateIsNeverCounted) {
  const auto state = State::create(device_, StateResourceList{4});
  EXPECT_NO_THROW(state->setReadCount(3));
  EXPECT_EQ(state->readCount(), 0U);
  EXPECT_NO_THROW(state->setReadCount(0));
  EXPECT_NE(state->resource(0), nullptr);
}

TEST_F(StateTest, ATemporaryStateLivesOnTheHeapUntilItsCountIsZero) {
  const auto buffer = commands();
  const auto state = State::createTemporary(buffer, StateResourceList{100, 100});
  EXPECT_TRUE(state->isTemporary());
  EXPECT_EQ(state->readCount(), 1U);
  EXPECT_EQ(queue_->heap()->usedBytes(), 0U);
  EXPECT_EQ(state->resource(0)->contents(), nullptr) << "private storage";
  state->resource(1);
  EXPECT_EQ(queue_->heap()->usedBytes(), 512U);
  state->setReadCount(2);
  EXPECT_EQ(state->readCount(), 2U);
  state->setReadCount(0);
  EXPECT_EQ(queue_->heap()->usedBytes(), 0U);
  state->setLabel("statistics");
  EXPECT_TRUE(names(errorOf([&] { state->resource(0); }), {"statistics", "readCount"}));
  EXPECT_NE(errorOf([&] { state->setReadCount(1); }), "");
}

TEST_F(StateTest, ATemporaryStateWithoutResourcesIsNotTemporary) {
  const auto state = State::createTemporary(commands());
  EXPECT_FALSE(state->isTemporary());
  EXPECT_EQ(state->readCount(), 0U);
  EXPECT_NE(errorOf([] { State::createTemporary(nullptr, StateResourceList{4}); }), "");
  const auto committed = commands();
  run(committed);
  EXPECT_NE(errorOf([&] { State::createTemporary(committed, StateResourceList{4}); }), "");
}

TEST_F(StateTest, ATemporaryStateBelongsToItsCommandBuffer) {
  const auto buffer = commands();
  const auto state = State::createTemporary(buffer, StateResourceList{4});
  EXPECT_TRUE(state->belongsTo(*buffer));
  EXPECT_FALSE(state->belongsTo(*commands()));
  EXPECT_TRUE(State::create(device_, StateResourceList{4})->belongsTo(*buffer));
}

TEST_F(StateTest, ADroppedBufferWhoseHandlerHoldsATemporaryStateGoesWithIt) {
  auto buffer = commands();
  auto state = State::createTemporary(buffer, StateResourceList{4});
  const std::weak_ptr<State> watched = state;
  buffer->addCompletedHandler([held = std::move(state)](mtl::CommandBuffer&) {});
  buffer = nullptr;
  EXPECT_TRUE(watched.expired());
}

TEST_F(StateTest, ObjectsOfAnotherDeviceAreRefused) {
  const auto other = mtl::newCPUDevice(1);
  const auto foreign = State::create(other, StateResourceList{4});
  EXPECT_TRUE(names(errorOf([&] { foreign->synchronize(commands()); }), {"State", "another device"}));
  EXPECT_TRUE(names(errorOf([&] {
                      State::create({device_->newBuffer(4), other->newBuffer(4)});
                    }),
                    {"State", "resource", "another device"}));
}

TEST_F(StateTest, SynchronizeIsLegalBeforeCommitOnly) {
  const auto state = State::create(device_, StateResourceList{4});
  const auto buffer = commands();
  state->synchronize(buffer);
  state->resource(0);
  state->synchronize(buffer);
  State::createTemporary(buffer, StateResourceList{4})->synchronize(buffer);
  run(buffer);
  EXPECT_NE(errorOf([&] { state->synchronize(buffer); }), "");
  EXPECT_NE(errorOf([&] { state->synchronize(nullptr); }), "");
}

class StateBatchTest : public StateTest {};

TEST_F(StateBatchTest, ASharedStateCountsOnce) {
  const auto buffer = commands();
  const auto state = State::createTemporary(buffer, StateResourceList{8});
  const StateBatch batch(state, 5);
  EXPECT_EQ(batch.count(), 5U);
  EXPECT_EQ(batch[0], state);
  EXPECT_EQ(batch[4], state);
  EXPECT_EQ(batch.sharedState(), state);
  EXPECT_EQ(batch.distinct().size(), 1U);
  EXPECT_EQ(StateBatchIncrementReadCount(batch, 1), 1U);
  EXPECT_EQ(state->readCount(), 2U);
  EXPECT_EQ(StateBatchResourceSize(batch), 8U);
  EXPECT_EQ(StateBatchIncrementReadCount(StateBatch{state, state}, 1), 1U);
  EXPECT_EQ(state->readCount(), 3U);
  EXPECT_EQ(StateBatchIncrementReadCount(batch, -7), 1U);
  EXPECT_EQ(state->readCount(), 0U);
  EXPECT_EQ(StateBatchIncrementReadCount(batch, 2), 1U) << "one at 0 stays there";
  const auto another = State::createTemporary(buffer, StateResourceList{4});
  StateBatchIncrementReadCount(StateBatch{another}, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(another->readCount(), 0U);
  EXPECT_EQ(state->readCount(), 0U);
  EXPECT_EQ(StateBatchIncrementReadCount(StateBatch(), 1), 0U);
}

TEST_F(StateBatchTest, StatesOfTheirOwnAreCountedEach) {
  const auto buffer = commands();
  const auto a = State::createTemporary(buffer, StateResourceList{8});
  const auto b = State::createTemporary(buffer, StateResourceList{16});
  const auto permanent = State::create(device_, StateResourceList{32});
  const StateBatch batch{a, b, permanent, a};
  EXPECT_EQ(batch.sharedState(), nullptr);
  EXPECT_EQ(StateBatchIncrementReadCount(batch, 2), 3U);
  EXPECT_EQ(a->readCount(), 3U);
  EXPECT_EQ(b->readCount(), 3U);
  EXPECT_EQ(permanent->readCount(), 0U);
  EXPECT_EQ(StateBatchResourceSize(batch), 56U);
  StateBatchSynchronize(batch, buffer);
  const auto part = batch.slice(1, 2);
  EXPECT_EQ(part.count(), 2U);
  EXPECT_EQ(part[0], b);
  EXPECT_EQ(part[1], permanent);
  EXPECT_NE(errorOf([&] { static_cast<void>(batch[4]); }), "");
  EXPECT_NE(errorOf([&] { static_cast<void>(batch.slice(3, 2)); }), "");
  EXPECT_NE(errorOf([&] { static_cast<void>(batch.slice(1, std::numeric_limits<std::size_t>::max())); }), "");
  EXPECT_NE(errorOf([] { StateBatch{std::shared_ptr<State>()}; }), "");
  EXPECT_NE(errorOf([] { StateBatch(std::shared_ptr<State>(), 3); }), "");
}

TEST_F(StateBatchTest, StatesOfALibraryBatchAreTheSameObjectEachTime) {
  const auto scale = Scale::create(device_);
  StateBatch states;
  const auto sources = batch(sizeOf(1, 1, 1), 3, counted(3));
  const auto buffer = commands();
  scale->encodeBatch(buffer, sources, states, false);
  ASSERT_EQ(states.count(), 3U);
  EXPECT_EQ(states[1], states[1]);
  EXPECT_NE(states[0], states[1]);
  EXPECT_EQ(states.slice(1, 2)[0], states[1]);
  EXPECT_EQ(states.slice(1, 2)[1], states[2]);
}

TEST_F(StateBatchTest, MakesNoStateUntilSomebodyAsks) {
  int made = 0;
  const StateBatch batch(
      [&](std::size_t) {
        ++made;
        return NNGradientState::create(device_);
      },
      100);
  const auto record = std::make_shared<detail::ForwardRecord>();
  batch.setRecord(record);
  std::size_t first = 0;
  EXPECT_EQ(batch.slice(40, 3).commonRecord(first), record);
  EXPECT_EQ(first, 40U);
  EXPECT_EQ(made, 0);
  const auto state = std::static_pointer_cast<NNGradientState>(batch[7]);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(state->record(), record);
  EXPECT_EQ(state->imageIndex(), 7U);
}

/// Parts that are encoded one after the other: each state has the record of its own part, whenever it is made.
TEST_F(StateBatchTest, PartsHaveRecordsOfTheirOwn) {
  const StateBatch batch([&](std::size_t) { return NNGradientState::create(device_); }, 5);
  const auto whole = std::make_shared<detail::ForwardRecord>();
  const auto part = std::make_shared<detail::ForwardRecord>();
  const auto last = std::make_shared<detail::ForwardRecord>();
  batch.setRecord(whole);
  batch.slice(1, 2).setRecord(part);
  batch.slice(4, 1).setRecord(last);
  const auto expectRecord = [&](std::size_t i, const auto& record, std::size_t image) {
    const auto state = std::static_pointer_cast<NNGradientState>(batch[i]);
    EXPECT_EQ(state->record(), record) << i;
    EXPECT_EQ(state->imageIndex(), image) << i;
  };
  std::size_t first = 0;
  EXPECT_EQ(batch.commonRecord(first), nullptr);
  EXPECT_EQ(batch.slice(3, 1).commonRecord(first), whole);
  EXPECT_EQ(first, 3U);
  expectRecord(0, whole, 0);
  expectRecord(1, part, 0);
  expectRecord(2, part, 1);
  expectRecord(3, whole, 3);
  expectRecord(4, last, 0);
}

TEST_F(StateBatchTest, EncodingABatchMakesNoStates) {
  const auto scale = Scale::create(device_);
  int made = 0;
  const StateBatch states(
      [&](std::size_t) {
        ++made;
        return NNGradientState::create(device_);
      },
      64);
  const auto sources = batch(sizeOf(1, 1, 1), 64, counted(64));
  const auto results = ImageBatch::create(device_, sizeOf(1, 1, 1), 64);
  const auto buffer = commands();
  scale->encodeBatch(buffer, sources, states, results);
  const auto gradients = ScaleGradient::create(device_)->encodeBatch(buffer, results, sources, states);
  EXPECT_LE(made, 1) << "a family may look at the first";
  EXPECT_EQ(gradients.count(), 64U);
  run(buffer);
}

TEST(GradientState, KnowsTheSizeOfTheForwardSource) {
  const auto device = mtl::newCPUDevice(1);
  const auto state = NNGradientState::create(device);
  EXPECT_EQ(state->sourceWidth(), 0U);
  EXPECT_EQ(state->resourceCount(), 0U);
  EXPECT_FALSE(state->isTemporary());
  const auto buffer = device->newCommandQueue()->commandBuffer();
  const auto source = Image::create(device, sizeOf(7, 5, 2));
  Scale::create(device)->encode(buffer, source, state, Image::create(device, sizeOf(7, 5, 2)));
  EXPECT_EQ(state->sourceWidth(), 7U);
  EXPECT_EQ(state->sourceHeight(), 5U);
  const std::shared_ptr<ImageSizeEncodingState> size = state;
  EXPECT_EQ(size->sourceWidth(), 7U);
  EXPECT_EQ(size->sourceHeight(), 5U);
  static_assert(!std::is_base_of_v<NNGradientState, NNBinaryGradientState>);
}

/// docs/decisions.md, D14: saved fields change none of what a state shows.
TEST(Decisions, D14SavedFieldsShowInNoCount) {
  const auto device = mtl::newCPUDevice(1);
  const auto buffer = device->newCommandQueue()->commandBuffer();
  std::shared_ptr<State> state;
  const auto source = Image::create(device, sizeOf(7, 5, 2));
  Scale::create(device)->encode(buffer, source, state, true);
  ASSERT_NE(state, nullptr);
  EXPECT_EQ(state->resourceCount(), 0U);
  EXPECT_EQ(state->resourceSize(), 0U);
  EXPECT_FALSE(state->isTemporary());
  EXPECT_EQ(state->readCount(), 0U);
}

/// docs/decisions.md, D15: a temporary object that is released with reads left is never an error.
TEST(Decisions, D15ATemporaryStateReleasedWithReadsLeftIsNoError) {
  const auto queue = mtl::newCPUDevice(1)->newCommandQueue();
  const auto buffer = queue->commandBuffer();
  State::createTemporary(buffer, StateResourceList{64})->resource(0);
  EXPECT_EQ(queue->heap()->usedBytes(), 0U);
  buffer->commit();
  EXPECT_NO_THROW(buffer->throwIfFailed());
}

TEST_F(StateTest, ALoopGoesThroughTheStatesOfABatchAndAListOfAnyKindOfStatesIsOne) {
  const std::vector<std::shared_ptr<NNGradientState>> states{NNGradientState::create(device_),
                                                             NNGradientState::create(device_)};
  const StateBatch batch = states;
  EXPECT_EQ(batch.size(), 2U);
  std::vector<std::shared_ptr<State>> seen;
  for (const auto& state : batch) seen.push_back(state);
  EXPECT_EQ(seen, (std::vector<std::shared_ptr<State>>{states[0], states[1]}));
  EXPECT_EQ(*batch.slice(1, 1).begin(), states[1]);
  seen.clear();
  for (auto& state : StateBatch(states[0], 3)) seen.push_back(state);
  EXPECT_EQ(seen, (std::vector<std::shared_ptr<State>>(3, states[0])));
  std::size_t made = 0;
  const StateBatch lazy([&](std::size_t) { return states[made++]; }, 2);
  seen.assign(lazy.begin(), lazy.end());
  EXPECT_EQ(seen, (std::vector<std::shared_ptr<State>>{states[0], states[1]}));
  EXPECT_EQ(made, 2U);
  const StateBatch none = nullptr;
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(none.begin() == none.end());
}

}  // namespace
}  // namespace mps::state_test
