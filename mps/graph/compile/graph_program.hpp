#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mps/core/image/image_allocator.hpp"
#include "mps/core/kernel/image_kernel.hpp"
#include "mps/core/kernel/node.hpp"
#include "mps/core/layer/layer_update.hpp"
#include "mps/graph/compile/graph_passes.hpp"

/// What a graph is compiled to: a flat list of steps over numbered images and states. The library's own.
namespace mps::detail {

using ImageIndex = std::size_t;
using StateIndex = std::size_t;
using StepIndex = std::size_t;
inline constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

/// One image of the program, with what its node said when the graph was made.
struct ProgramImage {
  std::string name;
  std::shared_ptr<Handle> handle;
  ImageFeatureChannelFormat format = ImageFeatureChannelFormat::None;
  std::shared_ptr<ImageAllocator> allocator;  ///< null: planned temporary memory
  bool isExported = false;
  bool synchronizes = false;
  bool isNeededResult = false;
  StepIndex producer = nowhere;    ///< nowhere: a source of the graph
  std::vector<StepIndex> readers;  ///< steps that read its elements
  /// Whether it lives in planned memory.
  [[nodiscard]] bool isPlanned() const {
    return producer != nowhere && !isExported && !isNeededResult && !allocator;
  }
};

/// One state of the program.
struct ProgramState {
  std::shared_ptr<Handle> handle;
  bool isExported = false;
  bool synchronizes = false;
  StepIndex producer = nowhere;    ///< nowhere: a source of the graph
  std::vector<StepIndex> readers;  ///< gradient steps; empty: the forward step makes no state
};

/// One kernel's encode.
struct ProgramStep {
  std::string name;
  std::shared_ptr<ImageKernel> kernel;
  bool ownsKernel = true;           ///< false: a node of the user's own has kept it
  std::vector<ImageIndex> sources;  ///< gradient steps: source gradient, source image
  ImageIndex result = nowhere;
  std::vector<StateIndex> sourceStates;
  std::optional<StateIndex> resultState;
  std::optional<StateIndex> fusedNeuronState;  ///< of a neuron that was fused into this step
  bool writesResult = true;                    ///< false: weight gradients alone
  StepIndex forward = nowhere;                 ///< of a gradient step: the step whose gradient it is
  StepIndex neuron = nowhere;                  ///< of a gradient step: the step whose neuron's derivative it
                                               ///< includes; `fused` names that neuron's gradient
  std::shared_ptr<LayerUpdate>
      update;         ///< of a gradient step of a layer that trains; those of one state share it
  std::string fused;  ///< what was fused into it, for debugDescription
};

struct GraphProgram {
  std::vector<ProgramImage> images;
  std::vector<ProgramState> states;
  std::vector<ProgramStep> steps;
  std::vector<ImageIndex> sourceImages;
  std::vector<StateIndex> sourceStates;
  std::vector<ImageIndex> results;             ///< in the order asked for
  std::vector<ImageIndex> intermediateImages;  ///< needed results but the first, then exported images
  std::vector<StateIndex> resultStates;
  bool firstResultIsNeeded = true;
  GraphPasses leftOut = leftOutPasses();  ///< what it is compiled without

  std::vector<std::shared_ptr<Handle>> sourceImageHandles, sourceStateHandles, intermediateImageHandles,
      resultStateHandles;

  [[nodiscard]] bool runs(GraphPass pass) const { return !leftOut[static_cast<std::size_t>(pass)]; }
};

/// Sets the updates of gradient steps. @param styles of every step; UpdateDeviceNone for one that is no gradient
/// @throws Error where two gradient steps of one state are to update their layer in different ways
void createUpdates(GraphProgram& program, const std::vector<NNTrainingStyle>& styles);
/// Sets what follows from `results`: isNeededResult, firstResultIsNeeded, the first intermediate images.
void markResults(GraphProgram& program);
/// Sets who makes and reads what, as far as memory and order go.
void connectReaders(GraphProgram& program);
/// Sets what follows from the order of steps and inputs: exported images and states, and all handles.
void listHandles(GraphProgram& program);

/// Lets a kernel be one of a graph's. @param name of the step @throws Error for one that does not work on images
std::shared_ptr<ImageKernel> kernelOfStep(const std::string& name, const std::shared_ptr<Kernel>& kernel);

/// Compiles nodes: reachability, pruning, order, kernels, fusion. @throws Error as NNGraph::create does.
std::shared_ptr<GraphProgram> compileGraph(const std::shared_ptr<mtl::Device>& device,
                                           const std::vector<std::shared_ptr<NNImageNode>>& resultImages,
                                           const std::vector<bool>& resultsAreNeeded);

/// Pass: puts a neuron into the kernel before it, where nobody else wants the image between them: into a convolution
/// where its derivative can be computed from its result, into a batch normalisation where that one's gradient can
/// take its derivative along, a plain ReLU into an addition.
void fuseNeurons(GraphProgram& program);

/// Pass: lets the gradient of a maximum pooling include the derivative of the ReLU before it, where that ReLU's
/// gradient is computed from the pooling's alone and nobody else wants the image between them. The pooling then
/// saves no index of what the ReLU cut off, so that the derivative costs nothing.
void fuseNeuronGradients(GraphProgram& program);

/// Pass: leaves out the gradients of biases where a layer that updates itself on the device has none and nobody sees
/// the gradient's state.
void leaveOutBiases(GraphProgram& program);

/// Drops the steps whose kernel a pass has taken away.
void dropFusedSteps(GraphProgram& program);

/// Gradient steps of a forward step.
std::vector<StepIndex> gradientsOf(const GraphProgram& program, StepIndex forward);

}  // namespace mps::detail
