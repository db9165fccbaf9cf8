#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/instance_normalization/instance_normalization.hpp"

/// Group normalisation (MPSCNNGroupNormalization.h): as instance normalisation, but mean and
/// variance are those of a group of K = channels / groups adjacent channels, over m = K width height values; gamma and
/// beta stay per channel:
///
///     y  = gamma h + beta              e = gamma dy
///     dx = r (e - 1/m sum e - h 1/m sum(e h)), the sums over the group
///
/// One group is layer normalisation with gamma and beta per channel; as many groups as channels are instance
/// normalisation.
namespace mps {

/// MPSCNNGroupNormalization.
///
/// Of copy(): the data source's copy(), or the source itself where that is null, is read: what was reloaded from a state stays behind
/// (secure coding carries it). A copy on the same device that shares the source has what this kernel has.
class CNNGroupNormalization
    : public detail::KernelClass<CNNGroupNormalization, detail::ImageNormalizationKernel,
                                 "CNNGroupNormalization"> {
 public:
  /// Reads the data source once. @throws Error when it is null, has no channels, its number of groups does not divide
  /// that of the channels, or an array has another length than numberOfFeatureChannels.
  static std::shared_ptr<CNNGroupNormalization> create(
      const std::shared_ptr<mtl::Device>& device,
      std::shared_ptr<CNNGroupNormalizationDataSource> dataSource);
  [[nodiscard]] const std::shared_ptr<CNNGroupNormalizationDataSource>& dataSource() const {
    return dataSource_;
  }
  /// As the data source said when the kernel was made.
  [[nodiscard]] std::size_t numberOfGroups() const { return parameters().groups; }

 protected:
  using KernelClass::KernelClass;
  CNNGroupNormalization(std::shared_ptr<mtl::Device> device,
                        std::shared_ptr<CNNGroupNormalizationDataSource> dataSource);
  CNNGroupNormalization(const CNNGroupNormalization&) = default;
  void codeProperties(Coder& coder) override;
  void didCopy(bool hasMoved) override;
  [[nodiscard]] std::shared_ptr<State> makeGradientState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      std::shared_ptr<detail::ImageNormalizationGradients> gradients, std::size_t row) const override;
  [[nodiscard]] detail::ImageNormalizationDataSource& parameterSource() const override {
    return *dataSource_;
  }

 private:
  friend KernelClass;
  std::shared_ptr<CNNGroupNormalizationDataSource> dataSource_;
};

/// dx, and dL/dgamma and dL/dbeta of each image into its state (MPSCNNGroupNormalizationGradient); as
/// CNNInstanceNormalizationGradient.
///
///     auto normalization = mps::CNNGroupNormalization::create(device, dataSource);
///     std::shared_ptr<mps::State> state;
///     auto y = normalization->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNGroupNormalizationGradient::create(device);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class CNNGroupNormalizationGradient
    : public detail::KernelClass<CNNGroupNormalizationGradient, detail::ImageNormalizationGradientKernel,
                                 "CNNGroupNormalizationGradient"> {
 public:
  static std::shared_ptr<CNNGroupNormalizationGradient> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  CNNGroupNormalizationGradient(const CNNGroupNormalizationGradient&) = default;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override {
    return forwardClassName == "CNNGroupNormalization";
  }

 private:
  friend KernelClass;
};

}  // namespace mps
