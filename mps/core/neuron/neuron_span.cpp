#include "mps/core/neuron/neuron_span.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/types/float16.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/core/neuron/neuron_span.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/cpu/vector_runs-inl.hpp"
#include "mps/core/neuron/neuron_vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

HWY_INLINE std::size_t valuesOf(const NeuronRun& run) {
  return static_cast<std::size_t>(run.pixels) * static_cast<std::size_t>(run.channels);
}

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
  const std::size_t count = valuesOf(run);
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

template <class Neuron>
concept HasDerivativeForHalf = requires(Neuron neuron, hn::ScalableTag<float> d, hn::Vec<decltype(d)> x) {
  neuron.derivativeForHalf(d, x, x);
};

void neuronValues(const NNNeuronDescriptor& descriptor, const NeuronRun& run, ConstFloatRun x, FloatRun y) {
  const hn::ScalableTag<float> d;
  withNeuron(descriptor, [&](auto neuron) {
    if constexpr (HasValueForHalf<decltype(neuron)>)
      if (y.isHalf)
        return forVectors(d, valuesOf(run), [&, neuron](std::size_t i, auto lanes) {
          const auto values = lanes.load(d, x + i);
          lanes.store(d, neuron.valueForHalf(d, values, values), y + i);
        });
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
    if constexpr (HasDerivativeForHalf<decltype(neuron)>)
      if (dx.isHalf)
        return forVectors(d, valuesOf(run), [&, neuron](std::size_t i, auto lanes) {
          const auto values = lanes.load(d, x + i);
          const auto derivative = neuron.derivativeForHalf(d, values, values);
          lanes.store(d, hn::Mul(lanes.load(d, dy + i), derivative), dx + i);
        });
    forSlopes<decltype(neuron)>(
        descriptor, run, [&](std::size_t first, const float* slopes, std::size_t count) {
          forNeuronVectors(neuron, d, slopes, count, [&](std::size_t i, auto lanes, auto slope) {
            const auto derivative = neuron.derivative(d, lanes.load(d, x + first + i), slope);
            lanes.store(d, hn::Mul(lanes.load(d, dy + first + i), derivative), dx + first + i);
          });
        });
  });
}

// Sides: the bytes of a vector's lanes are a word, whose bit 8 (i / 4) + i % 4 says that lane i is below 0, and the bit
// four higher that it is NaN.

/// The bit of a mask's lane i goes to bit 8 (i / 4) + i % 4.
template <class D>
HWY_INLINE std::uint32_t spreadBits(D d, hn::Mask<D> mask) {
  std::uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, mask, bytes);
  std::uint32_t bits = bytes[0] | static_cast<std::uint32_t>(bytes[1]) << 8U;
  bits = (bits | bits << 8U) & 0x00FF00FFU;
  return (bits | bits << 4U) & 0x0F0F0F0FU;
}

/// Bit 8 (i / 4) + i % 4 in lane i.
template <class D>
HWY_INLINE hn::Vec<D> bitOfLane(D du) {
  static_assert(hn::MaxLanes(D()) <= 16);
  constexpr std::uint32_t bits[16] = {0x1,       0x2,       0x4,       0x8,      0x100,   0x200,
                                      0x400,     0x800,     0x10000,   0x20000,  0x40000, 0x80000,
                                      0x1000000, 0x2000000, 0x4000000, 0x8000000};
  return hn::LoadU(du, bits);
}

/// Bytes of sides of a vector; of a whole one a constant, which makes a copy one instruction.
template <class D>
HWY_INLINE std::size_t sideBytes(D d, AllLanes /*lanes*/) {
  return hn::Lanes(d) / 4;
}
template <class D>
HWY_INLINE std::size_t sideBytes(D /*d*/, FirstLanes lanes) {
  return lanes.count / 4;
}

void neuronSides(ConstFloatRun x, std::size_t count, std::byte* sides) {
  const hn::ScalableTag<float> d;
  forVectors(d, count, [&](std::size_t i, auto lanes) {
    const auto values = lanes.load(d, x + i);
    std::uint32_t word = spreadBits(d, hn::Lt(values, hn::Zero(d)));
    if (const auto isNaN = hn::IsNaN(values); !hn::AllFalse(d, isNaN)) word |= spreadBits(d, isNaN) << 4U;
    std::byte* const to = sides + i / 4;
    if constexpr (hn::MaxLanes(d) < 4)
      *to = (i % 4 == 0 ? std::byte{0} : *to) | static_cast<std::byte>(word << i % 4);
    else
      std::memcpy(to, &word, sideBytes(d, lanes));
  });
}

void neuronGradientsFromSides(const NNNeuronDescriptor& descriptor, const NeuronRun& run,
                              const std::byte* sides, ConstFloatRun dy, FloatRun dx) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const auto bits = bitOfLane(du);
  const auto gradients = [&](auto neuron, std::size_t first, const float* slopes, std::size_t count) {
    const auto slopeOfAll = hn::Set(d, descriptor.a());
    forNeuronVectors(neuron, d, slopes, count, [&](std::size_t i, auto lanes, auto slopeOfLane) {
      const std::byte* const from = sides + (first + i) / 4;
      std::uint32_t word = 0;
      if constexpr (hn::MaxLanes(d) < 4)
        word = std::to_integer<std::uint32_t>(*from) >> (first + i) % 4;
      else
        std::memcpy(&word, from, sideBytes(d, lanes));
      const auto below = hn::RebindMask(d, hn::TestBit(hn::Set(du, word), bits));
      const auto slope = std::is_same_v<decltype(neuron), PReLUNeuron> ? slopeOfLane : slopeOfAll;
      auto gradient = hn::Mul(lanes.load(d, dy + first + i), hn::IfThenElse(below, slope, hn::Set(d, 1.0F)));
      if ((word & 0xF0F0F0F0U) != 0) {
        const auto isNaN = hn::RebindMask(d, hn::TestBit(hn::Set(du, word >> 4U), bits));
        gradient = hn::IfThenElse(isNaN, hn::NaN(d), gradient);
      }
      lanes.store(d, gradient, dx + first + i);
    });
  };
  if (descriptor.neuronType() == CNNNeuronType::PReLU)
    forSlopes<PReLUNeuron>(descriptor, run, [&](std::size_t first, const float* slopes, std::size_t count) {
      gradients(PReLUNeuron(), first, slopes, count);
    });
  else
    gradients(ReLUNeuron{}, 0, nullptr, valuesOf(run));
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
HWY_EXPORT(neuronSides);
HWY_EXPORT(neuronGradientsFromSides);
HWY_EXPORT(neuronGradientsFromResult);

void neuronValues(const NNNeuronDescriptor& neuron, const NeuronRun& run, ConstFloatRun x, FloatRun y) {
  HWY_DYNAMIC_DISPATCH(neuronValues)(neuron, run, x, y);
}

void neuronGradients(const NNNeuronDescriptor& neuron, const NeuronRun& run, ConstFloatRun x,
                     ConstFloatRun dy, FloatRun dx) {
  HWY_DYNAMIC_DISPATCH(neuronGradients)(neuron, run, x, dy, dx);
}

void neuronSides(ConstFloatRun x, std::size_t count, std::byte* sides) {
  HWY_DYNAMIC_DISPATCH(neuronSides)(x, count, sides);
}

void neuronGradientsFromSides(const NNNeuronDescriptor& neuron, const NeuronRun& run, const std::byte* sides,
                              ConstFloatRun dy, FloatRun dx) {
  HWY_DYNAMIC_DISPATCH(neuronGradientsFromSides)(neuron, run, sides, dy, dx);
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
