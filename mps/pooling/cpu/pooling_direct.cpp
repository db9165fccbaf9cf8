#include "mps/pooling/pooling_direct.hpp"

#include <algorithm>
#include <memory>

#include "mps/core/types/storage.hpp"
#include "mps/pooling/cpu/pooling_direct_cpu.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

/// Elements below which another thread does not pay.
constexpr std::int64_t kGrain = 4096;

struct CpuMemory {
  static float load(ImageFeatureChannelFormat format, const std::byte* memory, std::int64_t offset) {
    return withElementType(format, [&](auto element) {
      return loadFloat(reinterpret_cast<const decltype(element)*>(memory) + offset);
    });
  }
  static void store(float value, ImageFeatureChannelFormat format, std::byte* memory, std::int64_t offset) {
    withElementType(format, [&](auto element) {
      storeFloat(value, reinterpret_cast<decltype(element)*>(memory) + offset);
    });
  }
};

class DirectPlan final : public Plan {
 public:
  explicit DirectPlan(const PoolingProblem& problem) : problem_(problem) {}

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.direction == PoolingDirection::Gradient &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }
  [[nodiscard]] std::size_t scratchBytes() const override { return foundBytes(problem_); }
  void run(mtl::Stream& stream, const Operands& operands) const override {
    withPoolingOperation<CpuMath>(problem_.kind, [&](auto operation) {
      using Pooling = DirectPooling<decltype(operation), CpuMemory>;
      const Pooling pooling(problem_, operands);
      if (findsWindows(problem_)) visit(stream, problem_.gradient, pooling, &Pooling::find);
      visit(stream, problem_.destination, pooling,
            problem_.direction == PoolingDirection::Forward ? &Pooling::pool : &Pooling::gather);
    });
  }

 private:
  /// Images and rows are shared among threads.
  template <class Pooling>
  static void visit(mtl::Stream& stream, const TensorShape& shape, const Pooling& pooling,
                    void (Pooling::*element)(std::int64_t n, std::int64_t y, std::int64_t x, std::int64_t c)
                        const) {
    const std::int64_t rowElements = std::max<std::int64_t>(1, shape.width * shape.channels);
    const std::int64_t grain = (kGrain + rowElements - 1) / rowElements;
    mtl::cpu::asCpu(stream).parallelFor(
        shape.images * shape.height, grain, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t row = begin; row < end; ++row)
            for (std::int64_t x = 0; x < shape.width; ++x)
              for (std::int64_t c = 0; c < shape.channels; ++c)
                (pooling.*element)(row / shape.height, row % shape.height, x, c);
        });
  }

  PoolingProblem problem_;
};

}  // namespace

Preparation prepareDirectPooling(const PoolingProblem& problem) {
  return std::make_shared<const DirectPlan>(problem);
}

}  // namespace mps::detail
