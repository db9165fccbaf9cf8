#include "mps/core/array/nd_array.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "mps/core/array/array_storage.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/core/testing/test_kernels.hpp"
#include "mtl/buffer.hpp"
#include "mtl/memory.hpp"

namespace mps::nd_array_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::Values;

NDArrayDescriptor descriptorOf(std::vector<std::size_t> lengths, DataType type = DataType::Float32) {
  return NDArrayDescriptor::descriptor(type, std::move(lengths));
}

TEST(NDArrayDescriptorTest, TypeAndLengths) {
  const auto descriptor = descriptorOf({5, 3, 2}, DataType::Float16);
  EXPECT_EQ(descriptor.dataType(), DataType::Float16);
  EXPECT_EQ(descriptor.numberOfDimensions(), 3U);
  EXPECT_EQ(descriptor.lengthOfDimension(0), 5U);
  EXPECT_EQ(descriptor.lengthOfDimension(1), 3U);
  EXPECT_EQ(descriptor.lengthOfDimension(2), 2U);
  EXPECT_EQ(descriptor.lengthOfDimension(3), 1U) << "what is not there has length 1";
  EXPECT_EQ(descriptor.describe(), "Float16 5x3x2");
  EXPECT_EQ(detail::bytesOf(descriptor), 60U);
  EXPECT_EQ(descriptor, descriptorOf({5, 3, 2}, DataType::Float16));
  EXPECT_NE(descriptor, descriptorOf({5, 3, 2}));
  EXPECT_NE(descriptor, descriptorOf({5, 3, 2, 1}, DataType::Float16));
  EXPECT_EQ(descriptorOf(std::vector<std::size_t>(16, 1)).numberOfDimensions(), 16U);
}

TEST(NDArrayDescriptorTest, WhatMemoryCannotHoldIsRefused) {
  const auto refusal = [](std::vector<std::size_t> lengths, DataType type = DataType::Float32) {
    return errorOf([&] { (void)descriptorOf(std::move(lengths), type); });
  };
  EXPECT_TRUE(names(refusal({}), {"NDArrayDescriptor", "dimensionSizes", "0 lengths", "1 to 16"}));
  EXPECT_TRUE(names(refusal(std::vector<std::size_t>(17, 1)), {"dimensionSizes", "17 lengths"}));
  EXPECT_TRUE(names(refusal({3, 0, 2}), {"dimensionSizes", "is 0", "at least 1"}));
  EXPECT_TRUE(names(refusal({3}, DataType::Invalid), {"dataType", "Invalid"}));
  EXPECT_TRUE(names(refusal({3}, DataType::Unorm1), {"dataType", "whole bytes"}));
  EXPECT_TRUE(names(refusal({std::numeric_limits<std::size_t>::max() / 2, 3}), {"too large"}));
}

std::vector<std::byte> encoded(const NDArrayDescriptor& descriptor) {
  KeyedArchiver archiver;
  archiver.encode("descriptor", descriptor);
  return archiver.encodedData();
}

TEST(NDArrayDescriptorTest, D1IsCoded) {
  const auto descriptor = descriptorOf({5, 3, 2}, DataType::Int16);
  KeyedUnarchiver unarchiver(encoded(descriptor));
  auto decoded = descriptorOf({1});
  unarchiver.decode("descriptor", decoded);
  EXPECT_EQ(decoded, descriptor);
  unarchiver.checkAllRead();
}

/// A descriptor that decode() must not make.
class WrongDescriptor {
 public:
  std::vector<std::size_t> lengths;
  void encode(Coder& coder) const {
    coder.codeClass("NDArrayDescriptor");
    auto type = DataType::Float32;
    detail::codeElementType(coder, type);
    std::vector<std::size_t> copy = lengths;
    coder.codeList("dimensionSizes", copy, [&](std::size_t& length) { coder.code("length", length); });
  }
};

TEST(NDArrayDescriptorTest, D1CodedDataIsChecked) {
  const auto refusal = [](std::vector<std::size_t> lengths) {
    KeyedArchiver archiver;
    archiver.encode("descriptor", WrongDescriptor{std::move(lengths)});
    const std::vector<std::byte> bytes = archiver.encodedData();
    return errorOf([&] {
      KeyedUnarchiver unarchiver(bytes);
      auto decoded = descriptorOf({1});
      unarchiver.decode("descriptor", decoded);
    });
  };
  EXPECT_EQ(refusal({3, 2}), "");
  EXPECT_TRUE(names(refusal({}), {"dimensionSizes"}));
  EXPECT_TRUE(names(refusal({0}), {"dimensionSizes"}));
  EXPECT_TRUE(names(refusal(std::vector<std::size_t>(17, 2)), {"dimensionSizes"}));
  EXPECT_TRUE(names(refusal(std::vector<std::size_t>(2, std::size_t{1} << 40U)), {"too large"}));
}

