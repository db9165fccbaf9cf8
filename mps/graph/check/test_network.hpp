#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "mps/convolution/convolution_node.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/dropout/dropout.hpp"
#include "mps/graph/nn_graph.hpp"
#include "mps/loss/loss.hpp"
#include "mps/loss/loss_node.hpp"
#include "mps/neuron/neuron_node.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mps/pooling/pooling_node.hpp"
#include "mps/trainable/trainable_convolution.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

/// A small network, and data for it, that the graph's tests share.
namespace mps::test {

inline std::shared_ptr<NNOptimizer> sgd(const std::shared_ptr<mtl::Device>& device,
                                        float learningRate = 0.05F) {
  NNOptimizerDescriptor descriptor;
  descriptor.setLearningRate(learningRate);
  return NNOptimizerStochasticGradientDescent::create(device, 0.9F, false, descriptor);
}

inline std::shared_ptr<TrainableConvolution> layer(const std::shared_ptr<mtl::Device>& device,
                                                   std::size_t kernel, std::size_t in, std::size_t out,
                                                   const char* label, float learningRate = 0.05F) {
  return TrainableConvolution::create(
      device, CNNConvolutionDescriptor::cnnConvolutionDescriptor(kernel, kernel, in, out), label,
      in * 100 + out, sgd(device, learningRate));
}

/// A data source of the user's own, which updates with the library's optimiser as public programs do.
class UserSource : public CNNConvolutionDataSource {
 public:
  /// Begins with the weights of a ready-made source.
  UserSource(const std::shared_ptr<mtl::Device>& device, TrainableConvolution& start)
      : UserSource(device, start.descriptor(), start.weights(), start.biasTerms()) {}
  /// With the optimiser sgd(device, learningRate).
  UserSource(const std::shared_ptr<mtl::Device>& device, const CNNConvolutionDescriptor& descriptor,
             std::span<const std::byte> weights, std::span<const float> biases, float learningRate = 0.05F)
      : descriptor_(descriptor),
        optimizer_(
            std::static_pointer_cast<NNOptimizerStochasticGradientDescent>(sgd(device, learningRate))) {
    weights_ = device->newBuffer(weights);
    biases_ = device->newBuffer(std::as_bytes(biases));
    state_ = CNNConvolutionWeightsAndBiasesState::create(weights_, biases_);
    for (const auto& buffer : {weights_, biases_}) {
      const std::size_t count = buffer->length() / sizeof(float);
      momentum_.push_back(
          Vector::create(device, VectorDescriptor::vectorDescriptor(count, DataType::Float32)));
    }
  }
  [[nodiscard]] DataType dataType() const override { return DataType::Float32; }
  [[nodiscard]] CNNConvolutionDescriptor descriptor() const override { return descriptor_; }
  [[nodiscard]] std::span<const std::byte> weights() const override {
    return {weights_->contents(), weights_->length()};
  }
  [[nodiscard]] std::span<const float> biasTerms() const override {
    return biases_->contentsAs<const float>();
  }
  bool load() override {
    ++loads;
    return loadsWell;
  }
  void purge() override { ++purges; }
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    ++updates;
    if (isFrozen) return nullptr;
    optimizer_->encode(commandBuffer, gradientState, sourceState, momentum_, state_);
    return state_;
  }
  bool update(const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
              const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    ++hostUpdates;
    const auto queue = gradientState->device()->newCommandQueue();
    const auto commandBuffer = queue->commandBuffer();
    optimizer_->encode(commandBuffer, gradientState, sourceState, momentum_, state_);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    return true;
  }

  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
    state_->synchronize(commandBuffer);
  }

  int loads = 0, purges = 0, updates = 0, hostUpdates = 0;
  bool isFrozen = false, loadsWell = true;

 protected:
  [[nodiscard]] const std::shared_ptr<NNOptimizerStochasticGradientDescent>& optimizer() const {
    return optimizer_;
  }

 private:
  CNNConvolutionDescriptor descriptor_;
  std::shared_ptr<NNOptimizerStochasticGradientDescent> optimizer_;
  std::shared_ptr<mtl::Buffer> weights_, biases_;
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> state_;
  std::vector<std::shared_ptr<Vector>> momentum_;
};

/// A user's padding policy that changes nothing, which only its author knows.
class CustomPadding final : public NNPadding {
 public:
  [[nodiscard]] NNPaddingMethod paddingMethod() const override {
    return NNPaddingMethod::SizeSame | NNPaddingMethod::Custom;
  }
  ImageDescriptor destinationImageDescriptor(std::span<const std::shared_ptr<Image>>,
                                             std::span<const std::shared_ptr<State>>, Kernel&,
                                             const ImageDescriptor& suggestedDescriptor) override {
    return suggestedDescriptor;
  }
};

