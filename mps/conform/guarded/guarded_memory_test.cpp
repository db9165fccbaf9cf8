#include "mps/conform/guarded/guarded_memory.hpp"

#include <gtest/gtest.h>
#include <sanitizer/asan_interface.h>

#include <cmath>
#include <cstring>

#include "mps/conform/compare.hpp"
#include "mps/conform/testing/test_tensor.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/device.hpp"

// Null in a program without the address sanitizer.
#pragma weak __asan_address_is_poisoned

namespace mps::detail::guarded_memory_test {
namespace {

using Format = ImageFeatureChannelFormat;

std::shared_ptr<mtl::Device> device() {
  return mtl::createSystemDefaultDevice();
}

/// An address sanitizer would stop where a guard is written.
[[gnu::no_sanitize_address]] void store(std::byte* place, std::byte value) {
  *place = value;
}

TEST(GuardedMemory, IsPoisonedAndAsAlignedAsAskedFor) {
  const GuardedMemory memory(device(), 64, 12);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.address()) % 64, 12U);
  EXPECT_EQ(memory.bytes().size(), 64U);
  for (const Format format : {Format::Float32, Format::Float16})
    for (const double value : readTensor(TensorShape::dense(1, 1, 1, 16, format), memory.bytes().data()))
      EXPECT_TRUE(std::isnan(value));
  EXPECT_TRUE(memory.guardsIntact());
  EXPECT_THROW(GuardedMemory(device(), 1, GuardedMemory::guardBytes), Error);
}

TEST(GuardedMemory, NoticesOneByteBeforeAndOneBehind) {
  for (const std::ptrdiff_t offset : {-1, 64}) {
    const GuardedMemory memory(device(), 64);
    memory.bytes()[63] = std::byte{1};
    EXPECT_TRUE(memory.guardsIntact());
    store(memory.address() + offset, std::byte{0xFE});
    EXPECT_FALSE(memory.guardsIntact()) << offset;
  }
}

bool isForbidden(const std::byte* place) {
  return __asan_address_is_poisoned != nullptr && __asan_address_is_poisoned(place) != 0;
}

TEST(GuardedMemory, AnAddressSanitizerWatchesTheBands) {
  const bool isWatched = __asan_address_is_poisoned != nullptr;
  const GuardedMemory memory(device(), 64);
  const std::byte* const first = memory.address();
  EXPECT_EQ(isForbidden(first - 1), isWatched);
  EXPECT_EQ(isForbidden(first + 64), isWatched);
  EXPECT_FALSE(isForbidden(first) || isForbidden(first + 63));
  EXPECT_TRUE(memory.guardsIntact());
  EXPECT_EQ(isForbidden(first - 1), isWatched);
}

TEST(GuardedMemory, ZeroBytesAreGuardedToo) {
  const GuardedMemory memory(device(), 0);
  EXPECT_TRUE(memory.guardsIntact());
  store(memory.address(), std::byte{0});
  EXPECT_FALSE(memory.guardsIntact());
}

/// Channels 4 to 7 of 16, in rows and images with more gaps.
TensorShape gappyShape(Format format) {
  TensorShape shape = TensorShape::dense(2, 3, 5, 4, format);
  shape.pixelStride = 16;
  shape.rowStride = 100;
  shape.imageStride = 350;
  return shape;
}

TEST(TestTensor, ReadsWhatWasWritten) {
  for (const Format format : {Format::Unorm8, Format::Unorm16, Format::Float16, Format::Float32}) {
    TestTensor tensor(device(), gappyShape(format), 4);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.address()) % 64, 4 * bytesPerChannel(format));
    const auto values = randomValues(120, 5, RandomKind::ZeroOrOne);
    tensor.write(values);
    EXPECT_EQ(tensor.read(), values);
    EXPECT_EQ(tensor.reference().values, values);
    EXPECT_EQ(tensor.reference().channels, 4);
    EXPECT_TRUE(tensor.isUnchanged());
    EXPECT_TRUE(tensor.surroundingsIntact());
  }
}

TEST(TestTensor, NoticesEveryWriteOutsideItsElements) {
  const TensorShape shape = gappyShape(Format::Float32);
  const auto storeIn = [](const TestTensor& tensor, std::int64_t element) {
    store(tensor.address() + element * 4, std::byte{7});
  };
  TestTensor inside(device(), shape, 4);
  storeIn(inside, shape.offset(1, 2, 4, 3));  // the last element
  EXPECT_TRUE(inside.surroundingsIntact());
  EXPECT_FALSE(inside.isUnchanged());
  inside.poison();
  EXPECT_TRUE(inside.isUnchanged());
  for (const std::int64_t neighbour :
       {std::int64_t{-1}, shape.offset(0, 0, 0, 4), shape.offset(0, 0, 1, -1), shape.offset(0, 1, 0, -1),
        shape.offset(1, 0, 0, -1), shape.offset(1, 2, 4, 4)}) {
    TestTensor outside(device(), shape, 4);
    EXPECT_TRUE(outside.surroundingsIntact());
    storeIn(outside, neighbour);
    EXPECT_FALSE(outside.surroundingsIntact()) << neighbour;
  }
}

TEST(TestTensor, CopyingTheGapsOfASourceIsNoticed) {
  const TensorShape shape = gappyShape(Format::Float32);
  TestTensor source(device(), shape);
  TestTensor destination(device(), shape);
  source.write(randomValues(120, 5, RandomKind::Uniform));
  std::memcpy(destination.address(), source.address(), extentInBytes(shape));
  EXPECT_EQ(destination.read(), source.read());
  EXPECT_FALSE(destination.surroundingsIntact());
}

TEST(TestTensor, EmptyTensor) {
  TestTensor tensor(device(), TensorShape::dense(0, 3, 3, 4));
  EXPECT_TRUE(tensor.read().empty());
  EXPECT_TRUE(tensor.isUnchanged());
}

}  // namespace
}  // namespace mps::detail::guarded_memory_test
