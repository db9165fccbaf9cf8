#include <array>

#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/core/plan/reference_plan.hpp"
#include "mps/upsampling/check/upsampling_reference.hpp"
#include "mps/upsampling/cpu/upsampling_rows.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

class VectorPlan final : public Plan {
 public:
  explicit VectorPlan(UpsamplingRows rows) : rows_(std::move(rows)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& shape = rows_.problem().destination;
    const bool streams = rows_.stream(rows_.problem().input.bytes() + shape.bytes());
    mtl::cpu::asCpu(stream).parallelFor(shape.images * shape.height, rows_.grain(),
                                        [&](std::int64_t begin, std::int64_t end) {
                                          rows_.compute(operands, streams, begin, end);
                                          if (streams) finishNonTemporalStores();
                                        });
  }

  [[nodiscard]] bool canAccumulate() const override {
    return rows_.problem().direction == UpsamplingDirection::Gradient &&
           rows_.problem().destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  UpsamplingRows rows_;
};

/// Earns every size but those beyond its working memory: the reference computes in float64 on one thread.
Preparation prepareVectors(const UpsamplingProblem& problem) {
  UpsamplingRows rows(problem);
  if (!rows.fit()) return Refusal{"a pixel is the sum of more columns than the working memory holds"};
  return std::make_shared<const VectorPlan>(std::move(rows));
}

Preparation prepareReference(const UpsamplingProblem& problem) {
  const bool isForward = problem.direction == UpsamplingDirection::Forward;
  return std::make_shared<const ReferencePlan>(
      problem.destination, !isForward && problem.destination.format == ImageFeatureChannelFormat::Float32,
      [problem, isForward](const Operands& operands) {
        return upsamplingReference(
            problem, readReference(problem.input, isForward ? operands.source : operands.gradient));
      });
}

constexpr std::array<Implementation<UpsamplingProblem>, 2> kImplementations{{
    {"tiles", prepareVectors},
    {"reference", prepareReference},
}};

}  // namespace

std::span<const Implementation<UpsamplingProblem>> upsamplingImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail
