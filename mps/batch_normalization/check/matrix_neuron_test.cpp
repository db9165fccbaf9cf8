#include "mps/batch_normalization/matrix_neuron.hpp"

#include <limits>
#include <random>

#include "mps/batch_normalization/check/batch_normalization_reference.hpp"
#include "mps/conform/compare.hpp"
#include "mps/core/neuron/neuron_cases.hpp"
#include "mps/core/testing/test_matrices.hpp"

/// Neurons of matrices.
namespace mps::matrix_neuron_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::Values;

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

class MatrixNeuronTest : public testing::MatrixTest {
 protected:
  std::shared_ptr<MatrixNeuron> neuron_ = MatrixNeuron::create(device_);
  std::shared_ptr<MatrixNeuronGradient> gradient_ = MatrixNeuronGradient::create(device_);

  void setNeuron(CNNNeuronType type, float a, float b, float c) {
    neuron_->setNeuronType(type, a, b, c);
    gradient_->setNeuronType(type, a, b, c);
  }
  void setAlpha(double alpha) {
    neuron_->setAlpha(alpha);
    gradient_->setAlpha(alpha);
  }
};

TEST_F(MatrixNeuronTest, Defaults) {
  for (const detail::MatrixNeuronProperties* properties :
       {static_cast<detail::MatrixNeuronProperties*>(neuron_.get()),
        static_cast<detail::MatrixNeuronProperties*>(gradient_.get())}) {
    EXPECT_EQ(properties->neuronType(), CNNNeuronType::None);
    EXPECT_EQ(properties->alpha(), 1);
    EXPECT_EQ(properties->sourceNumberOfFeatureVectors(), kAll);
    EXPECT_EQ(properties->sourceInputFeatureChannels(), kAll);
  }
  EXPECT_TRUE(names(errorOf([] { (void)MatrixNeuron::create(nullptr); }), {"device", "null"}));
}

TEST_F(MatrixNeuronTest, ALineWithoutANeuron) {
  const auto x = matrix(2, 2, {1, 2, 3, 4});
  const auto y = matrix(2, 2);
  const auto z = matrix(2, 2);
  neuron_->setAlpha(2);
  run([&](const auto& commandBuffer) {
    neuron_->encode(commandBuffer, x, vector({10, 20}), y);
    neuron_->encode(commandBuffer, x, nullptr, z);
  });
  EXPECT_EQ(valuesOf(*y), (Values{12, 24, 16, 28}));
  EXPECT_EQ(valuesOf(*z), (Values{2, 4, 6, 8}));
}

/// The gradient of the bias has no alpha.
TEST_F(MatrixNeuronTest, AReLUBehindALine) {
  setNeuron(CNNNeuronType::ReLU, 0.5F, 0, 0);
  setAlpha(2);
  const auto x = matrix(3, 2, {1, 1, -1, 2, 0, -4});
  const auto bias = vector({-1, 3});
  const auto y = matrix(3, 2);
  const auto dx = matrix(3, 2);
  const auto dBias = vector({kPoison, kPoison});
  run([&](const auto& commandBuffer) {
    neuron_->encode(commandBuffer, x, bias, y);
    gradient_->encode(commandBuffer, matrix(3, 2, {1, 2, 3, 4, 5, 6}), x, bias, dx, dBias);
  });
  // z = (1 5; -3 7; -1 -5)
  EXPECT_EQ(valuesOf(*y), (Values{1, 5, -1.5F, 7, -0.5F, -2.5F}));
  EXPECT_EQ(valuesOf(*dx), (Values{2, 4, 3, 8, 5, 6}));
  EXPECT_EQ(valuesOf(*dBias), (Values{1 + 1.5F + 2.5F, 2 + 4 + 3}));
}

TEST_F(MatrixNeuronTest, NeitherBiasNorItsGradientAreNeeded) {
  const auto dx = matrix(1, 2);
  setNeuron(CNNNeuronType::Absolute, 0, 0, 0);
  setAlpha(-3);
  run([&](const auto& commandBuffer) {
    gradient_->encode(commandBuffer, matrix(1, 2, {1, 2}), matrix(1, 2, {4, -4}), nullptr, dx, nullptr);
  });
  EXPECT_EQ(valuesOf(*dx), (Values{3, -6}));
}

