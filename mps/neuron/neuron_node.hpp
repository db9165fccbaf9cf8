#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/kernel/node.hpp"
#include "mps/core/neuron/neuron_descriptor.hpp"

/// Graph nodes of the neurons.
namespace mps {

/// Stands for CNNNeuron (MPSCNNNeuronNode), the base of the nodes of each type.
class CNNNeuronNode : public NNFilterNode {
 public:
  /// The node of the descriptor's type.
  static std::shared_ptr<CNNNeuronNode> create(std::shared_ptr<NNImageNode> source,
                                               const NNNeuronDescriptor& descriptor);
  [[nodiscard]] float a() const { return descriptor_.a(); }
  [[nodiscard]] float b() const { return descriptor_.b(); }
  [[nodiscard]] float c() const { return descriptor_.c(); }
  [[nodiscard]] const NNNeuronDescriptor& descriptor() const { return descriptor_; }
  [[nodiscard]] std::string className() const override { return "CNNNeuronNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNNeuronNode(std::shared_ptr<NNImageNode> source, NNNeuronDescriptor descriptor);
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  NNNeuronDescriptor descriptor_;
};

/// Linear: a x + b; 1, 0 (MPSCNNNeuronLinearNode).
class CNNNeuronLinearNode : public CNNNeuronNode {
 public:
  static std::shared_ptr<CNNNeuronLinearNode> create(std::shared_ptr<NNImageNode> source, float a = 1,
                                                     float b = 0);
  [[nodiscard]] std::string className() const override { return "CNNNeuronLinearNode"; }

 protected:
  using CNNNeuronNode::CNNNeuronNode;
};

/// x >= 0 ? x : a x; 0 (MPSCNNNeuronReLUNode).
class CNNNeuronReLUNode : public CNNNeuronNode {
 public:
  static std::shared_ptr<CNNNeuronReLUNode> create(std::shared_ptr<NNImageNode> source, float a = 0);
  [[nodiscard]] std::string className() const override { return "CNNNeuronReLUNode"; }

 protected:
  using CNNNeuronNode::CNNNeuronNode;
};

/// 1 / (1 + exp(-x)) (MPSCNNNeuronSigmoidNode).
class CNNNeuronSigmoidNode : public CNNNeuronNode {
 public:
  static std::shared_ptr<CNNNeuronSigmoidNode> create(std::shared_ptr<NNImageNode> source);
  [[nodiscard]] std::string className() const override { return "CNNNeuronSigmoidNode"; }

 protected:
  using CNNNeuronNode::CNNNeuronNode;
};

/// clamp(a x + b, 0, 1); 0.2, 0.5 (MPSCNNNeuronHardSigmoidNode).
class CNNNeuronHardSigmoidNode : public CNNNeuronNode {
 public:
  static std::shared_ptr<CNNNeuronHardSigmoidNode> create(std::shared_ptr<NNImageNode> source, float a = 0.2F,
                                                          float b = 0.5F);
  [[nodiscard]] std::string className() const override { return "CNNNeuronHardSigmoidNode"; }

 protected:
  using CNNNeuronNode::CNNNeuronNode;
};

/// a tanh(b x); 1, 1 (MPSCNNNeuronTanHNode).
class CNNNeuronTanHNode : public CNNNeuronNode {
 public:
  static std::shared_ptr<CNNNeuronTanHNode> create(std::shared_ptr<NNImageNode> source, float a = 1,
                                                   float b = 1);
  [[nodiscard]] std::string className() const override { return "CNNNeuronTanHNode"; }

 protected:
  using CNNNeuronNode::CNNNeuronNode;
};

/// |x| (MPSCNNNeuronAbsoluteNode).
class CNNNeuronAbsoluteNode : public CNNNeuronNode {
 public:
  static std::shared_ptr<CNNNeuronAbsoluteNode> create(std::shared_ptr<NNImageNode> source);
  [[nodiscard]] std::string className() const override { return "CNNNeuronAbsoluteNode"; }

 protected:
  using CNNNeuronNode::CNNNeuronNode;
};

/// a ln(1 + exp(b x)); 1, 1 (MPSCNNNeuronSoftPlusNode).
class CNNNeuronSoftPlusNode : public CNNNeuronNode {
 public:
  static std::shared_ptr<CNNNeuronSoftPlusNode> create(std::shared_ptr<NNImageNode> source, float a = 1,
                                                       float b = 1);
  [[nodiscard]] std::string className() const override { return "CNNNeuronSoftPlusNode"; }

