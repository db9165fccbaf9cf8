#pragma once

#include <any>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/layer/image_normalization_data_source.hpp"
#include "mps/core/layer/layer_kernel.hpp"

/// Instance normalisation (MPSCNNInstanceNormalization.h): each channel of each image is
/// normalised with its own mean and variance over the m = width height pixels, in training and inference alike.
///
///     mean     = 1/m sum x             variance  = 1/m sum (x - mean)^2
///     r        = 1 / sqrt(variance + epsilon)    h = (x - mean) r
///     y        = gamma h + beta
///     dL/dbeta = sum dy                dL/dgamma = sum dy h                  per image
///     dx       = gamma r (dy - 1/m sum dy - h 1/m sum(dy h))
///
/// Of one pixel y is beta and dx is 0. Sums are float64 sums of differences from a pixel, so a large mean destroys
/// nothing. The forward pass keeps mean and r of each image for the gradient.
///
/// Images have exactly the data source's number of feature channels, from sourceFeatureChannelOffset on, and are
/// taken whole: no clip rectangle, no offset (but for the images of a stack). Sources: every format; results: float16,
/// float32. The destination may be the source, the destination gradient the source gradient.
namespace mps {

namespace detail {

/// What instance and group normalisation have in common.
class ImageNormalizationKernel : public CNNKernel, public LayerKernel {
 public:
  [[nodiscard]] std::size_t numberOfFeatureChannels() const { return channels_; }
  /// Added to the variance. The data source's. States keep what their forward pass used. @throws Error when it is
  /// negative, infinite or not a number
  [[nodiscard]] float epsilon() const { return parameters_.epsilon; }
  void setEpsilon(float epsilon);

  /// Reads the data source again, now; encoded work keeps the old values. @throws Error as create does.
  void reloadGammaAndBetaFromDataSource();
  void reloadFromDataSource() override { reloadGammaAndBetaFromDataSource(); }
  /// Encodes from now on use the state's values as they are when the recorded copy runs. Takes one read off the
  /// state. @throws Error when its length differs.
  void reloadGammaAndBeta(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                          const std::shared_ptr<CNNNormalizationGammaAndBetaState>& gammaAndBetaState);

  /// What encodes use now, and its exchange for what it was earlier.
  [[nodiscard]] const ImageNormalizationParameters& parameters() const { return parameters_; }
  void useParameters(const ImageNormalizationParameters& parameters) { parameters_ = parameters; }
  [[nodiscard]] virtual ImageNormalizationDataSource& parameterSource() const = 0;

 protected:
  using CNNKernel::CNNKernel;
  /// @param source null throws @param groups 0: as many as channels
  ImageNormalizationKernel(const char* className, std::shared_ptr<mtl::Device> device,
                           const ImageNormalizationDataSource* source, std::size_t groups);
  ImageNormalizationKernel(const ImageNormalizationKernel&) = default;
  /// Codes epsilon, groups, and gamma and beta where they are not those of `usual`, a kernel of the coded data source.
  void codeParameters(Coder& coder, const ImageNormalizationKernel& usual);
  [[nodiscard]] std::size_t producedFeatureChannels(std::size_t sourceFeatureChannels) const override;
  [[nodiscard]] std::shared_ptr<State> makeState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      std::span<const std::shared_ptr<State>> sourceStates) const override;
  [[nodiscard]] StateBatch makeStates(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                      std::size_t count,
                                      std::span<const StateBatch> sourceStates) const override;
  void describeForward(std::any& family) const override { family = parameters_; }
  [[nodiscard]] virtual std::shared_ptr<State> makeGradientState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      std::shared_ptr<ImageNormalizationGradients> gradients, std::size_t row) const = 0;
  /// Around each reading of the data source.
  [[nodiscard]] virtual bool loadSource() const { return true; }
  virtual void purgeSource() const {}
  void checkCall(const detail::ForwardCall& call) const override;
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;
  [[nodiscard]] bool worksInPlace() const override { return true; }
  [[nodiscard]] const void* deviceParameters() const override;
  [[nodiscard]] std::function<void()> parameterKeeper() override;
  [[nodiscard]] std::shared_ptr<LayerUpdate> makeUpdate(
      const std::vector<std::shared_ptr<ImageKernel>>& gradients, NNTrainingStyle style) override;
  [[nodiscard]] KernelRoles roles() override;

