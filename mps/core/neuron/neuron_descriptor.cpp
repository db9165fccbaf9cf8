#include "mps/core/neuron/neuron_descriptor.hpp"

#include <algorithm>
#include <array>
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

struct NeuronType {
  const char* name;
  int parameters;  ///< how many of a, b, c the function uses
  Parameters defaults;
};

/// In the order of the enumeration.
constexpr std::array<NeuronType, static_cast<std::size_t>(CNNNeuronType::Count)> kTypes{{
    {"None", 0, {}},
    {"ReLU", 1, {}},
    {"Linear", 2, {1, 0, 0}},
    {"Sigmoid", 0, {}},
    {"HardSigmoid", 2, {0.2F, 0.5F, 0}},
    {"TanH", 2, {1, 1, 0}},
    {"Absolute", 0, {}},
    {"SoftPlus", 2, {1, 1, 0}},
    {"SoftSign", 0, {}},
    {"ELU", 1, {1, 0, 0}},
    {"PReLU", 0, {}},
    {"ReLUN", 2, {1, 6, 0}},
    {"Power", 3, {1, 0, 1}},
    {"Exponential", 3, {1, 0, -1}},
    {"Logarithm", 3, {1, 0, -1}},
    {"GeLU", 0, {}},
}};

constexpr NeuronType recordOf(CNNNeuronType type) {
  const auto index = static_cast<std::size_t>(type);
  return index < kTypes.size() ? kTypes[index] : NeuronType{"unknown", 0, {}};
}

/// Bits, not values: -0 differs from 0 (their slopes give different signs) and NaN equals itself.
bool sameBits(float left, float right) {
  return std::bit_cast<std::uint32_t>(left) == std::bit_cast<std::uint32_t>(right);
}

}  // namespace

const char* name(CNNNeuronType type) {
  return recordOf(type).name;
}

NNNeuronDescriptor NNNeuronDescriptor::create(CNNNeuronType neuronType) {
  const Parameters defaults = recordOf(neuronType).defaults;
  return create(neuronType, defaults.a, defaults.b, defaults.c);
}

NNNeuronDescriptor NNNeuronDescriptor::create(CNNNeuronType neuronType, float a) {
  const Parameters defaults = recordOf(neuronType).defaults;
  return create(neuronType, a, defaults.b, defaults.c);
}

NNNeuronDescriptor NNNeuronDescriptor::create(CNNNeuronType neuronType, float a, float b) {
  return create(neuronType, a, b, recordOf(neuronType).defaults.c);
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
  const int count = recordOf(neuronType_).parameters;
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
       std::span(parameters).first(static_cast<std::size_t>(recordOf(neuronType_).parameters)))
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
  const int count = recordOf(neuronType_).parameters;
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
