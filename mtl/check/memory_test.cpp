#include "mtl/memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "mtl/block_cache.hpp"
#include "mtl/buffer.hpp"
#include "mtl/check/command_test_tools.hpp"
#include "mtl/command.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/cpu/memory_pool.hpp"
#include "mtl/device.hpp"
#include "mtl/error.hpp"

namespace mtl::memory_test {
namespace {

constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();

class HeapTest : public ::testing::Test {
 protected:
  std::shared_ptr<Device> device_ = newCPUDevice(1);
  std::shared_ptr<Heap> heap_ = std::make_shared<Heap>(*device_, 4096);
};

TEST_F(HeapTest, GivesAReleasedBlockOutAgainAtOnce) {
  auto first = heap_->allocate(1000);
  std::byte* const address = first->address();
  first.reset();
  EXPECT_EQ(heap_->usedBytes(), 0U);
  EXPECT_EQ(heap_->allocate(1000)->address(), address);
  EXPECT_EQ(heap_->chunkCount(), 1U);
}

TEST_F(HeapTest, AddressesAreAlignedAndLengthsAreAsAsked) {
  std::vector<std::shared_ptr<Memory>> blocks;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{255}, std::size_t{256},
                                  std::size_t{257}, std::size_t{5000}}) {
    blocks.push_back(heap_->allocate(bytes));
    EXPECT_EQ(blocks.back()->length(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back()->address()) % Heap::alignment, 0U);
  }
}

TEST_F(HeapTest, TakesTheSmallestGapThatFits) {
  const auto a = heap_->allocate(256);
  auto wide = heap_->allocate(1024);
  const auto b = heap_->allocate(256);
  auto narrow = heap_->allocate(512);
  const auto c = heap_->allocate(256);
  std::byte* const wideAddress = wide->address();
  std::byte* const narrowAddress = narrow->address();
  wide.reset();
  narrow.reset();
  EXPECT_EQ(heap_->allocate(512)->address(), narrowAddress);
  EXPECT_EQ(heap_->allocate(1024)->address(), wideAddress);
}

TEST_F(HeapTest, NeighbouringGapsAreMerged) {
  std::vector<std::shared_ptr<Memory>> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(heap_->allocate(256));  // the whole chunk
  ASSERT_EQ(heap_->chunkCount(), 1U);
  std::byte* const first = blocks[4]->address();
  for (const std::size_t i : {5U, 4U, 7U, 6U}) blocks[i].reset();  // before, behind and between gaps
  const auto merged = heap_->allocate(1024);
  EXPECT_EQ(heap_->chunkCount(), 1U);
  EXPECT_EQ(merged->address(), first);
}

TEST_F(HeapTest, KeepsAddressesStableWhileItGrows) {
  const auto kept = heap_->allocate(256);
  std::memset(kept->address(), 7, 256);
  std::byte* const address = kept->address();
  std::vector<std::shared_ptr<Memory>> more;
  for (int i = 0; i < 100; ++i) more.push_back(heap_->allocate(4096));
  EXPECT_EQ(kept->address(), address);
  EXPECT_TRUE(std::all_of(address, address + 256, [](std::byte b) { return b == std::byte{7}; }));
  EXPECT_GE(heap_->reservedBytes(), 100U * 4096U);
}

TEST_F(HeapTest, CountsBytesInUseAndTheirPeak) {
  auto a = heap_->allocate(256);
  auto b = heap_->allocate(300);  // takes 512
  EXPECT_EQ(heap_->usedBytes(), 768U);
  a.reset();
  EXPECT_EQ(heap_->usedBytes(), 512U);
  EXPECT_EQ(heap_->peakBytes(), 768U);
  b.reset();
  EXPECT_EQ(heap_->usedBytes(), 0U);
}

TEST(BlockCache, AsksForLittleMoreThanIsNeeded) {
  constexpr std::size_t mebibyte = std::size_t{1} << 20U;
  EXPECT_EQ(BlockCache::capacityFor(0), BlockCache::granularity);
  EXPECT_EQ(BlockCache::capacityFor(257), 512U);
  EXPECT_EQ(BlockCache::capacityFor(9 * mebibyte + 1), 10 * mebibyte) << "sixteenths of 16 MiB";
  EXPECT_EQ(BlockCache::capacityFor(600 * mebibyte + 1), 602 * mebibyte) << "never more than 2 MiB more";
}

