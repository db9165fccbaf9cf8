// One Adam for several layers, two softmaxes, exported states, regularisation and clipping: a multi-layer perceptron that is
// compared with the same training in float64, step by step.

#include <algorithm>
#include <array>

#include "tests/ports/port.hpp"

namespace {

constexpr std::size_t inputs = 5;
constexpr std::size_t hidden = 6;
constexpr std::size_t classes = 4;
constexpr std::size_t batchSize = 3;
constexpr std::size_t steps = 20;
constexpr float learningRate = 0.02F;
constexpr float clip = 0.4F;
constexpr float decay = 0.01F;

using Optimizer = std::shared_ptr<mps::NNOptimizerAdam>;
using Values = std::vector<double>;

class DataSource : public mps::CNNConvolutionDataSource {
 public:
  DataSource(const std::shared_ptr<mtl::Device>& device, std::size_t in, std::size_t out, std::string label,
             Optimizer optimizer)
      : descriptor_(mps::CNNConvolutionDescriptor::create(1, 1, in, out)),
        label_(std::move(label)),
        optimizer_(std::move(optimizer)),
        weights_(port::Random(in + 10 * out).floats(in * out, -0.8, 0.8)),
        biases_(port::Random(in * out).floats(out, -0.2, 0.2)) {
    // Made by the framework, and filled by nobody: the first update begins with the values of sourceState.
    state = mps::CNNConvolutionWeightsAndBiasesState::create(device, descriptor_);
    for (const std::size_t length : {in * out, out}) {
      momentum_.push_back(port::zeros(device, length));
      velocity_.push_back(port::zeros(device, length));
    }
  }
  mps::DataType dataType() const override { return mps::DataType::Float32; }
  mps::CNNConvolutionDescriptor descriptor() const override { return descriptor_; }
  std::span<const std::byte> weights() const override { return std::as_bytes(std::span(weights_)); }
  std::span<const float> biasTerms() const override { return biases_; }
  bool load() override { return true; }
  void purge() override {}
  std::string label() const override { return label_; }
  std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<mps::CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    optimizer_->encode(commandBuffer, gradientState, sourceState, momentum_, velocity_, state);
    return state;
  }
  std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState> state;
  Values weightValues() const { return {weights_.begin(), weights_.end()}; }
  Values biasValues() const { return {biases_.begin(), biases_.end()}; }

 private:
  mps::CNNConvolutionDescriptor descriptor_;
  std::string label_;
  Optimizer optimizer_;
  std::vector<float> weights_, biases_;
  std::vector<std::shared_ptr<mps::Vector>> momentum_, velocity_;
};

/// One layer in float64 with its momentum and velocity.
struct Layer {
  std::size_t in, out;
  Values weights, biases, m, u, gradient;

  explicit Layer(const DataSource& source)
      : in(source.descriptor().inputFeatureChannels()),
        out(source.descriptor().outputFeatureChannels()),
        weights(source.weightValues()),
        biases(source.biasValues()),
        m(weights.size() + out),
        u(m.size()),
        gradient(m.size()) {}
  Values forward(const Values& x) const {
    Values y = biases;
    for (std::size_t k = 0; k < out; ++k)
      for (std::size_t i = 0; i < in; ++i) y[k] += weights[k * in + i] * x[i];
    return y;
  }
  Values backward(const Values& x, const Values& dY) {
    Values dX(in);
    for (std::size_t k = 0; k < out; ++k) {
      for (std::size_t i = 0; i < in; ++i) {
        dX[i] += weights[k * in + i] * dY[k];
        gradient[k * in + i] += dY[k] * x[i];
      }
      gradient[weights.size() + k] += dY[k];
    }
    return dX;
  }
  /// @param t the time step of the optimiser that all layers share
  void update(int t) {
    const double rate =
        static_cast<double>(learningRate) * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t));
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      double& value = i < weights.size() ? weights[i] : biases[i - weights.size()];
      const double clipped = std::clamp(gradient[i], -static_cast<double>(clip), static_cast<double>(clip));
      const double g = clipped + static_cast<double>(decay) * value;
      m[i] = 0.9 * m[i] + 0.1 * g;
      u[i] = 0.999 * u[i] + 0.001 * g * g;
      value -= rate * m[i] / (std::sqrt(u[i]) + 1e-8);
    }
  }
};

