#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mps/core/image/image_allocator.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/core/types/types.hpp"
#include "mps/graph/nn_graph.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mps/trainable/optimizer_slots.hpp"
#include "mps/trainable/trainable_layer.hpp"
#include "train/data/normalization.hpp"
#include "train/network/evaluation.hpp"
#include "train/network/layers.hpp"

namespace mps {
class Communicator;
}

namespace unmetal::train {

class Dataset;
class Network;
namespace detail {
struct NetworkState;
}

/// What a layer of a network makes of a picture: a handle to chain further layers on.
///
///     auto x = network.input();
///     x = x.convolution(64, 3).batchNormalization().relu();
///
/// Each method adds a layer behind this one and returns the handle of its result. A handle may be used many times: the
/// shortcut of a residual network is a second use. The last argument of each method is the layer's label; without one it is
/// named by its kind and a number: "conv1", "bn1", "relu1". Labels are the names of the layer's tensors in files and stand in
/// messages.
///
/// @throws mps::Error for arguments and shapes that do not fit, and for a label that another layer has; nothing is added then
class Features {
 public:
  /// @name Layers with weights
  /// @{
  Features convolution(std::size_t channels, Sides kernelSize, const ConvolutionOptions& options = {},
                       const std::string& label = {}) const;
  /// (size - 1) * stride + kernelSize pixels: PyTorch's ConvTranspose2d and Keras' Conv2DTranspose without padding. With a
  /// kernel of the stride's size, that is stride times as many.
  Features transposedConvolution(std::size_t channels, Sides kernelSize,
                                 const TransposedConvolutionOptions& options = {},
                                 const std::string& label = {}) const;
  /// Over the whole picture, whatever its size: what a Flatten and a Linear are elsewhere.
  Features dense(std::size_t channels, const DenseOptions& options = {}, const std::string& label = {}) const;
  Features batchNormalization(const BatchNormalizationOptions& options = {},
                              const std::string& label = {}) const;
  Features instanceNormalization(float epsilon = 1e-5F, const std::string& label = {}) const;
  /// @param groups divides the channels
  Features groupNormalization(std::size_t groups, float epsilon = 1e-5F, const std::string& label = {}) const;
  /// @}

  /// @name Activations
  /// @{
  Features relu(const std::string& label = {}) const;
  /// @param slope of negative values, as PyTorch's
  Features leakyRelu(float slope = 0.01F, const std::string& label = {}) const;
  Features relu6(const std::string& label = {}) const;
  Features elu(float alpha = 1, const std::string& label = {}) const;
  Features gelu(const std::string& label = {}) const;
  Features sigmoid(const std::string& label = {}) const;
  /// clamp(x / 6 + 1 / 2, 0, 1): PyTorch's.
  Features hardSigmoid(const std::string& label = {}) const;
  Features tanh(const std::string& label = {}) const;
  Features softplus(const std::string& label = {}) const;
  Features softsign(const std::string& label = {}) const;
  /// Over the channels of each pixel. At the end of a network: its results are probabilities already.
  Features softmax(const std::string& label = {}) const;
  /// @}

  /// @name Layers without weights
  /// @{
  Features crossChannelNormalization(const CrossChannelNormalizationOptions& options = {},
                                     const std::string& label = {}) const;
  Features maxPool(Sides kernelSize, const PoolingOptions& options = {}, const std::string& label = {}) const;
  /// Pixels outside do not count.
  Features averagePool(Sides kernelSize, const PoolingOptions& options = {},
                       const std::string& label = {}) const;
  /// One pixel: the mean of each channel.
  Features globalAveragePool(const std::string& label = {}) const;
  /// @param rate of the values that training sets to 0; the others are divided by 1 - rate
  Features dropout(float rate = 0.5F, const std::string& label = {}) const;
  Features upsample(Sides factor = 2, UpsamplingMode mode = UpsamplingMode::Nearest,
                    const std::string& label = {}) const;
  /// The sum of both, of one shape.
  [[nodiscard]] Features add(const Features& other, const std::string& label = {}) const;
  /// Both of one height and width: the channels of this one, then those of the other one.
  [[nodiscard]] Features concatenate(const Features& other, const std::string& label = {}) const;
  /// @}

