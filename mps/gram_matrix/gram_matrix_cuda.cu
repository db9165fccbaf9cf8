#include <algorithm>
#include <cstdint>
#include <memory>

#include "mps/core/elements_cuda.cuh"
#include "mps/gram_matrix/gram_matrix_problem.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

constexpr int kSide = 32;  ///< of a tile of the result, and of the tiles of the factors
constexpr int kTileRows = 8;
constexpr std::int64_t kMostInGrid = 65535;  ///< of y

__host__ __device__ std::int64_t tilesOf(std::int64_t size) {
  return (size + kSide - 1) / kSide;
}

unsigned atMost(std::int64_t number) {
  return static_cast<unsigned>(std::clamp<std::int64_t>(number, 1, kMostInGrid));
}

struct Arguments {
  TensorShape source;
  TensorShape matrix;
  TensorShape destination;  ///< of a gradient
  std::int64_t parts = 1;   ///< of the pixels of an image
  std::int64_t pixelsOfPart = 0;
  float alpha = 1;
  bool accumulate = false;
  float* scratch = nullptr;

  [[nodiscard]] __device__ std::int64_t pixels() const { return source.height * source.width; }
  [[nodiscard]] __device__ std::int64_t pixelOffset(const TensorShape& shape, std::int64_t n,
                                                    std::int64_t pixel) const {
    return shape.offset(n, pixel / shape.width, pixel % shape.width, 0);
  }
};

/// Partial sums of a tile of X^T X, over a part of the pixels: scratch[part][image][f][c]. Tiles below the diagonal are
/// left out.
template <class T>
__global__ void sumProducts(Arguments a, const T* source) {
  __shared__ float left[kSide][kSide + 1];
  __shared__ float right[kSide][kSide + 1];
  const std::int64_t channels = a.source.channels;
  const std::int64_t across = tilesOf(channels);
  const std::int64_t firstRow = blockIdx.x / across * kSide;
  const std::int64_t firstColumn = blockIdx.x % across * kSide;
  if (firstRow > firstColumn) return;  // all of a block
  const auto x = static_cast<int>(threadIdx.x);
  const auto y = static_cast<int>(threadIdx.y);
  for (std::int64_t item = blockIdx.y; item < a.parts * a.source.images; item += gridDim.y) {
    const std::int64_t n = item % a.source.images;
    const std::int64_t begin = item / a.source.images * a.pixelsOfPart;
    const std::int64_t end = min(begin + a.pixelsOfPart, a.pixels());
    float sums[kSide / kTileRows] = {};
    for (std::int64_t first = begin; first < end; first += kSide) {
      for (int k = y; k < kSide; k += kTileRows) {
        const bool isInside = first + k < end;
        const T* const pixel = source + (isInside ? a.pixelOffset(a.source, n, first + k) : 0);
        left[k][x] = isInside && firstRow + x < channels ? cuda::load(pixel + firstRow + x) : 0.0F;
        right[k][x] = isInside && firstColumn + x < channels ? cuda::load(pixel + firstColumn + x) : 0.0F;
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kSide; ++k)
#pragma unroll
        for (int i = 0; i < kSide / kTileRows; ++i)
          sums[i] = fmaf(left[k][y + i * kTileRows], right[k][x], sums[i]);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kSide / kTileRows; ++i) {
      const std::int64_t row = firstRow + y + i * kTileRows;
      const std::int64_t column = firstColumn + x;
      if (row < channels && column < channels)
        a.scratch[(item * channels + row) * channels + column] = sums[i];
    }
  }
}

/// Adds the parts up.
__global__ void finishMatrix(Arguments a, std::byte* matrix) {
  const std::int64_t channels = a.source.channels;
  const std::int64_t count = a.source.images * channels * channels;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const std::int64_t c = i % channels;
    const std::int64_t f = i / channels % channels;
    const std::int64_t n = i / (channels * channels);
    const bool isLower = f / kSide > c / kSide;
    const std::int64_t at = isLower ? c * channels + f : f * channels + c;
    float sum = 0;
    for (std::int64_t part = 0; part < a.parts; ++part)
      sum += a.scratch[(part * a.source.images + n) * channels * channels + at];
    cuda::storeAs(a.alpha * sum, a.matrix.format, matrix, a.matrix.offset(n, 0, f, c));
  }
}

/// scratch[image][f][c] = alpha (G + G^T)
__global__ void addTranspose(Arguments a, const std::byte* gradient) {
  const TensorShape& g = a.matrix;
  const std::int64_t channels = g.channels;
  const std::int64_t count = g.images * channels * channels;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const std::int64_t c = i % channels;
    const std::int64_t f = i / channels % channels;
    const std::int64_t n = i / (channels * channels);
    a.scratch[i] = a.alpha * (cuda::loadAs(g.format, gradient, g.offset(n, 0, f, c)) +
                              cuda::loadAs(g.format, gradient, g.offset(n, 0, c, f)));
  }
}

