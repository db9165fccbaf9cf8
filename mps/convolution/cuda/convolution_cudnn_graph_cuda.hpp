#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "mps/convolution/cuda/convolution_staging_cuda.hpp"
#include "mtl/cuda/cudnn.hpp"

/// A convolution in the words of cuDNN's graph API.
namespace mps::detail::cuda {

/// What cuDNN calls the three tensors of a convolution: the larger image, the weights, the smaller image.
inline constexpr std::array<std::int64_t, 3> kCudnnIds{'x', 'w', 'y'};

/// How one axis of the larger image's array follows from the tensor, and what cuDNN pads.
struct PaddedAxis {
  std::int64_t size;
  std::int64_t origin;
  std::int64_t before;
  std::int64_t after;
};

/// One way to have cuDNN compute a problem.
struct CudnnAttempt {
  PaddedAxis y;
  PaddedAxis x;
  ImageFeatureChannelFormat format;  ///< of what cuDNN reads and writes; it sums in float32
  std::int64_t channelsMultiple;     ///< channels are filled up with zeros to a multiple of it

  [[nodiscard]] std::int64_t filledUp(std::int64_t channels) const {
    return (channels + channelsMultiple - 1) / channelsMultiple * channelsMultiple;
  }
};

/// The arrays of an attempt.
struct CudnnArrays {
  DenseArray large;  ///< source, or the data gradient
  DenseArray small;  ///< result, or the incoming gradient
  DenseWeights weights;

  CudnnArrays(const ConvolutionProblem& problem, const CudnnAttempt& attempt);
};

/// What cuDNN computes: one convolution. Whether a descriptor keeps those that it was made from is not documented,
/// so all of them live as long as it.
struct CudnnGraph {
  mtl::cuda::CudnnDescriptor geometry;
  mtl::cuda::CudnnDescriptor large;
  mtl::cuda::CudnnDescriptor weights;
  mtl::cuda::CudnnDescriptor small;
  mtl::cuda::CudnnDescriptor operation;
  mtl::cuda::CudnnDescriptor graph;

  CudnnGraph(const ConvolutionProblem& problem, const CudnnAttempt& attempt, const CudnnArrays& arrays,
             cudnnHandle_t handle);

  /// cuDNN's suggestions, best first.
  [[nodiscard]] std::vector<mtl::cuda::CudnnDescriptor> suggestions(cudnnBackendHeurMode_t mode) const;
};

}  // namespace mps::detail::cuda
