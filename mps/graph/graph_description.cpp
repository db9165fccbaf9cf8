#include <algorithm>
#include <ostream>
#include <vector>

#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/types/text_stream.hpp"
#include "mps/graph/compile/graph_program.hpp"
#include "mps/graph/nn_graph.hpp"
#include "mps/graph/run/graph_executor.hpp"
#include "mtl/device.hpp"

namespace mps {
namespace {

using detail::GraphLayout;
using detail::GraphProgram;
using detail::ImageIndex;
using detail::nowhere;
using detail::ProgramImage;
using detail::ProgramStep;

std::string imageName(const GraphProgram& program, ImageIndex i) {
  const ProgramImage& image = program.images[i];
  const std::string number = "image " + std::to_string(i);
  return image.handle && !image.handle->label().empty() ? number + " \"" + image.handle->label() + "\""
                                                        : number;
}

std::string placeOf(const GraphProgram& program, const GraphLayout* layout, ImageIndex i) {
  const ProgramImage& image = program.images[i];
  std::string text;
  if (layout != nullptr) text += ", " + layout->images[i].describe();
  if (image.producer == nowhere) return text + ", input";
  if (image.isNeededResult) return text + ", result";
  if (image.isExported) return text + ", exported";
  if (image.allocator) return text + ", own allocator";
  if (layout != nullptr && layout->requestOf[i] != nowhere)
    text += ", at " + std::to_string(layout->plan.offsets[layout->requestOf[i]]);
  return text;
}

/// Who does the work of a step that is left out.
const char* substituteOf(const GraphProgram& program, const detail::ImageReuse& reuse, std::size_t step) {
  detail::ImageKernel& kernel = *program.steps[step].kernel;
  if (kernel.roles().sliceGradient != nullptr) return "done along with another slice";
  if (kernel.derivativeTraits().isGradient) return "the incoming gradient itself";
  if (std::ranges::find(reuse.sums, step) != reuse.sums.end()) return "done by the step before it";
  const bool isAddedNext = step + 1 < reuse.addends.size() && reuse.addends[step + 1] != nowhere;
  return isAddedNext ? "done by the neuron's gradient" : "done by accumulation";
}

/// Which steps neither are gradients nor read one. A loss is drawn, what it computes is read by gradients alone.
std::vector<bool> forwardSteps(const GraphProgram& program) {
  std::vector<bool> isForward(program.steps.size());
  const auto givesGradient = [&](ImageIndex source) {
    const std::size_t producer = program.images[source].producer;
    if (producer == nowhere) return false;
    return !isForward[producer] || program.steps[producer].kernel->derivativeTraits().beginsGradients;
  };
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    const ProgramStep& step = program.steps[s];
    const detail::DerivativeTraits traits = step.kernel->derivativeTraits();
    const bool isGradient = traits.isGradient || (traits.beginsGradients && !traits.ownSource);
    isForward[s] =
        !isGradient && step.forward == nowhere && std::ranges::none_of(step.sources, givesGradient);
  }
  return isForward;
}

/// Text inside a Graphviz string.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

}  // namespace

std::string NNGraph::debugDescription() const {
  const GraphProgram& program = *program_;
  const GraphLayout* layout = executor_->lastLayout();
  detail::TextStream out;
  out << describe() << " on " << device()->name() << ": " << program.steps.size() << " steps";
  if (layout != nullptr)
    out << ", batch of " << layout->count << ", " << layout->plan.peakBytes << " bytes of temporary images, "
        << executor_->recordedSteps() << " steps repeat their commands";
  out << '\n';
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    const ProgramStep& step = program.steps[s];
    out << "  " << s << ": " << step.name << " [" << step.kernel->className() << "]";
    if (!step.fused.empty()) out << " with " << step.fused;
    if (!step.writesResult) out << ", weight gradients only";
    if (step.update) out << ", updates weights";
    if (layout != nullptr && layout->reuse.leavesOut[s])
      out << ", " << substituteOf(program, layout->reuse, s);
    if (layout != nullptr && layout->reuse.accumulates[s]) out << ", accumulates";
    if (layout != nullptr && layout->reuse.addends[s] != nowhere)
      out << ", adds image " << layout->reuse.addends[s];
    out << "\n      from";
    for (const ImageIndex source : step.sources) out << ' ' << imageName(program, source);
    out << "\n      to " << imageName(program, step.result) << placeOf(program, layout, step.result) << '\n';
  }
  return out.str();
}

void NNGraph::writeDot(std::ostream& stream, GraphPart part) const {
  detail::TextStream out;  // whose numbers are not those of the stream's locale
  const GraphProgram& program = *program_;
  std::vector<bool> isDrawn(program.steps.size(), true);
  if (part == GraphPart::Forward) isDrawn = forwardSteps(program);
  out << "digraph network {\n  rankdir=TB;\n  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n";
  for (const ImageIndex i : program.sourceImages)
    out << "  input" << i << " [label=\"" << escaped(imageName(program, i)) << "\", shape=ellipse];\n";
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    if (!isDrawn[s]) continue;
    const ProgramStep& step = program.steps[s];
    std::string label = escaped(step.name);
    if (!step.fused.empty()) label += "\\n+ " + escaped(step.fused);
    const bool isGradient = step.kernel->derivativeTraits().isGradient;
    out << "  step" << s << " [label=\"" << label << '"';
    if (isGradient) out << ", color=\"#b04030\"";
    if (step.update) out << ", penwidth=2";
    out << "];\n";
    for (const ImageIndex source : step.sources) {
      const std::size_t producer = program.images[source].producer;
      if (producer == nowhere)
        out << "  input" << source << " -> step" << s << ";\n";
      else
        out << "  step" << producer << " -> step" << s << ";\n";
    }
    if (step.forward != nowhere) out << "  step" << step.forward << " -> step" << s << " [style=dotted];\n";
  }
  out << "}\n";
  stream << out.str();
}

}  // namespace mps