TEST_F(HeapTest, InAPartOfOtherMemoryServesLargeBlocksThatFit) {
  const std::shared_ptr<Memory> memory = device_->allocate(65536);
  const auto part = std::make_shared<Heap>(heap_, memory, 1024, 16384);
  const auto isIn = [&](const std::shared_ptr<Memory>& block) {
    return block->address() >= memory->address() + 1024 &&
           block->address() + block->length() <= memory->address() + 1024 + 16384;
  };
  auto large = part->allocate(10000);
  EXPECT_TRUE(isIn(large));
  EXPECT_FALSE(isIn(part->allocate(4096))) << "a chunk of the other heap has room for it";
  EXPECT_FALSE(isIn(part->allocate(10000))) << "the first one is there still";
  EXPECT_FALSE(isIn(part->allocate(16385)));
  EXPECT_EQ(part->peakBytes(), 10240U + 16640U) << "blocks that do not fit count, small ones do not";
  std::byte* const address = large->address();
  large.reset();
  EXPECT_EQ(part->allocate(16384)->address(), address);
  EXPECT_EQ(part->usedBytes(), 0U);
  EXPECT_EQ(part->reservedBytes(), 65536U);
}

TEST_F(HeapTest, LiveBlocksNeverOverlap) {
  constexpr std::uint32_t seed = 20240611;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::map<std::byte*, std::shared_ptr<Memory>> live;
  for (int step = 0; step < 5000; ++step) {
    if (live.size() > 30 || (!live.empty() && random() % 3 == 0)) {
      live.erase(std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size())));
      continue;
    }
    const auto block = heap_->allocate(random() % 3000 + 1);
    const auto [entry, inserted] = live.emplace(block->address(), block);
    ASSERT_TRUE(inserted);
    if (const auto next = std::next(entry); next != live.end()) {
      ASSERT_LE(block->address() + block->length(), next->first);
    }
    if (entry != live.begin()) {
      const auto& previous = std::prev(entry)->second;
      ASSERT_LE(previous->address() + previous->length(), block->address());
    }
  }
  live.clear();
  EXPECT_EQ(heap_->usedBytes(), 0U);
}

TEST_F(HeapTest, WrittenBytesAreInTheirPlace) {
  const auto before = heap_->allocate(256);
  const auto block = heap_->allocate(8);
  const std::vector<std::byte> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  for (const auto& memory : {block, device_->allocate(8)}) {
    std::fill_n(memory->address(), 8, std::byte{9});
    memory->write(2, bytes);
    memory->write(7, {});
    const std::vector<std::byte> found(memory->contents(), memory->contents() + 8);
    const std::byte nine{9};
    EXPECT_EQ(found, (std::vector{nine, nine, bytes[0], bytes[1], bytes[2], nine, nine, nine}));
  }
}

TEST_F(HeapTest, RefusesSizesBeyondTheAddressSpace) {
  EXPECT_THROW(heap_->allocate(huge), std::bad_alloc);
  EXPECT_THROW(heap_->allocate(huge - 300), std::bad_alloc);
  EXPECT_THROW(heap_->allocate(huge / 2), std::bad_alloc);
  EXPECT_EQ(heap_->usedBytes(), 0U);
  EXPECT_NE(heap_->allocate(16), nullptr);
}

