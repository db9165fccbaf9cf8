#pragma once

#include <cstddef>

#include "mps/convolution/convolution_problem.hpp"
#include "mps/convolution/cpu/convolution_staging.hpp"
#include "mps/convolution/cpu/convolution_weights_reorder.hpp"
#include "mps/convolution/scratch_layout.hpp"
#include "mtl/cpu/onednn.hpp"

namespace mps::detail {

/// A source or gradient in the type in which it is multiplied.
class FactorInput {
 public:
  FactorInput() = default;
  FactorInput(const TensorShape& tensor, AxisMap rows, AxisMap columns, Factors factors,
              ScratchLayout& scratch);

  /// Address of the dense array, filled.
  const void* load(mtl::cpu::Stream& stream, const std::byte* tensor, std::byte* scratch) const;

 private:
  StagedInput staged_;
  Factors factors_ = Factors::Float32;
  mtl::cpu::OneDnnPrimitive rounding_;
  std::size_t offset_ = 0;
  std::size_t scratchpad_ = 0;
};

/// oneDNN's convolution of one shape of part, and what brings tensors into its layout and back. Runs in one thread.
class OneDnnPart {
 public:
  /// @param layout of the weights; null lets oneDNN choose it. Throws dnnl::error where oneDNN has no kernel for it.
  OneDnnPart(const ConvolutionProblem& problem, const dnnl::memory::desc* layout, Factors factors);

  [[nodiscard]] const ConvolutionProblem& problem() const { return problem_; }
  [[nodiscard]] const mtl::cpu::OneDnnPrimitive& convolution() const { return convolution_; }
  [[nodiscard]] std::size_t scratchBytes() const { return scratch_.bytes(); }

  void forward(const Operands& operands, const std::byte* theirWeights) const;
  void dataGradient(const Operands& operands, const std::byte* theirWeights) const;
  void weightsGradient(const Operands& operands, std::byte* theirWeights, float* biases) const;

 private:
  ConvolutionProblem problem_;
  mtl::cpu::OneDnnPrimitive convolution_;
  ScratchLayout scratch_;
  FactorInput source_;
  FactorInput gradient_;
  StagedOutput destination_;
  std::size_t scratchpad_ = 0;
};

}  // namespace mps::detail
