#include "mtl/cuda/cublaslt.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mtl/cuda/api.hpp"

namespace mtl::cuda {
namespace {

constexpr std::uint64_t kMostWorkspace = std::uint64_t{32} << 20U;
constexpr std::size_t kMostCandidates = 32;

/// cuBLASLt's matrices lie in columns, so it is given the transposed product R' = B' A'.
struct Descriptions {
  explicit Descriptions(const MatrixProductShape& shape, const float* bias) : lt(CublasLt::library()) {
    const auto layout = [&](cublasLtMatrixLayout_t& matrix, bool float16, bool transposed, std::int64_t rows,
                            std::int64_t columns) {
      const cudaDataType_t type = float16 ? CUDA_R_16F : CUDA_R_32F;
      if (transposed) std::swap(rows, columns);
      lt.check(lt.createLayout(&matrix, type, static_cast<std::uint64_t>(columns),
                               static_cast<std::uint64_t>(rows), columns),
               "cublasLtMatrixLayoutCreate");
    };
    try {
      layout(first, shape.float16, shape.transposedB, shape.depth, shape.columns);
      layout(second, shape.float16, shape.transposedA, shape.rows, shape.depth);
      layout(result, shape.float16Result, false, shape.rows, shape.columns);
      const cublasComputeType_t compute = shape.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
      lt.check(lt.createMatmul(&product, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
      set(CUBLASLT_MATMUL_DESC_TRANSA, shape.transposedB ? CUBLAS_OP_T : CUBLAS_OP_N);
      set(CUBLASLT_MATMUL_DESC_TRANSB, shape.transposedA ? CUBLAS_OP_T : CUBLAS_OP_N);
      if (!shape.hasBias) return;
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias));
    } catch (...) {
      destroy();
      throw;
    }
  }
  ~Descriptions() { destroy(); }
  Descriptions(const Descriptions&) = delete;
  Descriptions& operator=(const Descriptions&) = delete;