TEST_F(HeapTest, BlocksMayBeReleasedOnOtherThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 500; ++i) {
        const auto block = heap_->allocate(100 + 97 * (i % 13));
        std::memset(block->address(), t, block->length());
        const auto wrong = std::count_if(block->address(), block->address() + block->length(),
                                         [t](std::byte b) { return b != static_cast<std::byte>(t); });
        EXPECT_EQ(wrong, 0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(heap_->usedBytes(), 0U);
}

TEST(MemoryPool, RecyclesABlockOfTheSameSize) {
  const auto pool = std::make_shared<cpu::MemoryPool>(1 << 20);
  auto block = pool->allocate(10000);
  std::byte* const address = block->address();
  EXPECT_EQ(pool->systemAllocations(), 1U);
  block.reset();
  EXPECT_GE(pool->cachedBytes(), 10000U);
  EXPECT_EQ(pool->allocate(10000)->address(), address);
  EXPECT_EQ(pool->systemAllocations(), 1U);
}

TEST(MemoryPool, GivesRecycledBlocksBackToTheSystem) {
  const auto device = newCPUDevice(1);
  const auto kept = device->allocate(10000);
  std::memset(kept->address(), 1, 10000);
  device->allocate(20000);  // waits to be recycled
  device->releaseRecycledMemory();
  EXPECT_EQ(kept->address()[9999], std::byte{1});
  const std::size_t before = device->systemAllocationCount();
  device->allocate(20000);
  EXPECT_EQ(device->systemAllocationCount(), before + 1);
}

TEST(MemoryPool, KeepsNoMoreThanItsLimit) {
  constexpr std::size_t limit = 1 << 20;
  const auto pool = std::make_shared<cpu::MemoryPool>(limit);
  constexpr std::uint32_t seed = 77;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::shared_ptr<Memory>> blocks;
    for (int i = 0; i < 5; ++i) blocks.push_back(pool->allocate(random() % 700'000));
    blocks.clear();
    ASSERT_LE(pool->cachedBytes(), limit);
  }
  EXPECT_EQ(pool->liveBytes(), 0U);
}

TEST(MemoryPool, RefusesSizesBeyondTheAddressSpaceAtOnce) {
  const auto pool = std::make_shared<cpu::MemoryPool>(1 << 20);
  for (const std::size_t bytes : {huge, huge - 1, huge / 2, huge / 8 + 1})
    EXPECT_THROW(pool->allocate(bytes), std::bad_alloc);
  EXPECT_EQ(pool->liveBytes(), 0U);
}

TEST(MemoryPool, BlocksOutliveTheirPoolsOwner) {
  auto pool = std::make_shared<cpu::MemoryPool>(1 << 20);
  const auto block = pool->allocate(100);
  pool.reset();
  std::memset(block->address(), 1, 100);
}

TEST(Device, CountsLiveBytesAndSystemAllocations) {
  const auto device = newCPUDevice(1);
  const std::size_t before = device->currentAllocatedSize();
  auto memory = device->allocate(1 << 16);
  EXPECT_GE(device->currentAllocatedSize(), before + (1 << 16));
  memory.reset();
  EXPECT_EQ(device->currentAllocatedSize(), before);
  const std::size_t allocations = device->systemAllocationCount();
  for (int i = 0; i < 100; ++i) device->allocate(1 << 16);
  EXPECT_EQ(device->systemAllocationCount(), allocations);
}

TEST(Device, BuffersAreZeroFilledCopiedAndChecked) {
  const auto device = newCPUDevice(1);
  for (int round = 0; round < 2; ++round) {  // the second time over recycled memory
    const auto buffer = device->newBuffer(1000);
    const auto bytes = buffer->contentsAs<unsigned char>();
    ASSERT_EQ(bytes.size(), 1000U);
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](unsigned char b) { return b == 0; }));
    std::fill(bytes.begin(), bytes.end(), static_cast<unsigned char>(9));
  }
  const std::vector<float> values{1, 2, 3};
  const auto copy = device->newBuffer(std::as_bytes(std::span(values)));
  EXPECT_EQ(copy->length(), 12U);
  EXPECT_TRUE(std::ranges::equal(copy->contentsAs<float>(), values));
  EXPECT_NO_THROW(copy->didModifyRange(4, 8));
  EXPECT_THROW(copy->didModifyRange(4, 9), Error);
  EXPECT_THROW(copy->didModifyRange(13, 0), Error);
  EXPECT_THROW(copy->didModifyRange(8, huge), Error);
  const auto hidden = device->newBuffer(64, ResourceOptions::StorageModePrivate);
  EXPECT_EQ(hidden->contents(), nullptr);
  EXPECT_TRUE(hidden->contentsAs<float>().empty());
  EXPECT_EQ(hidden->storageMode(), StorageMode::Private);
  EXPECT_EQ(device->newBuffer(0)->length(), 0U);
  EXPECT_THROW(device->newBuffer(huge), std::bad_alloc);
}

TEST(Device, OptionsThatMeanNothingAreRefused) {
  const auto device = newCPUDevice(1);
  const auto modeOf = [&](std::uint64_t bits) {
    return device->newBuffer(4, static_cast<ResourceOptions>(bits))->storageMode();
  };
  EXPECT_EQ(modeOf(0x01), StorageMode::Shared) << "write combined";
  EXPECT_EQ(modeOf(0x211), StorageMode::Managed) << "and with hazards tracked";
  for (const std::uint64_t bits : {0x30U, 0x70U, 0x02U, 0x300U, 0x400U})
    EXPECT_THROW(modeOf(bits), Error) << bits;
}

TEST(Device, BuffersOfAnotherAreNotSynchronized) {
  const auto buffer = newCPUDevice(1)->newBuffer(4);
  const auto commands = newCPUDevice(1)->newCommandQueue()->commandBuffer();
  EXPECT_THROW(buffer->synchronize(*commands), Error);
}

