#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mps/core/image/gradient_state.hpp"
#include "mps/core/kernel/cnn_binary_kernel.hpp"
#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/kernel/kernel_roles.hpp"

/// Arithmetic of two images, element by element (MPSCNNMath.h).
namespace mps {

namespace detail {
enum class ArithmeticOperation : std::uint8_t;
struct ArithmeticGradientAxes;
struct ArithmeticProblem;
}  // namespace detail

/// What one arithmetic encode leaves for its gradients (MPSCNNArithmeticGradientState): sizes, offsets and
/// strides of both sources, and where there are limits the mask 1 where minimumValue < r < maximumValue, else 0 (strict, r
/// before the limits; a limit that means none lets every r pass). One state for each image; both gradient kernels read it.
class CNNArithmeticGradientState : public NNBinaryGradientState {
 public:
  static std::shared_ptr<CNNArithmeticGradientState> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using NNBinaryGradientState::NNBinaryGradientState;
};
using CNNArithmeticGradientStateBatch = StateBatch;

/// Base of add, subtract, multiply and divide (MPSCNNArithmetic). x is the primary source, y the secondary
/// one:
///
///     result(x, y, c) = clamp(operation, minimumValue, maximumValue)
///     X(x, y, c) = primary(primaryOffset.x + strideX * x, primaryOffset.y + strideY * y,
///                          primarySourceFeatureChannelOffset + strideInFeatureChannels * c)
///
/// and Y likewise. Strides are 0 or 1; 0 repeats one column, row or channel, so a source whose three strides
/// are 0 is a number. Outside a source its edge mode holds. NaN stays NaN.
///
/// Without a destination: on each axis the size of a source whose stride is 1, the primary one first; 1 when
/// both are 0. Channels likewise; two sources that are not repeated must have as many channels. Sources:
/// every format; results: float16, float32. Arithmetic is float32, rounded once when stored.
///
/// The destination may be the primary source, where that is not repeated.
///
/// @throws Error for a stride above 1, minimumValue > maximumValue, or channels that do not match.
class CNNArithmetic : public CNNBinaryKernel {
 public:
  /// Factor on x, factor on y, and what is added to the result of the operation. 1, 1, 0.
  [[nodiscard]] float primaryScale() const { return primaryScale_; }
  void setPrimaryScale(float scale) { primaryScale_ = scale; }
  [[nodiscard]] float secondaryScale() const { return secondaryScale_; }
  void setSecondaryScale(float scale) { secondaryScale_ = scale; }
  [[nodiscard]] float bias() const { return bias_; }
  void setBias(float bias) { bias_ = bias; }
  /// Limits of the result. -FLT_MAX, FLT_MAX, which mean none: infinities pass, and 1 / 0 is infinite. Any other value
  /// clamps (docs/decisions.md, D24).
  [[nodiscard]] float minimumValue() const { return minimumValue_; }
  void setMinimumValue(float value) { minimumValue_ = value; }
  [[nodiscard]] float maximumValue() const { return maximumValue_; }
  void setMaximumValue(float value) { maximumValue_ = value; }
  /// 0 repeats the first channel read of that source. 1.
  [[nodiscard]] std::size_t primaryStrideInFeatureChannels() const { return primaryStrideInFeatureChannels_; }
  void setPrimaryStrideInFeatureChannels(std::size_t stride) { primaryStrideInFeatureChannels_ = stride; }
  [[nodiscard]] std::size_t secondaryStrideInFeatureChannels() const {
    return secondaryStrideInFeatureChannels_;
  }
  void setSecondaryStrideInFeatureChannels(std::size_t stride) { secondaryStrideInFeatureChannels_ = stride; }

  using CNNBinaryKernel::encode;
  using CNNBinaryKernel::encodeBatch;
  /// With a destination and a state for the gradients; the padding policy is not asked.
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Image>& primaryImage, const std::shared_ptr<Image>& secondaryImage,
              const std::shared_ptr<State>& destinationState, const std::shared_ptr<Image>& destinationImage);

 protected:
  using CNNBinaryKernel::CNNBinaryKernel;
  CNNArithmetic(const CNNArithmetic&) = default;
  void codeProperties(Coder& coder) override;

  void encodeCall(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& primary,
                  const ImageBatch& secondary, const StateBatch& destinationStates,
                  const ImageBatch& destinations) override;
  ImageDescriptor sizeDestination(const ImageDescriptor& primary, const ImageDescriptor& secondary) override;
  [[nodiscard]] std::size_t producedFeatureChannels(std::size_t primaryChannels,
                                                    std::size_t secondaryChannels) const override;
  [[nodiscard]] bool makesState() const override { return true; }
  [[nodiscard]] std::shared_ptr<State> makeState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const override;
  [[nodiscard]] virtual detail::ArithmeticOperation operation() const = 0;
  /// What a class changes in the problem of a call.
  virtual void describeOperation(detail::ArithmeticProblem& /*problem*/) const {}
  [[nodiscard]] bool worksInPlace() const override;
  [[nodiscard]] detail::SumTraits sumTraits() const override;
  [[nodiscard]] bool repeatsCommands() const override { return true; }

