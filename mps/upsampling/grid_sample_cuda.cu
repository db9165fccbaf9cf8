#include <cfloat>
#include <cstdint>
#include <memory>

#include "mps/core/element_grid_cuda.cuh"
#include "mps/upsampling/grid_sample_problem.hpp"
#include "mps/upsampling/upsampling_cuda.cuh"

namespace mps::detail {
namespace {

using cuda::addWeighted;
using cuda::Divider;
using cuda::ElementGrid;
using cuda::ElementPlace;
using cuda::OneByOne;
using cuda::ResultView;
using cuda::SourceView;

constexpr unsigned kThreads = mtl::cuda::kBlockThreads;
constexpr std::int64_t kMostChannels = std::int64_t{1} << 23;
constexpr std::uint32_t kPixels = kThreads / 2;  ///< of a block: a thread for each of both axes

struct GridSampleArguments {
  GridSampleProblem problem;
  SourceView source;
  SourceView grid;
  ResultView destination;
  Divider width, height;
  Divider packs;  ///< of a pixel
  std::uint32_t pixels = 0;

  /// A pixel of the destination, counted through all images.
  [[nodiscard]] __device__ ElementPlace placeOf(std::uint32_t pixel) const {
    const std::uint32_t row = width.divide(pixel);
    const std::uint32_t image = height.divide(row);
    return {static_cast<std::int32_t>(image), static_cast<std::int32_t>(row - image * height.divisor()),
            static_cast<std::int32_t>(pixel - row * width.divisor()), 0};
  }
};

/// GridTaps as threads hand them on.
struct alignas(16) SharedTaps {
  std::int32_t pixels[2];
  float weights[2];
};

/// The positions of some pixels first, which take long, then their packs of channels.
template <class Access>
__global__ void __launch_bounds__(kThreads) sampleByGrid(const __grid_constant__ GridSampleArguments a) {
  using Values = typename Access::Values;
  __shared__ SharedTaps shared[kThreads];  // [pixel][axis]
  const std::uint32_t first = blockIdx.x * kPixels;
  const std::uint32_t count = min(kPixels, a.pixels - first);
  if (threadIdx.x < 2 * count) {
    const bool isX = threadIdx.x % 2 == 0;
    ElementPlace place = a.placeOf(first + threadIdx.x / 2);
    place.channel = isX ? 0 : 1;
    const GridTaps taps = gridTaps(
        a.problem, OneByOne::load(a.grid, place).values[0], isX ? place.x : place.y,
        isX ? a.problem.source.width : a.problem.source.height, isX ? a.problem.offsetX : a.problem.offsetY);
    shared[threadIdx.x] = {
        {static_cast<std::int32_t>(taps.pixels[0]), static_cast<std::int32_t>(taps.pixels[1])},
        {taps.weights[0], taps.weights[1]}};
  }
  __syncthreads();
  for (std::uint32_t item = threadIdx.x; item < count * a.packs.divisor(); item += kThreads) {
    const std::uint32_t pixel = a.packs.divide(item);
    ElementPlace place = a.placeOf(first + pixel);
    place.channel = static_cast<std::int32_t>(item - pixel * a.packs.divisor()) * Access::lanes;
    const SharedTaps columns = shared[2 * pixel];
    const SharedTaps rows = shared[2 * pixel + 1];
    typename Access::Fetched fetched[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        if (rows.weights[i] != 0 && columns.weights[j] != 0)
          fetched[i][j] =
              Access::fetch(a.source, {place.image, rows.pixels[i], columns.pixels[j], place.channel});
    Values sum{};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (rows.weights[i] == 0) continue;
      Values inRow{};
#pragma unroll
      for (int j = 0; j < 2; ++j)
        if (columns.weights[j] != 0) addWeighted(inRow, columns.weights[j], Access::valuesOf(fetched[i][j]));
      addWeighted(sum, rows.weights[i], inRow);
    }
    Access::store(sum, a.destination, place);
  }
}

/// Where a pixel's four neighbours lie, in packs from the beginning of the source, and what each counts; 0: nothing, it is
/// not looked at.
struct SharedPixel {
  uint4 packs;
  float4 weights;
};

/// Tensors of whole packs of elements of type T.
struct PackedGridArguments {
  GridSampleArguments sample;
  std::uint32_t sourceImage = 0, sourceRow = 0, sourcePixel = 0;  ///< packs from one to the next
  std::uint32_t destinationImage = 0, destinationRow = 0, destinationPixel = 0;

