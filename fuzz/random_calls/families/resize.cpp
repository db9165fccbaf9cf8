#include "mps/upsampling/resize.hpp"

#include <array>
#include <memory>
#include <vector>

#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/images.hpp"
#include "fuzz/random_calls/kernel_settings.hpp"
#include "fuzz/random_calls/layer_call.hpp"
#include "mps/upsampling/crop_and_resize.hpp"
#include "mps/upsampling/grid_sample.hpp"
#include "mps/upsampling/image_scale.hpp"

namespace unmetal::random_calls {
namespace {

/// A position that is computed just inside of an image on one device is just outside on another.
constexpr double kJumpsAtEdges = 0.002;

struct ResultSize {
  std::size_t width = 1;
  std::size_t height = 1;
};

ResultSize drawResultSize(Call& call) {
  ResultSize size{call.side(), call.side()};
  if (call.random.chance(0.05)) size = {call.random.size(1000, 3000), 2};
  call.noted("resultWidth", size.width);
  call.noted("resultHeight", size.height);
  return size;
}

void callScale(Call& call, const mps::ImageDescriptor& source, const ResultSize& size) {
  RandomNumbers& random = call.random;
  std::shared_ptr<mps::ImageScale> kernel;
  std::shared_ptr<mps::ImageScaleGradient> gradient;
  if (call.noted("lanczos", random.chance(0.5))) {
    kernel = mps::ImageLanczosScale::create(call.device, size.width, size.height);
    gradient = mps::ImageLanczosScaleGradient::create(call.device);
  } else {
    kernel = mps::ImageBilinearScale::create(call.device, size.width, size.height);
    gradient = mps::ImageBilinearScaleGradient::create(call.device);
  }
  if (random.chance(0.5)) {
    const mps::ScaleTransform transform{random.real(0.2, 3), random.real(0.2, 3), random.real(-5, 5),
                                        random.real(-5, 5)};
    kernel->setScaleTransform(transform);
    call.description << " transform=" << transform.scaleX << ',' << transform.scaleY << ','
                     << transform.translateX << ',' << transform.translateY;
  }
  setProperties(call, *kernel, source);
  LayerCall layer;
  layer.result = layer.gradient = {.factor = 2, .jumps = kJumpsAtEdges};
  callLayer(call, *kernel, random.chance(0.6) ? gradient.get() : nullptr, source, layer);
}

std::vector<mps::NormalizedRegion> drawRegions(Call& call) {
  RandomNumbers& random = call.random;
  std::vector<mps::NormalizedRegion> regions(random.size(1, 4));
  for (mps::NormalizedRegion& region : regions) {
    const double x = random.real(-0.3, 1);
    const double y = random.real(-0.3, 1);
    const double width = random.real(-0.5, 1.3);
    const double height = random.real(-0.5, 1.3);
    region = {x, y, width, height};
    call.description << " region=" << x << ',' << y << ',' << width << ',' << height;
  }
  return regions;
}

}  // namespace

void callResize(Call& call) {
  RandomNumbers& random = call.random;
  const mps::ImageDescriptor source = call.imageSizes(5, call.limits.elements / 4);
  const ResultSize size = drawResultSize(call);
  if (random.chance(0.4)) return callScale(call, source, size);
  const bool alignCorners = call.noted("alignCorners", random.chance(0.4));
  const auto kernel = mps::NNResizeBilinear::create(call.device, size.width, size.height, alignCorners);
  if (!alignCorners) kernel->setHalfPixelCenters(call.noted("halfPixelCenters", random.chance(0.5)));
  const auto gradient = mps::NNResizeBilinearGradient::create(call.device);
  setProperties(call, *kernel, source);
  callLayer(call, *kernel, random.chance(0.6) ? gradient.get() : nullptr, source, {});
}

void callCrop(Call& call) {
  RandomNumbers& random = call.random;
  const mps::ImageDescriptor source = call.imageSizes(5, call.limits.elements / 4);
  const ResultSize size = drawResultSize(call);
  const auto regions = drawRegions(call);
  const auto kernel = mps::NNCropAndResizeBilinear::create(call.device, size.width, size.height, regions);
  setProperties(call, *kernel, source);
  kernel->setDestinationImageAllocator(mps::Image::defaultAllocator());
  const std::size_t count = call.imageCount();
  const Images images = makeSources(call, "source", source, count, Numbers::Uniform);
  const Tolerance tolerance{.jumps = kJumpsAtEdges};
  const CommandBufferPointer commandBuffer = call.begin();
  if (random.chance(0.5)) {
    call.stage = "encode";
    observeImages(call, "result", kernel->encodeBatch(commandBuffer, images.batch), tolerance);
    return call.finish(commandBuffer);
  }
  mps::ImageDescriptor result{call.resultFormat(), size.width, size.height,
                              source.featureChannels() + kernel->destinationFeatureChannelOffset()};
  if (random.chance(0.3)) {
    result.setWidth(call.side());
    result.setHeight(call.side());
  }
  const std::size_t missing = random.chance(0.03) ? 1 : 0;
  const Images results =
      makeDestinations(call, "destination", result, count * regions.size() - missing, tolerance);
  call.stage = "encode";
  kernel->encodeBatch(commandBuffer, images.batch, results.batch);
  call.finish(commandBuffer);
}

void callGridSample(Call& call) {
  RandomNumbers& random = call.random;
  const mps::ImageDescriptor source = call.imageSizes(5, call.limits.elements / 4);
  const auto kernel = mps::NNGridSample::create(call.device);
  kernel->setDestinationImageAllocator(mps::Image::defaultAllocator());
  const bool takesCoordinates = call.noted("coordinates", random.chance(0.6));
  kernel->setUseGridValueAsInputCoordinate(takesCoordinates);
  if (random.chance(0.5)) kernel->setPrimaryEdgeMode(mps::ImageEdgeMode::Clamp);
  call.noted("edgeMode", kernel->primaryEdgeMode());
  if (random.chance(0.2)) {
    const mps::Offset offset{random.integer(-3, 3), random.integer(-3, 3), 0};
    kernel->setPrimaryOffset(offset);
    call.description << " offset=" << offset.x << ',' << offset.y;
  }
  if (random.chance(0.2))
    kernel->setDestinationFeatureChannelOffset(call.noted("destinationChannelOffset", std::size_t{4}));
  if (random.chance(0.2)) kernel->setClipRect(clipRectangle(call, 3, 0, 9));
  const std::size_t count = call.imageCount();
  const Images images = makeSources(call, "source", source, count, Numbers::Uniform);
  // Two channels are read; one is too few.
  const mps::ImageDescriptor gridSize{call.floatFormat(), call.side(), call.side(),
                                      random.oneOf<std::size_t>({2, 2, 3, 4, 8, 1})};
  const double farthest = takesCoordinates ? 1.2 : 6;  // normalised, or in pixels
  const Images grid = makeSources(call, "grid", gridSize, count,
                                  [&](std::size_t) { return random.real(-farthest, farthest); });
  const mps::ImageDescriptor size{call.resultFormat(), gridSize.width(), gridSize.height(),
                                  source.featureChannels() + kernel->destinationFeatureChannelOffset()};
  // A rounding of a position moves it by that much of the difference between neighbours, which is up to 2.
  const Images result =
      makeDestinations(call, "destination", size, count, {.factor = 3, .jumps = kJumpsAtEdges});
  call.stage = "encode";
  const CommandBufferPointer commandBuffer = call.begin();
  kernel->encodeBatch(commandBuffer, images.batch, grid.batch, result.batch);
  call.finish(commandBuffer);
}

}  // namespace unmetal::random_calls
