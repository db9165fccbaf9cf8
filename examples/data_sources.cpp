// A data source of one's own: where a convolution's weights live, how they are updated, on the device or on the host, and how
// they are saved. docs/data-sources.md explains it.

#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "examples/synthetic_digits.hpp"
#include "unmetal.hpp"

namespace {

constexpr std::size_t batchSize = 32;

class ConvolutionSource : public mps::CNNConvolutionDataSource {
 public:
  ConvolutionSource(const std::shared_ptr<mtl::Device>& device,
                    const mps::CNNConvolutionDescriptor& descriptor, std::string label, std::uint32_t seed)
      : descriptor_(descriptor), label_(std::move(label)) {
    std::vector<float> initial(descriptor.weightCount());
    const float most = std::sqrt(6.0F / static_cast<float>(descriptor.weightsPerOutputChannel()));
    for (float& weight : initial) {
      seed = seed * 1664525U + 1013904223U;
      weight = most * (static_cast<float>(seed >> 8U) / static_cast<float>(1U << 23U) - 1);
    }
    weights_ = device->newBuffer(std::as_bytes(std::span(initial)));
    biases_ = device->newBuffer(descriptor.outputFeatureChannels() * sizeof(float));  // zeros
    state_ = mps::CNNConvolutionWeightsAndBiasesState::create(weights_, biases_);
    for (const auto& buffer : {weights_, biases_}) {
      const auto length =
          mps::VectorDescriptor::create(buffer->length() / sizeof(float), mps::DataType::Float32);
      momentum_.push_back(mps::Vector::create(device, length));
      velocity_.push_back(mps::Vector::create(device, length));
    }
    optimizer_ = mps::NNOptimizerAdam::create(device, 0.005F);
  }

  mps::DataType dataType() const override { return mps::DataType::Float32; }
  mps::CNNConvolutionDescriptor descriptor() const override { return descriptor_; }
  std::span<const std::byte> weights() const override { return {weights_->contents(), weights_->length()}; }
  std::span<const float> biasTerms() const override { return biases_->contentsAs<const float>(); }
  bool load() override { return true; }
  void purge() override {}
  std::string label() const override { return label_; }

  // On the device: record what changes the weights, and return the state that has the new ones.
  std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<mps::CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    if (isFrozen) return nullptr;
    optimizer_->encode(commandBuffer, gradientState, sourceState, momentum_, velocity_, nullptr, state_);
    return state_;
  }

  // On the host, when the command buffer has completed.
  bool update(const std::shared_ptr<mps::CNNConvolutionGradientState>& gradientState,
              const std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState>& /*sourceState*/) override {
    if (isFrozen) return false;
    descend(*weights_, gradientState->gradientForWeights()->contentsAs<const float>());
    descend(*biases_, gradientState->gradientForBiases()->contentsAs<const float>());
    return true;
  }
  bool isFrozen = false;

  // Makes what the device has written readable; commit and wait before save().
  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
    state_->synchronize(commandBuffer);
    for (const auto& vectors : {momentum_, velocity_})
      for (const auto& vector : vectors) vector->synchronize(commandBuffer);
  }

  void save(std::vector<mps::SafetensorsTensor>& tensors, mps::SafetensorsMetadata& metadata) const {
    for (const auto& [name, buffer] : arrays())
      tensors.push_back({name,
                         mps::DataType::Float32,
                         {buffer->length() / sizeof(float)},
                         {buffer->contents(), buffer->length()}});
    metadata[label_ + ".step"] = std::to_string(optimizer_->timeStep());
  }
  void read(const mps::SafetensorsFile& file) {
    for (const auto& [name, buffer] : arrays()) {
      const std::uint64_t shape[] = {buffer->length() / sizeof(float)};
      const auto& tensor = file.tensor(name, mps::DataType::Float32, shape);
      std::memcpy(buffer->contents(), tensor.bytes.data(), tensor.bytes.size());
      buffer->didModifyRange(0, buffer->length());
    }
    optimizer_->setTimeStep(std::stoul(file.metadata(label_ + ".step")));
  }

 private:
  static void descend(mtl::Buffer& values, std::span<const float> gradient) {
    const auto value = values.contentsAs<float>();
    for (std::size_t i = 0; i < value.size(); ++i) value[i] -= 0.05F * gradient[i];
    values.didModifyRange(0, values.length());
  }
  std::vector<std::pair<std::string, std::shared_ptr<mtl::Buffer>>> arrays() const {
    return {{label_ + ".weight", weights_},
            {label_ + ".bias", biases_},
            {label_ + ".weight.momentum", momentum_[0]->data()},
            {label_ + ".bias.momentum", momentum_[1]->data()},
            {label_ + ".weight.velocity", velocity_[0]->data()},
            {label_ + ".bias.velocity", velocity_[1]->data()}};
  }

  mps::CNNConvolutionDescriptor descriptor_;
  std::string label_;
  std::shared_ptr<mtl::Buffer> weights_, biases_;
  std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState> state_;
  std::vector<std::shared_ptr<mps::Vector>> momentum_, velocity_;
  std::shared_ptr<mps::NNOptimizerAdam> optimizer_;
};

