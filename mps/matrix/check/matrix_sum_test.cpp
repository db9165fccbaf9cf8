#include "mps/matrix/matrix_sum.hpp"

#include <random>

#include "mps/conform/compare.hpp"
#include "mps/core/testing/test_matrices.hpp"
#include "mps/matrix/check/matrix_layers_reference.hpp"

/// Sums of matrices.
namespace mps::matrix_sum_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::Values;
using Matrices = std::vector<std::shared_ptr<Matrix>>;

class MatrixSumTest : public testing::MatrixTest {
 protected:
  [[nodiscard]] std::shared_ptr<Vector> words(const std::vector<std::uint32_t>& values) const {
    auto made = Vector::create(device_, VectorDescriptor::vectorDescriptor(values.size(), DataType::UInt32));
    std::copy(values.begin(), values.end(), made->data()->contentsAs<std::uint32_t>().begin());
    return made;
  }
  const Matrices sources_ = {matrix(2, 3, {1, 2, 3, 4, 5, 6}), matrix(2, 3, {10, 20, 30, 40, 50, 60}),
                             matrix(2, 3, {100, 200, 300, 400, 500, 600})};
  const std::shared_ptr<MatrixSum> sum_ = MatrixSum::create(device_, 3, 2, 3, false);
};

TEST_F(MatrixSumTest, WithoutVectors) {
  EXPECT_EQ(sum_->count(), 3U);
  EXPECT_EQ(sum_->rows(), 2U);
  EXPECT_EQ(sum_->columns(), 3U);
  EXPECT_FALSE(sum_->transpose());
  EXPECT_EQ(sum_->neuronType(), CNNNeuronType::None);
  EXPECT_EQ(sum_->resultMatrixOrigin(), mtl::Origin{});
  const auto result = matrix(2, 3);
  run([&](const auto& commandBuffer) { sum_->encode(commandBuffer, sources_, result); });
  EXPECT_EQ(valuesOf(*result), (Values{111, 222, 333, 444, 555, 666}));
}

TEST_F(MatrixSumTest, ScalesAndBias) {
  const auto result = matrix(2, 3);
  run([&](const auto& commandBuffer) {
    sum_->encode(commandBuffer, sources_, result, vector({1, 0.5F, -1}), nullptr, vector({1000, 2000, 3000}));
  });
  EXPECT_EQ(valuesOf(*result), (Values{906, 1812, 2718, 624, 1530, 2436}));
}

TEST_F(MatrixSumTest, TheBiasBelongsToTheColumnsOfATransposedResult) {
  const auto sum = MatrixSum::create(device_, 2, 2, 3, true);
  EXPECT_TRUE(sum->transpose());
  const auto result = matrix(3, 2);
  run([&](const auto& commandBuffer) {
    sum->encode(commandBuffer, Matrices{sources_[0], sources_[1]}, result, nullptr, nullptr,
                vector({1000, 2000}));
  });
  EXPECT_EQ(valuesOf(*result), (Values{1011, 2044, 1022, 2055, 1033, 2066}));
}

/// The vectors are read when the work runs.
TEST_F(MatrixSumTest, VectorsAreReadWhenTheWorkRuns) {
  const auto scales = vector({0, 0, 0});
  const auto offsets = words({0, 0, 0, 0, 0, 0});
  const auto sum = MatrixSum::create(device_, 3, 1, 2, false);
  const auto result = matrix(1, 2);
  run([&](const auto& commandBuffer) {
    sum->encode(commandBuffer, sources_, result, scales, offsets);
    const Values values{1, 2, 3};
    std::copy(values.begin(), values.end(), scales->data()->contentsAs<float>().begin());
    const std::vector<std::uint32_t> places{1, 1, 0, 1, 1, 0};
    std::copy(places.begin(), places.end(), offsets->data()->contentsAs<std::uint32_t>().begin());
  });
  EXPECT_EQ(valuesOf(*result), (Values{5 + 2 * 20 + 3 * 400, 6 + 2 * 30 + 3 * 500}));
}