class NDArrayTest : public testing::DeviceTest {};

TEST_F(NDArrayTest, KeepsItsElements) {
  const auto array = NDArray::create(device_, descriptorOf({3, 2}));
  EXPECT_EQ(array->device(), device_);
  EXPECT_EQ(array->descriptor(), descriptorOf({3, 2}));
  EXPECT_EQ(array->dataType(), DataType::Float32);
  EXPECT_EQ(array->numberOfDimensions(), 2U);
  EXPECT_EQ(array->lengthOfDimension(0), 3U);
  EXPECT_EQ(array->lengthOfDimension(5), 1U);
  EXPECT_EQ(array->resourceSize(), 24U);
  EXPECT_FALSE(array->isTemporary());
  Values values(6, 9);
  array->readBytes(std::span(values));
  EXPECT_EQ(values, Values(6, 0));
  const Values numbers{1, 2, 3, 4, 5, 6};
  array->writeBytes(std::span(numbers));
  array->readBytes(std::span(values));
  EXPECT_EQ(values, numbers);
  const auto contents = array->data()->contentsAs<float>();
  EXPECT_EQ(Values(contents.begin(), contents.end()), numbers);
}

TEST_F(NDArrayTest, OtherNumbersOfBytesAreRefused) {
  const auto array = NDArray::create(device_, descriptorOf({3, 2}, DataType::UInt16));
  std::vector<std::uint16_t> values(5);
  EXPECT_TRUE(names(errorOf([&] { array->readBytes(std::span(values)); }),
                    {"NDArray readBytes", "10 bytes", "12", "UInt16 3x2"}));
  values.resize(7);
  EXPECT_TRUE(names(errorOf([&] { array->writeBytes(std::span(values)); }),
                    {"NDArray writeBytes", "14 bytes", "12"}));
  EXPECT_TRUE(names(errorOf([] { (void)NDArray::create(nullptr, descriptorOf({3})); }),
                    {"NDArray", "device", "null"}));
}

TEST_F(NDArrayTest, ContentOfAFailedCommandIsInvalidUntilItIsWritten) {
  const auto array = NDArray::create(device_, descriptorOf({2}));
  array->data()->memory()->setFailure("the disk is full");
  Values values(2);
  EXPECT_TRUE(names(errorOf([&] { array->readBytes(std::span(values)); }), {"invalid", "the disk is full"}));
  array->writeBytes(std::span(values));
  EXPECT_EQ(errorOf([&] { array->readBytes(std::span(values)); }), "");
}

TEST_F(NDArrayTest, ATemporaryArrayLivesOnTheHeapUntilItsCountIsZero) {
  const auto buffer = commands();
  const auto array = TemporaryNDArray::create(buffer, descriptorOf({10, 10}));
  EXPECT_TRUE(array->isTemporary());
  EXPECT_EQ(array->readCount(), 1U);
  EXPECT_EQ(buffer->heap()->usedBytes(), 0U);
  EXPECT_EQ(array->data()->contents(), nullptr);
  EXPECT_GT(buffer->heap()->usedBytes(), 0U);
  Values values(100);
  EXPECT_TRUE(
      names(errorOf([&] { array->readBytes(std::span(values)); }), {"TemporaryNDArray", "readBytes"}));
  EXPECT_TRUE(
      names(errorOf([&] { array->writeBytes(std::span(values)); }), {"TemporaryNDArray", "writeBytes"}));
  array->setReadCount(2);
  array->setReadCount(0);
  EXPECT_EQ(buffer->heap()->usedBytes(), 0U);
  EXPECT_TRUE(names(errorOf([&] { array->setReadCount(1); }), {"TemporaryNDArray", "readCount"}));
  EXPECT_TRUE(names(errorOf([&] { (void)TemporaryNDArray::create(nullptr, descriptorOf({3})); }),
                    {"commandBuffer", "null"}));
  run(buffer);
  EXPECT_NE(errorOf([&] { (void)TemporaryNDArray::create(buffer, descriptorOf({3})); }), "");
}

}  // namespace
}  // namespace mps::nd_array_test
