#pragma once

#include <cstdint>

#include "mps/core/cuda/channel_sums_cuda.cuh"
#include "mps/core/neuron/neuron_cuda.cuh"

/// Kernels of batch normalisation; what they compute, and in which roundings, says BatchNormalizationProblem.
namespace mps::detail::cuda {

/// What is compiled in: no neuron, ReLU or PReLU, those of dense layers, or whatever NeuronNumbers says.
enum class FusedNeuron { None, Kink, Sigmoid, TanH, Any };

template <FusedNeuron kind>
inline constexpr bool kIsSmooth = kind == FusedNeuron::Sigmoid || kind == FusedNeuron::TanH;
template <FusedNeuron kind>
inline constexpr CNNNeuronType kSmoothType =
    kind == FusedNeuron::Sigmoid ? CNNNeuronType::Sigmoid : CNNNeuronType::TanH;

/// Threads of a block that joins chunks.
inline constexpr unsigned kJoinThreads = 1024;

/// @name f(z), or f'(z). Calls and choices of a formula take their time, so vectors ask for four at once, of functions that
/// have no slopes (vectors with PReLU are FusedNeuron::Kink)
/// @{
template <bool ofDerivative>
static __device__ __noinline__ float ofAny(NeuronNumbers neuron, float slope, float z) {
  return ofDerivative ? neuronDerivative(neuron.type, neuron, slope, z)
                      : neuronValue(neuron.type, neuron, slope, z);
}
template <bool ofDerivative>
static __device__ __noinline__ float4 fourOfAny(NeuronNumbers neuron, float4 z) {
  float4 result{};
  withConstantType(neuron.type, [&](auto type) {
    const auto one = [&](float input) {
      return ofDerivative ? neuronDerivative(type(), neuron, 0.0F, input)
                          : neuronValue(type(), neuron, 0.0F, input);
    };
    result = {one(z.x), one(z.y), one(z.z), one(z.w)};
  });
  return result;
}
/// @}

/// The parameters of a call.
struct ChannelParameters {
  const float* gamma = nullptr;
  const float* beta = nullptr;
  const float* mean = nullptr;
  const float* variance = nullptr;
  double epsilon = 0;

  [[nodiscard]] __device__ double inverseDeviation(std::int64_t c) const {
    return 1 / sqrt(static_cast<double>(variance[c]) + epsilon);
  }
};

/// Numbers of the channels in device memory, rows of as many as the tensors have channels.
struct ChannelNumbers {
  enum Row { Mean, Scale, Beta, MeanGradient, Factor, Slope, Rows };
  float* memory = nullptr;
  std::int64_t channels = 0;

  [[nodiscard]] __device__ float* at(Row row, std::int64_t channel) const {
    return memory + row * channels + channel;
  }
};

/// Those of one row for a vector of channels.
template <int lanes>
struct VectorNumbers {
  float values[lanes];

  __device__ VectorNumbers(const ChannelNumbers& numbers, ChannelNumbers::Row row, std::uint32_t channel) {
    const float* const from = numbers.at(row, channel);
    if constexpr (lanes % 4 == 0) {
#pragma unroll
      for (int i = 0; i < lanes; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(from + i);
        values[i] = four.x;
        values[i + 1] = four.y;
        values[i + 2] = four.z;
        values[i + 3] = four.w;
      }
    } else {
      for (int i = 0; i < lanes; ++i) values[i] = from[i];
    }
  }
};

/// z, and the neuron behind it, of a vector of channels.
template <int lanes, FusedNeuron kind>
struct VectorFunction {
  static constexpr bool knowsFinite = kind == FusedNeuron::Kink;
  VectorNumbers<lanes> mean, scale, beta, slope;
  NeuronNumbers neuron;

  __device__ VectorFunction(const ChannelNumbers& numbers, std::uint32_t channel,
                            const NeuronNumbers& function)
      : mean(numbers, ChannelNumbers::Mean, channel),
        scale(numbers, ChannelNumbers::Scale, channel),
        beta(numbers, ChannelNumbers::Beta, channel),
        slope(numbers, ChannelNumbers::Slope, channel),
        neuron(function) {}

