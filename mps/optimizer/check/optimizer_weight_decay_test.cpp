#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "mps/conform/tolerance.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mtl/buffer.hpp"
#include "mtl/device.hpp"

/// Decoupled weight decay of the public optimisers.
namespace mps::optimizer_weight_decay_test {
namespace {

using SGD = NNOptimizerStochasticGradientDescent;
using VectorPointer = std::shared_ptr<Vector>;

constexpr double scale = 0.0625;  // exact in float32, as all numbers of these tests are but the betas
constexpr std::array gradients{0.5, -0.25, 1.0, 0.75, -2.0};
constexpr std::array rates{0.125, 0.125, 0.0625, 0.03125, 0.25};

class WeightDecay : public testing::DeviceTest {
 protected:
  [[nodiscard]] VectorPointer vector(float value) const {
    const std::array values{value};
    return Vector::create(device_->newBuffer(std::as_bytes(std::span(values))),
                          VectorDescriptor::vectorDescriptor(1, DataType::Float32));
  }
  static double valueOf(const VectorPointer& vector) {
    return static_cast<double>(vector->data()->contentsAs<const float>()[0]);
  }
  static NNOptimizerDescriptor descriptor(NNRegularizationType type = NNRegularizationType::Decoupled) {
    return {static_cast<float>(rates[0]), 1, type, static_cast<float>(scale)};
  }
  /// A weight of 2 after each of the steps. @param encode (command buffer, gradient, value)
  template <class Encode>
  std::vector<double> steps(NNOptimizer& optimizer, const Encode& encode) {
    const VectorPointer value = vector(2);
    std::vector<double> values;
    for (std::size_t step = 0; step < gradients.size(); ++step) {
      optimizer.setLearningRate(static_cast<float>(rates[step]));
      const auto buffer = commands();
      encode(buffer, vector(static_cast<float>(gradients[step])), value);
      run(buffer);
      values.push_back(valueOf(value));
    }
    return values;
  }
};

/// Loshchilov and Hutter, Decoupled Weight Decay Regularization, algorithm 2, in float64: with PyTorch's meaning of its numbers, the
/// decay times the learning rate. The learning rate changes on the way.
std::vector<double> adamW(double beta1, double beta2) {
  double value = 2;
  double m = 0;
  double v = 0;
  std::vector<double> values;
  for (std::size_t step = 0; step < gradients.size(); ++step) {
    const double g = gradients[step];
    const auto t = static_cast<double>(step + 1);
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double corrected = m / (1 - std::pow(beta1, t));
    const double square = v / (1 - std::pow(beta2, t));
    value -= rates[step] * (corrected / std::sqrt(square) + scale * value);
    values.push_back(value);
  }
  return values;
}

TEST_F(WeightDecay, D30AdamIsTheAdamWOfThePaper) {
  const auto adam = NNOptimizerAdam::create(device_, 0.9, 0.999, 0, 0, descriptor());
  const VectorPointer momentum = vector(0);
  const VectorPointer velocity = vector(0);
  const std::vector<double> found =
      steps(*adam, [&](const auto& buffer, const auto& gradient, const auto& value) {
        adam->encode(buffer, gradient, value, momentum, velocity, value);
      });
  const std::vector<double> expected = adamW(0.9, 0.999);
  // Some ten roundings of numbers up to 2 in each of five steps.
  const double bound = detail::arithmeticBound(2, 50, 0);
  for (std::size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(found[step], expected[step], bound) << "step " << step;
}

/// The gradients that momentum adds up know nothing of the decay.
TEST_F(WeightDecay, LeavesTheGradientAlone) {
  const auto sgd = SGD::create(device_, 0.5F, false, descriptor());
  const VectorPointer momentum = vector(0);
  const std::vector<double> found =
      steps(*sgd, [&](const auto& buffer, const auto& gradient, const auto& value) {
        sgd->encode(buffer, gradient, value, momentum, value);
      });
  double value = 2;
  double m = 0;
  for (std::size_t step = 0; step < gradients.size(); ++step) {
    m = 0.5 * m + rates[step] * gradients[step];
    value = value - rates[step] * scale * value - m;
    EXPECT_NEAR(found[step], value, detail::arithmeticBound(2, 8, 0)) << "step " << step;
  }
  EXPECT_EQ(valueOf(momentum), m) << "all of its numbers are exact";
}

TEST_F(WeightDecay, OfPlainDescentIsL2) {
  std::vector<std::vector<double>> found;
  for (const auto type : {NNRegularizationType::Decoupled, NNRegularizationType::L2}) {
    const auto sgd = SGD::create(device_, 0, false, descriptor(type));
    found.push_back(steps(*sgd, [&](const auto& buffer, const auto& gradient, const auto& value) {
      sgd->encode(buffer, gradient, value, VectorPointer(), value);
    }));
  }
  for (std::size_t step = 0; step < gradients.size(); ++step)
    EXPECT_NEAR(found[0][step], found[1][step], detail::arithmeticBound(2, 8, 0)) << "step " << step;
}

}  // namespace
}  // namespace mps::optimizer_weight_decay_test