TEST_F(MatrixSumTest, StartIndexCountsScalesAndPairsOfOffsets) {
  const auto sum = MatrixSum::create(device_, 2, 1, 1, false);
  const auto result = matrix(1, 1);
  const auto offsets = words(std::vector<std::uint32_t>(8, 9));
  const std::vector<MatrixOffset> places{{1, 0}, {0, 2}};
  std::copy(places.begin(), places.end(), offsets->data()->contentsAs<MatrixOffset>().begin() + 2);
  run([&](const auto& commandBuffer) {
    sum->encode(commandBuffer, Matrices{sources_[0], sources_[1]}, result, vector({9, 9, 2, 3}), offsets,
                nullptr, 2);
  });
  EXPECT_EQ(valuesOf(*result), (Values{2 * 4 + 3 * 30}));
}

TEST_F(MatrixSumTest, ElementsOutsideASourceCountAsZero) {
  const auto result = matrix(2, 3);
  const auto sum = MatrixSum::create(device_, 1, 2, 3, false);
  run([&](const auto& commandBuffer) {
    sum->encode(commandBuffer, Matrices{sources_[0]}, result, nullptr, words({1, 2}), vector({1, 1, 1}));
  });
  EXPECT_EQ(valuesOf(*result), (Values{7, 1, 1, 1, 1, 1}));
  run([&](const auto& commandBuffer) {
    sum->encode(commandBuffer, Matrices{sources_[0]}, result, nullptr, words({0xFFFFFFFF, 0xFFFFFFFF}));
  });
  EXPECT_EQ(valuesOf(*result), Values(6, 0));
}

TEST_F(MatrixSumTest, TheNeuronComesLast) {
  sum_->setNeuronType(CNNNeuronType::ReLU, 0.5F, 0, 0);
  const auto result = matrix(2, 3);
  run([&](const auto& commandBuffer) {
    sum_->encode(commandBuffer, sources_, result, vector({-1, -1, 0.5F}), nullptr, vector({-100, 0, 1}));
  });
  // 39 x - 100, 39 x, 39 x + 1.
  EXPECT_EQ(valuesOf(*result), (Values{-30.5F, 78, 118, 56, 195, 235}));
}

TEST_F(MatrixSumTest, TheResultBeginsAtItsOrigin) {
  const auto result = matrix(3, 5);
  sum_->setResultMatrixOrigin({1, 2, 0});
  run([&](const auto& commandBuffer) { sum_->encode(commandBuffer, sources_, result); });
  Values expected(15, kPoison);
  for (std::size_t i = 0; i < 6; ++i) expected[5 + i / 3 * 5 + 2 + i % 3] = 111 * static_cast<float>(i + 1);
  EXPECT_EQ(valuesOf(*result), expected);
}

/// 2048 + 0.25 is 2048 in float16.
TEST_F(MatrixSumTest, SumsOfFloat16AreFloat32) {
  const auto result = halfMatrix(1, 1);
  run([&](const auto& commandBuffer) {
    MatrixSum::create(device_, 3, 1, 1, false)
        ->encode(commandBuffer,
                 Matrices{halfMatrix(1, 1, {2048}), halfMatrix(1, 1, {0.25F}), halfMatrix(1, 1, {-2048})},
                 result, nullptr, nullptr, halfVector({0.25F}));
  });
  EXPECT_EQ(valuesOf(*result), Values{0.5F});
}

TEST_F(MatrixSumTest, TemporariesAreCounted) {
  const auto result = matrix(1, 2);
  run([&](const auto& commandBuffer) {
    const auto temporary = TemporaryMatrix::create(
        commandBuffer, MatrixDescriptor::matrixDescriptor(1, 2, 8, DataType::Float32));
    const auto sum = MatrixSum::create(device_, 2, 1, 2, false);
    sum->encode(commandBuffer, Matrices{sources_[0], sources_[1]}, temporary);
    EXPECT_EQ(temporary->readCount(), 1U);
    sum->encode(commandBuffer, Matrices{temporary, temporary}, result);
    EXPECT_EQ(temporary->readCount(), 0U) << "once for an encode";
  });
  EXPECT_EQ(valuesOf(*result), (Values{22, 44}));
}

TEST_F(MatrixSumTest, NothingToDo) {
  const auto commandBuffer = queue_->commandBuffer();
  MatrixSum::create(device_, 1, 0, 3, false)->encode(commandBuffer, Matrices{sources_[0]}, matrix(2, 3));
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
}

