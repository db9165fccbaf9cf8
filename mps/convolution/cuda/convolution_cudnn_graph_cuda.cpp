#include "mps/convolution/cuda/convolution_cudnn_graph_cuda.hpp"

#include <algorithm>

namespace mps::detail::cuda {
namespace {

using mtl::cuda::CudnnDescriptor;
using Format = ImageFeatureChannelFormat;

cudnnDataType_t typeOf(Format format) {
  return format == Format::Float16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

/// @param sizes images (or outputs), channels, height, width; in memory channels are innermost
CudnnDescriptor tensor(std::int64_t id, Format format, const std::array<std::int64_t, 4>& sizes) {
  const std::array<std::int64_t, 4> strides{sizes[1] * sizes[2] * sizes[3], 1, sizes[1] * sizes[3], sizes[1]};
  CudnnDescriptor descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, typeOf(format));
  descriptor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes);
  descriptor.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
  descriptor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  descriptor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16});
  descriptor.finalize();
  return descriptor;
}

CudnnDescriptor tensor(std::int64_t id, const TensorShape& shape) {
  return tensor(id, shape.format, {shape.images, shape.channels, shape.height, shape.width});
}

CudnnDescriptor geometryOf(const ConvolutionProblem& problem, const CudnnAttempt& attempt) {
  const auto both = [](std::int64_t y, std::int64_t x) { return std::array<std::int64_t, 2>{y, x}; };
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  CudnnDescriptor descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
  // A window of one pixel has no gaps; told of some, cuDNN 9.14 divides by zero in a strided problem.
  const auto dilationOf = [](const WindowAxis& axis) { return axis.kernelSize == 1 ? 1 : axis.dilation; };
  descriptor.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, both(dilationOf(problem.y), dilationOf(problem.x)));
  descriptor.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, both(problem.y.stride, problem.x.stride));
  descriptor.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, both(attempt.y.before, attempt.x.before));
  descriptor.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, both(attempt.y.after, attempt.x.after));
  descriptor.finalize();
  return descriptor;
}

/// The names of an operation and its attributes.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, geometry, large, weights, small;
};
OperationNames namesOf(ConvolutionOperation operation) {
  switch (operation) {
    case ConvolutionOperation::DataGradient:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    case ConvolutionOperation::WeightsGradient:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
    case ConvolutionOperation::Forward:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
}

}  // namespace

CudnnArrays::CudnnArrays(const ConvolutionProblem& problem, const CudnnAttempt& attempt)
    : large{TensorShape::dense(problem.images(), attempt.y.size, attempt.x.size,
                               attempt.filledUp(problem.inputFeatureChannels), attempt.format),
            attempt.y.origin, attempt.x.origin},
      small{TensorShape::dense(problem.images(), problem.y.destinationSize, problem.x.destinationSize,
                               attempt.filledUp(problem.outputFeatureChannels), attempt.format),
            0, 0},
      weights{attempt.format, attempt.filledUp(problem.outputFeatureChannels),
              attempt.filledUp(problem.inputChannelsPerGroup())} {}

CudnnGraph::CudnnGraph(const ConvolutionProblem& problem, const CudnnAttempt& attempt,
                       const CudnnArrays& arrays, cudnnHandle_t handle)
    : geometry(geometryOf(problem, attempt)),
      large(tensor(kCudnnIds[0], arrays.large.shape)),
      weights(tensor(
          kCudnnIds[1], arrays.weights.format,
          {arrays.weights.outputs, arrays.weights.inputs, problem.y.kernelSize, problem.x.kernelSize})),
      small(tensor(kCudnnIds[2], arrays.small.shape)),
      operation(namesOf(problem.operation).type),
      graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
  const OperationNames names = namesOf(problem.operation);
  operation.set(names.alpha, 1.0F);
  operation.set(names.beta, 0.0F);
  operation.set(names.geometry, geometry);
  operation.set(names.large, large);
  operation.set(names.weights, weights);
  operation.set(names.small, small);
  operation.finalize();
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  graph.finalize();
}

std::vector<CudnnDescriptor> CudnnGraph::suggestions(cudnnBackendHeurMode_t mode) const {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  heuristics.finalize();
  const auto results = [&](std::int64_t count, void* values) {
    return heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, values);
  };
  const std::int64_t count = results(0, nullptr);
  std::vector<CudnnDescriptor> found;
  std::vector<cudnnBackendDescriptor_t> addresses;
  for (std::int64_t i = 0; i < count; ++i) {
    found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    addresses.push_back(found.back().get());
  }
  if (count > 0) found.erase(found.begin() + std::min(count, results(count, addresses.data())), found.end());
  return found;
}

}  // namespace mps::detail::cuda
