#include <algorithm>
#include <cstdint>

#include "mps/core/cuda/elements_cuda.cuh"
#include "mps/core/plan/dense_product_cuda.hpp"
#include "mps/core/plan/fallback_plan.hpp"
#include "mps/matrix/cuda/matrix_cuda.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

/// A matrix of a batch, transposed or not.
struct MatrixView {
  std::int64_t matrix = 0;  ///< distances in memory
  std::int64_t row = 0;
  std::int64_t column = 0;

  MatrixView() = default;
  MatrixView(const TensorShape& shape, bool isTransposed)
      : matrix(shape.imageStride),
        row(isTransposed ? 1 : shape.rowStride),
        column(isTransposed ? shape.rowStride : 1) {}
};

struct ProductArguments {
  std::int64_t matrices = 0, rows = 0, columns = 0, interior = 0;
  float alpha = 1, beta = 0;
  MatrixView left, right, result;

  explicit ProductArguments(const MatrixMultiplicationProblem& problem)
      : matrices(problem.result.images),
        rows(problem.result.height),
        columns(problem.result.channels),
        interior(problem.interiorColumns()),
        alpha(problem.alpha),
        beta(problem.beta),
        left(problem.left, problem.transposeLeft),
        right(problem.right, problem.transposeRight),
        result(problem.result, false) {}
};

template <class T>
__device__ void storeProduct(const ProductArguments& a, float sum, T* to) {
  const float value = a.alpha * sum;
  cuda::store(a.beta != 0 ? value + a.beta * cuda::load(to) : value, to);
}

constexpr int kSide = 32;  ///< of a tile of the result, and of the tiles of the factors
constexpr int kTileRows = 8;

__host__ __device__ std::int64_t tilesOf(std::int64_t size) {
  return (size + kSide - 1) / kSide;
}

/// Goes along a tile of a factor as it lies in memory: calls visit(row, column).
template <class Visit>
__device__ void forEachOfTile(bool isTransposed, Visit visit) {
  const auto x = static_cast<int>(threadIdx.x);
  for (auto y = static_cast<int>(threadIdx.y); y < kSide; y += kTileRows)
    isTransposed ? visit(x, y) : visit(y, x);
}

/// A block computes a tile of the result, from tiles of the factors in shared memory.
template <class T>
__global__ void multiplyTiles(ProductArguments a, const T* left, const T* right, T* result) {
  __shared__ float leftTile[kSide][kSide + 1];
  __shared__ float rightTile[kSide][kSide + 1];
  const std::int64_t firstRow = static_cast<std::int64_t>(blockIdx.x) * kSide;
  const auto x = static_cast<int>(threadIdx.x);
  const auto y = static_cast<int>(threadIdx.y);
  const std::int64_t across = tilesOf(a.columns);
  for (std::int64_t item = blockIdx.y; item < a.matrices * across; item += gridDim.y) {
    const std::int64_t n = item / across;
    const std::int64_t firstColumn = item % across * kSide;
    const T* const ofLeft = left + n * a.left.matrix;
    const T* const ofRight = right + n * a.right.matrix;
    float sums[kSide / kTileRows] = {};
    for (std::int64_t first = 0; first < a.interior; first += kSide) {
      forEachOfTile(a.left.column != 1, [&](int i, int k) {
        const bool isInside = firstRow + i < a.rows && first + k < a.interior;
        leftTile[i][k] =
            isInside ? cuda::load(ofLeft + (firstRow + i) * a.left.row + (first + k) * a.left.column) : 0.0F;
      });
      forEachOfTile(a.right.column != 1, [&](int k, int j) {
        const bool isInside = firstColumn + j < a.columns && first + k < a.interior;
        rightTile[k][j] =
            isInside ? cuda::load(ofRight + (first + k) * a.right.row + (firstColumn + j) * a.right.column)
                     : 0.0F;
      });
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kSide; ++k)
#pragma unroll
        for (int i = 0; i < kSide / kTileRows; ++i)
          sums[i] = fmaf(leftTile[y + i * kTileRows][k], rightTile[k][x], sums[i]);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kSide / kTileRows; ++i) {
      const std::int64_t row = firstRow + y + i * kTileRows;
      const std::int64_t column = firstColumn + x;
      if (row < a.rows && column < a.columns)
        storeProduct(a, sums[i], result + n * a.result.matrix + row * a.result.row + column);
    }
  }
}

/// One matrix and one vector, whose product is a vector: both lie in memory with these distances.
struct VectorArguments {
  std::int64_t length = 0;    ///< of the result
  std::int64_t interior = 0;  ///< of the vector
  std::int64_t matrixRow = 0, vectorStep = 0, resultStep = 0;
  std::int64_t matrixImage = 0, vectorImage = 0, resultImage = 0;
};

constexpr unsigned kWarp = 32;
constexpr int kWarps = 8;

/// Each warp sums along a row of the matrix, which is a run of memory.
/// @param takesVectors the matrix and its rows begin at multiples of 16 bytes
template <class T>
__global__ void multiplyRows(ProductArguments a, VectorArguments v, bool takesVectors, const T* matrix,
                             const T* vector, T* result) {
  constexpr int lanes = cuda::kLanes<T>;
  constexpr int batch = 4;  // vectors on their way at once
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (row >= v.length) return;  // all of a warp
  for (std::int64_t n = blockIdx.y; n < a.matrices; n += gridDim.y) {
    const T* const from = matrix + n * v.matrixImage + row * v.matrixRow;
    const T* const by = vector + n * v.vectorImage;
    float sum = 0;
    std::int64_t k = 0;
    if (takesVectors) {
      constexpr std::int64_t step = static_cast<std::int64_t>(kWarp) * lanes;
      for (; k + batch * step <= v.interior; k += batch * step) {
        cuda::Lanes<T> values[batch];
#pragma unroll
        for (int i = 0; i < batch; ++i)
          values[i] = cuda::loadLanes(from + k + i * step + threadIdx.x * lanes);
#pragma unroll
        for (int i = 0; i < batch; ++i) {
          const T* const factors = by + (k + i * step + threadIdx.x * lanes) * v.vectorStep;
#pragma unroll
          for (int lane = 0; lane < lanes; ++lane)
            sum = fmaf(values[i].values[lane], cuda::load(factors + lane * v.vectorStep), sum);
        }
      }
    }
    for (k += threadIdx.x; k < v.interior; k += kWarp)
      sum = fmaf(cuda::load(from + k), cuda::load(by + k * v.vectorStep), sum);
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, distance);
    if (threadIdx.x == 0) storeProduct(a, sum, result + n * v.resultImage + row * v.resultStep);
  }
}

/// Sums along the columns of the matrix: a block has 32 of them, its rows of threads share their elements.
template <class T>
__global__ void __launch_bounds__(kWarp* kWarp)
    multiplyColumns(ProductArguments a, VectorArguments v, const T* matrix, const T* vector, T* result) {
  __shared__ float sums[kWarp][kWarp + 1];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  for (std::int64_t n = blockIdx.y; n < a.matrices; n += gridDim.y) {
    float sum = 0;
    if (column < v.length) {
      const T* const from = matrix + n * v.matrixImage + column;
      const T* const by = vector + n * v.vectorImage;
#pragma unroll 16
      for (std::int64_t k = threadIdx.y; k < v.interior; k += kWarp)
        sum = fmaf(cuda::load(from + k * v.matrixRow), cuda::load(by + k * v.vectorStep), sum);
    }
    sums[threadIdx.x][threadIdx.y] = sum;
    __syncthreads();
    // A warp for each column.
    float total = sums[threadIdx.y][threadIdx.x];
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      total += __shfl_xor_sync(0xFFFFFFFFU, total, distance);
    const std::int64_t place = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.y;
    if (threadIdx.x == 0 && place < v.length)
      storeProduct(a, total, result + n * v.resultImage + place * v.resultStep);
    __syncthreads();
  }
}

constexpr unsigned kMostInGrid = 65535;  ///< of y

unsigned atMost(std::int64_t number) {
  return static_cast<unsigned>(std::clamp<std::int64_t>(number, 1, kMostInGrid));
}

template <class T>
class TilesPlan final : public Plan {
 public:
  explicit TilesPlan(const MatrixMultiplicationProblem& problem) : arguments_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (arguments_.rows == 0 || arguments_.columns == 0 || arguments_.matrices == 0) return;
    const dim3 grid(static_cast<unsigned>(tilesOf(arguments_.rows)),
                    atMost(arguments_.matrices * tilesOf(arguments_.columns)));
    mtl::cuda::launch(stream, multiplyTiles<T>, grid, dim3(kSide, kTileRows), 0, arguments_,
                      reinterpret_cast<const T*>(operands.source),
                      reinterpret_cast<const T*>(operands.secondary),
                      reinterpret_cast<T*>(operands.destination));
  }

 private:
  ProductArguments arguments_;
};

