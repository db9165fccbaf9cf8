#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/node.hpp"
#include "mps/gram_matrix/gram_matrix.hpp"

/// Graph nodes of Gram matrices.
namespace mps {

/// Stands for NNGramMatrixCalculation (MPSNNGramMatrixCalculationNode).
class NNGramMatrixCalculationNode final : public NNFilterNode {
 public:
  static std::shared_ptr<NNGramMatrixCalculationNode> create(std::shared_ptr<NNImageNode> source,
                                                             float alpha = 1);
  [[nodiscard]] float alpha() const { return alpha_; }
  /// When set, asked for alpha at each encode of the graph; its answer replaces alpha, in the gradient of that encode,
  /// too. Null.
  [[nodiscard]] const std::shared_ptr<NNGramMatrixCallback>& propertyCallBack() const {
    return propertyCallBack_;
  }
  void setPropertyCallBack(std::shared_ptr<NNGramMatrixCallback> callback) {
    propertyCallBack_ = std::move(callback);
  }
  [[nodiscard]] std::string className() const override { return "NNGramMatrixCalculationNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 protected:
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;

 private:
  NNGramMatrixCalculationNode(std::shared_ptr<NNImageNode> source, float alpha);

  float alpha_;
  std::shared_ptr<NNGramMatrixCallback> propertyCallBack_;
};

/// Stands for NNGramMatrixCalculationGradient (MPSNNGramMatrixCalculationGradientNode). What the forward encode recorded
/// goes before alpha.
class NNGramMatrixCalculationGradientNode final : public NNGradientFilterNode {
 public:
  /// @param sourceImage the forward source
  static std::shared_ptr<NNGramMatrixCalculationGradientNode> create(
      std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
      std::shared_ptr<NNStateNode> gradientState, float alpha = 1);
  [[nodiscard]] float alpha() const { return alpha_; }
  [[nodiscard]] std::string className() const override { return "NNGramMatrixCalculationGradientNode"; }
  [[nodiscard]] std::shared_ptr<Kernel> makeKernel(const std::shared_ptr<mtl::Device>& device) const override;

 private:
  NNGramMatrixCalculationGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                                      std::shared_ptr<NNImageNode> sourceImage,
                                      std::shared_ptr<NNStateNode> gradientState, float alpha);

  float alpha_;
};

}  // namespace mps
