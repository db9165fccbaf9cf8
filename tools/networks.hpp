#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mps/core/loss_scale.hpp"
#include "mps/graph/nn_graph.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mps/trainable/trainable_convolution.hpp"

namespace unmetal {

/// The networks that the program knows by name, built over the public graph API.
///
/// lenet:     conv 5x5x6 + tanh, average pool 2, conv 5x5x16 valid + tanh, average pool 2, 120 + tanh,
///            84 + tanh, classes
/// mnist-cnn: conv 5x5x32 + ReLU, max pool 2, conv 5x5x64 + ReLU, max pool 2, 1024 + ReLU, dropout 0.5,
///            classes
std::vector<std::string> networkNames();

/// What a network is built for.
struct NetworkOptions {
  std::string name;
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
  /// Whether a GPU may multiply with the 11 bits of TF32.
  bool allowReducedPrecision = false;
};

/// Layers with their weights, and the graphs that train and use them.
struct Network {
  NetworkOptions options;
  std::vector<std::shared_ptr<mps::TrainableConvolution>> layers;
  /// Takes one batch of pictures and one of labels, writes the losses into the labels, updates the layers.
  std::shared_ptr<mps::NNGraph> training;
  /// Takes one batch of pictures and returns class probabilities; no dropout.
  std::shared_ptr<mps::NNGraph> inference;
  std::shared_ptr<mps::LossScale> lossScale;  ///< null in float32

  /// Multiplications and additions of the layers: forward, weight gradient and, but for the first layer, data
  /// gradient.
  double trainingFlopsPerPicture = 0;

  [[nodiscard]] std::size_t parameterCount() const;
  void setLearningRate(double rate);
};

/// @throws mps::Error for an unknown name or pictures that are too small for the network.
Network buildNetwork(const std::shared_ptr<mtl::Device>& device, const NetworkOptions& options);

}  // namespace unmetal
