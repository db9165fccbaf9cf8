#include "mps/graph/layout/graph_layout.hpp"

#include <algorithm>
#include <deque>

#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {

bool hasCustomPadding(const ImageKernel& kernel) {
  return (kernel.padding()->paddingMethod() & NNPaddingMethod::Custom) == NNPaddingMethod::Custom;
}

namespace {

/// A convolution of fewer channels than a concatenation gives would leave out the last ones, or take padding for
/// channels (docs/decisions.md, D18).
void checkPadding(const ProgramStep& step, const ProgramStep& producer, const ImageDescriptor& source) {
  const std::size_t alignment = producer.kernel->channelTraits().alignment;
  const std::size_t required = step.kernel->channelTraits().required;
  if (alignment == 0 || required == 0 || source.featureChannels() == required) return;
  throw Error(step.name, "inputFeatureChannels", std::to_string(required),
              std::to_string(source.featureChannels()) + ", as " + producer.name +
                  " gives with channelAlignment " + std::to_string(alignment) +
                  ", which pads each source to a multiple of that");
}

ImageDescriptor sizeResult(GraphLayout& layout, const GraphProgram& program,
                           const std::shared_ptr<mtl::Device>& device, StepIndex index) {
  const ProgramStep& step = program.steps[index];
  const auto standIns = [&] {
    std::vector<std::shared_ptr<Image>> images;  // never allocated: only their sizes are looked at
    for (std::size_t i = 0; i < step.kernel->sourceCount(); ++i)
      images.push_back(Image::create(device, layout.images[step.sources[i]]));
    return images;
  };
  ImageKernel& kernel = *step.kernel;
  if (const DerivativeTraits gradient = kernel.derivativeTraits(); gradient.isGradient) {
    const bool ofForward = gradient.forwardSource && step.forward != nowhere;
    return layout
        .images[ofForward ? program.steps[step.forward].sources[*gradient.forwardSource] : step.sources[1]];
  }
  const ImageDescriptor& source = layout.images[step.sources[0]];
  if (const StepIndex producer = program.images[step.sources[0]].producer; producer != nowhere)
    checkPadding(step, program.steps[producer], source);
  ImageDescriptor size;
  if (kernel.isSizedByState() && !step.sourceStates.empty()) {
    const StepIndex undone = program.states[step.sourceStates[0]].producer;
    size = kernel.sizeUndoing(source, layout.images[program.steps[undone].sources[0]],
                              layout.placements[undone]);
  } else {
    size = kernel.destinationImageDescriptor(standIns());
  }
  layout.placements[index] = kernel.placement();
  layout.sourceOffsets[index] = kernel.sourceOffsets();
  if (hasCustomPadding(kernel)) layout.geometries[index] = kernel.geometry();
  return size;
}

void resolveGeometry(GraphLayout& layout, const GraphProgram& program,
                     const std::shared_ptr<mtl::Device>& device, bool copiesSources) {
  layout.images.assign(program.images.size(), {});
  layout.placements.assign(program.steps.size(), {});
  layout.sourceOffsets.assign(program.steps.size(), {});
  layout.geometries.assign(program.steps.size(), {});
  for (std::size_t i = 0; i < program.sourceImages.size(); ++i) {
    ImageDescriptor& image = layout.images[program.sourceImages[i]];
    image = layout.sources[i];
    const bool isBytes = image.channelFormat() == ImageFeatureChannelFormat::Unorm8;
    const bool isUnorm = isBytes || image.channelFormat() == ImageFeatureChannelFormat::Unorm16;
    if (!copiesSources || !isUnorm) continue;
    // The copy converts: kernels are faster with float32, but for those that compute in float16.
    const bool areRead = std::ranges::all_of(
        program.images[program.sourceImages[i]].readers,
        [&](StepIndex reader) { return program.steps[reader].kernel->channelTraits().roundsToFloat16; });
    if (!isBytes || layout.format != ImageFeatureChannelFormat::Float16 || !areRead)
      image.setChannelFormat(ImageFeatureChannelFormat::Float32);
  }
  for (StepIndex s = 0; s < program.steps.size(); ++s) {
    const ImageIndex result = program.steps[s].result;
    ImageDescriptor size = sizeResult(layout, program, device, s);
    const ImageFeatureChannelFormat format = program.images[result].format;
    size.setChannelFormat(format == ImageFeatureChannelFormat::None ? layout.format : format);
    size.setNumberOfImages(1);
    size.setStorageMode(mtl::StorageMode::Managed);
    checkDecodedSize(*program.steps[s].kernel, size);
    layout.images[result] = size;
  }
}

void planImages(GraphLayout& layout, const GraphProgram& program) {
  layout.bound.clear();
  layout.requestOf.assign(program.images.size(), nowhere);
  layout.reuse = noReuse(program);
  using enum GraphPass;
  if (program.runs(ForgetNeuronSources))
    forgetNeuronSources(program, layout.images, layout.placements, layout.reuse);
  if (program.runs(ShareGradients)) shareGradients(program, layout.images, layout.reuse);
  if (program.runs(AccumulateGradients)) accumulateGradients(program, layout.images, layout.reuse);
  if (program.runs(AddInNeuronGradients)) addInNeuronGradients(program, layout.images, layout.reuse);
  if (program.runs(AddSecondSources)) addSecondSources(program, layout.images, layout.reuse);
  if (program.runs(SplitInPairs)) splitInPairs(program, layout.reuse);
  if (program.runs(WorkInPlace)) workInPlace(program, layout.images, layout.placements, layout.reuse);
  const auto needsMemory = [&](ImageIndex i) {
    const ProgramImage& image = program.images[i];
    return image.isPlanned() && program.steps[image.producer].writesResult;
  };
  for (ImageIndex i = 0; i < program.images.size(); ++i) {
    if (!needsMemory(i) || layout.reuse.ownerOf(i) != i) continue;
    const ImageDescriptor& size = layout.images[i];
    const std::size_t bytes = layout.count * size.width() * size.height() * size.featureChannels() *
                              bytesPerChannel(size.channelFormat());
    layout.requestOf[i] = layout.requests.size();
    layout.requests.push_back({bytes, layout.reuse.firstUse[i], layout.reuse.lastUse[i]});
  }
  for (ImageIndex i = 0; i < program.images.size(); ++i)
    if (needsMemory(i)) layout.requestOf[i] = layout.requestOf[layout.reuse.ownerOf(i)];
  layout.scratchBytes.assign(program.steps.size(), 0);
  placeImages(layout);
}

}  // namespace

