// A generative adversarial network: generator and discriminator train in two graphs over the same data sources; while one of
// them trains the other is frozen.

#include <algorithm>
#include <functional>

#include "tests/ports/port.hpp"

namespace {

constexpr std::size_t batchSize = 32;
constexpr std::size_t noise = 2;
constexpr std::size_t coordinates = 2;

class DataSource : public mps::CNNConvolutionDataSource {
 public:
  DataSource(const std::shared_ptr<mtl::Device>& device, std::size_t in, std::size_t out, std::string label)
      : descriptor_(mps::CNNConvolutionDescriptor::create(1, 1, in, out)), label_(std::move(label)) {
    // Random weights of the device's own, as programs make them.
    const auto uniform = mps::MatrixRandomDistributionDescriptor::uniformDistributionDescriptor(-0.5F, 0.5F);
    const auto random =
        mps::MatrixRandomMTGP32::create(device, mps::DataType::Float32, in * 100 + out, uniform);
    const auto values =
        mps::Vector::create(device, mps::VectorDescriptor::create(in * out, mps::DataType::Float32));
    const auto commandBuffer = device->newCommandQueue()->commandBuffer();
    random->encode(commandBuffer, values);
    values->synchronize(commandBuffer);
    commandBuffer->commit();
    commandBuffer->waitUntilCompleted();
    weights_ = values->data();
    biases_ = device->newBuffer(out * sizeof(float));
    state_ = mps::CNNConvolutionWeightsAndBiasesState::create(weights_, biases_);
    for (const std::size_t length : {in * out, out}) {
      momentum_.push_back(port::zeros(device, length));
      velocity_.push_back(port::zeros(device, length));
    }
    optimizer_ = mps::NNOptimizerAdam::create(
        device, 0.5, 0.999, 1e-8F, 0,
        mps::NNOptimizerDescriptor(0.01F, 1, true, 1, -1, mps::NNRegularizationType::None, 0));
  }
  mps::DataType dataType() const override { return mps::DataType::Float32; }
  mps::CNNConvolutionDescriptor descriptor() const override { return descriptor_; }
  std::span<const std::byte> weights() const override { return {weights_->contents(), weights_->length()}; }
  std::span<const float> biasTerms() const override { return biases_->contentsAs<const float>(); }
  bool load() override { return true; }
  void purge() override {}
  std::string label() const override { return label_; }
  std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<mps::CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    if (isFrozen) return nullptr;
    optimizer_->encode(commandBuffer, gradientState, sourceState, momentum_, velocity_, state_);
    state_->synchronize(commandBuffer);
    return state_;
  }
  bool isFrozen = false;

 private:
  mps::CNNConvolutionDescriptor descriptor_;
  std::string label_;
  std::shared_ptr<mtl::Buffer> weights_, biases_;
  std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState> state_;
  std::vector<std::shared_ptr<mps::Vector>> momentum_, velocity_;
  std::shared_ptr<mps::NNOptimizerAdam> optimizer_;
};

using Source = std::shared_ptr<DataSource>;
using Nodes = std::vector<std::shared_ptr<mps::NNFilterNode>>;

/// Layers with a neuron after each, in order.
struct Network {
  std::vector<Source> layers;
  bool endsWithNeuron;

  Nodes nodes(std::shared_ptr<mps::NNImageNode> image) const {
    Nodes made;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      made.push_back(mps::CNNFullyConnectedNode::create(image, layers[i]));
      image = made.back()->resultImage();
      if (i + 1 == layers.size() && !endsWithNeuron) break;
      if (i + 1 == layers.size())
        made.push_back(mps::CNNNeuronTanHNode::create(image));
      else
        made.push_back(mps::CNNNeuronReLUNode::create(image, 0.2F));
      image = made.back()->resultImage();
    }
    return made;
  }
  void freeze(bool freezes) const {
    for (const auto& layer : layers) layer->isFrozen = freezes;
  }
  std::vector<std::byte> weights() const {
    std::vector<std::byte> all;
    for (const auto& layer : layers) {
      all.insert(all.end(), layer->weights().begin(), layer->weights().end());
      const auto biases = std::as_bytes(layer->biasTerms());
      all.insert(all.end(), biases.begin(), biases.end());
    }
    return all;
  }
};

/// The gradients of all nodes, backwards, by hand. @return the last one
std::shared_ptr<mps::NNImageNode> backwards(const Nodes& nodes, std::shared_ptr<mps::NNImageNode> gradient) {
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node)
    gradient = (*node)->gradientFilter(gradient)->resultImage();
  return gradient;
}

mps::CNNLossDescriptor lossDescriptor() {
  auto descriptor =
      mps::CNNLossDescriptor::create(mps::CNNLossType::SigmoidCrossEntropy, mps::CNNReductionType::Mean);
  descriptor.setWeight(1.0F / batchSize);
  return descriptor;
}