  [[nodiscard]] __device__ float z(int lane, float x) const {
    return (x - mean.values[lane]) * scale.values[lane] + beta.values[lane];
  }
  /// f(z), or f(z + addend)
  template <bool adds, class Values>
  [[nodiscard]] __device__ Values valuesOf(Values x, const Values& addend) const {
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      x.values[lane] = z(lane, x.values[lane]);
      if constexpr (adds) x.values[lane] = x.values[lane] + addend.values[lane];
      if constexpr (kind == FusedNeuron::Kink)
        x.values[lane] = kinkedLine(x.values[lane], slope.values[lane]);
      if constexpr (kIsSmooth<kind>)
        x.values[lane] = neuronValue(kSmoothType<kind>, neuron, 0.0F, x.values[lane]);
    }
    if constexpr (kind == FusedNeuron::Any) applyAny<false>(x.values);
    return x;
  }
  /// dy f'(z)
  template <class Values>
  [[nodiscard]] __device__ Values gradientsOf(const Values& dy, Values x) const {
    if constexpr (kind == FusedNeuron::None) {
      return dy;
    } else {
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        x.values[lane] = z(lane, x.values[lane]);
        if constexpr (kind == FusedNeuron::Kink)
          x.values[lane] = kinkedSlope(x.values[lane], slope.values[lane]);
        if constexpr (kIsSmooth<kind>)
          x.values[lane] = neuronDerivative(kSmoothType<kind>, neuron, 0.0F, x.values[lane]);
      }
      if constexpr (kind == FusedNeuron::Any) applyAny<true>(x.values);
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) x.values[lane] = dy.values[lane] * x.values[lane];
      return x;
    }
  }
  /// The same of ReLU and PReLU for finite float16, if watchNumbers() found none that is too large: without what a NaN
  /// would need.
  template <class Values>
  [[nodiscard]] __device__ Values gradientsOfFinite(const Values& dy, Values x) const {
    static_assert(knowsFinite);
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane)
      x.values[lane] = dy.values[lane] * (z(lane, x.values[lane]) < 0.0F ? slope.values[lane] : 1.0F);
    return x;
  }
  /// Numbers from 2^58 on count as infinite: with smaller ones neither z nor a gradient of float16 is too large.
  template <class Watch>
  __device__ void watchNumbers(Watch& watch) const {
    constexpr float factor = 0x1p70F;
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) {
      watch.see(factor * mean.values[lane]);
      watch.see(factor * scale.values[lane]);
      watch.see(factor * beta.values[lane]);
      watch.see(factor * slope.values[lane]);
    }
  }

 private:
  template <bool ofDerivative>
  __device__ void applyAny(float (&zs)[lanes]) const {
    if constexpr (lanes % 4 == 0) {
#pragma unroll
      for (int i = 0; i < lanes; i += 4) {
        const float4 four = fourOfAny<ofDerivative>(neuron, {zs[i], zs[i + 1], zs[i + 2], zs[i + 3]});
        zs[i] = four.x;
        zs[i + 1] = four.y;
        zs[i + 2] = four.z;
        zs[i + 3] = four.w;
      }
    } else {
      for (int i = 0; i < lanes; ++i) zs[i] = ofAny<ofDerivative>(neuron, slope.values[i], zs[i]);
    }
  }
};

/// One thread for each channel of the tensors. @param in of `channels` channels, which are repeated
/// @param slopes of PReLU, else null @param sums null: none
static __global__ void storeChannelNumbers(ChannelParameters in, std::int64_t channels, const float* slopes,
                                           float slope, const double* sums, double count,
                                           ChannelNumbers numbers) {
  const std::int64_t place = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (place >= numbers.channels) return;
  const std::int64_t c = place % channels;
  const double r = in.inverseDeviation(c);
  *numbers.at(ChannelNumbers::Mean, place) = in.mean[c];
  *numbers.at(ChannelNumbers::Scale, place) = static_cast<float>(static_cast<double>(in.gamma[c]) * r);
  *numbers.at(ChannelNumbers::Beta, place) = in.beta[c];
  *numbers.at(ChannelNumbers::Slope, place) = slopes == nullptr ? slope : slopes[c];
  if (sums == nullptr) return;
  *numbers.at(ChannelNumbers::MeanGradient, place) = static_cast<float>(sums[c] / count);
  *numbers.at(ChannelNumbers::Factor, place) = static_cast<float>(r * (sums[channels + c] / count));
}

