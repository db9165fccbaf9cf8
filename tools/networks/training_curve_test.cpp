#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "mps/conform/gradients/graph_reference.hpp"
#include "mps/conform/testing/stored_values.hpp"
#include "mps/conform/tolerance.hpp"
#include "mps/loss/loss.hpp"
#include "mps/optimizer/check/optimizer_reference.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "tools/networks/networks.hpp"
#include "train/pictures/synthetic.hpp"
#include "train/training/optimizers.hpp"

/// 20 steps of training, on each device in float32 and by the references in float64 (design section 11).
namespace unmetal::training_curve_test {
namespace {

using mps::detail::GraphReference;
using mps::detail::OptimizerKind;
using mps::detail::OptimizerNumbers;
using mps::detail::ReferenceTensor;

constexpr std::uint32_t kSteps = 20;
constexpr std::size_t kBatch = 2;

using DevicePointer = std::shared_ptr<mtl::Device>;

/// The generated pictures that belong to one step, of other classes in each.
struct Batch {
  mps::ImageBatch images;
  mps::StateBatch labels;
  ReferenceTensor values;

  Batch(const DevicePointer& device, const train::MemoryDataset& data, std::uint32_t step)
      : labels(mps::CNNLossLabels::createClassBatch(device, kBatch)) {
    const std::size_t first = step * kBatch;
    const train::Shape shape = data.shape();
    images = mps::ImageBatch::create(
        device, {mps::ImageFeatureChannelFormat::Float32, shape.width, shape.height, shape.channels}, kBatch);
    std::vector<float> pixels;
    for (const std::uint8_t pixel :
         std::span(data.bytes()).subspan(first * shape.count(), kBatch * shape.count()))
      pixels.push_back(static_cast<float>(pixel) / 255.0F);
    images.writeBytes(std::span<const float>(pixels), mps::DataLayout::HeightxWidthxFeatureChannels);
    values = mps::detail::storedValues(images);
    mps::CNNLossLabels::writeClassIndices(labels, std::span(data.labels()).subspan(first, kBatch));
  }
};

/// Loss of one step on the device, which also updates the weights.
double deviceStep(mps::NNGraph& graph, const Batch& batch) {
  const auto commandBuffer = graph.device()->newCommandQueue()->commandBuffer();
  graph.encodeBatch(commandBuffer, {batch.images}, {batch.labels});
  mps::StateBatchSynchronize(batch.labels, commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  std::vector<float> losses(kBatch);
  mps::CNNLossLabels::lossImages(batch.labels)
      .readBytes(std::span(losses), mps::DataLayout::HeightxWidthxFeatureChannels);
  double sum = 0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  return sum;
}

/// The same by the references of every layer and of the optimiser.
class ReferenceTraining {
 public:
  using Numbers = std::function<OptimizerNumbers(std::uint32_t step)>;
  ReferenceTraining(mps::NNGraph& graph, const Batch& first, OptimizerKind kind, Numbers numbers)
      : reference_(graph, {first.images}, {first.labels}), kind_(kind), numbers_(std::move(numbers)) {}

  double step(std::uint32_t step, const Batch& batch) {
    reference_.sourceImages = {batch.values};
    reference_.sourceStates = {batch.labels};
    reference_.laterEncodes = step;
    const GraphReference::Run run = reference_.run();
    double loss = 0;
    for (std::size_t s = 0; s < run.outputs.size(); ++s) {
      if (run.outputs[s].objective)
        for (const double value : run.outputs[s].objective->values) loss += value;
      for (const auto& gradient : run.outputs[s].parameterGradients)
        update(reference_.parameterOf(reference_.program().steps[s].forward, gradient.forwardIndex),
               gradient.values, step);
    }
    return loss;
  }
  [[nodiscard]] std::size_t arrays() const { return slots_.size(); }

 private:
  void update(const mps::detail::PreparedCall::Parameter& parameter, const ReferenceTensor& gradient,
              std::uint32_t step) {
    const auto key = mps::detail::keyOf(parameter);
    std::vector<double>& values = reference_.parameters.at(key);
    auto& slots = slots_[key];
    slots.gradient = gradient;
    slots.values = gradient;  // its shape
    slots.values.values = values;
    for (ReferenceTensor* slot : {&slots.momentum, &slots.velocity})
      if (slot->values.empty()) *slot = ReferenceTensor(1, 1, 1, static_cast<std::int64_t>(values.size()));
    slots = mps::detail::optimizerReference({.kind = kind_}, numbers_(step), slots);
    values = slots.values.values;
  }

  GraphReference reference_;
  OptimizerKind kind_;
  Numbers numbers_;
  std::map<mps::detail::ParameterKey, mps::detail::OptimizerReferenceTensors> slots_;
};

void expectSameCurve(const DevicePointer& device, const std::string& optimizer, double learningRate,
                     OptimizerKind kind, const ReferenceTraining::Numbers& numbers) {
  SCOPED_TRACE(device->name());
  const train::SyntheticDataset data(train::Split::Training);
  NetworkOptions options;
  options.name = "mnist-cnn";
  options.batchSize = kBatch;
  options.seed = 5;
  options.optimizer = train::makeOptimizer(device, optimizer, learningRate, 0);
  const Network network = buildNetwork(device, options);
  ReferenceTraining reference(*network.training, Batch(device, data, 0), kind, numbers);
  std::vector<double> curve;
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    const Batch batch(device, data, step);
    const double expected = reference.step(step, batch);
    const double found = deviceStep(*network.training, batch);
    EXPECT_LE(std::abs(found - expected), mps::detail::kCurveTolerance * expected)
        << "step " << step << ": device " << found << ", references " << expected;
    curve.push_back(expected);
  }
  EXPECT_EQ(reference.arrays(), 2 * network.layers.size());
  EXPECT_GT(*std::ranges::max_element(curve) - *std::ranges::min_element(curve), 1) << "nothing was trained";
}

TEST(TrainingCurve, MomentumFollowsTheReferences) {
  const auto numbersOf = [](std::uint32_t) {
    OptimizerNumbers numbers;
    numbers.learningRate = static_cast<double>(1e-2F);
    numbers.decay = static_cast<double>(0.9F);
    return numbers;
  };
  for (const auto& device : mtl::copyAllDevices())
    expectSameCurve(device, "momentum", 1e-2, OptimizerKind::SGDMomentum, numbersOf);
}

TEST(TrainingCurve, AdamFollowsTheReferences) {
  const auto numbersOf = [](std::uint32_t step) {
    OptimizerNumbers numbers;
    numbers.decay = 0.9;
    numbers.beta2 = 0.999;
    numbers.epsilon = static_cast<double>(1e-8F);
    numbers.learningRate = mps::detail::adamLearningRate(static_cast<double>(1e-3F), 0.9, 0.999, step + 1);
    return numbers;
  };
  for (const auto& device : mtl::copyAllDevices())
    expectSameCurve(device, "adam", 1e-3, OptimizerKind::Adam, numbersOf);
}

}  // namespace
}  // namespace unmetal::training_curve_test
