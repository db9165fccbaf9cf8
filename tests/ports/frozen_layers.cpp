// Regression with gradients chained by hand, one layer that the host updates, one that is frozen and one with plain momentum,
// whose host copy is purged. Everything is compared with the same training in float64.

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>

#include "tests/ports/port.hpp"

namespace {

constexpr std::size_t width = 5;
constexpr std::size_t height = 4;
constexpr std::size_t batchSize = 3;
constexpr float learningRate = 0.05F;

/// What the three data sources have in common.
class Layer : public mps::CNNConvolutionDataSource {
 public:
  Layer(std::size_t kernel, std::size_t in, std::size_t out, std::uint64_t seed)
      : descriptor_(mps::CNNConvolutionDescriptor::create(kernel, kernel, in, out)) {
    port::Random random(seed);
    weights_ = random.floats(out * kernel * kernel * in, -0.4, 0.4);
    biases_ = random.floats(out, -0.1, 0.1);
  }
  mps::DataType dataType() const override { return mps::DataType::Float32; }
  mps::CNNConvolutionDescriptor descriptor() const override { return descriptor_; }
  std::span<const std::byte> weights() const override { return std::as_bytes(std::span(weights_)); }
  std::span<const float> biasTerms() const override { return biases_; }
  bool load() override { return true; }
  void purge() override {}
  const std::vector<float>& weightValues() const { return weights_; }
  const std::vector<float>& biasValues() const { return biases_; }

 protected:
  mps::CNNConvolutionDescriptor descriptor_;
  std::vector<float> weights_, biases_;
};

/// Updated by the host, in the completion handler: only this form of update is there.
class HostLayer : public Layer {
 public:
  using Layer::Layer;
  std::string label() const override { return "host"; }
  bool update(const std::shared_ptr<mps::CNNConvolutionGradientState>& gradientState,
              const std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState>& /*sourceState*/) override {
    const auto dWeights = gradientState->gradientForWeights()->contentsAs<float>();
    const auto dBiases = gradientState->gradientForBiases()->contentsAs<float>();
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] -= learningRate * dWeights[i];
    for (std::size_t i = 0; i < biases_.size(); ++i) biases_[i] -= learningRate * dBiases[i];
    return true;
  }
};

/// Frozen: update returns nothing, and takes the reads off itself, as it would for the optimiser.
class FrozenLayer : public Layer {
 public:
  using Layer::Layer;
  std::string label() const override { return "frozen"; }
  std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
      const std::shared_ptr<mps::CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    ++calls;
    if (gradientState->isTemporary() && gradientState->readCount() > 0)
      gradientState->setReadCount(gradientState->readCount() - 1);
    if (sourceState->isTemporary() && sourceState->readCount() > 0)
      sourceState->setReadCount(sourceState->readCount() - 1);
    return nullptr;
  }
  std::size_t calls = 0;
};

/// Gradient descent without momentum vectors (nil). The weights are in a buffer; the host copy lives between load and purge.
class DeviceLayer : public Layer {
 public:
  DeviceLayer(const std::shared_ptr<mtl::Device>& device, std::size_t kernel, std::size_t in, std::size_t out,
              std::uint64_t seed)
      : Layer(kernel, in, out, seed), queue_(device->newCommandQueue()) {
    weightBuffer_ = port::bufferOf(device, weights_);
    biasBuffer_ = port::bufferOf(device, biases_);
    state_ = mps::CNNConvolutionWeightsAndBiasesState::create(weightBuffer_, biasBuffer_);
    optimizer_ = mps::NNOptimizerStochasticGradientDescent::create(device, learningRate);
    purge();
  }
  std::string label() const override { return "device"; }
  /// Copies the weights off the device and waits.
  bool load() override {
    ++loads;
    const auto commandBuffer = queue_->commandBuffer();
    state_->synchronize(commandBuffer);
    commandBuffer->commit();
    commandBuffer->waitUntilCompleted();
    const auto weights = weightBuffer_->contentsAs<float>();
    const auto biases = biasBuffer_->contentsAs<float>();
    weights_.assign(weights.begin(), weights.end());
    biases_.assign(biases.begin(), biases.end());
    return true;
  }
  void purge() override {
    ++purges;
    weights_.clear();
    weights_.shrink_to_fit();
    biases_.clear();
  }
  std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<mps::CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    // Raised beforehand, as some programs do: nothing may come of it.
    if (gradientState->isTemporary()) gradientState->setReadCount(gradientState->readCount() + 1);
    optimizer_->encode(commandBuffer, gradientState, sourceState, nullptr, state_);
    return state_;
  }
  std::size_t loads = 0, purges = 0;

 private:
  std::shared_ptr<mtl::CommandQueue> queue_;
  std::shared_ptr<mtl::Buffer> weightBuffer_, biasBuffer_;
  std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState> state_;
  std::shared_ptr<mps::NNOptimizerStochasticGradientDescent> optimizer_;
};

using Values = std::vector<double>;

/// A convolution in float64: 3 x 3 or 1 x 1, same size, zeros outside. Weights are [out][row][column][in].
struct Reference {
  std::size_t kernel, in, out;
  Values weights, biases;

  Reference(std::size_t kernelSize, std::size_t inChannels, std::size_t outChannels, const Layer& layer)
      : kernel(kernelSize),
        in(inChannels),
        out(outChannels),
        weights(layer.weightValues().begin(), layer.weightValues().end()),
        biases(layer.biasValues().begin(), layer.biasValues().end()) {}

  /// Calls visit(result index, source index, weight index) for every tap inside the image.
  template <class Visit>
  void forEachTap(Visit visit) const {
    const auto reach = static_cast<std::ptrdiff_t>(kernel / 2);
    for (std::size_t y = 0; y < height; ++y)
      for (std::size_t x = 0; x < width; ++x)
        for (std::size_t k = 0; k < out; ++k)
          for (std::size_t q = 0; q < kernel; ++q)
            for (std::size_t p = 0; p < kernel; ++p) {
              const auto v = static_cast<std::ptrdiff_t>(y + q) - reach;
              const auto u = static_cast<std::ptrdiff_t>(x + p) - reach;
              if (v < 0 || u < 0 || v >= static_cast<std::ptrdiff_t>(height) ||
                  u >= static_cast<std::ptrdiff_t>(width))
                continue;
              const std::size_t pixel = static_cast<std::size_t>(v) * width + static_cast<std::size_t>(u);
              for (std::size_t c = 0; c < in; ++c)
                visit((y * width + x) * out + k, pixel * in + c, ((k * kernel + q) * kernel + p) * in + c);
            }
  }
  Values forward(const Values& source) const {
    Values result(width * height * out);
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = biases[i % out];
    forEachTap([&](auto r, auto s, auto w) { result[r] += weights[w] * source[s]; });
    return result;
  }
  Values backward(const Values& gradient) const {
    Values result(width * height * in);
    forEachTap([&](auto r, auto s, auto w) { result[s] += weights[w] * gradient[r]; });
    return result;
  }
  void addGradients(const Values& source, const Values& gradient, Values& dWeights, Values& dBiases) const {
    dWeights.resize(weights.size());
    dBiases.resize(biases.size());
    forEachTap([&](auto r, auto s, auto w) { dWeights[w] += source[s] * gradient[r]; });
    for (std::size_t i = 0; i < gradient.size(); ++i) dBiases[i % out] += gradient[i];
  }
  void descend(const Values& dWeights, const Values& dBiases) {
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights[i] -= static_cast<double>(learningRate) * dWeights[i];
    for (std::size_t i = 0; i < biases.size(); ++i)
      biases[i] -= static_cast<double>(learningRate) * dBiases[i];
  }
};

/// The whole network in float64: host 3x3, tanh, frozen 3x3, absolute, device 1x1, weighted squared error.
struct ReferenceNetwork {
  Reference host, frozen, device;

  double step(const std::vector<Values>& images, const std::vector<Values>& targets, const Values& factors,
              double weight) {
    double loss = 0;
    Values hostWeights, hostBiases, deviceWeights, deviceBiases;
    for (std::size_t n = 0; n < images.size(); ++n) {
      Values a = host.forward(images[n]);
      for (double& value : a) value = std::tanh(value);
      const Values b = frozen.forward(a);
      Values c = b;
      for (double& value : c) value = std::abs(value);
      const Values y = device.forward(c);
      Values dY(y.size());
      for (std::size_t i = 0; i < y.size(); ++i) {
        const double difference = y[i] - targets[n][i];
        loss += weight * factors[i] * difference * difference;
        dY[i] = weight * factors[i] * 2 * difference;
      }
      device.addGradients(c, dY, deviceWeights, deviceBiases);
      Values dB = device.backward(dY);
      for (std::size_t i = 0; i < dB.size(); ++i) dB[i] *= b[i] < 0 ? -1 : 1;
      Values dA = frozen.backward(dB);
      for (std::size_t i = 0; i < dA.size(); ++i) dA[i] *= 1 - a[i] * a[i];
      host.addGradients(images[n], dA, hostWeights, hostBiases);
    }
    host.descend(hostWeights, hostBiases);
    device.descend(deviceWeights, deviceBiases);
    return loss;
  }
};

void compare(const std::vector<float>& found, const Values& expected, const std::string& what) {
  port::check(found.size() == expected.size(), what + " has another size");
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i)
    port::near(static_cast<double>(found[i]), expected[i], 2e-5, what + " " + std::to_string(i));
}

