// Batch normalisation with a data source of one's own: gamma and beta by Adam, the running statistics by gradient descent with a
// negative learning rate and a negative regularisation scale, both compared with float64.

#include <algorithm>

#include "tests/ports/port.hpp"

namespace {

constexpr std::size_t side = 4;
constexpr std::size_t channels = 3;
constexpr std::size_t batchSize = 8;
constexpr std::size_t steps = 40;
constexpr float momentum = 0.9F;
constexpr float epsilon = 1e-3F;

class Normalization : public mps::CNNBatchNormalizationDataSource {
 public:
  explicit Normalization(const std::shared_ptr<mtl::Device>& device) {
    gamma_ = port::bufferOf(device, std::vector<float>(channels, 1));
    beta_ = port::bufferOf(device, std::vector<float>(channels, 0));
    mean_ = port::bufferOf(device, std::vector<float>(channels, 0));
    variance_ = port::bufferOf(device, std::vector<float>(channels, 1));
    gammaAndBeta_ = mps::CNNNormalizationGammaAndBetaState::create(gamma_, beta_);
    meanAndVariance_ = mps::CNNNormalizationMeanAndVarianceState::create(mean_, variance_);
    for (std::size_t i = 0; i < 2; ++i) {
      momentumVectors_.push_back(port::zeros(device, channels));
      velocityVectors_.push_back(port::zeros(device, channels));
    }
    adam_ = mps::NNOptimizerAdam::create(device, 0.02F);
    // v = v - lr (s + scale v) with lr = -(1 - 0.9) and scale = -1 is v = 0.9 v + 0.1 s.
    average_ = mps::NNOptimizerStochasticGradientDescent::create(
        device, 0, false,
        mps::NNOptimizerDescriptor::create(-(1 - momentum), 1, mps::NNRegularizationType::L2, -1));
  }

  std::size_t numberOfFeatureChannels() const override { return channels; }
  std::span<const float> gamma() const override { return gamma_->contentsAs<const float>(); }
  std::span<const float> beta() const override { return beta_->contentsAs<const float>(); }
  std::span<const float> mean() const override { return mean_->contentsAs<const float>(); }
  std::span<const float> variance() const override { return variance_->contentsAs<const float>(); }
  bool load() override { return true; }
  void purge() override {}
  std::string label() const override { return "norm"; }
  float epsilon() const override { return ::epsilon; }

  /// The statistics first: the optimiser of gamma and beta takes the read of the state.
  std::shared_ptr<mps::CNNNormalizationMeanAndVarianceState> updateMeanAndVariance(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<mps::CNNBatchNormalizationState>& state) override {
    order_ += 's';
    const auto vector = [](const std::shared_ptr<mtl::Buffer>& buffer) {
      return mps::Vector::create(buffer, mps::VectorDescriptor::create(channels, mps::DataType::Float32));
    };
    const auto mean = vector(mean_);
    const auto variance = vector(variance_);
    average_->encode(commandBuffer, vector(state->mean()), mean, nullptr, mean);
    average_->encode(commandBuffer, vector(state->variance()), variance, nullptr, variance);
    return meanAndVariance_;
  }
  std::shared_ptr<mps::CNNNormalizationGammaAndBetaState> updateGammaAndBeta(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<mps::CNNBatchNormalizationState>& state) override {
    order_ += 'g';
    gradientForGamma = state->gradientForGamma();
    gradientForBeta = state->gradientForBeta();
    adam_->encode(commandBuffer, state, momentumVectors_, velocityVectors_, nullptr, gammaAndBeta_);
    return gammaAndBeta_;
  }

  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
    gammaAndBeta_->synchronize(commandBuffer);
    meanAndVariance_->synchronize(commandBuffer);
  }
  const std::string& order() const { return order_; }
  std::size_t timeStep() const { return adam_->timeStep(); }
  std::shared_ptr<mtl::Buffer> gradientForGamma, gradientForBeta;

 private:
  std::shared_ptr<mtl::Buffer> gamma_, beta_, mean_, variance_;
  std::shared_ptr<mps::CNNNormalizationGammaAndBetaState> gammaAndBeta_;
  std::shared_ptr<mps::CNNNormalizationMeanAndVarianceState> meanAndVariance_;
  std::vector<std::shared_ptr<mps::Vector>> momentumVectors_, velocityVectors_;
  std::shared_ptr<mps::NNOptimizerAdam> adam_;
  std::shared_ptr<mps::NNOptimizerStochasticGradientDescent> average_;
  std::string order_;
};

/// The same in float64.
struct Reference {
  std::vector<double> gamma = std::vector<double>(channels, 1), beta = std::vector<double>(channels, 0);
  std::vector<double> mean = std::vector<double>(channels, 0), variance = std::vector<double>(channels, 1);
  std::vector<double> m = std::vector<double>(2 * channels), u = std::vector<double>(2 * channels);
  std::vector<double> dGamma = std::vector<double>(channels), dBeta = std::vector<double>(channels);
  int t = 0;

