#include <algorithm>
#include <cstdint>
#include <memory>

#include "mps/core/elements_cuda.cuh"
#include "mps/core/rows_cuda.cuh"
#include "mps/gram_matrix/gram_matrix_problem.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

constexpr int kSide = 64;   ///< of a tile of the result
constexpr int kDepth = 16;  ///< of the tiles of the factors
constexpr int kThreads = 256;
constexpr int kPerThread = 4;                ///< rows and columns of the result
constexpr int kAcross = kSide / kPerThread;  ///< threads
constexpr int kLoads = kSide * kDepth / kThreads;
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
  cuda::Divider width;      ///< of the images
  std::int64_t parts = 1;   ///< of the pixels of an image
  std::int64_t pixelsOfPart = 0;
  float alpha = 1;
  bool accumulate = false;
  float* scratch = nullptr;

  [[nodiscard]] __device__ std::int64_t pixels() const { return source.height * source.width; }
  [[nodiscard]] __device__ std::int64_t pixelOffset(const TensorShape& shape, std::int64_t n,
                                                    std::int64_t pixel) const {
    const std::uint32_t row = width.divide(static_cast<std::uint32_t>(pixel));
    return shape.offset(n, row, pixel - static_cast<std::int64_t>(row) * width.divisor(), 0);
  }
};

/// Tiles of two factors, the first one transposed, and a thread's part of their product: rows from `row()` on, columns
/// from `column()` on.
struct TileProduct {
  // Sixteen bytes of each row are read at once; the padding keeps rows that are written side by side in banks of their own.
  using Rows = float[kDepth][kSide + kPerThread];
  Rows& left;
  Rows& right;
  float sums[kPerThread][kPerThread] = {};

  static __device__ int row() { return static_cast<int>(threadIdx.x) / kAcross * kPerThread; }
  static __device__ int column() { return static_cast<int>(threadIdx.x) % kAcross * kPerThread; }

  __device__ void add() {
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      const float4 a = *reinterpret_cast<const float4*>(&left[k][row()]);
      const float4 b = *reinterpret_cast<const float4*>(&right[k][column()]);
      const float ofRows[] = {a.x, a.y, a.z, a.w};
      const float ofColumns[] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < kPerThread; ++i)
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) sums[i][j] = fmaf(ofRows[i], ofColumns[j], sums[i][j]);
    }
  }
};

/// What a thread brings of a tile: it is loaded while the tile before it is multiplied.
struct TilePart {
  float values[kLoads];

  /// @param value value(k, i): of row k of the tile, element i; consecutive threads ask for consecutive i
  template <class Value>
  __device__ void loadRows(Value value) {
#pragma unroll
    for (int load = 0; load < kLoads; ++load) values[load] = value(depthOfRows(load), inRow());
  }
  __device__ void storeRows(TileProduct::Rows& rows) const {
#pragma unroll
    for (int load = 0; load < kLoads; ++load) rows[depthOfRows(load)][inRow()] = values[load];
  }
  /// The same where consecutive threads ask for consecutive k.
  template <class Value>
  __device__ void loadColumns(Value value) {
#pragma unroll
    for (int load = 0; load < kLoads; ++load) values[load] = value(depthOfColumns(), inColumn(load));
  }
  __device__ void storeColumns(TileProduct::Rows& rows) const {
#pragma unroll
    for (int load = 0; load < kLoads; ++load) rows[depthOfColumns()][inColumn(load)] = values[load];
  }

 private:
  static __device__ int inRow() {
    return static_cast<int>(threadIdx.x) % kSide;
  }
  static __device__ int depthOfRows(int load) {
    return static_cast<int>(threadIdx.x) / kSide + load * (kThreads / kSide);
  }
  static __device__ int depthOfColumns() {
    return static_cast<int>(threadIdx.x) % kDepth;
  }
  static __device__ int inColumn(int load) {
    return static_cast<int>(threadIdx.x) / kDepth + load * (kThreads / kDepth);
  }
};