void train() {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  const auto host = std::make_shared<HostLayer>(3, 2, 4, 1);
  const auto frozen = std::make_shared<FrozenLayer>(3, 4, 4, 2);
  const auto last = std::make_shared<DeviceLayer>(device, 1, 4, 2, 3);
  last->load();
  ReferenceNetwork reference{Reference(3, 2, 4, *host), Reference(3, 4, 4, *frozen),
                             Reference(1, 4, 2, *last)};
  last->purge();

  const auto input = mps::NNImageNode::create();
  const auto conv1 = mps::CNNConvolutionNode::create(input, host);
  conv1->setTrainingStyle(mps::NNTrainingStyle::UpdateDeviceCPU);
  const auto tanh = mps::CNNNeuronTanHNode::create(conv1->resultImage());
  const auto conv2 = mps::CNNConvolutionNode::create(tanh->resultImage(), frozen);
  const auto absolute = mps::CNNNeuronAbsoluteNode::create(conv2->resultImage());
  const auto conv3 = mps::CNNConvolutionNode::create(absolute->resultImage(), last);
  auto descriptor =
      mps::CNNLossDescriptor::create(mps::CNNLossType::MeanSquaredError, mps::CNNReductionType::Sum);
  descriptor.setWeight(0.25F);
  const auto loss = mps::CNNLossNode::create(conv3->resultImage(), descriptor);

  const auto dConv3 = conv3->gradientFilter(loss->resultImage());
  const auto dAbsolute = absolute->gradientFilter(dConv3->resultImage());
  const auto dConv2 = conv2->gradientFilter({dAbsolute->resultImage()});
  const auto dTanh = tanh->gradientFilters(dConv2->resultImage()).at(0);
  const auto dConv1 = conv1->gradientFilter(dTanh->resultImage());
  const auto graph = mps::NNGraph::create(device, {dConv1->resultImage()}, {false});

  // Labels are made once and rewritten in place, step after step. The weights leave the first column out.
  std::vector<float> factors(width * height * 2, 1);
  for (std::size_t y = 0; y < height; ++y)
    for (std::size_t c = 0; c < 2; ++c) factors[y * width * 2 + c] = 0;
  const std::vector<float> blank(width * height * 2);
  const mtl::Size size{width, height, 2};
  std::vector<std::shared_ptr<mps::CNNLossLabels>> labels;
  for (std::size_t n = 0; n < batchSize; ++n)
    labels.push_back(mps::CNNLossLabels::create(
        device, {1, 1, 1}, mps::CNNLossDataDescriptor::create(blank, port::pixelsFirst, size),
        mps::CNNLossDataDescriptor::create(factors, port::pixelsFirst, size)));
  const auto images = mps::ImageBatch::create(device, port::floatImage(width, height, 2), batchSize);

  port::Random random(11);
  double first = 0, latest = 0;
  for (int step = 0; step < 12; ++step) {
    std::vector<Values> pixels, targets;
    for (std::size_t n = 0; n < batchSize; ++n) {
      const auto x = random.floats(width * height * 2, -1, 1);
      std::vector<float> t(x.size());
      for (std::size_t i = 0; i < t.size(); ++i) t[i] = 0.5F * x[i] + 0.25F;
      images[n]->writeBytes(x, port::pixelsFirst);
      labels[n]->labelsImage()->writeBytes(t, port::pixelsFirst);
      pixels.emplace_back(x.begin(), x.end());
      targets.emplace_back(t.begin(), t.end());
    }
    const auto commandBuffer = queue->commandBuffer();
    graph->encodeBatch(commandBuffer, {images}, {labels});
    for (const auto& label : labels) label->synchronize(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();

    latest = 0;
    for (const auto& label : labels) {
      float value = 0;
      label->lossImage()->readBytes(std::span(&value, 1), port::pixelsFirst);
      latest += static_cast<double>(value);
    }
    const double expected = reference.step(pixels, targets, Values(factors.begin(), factors.end()), 0.25);
    port::near(latest, expected, 1e-4 * expected, "the loss of step " + std::to_string(step));
    if (step == 0) first = latest;
  }
  port::check(latest < 0.6 * first,
              "the loss fell from " + std::to_string(first) + " to " + std::to_string(latest));
  port::check(frozen->calls == 12, "the frozen layer was not asked at every step");
  compare(host->weightValues(), reference.host.weights, "weight of the host's layer");
  compare(host->biasValues(), reference.host.biases, "bias of the host's layer");
  compare(frozen->weightValues(), reference.frozen.weights, "weight of the frozen layer");
  last->load();
  compare(last->weightValues(), reference.device.weights, "weight of the device's layer");
  compare(last->biasValues(), reference.device.biases, "bias of the device's layer");
  last->purge();
  // Ours are one more of each, by the constructor and by hand.
  port::check(last->loads + 1 == last->purges, "each load is balanced by a purge");
}

}  // namespace

int main() {
  return port::run(train);
}
