#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "mps/core/plan/fallback_plan.hpp"
#include "mps/core/types/storage.hpp"
#include "mps/upsampling/cuda/upsampling_cuda.cuh"
#include "mps/upsampling/cuda/upsampling_cuda.hpp"
#include "mps/upsampling/upsampling_samples.hpp"

namespace mps::detail {
namespace {

using cuda::Divider;
using cuda::ElementGrid;
using cuda::ElementPlace;
using cuda::ResultView;
using cuda::SourceView;

constexpr int kWarp = 32;

/// The source pixels of a result on one axis.
struct alignas(8) PixelRange {
  std::int32_t first;
  std::int32_t count;
};

/// The tables of one axis.
struct LanczosTables {
  PixelRange* ranges = nullptr;
  float* weights = nullptr;  ///< `most` for each result
  std::int32_t results = 0;
  std::int32_t most = 0;

  [[nodiscard]] std::size_t bytes() const {
    const std::size_t floats = static_cast<std::size_t>(results) * static_cast<std::size_t>(most);
    // Whole ranges, so that the next axis's are aligned.
    return (static_cast<std::size_t>(results) + (floats + 1) / 2) * sizeof(PixelRange);
  }
};

struct LanczosArguments {
  ImageEdgeMode edgeMode;
  UpsamplingAxis axes[2];
  LanczosTables tables[2];
};

/// One warp for each result of both axes; blockIdx.y is the axis.
__global__ void fillLanczosTables(LanczosArguments a) {
  const UpsamplingAxis& axis = a.axes[blockIdx.y];
  const LanczosTables& tables = a.tables[blockIdx.y];
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (i >= tables.results) return;
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const LanczosSamples samples = lanczosSamples(a.edgeMode, axis, axis.firstResult + i);
  double sum = 0;
  for (std::int64_t first = samples.first; first < samples.end; first += kWarp) {
    const double weight = first + lane < samples.end ? lanczosWeight(samples, first + lane) : 0;
    for (int other = 0; other < kWarp; ++other) sum += __shfl_sync(0xFFFFFFFFU, weight, other);
  }
  float* const weights = tables.weights + i * tables.most;
  for (std::int64_t pixel = samples.first + lane; pixel < samples.end; pixel += kWarp)
    weights[pixel - samples.first] = static_cast<float>(lanczosWeight(samples, pixel) / sum);
  if (lane == 0)
    tables.ranges[i] = {static_cast<std::int32_t>(samples.first),
                        static_cast<std::int32_t>(samples.end - samples.first)};
}

/// The results that a destination position of a gradient takes shares of, on both axes.
struct ReaderTables {
  PixelRange* ranges[2];
  std::int32_t destinations[2];
};

/// One thread for each destination position of both axes; blockIdx.y is the axis.
__global__ void fillReaders(LanczosArguments a, ReaderTables readers) {
  const UpsamplingAxis& axis = a.axes[blockIdx.y];
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= readers.destinations[blockIdx.y]) return;
  const std::int64_t pixel = i + axis.destinationOrigin;
  LanczosReaders found;
  if (pixel >= 0 && pixel < axis.sourceSize)
    found = lanczosReaders(axis, pixel, a.tables[blockIdx.y].results);
  readers.ranges[blockIdx.y][i] = {static_cast<std::int32_t>(found.begin),
                                   static_cast<std::int32_t>(found.end - found.begin)};
}

/// What a pixel counts in a result; 0: nothing.
__device__ inline float weightIn(const LanczosTables& tables, std::int32_t result, std::int64_t pixel) {
  const PixelRange range = tables.ranges[result];
  const std::int64_t k = pixel - range.first;
  return k >= 0 && k < range.count ? tables.weights[static_cast<std::int64_t>(result) * tables.most + k]
                                   : 0.0F;
}

/// What results are sums of on one axis.
struct ResultTaps {
  LanczosTables tables;

  [[nodiscard]] __device__ PixelRange range(std::int32_t at) const { return tables.ranges[at]; }
  /// What the k-th input of a range counts.
  [[nodiscard]] __device__ float weight(std::int32_t at, const PixelRange& /*range*/, std::int32_t k) const {
    return tables.weights[static_cast<std::int64_t>(at) * tables.most + k];
  }
};
/// What gradients of the source are sums of.
struct GradientTaps {
  LanczosTables tables;
  const PixelRange* readers = nullptr;
  std::int64_t origin = 0;

