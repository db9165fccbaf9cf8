#include "mps/upsampling/upsampling.hpp"

#include <algorithm>
#include <any>
#include <limits>

#include "mps/core/call.hpp"
#include "mps/core/error.hpp"
#include "mps/core/plan_for.hpp"
#include "mps/upsampling/upsampling_problem.hpp"
#include "mtl/device.hpp"

namespace mps {

using detail::UpsamplingDirection;
using detail::UpsamplingProblem;
using detail::UpsamplingSampling;

namespace {

/// Positions of pixels times sizes stay within 64 bits.
constexpr std::size_t kLargestScaleFactor = std::size_t{1} << 24U;

/// What the record of a forward call keeps for the gradient.
struct UpsamplingRecord {
  std::size_t scaleFactorX = 1;
  std::size_t scaleFactorY = 1;
  UpsamplingSampling sampling = UpsamplingSampling::Nearest;
};

void checkScaleFactor(const std::string& className, const char* property, std::size_t factor) {
  if (factor < 1 || factor > kLargestScaleFactor)
    throw Error(className, property, std::to_string(factor), "1 to " + std::to_string(kLargestScaleFactor));
}

void checkScaleFactors(const std::string& className, std::size_t x, std::size_t y) {
  checkScaleFactor(className, "integerScaleFactorX", x);
  checkScaleFactor(className, "integerScaleFactorY", y);
}

std::size_t enlarged(std::size_t size, std::size_t factor) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  return size > most / factor ? most : size * factor;  // which no memory holds: allocation says so
}

std::int64_t asSigned(std::size_t value) {
  return static_cast<std::int64_t>(value);
}

/// Which gradient pixels count on one axis, and what they stand for.
struct GradientPixels {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t firstResult = 0;
};

/// @param position of the gradient pixel of result pixel 0  @param results pixels of the forward clip rectangle
GradientPixels gradientPixels(std::int64_t position, std::int64_t gradientSize, std::int64_t results) {
  GradientPixels pixels;
  pixels.first = std::clamp<std::int64_t>(position, 0, gradientSize);
  pixels.firstResult = pixels.first - position;
  const std::int64_t end = results > gradientSize - position ? gradientSize : position + results;
  pixels.count = std::max<std::int64_t>(0, end - pixels.first);
  // Pixels beyond the gradient image stand for nothing.
  if (pixels.count == 0) pixels.firstResult = 0;
  return pixels;
}

}  // namespace

CNNUpsampling::CNNUpsampling(std::shared_ptr<mtl::Device> device, const std::string& className,
                             std::size_t integerScaleFactorX, std::size_t integerScaleFactorY)
    : CNNKernel(std::move(device)), scaleFactorX_(integerScaleFactorX), scaleFactorY_(integerScaleFactorY) {
  checkScaleFactors(className, integerScaleFactorX, integerScaleFactorY);
}

void CNNUpsampling::adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) {
  destination.setWidth(enlarged(source.width(), scaleFactorX_));
  destination.setHeight(enlarged(source.height(), scaleFactorY_));
}

void CNNUpsampling::describeForward(std::any& family) const {
  family = UpsamplingRecord{scaleFactorX_, scaleFactorY_, sampling()};
}

detail::PreparedCall CNNUpsampling::prepareForward(const detail::ForwardCall& call) const {
  UpsamplingProblem problem;
  problem.sampling = sampling();
  problem.direction = UpsamplingDirection::Forward;
  problem.edgeMode = call.edgeMode;
  problem.x = {
      .sourceSize = call.source.width, .scaleFactor = asSigned(scaleFactorX_), .offset = call.offset.x};
  problem.y = {
      .sourceSize = call.source.height, .scaleFactor = asSigned(scaleFactorY_), .offset = call.offset.y};
  problem.input = call.source;
  problem.destination = call.destination;
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::upsamplingBackEnds, problem);
  return prepared;
}

CNNUpsamplingGradient::CNNUpsamplingGradient(std::shared_ptr<mtl::Device> device,
                                             const std::string& className, std::size_t integerScaleFactorX,
                                             std::size_t integerScaleFactorY)
    : CNNGradientKernel(std::move(device)),
      scaleFactorX_(integerScaleFactorX),
      scaleFactorY_(integerScaleFactorY) {
  checkScaleFactors(className, integerScaleFactorX, integerScaleFactorY);
}

void CNNUpsamplingGradient::transferOwnProperties(const detail::ForwardRecord& record) {
  const auto* forward = std::any_cast<UpsamplingRecord>(&record.family);
  if (forward == nullptr) return;  // nothing was encoded
  const auto check = [&](const char* property, std::size_t own, std::size_t expected) {
    if (own != expected)
      throw Error(describe(), property, std::to_string(own),
                  std::to_string(expected) + " as in the forward kernel of gradientState");
  };
  check("scaleFactorX", scaleFactorX_, forward->scaleFactorX);
  check("scaleFactorY", scaleFactorY_, forward->scaleFactorY);
}

