#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/cpu/non_temporal_stores.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/pooling/cpu/pooling_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include "mps/pooling/cpu/pooling_gradient-inl.hpp"
#include "mps/pooling/cpu/pooling_windows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// A tile of windows without indices: straight to the destination where that is possible.
template <class Operation, class T>
void combineTile(const PoolingProblem& problem, WindowRows<Operation>& windows, std::int64_t begin,
                 std::int64_t end, T* to, bool stream) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, Float16>) {
    if (isDirect(problem.destination))
      return windows.combine(begin, end, Target<T>{to, stream && isAlignedToVectors(to)});
  }
  windows.combine(begin, end, Target<float>{windows.result()});
  storePixels(windows.result(), to, asSize(problem.destination.pixelStride), asSize(end - begin),
              asSize(problem.destination.channels));
}

template <class Operation, class T>
void chooseTile(const PoolingProblem& problem, WindowRows<Operation>& windows, std::int64_t begin,
                std::int64_t end, T* to, std::byte* saved, bool stream) {
  const std::size_t length = asSize((end - begin) * problem.destination.channels);
  windows.choose(begin, end);
  saveIndices(problem, windows.indices(), saved, length);
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, Float16>) {
    if (isDirect(problem.destination))
      return storeRun(windows.result(), Target<T>{to, stream && isAlignedToVectors(to)}, length);
  }
  storePixels(windows.result(), to, asSize(problem.destination.pixelStride), asSize(end - begin),
              asSize(problem.destination.channels));
}

void poolRows(const PoolingProblem& problem, const WindowRowsLayout& layout, const Operands& operands,
              bool stream, std::int64_t firstRow, std::int64_t endRow, std::byte* scratch) {
  WorkingMemory memory(scratch);
  const TensorShape& shape = problem.destination;
  const auto indexBytes = static_cast<std::int64_t>(problem.indexBytes());
  const auto poolRow = [&](auto& windows, std::int64_t row) {
    const std::int64_t image = row / shape.height;
    const std::int64_t y = row % shape.height;
    windows.selectRow({operands.source, &problem.source, image}, y);
    for (std::int64_t begin = 0; begin < shape.width; begin += layout.tileWindows) {
      const std::int64_t end = std::min(begin + layout.tileWindows, shape.width);
      withElementType(shape.format, [&](auto element) {
        using T = decltype(element);
        T* const to = reinterpret_cast<T*>(operands.destination) + shape.offset(image, y, begin, 0);
        if constexpr (std::remove_reference_t<decltype(windows)>::kSelects)
          if (problem.saveIndices)
            return chooseTile(problem, windows, begin, end, to,
                              operands.saved + (row * shape.width + begin) * shape.channels * indexBytes,
                              stream);
        combineTile(problem, windows, begin, end, to, stream);
      });
    }
  };
  withPoolingOperation<VectorMath>(problem.kind, [&](auto operation) {
    WindowRows<decltype(operation)> windows(problem, layout, memory);
    for (std::int64_t row = firstRow; row < endRow; ++row) poolRow(windows, row);
  });
  hwy::FlushStream();
}

void poolGradientRows(const PoolingProblem& problem, const GradientRowsLayout& layout,
                      const Operands& operands, bool stream, std::int64_t firstRow, std::int64_t endRow,
                      std::byte* scratch) {
  WorkingMemory memory(scratch);
  withPoolingOperation<VectorMath>(problem.kind, [&](auto operation) {
    GradientRows<decltype(operation)> rows(problem, layout, operands, stream, memory);
    std::int64_t current = -1;
    for (std::int64_t row = firstRow; row < endRow; ++row) {
      const std::int64_t image = row / problem.destination.height;
      if (image != current) rows.select(image);
      current = image;
      rows.compute(row % problem.destination.height);
    }
  });
  hwy::FlushStream();
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <array>
#include <thread>

#include "mps/pooling/cpu/pooling_direct_cpu.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

HWY_EXPORT(poolRows);
HWY_EXPORT(poolGradientRows);

/// Elements below which another thread does not pay.
constexpr std::int64_t kGrain = 16384;
/// Working memory of a thread is not larger than this.
constexpr std::size_t kLargestWorkingBytes = std::size_t{1} << 23U;

/// The destination's rows, in parts that threads take; each part has its own working memory.
class RowPlan : public Plan {
 public:
  RowPlan(const PoolingProblem& problem, std::size_t workingBytes)
      : problem_(problem),
        rows_(problem.destination.images * problem.destination.height),
        workingBytes_(workingBytes) {
    // A few parts for each processor, so that any number of threads shares them evenly.
    const auto most = std::int64_t{4} * std::max(1U, std::thread::hardware_concurrency());
    const std::int64_t elements = std::max(problem.source.elements(), problem.destination.elements());
    parts_ = std::clamp<std::int64_t>(elements / kGrain, 1, std::max<std::int64_t>(1, std::min(rows_, most)));
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::asCpu(stream).parallelFor(parts_, 1, [&](std::int64_t begin, std::int64_t end) {
      // Parts that one thread takes are neighbours: one range of rows, with the first part's memory.
      std::byte* const working = operands.scratch + static_cast<std::size_t>(begin) * workingBytes_;
      runRows(operands, rows_ * begin / parts_, rows_ * end / parts_, working);
    });
  }
  [[nodiscard]] std::size_t scratchBytes() const override {
    return static_cast<std::size_t>(parts_) * workingBytes_;
  }

 protected:
  virtual void runRows(const Operands& operands, std::int64_t begin, std::int64_t end,
                       std::byte* working) const = 0;
  [[nodiscard]] const PoolingProblem& problem() const { return problem_; }
  [[nodiscard]] bool streams() const {
    return usesNonTemporalStoresForRows(problem_.source.bytes() + problem_.destination.bytes(),
                                        problem_.destination);
  }

 private:
  PoolingProblem problem_;
  std::int64_t rows_;
  std::size_t workingBytes_;
  std::int64_t parts_ = 1;
};

class ForwardPlan final : public RowPlan {
 public:
  ForwardPlan(const PoolingProblem& problem, WindowRowsLayout layout, std::size_t workingBytes)
      : RowPlan(problem, workingBytes), layout_(std::move(layout)) {}

  static WindowRowsLayout layout(const PoolingProblem& problem) {
    return windowRowsLayout(problem, problem.saveIndices);
  }
  static std::size_t workingBytes(const PoolingProblem& /*problem*/, const WindowRowsLayout& layout) {
    WorkingMemory memory;
    WindowRowsMemory(layout, memory);
    return memory.bytes();
  }

 protected:
  void runRows(const Operands& operands, std::int64_t begin, std::int64_t end,
               std::byte* working) const override {
    HWY_DYNAMIC_DISPATCH(poolRows)(problem(), layout_, operands, streams(), begin, end, working);
  }

 private:
  WindowRowsLayout layout_;
};

class GradientPlan final : public RowPlan {
 public:
  GradientPlan(const PoolingProblem& problem, GradientRowsLayout layout, std::size_t workingBytes)
      : RowPlan(problem, workingBytes), layout_(std::move(layout)) {}

  static GradientRowsLayout layout(const PoolingProblem& problem) { return gradientRowsLayout(problem); }
  static std::size_t workingBytes(const PoolingProblem& problem, const GradientRowsLayout& layout) {
    WorkingMemory memory;
    GradientRowsMemory(layout, problem, memory);
    if (layout.needsWindowRows) WindowRowsMemory(layout.windowRows, memory);
    return memory.bytes();
  }
  [[nodiscard]] bool canAccumulate() const override {
    return problem().destination.format == ImageFeatureChannelFormat::Float32;
  }

 protected:
  void runRows(const Operands& operands, std::int64_t begin, std::int64_t end,
               std::byte* working) const override {
    HWY_DYNAMIC_DISPATCH(poolGradientRows)(problem(), layout_, operands, streams(), begin, end, working);
  }

 private:
  GradientRowsLayout layout_;
};

template <class RowsPlan>
Preparation prepareRows(const PoolingProblem& problem) {
  auto layout = RowsPlan::layout(problem);
  const std::size_t bytes = RowsPlan::workingBytes(problem, layout);
  if (bytes > kLargestWorkingBytes)
    return Refusal{"a window's rows need " + std::to_string(bytes) + " bytes of working memory"};
  return std::make_shared<const RowsPlan>(problem, std::move(layout), bytes);
}

/// Earns the poolings of all networks; "direct" is for windows whose rows leave the working memory.
Preparation prepareVectors(const PoolingProblem& problem) {
  return problem.direction == PoolingDirection::Forward ? prepareRows<ForwardPlan>(problem)
                                                        : prepareRows<GradientPlan>(problem);
}

constexpr std::array<Implementation<PoolingProblem>, 2> kImplementations{{
    {"vectors", prepareVectors},
    {"direct", prepareDirectPooling},
}};

}  // namespace

std::span<const Implementation<PoolingProblem>> poolingImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail

#endif
