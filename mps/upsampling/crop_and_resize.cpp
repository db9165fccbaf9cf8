#include "mps/upsampling/crop_and_resize.hpp"

#include <cmath>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/types/error.hpp"
#include "mps/upsampling/crop_and_resize_problem.hpp"
#include "mps/upsampling/upsampling_call.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"

namespace mps {
namespace {

/// An axis of a region.
detail::UpsamplingAxis axisOf(double origin, double size, std::int64_t sourceSize, std::size_t resultSize,
                              std::int64_t offset) {
  const auto steps = static_cast<double>(resultSize - 1);
  const auto whole = static_cast<double>(sourceSize - 1);
  detail::UpsamplingAxis axis;
  axis.sourceSize = sourceSize;
  axis.resultSize = static_cast<std::int64_t>(resultSize);
  axis.offset = offset;
  axis.start = (resultSize == 1 ? origin + size / 2 : origin) * whole;
  axis.step = resultSize == 1 ? 0 : size * whole / steps;
  return axis;
}

/// The distinct images of a batch, each with its places.
std::vector<std::pair<std::shared_ptr<Image>, std::vector<std::size_t>>> distinctImages(
    const ImageBatch& images) {
  std::vector<std::pair<std::shared_ptr<Image>, std::vector<std::size_t>>> distinct;
  std::unordered_map<const Image*, std::size_t> known;
  for (std::size_t n = 0; n < images.count(); ++n) {
    const auto image = images[n];
    const auto [found, isNew] = known.emplace(image.get(), distinct.size());
    if (isNew) distinct.push_back({image, {}});
    distinct[found->second].second.push_back(n);
  }
  return distinct;
}

}  // namespace

NNCropAndResizeBilinear::NNCropAndResizeBilinear(std::shared_ptr<mtl::Device> device, std::size_t resizeWidth,
                                                 std::size_t resizeHeight,
                                                 std::span<const NormalizedRegion> regions)
    : KernelClass(std::move(device)),
      resizeWidth_(resizeWidth),
      resizeHeight_(resizeHeight),
      regions_(regions.begin(), regions.end()) {
  check();
}

void NNCropAndResizeBilinear::check() const {
  detail::checkResultSize("NNCropAndResizeBilinear", "resizeWidth", resizeWidth_);
  detail::checkResultSize("NNCropAndResizeBilinear", "resizeHeight", resizeHeight_);
  if (regions_.empty()) throw Error("NNCropAndResizeBilinear", "regions", "none", "one or more");
  for (const NormalizedRegion& region : regions_)
    for (const double number : {region.x, region.y, region.width, region.height})
      if (!(std::abs(number) <= 1e9))
        throw Error("NNCropAndResizeBilinear", "regions", std::to_string(number), "-1e9 to 1e9");
}

std::shared_ptr<NNCropAndResizeBilinear> NNCropAndResizeBilinear::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t resizeWidth, std::size_t resizeHeight,
    std::span<const NormalizedRegion> regions) {
  return std::shared_ptr<NNCropAndResizeBilinear>(
      new NNCropAndResizeBilinear(device, resizeWidth, resizeHeight, regions));
}

void NNCropAndResizeBilinear::adjustDestination(ImageDescriptor& destination,
                                                const ImageDescriptor& /*source*/) {
  destination.setWidth(resizeWidth_);
  destination.setHeight(resizeHeight_);
  destination.setNumberOfImages(regions_.size());
}

ImageDescriptor NNCropAndResizeBilinear::sizeOfResults(const std::shared_ptr<Image>& source) {
  const std::shared_ptr<Image> sources[] = {source};
  return destinationImageDescriptor(sources);
}

std::shared_ptr<Image> NNCropAndResizeBilinear::encode(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const std::shared_ptr<Image>& sourceImage) {
  detail::checkCommandBuffer(*this, commandBuffer);
  auto destination = detail::allocateImages(*this, *destinationImageAllocator(), commandBuffer,
                                            sizeOfResults(sourceImage), 1)[0];
  encode(commandBuffer, sourceImage, destination);
  return destination;
}

