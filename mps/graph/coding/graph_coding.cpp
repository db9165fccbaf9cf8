#include "mps/graph/coding/graph_coding.hpp"

#include <set>

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/graph/compile/graph_program.hpp"

namespace mps::detail {
namespace {

void codeImage(Coder& coder, ProgramImage& image) {
  coder.code("name", image.name);
  coder.codeOptional("handle", image.handle);
  coder.codeEnumeration("format", image.format, ImageFeatureChannelFormat::Float32);
  coder.codeOptional("allocator", image.allocator);
  coder.code("isExported", image.isExported);
  coder.code("synchronizes", image.synchronizes);
}

void codeState(Coder& coder, ProgramState& state) {
  coder.codeOptional("handle", state.handle);
  coder.code("isExported", state.isExported);
  coder.code("synchronizes", state.synchronizes);
}

void codeOptionalIndex(Coder& coder, const char* key, std::optional<std::size_t>& index) {
  std::size_t number = index.value_or(nowhere);
  coder.code(key, number);
  index = number == nowhere ? std::nullopt : std::optional(number);
}

std::shared_ptr<ImageKernel> decodedKernel(const Coder& coder, const std::shared_ptr<Kernel>& kernel) {
  auto ofImages = std::dynamic_pointer_cast<ImageKernel>(kernel);
  if (!ofImages) coder.refuse("kernel", "a " + kernel->className(), "a kernel that graphs can run");
  return ofImages;
}

/// @param style of the layer's update
void codeStep(Coder& coder, ProgramStep& step, NNTrainingStyle& style) {
  if (step.update && step.update->dataSource().className().empty())
    coder.refuse(step.name, "a layer that trains by a data source that cannot be coded",
                 "a data source that overrides className() and encode(coder)");
  coder.code("name", step.name);
  std::shared_ptr<Kernel> kernel = step.kernel;
  coder.code("kernel", kernel);
  if (coder.isDecoding()) step.kernel = decodedKernel(coder, kernel);
  coder.code("sources", step.sources);
  coder.code("result", step.result);
  coder.code("sourceStates", step.sourceStates);
  codeOptionalIndex(coder, "resultState", step.resultState);
  codeOptionalIndex(coder, "fusedNeuronState", step.fusedNeuronState);
  coder.code("writesResult", step.writesResult);
  coder.code("forward", step.forward);
  coder.code("neuron", step.neuron);
  coder.code("fused", step.fused);
  style = step.update ? step.update->style() : NNTrainingStyle::UpdateDeviceNone;
  coder.codeEnumeration("trainingStyle", style, NNTrainingStyle::UpdateDeviceGPU);
}

/// Looks at a program that was read, step by step in their order.
class Check {
 public:
  Check(const Coder& coder, const GraphProgram& program) : coder_(coder), program_(program) {}

  void inputs() {
    for (const ImageIndex image : program_.sourceImages)
      require(image < program_.images.size() && images_.insert(image).second, "sourceImages");
    for (const StateIndex state : program_.sourceStates)
      require(state < program_.states.size() && states_.insert(state).second, "sourceStates");
  }

  void step(StepIndex index) {
    const ProgramStep& step = program_.steps[index];
    for (const ImageIndex source : step.sources) require(images_.contains(source), "sources");
    for (const StateIndex state : step.sourceStates) require(states_.contains(state), "sourceStates");
    require(step.forward == nowhere || step.forward < index, "forward");
    require(step.neuron == nowhere || step.neuron < index, "neuron");
    kernel(step);
    makes(images_, step.result, program_.images.size(), "result");
    if (step.resultState) makes(states_, *step.resultState, program_.states.size(), "resultState");
    if (step.fusedNeuronState)
      makes(states_, *step.fusedNeuronState, program_.states.size(), "fusedNeuronState");
  }

  void results() {
    require(!program_.results.empty(), "results");
    const std::set<ImageIndex> inputs(program_.sourceImages.begin(), program_.sourceImages.end());
    for (const ImageIndex result : program_.results)
      require(result == nowhere || (images_.contains(result) && !inputs.contains(result)), "results");
  }

  /// Once it is known who makes what: what steps look up of the steps before them.
  void links() {
    for (const ProgramStep& step : program_.steps) {
      const StepIndex maker =
          step.sourceStates.empty() ? nowhere : program_.states[step.sourceStates[0]].producer;
      if (step.kernel->isSizedByState() && !step.sourceStates.empty())
        require(maker != nowhere, "sourceStates");
      if (const auto source = step.kernel->derivativeTraits().forwardSource;
          source && step.forward != nowhere)
        require(*source < program_.steps[step.forward].sources.size(), "forward");
      if (step.update) require(step.forward == maker, "forward");
    }
  }

 private:
  void require(bool isRight, const char* key) const {
    if (!isRight) coder_.refuse(key, "no image, state or step that is there before", "the number of one");
  }
  void makes(std::set<std::size_t>& made, std::size_t index, std::size_t count, const char* key) {
    require(index < count && made.insert(index).second, key);
  }
  void kernel(const ProgramStep& step) const {
    const ImageKernel& kernel = *step.kernel;
    const std::size_t states = kernel.derivativeTraits().isGradient || kernel.sourceCount() == 1 ? 1 : 0;
    if (!kernel.takesSources(step.sources.size()) || step.sourceStates.size() > states)
      coder_.refuse("sources", "others than the kernel takes",
                    std::to_string(kernel.sourceCount()) + " for a " + kernel.className());
  }

  const Coder& coder_;
  const GraphProgram& program_;
  std::set<std::size_t> images_;  ///< that are there before the next step
  std::set<std::size_t> states_;
};

}  // namespace

void codeProgram(Coder& coder, GraphProgram& program) {
  coder.codeList("images", program.images, [&](ProgramImage& image) { codeImage(coder, image); });
  coder.codeList("states", program.states, [&](ProgramState& state) { codeState(coder, state); });
  std::vector<NNTrainingStyle> styles;
  coder.codeList("steps", program.steps,
                 [&](ProgramStep& step) { codeStep(coder, step, styles.emplace_back()); });
  coder.code("sourceImages", program.sourceImages);
  coder.code("sourceStates", program.sourceStates);
  coder.code("results", program.results);
  if (!coder.isDecoding()) return;
  Check check(coder, program);
  check.inputs();
  for (StepIndex s = 0; s < program.steps.size(); ++s) check.step(s);
  createUpdates(program, styles);
  check.results();
  markResults(program);
  connectReaders(program);
  check.links();
  listHandles(program);
  leaveOutBiases(program);
}

}  // namespace mps::detail
