#include "mps/graph/graph_layout.hpp"

#include <algorithm>

#include "mps/concatenation/concatenation.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/convolution/convolution_transpose.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/cnn_binary_kernel.hpp"
#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/cnn_multiary_kernel.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

/// Whether a kernel rounds its inputs to float16 where its result, or its incoming gradient, is float16.
bool computesInHalves(const ImageKernel& kernel) {
  const bool isConvolution = dynamic_cast<const CNNConvolution*>(&kernel) != nullptr ||
                             dynamic_cast<const CNNConvolutionGradient*>(&kernel) != nullptr;
  return isConvolution && has(kernel.options(), KernelOptions::AllowReducedPrecision);
}

/// A convolution of fewer channels than a concatenation gives would leave out the last ones, or take padding for
/// channels (docs/decisions.md, D18).
void checkConcatenation(const ProgramStep& step, const ProgramStep& producer, const ImageDescriptor& source) {
  const auto* concatenation = dynamic_cast<const NNConcatenation*>(producer.kernel.get());
  const auto* convolution = dynamic_cast<const CNNConvolution*>(step.kernel.get());
  if (concatenation == nullptr || convolution == nullptr) return;
  if (source.featureChannels() == convolution->inputFeatureChannels()) return;
  throw Error(step.name, "inputFeatureChannels", std::to_string(convolution->inputFeatureChannels()),
              std::to_string(source.featureChannels()) + ", as " + producer.name +
                  " gives with channelAlignment " + std::to_string(concatenation->channelAlignment()) +
                  ", which pads each source to a multiple of that");
}

/// Where a forward kernel with several sources reads each of them.
std::vector<Offset> sourceOffsetsOf(const ImageKernel& kernel) {
  if (const auto* binary = dynamic_cast<const CNNBinaryKernel*>(&kernel))
    return {binary->primaryOffset(), binary->secondaryOffset()};
  std::vector<Offset> offsets;
  if (const auto* multiary = dynamic_cast<const CNNMultiaryKernel*>(&kernel))
    for (std::size_t i = 0; i < multiary->sourceCount(); ++i) offsets.push_back(multiary->offset(i));
  return offsets;
}

void setSourceOffsets(ImageKernel& kernel, const std::vector<Offset>& offsets) {
  if (auto* binary = dynamic_cast<CNNBinaryKernel*>(&kernel)) {
    binary->setPrimaryOffset(offsets[0]);
    binary->setSecondaryOffset(offsets[1]);
  }
  if (auto* multiary = dynamic_cast<CNNMultiaryKernel*>(&kernel))
    for (std::size_t i = 0; i < offsets.size(); ++i) multiary->setOffset(offsets[i], i);
}

/// What geometryOf returns.
struct KernelGeometry {
  struct Source {
    Offset offset;
    std::size_t featureChannelOffset = 0;
    std::size_t featureChannelMaxCount = 0;
    ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
  };
  std::vector<Source> sources;
  Offset placement;
  mtl::Region clipRect;
  std::size_t destinationFeatureChannelOffset = 0;
};

void setGeometry(ImageKernel& kernel, const std::any& given) {
  const auto& geometry = std::any_cast<const KernelGeometry&>(given);
  const KernelGeometry::Source& first = geometry.sources[0];
  kernel.setDestinationFeatureChannelOffset(geometry.destinationFeatureChannelOffset);
  if (auto* unary = dynamic_cast<CNNKernel*>(&kernel)) {
    unary->setPlacement(geometry.placement);
    unary->setOffset(first.offset);
    unary->setClipRect(geometry.clipRect);
    unary->setSourceFeatureChannelOffset(first.featureChannelOffset);
    unary->setSourceFeatureChannelMaxCount(first.featureChannelMaxCount);
    unary->setEdgeMode(first.edgeMode);
  }
  if (auto* binary = dynamic_cast<CNNBinaryKernel*>(&kernel)) {
    const KernelGeometry::Source& second = geometry.sources[1];
    binary->setClipRect(geometry.clipRect);
    binary->setPrimaryOffset(first.offset);
    binary->setPrimarySourceFeatureChannelOffset(first.featureChannelOffset);
    binary->setPrimarySourceFeatureChannelMaxCount(first.featureChannelMaxCount);
    binary->setPrimaryEdgeMode(first.edgeMode);
    binary->setSecondaryOffset(second.offset);
    binary->setSecondarySourceFeatureChannelOffset(second.featureChannelOffset);
    binary->setSecondarySourceFeatureChannelMaxCount(second.featureChannelMaxCount);
    binary->setSecondaryEdgeMode(second.edgeMode);
  }
  if (auto* multiary = dynamic_cast<CNNMultiaryKernel*>(&kernel)) {
    multiary->setClipRect(geometry.clipRect);
    for (std::size_t i = 0; i < geometry.sources.size(); ++i) {
      multiary->setOffset(geometry.sources[i].offset, i);
      multiary->setSourceFeatureChannelOffset(geometry.sources[i].featureChannelOffset, i);
      multiary->setSourceFeatureChannelMaxCount(geometry.sources[i].featureChannelMaxCount, i);
      multiary->setEdgeMode(geometry.sources[i].edgeMode, i);
    }
  }
}

