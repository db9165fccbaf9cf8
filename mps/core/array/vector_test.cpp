#include "mps/core/array/vector.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

#include "mps/core/array/array_storage.hpp"
#include "mps/core/testing/test_arrays.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mtl/buffer.hpp"
#include "mtl/memory.hpp"

namespace mps::vector_test {
namespace {

using testing::errorOf;
using testing::names;

constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max() / 2;

TEST(VectorDescriptorTest, RecommendedStrides) {
  testing::expectRecommendedStrides(VectorDescriptor::vectorBytes);
}

TEST(VectorDescriptorTest, OneVectorIsPacked) {
  auto descriptor = VectorDescriptor::vectorDescriptor(5, DataType::Float16);
  EXPECT_EQ(descriptor.length(), 5U);
  EXPECT_EQ(descriptor.vectors(), 1U);
  EXPECT_EQ(descriptor.vectorBytes(), 10U);
  EXPECT_EQ(descriptor.dataType(), DataType::Float16);
  descriptor.setLength(7);
  descriptor.setDataType(DataType::Float32);
  EXPECT_EQ(descriptor.length(), 7U);
  EXPECT_EQ(descriptor.dataType(), DataType::Float32);
  EXPECT_EQ(descriptor.vectorBytes(), 10U);
}

TEST(VectorDescriptorTest, StridesThatOverlapOrSplitElementsAreRefused) {
  const auto make = [](std::size_t length, std::size_t vectorBytes, DataType type) {
    return errorOf([&] { (void)VectorDescriptor::vectorDescriptor(length, 3, vectorBytes, type); });
  };
  EXPECT_EQ(make(4, 16, DataType::Float32), "");
  EXPECT_TRUE(names(make(5, 16, DataType::Float32), {"vectorBytes", "16", "from 20 on"}));
  EXPECT_TRUE(names(make(4, 18, DataType::Float32), {"vectorBytes", "18", "a multiple of 4"}));
  EXPECT_TRUE(names(make(4, 16, DataType::Unorm1), {"dataType"}));
  EXPECT_TRUE(names(make(kHuge, 16, DataType::Float32), {"too large"}));
  EXPECT_TRUE(names(errorOf([] { (void)VectorDescriptor::vectorDescriptor(4, DataType::Invalid); }),
                    {"dataType", "Invalid"}));
  EXPECT_TRUE(names(errorOf([] { (void)VectorDescriptor::vectorDescriptor(kHuge, DataType::Float32); }),
                    {"too large"}));
}

class VectorTest : public testing::DeviceTest {};

TEST_F(VectorTest, SharesTheBufferOfTheCaller) {
  const auto buffer = device_->newBuffer(8 + 2 * 16 + 12);
  const auto vector =
      Vector::create(buffer, VectorDescriptor::vectorDescriptor(3, 3, 16, DataType::Float32), 8);
  EXPECT_EQ(vector->data(), buffer);
  EXPECT_EQ(vector->device(), device_);
  EXPECT_EQ(vector->length(), 3U);
  EXPECT_EQ(vector->vectors(), 3U);
  EXPECT_EQ(vector->vectorBytes(), 16U);
  EXPECT_EQ(vector->offset(), 8U);
  EXPECT_EQ(vector->dataType(), DataType::Float32);
  EXPECT_EQ(vector->resourceSize(), 0U);
  EXPECT_FALSE(vector->isTemporary());
}

TEST_F(VectorTest, TheSmallestBufferHasNoGapBehindTheLastVector) {
  const auto descriptor = VectorDescriptor::vectorDescriptor(3, 3, 16, DataType::Float32);
  EXPECT_EQ(errorOf([&] { Vector::create(device_->newBuffer(44), descriptor); }), "");
  EXPECT_TRUE(names(errorOf([&] { Vector::create(device_->newBuffer(43), descriptor); }),
                    {"Vector", "buffer", "43", "at least 44"}));
  EXPECT_TRUE(
      names(errorOf([&] { Vector::create(device_->newBuffer(44), descriptor, 4); }), {"at least 48"}));
  EXPECT_TRUE(names(errorOf([&] { Vector::create(device_->newBuffer(64), descriptor, 6); }),
                    {"offset", "6", "a multiple"}));
  EXPECT_TRUE(names(errorOf([&] { Vector::create(device_->newBuffer(64), descriptor, kHuge * 2 - 2); }),
                    {"too large"}));
  EXPECT_TRUE(names(errorOf([&] { Vector::create(std::shared_ptr<mtl::Buffer>(), descriptor); }),
                    {"buffer", "null"}));
}

TEST_F(VectorTest, ADescriptorThatWasChangedIsCheckedAgain) {
  auto several = VectorDescriptor::vectorDescriptor(3, 2, 16, DataType::Float32);
  several.setLength(5);
  EXPECT_TRUE(names(errorOf([&] { Vector::create(device_, several); }), {"vectorBytes", "16", "20"}));
  auto other = VectorDescriptor::vectorDescriptor(3, 2, 12, DataType::Float32);
  other.setDataType(DataType::Int64);
  EXPECT_TRUE(names(errorOf([&] { Vector::create(device_, other); }), {"vectorBytes", "12"}));
  auto one = VectorDescriptor::vectorDescriptor(3, DataType::Float32);
  one.setLength(100);
  EXPECT_EQ(Vector::create(device_, one)->data()->length(), 400U);
  one.setDataType(DataType::Invalid);
  EXPECT_TRUE(names(errorOf([&] { Vector::create(device_, one); }), {"dataType", "Invalid"}));
}

TEST_F(VectorTest, OwnMemoryIsZeroAndTakenAtFirstUse) {
  for (int round = 0; round < 2; ++round) {
    const auto vector =
        Vector::create(device_, VectorDescriptor::vectorDescriptor(3, 3, 16, DataType::Float32));
    const std::size_t before = device_->systemAllocationCount();
    EXPECT_EQ(vector->resourceSize(), 48U);
    EXPECT_EQ(device_->systemAllocationCount(), before);
    EXPECT_EQ(vector->data()->length(), 48U);
    EXPECT_EQ(vector->data(), vector->data());
    for (float& element : vector->data()->contentsAs<float>()) {
      EXPECT_EQ(element, 0);
      element = 7;
    }
  }
  EXPECT_TRUE(names(errorOf([] {
                      Vector::create(std::shared_ptr<mtl::Device>(),
                                     VectorDescriptor::vectorDescriptor(3, DataType::Float32));
                    }),
                    {"device", "null"}));
}

TEST_F(VectorTest, ThreadsThatAskFirstGetOneBuffer) {
  const auto vector = Vector::create(device_, VectorDescriptor::vectorDescriptor(1000, DataType::Float32));
  std::vector<std::shared_ptr<mtl::Buffer>> found(4);
  std::vector<std::thread> threads;
  for (auto& buffer : found) threads.emplace_back([&] { buffer = vector->data(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& buffer : found) EXPECT_EQ(buffer, vector->data());
}

TEST_F(VectorTest, NoElements) {
  EXPECT_EQ(Vector::create(device_->newBuffer(0), VectorDescriptor::vectorDescriptor(0, DataType::Float32))
                ->length(),
            0U);
  EXPECT_EQ(
      Vector::create(device_->newBuffer(0), VectorDescriptor::vectorDescriptor(4, 0, 16, DataType::Float32))
          ->vectors(),
      0U);
}

TEST_F(VectorTest, SynchronizeNeedsAnOpenCommandBuffer) {
  const auto vector = Vector::create(device_, VectorDescriptor::vectorDescriptor(4, DataType::Float32));
  (void)vector->data();
  const auto buffer = commands();
  vector->synchronize(buffer);
  run(buffer);
  EXPECT_NE(errorOf([&] { vector->synchronize(buffer); }), "");
  EXPECT_TRUE(names(errorOf([&] { vector->synchronize(nullptr); }), {"commandBuffer", "null"}));
}

TEST_F(VectorTest, ATemporaryVectorLivesOnTheHeapUntilItsCountIsZero) {
  const auto buffer = commands();
  const auto descriptor = VectorDescriptor::vectorDescriptor(100, DataType::Float32);
  TemporaryVector::prefetchStorage(buffer, {&descriptor, 1});
  const auto vector = TemporaryVector::create(buffer, descriptor);
  EXPECT_TRUE(vector->isTemporary());
  EXPECT_EQ(vector->readCount(), 1U);
  EXPECT_EQ(vector->resourceSize(), 400U);
  EXPECT_EQ(buffer->heap()->usedBytes(), 0U);
  EXPECT_EQ(vector->data()->contents(), nullptr);
  EXPECT_GT(buffer->heap()->usedBytes(), 0U);
  EXPECT_NO_THROW(vector->synchronize(buffer));
  vector->setReadCount(2);
  EXPECT_EQ(vector->readCount(), 2U);
  vector->setReadCount(0);
  EXPECT_EQ(buffer->heap()->usedBytes(), 0U);
  EXPECT_TRUE(names(errorOf([&] { (void)vector->data(); }), {"TemporaryVector", "readCount is 0"}));
  EXPECT_TRUE(names(errorOf([&] { vector->setReadCount(1); }), {"TemporaryVector", "readCount"}));
  EXPECT_TRUE(
      names(errorOf([&] { TemporaryVector::create(nullptr, descriptor); }), {"commandBuffer", "null"}));
  run(buffer);
  EXPECT_NE(errorOf([&] { TemporaryVector::create(buffer, descriptor); }), "");
}

/// What kernels ask of a vector or matrix.
TEST_F(VectorTest, UseByAKernelIsChecked) {
  const auto buffer = commands();
  const auto descriptor = VectorDescriptor::vectorDescriptor(4, DataType::Float32);
  const auto kernel = testing::Scale::create(device_, 2);
  const auto check = [&](const Vector& vector, bool isRead = true) {
    return errorOf([&] { vector.storage().check(*kernel, "inputVector", *buffer, isRead); });
  };
  const auto vector = Vector::create(device_, descriptor);
  EXPECT_EQ(check(*vector), "");
  EXPECT_TRUE(
      names(check(*Vector::create(mtl::newCPUDevice(1), descriptor)), {"inputVector", "another device"}));
  EXPECT_TRUE(names(check(*TemporaryVector::create(commands(), descriptor)),
                    {"inputVector", "TemporaryVector of another command buffer"}));
  const auto temporary = TemporaryVector::create(buffer, descriptor);
  EXPECT_EQ(check(*temporary), "");
  temporary->setReadCount(0);
  EXPECT_TRUE(names(check(*temporary), {"inputVector", "readCount is 0"}));
  vector->data()->memory()->setFailure("the disk is full");
  EXPECT_TRUE(names(check(*vector), {"inputVector", "the disk is full"}));
  EXPECT_EQ(check(*vector, false), "") << "it may be written";
}

TEST_F(VectorTest, EachTemporaryVectorOfAnEncodeIsCountedOnce) {
  const auto buffer = commands();
  const auto descriptor = VectorDescriptor::vectorDescriptor(4, DataType::Float32);
  const auto one = TemporaryVector::create(buffer, descriptor);
  const auto other = TemporaryVector::create(buffer, descriptor);
  const auto permanent = Vector::create(device_, descriptor);
  one->setReadCount(3);
  detail::consumeRead({&one->storage(), nullptr, &other->storage(), &one->storage(), &permanent->storage()});
  EXPECT_EQ(one->readCount(), 2U);
  EXPECT_EQ(other->readCount(), 0U);
  EXPECT_NO_THROW(detail::consumeRead({&other->storage()}));
}

}  // namespace
}  // namespace mps::vector_test
