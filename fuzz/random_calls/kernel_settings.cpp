#include "fuzz/random_calls/kernel_settings.hpp"

#include "fuzz/random_calls/images.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"

namespace unmetal::random_calls {
namespace {

void setOffset(Call& call, mps::CNNKernel& kernel) {
  RandomNumbers& random = call.random;
  mps::Offset offset;
  if (random.chance(0.015)) {
    // Near the ends of what 32 bits hold, where sums of positions overflow.
    const auto far = [&] {
      return random.oneOf<std::int64_t>({0, 3, 70000, -70000, 0x40000000, -0x40000064, 0x7FFFFFF8, 0x7FFFFFFF,
                                         0x80000000, 0x80000001, -0x7FFFFFFF, -0x80000000L});
    };
    offset.x = far();
    offset.y = far();
  } else {
    offset.x = random.integer(-4, 6);
    offset.y = random.integer(-4, 6);
  }
  kernel.setOffset(offset);
  call.description << " offset=" << offset.x << ',' << offset.y;
}

void setChannels(Call& call, mps::CNNKernel& kernel, std::size_t channels) {
  RandomNumbers& random = call.random;
  const auto offset = [&](std::size_t fewest, std::size_t most) {
    return random.chance(0.05) ? random.size(1, 9) : 4 * random.size(fewest, most);  // not a multiple of four
  };
  if (random.chance(0.2))
    kernel.setSourceFeatureChannelOffset(call.noted("sourceChannelOffset", offset(0, (channels - 1) / 4)));
  if (random.chance(0.2))
    kernel.setSourceFeatureChannelMaxCount(call.noted("sourceChannelMaxCount", random.size(1, channels)));
  if (random.chance(0.25))
    kernel.setDestinationFeatureChannelOffset(call.noted("destinationChannelOffset", offset(1, 3)));
}

}  // namespace

mps::NNNeuronDescriptor anyNeuron(Call& call, std::size_t channels) {
  using Type = mps::CNNNeuronType;
  RandomNumbers& random = call.random;
  const auto type = static_cast<Type>(random.integer(0, static_cast<std::int64_t>(Type::GeLU)));
  call.noted("neuron", mps::name(type));
  float a = random.real32(-1, 1);
  float b = random.real32(-1, 1);
  float c = 0;
  switch (type) {
    case Type::PReLU:
      // At times not a slope for each channel.
      return mps::NNNeuronDescriptor::cnnNeuronPReLUDescriptor(
          call.vector(random.chance(0.03) ? channels - 1 : channels, Numbers::Uniform));
    case Type::Power:
      a = random.real32(0.1, 0.6);
      b = random.real32(1, 2);
      c = call.noted("c", random.oneOf({1.0F, 2.0F, 3.0F, 0.5F, 1.7F, -1.0F}));
      break;
    case Type::Exponential:
    case Type::Logarithm:
      c = random.chance(0.5) ? -1 : random.real32(1.5, 3);
      if (type == Type::Logarithm) {
        a = random.real32(0.1, 0.4);
        b = random.real32(2, 3);
      }
      break;
    case Type::ReLUN:
      a = random.real32(0, 1);
      b = random.real32(0.2, 1);
      break;
    default:
      if (random.chance(0.3)) return mps::NNNeuronDescriptor::cnnNeuronDescriptor(type);
  }
  return mps::NNNeuronDescriptor::cnnNeuronDescriptor(type, a, b, c);
}

void setProperties(Call& call, mps::CNNKernel& kernel, const mps::ImageDescriptor& source,
                   double chanceOfClip) {
  RandomNumbers& random = call.random;
  if (random.chance(0.4)) setOffset(call, kernel);
  if (random.chance(0.5)) {
    const bool isAny = random.chance(0.03);
    kernel.setEdgeMode(call.noted("edgeMode", isAny ? static_cast<mps::ImageEdgeMode>(random.integer(0, 4))
                                                    : mps::ImageEdgeMode::Clamp));
  }
  if (random.chance(chanceOfClip)) {
    mtl::Region region = clipRectangle(call, 5, 0, 20);
    if (random.chance(0.3)) region.size.width = mps::RectNoClip.size.width;
    kernel.setClipRect(region);
  }
  setChannels(call, kernel, source.featureChannels());
}

}  // namespace unmetal::random_calls
