// Training without a graph: kernels, gradient kernels and states, one command buffer for each step, read counts by hand. The
// gradients of a step are compared with central differences of the same network in float64.

#include <algorithm>
#include <functional>

#include "tests/ports/port.hpp"

namespace {

constexpr std::size_t side = 6;
constexpr std::size_t channels = 4;
constexpr std::size_t classes = 3;
constexpr std::size_t batchSize = 2;
constexpr float keep = 0.75F;

using Values = std::vector<double>;

class Weights : public mps::CNNConvolutionDataSource {
 public:
  Weights(const std::shared_ptr<mtl::Device>& device, const mps::CNNConvolutionDescriptor& descriptor,
          std::uint64_t seed, double most)
      : descriptor_(descriptor) {
    port::Random random(seed);
    weightBuffer_ = port::bufferOf(device, random.floats(descriptor.weightCount(), -most, most));
    biasBuffer_ = port::bufferOf(device, random.floats(descriptor.outputFeatureChannels(), -0.1, 0.1));
  }
  mps::DataType dataType() const override { return mps::DataType::Float32; }
  mps::CNNConvolutionDescriptor descriptor() const override { return descriptor_; }
  std::span<const std::byte> weights() const override {
    return {weightBuffer_->contents(), weightBuffer_->length()};
  }
  std::span<const float> biasTerms() const override { return biasBuffer_->contentsAs<const float>(); }
  bool load() override { return true; }
  void purge() override {}

  const std::shared_ptr<mtl::Buffer>& weightBuffer() const { return weightBuffer_; }
  const std::shared_ptr<mtl::Buffer>& biasBuffer() const { return biasBuffer_; }

 private:
  mps::CNNConvolutionDescriptor descriptor_;
  std::shared_ptr<mtl::Buffer> weightBuffer_, biasBuffer_;
};

/// The parameters in float64.
struct Parameters {
  Values convolution, convolutionBias, dense, denseBias;
};

/// One image through the same network in float64: convolution 3x3 with ReLU, maximum 2x2 with stride 1 and "same" padding,
/// dropout with a given mask, fully connected, softmax, squared error.
double lossOf(const Parameters& parameters, const std::vector<float>& image,
              const std::vector<std::byte>& mask, const std::vector<float>& target) {
  Values relu(side * side * channels);
  for (std::size_t y = 0; y < side; ++y)
    for (std::size_t x = 0; x < side; ++x)
      for (std::size_t k = 0; k < channels; ++k) {
        double sum = parameters.convolutionBias[k];
        for (std::size_t q = 0; q < 3; ++q)
          for (std::size_t p = 0; p < 3; ++p) {
            if (y + q < 1 || x + p < 1 || y + q > side || x + p > side) continue;
            sum += parameters.convolution[(k * 3 + q) * 3 + p] *
                   static_cast<double>(image[(y + q - 1) * side + x + p - 1]);
          }
        relu[(y * side + x) * channels + k] = std::max(sum, 0.0);
      }
  // TensorFlow's SAME puts the odd row and column at the bottom and the right.
  Values dropped(relu.size());
  for (std::size_t y = 0; y < side; ++y)
    for (std::size_t x = 0; x < side; ++x)
      for (std::size_t k = 0; k < channels; ++k) {
        double most = -1;
        for (std::size_t v = y; v < std::min(y + 2, side); ++v)
          for (std::size_t u = x; u < std::min(x + 2, side); ++u)
            most = std::max(most, relu[(v * side + u) * channels + k]);
        const std::size_t at = (y * side + x) * channels + k;
        dropped[at] = mask[at] == std::byte{1} ? most / static_cast<double>(keep) : 0;
      }
  Values exponentials(classes);
  double sum = 0;
  for (std::size_t k = 0; k < classes; ++k) {
    double logit = parameters.denseBias[k];
    for (std::size_t i = 0; i < dropped.size(); ++i)
      logit += parameters.dense[k * dropped.size() + i] * dropped[i];
    sum += exponentials[k] = std::exp(logit);
  }
  double loss = 0;
  for (std::size_t k = 0; k < classes; ++k)
    loss += std::pow(exponentials[k] / sum - static_cast<double>(target[k]), 2.0);
  return loss;
}

class Network {
 public:
  explicit Network(const std::shared_ptr<mtl::Device>& device)
      : device_(device),
        convolutionWeights_(std::make_shared<Weights>(
            device, mps::CNNConvolutionDescriptor::create(3, 3, 1, channels), 5, 0.5)),
        denseWeights_(std::make_shared<Weights>(
            device, mps::CNNConvolutionDescriptor::create(side, side, channels, classes), 6, 0.2)),
        relu_(mps::CNNNeuron::create(device, reluDescriptor())),
        reluGradient_(mps::CNNNeuronGradient::create(device, reluDescriptor())) {
    convolution_ = mps::CNNConvolution::create(device, convolutionWeights_);
    convolutionGradient_ = mps::CNNConvolutionGradient::create(device, convolutionWeights_);
    convolutionGradient_->setGradientOption(mps::CNNConvolutionGradientOption::GradientWithWeightsAndBias);
    pool_ = mps::CNNPoolingMax::create(device, 2, 2, 1, 1);
    pool_->setPadding(mps::NNDefaultPadding::create(mps::NNPaddingMethod::SizeSame |
                                                    mps::NNPaddingMethod::AddRemainderToBottomRight));
    pool_->setEdgeMode(mps::ImageEdgeMode::Clamp);
    poolGradient_ = mps::CNNPoolingMaxGradient::create(device, 2, 2, 1, 1);
    dropout_ = mps::CNNDropout::create(device, keep, 17);
    dropoutGradient_ = mps::CNNDropoutGradient::create(device, keep, 17);
    dense_ = mps::CNNFullyConnected::create(device, denseWeights_);
    denseGradient_ = mps::CNNFullyConnectedGradient::create(device, denseWeights_);
    softMax_ = mps::CNNSoftMax::create(device);
    softMaxGradient_ = mps::CNNSoftMaxGradient::create(device);
    loss_ = mps::CNNLoss::create(device, mps::CNNLossDescriptor::create(mps::CNNLossType::MeanSquaredError,
                                                                        mps::CNNReductionType::Sum));
    for (const auto& weights : {convolutionWeights_, denseWeights_}) {
      momentum_.push_back({port::zeros(device, weights->descriptor().weightCount()),
                           port::zeros(device, weights->descriptor().outputFeatureChannels())});
      optimizers_.push_back(mps::NNOptimizerStochasticGradientDescent::create(
          device, 0.9F, false,
          mps::NNOptimizerDescriptor::create(0.02F, 1, mps::NNRegularizationType::None, 0)));
    }
  }

  /// One step. @return the states of the two layers with weights, whose gradients the caller may look at
  std::pair<mps::StateBatch, mps::StateBatch> encode(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const mps::ImageBatch& images,
      const std::vector<std::shared_ptr<mps::CNNLossLabels>>& labels, bool updates) {
    // A program sizes the first result itself and makes the states beforehand.
    const auto descriptor = convolution_->destinationImageDescriptor({images[0]}, nullptr);
    const auto x1 = mps::ImageBatch::createTemporary(commandBuffer, descriptor, images.size());
    const auto convolutionState = convolution_->resultStateBatch(images, nullptr, nullptr);
    convolution_->encodeBatch(commandBuffer, images, convolutionState, x1);
    // x1 is read by the ReLU and once more by its gradient.
    mps::ImageBatchIncrementReadCount(x1, 1);
    const auto reluStates = relu_->temporaryResultStateBatch(commandBuffer, x1);
    const auto x2 = mps::ImageBatch::createTemporary(commandBuffer, descriptor, images.size());
    relu_->encodeBatch(commandBuffer, x1, reluStates, x2);
    for (const auto& image : x2) {
      const auto temporary = std::dynamic_pointer_cast<mps::TemporaryImage>(image);
      temporary->setReadCount(temporary->readCount() + 1);
    }
    mps::StateBatch poolStates, softMaxStates, denseState;
    const auto x3 = pool_->encodeBatch(commandBuffer, x2, poolStates, true);
    mps::ImageBatchIncrementReadCount(x3, 1);
    const auto x4 = dropout_->encodeBatch(commandBuffer, x3, dropoutStates_, false);
    mps::ImageBatchIncrementReadCount(x4, 1);
    const auto x5 = dense_->encodeBatch(commandBuffer, x4, denseState, false);
    const auto x6 = softMax_->encodeBatch(commandBuffer, x5, softMaxStates, true);
    // The softmax gradient takes the forward result as its source image.
    mps::ImageBatchIncrementReadCount(x6, 1);

    const auto d6 = loss_->encodeBatch(commandBuffer, x6, labels);
    const auto d5 = softMaxGradient_->encodeBatch(commandBuffer, d6, x6, softMaxStates);
    const auto d4 = denseGradient_->encodeBatch(commandBuffer, d5, x4, denseState);
    const auto d3 = dropoutGradient_->encodeBatch(commandBuffer, d4, x3, dropoutStates_);
    const auto d2 = poolGradient_->encodeBatch(commandBuffer, d3, x2, poolStates);
    const auto d1 = reluGradient_->encodeBatch(commandBuffer, d2, x1, reluStates);
    const auto d0 = convolutionGradient_->encodeBatch(commandBuffer, d1, images, convolutionState);
    mps::ImageBatchIncrementReadCount(d0, -1);  // nobody reads the gradient of the pictures

    mps::StateBatchSynchronize(convolutionState, commandBuffer);
    mps::StateBatchSynchronize(denseState, commandBuffer);
    for (const auto& label : labels) label->synchronize(commandBuffer);
    if (updates) {
      update(commandBuffer, 0, convolutionState, *convolutionWeights_);
      update(commandBuffer, 1, denseState, *denseWeights_);
    }
    return {convolutionState, denseState};
  }

