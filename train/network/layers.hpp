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

/// A number for each direction, of a window; a single one stands for both.
struct Sides {
  std::size_t height = 1;
  std::size_t width = 1;

  constexpr Sides() = default;
  constexpr Sides(std::size_t both) : height(both), width(both) {}
  constexpr Sides(std::size_t ofHeight, std::size_t ofWidth) : height(ofHeight), width(ofWidth) {}
  bool operator==(const Sides&) const = default;
};
/// "3x3".
std::string describe(const Sides& sides);

/// Pixels at each side of a picture.
struct Margins {
  std::size_t top = 0;
  std::size_t left = 0;
  std::size_t bottom = 0;
  std::size_t right = 0;

  bool operator==(const Margins&) const = default;
};
/// "1, 2, 1, 2".
std::string describe(const Margins& margins);

/// How large the result of a layer with a window is.
enum class Padding {
  Same,   ///< ceil(size / stride); windows are centred, as with PyTorch's padding of (kernelSize - 1) / 2
  Valid,  ///< floor((size - kernelSize) / stride) + 1; no window leaves the picture
  /// floor((before + size + after - kernelSize) / stride) + 1, the first window beginning `before` pixels outside: what
  /// the options' margins say of each side.
  Explicit,
};

struct ConvolutionOptions {
  Sides stride = 1;
  Padding padding = Padding::Same;
  Sides dilation = 1;
  std::size_t groups = 1;
  bool biases = true;  ///< not needed before a normalisation
  mps::WeightInitialization initialization = mps::WeightInitialization::He;
  Margins margins = {};  ///< of Padding::Explicit
};
struct TransposedConvolutionOptions {
  Sides stride = 2;
  bool biases = true;
  mps::WeightInitialization initialization = mps::WeightInitialization::He;
  Margins margins = {};  ///< cut off the result: what PyTorch calls padding
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
  Sides stride = 0;  ///< 0: the kernel's size
  Padding padding = Padding::Valid;
  Margins margins = {};  ///< of Padding::Explicit; pixels there do not count
};
enum class UpsamplingMode {
  Nearest,
  Bilinear,              ///< between the centres of pixels: PyTorch's align_corners=False
  BilinearAlignCorners,  ///< the pixels in the corners stay where they are
  BilinearAsymmetric,    ///< pixel i of the source lies at i * factor
};
enum class ArithmeticOperation { Subtract, Multiply, Divide };
/// What lies in the margins of a padded picture.
enum class PaddingContent {
  Constant,  ///< a number
  Edge,      ///< the pixel at the edge
  Mirror,    ///< reflected about the pixel at the edge
};

/// @name The kinds of layers. Features has a method with the same arguments for most; Network::add() takes all.
/// @{
/// The pictures: the first layer of each network.
struct InputLayer {};
struct ConvolutionLayer {
  std::size_t channels = 0;
  Sides kernelSize = 0;
  ConvolutionOptions options = {};
};
struct TransposedConvolutionLayer {
  std::size_t channels = 0;
  Sides kernelSize = 0;
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
/// A function of each value. a, b and c mean what CNNNeuronType says; None and PReLU are refused.
struct ActivationLayer {
  mps::CNNNeuronType type = mps::CNNNeuronType::ReLU;
  float a = 0;
  float b = 0;
  float c = 0;
};
struct MaxPoolLayer {
  Sides kernelSize = 0;
  PoolingOptions options = {};
};
/// Pixels outside the picture do not count.
struct AveragePoolLayer {
  Sides kernelSize = 0;
  PoolingOptions options = {};
};
/// The square root of the sum of squares.
struct NormPoolLayer {
  Sides kernelSize = 0;
  PoolingOptions options = {};
};
struct GlobalAveragePoolLayer {};
/// Part of the training graph alone.
struct DropoutLayer {
  float rate = 0.5F;  ///< of the values that become 0
};
struct UpsamplingLayer {
  Sides factor = 2;
  UpsamplingMode mode = UpsamplingMode::Nearest;
};
struct SoftmaxLayer {};
struct AddLayer {};
struct ConcatenationLayer {};
/// Of two pictures of one shape; either may have one pixel instead, or one channel, which then counts for all.
struct ArithmeticLayer {
  ArithmeticOperation operation = ArithmeticOperation::Multiply;
};
/// Puts a margin around a picture.
struct PadLayer {
  Margins margins = {};
  PaddingContent content = PaddingContent::Constant;
  float value = 0;  ///< of PaddingContent::Constant
};
/// @}

using LayerKind =
    std::variant<InputLayer, ConvolutionLayer, TransposedConvolutionLayer, DenseLayer,
                 BatchNormalizationLayer, InstanceNormalizationLayer, GroupNormalizationLayer,
                 CrossChannelNormalizationLayer, ActivationLayer, MaxPoolLayer, AveragePoolLayer,
                 GlobalAveragePoolLayer, DropoutLayer, UpsamplingLayer, SoftmaxLayer, AddLayer,
                 ConcatenationLayer, NormPoolLayer, ArithmeticLayer, PadLayer>;

/// "convolution", "relu", ...: the name of the method of Features, where there is one.
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