/// conv 3x3x4 + ReLU, max pool 2, dropout, fully connected 3, softmax cross-entropy, on 8 x 8 pictures.
struct SmallNetwork {
  static constexpr std::size_t batch = 5;

  std::shared_ptr<CNNConvolutionDataSource> first, second;
  std::shared_ptr<CNNConvolutionNode> convolution;
  std::shared_ptr<CNNNeuronReLUNode> relu;
  std::shared_ptr<CNNFullyConnectedNode> dense;
  std::shared_ptr<CNNLossNode> loss;

  SmallNetwork(std::shared_ptr<CNNConvolutionDataSource> firstSource,
               std::shared_ptr<CNNConvolutionDataSource> secondSource, bool withDropout = true,
               const std::shared_ptr<LossScale>& lossScale = nullptr)
      : first(std::move(firstSource)), second(std::move(secondSource)) {
    convolution = CNNConvolutionNode::create(NNImageNode::create(), first);
    convolution->setLabel("conv");
    relu = CNNNeuronReLUNode::create(convolution->resultImage());
    const auto pool = CNNPoolingMaxNode::create(relu->resultImage(), 2);
    auto image = pool->resultImage();
    if (withDropout) image = CNNDropoutNode::create(image, 0.75F, 3)->resultImage();
    dense = CNNFullyConnectedNode::create(image, second);
    dense->setLabel("dense");
    auto descriptor =
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum);
    descriptor.setWeight(1.0F / batch);
    descriptor.setLossScale(lossScale);
    loss = CNNLossNode::create(dense->resultImage(), descriptor);
  }

  [[nodiscard]] std::shared_ptr<NNGraph> trainingGraph(const std::shared_ptr<mtl::Device>& device,
                                                       const GradientNodeBlock& handler = nullptr) const {
    std::vector<std::shared_ptr<NNImageNode>> results;
    for (const auto& terminus : loss->trainingGraph(nullptr, handler))
      results.push_back(terminus->resultImage());
    return NNGraph::create(device, results, std::vector<bool>(results.size(), false));
  }
};

/// Pictures and labels that depend on the step alone.
inline ImageBatch pictures(const std::shared_ptr<mtl::Device>& device, unsigned step) {
  auto images =
      ImageBatch::create(device, {ImageFeatureChannelFormat::Float32, 8, 8, 1}, SmallNetwork::batch);
  std::vector<float> values(SmallNetwork::batch * 64);
  unsigned state = step * 2654435761U + 1;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(state >> 16U) / 65536.0F - 0.5F;
  }
  images.writeBytes(std::span<const float>(values), DataLayout::HeightxWidthxFeatureChannels);
  return images;
}

inline StateBatch labels(const std::shared_ptr<mtl::Device>& device, unsigned step) {
  auto batch = CNNLossLabels::createClassBatch(device, SmallNetwork::batch);
  std::vector<std::uint8_t> classes(SmallNetwork::batch);
  for (std::size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<std::uint8_t>((step + i) % 3);
  CNNLossLabels::writeClassIndices(batch, classes);
  return batch;
}

/// Runs `steps` steps, one command buffer each, `inFlight` of them committed before the first is waited for.
inline void train(NNGraph& graph, const std::shared_ptr<mtl::Device>& device, unsigned steps,
                  std::size_t inFlight = 1, std::shared_ptr<mtl::CommandQueue> queue = nullptr) {
  if (!queue) queue = device->newCommandQueue();
  std::vector<std::shared_ptr<mtl::CommandBuffer>> pending;
  for (unsigned step = 0; step < steps; ++step) {
    const auto commandBuffer = queue->commandBuffer();
    graph.encodeBatch(commandBuffer, {pictures(device, step)}, {labels(device, step)});
    commandBuffer->commit();
    pending.push_back(commandBuffer);
    if (pending.size() < inFlight) continue;
    pending.front()->throwIfFailed();
    pending.erase(pending.begin());
  }
  for (const auto& commandBuffer : pending) commandBuffer->throwIfFailed();
}

inline std::vector<float> weightsOf(const CNNConvolutionDataSource& source) {
  const auto bytes = source.weights();
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Of ready-made layers, read back from their device.
inline std::vector<std::vector<float>> weightsOf(
    const std::vector<std::shared_ptr<TrainableConvolution>>& layers,
    const std::shared_ptr<mtl::Device>& device) {
  const auto commandBuffer = device->newCommandQueue()->commandBuffer();
  for (const auto& layer : layers) layer->synchronize(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  std::vector<std::vector<float>> weights;
  for (const auto& layer : layers) weights.push_back(weightsOf(*layer));
  return weights;
}

}  // namespace mps::test
