#include "mps/conform/gradients/graph_derivative.hpp"

#include <span>
#include <utility>

namespace mps::detail {
namespace {

/// Sum of factor (after - before).
double weightedChange(const ReferenceTensor& factor, const ReferenceTensor& after,
                      const ReferenceTensor& before) {
  double sum = 0;
  for (std::size_t i = 0; i < factor.values.size(); ++i)
    sum += factor.values[i] * (after.values.at(i) - before.values.at(i));
  return sum;
}

double change(const ReferenceTensor& after, const ReferenceTensor& before) {
  double sum = 0;
  for (std::size_t i = 0; i < before.values.size(); ++i) sum += after.values.at(i) - before.values[i];
  return sum;
}

}  // namespace

std::vector<double> GraphDerivative::valuesOf(const GraphVariable& variable) const {
  const StepIndex step = variable.edge.step;
  if (variable.parameter)
    return reference_.parameters.at(keyOf(reference_.parameterOf(step, *variable.parameter)));
  if (variable.edge.source == betweenFused) return base_.between[step].values;
  return base_.images[reference_.program().steps[step].sources[variable.edge.source]].values;
}

GraphDerivative::Moved GraphDerivative::compute(
    StepIndex step, StepInputs inputs, const std::function<void(ReferenceTensor&)>& changeBetween) const {
  Moved moved;
  if (!reference_.program().steps[step].fused.empty())
    inputs.between = [&](ReferenceTensor& tensor) {
      if (changeBetween) changeBetween(tensor);
      moved.between = tensor;
    };
  moved.outputs = reference_.compute(step, inputs);
  return moved;
}

GraphDerivative::Moved GraphDerivative::move(StepInputs inputs, const GraphVariable& variable,
                                             std::size_t element, double h) const {
  const StepIndex step = variable.edge.step;
  if (variable.parameter) {
    std::vector<double> values = valuesOf(variable);
    values.at(element) += h;
    inputs.parameter = [&values, &variable, others = inputs.parameter](const PreparedCall::Parameter& at,
                                                                       std::size_t index, std::size_t count) {
      return index == *variable.parameter ? std::span<const double>(values) : others(at, index, count);
    };
    return compute(step, std::move(inputs), nullptr);
  }
  const auto shift = [&](ReferenceTensor& tensor) { tensor.values.at(element) += h; };
  if (variable.edge.source == betweenFused) return compute(step, std::move(inputs), shift);
  ReferenceTensor source = *inputs.sources.at(variable.edge.source);
  shift(source);
  inputs.sources[variable.edge.source] = &source;
  return compute(step, std::move(inputs), nullptr);
}

double GraphDerivative::ofStep(const GraphVariable& variable, std::size_t element, double h,
                               const ReferenceTensor& gradient, bool between, StepIndex last) const {
  const std::vector<ProgramStep>& steps = reference_.program().steps;
  const StepIndex step = variable.edge.step;
  const Moved moved = move(reference_.inputsOf(step, base_), variable, element, h);
  if (last != step) {
    StepInputs inputs = reference_.inputsOf(last, base_);
    for (std::size_t i = 0; i < inputs.sources.size(); ++i)
      if (steps[last].sources[i] == steps[step].result) inputs.sources[i] = &moved.outputs.result;
    const Moved end = compute(last, std::move(inputs), nullptr);
    return weightedChange(gradient, end.outputs.result, base_.images[steps[last].result]);
  }
  if (between) return weightedChange(gradient, moved.between, base_.between[step]);
  return weightedChange(gradient, moved.outputs.result, base_.images[steps[step].result]);
}

double GraphDerivative::ofLoss(StepIndex loss, std::size_t element, double h) const {
  const Moved moved = move(reference_.inputsOf(loss, base_), {{loss, 0}, {}}, element, h);
  return change(*moved.outputs.objective, *base_.outputs[loss].objective);
}

double GraphDerivative::lossChange(StepIndex loss, const Moved& moved,
                                   const ReferenceTensor& predictions) const {
  const ProgramStep& step = reference_.program().steps[loss];
  if (base_.outputs[loss].objective && moved.outputs.objective)
    return change(*moved.outputs.objective, *base_.outputs[loss].objective);
  return weightedChange(base_.images[step.result], predictions, base_.images[step.sources[0]]);
}

double GraphDerivative::seedChange(StepIndex step, const Moved& moved) const {
  double sum = 0;
  for (const GradientWiring::Seed& seed : wiring_.seeds()) {
    if (seed.forward != step) continue;
    const ReferenceTensor& factor = base_.images[seed.gradient];
    sum += seed.between ? weightedChange(factor, moved.between, base_.between[step])
                        : weightedChange(factor, moved.outputs.result,
                                         base_.images[reference_.program().steps[step].result]);
  }
  return sum;
}

double GraphDerivative::ofGraph(const GraphVariable& variable, std::size_t element, double h) const {
  const GraphProgram& program = reference_.program();
  std::vector<std::optional<ReferenceTensor>> changed(program.images.size());
  double sum = 0;
  for (StepIndex s = variable.edge.step; s < program.steps.size(); ++s) {
    if (wiring_.isBackward(s)) continue;
    const ProgramStep& step = program.steps[s];
    StepInputs inputs = reference_.inputsOf(s, base_);
    bool reads = s == variable.edge.step;
    for (std::size_t i = 0; i < step.sources.size(); ++i) {
      const auto& source = changed[step.sources[i]];
      if (!source || !wiring_.isOpen({s, i})) continue;
      inputs.sources[i] = &*source;
      reads = true;
    }
    if (!reads) continue;
    const ReferenceTensor& first = *inputs.sources[0];
    Moved moved = s == variable.edge.step ? move(std::move(inputs), variable, element, h)
                                          : compute(s, std::move(inputs), nullptr);
    sum += wiring_.isLoss(s) ? lossChange(s, moved, first) : seedChange(s, moved);
    changed[step.result] = std::move(moved.outputs.result);
  }
  return sum;
}

}  // namespace mps::detail
