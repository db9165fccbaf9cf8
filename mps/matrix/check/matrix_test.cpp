#include "mps/matrix/matrix.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "mps/core/testing/test_matrices.hpp"
#include "mps/core/types/float16.hpp"
#include "mps/matrix/matrix_fully_connected.hpp"
#include "mps/matrix/matrix_image_copy.hpp"
#include "mps/matrix/matrix_random.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::matrix_test {
namespace {

using Half = mps::Float16;
using testing::errorOf;
using testing::MatrixTest;
using testing::names;
using testing::Values;
using enum ImageFeatureChannelFormat;
constexpr auto kChannelsFirst = DataLayout::FeatureChannelsxHeightxWidth;
constexpr auto kChannelsLast = DataLayout::HeightxWidthxFeatureChannels;

class MatrixKernels : public MatrixTest {
 protected:
  using MatrixTest::valuesOf;
  [[nodiscard]] std::shared_ptr<Image> image(std::size_t width, std::size_t height, std::size_t channels,
                                             float first, std::size_t count = 1) const {
    auto made = Image::create(device_, ImageDescriptor(Float32, width, height, channels, count));
    Values values(width * height * channels);
    for (std::size_t n = 0; n < count; ++n) {
      std::iota(values.begin(), values.end(), first + 1000 * static_cast<float>(n));
      made->writeBytes(std::span<const float>(values), kChannelsLast, n);
    }
    return made;
  }
  static Values valuesOf(const Image& image, DataLayout layout, std::size_t index = 0) {
    Values values(image.width() * image.height() * image.featureChannels());
    image.readBytes(std::span(values), layout, index);
    return values;
  }
};

// -------------------------------------------------------------------------------------------------
// Products
// -------------------------------------------------------------------------------------------------

class MatrixMultiplicationTest : public MatrixKernels {
 protected:
  std::shared_ptr<Matrix> left_ = matrix(2, 3, {1, 2, 3, 4, 5, 6});
  std::shared_ptr<Matrix> right_ = matrix(3, 2, {7, 8, 9, 10, 11, 12});
  std::shared_ptr<Matrix> result_ = matrix(2, 2);
  std::shared_ptr<MatrixMultiplication> product_ = MatrixMultiplication::create(device_, 2, 2, 3);