/// A block computes a tile of X times those sums.
template <class T>
__global__ void multiplyTiles(Arguments a, const T* source, std::byte* destination) {
  __shared__ float left[kSide][kSide + 1];
  __shared__ float right[kSide][kSide + 1];
  const std::int64_t channels = a.source.channels;
  const std::int64_t across = tilesOf(channels);
  const std::int64_t firstPixel = static_cast<std::int64_t>(blockIdx.x) * kSide;
  const auto x = static_cast<int>(threadIdx.x);
  const auto y = static_cast<int>(threadIdx.y);
  for (std::int64_t item = blockIdx.y; item < a.source.images * across; item += gridDim.y) {
    const std::int64_t n = item / across;
    const std::int64_t firstColumn = item % across * kSide;
    const float* const factors = a.scratch + n * channels * channels;
    float sums[kSide / kTileRows] = {};
    for (std::int64_t first = 0; first < channels; first += kSide) {
      for (int k = y; k < kSide; k += kTileRows) {
        const std::int64_t pixel = firstPixel + k;
        left[k][x] = pixel < a.pixels() && first + x < channels
                         ? cuda::load(source + a.pixelOffset(a.source, n, pixel) + first + x)
                         : 0.0F;
        right[k][x] = first + k < channels && firstColumn + x < channels
                          ? factors[(first + k) * channels + firstColumn + x]
                          : 0.0F;
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kSide; ++k)
#pragma unroll
        for (int i = 0; i < kSide / kTileRows; ++i)
          sums[i] = fmaf(left[y + i * kTileRows][k], right[k][x], sums[i]);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kSide / kTileRows; ++i) {
      const std::int64_t pixel = firstPixel + y + i * kTileRows;
      const std::int64_t column = firstColumn + x;
      if (pixel >= a.pixels() || column >= channels) continue;
      const std::int64_t to = a.pixelOffset(a.destination, n, pixel) + column;
      const float old = a.accumulate ? cuda::loadAs(a.destination.format, destination, to) : 0.0F;
      cuda::storeAs(a.accumulate ? old + sums[i] : sums[i], a.destination.format, destination, to);
    }
  }
}

class TilesPlan final : public Plan {
 public:
  explicit TilesPlan(const GramMatrixProblem& problem) : problem_(problem) {
    arguments_.source = problem.source;
    arguments_.matrix = problem.matrix;
    arguments_.destination = problem.destination;
    if (!problem.isForward()) return;
    // Parts, so that there is a tile for each of a large GPU's multiprocessors, some times over.
    constexpr std::int64_t kWantedBlocks = 1024;
    constexpr std::int64_t kFewestPixels = 256;
    const std::int64_t across = tilesOf(problem.channels());
    const std::int64_t blocks = std::max<std::int64_t>(1, across * (across + 1) / 2 * problem.source.images);
    const std::int64_t most =
        std::max<std::int64_t>(1, (problem.pixels() + kFewestPixels - 1) / kFewestPixels);
    const std::int64_t wanted = std::clamp<std::int64_t>(kWantedBlocks / blocks, 1, most);
    arguments_.pixelsOfPart =
        std::max<std::int64_t>(1, tilesOf((problem.pixels() + wanted - 1) / wanted) * kSide);
    arguments_.parts = (problem.pixels() + arguments_.pixelsOfPart - 1) / arguments_.pixelsOfPart;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.matrix.elements() == 0) return;
    Arguments a = arguments_;
    a.alpha = static_cast<float>(operands.scalars[0]);
    a.accumulate = operands.accumulate;
    a.scratch = reinterpret_cast<float*>(operands.scratch);
    const dim3 elements(std::min(mtl::cuda::blocksFor(problem_.matrix.elements()), 65535U));
    const std::int64_t across = tilesOf(problem_.channels());
    const dim3 block(kSide, kTileRows);
    if (!problem_.isForward())
      mtl::cuda::launch(stream, addTranspose, elements, dim3(mtl::cuda::kBlockThreads), 0, a,
                        operands.gradient);
    withElementType(problem_.source.format, [&](auto element) {
      using T = decltype(element);
      const auto* const source = reinterpret_cast<const T*>(operands.source);
      if (problem_.isForward())
        mtl::cuda::launch(
            stream, sumProducts<T>,
            dim3(static_cast<unsigned>(across * across), atMost(arguments_.parts * problem_.source.images)),
            block, 0, a, source);
      else
        mtl::cuda::launch(
            stream, multiplyTiles<T>,
            dim3(static_cast<unsigned>(tilesOf(problem_.pixels())), atMost(problem_.source.images * across)),
            block, 0, a, source, operands.destination);
    });
    if (problem_.isForward())
      mtl::cuda::launch(stream, finishMatrix, elements, dim3(mtl::cuda::kBlockThreads), 0, a,
                        operands.destination);
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    return static_cast<std::size_t>(arguments_.parts * problem_.matrix.elements()) * sizeof(float);
  }
  [[nodiscard]] bool canAccumulate() const override {
    return !problem_.isForward() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  GramMatrixProblem problem_;
  Arguments arguments_;
};

Preparation prepareTiles(const GramMatrixProblem& problem) {
  return std::make_shared<const TilesPlan>(problem);
}

constexpr Implementation<GramMatrixProblem> kImplementations[] = {{"tiles", prepareTiles}};

}  // namespace

std::span<const Implementation<GramMatrixProblem>> gramMatrixImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
