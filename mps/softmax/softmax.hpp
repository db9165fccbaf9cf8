#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/kernel/node.hpp"

/// Softmax and log-softmax over the feature channels of each pixel (MPSCNNSoftMax.h). Of a pixel with
/// large values the largest one is subtracted before the exponential, so nothing overflows. A pixel's results have the same
/// bits wherever it lies in an image and a batch, and whatever lies beside it. One channel gives exactly 1, or 0.
namespace mps {

/// s_k = exp(x_k) / sum_j exp(x_j) (MPSCNNSoftMax). Sources: every format; results: float16, float32.
class CNNSoftMax : public detail::KernelClass<CNNSoftMax, CNNKernel, "CNNSoftMax"> {
 public:
  static std::shared_ptr<CNNSoftMax> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  CNNSoftMax(const CNNSoftMax&) = default;
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;

 private:
  friend KernelClass;
};

/// l_k = x_k - ln(sum_j exp(x_j)) (MPSCNNLogSoftMax).
class CNNLogSoftMax : public detail::KernelClass<CNNLogSoftMax, CNNKernel, "CNNLogSoftMax"> {
 public:
  static std::shared_ptr<CNNLogSoftMax> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  CNNLogSoftMax(const CNNLogSoftMax&) = default;
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;

 private:
  friend KernelClass;
};

/// dx_k = s_k (dy_k - sum_j dy_j s_j) (MPSCNNSoftMaxGradient). sourceImage is the forward RESULT s, not the
/// source; the forward source throws where the state knows it.
///
///     auto softMax = mps::CNNSoftMax::create(device);
///     std::shared_ptr<mps::State> state;
///     auto s = softMax->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNSoftMaxGradient::create(device);
///     auto dx = gradient->encode(commandBuffer, dy, s, state);
class CNNSoftMaxGradient
    : public detail::KernelClass<CNNSoftMaxGradient, CNNGradientKernel, "CNNSoftMaxGradient"> {
 public:
  static std::shared_ptr<CNNSoftMaxGradient> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  CNNSoftMaxGradient(const CNNSoftMaxGradient&) = default;
  [[nodiscard]] bool takesForwardResult() const override { return true; }
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool canAccumulate() const override { return true; }
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;

 private:
  friend KernelClass;
};

/// dx_k = dy_k - exp(l_k) sum_j dy_j (MPSCNNLogSoftMaxGradient). sourceImage is the forward RESULT l. Example
/// as for CNNSoftMaxGradient.
///
///     auto logSoftMax = mps::CNNLogSoftMax::create(device);
///     std::shared_ptr<mps::State> state;
///     auto y = logSoftMax->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNLogSoftMaxGradient::create(device);
///     auto dx = gradient->encode(commandBuffer, dy, y, state);
class CNNLogSoftMaxGradient
    : public detail::KernelClass<CNNLogSoftMaxGradient, CNNGradientKernel, "CNNLogSoftMaxGradient"> {
 public:
  static std::shared_ptr<CNNLogSoftMaxGradient> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  CNNLogSoftMaxGradient(const CNNLogSoftMaxGradient&) = default;
  [[nodiscard]] bool takesForwardResult() const override { return true; }
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool canAccumulate() const override { return true; }
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;

 private:
  friend KernelClass;
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
