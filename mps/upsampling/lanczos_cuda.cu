#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "mps/core/element_grid_cuda.cuh"
#include "mps/core/storage.hpp"
#include "mps/upsampling/lanczos_cuda.hpp"
#include "mps/upsampling/upsampling_samples.hpp"
#include "mps/upsampling/upsampling_shrink_cuda.hpp"
#include "mps/upsampling/upsampling_taps.hpp"
#include "mps/upsampling/upsampling_tiles_cuda.hpp"

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

constexpr unsigned kStripThreads = 128;
constexpr int kFewPixels = 7;  ///< of a result along a row: an enlargement
constexpr int kMostPixels = 12;

/// Of a result on an axis, for tiles: to an eighth of the size.
constexpr std::int64_t kMostTaps = 49;

struct StripArguments {
  Divider pieces;  ///< packs of a row
  Divider packs;   ///< of a pixel
  Divider chunks;  ///< of the rows of an image
  std::uint32_t items = 0;
  std::int32_t rowsPerChunk = 0;
  std::int32_t height = 0;
  LanczosTables x, y;
  SourceView input;
  ResultView destination;

  /// @return whether the numbers are small enough
  bool setGrid(const TensorShape& shape, std::int64_t lanes) {
    // Enough threads for a large GPU come first; each chunk begins with sums that the one before it has, too.
    constexpr std::int64_t threads = std::int64_t{1} << 18;
    const std::int64_t packsOfRow = shape.width * (shape.channels / lanes);
    const std::int64_t all = shape.images * packsOfRow;
    const std::int64_t rows = std::clamp<std::int64_t>(shape.height * all / threads, 16, 64);
    const std::int64_t count = (shape.height + rows - 1) / rows;
    rowsPerChunk = static_cast<std::int32_t>((shape.height + count - 1) / count);
    chunks = Divider((shape.height + rowsPerChunk - 1) / rowsPerChunk);
    pieces = Divider(packsOfRow);
    packs = Divider(shape.channels / lanes);
    height = static_cast<std::int32_t>(shape.height);
    if (all * chunks.divisor() > 0x7FFFFFFF - std::int64_t{kStripThreads}) return false;
    items = static_cast<std::uint32_t>(all * chunks.divisor());
    return true;
  }
};

/// A thread stays with a pack of channels of a column of results and goes down some rows. It keeps the sums along the rows
/// of the source, as many as a result takes, in shared memory.
/// @tparam most pixels of a result along a row
template <class T, int most>
__global__ void __launch_bounds__(kStripThreads, 4) scaleStrips(StripArguments a) {
  using Access = cuda::InPacks<T>;
  constexpr int lanes = Access::lanes;
  constexpr unsigned parts = lanes / 4;  // of 16 bytes that a sum has
  extern __shared__ float4 sums[];       // [slot][part][thread]
  const std::uint32_t item = blockIdx.x * kStripThreads + threadIdx.x;
  if (item >= a.items) return;
  const std::uint32_t strip = a.pieces.divide(item);
  const std::uint32_t piece = item - strip * a.pieces.divisor();
  const std::uint32_t image = a.chunks.divide(strip);
  const std::uint32_t x = a.packs.divide(piece);
  ElementPlace place{static_cast<std::int32_t>(image), 0, static_cast<std::int32_t>(x),
                     static_cast<std::int32_t>(piece - x * a.packs.divisor()) * lanes};
  place.y = static_cast<std::int32_t>(strip - image * a.chunks.divisor()) * a.rowsPerChunk;
  const std::int32_t end = min(place.y + a.rowsPerChunk, a.height);

  const PixelRange columns = a.x.ranges[x];
  float weights[most];
#pragma unroll
  for (int k = 0; k < most; ++k)
    weights[k] = k < columns.count ? a.x.weights[static_cast<std::int64_t>(x) * a.x.most + k] : 0.0F;
  const T* const from = reinterpret_cast<const T*>(a.input.memory) +
                        a.input.offset({place.image, 0, columns.first, place.channel});
  float4* const own = sums + threadIdx.x;
  const auto sumOf = [&](std::int32_t row, std::int32_t slot) {
    const T* const at = from + row * a.input.row;
    typename Access::Fetched fetched[most];
#pragma unroll
    for (int k = 0; k < most; ++k)
      if (weights[k] != 0)
        fetched[k] = *reinterpret_cast<const uint4*>(at + static_cast<std::int64_t>(k) * a.input.pixel);
    float sum[lanes] = {};
#pragma unroll
    for (int k = 0; k < most; ++k) {
      if (weights[k] == 0) continue;
      const typename Access::Values values = Access::valuesOf(fetched[k]);
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) sum[lane] = fmaf(weights[k], values.values[lane], sum[lane]);
    }
#pragma unroll
    for (unsigned part = 0; part < parts; ++part)
      own[(static_cast<unsigned>(slot) * parts + part) * kStripThreads] =
          float4{sum[4 * part], sum[4 * part + 1], sum[4 * part + 2], sum[4 * part + 3]};
  };

  // Rows whose sums are known. Beyond the edge results may take an earlier row than the result before.
  std::int32_t firstKnown = 1;
  std::int32_t known = 0;
  for (; place.y < end; ++place.y) {
    const PixelRange rows = a.y.ranges[place.y];
    const float* const rowWeights = a.y.weights + static_cast<std::int64_t>(place.y) * a.y.most;
    if (rows.first < firstKnown || rows.first > known) known = firstKnown = rows.first;
    for (; known < rows.first + rows.count; ++known) sumOf(known, known % a.y.most);
    typename Access::Values result{};
    std::int32_t slot = rows.first % a.y.most;
    for (std::int32_t k = 0; k < rows.count; ++k) {
      const float weight = rowWeights[k];
#pragma unroll
      for (unsigned part = 0; part < parts; ++part) {
        if (weight == 0) continue;
        const float4 sum = own[(static_cast<unsigned>(slot) * parts + part) * kStripThreads];
        float* const to = result.values + 4 * part;
        to[0] = fmaf(weight, sum.x, to[0]);
        to[1] = fmaf(weight, sum.y, to[1]);
        to[2] = fmaf(weight, sum.z, to[2]);
        to[3] = fmaf(weight, sum.w, to[3]);
      }
      slot = slot + 1 == a.y.most ? 0 : slot + 1;
    }
    Access::store(result, a.destination, place);
  }
}

