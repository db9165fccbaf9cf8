#include "train/network/layer_rules.hpp"

#include <algorithm>
#include <cmath>

#include "mps/core/types/error.hpp"

namespace unmetal::train {

std::string describe(const Sides& sides) {
  return std::to_string(sides.height) + "x" + std::to_string(sides.width);
}

std::string describe(const Margins& margins) {
  return std::to_string(margins.top) + ", " + std::to_string(margins.left) + ", " +
         std::to_string(margins.bottom) + ", " + std::to_string(margins.right);
}

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
    case Linear:
      return "linear";
    case Absolute:
      return "absolute";
    case Power:
      return "power";
    case Exponential:
      return "exponential";
    case Logarithm:
      return "logarithm";
    default:
      return "activation";
  }
}

std::string operationName(const ArithmeticLayer& layer) {
  if (layer.operation == ArithmeticOperation::Subtract) return "subtract";
  return layer.operation == ArithmeticOperation::Multiply ? "multiply" : "divide";
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
          [](const ConcatenationLayer&) -> std::string { return "concatenate"; },
          [](const NormPoolLayer&) -> std::string { return "normPool"; },
          [](const ArithmeticLayer& layer) { return operationName(layer); },
          [](const PadLayer&) -> std::string { return "pad"; }},
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
  void number(const char* argument, const Sides& sides) const {
    number(argument, sides.height);
    number(argument, sides.width);
  }
  void checkMargins(const Margins& margins) const {
    for (const std::size_t margin : {margins.top, margins.left, margins.bottom, margins.right})
      if (margin > largestNumber)
        throw error("margins", describe(margins), "at most " + std::to_string(largestNumber));
  }
  /// Pixels of the result. @param extent of a window
  Shape windows(const Sides& extent, const Sides& stride, Padding padding, const Margins& margins,
                std::size_t channels) const {
    const Shape& source = input();
    if (padding == Padding::Same)
      return {(source.height + stride.height - 1) / stride.height,
              (source.width + stride.width - 1) / stride.width, channels};
    checkMargins(margins);
    if (padding != Padding::Explicit && margins != Margins{})
      throw error("margins", describe(margins), "none, unless the padding is explicit");
    const std::size_t height = margins.top + source.height + margins.bottom;
    const std::size_t width = margins.left + source.width + margins.right;
    if (height < extent.height || width < extent.width)
      throw error("input", describe(source), "at least " + describe(extent) + " pixels");
    return {(height - extent.height) / stride.height + 1, (width - extent.width) / stride.width + 1,
            channels};
  }
  std::size_t dilated(std::size_t kernelSize, std::size_t dilation) const {
    if (kernelSize - 1 > (largestNumber - 1) / dilation)
      throw error("dilation", std::to_string(dilation), "less");
    return (kernelSize - 1) * dilation + 1;
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
    const Sides extent{dilated(layer.kernelSize.height, options.dilation.height),
                       dilated(layer.kernelSize.width, options.dilation.width)};
    layer_.shape = windows(extent, options.stride, options.padding, options.margins, layer.channels);
    layer_.parameters = {{"weight",
                          {layer.channels, layer.kernelSize.height, layer.kernelSize.width,
                           source.channels / options.groups}}};
    layer_.multiplyAdds =
        static_cast<double>(layer_.shape.height * layer_.shape.width) * countOf(layer_.parameters[0]);
    addBiases(options.biases, layer.channels);
  }
  void rule(const TransposedConvolutionLayer& layer) {
    number("channels", layer.channels);
    number("kernelSize", layer.kernelSize);
    number("stride", layer.options.stride);
    const Shape& source = input();
    const Margins& margins = layer.options.margins;
    checkMargins(margins);
    const auto enlarged = [&](std::size_t size, std::size_t kernelSize, std::size_t stride, std::size_t cut) {
      if (size - 1 > (largestNumber - kernelSize) / stride)
        throw error("stride", std::to_string(stride), "less");
      const std::size_t whole = (size - 1) * stride + kernelSize;
      if (cut >= whole)
        throw error("margins", describe(margins),
                    "less than the result of " + std::to_string(whole) + " pixels");
      return whole - cut;
    };
    layer_.shape = {enlarged(source.height, layer.kernelSize.height, layer.options.stride.height,
                             margins.top + margins.bottom),
                    enlarged(source.width, layer.kernelSize.width, layer.options.stride.width,
                             margins.left + margins.right),
                    layer.channels};
    layer_.parameters = {
        {"weight", {layer.channels, layer.kernelSize.height, layer.kernelSize.width, source.channels}}};
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
      throw error(
          "type", mps::name(layer.type),
          "ReLU, Linear, Sigmoid, HardSigmoid, TanH, Absolute, SoftPlus, SoftSign, ELU, ReLUN, Power, "
          "Exponential, Logarithm or GeLU");
    if (!std::isfinite(layer.a) || !std::isfinite(layer.b) || !std::isfinite(layer.c))
      throw error("a, b or c", "not finite", "a finite number");
    layer_.shape = input();
  }
  void pool(const Sides& kernelSize, const PoolingOptions& options) {
    number("kernelSize", kernelSize);
    const Sides stride = options.stride == 0 ? kernelSize : options.stride;
    number("stride", stride);
    layer_.shape = windows(kernelSize, stride, options.padding, options.margins, input().channels);
  }
  void rule(const MaxPoolLayer& layer) { pool(layer.kernelSize, layer.options); }
  void rule(const AveragePoolLayer& layer) { pool(layer.kernelSize, layer.options); }
  void rule(const NormPoolLayer& layer) { pool(layer.kernelSize, layer.options); }
  void rule(const GlobalAveragePoolLayer&) { layer_.shape = {1, 1, input().channels}; }
  void rule(const DropoutLayer& layer) {
    if (!(layer.rate >= 0 && layer.rate < 1))
      throw error("rate", std::to_string(layer.rate), "0 or more and less than 1");
    layer_.shape = input();
  }
  void rule(const UpsamplingLayer& layer) {
    number("factor", layer.factor);
    const auto enlarged = [&](std::size_t size, std::size_t factor) {
      if (size > largestNumber / factor) throw error("factor", std::to_string(factor), "less");
      return size * factor;
    };
    layer_.shape = {enlarged(input().height, layer.factor.height),
                    enlarged(input().width, layer.factor.width), input().channels};
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

  void rule(const ArithmeticLayer&) {
    if (inputs_.size() != 2) throw error("number of inputs", std::to_string(inputs_.size()), "2");
    const auto common = [&](std::size_t first, std::size_t second) {
      if (first != second && first != 1 && second != 1)
        throw error("second input", describe(inputs_[1]), describe(inputs_[0]) + " as the first one, or 1");
      return std::max(first, second);
    };
    layer_.shape = {common(inputs_[0].height, inputs_[1].height), common(inputs_[0].width, inputs_[1].width),
                    common(inputs_[0].channels, inputs_[1].channels)};
  }
  void rule(const PadLayer& layer) {
    const Margins& margins = layer.margins;
    checkMargins(margins);
    if (!std::isfinite(layer.value)) throw error("value", "not finite", "a finite number");
    const Shape& source = input();
    if (layer.content == PaddingContent::Mirror && (std::max(margins.top, margins.bottom) >= source.height ||
                                                    std::max(margins.left, margins.right) >= source.width))
      throw error("margins", describe(margins), "less than the picture of " + describe(source));
    layer_.shape = {margins.top + source.height + margins.bottom, margins.left + source.width + margins.right,
                    source.channels};
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