TEST(Device, IsFoundByName) {
  EXPECT_EQ(deviceNamed("cpu"), createSystemDefaultDevice());
  EXPECT_EQ(copyAllDevices().front(), createSystemDefaultDevice());
  EXPECT_TRUE(createSystemDefaultDevice()->missingLibraries().empty());
  EXPECT_EQ(createSystemDefaultDevice()->kind(), DeviceKind::CPU);
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cpu:0", "CPU"})
    EXPECT_THROW(deviceNamed(name), Error) << name;
  EXPECT_THROW(deviceNamed("cuda:99"), Error);
  EXPECT_NE(newCPUDevice(1), newCPUDevice(1));
  EXPECT_THROW(newCPUDevice(0), Error);
  EXPECT_THROW(newCPUDevice(-3), Error);
}

TEST(Device, ThreadCountCanBeSet) {
  const auto device = newCPUDevice(2);
  EXPECT_EQ(device->threadCount(), 2);
  device->setThreadCount(3);
  EXPECT_EQ(device->threadCount(), 3);
  EXPECT_THROW(device->setThreadCount(0), Error);
  EXPECT_EQ(device->threadCount(), 3);
}

TEST(MemoryPart, IsAWindowOnTheBlock) {
  const auto device = newCPUDevice(1);
  const auto whole = device->allocate(16);
  whole->fillWithZeros();
  auto part = std::make_shared<MemoryPart>(whole, 4, 8);
  EXPECT_EQ(part->address(), whole->address() + 4);
  EXPECT_EQ(part->contents(), whole->contents() + 4);
  EXPECT_EQ(part->length(), 8U);
  part->write(1, std::vector<std::byte>{std::byte{7}, std::byte{8}});
  EXPECT_EQ(whole->contents()[5], std::byte{7});
  EXPECT_EQ(whole->contents()[6], std::byte{8});
  whole->contents()[3] = whole->contents()[12] = std::byte{9};
  part->fillWithZeros();
  EXPECT_EQ(whole->contents()[5], std::byte{0});
  EXPECT_EQ(whole->contents()[3], std::byte{9});
  EXPECT_EQ(whole->contents()[12], std::byte{9});
  whole->setFailure("broken");
  EXPECT_EQ(part->failure(), "broken");
  part->clearFailure({0, 8});
  EXPECT_EQ(whole->failure({4, 8}), "");
  EXPECT_EQ(whole->failure({3, 8}), "broken");
  EXPECT_EQ(whole->failure({5, 8}), "broken");
  part->clearFailure();
  EXPECT_EQ(whole->failure(), "");
}

TEST(MemoryPart, KeepsTheBlockAlive) {
  const auto device = newCPUDevice(1);
  const auto heap = std::make_shared<Heap>(*device);
  auto part = std::make_shared<MemoryPart>(heap->allocate(64), 0, 32);
  EXPECT_GT(heap->usedBytes(), 0U);
  part.reset();
  EXPECT_EQ(heap->usedBytes(), 0U);
}

/// A training step's use of temporary memory: blocks of several sizes whose lives overlap.
void encodeStep(CommandBuffer& buffer, std::size_t step) {
  std::shared_ptr<Memory> previous = buffer.heap()->allocate(1 << 18);
  for (std::size_t layer = 0; layer < 8; ++layer) {
    const auto next = buffer.heap()->allocate(std::size_t{1} << (18 - layer));
    Command command = testing::call([from = previous->address(), to = next->address(), step] {
      to[0] = from[0];
      to[1] = static_cast<std::byte>(step);
    });
    command.reads.push_back(previous);
    command.writes.push_back(next);
    buffer.append(std::move(command));
    previous = next;
  }
}

TEST(SteadyState, TwoBuffersInFlightAskTheSystemForNothing) {
  const auto device = newCPUDevice(2);
  const auto queue = device->newCommandQueue();
  const auto encoded = [&](std::size_t step) {
    auto buffer = queue->commandBuffer();
    encodeStep(*buffer, step);
    return buffer;
  };
  // As much as ever is in flight: one step runs while the next one is encoded.
  auto before = encoded(0);
  const auto next = encoded(1);
  for (const auto& buffer : {before, next}) {
    buffer->commit();
    buffer->waitUntilCompleted();
  }
  const std::size_t allocations = device->systemAllocationCount();
  for (std::size_t step = 2; step < 300; ++step) {
    const auto buffer = encoded(step);
    buffer->commit();
    before->waitUntilCompleted();
    before = buffer;
    ASSERT_EQ(device->systemAllocationCount(), allocations) << "step " << step;
  }
  before->waitUntilCompleted();
  EXPECT_EQ(queue->heap()->usedBytes(), 0U);
}

}  // namespace
}  // namespace mtl::memory_test
