#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mps/core/layer/loss_scale.hpp"
#include "mps/graph/nn_graph.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mps/trainable/optimizer_slots.hpp"
#include "mps/trainable/trainable_layer.hpp"
#include "train/network/network.hpp"
#include "train/training/score_images.hpp"
#include "train/training/weight_average.hpp"

namespace unmetal {

/// The networks that the program knows by name, made of train::Network; each is a file of tools/networks. Their training
/// graphs end in a softmax cross-entropy.
///
/// | name | layers |
/// |---|---|
/// | lenet | conv 5x5x6 + tanh, average pool 2, conv 5x5x16 valid + tanh, average pool 2, 120 + tanh, 84 + tanh, classes |
/// | mnist-cnn | conv 5x5x32 + ReLU, max pool 2, conv 5x5x64 + ReLU, max pool 2, 1024 + ReLU, dropout 0.5, classes |
/// | small-cnn | 3x3 conv with batch normalisation, ReLU and max pool 2, with 16, 32, 64, 128, 128, ... channels until a side is below 8; global average pool, dropout 0.25, classes |
/// | resnet18 | conv, batch normalisation, ReLU; 4 stages of 2 blocks with 64, 128, 256, 512 channels, each block two 3x3 convolutions with batch normalisation beside its shortcut; global average pool, classes |
/// | resnet50 | the same with 3, 4, 6, 3 bottlenecks (1x1, 3x3 with the stride, 1x1 with four times the channels) |
/// | alexnet-lrn | conv 64, 192, 384, 256, 256 with ReLU, the first two with cross-channel normalisation; max pool 3 by 2 after the first, second and last; dropout 0.5, 4096 + ReLU, twice; classes |
/// | unet-small | two 3x3 conv with batch normalisation and ReLU at each of 16, 32, 64 channels with max pool 2 between; back to 32 and 16 with bilinear upsampling, each joined by concatenation; conv 1x1 to classes, global average pool |
/// | style | generator of fast style transfer with instance normalisation and ReLU: conv 9x9x32, 3x3 by 2 to 64 and 128 channels, 5 residual blocks; back to 64 and 32 with repeated pixels and 3x3 conv; conv 9x9 to classes where it had colours, global average pool |
///
/// The first layer of a resnet is 7x7 by 2 with a max pool 3 by 2 behind it, that of alexnet-lrn 11x11 by 4; for
/// pictures with a side below 64 both are 3x3 by 1 without that pool, and the dense layers of alexnet-lrn have
/// 1024 outputs. "resnet18:16" begins with 16 channels in place of 64 and has a quarter of them everywhere; so can the
/// others but lenet and mnist-cnn be made narrow. Layers and tensors of a resnet have torchvision's names.
std::vector<std::string> networkNames();
/// The same with two channels in the first layer where that is possible, for checks that take their time.
std::vector<std::string> narrowNetworkNames();
/// Whether it names an ONNX file: layers, and weights for --init-from.
bool isModelFile(const std::string& name);
/// Throws mps::Error unless `name` is one of these, with a number of channels or not, or the name of a file that ends in .json or .onnx.
void checkNetworkName(const std::string& name);

/// What a network is built for.
struct NetworkOptions {
  std::string name;                      ///< or a file: docs/network-file.md, docs/onnx.md
  std::string description = {};          ///< the text of that file; empty: it is read
  std::vector<std::string> frozen = {};  ///< what the labels of layers begin with that are not trained
  std::size_t width = 28;
  std::size_t height = 28;
  std::size_t channels = 1;
  std::vector<std::string> classNames = std::vector<std::string>(10);  ///< one output for each
  std::size_t batchSize = 64;                   ///< the loss is the mean over so many pictures
  std::uint64_t seed = 0;                       ///< of weights and dropout
  std::shared_ptr<mps::NNOptimizer> optimizer;  ///< copied for each layer; null for inference
  mps::AdamForm adamForm = mps::AdamForm::Adam;
  /// Of activations and their gradients, Float32 or Float16; weights are always float32. Training in Float16
  /// scales the loss.
  mps::ImageFeatureChannelFormat format = mps::ImageFeatureChannelFormat::Float32;
  /// Whether convolutions may round what they multiply: a GPU to TF32, a CPU with AMX to bfloat16.
  bool allowReducedPrecision = false;
  /// Asked before a layer is made, for one whose values a file is to give: it throws where the file has not this tensor.
  /// So no more memory is taken than the file is long. @param shape of a convolution's weights as in files of ours
  std::function<void(const std::string& tensor, std::span<const std::uint64_t> shape)> expectTensor = nullptr;
  /// Of all pictures that it gets.
  std::optional<train::Normalization> normalization = std::nullopt;
};

/// Layers with their weights, and the graphs that train and use them.
struct Network {
  std::optional<train::Network> definition;  ///< what they are of
  NetworkOptions options;
  std::vector<std::shared_ptr<mps::TrainableLayer>> layers;
  /// Takes one batch of pictures and one of labels, writes the losses into the labels, updates the layers.
  std::shared_ptr<mps::NNGraph> training;
  std::shared_ptr<train::detail::ScoreImages> scores;  ///< of the training graph
  /// Takes one batch of pictures and returns class probabilities; no dropout, running statistics.
  std::shared_ptr<mps::NNGraph> inference;
  std::shared_ptr<mps::LossScale> lossScale;  ///< null in float32
  /// Of the layers' values while they are trained; null: none.
  std::shared_ptr<train::detail::WeightAverage> average;

  /// Multiplications and additions of convolutions and dense layers: forward, weight gradient and, but for the first layer, data
  /// gradient.
  double trainingFlopsPerPicture = 0;

  /// Weights, biases and what normalisations scale and add.
  std::size_t parameterCount = 0;

  /// All of its layers as JSON, of a network from a file; else empty.
  std::string description;
};

/// The layers without weights or graphs yet.
/// @throws mps::Error for an unknown name or pictures that are too small for the network.
train::Network defineNetwork(const std::shared_ptr<mtl::Device>& device, const NetworkOptions& options);
/// The same with both graphs.
Network buildNetwork(const std::shared_ptr<mtl::Device>& device, const NetworkOptions& options);

}  // namespace unmetal