  /// Squared error of the normalised images against the targets, and one update.
  double step(const std::vector<float>& images, const std::vector<float>& targets, double weight) {
    ++t;
    double loss = 0;
    const std::size_t pixels = images.size() / channels;
    for (std::size_t c = 0; c < channels; ++c) {
      double sum = 0, squares = 0;
      for (std::size_t i = c; i < images.size(); i += channels) sum += static_cast<double>(images[i]);
      const double batchMean = sum / static_cast<double>(pixels);
      for (std::size_t i = c; i < images.size(); i += channels)
        squares += std::pow(static_cast<double>(images[i]) - batchMean, 2.0);
      const double batchVariance = squares / static_cast<double>(pixels);
      const double scale = 1 / std::sqrt(batchVariance + static_cast<double>(epsilon));
      dGamma[c] = dBeta[c] = 0;
      for (std::size_t i = c; i < images.size(); i += channels) {
        const double h = (static_cast<double>(images[i]) - batchMean) * scale;
        const double difference = gamma[c] * h + beta[c] - static_cast<double>(targets[i]);
        loss += weight * difference * difference;
        dGamma[c] += weight * 2 * difference * h;
        dBeta[c] += weight * 2 * difference;
      }
      mean[c] = 0.9 * mean[c] + 0.1 * batchMean;
      variance[c] = 0.9 * variance[c] + 0.1 * batchVariance;
    }
    for (std::size_t c = 0; c < channels; ++c) {
      adam(gamma[c], dGamma[c], c);
      adam(beta[c], dBeta[c], channels + c);
    }
    return loss;
  }
  double inferred(float value, std::size_t c) const {
    return gamma[c] * (static_cast<double>(value) - mean[c]) /
               std::sqrt(variance[c] + static_cast<double>(epsilon)) +
           beta[c];
  }

 private:
  void adam(double& value, double gradient, std::size_t slot) {
    m[slot] = 0.9 * m[slot] + 0.1 * gradient;
    u[slot] = 0.999 * u[slot] + 0.001 * gradient * gradient;
    const double rate = 0.02 * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t));
    value -= rate * m[slot] / (std::sqrt(u[slot]) + 1e-8);
  }
};

void train() {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  const auto source = std::make_shared<Normalization>(device);
  Reference reference;

  const auto input = mps::NNImageNode::create(nullptr);
  const auto node = mps::CNNBatchNormalizationNode::create(input, source);
  auto descriptor =
      mps::CNNLossDescriptor::create(mps::CNNLossType::MeanSquaredError, mps::CNNReductionType::Sum);
  descriptor.setWeight(1.0F / (batchSize * side * side));
  const auto loss = mps::CNNLossNode::create(node->resultImage(), descriptor);
  const auto ends = loss->trainingGraph(nullptr);
  const auto training = mps::NNGraph::create(device, ends.at(0)->resultImage(), false);
  const auto inference = mps::NNGraph::create(device, node->resultImage());

  const auto images = mps::ImageBatch::create(device, port::floatImage(side, side, channels), batchSize);
  const auto targetImages =
      mps::ImageBatch::create(device, port::floatImage(side, side, channels), batchSize);
  const auto labels = mps::CNNLossLabels::createBatch(device, {1, 1, 1}, targetImages, nullptr);

  port::Random random(23);
  double first = 0, latest = 0;
  std::vector<float> pixels;
  for (std::size_t step = 0; step < steps; ++step) {
    pixels.clear();
    std::vector<float> targets;
    for (std::size_t i = 0; i < batchSize * side * side * channels; ++i) {
      const auto c = static_cast<double>(i % channels);
      const double value = random(-1, 1);
      pixels.push_back(static_cast<float>(3 * c + (1 + c) * value));
      targets.push_back(static_cast<float>(0.5 * value + 0.2 * c));
    }
    images.writeBytes(pixels, port::pixelsFirst);
    targetImages.writeBytes(targets, port::pixelsFirst);

    const auto commandBuffer = queue->commandBuffer();
    training->encodeBatch(commandBuffer, {images}, {labels});
    mps::StateBatchSynchronize(labels, commandBuffer);
    source->synchronize(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();

    latest = 0;
    std::vector<float> losses(batchSize);
    mps::CNNLossLabels::lossImages(labels).readBytes(losses, port::pixelsFirst);
    for (const float value : losses) latest += static_cast<double>(value);
    const double expected = reference.step(pixels, targets, 1.0 / (batchSize * side * side));
    port::near(latest, expected, 1e-4 * expected, "the loss of step " + std::to_string(step));
    for (std::size_t c = 0; c < channels; ++c) {
      const std::string channel = " of channel " + std::to_string(c) + " in step " + std::to_string(step);
      port::near(static_cast<double>(source->mean()[c]), reference.mean[c], 1e-4,
                 "the running mean" + channel);
      port::near(static_cast<double>(source->variance()[c]), reference.variance[c], 1e-4,
                 "the running variance" + channel);
      port::near(static_cast<double>(source->gamma()[c]), reference.gamma[c], 1e-3, "gamma" + channel);
      port::near(static_cast<double>(source->beta()[c]), reference.beta[c], 1e-3, "beta" + channel);
    }
    if (step == 0) first = latest;
  }
  port::check(latest < 0.3 * first,
              "the loss fell from " + std::to_string(first) + " to " + std::to_string(latest));
  std::string order;
  for (std::size_t step = 0; step < steps; ++step) order += "sg";
  port::check(source->order() == order,
              "the statistics are not asked for before gamma and beta: " + source->order());
  port::check(source->timeStep() == steps, "Adam's time step is not the number of steps");
  port::check(source->gradientForGamma && source->gradientForBeta, "the update saw no gradients");

  // The same node infers with the running statistics.
  inference->reloadFromDataSources();
  const auto commandBuffer = queue->commandBuffer();
  const auto result = inference->encodeBatch(commandBuffer, {images});
  mps::ImageBatchSynchronize(result, commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  std::vector<float> inferred(pixels.size());
  result.readBytes(inferred, port::pixelsFirst);
  for (std::size_t i = 0; i < pixels.size(); ++i)
    port::near(static_cast<double>(inferred[i]), reference.inferred(pixels[i], i % channels), 1e-2,
               "inferred value " + std::to_string(i));
}

}  // namespace

int main() {
  return port::run(train);
}