struct NormalizeArguments {
  ChannelGrid grid;
  SourceView source;
  SourceView addend;
  ResultView destination;
  ChannelNumbers numbers;
  NeuronNumbers neuron;
};

template <class Access, FusedNeuron kind, bool adds>
__global__ void __launch_bounds__(ChannelGrid::kThreads, 2) normalizePixels(NormalizeArguments a) {
  constexpr int lanes = Access::lanes;
  const std::uint32_t vector = a.grid.vector();
  if (vector >= a.grid.vectors) return;
  const VectorFunction<lanes, kind> function(a.numbers, vector * lanes, a.neuron);
  if constexpr (adds)
    forEachPixel<Access, false, 2>(
        a.grid, vector * lanes, {a.source, a.addend},
        [&](const ElementPlace& place, const typename Access::Fetched(&fetched)[2]) {
          const typename Access::Values addend = Access::valuesOf(fetched[1]);
          Access::store(function.template valuesOf<true>(Access::valuesOf(fetched[0]), addend), a.destination,
                        place);
        });
  else
    forEachPixel<Access, false, 1>(
        a.grid, vector * lanes, {a.source},
        [&](const ElementPlace& place, const typename Access::Fetched(&fetched)[1]) {
          const typename Access::Values x = Access::valuesOf(fetched[0]);
          Access::store(function.template valuesOf<false>(x, x), a.destination, place);
        });
}

struct DataGradientArguments {
  ChannelGrid grid;
  SourceView gradient;
  SourceView source;  ///< memory null: it is not read
  ResultView destination;
  ChannelNumbers numbers;
  NeuronNumbers neuron;
  bool hasConstantStatistics = false;
  bool accumulate = false;
};

template <class Access, FusedNeuron kind>
__global__ void __launch_bounds__(ChannelGrid::kThreads, 2) gradientOfPixels(DataGradientArguments a) {
  constexpr int lanes = Access::lanes;
  const std::uint32_t vector = a.grid.vector();
  if (vector >= a.grid.vectors) return;
  const std::uint32_t channel = vector * lanes;
  const VectorFunction<lanes, kind> function(a.numbers, channel, a.neuron);
  // Of constant statistics there are no such rows; what stands in for them is not used.
  const auto rowOf = [&](ChannelNumbers::Row row) {
    return a.hasConstantStatistics ? ChannelNumbers::Mean : row;
  };
  const VectorNumbers<lanes> meanGradient(a.numbers, rowOf(ChannelNumbers::MeanGradient), channel);
  const VectorNumbers<lanes> factor(a.numbers, rowOf(ChannelNumbers::Factor), channel);
  forEachPixel<Access, false, 2>(a.grid, channel, {a.gradient, a.source},
                                 [&](const ElementPlace& place, const typename Access::Fetched(&fetched)[2]) {
                                   const typename Access::Values dy = Access::valuesOf(fetched[0]);
                                   const typename Access::Values x =
                                       a.source.memory == nullptr ? dy : Access::valuesOf(fetched[1]);
                                   typename Access::Values values = function.gradientsOf(dy, x);
#pragma unroll
                                   for (int lane = 0; lane < lanes; ++lane) {
                                     float g = values.values[lane];
                                     if (!a.hasConstantStatistics)
                                       g = fmaf(-(x.values[lane] - function.mean.values[lane]),
                                                factor.values[lane], g - meanGradient.values[lane]);
                                     values.values[lane] = g * function.scale.values[lane];
                                   }
                                   Access::store(values, a.destination, place, a.accumulate);
                                 });
}

// Sums over pixels, in float64
// -----------------------------------------------------------------------------------