  std::string refusal(const std::shared_ptr<Matrix>& left, const std::shared_ptr<Matrix>& right,
                      const std::shared_ptr<Matrix>& result) {
    const auto commandBuffer = queue_->commandBuffer();
    std::string error = errorOf([&] { product_->encode(commandBuffer, left, right, result); });
    EXPECT_EQ(commandBuffer->commandCount(), error.empty() ? 1U : 0U);
    return error;
  }
};

TEST_F(MatrixMultiplicationTest, Product) {
  run([&](const auto& commandBuffer) { product_->encode(commandBuffer, left_, right_, result_); });
  EXPECT_EQ(valuesOf(*result_), (Values{58, 64, 139, 154}));
}

TEST_F(MatrixMultiplicationTest, AlphaBetaAndBothTransposes) {
  const auto product = MatrixMultiplication::create(device_, true, true, 3, 3, 2, 2, -1);
  const auto result = matrix(3, 3, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  run([&](const auto& commandBuffer) { product->encode(commandBuffer, left_, right_, result); });
  // A^T B^T = (39 49 59; 54 68 82; 69 87 105).
  EXPECT_EQ(valuesOf(*result), (Values{77, 96, 115, 104, 131, 158, 131, 166, 201}));
}

TEST_F(MatrixMultiplicationTest, OriginsAreRowAndColumn) {
  const auto product = MatrixMultiplication::create(device_, 1, 1, 2);
  product->setLeftMatrixOrigin({1, 0, 0});   // 4 5
  product->setRightMatrixOrigin({1, 1, 0});  // 10, 12
  product->setResultMatrixOrigin({0, 1, 0});
  run([&](const auto& commandBuffer) { product->encode(commandBuffer, left_, right_, result_); });
  EXPECT_EQ(valuesOf(*result_), (Values{kPoison, 100, kPoison, kPoison}));
  EXPECT_EQ(product->leftMatrixOrigin(), (mtl::Origin{1, 0, 0}));
  EXPECT_EQ(product->rightMatrixOrigin(), (mtl::Origin{1, 1, 0}));
  EXPECT_EQ(product->resultMatrixOrigin(), (mtl::Origin{0, 1, 0}));
}

TEST_F(MatrixMultiplicationTest, BetaZeroOverwritesNaN) {
  const auto result = matrix(2, 2, Values(4, std::nanf("")));
  run([&](const auto& commandBuffer) { product_->encode(commandBuffer, left_, right_, result); });
  EXPECT_EQ(valuesOf(*result), (Values{58, 64, 139, 154}));
}

TEST_F(MatrixMultiplicationTest, ABatchIsClippedToTheShortestArgument) {
  const auto product = MatrixMultiplication::create(device_, 1, 1, 1);
  EXPECT_EQ(product->batchStart(), 0U);
  EXPECT_EQ(product->batchSize(), std::numeric_limits<std::size_t>::max());
  const auto left = matrix(1, 1, {1, 2, 3, 4}, 4);
  const auto right = matrix(1, 1, {10, 20, 30}, 3);
  const auto result = matrix(1, 1, {}, 5);
  product->setBatchStart(1);
  run([&](const auto& commandBuffer) { product->encode(commandBuffer, left, right, result); });
  EXPECT_EQ(valuesOf(*result), (Values{kPoison, 40, 90, kPoison, kPoison}));
  product->setBatchSize(1);
  product->setBatchStart(0);
  run([&](const auto& commandBuffer) { product->encode(commandBuffer, left, right, result); });
  EXPECT_EQ(valuesOf(*result), (Values{10, 40, 90, kPoison, kPoison}));
  product->setBatchSize(0);
  const auto commandBuffer = queue_->commandBuffer();
  product->encode(commandBuffer, left, right, result);
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
  product->setBatchStart(4);
  EXPECT_TRUE(
      names(errorOf([&] { product->encode(commandBuffer, left, right, result); }), {"batchStart", "4", "3"}));
}

TEST_F(MatrixMultiplicationTest, SumsOfFloat16AreFloat32) {
  const auto left = matrixOf(1, 3, DataType::Float16);
  const auto right = matrixOf(3, 1, DataType::Float16);
  const auto result = matrixOf(1, 1, DataType::Float16);
  const Values factors{2048, 0.25F, -2048};  // in float16, 2048 + 0.25 is 2048
  for (std::size_t i = 0; i < 3; ++i) {
    left->data()->contentsAs<Half>()[i] = toFloat16(factors[i]);
    right->data()->contentsAs<Half>()[i] = toFloat16(1.0F);
  }
  run([&](const auto& commandBuffer) {
    MatrixMultiplication::create(device_, 1, 1, 3)->encode(commandBuffer, left, right, result);
  });
  EXPECT_EQ(toFloat(result->data()->contentsAs<Half>()[0]), 0.25F);
}

TEST_F(MatrixMultiplicationTest, TemporariesAreCounted) {
  run([&](const auto& commandBuffer) {
    const auto descriptor = MatrixDescriptor::matrixDescriptor(2, 2, 8, DataType::Float32);
    const auto temporary = TemporaryMatrix::create(commandBuffer, descriptor);
    product_->encode(commandBuffer, left_, right_, temporary);
    EXPECT_EQ(temporary->readCount(), 1U);
    const auto sum = MatrixMultiplication::create(device_, false, false, 2, 2, 3, 1, 1);
    sum->encode(commandBuffer, left_, right_, temporary);
    EXPECT_EQ(temporary->readCount(), 1U) << "a result that is read is still a result";
    temporary->setReadCount(2);
    const auto square = MatrixMultiplication::create(device_, 2, 2, 2);
    square->encode(commandBuffer, temporary, temporary, result_);
    EXPECT_EQ(temporary->readCount(), 1U) << "once per encode";
    square->setBatchSize(0);
    square->encode(commandBuffer, temporary, temporary, result_);
    EXPECT_EQ(temporary->readCount(), 0U);
    EXPECT_EQ(commandBuffer->heap()->usedBytes(), 0U);
    EXPECT_TRUE(names(errorOf([&] { square->encode(commandBuffer, temporary, right_, result_); }),
                      {"leftMatrix", "readCount is 0"}));
  });
  // T = 2 A B = (116 128; 278 308), T T.
  EXPECT_EQ(valuesOf(*result_), (Values{116 * 116 + 128 * 278, 116 * 128 + 128 * 308, 278 * 116 + 308 * 278,
                                        278 * 128 + 308 * 308}));
}

TEST_F(MatrixMultiplicationTest, WrongArgumentsAreRefused) {
  EXPECT_EQ(refusal(left_, right_, result_), "");
  EXPECT_TRUE(names(refusal(nullptr, right_, result_), {"MatrixMultiplication", "leftMatrix", "null"}));
  EXPECT_TRUE(names(refusal(left_, nullptr, result_), {"rightMatrix", "null"}));
  EXPECT_TRUE(names(refusal(left_, right_, nullptr), {"resultMatrix", "null"}));
  EXPECT_TRUE(
      names(errorOf([&] { product_->encode(nullptr, left_, right_, result_); }), {"commandBuffer", "null"}));
  EXPECT_TRUE(names(refusal(matrix(1, 3), right_, result_), {"leftMatrix", "1x3", "2x3"}));
  EXPECT_TRUE(names(refusal(left_, matrix(3, 1), result_), {"rightMatrix", "3x1", "3x2"}));
  EXPECT_TRUE(names(refusal(left_, right_, matrix(2, 1)), {"resultMatrix", "2x1", "2x2"}));
  EXPECT_TRUE(names(refusal(matrixOf(2, 3, DataType::Float16), right_, result_),
                    {"leftMatrix", "Float16", "Float32"}));
  EXPECT_TRUE(names(refusal(left_, matrixOf(3, 2, DataType::Int32), result_),
                    {"rightMatrix", "Int32", "Float32 or Float16"}));
  EXPECT_TRUE(names(refusal(left_, right_, matrixOf(2, 2, DataType::UInt32)), {"resultMatrix", "UInt32"}));
  EXPECT_TRUE(names(refusal(left_, right_, matrixOf(2, 2, DataType::Int64)), {"resultMatrix", "Int64"}));
  product_->setLeftMatrixOrigin({0, 0, 1});
  EXPECT_TRUE(names(refusal(left_, right_, result_), {"origin of leftMatrix", "z 1"}));
  product_->setLeftMatrixOrigin({1, 0, 0});
  EXPECT_TRUE(names(refusal(left_, right_, result_), {"leftMatrix", "from row 1"}));
  product_->setLeftMatrixOrigin({0, 4, 0});
  EXPECT_TRUE(names(refusal(left_, right_, result_), {"leftMatrix", "column 4"}));
  EXPECT_TRUE(
      names(errorOf([] { (void)MatrixMultiplication::create(nullptr, 1, 1, 1); }), {"device", "null"}));
}

TEST_F(MatrixMultiplicationTest, AResultMayNotShareElementsWithAFactor) {
  const auto buffer = device_->newBuffer(400);
  const auto at = [&](std::size_t rows, std::size_t columns, std::size_t offset) {
    return Matrix::create(buffer, MatrixDescriptor::matrixDescriptor(rows, columns, 40, DataType::Float32),
                          offset);
  };
  const auto left = at(2, 3, 0);
  EXPECT_TRUE(names(refusal(left, right_, at(2, 2, 8)), {"resultMatrix", "sharing elements", "leftMatrix"}));
  EXPECT_TRUE(names(refusal(at(2, 3, 200), at(3, 2, 40), at(2, 2, 120)), {"resultMatrix", "rightMatrix"}));
  EXPECT_EQ(refusal(left, right_, at(2, 2, 12)), "") << "columns of the same rows";
}

TEST_F(MatrixMultiplicationTest, SizesBeyondMemoryAreRefused) {
  const auto a = matrix(2, 3, Values(6));
  const auto refused = [&](const std::shared_ptr<Matrix>& left, const std::shared_ptr<Matrix>& result) {
    const auto product = MatrixMultiplication::create(device_, 2, 2, 3);
    return MatrixTest::refusal(
        [&](const auto& buffer) { product->encode(buffer, left, matrix(3, 2, Values(6)), result); });
  };
  const auto unallocated = [&](std::size_t rows, std::size_t columns, std::size_t matrices) {
    const std::size_t rowBytes = columns * sizeof(float);
    return Matrix::create(device_, MatrixDescriptor::matrixDescriptor(rows, columns, matrices, rowBytes,
                                                                      rows * rowBytes, DataType::Float32));
  };
  for (const auto& [rows, matrices] : {std::pair{std::size_t{1} << 60U, std::size_t{1}},
                                       {std::size_t{1} << 31U, std::size_t{1} << 29U},
                                       {std::size_t{3}, (std::size_t{1} << 60U) / 3 + 1}})
    EXPECT_TRUE(
        names(refused(unallocated(rows, 3, matrices), matrix(2, 2)), {"leftMatrix", "less than 2^63"}));
  EXPECT_TRUE(names(refused(a, unallocated((std::size_t{1} << 60U), 3, 1)), {"resultMatrix", "2^63"}));
  // Strides that do not count may be anything.
  const std::size_t stride = std::size_t{1} << 63U;
  const auto oneRow = Matrix::create(vector({1, 2, 3})->data(),
                                     MatrixDescriptor::matrixDescriptor(1, 3, stride, DataType::Float32));
  const auto product = matrix(1, 1);
  run([&](const auto& buffer) {
    MatrixMultiplication::create(device_, 1, 1, 3)->encode(buffer, oneRow, matrix(3, 1, {1, 1, 1}), product);
  });
  EXPECT_EQ(valuesOf(*product), Values{6});
}

TEST_F(MatrixMultiplicationTest, EmptyMatricesMayHaveAnySize) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  const auto commandBuffer = queue_->commandBuffer();
  MatrixMultiplication::create(device_, kAll, 0, 0)
      ->encode(commandBuffer, emptyMatrix(kAll, 0, kAll), emptyMatrix(0, 0, kAll),
               emptyMatrix(kAll, 0, kAll));
  MatrixMultiplication::create(device_, 0, 5, 0)
      ->encode(commandBuffer, emptyMatrix(0, 0, kAll), emptyMatrix(0, 5, kAll), emptyMatrix(0, 5, kAll));
  const auto layer = MatrixFullyConnected::create(device_);
  layer->encode(commandBuffer, emptyMatrix(0, 3, kAll), emptyMatrix(3, 0, kAll), nullptr,
                emptyMatrix(0, 0, kAll));
  const auto random = MatrixRandomPhilox::create(device_, DataType::Float32);
  random->encode(commandBuffer, emptyMatrix(kAll, 0, kAll));
  random->encode(commandBuffer, emptyMatrix(0, 4, kAll));
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
}

TEST_F(MatrixMultiplicationTest, InvalidContentIsReported) {
  left_->data()->memory()->setFailure("it burnt");
  EXPECT_TRUE(names(refusal(left_, right_, result_), {"leftMatrix", "it burnt"}));
  const auto fresh = matrix(2, 3);
  result_->data()->memory()->setFailure("it froze");
  EXPECT_EQ(refusal(fresh, right_, result_), "") << "it is written";
  product_ = MatrixMultiplication::create(device_, false, false, 2, 2, 3, 1, 1);
  EXPECT_TRUE(names(refusal(fresh, right_, result_), {"resultMatrix", "it froze"}));
}

TEST_F(MatrixMultiplicationTest, ACopyHasTheSameProperties) {
  product_->setBatchSize(1);
  product_->setResultMatrixOrigin({0, 0, 0});
  product_->setLabel("logits");
  const auto copy = product_->copy();
  EXPECT_EQ(copy->batchSize(), 1U);
  EXPECT_EQ(copy->describe(), "MatrixMultiplication \"logits\"");
  run([&](const auto& commandBuffer) { copy->encode(commandBuffer, left_, right_, result_); });
  EXPECT_EQ(valuesOf(*result_), (Values{58, 64, 139, 154}));
}

class MatrixVectorMultiplicationTest : public MatrixKernels {
 protected:
  std::shared_ptr<Matrix> matrix_ = matrix(2, 3, {1, 2, 3, 4, 5, 6});
};

TEST_F(MatrixVectorMultiplicationTest, Product) {
  const auto product = MatrixVectorMultiplication::create(device_, 2, 3);
  const auto y = vector({std::nanf(""), std::nanf("")});
  run([&](const auto& commandBuffer) { product->encode(commandBuffer, matrix_, vector({1, 10, 100}), y); });
  EXPECT_EQ(valuesOf(*y), (Values{321, 654}));
}

TEST_F(MatrixVectorMultiplicationTest, TransposeAlphaAndBeta) {
  const auto product = MatrixVectorMultiplication::create(device_, true, 3, 2, 2, 0.5);
  const auto y = vector({2, 4, 6});
  run([&](const auto& commandBuffer) { product->encode(commandBuffer, matrix_, vector({1, 10}), y); });
  EXPECT_EQ(valuesOf(*y), (Values{83, 106, 129}));
}

TEST_F(MatrixVectorMultiplicationTest, OriginsOfVectorsAreElements) {
  const auto product = MatrixVectorMultiplication::create(device_, 1, 2);
  product->setPrimarySourceMatrixOrigin({1, 1, 0});  // 5 6
  product->setSecondarySourceMatrixOrigin({2, 0, 0});
  product->setResultMatrixOrigin({1, 0, 0});
  const auto y = vector({-1, -2, -3});
  run([&](const auto& commandBuffer) { product->encode(commandBuffer, matrix_, vector({0, 0, 1, 10}), y); });
  EXPECT_EQ(valuesOf(*y), (Values{-1, 65, -3}));
  EXPECT_EQ(product->primarySourceMatrixOrigin(), (mtl::Origin{1, 1, 0}));
  EXPECT_EQ(product->secondarySourceMatrixOrigin(), (mtl::Origin{2, 0, 0}));
  EXPECT_EQ(product->resultMatrixOrigin(), (mtl::Origin{1, 0, 0}));
  const auto commandBuffer = queue_->commandBuffer();
  product->setResultMatrixOrigin({1, 1, 0});
  EXPECT_TRUE(names(errorOf([&] {
                      product->encode(commandBuffer, matrix_, vector({0, 0, 1, 10}), y);
                    }),
                    {"origin of resultVector", "y 1"}));
}

TEST_F(MatrixVectorMultiplicationTest, WrongArgumentsAreRefused) {
  const auto product = MatrixVectorMultiplication::create(device_, 2, 3);
  const auto commandBuffer = queue_->commandBuffer();
  const auto x = vector({1, 2, 3});
  const auto y = vector({1, 2});
  const auto refusal = [&](const auto& matrix, const auto& input, const auto& result) {
    return errorOf([&] { product->encode(commandBuffer, matrix, input, result); });
  };
  const std::shared_ptr<Vector> none;
  EXPECT_TRUE(names(refusal(std::shared_ptr<Matrix>(), x, y), {"inputMatrix", "null"}));
  EXPECT_TRUE(names(refusal(matrix_, none, y), {"inputVector", "null"}));
  EXPECT_TRUE(names(refusal(matrix_, x, none), {"resultVector", "null"}));
  EXPECT_TRUE(names(refusal(matrix_, y, y), {"inputVector", "2x1", "3x1"}));
  EXPECT_TRUE(names(refusal(matrix_, x, vector({1})), {"resultVector", "1x1", "2x1"}));
  EXPECT_TRUE(names(refusal(matrix(1, 3), x, y), {"inputMatrix", "1x3", "2x3"}));
  const auto half = Vector::create(device_, VectorDescriptor::vectorDescriptor(3, DataType::Float16));
  EXPECT_TRUE(names(refusal(matrix_, half, y), {"inputVector", "Float16"}));
  const auto other = MatrixVectorMultiplication::create(device_, 2, 2);
  EXPECT_TRUE(names(errorOf([&] { other->encode(commandBuffer, matrix(2, 2), y, y); }),
                    {"resultVector", "sharing elements", "inputVector"}));
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
}

// -------------------------------------------------------------------------------------------------
// Copies
// -------------------------------------------------------------------------------------------------

class ImageMatrixCopies : public MatrixKernels {};

TEST_F(ImageMatrixCopies, Defaults) {
  const auto to = ImageCopyToMatrix::create(device_);
  EXPECT_EQ(to->dataLayout(), kChannelsFirst);
  EXPECT_EQ(to->destinationMatrixOrigin(), mtl::Origin{});
  EXPECT_EQ(to->destinationMatrixBatchIndex(), 0U);
  const auto back = MatrixCopyToImage::create(device_, kChannelsLast);
  EXPECT_EQ(back->dataLayout(), kChannelsLast);
  EXPECT_EQ(back->sourceMatrixOrigin(), mtl::Origin{});
  EXPECT_EQ(back->sourceMatrixBatchIndex(), 0U);
  EXPECT_TRUE(names(errorOf([] { (void)ImageCopyToMatrix::create(nullptr); }), {"device", "null"}));
}

/// Rows are what readBytes gives in the same layout, PyTorch's flatten for channels first.
TEST_F(ImageMatrixCopies, ThereAndBackInBothLayouts) {
  for (const DataLayout layout : {kChannelsFirst, kChannelsLast})
    for (const std::size_t channels : {3U, 5U}) {
      const ImageBatch images{image(4, 2, channels, 1), image(4, 2, channels, 101),
                              image(4, 2, channels, 201), image(4, 2, channels, 301)};
      const std::size_t size = 8 * channels;
      const auto rows = matrix(7, size + 5, {}, 2);
      const auto to = ImageCopyToMatrix::create(device_, layout);
      to->setDestinationMatrixOrigin({2, 3, 0});
      to->setDestinationMatrixBatchIndex(1);
      const auto back = MatrixCopyToImage::create(device_, layout);
      back->setSourceMatrixOrigin({2, 3, 0});
      back->setSourceMatrixBatchIndex(1);
      const auto returned = ImageBatch::create(device_, ImageDescriptor(Float32, 4, 2, channels), 4);
      run([&](const auto& commandBuffer) {
        to->encodeBatch(commandBuffer, images, rows);
        back->encodeBatch(commandBuffer, rows, returned);
      });
      const Values stored = valuesOf(*rows);
      Values expected(2 * 7 * (size + 5), kPoison);
      for (std::size_t n = 0; n < 4; ++n) {
        const Values row = valuesOf(*images[n], layout);
        std::copy(row.begin(), row.end(),
                  expected.begin() + static_cast<std::ptrdiff_t>((7 + 2 + n) * (size + 5) + 3));
        EXPECT_EQ(valuesOf(*returned[n], kChannelsLast), valuesOf(*images[n], kChannelsLast));
      }
      EXPECT_EQ(stored, expected);
    }
}

TEST_F(ImageMatrixCopies, AStackTakesARowForEachImage) {
  const auto source = image(3, 2, 2, 1, 3);
  const auto rows = matrix(3, 12);
  const auto stack = Image::create(device_, ImageDescriptor(Float32, 3, 2, 2, 3));
  run([&](const auto& commandBuffer) {
    ImageCopyToMatrix::create(device_)->encode(commandBuffer, source, rows);
    MatrixCopyToImage::create(device_)->encode(commandBuffer, rows, stack);
  });
  const Values stored = valuesOf(*rows);
  for (std::size_t n = 0; n < 3; ++n) {
    const auto begin = stored.begin() + static_cast<std::ptrdiff_t>(12 * n);
    EXPECT_EQ(Values(begin, begin + 12), valuesOf(*source, kChannelsFirst, n));
    EXPECT_EQ(valuesOf(*stack, kChannelsLast, n), valuesOf(*source, kChannelsLast, n));
  }
}

TEST_F(ImageMatrixCopies, UnormBytesAreCopiedRaw) {
  const auto source = Image::create(device_, ImageDescriptor(Unorm8, 2, 1, 2));
  const std::vector<std::uint8_t> bytes{1, 2, 250, 255};
  source->writeBytes(std::span(bytes), kChannelsLast);
  const auto wide = Image::create(device_, ImageDescriptor(Unorm16, 2, 1, 2));
  const std::vector<std::uint16_t> words{1, 2, 25000, 65535};
  wide->writeBytes(std::span(words), kChannelsLast);
  const auto copy = ImageCopyToMatrix::create(device_);
  for (const DataType type : {DataType::UInt8, DataType::Unorm8}) {
    const auto rows = matrixOf(1, 4, type);
    run([&](const auto& commandBuffer) { copy->encode(commandBuffer, source, rows); });
    const auto found = rows->data()->contentsAs<std::uint8_t>();
    EXPECT_EQ(std::vector<std::uint8_t>(found.begin(), found.begin() + 4),
              (std::vector<std::uint8_t>{1, 250, 2, 255}));
  }
  const auto rows = matrixOf(1, 4, DataType::UInt16);
  run([&](const auto& commandBuffer) { copy->encode(commandBuffer, wide, rows); });
  const auto found = rows->data()->contentsAs<std::uint16_t>();
  EXPECT_EQ(std::vector<std::uint16_t>(found.begin(), found.begin() + 4),
            (std::vector<std::uint16_t>{1, 25000, 2, 65535}));
  const auto commandBuffer = queue_->commandBuffer();
  EXPECT_TRUE(names(errorOf([&] { MatrixCopyToImage::create(device_)->encode(commandBuffer, rows, wide); }),
                    {"destinationImage", "unorm16", "sources only"}));
}

TEST_F(ImageMatrixCopies, TemporariesAreCounted) {
  const auto source = image(2, 2, 3, 1);
  const auto result = image(2, 2, 3, 100);
  run([&](const auto& commandBuffer) {
    const auto rows = TemporaryMatrix::create(
        commandBuffer, MatrixDescriptor::matrixDescriptor(1, 12, 48, DataType::Float32));
    const auto between = TemporaryImage::create(commandBuffer, ImageDescriptor(Float32, 2, 2, 3));
    ImageCopyToMatrix::create(device_)->encode(commandBuffer, source, rows);
    EXPECT_EQ(rows->readCount(), 1U);
    MatrixCopyToImage::create(device_)->encode(commandBuffer, rows, between);
    EXPECT_EQ(rows->readCount(), 0U);
    EXPECT_EQ(between->readCount(), 1U);
    const auto last = TemporaryMatrix::create(
        commandBuffer, MatrixDescriptor::matrixDescriptor(1, 12, 48, DataType::Float32));
    ImageCopyToMatrix::create(device_)->encode(commandBuffer, between, last);
    EXPECT_EQ(between->readCount(), 0U);
    MatrixCopyToImage::create(device_)->encode(commandBuffer, last, result);
    EXPECT_EQ(commandBuffer->heap()->usedBytes(), 0U);
    EXPECT_TRUE(
        names(errorOf([&] { ImageCopyToMatrix::create(device_)->encode(commandBuffer, between, last); }),
              {"sourceImage", "readCount is 0", "MatrixCopyToImage"}));
  });
  EXPECT_EQ(valuesOf(*result, kChannelsLast), valuesOf(*source, kChannelsLast));
}

TEST_F(ImageMatrixCopies, WrongArgumentsAreRefused) {
  const auto source = image(2, 2, 3, 1);
  const auto commandBuffer = queue_->commandBuffer();
  const auto to = ImageCopyToMatrix::create(device_);
  const auto back = MatrixCopyToImage::create(device_);
  const auto refusal = [&](const std::shared_ptr<Image>& from, const std::shared_ptr<Matrix>& rows) {
    return errorOf([&] { to->encode(commandBuffer, from, rows); });
  };
  const std::shared_ptr<Image> none;
  EXPECT_TRUE(names(refusal(none, matrix(1, 12)), {"ImageCopyToMatrix", "sourceImage", "null"}));
  EXPECT_TRUE(names(refusal(source, nullptr), {"destinationMatrix", "null"}));
  EXPECT_TRUE(names(refusal(source, matrix(1, 11)), {"destinationMatrix", "1x11", "1x12"}));
  EXPECT_TRUE(names(refusal(source, matrix(0, 12)), {"destinationMatrix", "0x12", "1x12"}));
  EXPECT_TRUE(names(refusal(source, matrixOf(1, 12, DataType::Float16)),
                    {"destinationMatrix", "Float16", "float32"}));
  const auto typed = [&](ImageFeatureChannelFormat format, DataType type) {
    return refusal(Image::create(device_, ImageDescriptor(format, 2, 2, 3)), matrixOf(1, 12, type));
  };
  EXPECT_TRUE(names(typed(Unorm8, DataType::Int8), {"Int8", "unorm8"}));
  EXPECT_TRUE(names(typed(Unorm16, DataType::Float16), {"Float16", "unorm16"}));
  EXPECT_TRUE(names(typed(Float16, DataType::UInt16), {"UInt16", "float16"}));
  to->setDestinationMatrixBatchIndex(1);
  EXPECT_TRUE(names(refusal(source, matrix(1, 12)), {"destinationMatrix", "1 matrices", "from 1 on"}));
  EXPECT_TRUE(names(errorOf([&] { back->encode(commandBuffer, matrix(1, 12), none); }),
                    {"MatrixCopyToImage", "destinationImage", "null"}));
  EXPECT_TRUE(
      names(errorOf([&] { back->encode(commandBuffer, nullptr, source); }), {"sourceMatrix", "null"}));
  EXPECT_TRUE(
      names(errorOf([&] { back->encode(nullptr, matrix(1, 12), source); }), {"commandBuffer", "null"}));
  const ImageBatch stacks{image(2, 2, 3, 1, 2)};
  EXPECT_TRUE(names(errorOf([&] { to->encodeBatch(commandBuffer, stacks, matrix(4, 12)); }),
                    {"sourceImages", "a stack"}));
  EXPECT_TRUE(names(errorOf([&] { back->encodeBatch(commandBuffer, matrix(4, 12), stacks); }),
                    {"destinationImages", "a stack"}));
  EXPECT_TRUE(names(errorOf([&] { to->encodeBatch(commandBuffer, {}, matrix(1, 12)); }),
                    {"sourceImages", "an empty batch"}));
  EXPECT_TRUE(names(errorOf([&] { back->encodeBatch(commandBuffer, matrix(1, 12), {}); }),
                    {"destinationImages", "an empty batch"}));
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
  EXPECT_NE(errorOf([&] { to->encodeBatch(nullptr, {}, matrix(1, 12)); }), "");
}

TEST_F(ImageMatrixCopies, ACopyHasTheSameProperties) {
  const auto to = ImageCopyToMatrix::create(device_, kChannelsLast);
  to->setDestinationMatrixOrigin({1, 2, 0});
  to->setDestinationMatrixBatchIndex(3);
  const auto other = to->copy();
  EXPECT_EQ(other->dataLayout(), kChannelsLast);
  EXPECT_EQ(other->destinationMatrixOrigin(), (mtl::Origin{1, 2, 0}));
  EXPECT_EQ(other->destinationMatrixBatchIndex(), 3U);
  EXPECT_EQ(MatrixCopyToImage::create(device_)->copy()->className(), "MatrixCopyToImage");
}

/// The base class alone.
class Unary : public MatrixUnaryKernel {
 public:
  explicit Unary(const std::shared_ptr<mtl::Device>& device) : MatrixUnaryKernel(device) {}
  [[nodiscard]] std::string className() const override { return "Unary"; }