void placeImages(GraphLayout& layout) {
  constexpr std::size_t alignment = mtl::Heap::alignment;
  std::vector<MemoryRequest> requests = layout.requests;
  for (StepIndex s = 0; s < layout.scratchBytes.size(); ++s)
    if (layout.scratchBytes[s] > 0) requests.push_back({layout.scratchBytes[s], s, s});
  layout.plan = planMemory(requests, alignment);
  layout.gaps.clear();
  for (StepIndex s = 0; s < layout.scratchBytes.size(); ++s)
    layout.gaps.push_back(largestGap(layout.requests, layout.plan, s, alignment));
}

void placeSources(const GraphLayout& layout, StepIndex index, ImageKernel& kernel) {
  if (layout.geometries[index].has_value()) return kernel.setGeometry(layout.geometries[index]);
  kernel.setPlacement(layout.placements[index]);
  if (!layout.sourceOffsets[index].empty()) kernel.setSourceOffsets(layout.sourceOffsets[index]);
}

void resolveLayout(GraphLayout& layout, const GraphProgram& program,
                   const std::shared_ptr<mtl::Device>& device, bool copiesSources) {
  // The passes look at kernels as sizing has placed them.
  std::deque<GeometryScope> scopes;
  for (const ProgramStep& step : program.steps) scopes.emplace_back(*step.kernel);
  resolveGeometry(layout, program, device, copiesSources);
  planImages(layout, program);
}

}  // namespace mps::detail