  [[nodiscard]] __device__ PixelRange range(std::int32_t at) const { return readers[at]; }
  [[nodiscard]] __device__ float weight(std::int32_t at, const PixelRange& range, std::int32_t k) const {
    return weightIn(tables, range.first + k, at + origin);
  }
};

template <class Taps>
struct SlidingArguments {
  Divider columns;  ///< threads of a row
  Divider pixel;    ///< threads of a pixel
  Divider chunks;   ///< of the rows of an image
  std::uint32_t items = 0;
  std::int32_t rowsPerChunk = 0;
  std::int32_t height = 0;
  std::int32_t slots = 0;  ///< rows of the input whose sums a thread keeps
  Taps x, y;
  SourceView input;
  ResultView destination;
  bool accumulate = false;

  /// @return whether the numbers are small enough
  bool setGrid(const TensorShape& shape, std::int64_t lanes) {
    // Enough threads for a large GPU come first; each chunk begins with sums that the one before it has, too.
    constexpr std::int64_t threads = std::int64_t{1} << 18;
    constexpr std::int64_t mostThreads = 128;  // of a block
    const std::int64_t threadsOfRow = shape.width * (shape.channels / lanes);
    const std::int64_t all = shape.images * threadsOfRow;
    const std::int64_t rows = std::clamp<std::int64_t>(shape.height * all / threads, 16, 64);
    const std::int64_t count = (shape.height + rows - 1) / rows;
    rowsPerChunk = static_cast<std::int32_t>((shape.height + count - 1) / count);
    chunks = Divider((shape.height + rowsPerChunk - 1) / rowsPerChunk);
    columns = Divider(threadsOfRow);
    pixel = Divider(shape.channels / lanes);
    height = static_cast<std::int32_t>(shape.height);
    if (all * chunks.divisor() > 0x7FFFFFFF - mostThreads) return false;
    items = static_cast<std::uint32_t>(all * chunks.divisor());
    return true;
  }
};

template <class T>
__device__ uint4 fetchAt(cuda::InVectors<T> /*access*/, const T* from) {
  return *reinterpret_cast<const uint4*>(from);
}
template <class T>
__device__ cuda::OneByOne::Values fetchAt(cuda::OneOf<T> /*access*/, const T* from) {
  return {{cuda::load(from)}};
}

constexpr int kFewTaps =
    12;  ///< along a row: an image of half the size, or the gradient of one of twice the size

/// A thread stays with some channels of a column of the destination and goes down some rows. It keeps the sums along the
/// rows of the input, as many as a position takes, in shared memory.
/// @tparam Access how it reads and writes elements of type T @tparam most taps along a row; 0: any number
template <class Access, class T, class Taps, int most>
__global__ void __launch_bounds__(128, 4)
    sumSlidingWindows(const __grid_constant__ SlidingArguments<Taps> a) {
  constexpr int lanes = Access::lanes;
  extern __shared__ uint4 memory[];
  auto* const sums = reinterpret_cast<float*>(memory);  // [slot][lane / together][thread][lane % together]
  constexpr int together = lanes < 4 ? lanes : 4;
  const std::uint32_t item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= a.items) return;
  const std::uint32_t chunk = a.columns.divide(item);
  const std::uint32_t ofRow = item - chunk * a.columns.divisor();
  const std::uint32_t image = a.chunks.divide(chunk);
  const auto x = static_cast<std::int32_t>(a.pixel.divide(ofRow));
  ElementPlace place{
      static_cast<std::int32_t>(image), 0, x,
      static_cast<std::int32_t>(ofRow - static_cast<std::uint32_t>(x) * a.pixel.divisor()) * lanes};
  place.y = static_cast<std::int32_t>(chunk - image * a.chunks.divisor()) * a.rowsPerChunk;
  const std::int32_t end = min(place.y + a.rowsPerChunk, a.height);

