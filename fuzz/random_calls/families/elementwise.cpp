#include <memory>

#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/kernel_settings.hpp"
#include "fuzz/random_calls/layer_call.hpp"
#include "mps/dropout/dropout.hpp"
#include "mps/neuron/neuron.hpp"
#include "mps/softmax/softmax.hpp"

namespace unmetal::random_calls {

void callNeuron(Call& call) {
  const mps::ImageDescriptor source = call.imageSizes();
  const mps::NNNeuronDescriptor neuron = anyNeuron(call, source.featureChannels());
  const auto kernel = mps::CNNNeuron::create(call.device, neuron);
  const auto gradient = mps::CNNNeuronGradient::create(call.device, neuron);
  setProperties(call, *kernel, source);
  LayerCall layer;
  layer.numbers = call.anyNumbers();
  layer.mayBeInPlace = true;
  callLayer(call, *kernel, call.random.chance(0.6) ? gradient.get() : nullptr, source, layer);
}

void callDropout(Call& call) {
  RandomNumbers& random = call.random;
  const mps::ImageDescriptor source = call.imageSizes();
  const double anyProbability = random.real(0.05, 1);
  const auto keep =
      static_cast<float>(call.noted("keep", random.oneOf({0.5, 0.75, 0.9, 1.0, 0.01, anyProbability})));
  const std::uint64_t seed = call.noted("seed", random.bits());
  mtl::Size mask{1, 1, 1};
  if (random.chance(0.4)) mask = mtl::Size{random.size(0, 1), random.size(0, 1), random.size(0, 1)};
  call.description << " maskStride=" << mask.width << mask.height << mask.depth;
  const auto kernel = mps::CNNDropout::create(call.device, keep, seed, mask);
  const auto gradient = mps::CNNDropoutGradient::create(call.device, keep, seed, mask);
  kernel->setEncodeCount(static_cast<std::uint32_t>(random.size(0, 3)));
  setProperties(call, *kernel, source);
  LayerCall layer;
  layer.mayBeInPlace = true;
  callLayer(call, *kernel, random.chance(0.6) ? gradient.get() : nullptr, source, layer);
}

void callSoftMax(Call& call) {
  const mps::ImageDescriptor source = call.imageSizes();
  std::shared_ptr<mps::CNNKernel> kernel;
  std::shared_ptr<mps::CNNGradientKernel> gradient;
  if (call.noted("logarithm", call.random.chance(0.5))) {
    kernel = mps::CNNLogSoftMax::create(call.device);
    gradient = mps::CNNLogSoftMaxGradient::create(call.device);
  } else {
    kernel = mps::CNNSoftMax::create(call.device);
    gradient = mps::CNNSoftMaxGradient::create(call.device);
  }
  setProperties(call, *kernel, source);
  LayerCall layer;
  layer.numbers = call.anyNumbers();
  layer.gradientReadsResult = true;
  // With y of the device's own and g around 1: y (g - sum of y g). Where y is float16 and rounds the other way, a float32
  // gradient differs by units of float16's last place, too; of 1, because y and g are that large even where the difference is
  // small.
  layer.gradient = {.factor = 3, .leastScale = 1, .intermediate = ElementFormat::Float16};
  callLayer(call, *kernel, call.random.chance(0.6) ? gradient.get() : nullptr, source, layer);
}

}  // namespace unmetal::random_calls