  /// @return whether 32 bits count all packs
  bool setStrides(const TensorShape& source, const TensorShape& destination, std::int64_t lanes) {
    constexpr std::int64_t most = 0xFFFFFFFF;
    for (const TensorShape* shape : {&source, &destination})
      if ((shape->images * shape->imageStride + shape->height * shape->rowStride +
           shape->width * shape->pixelStride + shape->channels) /
              lanes >
          most)
        return false;
    const auto packs = [&](std::int64_t stride) { return static_cast<std::uint32_t>(stride / lanes); };
    sourceImage = packs(source.imageStride);
    sourceRow = packs(source.rowStride);
    sourcePixel = packs(source.pixelStride);
    destinationImage = packs(destination.imageStride);
    destinationRow = packs(destination.rowStride);
    destinationPixel = packs(destination.pixelStride);
    return true;
  }
};

/// Both axes' positions of some pixels, then what their packs need of these, then the packs.
template <class T>
__global__ void __launch_bounds__(kThreads)
    samplePacksByGrid(const __grid_constant__ PackedGridArguments packed) {
  const GridSampleArguments& a = packed.sample;
  __shared__ SharedPixel pixels[kPixels];
  __shared__ std::uint32_t places[kPixels];  // packs of the destination
  const std::uint32_t first = blockIdx.x * kPixels;
  const std::uint32_t count = min(kPixels, a.pixels - first);
  // Two adjacent threads have the axes of a pixel.
  const std::uint32_t own = min(threadIdx.x / 2, count - 1);
  const bool isX = threadIdx.x % 2 == 0;
  ElementPlace place = a.placeOf(first + own);
  place.channel = isX ? 0 : 1;
  const GridTaps taps = gridTaps(a.problem, OneByOne::load(a.grid, place).values[0], isX ? place.x : place.y,
                                 isX ? a.problem.source.width : a.problem.source.height,
                                 isX ? a.problem.offsetX : a.problem.offsetY);
  const std::uint32_t step = isX ? packed.sourcePixel : packed.sourceRow;
  const std::uint32_t begin = isX ? 0 : static_cast<std::uint32_t>(place.image) * packed.sourceImage;
  const auto other = [](auto value) { return __shfl_xor_sync(0xFFFFFFFFU, value, 1); };
  const std::uint32_t packs[2] = {begin + static_cast<std::uint32_t>(taps.pixels[0]) * step,
                                  begin + static_cast<std::uint32_t>(taps.pixels[1]) * step};
  const std::uint32_t otherPacks[2] = {other(packs[0]), other(packs[1])};
  const float otherWeights[2] = {other(taps.weights[0]), other(taps.weights[1])};
  if (isX && threadIdx.x / 2 < count) {
    // The product of two that count something counts something.
    const auto product = [](float a, float b) { return a != 0 && b != 0 ? fmaxf(a * b, FLT_MIN) : 0.0F; };
    const auto& rows = otherWeights;
    const auto& columns = taps.weights;
    pixels[own] = {{otherPacks[0] + packs[0], otherPacks[0] + packs[1], otherPacks[1] + packs[0],
                    otherPacks[1] + packs[1]},
                   {product(rows[0], columns[0]), product(rows[0], columns[1]), product(rows[1], columns[0]),
                    product(rows[1], columns[1])}};
    places[own] = static_cast<std::uint32_t>(place.image) * packed.destinationImage +
                  static_cast<std::uint32_t>(place.y) * packed.destinationRow +
                  static_cast<std::uint32_t>(place.x) * packed.destinationPixel;
  }
  __syncthreads();
  for (std::uint32_t item = threadIdx.x; item < count * a.packs.divisor(); item += kThreads) {
    const std::uint32_t pixel = a.packs.divide(item);
    const std::uint32_t pack = item - pixel * a.packs.divisor();
    const SharedPixel from = pixels[pixel];
    const auto* const source = reinterpret_cast<const uint4*>(a.source.memory) + pack;
    const uint4* const at[4] = {source + from.packs.x, source + from.packs.y, source + from.packs.z,
                                source + from.packs.w};
    const float weights[4] = {from.weights.x, from.weights.y, from.weights.z, from.weights.w};
    cuda::Lanes<T> sum{};
    const auto add = [&](int i, const uint4& fetched) {
      addWeighted(sum, weights[i], cuda::lanesOf(fetched, static_cast<const T*>(nullptr)));
    };
    if (fminf(fminf(weights[0], weights[1]), fminf(weights[2], weights[3])) > 0) {
      uint4 fetched[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) fetched[i] = *at[i];
#pragma unroll
      for (int i = 0; i < 4; ++i) add(i, fetched[i]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (weights[i] == 0) continue;
        const uint4 fetched = *at[i];
        add(i, fetched);
      }
    }
    cuda::storeLanes(
        sum, reinterpret_cast<T*>(reinterpret_cast<uint4*>(a.destination.memory) + places[pixel] + pack));
  }
}

class GridSamplePlan final : public Plan {
 public:
  explicit GridSamplePlan(const GridSampleProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.destination.elements() == 0) return;
    const TensorShape& shape = problem_.destination;
    GridSampleArguments a{problem_,
                          SourceView(problem_.source, operands.source),
                          SourceView(problem_.grid, operands.secondary),
                          ResultView(shape, operands.destination),
                          Divider(shape.width),
                          Divider(shape.height),
                          Divider(1),
                          static_cast<std::uint32_t>(shape.pixels())};
    const bool takesPacks = cuda::takesLanes(problem_.source, operands.source) &&
                            cuda::takesLanes(problem_.destination, operands.destination);
    const auto format = cuda::commonFormat({&problem_.source, &problem_.destination});
    if (takesPacks && format == ImageFeatureChannelFormat::Float32 && runPacks<float>(stream, a)) return;
    if (takesPacks && format == ImageFeatureChannelFormat::Float16 && runPacks<Float16>(stream, a)) return;
    cuda::withAccess(format, takesPacks, [&](auto access) {
      using Access = decltype(access);
      a.packs = Divider(shape.channels / Access::lanes);
      mtl::cuda::launch(stream, sampleByGrid<Access>, dim3(mtl::cuda::blocksFor(shape.pixels(), kPixels)),
                        dim3(kThreads), 0, a);
    });
  }

