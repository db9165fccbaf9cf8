#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mtl/cuda/cudnn.hpp"

/// Graphs of several operations, as cuDNN is asked for engines that compute them at once. For tests.
namespace mtl::cuda::testing {

/// Images (or outputs), channels, height, width; in memory channels are innermost.
using Sizes = std::array<std::int64_t, 4>;

std::int64_t elementsOf(const Sizes& sizes);

/// What a tensor holds before a graph runs.
enum class Numbers {
  Signed,    ///< from -1 to 1
  Weights,   ///< from -1/8 to 1/8
  Positive,  ///< from 1/2 to 1
  Result,    ///< the graph writes it
  Nothing,   ///< it lies in no memory
};

/// A tensor of a graph; its number in the graph is cuDNN's id, too.
struct FusedTensor {
  Sizes sizes;
  cudnnDataType_t type;
  Numbers numbers;
  [[nodiscard]] std::size_t bytes() const;
};

/// A window as high as it is wide, padded alike on all sides.
struct FusedWindow {
  std::int64_t stride;
  std::int64_t padding;
};

enum class FusedConvolution { Forward, DataGradient, WeightsGradient };

/// Operations, added one after the other; each tensor before the operations that name it.
class FusedGraph {
 public:
  std::int64_t tensor(const Sizes& sizes, cudnnDataType_t type, Numbers numbers);

  void convolution(FusedConvolution operation, const FusedWindow& window, std::int64_t large,
                   std::int64_t weights, std::int64_t small);
  /// y = x (mode) b; without b where it is 0.
  void pointwise(cudnnPointwiseMode_t mode, std::int64_t x, std::int64_t b, std::int64_t y);
  /// Where the ReLU's source x is positive, dx = dy.
  void reluGradient(std::int64_t dy, std::int64_t x, std::int64_t dx);
  void statistics(std::int64_t x, std::int64_t sum, std::int64_t squares, cudnnDataType_t precision);
  struct BatchNormalization {
    std::int64_t source, mean, inverseDeviation, scale;
  };
  /// The sums of the gradients of scale and bias, and the factors of dy, source and 1 in the source's gradient.
  void batchNormalizationGradient(std::int64_t dy, const BatchNormalization& layer,
                                  const std::array<std::int64_t, 5>& results);
  /// Nothing is added behind it.
  void finish();

  [[nodiscard]] std::span<const FusedTensor> tensors() const { return tensors_; }
  [[nodiscard]] const FusedTensor& at(std::int64_t id) const {
    return tensors_[static_cast<std::size_t>(id - 1)];
  }
  /// cuDNN's suggestions, best first; none where it has none, and then its words in `why`.
  [[nodiscard]] std::vector<CudnnDescriptor> suggestions(cudnnBackendHeurMode_t mode, std::string& why) const;

 private:
  [[nodiscard]] const CudnnDescriptor& descriptor(std::int64_t id) const {
    return descriptors_[static_cast<std::size_t>(id - 1)];
  }
  void add(CudnnDescriptor operation);
  CudnnDescriptor& keep(CudnnDescriptor descriptor);

  std::vector<FusedTensor> tensors_;
  std::vector<CudnnDescriptor> descriptors_;
  std::vector<CudnnDescriptor> others_;
  std::vector<CudnnDescriptor> operations_;
  std::vector<CudnnDescriptor> graph_;
};

/// What cuDNN says about the engine of a suggestion.
struct FusedEngine {
  std::int64_t index;
  bool isDeterministic;
  bool isBounded;  ///< its errors are bounded element by element, and it sums in float32
};
FusedEngine engineOf(const CudnnDescriptor& suggestion);

/// A suggestion that cuDNN has made a plan of.
struct FusedPlan {
  CudnnDescriptor plan;
  FusedEngine engine;
  std::int64_t workspace;
};
/// @throws CudnnError that says why not.
FusedPlan planOf(const CudnnDescriptor& suggestion);

/// The memory of a graph's tensors on the current device, filled with numbers, and a stream.
class FusedMemory {
 public:
  FusedMemory(const FusedGraph& graph, std::int64_t workspace);
  ~FusedMemory();
  FusedMemory(const FusedMemory&) = delete;
  FusedMemory& operator=(const FusedMemory&) = delete;

  void run(const FusedPlan& plan) const;
  /// The median of ten runs after three others.
  [[nodiscard]] double microseconds(const FusedPlan& plan) const;
  /// The numbers of eight channels of a tensor, one pixel after the other.
  [[nodiscard]] std::vector<float> eightChannels(std::int64_t id, std::int64_t first) const;

 private:
  static void fill(void* address, const FusedTensor& tensor);
  /// The tensors' and the workspace's addresses, as cuDNN wants them.
  [[nodiscard]] CudnnDescriptor variant() const;
  void launch(const FusedPlan& plan, const CudnnDescriptor& variant) const;

  const FusedGraph& graph_;
  std::vector<void*> addresses_;  ///< of each tensor, then the workspace
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<CudnnHandle> handle_;
};

}  // namespace mtl::cuda::testing
