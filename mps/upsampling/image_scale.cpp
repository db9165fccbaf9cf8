#include "mps/upsampling/image_scale.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/coder.hpp"
#include "mps/core/error.hpp"
#include "mps/upsampling/upsampling_call.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"

namespace mps {
namespace {

detail::UpsamplingAxis axisOf(std::int64_t sourceSize, std::size_t resultSize, double scale, double translate,
                              std::int64_t offset) {
  detail::UpsamplingAxis axis;
  axis.sourceSize = sourceSize;
  axis.resultSize = static_cast<std::int64_t>(resultSize);
  axis.offset = offset;
  axis.start = (0.5 - translate) / scale - 0.5;
  axis.step = 1 / scale;
  return axis;
}

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

detail::PreparedCall ImageScale::prepareForward(const detail::ForwardCall& call) const {
  const auto fills = [](std::size_t result, std::int64_t source) {
    return static_cast<double>(result) / static_cast<double>(source);
  };
  const ScaleTransform transform = transform_.value_or(
      ScaleTransform{fills(outputWidth_, call.source.width), fills(outputHeight_, call.source.height), 0, 0});
  detail::UpsamplingProblem problem;
  problem.sampling =
      isLanczos() ? detail::UpsamplingSampling::LanczosScale : detail::UpsamplingSampling::BilinearScale;
  problem.edgeMode = call.edgeMode;
  problem.x = axisOf(call.source.width, outputWidth_, transform.scaleX, transform.translateX, call.offset.x);
  problem.y =
      axisOf(call.source.height, outputHeight_, transform.scaleY, transform.translateY, call.offset.y);
  problem.input = call.source;
  problem.destination = call.destination;
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::upsamplingBackEnds, problem);
  return prepared;
}

void ImageScale::encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                            std::span<const ImageBatch> sources, const StateBatch& destinationStates,
                            const ImageBatch& destinationImages) {
  const ImageBatch& images = sources[0];
  if (!provider_ || images.empty())
    return CNNKernel::encodeStep(commandBuffer, sources, destinationStates, destinationImages);
  std::vector<ScaleTransform> transforms;
  for (std::size_t n = 0; n < images.count(); ++n) {
    transforms.push_back(provider_->transformForSourceImage(images[n], handle_));
    setScaleTransform(transforms.back());  // checks it
  }
  mtl::RecordingGuard guard(*commandBuffer);
  for (std::size_t begin = 0, end = 0; begin < images.count(); begin = end) {
    while (end < images.count() && transforms[end] == transforms[begin]) ++end;
    transform_ = transforms[begin];
    encodeBatch(commandBuffer, images.slice(begin, end - begin), destinationImages.slice(begin, end - begin));
  }
  guard.keep();
}

void ImageScale::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  coder.code("outputWidth", outputWidth_);
  coder.code("outputHeight", outputHeight_);
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

std::shared_ptr<Kernel> ImageBilinearScale::clone() const {
  return std::shared_ptr<ImageBilinearScale>(new ImageBilinearScale(*this));
}

std::shared_ptr<ImageLanczosScale> ImageLanczosScale::create(const std::shared_ptr<mtl::Device>& device,
                                                             std::size_t outputWidth,
                                                             std::size_t outputHeight) {
  return std::shared_ptr<ImageLanczosScale>(
      new ImageLanczosScale("ImageLanczosScale", device, outputWidth, outputHeight));
}

std::shared_ptr<Kernel> ImageLanczosScale::clone() const {
  return std::shared_ptr<ImageLanczosScale>(new ImageLanczosScale(*this));
}

}  // namespace mps
