#include "mps/matrix/matrix_fully_connected.hpp"

#include <limits>
#include <random>

#include "mps/conform/compare.hpp"
#include "mps/core/testing/test_matrices.hpp"
#include "mps/matrix/check/matrix_layers_reference.hpp"
#include "mps/matrix/check/matrix_reference.hpp"

/// Fully connected layers of matrices.
namespace mps::matrix_fully_connected_test {
namespace {

using detail::ReferenceTensor;
using testing::errorOf;
using testing::names;
using testing::Values;

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

class MatrixFullyConnectedTest : public testing::MatrixTest {
 protected:
  const std::shared_ptr<MatrixFullyConnected> layer_ = MatrixFullyConnected::create(device_);
  const std::shared_ptr<MatrixFullyConnectedGradient> gradient_ =
      MatrixFullyConnectedGradient::create(device_);
  // Two samples of three inputs; two outputs; x W = (14 4; 32 10).
  const Values x_ = {1, 2, 3, 4, 5, 6};
  const Values w_ = {1, 1, 2, 0, 3, 1};
};

TEST_F(MatrixFullyConnectedTest, Defaults) {
  for (const detail::MatrixFullyConnectedProperties* properties :
       {static_cast<detail::MatrixFullyConnectedProperties*>(layer_.get()),
        static_cast<detail::MatrixFullyConnectedProperties*>(gradient_.get())}) {
    EXPECT_EQ(properties->alpha(), 1);
    EXPECT_EQ(properties->sourceNumberOfFeatureVectors(), kAll);
    EXPECT_EQ(properties->sourceInputFeatureChannels(), kAll);
    EXPECT_EQ(properties->sourceOutputFeatureChannels(), kAll);
  }
  EXPECT_EQ(layer_->neuronType(), CNNNeuronType::None);
  EXPECT_TRUE(names(errorOf([] { (void)MatrixFullyConnected::create(nullptr); }), {"device", "null"}));
}

TEST_F(MatrixFullyConnectedTest, WeightsHaveARowForEachInput) {
  const auto y = matrix(2, 2);
  run([&](const auto& commandBuffer) {
    layer_->encode(commandBuffer, matrix(2, 3, x_), matrix(3, 2, w_), nullptr, y);
  });
  EXPECT_EQ(valuesOf(*y), (Values{14, 4, 32, 10}));
}

/// alpha is for the product alone.
TEST_F(MatrixFullyConnectedTest, TheBiasComesBehindAlphaAndTheNeuronLast) {
  const auto y = matrix(2, 2);
  layer_->setAlpha(0.5);
  run([&](const auto& commandBuffer) {
    layer_->encode(commandBuffer, matrix(2, 3, x_), matrix(3, 2, w_), vector({-10, 1, 9}), y);
  });
  EXPECT_EQ(valuesOf(*y), (Values{-3, 3, 6, 6}));
  layer_->setNeuronType(CNNNeuronType::ReLU, 0.5F, 0, 0);
  run([&](const auto& commandBuffer) {
    layer_->encode(commandBuffer, matrix(2, 3, x_), matrix(3, 2, w_), vector({-10, 1}), y);
  });
  EXPECT_EQ(valuesOf(*y), (Values{-1.5F, 3, 6, 6}));
  run([&](const auto& commandBuffer) {
    layer_->encode(commandBuffer, matrix(2, 3, x_), matrix(3, 2, {-1, 1, -2, 0, -3, 1}), nullptr, y);
  });
  EXPECT_EQ(valuesOf(*y), (Values{-3.5F, 2, -8, 5}));
}

TEST_F(MatrixFullyConnectedTest, Gradients) {
  const auto dx = matrix(2, 3);
  const auto dw = matrix(3, 2);
  const auto dBias = vector({kPoison, kPoison, kPoison});
  const auto dy = matrix(2, 2, {1, 10, 2, 20});
  gradient_->setAlpha(2);
  run([&](const auto& commandBuffer) {
    gradient_->encodeGradientForData(commandBuffer, dy, matrix(3, 2, w_), dx);
    gradient_->encodeGradientForWeightsAndBias(commandBuffer, dy, matrix(2, 3, x_), dw, dBias);
  });
  EXPECT_EQ(valuesOf(*dx), (Values{22, 4, 26, 44, 8, 52}));
  EXPECT_EQ(valuesOf(*dw), (Values{18, 180, 24, 240, 30, 300}));
  EXPECT_EQ(valuesOf(*dBias), (Values{3, 30, kPoison})) << "without alpha";
  run([&](const auto& commandBuffer) {
    gradient_->encodeGradientForWeightsAndBias(commandBuffer, dy, matrix(2, 3, x_), dw, nullptr);
  });
  EXPECT_EQ(valuesOf(*dw), (Values{18, 180, 24, 240, 30, 300})) << "overwritten, not added to";
}

/// 2048 + 0.25 is 2048 in float16.
TEST_F(MatrixFullyConnectedTest, WithoutRowsTheGradientsOfWeightsAndBiasAreZero) {
  const auto dw = matrix(3, 2, Values(6, kPoison));
  const auto dBias = vector({kPoison, kPoison, kPoison});
  run([&](const auto& commandBuffer) {
    gradient_->encodeGradientForWeightsAndBias(commandBuffer, matrix(0, 2), matrix(0, 3), dw, dBias);
  });
  EXPECT_EQ(valuesOf(*dw), Values(6, 0));
  EXPECT_EQ(valuesOf(*dBias), (Values{0, 0, kPoison}));
}

TEST_F(MatrixFullyConnectedTest, Float16IsRoundedOnceBehindTheNeuron) {
  const auto y = halfMatrix(1, 2);
  layer_->setNeuronType(CNNNeuronType::Absolute, 0, 0, 0);
  run([&](const auto& commandBuffer) {
    layer_->encode(commandBuffer, halfMatrix(1, 2, {2048, 0.25F}), halfMatrix(2, 2, {1, 1, 1, -1}),
                   halfVector({-2048, -2048}), y);
  });
  EXPECT_EQ(valuesOf(*y), (Values{0.25F, 0.25F}));
  const auto dBias = halfVector({kPoison, kPoison});
  const auto dw = halfMatrix(1, 2);
  run([&](const auto& commandBuffer) {
    gradient_->encodeGradientForWeightsAndBias(commandBuffer, halfMatrix(3, 2, {2048, 1, 0.25F, 1, -2048, 1}),
                                               halfMatrix(3, 1, {1, 1, 1}), dw, dBias);
  });
  EXPECT_EQ(valuesOf(*dBias), (Values{0.25F, 3}));
  EXPECT_EQ(valuesOf(*dw), (Values{0.25F, 3}));
}

TEST_F(MatrixFullyConnectedTest, OriginsAreRowAndColumnAndSizesAreLimits) {
  // Rows 1 and 2, columns 1 and 2.
  const auto x = matrix(3, 3, {9, 9, 9, 9, 1, 2, 9, 3, 4});
  // Rows 1 to 3, column 1 on; the input has two columns.
  const auto w = matrix(4, 3, {9, 9, 9, 9, 1, 10, 9, 2, 20, 9, 3, 30});
  layer_->setPrimarySourceMatrixOrigin({1, 1, 0});
  layer_->setSecondarySourceMatrixOrigin({1, 1, 0});
  layer_->setResultMatrixOrigin({0, 1, 0});
  const auto y = matrix(2, 3);
  run([&](const auto& commandBuffer) { layer_->encode(commandBuffer, x, w, nullptr, y); });
  EXPECT_EQ(valuesOf(*y), (Values{kPoison, 5, 50, kPoison, 11, 110}));
  layer_->setSourceNumberOfFeatureVectors(1);
  layer_->setSourceInputFeatureChannels(1);
  layer_->setSourceOutputFeatureChannels(1);
  const auto z = matrix(2, 3);
  run([&](const auto& commandBuffer) { layer_->encode(commandBuffer, x, w, vector({100}), z); });
  EXPECT_EQ(valuesOf(*z), (Values{kPoison, 101, kPoison, kPoison, kPoison, kPoison}));

  gradient_->setPrimarySourceMatrixOrigin({0, 1, 0});
  gradient_->setSecondarySourceMatrixOrigin({1, 1, 0});
  gradient_->setResultMatrixOrigin({1, 0, 0});
  const auto dx = matrix(3, 3);
  const auto dw = matrix(3, 2);
  const auto dBias = vector({kPoison, kPoison});
  run([&](const auto& commandBuffer) {
    gradient_->encodeGradientForData(commandBuffer, y, w, dx);
    gradient_->encodeGradientForWeightsAndBias(commandBuffer, y, x, dw, dBias);
  });
  EXPECT_EQ(valuesOf(*dx), (Values{kPoison, kPoison, kPoison, 505, 1010, 1515, 1111, 2222, 3333}));
  EXPECT_EQ(valuesOf(*dw), (Values{kPoison, kPoison, 5 + 33, 50 + 330, 10 + 44, 100 + 440}));
  EXPECT_EQ(valuesOf(*dBias), (Values{16, 160}));
  layer_->setSourceNumberOfFeatureVectors(0);
  const auto commandBuffer = queue_->commandBuffer();
  layer_->encode(commandBuffer, x, w, nullptr, y);
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
}

TEST_F(MatrixFullyConnectedTest, EachMatrixOfABatchHasItsWeightsAndBias) {
  const auto vectors = [&](const Values& values) {
    auto made = Vector::create(device_, VectorDescriptor::vectorDescriptor(1, 3, 4, DataType::Float32));
    std::copy(values.begin(), values.end(), made->data()->contentsAs<float>().begin());
    return made;
  };
  const auto x = matrix(2, 1, {1, 2, 3, 4, 5, 6}, 3);
  const auto w = matrix(1, 1, {10, 100, 1000}, 3);
  const auto y = matrix(2, 1, {}, 3);
  layer_->setBatchStart(1);
  run([&](const auto& commandBuffer) { layer_->encode(commandBuffer, x, w, vectors({7, 8, 9}), y); });
  EXPECT_EQ(valuesOf(*y), (Values{kPoison, kPoison, 308, 408, 5009, 6009}));
  const auto dBias = vectors({0, 0, 0});
  const auto dw = matrix(1, 1, {}, 3);
  gradient_->setBatchSize(2);
  run([&](const auto& commandBuffer) {
    gradient_->encodeGradientForWeightsAndBias(commandBuffer, x, x, dw, dBias);
  });
  EXPECT_EQ(valuesOf(*dw), (Values{5, 25, kPoison}));
  EXPECT_EQ(valuesOf(*dBias), (Values{3, 7, 0}));
}

TEST_F(MatrixFullyConnectedTest, TemporariesAreCounted) {
  const auto dx = matrix(2, 3);
  run([&](const auto& commandBuffer) {
    const auto y = TemporaryMatrix::create(commandBuffer,
                                           MatrixDescriptor::matrixDescriptor(2, 2, 8, DataType::Float32));
    layer_->encode(commandBuffer, matrix(2, 3, x_), matrix(3, 2, w_), vector({0, 0}), y);
    EXPECT_EQ(y->readCount(), 1U);
    gradient_->encodeGradientForData(commandBuffer, y, matrix(3, 2, w_), dx);
    EXPECT_EQ(y->readCount(), 0U);
    EXPECT_TRUE(names(errorOf([&] {
                        gradient_->encodeGradientForWeightsAndBias(commandBuffer, y, dx, matrix(3, 2),
                                                                   nullptr);
                      }),
                      {"gradientMatrix", "readCount is 0"}));
  });
  EXPECT_EQ(valuesOf(*dx), (Values{18, 28, 46, 42, 64, 106}));
}

TEST_F(MatrixFullyConnectedTest, WrongArgumentsAreRefused) {
  const auto x = matrix(2, 3, x_);
  const auto w = matrix(3, 2, w_);
  const auto y = matrix(2, 2);
  const auto forward = [&](const auto& input, const auto& weights, const std::shared_ptr<Vector>& bias,
                           const auto& result) {
    return refusal(
        [&](const auto& commandBuffer) { layer_->encode(commandBuffer, input, weights, bias, result); });
  };
  const std::shared_ptr<Matrix> none;
  EXPECT_TRUE(names(forward(none, w, nullptr, y), {"MatrixFullyConnected", "inputMatrix", "null"}));
  EXPECT_TRUE(names(forward(x, none, nullptr, y), {"weightMatrix", "null"}));
  EXPECT_TRUE(names(forward(x, w, nullptr, none), {"resultMatrix", "null"}));
  EXPECT_TRUE(names(errorOf([&] { layer_->encode(nullptr, x, w, nullptr, y); }), {"commandBuffer", "null"}));
  EXPECT_TRUE(names(forward(x, w, nullptr, matrix(2, 1)), {"resultMatrix", "2x1", "2x2"}));
  EXPECT_TRUE(names(forward(x, w, vector({1}), y), {"biasVector", "1x1", "1x2"}));
  EXPECT_TRUE(names(forward(x, halfMatrix(3, 2), nullptr, y), {"weightMatrix", "Float16", "Float32"}));
  EXPECT_TRUE(names(forward(x, w, halfVector({1, 2}), y), {"biasVector", "Float16"}));
  EXPECT_TRUE(
      names(forward(matrix(2, 2), w, nullptr, w), {"resultMatrix", "sharing elements", "weightMatrix"}));
  EXPECT_TRUE(names(forward(y, w, nullptr, y), {"resultMatrix", "sharing elements", "inputMatrix"}));
  layer_->setSecondarySourceMatrixOrigin({4, 0, 0});
  EXPECT_TRUE(names(forward(x, w, nullptr, y), {"weightMatrix", "from row 4"}));
  EXPECT_TRUE(names(errorOf([&] { layer_->setNeuronType(CNNNeuronType::PReLU, 0, 0, 0); }), {"PReLU"}));

  const auto dx = matrix(2, 3);
  const auto data = [&](const auto& dy, const auto& weights, const auto& result) {
    return refusal([&](const auto& commandBuffer) {
      gradient_->encodeGradientForData(commandBuffer, dy, weights, result);
    });
  };
  EXPECT_TRUE(names(data(none, w, dx), {"MatrixFullyConnectedGradient", "gradientMatrix", "null"}));
  EXPECT_TRUE(names(data(y, none, dx), {"weightMatrix", "null"}));
  EXPECT_TRUE(names(data(y, w, none), {"resultGradientForDataMatrix", "null"}));
  EXPECT_TRUE(names(data(y, w, matrix(2, 2)), {"resultGradientForDataMatrix", "2x2", "2x3"}));
  EXPECT_TRUE(names(data(y, halfMatrix(3, 2), dx), {"weightMatrix", "Float16"}));
  EXPECT_TRUE(names(data(dx, w, dx), {"resultGradientForDataMatrix", "gradientMatrix"}));
  const auto dw = matrix(3, 2);
  const auto parameters = [&](const auto& dy, const auto& input, const auto& result,
                              const std::shared_ptr<Vector>& bias) {
    return refusal([&](const auto& commandBuffer) {
      gradient_->encodeGradientForWeightsAndBias(commandBuffer, dy, input, result, bias);
    });
  };
  EXPECT_TRUE(names(parameters(none, x, dw, nullptr), {"gradientMatrix", "null"}));
  EXPECT_TRUE(names(parameters(y, none, dw, nullptr), {"inputMatrix", "null"}));
  EXPECT_TRUE(names(parameters(y, x, none, nullptr), {"resultGradientForWeightMatrix", "null"}));
  EXPECT_TRUE(
      names(parameters(y, x, matrix(2, 2), nullptr), {"resultGradientForWeightMatrix", "2x2", "3x2"}));
  EXPECT_TRUE(names(parameters(y, x, dw, vector({1})), {"resultGradientForBiasVector", "1x1", "1x2"}));
  EXPECT_TRUE(names(parameters(y, x, dw, halfVector({1, 1})), {"resultGradientForBiasVector", "Float16"}));
  const auto over = Vector::create(y->data(), VectorDescriptor::vectorDescriptor(2, DataType::Float32));
  EXPECT_TRUE(names(parameters(y, x, dw, over), {"resultGradientForBiasVector", "gradientMatrix"}));
}

TEST_F(MatrixFullyConnectedTest, RandomLayersMatchTheReference) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(-1, 1);
  for (int repetition = 0; repetition < 20; ++repetition) {
    const bool isHalf = repetition % 2 == 1;
    const std::size_t rows = 1 + random() % 30;
    const std::size_t inputs = 1 + random() % 40;
    const std::size_t outputs = 1 + random() % 30;
    const auto numbers = [&](std::size_t size) {
      Values values(size);
      for (float& value : values) value = distribution(random);
      return values;
    };
    const auto made = [&](std::size_t height, std::size_t width) {
      const Values values = numbers(height * width);
      return isHalf ? halfMatrix(height, width, values) : matrix(height, width, values);
    };
    const auto x = made(rows, inputs);
    const auto w = made(inputs, outputs);
    const auto dy = made(rows, outputs);
    const auto y = made(rows, outputs);
    const auto dx = made(rows, inputs);
    const auto dw = made(inputs, outputs);
    const Values biases = numbers(outputs);
    const auto bias = isHalf ? halfVector(biases) : vector(biases);
    const auto dBias = isHalf ? halfVector(biases) : vector(biases);
    layer_->setAlpha(0.75);
    gradient_->setAlpha(0.75);
    layer_->setNeuronType(CNNNeuronType::Sigmoid, 0, 0, 0);
    run([&](const auto& commandBuffer) {
      layer_->encode(commandBuffer, x, w, bias, y);
      gradient_->encodeGradientForData(commandBuffer, dy, w, dx);
      gradient_->encodeGradientForWeightsAndBias(commandBuffer, dy, x, dw, dBias);
    });
    const auto tensor = [&](Matrix& stored) {
      const Values values = valuesOf(stored);
      ReferenceTensor all(1, static_cast<std::int64_t>(stored.rows()), 1,
                          static_cast<std::int64_t>(stored.columns()));
      all.values.assign(values.begin(), values.end());
      return all;
    };
    const auto product = [&](Matrix& left, Matrix& right, Matrix& result, bool transposeLeft,
                             bool transposeRight) {
      const auto shape = [](const Matrix& of) {
        return detail::TensorShape::dense(1, static_cast<std::int64_t>(of.rows()), 1,
                                          static_cast<std::int64_t>(of.columns()));
      };
      detail::MatrixMultiplicationProblem problem;
      problem.transposeLeft = transposeLeft;
      problem.transposeRight = transposeRight;
      problem.alpha = 0.75F;
      problem.left = shape(left);
      problem.right = shape(right);
      problem.result = shape(result);
      return matrixMultiplicationReference(problem, tensor(left), tensor(right), {});
    };
    const auto expectNear = [&](const ReferenceTensor& expected, const Values& found) {
      EXPECT_EQ(
          detail::compare(expected, std::vector<double>(found.begin(), found.end()),
                          isHalf ? ImageFeatureChannelFormat::Float16 : ImageFeatureChannelFormat::Float32,
                          detail::Tier::Bounded, detail::Zeros::Expected)
              .report,
          "");
    };
    const Values rounded = valuesOf(*bias);
    expectNear(withBiasAndNeuron(product(*x, *w, *y, false, false),
                                 std::vector<double>(rounded.begin(), rounded.end()),
                                 NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Sigmoid)),
               valuesOf(*y));
    expectNear(product(*dy, *w, *dx, false, true), valuesOf(*dx));
    expectNear(product(*x, *dy, *dw, true, false), valuesOf(*dw));
    expectNear(columnSumsReference(tensor(*dy)), valuesOf(*dBias));
  }
}

TEST_F(MatrixFullyConnectedTest, CopiesForAnotherDeviceKeepTheirProperties) {
  const auto device = mtl::newCPUDevice(1);
  layer_->setAlpha(3);
  layer_->setSourceOutputFeatureChannels(4);
  layer_->setNeuronType(CNNNeuronType::ELU, 2, 0, 0);
  const auto copy = layer_->copy(device);
  EXPECT_EQ(copy->device(), device);
  EXPECT_EQ(copy->alpha(), 3);
  EXPECT_EQ(copy->sourceOutputFeatureChannels(), 4U);
  EXPECT_EQ(copy->neuronParameterA(), 2);
  gradient_->setAlpha(5);
  EXPECT_EQ(gradient_->copy()->alpha(), 5);
}

}  // namespace
}  // namespace mps::matrix_fully_connected_test