std::vector<detail::PreparedCall> CNNUpsamplingGradient::prepareGradient(
    const detail::GradientCall& call) const {
  if (call.edgeMode != ImageEdgeMode::Zero && call.edgeMode != ImageEdgeMode::Clamp &&
      !has(options(), KernelOptions::SkipAPIValidation))
    throw Error(describe(), "secondaryEdgeMode", std::to_string(static_cast<int>(call.edgeMode)),
                "Zero or Clamp");
  const auto* forward = call.record ? std::any_cast<UpsamplingRecord>(&call.record->family) : nullptr;
  const mtl::Size clip = call.record ? call.record->clipRect.size : RectNoClip.size;
  const auto results = [](std::size_t size) {
    return asSigned(std::min(size, static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())));
  };
  const GradientPixels x =
      gradientPixels(call.primaryOffset.x + call.kernelOffsetX, call.gradient.width, results(clip.width));
  const GradientPixels y =
      gradientPixels(call.primaryOffset.y + call.kernelOffsetY, call.gradient.height, results(clip.height));
  UpsamplingProblem problem;
  problem.sampling = forward != nullptr ? forward->sampling : defaultSampling();
  problem.direction = UpsamplingDirection::Gradient;
  problem.edgeMode = call.edgeMode;
  problem.x = {.sourceSize = call.source.width,
               .scaleFactor = asSigned(scaleFactorX_),
               .offset = call.secondaryOffset.x,
               .firstResult = x.firstResult,
               .destinationOrigin = asSigned(call.clipRect.origin.x)};
  problem.y = {.sourceSize = call.source.height,
               .scaleFactor = asSigned(scaleFactorY_),
               .offset = call.secondaryOffset.y,
               .firstResult = y.firstResult,
               .destinationOrigin = asSigned(call.clipRect.origin.y)};
  problem.input = call.gradient;
  problem.input.width = x.count;
  problem.input.height = y.count;
  problem.destination = call.destination;
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::upsamplingBackEnds, problem);
  prepared.gradientOrigin = {static_cast<std::size_t>(x.first), static_cast<std::size_t>(y.first), 0};
  prepared.readsSource = false;
  return {prepared};
}

std::shared_ptr<CNNUpsamplingNearest> CNNUpsamplingNearest::create(const std::shared_ptr<mtl::Device>& device,
                                                                   std::size_t integerScaleFactorX,
                                                                   std::size_t integerScaleFactorY) {
  return std::shared_ptr<CNNUpsamplingNearest>(
      new CNNUpsamplingNearest(device, "CNNUpsamplingNearest", integerScaleFactorX, integerScaleFactorY));
}
UpsamplingSampling CNNUpsamplingNearest::sampling() const {
  return UpsamplingSampling::Nearest;
}
std::shared_ptr<Kernel> CNNUpsamplingNearest::clone() const {
  return std::make_shared<CNNUpsamplingNearest>(*this);
}

CNNUpsamplingBilinear::CNNUpsamplingBilinear(std::shared_ptr<mtl::Device> device,
                                             std::size_t integerScaleFactorX, std::size_t integerScaleFactorY,
                                             bool alignCorners)
    : CNNUpsampling(std::move(device), "CNNUpsamplingBilinear", integerScaleFactorX, integerScaleFactorY),
      alignCorners_(alignCorners) {}
std::shared_ptr<CNNUpsamplingBilinear> CNNUpsamplingBilinear::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t integerScaleFactorX,
    std::size_t integerScaleFactorY, bool alignCorners) {
  return std::shared_ptr<CNNUpsamplingBilinear>(
      new CNNUpsamplingBilinear(device, integerScaleFactorX, integerScaleFactorY, alignCorners));
}
void CNNUpsamplingBilinear::setHalfPixelCenters(bool halfPixelCenters) {
  if (halfPixelCenters && alignCorners_)
    throw Error(describe(), "halfPixelCenters", "true", "false where alignCorners is true");
  halfPixelCenters_ = halfPixelCenters;
}
UpsamplingSampling CNNUpsamplingBilinear::sampling() const {
  if (alignCorners_) return UpsamplingSampling::BilinearAlignCorners;
  return halfPixelCenters_ ? UpsamplingSampling::BilinearHalfPixel : UpsamplingSampling::Bilinear;
}
std::shared_ptr<Kernel> CNNUpsamplingBilinear::clone() const {
  return std::shared_ptr<CNNUpsamplingBilinear>(new CNNUpsamplingBilinear(*this));
}

std::shared_ptr<CNNUpsamplingNearestGradient> CNNUpsamplingNearestGradient::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t integerScaleFactorX,
    std::size_t integerScaleFactorY) {
  return std::shared_ptr<CNNUpsamplingNearestGradient>(new CNNUpsamplingNearestGradient(
      device, "CNNUpsamplingNearestGradient", integerScaleFactorX, integerScaleFactorY));
}
bool CNNUpsamplingNearestGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "CNNUpsamplingNearest";
}
UpsamplingSampling CNNUpsamplingNearestGradient::defaultSampling() const {
  return UpsamplingSampling::Nearest;
}
std::shared_ptr<Kernel> CNNUpsamplingNearestGradient::clone() const {
  return std::make_shared<CNNUpsamplingNearestGradient>(*this);
}

std::shared_ptr<CNNUpsamplingBilinearGradient> CNNUpsamplingBilinearGradient::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t integerScaleFactorX,
    std::size_t integerScaleFactorY) {
  return std::shared_ptr<CNNUpsamplingBilinearGradient>(new CNNUpsamplingBilinearGradient(
      device, "CNNUpsamplingBilinearGradient", integerScaleFactorX, integerScaleFactorY));
}
bool CNNUpsamplingBilinearGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "CNNUpsamplingBilinear";
}
UpsamplingSampling CNNUpsamplingBilinearGradient::defaultSampling() const {
  return UpsamplingSampling::Bilinear;
}
std::shared_ptr<Kernel> CNNUpsamplingBilinearGradient::clone() const {
  return std::make_shared<CNNUpsamplingBilinearGradient>(*this);
}

}  // namespace mps