  const CublasLt& lt;
  cublasLtMatrixLayout_t first = nullptr;
  cublasLtMatrixLayout_t second = nullptr;
  cublasLtMatrixLayout_t result = nullptr;
  cublasLtMatmulDesc_t product = nullptr;

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    lt.check(lt.setMatmulAttribute(product, attribute, &value, sizeof(value)),
             "cublasLtMatmulDescSetAttribute");
  }
  void destroy() {
    for (const cublasLtMatrixLayout_t layout : {first, second, result})
      if (layout != nullptr) lt.destroyLayout(layout);
    if (product != nullptr) lt.destroyMatmul(product);
  }
};

/// What an algorithm must do without.
class Preference {
 public:
  Preference() : lt_(CublasLt::library()) {
    lt_.check(lt_.createPreference(&preference_), "cublasLtMatmulPreferenceCreate");
    try {
      set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
      // Parts of a sum are added up in a fixed order.
      set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
          static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
      for (const auto attribute :
           {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
        set(attribute, static_cast<std::uint32_t>(MatrixProduct::kAlignment));
    } catch (...) {
      lt_.destroyPreference(preference_);
      throw;
    }
  }
  ~Preference() { lt_.destroyPreference(preference_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  [[nodiscard]] cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  template <class Value>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
    lt_.check(lt_.setPreferenceAttribute(preference_, attribute, &value, sizeof(value)),
              "cublasLtMatmulPreferenceSetAttribute");
  }
  const CublasLt& lt_;
  cublasLtMatmulPreference_t preference_ = nullptr;
};

/// A number of an algorithm's configuration; nothing where the algorithm has none of this kind.
template <class Number>
std::optional<Number> numberOf(const cublasLtMatmulAlgo_t& algorithm,
                               cublasLtMatmulAlgoConfigAttributes_t attribute) {
  Number number = 0;
  std::size_t written = 0;
  const cublasStatus_t status =
      CublasLt::library().getAlgorithmAttribute(&algorithm, attribute, &number, sizeof number, &written);
  if (status != CUBLAS_STATUS_SUCCESS || written != sizeof number) return std::nullopt;
  return number;
}

/// Whether parts of a sum, if there are any, are added up in a fixed order and in float32.
bool addsInOrder(const cublasLtMatmulAlgo_t& algorithm) {
  const auto scheme = numberOf<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  return !scheme || *scheme == CUBLASLT_REDUCTION_SCHEME_NONE ||
         *scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

/// cuBLASLt's suggestions that may be used, `most` at most.
std::vector<cublasLtMatmulHeuristicResult_t> suggestions(const MatrixProductShape& shape, std::size_t most) {
  const CublasLt& lt = CublasLt::library();
  // Only its alignment counts here.
  alignas(MatrixProduct::kAlignment) static constexpr std::array<float, 4> kAlignedLikeABias{};
  const Descriptions descriptions(shape, kAlignedLikeABias.data());
  const Preference preference;
  std::vector<cublasLtMatmulHeuristicResult_t> found(most);
  int count = 0;
  lt.check(lt.getHeuristic(CublasLt::handle(), descriptions.product, descriptions.first, descriptions.second,
                           descriptions.result, descriptions.result, preference.get(),
                           static_cast<int>(found.size()), found.data(), &count),
           "cublasLtMatmulAlgoGetHeuristic");
  found.resize(static_cast<std::size_t>(std::max(0, count)));
  std::erase_if(found, [](const cublasLtMatmulHeuristicResult_t& one) {
    return one.state != CUBLAS_STATUS_SUCCESS || !addsInOrder(one.algo);
  });
  if (found.empty()) throw CublasLtError("cublasLtMatmulAlgoGetHeuristic suggests nothing that may be used");
  return found;
}

}  // namespace

LibrarySearch CublasLt::search() {
  const std::string version = std::to_string(CUDART_VERSION / 1000);
  return {"cuBLASLt " + version,
          "libcublasLt.so." + version,
          "UNMETAL_CUBLASLT",
          {"nvidia/cu" + version + "/lib", "nvidia/cublas/lib"}};
}

CublasLt::CublasLt(const LibrarySearch& search) : library_(search) {
  library_.find(getStatusString, "cublasLtGetStatusString");
  library_.find(create, "cublasLtCreate");
  library_.find(matmul, "cublasLtMatmul");
  library_.find(getProperty, "cublasLtGetProperty");
  library_.find(getHeuristic, "cublasLtMatmulAlgoGetHeuristic");
  library_.find(getAlgorithmAttribute, "cublasLtMatmulAlgoConfigGetAttribute");
  library_.find(createMatmul, "cublasLtMatmulDescCreate");
  library_.find(destroyMatmul, "cublasLtMatmulDescDestroy");
  library_.find(setMatmulAttribute, "cublasLtMatmulDescSetAttribute");
  library_.find(createLayout, "cublasLtMatrixLayoutCreate");
  library_.find(destroyLayout, "cublasLtMatrixLayoutDestroy");
  library_.find(createPreference, "cublasLtMatmulPreferenceCreate");
  library_.find(destroyPreference, "cublasLtMatmulPreferenceDestroy");
  library_.find(setPreferenceAttribute, "cublasLtMatmulPreferenceSetAttribute");
}

const CublasLt& CublasLt::library() {
  return loadedOnce<CublasLt>();
}

void CublasLt::check(cublasStatus_t status, const char* call) const {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw CublasLtError(std::string(call) + ": " + getStatusString(status));
}

std::string CublasLt::version() const {
  std::string text;
  for (const libraryPropertyType part : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL}) {
    int number = 0;
    check(getProperty(part, &number), "cublasLtGetProperty");
    text += (text.empty() ? "" : ".") + std::to_string(number);
  }
  return text;
}

cublasLtHandle_t CublasLt::handle() {
  const CublasLt& lt = library();
  int device = 0;
  mtl::cuda::check(cudaGetDevice(&device), "cudaGetDevice");
  static std::mutex& mutex = *new std::mutex;
  static auto& handles = *new std::map<int, cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  if (const auto found = handles.find(device); found != handles.end()) return found->second;
  cublasLtHandle_t handle = nullptr;
  lt.check(lt.create(&handle), "cublasLtCreate");
  handles.emplace(device, handle);
  return handle;
}

MatrixProduct::MatrixProduct(const MatrixProductShape& shape)
    : MatrixProduct(shape, suggestions(shape, 1).front()) {}

std::vector<MatrixProduct> MatrixProduct::candidates(const MatrixProductShape& shape) {
  std::vector<MatrixProduct> products;
  for (const cublasLtMatmulHeuristicResult_t& heuristic : suggestions(shape, kMostCandidates)) {
    const MatrixProduct product(shape, heuristic);
    products.push_back(product);
  }
  return products;
}

std::string MatrixProduct::describe() const {
  const cublasLtMatmulAlgo_t& algorithm = heuristic_.algo;
  std::string words;
  // Numbers that are 0 say nothing.
  const auto add = [&](const char* name, auto number, std::uint32_t usual = 0) {
    if (number && static_cast<std::uint32_t>(*number) != usual)
      words += (words.empty() ? "" : " ") + std::string(name) + " " + std::to_string(*number);
  };
  add("algorithm", numberOf<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID));
  add("tile", numberOf<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID));
  add("stages", numberOf<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID));
  add("parts", numberOf<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), 1);
  add("order", numberOf<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING));
  add("option", numberOf<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION));
  add("inner", numberOf<std::uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID));
  add("cluster", numberOf<std::uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
  return words;
}

void MatrixProduct::run(cudaStream_t stream, const void* a, const void* b, const float* bias, void* result,
                        bool accumulate, void* workspace) const {
  const CublasLt& lt = CublasLt::library();
  // A description holds the bias's address, so each run has its own.
  const Descriptions descriptions(shape_, bias);
  const float alpha = 1;
  const float beta = accumulate ? 1 : 0;
  lt.check(lt.matmul(CublasLt::handle(), descriptions.product, &alpha, b, descriptions.first, a,
                     descriptions.second, &beta, result, descriptions.result, result, descriptions.result,
                     &heuristic_.algo, workspace, heuristic_.workspaceSize, stream),
           "cublasLtMatmul");
}

}  // namespace mtl::cuda