TEST_F(MatrixNeuronTest, WithoutRowsTheGradientOfTheBiasIsZero) {
  const auto x = matrix(0, 2);
  const auto dBias = vector({kPoison, kPoison, kPoison}), none = vector({kPoison});
  const auto float16Vector = halfVector({kPoison, kPoison});
  run([&](const auto& commandBuffer) {
    gradient_->encode(commandBuffer, x, x, nullptr, matrix(0, 2), dBias);
    gradient_->encode(commandBuffer, x, x, nullptr, matrix(0, 2), nullptr);
    gradient_->encode(commandBuffer, matrix(3, 0), matrix(3, 0), nullptr, matrix(3, 0), none);
    gradient_->encode(commandBuffer, halfMatrix(0, 2), halfMatrix(0, 2), nullptr, halfMatrix(0, 2),
                      float16Vector);
  });
  EXPECT_EQ(valuesOf(*dBias), (Values{0, 0, kPoison}));
  EXPECT_EQ(valuesOf(*none), Values{kPoison}) << "no columns";
  EXPECT_EQ(valuesOf(*float16Vector), (Values{0, 0}));
}

TEST_F(MatrixNeuronTest, PReLUHasASlopeForEachColumn) {
  const Values slopes{0.5F, 2, -1};
  neuron_->setNeuronType(CNNNeuronType::TanH, 3, 4, 5);
  neuron_->setNeuronToPReLU(slopes);
  gradient_->setNeuronToPReLU(slopes);
  EXPECT_EQ(neuron_->neuronType(), CNNNeuronType::PReLU);
  EXPECT_EQ(neuron_->neuronParameterA(), 0);
  EXPECT_EQ(neuron_->neuronParameterB(), 0);
  EXPECT_EQ(Values(neuron_->neuronParametersA().begin(), neuron_->neuronParametersA().end()), slopes);
  const auto x = matrix(2, 3, {-2, -2, -2, 2, 2, 2});
  const auto y = matrix(2, 3);
  const auto dx = matrix(2, 3);
  const auto dBias = vector(Values(3, kPoison));
  run([&](const auto& commandBuffer) {
    neuron_->encode(commandBuffer, x, nullptr, y);
    gradient_->encode(commandBuffer, matrix(2, 3, {1, 1, 1, 1, 1, 1}), x, nullptr, dx, dBias);
  });
  EXPECT_EQ(valuesOf(*y), (Values{-1, -4, 2, 2, 2, 2}));
  EXPECT_EQ(valuesOf(*dx), (Values{0.5F, 2, -1, 1, 1, 1}));
  EXPECT_EQ(valuesOf(*dBias), (Values{1.5F, 3, 0}));
  EXPECT_TRUE(names(errorOf([&] { neuron_->setNeuronToPReLU({}); }), {"parametersA", "empty"}));
  neuron_->setNeuronToPReLU(std::span(slopes).first(2));
  EXPECT_TRUE(
      names(refusal([&](const auto& commandBuffer) { neuron_->encode(commandBuffer, x, nullptr, y); }),
            {"MatrixNeuron", "parametersA", "2 slopes", "at least 3"}));
  gradient_->setNeuronToPReLU(std::span(slopes).first(2));
  EXPECT_TRUE(names(refusal([&](const auto& commandBuffer) {
                      gradient_->encode(commandBuffer, x, x, nullptr, matrix(2, 3), nullptr);
                    }),
                    {"MatrixNeuronGradient", "parametersA", "2 slopes"}));
}

TEST_F(MatrixNeuronTest, TypesThatAreNoneAreRefused) {
  EXPECT_TRUE(names(errorOf([&] { neuron_->setNeuronType(CNNNeuronType::PReLU, 0, 0, 0); }),
                    {"neuronType", "PReLU", "slopes"}));
  EXPECT_TRUE(
      names(errorOf([&] { neuron_->setNeuronType(CNNNeuronType::Count, 0, 0, 0); }), {"neuronType", "16"}));
  neuron_->setNeuronType(CNNNeuronType::Power, 1, 2, 3);
  EXPECT_EQ(neuron_->neuronParameterA(), 1);
  EXPECT_EQ(neuron_->neuronParameterB(), 2);
  EXPECT_EQ(neuron_->neuronParameterC(), 3);
}

