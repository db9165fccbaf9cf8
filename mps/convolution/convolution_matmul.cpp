#include <algorithm>
#include <memory>
#include <string>

#include "mps/convolution/convolution_cpu.hpp"
#include "mps/convolution/convolution_slices.hpp"
#include "mps/convolution/convolution_staging.hpp"
#include "mps/convolution/convolution_windows.hpp"
#include "mps/core/onednn_plan_cpu.hpp"

namespace mps::detail {
namespace {

using mtl::cpu::OneDnnPrimitive;
using ShapeInMemory = dnnl::memory::desc;

ShapeInMemory matrix(std::int64_t rows, std::int64_t columns) {
  return {{rows, columns}, dnnl::memory::data_type::f32, dnnl::memory::dims{columns, 1}};
}

/// The transpose of a matrix [columns][rows] in memory.
ShapeInMemory transposeOf(std::int64_t columns, std::int64_t rows) {
  return {{rows, columns}, dnnl::memory::data_type::f32, dnnl::memory::dims{1, rows}};
}

/// Each window reads one row of a matrix X [windows][inputs]; W [outputs][inputs] are the weights as they
/// are:
///
///     forward            X W^T + bias
///     data gradient      G W
///     weights gradient   G^T X
class MatmulPlan final : public Plan {
 public:
  MatmulPlan(const ConvolutionProblem& problem, std::int64_t windows, std::int64_t inputs)
      : problem_(problem), windows_(windows), outputs_(problem.outputFeatureChannels) {
    const ShapeInMemory none;
    switch (problem.operation) {
      case ConvolutionOperation::Forward:
        source_ = StagedInput(problem.source, scratch_);
        destination_ = StagedOutput(problem, scratch_);
        product_ =
            mtl::cpu::oneDnnProduct(matrix(windows, inputs), transposeOf(outputs_, inputs),
                                    matrix(windows, outputs_), problem.hasBias ? matrix(1, outputs_) : none);
        break;
      case ConvolutionOperation::DataGradient:
        gradient_ = StagedInput(problem.gradient, scratch_);
        destination_ = StagedOutput(problem, scratch_);
        product_ = mtl::cpu::oneDnnProduct(matrix(windows, outputs_), matrix(outputs_, inputs),
                                           matrix(windows, inputs));
        break;
      case ConvolutionOperation::WeightsGradient: {
        source_ = StagedInput(problem.source, scratch_);
        gradient_ = StagedInput(problem.gradient, scratch_);
        const auto weightsGradient = [&](float beta) {
          return mtl::cpu::oneDnnProduct(transposeOf(windows, outputs_), matrix(windows, inputs),
                                         matrix(outputs_, inputs), none, 1, beta);
        };
        product_ = weightsGradient(0);
        if (problem.accumulate) addingProduct_ = weightsGradient(1);
        break;
      }
    }
    scratchpad_ = scratch_.reserve(
        std::max(product_.scratchpadBytes(), problem.accumulate ? addingProduct_.scratchpadBytes() : 0));
  }

  [[nodiscard]] const OneDnnPrimitive& primitive() const { return product_; }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    const mtl::cpu::OneDnnThreads threads(problem_.threadCount);
    std::byte* scratchpad = operands.scratch + scratchpad_;
    const std::byte* weights = operands.parameters[0];
    switch (problem_.operation) {
      case ConvolutionOperation::Forward:
        product_.run({{DNNL_ARG_SRC, source_.load(cpu, operands.source, operands.scratch)},
                      {DNNL_ARG_WEIGHTS, weights},
                      {DNNL_ARG_BIAS, problem_.hasBias ? operands.parameters[1] : nullptr},
                      {DNNL_ARG_DST, destination_.target(operands)}},
                     scratchpad);
        destination_.store(cpu, operands, nullptr);
        break;
      case ConvolutionOperation::DataGradient:
        product_.run({{DNNL_ARG_SRC, gradient_.load(cpu, operands.gradient, operands.scratch)},
                      {DNNL_ARG_WEIGHTS, weights},
                      {DNNL_ARG_DST, destination_.target(operands)}},
                     scratchpad);
        destination_.store(cpu, operands, nullptr);
        break;
      case ConvolutionOperation::WeightsGradient: {
        const float* source = source_.load(cpu, operands.source, operands.scratch);
        const float* gradient = gradient_.load(cpu, operands.gradient, operands.scratch);
        const OneDnnPrimitive& chosen = operands.accumulate ? addingProduct_ : product_;
        chosen.run(
            {{DNNL_ARG_SRC, gradient}, {DNNL_ARG_WEIGHTS, source}, {DNNL_ARG_DST, operands.parameters[2]}},
            scratchpad);
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
  OneDnnPrimitive product_;
  OneDnnPrimitive addingProduct_;  ///< weights gradient, when it is to be added
  std::size_t scratchpad_ = 0;
};

Preparation prepareBatchMatmul(const ConvolutionProblem& problem) {
  const bool wholeSource = coversSource(problem.x) && coversSource(problem.y);
  const bool eachPixel = readsEachPixel(problem.x) && readsEachPixel(problem.y);
  if (!wholeSource && !eachPixel)
    return Refusal{"the windows are neither the whole source nor single pixels"};
  if (problem.groups != 1) return Refusal{"groups of channels make several products"};
  if (problem.transposed) return Refusal{"the weights of a transposed convolution have another order"};
  if (problem.sumsNothing()) return Refusal{kSumsNothing};

  const std::int64_t windows = problem.images() * problem.y.destinationSize * problem.x.destinationSize;
  const std::int64_t inputs =
      problem.inputFeatureChannels * (wholeSource ? problem.y.kernelSize * problem.x.kernelSize : 1);
  return prepareByOneDnn<MatmulPlan>(problem.threadCount, problem, windows, inputs);
}

}  // namespace

Preparation prepareConvolutionMatmul(const ConvolutionProblem& problem) {
  return prepareInSlices(problem, prepareBatchMatmul);
}

}  // namespace mps::detail
