#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "mps/core/neuron/neuron_descriptor.hpp"
#include "mps/trainable/trainable_convolution.hpp"
#include "train/data/shape.hpp"

/// The layers that a Network is made of, as records: what summary(), files and graphs are made from. Networks are
/// written with the methods of Features; these structs are for programs that read or make networks.
namespace unmetal::train {

/// How large the result of a layer with a window is.
enum class Padding {
  Same,   ///< ceil(size / stride); windows are centred, as with PyTorch's padding of (kernelSize - 1) / 2
  Valid,  ///< floor((size - kernelSize) / stride) + 1; no window leaves the picture
};

struct ConvolutionOptions {
  std::size_t stride = 1;
  Padding padding = Padding::Same;
  std::size_t dilation = 1;
  std::size_t groups = 1;
  bool biases = true;  ///< not needed before a normalisation
  mps::WeightInitialization initialization = mps::WeightInitialization::He;
};
struct TransposedConvolutionOptions {
  std::size_t stride = 2;
  bool biases = true;
  mps::WeightInitialization initialization = mps::WeightInitialization::He;
};
struct DenseOptions {
  bool biases = true;
  mps::WeightInitialization initialization = mps::WeightInitialization::He;
};
struct BatchNormalizationOptions {
  /// The share of the running statistics that a step keeps: Keras' momentum, 1 minus PyTorch's.
  float momentum = 0.9F;
  float epsilon = 1e-5F;
};
/// Values are divided by (delta + alpha * mean of the squares of `size` channels) to the power of beta: AlexNet's.
struct CrossChannelNormalizationOptions {
  std::size_t size = 5;
  float alpha = 1e-4F;
  float beta = 0.75F;
  float delta = 2;
};
struct PoolingOptions {
  std::size_t stride = 0;  ///< 0: the kernel's size
  Padding padding = Padding::Valid;
};
enum class UpsamplingMode {
  Nearest,
  Bilinear,  ///< between the centres of pixels: PyTorch's align_corners=False
};

/// @name The kinds of layers. Features has a method for each, with the same arguments.
/// @{
/// The pictures: the first layer of each network.
struct InputLayer {};
struct ConvolutionLayer {
  std::size_t channels = 0;
  std::size_t kernelSize = 0;
  ConvolutionOptions options = {};
};
struct TransposedConvolutionLayer {
  std::size_t channels = 0;
  std::size_t kernelSize = 0;
  TransposedConvolutionOptions options = {};
};
struct DenseLayer {
  std::size_t channels = 0;
  DenseOptions options = {};
};
struct BatchNormalizationLayer {
  BatchNormalizationOptions options = {};
};
struct InstanceNormalizationLayer {
  float epsilon = 1e-5F;
};
struct GroupNormalizationLayer {
  std::size_t groups = 0;
  float epsilon = 1e-5F;
};
struct CrossChannelNormalizationLayer {
  CrossChannelNormalizationOptions options = {};
};
/// A function of each value. a and b mean what CNNNeuronType says; types with other parameters are refused.
struct ActivationLayer {
  mps::CNNNeuronType type = mps::CNNNeuronType::ReLU;
  float a = 0;
  float b = 0;
};
struct MaxPoolLayer {
  std::size_t kernelSize = 0;
  PoolingOptions options = {};
};
/// Pixels outside the picture do not count.
struct AveragePoolLayer {
  std::size_t kernelSize = 0;
  PoolingOptions options = {};
};
struct GlobalAveragePoolLayer {};
/// Part of the training graph alone.
struct DropoutLayer {
  float rate = 0.5F;  ///< of the values that become 0
};
struct UpsamplingLayer {
  std::size_t factor = 2;
  UpsamplingMode mode = UpsamplingMode::Nearest;
};
struct SoftmaxLayer {};
struct AddLayer {};
struct ConcatenationLayer {};
/// @}

using LayerKind = std::variant<InputLayer, ConvolutionLayer, TransposedConvolutionLayer, DenseLayer,
                               BatchNormalizationLayer, InstanceNormalizationLayer, GroupNormalizationLayer,
                               CrossChannelNormalizationLayer, ActivationLayer, MaxPoolLayer,
                               AveragePoolLayer, GlobalAveragePoolLayer, DropoutLayer, UpsamplingLayer,
                               SoftmaxLayer, AddLayer, ConcatenationLayer>;

/// "convolution", "relu", ...: the name of the method of Features.
std::string nameOf(const LayerKind& kind);

/// An array of numbers that belongs to a layer; in files it is named "<label>.<name>".
struct Parameter {
  std::string name;
  std::vector<std::uint64_t> shape;
  bool isTrained = true;  ///< false: running statistics

  [[nodiscard]] std::size_t count() const;
};

/// One layer of a network.
struct Layer {
  std::string label = {};
  LayerKind kind = InputLayer{};
  std::vector<std::size_t> inputs = {};  ///< indices of layers before it
  Shape shape = {};                      ///< of its result
  std::vector<Parameter> parameters = {};
  /// Of one picture, forward. Of convolutions and dense layers alone; all else costs little beside them.
  double multiplyAdds = 0;
  bool hasGivenLabel = false;  ///< false: the network has made it

  [[nodiscard]] std::size_t trainedParameterCount() const;
};

}  // namespace unmetal::train
