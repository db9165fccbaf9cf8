#include "mps/conform/check_gradients.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <utility>

#include "mps/conform/compare.hpp"
#include "mps/conform/gradients/central_difference.hpp"
#include "mps/conform/gradients/gradient_wiring.hpp"
#include "mps/conform/gradients/graph_derivative.hpp"
#include "mps/conform/gradients/graph_reference.hpp"
#include "mps/core/types/error.hpp"

namespace mps {
namespace {

using namespace detail;  // NOLINT: the whole file is about the library's own

/// A gradient that the chain of references computed, and the tensor that it belongs to.
struct Derived {
  std::size_t row = 0;
  GraphVariable variable;
  const ReferenceTensor* gradient = nullptr;
  bool isLeaf = false;  ///< parameters and source images
};

class GradientChecker {
 public:
  GradientChecker(NNGraph& graph, ArrayRef<ImageBatch> sourceImages, ArrayRef<StateBatch> sourceStates,
                  const GradientCheckOptions& options)
      : options_(options),
        reference_(graph, sourceImages, sourceStates),
        program_(reference_.program()),
        wiring_(program_),
        run_(reference_.run()),
        derivative_(reference_, wiring_, run_),
        random_(options.seed) {}

  GradientCheckReport check() {
    for (StepIndex s = 0; s < program_.steps.size(); ++s) checkStep(s);
    // Where one link is wrong all behind it are: only a chain of right links is worth looking at as a whole.
    if (report_.failedCount() == 0)
      for (const Derived& derived : derived_)
        if (derived.isLeaf)
          differentiate(derived, "through the whole graph", [&](std::size_t element, double h) {
            return derivative_.ofGraph(derived.variable, element, h);
          });
    return std::move(report_);
  }

 private:
  std::size_t addRow(StepIndex s, std::string tensor, const ReferenceTensor& expected,
                     std::span<const double> found, ImageFeatureChannelFormat format) {
    const Comparison comparison = compare(expected, found, format, Tier::Bounded, Zeros::Expected);
    GradientCheckRow row;
    row.node = nameOf(program_.steps[s]);
    row.kernel = program_.steps[s].kernel->className();
    row.tensor = std::move(tensor);
    row.elements = comparison.elements;
    row.worst = comparison.worst;
    if (!comparison.passed()) row.report = comparison.report;
    report_.rows.push_back(std::move(row));
    return report_.rows.size() - 1;
  }

  const ReferenceTensor& overTheBatch(const ParameterGradient& gradient) {
    if (!gradient.isPerImage) return gradient.values;
    const std::size_t each = gradient.values.values.size() / static_cast<std::size_t>(gradient.values.images);
    const ReferenceTensor& images = gradient.values;
    ReferenceTensor& sum = sums_.emplace_back(1, 1, 1, static_cast<std::int64_t>(each));
    sum.magnitude.resize(each);
    for (std::size_t i = 0; i < images.values.size(); ++i) {
      sum.values[i % each] += images.values[i];
      sum.magnitude[i % each] += images.magnitude.empty() ? std::abs(images.values[i]) : images.magnitude[i];
    }
    return sum;
  }

  void differentiate(const Derived& derived, const std::string& what, const Change& change) {
    const DerivativeComparison comparison =
        compareDerivative(*derived.gradient, derivative_.valuesOf(derived.variable), change,
                          options_.elementsPerTensor, random_);
    GradientCheckRow& row = report_.rows[derived.row];
    row.derivatives += comparison.elements;
    row.skipped += comparison.skipped;
    row.worstDerivative = std::max(row.worstDerivative, comparison.worst);
    if (!comparison.report.empty()) row.report += "  " + what + ":\n" + comparison.report;
  }

  void checkStep(StepIndex s) {
    const ProgramStep& step = program_.steps[s];
    const bool isLoss = wiring_.isLoss(s);
    const auto edge = wiring_.edgeOf(s);
    std::vector<Derived> derived;
    const std::size_t firstRow = report_.rows.size();
    if (step.writesResult) {
      const std::size_t row =
          addRow(s, edge || isLoss ? "source gradient" : "result", reference_.onStored(s).result,
                 reference_.stored(step.result).values, reference_.formatOf(step.result));
      if (edge) {
        const bool isLeaf =
            edge->source != betweenFused &&
            program_.images[program_.steps[edge->step].sources[edge->source]].producer == nowhere;
        derived.push_back({row, {*edge, {}}, &run_.images[step.result], isLeaf});
      }
      if (isLoss && run_.outputs[s].objective)
        differentiate({row, {{s, 0}, {}}, &run_.images[step.result], false}, "as the derivative of the loss",
                      [&](std::size_t element, double h) { return derivative_.ofLoss(s, element, h); });
    }
    for (std::size_t i = 0; i < reference_.onStored(s).parameterGradients.size(); ++i) {
      const ParameterGradient& onStored = reference_.onStored(s).parameterGradients[i];
      const std::size_t row = addRow(s, onStored.name, onStored.values, reference_.stored(onStored),
                                     ImageFeatureChannelFormat::Float32);
      if (reference_.parameterOf(step.forward, onStored.forwardIndex).memory)
        derived.push_back({row,
                           {{step.forward, 0}, onStored.forwardIndex},
                           &overTheBatch(run_.outputs[s].parameterGradients[i]),
                           true});
    }
    if (edge && !wiring_.errorAt(s).empty()) {
      report_.rows[firstRow].report += wiring_.errorAt(s);
      return;
    }
    const bool between = edge && wiring_.startsBetween(s);
    for (const Derived& one : derived)
      differentiate(one, "as the derivative of " + wiring_.forwardNameOf(s),
                    [&](std::size_t element, double h) {
                      return derivative_.ofStep(one.variable, element, h, run_.images[step.sources[0]],
                                                between, step.forward);
                    });
    derived_.insert(derived_.end(), derived.begin(), derived.end());
  }

  GradientCheckOptions options_;
  GraphReference reference_;
  const GraphProgram& program_;
  GradientWiring wiring_;
  GraphReference::Run run_;
  GraphDerivative derivative_;
  std::mt19937_64 random_;
  GradientCheckReport report_;
  std::vector<Derived> derived_;
  std::deque<ReferenceTensor> sums_;  ///< of gradients that come image by image
};

}  // namespace

std::size_t GradientCheckReport::passedCount() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(rows, [](const GradientCheckRow& row) { return row.passed(); }));
}

bool GradientCheckReport::passed() const {
  return failedCount() == 0 &&
         std::ranges::any_of(rows, [](const GradientCheckRow& row) { return row.derivatives > 0; });
}

std::string GradientCheckReport::describe() const {
  std::string text;
  for (const GradientCheckRow& row : rows)
    if (!row.passed()) text += row.node + " (" + row.kernel + "), " + row.tensor + ":\n" + row.report;
  return text;
}

GradientCheckReport checkGradients(NNGraph& graph, ArrayRef<ImageBatch> sourceImages,
                                   ArrayRef<StateBatch> sourceStates, const GradientCheckOptions& options) {
  if (options.elementsPerTensor == 0) throw Error("checkGradients", "elementsPerTensor", "0", "at least 1");
  const auto& steps = graph.program().steps;
  if (std::ranges::none_of(steps, [](const ProgramStep& step) { return step.forward != nowhere; }))
    throw Error("checkGradients", "graph", "one without gradient nodes", "one that trains");
  return GradientChecker(graph, sourceImages, sourceStates, options).check();
}

}  // namespace mps