mps::StateBatch labels(const std::shared_ptr<mtl::Device>& device, float truth) {
  std::vector<std::shared_ptr<mps::CNNLossLabels>> made;
  for (std::size_t i = 0; i < batchSize; ++i)
    made.push_back(mps::CNNLossLabels::create(
        device, mps::CNNLossDataDescriptor::create(std::span(&truth, 1), port::planesFirst, {1, 1, 1})));
  return made;
}

void train() {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  const Network generator{{std::make_shared<DataSource>(device, noise, 16, "g1"),
                           std::make_shared<DataSource>(device, 16, coordinates, "g2")},
                          true};
  const Network discriminator{{std::make_shared<DataSource>(device, coordinates, 16, "d1"),
                               std::make_shared<DataSource>(device, 16, 1, "d2")},
                              false};

  const auto z = mps::NNImageNode::create(nullptr);
  const Nodes generatorNodes = generator.nodes(z);
  const auto generation = mps::NNGraph::create(device, generatorNodes.back()->resultImage());

  // The discriminator on pictures, real or made.
  const Nodes discriminatorNodes = discriminator.nodes(mps::NNImageNode::create(nullptr));
  const auto judgement = mps::CNNLossNode::create(discriminatorNodes.back()->resultImage(), lossDescriptor());
  const auto discriminating =
      mps::NNGraph::create(device, backwards(discriminatorNodes, judgement->resultImage()), false);

  // The generator through the discriminator.
  const Nodes critics = discriminator.nodes(generatorNodes.back()->resultImage());
  const auto verdict = mps::CNNLossNode::create(critics.back()->resultImage(), lossDescriptor());
  const auto generating = mps::NNGraph::create(
      device, backwards(generatorNodes, backwards(critics, verdict->resultImage())), false);

  const auto real = mps::ImageBatch::create(device, port::floatImage(1, 1, coordinates), batchSize);
  const auto noises = mps::ImageBatch::create(device, port::floatImage(1, 1, noise), batchSize);
  const auto truth = labels(device, 1);
  const auto lie = labels(device, 0);
  const auto wish = labels(device, 1);
  port::Random random(1);
  const auto run = [&](const std::function<void(const std::shared_ptr<mtl::CommandBuffer>&)>& encode) {
    const auto commandBuffer = queue->commandBuffer();
    encode(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  };
  std::vector<float> made(batchSize * coordinates);
  const auto center = [&](std::size_t axis) {
    double sum = 0;
    for (std::size_t i = axis; i < made.size(); i += coordinates) sum += static_cast<double>(made[i]);
    return sum / batchSize;
  };
  const auto generate = [&] {
    noises.writeBytes(random.floats(batchSize * noise, -1, 1), port::pixelsFirst);
    mps::ImageBatch images;
    run([&](const auto& commandBuffer) {
      images = generation->encodeBatch(commandBuffer, {noises});
      mps::ImageBatchSynchronize(images, commandBuffer);
    });
    images.readBytes(made, port::pixelsFirst);
    return images;
  };

  double away = 0;
  for (int step = 0; step < 400; ++step) {
    // Real points lie around (0.5, -0.4).
    auto points = random.floats(batchSize * coordinates, -0.1, 0.1);
    for (std::size_t i = 0; i < points.size(); ++i) points[i] += i % 2 == 0 ? 0.5F : -0.4F;
    real.writeBytes(points, port::pixelsFirst);
    generation->reloadFromDataSources();
    const auto images = generate();
    if (step == 0) away = std::hypot(center(0) - 0.5, center(1) + 0.4);

    const auto generatorBefore = generator.weights();
    discriminator.freeze(false);
    run([&](const auto& commandBuffer) {
      discriminating->encodeBatch(commandBuffer, {real}, {truth});
      discriminating->encodeBatch(commandBuffer, {images}, {lie});
    });
    port::check(generator.weights() == generatorBefore, "the discriminator's step changed the generator");

    const auto discriminatorBefore = discriminator.weights();
    discriminator.freeze(true);
    generating->reloadFromDataSources();  // the other graph has the new discriminator
    run([&](const auto& commandBuffer) { generating->encodeBatch(commandBuffer, {noises}, {wish}); });
    port::check(discriminator.weights() == discriminatorBefore, "the frozen discriminator changed");
    port::check(generator.weights() != generatorBefore, "the generator did not change");
  }
  generation->reloadFromDataSources();
  double x = 0, y = 0;
  for (int i = 0; i < 8; ++i) {
    generate();
    x += center(0) / 8;
    y += center(1) / 8;
  }
  port::check(away > 0.3, "the generator begins elsewhere: " + std::to_string(away));
  port::near(x, 0.5, 0.15, "the middle of what is made, x");
  port::near(y, -0.4, 0.15, "the middle of what is made, y");
}

}  // namespace

int main() {
  return port::run(train);
}
