#include "mps/upsampling/resize.hpp"

#include <cstdint>
#include <utility>

#include "mps/core/coding/coder.hpp"
#include "mps/core/types/error.hpp"
#include "mps/upsampling/upsampling_call.hpp"
#include "mtl/device.hpp"

namespace mps {

using detail::UpsamplingManner;
using detail::UpsamplingSampling;

NNResizeBilinear::NNResizeBilinear(std::shared_ptr<mtl::Device> device, std::size_t resizeWidth,
                                   std::size_t resizeHeight, bool alignCorners)
    : KernelClass(std::move(device)),
      resizeWidth_(resizeWidth),
      resizeHeight_(resizeHeight),
      alignCorners_(alignCorners) {
  checkSize();
}

void NNResizeBilinear::checkSize() const {
  detail::checkResultSize("NNResizeBilinear", "resizeWidth", resizeWidth_);
  detail::checkResultSize("NNResizeBilinear", "resizeHeight", resizeHeight_);
}

std::shared_ptr<NNResizeBilinear> NNResizeBilinear::create(const std::shared_ptr<mtl::Device>& device,
                                                           std::size_t resizeWidth, std::size_t resizeHeight,
                                                           bool alignCorners) {
  return std::shared_ptr<NNResizeBilinear>(
      new NNResizeBilinear(device, resizeWidth, resizeHeight, alignCorners));
}

void NNResizeBilinear::setHalfPixelCenters(bool halfPixelCenters) {
  if (halfPixelCenters && alignCorners_)
    throw Error(describe(), "halfPixelCenters", "true", "false where alignCorners is true");
  halfPixelCenters_ = halfPixelCenters;
}

UpsamplingSampling NNResizeBilinear::sampling() const {
  if (alignCorners_) return UpsamplingSampling::BilinearAlignCorners;
  return halfPixelCenters_ ? UpsamplingSampling::BilinearHalfPixel : UpsamplingSampling::Bilinear;
}

void NNResizeBilinear::adjustDestination(ImageDescriptor& destination, const ImageDescriptor& /*source*/) {
  destination.setWidth(resizeWidth_);
  destination.setHeight(resizeHeight_);
}

void NNResizeBilinear::describeForward(std::any& family) const {
  family = UpsamplingManner{sampling(), static_cast<std::int64_t>(resizeWidth_),
                            static_cast<std::int64_t>(resizeHeight_)};
}

detail::PreparedCall NNResizeBilinear::prepareForward(const detail::ForwardCall& call) const {
  return detail::prepareUpsampling(
      *this, {sampling(), static_cast<std::int64_t>(resizeWidth_), static_cast<std::int64_t>(resizeHeight_)},
      call);
}

std::shared_ptr<NNResizeBilinearGradient> NNResizeBilinearGradient::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NNResizeBilinearGradient>(new NNResizeBilinearGradient(device));
}

bool NNResizeBilinearGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "NNResizeBilinear";
}

std::vector<detail::PreparedCall> NNResizeBilinearGradient::prepareGradient(
    const detail::GradientCall& call) const {
  const auto* forward = call.record ? std::any_cast<UpsamplingManner>(&call.record->family) : nullptr;
  if (forward == nullptr)
    throw Error(describe(), "gradientState", "missing",
                "that of the forward encode, which knows how the image was resized");
  return {detail::prepareUpsamplingGradient(*this, *forward, call)};
}

void NNResizeBilinear::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  coder.codeSize("resizeWidth", resizeWidth_);
  coder.codeSize("resizeHeight", resizeHeight_);
  coder.code("alignCorners", alignCorners_);
  coder.code("halfPixelCenters", halfPixelCenters_);
  checkSize();
  setHalfPixelCenters(halfPixelCenters_);
}

}  // namespace mps
