#include "mps/core/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/pooling/pooling_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/pooling/pooling_gradient-inl.hpp"
#include "mps/pooling/pooling_windows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Calls body(image, y) for the rows [begin, end) of a stack of images; newImage(image) comes first.
template <class NewImage, class Body>
void forEachRow(std::int64_t begin, std::int64_t end, std::int64_t height, const NewImage& newImage,
                const Body& body) {
  std::int64_t current = -1;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t image = row / height;
    if (image != current) newImage(image);
    current = image;
    body(image, row % height);
  }
}

template <class T>
void storeWindows(const PoolingProblem& problem, const float* from, Plane destination, std::int64_t y,
                  std::int64_t channels, std::byte* memory) {
  const TensorShape& shape = problem.destination;
  T* const to =
      reinterpret_cast<T*>(memory) + shape.offset(destination.image, y, 0, destination.firstChannel);
  storePixels(from, to, asSize(shape.pixelStride), asSize(shape.width), asSize(channels));
}

template <class Index>
void storeSaved(const PoolingProblem& problem, const std::int32_t* from, Plane plane, std::int64_t y,
                std::int64_t channels, std::byte* memory) {
  const std::int64_t width = problem.x.destinationSize;
  const std::int64_t allChannels = problem.source.channels;
  auto* to = reinterpret_cast<Index*>(memory) +
             (plane.image * problem.y.destinationSize + y) * width * allChannels + plane.firstChannel;
  if (channels == allChannels) return storeIndices(from, to, asSize(width * channels));
  for (std::int64_t x = 0; x < width; ++x)
    storeIndices(from + x * channels, to + x * allChannels, asSize(channels));
}

void poolRows(const PoolingProblem& problem, const WindowRowsLayout& layout, const Operands& operands,
              std::int64_t begin, std::int64_t end, std::byte* scratch) {
  WorkingMemory memory(scratch);
  WindowRows windows(problem, layout, memory);
  const TensorShape& shape = problem.destination;
  for (std::int64_t c = 0; c < shape.channels; c += layout.channels) {
    const std::int64_t channels = std::min(layout.channels, shape.channels - c);
    // Dense float32 rows need no copy.
    const bool direct = shape.format == ImageFeatureChannelFormat::Float32 && shape.pixelStride == channels;
    forEachRow(
        begin, end, shape.height,
        [&](std::int64_t image) {
          windows.select({operands.source, &problem.source, image, c}, channels);
        },
        [&](std::int64_t image, std::int64_t y) {
          const Plane plane{operands.source, &problem.source, image, c};
          float* const to =
              direct ? reinterpret_cast<float*>(operands.destination) + shape.offset(image, y, 0, c)
                     : windows.result();
          windows.compute(y, to);
          if (!direct) {
            withElementType(shape.format, [&](auto element) {
              storeWindows<decltype(element)>(problem, to, plane, y, channels, operands.destination);
            });
          }
          if (!problem.saveIndices) return;
          switch (problem.indexBytes()) {
            case 1:
              return storeSaved<std::uint8_t>(problem, windows.indices(), plane, y, channels, operands.saved);
            case 2:
              return storeSaved<std::uint16_t>(problem, windows.indices(), plane, y, channels,
                                               operands.saved);
            default:
              return storeSaved<std::int32_t>(problem, windows.indices(), plane, y, channels, operands.saved);
          }
        });
  }
}

