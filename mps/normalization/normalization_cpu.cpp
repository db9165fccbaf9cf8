#include "mps/normalization/normalization_cpu.hpp"

#include <array>

#include "mps/normalization/normalization_plain.hpp"

namespace mps::detail {
namespace {

Preparation prepareVectors(const NormalizationProblem& problem) {
  return problem.kind == NormalizationKind::CrossChannel ? prepareChannelNormalization(problem)
                                                         : prepareWindowNormalization(problem);
}

constexpr std::array<Implementation<NormalizationProblem>, 4> kImplementations{{
    {"fives", prepareFives},
    {"narrow", prepareNarrow},
    {"vectors", prepareVectors},
    {"plain", preparePlainNormalization},
}};

}  // namespace

std::span<const Implementation<NormalizationProblem>> normalizationImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail
