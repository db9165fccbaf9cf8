#include "fuzz/random_calls/layer_call.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>

#include "fuzz/random_calls/images.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/padding.hpp"

namespace unmetal::random_calls {
namespace {

/// One call of callLayer.
class Layer {
 public:
  Layer(Call& call, mps::CNNKernel& kernel, const mps::ImageDescriptor& size, const LayerCall& layer,
        bool withState)
      : call_(call),
        random_(call.random),
        kernel_(kernel),
        size_(size),
        layer_(layer),
        stacked_(random_.chance(0.12) ? Stacked::Yes : Stacked::No),
        count_(call.imageCount()),
        withState_(withState || random_.chance(0.2)),
        returnsImages_(stacked_ == Stacked::No && random_.chance(0.25)),
        isSingle_(stacked_ == Stacked::Yes || (count_ == 1 && random_.chance(0.4))) {
    call.noted("stacked", stacked_ == Stacked::Yes);
    call.noted("returnsImages", returnsImages_);
    call.noted("single", isSingle_);
  }

  void encodeForward(const CommandBufferPointer& commandBuffer);
  void encodeGradient(const CommandBufferPointer& commandBuffer, mps::CNNGradientKernel& kernel);
  [[nodiscard]] const mps::StateBatch& states() const { return states_; }

 private:
  void encodeReturning(const CommandBufferPointer& commandBuffer);
  void encodeInto(const CommandBufferPointer& commandBuffer);
  [[nodiscard]] mps::ImageDescriptor sizeOfDestination();
  void makeDestination();
  void encodeGradientReturning(const CommandBufferPointer& commandBuffer, mps::CNNGradientKernel& kernel,
                               const Images& gradient, const Images& input);
  void encodeGradientInto(const CommandBufferPointer& commandBuffer, mps::CNNGradientKernel& kernel,
                          const Images& gradient, const Images& input);
  void encodeGradientInParts(const CommandBufferPointer& commandBuffer, mps::CNNGradientKernel& kernel,
                             const Images& gradient, const Images& input, const Images& result);

  Call& call_;
  RandomNumbers& random_;
  mps::CNNKernel& kernel_;
  mps::ImageDescriptor size_;
  const LayerCall& layer_;
  Stacked stacked_;
  std::size_t count_;
  bool withState_;
  bool returnsImages_;
  bool isSingle_;  ///< encode rather than encodeBatch
  Images source_;
  Images result_;
  mps::StateBatch states_;
};

void Layer::encodeForward(const CommandBufferPointer& commandBuffer) {
  call_.stage = "sources";
  source_ = makeSources(call_, "source", size_, count_, layer_.numbers, stacked_);
  kernel_.setDestinationImageAllocator(mps::Image::defaultAllocator());
  if (returnsImages_)
    encodeReturning(commandBuffer);
  else
    encodeInto(commandBuffer);
}

void Layer::encodeReturning(const CommandBufferPointer& commandBuffer) {
  if (random_.chance(0.5)) {
    const auto alignment = random_.oneOf<std::uint64_t>({0, 4, 8, 12});
    const auto remainder = random_.oneOf<std::uint64_t>({0, 1, 2});
    const auto size = random_.oneOf<std::uint64_t>({0, 0x10, 0x20});
    const auto method =
        call_.noted("padding", static_cast<mps::NNPaddingMethod>(alignment | remainder | size));
    kernel_.setPadding(mps::NNDefaultPadding::padding(method));
  }
  call_.stage = "forward";
  if (isSingle_) {
    std::shared_ptr<mps::State> state;
    result_.image = withState_ ? kernel_.encode(commandBuffer, source_.image, state, false)
                               : kernel_.encode(commandBuffer, source_.image);
    result_.batch = mps::ImageBatch{result_.image};
    if (state) states_ = mps::StateBatch{state};
  } else {
    result_.batch = withState_ ? kernel_.encodeBatch(commandBuffer, source_.batch, states_, false)
                               : kernel_.encodeBatch(commandBuffer, source_.batch);
  }
  observeImages(call_, "result", result_.batch, layer_.result);
}

mps::ImageDescriptor Layer::sizeOfDestination() {
  const mps::Offset offset = kernel_.offset();
  mps::ImageDescriptor size = kernel_.sizeDestination(size_);  // which moves the offset
  constexpr std::int64_t far = 1000;
  if (random_.chance(0.7) || std::abs(offset.x) > far || std::abs(offset.y) > far) kernel_.setOffset(offset);
  size.setNumberOfImages(1);
  size.setChannelFormat(call_.resultFormat());
  if (layer_.anySizeOfResult && random_.chance(0.35)) {
    std::size_t width = call_.side();
    std::size_t height = call_.side();
    reduceTo(2 * call_.limits.elements, width, height, size.featureChannels() * count_);
    size.setWidth(width);
    size.setHeight(height);
  }
  if (random_.chance(0.2)) size.setFeatureChannels(size.featureChannels() + random_.size(0, 9));
  if (random_.chance(0.02) && size.featureChannels() > 1) size.setFeatureChannels(size.featureChannels() - 1);
  return size;
}

void Layer::makeDestination() {
  const mps::ImageDescriptor size = sizeOfDestination();
  call_.stage = "destinations";
  const bool isInPlace = layer_.mayBeInPlace && !withState_ && random_.chance(0.1) &&
                         size_.channelFormat() == size.channelFormat();
  if (!isInPlace) {
    result_ = makeDestinations(call_, "destination", size, count_, layer_.result, stacked_);
    return;
  }
  call_.noted("inPlace", true);
  result_ = source_;
  result_.observation->role = Role::Updated;
  result_.observation->tolerance = layer_.result;
}

void Layer::encodeInto(const CommandBufferPointer& commandBuffer) {
  makeDestination();
  call_.stage = "forward";
  if (isSingle_) {
    const auto state = withState_ ? kernel_.resultState(source_.image) : nullptr;
    if (!state) return kernel_.encode(commandBuffer, source_.image, result_.image);
    kernel_.encode(commandBuffer, source_.image, state, result_.image);
    states_ = mps::StateBatch{state};
    return;
  }
  if (withState_) states_ = kernel_.resultStateBatch(source_.batch);
  if (states_.empty()) return kernel_.encodeBatch(commandBuffer, source_.batch, result_.batch);
  kernel_.encodeBatch(commandBuffer, source_.batch, states_, result_.batch);
}

void Layer::encodeGradient(const CommandBufferPointer& commandBuffer, mps::CNNGradientKernel& kernel) {
  call_.stage = "gradients";
  mps::ImageDescriptor size = result_.batch.descriptor();
  if (random_.chance(0.2)) size.setChannelFormat(call_.floatFormat());
  const Images gradient = makeSources(call_, "gradient", size, count_, Numbers::Uniform, stacked_);
  kernel.setDestinationImageAllocator(mps::Image::defaultAllocator());
  const std::size_t offset = random_.chance(0.15) ? 4 * random_.size(1, 2) : 0;
  kernel.setDestinationFeatureChannelOffset(call_.noted("gradientChannelOffset", offset));
  const Images& input = layer_.gradientReadsResult ? result_ : source_;
  if (stacked_ == Stacked::No && random_.chance(0.35))
    encodeGradientReturning(commandBuffer, kernel, gradient, input);
  else
    encodeGradientInto(commandBuffer, kernel, gradient, input);
}

void Layer::encodeGradientReturning(const CommandBufferPointer& commandBuffer, mps::CNNGradientKernel& kernel,
                                    const Images& gradient, const Images& input) {
  call_.stage = "gradient";
  const mps::ImageBatch result =
      isSingle_ ? mps::ImageBatch{kernel.encode(commandBuffer, gradient.image, input.image, states_[0])}
                : kernel.encodeBatch(commandBuffer, gradient.batch, input.batch, states_);
  observeImages(call_, "sourceGradient", result, layer_.gradient);
}

void Layer::encodeGradientInto(const CommandBufferPointer& commandBuffer, mps::CNNGradientKernel& kernel,
                               const Images& gradient, const Images& input) {
  mps::ImageDescriptor size = size_;
  size.setChannelFormat(call_.resultFormat());
  if (random_.chance(0.3))
    size.setFeatureChannels(std::min(size.featureChannels(), kernel_.sourceFeatureChannelMaxCount()));
  size.setFeatureChannels(size.featureChannels() + kernel.destinationFeatureChannelOffset());
  if (!isSingle_ && random_.chance(0.1)) kernel.setClipRect(clipRectangle(call_, 3, 1, 9));
  const Images result = makeDestinations(call_, "sourceGradient", size, count_, layer_.gradient, stacked_);
  call_.stage = "gradient";
  if (isSingle_)
    kernel.encode(commandBuffer, gradient.image, input.image, states_[0], result.image);
  else if (count_ > 1 && random_.chance(0.15))
    encodeGradientInParts(commandBuffer, kernel, gradient, input, result);
  else
    kernel.encodeBatch(commandBuffer, gradient.batch, input.batch, states_, result.batch);
}

void Layer::encodeGradientInParts(const CommandBufferPointer& commandBuffer, mps::CNNGradientKernel& kernel,
                                  const Images& gradient, const Images& input, const Images& result) {
  const std::size_t cut = call_.noted("cut", random_.size(1, count_ - 1));
  const auto encodePart = [&](std::size_t first, std::size_t count) {
    kernel.encodeBatch(commandBuffer, partOf(gradient.batch, first, count), partOf(input.batch, first, count),
                       states_.slice(first, count), partOf(result.batch, first, count));
  };
  const bool secondFirst = call_.noted("secondFirst", random_.chance(0.5));
  if (secondFirst) encodePart(cut, count_ - cut);
  encodePart(0, cut);
  if (!secondFirst) encodePart(cut, count_ - cut);
}

}  // namespace

void callLayer(Call& call, mps::CNNKernel& kernel, mps::CNNGradientKernel* gradientKernel,
               const mps::ImageDescriptor& source, const LayerCall& layer) {
  Layer run(call, kernel, source, layer, gradientKernel != nullptr);
  CommandBufferPointer commandBuffer = call.begin();
  run.encodeForward(commandBuffer);
  if (gradientKernel == nullptr || run.states().empty()) return call.finish(commandBuffer);
  if (call.noted("twoCommandBuffers", call.random.chance(0.5))) {
    call.finish(commandBuffer);
    commandBuffer = call.begin();
  }
  run.encodeGradient(commandBuffer, *gradientKernel);
  call.finish(commandBuffer);
  if (layer.observeStates) layer.observeStates(run.states());
}

}  // namespace unmetal::random_calls
