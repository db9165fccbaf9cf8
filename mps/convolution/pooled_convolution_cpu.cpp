#include <cmath>
#include <memory>
#include <string_view>

#include "mps/convolution/convolution_cpu.hpp"
#include "mps/convolution/pooled_convolution.hpp"
#include "mps/convolution/scratch_layout.hpp"
#include "mps/core/storage.hpp"

namespace mps::detail {
namespace {

/// The convolution alone on scratch memory, and its maxima.
class PlainPooledPlan final : public Plan {
 public:
  PlainPooledPlan(const PooledConvolutionProblem& problem, const ConvolutionProblem& dense,
                  std::shared_ptr<const Plan> convolution)
      : problem_(problem),
        shape_(dense.operation == ConvolutionOperation::Forward ? dense.destination : dense.gradient),
        convolution_(std::move(convolution)),
        result_(scratch_.reserve(static_cast<std::size_t>(shape_.bytes()))),
        rest_(scratch_.reserve(convolution_->scratchBytes())) {}

  [[nodiscard]] std::size_t scratchBytes() const override { return scratch_.bytes(); }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    Operands dense = operands;
    dense.saved = nullptr;
    dense.scratch = operands.scratch + rest_;
    if (problem_.convolution.operation == ConvolutionOperation::Forward) {
      dense.destination = operands.scratch + result_;
      convolution_->run(stream, dense);
      return pool(reinterpret_cast<const float*>(dense.destination), operands);
    }
    unpool(operands, reinterpret_cast<float*>(operands.scratch + result_));
    dense.gradient = operands.scratch + result_;
    convolution_->run(stream, dense);
  }

 private:
  /// Calls visit(element of the pooled tensor, its place in saved, element of the result that window tap 0 is).
  template <class Visit>
  void forEachMaximum(Visit visit) const {
    const TensorShape& p = problem_.pooled;
    std::int64_t place = 0;
    for (std::int64_t n = 0; n < p.images; ++n)
      for (std::int64_t y = 0; y < p.height; ++y)
        for (std::int64_t x = 0; x < p.width; ++x)
          for (std::int64_t k = 0; k < p.channels; ++k)
            visit(p.offset(n, y, x, k), place++, shape_.offset(n, 2 * y, 2 * x, k));
  }
  [[nodiscard]] std::int64_t offsetOfTap(int tap) const {
    return tap / 2 * shape_.rowStride + tap % 2 * shape_.pixelStride;
  }

  void pool(const float* result, const Operands& operands) const {
    withElementType(problem_.pooled.format, [&](auto element) {
      auto* const to = reinterpret_cast<decltype(element)*>(operands.destination);
      forEachMaximum([&](std::int64_t written, std::int64_t place, std::int64_t first) {
        float best = result[first];
        int chosen = 0;
        for (int tap = 1; tap < 4; ++tap) {
          const float value = result[first + offsetOfTap(tap)];
          if (value <= best || std::isnan(best)) continue;
          best = value;
          chosen = tap;
        }
        const bool isCutOff = std::signbit(best) && !std::isnan(best);
        storeFloat(best, to + written);
        if (operands.saved != nullptr)
          operands.saved[place] = static_cast<std::byte>(isCutOff ? kNoPlace : chosen);
      });
    });
  }

  void unpool(const Operands& operands, float* gradient) const {
    withElementType(problem_.pooled.format, [&](auto element) {
      const auto* const from = reinterpret_cast<const decltype(element)*>(operands.gradient);
      forEachMaximum([&](std::int64_t read, std::int64_t place, std::int64_t first) {
        for (int tap = 0; tap < 4; ++tap)
          gradient[first + offsetOfTap(tap)] =
              std::to_integer<int>(operands.saved[place]) == tap ? loadFloat(from + read) : 0.0F;
      });
    });
  }

  PooledConvolutionProblem problem_;
  TensorShape shape_;  ///< of the convolution's result or gradient
  std::shared_ptr<const Plan> convolution_;
  ScratchLayout scratch_;
  std::size_t result_;
  std::size_t rest_;
};

Preparation preparePlain(const PooledConvolutionProblem& problem) {
  ConvolutionProblem dense = problem.convolution;
  TensorShape& shape = dense.operation == ConvolutionOperation::Forward ? dense.destination : dense.gradient;
  shape = TensorShape::dense(shape.images, shape.height, shape.width, shape.channels,
                             ImageFeatureChannelFormat::Float32);
  Preparation convolution = prepareConvolutionPlain(dense);
  auto* const plan = std::get_if<std::shared_ptr<const Plan>>(&convolution);
  if (plan == nullptr) return convolution;
  return std::make_shared<const PlainPooledPlan>(problem, dense, std::move(*plan));
}

}  // namespace

std::span<const Implementation<PooledConvolutionProblem>> pooledConvolutionImplementationsCpu() {
  static constexpr Implementation<PooledConvolutionProblem> implementations[] = {
      {kPlainPooled, preparePlain}};
  return implementations;
}

}  // namespace mps::detail