TEST_F(MatrixNeuronTest, Float16) {
  setNeuron(CNNNeuronType::ReLU, 0, 0, 0);
  setAlpha(0.5);
  const auto x = halfMatrix(2, 3, {2, -4, 6, 8, 2, -2});
  const auto bias = halfVector({1, 1, 1});
  const auto y = halfMatrix(2, 3);
  const auto dx = halfMatrix(2, 3);
  const auto dBias = halfVector(Values(3, kPoison));
  run([&](const auto& commandBuffer) {
    neuron_->encode(commandBuffer, x, bias, y);
    gradient_->encode(commandBuffer, halfMatrix(2, 3, {2, 2, 2, 4, 4, 4}), x, bias, dx, dBias);
  });
  EXPECT_EQ(valuesOf(*y), (Values{2, 0, 4, 5, 2, 0}));
  EXPECT_EQ(valuesOf(*dx), (Values{1, 0, 1, 2, 2, 2}));
  EXPECT_EQ(valuesOf(*dBias), (Values{6, 4, 6}));
}

TEST_F(MatrixNeuronTest, OriginsAreRowAndColumnAndSizesAreLimits) {
  const auto x = matrix(3, 3, {9, 9, 9, 9, 1, 2, 9, 3, 4});
  neuron_->setSourceMatrixOrigin({1, 1, 0});
  neuron_->setResultMatrixOrigin({0, 1, 0});
  const auto y = matrix(2, 3);
  run([&](const auto& commandBuffer) { neuron_->encode(commandBuffer, x, vector({10, 20, 30}), y); });
  EXPECT_EQ(valuesOf(*y), (Values{kPoison, 11, 22, kPoison, 13, 24}));
  gradient_->setSecondarySourceMatrixOrigin({1, 1, 0});
  gradient_->setPrimarySourceMatrixOrigin({0, 1, 0});
  gradient_->setResultMatrixOrigin({1, 0, 0});
  gradient_->setSourceNumberOfFeatureVectors(1);
  const auto dx = matrix(2, 2);
  const auto dBias = vector(Values(3, kPoison));
  run([&](const auto& commandBuffer) { gradient_->encode(commandBuffer, y, x, nullptr, dx, dBias); });
  EXPECT_EQ(valuesOf(*dx), (Values{kPoison, kPoison, 11, 22}));
  EXPECT_EQ(valuesOf(*dBias), (Values{11, 22, kPoison}));
  neuron_->setSourceInputFeatureChannels(0);
  const auto commandBuffer = queue_->commandBuffer();
  neuron_->encode(commandBuffer, x, nullptr, y);
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
}

TEST_F(MatrixNeuronTest, EachMatrixOfABatchHasItsBias) {
  const auto vectors = [&](const Values& values) {
    auto made = Vector::create(device_, VectorDescriptor::vectorDescriptor(2, 3, 12, DataType::Float32));
    for (std::size_t i = 0; i < values.size(); ++i)
      made->data()->contentsAs<float>()[i / 2 * 3 + i % 2] = values[i];
    return made;
  };
  const auto x = matrix(1, 2, {1, 2, 3, 4, 5, 6, 7, 8}, 4);
  const auto y = matrix(1, 2, {}, 4);
  const auto dBias = vectors(Values(6, kPoison));
  const auto dx = matrix(1, 2, {}, 4);
  neuron_->setBatchStart(1);
  gradient_->setBatchStart(1);
  gradient_->setBatchSize(1);
  run([&](const auto& commandBuffer) {
    neuron_->encode(commandBuffer, x, vectors({10, 20, 30, 40, 50, 60}), y);
    gradient_->encode(commandBuffer, x, x, nullptr, dx, dBias);
  });
  EXPECT_EQ(valuesOf(*y), (Values{kPoison, kPoison, 33, 44, 55, 66, kPoison, kPoison}));
  EXPECT_EQ(valuesOf(*dx), (Values{kPoison, kPoison, 3, 4, kPoison, kPoison, kPoison, kPoison}));
  EXPECT_EQ(valuesOf(*dBias), (Values{kPoison, kPoison, 0, 3, 4, 0, kPoison, kPoison, 0}));
}