 private:
  /// Feature channels of one call.
  struct Channels {
    std::size_t primary, secondary, produced;
  };

  void checkProperties() const;
  /// @throws Error when sources and destination do not fit together.
  [[nodiscard]] Channels resolveChannels(const detail::TensorShape& primary,
                                         const detail::TensorShape& secondary,
                                         const detail::TensorShape& destination) const;
  [[nodiscard]] detail::ArithmeticProblem problemOf(const detail::TensorShape& primary,
                                                    const detail::TensorShape& secondary,
                                                    const detail::TensorShape& destination) const;

  float primaryScale_ = 1;
  float secondaryScale_ = 1;
  float bias_ = 0;
  float minimumValue_ = -FLT_MAX;
  float maximumValue_ = FLT_MAX;
  std::size_t primaryStrideInFeatureChannels_ = 1;
  std::size_t secondaryStrideInFeatureChannels_ = 1;
};

/// primaryScale x + secondaryScale y + bias (MPSCNNAdd).
class CNNAdd : public detail::KernelClass<CNNAdd, CNNArithmetic, "CNNAdd">, public detail::NeuronFusion {
 public:
  static std::shared_ptr<CNNAdd> create(const std::shared_ptr<mtl::Device>& device);
  /// @name The library's own
  /// @{
  /// A ReLU of slope 0 that a graph has fused behind the limits, which have to be the default ones; its gradient stays a kernel
  /// of its own.
  [[nodiscard]] bool hasGraphReLU() const { return hasGraphReLU_; }
  /// @}

 protected:
  using KernelClass::KernelClass;
  CNNAdd(const CNNAdd&) = default;
  [[nodiscard]] detail::ArithmeticOperation operation() const override;
  void codeProperties(Coder& coder) override;
  void describeOperation(detail::ArithmeticProblem& problem) const override;
  [[nodiscard]] detail::SumTraits sumTraits() const override;
  [[nodiscard]] detail::KernelRoles roles() override;
  [[nodiscard]] Answer canFuse(const NNNeuronDescriptor& neuron, bool isDifferentiated) const override;
  void fuse(const NNNeuronDescriptor& /*neuron*/) override { hasGraphReLU_ = true; }

 private:
  friend KernelClass;
  bool hasGraphReLU_ = false;
};

/// primaryScale x - secondaryScale y + bias (MPSCNNSubtract).
class CNNSubtract : public detail::KernelClass<CNNSubtract, CNNArithmetic, "CNNSubtract"> {
 public:
  static std::shared_ptr<CNNSubtract> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  CNNSubtract(const CNNSubtract&) = default;
  [[nodiscard]] detail::ArithmeticOperation operation() const override;

 private:
  friend KernelClass;
};

/// (primaryScale x)(secondaryScale y) + bias (MPSCNNMultiply).
class CNNMultiply : public detail::KernelClass<CNNMultiply, CNNArithmetic, "CNNMultiply"> {
 public:
  static std::shared_ptr<CNNMultiply> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  CNNMultiply(const CNNMultiply&) = default;
  [[nodiscard]] detail::ArithmeticOperation operation() const override;

 private:
  friend KernelClass;
};

/// (primaryScale x) / (secondaryScale y) + bias (MPSCNNDivide). With a state, x is kept for the
/// gradient of y: 2 bytes for each element of the result where x is float16, else 4.
class CNNDivide : public detail::KernelClass<CNNDivide, CNNArithmetic, "CNNDivide"> {
 public:
  static std::shared_ptr<CNNDivide> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  CNNDivide(const CNNDivide&) = default;
  [[nodiscard]] detail::ArithmeticOperation operation() const override;

 private:
  friend KernelClass;
};

