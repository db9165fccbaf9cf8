#include "mps/core/neuron/neuron_descriptor.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

#include "mps/core/coding/coder.hpp"
#include "mps/core/types/error.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps {
namespace {

struct Parameters {
  float a = 0;
  float b = 0;
  float c = 0;
};

constexpr Parameters defaultParameters(CNNNeuronType type) {
  switch (type) {
    case CNNNeuronType::Linear:
      return {1, 0, 0};
    case CNNNeuronType::HardSigmoid:
      return {0.2F, 0.5F, 0};
    case CNNNeuronType::TanH:
    case CNNNeuronType::SoftPlus:
      return {1, 1, 0};
    case CNNNeuronType::ELU:
      return {1, 0, 0};
    case CNNNeuronType::ReLUN:
      return {1, 6, 0};
    case CNNNeuronType::Power:
      return {1, 0, 1};
    case CNNNeuronType::Exponential:
    case CNNNeuronType::Logarithm:
      return {1, 0, -1};
    default:
      return {};
  }
}

/// How many of a, b, c the function of this type uses.
constexpr int parameterCount(CNNNeuronType type) {
  switch (type) {
    case CNNNeuronType::ReLU:
    case CNNNeuronType::ELU:
      return 1;
    case CNNNeuronType::Linear:
    case CNNNeuronType::HardSigmoid:
    case CNNNeuronType::TanH:
    case CNNNeuronType::SoftPlus:
    case CNNNeuronType::ReLUN:
      return 2;
    case CNNNeuronType::Power:
    case CNNNeuronType::Exponential:
    case CNNNeuronType::Logarithm:
      return 3;
    default:
      return 0;
  }
}

/// Bits, not values: -0 differs from 0 (their slopes give different signs) and NaN equals itself.
bool sameBits(float left, float right) {
  return std::bit_cast<std::uint32_t>(left) == std::bit_cast<std::uint32_t>(right);
}

}  // namespace

const char* name(CNNNeuronType type) {
  switch (type) {
    case CNNNeuronType::None:
      return "None";
    case CNNNeuronType::ReLU:
      return "ReLU";
    case CNNNeuronType::Linear:
      return "Linear";
    case CNNNeuronType::Sigmoid:
      return "Sigmoid";
    case CNNNeuronType::HardSigmoid:
      return "HardSigmoid";
    case CNNNeuronType::TanH:
      return "TanH";
    case CNNNeuronType::Absolute:
      return "Absolute";
    case CNNNeuronType::SoftPlus:
      return "SoftPlus";
    case CNNNeuronType::SoftSign:
      return "SoftSign";
    case CNNNeuronType::ELU:
      return "ELU";
    case CNNNeuronType::PReLU:
      return "PReLU";
    case CNNNeuronType::ReLUN:
      return "ReLUN";
    case CNNNeuronType::Power:
      return "Power";
    case CNNNeuronType::Exponential:
      return "Exponential";
    case CNNNeuronType::Logarithm:
      return "Logarithm";
    case CNNNeuronType::GeLU:
      return "GeLU";
    case CNNNeuronType::Count:
      break;
  }
  return "unknown";
}

NNNeuronDescriptor NNNeuronDescriptor::create(CNNNeuronType neuronType) {
  const Parameters defaults = defaultParameters(neuronType);
  return create(neuronType, defaults.a, defaults.b, defaults.c);
}

NNNeuronDescriptor NNNeuronDescriptor::create(CNNNeuronType neuronType, float a) {
  const Parameters defaults = defaultParameters(neuronType);
  return create(neuronType, a, defaults.b, defaults.c);
}

NNNeuronDescriptor NNNeuronDescriptor::create(CNNNeuronType neuronType, float a, float b) {
  return create(neuronType, a, b, defaultParameters(neuronType).c);
}

NNNeuronDescriptor NNNeuronDescriptor::create(CNNNeuronType neuronType, float a, float b, float c) {
  NNNeuronDescriptor descriptor;
  descriptor.neuronType_ = neuronType;
  descriptor.a_ = a;
  descriptor.b_ = b;
  descriptor.c_ = c;
  return descriptor;
}

NNNeuronDescriptor NNNeuronDescriptor::cnnNeuronPReLUDescriptor(std::span<const float> data,
                                                                bool /*noCopy*/) {
  NNNeuronDescriptor descriptor = create(CNNNeuronType::PReLU);
  descriptor.setData(data);
  return descriptor;
}