  [[nodiscard]] const Shape& shape() const;
  [[nodiscard]] std::size_t height() const { return shape().height; }
  [[nodiscard]] std::size_t width() const { return shape().width; }
  [[nodiscard]] std::size_t channels() const { return shape().channels; }
  /// Whether it is the same layer's.
  bool operator==(const Features& other) const = default;

 private:
  friend class Network;
  Features(std::shared_ptr<detail::NetworkState> network, std::size_t index);
  Features then(LayerKind kind, const std::string& label) const;

  std::shared_ptr<detail::NetworkState> network_;
  std::size_t index_;
};
inline Features operator+(const Features& left, const Features& right) {
  return left.add(right);
}

struct NetworkOptions {
  std::uint64_t seed = 0;                         ///< of weights and dropout
  std::shared_ptr<mtl::Device> device = nullptr;  ///< null: mtl::createSystemDefaultDevice()
  bool allowReducedPrecision = false;  ///< whether convolutions may round what they multiply: KernelOptions
  /// Of activations and their gradients, Float32 or Float16. Weights are always float32.
  mps::ImageFeatureChannelFormat format = mps::ImageFeatureChannelFormat::Float32;
};

/// Of weights that are loaded.
enum class Head {
  OfFile,  ///< a last layer that does not fit is an error
  Own,     ///< a last layer that does not fit keeps the network's own values
};

struct LoadOptions {
  /// Fine-tuning for other classes: the last convolution or dense layer gets so many channels, and begins anew from the seed where
  /// the file has another number of them. 0: as in the file. In the file of fromFile() it stands for the word "classes".
  std::size_t classes = 0;
  /// Of a file of fromFile() that does not say it; one that does must say the same.
  std::optional<Shape> pictures = std::nullopt;
};

/// Which graph nodes are for.
enum class GraphKind {
  Training,   ///< with dropout, without a softmax at the end, which the loss has
  Inference,  ///< without dropout
};

/// What trains a network's layers.
struct TrainingGraph {
  /// Takes one batch of pictures and one of labels, writes the losses into the labels and updates the layers.
  std::shared_ptr<mps::NNGraph> graph = nullptr;
  std::shared_ptr<mps::LossScale> lossScale = nullptr;  ///< of Float16; null in Float32
};

/// A convolutional network: its layers in the order in which they were added, and their weights.
///
///     unmetal::train::Network network({28, 28, 1});
///     network.input().convolution(32, 5).relu().maxPool(2)
///                    .convolution(64, 5).relu().maxPool(2)
///                    .dense(1024).relu().dropout(0.5F).dense(10);
///
/// The result is the layer that was added last. Classifiers end in a score for each class, without a softmax or with it: the
/// loss and the probabilities have one. A block of a residual network:
///
///     Features block(const Features& x, std::size_t channels, std::size_t stride) {
///       auto y = x.convolution(channels, 3, {.stride = stride, .biases = false}).batchNormalization().relu();
///       y = y.convolution(channels, 3, {.biases = false}).batchNormalization();
///       if (stride == 1 && x.channels() == channels) return (x + y).relu();
///       const auto shortcut = x.convolution(channels, 1, {.stride = stride, .biases = false});
///       return (shortcut.batchNormalization() + y).relu();
///     }
///
/// Trainer trains it. Whoever wants a loss or a loop of their own takes the nodes, the graphs and the layers; they are those
/// of mps, with the same weights.
///
/// Copies are handles of the same network. One thread uses a network at a time.
class Network {
 public:
  /// @param pictures {height, width, channels} of each
  explicit Network(const Shape& pictures, const NetworkOptions& options = {});

