#include "mps/conform/kernel_cases.hpp"
#include "mps/conform/testing/stored_values.hpp"
#include "mps/instance_normalization/check/instance_normalization_cases_setting.hpp"
#include "mps/instance_normalization/check/instance_normalization_fixed_source.hpp"
#include "mps/instance_normalization/group_normalization.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

using InstanceNormalizationImplementation = Implementation<InstanceNormalizationProblem>;
using Operation = InstanceNormalizationOperation;

/// Which class a problem is of: instance normalisation has as many groups as channels.
enum class Kind { Instance, Group };

std::string classOf(Kind kind, Operation operation) {
  const std::string name = kind == Kind::Instance ? "CNNInstanceNormalization" : "CNNGroupNormalization";
  return operation == Operation::Forward ? name : name + "Gradient";
}

void runPlan(ConformRun& run, const InstanceNormalizationImplementation& implementation,
             const InstanceNormalizationProblem& problem, Tier tier, bool isAligned, double largeMean = 64) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  InstanceNormalizationSetting setting(
      run.device(), problem, tier,
      [&](std::size_t count, RandomKind kind) { return run.values(count, kind); }, isAligned, largeMean);
  const Operands operands = setting.operands();
  run.execute(*plan, operands);
  setting.judge([&](const ReferenceTensor& expected, const std::vector<double>& found, auto format) {
    run.check(expected, found, format, Zeros::Expected);
  });
  run.require(setting.inputsAreUnchanged(), "an input was written");
  run.require(setting.surroundingsAreIntact(), "memory around a result was written");
  if (problem.computesData)
    run.checkAccumulated(*plan, operands, setting.expected(problem), setting.destination());
}

void addPlanCases(std::vector<ConformCase>& cases, const InstanceNormalizationImplementation& implementation,
                  Kind kind, Operation operation, ConformFormats formats, Tier tier) {
  for (const InstanceNormalizationTensors& tensors : instanceNormalizationTensors()) {
    if ((tensors.groups == tensors.channels) != (kind == Kind::Instance)) continue;
    if (tier == Tier::Exact && !tensors.canBeExact()) continue;
    for (const bool hasSaved : {false, true})
      for (const bool isAligned : {false, true}) {
        InstanceNormalizationProblem problem =
            tensors.problem(operation, formats.source, formats.result, tier);
        problem.hasSavedStatistics = hasSaved;
        problem.sumsImages = operation == Operation::Gradient && hasSaved == isAligned;
        cases.push_back({tensors.name + ": " + problem.describe(),
                         [=](ConformRun& run) { runPlan(run, implementation, problem, tier, isAligned); }});
      }
  }
  if (implementation.name.starts_with("chunks of pixels") && kind == Kind::Instance &&
      tier == Tier::Bounded && formats.source == formats.result && !isUnorm(formats.source)) {
    const InstanceNormalizationTensors tensors = largeInstanceNormalizationTensors();
    InstanceNormalizationProblem problem = tensors.problem(operation, formats.source, formats.result);
    problem.hasSavedStatistics = true;
    cases.push_back({tensors.name + ": " + problem.describe(),
                     [=](ConformRun& run) { runPlan(run, implementation, problem, tier, true); }});
  }
  if (kind == Kind::Instance && tier == Tier::Bounded && formats.source == formats.result &&
      formats.source == ImageFeatureChannelFormat::Float32)
    for (const bool sumsImages : {false, true}) {
      if (sumsImages && operation == Operation::Forward) continue;
      const InstanceNormalizationTensors tensors = manyInstanceNormalizationTensors();
      InstanceNormalizationProblem problem = tensors.problem(operation, formats.source, formats.result);
      problem.hasSavedStatistics = sumsImages || operation == Operation::Forward;
      problem.sumsImages = sumsImages;
      cases.push_back({tensors.name + ": " + problem.describe(),
                       [=](ConformRun& run) { runPlan(run, implementation, problem, tier, true); }});
    }
  if (kind == Kind::Group && tier == Tier::Bounded && formats.source == ImageFeatureChannelFormat::Float32) {
    const InstanceNormalizationTensors tensors = farInstanceNormalizationTensors();
    const InstanceNormalizationProblem problem = tensors.problem(operation, formats.source, formats.result);
    cases.push_back({tensors.name + ": " + problem.describe(),
                     [=](ConformRun& run) { runPlan(run, implementation, problem, tier, true, 0x1p20); }});
  }
  if (operation == Operation::Forward) return;
  InstanceNormalizationProblem problem =
      instanceNormalizationTensors().back().problem(operation, formats.source, formats.result, tier);
  problem.computesData = false;
  problem.destination = {};
  if (kind == Kind::Group && tier == Tier::Bounded)
    cases.push_back({"ParametersAlone: " + problem.describe(),
                     [=](ConformRun& run) { runPlan(run, implementation, problem, tier, false); }});
}