/// A small classifier over two data sources.
class Network {
 public:
  explicit Network(const std::shared_ptr<mtl::Device>& device, mps::NNTrainingStyle style)
      : device_(device), queue_(device->newCommandQueue()) {
    convolution = std::make_shared<ConvolutionSource>(
        device, mps::CNNConvolutionDescriptor::create(3, 3, 1, 8), "convolution", 1);
    dense = std::make_shared<ConvolutionSource>(
        device, mps::CNNConvolutionDescriptor::create(6, 6, 8, SyntheticDigits::classes), "dense", 2);
    const auto conv = mps::CNNConvolutionNode::create(mps::NNImageNode::create(), convolution);
    const auto relu = mps::CNNNeuronReLUNode::create(conv->resultImage());
    const auto pool = mps::CNNPoolingMaxNode::create(relu->resultImage(), 2);
    const auto fc = mps::CNNFullyConnectedNode::create(pool->resultImage(), dense);
    conv->setTrainingStyle(style);
    fc->setTrainingStyle(style);
    auto descriptor =
        mps::CNNLossDescriptor::create(mps::CNNLossType::SoftMaxCrossEntropy, mps::CNNReductionType::Sum);
    descriptor.setWeight(1.0F / batchSize);
    const auto loss = mps::CNNLossNode::create(fc->resultImage(), descriptor);
    training_ = mps::NNGraph::create(device, loss->trainingGraph(nullptr).at(0)->resultImage(), false);
    inference_ = mps::NNGraph::create(device, fc->resultImage());
  }

  /// The loss of the last of so many steps.
  float train(std::size_t steps, std::uint32_t seed) {
    const SyntheticDigits data(batchSize * steps, seed);
    const auto labels = mps::CNNLossLabels::createClassBatch(device_, batchSize);
    std::vector<float> losses(batchSize);
    for (std::size_t step = 0; step < steps; ++step) {
      mps::CNNLossLabels::writeClassIndices(labels, {data.labels.data() + step * batchSize, batchSize});
      const auto commandBuffer = queue_->commandBuffer();
      training_->encodeBatch(commandBuffer, pictures(data, step), labels);
      mps::StateBatchSynchronize(labels, commandBuffer);
      convolution->synchronize(commandBuffer);
      dense->synchronize(commandBuffer);
      commandBuffer->commit();
      commandBuffer->throwIfFailed();
      mps::CNNLossLabels::lossImages(labels).readBytes(losses, mps::DataLayout::HeightxWidthxFeatureChannels);
    }
    float sum = 0;
    for (const float loss : losses) sum += loss;
    return sum;
  }

  std::vector<float> infer(const SyntheticDigits& data) {
    inference_->reloadFromDataSources();
    const auto commandBuffer = queue_->commandBuffer();
    const auto result = inference_->encodeBatch(commandBuffer, pictures(data, 0));
    mps::ImageBatchSynchronize(result, commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    std::vector<float> logits(batchSize * SyntheticDigits::classes);
    result.readBytes(logits, mps::DataLayout::HeightxWidthxFeatureChannels);
    return logits;
  }

  void save(const std::string& path) const {
    std::vector<mps::SafetensorsTensor> tensors;
    mps::SafetensorsMetadata metadata;
    convolution->save(tensors, metadata);
    dense->save(tensors, metadata);
    mps::writeSafetensors(path, tensors, metadata);
  }
  void read(const std::string& path) {
    const auto file = mps::SafetensorsFile::read(path);
    convolution->read(file);
    dense->read(file);
    training_->reloadFromDataSources();
  }

  std::shared_ptr<ConvolutionSource> convolution, dense;

 private:
  mps::ImageBatch pictures(const SyntheticDigits& data, std::size_t step) const {
    constexpr std::size_t side = SyntheticDigits::size;
    auto images =
        mps::ImageBatch::create(device_, {mps::ImageFeatureChannelFormat::Float32, side, side, 1}, batchSize);
    images.writeBytes(std::span(data.pixels).subspan(step * batchSize * side * side, batchSize * side * side),
                      mps::DataLayout::HeightxWidthxFeatureChannels);
    return images;
  }

  std::shared_ptr<mtl::Device> device_;
  std::shared_ptr<mtl::CommandQueue> queue_;
  std::shared_ptr<mps::NNGraph> training_, inference_;
};

bool same(std::span<const std::byte> a, const std::vector<std::byte>& b) {
  return std::vector<std::byte>(a.begin(), a.end()) == b;
}

}  // namespace

int main() {
  const auto device = mtl::createSystemDefaultDevice();
  const SyntheticDigits test(batchSize, 99);

  Network network(device, mps::NNTrainingStyle::UpdateDeviceGPU);
  const float trained = network.train(100, 3);
  network.save("data_sources.safetensors");

  // Elsewhere: the same layers, updated by the host, the first of them frozen.
  Network second(device, mps::NNTrainingStyle::UpdateDeviceCPU);
  second.read("data_sources.safetensors");
  const bool restored = second.infer(test) == network.infer(test);
  second.convolution->isFrozen = true;
  const auto before = second.convolution->weights();
  const std::vector<std::byte> frozen(before.begin(), before.end());
  const float tuned = second.train(50, 4);

  const bool stayed = same(second.convolution->weights(), frozen);
  const bool moved = second.infer(test) != network.infer(test);
  std::printf("loss %.3f after training, %.3f after tuning\n", static_cast<double>(trained),
              static_cast<double>(tuned));
  std::printf("restored %d, frozen layer unchanged %d, the other one changed %d\n", restored, stayed, moved);
  return trained < 0.2F && tuned < 0.2F && restored && stayed && moved ? 0 : 1;
}
