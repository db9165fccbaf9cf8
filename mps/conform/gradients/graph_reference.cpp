#include "mps/conform/gradients/graph_reference.hpp"

#include <algorithm>
#include <utility>

#include "mps/conform/families.hpp"
#include "mps/conform/testing/stored_values.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace mps::detail {

ParameterKey keyOf(const PreparedCall::Parameter& parameter) {
  return {parameter.memory.get(), parameter.byteOffset};
}

GraphReference::GraphReference(NNGraph& graph, ArrayRef<ImageBatch> sources, ArrayRef<StateBatch> states)
    : sourceStates(states.begin(), states.end()), device_(graph.device()), program_(graph.program()) {
  for (const ImageBatch& batch : sources)
    if (!batch.empty() && batch.isTemporary())
      throw Error(graph.describe(), "sourceImages", "temporary images",
                  "permanent ones: the float64 reference reads them, too");
  const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
  trace_ = graph.trace(commandBuffer, sources, states);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();

  stored_.resize(program_.images.size());
  for (const ImageIndex i : program_.sourceImages) {
    stored_[i] = storedValues(trace_.images[i]);
    sourceImages.push_back(stored_[i]);
  }
  onStored_.resize(program_.steps.size());
  for (StepIndex s = 0; s < program_.steps.size(); ++s) {
    const ProgramStep& step = program_.steps[s];
    if (step.writesResult) stored_[step.result] = storedValues(trace_.images[step.result]);
    onStored_[s] = computeOnStored(s);
  }
}

std::vector<double> GraphReference::stored(const ParameterGradient& gradient) const {
  return storedFloats(device_, gradient.at.memory, gradient.at.byteOffset, gradient.values.values.size());
}

ImageFeatureChannelFormat GraphReference::formatOf(ImageIndex image) const {
  return trace_.images.at(image).descriptor().channelFormat();
}

const PreparedCall::Parameter& GraphReference::parameterOf(StepIndex step, std::size_t index) const {
  const auto& calls = trace_.calls.at(step);
  const auto has = [&](const GraphTrace::Call& call) {
    return call.prepared.parameters.at(index).memory != nullptr;
  };
  const auto found = std::ranges::find_if(calls, has);
  return (found == calls.end() ? calls.at(0) : *found).prepared.parameters.at(index);
}

StepInputs GraphReference::commonInputs(StepIndex step) const {
  StepInputs inputs;
  inputs.laterEncodes = laterEncodes;
  inputs.parameter = [this](const PreparedCall::Parameter& at, std::size_t, std::size_t count) {
    return std::span<const double>(parameters.at(keyOf(at))).first(count);
  };
  const ProgramStep& described = program_.steps[step];
  for (std::size_t i = 0; i < program_.sourceStates.size(); ++i)
    if (!described.sourceStates.empty() && program_.sourceStates[i] == described.sourceStates[0])
      inputs.sourceStates = &sourceStates[i];
  return inputs;
}

StepOutputs GraphReference::computeOnStored(StepIndex step) {
  StepInputs inputs = commonInputs(step);
  inputs.parameter = [this](const PreparedCall::Parameter& at, std::size_t, std::size_t count) {
    std::vector<double>& values = parameters[keyOf(at)];
    if (values.size() < count) values = storedFloats(device_, at.memory, at.byteOffset, count);
    return std::span<const double>(values);
  };
  const ProgramStep& described = program_.steps[step];
  for (const ImageIndex source : described.sources) inputs.sources.push_back(&stored_[source]);
  if (described.forward != nowhere) inputs.forwardSaved = onStored_[described.forward].saved;
  return compute(step, inputs);
}

StepInputs GraphReference::inputsOf(StepIndex step, const Run& run) const {
  StepInputs inputs = commonInputs(step);
  const ProgramStep& described = program_.steps[step];
  for (const ImageIndex source : described.sources) inputs.sources.push_back(&run.images[source]);
  if (described.forward != nowhere) inputs.forwardSaved = run.outputs[described.forward].saved;
  return inputs;
}

StepOutputs GraphReference::compute(StepIndex step, const StepInputs& inputs) const {
  const ProgramStep& described = program_.steps[step];
  const ImageDescriptor& size = trace_.images[described.result].descriptor();
  StepOutputs outputs;
  if (described.writesResult)
    outputs.result =
        ReferenceTensor(static_cast<std::int64_t>(trace_.images[described.result].count()),
                        static_cast<std::int64_t>(size.height()), static_cast<std::int64_t>(size.width()),
                        static_cast<std::int64_t>(size.featureChannels()));
  for (const GraphTrace::Call& recorded : trace_.calls[step]) {
    ReferenceCall call(described, recorded, inputs, outputs);
    if (!computeWithReference(call))
      throw Error(described.name, "kernel", described.kernel->className(), "one with a float64 reference");
  }
  return outputs;
}

GraphReference::Run GraphReference::run() const {
  Run run;
  run.images.resize(program_.images.size());
  run.between.resize(program_.steps.size());
  run.outputs.resize(program_.steps.size());
  for (std::size_t i = 0; i < sourceImages.size(); ++i)
    run.images[program_.sourceImages[i]] = sourceImages[i];
  for (StepIndex s = 0; s < program_.steps.size(); ++s) {
    StepInputs inputs = inputsOf(s, run);
    if (!program_.steps[s].fused.empty())
      inputs.between = [&run, s](ReferenceTensor& tensor) { run.between[s] = tensor; };
    run.outputs[s] = compute(s, inputs);
    run.images[program_.steps[s].result] = std::move(run.outputs[s].result);
  }
  return run;
}

}  // namespace mps::detail