  std::vector<std::byte> maskOf(std::size_t image) const {
    return std::dynamic_pointer_cast<mps::CNNDropoutGradientState>(dropoutStates_[image])->maskData();
  }
  Parameters parameters() const {
    const auto values = [](const std::shared_ptr<mtl::Buffer>& buffer) {
      const auto floats = buffer->contentsAs<const float>();
      return Values(floats.begin(), floats.end());
    };
    return {values(convolutionWeights_->weightBuffer()), values(convolutionWeights_->biasBuffer()),
            values(denseWeights_->weightBuffer()), values(denseWeights_->biasBuffer())};
  }

 private:
  static mps::NNNeuronDescriptor reluDescriptor() {
    return mps::NNNeuronDescriptor::create(mps::CNNNeuronType::ReLU, 0);
  }
  /// The optimiser works on the arrays as vectors; then the kernels are reloaded.
  void update(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, std::size_t layer,
              const mps::StateBatch& state, const Weights& weights) {
    const auto gradients = std::static_pointer_cast<mps::CNNConvolutionGradientState>(state[0]);
    const auto vector = [](const std::shared_ptr<mtl::Buffer>& buffer) {
      return mps::Vector::create(
          buffer, mps::VectorDescriptor::create(buffer->length() / sizeof(float), mps::DataType::Float32));
    };
    const auto& optimizer = optimizers_[layer];
    optimizer->encode(commandBuffer, vector(gradients->gradientForWeights()), vector(weights.weightBuffer()),
                      momentum_[layer][0], vector(weights.weightBuffer()));
    optimizer->encode(commandBuffer, vector(gradients->gradientForBiases()), vector(weights.biasBuffer()),
                      momentum_[layer][1], vector(weights.biasBuffer()));
    const auto fresh =
        mps::CNNConvolutionWeightsAndBiasesState::create(weights.weightBuffer(), weights.biasBuffer());
    if (layer == 0) {
      convolution_->reloadWeightsAndBiases(commandBuffer, fresh);
      convolutionGradient_->reloadWeightsAndBiases(commandBuffer, fresh);
    } else {
      dense_->reloadWeightsAndBiases(commandBuffer, fresh);
      denseGradient_->reloadWeightsAndBiases(commandBuffer, fresh);
    }
  }