TEST_F(MatrixNeuronTest, WorksInPlace) {
  setNeuron(CNNNeuronType::Sigmoid, 0, 0, 0);
  const auto x = matrix(2, 2, {0, 0, 0, 0});
  const auto dy = matrix(2, 2, {4, 8, 12, 16});
  const auto dBias = vector({kPoison, kPoison});
  run([&](const auto& commandBuffer) {
    gradient_->encode(commandBuffer, dy, x, nullptr, dy, nullptr);
    gradient_->encode(commandBuffer, dy, x, nullptr, x, dBias);
  });
  EXPECT_EQ(valuesOf(*dy), (Values{1, 2, 3, 4}));
  EXPECT_EQ(valuesOf(*x), (Values{0.25F, 0.5F, 0.75F, 1}));
  EXPECT_EQ(valuesOf(*dBias), (Values{1, 1.5F}));
  setNeuron(CNNNeuronType::Linear, 2, 1, 0);
  run([&](const auto& commandBuffer) { neuron_->encode(commandBuffer, x, nullptr, x); });
  EXPECT_EQ(valuesOf(*x), (Values{1.5F, 2, 2.5F, 3}));
}

TEST_F(MatrixNeuronTest, ResultsShareNothingElse) {
  const auto buffer = device_->newBuffer(256);
  const auto at = [&](std::size_t offset) {
    return Matrix::create(buffer, MatrixDescriptor::matrixDescriptor(2, 2, 8, DataType::Float32), offset);
  };
  const auto vectorAt = [&](std::size_t offset) {
    return Vector::create(buffer, VectorDescriptor::vectorDescriptor(2, DataType::Float32), offset);
  };
  const auto forward = [&](const auto& x, const auto& bias, const auto& y) {
    return refusal([&](const auto& commandBuffer) { neuron_->encode(commandBuffer, x, bias, y); });
  };
  const auto backward = [&](const auto& dy, const auto& x, const auto& bias, const auto& dx,
                            const auto& dBias) {
    return refusal(
        [&](const auto& commandBuffer) { gradient_->encode(commandBuffer, dy, x, bias, dx, dBias); });
  };
  EXPECT_EQ(forward(at(0), vectorAt(16), at(24)), "");
  EXPECT_TRUE(
      names(forward(at(0), vectorAt(16), at(4)), {"resultMatrix", "inputMatrix", "very same region"}));
  EXPECT_TRUE(
      names(forward(at(0), vectorAt(16), at(20)), {"resultMatrix", "sharing elements", "biasVector"}));
  EXPECT_EQ(backward(at(0), at(16), vectorAt(32), at(40), vectorAt(56)), "");
  EXPECT_TRUE(names(backward(at(0), at(16), vectorAt(32), at(8), vectorAt(56)),
                    {"resultGradientForDataMatrix", "gradientMatrix"}));
  EXPECT_TRUE(names(backward(at(0), at(32), vectorAt(48), at(24), vectorAt(56)),
                    {"resultGradientForDataMatrix", "inputMatrix"}));
  EXPECT_TRUE(names(backward(at(0), at(16), vectorAt(32), at(36), vectorAt(56)),
                    {"resultGradientForDataMatrix", "biasVector"}));
  EXPECT_TRUE(names(backward(at(0), at(16), vectorAt(32), at(40), vectorAt(32)),
                    {"resultGradientForBiasVector", "biasVector"}));
  EXPECT_TRUE(names(backward(at(0), at(16), vectorAt(32), at(40), vectorAt(44)),
                    {"resultGradientForBiasVector", "resultGradientForDataMatrix"}));
  EXPECT_TRUE(names(backward(at(0), at(16), vectorAt(32), at(40), vectorAt(8)),
                    {"resultGradientForBiasVector", "gradientMatrix"}));
}

