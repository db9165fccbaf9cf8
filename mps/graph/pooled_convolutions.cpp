#include <algorithm>

#include "mps/convolution/convolution.hpp"
#include "mps/graph/image_reuse.hpp"
#include "mps/pooling/pooling.hpp"

namespace mps::detail {
namespace {

/// The steps that become two.
struct PooledLayer {
  StepIndex convolution;
  StepIndex pooling;
  StepIndex poolingGradient;
  StepIndex convolutionGradient;
};

bool hasReader(const ProgramImage& image, StepIndex reader) {
  return image.readers == std::vector<StepIndex>{reader};
}

/// Whether windows are those of 2 x 2 pixels side by side, from the first pixel on.
bool poolsSquares(const GraphProgram& program, StepIndex pooling, const std::vector<ImageDescriptor>& sizes,
                  const Offset& offset) {
  const ProgramStep& step = program.steps[pooling];
  const auto* maximum = dynamic_cast<const CNNPoolingMax*>(step.kernel.get());
  if (maximum == nullptr) return false;
  const ImageDescriptor& large = sizes[step.sources[0]];
  const ImageDescriptor& small = sizes[step.result];
  return maximum->kernelWidth() == 2 && maximum->kernelHeight() == 2 && maximum->strideInPixelsX() == 2 &&
         maximum->strideInPixelsY() == 2 && offset == Offset{1, 1, 0} && large.width() == 2 * small.width() &&
         large.height() == 2 * small.height() && large.channelFormat() == small.channelFormat();
}

/// The layer of a pooling gradient that includes a neuron's; nothing where something else takes part.
bool findLayer(const GraphProgram& program, StepIndex gradient, PooledLayer& layer) {
  const ProgramStep& step = program.steps[gradient];
  if (step.neuron == nowhere) return false;
  const ProgramImage& result = program.images[step.result];
  if (!result.isPlanned() || result.readers.size() != 1) return false;
  layer = {step.neuron, step.forward, gradient, result.readers[0]};
  const ProgramStep& convolution = program.steps[layer.convolution];
  const ProgramStep& last = program.steps[layer.convolutionGradient];
  const ProgramImage& large = program.images[convolution.result];
  return dynamic_cast<const CNNConvolution*>(convolution.kernel.get()) != nullptr && large.isPlanned() &&
         hasReader(large, layer.pooling) && program.images[program.steps[layer.pooling].result].isPlanned() &&
         dynamic_cast<const CNNConvolutionGradient*>(last.kernel.get()) != nullptr &&
         last.forward == layer.convolution && last.sources[0] == step.result && !last.writesResult &&
         convolution.resultState && !program.states[*convolution.resultState].isExported &&
         gradientsOf(program, layer.convolution).size() == 1;
}

}  // namespace

void poolInConvolutions(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes,
                        const std::vector<Offset>& offsets, std::size_t count, ImageReuse& reuse) {
  for (StepIndex s = 0; s < program.steps.size(); ++s) {
    PooledLayer layer{};
    if (!findLayer(program, s, layer)) continue;
    const ProgramStep& convolution = program.steps[layer.convolution];
    if (!poolsSquares(program, layer.pooling, sizes, offsets[layer.pooling])) continue;
    const ImageIndex maxima = program.steps[layer.pooling].result;
    const ImageIndex gradient = program.steps[s].sources[0];
    if (sizes[gradient] != sizes[maxima] ||
        !static_cast<const CNNConvolution&>(*convolution.kernel)
             .canPool(sizes[convolution.sources[0]], sizes[convolution.result], count))
      continue;
    reuse.leavesOut[layer.pooling] = reuse.leavesOut[s] = true;
    reuse.isAbsent[convolution.result] = reuse.isAbsent[program.steps[s].result] = true;
    reuse.maxima[layer.convolution] = maxima;
    reuse.firstUse[maxima] = layer.convolution;
    reuse.maxima[layer.convolutionGradient] = gradient;
    reuse.lastUse[gradient] = std::max(reuse.lastUse[gradient], layer.convolutionGradient);
  }
}

}  // namespace mps::detail
