#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/node.hpp"

/// Softmax and log-softmax over the feature channels of each pixel (MPSCNNSoftMax.h). Of a pixel with
/// large values the largest one is subtracted before the exponential, so nothing overflows. A pixel's results have the same
/// bits wherever it lies in an image and a batch, and whatever lies beside it. One channel gives exactly 1, or 0.
namespace mps {

/// s_k = exp(x_k) / sum_j exp(x_j) (MPSCNNSoftMax). Sources: every format; results: float16, float32.
class CNNSoftMax : public CNNKernel {
 public:
  static std::shared_ptr<CNNSoftMax> create(const std::shared_ptr<mtl::Device>& device);
  [[nodiscard]] std::string className() const override { return "CNNSoftMax"; }
  [[nodiscard]] std::shared_ptr<CNNSoftMax> copy(const std::shared_ptr<mtl::Device>& device = nullptr) const {
    return detail::copyAs(*this, device);
  }
  static std::shared_ptr<CNNSoftMax> decode(Coder& coder,
                                            const std::shared_ptr<mtl::Device>& device = nullptr) {
    return detail::decodeAs<CNNSoftMax>(coder, device);
  }
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;

 protected:
  using CNNKernel::CNNKernel;
  CNNSoftMax(const CNNSoftMax&) = default;
  [[nodiscard]] std::shared_ptr<Kernel> clone() const override;
};

/// l_k = x_k - ln(sum_j exp(x_j)) (MPSCNNLogSoftMax).
class CNNLogSoftMax : public CNNKernel {
 public:
  static std::shared_ptr<CNNLogSoftMax> create(const std::shared_ptr<mtl::Device>& device);
  [[nodiscard]] std::string className() const override { return "CNNLogSoftMax"; }
  [[nodiscard]] std::shared_ptr<CNNLogSoftMax> copy(
      const std::shared_ptr<mtl::Device>& device = nullptr) const {
    return detail::copyAs(*this, device);
  }
  static std::shared_ptr<CNNLogSoftMax> decode(Coder& coder,
                                               const std::shared_ptr<mtl::Device>& device = nullptr) {
    return detail::decodeAs<CNNLogSoftMax>(coder, device);
  }
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;

 protected:
  using CNNKernel::CNNKernel;
  CNNLogSoftMax(const CNNLogSoftMax&) = default;
  [[nodiscard]] std::shared_ptr<Kernel> clone() const override;
};

/// dx_k = s_k (dy_k - sum_j dy_j s_j) (MPSCNNSoftMaxGradient). sourceImage is the forward RESULT s, not the
/// source; the forward source throws where the state knows it.
///
///     auto softMax = mps::CNNSoftMax::create(device);
///     std::shared_ptr<mps::State> state;
///     auto s = softMax->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNSoftMaxGradient::create(device);
///     auto dx = gradient->encode(commandBuffer, dy, s, state);
class CNNSoftMaxGradient : public CNNGradientKernel {
 public:
  static std::shared_ptr<CNNSoftMaxGradient> create(const std::shared_ptr<mtl::Device>& device);
  [[nodiscard]] std::string className() const override { return "CNNSoftMaxGradient"; }
  [[nodiscard]] std::shared_ptr<CNNSoftMaxGradient> copy(
      const std::shared_ptr<mtl::Device>& device = nullptr) const {
    return detail::copyAs(*this, device);
  }
  static std::shared_ptr<CNNSoftMaxGradient> decode(Coder& coder,
                                                    const std::shared_ptr<mtl::Device>& device = nullptr) {
    return detail::decodeAs<CNNSoftMaxGradient>(coder, device);
  }
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool canAccumulate() const override { return true; }
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;

