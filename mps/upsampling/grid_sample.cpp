#include "mps/upsampling/grid_sample.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/types/as_signed.hpp"
#include "mps/core/types/error.hpp"
#include "mps/upsampling/grid_sample_problem.hpp"
#include "mtl/device.hpp"

namespace mps {

using detail::BatchOperand;

namespace {

using detail::asSigned;

/// The channels from that offset on, `most` at most. @throws Error for fewer than `least`
void selectChannels(const Kernel& kernel, const char* argument, std::size_t first, std::size_t most,
                    std::size_t least, BatchOperand& source) {
  const auto channels = static_cast<std::size_t>(source.shape().channels);
  const std::size_t count = std::min(most, channels - std::min(first, channels));
  if (count < least)
    throw Error(kernel.describe(), argument,
                std::to_string(count) + " feature channels from the channel offset on",
                "at least " + std::to_string(least));
  source.selectChannels(asSigned(first), asSigned(count));
}

}  // namespace

std::shared_ptr<NNGridSample> NNGridSample::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NNGridSample>(new NNGridSample(device));
}

ImageDescriptor NNGridSample::sizeDestination(const ImageDescriptor& primary,
                                              const ImageDescriptor& secondary) {
  const auto offsets = std::pair(primary_.offset, secondary_.offset);
  ImageDescriptor destination = CNNBinaryKernel::sizeDestination(primary, secondary);
  std::tie(primary_.offset, secondary_.offset) = offsets;
  destination.setWidth(secondary.width());
  destination.setHeight(secondary.height());
  return destination;
}

void NNGridSample::encodeCall(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                              const ImageBatch& primary, const ImageBatch& secondary,
                              const StateBatch& /*destinationStates*/, const ImageBatch& destinations) {
  if (!has(options(), KernelOptions::SkipAPIValidation)) {
    detail::checkChannelOffset(*this, "primarySourceFeatureChannelOffset",
                               primarySourceFeatureChannelOffset());
    detail::checkChannelOffset(*this, "secondarySourceFeatureChannelOffset",
                               secondarySourceFeatureChannelOffset());
    detail::checkChannelOffset(*this, "destinationFeatureChannelOffset", destinationFeatureChannelOffset());
    if (primaryEdgeMode() != ImageEdgeMode::Zero && primaryEdgeMode() != ImageEdgeMode::Clamp)
      throw Error(describe(), "primaryEdgeMode", mps::name(primaryEdgeMode()), "Zero or Clamp");
  }
  BatchOperand source(primary);
  BatchOperand grid(secondary);
  BatchOperand destination(destinations, true);
  selectChannels(*this, "primaryImage", primarySourceFeatureChannelOffset(),
                 primarySourceFeatureChannelMaxCount(), 1, source);
  selectChannels(*this, "secondaryImage", secondarySourceFeatureChannelOffset(), 2, 2, grid);
  const ImageDescriptor& size = destinations.descriptor();
  const auto produced = static_cast<std::size_t>(source.shape().channels);
  if (const std::size_t room = size.featureChannels();
      produced > room || destinationFeatureChannelOffset() > room - produced)
    throw Error(describe(), "destinationImage", std::to_string(room) + " feature channels",
                "at least " + std::to_string(destinationFeatureChannelOffset() + produced));

  mtl::Region clip = clipRect();
  const auto cut = [](std::size_t& origin, std::size_t& length, std::size_t limit) {
    origin = std::min(origin, limit);
    length = std::min(length, limit - origin);
  };
  cut(clip.origin.x, clip.size.width, size.width());
  cut(clip.origin.y, clip.size.height, size.height());
  const detail::SourceImages images[] = {{&source, primaryOffset().z, "primaryOffset.z"},
                                         {&grid, secondaryOffset().z, "secondaryOffset.z"}};
  detail::selectImages(*this, images, destination, clip);
  if (clip.size.width == 0 || clip.size.height == 0 || clip.size.depth == 0) return;
  const std::int64_t width = asSigned(clip.size.width);
  const std::int64_t height = asSigned(clip.size.height);
  const Offset first = secondaryOffset();
  const auto covers = [](std::int64_t origin, std::int64_t length, std::int64_t limit) {
    return origin >= 0 && length <= limit && origin <= limit - length;
  };
  if (!covers(first.x, width, grid.shape().width) || !covers(first.y, height, grid.shape().height))
    throw Error(describe(), "secondaryImage",
                std::to_string(grid.shape().width) + "x" + std::to_string(grid.shape().height) +
                    " pixels, read from " + std::to_string(first.x) + ", " + std::to_string(first.y) + " on",
                std::to_string(width) + "x" + std::to_string(height) + " there, as are written");
  grid.selectRegion(first.x, first.y, width, height);
  destination.selectRegion(asSigned(clip.origin.x), asSigned(clip.origin.y), width, height);
  destination.selectChannels(asSigned(destinationFeatureChannelOffset()), source.shape().channels);

  detail::GridSampleProblem problem;
  problem.usesGridAsCoordinates = usesGridAsCoordinates_;
  problem.edgeMode = primaryEdgeMode();
  problem.offsetX = primaryOffset().x;
  problem.offsetY = primaryOffset().y;
  problem.source = source.shape();
  problem.grid = grid.shape();
  problem.destination = destination.shape();
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::gridSampleBackEnds, problem);
  detail::CallOperands operands;
  operands.source = &source;
  operands.secondary = &grid;
  operands.destination = &destination;
  detail::recordCall(*commandBuffer, *this, prepared, operands);
}

void NNGridSample::codeProperties(Coder& coder) {
  CNNBinaryKernel::codeProperties(coder);
  coder.code("useGridValueAsInputCoordinate", usesGridAsCoordinates_);
}

}  // namespace mps