/// Products of a matrix and a vector, of which a tile of 32x32 would use 32 of its 1024 results. Earns single
/// vectors.
template <class T>
class VectorPlan final : public SelectivePlan {
 public:
  explicit VectorPlan(const MatrixMultiplicationProblem& problem)
      : arguments_(problem), isVectorRight_(problem.result.channels == 1) {
    const ProductArguments& a = arguments_;
    const MatrixView& matrix = isVectorRight_ ? a.left : a.right;
    const MatrixView& vector = isVectorRight_ ? a.right : a.left;
    // The interior runs along the columns of the left factor and the rows of the right one.
    const std::int64_t alongInterior = isVectorRight_ ? matrix.column : matrix.row;
    sumsRows_ = alongInterior == 1;
    vector_.length = isVectorRight_ ? a.rows : a.columns;
    vector_.interior = a.interior;
    vector_.matrixRow = sumsRows_ ? (isVectorRight_ ? matrix.row : matrix.column) : alongInterior;
    vector_.vectorStep = isVectorRight_ ? vector.row : vector.column;
    vector_.resultStep = isVectorRight_ ? a.result.row : a.result.column;
    vector_.matrixImage = matrix.matrix;
    vector_.vectorImage = vector.matrix;
    vector_.resultImage = a.result.matrix;
    takesVectors_ = sumsRows_ && (vector_.matrixRow | vector_.matrixImage) % cuda::kLanes<T> == 0;
  }

  [[nodiscard]] std::string describe() const override {
    return !sumsRows_      ? "32 columns per block"
           : takesVectors_ ? "warp per row, 16 bytes per thread"
                           : "warp per row";
  }
  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    return takesVectors_ ? objectionToUnaligned({matrixOf(operands)}) : "";
  }
  void run(mtl::Stream& stream, const Operands& operands) const override {
    const auto* const matrix = reinterpret_cast<const T*>(matrixOf(operands));
    const auto* const vector =
        reinterpret_cast<const T*>(isVectorRight_ ? operands.secondary : operands.source);
    auto* const result = reinterpret_cast<T*>(operands.destination);
    const unsigned matrices = atMost(arguments_.matrices);
    if (sumsRows_) {
      const dim3 grid(static_cast<unsigned>((vector_.length + kWarps - 1) / kWarps), matrices);
      mtl::cuda::launch(stream, multiplyRows<T>, grid, dim3(kWarp, kWarps), 0, arguments_, vector_,
                        takesVectors_, matrix, vector, result);
    } else {
      const dim3 grid(static_cast<unsigned>((vector_.length + kWarp - 1) / kWarp), matrices);
      mtl::cuda::launch(stream, multiplyColumns<T>, grid, dim3(kWarp, kWarp), 0, arguments_, vector_, matrix,
                        vector, result);
    }
  }

 private:
  [[nodiscard]] const std::byte* matrixOf(const Operands& operands) const {
    return isVectorRight_ ? operands.source : operands.secondary;
  }

  ProductArguments arguments_;
  VectorArguments vector_;
  bool isVectorRight_;
  bool sumsRows_;
  bool takesVectors_;
};

template <class Base, template <class> class PlanOf>
std::shared_ptr<const Base> planOf(const MatrixMultiplicationProblem& problem) {
  if (problem.result.format == ImageFeatureChannelFormat::Float16)
    return std::make_shared<const PlanOf<Float16>>(problem);
  return std::make_shared<const PlanOf<float>>(problem);
}

Preparation prepareTiles(const MatrixMultiplicationProblem& problem) {
  return planOf<Plan, TilesPlan>(problem);
}

constexpr Implementation<MatrixMultiplicationProblem> kTiles{"tile 32x32", prepareTiles};

Preparation prepareVector(const MatrixMultiplicationProblem& problem) {
  if (problem.result.elements() == 0) return Refusal{"there is nothing to multiply"};
  if (problem.result.channels != 1 && problem.result.height != 1) return Refusal{"the result is no vector"};
  return withFallback(planOf<SelectivePlan, VectorPlan>(problem), kTiles, problem);
}

constexpr Implementation<MatrixMultiplicationProblem> kImplementations[] = {
    {"matrix-vector", prepareVector}, {"cuBLASLt", prepareCublasLtProduct}, kTiles};

}  // namespace

std::span<const Implementation<MatrixMultiplicationProblem>> matrixMultiplicationImplementationsCuda() {
  return kImplementations;
}

std::shared_ptr<const Plan> denseProductCuda(const DenseProduct& product) {
  MatrixMultiplicationProblem problem;
  problem.transposeLeft = product.transposeLeft;
  problem.beta = product.adds ? 1 : 0;
  problem.left = product.transposeLeft ? TensorShape::dense(1, product.interior, 1, product.rows)
                                       : TensorShape::dense(1, product.rows, 1, product.interior);
  problem.right = TensorShape::dense(1, product.interior, 1, product.columns);
  problem.result = TensorShape::dense(1, product.rows, 1, product.columns);
  problem.deviceName = product.deviceName;
  return preparePlan(matrixMultiplicationImplementationsCuda(), problem).plan;
}

}  // namespace mps::detail