 protected:
  using CNNGradientKernel::CNNGradientKernel;
  CNNSoftMaxGradient(const CNNSoftMaxGradient&) = default;
  [[nodiscard]] std::shared_ptr<Kernel> clone() const override;
  [[nodiscard]] bool takesForwardResult() const override { return true; }
};

/// dx_k = dy_k - exp(l_k) sum_j dy_j (MPSCNNLogSoftMaxGradient). sourceImage is the forward RESULT l. Example
/// as for CNNSoftMaxGradient.
///
///     auto logSoftMax = mps::CNNLogSoftMax::create(device);
///     std::shared_ptr<mps::State> state;
///     auto y = logSoftMax->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNLogSoftMaxGradient::create(device);
///     auto dx = gradient->encode(commandBuffer, dy, y, state);
class CNNLogSoftMaxGradient : public CNNGradientKernel {
 public:
  static std::shared_ptr<CNNLogSoftMaxGradient> create(const std::shared_ptr<mtl::Device>& device);
  [[nodiscard]] std::string className() const override { return "CNNLogSoftMaxGradient"; }
  [[nodiscard]] std::shared_ptr<CNNLogSoftMaxGradient> copy(
      const std::shared_ptr<mtl::Device>& device = nullptr) const {
    return detail::copyAs(*this, device);
  }
  static std::shared_ptr<CNNLogSoftMaxGradient> decode(Coder& coder,
                                                       const std::shared_ptr<mtl::Device>& device = nullptr) {
    return detail::decodeAs<CNNLogSoftMaxGradient>(coder, device);
  }
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool canAccumulate() const override { return true; }
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;

 protected:
  using CNNGradientKernel::CNNGradientKernel;
  CNNLogSoftMaxGradient(const CNNLogSoftMaxGradient&) = default;
  [[nodiscard]] std::shared_ptr<Kernel> clone() const override;
  [[nodiscard]] bool takesForwardResult() const override { return true; }
};

/// Stands for CNNSoftMax (MPSCNNSoftMaxNode). Before a softmax cross-entropy loss it stays a second softmax.
class CNNSoftMaxNode : public NNFilterNode {
 public:
  static std::shared_ptr<CNNSoftMaxNode> create(std::shared_ptr<NNImageNode> source);
  [[nodiscard]] std::string className() const override { return "CNNSoftMaxNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  explicit CNNSoftMaxNode(std::shared_ptr<NNImageNode> source);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;
};

/// Stands for CNNLogSoftMax (MPSCNNLogSoftMaxNode).
class CNNLogSoftMaxNode : public NNFilterNode {
 public:
  static std::shared_ptr<CNNLogSoftMaxNode> create(std::shared_ptr<NNImageNode> source);
  [[nodiscard]] std::string className() const override { return "CNNLogSoftMaxNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  explicit CNNLogSoftMaxNode(std::shared_ptr<NNImageNode> source);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;
};

/// Stands for CNNSoftMaxGradient (MPSCNNSoftMaxGradientNode).
class CNNSoftMaxGradientNode : public NNGradientFilterNode {
 public:
  /// @param sourceImage the forward RESULT; NNGraph::create refuses another image with the names of both nodes
  static std::shared_ptr<CNNSoftMaxGradientNode> create(std::shared_ptr<NNImageNode> sourceGradient,
                                                        std::shared_ptr<NNImageNode> sourceImage,
                                                        std::shared_ptr<NNStateNode> gradientState);
  [[nodiscard]] std::string className() const override { return "CNNSoftMaxGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using NNGradientFilterNode::NNGradientFilterNode;
};

/// Stands for CNNLogSoftMaxGradient (MPSCNNLogSoftMaxGradientNode).
class CNNLogSoftMaxGradientNode : public NNGradientFilterNode {
 public:
  /// As for CNNSoftMaxGradientNode.
  static std::shared_ptr<CNNLogSoftMaxGradientNode> create(std::shared_ptr<NNImageNode> sourceGradient,
                                                           std::shared_ptr<NNImageNode> sourceImage,
                                                           std::shared_ptr<NNStateNode> gradientState);
  [[nodiscard]] std::string className() const override { return "CNNLogSoftMaxGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  using NNGradientFilterNode::NNGradientFilterNode;
};

}  // namespace mps