 protected:
  [[nodiscard]] std::shared_ptr<Kernel> clone() const override { return std::make_shared<Unary>(*this); }
};

TEST_F(MatrixKernels, UnaryKernelsHaveTwoOrigins) {
  Unary kernel(device_);
  EXPECT_EQ(kernel.sourceMatrixOrigin(), mtl::Origin{});
  EXPECT_EQ(kernel.resultMatrixOrigin(), mtl::Origin{});
  kernel.setSourceMatrixOrigin({1, 2, 0});
  kernel.setResultMatrixOrigin({3, 4, 0});
  EXPECT_EQ(kernel.sourceMatrixOrigin(), (mtl::Origin{1, 2, 0}));
  EXPECT_EQ(kernel.resultMatrixOrigin(), (mtl::Origin{3, 4, 0}));
}

TEST_F(MatrixKernels, BinaryKernelsHaveThreeOrigins) {
  const std::shared_ptr<MatrixBinaryKernel> kernel = MatrixVectorMultiplication::create(device_, 2, 3);
  EXPECT_EQ(kernel->primarySourceMatrixOrigin(), mtl::Origin{});
  EXPECT_EQ(kernel->secondarySourceMatrixOrigin(), mtl::Origin{});
  EXPECT_EQ(kernel->resultMatrixOrigin(), mtl::Origin{});
  kernel->setPrimarySourceMatrixOrigin({1, 2, 0});
  kernel->setSecondarySourceMatrixOrigin({3, 0, 0});
  kernel->setResultMatrixOrigin({5, 0, 0});
  const auto copy = detail::copyAs(*kernel, device_);
  EXPECT_EQ(copy->primarySourceMatrixOrigin(), (mtl::Origin{1, 2, 0}));
  EXPECT_EQ(copy->secondarySourceMatrixOrigin(), (mtl::Origin{3, 0, 0}));
  EXPECT_EQ(copy->resultMatrixOrigin(), (mtl::Origin{5, 0, 0}));
}

}  // namespace
}  // namespace mps::matrix_test