/// Base of the gradients (MPSCNNArithmeticGradient): from the gradient g of the result to that of one source.
/// Two kernels are needed for a forward kernel, both with its state.
///
///     gradient of a source at i = sum of mask * value over the pixels of the result that read i
///
/// The axes that the forward kernel repeated are summed, in float64 where they are long; the destination has
/// the size of the source. The mask is that of the state, 1 without one. What a class computes as value,
/// which image z it takes as sourceImage, and the scales that give the exact gradient of a forward kernel
/// with the scales a and b:
///
/// | class | value | of x: z, scales | of y: z, scales |
/// |---|---|---|---|
/// | CNNAddGradient | primaryScale g | x, a | y, b |
/// | CNNSubtractGradient | primaryScale g | x, a | y, -b |
/// | CNNMultiplyGradient | primaryScale g * secondaryScale z | y, (a, b) | x, (b, a) |
/// | CNNDivideGradient | primaryScale g / (secondaryScale z) | y, (a, b) | |
/// | CNNDivideGradient | -(primaryScale g / (secondaryScale z)) (x / y) | | y, (a, b) |
///
/// Scales are not taken from the state: 1, 1 is right for a = b = 1 alone. Of z the size alone counts for add
/// and subtract. Encodes without a state know no mask; they sum an axis where the destination is 1 and g is
/// larger.
///
/// @throws Error when a source reached beyond its edges with edge mode Clamp, or z of a division at all; when
/// sourceImage of multiply is known to be the operand itself; and what CNNGradientKernel throws.
class CNNArithmeticGradient : public CNNGradientKernel {
 public:
  /// Factor on g, factor on z. 1.
  [[nodiscard]] float primaryScale() const { return primaryScale_; }
  void setPrimaryScale(float scale) { primaryScale_ = scale; }
  [[nodiscard]] float secondaryScale() const { return secondaryScale_; }
  void setSecondaryScale(float scale) { secondaryScale_ = scale; }
  /// Not used. 0.
  [[nodiscard]] float bias() const { return bias_; }
  void setBias(float bias) { bias_ = bias; }
  /// Not used: the mask of the state decides. -FLT_MAX, FLT_MAX.
  [[nodiscard]] float minimumValue() const { return minimumValue_; }
  void setMinimumValue(float value) { minimumValue_ = value; }
  [[nodiscard]] float maximumValue() const { return maximumValue_; }
  void setMaximumValue(float value) { maximumValue_ = value; }
  /// 0 repeats the first channel of z. 1; like the strides in pixels taken from the state unless set.
  [[nodiscard]] std::size_t secondaryStrideInFeatureChannels() const {
    return secondaryStrideInFeatureChannels_.get();
  }
  void setSecondaryStrideInFeatureChannels(std::size_t stride) {
    secondaryStrideInFeatureChannels_.set(stride);
  }
  /// Whether the gradient is that of y.
  [[nodiscard]] bool isSecondarySourceFilter() const { return isSecondarySourceFilter_; }

 protected:
  using CNNGradientKernel::CNNGradientKernel;
  CNNArithmeticGradient(std::shared_ptr<mtl::Device> device, bool isSecondarySourceFilter);
  CNNArithmeticGradient(const CNNArithmeticGradient&) = default;
  [[nodiscard]] virtual detail::ArithmeticOperation operation() const = 0;
  void codeProperties(Coder& coder) override;

  [[nodiscard]] bool needsStatesInOrder() const override { return true; }
  void checkRole(const detail::ForwardRecord& record, const detail::BatchOperand& source) const override;
  void transferOwnProperties(const detail::ForwardRecord& record) override;
  void encodeCall(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& primary,
                  const ImageBatch& secondary, const StateBatch& destinationStates,
                  const ImageBatch& destinations) override;
  [[nodiscard]] std::size_t scratchBytes(const ImageBatch& primary, const ImageBatch& secondary,
                                         const StateBatch& states, const ImageBatch& destinations) override;
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
  [[nodiscard]] bool needsSourceMemory(bool forwardSavesFields) const override;
  [[nodiscard]] bool canAccumulate() const override { return true; }
  [[nodiscard]] detail::DerivativeTraits derivativeTraits() const override;
  [[nodiscard]] bool repeatsCommands() const override { return true; }
  [[nodiscard]] std::optional<std::size_t> forwardSourceIndex() const override {
    return isSecondarySourceFilter_ ? 1 : 0;
  }
  [[nodiscard]] std::optional<std::size_t> sourceImageIndex() const override;
  [[nodiscard]] std::shared_ptr<const detail::ForwardRecord> ownRecord(
      std::shared_ptr<const detail::ForwardRecord> record) const override;
  [[nodiscard]] const ImageDescriptor& expectedSourceImage(
      const detail::ForwardRecord& record) const override;

 private:
  [[nodiscard]] detail::PreparedCall prepareAxes(detail::ArithmeticGradientAxes& axes) const;
  /// Of an encode without a state: selects what the operands hold of the call; nothing where the destination is empty.
  [[nodiscard]] std::optional<detail::PreparedCall> prepareWithoutState(
      detail::BatchOperand& gradient, detail::BatchOperand& source, detail::BatchOperand& destination) const;

