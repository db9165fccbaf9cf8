#include "mps/normalization/cpu/normalization_cpu.hpp"

#include <array>

#include "mps/core/plan/reference_plan.hpp"
#include "mps/normalization/check/normalization_reference.hpp"

namespace mps::detail {
namespace {

Preparation prepareReference(const NormalizationProblem& problem) {
  return std::make_shared<const ReferencePlan>(
      problem.destination,
      problem.isGradient() && problem.destination.format == ImageFeatureChannelFormat::Float32,
      [problem](const Operands& operands) {
        const ReferenceTensor source = readReference(problem.source, operands.source);
        if (!problem.isGradient()) return normalizationForwardReference(problem, source);
        return normalizationGradientReference(problem, source,
                                              readReference(problem.gradient, operands.gradient));
      });
}

constexpr std::array<Implementation<NormalizationProblem>, 3> kImplementations{{
    {"window over channels", prepareChannelNormalization},
    {"tiles", prepareWindowNormalization},
    {"reference", prepareReference},
}};

}  // namespace

std::span<const Implementation<NormalizationProblem>> normalizationImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail
