#include "mps/batch_normalization/matrix_batch_normalization.hpp"

#include <cfloat>
#include <cmath>
#include <limits>
#include <random>

#include "mps/batch_normalization/check/batch_normalization_reference.hpp"
#include "mps/conform/compare.hpp"
#include "mps/core/testing/test_matrices.hpp"

/// Batch normalisation of matrices.
namespace mps::matrix_batch_normalization_test {
namespace {

using detail::ReferenceTensor;
using testing::errorOf;
using testing::names;
using testing::Values;

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

class MatrixBatchNormalizationTest : public testing::MatrixTest {
 protected:
  std::shared_ptr<MatrixBatchNormalization> normalization_ = MatrixBatchNormalization::create(device_);
  std::shared_ptr<MatrixBatchNormalizationGradient> gradient_ =
      MatrixBatchNormalizationGradient::create(device_);

  // Means 1 and 3, variances 1 and 4, normalised (-1 -1; -1 1; 1 -1; 1 1).
  const Values x_ = {0, 1, 0, 5, 2, 1, 2, 5};
  const Values dy_ = {1, 0, 2, 2, 3, 0, 6, 2};

  void setNeuron(CNNNeuronType type, float a, float b, float c) {
    normalization_->setNeuronType(type, a, b, c);
    gradient_->setNeuronType(type, a, b, c);
  }
  static void expectNear(const ReferenceTensor& expected, const Values& found,
                         ImageFeatureChannelFormat format) {
    const std::vector<double> stored(found.begin(), found.end());
    EXPECT_EQ(
        detail::compare(expected, stored, format, detail::Tier::Bounded, detail::Zeros::Expected).report, "");
  }
};

TEST_F(MatrixBatchNormalizationTest, Defaults) {
  EXPECT_FALSE(normalization_->computeStatistics());
  EXPECT_EQ(normalization_->epsilon(), FLT_MIN);
  EXPECT_EQ(normalization_->sourceNumberOfFeatureVectors(), kAll);
  EXPECT_EQ(normalization_->sourceInputFeatureChannels(), kAll);
  EXPECT_EQ(normalization_->neuronType(), CNNNeuronType::None);
  EXPECT_EQ(gradient_->epsilon(), FLT_MIN);
  EXPECT_EQ(gradient_->sourceNumberOfFeatureVectors(), kAll);
  EXPECT_TRUE(names(errorOf([] { (void)MatrixBatchNormalization::create(nullptr); }), {"device", "null"}));
}

TEST_F(MatrixBatchNormalizationTest, EpsilonIsANumberOfAtLeastZero) {
  for (const float epsilon : {-1.0F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_TRUE(names(errorOf([&] { normalization_->setEpsilon(epsilon); }), {"epsilon", "at least 0"}));
    EXPECT_TRUE(names(errorOf([&] { gradient_->setEpsilon(epsilon); }), {"epsilon", "at least 0"}));
  }
  EXPECT_EQ(normalization_->epsilon(), FLT_MIN);
  normalization_->setEpsilon(0);
  EXPECT_EQ(normalization_->epsilon(), 0);
}

TEST_F(MatrixBatchNormalizationTest, StatisticsOfTheColumnsAreComputed) {
  const auto mean = vector({kPoison, kPoison, kPoison});
  const auto variance = vector({kPoison, kPoison, kPoison});
  const auto y = matrix(4, 2);
  normalization_->setComputeStatistics(true);
  run([&](const auto& commandBuffer) {
    normalization_->encode(commandBuffer, matrix(4, 2, x_), mean, variance, vector({2, 1}), vector({1, 0}),
                           y);
  });
  EXPECT_EQ(valuesOf(*mean), (Values{1, 3, kPoison}));
  EXPECT_EQ(valuesOf(*variance), (Values{1, 4, kPoison})) << "divided by n, not n - 1";
  EXPECT_EQ(valuesOf(*y), (Values{-1, -1, -1, 1, 3, -1, 3, 1}));
}

TEST_F(MatrixBatchNormalizationTest, StatisticsAreGiven) {
  const auto y = matrix(2, 2);
  const auto x = matrix(2, 2, {1, 2, 3, 4});
  const auto mean = vector({1, 2});
  const auto variance = vector({3, 15});
  normalization_->setEpsilon(1);
  run([&](const auto& commandBuffer) {
    normalization_->encode(commandBuffer, x, mean, variance, nullptr, nullptr, y);
  });
  EXPECT_EQ(valuesOf(*y), (Values{0, 0, 1, 0.5F})) << "divided by the root of variance + epsilon";
  EXPECT_EQ(valuesOf(*mean), (Values{1, 2}));
  EXPECT_EQ(valuesOf(*variance), (Values{3, 15}));
}

TEST_F(MatrixBatchNormalizationTest, GradientsOfTheSameColumns) {
  const auto dx = matrix(4, 2);
  const auto dGamma = vector({kPoison, kPoison});
  const auto dBeta = vector({kPoison, kPoison});
  run([&](const auto& commandBuffer) {
    gradient_->encode(commandBuffer, matrix(4, 2, dy_), matrix(4, 2, x_), vector({1, 3}), vector({1, 4}),
                      vector({2, 1}), vector({1, 0}), dx, dGamma, dBeta);
  });
  EXPECT_EQ(valuesOf(*dBeta), (Values{12, 4}));
  EXPECT_EQ(valuesOf(*dGamma), (Values{6, 4}));
  // 2 (dy - 3 - 1.5 h) and 0.5 (dy - 1 - h).
  EXPECT_EQ(valuesOf(*dx), (Values{-1, 0, 1, 0, -3, 0, 3, 0}));
}

/// z = h, so that the second and third row of column 0 differ in their derivative.
TEST_F(MatrixBatchNormalizationTest, TheNeuronIsDifferentiatedAtItsArgument) {
  setNeuron(CNNNeuronType::ReLU, 0, 0, 0);
  const auto x = matrix(4, 1, {0, 0, 2, 2});
  const auto y = matrix(4, 1);
  const auto dx = matrix(4, 1);
  const auto dGamma = vector({kPoison});
  run([&](const auto& commandBuffer) {
    normalization_->encode(commandBuffer, x, vector({1}), vector({1}), nullptr, nullptr, y);
    gradient_->encode(commandBuffer, matrix(4, 1, {1, 2, 3, 5}), x, vector({1}), vector({1}), nullptr,
                      nullptr, dx, dGamma, nullptr);
  });
  EXPECT_EQ(valuesOf(*y), (Values{0, 0, 1, 1}));
  EXPECT_EQ(valuesOf(*dGamma), Values{8});
  // dz = (0 0 3 5), dBeta / n = 2, dGamma / n = 2.
  EXPECT_EQ(valuesOf(*dx), (Values{0, 0, -1, 1}));
}

TEST_F(MatrixBatchNormalizationTest, Float16) {
  const auto mean = halfVector({kPoison, kPoison});
  const auto variance = halfVector({kPoison, kPoison});
  const auto y = halfMatrix(4, 2);
  const auto dx = halfMatrix(4, 2);
  const auto dGamma = halfVector({kPoison, kPoison});
  const auto dBeta = halfVector({kPoison, kPoison});
  const auto x = halfMatrix(4, 2, x_);
  const auto gamma = halfVector({2, 1});
  const auto beta = halfVector({1, 0});
  normalization_->setComputeStatistics(true);
  run([&](const auto& commandBuffer) {
    normalization_->encode(commandBuffer, x, mean, variance, gamma, beta, y);
    gradient_->encode(commandBuffer, halfMatrix(4, 2, dy_), x, mean, variance, gamma, beta, dx, dGamma,
                      dBeta);
  });
  EXPECT_EQ(valuesOf(*mean), (Values{1, 3}));
  EXPECT_EQ(valuesOf(*variance), (Values{1, 4}));
  EXPECT_EQ(valuesOf(*y), (Values{-1, -1, -1, 1, 3, -1, 3, 1}));
  EXPECT_EQ(valuesOf(*dx), (Values{-1, 0, 1, 0, -3, 0, 3, 0}));
  EXPECT_EQ(valuesOf(*dGamma), (Values{6, 4}));
  EXPECT_EQ(valuesOf(*dBeta), (Values{12, 4}));
}

TEST_F(MatrixBatchNormalizationTest, OriginsAndLimitsCutTheBatch) {
  // Rows 1 and 2 of column 1: 2 and 6.
  const auto x = matrix(4, 2, {9, 9, 9, 2, 9, 6, 9, 9});
  const auto mean = vector({kPoison});
  const auto variance = vector({kPoison});
  const auto y = matrix(2, 2);
  normalization_->setComputeStatistics(true);
  normalization_->setSourceMatrixOrigin({1, 1, 0});
  normalization_->setResultMatrixOrigin({0, 1, 0});
  normalization_->setSourceNumberOfFeatureVectors(2);
  run([&](const auto& commandBuffer) {
    normalization_->encode(commandBuffer, x, mean, variance, nullptr, nullptr, y);
  });
  EXPECT_EQ(valuesOf(*mean), Values{4});
  EXPECT_EQ(valuesOf(*variance), Values{4});
  EXPECT_EQ(valuesOf(*y), (Values{kPoison, -1, kPoison, 1}));
  gradient_->setPrimarySourceMatrixOrigin({0, 1, 0});
  gradient_->setSecondarySourceMatrixOrigin({1, 1, 0});
  gradient_->setResultMatrixOrigin({1, 0, 0});
  const auto dx = matrix(3, 1);
  const auto dBeta = vector({kPoison});
  run([&](const auto& commandBuffer) {
    gradient_->encode(commandBuffer, y, x, mean, variance, nullptr, nullptr, dx, nullptr, dBeta);
  });
  EXPECT_EQ(valuesOf(*dBeta), Values{0});
  EXPECT_EQ(valuesOf(*dx), (Values{kPoison, 0, 0})) << "of two samples";
  normalization_->setSourceInputFeatureChannels(0);
  const auto commandBuffer = queue_->commandBuffer();
  normalization_->encode(commandBuffer, x, mean, variance, nullptr, nullptr, y);
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
}

TEST_F(MatrixBatchNormalizationTest, EachMatrixOfABatchHasItsStatistics) {
  const auto vectors = [&] {
    return Vector::create(device_, VectorDescriptor::vectorDescriptor(1, 2, 8, DataType::Float32));
  };
  const auto mean = vectors();
  const auto variance = vectors();
  const auto y = matrix(2, 1, {}, 2);
  normalization_->setComputeStatistics(true);
  run([&](const auto& commandBuffer) {
    normalization_->encode(commandBuffer, matrix(2, 1, {1, 3, 10, 20}, 2), mean, variance, nullptr, nullptr,
                           y);
  });
  EXPECT_EQ(valuesOf(*mean), (Values{2, 0, 15, 0}));
  EXPECT_EQ(valuesOf(*variance), (Values{1, 0, 25, 0}));
  EXPECT_EQ(valuesOf(*y), (Values{-1, 1, -1, 1}));
  const auto dx = matrix(2, 1, {}, 2);
  gradient_->setBatchStart(1);
  const auto dBeta = vectors();
  run([&](const auto& commandBuffer) {
    gradient_->encode(commandBuffer, matrix(2, 1, {1, 2, 3, 4}, 2), y, mean, variance, nullptr, nullptr, dx,
                      nullptr, dBeta);
  });
  EXPECT_EQ(valuesOf(*dBeta), (Values{0, 0, 7, 0}));
  EXPECT_EQ(valuesOf(*dx)[1], kPoison);
  EXPECT_NE(valuesOf(*dx)[2], kPoison);
}

TEST_F(MatrixBatchNormalizationTest, WithoutRowsTheGradientsOfGammaAndBetaAreZero) {
  const auto x = matrix(0, 2, {}, 2);
  const auto vectors = [&](float value) {
    auto made = Vector::create(device_, VectorDescriptor::vectorDescriptor(2, 2, 12, DataType::Float32));
    std::ranges::fill(made->data()->contentsAs<float>(), value);
    return made;
  };
  const auto mean = vectors(5), variance = vectors(6), dGamma = vectors(kPoison), dBeta = vectors(kPoison);
  normalization_->setComputeStatistics(true);
  run([&](const auto& commandBuffer) {
    normalization_->encode(commandBuffer, x, mean, variance, nullptr, nullptr, matrix(0, 2, {}, 2));
    gradient_->encode(commandBuffer, x, x, mean, variance, nullptr, nullptr, matrix(0, 2, {}, 2), dGamma,
                      dBeta);
    gradient_->encode(commandBuffer, x, x, mean, variance, nullptr, nullptr, matrix(0, 2, {}, 2), nullptr,
                      nullptr);
  });
  EXPECT_EQ(valuesOf(*mean), Values(6, 5)) << "statistics of nothing stay as they are";
  EXPECT_EQ(valuesOf(*variance), Values(6, 6));
  for (const auto& sums : {dGamma, dBeta}) EXPECT_EQ(valuesOf(*sums), (Values{0, 0, kPoison, 0, 0, kPoison}));
}

TEST_F(MatrixBatchNormalizationTest, WorksInPlace) {
  const auto x = matrix(4, 2, x_);
  const auto dy = matrix(4, 2, dy_);
  const auto mean = vector({1, 3});
  const auto variance = vector({1, 4});
  run([&](const auto& commandBuffer) {
    gradient_->encode(commandBuffer, dy, x, mean, variance, vector({2, 1}), nullptr, dy, nullptr, nullptr);
    normalization_->encode(commandBuffer, x, mean, variance, nullptr, nullptr, x);
  });
  EXPECT_EQ(valuesOf(*dy), (Values{-1, 0, 1, 0, -3, 0, 3, 0}));
  EXPECT_EQ(valuesOf(*x), (Values{-1, -1, -1, 1, 1, -1, 1, 1}));
  const auto y = matrix(4, 2, x_);
  run([&](const auto& commandBuffer) {
    gradient_->encode(commandBuffer, matrix(4, 2, dy_), y, mean, variance, vector({2, 1}), nullptr, y,
                      nullptr, nullptr);
  });
  EXPECT_EQ(valuesOf(*y), (Values{-1, 0, 1, 0, -3, 0, 3, 0}));
}

TEST_F(MatrixBatchNormalizationTest, ResultsShareNothingElse) {
  const auto buffer = device_->newBuffer(256);
  const auto at = [&](std::size_t offset) {
    return Matrix::create(buffer, MatrixDescriptor::matrixDescriptor(2, 2, 8, DataType::Float32), offset);
  };
  const auto vectorAt = [&](std::size_t offset) {
    return Vector::create(buffer, VectorDescriptor::vectorDescriptor(2, DataType::Float32), offset);
  };
  const auto forward = [&](std::size_t x, std::size_t mean, std::size_t variance, std::size_t gamma,
                           std::size_t y) {
    return refusal([&](const auto& commandBuffer) {
      normalization_->encode(commandBuffer, at(x), vectorAt(mean), vectorAt(variance), vectorAt(gamma),
                             nullptr, at(y));
    });
  };
  EXPECT_EQ(forward(0, 16, 16, 16, 24), "");
  EXPECT_TRUE(names(forward(0, 16, 24, 32, 4), {"resultMatrix", "inputMatrix"}));
  EXPECT_TRUE(names(forward(0, 16, 24, 32, 36), {"resultMatrix", "gammaVector"}));
  EXPECT_TRUE(names(forward(0, 16, 24, 32, 16), {"resultMatrix", "meanVector"}));
  normalization_->setComputeStatistics(true);
  EXPECT_EQ(forward(0, 16, 24, 32, 40), "");
  EXPECT_TRUE(names(forward(0, 16, 16, 32, 40), {"varianceVector", "meanVector"}));
  EXPECT_TRUE(names(forward(0, 8, 16, 32, 40), {"meanVector", "inputMatrix"}));
  EXPECT_TRUE(names(forward(0, 16, 32, 32, 40), {"varianceVector", "gammaVector"}));
  const auto backward = [&](std::size_t dy, std::size_t x, std::size_t mean, std::size_t dx,
                            std::size_t dGamma, std::size_t dBeta) {
    return refusal([&](const auto& commandBuffer) {
      gradient_->encode(commandBuffer, at(dy), at(x), vectorAt(mean), vectorAt(40), nullptr, nullptr, at(dx),
                        vectorAt(dGamma), vectorAt(dBeta));
    });
  };
  EXPECT_EQ(backward(0, 16, 32, 48, 64, 72), "");
  EXPECT_TRUE(names(backward(0, 16, 32, 8, 64, 72), {"resultGradientForDataMatrix", "gradientMatrix"}));
  EXPECT_TRUE(names(backward(0, 16, 32, 44, 64, 72), {"resultGradientForDataMatrix", "varianceVector"}));
  EXPECT_TRUE(names(backward(0, 16, 32, 48, 72, 72),
                    {"resultGradientForBetaVector", "resultGradientForGammaVector"}));
  EXPECT_TRUE(names(backward(0, 16, 32, 48, 32, 72), {"resultGradientForGammaVector", "meanVector"}));
  EXPECT_TRUE(names(backward(0, 16, 32, 48, 64, 20), {"resultGradientForBetaVector", "inputMatrix"}));
}

TEST_F(MatrixBatchNormalizationTest, TemporariesAreCounted) {
  const auto dx = matrix(2, 1);
  run([&](const auto& commandBuffer) {
    const auto temporary = [&] {
      return TemporaryVector::create(commandBuffer, VectorDescriptor::vectorDescriptor(1, DataType::Float32));
    };
    const auto mean = temporary();
    const auto variance = temporary();
    const auto x = matrix(2, 1, {1, 3});
    normalization_->setComputeStatistics(true);
    normalization_->encode(commandBuffer, x, mean, variance, nullptr, nullptr, dx);
    EXPECT_EQ(mean->readCount(), 1U);
    EXPECT_EQ(variance->readCount(), 1U);
    gradient_->encode(commandBuffer, x, x, mean, variance, nullptr, nullptr, dx, nullptr, nullptr);
    EXPECT_EQ(mean->readCount(), 0U);
    EXPECT_EQ(variance->readCount(), 0U);
    normalization_->setComputeStatistics(false);
    EXPECT_TRUE(names(
        errorOf([&] { normalization_->encode(commandBuffer, x, mean, variance, nullptr, nullptr, dx); }),
        {"meanVector", "readCount is 0"}));
  });
  EXPECT_EQ(valuesOf(*dx), (Values{0, 0}));
}

TEST_F(MatrixBatchNormalizationTest, WrongArgumentsAreRefused) {
  const auto x = matrix(2, 3);
  const auto y = matrix(2, 3);
  const auto v = vector({1, 1, 1});
  const std::shared_ptr<Vector> none;
  const auto forward = [&](const std::shared_ptr<Matrix>& input, const auto& mean, const auto& variance,
                           const auto& gamma, const auto& beta, const std::shared_ptr<Matrix>& result) {
    return refusal([&](const auto& commandBuffer) {
      normalization_->encode(commandBuffer, input, mean, variance, gamma, beta, result);
    });
  };
  EXPECT_EQ(forward(x, v, v, none, none, y), "");
  EXPECT_TRUE(names(forward(nullptr, v, v, v, v, y), {"MatrixBatchNormalization", "inputMatrix", "null"}));
  EXPECT_TRUE(names(forward(x, none, v, v, v, y), {"meanVector", "null"}));
  EXPECT_TRUE(names(forward(x, v, none, v, v, y), {"varianceVector", "null"}));
  EXPECT_TRUE(names(forward(x, v, v, v, v, nullptr), {"resultMatrix", "null"}));
  EXPECT_TRUE(names(forward(x, vector({1}), v, v, v, y), {"meanVector", "1x1", "1x3"}));
  EXPECT_TRUE(names(forward(x, v, vector({1}), v, v, y), {"varianceVector", "1x1", "1x3"}));
  EXPECT_TRUE(names(forward(x, v, v, vector({1}), v, y), {"gammaVector", "1x1", "1x3"}));
  EXPECT_TRUE(names(forward(x, v, v, v, vector({1}), y), {"betaVector", "1x1", "1x3"}));
  EXPECT_TRUE(names(forward(x, v, v, v, v, matrix(2, 2)), {"resultMatrix", "2x2", "2x3"}));
  EXPECT_TRUE(names(forward(x, halfVector({1, 1, 1}), v, v, v, y), {"meanVector", "Float16", "Float32"}));
  EXPECT_TRUE(names(errorOf([&] { normalization_->encode(nullptr, x, v, v, v, v, y); }), {"commandBuffer"}));
  normalization_->setSourceMatrixOrigin({0, 0, 2});
  EXPECT_TRUE(names(forward(x, v, v, v, v, y), {"origin of inputMatrix", "z 2"}));

  const auto backward = [&](const std::shared_ptr<Matrix>& dy, const std::shared_ptr<Matrix>& input,
                            const auto& mean, const std::shared_ptr<Matrix>& dx, const auto& dGamma,
                            const auto& dBeta) {
    return refusal([&](const auto& commandBuffer) {
      gradient_->encode(commandBuffer, dy, input, mean, vector({1, 1, 1}), none, none, dx, dGamma, dBeta);
    });
  };
  EXPECT_TRUE(
      names(backward(nullptr, x, v, y, none, none), {"MatrixBatchNormalizationGradient", "gradientMatrix"}));
  EXPECT_TRUE(names(backward(x, nullptr, v, y, none, none), {"inputMatrix", "null"}));
  EXPECT_TRUE(names(backward(x, x, none, y, none, none), {"meanVector", "null"}));
  EXPECT_TRUE(names(backward(x, x, v, nullptr, none, none), {"resultGradientForDataMatrix", "null"}));
  EXPECT_TRUE(names(backward(x, x, v, y, vector({1}), none), {"resultGradientForGammaVector", "1x1", "1x3"}));
  EXPECT_TRUE(names(backward(x, x, v, y, none, vector({1})), {"resultGradientForBetaVector", "1x1", "1x3"}));
  EXPECT_TRUE(names(backward(halfMatrix(2, 3), x, v, y, none, none), {"gradientMatrix", "Float16"}));
  EXPECT_TRUE(names(errorOf([&] { gradient_->setNeuronType(CNNNeuronType::PReLU, 0, 0, 0); }), {"PReLU"}));
}

TEST_F(MatrixBatchNormalizationTest, RandomMatricesMatchTheReference) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr std::int64_t kColumns = 21;
  for (const bool isHalf : {false, true})
    for (const CNNNeuronType type : {CNNNeuronType::None, CNNNeuronType::ReLU, CNNNeuronType::TanH}) {
      const std::int64_t rows = 2 + random() % 40;
      const auto format = isHalf ? ImageFeatureChannelFormat::Float16 : ImageFeatureChannelFormat::Float32;
      const auto filled = [&](std::int64_t count, double lowest, double highest) {
        Values values(static_cast<std::size_t>(count));
        std::uniform_real_distribution<double> distribution(lowest, highest);
        for (float& value : values) value = static_cast<float>(distribution(random));
        return values;
      };
      const auto matrixOfRows = [&](const Values& values) {
        const auto height = static_cast<std::size_t>(rows);
        return isHalf ? halfMatrix(height, kColumns, values) : matrix(height, kColumns, values);
      };
      const auto vectorOf = [&](const Values& values) {
        return isHalf ? halfVector(values) : vector(values);
      };
      const auto x = matrixOfRows(filled(rows * kColumns, -2, 2));
      const auto dy = matrixOfRows(filled(rows * kColumns, -1, 1));
      const auto gamma = vectorOf(filled(kColumns, -2, 2));
      const auto beta = vectorOf(filled(kColumns, -2, 2));
      const auto mean = vectorOf(filled(kColumns, 0, 0));
      const auto variance = vectorOf(filled(kColumns, 0, 0));
      const auto dGamma = vectorOf(filled(kColumns, 0, 0));
      const auto dBeta = vectorOf(filled(kColumns, 0, 0));
      const auto y = matrixOfRows(filled(rows * kColumns, 0, 0));
      const auto dx = matrixOfRows(filled(rows * kColumns, 0, 0));
      setNeuron(type, 0.5F, 1, 0);
      normalization_->setComputeStatistics(true);
      normalization_->setEpsilon(0.25F);
      gradient_->setEpsilon(0.25F);
      run([&](const auto& commandBuffer) {
        normalization_->encode(commandBuffer, x, mean, variance, gamma, beta, y);
        gradient_->encode(commandBuffer, dy, x, mean, variance, gamma, beta, dx, dGamma, dBeta);
      });
      const auto tensor = [&](Matrix& from) {
        const Values values = valuesOf(from);
        ReferenceTensor made(1, rows, 1, kColumns);
        made.values.assign(values.begin(), values.end());
        return made;
      };
      const auto numbersOf = [](Vector& from) {
        const Values values = valuesOf(from);
        return std::vector<double>(values.begin(), values.end());
      };
      detail::BatchNormalizationProblem problem;
      problem.neuron = NNNeuronDescriptor::cnnNeuronDescriptor(type, 0.5F, 1, 0);
      problem.epsilon = 0.25F;
      const ReferenceTensor source = tensor(*x);
      const ReferenceTensor incoming = tensor(*dy);
      const auto statistics = detail::batchStatisticsReference(std::span(&source, 1));
      expectNear(statistics.mean, valuesOf(*mean), format);
      expectNear(statistics.variance, valuesOf(*variance), format);
      detail::BatchNormalizationNumbers numbers{numbersOf(*gamma), numbersOf(*beta), statistics.mean.values,
                                                statistics.variance.values, false};
      expectNear(batchNormalizationReference(problem, numbers, source), valuesOf(*y), format);
      numbers = {numbersOf(*gamma), numbersOf(*beta), numbersOf(*mean), numbersOf(*variance), true};
      const auto sums =
          batchNormalizationSumsReference(problem, numbers, std::span(&source, 1), std::span(&incoming, 1));
      expectNear(sums.gamma, valuesOf(*dGamma), format);
      expectNear(sums.beta, valuesOf(*dBeta), format);
      expectNear(batchNormalizationGradientReference(problem, numbers, sums, static_cast<double>(rows),
                                                     source, incoming),
                 valuesOf(*dx), format);
    }
}

TEST_F(MatrixBatchNormalizationTest, CopiesForAnotherDeviceKeepTheirProperties) {
  const auto device = mtl::newCPUDevice(1);
  normalization_->setComputeStatistics(true);
  normalization_->setEpsilon(2);
  normalization_->setSourceInputFeatureChannels(3);
  normalization_->setNeuronType(CNNNeuronType::ELU, 2, 0, 0);
  const auto copy = normalization_->copy(device);
  EXPECT_EQ(copy->device(), device);
  EXPECT_TRUE(copy->computeStatistics());
  EXPECT_EQ(copy->epsilon(), 2);
  EXPECT_EQ(copy->sourceInputFeatureChannels(), 3U);
  EXPECT_EQ(copy->neuronType(), CNNNeuronType::ELU);
  gradient_->setEpsilon(4);
  EXPECT_EQ(gradient_->copy()->epsilon(), 4);
}

}  // namespace
}  // namespace mps::matrix_batch_normalization_test
