#include "train/network/layer_rules.hpp"

#include <cmath>

#include "mps/core/types/error.hpp"

namespace unmetal::train {

std::size_t Parameter::count() const {
  std::size_t product = 1;
  for (const std::uint64_t extent : shape) product *= static_cast<std::size_t>(extent);
  return product;
}

std::size_t Layer::trainedParameterCount() const {
  std::size_t sum = 0;
  for (const Parameter& parameter : parameters)
    if (parameter.isTrained) sum += parameter.count();
  return sum;
}

namespace {

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

std::string activationName(const ActivationLayer& layer) {
  using enum mps::CNNNeuronType;
  switch (layer.type) {
    case ReLU:
      return layer.a == 0 ? "relu" : "leakyRelu";
    case Sigmoid:
      return "sigmoid";
    case HardSigmoid:
      return "hardSigmoid";
    case TanH:
      return "tanh";
    case SoftPlus:
      return "softplus";
    case SoftSign:
      return "softsign";
    case ELU:
      return "elu";
    case ReLUN:
      return "relu6";
    case GeLU:
      return "gelu";
    default:
      return "activation";
  }
}

}  // namespace

std::string nameOf(const LayerKind& kind) {
  return std::visit(
      Overloaded{
          [](const InputLayer&) -> std::string { return "input"; },
          [](const ConvolutionLayer&) -> std::string { return "convolution"; },
          [](const TransposedConvolutionLayer&) -> std::string { return "transposedConvolution"; },
          [](const DenseLayer&) -> std::string { return "dense"; },
          [](const BatchNormalizationLayer&) -> std::string { return "batchNormalization"; },
          [](const InstanceNormalizationLayer&) -> std::string { return "instanceNormalization"; },
          [](const GroupNormalizationLayer&) -> std::string { return "groupNormalization"; },
          [](const CrossChannelNormalizationLayer&) -> std::string { return "crossChannelNormalization"; },
          [](const ActivationLayer& layer) { return activationName(layer); },
          [](const MaxPoolLayer&) -> std::string { return "maxPool"; },
          [](const AveragePoolLayer&) -> std::string { return "averagePool"; },
          [](const GlobalAveragePoolLayer&) -> std::string { return "globalAveragePool"; },
          [](const DropoutLayer&) -> std::string { return "dropout"; },
          [](const UpsamplingLayer&) -> std::string { return "upsample"; },
          [](const SoftmaxLayer&) -> std::string { return "softmax"; },
          [](const AddLayer&) -> std::string { return "add"; },
          [](const ConcatenationLayer&) -> std::string { return "concatenate"; }},
      kind);
}

namespace detail {

std::string labelStem(const LayerKind& kind) {
  return std::visit(Overloaded{[](const ConvolutionLayer&) -> std::string { return "conv"; },
                               [](const TransposedConvolutionLayer&) -> std::string { return "deconv"; },
                               [](const BatchNormalizationLayer&) -> std::string { return "bn"; },
                               [](const InstanceNormalizationLayer&) -> std::string { return "in"; },
                               [](const GroupNormalizationLayer&) -> std::string { return "gn"; },
                               [](const CrossChannelNormalizationLayer&) -> std::string { return "lrn"; },
                               [&](const auto&) { return nameOf(kind); }},
                    kind);
}

namespace {

/// Of the kernels' descriptors, and of the numbers of elements of an image.
constexpr std::size_t largestNumber = (std::size_t{1} << 31) - 1;

class Rules {
 public:
  Rules(Layer& layer, std::span<const Shape> inputs) : layer_(layer), inputs_(inputs) {}

  void apply() {
    std::visit([this](const auto& kind) { rule(kind); }, layer_.kind);
    const Shape& shape = layer_.shape;
    number("result height", shape.height);
    number("result width", shape.width);
    number("result channels", shape.channels);
    if (shape.height > largestNumber / shape.width / shape.channels)
      throw error("result", describe(shape), "at most " + std::to_string(largestNumber) + " values");
    for (const Parameter& parameter : layer_.parameters) checkCount(parameter);
  }

 private:
  [[nodiscard]] mps::Error error(const std::string& argument, const std::string& found,
                                 const std::string& expected) const {
    return {nameOf(layer_.kind) + " \"" + layer_.label + "\"", argument, found, expected};
  }
  void number(const char* argument, std::size_t value) const {
    if (value == 0 || value > largestNumber)
      throw error(argument, std::to_string(value), "1 to " + std::to_string(largestNumber));
  }
  void checkCount(const Parameter& parameter) const {
    std::uint64_t product = 1;
    for (const std::uint64_t extent : parameter.shape) {
      if (product > largestNumber / extent)
        throw error(parameter.name, "more than " + std::to_string(largestNumber) + " numbers", "fewer");
      product *= extent;
    }
  }
  void positive(const char* argument, float value) const {
    if (!(std::isfinite(value) && value > 0))
      throw error(argument, std::to_string(value), "a number above 0");
  }

  const Shape& input() const {
    if (inputs_.size() != 1) throw error("number of inputs", std::to_string(inputs_.size()), "1");
    return inputs_[0];
  }
  /// Pixels of the result along one side.
  std::size_t windows(std::size_t size, std::size_t kernelSize, std::size_t stride, Padding padding) const {
    if (padding == Padding::Same) return (size + stride - 1) / stride;
    if (size < kernelSize)
      throw error("input", describe(input()),
                  "at least " + std::to_string(kernelSize) + "x" + std::to_string(kernelSize) + " pixels");
    return (size - kernelSize) / stride + 1;
  }
  void addBiases(bool biases, std::size_t channels) {
    if (biases) layer_.parameters.push_back({"bias", {channels}});
  }
  void addNormalization() {
    layer_.shape = input();
    layer_.parameters = {{"weight", {input().channels}}, {"bias", {input().channels}}};
  }

  void rule(const InputLayer&) {
    if (!inputs_.empty()) throw error("number of inputs", std::to_string(inputs_.size()), "0");
  }
  void rule(const ConvolutionLayer& layer) {
    const ConvolutionOptions& options = layer.options;
    number("channels", layer.channels);
    number("kernelSize", layer.kernelSize);
    number("stride", options.stride);
    number("dilation", options.dilation);
    number("groups", options.groups);
    const Shape& source = input();
    if (source.channels % options.groups != 0 || layer.channels % options.groups != 0)
      throw error(
          "groups", std::to_string(options.groups),
          "a divisor of " + std::to_string(source.channels) + " and " + std::to_string(layer.channels));
    if (layer.kernelSize - 1 > (largestNumber - 1) / options.dilation)
      throw error("dilation", std::to_string(options.dilation), "less");
    const std::size_t extent = (layer.kernelSize - 1) * options.dilation + 1;
    layer_.shape = {windows(source.height, extent, options.stride, options.padding),
                    windows(source.width, extent, options.stride, options.padding), layer.channels};
    layer_.parameters = {
        {"weight", {layer.channels, layer.kernelSize, layer.kernelSize, source.channels / options.groups}}};
    layer_.multiplyAdds =
        static_cast<double>(layer_.shape.height * layer_.shape.width) * countOf(layer_.parameters[0]);
    addBiases(options.biases, layer.channels);
  }
  void rule(const TransposedConvolutionLayer& layer) {
    number("channels", layer.channels);
    number("kernelSize", layer.kernelSize);
    number("stride", layer.options.stride);
    const Shape& source = input();
    const auto enlarged = [&](std::size_t size) {
      if (size - 1 > (largestNumber - layer.kernelSize) / layer.options.stride)
        throw error("stride", std::to_string(layer.options.stride), "less");
      return (size - 1) * layer.options.stride + layer.kernelSize;
    };
    layer_.shape = {enlarged(source.height), enlarged(source.width), layer.channels};
    layer_.parameters = {{"weight", {layer.channels, layer.kernelSize, layer.kernelSize, source.channels}}};
    layer_.multiplyAdds = static_cast<double>(source.height * source.width) * countOf(layer_.parameters[0]);
    addBiases(layer.options.biases, layer.channels);
  }
  void rule(const DenseLayer& layer) {
    number("channels", layer.channels);
    const Shape& source = input();
    layer_.shape = {1, 1, layer.channels};
    layer_.parameters = {{"weight", {layer.channels, source.height, source.width, source.channels}}};
    layer_.multiplyAdds = countOf(layer_.parameters[0]);
    addBiases(layer.options.biases, layer.channels);
  }
  void rule(const BatchNormalizationLayer& layer) {
    if (!(layer.options.momentum >= 0 && layer.options.momentum <= 1))
      throw error("momentum", std::to_string(layer.options.momentum), "0 to 1");
    positive("epsilon", layer.options.epsilon);
    addNormalization();
    layer_.parameters.push_back({"running_mean", {input().channels}, false});
    layer_.parameters.push_back({"running_var", {input().channels}, false});
  }
  void rule(const InstanceNormalizationLayer& layer) {
    positive("epsilon", layer.epsilon);
    addNormalization();
  }
  void rule(const GroupNormalizationLayer& layer) {
    positive("epsilon", layer.epsilon);
    number("groups", layer.groups);
    if (input().channels % layer.groups != 0)
      throw error("groups", std::to_string(layer.groups),
                  "a divisor of " + std::to_string(input().channels) + " channels");
    addNormalization();
  }
  void rule(const CrossChannelNormalizationLayer& layer) {
    number("size", layer.options.size);
    for (const float value : {layer.options.alpha, layer.options.beta, layer.options.delta})
      if (!std::isfinite(value))
        throw error("alpha, beta or delta", std::to_string(value), "a finite number");
    layer_.shape = input();
  }
  void rule(const ActivationLayer& layer) {
    if (activationName(layer) == "activation")
      throw error("type", mps::name(layer.type),
                  "ReLU, Sigmoid, HardSigmoid, TanH, SoftPlus, SoftSign, ELU, ReLUN or GeLU");
    if (!std::isfinite(layer.a) || !std::isfinite(layer.b))
      throw error("a or b", "not finite", "a finite number");
    layer_.shape = input();
  }
  void pool(std::size_t kernelSize, const PoolingOptions& options) {
    number("kernelSize", kernelSize);
    const std::size_t stride = options.stride == 0 ? kernelSize : options.stride;
    number("stride", stride);
    layer_.shape = {windows(input().height, kernelSize, stride, options.padding),
                    windows(input().width, kernelSize, stride, options.padding), input().channels};
  }
  void rule(const MaxPoolLayer& layer) { pool(layer.kernelSize, layer.options); }
  void rule(const AveragePoolLayer& layer) { pool(layer.kernelSize, layer.options); }
  void rule(const GlobalAveragePoolLayer&) { layer_.shape = {1, 1, input().channels}; }
  void rule(const DropoutLayer& layer) {
    if (!(layer.rate >= 0 && layer.rate < 1))
      throw error("rate", std::to_string(layer.rate), "0 or more and less than 1");
    layer_.shape = input();
  }
  void rule(const UpsamplingLayer& layer) {
    number("factor", layer.factor);
    const auto enlarged = [&](std::size_t size) {
      if (size > largestNumber / layer.factor) throw error("factor", std::to_string(layer.factor), "less");
      return size * layer.factor;
    };
    layer_.shape = {enlarged(input().height), enlarged(input().width), input().channels};
  }
  void rule(const SoftmaxLayer&) { layer_.shape = input(); }
  void rule(const AddLayer&) {
    if (inputs_.size() != 2) throw error("number of inputs", std::to_string(inputs_.size()), "2");
    if (inputs_[0] != inputs_[1])
      throw error("second input", describe(inputs_[1]), describe(inputs_[0]) + " as the first one");
    layer_.shape = inputs_[0];
  }
  void rule(const ConcatenationLayer&) {
    if (inputs_.size() < 2) throw error("number of inputs", std::to_string(inputs_.size()), "2 or more");
    layer_.shape = {inputs_[0].height, inputs_[0].width, 0};
    for (const Shape& input : inputs_) {
      if (input.height != inputs_[0].height || input.width != inputs_[0].width)
        throw error("input", describe(input),
                    std::to_string(inputs_[0].height) + "x" + std::to_string(inputs_[0].width) +
                        " pixels as the first one");
      layer_.shape.channels += input.channels;
    }
  }

  /// In double, as what is too many has not been refused yet.
  static double countOf(const Parameter& parameter) {
    double product = 1;
    for (const std::uint64_t extent : parameter.shape) product *= static_cast<double>(extent);
    return product;
  }

  Layer& layer_;
  std::span<const Shape> inputs_;
};

}  // namespace

void applyRules(Layer& layer, std::span<const Shape> inputs) {
  Rules(layer, inputs).apply();
}

}  // namespace detail
}  // namespace unmetal::train
