#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "mps/core/kernel/cnn_binary_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"

/// Reductions of one image with the weights of another (MPSNNReduce.h).
namespace mps {

namespace detail {
enum class ReduceBinaryDivisor : std::uint8_t;
}  // namespace detail

/// Base of the reductions with weights (MPSNNReduceBinary): of each pixel of the primary source's region,
///
///     result = sum over feature channels c of primary(c) * secondary(c), divided as the classes say
///
/// The regions are cut to their images and must then have one size, as the channels that are read must have one number.
/// The result has one channel and the region's size, and is written from clipRect.origin on; the destination must hold
/// it. Offsets, strides and edge modes are not used. Sources: every format; destinations: float16, float32. Sums are
/// float32. Apple has neither nodes nor gradients, and neither have we.
///
/// @throws Error when a region lies outside its image, sizes or channels differ, or the destination is too small
class NNReduceBinary : public CNNBinaryKernel {
 public:
  /// Pixels that are read of each source (z is not used). RectNoClip.
  [[nodiscard]] const mtl::Region& primarySourceClipRect() const { return primarySourceClipRect_; }
  void setPrimarySourceClipRect(const mtl::Region& region) { primarySourceClipRect_ = region; }
  [[nodiscard]] const mtl::Region& secondarySourceClipRect() const { return secondarySourceClipRect_; }
  void setSecondarySourceClipRect(const mtl::Region& region) { secondarySourceClipRect_ = region; }

 protected:
  using CNNBinaryKernel::CNNBinaryKernel;
  NNReduceBinary(const NNReduceBinary&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] virtual detail::ReduceBinaryDivisor divisor() const = 0;
  void encodeCall(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& primary,
                  const ImageBatch& secondary, const StateBatch& destinationStates,
                  const ImageBatch& destinations) override;
  ImageDescriptor sizeDestination(const ImageDescriptor& primary, const ImageDescriptor& secondary) override;
  [[nodiscard]] std::size_t producedFeatureChannels(std::size_t /*primaryChannels*/,
                                                    std::size_t /*secondaryChannels*/) const override {
    return 1;
  }

 private:
  /// The pixels and channels of a call's sources. @throws Error for a region outside
  [[nodiscard]] mtl::Region regionOf(const char* property, const mtl::Region& region, std::size_t width,
                                     std::size_t height) const;

  mtl::Region primarySourceClipRect_ = RectNoClip;
  mtl::Region secondarySourceClipRect_ = RectNoClip;
};

/// The weighted sum divided by the number of feature channels (MPSNNReduceFeatureChannelsAndWeightsMean).
class NNReduceFeatureChannelsAndWeightsMean final
    : public detail::KernelClass<NNReduceFeatureChannelsAndWeightsMean, NNReduceBinary,
                                 "NNReduceFeatureChannelsAndWeightsMean"> {
 public:
  static std::shared_ptr<NNReduceFeatureChannelsAndWeightsMean> create(
      const std::shared_ptr<mtl::Device>& device);

 private:
  friend KernelClass;
  using KernelClass::KernelClass;
  NNReduceFeatureChannelsAndWeightsMean(const NNReduceFeatureChannelsAndWeightsMean&) = default;
  [[nodiscard]] detail::ReduceBinaryDivisor divisor() const override;
};

/// The weighted sum, or divided by the number of weights that are not 0; 0 where there are none
/// (MPSNNReduceFeatureChannelsAndWeightsSum).
class NNReduceFeatureChannelsAndWeightsSum final
    : public detail::KernelClass<NNReduceFeatureChannelsAndWeightsSum, NNReduceBinary,
                                 "NNReduceFeatureChannelsAndWeightsSum"> {
 public:
  static std::shared_ptr<NNReduceFeatureChannelsAndWeightsSum> create(
      const std::shared_ptr<mtl::Device>& device, bool doWeightedSumByNonZeroWeights = false);
  [[nodiscard]] bool doWeightedSumByNonZeroWeights() const { return doWeightedSumByNonZeroWeights_; }

 private:
  friend KernelClass;
  using KernelClass::KernelClass;
  NNReduceFeatureChannelsAndWeightsSum(const std::shared_ptr<mtl::Device>& device,
                                       bool doWeightedSumByNonZeroWeights)
      : KernelClass(device), doWeightedSumByNonZeroWeights_(doWeightedSumByNonZeroWeights) {}
  NNReduceFeatureChannelsAndWeightsSum(const NNReduceFeatureChannelsAndWeightsSum&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] detail::ReduceBinaryDivisor divisor() const override;

  bool doWeightedSumByNonZeroWeights_ = false;
};

}  // namespace mps
