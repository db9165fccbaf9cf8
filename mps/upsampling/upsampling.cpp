#include "mps/upsampling/upsampling.hpp"

#include <any>
#include <limits>

#include "mps/core/coding/coder.hpp"
#include "mps/core/types/as_signed.hpp"
#include "mps/core/types/error.hpp"
#include "mps/upsampling/upsampling_call.hpp"
#include "mtl/device.hpp"

namespace mps {

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

using detail::asSigned;

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
  return detail::prepareUpsampling(*this,
                                   {.sampling = sampling(),
                                    .resultWidth = call.source.width * asSigned(scaleFactorX_),
                                    .resultHeight = call.source.height * asSigned(scaleFactorY_)},
                                   call);
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
  const auto* forward = call.record ? std::any_cast<UpsamplingRecord>(&call.record->family) : nullptr;
  return {detail::prepareUpsamplingGradient(
      *this,
      {.sampling = forward != nullptr ? forward->sampling : defaultSampling(),
       .resultWidth = call.source.width * asSigned(scaleFactorX_),
       .resultHeight = call.source.height * asSigned(scaleFactorY_)},
      call)};
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

CNNUpsamplingBilinear::CNNUpsamplingBilinear(std::shared_ptr<mtl::Device> device,
                                             std::size_t integerScaleFactorX, std::size_t integerScaleFactorY,
                                             bool alignCorners)
    : KernelClass(std::move(device), "CNNUpsamplingBilinear", integerScaleFactorX, integerScaleFactorY),
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

void CNNUpsampling::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  coder.code("scaleFactorX", scaleFactorX_);
  coder.code("scaleFactorY", scaleFactorY_);
  checkScaleFactors(className(), scaleFactorX_, scaleFactorY_);
}

void CNNUpsamplingBilinear::codeProperties(Coder& coder) {
  CNNUpsampling::codeProperties(coder);
  coder.code("alignCorners", alignCorners_);
  coder.code("halfPixelCenters", halfPixelCenters_);
  setHalfPixelCenters(halfPixelCenters_);
}

void CNNUpsamplingGradient::codeProperties(Coder& coder) {
  CNNGradientKernel::codeProperties(coder);
  coder.code("scaleFactorX", scaleFactorX_);
  coder.code("scaleFactorY", scaleFactorY_);
  checkScaleFactors(className(), scaleFactorX_, scaleFactorY_);
}

}  // namespace mps
