#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mps {

class Coder;

/// Activation functions (MPSCNNNeuronType). Values are Apple's: ReLU is 1, Linear is 2.
enum class CNNNeuronType : std::int32_t {
  None = 0,          ///< x
  ReLU = 1,          ///< x >= 0 ? x : a x
  Linear = 2,        ///< a x + b
  Sigmoid = 3,       ///< 1 / (1 + exp(-x))
  HardSigmoid = 4,   ///< clamp(a x + b, 0, 1)
  TanH = 5,          ///< a tanh(b x)
  Absolute = 6,      ///< |x|
  SoftPlus = 7,      ///< a ln(1 + exp(b x))
  SoftSign = 8,      ///< x / (1 + |x|)
  ELU = 9,           ///< x >= 0 ? x : a (exp(x) - 1)
  PReLU = 10,        ///< x >= 0 ? x : a_c x, one slope for each channel c
  ReLUN = 11,        ///< min(x >= 0 ? x : a x, b); the ReLU6 of other libraries is a = 0, b = 6
  Power = 12,        ///< (a x + b)^c
  Exponential = 13,  ///< c^(a x + b); c = -1 means base e
  Logarithm = 14,    ///< log_c(a x + b); c = -1 means base e
  GeLU = 15,         ///< x Phi(x) = 0.5 x (1 + erf(x sqrt(0.5))), the exact form
  Count = 16,        ///< number of types
};

/// "ReLU", "GeLU", ...
const char* name(CNNNeuronType type);

/// Names an activation function and its parameters (MPSNNNeuronDescriptor).
///
/// A value: copies are independent of each other. Kernels take their own copy when they are made, so changing
/// a descriptor later changes no kernel. A default-constructed descriptor is None, the identity.
///
/// Parameters that a factory does not get take the documented defaults, zero where a type has no such one:
///
/// | type | a | b | c |
/// |---|---|---|---|
/// | ReLU | 0 | | |
/// | Linear | 1 | 0 | |
/// | HardSigmoid | 0.2 | 0.5 | |
/// | TanH, SoftPlus | 1 | 1 | |
/// | ELU | 1 | | |
/// | ReLUN | 1 | 6 | |
/// | Power | 1 | 0 | 1 |
/// | Exponential, Logarithm | 1 | 0 | -1 (base e) |
///
/// ReLUN's documented a = 1 makes it min(x, 6); pass a = 0 for the ReLU6 that other libraries mean.
class NNNeuronDescriptor {
 public:
  /// None: the identity.
  NNNeuronDescriptor() = default;

  static NNNeuronDescriptor create(CNNNeuronType neuronType);
  static NNNeuronDescriptor create(CNNNeuronType neuronType, float a);
  static NNNeuronDescriptor create(CNNNeuronType neuronType, float a, float b);
  static NNNeuronDescriptor create(CNNNeuronType neuronType, float a, float b, float c);
  /// Apple's name of create. @{
  static NNNeuronDescriptor cnnNeuronDescriptor(CNNNeuronType neuronType) { return create(neuronType); }
  static NNNeuronDescriptor cnnNeuronDescriptor(CNNNeuronType neuronType, float a) {
    return create(neuronType, a);
  }
  static NNNeuronDescriptor cnnNeuronDescriptor(CNNNeuronType neuronType, float a, float b) {
    return create(neuronType, a, b);
  }
  static NNNeuronDescriptor cnnNeuronDescriptor(CNNNeuronType neuronType, float a, float b, float c) {
    return create(neuronType, a, b, c);
  }
  /// @}

  /// PReLU with one slope for each channel, the first for the first channel that the kernel reads.
  /// A kernel that processes more channels than there are slopes throws. The slopes are always copied;
  /// `noCopy` is accepted as the hint that it is in Apple's API.
  static NNNeuronDescriptor cnnNeuronPReLUDescriptor(std::span<const float> data, bool noCopy = false);

  [[nodiscard]] CNNNeuronType neuronType() const { return neuronType_; }
  [[nodiscard]] float a() const { return a_; }
  [[nodiscard]] float b() const { return b_; }
  [[nodiscard]] float c() const { return c_; }
  /// PReLU's slopes; empty for the other types. Valid until setData() or the end of every copy of this
  /// descriptor.
  [[nodiscard]] std::span<const float> data() const;

  void setNeuronType(CNNNeuronType neuronType) { neuronType_ = neuronType; }
  void setA(float a) { a_ = a; }
  void setB(float b) { b_ = b; }
  void setC(float c) { c_ = c; }
  /// Copies the slopes.
  void setData(std::span<const float> data);

  void encode(Coder& coder) const;
  /// @throws Error for a type that does not exist
  static NNNeuronDescriptor decode(Coder& coder);
  /// Same type and bitwise the same parameters and slopes.
  bool operator==(const NNNeuronDescriptor& other) const;
  /// Equal descriptors have equal hashes.
  [[nodiscard]] std::size_t hash() const;
  /// Whether it is the same function: same type, bitwise the same slopes and those parameters that the type uses.
  [[nodiscard]] bool isSameFunction(const NNNeuronDescriptor& other) const;
  /// @throws Error, naming kernel and argument, for a type that does not exist and for parameters that are NaN or infinite.
  /// ReLUN's b may be infinite: no limit. PReLU must not have fewer slopes than there are channels.
  void check(const std::string& kernel, const char* argument, std::size_t channels) const;
  /// "ReLU a=0.1", "PReLU 64 slopes", "GeLU"; the parameters with all their digits.
  [[nodiscard]] std::string describe() const;

 private:
  CNNNeuronType neuronType_ = CNNNeuronType::None;
  float a_ = 0;
  float b_ = 0;
  float c_ = 0;
  std::shared_ptr<const std::vector<float>> data_;  ///< immutable, shared between copies
};

}  // namespace mps