TEST_F(MatrixSumTest, WrongArgumentsAreRefused) {
  const auto result = matrix(2, 3);
  const auto refused = [&](const Matrices& sources, const std::shared_ptr<Matrix>& target,
                           const std::shared_ptr<Vector>& scales = nullptr,
                           const std::shared_ptr<Vector>& offsets = nullptr,
                           const std::shared_ptr<Vector>& bias = nullptr, std::size_t startIndex = 0) {
    return refusal([&](const auto& commandBuffer) {
      sum_->encode(commandBuffer, sources, target, scales, offsets, bias, startIndex);
    });
  };
  EXPECT_EQ(refused(sources_, result), "");
  EXPECT_TRUE(names(errorOf([&] { (void)MatrixSum::create(device_, 0, 1, 1, false); }), {"count", "0"}));
  EXPECT_TRUE(names(errorOf([] { (void)MatrixSum::create(nullptr, 1, 1, 1, false); }), {"device", "null"}));
  EXPECT_TRUE(names(errorOf([&] { sum_->encode(nullptr, sources_, result); }), {"commandBuffer", "null"}));
  EXPECT_TRUE(names(refused({sources_[0]}, result), {"MatrixSum", "sourceMatrices", "1", "3"}));
  EXPECT_TRUE(names(refused({sources_[0], nullptr, sources_[2]}, result), {"sourceMatrices", "null"}));
  EXPECT_TRUE(names(refused(sources_, nullptr), {"resultMatrix", "null"}));
  EXPECT_TRUE(names(refused(sources_, matrix(2, 2)), {"resultMatrix", "2x2", "2x3"}));
  EXPECT_TRUE(names(refused(sources_, halfMatrix(2, 3)), {"sourceMatrices", "Float32", "Float16"}));
  EXPECT_TRUE(names(refused(sources_, matrixOf(2, 3, DataType::Int32)), {"resultMatrix", "Int32"}));
  const Matrices small{sources_[0], matrix(1, 3), sources_[2]};
  EXPECT_TRUE(names(refused(small, result), {"sourceMatrices", "1x3", "2x3"}));
  EXPECT_EQ(refused(small, result, nullptr, words({0, 0, 0, 0, 0, 0})), "") << "offsets are not known yet";
  EXPECT_TRUE(names(refused(sources_, result, vector({1, 2})), {"scaleVector", "1x2", "1x3"}));
  EXPECT_TRUE(names(refused(sources_, result, words({1, 2, 3})), {"scaleVector", "UInt32", "Float32"}));
  EXPECT_TRUE(names(refused(sources_, result, nullptr, words({1, 2, 3})), {"offsetVector", "1x3", "1x6"}));
  EXPECT_TRUE(
      names(refused(sources_, result, nullptr, vector({0, 0, 0, 0, 0, 0})), {"offsetVector", "Float32"}));
  EXPECT_TRUE(
      names(refused(sources_, result, vector({1, 2, 3}), nullptr, nullptr, 1), {"scaleVector", "column 1"}));
  EXPECT_TRUE(names(refused(sources_, result, nullptr, words({0, 0, 0, 0, 0, 0, 0}), nullptr, 1),
                    {"offsetVector", "column 2"}));
  EXPECT_NE(refused(sources_, result, nullptr, words({0, 0, 0, 0, 0, 0}), nullptr, std::size_t{1} << 63U),
            "");
  EXPECT_TRUE(
      names(refused(sources_, result, nullptr, nullptr, vector({1, 2})), {"biasVector", "1x2", "1x3"}));
  EXPECT_TRUE(
      names(refused(sources_, result, nullptr, nullptr, halfVector({1, 2, 3})), {"biasVector", "Float16"}));
  EXPECT_TRUE(names(refused(sources_, sources_[1]), {"resultMatrix", "sharing elements", "sourceMatrices"}));
  const auto bias = vector({1, 2, 3});
  const auto over =
      Matrix::create(bias->data(), MatrixDescriptor::matrixDescriptor(1, 3, 12, DataType::Float32));
  const auto row = MatrixSum::create(device_, 1, 1, 3, false);
  EXPECT_TRUE(names(refusal([&](const auto& commandBuffer) {
                      row->encode(commandBuffer, Matrices{sources_[0]}, over, nullptr, nullptr, bias);
                    }),
                    {"resultMatrix", "sharing elements", "biasVector"}));
  EXPECT_TRUE(names(errorOf([&] { sum_->setNeuronType(CNNNeuronType::PReLU, 0, 0, 0); }), {"PReLU"}));
}

