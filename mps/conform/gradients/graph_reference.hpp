#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "mps/conform/reference_call.hpp"
#include "mps/graph/nn_graph.hpp"
#include "mps/graph/run/graph_executor.hpp"

namespace mps::detail {

/// Where an array of parameters lies; kernels that share it share the key.
struct ParameterKey {
  const mtl::Memory* memory = nullptr;
  std::size_t byteOffset = 0;
  bool operator<(const ParameterKey& other) const {
    return std::tie(memory, byteOffset) < std::tie(other.memory, other.byteOffset);
  }
};
ParameterKey keyOf(const PreparedCall::Parameter& parameter);

/// The float64 reference of a whole compiled graph: the references of the families, step after step, forward
/// and gradient, on the problems that the graph hands to its kernels.
///
/// It is made from one encode of the graph. What the device stored in that encode stays readable; then the
/// same run, or one with other sources and parameters, is computed in float64.
class GraphReference {
 public:
  /// Encodes the graph once, without updates, and waits. Other work of the graph must have completed.
  /// @throws Error as NNGraph::encodeBatch does, for temporary sources, and for a kernel without a reference
  GraphReference(NNGraph& graph, ArrayRef<ImageBatch> sources, ArrayRef<StateBatch> states);

  [[nodiscard]] const GraphProgram& program() const { return program_; }

  /// @name The encode
  /// @{
  [[nodiscard]] const ReferenceTensor& stored(ImageIndex image) const { return stored_.at(image); }
  [[nodiscard]] std::vector<double> stored(const ParameterGradient& gradient) const;
  [[nodiscard]] ImageFeatureChannelFormat formatOf(ImageIndex image) const;
  /// A step's reference on what the device stored, so that it is off by one kernel's errors alone.
  [[nodiscard]] const StepOutputs& onStored(StepIndex step) const { return onStored_.at(step); }
  /// Parameters of a forward step: PreparedCall::Parameter of its first call that has one of this index.
  [[nodiscard]] const PreparedCall::Parameter& parameterOf(StepIndex step, std::size_t index) const;
  /// @}

  /// @name What a run starts from; at first what the encode had
  /// @{
  std::vector<ReferenceTensor> sourceImages;  ///< as GraphProgram::sourceImages
  std::vector<StateBatch> sourceStates;       ///< as GraphProgram::sourceStates
  std::map<ParameterKey, std::vector<double>> parameters;
  std::uint32_t laterEncodes = 0;  ///< how many encodes later it is: dropout draws other masks
  /// @}

  struct Run {
    std::vector<ReferenceTensor> images;   ///< of the program
    std::vector<ReferenceTensor> between;  ///< of each step: before its fused neuron
    std::vector<StepOutputs> outputs;      ///< of each step; `result` is among the images
  };
  [[nodiscard]] Run run() const;
  /// What a step reads in a run; refers to the run.
  [[nodiscard]] StepInputs inputsOf(StepIndex step, const Run& run) const;
  [[nodiscard]] StepOutputs compute(StepIndex step, const StepInputs& inputs) const;

 private:
  [[nodiscard]] StepInputs commonInputs(StepIndex step) const;
  [[nodiscard]] StepOutputs computeOnStored(StepIndex step);

  std::shared_ptr<mtl::Device> device_;
  const GraphProgram& program_;
  GraphTrace trace_;
  std::vector<ReferenceTensor> stored_;
  std::vector<StepOutputs> onStored_;
};

}  // namespace mps::detail