TEST_F(MatrixNeuronTest, TemporariesAreCounted) {
  const auto dx = matrix(1, 2);
  run([&](const auto& commandBuffer) {
    const auto x = TemporaryMatrix::create(commandBuffer,
                                           MatrixDescriptor::matrixDescriptor(1, 2, 8, DataType::Float32));
    const auto bias =
        TemporaryVector::create(commandBuffer, VectorDescriptor::vectorDescriptor(2, DataType::Float32));
    const auto dBias =
        TemporaryVector::create(commandBuffer, VectorDescriptor::vectorDescriptor(2, DataType::Float32));
    neuron_->encode(commandBuffer, matrix(1, 2, {1, 2}), nullptr, x);
    gradient_->encode(commandBuffer, matrix(1, 2, {3, 4}), x, nullptr, dx, bias);
    EXPECT_EQ(x->readCount(), 0U);
    EXPECT_EQ(bias->readCount(), 1U);
    gradient_->encode(commandBuffer, matrix(1, 2, {3, 4}), matrix(1, 2, {1, 1}), bias, dx, dBias);
    EXPECT_EQ(bias->readCount(), 0U);
    EXPECT_EQ(dBias->readCount(), 1U);
    dBias->setReadCount(0);
    EXPECT_TRUE(names(errorOf([&] { neuron_->encode(commandBuffer, dx, bias, matrix(1, 2)); }),
                      {"biasVector", "readCount is 0"}));
  });
  EXPECT_EQ(valuesOf(*dx), (Values{3, 4}));
}

TEST_F(MatrixNeuronTest, WrongArgumentsAreRefused) {
  const auto x = matrix(2, 3);
  const auto b = vector({1, 2, 3});
  const auto forward = [&](const std::shared_ptr<Matrix>& input, const std::shared_ptr<Vector>& bias,
                           const std::shared_ptr<Matrix>& result) {
    return refusal([&](const auto& commandBuffer) { neuron_->encode(commandBuffer, input, bias, result); });
  };
  EXPECT_TRUE(names(forward(nullptr, b, x), {"MatrixNeuron", "inputMatrix", "null"}));
  EXPECT_TRUE(names(forward(x, b, nullptr), {"resultMatrix", "null"}));
  EXPECT_TRUE(names(errorOf([&] { neuron_->encode(nullptr, x, b, x); }), {"commandBuffer", "null"}));
  EXPECT_TRUE(names(forward(x, b, matrix(1, 3)), {"resultMatrix", "1x3", "2x3"}));
  EXPECT_TRUE(names(forward(x, vector({1, 2}), matrix(2, 3)), {"biasVector", "1x2", "1x3"}));
  EXPECT_TRUE(names(forward(x, halfVector({1, 2, 3}), matrix(2, 3)), {"biasVector", "Float16", "Float32"}));
  EXPECT_TRUE(names(forward(x, b, halfMatrix(2, 3)), {"inputMatrix", "Float32", "Float16"}));
  EXPECT_TRUE(names(forward(matrixOf(2, 3, DataType::Int32), b, x), {"inputMatrix", "Int32"}));

  const auto backward = [&](const std::shared_ptr<Matrix>& dy, const std::shared_ptr<Matrix>& input,
                            const std::shared_ptr<Vector>& bias, const std::shared_ptr<Matrix>& dx,
                            const std::shared_ptr<Vector>& dBias) {
    return refusal(
        [&](const auto& commandBuffer) { gradient_->encode(commandBuffer, dy, input, bias, dx, dBias); });
  };
  const auto y = matrix(2, 3);
  EXPECT_TRUE(names(backward(nullptr, x, b, y, b), {"MatrixNeuronGradient", "gradientMatrix", "null"}));
  EXPECT_TRUE(names(backward(x, nullptr, b, y, b), {"inputMatrix", "null"}));
  EXPECT_TRUE(names(backward(x, x, b, nullptr, b), {"resultGradientForDataMatrix", "null"}));
  EXPECT_TRUE(names(backward(x, x, nullptr, y, vector({1})), {"resultGradientForBiasVector", "1x1", "1x3"}));
  EXPECT_TRUE(
      names(backward(x, x, nullptr, y, halfVector({1, 2, 3})), {"resultGradientForBiasVector", "Float16"}));
  EXPECT_TRUE(names(backward(x, x, nullptr, matrix(1, 3), nullptr), {"resultGradientForDataMatrix", "1x3"}));
  gradient_->setPrimarySourceMatrixOrigin({3, 0, 0});
  EXPECT_TRUE(names(backward(x, x, nullptr, y, nullptr), {"gradientMatrix", "from row 3"}));
  gradient_->setPrimarySourceMatrixOrigin({0, 0, 0});
  gradient_->setSecondarySourceMatrixOrigin({0, 4, 0});
  EXPECT_TRUE(names(backward(x, x, nullptr, y, nullptr), {"inputMatrix", "column 4"}));
}