  bool isSecondarySourceFilter_ = false;
  float primaryScale_ = 1;
  float secondaryScale_ = 1;
  float bias_ = 0;
  float minimumValue_ = -FLT_MAX;
  float maximumValue_ = FLT_MAX;
  detail::Settable<std::size_t> secondaryStrideInFeatureChannels_{1};
};

/// Gradient of CNNAdd (MPSCNNAddGradient).
///
///     auto add = mps::CNNAdd::create(device);
///     std::shared_ptr<mps::State> state;
///     auto z = add->encode(commandBuffer, x, y, state, false);
///     auto dx = mps::CNNAddGradient::create(device, false)->encode(commandBuffer, dz, x, state);
///     auto ofY = mps::CNNAddGradient::create(device, true);
///     auto dy = ofY->encode(commandBuffer, dz, y, state);
class CNNAddGradient : public detail::KernelClass<CNNAddGradient, CNNArithmeticGradient, "CNNAddGradient"> {
 public:
  static std::shared_ptr<CNNAddGradient> create(const std::shared_ptr<mtl::Device>& device,
                                                bool isSecondarySourceFilter);

 protected:
  using KernelClass::KernelClass;
  CNNAddGradient(const CNNAddGradient&) = default;
  [[nodiscard]] detail::ArithmeticOperation operation() const override;

 private:
  friend KernelClass;
};

/// Gradient of CNNSubtract (MPSCNNSubtractGradient). It does not negate: for y set primaryScale to -b.
///
///     auto subtract = mps::CNNSubtract::create(device);
///     std::shared_ptr<mps::State> state;
///     auto z = subtract->encode(commandBuffer, x, y, state, false);
///     auto dx = mps::CNNSubtractGradient::create(device, false)->encode(commandBuffer, dz, x, state);
///     auto ofY = mps::CNNSubtractGradient::create(device, true);
///     ofY->setPrimaryScale(-1);
///     auto dy = ofY->encode(commandBuffer, dz, y, state);
class CNNSubtractGradient
    : public detail::KernelClass<CNNSubtractGradient, CNNArithmeticGradient, "CNNSubtractGradient"> {
 public:
  static std::shared_ptr<CNNSubtractGradient> create(const std::shared_ptr<mtl::Device>& device,
                                                     bool isSecondarySourceFilter);

 protected:
  using KernelClass::KernelClass;
  CNNSubtractGradient(const CNNSubtractGradient&) = default;
  [[nodiscard]] detail::ArithmeticOperation operation() const override;

 private:
  friend KernelClass;
};

/// Gradient of CNNMultiply (MPSCNNMultiplyGradient). sourceImage is the other operand.
///
///     auto multiply = mps::CNNMultiply::create(device);
///     std::shared_ptr<mps::State> state;
///     auto z = multiply->encode(commandBuffer, x, y, state, false);
///     auto dx = mps::CNNMultiplyGradient::create(device, false)->encode(commandBuffer, dz, y, state);
///     auto ofY = mps::CNNMultiplyGradient::create(device, true);
///     auto dy = ofY->encode(commandBuffer, dz, x, state);
class CNNMultiplyGradient
    : public detail::KernelClass<CNNMultiplyGradient, CNNArithmeticGradient, "CNNMultiplyGradient"> {
 public:
  static std::shared_ptr<CNNMultiplyGradient> create(const std::shared_ptr<mtl::Device>& device,
                                                     bool isSecondarySourceFilter);

 protected:
  using KernelClass::KernelClass;
  CNNMultiplyGradient(const CNNMultiplyGradient&) = default;
  [[nodiscard]] detail::ArithmeticOperation operation() const override;

 private:
  friend KernelClass;
};

/// Gradient of CNNDivide, an extension (docs/decisions.md, D6). sourceImage is the divisor y; for y a state is needed.
///
///     auto divide = mps::CNNDivide::create(device);
///     std::shared_ptr<mps::State> state;
///     auto z = divide->encode(commandBuffer, x, y, state, false);
///     auto dx = mps::CNNDivideGradient::create(device, false)->encode(commandBuffer, dz, y, state);
///     auto ofY = mps::CNNDivideGradient::create(device, true);
///     auto dy = ofY->encode(commandBuffer, dz, y, state);
class CNNDivideGradient
    : public detail::KernelClass<CNNDivideGradient, CNNArithmeticGradient, "CNNDivideGradient"> {
 public:
  static std::shared_ptr<CNNDivideGradient> create(const std::shared_ptr<mtl::Device>& device,
                                                   bool isSecondarySourceFilter);

 protected:
  using KernelClass::KernelClass;
  CNNDivideGradient(const CNNDivideGradient&) = default;
  [[nodiscard]] detail::ArithmeticOperation operation() const override;

 private:
  friend KernelClass;
};

}  // namespace mps
