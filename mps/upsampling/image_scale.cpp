#include "mps/upsampling/image_scale.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/coding/coder.hpp"
#include "mps/core/image/gradient_state.hpp"
#include "mps/core/types/error.hpp"
#include "mps/upsampling/upsampling_call.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"

namespace mps {
namespace {

using detail::UpsamplingManner;
using detail::UpsamplingSampling;

/// How a kernel scales: what its gradient must know (docs/decisions.md, D9).
struct ScaleManner {
  UpsamplingSampling sampling = UpsamplingSampling::BilinearScale;
  std::size_t width = 1;
  std::size_t height = 1;
  std::optional<ScaleTransform> transform;
  bool operator==(const ScaleManner&) const = default;

  /// Of a source of that size.
  [[nodiscard]] UpsamplingManner of(std::int64_t sourceWidth, std::int64_t sourceHeight) const {
    const auto fills = [](std::size_t result, std::int64_t source) {
      return static_cast<double>(result) / static_cast<double>(source);
    };
    const auto steps = [](double scale, double translate) {
      return UpsamplingManner::Steps{(0.5 - translate) / scale - 0.5, 1 / scale};
    };
    const ScaleTransform used =
        transform.value_or(ScaleTransform{fills(width, sourceWidth), fills(height, sourceHeight), 0, 0});
    return {sampling, static_cast<std::int64_t>(width), static_cast<std::int64_t>(height),
            steps(used.scaleX, used.translateX), steps(used.scaleY, used.translateY)};
  }
};

void codeTransform(Coder& coder, std::optional<ScaleTransform>& transform) {
  bool isSet = transform.has_value();
  coder.code("hasScaleTransform", isSet);
  if (!isSet) return;
  if (!transform) transform.emplace();
  coder.codeGroup("scaleTransform", [&] {
    coder.code("scaleX", transform->scaleX);
    coder.code("scaleY", transform->scaleY);
    coder.code("translateX", transform->translateX);
    coder.code("translateY", transform->translateY);
  });
}

}  // namespace

ImageScale::ImageScale(const char* className, std::shared_ptr<mtl::Device> device, std::size_t outputWidth,
                       std::size_t outputHeight)
    : CNNKernel(std::move(device)), outputWidth_(outputWidth), outputHeight_(outputHeight) {
  detail::checkResultSize(className, "outputWidth", outputWidth_);
  detail::checkResultSize(className, "outputHeight", outputHeight_);
}

void ImageScale::setScaleTransform(const std::optional<ScaleTransform>& transform) {
  if (transform) {
    const auto check = [&](const char* field, double value, bool isInRange, const char* range) {
      if (!isInRange)
        throw Error(describe(), std::string("scaleTransform.") + field, std::to_string(value), range);
    };
    const auto checkScale = [&](const char* field, double value) {
      check(field, value, value >= 1e-9 && value <= 1e9, "1e-9 to 1e9");
    };
    const auto checkTranslation = [&](const char* field, double value) {
      check(field, value, std::abs(value) <= 1e9, "-1e9 to 1e9");
    };
    checkScale("scaleX", transform->scaleX);
    checkScale("scaleY", transform->scaleY);
    checkTranslation("translateX", transform->translateX);
    checkTranslation("translateY", transform->translateY);
  }
  transform_ = transform;
}

void ImageScale::adjustDestination(ImageDescriptor& destination, const ImageDescriptor& /*source*/) {
  destination.setWidth(outputWidth_);
  destination.setHeight(outputHeight_);
}

void ImageScale::describeForward(std::any& family) const {
  family = ScaleManner{isLanczos() ? UpsamplingSampling::LanczosScale : UpsamplingSampling::BilinearScale,
                       outputWidth_, outputHeight_, transform_};
}

detail::PreparedCall ImageScale::prepareForward(const detail::ForwardCall& call) const {
  // The weights of a pixel of the result may be as many as the source has pixels on that axis.
  constexpr std::int64_t most = std::int64_t{1} << 24U;
  if (call.source.width > most || call.source.height > most)
    throw Error(describe(), "sourceImage",
                std::to_string(call.source.width) + "x" + std::to_string(call.source.height) + " pixels",
                "at most " + std::to_string(most) + " on each axis");
  return detail::prepareUpsampling(*this, mannerFor(call.source.width, call.source.height), call);
}

UpsamplingManner ImageScale::mannerFor(std::int64_t sourceWidth, std::int64_t sourceHeight) const {
  std::any manner;
  describeForward(manner);
  return std::any_cast<const ScaleManner&>(manner).of(sourceWidth, sourceHeight);
}

void ImageScale::encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                            std::span<const ImageBatch> sources, const StateBatch& destinationStates,
                            const ImageBatch& destinationImages) {
  const ImageBatch& images = sources[0];
  if (!provider_ || images.empty())
    return CNNKernel::encodeStep(commandBuffer, sources, destinationStates, destinationImages);
  mtl::RecordingGuard guard(*commandBuffer);
  std::vector<ScaleTransform> transforms;
  for (std::size_t n = 0; n < images.count(); ++n) {
    transforms.push_back(provider_->transformForSourceImage(images[n], handle_));
    setScaleTransform(transforms.back());  // checks it
  }
  for (std::size_t begin = 0, end = 0; begin < images.count(); begin = end) {
    while (end < images.count() && transforms[end] == transforms[begin]) ++end;
    transform_ = transforms[begin];
    const auto part = [&](const auto& batch) { return batch.slice(begin, end - begin); };
    const StateBatch states = destinationStates.empty() ? StateBatch() : part(destinationStates);
    encodeBatch(commandBuffer, part(images), states, part(destinationImages));
  }
  guard.keep();
}

