#include "mps/core/array/matrix.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "mps/core/testing/test_arrays.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mtl/buffer.hpp"
#include "mtl/memory.hpp"

namespace mps::matrix_test {
namespace {

using testing::errorOf;
using testing::names;

constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max() / 2;

TEST(MatrixDescriptorTest, RecommendedStrides) {
  testing::expectRecommendedStrides(MatrixDescriptor::rowBytes);
}

TEST(MatrixDescriptorTest, MatrixBytesAreFixedWhenItIsMade) {
  auto descriptor = MatrixDescriptor::matrixDescriptor(3, 5, 32, DataType::Float32);
  EXPECT_EQ(descriptor.rows(), 3U);
  EXPECT_EQ(descriptor.columns(), 5U);
  EXPECT_EQ(descriptor.matrices(), 1U);
  EXPECT_EQ(descriptor.rowBytes(), 32U);
  EXPECT_EQ(descriptor.matrixBytes(), 96U);
  EXPECT_EQ(descriptor.dataType(), DataType::Float32);
  descriptor.setRows(4);
  descriptor.setColumns(6);
  descriptor.setRowBytes(64);
  descriptor.setDataType(DataType::Int32);
  EXPECT_EQ(descriptor.rows(), 4U);
  EXPECT_EQ(descriptor.columns(), 6U);
  EXPECT_EQ(descriptor.rowBytes(), 64U);
  EXPECT_EQ(descriptor.dataType(), DataType::Int32);
  EXPECT_EQ(descriptor.matrixBytes(), 96U);
}

TEST(MatrixDescriptorTest, StridesThatOverlapOrSplitElementsAreRefused) {
  const auto rowBytes = [](std::size_t columns, std::size_t bytes, DataType type = DataType::Float32) {
    return errorOf([&] { (void)MatrixDescriptor::matrixDescriptor(3, columns, bytes, type); });
  };
  EXPECT_EQ(rowBytes(5, 20), "");
  EXPECT_EQ(rowBytes(0, 0), "");
  EXPECT_TRUE(names(rowBytes(5, 16), {"rowBytes", "16", "from 20 on"}));
  EXPECT_TRUE(names(rowBytes(5, 22), {"rowBytes", "22", "a multiple of 4"}));
  EXPECT_TRUE(names(rowBytes(5, 0), {"rowBytes", "0"}));
  EXPECT_TRUE(names(rowBytes(5, 20, DataType::Invalid), {"dataType", "Invalid"}));
  EXPECT_TRUE(names(rowBytes(kHuge, 20), {"too large"}));
  EXPECT_TRUE(names(rowBytes(1, kHuge & ~std::size_t{3}), {"too large"}));

  const auto matrixBytes = [](std::size_t bytes) {
    return errorOf([&] { (void)MatrixDescriptor::matrixDescriptor(3, 5, 2, 32, bytes, DataType::Float32); });
  };
  EXPECT_EQ(matrixBytes(96), "");
  EXPECT_EQ(matrixBytes(128), "");
  EXPECT_TRUE(names(matrixBytes(64), {"matrixBytes", "64", "from 96 on"}));
  EXPECT_TRUE(names(matrixBytes(100), {"matrixBytes", "100", "a multiple of rowBytes 32"}));
  EXPECT_TRUE(
      names(errorOf([] { (void)MatrixDescriptor::matrixDescriptor(3, 5, 2, 16, 96, DataType::Float32); }),
            {"rowBytes", "16"}));
}

class MatrixTest : public testing::DeviceTest {};

TEST_F(MatrixTest, SharesTheBufferOfTheCaller) {
  const auto buffer = device_->newBuffer(200);
  const auto matrix =
      Matrix::create(buffer, MatrixDescriptor::matrixDescriptor(2, 3, 4, 16, 48, DataType::Float32), 4);
  EXPECT_EQ(matrix->data(), buffer);
  EXPECT_EQ(matrix->device(), device_);
  EXPECT_EQ(matrix->rows(), 2U);
  EXPECT_EQ(matrix->columns(), 3U);
  EXPECT_EQ(matrix->matrices(), 4U);
  EXPECT_EQ(matrix->rowBytes(), 16U);
  EXPECT_EQ(matrix->matrixBytes(), 48U);
  EXPECT_EQ(matrix->offset(), 4U);
  EXPECT_EQ(matrix->dataType(), DataType::Float32);
  EXPECT_EQ(matrix->resourceSize(), 0U);
  EXPECT_FALSE(matrix->isTemporary());
}

TEST_F(MatrixTest, TheSmallestBufferHasNoGapBehindTheLastRow) {
  const auto descriptor = MatrixDescriptor::matrixDescriptor(2, 3, 4, 16, 48, DataType::Float32);
  constexpr std::size_t kLeast = 3 * 48 + 16 + 12;
  EXPECT_EQ(errorOf([&] { Matrix::create(device_->newBuffer(kLeast), descriptor); }), "");
  EXPECT_TRUE(names(errorOf([&] { Matrix::create(device_->newBuffer(kLeast - 1), descriptor); }),
                    {"Matrix", "buffer", "171", "at least 172"}));
  EXPECT_TRUE(
      names(errorOf([&] { Matrix::create(device_->newBuffer(kLeast), descriptor, 4); }), {"at least 176"}));
  EXPECT_TRUE(
      names(errorOf([&] { Matrix::create(device_->newBuffer(400), descriptor, 2); }), {"offset", "2"}));
  EXPECT_TRUE(names(errorOf([&] { Matrix::create(std::shared_ptr<mtl::Buffer>(), descriptor); }),
                    {"buffer", "null"}));
  EXPECT_TRUE(names(errorOf([&] { Matrix::create(std::shared_ptr<mtl::Device>(), descriptor); }),
                    {"device", "null"}));
}

TEST_F(MatrixTest, ADescriptorThatWasChangedIsCheckedAgain) {
  auto descriptor = MatrixDescriptor::matrixDescriptor(2, 3, 4, 16, 48, DataType::Float32);
  descriptor.setColumns(5);
  EXPECT_TRUE(names(errorOf([&] { Matrix::create(device_, descriptor); }), {"rowBytes", "16", "20"}));
  descriptor.setRowBytes(20);
  EXPECT_TRUE(names(errorOf([&] { Matrix::create(device_, descriptor); }), {"matrixBytes", "48"}));
  descriptor.setRowBytes(24);
  EXPECT_EQ(errorOf([&] { Matrix::create(device_, descriptor); }), "");
  descriptor.setRows(3);
  EXPECT_TRUE(names(errorOf([&] { Matrix::create(device_, descriptor); }), {"matrixBytes", "48"}));
  auto one = MatrixDescriptor::matrixDescriptor(2, 3, 16, DataType::Float32);
  one.setRows(10);
  EXPECT_EQ(Matrix::create(device_, one)->data()->length(), 9U * 16 + 12);
}

TEST_F(MatrixTest, OwnMemoryIsZeroAndTakenAtFirstUse) {
  for (int round = 0; round < 2; ++round) {
    const auto matrix =
        Matrix::create(device_, MatrixDescriptor::matrixDescriptor(2, 3, 4, 16, 48, DataType::Float32));
    const std::size_t before = device_->systemAllocationCount();
    EXPECT_EQ(matrix->resourceSize(), 192U);
    EXPECT_EQ(device_->systemAllocationCount(), before);
    EXPECT_EQ(matrix->data()->length(), 192U);
    for (float& element : matrix->data()->contentsAs<float>()) {
      EXPECT_EQ(element, 0);
      element = 7;
    }
  }
}

TEST_F(MatrixTest, NoElements) {
  for (const auto& [rows, columns, matrices] : {std::tuple{0, 3, 2}, {2, 0, 2}, {2, 3, 0}}) {
    const auto descriptor =
        MatrixDescriptor::matrixDescriptor(static_cast<std::size_t>(rows), static_cast<std::size_t>(columns),
                                           static_cast<std::size_t>(matrices), 16, 48, DataType::Float32);
    EXPECT_EQ(errorOf([&] { Matrix::create(device_->newBuffer(0), descriptor); }), "");
  }
}

TEST_F(MatrixTest, SynchronizeNeedsAnOpenCommandBuffer) {
  const auto matrix =
      Matrix::create(device_, MatrixDescriptor::matrixDescriptor(2, 3, 16, DataType::Float32));
  const auto buffer = commands();
  matrix->synchronize(buffer);
  const auto foreign = mtl::newCPUDevice(1)->newCommandQueue()->commandBuffer();
  EXPECT_TRUE(names(errorOf([&] { matrix->synchronize(foreign); }), {"Matrix", "another device"}));
  run(buffer);
  EXPECT_NE(errorOf([&] { matrix->synchronize(buffer); }), "");
  EXPECT_TRUE(names(errorOf([&] { matrix->synchronize(nullptr); }), {"commandBuffer", "null"}));
}

TEST_F(MatrixTest, ATemporaryMatrixLivesOnTheHeapUntilItsCountIsZero) {
  const auto buffer = commands();
  const auto descriptor = MatrixDescriptor::matrixDescriptor(20, 5, 32, DataType::Float32);
  TemporaryMatrix::prefetchStorage(buffer, {&descriptor, 1});
  const auto matrix = TemporaryMatrix::create(buffer, descriptor);
  EXPECT_TRUE(matrix->isTemporary());
  EXPECT_EQ(matrix->readCount(), 1U);
  EXPECT_EQ(matrix->resourceSize(), 640U);
  EXPECT_EQ(buffer->heap()->usedBytes(), 0U);
  EXPECT_EQ(matrix->data()->contents(), nullptr);
  EXPECT_GT(buffer->heap()->usedBytes(), 0U);
  matrix->setReadCount(3);
  EXPECT_EQ(matrix->readCount(), 3U);
  matrix->setReadCount(0);
  EXPECT_EQ(buffer->heap()->usedBytes(), 0U);
  EXPECT_TRUE(names(errorOf([&] { (void)matrix->data(); }), {"TemporaryMatrix", "readCount is 0"}));
  EXPECT_TRUE(names(errorOf([&] { matrix->setReadCount(1); }), {"TemporaryMatrix", "readCount"}));
  EXPECT_TRUE(
      names(errorOf([&] { TemporaryMatrix::create(nullptr, descriptor); }), {"commandBuffer", "null"}));
}

}  // namespace
}  // namespace mps::matrix_test