Values softMax(const Values& x) {
  Values y(x.size());
  double sum = 0;
  for (std::size_t k = 0; k < x.size(); ++k) sum += y[k] = std::exp(x[k]);
  for (double& value : y) value /= sum;
  return y;
}
Values softMaxGradient(const Values& y, const Values& dY) {
  double dot = 0;
  for (std::size_t k = 0; k < y.size(); ++k) dot += y[k] * dY[k];
  Values dX(y.size());
  for (std::size_t k = 0; k < y.size(); ++k) dX[k] = y[k] * (dY[k] - dot);
  return dX;
}

/// The training in float64. The gradients are those before clipping.
struct Reference {
  Layer first, second;
  int t = 0;
  Values lossGradient;  ///< of the last image

  double step(const std::vector<std::vector<float>>& images, const std::vector<std::size_t>& truths) {
    double loss = 0;
    std::fill(first.gradient.begin(), first.gradient.end(), 0);
    std::fill(second.gradient.begin(), second.gradient.end(), 0);
    for (std::size_t n = 0; n < images.size(); ++n) {
      const Values x(images[n].begin(), images[n].end());
      Values h = first.forward(x);
      for (double& value : h) value = std::clamp(0.2 * value + 0.5, 0.0, 1.0);
      const Values s = softMax(second.forward(h));
      // The loss contains a softmax of its own.
      Values gradient = softMax(s);
      loss -= std::log(gradient[truths[n]]);
      gradient[truths[n]] -= 1;
      lossGradient = gradient;
      Values dH = second.backward(h, softMaxGradient(s, gradient));
      for (std::size_t i = 0; i < dH.size(); ++i) dH[i] *= h[i] > 0 && h[i] < 1 ? 0.2 : 0;
      first.backward(x, dH);
    }
    // Backwards, as the graph comes by: the last layer first.
    second.update(++t);
    first.update(++t);
    return loss;
  }
};

void compare(std::span<const float> found, std::span<const double> expected, double tolerance,
             const std::string& what) {
  port::check(found.size() >= expected.size(), what + " is too short");
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i)
    port::near(static_cast<double>(found[i]), expected[i], tolerance, what + " " + std::to_string(i));
}

