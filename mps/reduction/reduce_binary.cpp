#include "mps/reduction/reduce_binary.hpp"

#include <algorithm>
#include <cstdint>

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/as_signed.hpp"
#include "mps/core/types/error.hpp"
#include "mps/reduction/reduce_binary_problem.hpp"
#include "mps/reduction/reduction_region.hpp"
#include "mtl/device.hpp"

namespace mps {

using detail::BatchOperand;
using detail::ReduceBinaryDivisor;
using detail::ReduceBinaryProblem;

namespace {

using detail::asSigned;

std::string pixels(std::size_t width, std::size_t height) {
  return std::to_string(width) + "x" + std::to_string(height) + " pixels";
}

/// The channels that a source's properties select.
void selectChannels(const Kernel& kernel, const char* argument, const detail::SourceProperties& properties,
                    BatchOperand& source) {
  const auto channels = static_cast<std::size_t>(source.shape().channels);
  const std::size_t first = properties.featureChannelOffset.get();
  if (first >= channels || properties.featureChannelMaxCount.get() == 0)
    throw Error(kernel.describe(), argument, std::to_string(channels) + " feature channels",
                "more than the channel offset " + std::to_string(first));
  source.selectChannels(asSigned(first),
                        asSigned(std::min(properties.featureChannelMaxCount.get(), channels - first)));
}

void selectRegion(BatchOperand& source, const mtl::Region& region) {
  source.selectRegion(asSigned(region.origin.x), asSigned(region.origin.y), asSigned(region.size.width),
                      asSigned(region.size.height));
}

}  // namespace

mtl::Region NNReduceBinary::regionOf(const char* property, const mtl::Region& region, std::size_t width,
                                     std::size_t height) const {
  const mtl::Region inside = detail::regionWithin(region, width, height);
  if (inside.size.width == 0 || inside.size.height == 0)
    throw Error(describe(), property, "outside the source", "a part of its " + pixels(width, height));
  return inside;
}

ImageDescriptor NNReduceBinary::sizeDestination(const ImageDescriptor& primary,
                                                const ImageDescriptor& secondary) {
  ImageDescriptor destination = CNNBinaryKernel::sizeDestination(primary, secondary);
  const mtl::Region region =
      regionOf("primarySourceClipRect", primarySourceClipRect_, primary.width(), primary.height());
  destination.setWidth(clipRect().origin.x + region.size.width);
  destination.setHeight(clipRect().origin.y + region.size.height);
  return destination;
}

void NNReduceBinary::encodeCall(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                const ImageBatch& primary, const ImageBatch& secondary,
                                const StateBatch& /*destinationStates*/, const ImageBatch& destinations) {
  if (!has(options(), KernelOptions::SkipAPIValidation)) {
    detail::checkChannelOffset(*this, "primarySourceFeatureChannelOffset",
                               primarySourceFeatureChannelOffset());
    detail::checkChannelOffset(*this, "secondarySourceFeatureChannelOffset",
                               secondarySourceFeatureChannelOffset());
    detail::checkChannelOffset(*this, "destinationFeatureChannelOffset", destinationFeatureChannelOffset());
  }
  BatchOperand source(primary);
  BatchOperand weights(secondary);
  BatchOperand destination(destinations, true);
  selectChannels(*this, "primaryImage", primary_, source);
  selectChannels(*this, "secondaryImage", secondary_, weights);
  if (source.shape().channels != weights.shape().channels)
    throw Error(describe(), "secondaryImage", std::to_string(weights.shape().channels) + " feature channels",
                std::to_string(source.shape().channels) + ", as are read of primaryImage");
  const mtl::Region region = regionOf("primarySourceClipRect", primarySourceClipRect_,
                                      primary.descriptor().width(), primary.descriptor().height());
  const mtl::Region ofWeights = regionOf("secondarySourceClipRect", secondarySourceClipRect_,
                                         secondary.descriptor().width(), secondary.descriptor().height());
  if (region.size != ofWeights.size)
    throw Error(describe(), "secondarySourceClipRect",
                pixels(ofWeights.size.width, ofWeights.size.height) + " of secondaryImage",
                pixels(region.size.width, region.size.height) + ", as of primaryImage");
  const std::size_t room = destinations.descriptor().featureChannels();
  if (destinationFeatureChannelOffset() >= room)
    throw Error(describe(), "destinationImage", std::to_string(room) + " feature channels",
                "more than the channel offset " + std::to_string(destinationFeatureChannelOffset()));

  mtl::Region clip =
      detail::regionWithin(clipRect(), destinations.descriptor().width(), destinations.descriptor().height());
  const detail::SourceImages images[] = {{&source, primaryOffset().z, "primaryOffset.z"},
                                         {&weights, secondaryOffset().z, "secondaryOffset.z"}};
  detail::selectImages(*this, images, destination, clip);
  if (clip.size.width < region.size.width || clip.size.height < region.size.height)
    throw Error(describe(), "destinationImage",
                pixels(clip.size.width, clip.size.height) + " within clipRect",
                pixels(region.size.width, region.size.height));
  clip.size.width = region.size.width;
  clip.size.height = region.size.height;
  if (clip.size.depth == 0) return;
  selectRegion(source, region);
  selectRegion(weights, ofWeights);
  selectRegion(destination, clip);
  destination.selectChannels(asSigned(destinationFeatureChannelOffset()), 1);

  ReduceBinaryProblem problem;
  problem.divisor = divisor();
  problem.source = source.shape();
  problem.weights = weights.shape();
  problem.destination = destination.shape();
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::reduceBinaryBackEnds, problem);
  detail::CallOperands operands;
  operands.source = &source;
  operands.secondary = &weights;
  operands.destination = &destination;
  detail::recordCall(*commandBuffer, *this, prepared, operands);
}

std::shared_ptr<NNReduceFeatureChannelsAndWeightsMean> NNReduceFeatureChannelsAndWeightsMean::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NNReduceFeatureChannelsAndWeightsMean>(
      new NNReduceFeatureChannelsAndWeightsMean(device));
}

ReduceBinaryDivisor NNReduceFeatureChannelsAndWeightsMean::divisor() const {
  return ReduceBinaryDivisor::FeatureChannels;
}

std::shared_ptr<NNReduceFeatureChannelsAndWeightsSum> NNReduceFeatureChannelsAndWeightsSum::create(
    const std::shared_ptr<mtl::Device>& device, bool doWeightedSumByNonZeroWeights) {
  return std::shared_ptr<NNReduceFeatureChannelsAndWeightsSum>(
      new NNReduceFeatureChannelsAndWeightsSum(device, doWeightedSumByNonZeroWeights));
}

ReduceBinaryDivisor NNReduceFeatureChannelsAndWeightsSum::divisor() const {
  return doWeightedSumByNonZeroWeights_ ? ReduceBinaryDivisor::NonZeroWeights : ReduceBinaryDivisor::One;
}

void NNReduceBinary::codeProperties(Coder& coder) {
  CNNBinaryKernel::codeProperties(coder);
  coder.codeSizeOrAll("primarySourceClipRect", primarySourceClipRect_);
  coder.codeSizeOrAll("secondarySourceClipRect", secondarySourceClipRect_);
}

void NNReduceFeatureChannelsAndWeightsSum::codeProperties(Coder& coder) {
  NNReduceBinary::codeProperties(coder);
  coder.code("doWeightedSumByNonZeroWeights", doWeightedSumByNonZeroWeights_);
}

}  // namespace mps