  const PixelRange columns = a.x.range(x);
  float weights[most > 0 ? most : 1];
  if constexpr (most > 0) {
#pragma unroll
    for (int k = 0; k < most; ++k) weights[k] = k < columns.count ? a.x.weight(x, columns, k) : 0.0F;
  }
  const T* const from = reinterpret_cast<const T*>(a.input.memory) +
                        a.input.offset({place.image, 0, columns.first, place.channel});
  const auto slotOf = [&](std::int32_t slot, int lane) {
    return sums +
           ((static_cast<unsigned>(slot) * (lanes / together) + static_cast<unsigned>(lane / together)) *
                blockDim.x +
            threadIdx.x) *
               together;
  };
  const auto sumRow = [&](std::int32_t row, std::int32_t slot) {
    const T* const at = from + row * a.input.row;
    typename Access::Values sum{};
    if constexpr (most > 0) {
      typename Access::Fetched fetched[most];
#pragma unroll
      for (int k = 0; k < most; ++k)
        if (weights[k] != 0)
          fetched[k] = fetchAt(Access(), at + static_cast<std::int64_t>(k) * a.input.pixel);
#pragma unroll
      for (int k = 0; k < most; ++k)
        if (weights[k] != 0) cuda::addWeighted(sum, weights[k], Access::valuesOf(fetched[k]));
    } else {
#pragma unroll 4
      for (std::int32_t k = 0; k < columns.count; ++k) {
        const float weight = a.x.weight(x, columns, k);
        const auto fetched = fetchAt(Access(), at + static_cast<std::int64_t>(k) * a.input.pixel);
        if (weight != 0) cuda::addWeighted(sum, weight, Access::valuesOf(fetched));
      }
    }
#pragma unroll
    for (int lane = 0; lane < lanes; lane += together)
      if constexpr (together == 4)
        *reinterpret_cast<float4*>(slotOf(slot, lane)) =
            float4{sum.values[lane], sum.values[lane + 1], sum.values[lane + 2], sum.values[lane + 3]};
      else
        *slotOf(slot, lane) = sum.values[lane];
  };

  // Rows whose sums are known. Beyond the edge results may take an earlier row than the result before.
  std::int32_t firstKnown = 1;
  std::int32_t known = 0;
  for (; place.y < end; ++place.y) {
    const PixelRange rows = a.y.range(place.y);
    if (rows.first < firstKnown || rows.first > known) known = firstKnown = rows.first;
    for (; known < rows.first + rows.count; ++known) sumRow(known, known % a.slots);
    typename Access::Values result{};
    std::int32_t slot = rows.first % a.slots;
    for (std::int32_t k = 0; k < rows.count; ++k) {
      const float weight = a.y.weight(place.y, rows, k);
      if (weight != 0) {
#pragma unroll
        for (int lane = 0; lane < lanes; lane += together) {
          if constexpr (together == 4) {
            const float4 sum = *reinterpret_cast<const float4*>(slotOf(slot, lane));
            float* const to = result.values + lane;
            to[0] = fmaf(weight, sum.x, to[0]);
            to[1] = fmaf(weight, sum.y, to[1]);
            to[2] = fmaf(weight, sum.z, to[2]);
            to[3] = fmaf(weight, sum.w, to[3]);
          } else {
            result.values[lane] = fmaf(weight, *slotOf(slot, lane), result.values[lane]);
          }
        }
      }
      slot = slot + 1 == a.slots ? 0 : slot + 1;
    }
    Access::store(result, a.destination, place, a.accumulate);
  }
}

/// @tparam T of the input's elements, which may lie anywhere
template <class T, class Taps>
__global__ void sumElements(ElementGrid grid, const __grid_constant__ SlidingArguments<Taps> a) {
  grid.forEachBatch<1, 1>(
      [](int, const ElementPlace&) {},
      [&](int, const ElementPlace& place) {
        const PixelRange rows = a.y.range(place.y);
        const PixelRange columns = a.x.range(place.x);
        const T* from = reinterpret_cast<const T*>(a.input.memory) +
                        a.input.offset({place.image, rows.first, columns.first, place.channel});
        float sum = 0;
        for (std::int32_t row = 0; row < rows.count; ++row, from += a.input.row) {
          const float rowWeight = a.y.weight(place.y, rows, row);
          if (rowWeight == 0) continue;
          float inRow = 0;
          const T* pixel = from;
#pragma unroll 4
          for (std::int32_t column = 0; column < columns.count; ++column, pixel += a.input.pixel) {
            const float weight = a.x.weight(place.x, columns, column);
            const float value = cuda::load(pixel);
            if (weight != 0) inRow = fmaf(weight, value, inRow);
          }
          sum = fmaf(rowWeight, inRow, sum);
        }
        cuda::OneByOne::store({{sum}}, a.destination, place, a.accumulate);
      });
}

/// Sizes alone.
LanczosTables tablesOf(const UpsamplingAxis& axis, std::int64_t results) {
  LanczosTables tables;
  tables.results = static_cast<std::int32_t>(results);
  tables.most = static_cast<std::int32_t>(mostLanczosSamples(axis));
  return tables;
}
LanczosTables placed(LanczosTables tables, std::byte* memory) {
  tables.ranges = reinterpret_cast<PixelRange*>(memory);
  tables.weights = reinterpret_cast<float*>(tables.ranges + tables.results);
  return tables;
}