void poolGradientRows(const PoolingProblem& problem, const GradientRowsLayout& layout,
                      const Operands& operands, std::int64_t begin, std::int64_t end, std::byte* scratch) {
  WorkingMemory memory(scratch);
  GradientRows rows(problem, layout, operands, memory);
  for (std::int64_t c = 0; c < problem.destination.channels; c += layout.channels) {
    const std::int64_t channels = std::min(layout.channels, problem.destination.channels - c);
    forEachRow(
        begin, end, problem.destination.height, [&](std::int64_t image) { rows.select(image, c, channels); },
        [&](std::int64_t, std::int64_t y) { rows.compute(y); });
  }
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <array>
#include <thread>

#include "mps/pooling/pooling_plain.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

HWY_EXPORT(poolRows);
HWY_EXPORT(poolGradientRows);

/// Elements below which another thread does not pay.
constexpr std::int64_t kGrain = 16384;
/// Working memory of a thread should stay in its second-level cache, and must not be larger than this.
constexpr std::size_t kWishedWorkingBytes = std::size_t{1} << 19U;
constexpr std::size_t kLargestWorkingBytes = std::size_t{1} << 23U;
/// Channels are split into passes of a multiple of this: whole cache lines of every format.
constexpr std::int64_t kChannelStep = 64;

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

  static WindowRowsLayout layout(const PoolingProblem& problem, std::int64_t channels) {
    return windowRowsLayout(problem, problem.saveIndices, channels);
  }
  static std::size_t workingBytes(const WindowRowsLayout& layout) {
    WorkingMemory memory;
    WindowRowsMemory(layout, memory);
    return memory.bytes();
  }

 protected:
  void runRows(const Operands& operands, std::int64_t begin, std::int64_t end,
               std::byte* working) const override {
    HWY_DYNAMIC_DISPATCH(poolRows)(problem(), layout_, operands, begin, end, working);
  }

 private:
  WindowRowsLayout layout_;
};

class GradientPlan final : public RowPlan {
 public:
  GradientPlan(const PoolingProblem& problem, GradientRowsLayout layout, std::size_t workingBytes)
      : RowPlan(problem, workingBytes), layout_(std::move(layout)) {}

  static GradientRowsLayout layout(const PoolingProblem& problem, std::int64_t channels) {
    return gradientRowsLayout(problem, channels);
  }
  static std::size_t workingBytes(const GradientRowsLayout& layout) {
    WorkingMemory memory;
    GradientRowsMemory(layout, memory);
    if (layout.needsWindowRows) WindowRowsMemory(layout.windowRows, memory);
    return memory.bytes();
  }
  [[nodiscard]] bool canAccumulate() const override {
    return problem().destination.format == ImageFeatureChannelFormat::Float32;
  }

 protected:
  void runRows(const Operands& operands, std::int64_t begin, std::int64_t end,
               std::byte* working) const override {
    HWY_DYNAMIC_DISPATCH(poolGradientRows)(problem(), layout_, operands, begin, end, working);
  }

 private:
  GradientRowsLayout layout_;
};

/// All channels in one pass, unless a thread's working memory would become too large for its cache.
template <class RowsPlan>
Preparation prepareRows(const PoolingProblem& problem) {
  std::int64_t channels = std::max<std::int64_t>(1, problem.source.channels);
  while (true) {
    auto layout = RowsPlan::layout(problem, channels);
    const std::size_t bytes = RowsPlan::workingBytes(layout);
    if (bytes <= kWishedWorkingBytes || channels <= kChannelStep) {
      if (bytes > kLargestWorkingBytes)
        return Refusal{"the rows that a window covers need " + std::to_string(bytes) +
                       " bytes of working memory"};
      return std::make_shared<const RowsPlan>(problem, std::move(layout), bytes);
    }
    channels = (channels / 2 + kChannelStep - 1) / kChannelStep * kChannelStep;
  }
}

Preparation prepareVectors(const PoolingProblem& problem) {
  return problem.direction == PoolingDirection::Forward ? prepareRows<ForwardPlan>(problem)
                                                        : prepareRows<GradientPlan>(problem);
}

constexpr std::array<Implementation<PoolingProblem>, 2> kImplementations{{
    {"vectors", prepareVectors},
    {"plain", preparePlainPooling},
}};

}  // namespace

std::span<const Implementation<PoolingProblem>> poolingImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail

#endif
