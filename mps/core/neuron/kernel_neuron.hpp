#pragma once

#include <string>

#include "mps/core/neuron/neuron_descriptor.hpp"

namespace mps {

class Coder;

/// The function that a kernel on matrices ends with, as Apple's classes set and read it. None, the identity, at first.
class KernelNeuron {
 public:
  /// Parameters that the type does not use are kept all the same. @throws Error for PReLU, which needs slopes, and a
  /// type that does not exist
  void setNeuronType(CNNNeuronType neuronType, float parameterA, float parameterB, float parameterC);
  [[nodiscard]] CNNNeuronType neuronType() const { return neuron_.neuronType(); }
  [[nodiscard]] float neuronParameterA() const { return neuron_.a(); }
  [[nodiscard]] float neuronParameterB() const { return neuron_.b(); }
  [[nodiscard]] float neuronParameterC() const { return neuron_.c(); }

 protected:
  KernelNeuron() = default;
  KernelNeuron(const KernelNeuron&) = default;
  KernelNeuron& operator=(const KernelNeuron&) = default;
  ~KernelNeuron() = default;

  [[nodiscard]] const NNNeuronDescriptor& neuron() const { return neuron_; }
  void setNeuron(const NNNeuronDescriptor& neuron) { neuron_ = neuron; }
  /// Writes or reads it. @param takesSlopes whether PReLU may be read
  void codeNeuron(Coder& coder, bool takesSlopes = false);

 private:
  NNNeuronDescriptor neuron_;
};

}  // namespace mps
