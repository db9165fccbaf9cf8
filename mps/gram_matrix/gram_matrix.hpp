#pragma once

#include <any>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"

/// Gram matrices of feature channels, the measure of style (MPSCNNConvolution.h).
namespace mps {

class Image;

/// Chooses alpha for each encode of a graph (protocol MPSNNGramMatrixCallback).
class NNGramMatrixCallback : public SecureCoding {
 public:
  /// Called right before the kernel is encoded. @param sourceImage, destinationImage one of the batch, as a sample: its
  /// size tells how many pixels are summed, its content is not there yet
  virtual float alphaForSourceImage(const std::shared_ptr<Image>& sourceImage,
                                    const std::shared_ptr<Image>& destinationImage) = 0;
};

/// Uncentred correlation of all pairs of feature channels (MPSNNGramMatrixCalculation). Of each image, with C channels:
///
///     result(x = f, y = 0, channel c) = alpha * sum over all pixels (x, y) of source(x, y, f) * source(x, y, c)
///
/// The result is C pixels wide, 1 high and has C channels. Sources: every format; results: float16 and float32. Sums
/// are float32. Cut the channels with sourceFeatureChannelOffset and sourceFeatureChannelMaxCount.
///
/// @throws Error when offset or clipRect select other pixels than all, and when the destination has another size
class NNGramMatrixCalculation final
    : public detail::KernelClass<NNGramMatrixCalculation, CNNKernel, "NNGramMatrixCalculation"> {
 public:
  static std::shared_ptr<NNGramMatrixCalculation> create(const std::shared_ptr<mtl::Device>& device,
                                                         float alpha = 1);
  /// 1. @throws Error unless it is finite, also of a call-back
  [[nodiscard]] float alpha() const { return alpha_; }
  void setAlpha(float alpha);

  /// @name The library's own
  /// @{
  /// Asked by encodeStep, and by no other encode. May be null.
  void setPropertyCallBack(std::shared_ptr<NNGramMatrixCallback> callback) {
    propertyCallBack_ = std::move(callback);
  }
  [[nodiscard]] bool hasPropertyCallBack() const { return propertyCallBack_ != nullptr; }
  /// @}

 protected:
  using KernelClass::KernelClass;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] bool hasWindow() const override { return true; }
  [[nodiscard]] bool keepsOffset() const override { return true; }
  void adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) override;
  void describeForward(std::any& family) const override;
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;
  void encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                  std::span<const ImageBatch> sources, const StateBatch& destinationStates,
                  const ImageBatch& destinationImages) override;

 private:
  friend KernelClass;
  NNGramMatrixCalculation(std::shared_ptr<mtl::Device> device, float alpha);
  NNGramMatrixCalculation(const NNGramMatrixCalculation&) = default;

  float alpha_ = 1;
  std::shared_ptr<NNGramMatrixCallback> propertyCallBack_;
};

/// The gradient of a Gram matrix (MPSNNGramMatrixCalculationGradient). With G the incoming gradient, which need not be
/// symmetric, G[f][c] = gradient(x = f, y = 0, channel c):
///
///     dSource(x, y, c) = alpha * sum over f of (G[f][c] + G[c][f]) * source(x, y, f)
///
/// sourceImage is the forward source. Encodes with a state take alpha from it, those without use the property.
///
/// @throws Error when offsets or clipRect are set, and when sizes do not belong together
///
///     auto gram = mps::NNGramMatrixCalculation::create(device);
///     std::shared_ptr<mps::State> state;
///     auto y = gram->encode(commandBuffer, x, state, false);
///     auto gradient = mps::NNGramMatrixCalculationGradient::create(device);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class NNGramMatrixCalculationGradient final
    : public detail::KernelClass<NNGramMatrixCalculationGradient, CNNGradientKernel,
                                 "NNGramMatrixCalculationGradient"> {
 public:
  static std::shared_ptr<NNGramMatrixCalculationGradient> create(const std::shared_ptr<mtl::Device>& device,
                                                                 float alpha = 1);
  /// 1; after an encode with a state, what the forward kernel had. @throws Error unless it is finite
  [[nodiscard]] float alpha() const { return alpha_; }
  void setAlpha(float alpha);

 protected:
  using KernelClass::KernelClass;
  void codeProperties(Coder& coder) override;
  void transferOwnProperties(const detail::ForwardRecord& record) override;
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
  [[nodiscard]] bool canAccumulate() const override { return true; }

 private:
  friend KernelClass;
  NNGramMatrixCalculationGradient(std::shared_ptr<mtl::Device> device, float alpha);
  NNGramMatrixCalculationGradient(const NNGramMatrixCalculationGradient&) = default;

  float alpha_ = 1;
};

}  // namespace mps
