// A classifier of small pictures as most MPS programs have it: the loss node builds the gradient nodes, each layer has a
// data source with an Adam optimiser and momentum vectors of its own, two command buffers are in flight, and a second graph
// with the same nodes infers.

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>

#include "tests/ports/port.hpp"

namespace {

constexpr std::size_t side = 8;
constexpr std::size_t classes = 10;
constexpr std::size_t paddedClasses = 12;
constexpr std::size_t batchSize = 16;
constexpr std::size_t iterations = 60;

/// Weights in buffers that host, kernels and optimiser share.
class DataSource : public mps::CNNConvolutionDataSource {
 public:
  DataSource(const std::shared_ptr<mtl::Device>& device, std::size_t kernel, std::size_t in, std::size_t out,
             std::string name)
      : descriptor_(mps::CNNConvolutionDescriptor::create(kernel, kernel, in, out)), name_(std::move(name)) {
    const std::size_t weights = out * kernel * kernel * in;
    const double most = std::sqrt(6.0 / static_cast<double>(kernel * kernel * in));
    weights_ = port::bufferOf(device, port::Random(weights).floats(weights, -most, most));
    biases_ = port::bufferOf(device, std::vector<float>(out));
    for (const std::size_t length : {weights, out}) {
      momentum_.push_back(port::zeros(device, length));
      velocity_.push_back(port::zeros(device, length));
    }
    optimizer_ = mps::NNOptimizerAdam::create(
        device, 0.9, 0.999, 1e-8F, 0,
        mps::NNOptimizerDescriptor::create(0.01F, 1, mps::NNRegularizationType::None, 0));
    state_ = mps::CNNConvolutionWeightsAndBiasesState::create(weights_, biases_);
  }

  mps::DataType dataType() const override { return mps::DataType::Float32; }
  mps::CNNConvolutionDescriptor descriptor() const override { return descriptor_; }
  std::span<const std::byte> weights() const override { return {weights_->contents(), weights_->length()}; }
  std::span<const float> biasTerms() const override { return biases_->contentsAs<const float>(); }
  bool load() override { return true; }
  void purge() override {}
  std::string label() const override { return name_; }

  std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<mps::CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    optimizer_->encode(commandBuffer, gradientState, sourceState, momentum_, velocity_, nullptr, state_);
    ++updates_;
    port::check(optimizer_->timeStep() == updates_, name_ + ": the time step is not the number of updates");
    return state_;
  }

  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
    state_->synchronize(commandBuffer);
  }
  std::size_t updates() const { return updates_; }

 private:
  mps::CNNConvolutionDescriptor descriptor_;
  std::string name_;
  std::shared_ptr<mtl::Buffer> weights_, biases_;
  std::vector<std::shared_ptr<mps::Vector>> momentum_, velocity_;
  std::shared_ptr<mps::NNOptimizerAdam> optimizer_;
  std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState> state_;
  std::size_t updates_ = 0;
};

/// A bright spot whose place is the class, on noise; bytes, as picture files have them.
struct Example {
  std::vector<std::uint8_t> pixels;
  std::array<float, paddedClasses> label{};  // 10 classes, padded to a multiple of 4
  std::size_t truth = 0;
};

Example example(port::Random& random) {
  Example made;
  made.pixels.resize(side * side);
  for (auto& pixel : made.pixels) pixel = static_cast<std::uint8_t>(random(0, 90));
  made.truth = std::min<std::size_t>(static_cast<std::size_t>(random(0, classes)), classes - 1);
  made.label[made.truth] = 1;
  const std::size_t left = made.truth % 5 * 3 / 2;
  const std::size_t top = made.truth / 5 * 4 + static_cast<std::size_t>(random(0, 1.99));
  for (std::size_t y = top; y < top + 2; ++y)
    for (std::size_t x = left; x < left + 2; ++x) made.pixels[y * side + x] = 250;
  return made;
}

struct Batch {
  std::vector<std::shared_ptr<mps::Image>> images;
  std::vector<std::shared_ptr<mps::CNNLossLabels>> labels;
  std::vector<std::size_t> truths;
};

Batch batch(const std::shared_ptr<mtl::Device>& device, port::Random& random) {
  Batch made;
  const auto size = mps::ImageDescriptor(mps::ImageFeatureChannelFormat::Unorm8, side, side, 1);
  for (std::size_t i = 0; i < batchSize; ++i) {
    const Example one = example(random);
    auto image = mps::Image::create(device, size);
    image->writeBytes(one.pixels, port::pixelsFirst);
    made.images.push_back(image);
    const auto data = mps::CNNLossDataDescriptor::create(one.label, port::pixelsFirst, {1, 1, paddedClasses});
    made.labels.push_back(mps::CNNLossLabels::create(device, data));
    made.truths.push_back(one.truth);
  }
  return made;
}

class Classifier {
 public:
  explicit Classifier(const std::shared_ptr<mtl::Device>& device) : device_(device) {
    first_ = std::make_shared<DataSource>(device, 3, 1, 8, "conv1");
    second_ = std::make_shared<DataSource>(device, 3, 8, 16, "conv2");
    dense_ = std::make_shared<DataSource>(device, 2, 16, classes, "fc");

    const auto input = mps::NNImageNode::create(nullptr);
    const auto conv1 = mps::CNNConvolutionNode::create(input, first_);
    const auto relu1 = mps::CNNNeuronReLUNode::create(conv1->resultImage(), 0.1F);
    const auto pool1 = mps::CNNPoolingMaxNode::create(relu1->resultImage(), 2);
    const auto conv2 = mps::CNNConvolutionNode::create(pool1->resultImage(), second_);
    conv2->setPaddingPolicy(mps::NNDefaultPadding::create(mps::NNPaddingMethod::SizeSame |
                                                          mps::NNPaddingMethod::AddRemainderToBottomLeft));
    const auto relu2 = mps::CNNNeuronReLUNode::create(conv2->resultImage(), 0.1F);
    const auto pool2 = mps::CNNPoolingMaxNode::create(relu2->resultImage(), 2);
    const auto fc = mps::CNNFullyConnectedNode::create(pool2->resultImage(), dense_);

    auto lossDescriptor =
        mps::CNNLossDescriptor::create(mps::CNNLossType::SoftMaxCrossEntropy, mps::CNNReductionType::Sum);
    lossDescriptor.setWeight(1.0F / batchSize);  // the mean over the batch
    lossDescriptor.setNumberOfClasses(classes);
    const auto loss = mps::CNNLossNode::create(fc->resultImage(), lossDescriptor);
    loss->resultImage()->setFormat(mps::ImageFeatureChannelFormat::Float32);
    const auto ends = loss->trainingGraph(
        nullptr, [](const auto& gradientNode, const auto& inferenceNode, const auto&, const auto&) {
          gradientNode->resultImage()->setFormat(mps::ImageFeatureChannelFormat::Float32);
          if (inferenceNode) gradientNode->setLabel("d " + inferenceNode->label());
        });
    port::check(ends.size() == 1, "one chain of gradients has one end");
    training_ = mps::NNGraph::create(device, ends[0]->resultImage(), false);
    training_->setFormat(mps::ImageFeatureChannelFormat::Float16);
    // The same nodes, the same data sources.
    inference_ = mps::NNGraph::create(device, mps::CNNSoftMaxNode::create(fc->resultImage())->resultImage());
  }

  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const Batch& batch) {
    const auto result = training_->encodeBatch(commandBuffer, {batch.images}, {batch.labels});
    port::check(result.empty(), "a result that is not needed is not returned");
    for (const auto& label : batch.labels) label->lossImage()->synchronize(commandBuffer);
    for (const auto& layer : layers()) layer->synchronize(commandBuffer);
  }

  double accuracy(const std::shared_ptr<mtl::CommandQueue>& queue, const Batch& batch) {
    inference_->reloadFromDataSources();
    const auto commandBuffer = queue->commandBuffer();
    const auto result = inference_->encodeBatch(commandBuffer, {batch.images});
    mps::ImageBatchSynchronize(result, commandBuffer);
    commandBuffer->commit();
    commandBuffer->waitUntilCompleted();
    double right = 0;
    for (std::size_t i = 0; i < result.size(); ++i) {
      std::vector<float> probabilities(classes);
      result[i]->readBytes(probabilities, port::pixelsFirst);
      const auto best = std::max_element(probabilities.begin(), probabilities.end()) - probabilities.begin();
      right += static_cast<std::size_t>(best) == batch.truths[i] ? 1 : 0;
    }
    return right / static_cast<double>(batch.truths.size());
  }

  std::vector<std::shared_ptr<DataSource>> layers() const { return {first_, second_, dense_}; }
  std::string description() const { return training_->debugDescription(); }

 private:
  std::shared_ptr<mtl::Device> device_;
  std::shared_ptr<DataSource> first_, second_, dense_;
  std::shared_ptr<mps::NNGraph> training_, inference_;
};

double lossOf(const Batch& batch) {
  double sum = 0;
  for (const auto& label : batch.labels) {
    float loss = 0;
    label->lossImage()->readBytes(std::span(&loss, 1), port::pixelsFirst);
    sum += static_cast<double>(loss);
  }
  return sum;
}

/// What a training leaves.
struct Trained {
  std::vector<double> losses;
  std::vector<std::vector<std::byte>> weights;
  double accuracy = 0;
};

/// @param buffersInFlight how many command buffers are committed before the program waits for the first of them
Trained train(std::size_t buffersInFlight) {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  Classifier classifier(device);
  port::Random random(7);

  Trained trained;
  std::mutex mutex;
  std::condition_variable completed;
  std::size_t inFlight = 0;
  for (std::size_t i = 0; i < iterations; ++i) {
    {
      std::unique_lock lock(mutex);
      completed.wait(lock, [&] { return inFlight < buffersInFlight; });
      ++inFlight;
    }
    const auto commandBuffer = queue->commandBuffer();
    const auto data = batch(device, random);
    classifier.encode(commandBuffer, data);
    commandBuffer->addCompletedHandler([&, data](mtl::CommandBuffer& buffer) {
      port::check(!buffer.error(), "a command buffer failed");
      const double loss = lossOf(data);
      const std::lock_guard lock(mutex);
      trained.losses.push_back(loss);
      --inFlight;
      completed.notify_all();
    });
    commandBuffer->commit();
  }
  {
    std::unique_lock lock(mutex);
    completed.wait(lock, [&] { return inFlight == 0; });
  }
  for (const auto& layer : classifier.layers()) {
    port::check(layer->updates() == iterations, layer->label() + " was not updated once an iteration");
    trained.weights.emplace_back(layer->weights().begin(), layer->weights().end());
  }
  trained.accuracy = classifier.accuracy(queue, batch(device, random));
  const std::string description = classifier.description();
  for (const char* label : {"conv1", "conv2", "fc"})
    port::check(description.find(label) != std::string::npos,
                std::string("the graph's description does not name ") + label);
  return trained;
}

}  // namespace

int main() {
  return port::run([] {
    const Trained one = train(1);
    port::check(one.losses.size() == iterations, "each iteration reports its loss");
    // Ten classes that nothing is known of: ln 10.
    port::near(one.losses.front(), std::log(10.0), 0.6, "the first loss");
    port::check(one.losses.back() < 0.4, "the last loss is " + std::to_string(one.losses.back()));
    port::check(one.accuracy > 0.9, "the accuracy is " + std::to_string(one.accuracy));

    const Trained two = train(2);
    port::check(two.losses == one.losses, "two buffers in flight give other losses than one at a time");
    port::check(two.weights == one.weights, "two buffers in flight give other weights than one at a time");
  });
}
