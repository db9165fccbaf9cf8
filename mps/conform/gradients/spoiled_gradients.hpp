#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mps/convolution/convolution.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/node.hpp"
#include "mps/neuron/neuron.hpp"

/// Gradient kernels with a fault, which checkGradients must find, and a node for them.
namespace mps::test {

/// Runs another plan and then makes one element of its output wrong.
class SpoiledPlan final : public detail::Plan {
 public:
  SpoiledPlan(std::shared_ptr<const detail::Plan> right, std::size_t element, bool isWeights)
      : right_(std::move(right)), element_(element), isWeights_(isWeights) {}
  void run(mtl::Stream& stream, const detail::Operands& operands) const override {
    right_->run(stream, operands);
    auto* output = isWeights_ ? operands.parameters[2] : operands.destination;
    float value = 0;
    std::memcpy(&value, output + element_ * sizeof value, sizeof value);
    value += 0.25F;
    std::memcpy(output + element_ * sizeof value, &value, sizeof value);
  }
  [[nodiscard]] std::size_t scratchBytes() const override { return right_->scratchBytes(); }

 private:
  std::shared_ptr<const detail::Plan> right_;
  std::size_t element_;
  bool isWeights_;
};

class SpoiledNeuronGradientKernel final : public CNNNeuronGradient {
 public:
  SpoiledNeuronGradientKernel(const std::shared_ptr<mtl::Device>& on, const NNNeuronDescriptor& neuron)
      : CNNNeuronGradient(on, neuron) {}
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override {
    auto calls = CNNNeuronGradient::prepareGradient(call);
    calls.at(0).plan.plan = std::make_shared<SpoiledPlan>(calls[0].plan.plan, 7, false);
    return calls;
  }
};

/// Does not refuse the state of a neuron of another function.
class CarelessNeuronGradientKernel final : public CNNNeuronGradient {
 public:
  CarelessNeuronGradientKernel(const std::shared_ptr<mtl::Device>& on, const NNNeuronDescriptor& neuron)
      : CNNNeuronGradient(on, neuron) {}

 protected:
  void transferOwnProperties(const detail::ForwardRecord& /*record*/) override {}
};

class SpoiledConvolutionGradientKernel final : public CNNConvolutionGradient {
 public:
  SpoiledConvolutionGradientKernel(const std::shared_ptr<mtl::Device>& on,
                                   std::shared_ptr<CNNConvolutionDataSource> weights)
      : CNNConvolutionGradient(on, std::move(weights), "CNNConvolutionGradient") {}
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override {
    auto calls = CNNConvolutionGradient::prepareGradient(call);
    calls.back().plan.plan = std::make_shared<SpoiledPlan>(calls.back().plan.plan, 5, true);
    return calls;
  }
};

/// A gradient node for any kernel.
class AnyGradientNode final : public NNGradientFilterNode {
 public:
  using Make = std::function<std::shared_ptr<Kernel>(const std::shared_ptr<mtl::Device>&)>;
  AnyGradientNode(std::shared_ptr<NNImageNode> sourceGradient, NNFilterNode& forward, Make make)
      : NNGradientFilterNode(std::move(sourceGradient), forward.sources()[0], forward.resultState()),
        make_(std::move(make)) {}
  [[nodiscard]] std::string className() const override { return "AnyGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& on) const override {
    return make_(on);
  }

 private:
  Make make_;
};

}  // namespace mps::test
