#include "tools/networks.hpp"

#include "mps/convolution/convolution_node.hpp"
#include "mps/core/error.hpp"
#include "mps/dropout/dropout.hpp"
#include "mps/loss/loss_node.hpp"
#include "mps/neuron/neuron_node.hpp"
#include "mps/pooling/pooling_node.hpp"
#include "mps/softmax/softmax.hpp"

namespace unmetal {
namespace {

using Image = std::shared_ptr<mps::NNImageNode>;

/// Makes layers when the training graph is built and finds them again for the inference graph.
class Builder {
 public:
  Builder(const std::shared_ptr<mtl::Device>& device, const NetworkOptions& options)
      : device_(device),
        options_(options),
        width_(options.width),
        height_(options.height),
        channels_(options.channels) {}

  [[nodiscard]] std::vector<std::shared_ptr<mps::TrainableConvolution>>& layers() { return layers_; }
  /// The same network again, on the layers that there are.
  void restart() {
    next_ = 0;
    trainingFlops_ = 0;
    width_ = options_.width;
    height_ = options_.height;
    channels_ = options_.channels;
  }

  Image convolution(const Image& source, std::size_t size, std::size_t outputs, bool same) {
    auto node = mps::CNNConvolutionNode::create(source, layer("conv", size, size, outputs));
    if (!same) {
      node->setPaddingPolicy(mps::NNDefaultPadding::padding(mps::NNPaddingMethod::SizeValidOnly));
      shrink(width_, size);
      shrink(height_, size);
    }
    node->setLabel(layers_[next_ - 1]->label());
    channels_ = outputs;
    countFlops(width_ * height_);
    return node->resultImage();
  }

  Image dense(const Image& source, std::size_t outputs) {
    auto node = mps::CNNFullyConnectedNode::create(source, layer("dense", width_, height_, outputs));
    node->setLabel(layers_[next_ - 1]->label());
    width_ = height_ = 1;
    channels_ = outputs;
    countFlops(1);
    return node->resultImage();
  }

  /// Halves the picture, an odd last row or column included.
  template <class Node>
  Image pool(const Image& source) {
    width_ = (width_ + 1) / 2;
    height_ = (height_ + 1) / 2;
    return Node::create(source, 2)->resultImage();
  }

  /// Of the network since restart().
  [[nodiscard]] double trainingFlops() const { return trainingFlops_; }

 private:
  /// @param places that the layer's kernel is applied at
  void countFlops(std::size_t places) {
    const double forward =
        2 * static_cast<double>(places) * static_cast<double>(layers_[next_ - 1]->descriptor().weightCount());
    trainingFlops_ += next_ == 1 ? 2 * forward : 3 * forward;
  }

  void shrink(std::size_t& side, std::size_t size) const {
    if (side < size)
      throw mps::Error("network " + options_.name + ": pictures of " + std::to_string(options_.width) + "x" +
                       std::to_string(options_.height) + " pixels are too small");
    side -= size - 1;
  }

  std::shared_ptr<mps::TrainableConvolution> layer(const char* kind, std::size_t width, std::size_t height,
                                                   std::size_t outputs) {
    if (next_ == layers_.size()) {
      const auto descriptor =
          mps::CNNConvolutionDescriptor::cnnConvolutionDescriptor(width, height, channels_, outputs);
      layers_.push_back(mps::TrainableConvolution::create(
          device_, descriptor, kind + std::to_string(next_ + 1), options_.seed * 1000 + next_,
          options_.optimizer, mps::WeightInitialization::He, options_.adamForm));
    }
    return layers_[next_++];
  }