/// sum g and sum g (x - mean) of each chunk. @tparam stores scale g, too, not to the memory of source or gradient
template <class Access, FusedNeuron kind, bool stores>
__global__ void __launch_bounds__(ChannelGrid::kThreads, 2)
    sumGradients(ChannelGrid grid, SourceView source, SourceView gradient, ChannelNumbers numbers,
                 NeuronNumbers neuron, ChunkSums sums, ResultView destination) {
  constexpr int lanes = Access::lanes;
  const std::uint32_t vector = grid.vector();
  const bool isInside = vector < grid.vectors;
  double first[lanes] = {};
  double second[lanes] = {};
  if (isInside) {
    const VectorFunction<lanes, kind> function(numbers, vector * lanes, neuron);
    double mean[lanes];
#pragma unroll
    for (int lane = 0; lane < lanes; ++lane) mean[lane] = static_cast<double>(function.mean.values[lane]);
    if constexpr (kind == FusedNeuron::None)
      addGradients<Access, false, true>(grid, source, gradient, mean, SameGradient(), first, second);
    else if constexpr (stores)
      addGradients<Access, false, (lanes > 1)>(grid, source, gradient, mean, function, first, second,
                                               [&](const ElementPlace& place, typename Access::Values g) {
#pragma unroll
                                                 for (int lane = 0; lane < lanes; ++lane)
                                                   g.values[lane] *= function.scale.values[lane];
                                                 Access::store(g, destination, place);
                                               });
    else
      addGradients<Access, false, (lanes > 1)>(grid, source, gradient, mean, function, first, second);
  }
  storeChunk(sums, vector, isInside, first, second);
}

/// Joins the chunks, and what was there before by Chan's formula; then what kernels and users read.
/// @param count of elements that `accumulated` has, 0: none @param added elements of each channel
static __global__ void __launch_bounds__(kJoinThreads)
    joinMoments(ChunkSums sums, std::int64_t channels, SourceView source, double count, double added,
                double* accumulated, float* mean, float* variance) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const JoinedSums<kJoinThreads> joined(sums, channels, c);
  if (threadIdx.y != 0 || c >= channels) return;
  double average = count > 0 ? accumulated[c] : 0;
  double squares = count > 0 ? accumulated[channels + c] : 0;
  if (added > 0) {
    const double quotient = joined.both[0] / added;
    const double ownAverage = shiftOf(source, 0, c) + quotient;
    const double ownSquares = joined.both[1] - joined.both[0] * quotient;
    const double part = added / (count + added);
    const double difference = ownAverage - average;
    average = count > 0 ? average + difference * part : ownAverage;
    squares = count > 0 ? squares + (ownSquares + difference * difference * (count * part)) : ownSquares;
  }
  accumulated[c] = average;
  accumulated[channels + c] = squares;
  mean[c] = static_cast<float>(average);
  const double quotient = squares / (count + added);
  variance[c] = static_cast<float>(quotient < 0 ? 0.0 : quotient);
}

struct JoinGradientArguments {
  ChunkSums sums;
  ChannelParameters in;
  std::int64_t channels = 0;
  bool accumulate = false;
  double* accumulated = nullptr;
  float* gammaGradient = nullptr;
  float* betaGradient = nullptr;
  float* statisticsGradients = nullptr;
};

static __global__ void __launch_bounds__(kJoinThreads) joinGradients(JoinGradientArguments a) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const JoinedSums<kJoinThreads> joined(a.sums, a.channels, c);
  if (threadIdx.y != 0 || c >= a.channels) return;
  const double r = a.in.inverseDeviation(c);
  const auto gamma = static_cast<double>(a.in.gamma[c]);
  const double sum = (a.accumulate ? a.accumulated[c] : 0) + joined.both[0];
  const double product = (a.accumulate ? a.accumulated[a.channels + c] : 0) + r * joined.both[1];
  a.accumulated[c] = sum;
  a.accumulated[a.channels + c] = product;
  a.gammaGradient[c] = static_cast<float>(product);
  a.betaGradient[c] = static_cast<float>(sum);
  a.statisticsGradients[c] = static_cast<float>(-gamma * r * sum);
  a.statisticsGradients[a.channels + c] = static_cast<float>(-gamma * r * r * product / 2);
}

}  // namespace mps::detail::cuda