/// Computes both tables of a call; there are results.
void launchTables(mtl::Stream& stream, const LanczosArguments& tables) {
  const std::int64_t longest = std::max(tables.tables[0].results, tables.tables[1].results);
  mtl::cuda::launch(stream, fillLanczosTables, dim3(mtl::cuda::blocksFor(kWarp * longest), 2),
                    dim3(mtl::cuda::kBlockThreads), 0, tables);
}

/// The most inputs that a position of the destination is a sum of, on one axis.
std::int64_t mostTapsOf(const UpsamplingProblem& problem, const UpsamplingAxis& axis, std::int64_t inputs,
                        std::int64_t destinations) {
  if (problem.direction == UpsamplingDirection::Forward) return mostLanczosSamples(axis);
  std::int64_t most = 1;
  for (std::int64_t i = 0; i < destinations; ++i) {
    const std::int64_t pixel = i + axis.destinationOrigin;
    if (pixel < 0 || pixel >= axis.sourceSize) continue;
    const LanczosReaders readers = lanczosReaders(axis, pixel, inputs);
    most = std::max(most, readers.end - readers.begin);
  }
  return most;
}

class LanczosPlan : public SelectivePlan {
 public:
  explicit LanczosPlan(const UpsamplingProblem& problem) : problem_(problem) {}

  [[nodiscard]] std::size_t scratchBytes() const override {
    if (isForward()) return readersAt();
    return readersAt() + static_cast<std::size_t>(problem_.destination.height + problem_.destination.width) *
                             sizeof(PixelRange);
  }
  [[nodiscard]] bool canAccumulate() const override {
    return !isForward() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 protected:
  [[nodiscard]] const UpsamplingProblem& problem() const { return problem_; }
  [[nodiscard]] const std::byte* inputOf(const Operands& operands) const {
    return isForward() ? operands.source : operands.gradient;
  }
  /// Puts the tables into the scratch memory and calls start(what all kernels have in common).
  template <class Start>
  void begin(mtl::Stream& stream, const Operands& operands, Start&& start) const {
    const TensorShape& results = isForward() ? problem_.destination : problem_.input;
    const LanczosTables x = placed(tablesOf(problem_.x, results.width), operands.scratch);
    const LanczosTables y = placed(tablesOf(problem_.y, results.height), operands.scratch + x.bytes());
    const LanczosArguments tables{problem_.edgeMode, {problem_.x, problem_.y}, {x, y}};
    if (std::max(x.results, y.results) > 0) launchTables(stream, tables);
    if (isForward()) return start(argumentsFor<ResultTaps>(operands, {x}, {y}));
    auto* const columns = reinterpret_cast<PixelRange*>(operands.scratch + readersAt());
    PixelRange* const rows = columns + problem_.destination.width;
    const ReaderTables readers{{columns, rows},
                               {static_cast<std::int32_t>(problem_.destination.width),
                                static_cast<std::int32_t>(problem_.destination.height)}};
    const std::int64_t longest = std::max(problem_.destination.width, problem_.destination.height);
    mtl::cuda::launch(stream, fillReaders, dim3(mtl::cuda::blocksFor(longest), 2),
                      dim3(mtl::cuda::kBlockThreads), 0, tables, readers);
    start(argumentsFor<GradientTaps>(operands, {x, columns, problem_.x.destinationOrigin},
                                     {y, rows, problem_.y.destinationOrigin}));
  }

 private:
  [[nodiscard]] bool isForward() const { return problem_.direction == UpsamplingDirection::Forward; }
  /// Where the tables of destination positions begin in the scratch memory.
  [[nodiscard]] std::size_t readersAt() const {
    const TensorShape& results = isForward() ? problem_.destination : problem_.input;
    return tablesOf(problem_.x, results.width).bytes() + tablesOf(problem_.y, results.height).bytes();
  }
  template <class Taps>
  [[nodiscard]] SlidingArguments<Taps> argumentsFor(const Operands& operands, const Taps& x,
                                                    const Taps& y) const {
    SlidingArguments<Taps> a;
    a.x = x;
    a.y = y;
    a.input = {problem_.input, inputOf(operands)};
    a.destination = {problem_.destination, operands.destination};
    a.accumulate = operands.accumulate;
    return a;
  }

  UpsamplingProblem problem_;
};

class LanczosElementPlan final : public LanczosPlan {
 public:
  using LanczosPlan::LanczosPlan;

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem().destination.elements() == 0) return;
    begin(stream, operands, [&]<class Taps>(const SlidingArguments<Taps>& a) {
      const ElementGrid grid(problem().destination, 1, 1);
      withElementType(problem().input.format, [&](auto element) {
        mtl::cuda::launch(stream, sumElements<decltype(element), Taps>, grid.grid(), grid.block(), 0, grid,
                          a);
      });
    });
  }
};

