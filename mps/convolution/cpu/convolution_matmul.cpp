#include <algorithm>
#include <memory>
#include <string>

#include "mps/convolution/convolution_windows.hpp"
#include "mps/convolution/cpu/convolution_cpu.hpp"
#include "mps/convolution/cpu/convolution_slices.hpp"
#include "mps/convolution/cpu/convolution_staging.hpp"
#include "mps/core/cpu/product_cpu.hpp"
#include "mps/core/plan/onednn_plan_cpu.hpp"

namespace mps::detail {
namespace {

/// Fully connected layers: each window is an image, a row of a matrix X [windows][inputs]; W [outputs][inputs] are
/// the weights as they are:
///
///     forward            X W^T + bias
///     data gradient      G W
///     weights gradient   G^T X
class MatmulPlan final : public Plan {
 public:
  MatmulPlan(const ConvolutionProblem& problem, std::int64_t windows, std::int64_t inputs)
      : problem_(problem), windows_(windows), outputs_(problem.outputFeatureChannels) {
    const MatrixStrides ofInputs{0, inputs, 1};
    const MatrixStrides ofOutputs{0, outputs_, 1};
    ProductShape shape;
    switch (problem.operation) {
      case ConvolutionOperation::Forward:
        source_ = StagedInput(problem.source, scratch_);
        destination_ = StagedOutput(problem, scratch_);
        shape = {.rows = windows,
                 .columns = outputs_,
                 .interior = inputs,
                 .left = ofInputs,
                 .right = ofInputs.transposed(),
                 .result = ofOutputs,
                 .hasBias = problem.hasBias};
        break;
      case ConvolutionOperation::DataGradient:
        gradient_ = StagedInput(problem.gradient, scratch_);
        destination_ = StagedOutput(problem, scratch_);
        shape = {.rows = windows,
                 .columns = inputs,
                 .interior = outputs_,
                 .left = ofOutputs,
                 .right = ofInputs,
                 .result = ofInputs};
        break;
      case ConvolutionOperation::WeightsGradient:
        source_ = StagedInput(problem.source, scratch_);
        gradient_ = StagedInput(problem.gradient, scratch_);
        shape = {.rows = outputs_,
                 .columns = inputs,
                 .interior = windows,
                 .left = ofOutputs.transposed(),
                 .right = ofInputs,
                 .result = ofInputs};
        break;
    }
    product_ = DividedProduct(shape, problem.threadCount);
    std::size_t productBytes = product_.scratchBytes();
    if (problem.operation == ConvolutionOperation::WeightsGradient && problem.accumulate) {
      shape.beta = 1;
      addingProduct_ = DividedProduct(shape, problem.threadCount);
      productBytes = std::max(productBytes, addingProduct_.scratchBytes());
    }
    productScratch_ = scratch_.reserve(productBytes);
  }

  [[nodiscard]] bool isReference() const { return product_.isReference(); }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    std::byte* const scratch = operands.scratch + productScratch_;
    const auto* const weights = reinterpret_cast<const float*>(operands.parameters[0]);
    switch (problem_.operation) {
      case ConvolutionOperation::Forward:
        product_.run(cpu, source_.load(cpu, operands.source, operands.scratch), weights,
                     problem_.hasBias ? reinterpret_cast<const float*>(operands.parameters[1]) : nullptr,
                     destination_.target(operands), scratch);
        destination_.store(cpu, operands, nullptr);
        break;
      case ConvolutionOperation::DataGradient:
        product_.run(cpu, gradient_.load(cpu, operands.gradient, operands.scratch), weights, nullptr,
                     destination_.target(operands), scratch);
        destination_.store(cpu, operands, nullptr);
        break;
      case ConvolutionOperation::WeightsGradient: {
        const float* source = source_.load(cpu, operands.source, operands.scratch);
        const float* gradient = gradient_.load(cpu, operands.gradient, operands.scratch);
        (operands.accumulate ? addingProduct_ : product_)
            .run(cpu, gradient, source, nullptr, reinterpret_cast<float*>(operands.parameters[2]), scratch);
        if (problem_.hasBias)
          sumPixels(cpu, gradient, windows_, outputs_, reinterpret_cast<float*>(operands.parameters[3]),
                    operands.accumulate);
        break;
      }
    }
  }

  [[nodiscard]] std::size_t scratchBytes() const override { return scratch_.bytes(); }
  [[nodiscard]] bool canAccumulate() const override { return problem_.accumulate; }
  [[nodiscard]] std::string describe() const override { return product_.implementation(); }

 private:
  ConvolutionProblem problem_;
  std::int64_t windows_;
  std::int64_t outputs_;
  ScratchLayout scratch_;
  StagedInput source_;
  StagedInput gradient_;
  StagedOutput destination_;
  DividedProduct product_;
  DividedProduct addingProduct_;  ///< weights gradient, when it is to be added
  std::size_t productScratch_ = 0;
};

Preparation prepareBatchMatmul(const ConvolutionProblem& problem) {
  if (!coversSource(problem.x) || !coversSource(problem.y))
    return Refusal{"the window is not the whole source"};
  if (problem.groups != 1) return Refusal{"groups of channels make several products"};
  if (problem.transposed) return Refusal{"the weights of a transposed convolution have another order"};
  if (problem.sumsNothing()) return Refusal{kSumsNothing};

  const std::int64_t inputs = problem.inputFeatureChannels * problem.y.kernelSize * problem.x.kernelSize;
  return prepareByOneDnn<MatmulPlan>(problem, problem.images(), inputs);
}

}  // namespace

Preparation prepareConvolutionMatmul(const ConvolutionProblem& problem) {
  return prepareInSlices(problem, prepareBatchMatmul);
}

}  // namespace mps::detail
