// A training that is archived half way and goes on elsewhere: data sources with NSCoding of their own, Adam's time step and
// vectors, instance normalisation, and inference with executeAsync.

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "tests/ports/port.hpp"

namespace {

constexpr std::size_t side = 4;
constexpr std::size_t channels = 4;
constexpr std::size_t batchSize = 5;

std::vector<float> floatsOf(const std::shared_ptr<mps::Vector>& vector) {
  const auto values = vector->data()->contentsAs<const float>();
  return {values.begin(), values.end()};
}
void fill(const std::shared_ptr<mtl::Buffer>& buffer, const std::vector<float>& values) {
  std::memcpy(buffer->contents(), values.data(), values.size() * sizeof(float));
  buffer->didModifyRange(0, buffer->length());
}

class DataSource : public mps::CNNConvolutionDataSource {
 public:
  DataSource(const std::shared_ptr<mtl::Device>& device, const mps::CNNConvolutionDescriptor& descriptor)
      : descriptor_(descriptor) {
    const std::size_t weights = descriptor.weightCount(), biases = descriptor.outputFeatureChannels();
    const double most = 1 / std::sqrt(static_cast<double>(descriptor.weightsPerOutputChannel()));
    weights_ = port::bufferOf(device, port::Random(weights).floats(weights, -most, most));
    biases_ = port::bufferOf(device, std::vector<float>(biases));
    state_ = mps::CNNConvolutionWeightsAndBiasesState::create(weights_, biases_);
    for (const std::size_t length : {weights, biases}) {
      momentum_.push_back(port::zeros(device, length));
      velocity_.push_back(port::zeros(device, length));
    }
    optimizer_ = mps::NNOptimizerAdam::create(device, 0.02F);
  }
  mps::DataType dataType() const override { return mps::DataType::Float32; }
  mps::CNNConvolutionDescriptor descriptor() const override { return descriptor_; }
  std::span<const std::byte> weights() const override { return {weights_->contents(), weights_->length()}; }
  std::span<const float> biasTerms() const override { return biases_->contentsAs<const float>(); }
  bool load() override { return true; }
  void purge() override {}
  std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<mps::CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    optimizer_->encode(commandBuffer, gradientState, sourceState, momentum_, velocity_, nullptr, state_);
    state_->synchronize(commandBuffer);
    for (const auto& vectors : {momentum_, velocity_})
      for (const auto& vector : vectors) vector->synchronize(commandBuffer);
    return state_;
  }
  std::size_t timeStep() const { return optimizer_->timeStep(); }

  std::string className() const override { return "MyDataSource"; }
  void encode(mps::Coder& coder) const override {
    coder.codeClass(className());
    coder.encode("descriptor", descriptor_);
    const auto weights = weights_->contentsAs<const float>();
    const auto biases = biases_->contentsAs<const float>();
    coder.encode("weights", std::vector<float>(weights.begin(), weights.end()));
    coder.encode("biases", std::vector<float>(biases.begin(), biases.end()));
    for (std::size_t i = 0; i < 2; ++i) {
      coder.encode("momentum" + std::to_string(i), floatsOf(momentum_[i]));
      coder.encode("velocity" + std::to_string(i), floatsOf(velocity_[i]));
    }
    coder.encode("timeStep", optimizer_->timeStep());
  }
  static std::shared_ptr<DataSource> decode(mps::Coder& coder, const std::shared_ptr<mtl::Device>& device) {
    coder.codeClass("MyDataSource");
    auto descriptor = mps::CNNConvolutionDescriptor::create(1, 1, 1, 1);
    coder.decode("descriptor", descriptor);
    auto source = std::make_shared<DataSource>(device, descriptor);
    const auto take = [&](const std::string& key, const std::shared_ptr<mtl::Buffer>& buffer) {
      std::vector<float> values;
      coder.decode(key, values);
      if (values.size() * sizeof(float) != buffer->length())
        coder.refuse(key, "another length", "the layer's");
      fill(buffer, values);
    };
    take("weights", source->weights_);
    take("biases", source->biases_);
    for (std::size_t i = 0; i < 2; ++i) {
      take("momentum" + std::to_string(i), source->momentum_[i]->data());
      take("velocity" + std::to_string(i), source->velocity_[i]->data());
    }
    std::size_t timeStep = 0;
    coder.decode("timeStep", timeStep);
    source->optimizer_->setTimeStep(timeStep);
    return source;
  }

 private:
  mps::CNNConvolutionDescriptor descriptor_;
  std::shared_ptr<mtl::Buffer> weights_, biases_;
  std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState> state_;
  std::vector<std::shared_ptr<mps::Vector>> momentum_, velocity_;
  std::shared_ptr<mps::NNOptimizerAdam> optimizer_;
};

/// Fixed scales: never updated, and not coded by itself.
class Normalization : public mps::CNNInstanceNormalizationDataSource {
 public:
  std::size_t numberOfFeatureChannels() const override { return channels; }
  std::span<const float> gamma() const override { return gamma_; }
  std::span<const float> beta() const override { return beta_; }
  float epsilon() const override { return 1e-3F; }

 private:
  std::vector<float> gamma_ = std::vector<float>(channels, 0.5F), beta_ = std::vector<float>(channels, 0.1F);
};

/// A picture whose pixel 5 is bright or dark.
std::vector<float> picture(port::Random& random) {
  std::vector<float> pixels = random.floats(side * side, -0.4, 0.4);
  pixels[5] = random(-1, 1) > 0 ? 1.0F : -1.0F;
  return pixels;
}

struct Nodes {
  std::shared_ptr<mps::NNImageNode> prediction, gradient;
};

Nodes network(const std::shared_ptr<DataSource>& convolution, const std::shared_ptr<DataSource>& dense) {
  const auto input = mps::NNImageNode::create(nullptr);
  const auto conv = mps::CNNConvolutionNode::create(input, convolution);
  const auto norm =
      mps::CNNInstanceNormalizationNode::create(conv->resultImage(), std::make_shared<Normalization>());
  norm->setTrainingStyle(mps::NNTrainingStyle::UpdateDeviceNone);
  const auto sigmoid = mps::CNNNeuronSigmoidNode::create(norm->resultImage());
  const auto dropout = mps::CNNDropoutNode::create(sigmoid->resultImage(), 0.9F, 77);
  const auto fc = mps::CNNFullyConnectedNode::create(dropout->resultImage(), dense);
  auto descriptor = mps::CNNLossDescriptor::create(mps::CNNLossType::Huber, mps::CNNReductionType::Mean);
  descriptor.setWeight(1.0F / batchSize);
  const auto loss = mps::CNNLossNode::create(fc->resultImage(), descriptor);
  // Without dropout.
  const auto inferred = mps::CNNFullyConnectedNode::create(sigmoid->resultImage(), dense);
  return {inferred->resultImage(), loss->trainingGraph(nullptr).at(0)->resultImage()};
}

class Training {
 public:
  Training(const std::shared_ptr<mtl::Device>& device, std::shared_ptr<mps::NNGraph> graph)
      : device_(device), queue_(device->newCommandQueue()), graph_(std::move(graph)) {}

  /// @param first number of the first step, which chooses its data
  std::vector<float> train(std::size_t first, std::size_t steps) {
    std::vector<float> all;
    for (std::size_t step = first; step < first + steps; ++step) {
      port::Random random(1000 + step);
      const auto images = mps::ImageBatch::create(device_, port::floatImage(side, side, 1), batchSize);
      std::vector<std::shared_ptr<mps::CNNLossLabels>> labels;
      std::vector<float> pixels;
      for (std::size_t n = 0; n < batchSize; ++n) {
        const auto one = picture(random);
        pixels.insert(pixels.end(), one.begin(), one.end());
        const float target = one[5];
        labels.push_back(mps::CNNLossLabels::create(
            device_,
            mps::CNNLossDataDescriptor::create(std::span(&target, 1), port::pixelsFirst, {1, 1, 1})));
      }
      images.writeBytes(pixels, port::pixelsFirst);
      const auto commandBuffer = queue_->commandBuffer();
      graph_->encodeBatch(commandBuffer, images, {labels});
      for (const auto& label : labels) label->synchronize(commandBuffer);
      commandBuffer->commit();
      commandBuffer->throwIfFailed();
      std::vector<float> losses(batchSize);
      mps::CNNLossLabels::lossImages(labels).readBytes(losses, port::pixelsFirst);
      all.insert(all.end(), losses.begin(), losses.end());
    }
    return all;
  }