TEST_F(MatrixSumTest, RandomSumsMatchTheReference) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(-1, 1);
  for (int repetition = 0; repetition < 40; ++repetition) {
    const bool isHalf = repetition % 2 == 1;
    const bool transpose = random() % 2 == 1;
    const std::size_t rows = 1 + random() % (repetition % 4 < 2 ? 30 : 100);
    const std::size_t columns = 1 + random() % (repetition % 4 < 2 ? 40 : 150);
    const std::size_t count = 1 + random() % 4;
    const auto numbers = [&](std::size_t size) {
      Values values(size);
      for (float& value : values) value = distribution(random);
      return values;
    };
    const auto made = [&](std::size_t height, std::size_t width) {
      const Values values = numbers(height * width);
      return isHalf ? halfMatrix(height, width, values) : matrix(height, width, values);
    };
    Matrices sources;
    std::vector<detail::MatrixTermReference> terms;
    std::vector<std::uint32_t> offsets;
    const Values scales = numbers(count);
    for (std::size_t k = 0; k < count; ++k) {
      sources.push_back(made(1 + random() % 40, 1 + random() % 50));
      offsets.push_back(static_cast<std::uint32_t>(random() % 4));
      offsets.push_back(static_cast<std::uint32_t>(random() % 4));
      detail::ReferenceTensor source(1, static_cast<std::int64_t>(sources[k]->rows()), 1,
                                     static_cast<std::int64_t>(sources[k]->columns()));
      const Values values = valuesOf(*sources[k]);
      source.values.assign(values.begin(), values.end());
      terms.push_back({source, scales[k], offsets[2 * k], offsets[2 * k + 1]});
    }
    const std::size_t height = transpose ? columns : rows;
    const std::size_t width = transpose ? rows : columns;
    const auto result = made(height, width);
    const Values biases = numbers(width);
    const auto bias = isHalf ? halfVector(biases) : vector(biases);
    const auto sum = MatrixSum::create(device_, count, rows, columns, transpose);
    sum->setNeuronType(CNNNeuronType::TanH, 1, 1, 0);
    run([&](const auto& commandBuffer) {
      sum->encode(commandBuffer, sources, result, vector(scales), words(offsets), bias);
    });
    const Values rounded = valuesOf(*bias);
    const auto expected = matrixSumReference(
        detail::ReferenceTensor(1, static_cast<std::int64_t>(height), 1, static_cast<std::int64_t>(width)),
        terms, transpose, std::vector<double>(rounded.begin(), rounded.end()),
        NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::TanH, 1, 1));
    const Values found = valuesOf(*result);
    EXPECT_EQ(
        detail::compare(expected, std::vector<double>(found.begin(), found.end()),
                        isHalf ? ImageFeatureChannelFormat::Float16 : ImageFeatureChannelFormat::Float32,
                        detail::Tier::Bounded, detail::Zeros::Expected)
            .report,
        "");
  }
}

/// Results by non-temporal stores.
TEST_F(MatrixSumTest, LargeSums) {
  constexpr std::size_t rows = 6300;
  constexpr std::size_t columns = 1023;
  Values left(rows * columns);
  Values right(rows * columns);
  Values expected(rows * columns);
  for (std::size_t i = 0; i < left.size(); ++i) {
    left[i] = static_cast<float>(i % 7);
    right[i] = static_cast<float>(i % 1000);
    expected[i] = left[i] + right[i];
  }
  const auto sum = MatrixSum::create(device_, 2, rows, columns, false);
  const auto result = matrix(rows, columns);
  run([&](const auto& commandBuffer) {
    sum->encode(commandBuffer, Matrices{matrix(rows, columns, left), matrix(rows, columns, right)}, result);
  });
  EXPECT_TRUE(valuesOf(*result) == expected);
}

TEST_F(MatrixSumTest, CopiesForAnotherDeviceKeepTheirProperties) {
  const auto device = mtl::newCPUDevice(1);
  sum_->setNeuronType(CNNNeuronType::ELU, 2, 0, 0);
  sum_->setResultMatrixOrigin({1, 2, 0});
  const auto copy = sum_->copy(device);
  EXPECT_EQ(copy->device(), device);
  EXPECT_EQ(copy->count(), 3U);
  EXPECT_EQ(copy->neuronType(), CNNNeuronType::ELU);
  EXPECT_EQ(copy->neuronParameterA(), 2);
  EXPECT_EQ(copy->resultMatrixOrigin(), (mtl::Origin{1, 2, 0}));
}

}  // namespace
}  // namespace mps::matrix_sum_test