template <class Values>
std::vector<float> floats(const Values& values, float factor) {
  std::vector<float> result;
  for (const double value : values) result.push_back(factor * static_cast<float>(value));
  return result;
}

/// Both kernels with a batch of states, through the public classes.
void runKernels(ConformRun& run, const KernelBatch& batch, Kind kind, Operation operation,
                ConformFormats formats) {
  const std::size_t groups = kind == Kind::Instance ? batch.channels : batch.channels % 2 == 0 ? 4 : 1;
  const std::vector<float> gammas = floats(run.values(batch.channels, RandomKind::Uniform), 2);
  const std::vector<float> betas = floats(run.values(batch.channels, RandomKind::Uniform), 1);
  std::shared_ptr<CNNKernel> forward;
  std::shared_ptr<CNNGradientKernel> gradient;
  float epsilon = 0;
  const auto fill = [&](auto& source) {
    source.gammas = gammas;
    source.betas = betas;
    epsilon = source.epsilonValue;
  };
  if (kind == Kind::Instance) {
    const auto source = FixedInstanceNormalization::create(batch.channels);
    fill(*source);
    forward = CNNInstanceNormalization::create(run.device(), source);
    gradient = CNNInstanceNormalizationGradient::create(run.device());
  } else {
    const auto source = FixedGroupNormalization::create(batch.channels, groups);
    fill(*source);
    forward = CNNGroupNormalization::create(run.device(), source);
    gradient = CNNGroupNormalizationGradient::create(run.device());
  }
  InstanceNormalizationProblem problem;
  problem.groups = static_cast<std::int64_t>(groups);
  problem.epsilon = epsilon;
  const std::vector<double> gamma(gammas.begin(), gammas.end()), beta(betas.begin(), betas.end());
  const TestImages sources = run.sources(batch.form, batch.descriptor(formats.source), batch.count,
                                         valuesFor(Tier::Bounded, formats.source));
  if (operation == Operation::Forward)
    return runForwardKernel(run, *forward, sources, batch.form, formats.result,
                            [&](const ReferenceTensor& x) {
                              return instanceNormalizationReference(problem, gamma, beta, asLoaded(x));
                            });
  const GradientImages images =
      gradientImages(run, *forward, sources, batch.form, formats.result, RandomKind::Uniform);
  if (!encodeGradientKernel(run, *forward, *gradient, sources, false, images)) return;
  const auto expected = instanceNormalizationGradientReference(problem, gamma, asLoaded(sources.reference()),
                                                               images.gradients.reference());
  run.check(expected.source, images.destinations, Zeros::Expected);
  const ImageNormalizationRows rows = gradientRowsOf("conform", images.states);
  const auto stored = [&](std::size_t offset) {
    return storedFloats(run.device(), rows.gradients->memory(), offset, batch.count * batch.channels);
  };
  run.check(expected.gamma, stored(rows.gradients->gammaOffset(0)), ImageFeatureChannelFormat::Float32,
            Zeros::Expected);
  run.check(expected.beta, stored(rows.gradients->betaOffset(0)), ImageFeatureChannelFormat::Float32,
            Zeros::Expected);
}

void conformOperation(Conform& conform, const InstanceNormalizationImplementation& implementation, Kind kind,
                      Operation operation, ConformFormats formats, Tier tier) {
  const ConformKey key{classOf(kind, operation),
                       operation == Operation::Forward ? Direction::Forward : Direction::Gradient,
                       formats.source, std::string(implementation.name), tier};
  if (!conform.isSelected(key)) return;
  std::vector<ConformCase> cases;
  addPlanCases(cases, implementation, kind, operation, formats, tier);
  if (tier == Tier::Bounded)
    for (const KernelBatch& batch : kernelBatches())
      cases.push_back(
          {batch.name, [=](ConformRun& run) { runKernels(run, batch, kind, operation, formats); }});
  conformRow(conform, key, cases);
}

}  // namespace

void conformInstanceNormalization(Conform& conform) {
  for (const InstanceNormalizationImplementation& implementation :
       conform.implementations(instanceNormalizationBackEnds))
    for (const Kind kind : {Kind::Instance, Kind::Group})
      for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
        for (const ConformFormats formats : kForwardFormats)
          conformOperation(conform, implementation, kind, Operation::Forward, formats, tier);
        for (const auto format : kGradientFormats)
          conformOperation(conform, implementation, kind, Operation::Gradient, {format, format}, tier);
      }
}

}  // namespace mps::detail