  /// Another network with the same layers, values and frozen layers, without an optimiser. No work on this one may be in flight.
  [[nodiscard]] Network copy() const;

  /// The pictures.
  [[nodiscard]] Features input() const;
  /// What the methods of Features are short for. @param inputs handles of this network
  Features add(const LayerKind& kind, std::span<const Features> inputs, const std::string& label = {}) const;

  /// From the pictures on.
  [[nodiscard]] const std::vector<Layer>& layers() const;
  /// @throws mps::Error when there is no such layer
  [[nodiscard]] const Layer& layer(const std::string& label) const;
  [[nodiscard]] const Shape& inputShape() const { return layers().front().shape; }
  [[nodiscard]] const Shape& outputShape() const { return layers().back().shape; }
  [[nodiscard]] const NetworkOptions& options() const;
  void setFormat(mps::ImageFeatureChannelFormat format);
  /// Weights, biases, and what normalisations scale and add.
  [[nodiscard]] std::size_t parameterCount() const;
  /// Multiplications and additions of a training step for each picture: forward, weight gradients and, but for the first
  /// layer, data gradients of convolutions and dense layers.
  [[nodiscard]] double trainingFlops() const;

  /// A line for each layer: label and kind, shape of its result, parameters, memory of its result in float32, multiply-adds of
  /// one picture; then their sums.
  [[nodiscard]] std::string summary() const;
  /// A picture of the layers with the shapes of their results, as an SVG document: write it to a file and open that in a browser.
  /// Layers whose labels agree up to the last point ("layer1.0.conv1", "layer1.0.conv2") stand in a frame.
  [[nodiscard]] std::string drawing() const;

  /// @name Layers that are not trained
  /// Their weights stay as they are, and a batch normalisation among them computes with its running statistics, as in use. So it
  /// is in training graphs, and trainers, that are made later; setOptimizer() does not change it, files do not say it.
  /// @{
  /// @param prefix of their labels: "conv1", or "layer1." for all of a stage @return how many layers with parameters these are
  /// @throws mps::Error when there are none
  std::size_t freeze(const std::string& prefix);
  /// The other way round. @throws mps::Error likewise
  std::size_t unfreeze(const std::string& prefix);
  /// @throws mps::Error when there is no such layer
  [[nodiscard]] bool isFrozen(const std::string& label) const;
  /// @}

  /// @name Use
  /// @{
  /// @throws mps::Error for data of another shape or number of classes
  [[nodiscard]] Evaluation evaluate(const Dataset& data) const;
  /// Shared out among ranks that have the same network and data and all call this: each looks at its part of the pictures, and
  /// all have the result. @param ranks null, or a group of one: as without it
  [[nodiscard]] Evaluation evaluate(const Dataset& data,
                                    const std::shared_ptr<mps::Communicator>& ranks) const;
  /// The probabilities of each class, picture after picture. Of a network whose result has several pixels: for each of these.
  /// @param pictures one after the other, each row by row, pixel by pixel, channel by channel
  /// @throws mps::Error for data of another shape, and when a probability is not finite
  /// @{
  [[nodiscard]] std::vector<float> predict(std::span<const float> pictures) const;
  [[nodiscard]] std::vector<float> predict(const Dataset& data) const;
  /// @}
  /// @}

