#pragma once

#include <any>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mps/core/image/state.hpp"
#include "mps/core/plan/reference_tensor.hpp"
#include "mps/core/types/tensor_shape.hpp"
#include "mps/graph/run/graph_executor.hpp"

namespace mps::detail {

/// What the reference of one step of a graph reads.
struct StepInputs {
  std::vector<const ReferenceTensor*> sources;  ///< as ProgramStep::sources, whole images
  const StateBatch* sourceStates = nullptr;     ///< the first; labels of a loss
  std::any forwardSaved;                        ///< StepOutputs::saved of a gradient step's forward step
  /// Values of PreparedCall::parameters[index], at least `count`.
  std::function<std::span<const double>(const PreparedCall::Parameter& at, std::size_t index,
                                        std::size_t count)>
      parameter;
  std::uint32_t laterEncodes = 0;  ///< encodes since the recorded one: random sequences have advanced
  /// Called with the tensor between two fused operations, which it may change; empty: not wanted.
  std::function<void(ReferenceTensor&)> between;
};

/// The gradient of one array of parameters.
struct ParameterGradient {
  std::string name;              ///< "weights", "biases"
  std::size_t forwardIndex = 0;  ///< the array in PreparedCall::parameters of the forward step
  PreparedCall::Parameter at;    ///< where the kernel wrote it
  ReferenceTensor values;
  bool isPerImage = false;  ///< one array for each image of `values`; the derivative of the loss is their sum
};

/// What it computes.
struct StepOutputs {
  ReferenceTensor result;
  std::vector<ParameterGradient> parameterGradients;
  /// Of a loss: elements whose sum has `result` as its derivative with respect to source 0.
  std::optional<ReferenceTensor> objective;
  std::any saved;  ///< for the references of gradients
};

/// One recorded call of a kernel, as the float64 reference of its family sees it. Tensors are the views that
/// the call works on; operands are named as in Operands.
///
/// A family `pooling` that takes part in graphs has `bool computePooling(ReferenceCall&)` in
/// pooling_reference_call.cpp and is found by that name. It returns false for problems of other families.
class ReferenceCall {
 public:
  ReferenceCall(const ProgramStep& step, const GraphTrace::Call& call, const StepInputs& inputs,
                StepOutputs& outputs)
      : step_(step), call_(call), inputs_(inputs), outputs_(outputs) {}

  /// The problem, when it is of this kind; else null.
  template <class Problem>
  [[nodiscard]] const Problem* problem() const {
    return call_.prepared.plan.problem ? std::any_cast<Problem>(call_.prepared.plan.problem.get()) : nullptr;
  }
  [[nodiscard]] double scalar(std::size_t index) const { return call_.prepared.scalars.at(index); }
  [[nodiscard]] ReferenceTensor source(const TensorShape& shape) const;
  [[nodiscard]] ReferenceTensor secondary(const TensorShape& shape) const;
  [[nodiscard]] ReferenceTensor gradient(const TensorShape& shape) const;
  [[nodiscard]] std::span<const double> parameter(std::size_t index, std::int64_t count) const;
  /// A whole image that the step reads, of ProgramStep::sources.
  [[nodiscard]] const ReferenceTensor& stepSource(std::size_t index) const {
    return *inputs_.sources.at(index);
  }
  [[nodiscard]] const StateBatch& sourceStates() const;
  [[nodiscard]] std::uint32_t laterEncodes() const { return inputs_.laterEncodes; }
  [[nodiscard]] const std::any& forwardSaved() const { return inputs_.forwardSaved; }
  [[nodiscard]] bool wantsBetween() const { return inputs_.between != nullptr; }
  void between(ReferenceTensor& tensor) const { inputs_.between(tensor); }

  void setDestination(const ReferenceTensor& tensor);
  /// Gradient of the forward step's parameters[forwardIndex], which the kernel writes to parameters[index].
  /// @param isPerImage see ParameterGradient
  void setParameterGradient(std::size_t index, std::size_t forwardIndex, std::string name,
                            ReferenceTensor gradient, bool isPerImage = false);
  void setObjective(ReferenceTensor objective) { outputs_.objective = std::move(objective); }
  void setSaved(std::any saved) { outputs_.saved = std::move(saved); }
  /// What an earlier call of the step has saved.
  [[nodiscard]] const std::any& saved() const { return outputs_.saved; }

 private:
  [[nodiscard]] ReferenceTensor view(const std::optional<BatchOperand>& operand, std::size_t source,
                                     const mtl::Origin& origin, const TensorShape& shape) const;
  [[nodiscard]] ReferenceTensor sourceImage(const TensorShape& shape) const;
  [[nodiscard]] ReferenceTensor gradientImage(const TensorShape& shape) const;
  [[nodiscard]] bool isGradient() const;

  const ProgramStep& step_;
  const GraphTrace::Call& call_;
  const StepInputs& inputs_;
  StepOutputs& outputs_;
};

}  // namespace mps::detail
