#pragma once

#include <any>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/kernel/kernel_roles.hpp"
#include "mps/core/neuron/neuron_descriptor.hpp"

/// Neurons: a function of every value (MPSCNNNeuron.h). NNNeuronDescriptor lists the
/// functions.
namespace mps {

/// result(x, y, c) = f(source(x, y, c)) (MPSCNNNeuron). Sources: every format; results: float16, float32.
/// The destination may be the source.
class CNNNeuron : public detail::KernelClass<CNNNeuron, CNNKernel, "CNNNeuron"> {
 public:
  /// Takes a copy of the descriptor. @throws Error for PReLU without slopes or a type that does not exist
  static std::shared_ptr<CNNNeuron> create(const std::shared_ptr<mtl::Device>& device,
                                           const NNNeuronDescriptor& neuronDescriptor);
  [[nodiscard]] CNNNeuronType neuronType() const { return descriptor_.neuronType(); }
  [[nodiscard]] float a() const { return descriptor_.a(); }
  [[nodiscard]] float b() const { return descriptor_.b(); }
  [[nodiscard]] float c() const { return descriptor_.c(); }
  /// PReLU's slopes.
  [[nodiscard]] std::span<const float> data() const { return descriptor_.data(); }
  [[nodiscard]] const NNNeuronDescriptor& descriptor() const { return descriptor_; }

 protected:
  using KernelClass::KernelClass;
  CNNNeuron(std::shared_ptr<mtl::Device> device, const NNNeuronDescriptor& neuronDescriptor);
  CNNNeuron(const CNNNeuron&) = default;
  void codeProperties(Coder& coder) override;
  void describeForward(std::any& family) const override { family = descriptor_; }
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;
  [[nodiscard]] bool worksInPlace() const override { return true; }
  [[nodiscard]] const NNNeuronDescriptor* appliedNeuron() const override;
  [[nodiscard]] bool repeatsCommands() const override { return true; }

 private:
  friend KernelClass;
  NNNeuronDescriptor descriptor_;
};

/// dx = dy * f'(x), x being the forward source (MPSCNNNeuronGradient). One class for all types; the
/// descriptor must be that of the forward kernel, else encodes throw. Gradients with respect to parameters
/// are not computed.
///
/// ReLU and PReLU with a multiple of four channels save in the state on which side of 0 each x lies (a byte for four
/// values); the gradient of the same image reads that in place of x (docs/decisions.md, D14).
///
///     auto descriptor = mps::NNNeuronDescriptor::create(mps::CNNNeuronType::ReLU);
///     auto relu = mps::CNNNeuron::create(device, descriptor);
///     std::shared_ptr<mps::State> state;
///     auto y = relu->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNNeuronGradient::create(device, descriptor);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class CNNNeuronGradient
    : public detail::KernelClass<CNNNeuronGradient, CNNGradientKernel, "CNNNeuronGradient">,
      public detail::NeuronGradientKernel {
 public:
  static std::shared_ptr<CNNNeuronGradient> create(const std::shared_ptr<mtl::Device>& device,
                                                   const NNNeuronDescriptor& neuronDescriptor);
  [[nodiscard]] CNNNeuronType neuronType() const { return descriptor_.neuronType(); }
  [[nodiscard]] float a() const { return descriptor_.a(); }
  [[nodiscard]] float b() const { return descriptor_.b(); }
  [[nodiscard]] float c() const { return descriptor_.c(); }
  [[nodiscard]] std::span<const float> data() const { return descriptor_.data(); }
  [[nodiscard]] const NNNeuronDescriptor& descriptor() const { return descriptor_; }

 protected:
  using KernelClass::KernelClass;
  CNNNeuronGradient(std::shared_ptr<mtl::Device> device, const NNNeuronDescriptor& neuronDescriptor);
  CNNNeuronGradient(const CNNNeuronGradient&) = default;
  void codeProperties(Coder& coder) override;
  void transferOwnProperties(const detail::ForwardRecord& record) override;
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
  [[nodiscard]] bool worksInPlace() const override { return true; }
  [[nodiscard]] bool canAccumulate() const override { return true; }
  /// sourceImage is the forward result, for a neuron that a graph has fused into another
  /// kernel.
  void setUsesResult(bool usesResult) override { usesResult_ = usesResult; }
  [[nodiscard]] bool usesResult() const override { return usesResult_; }
  [[nodiscard]] bool readsSource(const ImageDescriptor& source) const override;
  [[nodiscard]] const NNNeuronDescriptor& differentiatedNeuron() const override { return descriptor_; }
  [[nodiscard]] detail::KernelRoles roles() override;
  [[nodiscard]] bool repeatsCommands() const override { return true; }
  /// @param sources the third one, which may be there when usesResult(), is added to the gradient
  void encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                  std::span<const ImageBatch> sources, const StateBatch& gradientStates,
                  const ImageBatch& destinationGradients, bool accumulates) override;