 private:
  std::shared_ptr<mtl::Device> device_;
  std::shared_ptr<mtl::CommandQueue> queue_;
  std::shared_ptr<mps::NNGraph> graph_;
};

double mean(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

/// What the graph says of one picture, by way of the completion handler.
float predicted(mps::NNGraph& graph, const std::shared_ptr<mps::Image>& image) {
  std::mutex mutex;
  std::condition_variable done;
  bool isDone = false;
  float value = 0;
  const auto returned =
      graph.executeAsync({image}, [&](const std::shared_ptr<mps::Image>& result, const std::string& error) {
        const std::lock_guard lock(mutex);
        port::check(error.empty() && result != nullptr, "executeAsync failed: " + error);
        if (result) result->readBytes(std::span(&value, 1), port::pixelsFirst);
        isDone = true;
        done.notify_all();
      });
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return isDone; });
  port::check(returned != nullptr, "executeAsync returns the image that will be written");
  return value;
}

void trainAndArchive() {
  const auto device = mtl::createSystemDefaultDevice();
  const auto convolution =
      std::make_shared<DataSource>(device, mps::CNNConvolutionDescriptor::create(3, 3, 1, channels));
  const auto dense =
      std::make_shared<DataSource>(device, mps::CNNConvolutionDescriptor::create(side, side, channels, 1));
  const Nodes nodes = network(convolution, dense);
  const auto training = mps::NNGraph::create(device, nodes.gradient, false);
  const auto inference = mps::NNGraph::create(device, nodes.prediction);

  Training first(device, training);
  const auto firstLosses = first.train(0, 40);

  // Half way: training graph and weights in one archive, as bytes.
  mps::KeyedArchiver archiver;
  training->encode(archiver);
  const std::vector<std::byte> bytes = archiver.encodedData();
  mps::KeyedArchiver inferenceArchiver;
  inference->reloadFromDataSources();
  inference->encode(inferenceArchiver);
  const std::vector<std::byte> inferenceBytes = inferenceArchiver.encodedData();

  const auto straight = first.train(40, 40);
  port::check(mean(std::span(straight).last(25)) < 0.5 * mean(std::span(firstLosses).first(25)),
              "the loss fell from " + std::to_string(mean(std::span(firstLosses).first(25))) + " to " +
                  std::to_string(mean(std::span(straight).last(25))));

  std::vector<std::shared_ptr<DataSource>> decoded;
  const auto decoder = [&](mps::Coder& coder, const std::shared_ptr<mtl::Device>& on) {
    decoded.push_back(DataSource::decode(coder, on));
    return decoded.back();
  };
  mps::KeyedUnarchiver unarchiver(bytes, device);
  unarchiver.setDecoder("MyDataSource", decoder);
  const auto restored = mps::NNGraph::decode(unarchiver);
  port::check(decoded.size() == 2, "two data sources are in the archive");
  for (const auto& source : decoded) port::check(source->timeStep() == 40, "the time step is not 40");
  Training second(device, restored);
  port::check(second.train(40, 40) == straight, "the restored training goes on differently");

  // Inference half way, and after the training.
  mps::KeyedUnarchiver inferenceUnarchiver(inferenceBytes, device);
  inferenceUnarchiver.setDecoder("MyDataSource", decoder);
  const auto old = mps::NNGraph::decode(inferenceUnarchiver);
  const auto image = mps::Image::create(device, port::floatImage(side, side, 1));
  int right = 0;
  port::Random random(5);
  for (int i = 0; i < 20; ++i) {
    const auto one = picture(random);
    image->writeBytes(one, port::pixelsFirst);
    port::check(predicted(*inference, image) == predicted(*old, image),
                "the archived graph infers something else");
    right += (predicted(*inference, image) > 0) == (one[5] > 0) ? 1 : 0;
  }
  inference->reloadFromDataSources();
  port::check(predicted(*inference, image) != predicted(*old, image), "the reload has changed nothing");
  port::check(right >= 14, "of 20 pictures are judged right half way: " + std::to_string(right));
}

}  // namespace

int main() {
  return port::run(trainAndArchive);
}