 private:
  /// @return whether the tensors are small enough; otherwise nothing was done
  template <class T>
  bool runPacks(mtl::Stream& stream, const GridSampleArguments& a) const {
    PackedGridArguments packed{a};
    if (!packed.setStrides(problem_.source, problem_.destination, cuda::kLanes<T>)) return false;
    packed.sample.packs = Divider(problem_.destination.channels / cuda::kLanes<T>);
    mtl::cuda::launch(stream, samplePacksByGrid<T>, dim3(mtl::cuda::blocksFor(a.pixels, kPixels)),
                      dim3(kThreads), 0, packed);
    return true;
  }

  GridSampleProblem problem_;
};

Preparation prepareElements(const GridSampleProblem& problem) {
  for (const TensorShape* shape : {&problem.source, &problem.grid, &problem.destination})
    if (shape->pixelStride > 0x7FFFFFFF || shape->pixels() > ElementGrid::kLongestRow ||
        shape->channels > kMostChannels)
      return Refusal{"about 2^31 pixels, or 2^23 feature channels"};
  return std::make_shared<const GridSamplePlan>(problem);
}

constexpr Implementation<GridSampleProblem> implementations[] = {{"elements", prepareElements}};

}  // namespace

std::span<const Implementation<GridSampleProblem>> gridSampleImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
