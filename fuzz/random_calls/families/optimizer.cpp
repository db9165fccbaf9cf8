#include "mps/optimizer/optimizer.hpp"

#include <limits>
#include <memory>
#include <type_traits>

#include "fuzz/random_calls/arrays.hpp"
#include "fuzz/random_calls/families.hpp"
#include "mps/matrix/matrix_random.hpp"
#include "mps/optimizer/optimizer_descriptor.hpp"

namespace unmetal::random_calls {
namespace {

mps::NNOptimizerDescriptor drawOptimizer(Call& call) {
  RandomNumbers& random = call.random;
  const float learningRate = call.noted("learningRate", random.real32(0.001, 0.1));
  const float gradientRescale = call.noted("gradientRescale", random.chance(0.5) ? 1 : random.real32(0.1, 2));
  const bool clips = call.noted("clips", random.chance(0.3));
  const auto regularization =
      call.noted("regularization", static_cast<mps::NNRegularizationType>(random.integer(0, 3)));
  const float regularizationScale = call.noted("regularizationScale", random.real32(-0.1, 0.1));
  return {learningRate, gradientRescale, clips, 0.5F, -0.4F, regularization, regularizationScale};
}

/// What an optimiser reads and writes, as matrices or as vectors.
template <class Operand>
struct Slots {
  Operand gradient;
  Operand values;
  Operand momentum;  ///< of stochastic gradient descent and Adam; null: none
  Operand squares;   ///< sums of squares or velocities
  Operand maximum;   ///< of AMSGrad; null: Adam
  Operand result;
};

enum class Optimizer { Descent, DescentWithNesterov, RMSProp, Adam };

template <class Operand>
void encodeSteps(Call& call, Optimizer which, const mps::NNOptimizerDescriptor& descriptor,
                 const Slots<Operand>& slots) {
  constexpr int steps = 2;
  const CommandBufferPointer commandBuffer = call.begin();
  const auto encode = [&](const auto& kernel, const auto&... operands) {
    for (int step = 0; step < steps; ++step)
      kernel->encode(commandBuffer, slots.gradient, slots.values, operands..., slots.result);
  };
  call.stage = "encode";
  if (which == Optimizer::RMSProp) {
    encode(mps::NNOptimizerRMSProp::create(call.device, 0.9, 1e-4F, descriptor), slots.squares);
  } else if (which == Optimizer::Adam) {
    const std::size_t timeStep = call.noted("timeStep", call.random.size(0, 10));
    const auto kernel = mps::NNOptimizerAdam::create(call.device, 0.9, 0.99, 1e-4F, timeStep, descriptor);
    encode(kernel, slots.momentum, slots.squares, slots.maximum);
  } else {
    const bool isNesterov = which == Optimizer::DescentWithNesterov;
    encode(mps::NNOptimizerStochasticGradientDescent::create(call.device, 0.9F, isNesterov, descriptor),
           slots.momentum);
  }
  call.finish(commandBuffer);
}

}  // namespace

void callOptimizer(Call& call) {
  RandomNumbers& random = call.random;
  const auto which = call.noted("optimizer", static_cast<Optimizer>(random.integer(0, 3)));
  ArraySizes sizes;
  sizes.isVector = random.chance(0.6);
  sizes.rows = sizes.isVector ? 1 : call.matrixSide();
  sizes.columns = call.matrixSide();
  reduceTo(60'000, sizes.rows, sizes.columns);
  sizes.count = random.chance(0.7) ? 1 : random.size(1, 3);
  const mps::NNOptimizerDescriptor descriptor = drawOptimizer(call);
  const bool hasMomentum = call.noted("momentum", which == Optimizer::Adam || random.chance(0.7));
  const bool hasMaximum = call.noted("maximum", random.chance(0.4));
  call.stage = "sources";
  const auto gradient = makeSourceArrays(call, "gradient", sizes, Numbers::Uniform);
  const auto values = makeUpdatedArrays(call, "values", sizes, Numbers::Uniform, {});
  const auto momentum = makeUpdatedArrays(call, "momentum", sizes, Numbers::Uniform, {});
  // Their roots divide.
  const auto squares = makeUpdatedArrays(call, "squares", sizes, Numbers::Positive, {});
  const auto maximum = makeUpdatedArrays(call, "maximum", sizes, Numbers::Positive, {});
  const bool isInPlace = call.noted("inPlace", random.chance(0.5));
  const auto result = isInPlace ? values : makeDestinationArrays(call, "result", sizes, {});
  const auto encode = [&](auto member) {
    using Operand = std::decay_t<decltype(gradient.*member)>;
    const Slots<Operand> slots{gradient.*member,
                               values.*member,
                               hasMomentum ? momentum.*member : Operand(),
                               squares.*member,
                               hasMaximum ? maximum.*member : Operand(),
                               result.*member};
    encodeSteps(call, which, descriptor, slots);
  };
  if (sizes.isVector)
    encode(&Arrays::vector);
  else
    encode(&Arrays::matrix);
}

void callRandomNumbers(Call& call) {
  using Distribution = mps::MatrixRandomDistributionDescriptor;
  RandomNumbers& random = call.random;
  const bool areWords = call.noted("words", random.chance(0.3));
  const auto type = areWords ? mps::DataType::UInt32 : mps::DataType::Float32;
  const std::int64_t kind = call.noted("distribution", areWords ? 0 : random.integer(0, 3));
  const std::uint64_t seed = call.noted("seed", random.bits());
  auto distribution = Distribution::defaultDistributionDescriptor();
  if (kind == 1) distribution = Distribution::uniformDistributionDescriptor(-0.3F, 1.7F);
  if (kind == 2) distribution = Distribution::normalDistributionDescriptor(0.2F, 1.5F);
  if (kind == 3) distribution = Distribution::normalDistributionDescriptor(0.2F, 1.5F, -1, 2);
  std::shared_ptr<mps::MatrixRandom> kernel;
  if (call.noted("philox", random.chance(0.6)))
    kernel = mps::MatrixRandomPhilox::create(call.device, type, seed, distribution);
  else
    kernel = mps::MatrixRandomMTGP32::create(call.device, type, seed, distribution);
  const std::size_t encodes = random.size(1, 4);  // each goes on where the last one stopped
  for (std::size_t i = 0; i < encodes; ++i) {
    ArraySizes sizes{type, call.matrixSide(), call.matrixSide(), random.size(1, 3), random.chance(0.4)};
    if (sizes.isVector) sizes.rows = 1;
    reduceTo(60'000, sizes.rows, sizes.columns);
    // Normal numbers are logarithms and cosines; the bits that they are made of are the same on each device.
    const auto result = makeDestinationArrays(call, "result", sizes, {.isExact = areWords});
    kernel->setBatchStart(call.noted("batchStart", random.chance(0.2) ? random.size(0, sizes.count - 1) : 0));
    kernel->setBatchSize(call.noted(
        "batchSize", random.chance(0.2) ? random.size(0, 2) : std::numeric_limits<std::size_t>::max()));
    call.stage = "encode";
    const CommandBufferPointer commandBuffer = call.begin();
    if (sizes.isVector)
      kernel->encode(commandBuffer, result.vector);
    else
      kernel->encode(commandBuffer, result.matrix);
    call.finish(commandBuffer);
  }
}

}  // namespace unmetal::random_calls