  std::shared_ptr<mtl::Device> device_;
  const NetworkOptions& options_;
  std::vector<std::shared_ptr<mps::TrainableConvolution>> layers_;
  std::size_t next_ = 0;
  double trainingFlops_ = 0;
  std::size_t width_;
  std::size_t height_;
  std::size_t channels_;
};

Image tanh(const Image& source) {
  return mps::CNNNeuronTanHNode::create(source)->resultImage();
}
Image relu(const Image& source) {
  return mps::CNNNeuronReLUNode::create(source)->resultImage();
}

Image lenet(Builder& builder, const Image& input, const NetworkOptions& options, bool /*training*/) {
  Image x = tanh(builder.convolution(input, 5, 6, true));
  x = builder.pool<mps::CNNPoolingAverageNode>(x);
  x = tanh(builder.convolution(x, 5, 16, false));
  x = builder.pool<mps::CNNPoolingAverageNode>(x);
  x = tanh(builder.dense(x, 120));
  x = tanh(builder.dense(x, 84));
  return builder.dense(x, options.classNames.size());
}

Image mnistCnn(Builder& builder, const Image& input, const NetworkOptions& options, bool training) {
  Image x = relu(builder.convolution(input, 5, 32, true));
  x = builder.pool<mps::CNNPoolingMaxNode>(x);
  x = relu(builder.convolution(x, 5, 64, true));
  x = builder.pool<mps::CNNPoolingMaxNode>(x);
  x = relu(builder.dense(x, 1024));
  if (training) x = mps::CNNDropoutNode::create(x, 0.5F, options.seed * 1000 + 999)->resultImage();
  return builder.dense(x, options.classNames.size());
}

using BuildLogits = Image (*)(Builder&, const Image&, const NetworkOptions&, bool);
struct NamedNetwork {
  const char* name;
  BuildLogits build;
};
constexpr NamedNetwork networks[] = {{"lenet", lenet}, {"mnist-cnn", mnistCnn}};

BuildLogits find(const std::string& name) {
  std::string known;
  for (const NamedNetwork& network : networks) {
    if (name == network.name) return network.build;
    known += (known.empty() ? "" : ", ") + std::string(network.name);
  }
  throw mps::Error("network \"" + name + "\" is unknown; there are " + known);
}

std::shared_ptr<mps::NNGraph> trainingGraph(const std::shared_ptr<mtl::Device>& device, const Image& logits,
                                            std::size_t batchSize,
                                            const std::shared_ptr<mps::LossScale>& lossScale) {
  auto descriptor = mps::CNNLossDescriptor::cnnLossDescriptor(mps::CNNLossType::SoftMaxCrossEntropy,
                                                              mps::CNNReductionType::Sum);
  descriptor.setWeight(1.0F / static_cast<float>(batchSize));
  descriptor.setLossScale(lossScale);
  const auto loss = mps::CNNLossNode::create(logits, descriptor);
  std::vector<Image> results;
  for (const auto& terminus : loss->trainingGraph(nullptr)) results.push_back(terminus->resultImage());
  return mps::NNGraph::create(device, results, std::vector<bool>(results.size(), false));
}

}  // namespace

std::vector<std::string> networkNames() {
  std::vector<std::string> names;
  for (const NamedNetwork& network : networks) names.emplace_back(network.name);
  return names;
}

std::size_t Network::parameterCount() const {
  std::size_t count = 0;
  for (const auto& layer : layers)
    count += layer->descriptor().weightCount() + layer->descriptor().outputFeatureChannels();
  return count;
}

void Network::setLearningRate(double rate) {
  for (const auto& layer : layers)
    if (layer->optimizer()) layer->optimizer()->setLearningRate(static_cast<float>(rate));
}

Network buildNetwork(const std::shared_ptr<mtl::Device>& device, const NetworkOptions& options) {
  const BuildLogits build = find(options.name);
  Network network;
  network.options = options;
  Builder builder(device, network.options);
  const Image trainingLogits = build(builder, mps::NNImageNode::create(), options, true);
  if (options.optimizer) {
    if (options.format == mps::ImageFeatureChannelFormat::Float16)
      network.lossScale = mps::LossScale::create(device);
    network.training = trainingGraph(device, trainingLogits, options.batchSize, network.lossScale);
    for (const auto& layer : builder.layers()) layer->optimizer()->setLossScale(network.lossScale);
  }
  builder.restart();
  const Image logits = build(builder, mps::NNImageNode::create(), options, false);
  const Image probabilities = mps::CNNSoftMaxNode::create(logits)->resultImage();
  probabilities->setFormat(mps::ImageFeatureChannelFormat::Float32);
  network.inference = mps::NNGraph::create(device, probabilities);
  for (const auto& graph : {network.training, network.inference}) {
    if (!graph) continue;
    graph->setFormat(options.format);
    if (options.allowReducedPrecision)
      graph->setOptions(graph->options() | mps::KernelOptions::AllowReducedPrecision);
  }
  network.layers = builder.layers();
  network.trainingFlopsPerPicture = builder.trainingFlops();
  return network;
}

}  // namespace unmetal