std::span<const float> NNNeuronDescriptor::data() const {
  if (!data_) return {};
  return *data_;
}

void NNNeuronDescriptor::setData(std::span<const float> data) {
  data_ = data.empty() ? nullptr : std::make_shared<const std::vector<float>>(data.begin(), data.end());
}

bool NNNeuronDescriptor::operator==(const NNNeuronDescriptor& other) const {
  return neuronType_ == other.neuronType_ && sameBits(a_, other.a_) && sameBits(b_, other.b_) &&
         sameBits(c_, other.c_) &&
         (data_ == other.data_ || std::ranges::equal(data(), other.data(), sameBits));
}

std::size_t NNNeuronDescriptor::hash() const {
  std::size_t seed = detail::hashOf(neuronType_, std::bit_cast<std::uint32_t>(a_),
                                    std::bit_cast<std::uint32_t>(b_), std::bit_cast<std::uint32_t>(c_));
  for (const float slope : data()) seed = detail::hashCombine(seed, std::bit_cast<std::uint32_t>(slope));
  return seed;
}

bool NNNeuronDescriptor::isSameFunction(const NNNeuronDescriptor& other) const {
  const int count = parameterCount(neuronType_);
  return neuronType_ == other.neuronType_ && (count < 1 || sameBits(a_, other.a_)) &&
         (count < 2 || sameBits(b_, other.b_)) && (count < 3 || sameBits(c_, other.c_)) &&
         (neuronType_ != CNNNeuronType::PReLU || data_ == other.data_ ||
          std::ranges::equal(data(), other.data(), sameBits));
}

void NNNeuronDescriptor::check(const std::string& kernel, const char* argument, std::size_t channels) const {
  const auto type = static_cast<std::int32_t>(neuronType_);
  if (type < 0 || type >= static_cast<std::int32_t>(CNNNeuronType::Count))
    throw Error(kernel, "neuronType", std::to_string(type), "a type of CNNNeuronType");
  const std::pair<const char*, float> parameters[] = {{"a", a_}, {"b", b_}, {"c", c_}};
  for (const auto& [parameter, value] :
       std::span(parameters).first(static_cast<std::size_t>(parameterCount(neuronType_))))
    if (const bool isNoLimit = neuronType_ == CNNNeuronType::ReLUN && value > 0;
        !std::isfinite(value) && !isNoLimit)
      throw Error(kernel, std::string(argument) + "." + parameter, std::to_string(value), "a finite number");
  if (neuronType_ == CNNNeuronType::PReLU && data().size() < channels)
    throw Error(kernel, argument,
                data().empty() ? "PReLU without slopes" : std::to_string(data().size()) + " slopes",
                "at least " + std::to_string(channels) + ", one for each feature channel");
}

std::string NNNeuronDescriptor::describe() const {
  std::string text = name(neuronType_);
  const auto add = [&](const char* parameter, float value) {
    char digits[32];
    const auto end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
    text += parameter;
    text.append(digits, end);
  };
  const int count = parameterCount(neuronType_);
  if (count > 0) add(" a=", a_);
  if (count > 1) add(" b=", b_);
  if (count > 2) add(" c=", c_);
  if (neuronType_ == CNNNeuronType::PReLU) text += " " + std::to_string(data().size()) + " slopes";
  return text;
}

void NNNeuronDescriptor::encode(Coder& coder) const {
  coder.codeClass("NNNeuronDescriptor");
  coder.encode("neuronType", static_cast<std::uint32_t>(neuronType_));
  coder.encode("a", a_);
  coder.encode("b", b_);
  coder.encode("c", c_);
  coder.encode("data", std::vector<float>(data().begin(), data().end()));
}

NNNeuronDescriptor NNNeuronDescriptor::decode(Coder& coder) {
  coder.codeClass("NNNeuronDescriptor");
  NNNeuronDescriptor descriptor;
  constexpr auto last = static_cast<CNNNeuronType>(static_cast<std::int32_t>(CNNNeuronType::Count) - 1);
  coder.codeEnumeration("neuronType", descriptor.neuronType_, last);
  coder.decode("a", descriptor.a_);
  coder.decode("b", descriptor.b_);
  coder.decode("c", descriptor.c_);
  std::vector<float> slopes;
  coder.decode("data", slopes);
  if (!slopes.empty()) descriptor.setData(slopes);
  return descriptor;
}

}  // namespace mps
