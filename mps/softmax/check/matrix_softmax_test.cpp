#include "mps/softmax/matrix_softmax.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "mps/conform/compare.hpp"
#include "mps/core/testing/test_matrices.hpp"
#include "mps/softmax/check/softmax_reference.hpp"
#include "mtl/memory.hpp"

/// Softmax of the rows of matrices.
namespace mps::matrix_softmax_test {
namespace {

using detail::ReferenceTensor;
using detail::SoftMaxKind;
using detail::SoftMaxProblem;
using testing::errorOf;
using testing::names;
using testing::Values;

ReferenceTensor rowsOf(std::int64_t rows, const Values& values) {
  ReferenceTensor tensor(1, rows, 1, static_cast<std::int64_t>(values.size()) / rows);
  tensor.values.assign(values.begin(), values.end());
  return tensor;
}

SoftMaxProblem kindOf(bool isLogarithm) {
  SoftMaxProblem problem;
  problem.kind = isLogarithm ? SoftMaxKind::LogSoftMax : SoftMaxKind::SoftMax;
  return problem;
}

class MatrixSoftMaxTest : public testing::MatrixTest {
 protected:
  std::shared_ptr<MatrixSoftMax> softMax_ = MatrixSoftMax::create(device_);
  std::shared_ptr<MatrixSoftMaxGradient> gradient_ = MatrixSoftMaxGradient::create(device_);

