#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "mps/conform/gradients/gradient_wiring.hpp"
#include "mps/conform/gradients/graph_reference.hpp"

namespace mps::detail {

/// What is moved: an element of a tensor that a forward step reads.
struct GraphVariable {
  GraphEdge edge;                        ///< step and source, if not a parameter
  std::optional<std::size_t> parameter;  ///< of edge.step: index in PreparedCall::parameters
};

/// How a graph's float64 reference changes when one element is moved by h.
class GraphDerivative {
 public:
  GraphDerivative(const GraphReference& reference, const GradientWiring& wiring,
                  const GraphReference::Run& base)
      : reference_(reference), wiring_(wiring), base_(base) {}

  /// Values of the variable.
  [[nodiscard]] std::vector<double> valuesOf(const GraphVariable& variable) const;
  /// Change of the sum of `gradient` times the step's result, or times what comes before its fused neuron.
  /// @param last the step whose result it is; another one than the variable's where it reads that one's result
  [[nodiscard]] double ofStep(const GraphVariable& variable, std::size_t element, double h,
                              const ReferenceTensor& gradient, bool between, StepIndex last) const;
  /// Change of a loss.
  [[nodiscard]] double ofLoss(StepIndex loss, std::size_t element, double h) const;
  /// Change of the total loss of the graph.
  [[nodiscard]] double ofGraph(const GraphVariable& variable, std::size_t element, double h) const;

 private:
  struct Moved {
    StepOutputs outputs;
    ReferenceTensor between;
  };
  /// @param inputs of the variable's step
  [[nodiscard]] Moved move(StepInputs inputs, const GraphVariable& variable, std::size_t element,
                           double h) const;
  [[nodiscard]] Moved compute(StepIndex step, StepInputs inputs,
                              const std::function<void(ReferenceTensor&)>& changeBetween) const;
  [[nodiscard]] double lossChange(StepIndex loss, const Moved& moved,
                                  const ReferenceTensor& predictions) const;
  [[nodiscard]] double seedChange(StepIndex step, const Moved& moved) const;

  const GraphReference& reference_;
  const GradientWiring& wiring_;
  const GraphReference::Run& base_;
};

}  // namespace mps::detail