/// Partial sums of a tile of X^T X, over a part of the pixels: scratch[part][image][f][c]. Tiles below the diagonal are
/// left out.
template <class T>
__global__ void __launch_bounds__(kThreads) sumProducts(Arguments a, const T* source) {
  __shared__ __align__(16) TileProduct::Rows left;
  __shared__ __align__(16) TileProduct::Rows right;
  const std::int64_t channels = a.source.channels;
  const std::int64_t across = tilesOf(channels);
  const std::int64_t firstRow = blockIdx.x / across * kSide;
  const std::int64_t firstColumn = blockIdx.x % across * kSide;
  if (firstRow > firstColumn) return;  // all of a block
  for (std::int64_t item = blockIdx.y; item < a.parts * a.source.images; item += gridDim.y) {
    const std::int64_t n = item % a.source.images;
    const std::int64_t begin = item / a.source.images * a.pixelsOfPart;
    const std::int64_t end = min(begin + a.pixelsOfPart, a.pixels());
    TileProduct product{left, right};
    TilePart ofLeft;
    TilePart ofRight;
    const auto load = [&](std::int64_t first) {
      const auto from = [&](std::int64_t firstChannel) {
        return [&, firstChannel](int k, int i) {
          const std::int64_t channel = firstChannel + i;
          return first + k < end && channel < channels
                     ? cuda::load(source + a.pixelOffset(a.source, n, first + k) + channel)
                     : 0.0F;
        };
      };
      ofLeft.loadRows(from(firstRow));
      ofRight.loadRows(from(firstColumn));
    };
    load(begin);
    for (std::int64_t first = begin; first < end; first += kDepth) {
      ofLeft.storeRows(left);
      ofRight.storeRows(right);
      __syncthreads();
      load(first + kDepth);
      product.add();
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        const std::int64_t row = firstRow + TileProduct::row() + i;
        const std::int64_t column = firstColumn + TileProduct::column() + j;
        if (row < channels && column < channels)
          a.scratch[(item * channels + row) * channels + column] = product.sums[i][j];
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

/// A block computes a tile of X times those sums: rows are pixels.
template <class T>
__global__ void __launch_bounds__(kThreads)
    multiplyTiles(Arguments a, const T* source, std::byte* destination) {
  __shared__ __align__(16) TileProduct::Rows left;
  __shared__ __align__(16) TileProduct::Rows right;
  const std::int64_t channels = a.source.channels;
  const std::int64_t across = tilesOf(channels);
  const std::int64_t firstPixel = static_cast<std::int64_t>(blockIdx.x) * kSide;
  for (std::int64_t item = blockIdx.y; item < a.source.images * across; item += gridDim.y) {
    const std::int64_t n = item / across;
    const std::int64_t firstColumn = item % across * kSide;
    const float* const factors = a.scratch + n * channels * channels;
    TileProduct product{left, right};
    TilePart ofLeft;
    TilePart ofRight;
    const auto load = [&](std::int64_t first) {
      ofLeft.loadColumns([&](int k, int i) {
        const std::int64_t pixel = firstPixel + i;
        return pixel < a.pixels() && first + k < channels
                   ? cuda::load(source + a.pixelOffset(a.source, n, pixel) + first + k)
                   : 0.0F;
      });
      ofRight.loadRows([&](int k, int i) {
        return first + k < channels && firstColumn + i < channels
                   ? factors[(first + k) * channels + firstColumn + i]
                   : 0.0F;
      });
    };
    load(0);
    for (std::int64_t first = 0; first < channels; first += kDepth) {
      ofLeft.storeColumns(left);
      ofRight.storeRows(right);
      __syncthreads();
      load(first + kDepth);
      product.add();
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const std::int64_t pixel = firstPixel + TileProduct::row() + i;
      if (pixel >= a.pixels()) continue;
      const std::int64_t to = a.pixelOffset(a.destination, n, pixel);
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        const std::int64_t column = firstColumn + TileProduct::column() + j;
        if (column >= channels) continue;
        const float old = a.accumulate ? cuda::loadAs(a.destination.format, destination, to + column) : 0.0F;
        const float sum = product.sums[i][j];
        cuda::storeAs(a.accumulate ? old + sum : sum, a.destination.format, destination, to + column);
      }
    }
  }
}

class TilesPlan final : public Plan {
 public:
  explicit TilesPlan(const GramMatrixProblem& problem) : problem_(problem) {
    arguments_.source = problem.source;
    arguments_.matrix = problem.matrix;
    arguments_.destination = problem.destination;
    arguments_.width = cuda::Divider(std::max<std::int64_t>(1, problem.source.width));
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
    const dim3 block(kThreads);
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
  if (problem.pixels() > 0x7FFFFFFF) return Refusal{"2^31 pixels"};
  return std::make_shared<const TilesPlan>(problem);
}

constexpr Implementation<GramMatrixProblem> kImplementations[] = {{"tiles", prepareTiles}};

}  // namespace

std::span<const Implementation<GramMatrixProblem>> gramMatrixImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
