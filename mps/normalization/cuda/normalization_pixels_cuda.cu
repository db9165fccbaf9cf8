#include <cstdint>
#include <memory>
#include <type_traits>

#include "mps/normalization/cuda/normalization_channels_cuda.cuh"
#include "mps/normalization/cuda/normalization_cuda.hpp"

namespace mps::detail {
namespace {

using cuda::ElementGrid;
using cuda::ElementPlace;
using cuda::SourceView;

constexpr int kMostChannels = 4;

struct PixelArguments : cuda::ChannelWindows {
  static_assert(kMostChannels <= kFarthest);
  ElementGrid grid;  ///< over pixels
};

template <class T, int channels>
__device__ void loadPixel(const SourceView& view, const ElementPlace& place, float (&values)[channels]) {
  const T* const from = reinterpret_cast<const T*>(view.memory) + view.offset(place);
#pragma unroll
  for (int c = 0; c < channels; ++c) values[c] = cuda::load(from + c);
}

/// sums[c] = the sum of the terms of channels c - first to c + last.
template <int channels>
__device__ void sumChannels(const float (&terms)[channels], int first, int last, float (&sums)[channels]) {
#pragma unroll
  for (int c = 0; c < channels; ++c) {
    sums[c] = 0;
#pragma unroll
    for (int other = 0; other < channels; ++other)
      if (c - other <= first && other - c <= last) sums[c] += terms[other];
  }
}

/// X T^-beta; or dX = dY T^-beta - 2 alpha beta / size X (the sum of b = dY X T^(-beta - 1) of the windows that see it).
template <class T, int channels, bool isGradient>
__global__ void __launch_bounds__(mtl::cuda::kBlockThreads) normalizePixels(PixelArguments a) {
  const auto normalize = [&](int, const ElementPlace& place) {
    float x[channels];
    loadPixel<T>(a.source, place, x);
    float squares[channels];
#pragma unroll
    for (int c = 0; c < channels; ++c) squares[c] = x[c] * x[c];
    float t[channels];
    sumChannels(squares, a.before, a.after, t);
#pragma unroll
    for (float& value : t) value = fmaf(a.ofSquares, value, a.delta);
    float powers[channels];
    if constexpr (isGradient) {
      float dy[channels];
      loadPixel<T>(a.gradient, place, dy);
      float b[channels];
      cuda::bothNegativePowers(a.rule, t, powers, b, a.isNormal);
#pragma unroll
      for (int c = 0; c < channels; ++c) b[c] *= dy[c] * x[c];
      float sums[channels];
      sumChannels(b, a.after, a.before, sums);
#pragma unroll
      for (int c = 0; c < channels; ++c) x[c] = fmaf(-a.ofSum * x[c], sums[c], dy[c] * powers[c]);
    } else {
      cuda::negativePowers(a.rule, t, powers, a.isNormal);
#pragma unroll
      for (int c = 0; c < channels; ++c) x[c] *= powers[c];
    }
    T* const to = reinterpret_cast<T*>(a.destination.memory) + a.destination.offset(place);
#pragma unroll
    for (int c = 0; c < channels; ++c) cuda::store(a.accumulate ? cuda::load(to + c) + x[c] : x[c], to + c);
  };
  a.grid.forEachBatch<1, channels>([](int, const ElementPlace&) {}, normalize);
}

/// The windows of a pixel lie in the registers of its thread.
template <class T, int channels>
class PixelPlan final : public Plan {
 public:
  explicit PixelPlan(const NormalizationProblem& problem) : problem_(problem) {
    cuda::joinAxes(
        {&problem_.destination, &problem_.source, problem.isGradient() ? &problem_.gradient : nullptr},
        cuda::JoinedAxes::AllPixels);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& shape = problem_.destination;
    if (shape.elements() == 0) return;
    const PixelArguments a{{problem_, operands}, ElementGrid(shape, channels, 1)};
    mtl::cuda::launch(
        stream,
        problem_.isGradient() ? normalizePixels<T, channels, true> : normalizePixels<T, channels, false>,
        a.grid.grid(), a.grid.block(), 0, a);
  }

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.isGradient() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  NormalizationProblem problem_;  ///< with joined axes
};

}  // namespace

Preparation prepareNormalizationPixelsCuda(const NormalizationProblem& problem) {
  using Format = ImageFeatureChannelFormat;
  const TensorShape& destination = problem.destination;
  const TensorShape* const gradient = problem.isGradient() ? &problem.gradient : nullptr;
  if (problem.kind != NormalizationKind::CrossChannel) return Refusal{"windows of pixels"};
  if (destination.channels > kMostChannels) return Refusal{"more than four feature channels"};
  const Format format = cuda::commonFormat({&problem.source, &destination, gradient});
  if (format != Format::Float32 && format != Format::Float16)
    return Refusal{"not all float32 and not all float16"};
  for (const TensorShape* shape : {&problem.source, &destination, gradient})
    if (shape != nullptr && !ElementGrid::fits(*shape)) return Refusal{ElementGrid::kTooLarge};
  const auto with = [&](auto channels) -> Preparation {
    constexpr int count = decltype(channels)::value;
    if (format == Format::Float32) return std::make_shared<const PixelPlan<float, count>>(problem);
    return std::make_shared<const PixelPlan<Float16, count>>(problem);
  };
  switch (destination.channels) {
    case 1:
      return with(std::integral_constant<int, 1>{});
    case 2:
      return with(std::integral_constant<int, 2>{});
    case 3:
      return with(std::integral_constant<int, 3>{});
    default:
      return with(std::integral_constant<int, 4>{});
  }
}

}  // namespace mps::detail
