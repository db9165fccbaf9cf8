#include "mps/core/cpu/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/convolution/cpu/convolution_depthwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "mps/convolution/cpu/convolution_cpu.hpp"
#include "mps/convolution/cpu/convolution_staging.hpp"
#include "mps/core/cpu/array_sum.hpp"
#include "mps/core/cpu/vector_runs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {
namespace {

/// sums[c] += sum over i < count of gradient[i][c] * source[i][c], or of gradient[i][c] where source is null.
/// @param gradientStep, sourceStep elements from one pixel to the next
void addProducts(const float* gradient, std::int64_t gradientStep, const float* source,
                 std::int64_t sourceStep, std::int64_t count, std::size_t channels, float* sums) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto one = hn::Set(d, 1.0F);
  std::size_t c = 0;
  for (; c + 4 * lanes <= channels; c += 4 * lanes) {  // sums that do not wait for each other
    auto sum0 = hn::LoadU(d, sums + c);
    auto sum1 = hn::LoadU(d, sums + c + lanes);
    auto sum2 = hn::LoadU(d, sums + c + 2 * lanes);
    auto sum3 = hn::LoadU(d, sums + c + 3 * lanes);
    for (std::int64_t i = 0; i < count; ++i) {
      const float* const g = gradient + i * gradientStep + c;
      const float* const s = source == nullptr ? nullptr : source + i * sourceStep + c;
      const auto factor = [&](std::size_t k)
                              HWY_ATTR { return s == nullptr ? one : hn::LoadU(d, s + k * lanes); };
      sum0 = hn::MulAdd(hn::LoadU(d, g), factor(0), sum0);
      sum1 = hn::MulAdd(hn::LoadU(d, g + lanes), factor(1), sum1);
      sum2 = hn::MulAdd(hn::LoadU(d, g + 2 * lanes), factor(2), sum2);
      sum3 = hn::MulAdd(hn::LoadU(d, g + 3 * lanes), factor(3), sum3);
    }
    hn::StoreU(sum0, d, sums + c);
    hn::StoreU(sum1, d, sums + c + lanes);
    hn::StoreU(sum2, d, sums + c + 2 * lanes);
    hn::StoreU(sum3, d, sums + c + 3 * lanes);
  }
  forVectors(d, channels - c, [&](std::size_t k, auto some) {
    auto sum = some.load(d, sums + c + k);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto g = some.load(d, gradient + i * gradientStep + c + k);
      sum = source == nullptr ? hn::Add(g, sum)
                              : hn::MulAdd(g, some.load(d, source + i * sourceStep + c + k), sum);
    }
    some.store(d, sum, sums + c + k);
  });
}

}  // namespace
}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {
namespace {

HWY_EXPORT(addProducts);

/// Windows times channels whose products are added up before partial sums are.
constexpr std::int64_t kElementsPerChunk = 128 * 1024;
constexpr std::int64_t kMostChunks = 256;

std::size_t asSize(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

/// Rows of a tensor as float32: where they lie, or copies of the last few of them.
class InputRows {
 public:
  struct Layout {
    TensorShape tensor;
    std::int64_t rows = 0;  ///< copies that are kept; 0 where none are needed
    std::size_t values = 0;
    std::size_t held = 0;

    Layout() = default;
    /// @param span rows that are needed at the same time are less than that apart
    Layout(const TensorShape& shape, std::int64_t span, ScratchLayout& scratch) : tensor(shape) {
      if (shape.format == ImageFeatureChannelFormat::Float32) return;
      rows = std::min(span, shape.height);
      values = scratch.reserve(asSize(rows * shape.width * shape.channels) * sizeof(float));
      held = scratch.reserve(asSize(rows) * sizeof(std::int64_t));
    }
    /// Elements from one pixel of a row to the next.
    [[nodiscard]] std::int64_t pixel() const { return rows == 0 ? tensor.pixelStride : tensor.channels; }
  };

  InputRows(const Layout& layout, const std::byte* memory, std::byte* working)
      : layout_(layout),
        memory_(memory),
        values_(reinterpret_cast<float*>(working + layout.values)),
        held_(reinterpret_cast<std::int64_t*>(working + layout.held)) {
    std::fill_n(held_, layout.rows, -1);
  }

  const float* at(std::int64_t image, std::int64_t y) {
    const TensorShape& tensor = layout_.tensor;
    if (layout_.rows == 0) return reinterpret_cast<const float*>(memory_) + tensor.offset(image, y, 0, 0);
    float* const copy = values_ + y % layout_.rows * tensor.width * tensor.channels;
    std::int64_t& held = held_[y % layout_.rows];
    if (held != image * tensor.height + y) loadImageRow(tensor, memory_, image, y, copy);
    held = image * tensor.height + y;
    return copy;
  }

 private:
  const Layout& layout_;
  const std::byte* memory_;
  float* values_;
  std::int64_t* held_;
};

/// Windows [begin, end).
struct WindowRange {
  std::int64_t begin;
  std::int64_t end;
};

/// The windows whose tap lies in the source.
WindowRange windowsInside(const WindowAxis& axis, std::int64_t tap) {
  const std::int64_t first = axis.firstTap(0) + axis.dilation * tap;
  const auto windowsBefore = [&](std::int64_t pixel) {
    return pixel <= first ? 0
                          : std::min(axis.destinationSize, (pixel - first + axis.stride - 1) / axis.stride);
  };
  return {windowsBefore(0), windowsBefore(axis.sourceSize)};
}

/// Partial sums of chunks of rows of windows, which the number of threads does not change. Earns the weight gradients
/// of depth-wise convolutions: oneDNN's direct one takes no padding, and what it has instead 15 to 45 times as long.
class DepthwisePlan final : public Plan {
 public:
  explicit DepthwisePlan(const ConvolutionProblem& problem)
      : problem_(problem),
        channels_(problem.inputFeatureChannels),
        taps_(problem.y.kernelSize * problem.x.kernelSize),
        threads_(problem.threadCount > 0
                     ? problem.threadCount
                     : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))),
        rows_(problem.gradient.images * problem.gradient.height),
        chunks_(std::clamp<std::int64_t>(problem.gradient.elements() / kElementsPerChunk, 1,
                                         std::clamp<std::int64_t>(rows_, 1, kMostChunks))),
        sums_(scratch_.reserve(asSize(chunks_ * sumsPerChunk()) * sizeof(float))),
        source_(problem.source, problem.y.dilatedSize(), perThread_),
        gradient_(problem.gradient, 1, perThread_),
        working_(scratch_.reserve(perThread_.bytes() * asSize(threads_))) {}

  [[nodiscard]] std::size_t scratchBytes() const override { return scratch_.bytes(); }
  [[nodiscard]] bool canAccumulate() const override { return problem_.accumulate; }
  [[nodiscard]] std::string describe() const override { return "vectors of channels"; }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    auto* const sums = reinterpret_cast<float*>(operands.scratch + sums_);
    const std::int64_t parts = std::min<std::int64_t>(threads_, cpu.rangeCount(chunks_, 1));
    cpu.parallelFor(parts, 1, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t part = first; part < end; ++part) {
        std::byte* const working = operands.scratch + working_ + perThread_.bytes() * asSize(part);
        InputRows source(source_, operands.source, working);
        InputRows gradient(gradient_, operands.gradient, working);
        for (std::int64_t chunk = chunks_ * part / parts; chunk < chunks_ * (part + 1) / parts; ++chunk)
          sumChunk(source, gradient, chunk, sums + chunk * sumsPerChunk());
      }
    });
    sumArrays(cpu, sums, chunks_, sumsPerChunk(), sums, false);

    auto* const weights = reinterpret_cast<float*>(operands.parameters[2]);
    for (std::int64_t c = 0; c < channels_; ++c)
      for (std::int64_t tap = 0; tap < taps_; ++tap) {
        const float sum = sums[tap * channels_ + c];
        float& weight = weights[c * taps_ + tap];
        weight = operands.accumulate ? weight + sum : sum;
      }
    if (problem_.hasBias)
      sumArrays(cpu, sums + taps_ * channels_, 1, channels_, reinterpret_cast<float*>(operands.parameters[3]),
                operands.accumulate);
  }

 private:
  /// [kH][kW][channels] for the weights, [channels] for the biases.
  [[nodiscard]] std::int64_t sumsPerChunk() const { return (taps_ + 1) * channels_; }

  void sumChunk(InputRows& source, InputRows& gradient, std::int64_t chunk, float* sums) const {
    const WindowAxis& x = problem_.x;
    const WindowAxis& y = problem_.y;
    std::fill_n(sums, sumsPerChunk(), 0.0F);
    for (std::int64_t i = rows_ * chunk / chunks_; i < rows_ * (chunk + 1) / chunks_; ++i) {
      const std::int64_t image = i / y.destinationSize;
      const std::int64_t window = i % y.destinationSize;
      const float* const gradients = gradient.at(image, window);
      const auto add = [&](std::int64_t firstWindow, const float* from, std::int64_t count, float* to) {
        HWY_DYNAMIC_DISPATCH(addProducts)
        (gradients + firstWindow * gradient_.pixel(), gradient_.pixel(), from, x.stride * source_.pixel(),
         count, asSize(channels_), to);
      };
      if (problem_.hasBias) add(0, nullptr, x.destinationSize, sums + taps_ * channels_);
      for (std::int64_t q = y.firstInside(window); q < y.endInside(window); ++q) {
        const float* const pixels = source.at(image, y.firstTap(window) + y.dilation * q);
        for (std::int64_t p = 0; p < x.kernelSize; ++p) {
          const WindowRange inside = windowsInside(x, p);
          if (inside.begin >= inside.end) continue;
          const std::int64_t column = x.firstTap(inside.begin) + x.dilation * p;
          add(inside.begin, pixels + column * source_.pixel(), inside.end - inside.begin,
              sums + (q * x.kernelSize + p) * channels_);
        }
      }
    }
  }

  ConvolutionProblem problem_;
  std::int64_t channels_;
  std::int64_t taps_;
  int threads_;
  std::int64_t rows_;
  std::int64_t chunks_;
  ScratchLayout scratch_;
  ScratchLayout perThread_;
  std::size_t sums_;
  InputRows::Layout source_;
  InputRows::Layout gradient_;
  std::size_t working_;
};

}  // namespace

Preparation prepareConvolutionDepthwise(const ConvolutionProblem& problem) {
  if (problem.operation != ConvolutionOperation::WeightsGradient)
    return Refusal{"it is for weight gradients"};
  if (problem.sumsNothing()) return Refusal{kSumsNothing};
  if (problem.transposed) return Refusal{"the convolution is transposed"};
  if (problem.groups != problem.inputFeatureChannels || problem.groups != problem.outputFeatureChannels)
    return Refusal{"not each channel has one result of its own"};
  if (problem.edgeMode != ImageEdgeMode::Zero) return Refusal{"the edge mode is not Zero"};
  return std::make_shared<const DepthwisePlan>(problem);
}

}  // namespace mps::detail

#endif
