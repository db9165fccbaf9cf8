#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "mps/conform/tolerance.hpp"
#include "mps/core/testing/test_matrices.hpp"
#include "mps/optimizer/check/optimizer_check_values.hpp"
#include "mps/optimizer/optimizer.hpp"

/// The public optimisers on matrices.
namespace mps::optimizer_matrix_test {
namespace {

using detail::OptimizerKind;
using testing::names;
using testing::Values;
using SGD = NNOptimizerStochasticGradientDescent;
using MatrixPointer = std::shared_ptr<Matrix>;

class OptimizerOnMatrices : public testing::MatrixTest {
 protected:
  /// 2 x 3, or several of them, with rows of that many floats and matrices of that many rows.
  [[nodiscard]] MatrixPointer matrixWith(const Values& buffer, std::size_t rowFloats,
                                         std::size_t matrixRows = 2, std::size_t matrices = 1) const {
    const std::size_t rowBytes = rowFloats * sizeof(float);
    return Matrix::create(device_->newBuffer(std::as_bytes(std::span(buffer))),
                          MatrixDescriptor::matrixDescriptor(2, 3, matrices, rowBytes, matrixRows * rowBytes,
                                                             DataType::Float32));
  }
  static Values bufferOf(const MatrixPointer& matrix) {
    const auto values = matrix->data()->contentsAs<const float>();
    return {values.begin(), values.end()};
  }
};

class OptimizerExampleOnMatrices : public OptimizerOnMatrices,
                                   public ::testing::WithParamInterface<detail::OptimizerCheckRow> {};

TEST_P(OptimizerExampleOnMatrices, Section13_7) {
  const auto& row = GetParam();
  const auto number = [](double value) { return static_cast<float>(value); };
  const NNOptimizerDescriptor descriptor(
      0.1F, number(row.numbers.gradientRescale), row.clips, number(row.numbers.gradientClipMax),
      number(row.numbers.gradientClipMin), row.regularizationType, number(row.numbers.regularizationScale));
  const auto sgd =
      SGD::create(device_, number(row.numbers.decay), row.kind == OptimizerKind::SGDNesterov, descriptor);
  const auto rmsProp =
      NNOptimizerRMSProp::create(device_, row.numbers.decay, number(row.numbers.epsilon), descriptor);
  const auto adam = NNOptimizerAdam::create(device_, row.numbers.decay, row.numbers.beta2,
                                            number(row.numbers.epsilon), 0, descriptor);
  const auto value = matrix(2, 3, Values(6, 1)), momentum = matrix(2, 3, Values(6)),
             velocity = matrix(2, 3, Values(6)), largest = matrix(2, 3, Values(6));
  for (std::size_t step = 0; step < 3; ++step) {
    const auto gradient = matrix(2, 3, Values(6, number(detail::kOptimizerGradients[step])));
    run([&](const auto& buffer) {
      switch (row.kind) {
        case OptimizerKind::SGD:
          return sgd->encode(buffer, gradient, value, MatrixPointer(), value);
        case OptimizerKind::SGDMomentum:
        case OptimizerKind::SGDNesterov:
          return sgd->encode(buffer, gradient, value, momentum, value);
        case OptimizerKind::RMSProp:
          return rmsProp->encode(buffer, gradient, value, velocity, value);
        case OptimizerKind::Adam:
          return adam->encode(buffer, gradient, value, momentum, velocity, value);
        case OptimizerKind::AMSGrad:
          return adam->encode(buffer, gradient, value, momentum, velocity, largest, value);
      }
    });
    for (const float found : valuesOf(*value))
      EXPECT_NEAR(found, row.values[step], detail::kOptimizerPrecision) << "step " << step;
  }
  for (const float found : valuesOf(*momentum)) EXPECT_NEAR(found, row.momentum, detail::kOptimizerPrecision);
  for (const float found : valuesOf(*velocity)) EXPECT_NEAR(found, row.velocity, detail::kOptimizerPrecision);
  const bool counts = row.kind == OptimizerKind::Adam || row.kind == OptimizerKind::AMSGrad;
  EXPECT_EQ(adam->timeStep(), counts ? 3U : 0U) << "by one with each encode";
}

INSTANTIATE_TEST_SUITE_P(Spec, OptimizerExampleOnMatrices,
                         ::testing::ValuesIn(detail::optimizerCheckValues()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(OptimizerOnMatrices, EachHasRowBytesOfItsOwn) {
  const auto g = matrixWith({1, 2, 3, -99, 4, 5, 6}, 4);
  const auto v = matrixWith({10, 20, 30, 40, 50, 60}, 3);
  const auto m = matrixWith({2, 2, 2, -7, -7, 4, 4, 4, -7, -7}, 5);
  const auto result = matrixWith({0, 0, 0, -8, 0, 0, 0, -8}, 4);
  const auto sgd =
      SGD::create(device_, 0.5F, false, NNOptimizerDescriptor(1, 1, NNRegularizationType::None, 0));
  run([&](const auto& buffer) { sgd->encode(buffer, g, v, m, result); });
  EXPECT_EQ(bufferOf(m), (Values{2, 3, 4, -7, -7, 6, 7, 8, -7, -7})) << "0.5 m + g";
  EXPECT_EQ(bufferOf(result), (Values{8, 17, 26, -8, 34, 43, 52, -8}));
  EXPECT_EQ(bufferOf(v), (Values{10, 20, 30, 40, 50, 60})) << "only the result is written";
}

TEST_F(OptimizerOnMatrices, SeveralMatricesInOneBuffer) {
  const auto g = matrixWith({1, 2, 3, 4, 5, 6, -9, -9, -9, 7, 8, 9, 10, 11, 12}, 3, 3, 2);
  const auto v = matrixWith(Values(12, 20), 3, 2, 2);
  const auto adam = NNOptimizerAdam::create(device_, 1);
  const auto m = matrixWith(Values(12), 3, 2, 2), u = matrixWith(Values(12), 3, 2, 2);
  run([&](const auto& buffer) {
    SGD::create(device_, 1)->encode(buffer, g, v, MatrixPointer(), v);
    adam->encode(buffer, g, v, m, u, v);
  });
  const Values found = bufferOf(v);
  for (std::size_t i = 0; i < 12; ++i)
    EXPECT_NEAR(found[i], 20 - static_cast<float>(i + 1) - 1, detail::arithmeticBound(20, 10, 0))
        << "the first step of Adam is the rate";
  EXPECT_EQ(adam->timeStep(), 1U) << "one encode";
}

TEST_F(OptimizerOnMatrices, TemporaryMatricesAreCounted) {
  const auto values = matrix(1, 2, {1, 2});
  const auto sgd = SGD::create(device_, 1);
  run([&](const auto& buffer) {
    const auto temporary =
        TemporaryMatrix::create(buffer, MatrixDescriptor::matrixDescriptor(1, 2, 8, DataType::Float32));
    sgd->encode(buffer, matrix(1, 2, {0.5F, 1}), values, nullptr, temporary);
    EXPECT_EQ(temporary->readCount(), 1U);
    sgd->encode(buffer, MatrixPointer(temporary), values, nullptr, values);
    EXPECT_EQ(temporary->readCount(), 0U);
  });
  EXPECT_EQ(valuesOf(*values), (Values{0.5F, 1}));
}

TEST_F(OptimizerOnMatrices, MatricesAreChecked) {
  const auto g = matrix(2, 3, Values(6)), turned = matrix(3, 2, Values(6)),
             half = halfMatrix(2, 3, Values(6));
  const auto two = matrix(2, 3, Values(12), 2);
  const MatrixPointer none;
  const auto sgd = SGD::create(device_, 1);
  const auto adam = NNOptimizerAdam::create(device_, 1);
  const auto refused = [&](const MatrixPointer& gradient, const MatrixPointer& values,
                           const MatrixPointer& momentum, const MatrixPointer& result) {
    return refusal([&](const auto& buffer) { sgd->encode(buffer, gradient, values, momentum, result); });
  };
  const std::string name = "NNOptimizerStochasticGradientDescent";
  EXPECT_TRUE(names(refused(none, g, none, g), {name, "inputGradientMatrix", "null", "a matrix"}));
  EXPECT_TRUE(names(refused(g, none, none, g), {name, "inputValuesMatrix", "null"}));
  EXPECT_TRUE(names(refused(g, g, none, none), {name, "resultValuesMatrix", "null"}));
  EXPECT_TRUE(names(refused(g, turned, none, g), {name, "inputValuesMatrix", "3 x 2", "2 x 3"}));
  EXPECT_TRUE(names(refused(g, g, turned, g), {name, "momentum", "3 x 2"}));
  EXPECT_TRUE(names(refused(g, g, none, two), {name, "resultValuesMatrix", "2 x 2 x 3"}));
  EXPECT_TRUE(names(refused(g, half, none, g), {name, "inputValuesMatrix", "Float16", "Float32"}));
  EXPECT_TRUE(names(refusal([&](const auto& buffer) {
                      NNOptimizerRMSProp::create(device_, 1)->encode(buffer, g, g, none, g);
                    }),
                    {"NNOptimizerRMSProp", "velocity", "null"}));
  EXPECT_TRUE(names(refusal([&](const auto& buffer) { adam->encode(buffer, g, g, g, none, g); }),
                    {"NNOptimizerAdam", "velocity", "null"}));
  EXPECT_TRUE(names(refusal([&](const auto& buffer) { adam->encode(buffer, g, g, g, g, turned, g); }),
                    {"NNOptimizerAdam", "maximumVelocity", "3 x 2"}));
  EXPECT_EQ(adam->timeStep(), 0U) << "a refused encode does not count";
  EXPECT_EQ(refused(g, g, none, g), "");
}

/// Two matrices of two rows of four in one memory, from a byte on.
class OptimizerOnSharedMemory : public OptimizerOnMatrices {
 protected:
  [[nodiscard]] MatrixPointer at(std::size_t byte, std::size_t matrices = 1,
                                 std::size_t matrixBytes = 32) const {
    return Matrix::create(
        memory_, MatrixDescriptor::matrixDescriptor(2, 4, matrices, 16, matrixBytes, DataType::Float32),
        byte);
  }
  [[nodiscard]] MatrixPointer columnsAt(std::size_t byte, std::size_t rowBytes = 16) const {
    return Matrix::create(memory_, MatrixDescriptor::matrixDescriptor(2, 2, rowBytes, DataType::Float32),
                          byte);
  }
  std::string refused(const MatrixPointer& gradient, const MatrixPointer& values,
                      const MatrixPointer& momentum, const MatrixPointer& result) {
    return refusal([&](const auto& buffer) { sgd_->encode(buffer, gradient, values, momentum, result); });
  }
  std::shared_ptr<mtl::Buffer> memory_ = device_->newBuffer(1024);
  std::shared_ptr<SGD> sgd_ =
      SGD::create(device_, 0.5F, false, NNOptimizerDescriptor(1, 1, NNRegularizationType::None, 0));
};

TEST_F(OptimizerOnSharedMemory, MomentumIsApartInEveryRowAndMatrix) {
  const std::string shared = "memory that is also of ";
  EXPECT_TRUE(names(refused(at(512), at(0), at(16), at(256)), {"momentum", shared + "inputValuesMatrix"}));
  EXPECT_TRUE(names(refused(at(0), at(512), at(16), at(256)), {"momentum", shared + "inputGradientMatrix"}));
  EXPECT_TRUE(names(refused(at(512), at(256), at(0), at(16)), {"momentum", shared + "resultValuesMatrix"}));
  EXPECT_TRUE(names(refused(at(512), at(0), at(0), at(256)), {"momentum", "memory of its own"}));
  EXPECT_TRUE(names(refused(at(512, 2), at(0, 2), at(32, 2), at(256, 2)), {"momentum", "inputValuesMatrix"}))
      << "matrix 0 of the momentum is matrix 1 of the values";
  EXPECT_EQ(refused(at(512, 2), at(0, 2, 64), at(32, 2, 64), at(256, 2)), "") << "every second one";
  EXPECT_EQ(refused(columnsAt(512), columnsAt(0), columnsAt(8), columnsAt(256)), "") << "columns beside it";
  EXPECT_TRUE(names(refused(columnsAt(512), columnsAt(0), columnsAt(4), columnsAt(256)), {"momentum"}));
}

TEST_F(OptimizerOnSharedMemory, TheResultIsTheVerySameOrApart) {
  const MatrixPointer none;
  const std::string sameOrApart = "memory of its own, or the very same";
  EXPECT_EQ(refused(at(512), at(0), none, at(0)), "");
  EXPECT_EQ(refused(at(0), at(512), none, at(0)), "") << "over the gradient";
  EXPECT_TRUE(
      names(refused(at(512), at(0), none, at(16)), {"resultValuesMatrix", "inputValuesMatrix", sameOrApart}));
  EXPECT_TRUE(names(refused(at(0), at(512), none, at(16)),
                    {"resultValuesMatrix", "inputGradientMatrix", sameOrApart}));
  EXPECT_TRUE(names(refused(at(16), at(0), none, at(0)), {"resultValuesMatrix", "inputGradientMatrix"}))
      << "in place, over a part of the gradient";
  EXPECT_TRUE(names(refused(at(512, 2), at(0, 2, 32), none, at(0, 2, 64)), {"resultValuesMatrix"}));
  EXPECT_TRUE(
      names(refused(columnsAt(512), columnsAt(0, 16), none, columnsAt(0, 24)), {"resultValuesMatrix"}))
      << "other strides";
  EXPECT_EQ(refused(at(0), at(16), none, at(512)), "") << "what is read may overlap";
}

TEST_F(OptimizerOnMatrices, AnyNumberOfEmptyMatricesIsNothingToDo) {
  const auto empty = [&](std::size_t rows, std::size_t columns) {
    return Matrix::create(device_,
                          MatrixDescriptor::matrixDescriptor(rows, columns, std::size_t{1} << 40,
                                                             columns * sizeof(float), 0, DataType::Float32));
  };
  const auto sgd = SGD::create(device_, 1);
  const auto commandBuffer = queue_->commandBuffer();
  sgd->encode(commandBuffer, empty(0, 4), empty(0, 4), MatrixPointer(), empty(0, 4));
  sgd->encode(commandBuffer, empty(3, 0), empty(3, 0), empty(3, 0), empty(3, 0));
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
}

}  // namespace
}  // namespace mps::optimizer_matrix_test