  /// @name Files
  /// @{
  /// Writes the layers and their weights as safetensors; the tensors are named "<label>.weight" and so on.
  void save(const std::filesystem::path& path) const;
  /// A network of a file that save() has written; the file says of what layers. It may come from anywhere: nothing in it is
  /// trusted. @param options all but the layers: the seed of dropout, the device, the format
  /// @throws mps::Error, naming the file, for what is not such a file
  /// @param loading unless it is empty, of how many classes the loaded network is
  static Network load(const std::filesystem::path& path, const NetworkOptions& options = {},
                      const LoadOptions& loading = {});
  /// A network as somebody has written it down in JSON; docs/network-file.md says how. It has the weights of the seed.
  /// @throws mps::Error, naming file, layer and field, for what is no network
  static Network fromFile(const std::filesystem::path& path, const NetworkOptions& options = {},
                          const LoadOptions& loading = {});
  /// Takes the weights of a file with the same labels and shapes: of save(), a checkpoint of the program, or one of your own. Of
  /// save() the normalisation as well. Tensors of Float32, Float16, BF16 and F64 are taken.
  /// @param head what becomes of the last layer with weights where it is missing in the file, or of another shape
  /// @return the label of that layer in case it begins anew, else nothing
  /// @throws mps::Error, naming file and tensor, when one is missing or has another shape; nothing has changed then
  std::optional<std::string> loadWeights(const std::filesystem::path& path, Head head = Head::OfFile);
  /// @}

  /// @name Normalisation of pictures
  /// Applied to all pictures that the network learns from and predicts, and stored in its files; whoever encodes its graphs does it
  /// themselves. None at first. @throws mps::Error unless there is a number for each channel, finite, of deviations above 0
  /// @{
  void setNormalization(const std::optional<Normalization>& normalization);
  [[nodiscard]] const std::optional<Normalization>& normalization() const;
  /// @}

  /// @name The node API
  /// @{
  [[nodiscard]] const std::shared_ptr<mtl::Device>& device() const;
  /// Gives each layer with parameters a copy of the optimiser. The layers are made anew with their values, without the
  /// optimisers' former state; graphs that were made before keep the old ones.
  /// @param optimizer null: the layers are not trained, as at first
  void setOptimizer(const std::shared_ptr<mps::NNOptimizer>& optimizer,
                    mps::AdamForm adamForm = mps::AdamForm::Adam);
  void setLearningRate(double rate);
  /// The layers with parameters, in the order of layers(). @throws mps::Error for a layer that nothing uses
  [[nodiscard]] const std::vector<std::shared_ptr<mps::TrainableLayer>>& trainableLayers() const;
  /// @throws mps::Error when there is no such layer, or it has no parameters
  [[nodiscard]] std::shared_ptr<mps::TrainableLayer> trainableLayer(const std::string& label) const;
  /// The nodes of all layers. @param pictures where they begin @return the network's result
  /// @throws mps::Error for a layer that nothing uses
  [[nodiscard]] std::shared_ptr<mps::NNImageNode> makeNodes(const std::shared_ptr<mps::NNImageNode>& pictures,
                                                            GraphKind kind) const;
  /// With softmax cross-entropy, the mean over the batch.
  /// @param scores makes the images that get each class's score, for who wants to look at them; null: temporary ones
  /// @throws mps::Error unless the result is one pixel, and an optimiser was set
  [[nodiscard]] TrainingGraph makeTrainingGraph(
      std::size_t batchSize, const std::shared_ptr<mps::ImageAllocator>& scores = nullptr) const;
  /// From pictures to probabilities, in float32: the network's result behind a softmax.
  [[nodiscard]] std::shared_ptr<mps::NNGraph> makeInferenceGraph() const;
  /// Asked for each tensor of the layers that there are, and of each layer before it is added: who reads the values from a file
  /// that nobody vouches for throws where the file has no such tensor, before memory is taken. Empty: nothing is asked.
  using TensorCheck = std::function<void(const std::string& tensor, std::span<const std::uint64_t> shape)>;
  void setTensorCheck(TensorCheck check);
  /// @}

 private:
  friend class Features;
  std::size_t setFrozen(const std::string& prefix, bool isFrozen);
  static Features addTo(const std::shared_ptr<detail::NetworkState>& state, const LayerKind& kind,
                        std::span<const Features> inputs, const std::string& label);

  std::shared_ptr<detail::NetworkState> state_;
};

}  // namespace unmetal::train
