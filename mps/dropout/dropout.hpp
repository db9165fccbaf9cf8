#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/image/gradient_state.hpp"
#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/kernel/kernel_roles.hpp"
#include "mps/core/kernel/node.hpp"
#include "mps/distributed/batch_share.hpp"

/// Dropout (MPSCNNDropout.h).
namespace mps {

/// Remembers which mask a forward encode drew (MPSCNNDropoutGradientState). The mask is not stored: it is
/// drawn again.
class CNNDropoutGradientState : public NNGradientState {
 public:
  static std::shared_ptr<CNNDropoutGradientState> create(const std::shared_ptr<mtl::Device>& device);
  /// The mask of this image: one byte per element, 1 kept, 0 dropped, in the order y, x, channel; its size is
  /// that of the written area, or 1 along axes whose mask stride is 0. @throws Error before the forward
  /// encode.
  [[nodiscard]] std::vector<std::byte> maskData() const;

 protected:
  using NNGradientState::NNGradientState;
};
using CNNDropoutGradientStateBatch = StateBatch;

/// out(x, y, c) = in(x, y, c) * M(x, y, c) / P; M is 1 with probability P, else 0 (MPSCNNDropout).
///
/// Kept values are scaled up while training, so inference leaves the layer out. The destination may be the
/// source. M is drawn by Philox 4x32-10 keyed by (seed, number of the encode, image, element): every encode
/// draws anew, and the same kernel draws the same masks in every run, on every device.
///
/// Each element has 16 random bits, so that the probability of M = 1 is P rounded up to a multiple of 2^-16: off by
/// less than 1.6e-5, and nothing for P = 0.5 or 0.75. The scale is 1 / P. What is kept is on the average larger by
/// the same fraction, which only P near 0 makes visible: 2^-16 is the least probability that is drawn.
class CNNDropout : public detail::KernelClass<CNNDropout, CNNKernel, "CNNDropout">,
                   public detail::SharedBatchKernel,
                   public detail::RandomKernel {
 public:
  /// @param keepProbability P, above 0 and up to 1 (1: the identity). PyTorch's p is 1 - P
  /// @param maskStrideInPixels 0 along an axis (width, height, depth for channels): one value for the whole
  /// axis; else 1
  /// @throws Error for other values
  static std::shared_ptr<CNNDropout> create(const std::shared_ptr<mtl::Device>& device, float keepProbability,
                                            std::uint64_t seed,
                                            const mtl::Size& maskStrideInPixels = {1, 1, 1});
  [[nodiscard]] float keepProbability() const { return keepProbability_; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  [[nodiscard]] const mtl::Size& maskStrideInPixels() const { return maskStride_; }
  /// Encodes done so far: what a checkpoint keeps. 0.
  [[nodiscard]] std::uint32_t encodeCount() const override { return encodeCount_; }
  void setEncodeCount(std::uint32_t count) override { encodeCount_ = count; }

 protected:
  using KernelClass::KernelClass;
  CNNDropout(std::shared_ptr<mtl::Device> device, float keepProbability, std::uint64_t seed,
             const mtl::Size& maskStrideInPixels);
  CNNDropout(const CNNDropout&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] std::shared_ptr<State> makeState(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      std::span<const std::shared_ptr<State>> sourceStates) const override;
  void describeForward(std::any& family) const override;
  void didEncode(const detail::ForwardCall& /*call*/) override { ++encodeCount_; }
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;
  [[nodiscard]] bool worksInPlace() const override { return true; }
  [[nodiscard]] detail::KernelRoles roles() override;
  void setBatchShare(const detail::BatchShare& share) override { firstImage_ = share.firstImage; }
  void encodeWithoutImages(const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
                           const ImageDescriptor& /*source*/, const StateBatch& /*states*/) override {
    ++encodeCount_;
  }

 private:
  friend KernelClass;
  float keepProbability_ = 1;
  std::uint64_t seed_ = 0;
  mtl::Size maskStride_{1, 1, 1};
  std::uint32_t encodeCount_ = 0;
  std::size_t firstImage_ = 0;  ///< of a rank's, in the batch of all ranks
};

/// dIn(x, y, c) = g(x, y, c) * M(x, y, c) / P with the mask of the forward encode (MPSCNNDropoutGradient).
/// Only the size of sourceImage counts.
///
///     auto dropout = mps::CNNDropout::create(device, 0.5F, seed);
///     std::shared_ptr<mps::State> state;
///     auto y = dropout->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNDropoutGradient::create(device, 0.5F, seed);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class CNNDropoutGradient
    : public detail::KernelClass<CNNDropoutGradient, CNNGradientKernel, "CNNDropoutGradient"> {
 public:
  /// The values of the forward kernel.
  static std::shared_ptr<CNNDropoutGradient> create(const std::shared_ptr<mtl::Device>& device,
                                                    float keepProbability, std::uint64_t seed,
                                                    const mtl::Size& maskStrideInPixels = {1, 1, 1});
  [[nodiscard]] float keepProbability() const { return keepProbability_; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  [[nodiscard]] const mtl::Size& maskStrideInPixels() const { return maskStride_; }

 protected:
  using KernelClass::KernelClass;
  CNNDropoutGradient(std::shared_ptr<mtl::Device> device, float keepProbability, std::uint64_t seed,
                     const mtl::Size& maskStrideInPixels);
  CNNDropoutGradient(const CNNDropoutGradient&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] bool needsStatesInOrder() const override { return true; }
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
  [[nodiscard]] bool needsSourceMemory(bool /*forwardSavesFields*/) const override { return false; }
  [[nodiscard]] bool worksInPlace() const override { return true; }
  [[nodiscard]] bool canAccumulate() const override { return true; }

 private:
  friend KernelClass;
  float keepProbability_ = 1;
  std::uint64_t seed_ = 0;
  mtl::Size maskStride_{1, 1, 1};
};

/// Stands for CNNDropout (MPSCNNDropoutNode).
class CNNDropoutNode : public NNFilterNode {
 public:
  /// Defaults: keep probability 0.5, seed 0, mask strides 1.
  static std::shared_ptr<CNNDropoutNode> create(std::shared_ptr<NNImageNode> source,
                                                float keepProbability = 0.5F, std::uint64_t seed = 0,
                                                const mtl::Size& maskStrideInPixels = {1, 1, 1});
  [[nodiscard]] float keepProbability() const { return keepProbability_; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  [[nodiscard]] const mtl::Size& maskStrideInPixels() const { return maskStride_; }
  [[nodiscard]] std::string className() const override { return "CNNDropoutNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNDropoutNode(std::shared_ptr<NNImageNode> source, float keepProbability, std::uint64_t seed,
                 const mtl::Size& maskStrideInPixels);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  float keepProbability_;
  std::uint64_t seed_;
  mtl::Size maskStride_;
};

/// Stands for CNNDropoutGradient (MPSCNNDropoutGradientNode).
class CNNDropoutGradientNode : public NNGradientFilterNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<CNNDropoutGradientNode> create(std::shared_ptr<NNImageNode> sourceGradient,
                                                        std::shared_ptr<NNImageNode> sourceImage,
                                                        std::shared_ptr<NNStateNode> gradientState,
                                                        float keepProbability, std::uint64_t seed,
                                                        const mtl::Size& maskStrideInPixels);
  [[nodiscard]] float keepProbability() const { return keepProbability_; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  [[nodiscard]] const mtl::Size& maskStrideInPixels() const { return maskStride_; }
  [[nodiscard]] std::string className() const override { return "CNNDropoutGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNDropoutGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                         std::shared_ptr<NNImageNode> sourceImage, std::shared_ptr<NNStateNode> gradientState,
                         float keepProbability, std::uint64_t seed, const mtl::Size& maskStrideInPixels);

 private:
  float keepProbability_;
  std::uint64_t seed_;
  mtl::Size maskStride_;
};

}  // namespace mps