 private:
  friend KernelClass;
  NNNeuronDescriptor descriptor_;
  bool usesResult_ = false;
  ImageBatch addends_;  ///< of the encodeStep that goes on
  mtl::CommandBuffer* addendBuffer_ = nullptr;
};

/// a x + b (MPSCNNNeuronLinear).
class CNNNeuronLinear : public CNNNeuron {
 public:
  static std::shared_ptr<CNNNeuronLinear> create(const std::shared_ptr<mtl::Device>& device, float a,
                                                 float b);

 protected:
  using CNNNeuron::CNNNeuron;
};

/// x >= 0 ? x : a x (MPSCNNNeuronReLU).
class CNNNeuronReLU : public CNNNeuron {
 public:
  static std::shared_ptr<CNNNeuronReLU> create(const std::shared_ptr<mtl::Device>& device, float a);

 protected:
  using CNNNeuron::CNNNeuron;
};

/// x >= 0 ? x : a_c x, one slope per channel, copied (MPSCNNNeuronPReLU).
class CNNNeuronPReLU : public CNNNeuron {
 public:
  static std::shared_ptr<CNNNeuronPReLU> create(const std::shared_ptr<mtl::Device>& device,
                                                std::span<const float> a);

 protected:
  using CNNNeuron::CNNNeuron;
};

/// 1 / (1 + exp(-x)) (MPSCNNNeuronSigmoid).
class CNNNeuronSigmoid : public CNNNeuron {
 public:
  static std::shared_ptr<CNNNeuronSigmoid> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using CNNNeuron::CNNNeuron;
};

/// clamp(a x + b, 0, 1) (MPSCNNNeuronHardSigmoid).
class CNNNeuronHardSigmoid : public CNNNeuron {
 public:
  static std::shared_ptr<CNNNeuronHardSigmoid> create(const std::shared_ptr<mtl::Device>& device, float a,
                                                      float b);

 protected:
  using CNNNeuron::CNNNeuron;
};

/// a tanh(b x) (MPSCNNNeuronTanH).
class CNNNeuronTanH : public CNNNeuron {
 public:
  static std::shared_ptr<CNNNeuronTanH> create(const std::shared_ptr<mtl::Device>& device, float a, float b);

 protected:
  using CNNNeuron::CNNNeuron;
};

/// |x| (MPSCNNNeuronAbsolute).
class CNNNeuronAbsolute : public CNNNeuron {
 public:
  static std::shared_ptr<CNNNeuronAbsolute> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using CNNNeuron::CNNNeuron;
};

/// a ln(1 + exp(b x)) (MPSCNNNeuronSoftPlus).
class CNNNeuronSoftPlus : public CNNNeuron {
 public:
  static std::shared_ptr<CNNNeuronSoftPlus> create(const std::shared_ptr<mtl::Device>& device, float a,
                                                   float b);

 protected:
  using CNNNeuron::CNNNeuron;
};

/// x / (1 + |x|) (MPSCNNNeuronSoftSign).
class CNNNeuronSoftSign : public CNNNeuron {
 public:
  static std::shared_ptr<CNNNeuronSoftSign> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using CNNNeuron::CNNNeuron;
};

/// x >= 0 ? x : a (exp(x) - 1) (MPSCNNNeuronELU).
class CNNNeuronELU : public CNNNeuron {
 public:
  static std::shared_ptr<CNNNeuronELU> create(const std::shared_ptr<mtl::Device>& device, float a);

 protected:
  using CNNNeuron::CNNNeuron;
};

/// min(x >= 0 ? x : a x, b) (MPSCNNNeuronReLUN); ReLU6 is a = 0, b = 6.
class CNNNeuronReLUN : public CNNNeuron {
 public:
  static std::shared_ptr<CNNNeuronReLUN> create(const std::shared_ptr<mtl::Device>& device, float a, float b);

 protected:
  using CNNNeuron::CNNNeuron;
};

/// (a x + b)^c (MPSCNNNeuronPower).
class CNNNeuronPower : public CNNNeuron {
 public:
  static std::shared_ptr<CNNNeuronPower> create(const std::shared_ptr<mtl::Device>& device, float a, float b,
                                                float c);

 protected:
  using CNNNeuron::CNNNeuron;
};

/// c^(a x + b), base e for c = -1 (MPSCNNNeuronExponential).
class CNNNeuronExponential : public CNNNeuron {
 public:
  static std::shared_ptr<CNNNeuronExponential> create(const std::shared_ptr<mtl::Device>& device, float a,
                                                      float b, float c);

 protected:
  using CNNNeuron::CNNNeuron;
};

/// log_c(a x + b), base e for c = -1 (MPSCNNNeuronLogarithm).
class CNNNeuronLogarithm : public CNNNeuron {
 public:
  static std::shared_ptr<CNNNeuronLogarithm> create(const std::shared_ptr<mtl::Device>& device, float a,
                                                    float b, float c);

 protected:
  using CNNNeuron::CNNNeuron;
};

}  // namespace mps