  static void expectNear(const ReferenceTensor& expected, Matrix& found) {
    const Values values = valuesOf(found);
    const auto format = found.dataType() == DataType::Float16 ? ImageFeatureChannelFormat::Float16
                                                              : ImageFeatureChannelFormat::Float32;
    const std::vector<double> numbers(values.begin(), values.end());
    EXPECT_EQ(
        detail::compare(expected, numbers, format, detail::Tier::Bounded, detail::Zeros::Expected).report,
        "");
  }
};

const Values kLogarithms = {0, std::log(2.0F), std::log(3.0F)};

TEST_F(MatrixSoftMaxTest, EachRowIsASample) {
  const auto x = matrix(2, 3, {0, std::log(2.0F), std::log(3.0F), 1000, 1000, 1000});
  const auto y = matrix(2, 3);
  const auto dx = matrix(2, 3);
  run([&](const auto& commandBuffer) {
    softMax_->encode(commandBuffer, x, y);
    gradient_->encode(commandBuffer, matrix(2, 3, {1, 0, 0, 3, 0, 0}), y, dx);
  });
  ReferenceTensor expected = softMaxForwardReference(kindOf(false), rowsOf(2, valuesOf(*x)));
  expected.values = {1.0 / 6, 1.0 / 3, 1.0 / 2, 1.0 / 3, 1.0 / 3, 1.0 / 3};
  expectNear(expected, *y);
  expected = softMaxGradientReference(kindOf(false), rowsOf(2, valuesOf(*y)), rowsOf(2, {1, 0, 0, 3, 0, 0}));
  expected.roundings += 9;  // those of y
  expected.transcendental += 2;
  expected.values = {5.0 / 36, -1.0 / 18, -1.0 / 12, 2.0 / 3, -1.0 / 3, -1.0 / 3};
  expectNear(expected, *dx);
}

TEST_F(MatrixSoftMaxTest, LogSoftMaxOfTheSameRow) {
  const auto y = matrix(1, 3);
  const auto dx = matrix(1, 3);
  run([&](const auto& commandBuffer) {
    MatrixLogSoftMax::create(device_)->encode(commandBuffer, matrix(1, 3, kLogarithms), y);
    MatrixLogSoftMaxGradient::create(device_)->encode(commandBuffer, matrix(1, 3, {1, 0, 2}), y, dx);
  });
  ReferenceTensor expected = softMaxForwardReference(kindOf(true), rowsOf(1, kLogarithms));
  expected.values = {-std::log(6.0), -std::log(3.0), -std::log(2.0)};
  expectNear(expected, *y);
  expected = softMaxGradientReference(kindOf(true), rowsOf(1, valuesOf(*y)), rowsOf(1, {1, 0, 2}));
  expected.roundings += 9;
  expected.transcendental += 2;
  expected.values = {0.5, -1, 0.5};
  expectNear(expected, *dx);
}

TEST_F(MatrixSoftMaxTest, OriginsAreRowAndColumnAndSizesAreLimits) {
  EXPECT_EQ(softMax_->sourceRows(), std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(softMax_->sourceColumns(), std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(gradient_->sourceRows(), std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(gradient_->sourceColumns(), std::numeric_limits<std::size_t>::max());
  // Rows 1 and 2, columns 1 and 2 of the source.
  const auto x = matrix(3, 3, {9, 9, 9, 9, 5, 5, 9, 7, 7});
  softMax_->setSourceMatrixOrigin({1, 1, 0});
  const auto y = matrix(2, 3);
  softMax_->setResultMatrixOrigin({0, 1, 0});
  run([&](const auto& commandBuffer) { softMax_->encode(commandBuffer, x, y); });
  EXPECT_EQ(valuesOf(*y), (Values{kPoison, 0.5F, 0.5F, kPoison, 0.5F, 0.5F}));

  const auto z = matrix(2, 3);
  softMax_->setSourceRows(1);
  softMax_->setSourceColumns(1);
  run([&](const auto& commandBuffer) { softMax_->encode(commandBuffer, x, z); });
  EXPECT_EQ(valuesOf(*z), (Values{kPoison, 1, kPoison, kPoison, kPoison, kPoison}));

  // One row of two: what the forward result has behind its origin.
  gradient_->setPrimarySourceMatrixOrigin({1, 0, 0});
  gradient_->setSecondarySourceMatrixOrigin({1, 1, 0});
  gradient_->setResultMatrixOrigin({0, 1, 0});
  const auto dy = matrix(3, 3, {9, 9, 9, 4, 0, 9, 9, 9, 9});
  const auto dx = matrix(2, 3);
  run([&](const auto& commandBuffer) { gradient_->encode(commandBuffer, dy, y, dx); });
  EXPECT_EQ(valuesOf(*dx), (Values{kPoison, 1, -1, kPoison, kPoison, kPoison}));
  gradient_->setSourceColumns(1);
  gradient_->setSourceRows(0);
  EXPECT_EQ(refusal([&](const auto& commandBuffer) {
              gradient_->encode(commandBuffer, dy, y, dx);
              EXPECT_EQ(commandBuffer->commandCount(), 0U);
            }),
            "");
}

TEST_F(MatrixSoftMaxTest, ABatchIsClippedToTheShortestArgument) {
  const auto x = matrix(1, 2, {0, 0, 3, 3, 5, 5, 7, 7}, 4);
  const auto y = matrix(1, 2, {}, 3);
  softMax_->setBatchStart(1);
  run([&](const auto& commandBuffer) { softMax_->encode(commandBuffer, x, y); });
  EXPECT_EQ(valuesOf(*y), (Values{kPoison, kPoison, 0.5F, 0.5F, 0.5F, 0.5F}));
  const auto dx = matrix(1, 2, {}, 4);
  gradient_->setBatchStart(1);
  gradient_->setBatchSize(1);
  run([&](const auto& commandBuffer) { gradient_->encode(commandBuffer, x, y, dx); });
  EXPECT_EQ(valuesOf(*dx), (Values{kPoison, kPoison, 0, 0, kPoison, kPoison, kPoison, kPoison}));
  softMax_->setBatchStart(5);
  EXPECT_TRUE(names(refusal([&](const auto& commandBuffer) { softMax_->encode(commandBuffer, x, y); }),
                    {"MatrixSoftMax", "batchStart", "5", "3"}));
}

TEST_F(MatrixSoftMaxTest, WorksInPlaceButNotOnPartsOfASource) {
  const auto x = matrix(2, 2, {1, 1, 2, 2});
  const auto dy = matrix(2, 2, {4, 0, 0, 4});
  run([&](const auto& commandBuffer) {
    softMax_->encode(commandBuffer, x, x);
    gradient_->encode(commandBuffer, dy, x, dy);
  });
  EXPECT_EQ(valuesOf(*x), Values(4, 0.5F));
  EXPECT_EQ(valuesOf(*dy), (Values{1, -1, -1, 1}));
  const std::vector<std::string> sharing{"resultMatrix", "sharing elements", "the very same region"};
  softMax_->setSourceMatrixOrigin({1, 0, 0});
  softMax_->setSourceColumns(1);
  EXPECT_EQ(refusal([&](const auto& commandBuffer) { softMax_->encode(commandBuffer, x, x); }), "")
      << "another row";
  softMax_->setSourceRows(1);
  softMax_->setSourceColumns(2);
  softMax_->setResultMatrixOrigin({1, 0, 0});
  EXPECT_EQ(refusal([&](const auto& commandBuffer) { softMax_->encode(commandBuffer, x, x); }), "");
  const auto buffer = device_->newBuffer(64);
  const auto at = [&](std::size_t offset) {
    return Matrix::create(buffer, MatrixDescriptor::matrixDescriptor(2, 2, 16, DataType::Float32), offset);
  };
  const auto plain = MatrixSoftMax::create(device_);
  EXPECT_TRUE(names(refusal([&](const auto& commandBuffer) { plain->encode(commandBuffer, at(0), at(4)); }),
                    sharing));
  EXPECT_TRUE(
      names(refusal([&](const auto& commandBuffer) { gradient_->encode(commandBuffer, dy, at(0), at(4)); }),
            {"forwardOutputMatrix", "sharing elements"}));
  EXPECT_TRUE(
      names(refusal([&](const auto& commandBuffer) { gradient_->encode(commandBuffer, at(0), x, at(4)); }),
            {"gradientMatrix", "sharing elements"}));
}

TEST_F(MatrixSoftMaxTest, TemporariesAreCounted) {
  const auto dx = matrix(2, 2);
  run([&](const auto& commandBuffer) {
    const auto y = TemporaryMatrix::create(commandBuffer,
                                           MatrixDescriptor::matrixDescriptor(2, 2, 8, DataType::Float32));
    softMax_->encode(commandBuffer, matrix(2, 2, {1, 1, 2, 2}), y);
    EXPECT_EQ(y->readCount(), 1U);
    gradient_->encode(commandBuffer, matrix(2, 2, {4, 0, 0, 4}), y, dx);
    EXPECT_EQ(y->readCount(), 0U);
    EXPECT_EQ(commandBuffer->heap()->usedBytes(), 0U);
    EXPECT_TRUE(
        names(errorOf([&] { softMax_->encode(commandBuffer, y, dx); }), {"inputMatrix", "readCount is 0"}));
  });
  EXPECT_EQ(valuesOf(*dx), (Values{1, -1, -1, 1}));
}

TEST_F(MatrixSoftMaxTest, EmptyMatricesMayHaveAnySize) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  const auto commandBuffer = queue_->commandBuffer();
  softMax_->encode(commandBuffer, emptyMatrix(kAll, 0, kAll), emptyMatrix(kAll, 0, kAll));
  softMax_->encode(commandBuffer, emptyMatrix(0, 4, kAll), emptyMatrix(0, 4, kAll));
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
  // Origins at the end of an empty matrix, and behind it.
  softMax_->setSourceMatrixOrigin({kAll, 0, 0});
  softMax_->setResultMatrixOrigin({kAll, 0, 0});
  const auto encoded = [&](std::size_t rows) {
    return refusal([&](const auto& buffer) {
      softMax_->encode(buffer, emptyMatrix(rows, 0, 1), emptyMatrix(kAll, 0, 1));
    });
  };
  EXPECT_EQ(encoded(kAll), "");
  EXPECT_TRUE(names(encoded(kAll - 1), {"inputMatrix", "from row " + std::to_string(kAll)}));
}

TEST_F(MatrixSoftMaxTest, WrongArgumentsAreRefused) {
  const auto x = matrix(2, 3);
  const auto forward = [&](const std::shared_ptr<Matrix>& input, const std::shared_ptr<Matrix>& result) {
    return refusal([&](const auto& commandBuffer) { softMax_->encode(commandBuffer, input, result); });
  };
  EXPECT_TRUE(names(forward(nullptr, x), {"MatrixSoftMax", "inputMatrix", "null"}));
  EXPECT_TRUE(names(forward(x, nullptr), {"resultMatrix", "null"}));
  EXPECT_TRUE(names(errorOf([&] { softMax_->encode(nullptr, x, matrix(2, 3)); }), {"commandBuffer", "null"}));
  EXPECT_TRUE(names(forward(x, halfMatrix(2, 3)), {"inputMatrix", "Float32", "Float16, as the result"}));
  EXPECT_TRUE(names(forward(x, matrixOf(2, 3, DataType::UInt32)), {"resultMatrix", "UInt32"}));
  EXPECT_TRUE(names(forward(x, matrix(1, 3)), {"resultMatrix", "1x3", "2x3"}));
  EXPECT_TRUE(names(forward(x, matrix(2, 2)), {"resultMatrix", "2x2", "2x3"}));
  softMax_->setSourceMatrixOrigin({3, 0, 0});
  EXPECT_TRUE(names(forward(x, matrix(2, 3)), {"inputMatrix", "from row 3"}));
  softMax_->setSourceMatrixOrigin({0, 0, 1});
  EXPECT_TRUE(names(forward(x, matrix(2, 3)), {"origin of inputMatrix", "z 1"}));

  const auto backward = [&](const std::shared_ptr<Matrix>& dy, const std::shared_ptr<Matrix>& y,
                            const std::shared_ptr<Matrix>& dx) {
    return refusal([&](const auto& commandBuffer) { gradient_->encode(commandBuffer, dy, y, dx); });
  };
  EXPECT_TRUE(names(backward(nullptr, x, x), {"MatrixSoftMaxGradient", "gradientMatrix", "null"}));
  EXPECT_TRUE(names(backward(x, nullptr, x), {"forwardOutputMatrix", "null"}));
  EXPECT_TRUE(names(backward(x, x, nullptr), {"resultMatrix", "null"}));
  EXPECT_TRUE(names(backward(halfMatrix(2, 3), x, matrix(2, 3)), {"gradientMatrix", "Float16"}));
  EXPECT_TRUE(names(backward(x, halfMatrix(2, 3), matrix(2, 3)), {"forwardOutputMatrix", "Float16"}));
  EXPECT_TRUE(names(backward(x, x, matrix(2, 2)), {"resultMatrix", "2x2", "2x3"}));
  EXPECT_TRUE(names(errorOf([] { (void)MatrixLogSoftMax::create(nullptr); }), {"device", "null"}));
}

TEST_F(MatrixSoftMaxTest, RandomRowsMatchTheReference) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const bool isLogarithm : {false, true})
    for (const bool isHalf : {false, true})
      for (int repetition = 0; repetition < 10; ++repetition) {
        const std::size_t rows = 1 + random() % 20;
        const std::size_t columns = 1 + random() % 70;
        const auto filled = [&](float range) {
          Values values(rows * columns);
          std::uniform_real_distribution<float> distribution(-range, range);
          for (float& value : values) value = distribution(random);
          return isHalf ? halfMatrix(rows, columns, values) : matrix(rows, columns, values);
        };
        const auto x = filled(6);
        const auto dy = filled(1);
        const auto y = filled(0);
        const auto dx = filled(0);
        const auto forward = isLogarithm ? MatrixLogSoftMax::create(device_) : softMax_;
        const auto gradient = isLogarithm ? MatrixLogSoftMaxGradient::create(device_) : gradient_;
        run([&](const auto& commandBuffer) {
          forward->encode(commandBuffer, x, y);
          gradient->encode(commandBuffer, dy, y, dx);
        });
        const auto height = static_cast<std::int64_t>(rows);
        const SoftMaxProblem kind = kindOf(isLogarithm);
        expectNear(softMaxForwardReference(kind, rowsOf(height, valuesOf(*x))), *y);
        expectNear(
            softMaxGradientReference(kind, rowsOf(height, valuesOf(*y)), rowsOf(height, valuesOf(*dy))), *dx);
      }
}

TEST_F(MatrixSoftMaxTest, CopiesForAnotherDeviceKeepTheirProperties) {
  const auto device = mtl::newCPUDevice(1);
  softMax_->setSourceRows(3);
  softMax_->setSourceColumns(4);
  softMax_->setLabel("rows");
  const auto copy = softMax_->copy(device);
  EXPECT_EQ(copy->device(), device);
  EXPECT_EQ(copy->sourceRows(), 3U);
  EXPECT_EQ(copy->sourceColumns(), 4U);
  EXPECT_EQ(copy->describe(), "MatrixSoftMax \"rows\"");
  gradient_->setSourceRows(5);
  EXPECT_EQ(gradient_->copy(device)->sourceRows(), 5U);
  EXPECT_EQ(MatrixLogSoftMax::create(device_)->copy(device)->className(), "MatrixLogSoftMax");
  EXPECT_EQ(MatrixLogSoftMaxGradient::create(device_)->copy(device)->className(), "MatrixLogSoftMaxGradient");
}

}  // namespace
}  // namespace mps::matrix_softmax_test
