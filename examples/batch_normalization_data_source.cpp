// A data source of one's own for batch normalisation: scale factors and biases by Adam, running statistics by an optimiser that
// averages. docs/data-sources.md explains it.

#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "examples/synthetic_digits.hpp"
#include "unmetal.hpp"

namespace {

constexpr std::size_t batchSize = 32;
constexpr std::size_t channels = 8;

class NormalizationSource : public mps::CNNBatchNormalizationDataSource {
 public:
  explicit NormalizationSource(const std::shared_ptr<mtl::Device>& device) {
    const std::vector<float> ones(channels, 1);
    gamma_ = device->newBuffer(std::as_bytes(std::span(ones)));
    beta_ = device->newBuffer(channels * sizeof(float));
    mean_ = device->newBuffer(channels * sizeof(float));
    variance_ = device->newBuffer(std::as_bytes(std::span(ones)));
    gammaAndBeta_ = mps::CNNNormalizationGammaAndBetaState::create(gamma_, beta_);
    meanAndVariance_ = mps::CNNNormalizationMeanAndVarianceState::create(mean_, variance_);
    for (int i = 0; i < 2; ++i) {  // of gamma, of beta
      momentum_.push_back(mps::Vector::create(device, descriptor_));
      velocity_.push_back(mps::Vector::create(device, descriptor_));
    }
    adam_ = mps::NNOptimizerAdam::create(device, 0.005F);
    // v = v - rate (s + scale v) with rate -0.1 and scale -1: v = 0.9 v + 0.1 s
    average_ = mps::NNOptimizerStochasticGradientDescent::create(
        device, 0, false, mps::NNOptimizerDescriptor::create(-0.1F, 1, mps::NNRegularizationType::L2, -1));
  }

  std::size_t numberOfFeatureChannels() const override { return channels; }
  std::span<const float> gamma() const override { return gamma_->contentsAs<const float>(); }
  std::span<const float> beta() const override { return beta_->contentsAs<const float>(); }
  std::span<const float> mean() const override { return mean_->contentsAs<const float>(); }
  std::span<const float> variance() const override { return variance_->contentsAs<const float>(); }
  float epsilon() const override { return 1e-3F; }
  bool load() override { return true; }
  void purge() override {}

  // Called first: the averages take no read off the state.
  std::shared_ptr<mps::CNNNormalizationMeanAndVarianceState> updateMeanAndVariance(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<mps::CNNBatchNormalizationState>& state) override {
    const auto mean = mps::Vector::create(mean_, descriptor_);
    const auto variance = mps::Vector::create(variance_, descriptor_);
    average_->encode(commandBuffer, mps::Vector::create(state->mean(), descriptor_), mean, nullptr, mean);
    average_->encode(commandBuffer, mps::Vector::create(state->variance(), descriptor_), variance, nullptr,
                     variance);
    return meanAndVariance_;
  }
  // Called last: this encode takes it.
  std::shared_ptr<mps::CNNNormalizationGammaAndBetaState> updateGammaAndBeta(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<mps::CNNBatchNormalizationState>& state) override {
    adam_->encode(commandBuffer, state, momentum_, velocity_, nullptr, gammaAndBeta_);
    return gammaAndBeta_;
  }

  // Makes what the device has written readable.
  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
    gammaAndBeta_->synchronize(commandBuffer);
    meanAndVariance_->synchronize(commandBuffer);
  }

 private:
  mps::VectorDescriptor descriptor_ = mps::VectorDescriptor::create(channels, mps::DataType::Float32);
  std::shared_ptr<mtl::Buffer> gamma_, beta_, mean_, variance_;
  std::shared_ptr<mps::CNNNormalizationGammaAndBetaState> gammaAndBeta_;
  std::shared_ptr<mps::CNNNormalizationMeanAndVarianceState> meanAndVariance_;
  std::vector<std::shared_ptr<mps::Vector>> momentum_, velocity_;
  std::shared_ptr<mps::NNOptimizerAdam> adam_;
  std::shared_ptr<mps::NNOptimizerStochasticGradientDescent> average_;
};

}  // namespace

int main() {
  constexpr auto layout = mps::DataLayout::HeightxWidthxFeatureChannels;
  constexpr std::size_t side = SyntheticDigits::size;
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  const auto layer = [&](std::size_t kernel, std::size_t in, std::size_t out, const char* label) {
    return mps::TrainableConvolution::create(device,
                                             mps::CNNConvolutionDescriptor::create(kernel, kernel, in, out),
                                             label, in, mps::NNOptimizerAdam::create(device, 0.005F));
  };
  const auto source = std::make_shared<NormalizationSource>(device);
  const auto convolution =
      mps::CNNConvolutionNode::create(mps::NNImageNode::create(), layer(3, 1, channels, "convolution"));
  const auto normalization = mps::CNNBatchNormalizationNode::create(convolution->resultImage(), source);
  const auto relu = mps::CNNNeuronReLUNode::create(normalization->resultImage());
  const auto pool = mps::CNNPoolingMaxNode::create(relu->resultImage(), 2);
  const auto dense = mps::CNNFullyConnectedNode::create(
      pool->resultImage(), layer(side / 2, channels, SyntheticDigits::classes, "dense"));
  auto descriptor =
      mps::CNNLossDescriptor::create(mps::CNNLossType::SoftMaxCrossEntropy, mps::CNNReductionType::Sum);
  descriptor.setWeight(1.0F / batchSize);
  const auto loss = mps::CNNLossNode::create(dense->resultImage(), descriptor);
  const auto training =
      mps::NNGraph::create(device, loss->trainingGraph(nullptr).at(0)->resultImage(), false);
  // The same nodes without the loss normalise with the running statistics.
  const auto inference = mps::NNGraph::create(device, dense->resultImage());

  constexpr std::size_t steps = 150;
  const SyntheticDigits data(batchSize * (steps + 1), 5);
  const auto images =
      mps::ImageBatch::create(device, {mps::ImageFeatureChannelFormat::Float32, side, side, 1}, batchSize);
  const auto labels = mps::CNNLossLabels::createClassBatch(device, batchSize);
  const auto writeImages = [&](std::size_t step) {
    images.writeBytes(std::span(data.pixels).subspan(step * batchSize * side * side, batchSize * side * side),
                      layout);
  };
  for (std::size_t step = 0; step < steps; ++step) {
    writeImages(step);
    mps::CNNLossLabels::writeClassIndices(labels, {data.labels.data() + step * batchSize, batchSize});
    const auto commandBuffer = queue->commandBuffer();
    training->encodeBatch(commandBuffer, {images}, {labels});
    source->synchronize(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }

  writeImages(steps);
  inference->reloadFromDataSources();
  const auto commandBuffer = queue->commandBuffer();
  const auto logits = inference->encodeBatch(commandBuffer, {images});
  mps::ImageBatchSynchronize(logits, commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  std::vector<float> values(batchSize * SyntheticDigits::classes);
  logits.readBytes(values, layout);
  std::size_t right = 0;
  for (std::size_t i = 0; i < batchSize; ++i) {
    const float* scores = values.data() + i * SyntheticDigits::classes;
    std::size_t best = 0;
    for (std::size_t k = 1; k < SyntheticDigits::classes; ++k)
      if (scores[k] > scores[best]) best = k;
    right += best == data.labels[steps * batchSize + i] ? 1 : 0;
  }
  std::printf("%zu of %zu right; channel 0: running mean %.3f, variance %.3f\n", right, batchSize,
              static_cast<double>(source->mean()[0]), static_cast<double>(source->variance()[0]));
  return right > batchSize * 9 / 10 ? 0 : 1;
}
