#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mtl/cuda/shared_library.hpp"
#include "mtl/error.hpp"

/// cuBLASLt, found at run time. Engine-internal.
namespace mtl::cuda {

/// A call of cuBLASLt that failed, in its words.
class CublasLtError : public Error {
 public:
  using Error::Error;
};

/// The functions that we call.
class CublasLt {
 public:
  /// The library of this process, loaded by the first call. @throws Error, every time, when it cannot be loaded.
  static const CublasLt& library();
  static LibrarySearch search();

  explicit CublasLt(const LibrarySearch& search);

  /// @throws CublasLtError that names `call` when it did not succeed.
  void check(cublasStatus_t status, const char* call) const;
  /// E.g. "13.1.0".
  [[nodiscard]] std::string version() const;
  /// The current device's; lives as long as the process, serves all threads and streams.
  static cublasLtHandle_t handle();

  decltype(::cublasLtGetStatusString)* getStatusString = nullptr;
  decltype(::cublasLtCreate)* create = nullptr;
  decltype(::cublasLtMatmul)* matmul = nullptr;
  decltype(::cublasLtGetProperty)* getProperty = nullptr;
  decltype(::cublasLtMatmulAlgoGetHeuristic)* getHeuristic = nullptr;
  decltype(::cublasLtMatmulAlgoConfigGetAttribute)* getAlgorithmAttribute = nullptr;
  decltype(::cublasLtMatmulDescCreate)* createMatmul = nullptr;
  decltype(::cublasLtMatmulDescDestroy)* destroyMatmul = nullptr;
  decltype(::cublasLtMatmulDescSetAttribute)* setMatmulAttribute = nullptr;
  decltype(::cublasLtMatrixLayoutCreate)* createLayout = nullptr;
  decltype(::cublasLtMatrixLayoutDestroy)* destroyLayout = nullptr;
  decltype(::cublasLtMatmulPreferenceCreate)* createPreference = nullptr;
  decltype(::cublasLtMatmulPreferenceDestroy)* destroyPreference = nullptr;
  decltype(::cublasLtMatmulPreferenceSetAttribute)* setPreferenceAttribute = nullptr;

 private:
  SharedLibrary library_;
};

/// What MatrixProduct computes: R = A B, or A B + R, with matrices in rows without gaps, sums in float32.
struct MatrixProductShape {
  std::int64_t rows = 0;       ///< of A and R
  std::int64_t depth = 0;      ///< columns of A, rows of B
  std::int64_t columns = 0;    ///< of B and R
  bool transposedA = false;    ///< in memory A is [depth][rows]
  bool transposedB = false;    ///< in memory B is [columns][depth]
  bool float16 = false;        ///< A and B
  bool float16Result = false;  ///< R, each sum rounded once, else float32; only of float16, without a bias
  bool tf32 = false;           ///< A and B may be rounded to TF32
  bool hasBias = false;        ///< a number for each column is added
};

/// A product with its algorithm. Every run gives the same bits: only algorithms that add up parts of a sum in a fixed
/// order, in float32, are taken.
class MatrixProduct {
 public:
  static constexpr std::size_t kAlignment = 16;  ///< of all addresses, in bytes

  /// With the first algorithm that cuBLASLt suggests on the calling thread's current device. @throws CublasLtError
  /// when it has none.
  explicit MatrixProduct(const MatrixProductShape& shape);
  /// One for each algorithm that it suggests, best first in its opinion. @throws CublasLtError when it has none.
  static std::vector<MatrixProduct> candidates(const MatrixProductShape& shape);

  /// What tells the algorithm from others, e.g. "algorithm 66 tile 20 stages 36".
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::size_t workspaceBytes() const { return heuristic_.workspaceSize; }
  /// @param bias null without one
  /// @param accumulate add to what `result` holds; not with a bias
  void run(cudaStream_t stream, const void* a, const void* b, const float* bias, void* result,
           bool accumulate, void* workspace) const;

 private:
  MatrixProduct(const MatrixProductShape& shape, const cublasLtMatmulHeuristicResult_t& heuristic)
      : shape_(shape), heuristic_(heuristic) {}

  MatrixProductShape shape_;
  cublasLtMatmulHeuristicResult_t heuristic_;
};

}  // namespace mtl::cuda
