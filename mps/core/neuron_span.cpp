#include "mps/core/neuron_span.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "mps/core/float16.hpp"
#include "mps/core/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/core/neuron_span.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/neuron_vectors-inl.hpp"
#include "mps/core/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Calls body(i, lanes, slope) for the vectors of `count` values; slopes is read for PReLU only.
template <class Neuron, class D, class Body>
HWY_INLINE void forNeuronVectors(Neuron /*neuron*/, D d, const float* slopes, std::size_t count,
                                 Body&& body) {
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    if constexpr (std::is_same_v<Neuron, PReLUNeuron>)
      body(i, lanes, lanes.load(d, slopes + i));
    else
      body(i, lanes, hn::Zero(d));
  });
}

/// Cuts a run into pieces whose values have adjacent slopes: call(first value, slopes, values).
/// Short pixels are taken several at a time, with their slopes repeated.
template <class Neuron, class Call>
HWY_INLINE void forSlopes(const NNNeuronDescriptor& descriptor, const NeuronRun& run, Call&& call) {
  const auto channels = static_cast<std::size_t>(run.channels);
  const std::size_t count = static_cast<std::size_t>(run.pixels) * channels;
  if constexpr (!std::is_same_v<Neuron, PReLUNeuron>) {
    call(std::size_t{0}, nullptr, count);
  } else {
    constexpr std::size_t capacity = 256;
    float repeated[capacity];
    const float* slopes = descriptor.data().data() + run.firstChannel;
    std::size_t step = channels;
    if (channels <= capacity / 2 && run.pixels > 1) {
      step = capacity / channels * channels;
      for (std::size_t i = 0; i < step; i += channels) std::copy_n(slopes, channels, repeated + i);
      slopes = repeated;
    }
    for (std::size_t i = 0; i < count; i += step) call(i, slopes, std::min(step, count - i));
  }
}

template <class Neuron>
concept HasValueForHalf = requires(Neuron neuron, hn::ScalableTag<float> d, hn::Vec<decltype(d)> x) {
  neuron.valueForHalf(d, x, x);
};

void neuronValues(const NNNeuronDescriptor& descriptor, const NeuronRun& run, ConstFloatRun x, FloatRun y) {
  const hn::ScalableTag<float> d;
  withNeuron(descriptor, [&](auto neuron) {
    if constexpr (HasValueForHalf<decltype(neuron)>)
      if (y.isHalf) {
        const std::size_t count =
            static_cast<std::size_t>(run.pixels) * static_cast<std::size_t>(run.channels);
        return forVectors(d, count, [&](std::size_t i, auto lanes) {
          const auto values = lanes.load(d, x + i);
          lanes.store(d, neuron.valueForHalf(d, values, values), y + i);
        });
      }
    forSlopes<decltype(neuron)>(
        descriptor, run, [&](std::size_t first, const float* slopes, std::size_t count) {
          forNeuronVectors(neuron, d, slopes, count, [&](std::size_t i, auto lanes, auto slope) {
            lanes.store(d, neuron.value(d, lanes.load(d, x + first + i), slope), y + first + i);
          });
        });
  });
}

void neuronGradients(const NNNeuronDescriptor& descriptor, const NeuronRun& run, ConstFloatRun x,
                     ConstFloatRun dy, FloatRun dx) {
  const hn::ScalableTag<float> d;
  withNeuron(descriptor, [&](auto neuron) {
    forSlopes<decltype(neuron)>(
        descriptor, run, [&](std::size_t first, const float* slopes, std::size_t count) {
          forNeuronVectors(neuron, d, slopes, count, [&](std::size_t i, auto lanes, auto slope) {
            const auto derivative = neuron.derivative(d, lanes.load(d, x + first + i), slope);
            lanes.store(d, hn::Mul(lanes.load(d, dy + first + i), derivative), dx + first + i);
          });
        });
  });
}

template <class Neuron>
concept HasDerivativeFromResult = requires(Neuron neuron, hn::ScalableTag<float> d, hn::Vec<decltype(d)> y) {
  neuron.derivativeFromResult(d, y, y);
};

void neuronGradientsFromResult(const NNNeuronDescriptor& descriptor, const NeuronRun& run, ConstFloatRun y,
                               ConstFloatRun dy, FloatRun dx, ConstFloatRun addend) {
  const hn::ScalableTag<float> d;
  withNeuron(descriptor, [&](auto neuron) {
    if constexpr (HasDerivativeFromResult<decltype(neuron)>)
      forSlopes<decltype(neuron)>(
          descriptor, run, [&](std::size_t first, const float* slopes, std::size_t count) {
            forNeuronVectors(neuron, d, slopes, count, [&](std::size_t i, auto lanes, auto slope) {
              const auto derivative = neuron.derivativeFromResult(d, lanes.load(d, y + first + i), slope);
              auto gradient = lanes.load(d, dy + first + i);
              if (addend) gradient = hn::Add(gradient, lanes.load(d, addend + first + i));
              lanes.store(d, hn::Mul(gradient, derivative), dx + first + i);
            });
          });
  });
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(neuronValues);
HWY_EXPORT(neuronGradients);
HWY_EXPORT(neuronGradientsFromResult);

void neuronValues(const NNNeuronDescriptor& neuron, const NeuronRun& run, ConstFloatRun x, FloatRun y) {
  HWY_DYNAMIC_DISPATCH(neuronValues)(neuron, run, x, y);
}

void neuronGradients(const NNNeuronDescriptor& neuron, const NeuronRun& run, ConstFloatRun x,
                     ConstFloatRun dy, FloatRun dx) {
  HWY_DYNAMIC_DISPATCH(neuronGradients)(neuron, run, x, dy, dx);
}

void neuronGradientsFromResult(const NNNeuronDescriptor& neuron, const NeuronRun& run, ConstFloatRun y,
                               ConstFloatRun dy, FloatRun dx, ConstFloatRun addend) {
  HWY_DYNAMIC_DISPATCH(neuronGradientsFromResult)(neuron, run, y, dy, dx, addend);
}

bool derivativeFromResult(const NNNeuronDescriptor& neuron) {
  const float a = neuron.a();
  const float b = neuron.b();
  // A slope of -0 would make a +0 of negative values.
  const auto keepsSign = [](float slope) { return slope >= 0 && !std::signbit(slope); };
  switch (neuron.neuronType()) {
    case CNNNeuronType::None:
    case CNNNeuronType::Linear:
    case CNNNeuronType::Sigmoid:
    case CNNNeuronType::SoftSign:
    case CNNNeuronType::Exponential:
      return true;
    case CNNNeuronType::ReLU:
    case CNNNeuronType::ELU:
      return keepsSign(a);
    case CNNNeuronType::PReLU:
      return std::ranges::all_of(neuron.data(), keepsSign);
    case CNNNeuronType::ReLUN:
      return keepsSign(a) && b > 0 && toFloat(toFloat16(b)) == b;
    case CNNNeuronType::TanH:
    case CNNNeuronType::SoftPlus:
      return std::isfinite(a) && std::isfinite(1 / a);
    case CNNNeuronType::HardSigmoid:
    case CNNNeuronType::Absolute:
    case CNNNeuronType::Power:
    case CNNNeuronType::Logarithm:
    case CNNNeuronType::GeLU:
    case CNNNeuronType::Count:
      break;
  }
  return false;
}

}  // namespace mps::detail

#endif  // HWY_ONCE