constexpr std::int64_t kMostSharedBytes = std::int64_t{48} << 10;  ///< of a block, which it has unasked

/// @tparam Access how a thread reads and writes elements of type T
template <class Access, class T>
class SlidingPlan final : public LanczosPlan {
 public:
  explicit SlidingPlan(const UpsamplingProblem& problem)
      : LanczosPlan(problem),
        mostColumns_(mostTapsOf(problem, problem.x, problem.input.width, problem.destination.width)),
        slots_(mostTapsOf(problem, problem.y, problem.input.height, problem.destination.height)) {
    for (threads_ = 128; threads_ > 32 && sharedBytes() > kMostSharedBytes;) threads_ /= 2;
  }
  [[nodiscard]] bool fits() const {
    SlidingArguments<ResultTaps> a;
    return sharedBytes() <= kMostSharedBytes &&
           (problem().destination.elements() == 0 || a.setGrid(problem().destination, Access::lanes));
  }
  [[nodiscard]] std::string describe() const override {
    return Access::lanes == 1 ? "one channel per thread" : "16 bytes per thread";
  }
  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    if (Access::lanes == 1) return {};
    return objectionToUnaligned({inputOf(operands), operands.destination});
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem().destination.elements() == 0) return;
    begin(stream, operands, [&]<class Taps>(SlidingArguments<Taps> a) {
      a.setGrid(problem().destination, Access::lanes);
      a.slots = static_cast<std::int32_t>(slots_);
      const auto kernel = mostColumns_ <= kFewTaps ? sumSlidingWindows<Access, T, Taps, kFewTaps>
                                                   : sumSlidingWindows<Access, T, Taps, 0>;
      mtl::cuda::launch(stream, kernel, dim3((a.items + threads_ - 1) / threads_), dim3(threads_),
                        static_cast<std::size_t>(sharedBytes()), a);
    });
  }

 private:
  [[nodiscard]] std::int64_t sharedBytes() const {
    return slots_ * Access::lanes * static_cast<std::int64_t>(threads_ * sizeof(float));
  }

  std::int64_t mostColumns_;
  std::int64_t slots_;
  unsigned threads_ = 0;
};

/// With 16 bytes of a pixel per thread where shared memory has room for the sums of as many channels.
template <class T>
Preparation prepareSliding(const UpsamplingProblem& problem) {
  if (takesLanes(problem.input) && takesLanes(problem.destination)) {
    auto plan = std::make_shared<const SlidingPlan<cuda::InVectors<T>, T>>(problem);
    if (plan->fits()) return withFallback(std::move(plan), upsamplingImplementationsCuda().back(), problem);
  }
  auto plan = std::make_shared<const SlidingPlan<cuda::OneOf<T>, T>>(problem);
  if (!plan->fits()) return Refusal{"sums of more rows than shared memory has room for"};
  return plan;
}

}  // namespace

Preparation prepareSlidingLanczosCuda(const UpsamplingProblem& problem) {
  if (problem.sampling != UpsamplingSampling::LanczosScale) return Refusal{"not Lanczos"};
  for (const TensorShape* shape : {&problem.input, &problem.destination})
    if (!ElementGrid::fits(*shape)) return Refusal{ElementGrid::kTooLarge};
  const ImageFeatureChannelFormat format = cuda::commonFormat({&problem.input, &problem.destination});
  if (format == ImageFeatureChannelFormat::Float32) return prepareSliding<float>(problem);
  if (format == ImageFeatureChannelFormat::Float16) return prepareSliding<Float16>(problem);
  return Refusal{"not all float32 and not all float16"};
}

Preparation prepareLanczosElementsCuda(const UpsamplingProblem& problem) {
  for (const TensorShape* shape : {&problem.input, &problem.destination})
    if (!ElementGrid::fits(*shape)) return Refusal{ElementGrid::kTooLarge};
  return std::make_shared<const LanczosElementPlan>(problem);
}

}  // namespace mps::detail