ImageDescriptor sizeResult(GraphLayout& layout, const GraphProgram& program,
                           const std::shared_ptr<mtl::Device>& device, StepIndex index) {
  const ProgramStep& step = program.steps[index];
  const auto standIns = [&] {
    std::vector<std::shared_ptr<Image>> images;  // never allocated: only their sizes are looked at
    for (const ImageIndex source : step.sources)
      images.push_back(Image::create(device, layout.images[source]));
    return images;
  };
  ImageKernel& kernel = kernelOf(step);
  const bool isCustom = step.geometryBeforePolicy.has_value();
  if (isCustom) setGeometry(kernel, step.geometryBeforePolicy);
  if (auto* unary = dynamic_cast<CNNKernel*>(&kernel)) {
    if (const StepIndex producer = program.images[step.sources[0]].producer; producer != nowhere)
      checkConcatenation(step, program.steps[producer], layout.images[step.sources[0]]);
    const ImageDescriptor& source = layout.images[step.sources[0]];
    auto* transpose = dynamic_cast<CNNConvolutionTranspose*>(unary);
    ImageDescriptor size;
    if (transpose != nullptr && !step.sourceStates.empty()) {
      const StepIndex undone = program.states[step.sourceStates[0]].producer;
      size = transpose->sizeDestination(source, layout.images[program.steps[undone].sources[0]],
                                        layout.placements[undone]);
    } else {
      size = isCustom ? unary->destinationImageDescriptor(standIns()) : unary->sizeDestination(source);
    }
    layout.placements[index] = unary->placement();
    if (isCustom) layout.geometries[index] = geometryOf(kernel);
    return size;
  }
  if (const auto* gradient = dynamic_cast<const CNNGradientKernel*>(&kernel)) {
    const auto index = gradient->forwardSourceIndex();
    const bool ofForward = index && step.forward != nowhere;
    return layout.images[ofForward ? program.steps[step.forward].sources[*index] : step.sources[1]];
  }
  const ImageDescriptor size = kernel.destinationImageDescriptor(standIns());
  layout.sourceOffsets[index] = sourceOffsetsOf(kernel);
  if (isCustom) layout.geometries[index] = geometryOf(kernel);
  return size;
}

}  // namespace

std::any geometryOf(const ImageKernel& kernel) {
  KernelGeometry geometry;
  geometry.placement = kernel.placement();
  geometry.destinationFeatureChannelOffset = kernel.destinationFeatureChannelOffset();
  if (const auto* unary = dynamic_cast<const CNNKernel*>(&kernel)) {
    geometry.clipRect = unary->clipRect();
    geometry.sources = {{unary->offset(), unary->sourceFeatureChannelOffset(),
                         unary->sourceFeatureChannelMaxCount(), unary->edgeMode()}};
  }
  if (const auto* binary = dynamic_cast<const CNNBinaryKernel*>(&kernel)) {
    geometry.clipRect = binary->clipRect();
    geometry.sources = {{binary->primaryOffset(), binary->primarySourceFeatureChannelOffset(),
                         binary->primarySourceFeatureChannelMaxCount(), binary->primaryEdgeMode()},
                        {binary->secondaryOffset(), binary->secondarySourceFeatureChannelOffset(),
                         binary->secondarySourceFeatureChannelMaxCount(), binary->secondaryEdgeMode()}};
  }
  if (const auto* multiary = dynamic_cast<const CNNMultiaryKernel*>(&kernel)) {
    geometry.clipRect = multiary->clipRect();
    for (std::size_t i = 0; i < multiary->sourceCount(); ++i)
      geometry.sources.push_back({multiary->offset(i), multiary->sourceFeatureChannelOffset(i),
                                  multiary->sourceFeatureChannelMaxCount(i), multiary->edgeMode(i)});
  }
  return geometry;
}

bool hasCustomPadding(const ImageKernel& kernel) {
  return (kernel.padding()->paddingMethod() & NNPaddingMethod::Custom) == NNPaddingMethod::Custom;
}

ImageKernel& kernelOf(const ProgramStep& step) {
  if (auto* kernel = dynamic_cast<ImageKernel*>(step.kernel.get())) return *kernel;
  throw Error("NNGraph: a graph cannot run " + step.name);
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
        [&](StepIndex reader) { return computesInHalves(kernelOf(program.steps[reader])); });
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
    checkDecodedSize(kernelOf(program.steps[s]), size);
    layout.images[result] = size;
  }
}

void placeSources(const GraphLayout& layout, StepIndex index, ImageKernel& kernel) {
  if (layout.geometries[index].has_value()) return setGeometry(kernel, layout.geometries[index]);
  kernel.setPlacement(layout.placements[index]);
  if (!layout.sourceOffsets[index].empty()) setSourceOffsets(kernel, layout.sourceOffsets[index]);
}

void planImages(GraphLayout& layout, const GraphProgram& program) {
  layout.bound.clear();
  layout.requestOf.assign(program.images.size(), nowhere);
  layout.reuse = noReuse(program);
  shareGradients(program, layout.images, layout.reuse);
  accumulateGradients(program, layout.images, layout.reuse);
  addInNeuronGradients(program, layout.images, layout.reuse);
  splitInPairs(program, layout.reuse);
  workInPlace(program, layout.images, layout.placements, layout.reuse);
  std::vector<MemoryRequest> requests;
  const auto needsMemory = [&](ImageIndex i) {
    const ProgramImage& image = program.images[i];
    return image.isPlanned() && program.steps[image.producer].writesResult;
  };
  for (ImageIndex i = 0; i < program.images.size(); ++i) {
    if (!needsMemory(i) || layout.reuse.ownerOf(i) != i) continue;
    const ImageDescriptor& size = layout.images[i];
    const std::size_t bytes = layout.count * size.width() * size.height() * size.featureChannels() *
                              bytesPerChannel(size.channelFormat());
    layout.requestOf[i] = requests.size();
    requests.push_back({bytes, layout.reuse.firstUse[i], layout.reuse.lastUse[i]});
  }
  for (ImageIndex i = 0; i < program.images.size(); ++i)
    if (needsMemory(i)) layout.requestOf[i] = layout.requestOf[layout.reuse.ownerOf(i)];
  layout.plan = planMemory(requests, mtl::Heap::alignment);
}

}  // namespace mps::detail