/// @tparam T of the input's elements, which may lie anywhere
template <class T>
__global__ void scaleElements(ElementGrid grid, LanczosTables x, LanczosTables y, SourceView input,
                              ResultView destination) {
  grid.forEachBatch<1, 1>(
      [](int, const ElementPlace&) {},
      [&](int, const ElementPlace& place) {
        const PixelRange rows = y.ranges[place.y];
        const PixelRange columns = x.ranges[place.x];
        const float* const rowWeights = y.weights + static_cast<std::int64_t>(place.y) * y.most;
        const float* const columnWeights = x.weights + static_cast<std::int64_t>(place.x) * x.most;
        const T* from = reinterpret_cast<const T*>(input.memory) +
                        input.offset({place.image, rows.first, columns.first, place.channel});
        float sum = 0;
        for (std::int32_t row = 0; row < rows.count; ++row, from += input.row) {
          if (rowWeights[row] == 0) continue;
          float inRow = 0;
          const T* pixel = from;
#pragma unroll 4
          for (std::int32_t column = 0; column < columns.count; ++column, pixel += input.pixel) {
            const float weight = columnWeights[column];
            const float value = cuda::load(pixel);
            if (weight != 0) inRow = fmaf(weight, value, inRow);
          }
          sum = fmaf(rowWeights[row], inRow, sum);
        }
        cuda::OneByOne::store({{sum}}, destination, place);
      });
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

struct GatherArguments {
  LanczosTables x, y;
  PixelRange* columns = nullptr;  ///< for each destination column
  PixelRange* rows = nullptr;     ///< for each destination row
  std::int64_t originX = 0, originY = 0;
  SourceView gradient;
  ResultView destination;
  bool accumulate = false;
};

/// What a pixel counts in a result; 0: nothing.
__device__ inline float weightIn(const LanczosTables& tables, std::int32_t result, std::int64_t pixel) {
  const PixelRange range = tables.ranges[result];
  const std::int64_t k = pixel - range.first;
  return k >= 0 && k < range.count ? tables.weights[static_cast<std::int64_t>(result) * tables.most + k]
                                   : 0.0F;
}

/// @tparam T of the gradient's elements, which may lie anywhere
template <class T>
__global__ void gatherElements(ElementGrid grid, GatherArguments a) {
  grid.forEachBatch<1, 1>([](int, const ElementPlace&) {},
                          [&](int, const ElementPlace& place) {
                            const PixelRange rows = a.rows[place.y];
                            const PixelRange columns = a.columns[place.x];
                            const auto* const gradient = reinterpret_cast<const T*>(a.gradient.memory);
                            float sum = 0;
                            for (std::int32_t row = rows.first; row < rows.first + rows.count; ++row) {
                              const float rowWeight = weightIn(a.y, row, place.y + a.originY);
                              if (rowWeight == 0) continue;
                              float inRow = 0;
                              for (std::int32_t column = columns.first;
                                   column < columns.first + columns.count; ++column) {
                                const float weight = weightIn(a.x, column, place.x + a.originX);
                                if (weight == 0) continue;
                                const ElementPlace from{place.image, row, column, place.channel};
                                inRow = fmaf(weight, cuda::load(gradient + a.gradient.offset(from)), inRow);
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

class LanczosPlan final : public Plan {
 public:
  explicit LanczosPlan(const UpsamplingProblem& problem) : problem_(problem), tiles_(makeTiles(problem)) {}

  [[nodiscard]] std::size_t scratchBytes() const override {
    const std::size_t tables = tablesOf(problem_.x, problem_.destination.width).bytes() +
                               tablesOf(problem_.y, problem_.destination.height).bytes();
    return tiles_ ? std::max(tables, tiles_->scratchBytes()) : tables;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.destination.elements() == 0) return;
    if (tiles_ && tiles_->run(stream, operands.source, operands)) return;
    const LanczosTables x = placed(tablesOf(problem_.x, problem_.destination.width), operands.scratch);
    const LanczosTables y =
        placed(tablesOf(problem_.y, problem_.destination.height), operands.scratch + x.bytes());
    const LanczosArguments tables{problem_.edgeMode, {problem_.x, problem_.y}, {x, y}};
    launchTables(stream, tables);
    const auto format = cuda::commonFormat({&problem_.input, &problem_.destination});
    if (format == ImageFeatureChannelFormat::Float32 && runStrips<float>(stream, operands, x, y)) return;
    if (format == ImageFeatureChannelFormat::Float16 && runStrips<Float16>(stream, operands, x, y)) return;
    const ElementGrid grid(problem_.destination, 1, 1);
    withElementType(problem_.input.format, [&](auto element) {
      mtl::cuda::launch(stream, scaleElements<decltype(element)>, grid.grid(), grid.block(), 0, grid, x, y,
                        SourceView(problem_.input, operands.source),
                        ResultView(problem_.destination, operands.destination));
    });
  }

 private:
  /// @return whether tensors and scale allow that; otherwise nothing was done
  template <class T>
  bool runStrips(mtl::Stream& stream, const Operands& operands, const LanczosTables& x,
                 const LanczosTables& y) const {
    StripArguments a;
    if (!cuda::takesLanes(problem_.input, operands.source) ||
        !cuda::takesLanes(problem_.destination, operands.destination) ||
        std::max(x.most, y.most) > kMostPixels || !a.setGrid(problem_.destination, cuda::kLanes<T>))
      return false;
    a.x = x;
    a.y = y;
    a.input = {problem_.input, operands.source};
    a.destination = {problem_.destination, operands.destination};
    const std::size_t sharedBytes =
        static_cast<std::size_t>(y.most) * cuda::kLanes<T> * kStripThreads * sizeof(float);
    const auto kernel = x.most <= kFewPixels ? scaleStrips<T, kFewPixels> : scaleStrips<T, kMostPixels>;
    mtl::cuda::launch(stream, kernel, dim3(mtl::cuda::blocksFor(a.items, kStripThreads)), dim3(kStripThreads),
                      sharedBytes, a);
    return true;
  }

  static std::unique_ptr<const cuda::TilePlan> makeTiles(const UpsamplingProblem& problem) {
    const auto rows = tapsOf(problem, problem.y, problem.destination.height);
    const auto columns = tapsOf(problem, problem.x, problem.destination.width);
    auto tiles = cuda::TilePlan::make(problem.input, problem.destination, rows, columns);
    return tiles ? std::move(tiles) : cuda::makeShrinkPlan(problem.input, problem.destination, rows, columns);
  }
  /// Nothing, where they are more than tiles have.
  static std::vector<cuda::AxisTaps> tapsOf(const UpsamplingProblem& problem, const UpsamplingAxis& axis,
                                            std::int64_t results) {
    std::vector<cuda::AxisTaps> taps;
    if (mostLanczosSamples(axis) > kMostTaps || results > cuda::TilePlan::kLongestAxis) return taps;
    for (std::int64_t i = 0; i < results; ++i) {
      const LanczosSamples samples = lanczosSamples(problem.edgeMode, axis, i);
      double sum = 0;
      for (std::int64_t pixel = samples.first; pixel < samples.end; ++pixel)
        sum += lanczosWeight(samples, pixel);
      std::vector<float> weights;
      for (std::int64_t pixel = samples.first; pixel < samples.end; ++pixel)
        weights.push_back(static_cast<float>(lanczosWeight(samples, pixel) / sum));
      taps.emplace_back(samples.first, std::move(weights));
    }
    return taps;
  }

  UpsamplingProblem problem_;
  std::unique_ptr<const cuda::TilePlan> tiles_;  ///< null: none takes that
};

class LanczosGradientPlan final : public Plan {
 public:
  explicit LanczosGradientPlan(const UpsamplingProblem& problem) : problem_(problem) {
    const TensorShape& input = problem.input;
    const TensorShape& destination = problem.destination;
    for (const std::int64_t size : {input.height, input.width, destination.height, destination.width})
      if (size > cuda::TilePlan::kLongestAxis) return;
    const auto rows = tapsOf(upsamplingRowTaps(problem), destination.height);
    const auto columns = tapsOf(upsamplingColumnTaps(problem), destination.width);
    tiles_ = cuda::TilePlan::make(input, destination, rows, columns);
    if (!tiles_) shrink_ = cuda::makeShrinkPlan(input, destination, rows, columns);
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    std::size_t bytes =
        readersAt() + static_cast<std::size_t>(problem_.destination.height + problem_.destination.width) *
                          sizeof(PixelRange);
    for (const auto* plan : {tiles_.get(), shrink_.get()})
      if (plan != nullptr) bytes = std::max(bytes, plan->scratchBytes());
    return bytes;
  }
  [[nodiscard]] bool canAccumulate() const override {
    return problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.destination.elements() == 0) return;
    if (tiles_ && tiles_->run(stream, operands.gradient, operands)) return;
    // That kernel cannot add to what the destination holds.
    if (shrink_ && !operands.accumulate && shrink_->run(stream, operands.gradient, operands)) return;
    GatherArguments a;
    a.x = placed(tablesOf(problem_.x, problem_.input.width), operands.scratch);
    a.y = placed(tablesOf(problem_.y, problem_.input.height), operands.scratch + a.x.bytes());
    a.columns = reinterpret_cast<PixelRange*>(operands.scratch + readersAt());
    a.rows = a.columns + problem_.destination.width;
    a.originX = problem_.x.destinationOrigin;
    a.originY = problem_.y.destinationOrigin;
    a.gradient = {problem_.input, operands.gradient};
    a.destination = {problem_.destination, operands.destination};
    a.accumulate = operands.accumulate;
    const LanczosArguments tables{problem_.edgeMode, {problem_.x, problem_.y}, {a.x, a.y}};
    if (std::max(a.x.results, a.y.results) > 0) launchTables(stream, tables);
    const std::int64_t longest = std::max(problem_.destination.width, problem_.destination.height);
    const ReaderTables readers{{a.columns, a.rows},
                               {static_cast<std::int32_t>(problem_.destination.width),
                                static_cast<std::int32_t>(problem_.destination.height)}};
    mtl::cuda::launch(stream, fillReaders, dim3(mtl::cuda::blocksFor(longest), 2),
                      dim3(mtl::cuda::kBlockThreads), 0, tables, readers);
    const ElementGrid grid(problem_.destination, 1, 1);
    withElementType(problem_.input.format, [&](auto element) {
      mtl::cuda::launch(stream, gatherElements<decltype(element)>, grid.grid(), grid.block(), 0, grid, a);
    });
  }

 private:
  /// Where the tables of destination positions begin in the working memory.
  [[nodiscard]] std::size_t readersAt() const {
    return tablesOf(problem_.x, problem_.input.width).bytes() +
           tablesOf(problem_.y, problem_.input.height).bytes();
  }
  /// Nothing, where a position has more than tiles have.
  static std::vector<cuda::AxisTaps> tapsOf(const UpsamplingTaps& all, std::int64_t destinations) {
    std::vector<cuda::AxisTaps> taps;
    for (std::int64_t i = 0; i < destinations; ++i) {
      if (all.span(i) > kMostTaps) return {};
      std::vector<float> weights(static_cast<std::size_t>(all.span(i)));
      const std::int64_t first = weights.empty() ? 0 : all.begin(i)->input;
      for (const UpsamplingTap* tap = all.begin(i); tap != all.end(i); ++tap)
        weights[static_cast<std::size_t>(tap->input - first)] = tap->weight;
      taps.emplace_back(first, std::move(weights));
    }
    return taps;
  }

  UpsamplingProblem problem_;
  // Null: they do not take that.
  std::unique_ptr<const cuda::TilePlan> tiles_;
  std::unique_ptr<const cuda::TilePlan> shrink_;
};

}  // namespace

Preparation prepareLanczosCuda(const UpsamplingProblem& problem) {
  for (const TensorShape* shape : {&problem.input, &problem.destination})
    if (!ElementGrid::fits(*shape)) return Refusal{ElementGrid::kTooLarge};
  if (problem.direction == UpsamplingDirection::Gradient)
    return std::make_shared<const LanczosGradientPlan>(problem);
  return std::make_shared<const LanczosPlan>(problem);
}

}  // namespace mps::detail