ImageBatch NNCropAndResizeBilinear::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                const ImageBatch& sourceImages) {
  detail::checkCommandBuffer(*this, commandBuffer);
  detail::checkNotEmpty(*this, "sourceImages", sourceImages);
  ImageDescriptor size = sizeOfResults(sourceImages[0]);
  size.setNumberOfImages(1);
  ImageBatch destinations = detail::allocateImages(*this, *destinationImageAllocator(), commandBuffer, size,
                                                   sourceImages.count() * regions_.size());
  encodeBatch(commandBuffer, sourceImages, destinations);
  return destinations;
}

void NNCropAndResizeBilinear::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                     const std::shared_ptr<Image>& sourceImage,
                                     const std::shared_ptr<Image>& destinationImage) {
  const ImageBatch sources = detail::batchOf(*this, "sourceImage", sourceImage);
  const ImageBatch stack = detail::batchOf(*this, "destinationImage", destinationImage);
  encodeBatch(commandBuffer, sources, stack[0]->batchRepresentation());
}

void NNCropAndResizeBilinear::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                          const ImageBatch& sourceImages,
                                          const ImageBatch& destinationImages) {
  detail::checkCommandBuffer(*this, commandBuffer);
  const std::size_t regions = regions_.size();
  detail::checkCount(*this, "destinationImages", destinationImages.count(), sourceImages.count() * regions);
  detail::checkNotEmpty(*this, "sourceImages", sourceImages);
  if (!has(options(), KernelOptions::SkipAPIValidation)) {
    // Before any source is read.
    detail::checkSources(*this, "sourceImage", *commandBuffer, sourceImages);
    detail::checkDestinations(*this, "destinationImage", *commandBuffer, destinationImages);
    detail::checkNoAlias(*this, "sourceImage", sourceImages, destinationImages);
    detail::checkNotStacked(*this, "sourceImages", sourceImages);
    detail::checkNotStacked(*this, "destinationImages", destinationImages);
  }
  mtl::RecordingGuard guard(*commandBuffer);
  if (!detail::BatchOperand(sourceImages).isLoose()) {
    encodeRegions(commandBuffer, sourceImages, destinationImages);
  } else {
    // Source by source: as images of one batch a source and itself again are evenly spaced, so that nothing is copied.
    for (const auto& [source, places] : distinctImages(sourceImages)) {
      std::vector<std::shared_ptr<Image>> results;
      for (const std::size_t place : places)
        for (std::size_t region = 0; region < regions; ++region)
          results.push_back(destinationImages[place * regions + region]);
      encodeRegions(commandBuffer, std::vector<std::shared_ptr<Image>>(places.size(), source), results);
    }
  }
  guard.keep();
}

void NNCropAndResizeBilinear::encodeRegions(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                            const ImageBatch& sourceImages,
                                            const ImageBatch& destinationImages) {
  detail::BatchOperand source(sourceImages);
  detail::BatchOperand destination(destinationImages, true);
  detail::ForwardCall call = resolveCall(source, destination, false);
  // So far as many results as sources are selected.
  destination.selectImages(0, call.source.images * static_cast<std::int64_t>(regions_.size()));
  call.destination = destination.shape();
  if (call.destination.elements() > 0) {
    detail::CallOperands operands;
    operands.source = &source;
    operands.destination = &destination;
    detail::recordCall(*commandBuffer, *this, prepareForward(call), operands);
  }
  detail::setProducer(destinationImages, describe());
  detail::consumeRead(sourceImages, describe());
}

detail::PreparedCall NNCropAndResizeBilinear::prepareForward(const detail::ForwardCall& call) const {
  if (call.destination.images != call.source.images * static_cast<std::int64_t>(regions_.size()))
    throw Error(describe(), "destinationImages", std::to_string(call.destination.images) + " images",
                std::to_string(regions_.size()) + " for each source, one for each region");
  detail::CropAndResizeProblem problem;
  problem.edgeMode = call.edgeMode;
  for (const NormalizedRegion& region : regions_)
    problem.regions.push_back(
        {axisOf(region.x, region.width, call.source.width, resizeWidth_, call.offset.x),
         axisOf(region.y, region.height, call.source.height, resizeHeight_, call.offset.y)});
  problem.input = call.source;
  problem.destination = call.destination;
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::cropAndResizeBackEnds, problem);
  return prepared;
}

void NNCropAndResizeBilinear::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  coder.codeSize("resizeWidth", resizeWidth_);
  coder.codeSize("resizeHeight", resizeHeight_);
  coder.code("regions", regions_);
  check();
}

}  // namespace mps