  std::shared_ptr<mtl::Device> device_;
  std::shared_ptr<Weights> convolutionWeights_, denseWeights_;
  std::shared_ptr<mps::CNNConvolution> convolution_;
  std::shared_ptr<mps::CNNConvolutionGradient> convolutionGradient_;
  std::shared_ptr<mps::CNNNeuron> relu_;
  std::shared_ptr<mps::CNNNeuronGradient> reluGradient_;
  std::shared_ptr<mps::CNNPoolingMax> pool_;
  std::shared_ptr<mps::CNNPoolingMaxGradient> poolGradient_;
  std::shared_ptr<mps::CNNDropout> dropout_;
  std::shared_ptr<mps::CNNDropoutGradient> dropoutGradient_;
  std::shared_ptr<mps::CNNFullyConnected> dense_;
  std::shared_ptr<mps::CNNFullyConnectedGradient> denseGradient_;
  std::shared_ptr<mps::CNNSoftMax> softMax_;
  std::shared_ptr<mps::CNNSoftMaxGradient> softMaxGradient_;
  std::shared_ptr<mps::CNNLoss> loss_;
  std::vector<std::shared_ptr<mps::NNOptimizerStochasticGradientDescent>> optimizers_;
  std::vector<std::vector<std::shared_ptr<mps::Vector>>> momentum_;
  mps::StateBatch dropoutStates_;
};

/// Every seventh gradient against a central difference of the float64 network.
void compare(const mps::StateBatch& states, Parameters parameters, Values Parameters::*weights,
             Values Parameters::*biases, const std::function<double(const Parameters&)>& loss,
             const std::string& layer) {
  const auto state = std::dynamic_pointer_cast<mps::CNNConvolutionGradientState>(states[0]);
  const auto difference = [&](double& parameter) {
    constexpr double h = 1e-6;
    const double before = parameter;
    parameter = before + h;
    const double above = loss(parameters);
    parameter = before - h;
    const double below = loss(parameters);
    parameter = before;
    return (above - below) / (2 * h);
  };
  const auto dWeights = state->gradientForWeights()->contentsAs<const float>();
  const auto dBiases = state->gradientForBiases()->contentsAs<const float>();
  for (std::size_t i = 0; i < dWeights.size(); i += 7)
    port::near(static_cast<double>(dWeights[i]), difference((parameters.*weights)[i]), 2e-5,
               layer + ": gradient of weight " + std::to_string(i));
  for (std::size_t i = 0; i < dBiases.size(); ++i)
    port::near(static_cast<double>(dBiases[i]), difference((parameters.*biases)[i]), 2e-5,
               layer + ": gradient of bias " + std::to_string(i));
}

void train() {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  Network network(device);

  port::Random random(3);
  std::vector<std::vector<float>> pixels, targets;
  std::vector<std::shared_ptr<mps::Image>> images;
  std::vector<std::shared_ptr<mps::CNNLossLabels>> labels;
  for (std::size_t n = 0; n < batchSize; ++n) {
    pixels.push_back(random.floats(side * side, -1, 1));
    targets.emplace_back(classes);
    targets.back()[n] = 1;
    images.push_back(mps::Image::create(device, port::floatImage(side, side, 1)));
    images.back()->writeBytes(pixels.back(), port::pixelsFirst);
    labels.push_back(mps::CNNLossLabels::create(
        device, mps::CNNLossDataDescriptor::create(targets.back(), port::pixelsFirst, {1, 1, classes})));
  }
  const auto lossImages = [&] {
    double sum = 0;
    for (const auto& label : labels) {
      std::vector<float> loss(1);
      label->lossImage()->readBytes(loss, port::pixelsFirst);
      sum += static_cast<double>(loss[0]);
    }
    return sum;
  };

  auto commandBuffer = queue->commandBuffer();
  const auto [convolutionState, denseState] = network.encode(commandBuffer, images, labels, false);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  port::check(commandBuffer->logs().empty(), "reads of temporary images are left over");
  const auto loss = [&](const Parameters& parameters) {
    double sum = 0;
    for (std::size_t n = 0; n < batchSize; ++n)
      sum += lossOf(parameters, pixels[n], network.maskOf(n), targets[n]);
    return sum;
  };
  const Parameters parameters = network.parameters();
  const double first = lossImages();
  port::near(first, loss(parameters), 1e-5, "the first loss");
  compare(convolutionState, parameters, &Parameters::convolution, &Parameters::convolutionBias, loss,
          "convolution");
  compare(denseState, parameters, &Parameters::dense, &Parameters::denseBias, loss, "dense");

  for (int step = 0; step < 60; ++step) {
    commandBuffer = queue->commandBuffer();
    network.encode(commandBuffer, images, labels, true);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }
  port::check(lossImages() < 0.05,
              "the loss fell from " + std::to_string(first) + " to " + std::to_string(lossImages()));
}

}  // namespace

int main() {
  return port::run(train);
}