void ImageScale::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  coder.codeSize("outputWidth", outputWidth_);
  coder.codeSize("outputHeight", outputHeight_);
  detail::checkResultSize(className().c_str(), "outputWidth", outputWidth_);
  detail::checkResultSize(className().c_str(), "outputHeight", outputHeight_);
  codeTransform(coder, transform_);
  setScaleTransform(transform_);
  coder.codeOptional("transformProvider", provider_);
  coder.codeOptional("handle", handle_);
}

std::shared_ptr<ImageBilinearScale> ImageBilinearScale::create(const std::shared_ptr<mtl::Device>& device,
                                                               std::size_t outputWidth,
                                                               std::size_t outputHeight) {
  return std::shared_ptr<ImageBilinearScale>(
      new ImageBilinearScale("ImageBilinearScale", device, outputWidth, outputHeight));
}

std::shared_ptr<ImageLanczosScale> ImageLanczosScale::create(const std::shared_ptr<mtl::Device>& device,
                                                             std::size_t outputWidth,
                                                             std::size_t outputHeight) {
  return std::shared_ptr<ImageLanczosScale>(
      new ImageLanczosScale("ImageLanczosScale", device, outputWidth, outputHeight));
}

std::vector<detail::PreparedCall> ImageScaleGradient::prepareGradient(
    const detail::GradientCall& call) const {
  const auto* forward = call.record ? std::any_cast<ScaleManner>(&call.record->family) : nullptr;
  if (forward == nullptr)
    throw Error(describe(), "gradientState", "missing",
                "that of the forward encode, which knows how the image was scaled");
  return {detail::prepareUpsamplingGradient(*this, forward->of(call.source.width, call.source.height), call)};
}

bool ImageScaleGradient::takesTogether(const StateBatch& states) const {
  std::size_t first = 0;
  if (states.commonRecord(first)) return true;
  const auto mannerOf = [&](std::size_t i) {
    const auto& holder = dynamic_cast<const detail::RecordHolder&>(*states[i]);
    return std::any_cast<ScaleManner>(holder.record()->family);
  };
  for (std::size_t i = 1; i < states.count(); ++i)
    if (mannerOf(i) != mannerOf(0)) return false;
  return true;
}

std::shared_ptr<ImageBilinearScaleGradient> ImageBilinearScaleGradient::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<ImageBilinearScaleGradient>(new ImageBilinearScaleGradient(device));
}

bool ImageBilinearScaleGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "ImageBilinearScale";
}

std::shared_ptr<ImageLanczosScaleGradient> ImageLanczosScaleGradient::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<ImageLanczosScaleGradient>(new ImageLanczosScaleGradient(device));
}

bool ImageLanczosScaleGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "ImageLanczosScale";
}

}  // namespace mps