 protected:
  using CNNNeuronNode::CNNNeuronNode;
};

/// x / (1 + |x|) (MPSCNNNeuronSoftSignNode).
class CNNNeuronSoftSignNode : public CNNNeuronNode {
 public:
  static std::shared_ptr<CNNNeuronSoftSignNode> create(std::shared_ptr<NNImageNode> source);
  [[nodiscard]] std::string className() const override { return "CNNNeuronSoftSignNode"; }

 protected:
  using CNNNeuronNode::CNNNeuronNode;
};

/// x >= 0 ? x : a (exp(x) - 1); 1 (MPSCNNNeuronELUNode).
class CNNNeuronELUNode : public CNNNeuronNode {
 public:
  static std::shared_ptr<CNNNeuronELUNode> create(std::shared_ptr<NNImageNode> source, float a = 1);
  [[nodiscard]] std::string className() const override { return "CNNNeuronELUNode"; }

 protected:
  using CNNNeuronNode::CNNNeuronNode;
};

/// min(x >= 0 ? x : a x, b); 1, 6. ReLU6 is a = 0 (MPSCNNNeuronReLUNNode).
class CNNNeuronReLUNNode : public CNNNeuronNode {
 public:
  static std::shared_ptr<CNNNeuronReLUNNode> create(std::shared_ptr<NNImageNode> source, float a = 1,
                                                    float b = 6);
  [[nodiscard]] std::string className() const override { return "CNNNeuronReLUNNode"; }

 protected:
  using CNNNeuronNode::CNNNeuronNode;
};

/// (a x + b)^c; 1, 0, 1 (MPSCNNNeuronPowerNode).
class CNNNeuronPowerNode : public CNNNeuronNode {
 public:
  static std::shared_ptr<CNNNeuronPowerNode> create(std::shared_ptr<NNImageNode> source, float a = 1,
                                                    float b = 0, float c = 1);
  [[nodiscard]] std::string className() const override { return "CNNNeuronPowerNode"; }

 protected:
  using CNNNeuronNode::CNNNeuronNode;
};

/// c^(a x + b); 1, 0, -1 (base e) (MPSCNNNeuronExponentialNode).
class CNNNeuronExponentialNode : public CNNNeuronNode {
 public:
  static std::shared_ptr<CNNNeuronExponentialNode> create(std::shared_ptr<NNImageNode> source, float a = 1,
                                                          float b = 0, float c = -1);
  [[nodiscard]] std::string className() const override { return "CNNNeuronExponentialNode"; }

 protected:
  using CNNNeuronNode::CNNNeuronNode;
};

/// log_c(a x + b); 1, 0, -1 (base e) (MPSCNNNeuronLogarithmNode).
class CNNNeuronLogarithmNode : public CNNNeuronNode {
 public:
  static std::shared_ptr<CNNNeuronLogarithmNode> create(std::shared_ptr<NNImageNode> source, float a = 1,
                                                        float b = 0, float c = -1);
  [[nodiscard]] std::string className() const override { return "CNNNeuronLogarithmNode"; }

 protected:
  using CNNNeuronNode::CNNNeuronNode;
};

/// x Phi(x) (MPSCNNNeuronGeLUNode).
class CNNNeuronGeLUNode : public CNNNeuronNode {
 public:
  static std::shared_ptr<CNNNeuronGeLUNode> create(std::shared_ptr<NNImageNode> source);
  [[nodiscard]] std::string className() const override { return "CNNNeuronGeLUNode"; }

 protected:
  using CNNNeuronNode::CNNNeuronNode;
};

/// x >= 0 ? x : a_c x, one slope per channel (MPSCNNNeuronPReLUNode).
class CNNNeuronPReLUNode : public CNNNeuronNode {
 public:
  static std::shared_ptr<CNNNeuronPReLUNode> create(std::shared_ptr<NNImageNode> source,
                                                    std::span<const float> aData);
  [[nodiscard]] std::string className() const override { return "CNNNeuronPReLUNode"; }

 protected:
  using CNNNeuronNode::CNNNeuronNode;
};

/// Stands for CNNNeuronGradient (MPSCNNNeuronGradientNode).
class CNNNeuronGradientNode : public NNGradientFilterNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<CNNNeuronGradientNode> create(std::shared_ptr<NNImageNode> sourceGradient,
                                                       std::shared_ptr<NNImageNode> sourceImage,
                                                       std::shared_ptr<NNStateNode> gradientState,
                                                       const NNNeuronDescriptor& descriptor);
  [[nodiscard]] const NNNeuronDescriptor& descriptor() const { return descriptor_; }
  [[nodiscard]] std::string className() const override { return "CNNNeuronGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  CNNNeuronGradientNode(std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
                        std::shared_ptr<NNStateNode> gradientState, NNNeuronDescriptor descriptor);

 private:
  NNNeuronDescriptor descriptor_;
};

}  // namespace mps
