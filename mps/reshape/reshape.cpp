#include "mps/reshape/reshape.hpp"

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/error.hpp"
#include "mps/reshape/reshape_problem.hpp"
#include "mtl/device.hpp"

namespace mps {

using detail::ReshapeDirection;
using detail::ReshapeMapping;
using detail::ReshapeProblem;
using detail::TensorShape;

namespace {

std::int64_t elementsOfImage(const TensorShape& shape) {
  return shape.height * shape.width * shape.channels;
}

std::string sizeOf(const TensorShape& shape) {
  return std::to_string(shape.width) + "x" + std::to_string(shape.height) + "x" +
         std::to_string(shape.channels);
}

detail::PreparedCall prepare(const Kernel& kernel, ReshapeDirection direction, bool channelsFirst,
                             const TensorShape& input, const TensorShape& destination) {
  ReshapeProblem problem;
  problem.direction = direction;
  problem.mapping = channelsFirst ? ReshapeMapping::ChannelsFirst : ReshapeMapping::Order;
  problem.input = input;
  problem.destination = destination;
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*kernel.device(), detail::reshapeBackEnds, problem);
  return prepared;
}

}  // namespace

std::shared_ptr<NNReshape> NNReshape::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NNReshape>(new NNReshape(device));
}

void NNReshape::setReshapedSize(std::size_t width, std::size_t height, std::size_t featureChannels) {
  if (width == 0 || height == 0 || featureChannels == 0)
    throw Error(describe(), "reshaped size",
                std::to_string(width) + "x" + std::to_string(height) + "x" + std::to_string(featureChannels),
                "at least 1 each");
  reshapedSize_ = {width, height, featureChannels};
}

void NNReshape::adjustDestination(ImageDescriptor& destination, const ImageDescriptor& /*source*/) {
  if (!reshapedSize_) return;
  destination.setWidth(reshapedSize_->width);
  destination.setHeight(reshapedSize_->height);
  destination.setFeatureChannels(reshapedSize_->featureChannels + destinationFeatureChannelOffset());
}

detail::PreparedCall NNReshape::prepareForward(const detail::ForwardCall& call) const {
  if (call.offset.x != 0 || call.offset.y != 0)
    throw Error(describe(), "offset", std::to_string(call.offset.x) + ", " + std::to_string(call.offset.y),
                "0, 0: an image is reshaped as a whole");
  if (elementsOfImage(call.source) != elementsOfImage(call.destination))
    throw Error(describe(), "destinationImage",
                sizeOf(call.destination) + " within clipRect and the channels",
                "as many elements as the source, " + sizeOf(call.source));
  return prepare(*this, ReshapeDirection::Forward, channelsFirst_, call.source, call.destination);
}

/// Calls encode() with the shape set.
template <class Encode>
auto NNReshape::reshapedTo(const Size& size, Encode encode) {
  const std::optional<Size> before = reshapedSize_;
  setReshapedSize(size.width, size.height, size.featureChannels);
  try {
    auto result = encode();
    reshapedSize_ = before;
    return result;
  } catch (...) {
    reshapedSize_ = before;
    throw;
  }
}

std::shared_ptr<Image> NNReshape::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                         const std::shared_ptr<Image>& sourceImage, std::size_t reshapedWidth,
                                         std::size_t reshapedHeight, std::size_t reshapedFeatureChannels) {
  return reshapedTo({reshapedWidth, reshapedHeight, reshapedFeatureChannels},
                    [&] { return encode(commandBuffer, sourceImage); });
}

std::shared_ptr<Image> NNReshape::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                         const std::shared_ptr<Image>& sourceImage,
                                         std::shared_ptr<State>& destinationState,
                                         bool destinationStateIsTemporary, std::size_t reshapedWidth,
                                         std::size_t reshapedHeight, std::size_t reshapedFeatureChannels) {
  return reshapedTo({reshapedWidth, reshapedHeight, reshapedFeatureChannels}, [&] {
    return encode(commandBuffer, sourceImage, destinationState, destinationStateIsTemporary);
  });
}

ImageBatch NNReshape::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                  const ImageBatch& sourceImages, std::size_t reshapedWidth,
                                  std::size_t reshapedHeight, std::size_t reshapedFeatureChannels) {
  return reshapedTo({reshapedWidth, reshapedHeight, reshapedFeatureChannels},
                    [&] { return encodeBatch(commandBuffer, sourceImages); });
}

ImageBatch NNReshape::encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                  const ImageBatch& sourceImages, StateBatch& destinationStates,
                                  bool destinationStatesAreTemporary, std::size_t reshapedWidth,
                                  std::size_t reshapedHeight, std::size_t reshapedFeatureChannels) {
  return reshapedTo({reshapedWidth, reshapedHeight, reshapedFeatureChannels}, [&] {
    return encodeBatch(commandBuffer, sourceImages, destinationStates, destinationStatesAreTemporary);
  });
}

std::shared_ptr<NNReshapeGradient> NNReshapeGradient::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NNReshapeGradient>(new NNReshapeGradient(device));
}

bool NNReshapeGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "NNReshape";
}

std::vector<detail::PreparedCall> NNReshapeGradient::prepareGradient(const detail::GradientCall& call) const {
  if (!call.record)
    throw Error(describe(), "gradientState", "missing", "that of the forward encode, which knows the shapes");
  if (elementsOfImage(call.gradient) != elementsOfImage(call.destination))
    throw Error(describe(), "destinationGradient", sizeOf(call.destination) + " within clipRect",
                "as many elements as the incoming gradient, " + sizeOf(call.gradient));
  const auto* channelsFirst = std::any_cast<bool>(&call.record->family);
  detail::PreparedCall prepared =
      prepare(*this, ReshapeDirection::Gradient, channelsFirst != nullptr && *channelsFirst, call.gradient,
              call.destination);
  prepared.readsSource = false;
  return {prepared};
}

void NNReshape::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  coder.code("channelsFirst", channelsFirst_);
  bool isSet = reshapedSize_.has_value();
  coder.code("reshapedSizeIsSet", isSet);
  if (!isSet) return;
  Size size = reshapedSize_.value_or(Size{});
  coder.code("reshapedWidth", size.width);
  coder.code("reshapedHeight", size.height);
  coder.code("reshapedFeatureChannels", size.featureChannels);
  setReshapedSize(size.width, size.height, size.featureChannels);
}

}  // namespace mps