TEST_F(MatrixNeuronTest, RandomMatricesMatchTheReference) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr std::int64_t kColumns = 19;
  for (const detail::NeuronCase& item : detail::neuronCases(kColumns)) {
    const std::int64_t rows = 1 + random() % 30;
    const auto filled = [&](std::int64_t count, double lowest, double highest) {
      Values values(static_cast<std::size_t>(count));
      std::uniform_real_distribution<double> distribution(lowest, highest);
      for (float& value : values) value = static_cast<float>(distribution(random));
      return values;
    };
    const double middle = (item.lowest + item.highest) / 2;
    const float alpha = 0.75F;
    const Values xs = filled(rows * kColumns, item.lowest - middle, item.highest - middle);
    const Values dys = filled(rows * kColumns, -1, 1);
    const Values biases = filled(kColumns, middle, middle);
    const auto x = matrix(static_cast<std::size_t>(rows), kColumns, xs);
    const auto y = matrix(static_cast<std::size_t>(rows), kColumns);
    const auto dx = matrix(static_cast<std::size_t>(rows), kColumns);
    const auto dBias = vector(Values(kColumns, kPoison));
    setAlpha(alpha);
    if (item.neuron.neuronType() == CNNNeuronType::PReLU) {
      neuron_->setNeuronToPReLU(item.neuron.data());
      gradient_->setNeuronToPReLU(item.neuron.data());
    } else {
      setNeuron(item.neuron.neuronType(), item.neuron.a(), item.neuron.b(), item.neuron.c());
    }
    run([&](const auto& commandBuffer) {
      neuron_->encode(commandBuffer, x, vector(biases), y);
      gradient_->encode(commandBuffer, matrix(static_cast<std::size_t>(rows), kColumns, dys), x,
                        vector(biases), dx, dBias);
    });
    detail::BatchNormalizationProblem problem;
    problem.neuron = item.neuron;
    problem.hasConstantStatistics = true;
    const std::vector<double> zeros(kColumns, 0);
    const std::vector<double> ones(kColumns, 1);
    const detail::BatchNormalizationNumbers numbers{
        std::vector<double>(kColumns, alpha), {biases.begin(), biases.end()}, zeros, ones};
    const auto tensor = [&](const Values& values) {
      detail::ReferenceTensor made(1, rows, 1, kColumns);
      made.values.assign(values.begin(), values.end());
      return made;
    };
    const auto expectNear = [&](const detail::ReferenceTensor& expected, const Values& found) {
      const std::vector<double> stored(found.begin(), found.end());
      EXPECT_EQ(detail::compare(expected, stored, ImageFeatureChannelFormat::Float32, detail::Tier::Bounded,
                                detail::Zeros::Expected)
                    .report,
                "")
          << item.neuron.describe();
    };
    const detail::ReferenceTensor input = tensor(xs);
    const detail::ReferenceTensor incoming = tensor(dys);
    expectNear(batchNormalizationReference(problem, numbers, input), valuesOf(*y));
    const auto sums =
        batchNormalizationSumsReference(problem, numbers, std::span(&input, 1), std::span(&incoming, 1));
    expectNear(sums.beta, valuesOf(*dBias));
    expectNear(batchNormalizationGradientReference(problem, numbers, sums, 1, input, incoming),
               valuesOf(*dx));
  }
}

TEST_F(MatrixNeuronTest, CopiesForAnotherDeviceKeepTheirProperties) {
  const auto device = mtl::newCPUDevice(1);
  neuron_->setNeuronType(CNNNeuronType::ELU, 2, 0, 0);
  neuron_->setAlpha(3);
  neuron_->setSourceNumberOfFeatureVectors(4);
  const auto copy = neuron_->copy(device);
  EXPECT_EQ(copy->device(), device);
  EXPECT_EQ(copy->neuronType(), CNNNeuronType::ELU);
  EXPECT_EQ(copy->neuronParameterA(), 2);
  EXPECT_EQ(copy->alpha(), 3);
  EXPECT_EQ(copy->sourceNumberOfFeatureVectors(), 4U);
  gradient_->setSourceInputFeatureChannels(5);
  EXPECT_EQ(gradient_->copy()->sourceInputFeatureChannels(), 5U);
}

}  // namespace
}  // namespace mps::matrix_neuron_test