void train() {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  const auto adam = mps::NNOptimizerAdam::create(
      device, 0.9, 0.999, 1e-8F, 0,
      mps::NNOptimizerDescriptor::optimizerDescriptor(learningRate, 1, true, clip, -clip,
                                                      mps::NNRegularizationType::L2, decay));
  const auto source1 = std::make_shared<DataSource>(device, inputs, hidden, "fc1", adam);
  const auto source2 = std::make_shared<DataSource>(device, hidden, classes, "fc2", adam);
  Reference reference{Layer(*source1), Layer(*source2), 0, {}};

  const auto input = mps::NNImageNode::create(nullptr);
  const auto fc1 = mps::CNNFullyConnectedNode::create(input, source1);
  const auto neuron = mps::CNNNeuronHardSigmoidNode::create(fc1->resultImage());
  const auto fc2 = mps::CNNFullyConnectedNode::create(neuron->resultImage(), source2);
  const auto softMaxNode = mps::CNNSoftMaxNode::create(fc2->resultImage());
  const auto loss = mps::CNNLossNode::create(
      softMaxNode->resultImage(),
      mps::CNNLossDescriptor::create(mps::CNNLossType::SoftMaxCrossEntropy, mps::CNNReductionType::Sum));
  // The result of the loss node is the gradient.
  loss->resultImage()->setExportFromGraph(true);
  loss->resultImage()->setSynchronizeResource(true);
  loss->resultImage()->setImageAllocator(mps::Image::defaultAllocator());
  const std::array<std::shared_ptr<mps::CNNFullyConnectedNode>, 2> layers{fc1, fc2};
  for (const auto& layer : layers) {
    layer->resultState()->setExportFromGraph(true);
    layer->resultState()->setSynchronizeResource(true);
  }
  const auto graph = mps::NNGraph::create(device, loss->trainingGraph(nullptr).at(0)->resultImage(), false);

  port::Random random(31);
  double first = 0, latest = 0;
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<std::vector<float>> pixels;
    std::vector<std::size_t> truths;
    std::vector<std::shared_ptr<mps::Image>> images;
    std::vector<std::shared_ptr<mps::CNNLossLabels>> labels;
    for (std::size_t n = 0; n < batchSize; ++n) {
      pixels.push_back(random.floats(inputs, -1, 1));
      truths.push_back(pixels.back()[0] > 0 ? 1 : 2);
      images.push_back(mps::Image::create(device, port::floatImage(1, 1, inputs)));
      images.back()->writeBytes(pixels.back(), port::pixelsFirst);
      std::vector<float> label(classes);
      label[truths.back()] = 1;
      labels.push_back(mps::CNNLossLabels::create(
          device, mps::CNNLossDataDescriptor::create(label, port::pixelsFirst, {1, 1, classes})));
    }
    const auto commandBuffer = queue->commandBuffer();
    std::vector<mps::ImageBatch> exportedImages;
    std::vector<mps::StateBatch> exportedStates;
    graph->encodeBatch(commandBuffer, {images}, {labels}, &exportedImages, &exportedStates);
    for (const auto& label : labels) label->synchronize(commandBuffer);
    source1->state->synchronize(commandBuffer);
    source2->state->synchronize(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();

    const std::string when = " in step " + std::to_string(step);
    latest = 0;
    std::vector<float> losses(batchSize);
    mps::CNNLossLabels::lossImages(labels).readBytes(losses, port::pixelsFirst);
    for (const float value : losses) latest += static_cast<double>(value);
    const double expected = reference.step(pixels, truths);
    port::near(latest, expected, 1e-4, "the loss" + when);
    if (step == 0) first = latest;

    // Two layers, two steps of their optimiser.
    port::check(adam->timeStep() == 2 * (step + 1),
                "the shared time step is " + std::to_string(adam->timeStep()) + when);
    port::check(exportedImages.size() == 1, "the gradient of the loss is exported");
    std::vector<float> gradient(classes);
    exportedImages.at(0)[batchSize - 1]->readBytes(gradient, port::pixelsFirst);
    compare(gradient, reference.lossGradient, 1e-5, "the loss node's result" + when);
    port::check(exportedStates.size() == 2, "two states are exported");
    for (const mps::StateBatch& batch : exportedStates) {
      const auto state = std::dynamic_pointer_cast<mps::CNNConvolutionGradientState>(batch.sharedState());
      port::check(state != nullptr, "the exported state is a convolution's");
      const bool isFirst = state->convolution()->inputFeatureChannels() == inputs;
      const Layer& layer = isFirst ? reference.first : reference.second;
      compare(state->gradientForWeights()->contentsAs<const float>(),
              std::span(layer.gradient).first(layer.weights.size()), 1e-4, "gradient of the weights" + when);
      compare(state->gradientForBiases()->contentsAs<const float>(),
              std::span(layer.gradient).subspan(layer.weights.size()), 1e-4, "gradient of the biases" + when);
    }
    for (const auto& [source, layer] :
         {std::pair{source1, &reference.first}, std::pair{source2, &reference.second}}) {
      compare(source->state->weights()->contentsAs<const float>(), layer->weights, 1e-3, "weights" + when);
      compare(source->state->biases()->contentsAs<const float>(), layer->biases, 1e-3, "biases" + when);
    }
  }
  port::check(latest < 0.95 * first,
              "the loss fell from " + std::to_string(first) + " to " + std::to_string(latest));
}

}  // namespace

int main() {
  return port::run(train);
}