 private:
  std::size_t channels_ = 0;
  ImageNormalizationParameters parameters_;
};

/// What their gradient kernels have in common.
class ImageNormalizationGradientKernel : public CNNGradientKernel, public LayerGradientKernel {
 protected:
  using CNNGradientKernel::CNNGradientKernel;
  ImageNormalizationGradientKernel(const ImageNormalizationGradientKernel&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] bool takesTogether(const StateBatch& states) const override;
  void didEncode(const GradientCall& call) override;
  [[nodiscard]] bool worksInPlace() const override { return true; }
  [[nodiscard]] bool canAccumulate() const override { return true; }
  [[nodiscard]] bool preparesWithoutPixels() const override { return true; }
  [[nodiscard]] std::vector<PreparedCall> prepareGradient(const GradientCall& call) const override;
  /// Of a step of a graph: whether somebody reads the data gradient. true.
  void chooseGradients(bool ofData, bool /*ofParameters*/) override { computesData_ = ofData; }
  [[nodiscard]] KernelRoles roles() override;

 private:
  bool computesData_ = true;
};

}  // namespace detail

/// MPSCNNInstanceNormalization.
///
/// Of copy(): the data source's copy(), or the source itself where that is null, is read: what was reloaded from a state stays behind
/// (secure coding carries it). A copy on the same device that shares the source has what this kernel has.
class CNNInstanceNormalization
    : public detail::KernelClass<CNNInstanceNormalization, detail::ImageNormalizationKernel,
                                 "CNNInstanceNormalization"> {
 public:
  /// Reads the data source once. @throws Error when it is null, fails to load, has no channels, or an array has
  /// another length than numberOfFeatureChannels.
  static std::shared_ptr<CNNInstanceNormalization> create(
      const std::shared_ptr<mtl::Device>& device,
      std::shared_ptr<CNNInstanceNormalizationDataSource> dataSource);
  [[nodiscard]] const std::shared_ptr<CNNInstanceNormalizationDataSource>& dataSource() const {
    return dataSource_;
  }
  /// All of another data source (deprecated by Apple). @throws Error also for another number of channels
  void reloadDataSource(std::shared_ptr<CNNInstanceNormalizationDataSource> dataSource);

 protected:
  using KernelClass::KernelClass;
  CNNInstanceNormalization(std::shared_ptr<mtl::Device> device,
                           std::shared_ptr<CNNInstanceNormalizationDataSource> dataSource);
  CNNInstanceNormalization(const CNNInstanceNormalization&) = default;
  void codeProperties(Coder& coder) override;
  void didCopy(bool hasMoved) override;
  [[nodiscard]] std::shared_ptr<State> makeGradientState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      std::shared_ptr<detail::ImageNormalizationGradients> gradients, std::size_t row) const override;
  [[nodiscard]] bool loadSource() const override { return dataSource_->load(); }
  void purgeSource() const override { dataSource_->purge(); }
  [[nodiscard]] detail::ImageNormalizationDataSource& parameterSource() const override {
    return *dataSource_;
  }

 private:
  friend KernelClass;
  std::shared_ptr<CNNInstanceNormalizationDataSource> dataSource_;
};

/// dx, and dL/dgamma and dL/dbeta of each image into its state (MPSCNNInstanceNormalizationGradient). sourceImage is
/// the forward source. Needs gradient states; without their kept statistics (another source image) they are
/// computed again.
///
///     auto normalization = mps::CNNInstanceNormalization::create(device, dataSource);
///     std::shared_ptr<mps::State> state;
///     auto y = normalization->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNInstanceNormalizationGradient::create(device);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class CNNInstanceNormalizationGradient
    : public detail::KernelClass<CNNInstanceNormalizationGradient, detail::ImageNormalizationGradientKernel,
                                 "CNNInstanceNormalizationGradient"> {
 public:
  static std::shared_ptr<CNNInstanceNormalizationGradient> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  CNNInstanceNormalizationGradient(const CNNInstanceNormalizationGradient&) = default;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override {
    return forwardClassName == "CNNInstanceNormalization";
  }

 private:
  friend KernelClass;
};

}  // namespace mps
