#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mps/convolution/convolution_cuda.hpp"
#include "mps/convolution/convolution_staging_cuda.hpp"
#include "mtl/cuda/cudnn.hpp"
#include "mtl/cuda/stream.hpp"

namespace mps::detail {
namespace {

using cuda::DenseArray;
using cuda::DenseWeights;
using mtl::cuda::Cudnn;
using mtl::cuda::CudnnDescriptor;
using mtl::cuda::CudnnError;
using Format = ImageFeatureChannelFormat;

constexpr std::int64_t kMostWorkspace = std::int64_t{256} << 20U;
/// What cuDNN calls the three tensors of a convolution: the larger image, the weights, the smaller image.
constexpr std::array<std::int64_t, 3> kIds{'x', 'w', 'y'};

/// How one axis of the larger image's array follows from the tensor, and what cuDNN pads.
struct PaddedAxis {
  std::int64_t size;
  std::int64_t origin;
  std::int64_t before;
  std::int64_t after;
};

/// The tensor as it is. Nothing where cuDNN cannot: it clamps no edge and cuts off no pixels.
std::optional<PaddedAxis> paddedByCudnn(const WindowAxis& axis, ImageEdgeMode edgeMode) {
  const bool outside = axis.paddingBefore() > 0 || axis.paddingAfter() > 0;
  if (edgeMode == ImageEdgeMode::Clamp && outside) return std::nullopt;
  if (axis.paddingBefore() < 0 || axis.paddingAfter() <= -axis.stride) return std::nullopt;
  return PaddedAxis{axis.sourceSize, 0, axis.paddingBefore(), std::max<std::int64_t>(0, axis.paddingAfter())};
}

/// A copy from the first tap of the first window to the last tap of the last one.
PaddedAxis paddedByCopy(const WindowAxis& axis) {
  return {axis.stride * (axis.destinationSize - 1) + axis.dilatedSize(), axis.firstTap(0), 0, 0};
}

/// One way to have cuDNN compute a problem.
struct Attempt {
  PaddedAxis y;
  PaddedAxis x;
  Format format;                  ///< of what cuDNN reads and writes; it sums in float32
  std::int64_t channelsMultiple;  ///< channels are filled up with zeros to a multiple of it

  [[nodiscard]] std::int64_t filledUp(std::int64_t channels) const {
    return (channels + channelsMultiple - 1) / channelsMultiple * channelsMultiple;
  }
};

/// The arrays of an attempt.
struct Arrays {
  DenseArray large;  ///< source, or the data gradient
  DenseArray small;  ///< result, or the incoming gradient
  DenseWeights weights;

  Arrays(const ConvolutionProblem& problem, const Attempt& attempt)
      : large{TensorShape::dense(problem.images(), attempt.y.size, attempt.x.size,
                                 attempt.filledUp(problem.inputFeatureChannels), attempt.format),
              attempt.y.origin, attempt.x.origin},
        small{TensorShape::dense(problem.images(), problem.y.destinationSize, problem.x.destinationSize,
                                 attempt.filledUp(problem.outputFeatureChannels), attempt.format),
              0, 0},
        weights{attempt.format, attempt.filledUp(problem.outputFeatureChannels),
                attempt.filledUp(problem.inputChannelsPerGroup())} {}
};

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

CudnnDescriptor geometry(const ConvolutionProblem& problem, const Attempt& attempt) {
  const auto both = [](std::int64_t y, std::int64_t x) { return std::array<std::int64_t, 2>{y, x}; };
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  CudnnDescriptor descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  descriptor.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
  descriptor.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, both(problem.y.dilation, problem.x.dilation));
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

/// What cuDNN computes: one convolution. Whether a descriptor keeps those that it was made from is not documented,
/// so all of them live as long as it.
struct OperationGraph {
  CudnnDescriptor geometry;
  CudnnDescriptor large;
  CudnnDescriptor weights;
  CudnnDescriptor small;
  CudnnDescriptor operation;
  CudnnDescriptor graph;

  OperationGraph(const ConvolutionProblem& problem, const Attempt& attempt, const Arrays& arrays,
                 cudnnHandle_t handle)
      : geometry(detail::geometry(problem, attempt)),
        large(tensor(kIds[0], arrays.large.shape)),
        weights(tensor(
            kIds[1], arrays.weights.format,
            {arrays.weights.outputs, arrays.weights.inputs, problem.y.kernelSize, problem.x.kernelSize})),
        small(tensor(kIds[2], arrays.small.shape)),
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
};

/// cuDNN's suggestions, best first.
std::vector<CudnnDescriptor> suggestionsFor(const OperationGraph& graph, cudnnBackendHeurMode_t mode) {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.graph);
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

/// Why an engine must not be used, or "".
std::string objection(cudnnBackendNumericalNote_t note, const ConvolutionProblem& problem, Format format) {
  switch (note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      return "its results differ from run to run";
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      return "it sums in less than float32";
    case CUDNN_NUMERICAL_NOTE_FFT:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
      return "its errors are not bounded element by element";
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      return format == Format::Float32 && !problem.allowReducedPrecision ? "it rounds its inputs" : "";
    default:
      return "";
  }
}

std::string objection(const CudnnDescriptor& engine, const ConvolutionProblem& problem, Format format) {
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const std::int64_t count = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                        CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes.data());
  for (std::size_t i = 0; i < notes.size() && static_cast<std::int64_t>(i) < count; ++i)
    if (std::string found = objection(notes[i], problem, format); !found.empty()) return found;
  return "";
}

/// A plan of cuDNN's, what it was made from, and what is to be said about it.
struct Found {
  std::shared_ptr<const OperationGraph> graph;
  CudnnDescriptor suggestion;
  CudnnDescriptor plan;
  std::int64_t workspace;
  bool isGeneral;  ///< cuDNN's engine 0, which takes everything and is slow
  std::string description;
};

/// A plan from a suggestion. @throws CudnnError that says why not.
Found planFrom(std::shared_ptr<const OperationGraph> graph, CudnnDescriptor suggestion,
               const ConvolutionProblem& problem, Format format, cudnnHandle_t handle) {
  const CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t address = engine.get();
  suggestion.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &address);
  const std::int64_t index = engine.getNumber(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  std::string words = "engine " + std::to_string(index);
  if (const std::string why = objection(engine, problem, format); !why.empty())
    throw CudnnError(words + ": " + why);
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, suggestion);
  plan.finalize();
  const std::int64_t workspace = plan.getNumber(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  if (workspace > kMostWorkspace)
    throw CudnnError(words + " needs " + std::to_string(workspace) + " bytes of workspace");
  return {std::move(graph), std::move(suggestion), std::move(plan), workspace, index == 0, std::move(words)};
}

/// The first suggestion that may be used. @throws CudnnError with cuDNN's last words when there is none.
Found findPlan(const ConvolutionProblem& problem, const Attempt& attempt, const Arrays& arrays) {
  const cudnnHandle_t handle = mtl::cuda::CudnnHandle::forPreparing();
  const auto graph = std::make_shared<const OperationGraph>(problem, attempt, arrays, handle);
  std::string why = "it suggests nothing";
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    std::vector<CudnnDescriptor> suggestions;
    try {
      suggestions = suggestionsFor(*graph, mode);
    } catch (const CudnnError& error) {
      why = error.what();
    }
    for (CudnnDescriptor& suggestion : suggestions) {
      try {
        return planFrom(graph, std::move(suggestion), problem, attempt.format, handle);
      } catch (const CudnnError& error) {
        why = error.what();
      }
    }
  }
  throw CudnnError(why);
}

class CudnnPlan final : public Plan {
 public:
  CudnnPlan(const ConvolutionProblem& problem, const Attempt& attempt, const Arrays& arrays, Found found,
            std::shared_ptr<const Plan> plain)
      : problem_(problem), weights_(arrays.weights), found_(std::move(found)), plain_(std::move(plain)) {
    switch (problem.operation) {
      case ConvolutionOperation::Forward:
        source_ = cuda::StagedInput(problem.source, arrays.large, problem.edgeMode, scratch_);
        destination_ = cuda::StagedOutput(problem, arrays.small, scratch_);
        break;
      case ConvolutionOperation::DataGradient:
        gradient_ = cuda::StagedInput(problem.gradient, arrays.small, ImageEdgeMode::Zero, scratch_);
        destination_ = cuda::StagedOutput(problem, arrays.large, scratch_);
        break;
      case ConvolutionOperation::WeightsGradient:
        source_ = cuda::StagedInput(problem.source, arrays.large, problem.edgeMode, scratch_);
        gradient_ = cuda::StagedInput(problem.gradient, arrays.small, ImageEdgeMode::Zero, scratch_);
        if (problem.hasBias) biases_ = cuda::PixelSums(problem.gradient, scratch_);
        break;
    }
    const bool isGradient = problem.operation == ConvolutionOperation::WeightsGradient;
    if (!weights_.areGiven(problem) || (isGradient && problem.accumulate))
      packedWeights_ = scratch_.reserve(weights_.bytes(problem));
    workspace_ = cuda::Workspace(static_cast<std::size_t>(found_.workspace), scratch_);
    description_ = found_.description;
    if (attempt.format == Format::Float16) description_ += " float16";
    if (attempt.channelsMultiple > 1) description_ += " channels filled up";
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    return std::max(scratch_.bytes(), plain_->scratchBytes());
  }
  [[nodiscard]] bool canAccumulate() const override { return problem_.accumulate; }
  [[nodiscard]] std::string describe() const override { return description_; }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (!isAligned(operands)) return plain_->run(stream, operands);
    switch (problem_.operation) {
      case ConvolutionOperation::Forward: {
        const std::byte* const source = source_.load(stream, operands.source, operands.scratch);
        execute(stream, operands, source, loadWeights(stream, operands), destination_.target(operands));
        return destination_.store(
            stream, operands,
            problem_.hasBias ? reinterpret_cast<const float*>(operands.parameters[1]) : nullptr);
      }
      case ConvolutionOperation::DataGradient: {
        const std::byte* const gradient = gradient_.load(stream, operands.gradient, operands.scratch);
        execute(stream, operands, destination_.target(operands), loadWeights(stream, operands), gradient);
        return destination_.store(stream, operands, nullptr);
      }
      case ConvolutionOperation::WeightsGradient:
        return runWeightsGradient(stream, operands);
    }
  }

 private:
  [[nodiscard]] bool isAligned(const Operands& operands) const {
    switch (problem_.operation) {
      case ConvolutionOperation::Forward:
        return cuda::isAligned(operands.source) && cuda::isAligned(operands.parameters[0]) &&
               cuda::isAligned(operands.destination);
      case ConvolutionOperation::DataGradient:
        return cuda::isAligned(operands.gradient) && cuda::isAligned(operands.parameters[0]) &&
               cuda::isAligned(operands.destination);
      case ConvolutionOperation::WeightsGradient:
        break;
    }
    return cuda::isAligned(operands.source) && cuda::isAligned(operands.gradient) &&
           cuda::isAligned(operands.parameters[2]);
  }

  const std::byte* loadWeights(mtl::Stream& stream, const Operands& operands) const {
    if (weights_.areGiven(problem_)) return operands.parameters[0];
    std::byte* const packed = operands.scratch + packedWeights_;
    cuda::packWeights(stream, problem_, weights_, reinterpret_cast<const float*>(operands.parameters[0]),
                      packed);
    return packed;
  }

  void runWeightsGradient(mtl::Stream& stream, const Operands& operands) const {
    const std::byte* const source = source_.load(stream, operands.source, operands.scratch);
    const std::byte* const gradient = gradient_.load(stream, operands.gradient, operands.scratch);
    const bool direct = weights_.areGiven(problem_) && !operands.accumulate;
    std::byte* const gradients = direct ? operands.parameters[2] : operands.scratch + packedWeights_;
    execute(stream, operands, source, gradients, gradient);
    if (!direct)
      cuda::unpackWeightGradients(stream, problem_, weights_, gradients,
                                  reinterpret_cast<float*>(operands.parameters[2]), operands.accumulate);
    if (problem_.hasBias)
      biases_.run(stream, operands.gradient, reinterpret_cast<float*>(operands.parameters[3]),
                  operands.accumulate, operands.scratch);
  }

  void execute(mtl::Stream& stream, const Operands& operands, const std::byte* large,
               const std::byte* weights, const std::byte* small) const {
    const Cudnn& cudnn = Cudnn::library();
    const std::array<const void*, 3> addresses{large, weights, small};
    const void* const workspace = workspace_.address(operands.scratch);
    CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, kIds);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, addresses.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    pack.finalize();
    cudnn.check(cudnn.execute(mtl::cuda::asCuda(stream).cudnn().get(), found_.plan.get(), pack.get()),
                "cudnnBackendExecute");
  }

  ConvolutionProblem problem_;
  DenseWeights weights_;
  Found found_;
  std::shared_ptr<const Plan> plain_;  ///< for addresses that libraries do not take
  ScratchLayout scratch_;
  cuda::StagedInput source_;
  cuda::StagedInput gradient_;
  cuda::StagedOutput destination_;
  cuda::PixelSums biases_;
  std::size_t packedWeights_ = 0;
  cuda::Workspace workspace_;
  std::string description_;
};

/// What to ask cuDNN for, in this order.
std::vector<Attempt> attemptsFor(const ConvolutionProblem& problem) {
  std::vector<std::pair<PaddedAxis, PaddedAxis>> axes;
  const auto y = paddedByCudnn(problem.y, problem.edgeMode);
  const auto x = paddedByCudnn(problem.x, problem.edgeMode);
  if (y && x) axes.emplace_back(*y, *x);
  // The gradient of a clamped copy has several pixels for one.
  const bool padsByCudnn = y && x && y->before == y->after && x->before == x->after;
  if (!padsByCudnn &&
      (problem.edgeMode == ImageEdgeMode::Zero || problem.operation != ConvolutionOperation::DataGradient))
    axes.emplace_back(paddedByCopy(problem.y), paddedByCopy(problem.x));

  // cuDNN's result has the format of what it reads.
  const bool halves = problem.allowReducedPrecision && (problem.source.format == Format::Float16 ||
                                                        problem.gradient.format == Format::Float16);
  std::vector<Format> formats{Format::Float32};
  if (halves) formats.insert(formats.begin(), Format::Float16);

  std::vector<Attempt> attempts;
  for (const Format format : formats)
    for (const auto& [rows, columns] : axes) {
      attempts.push_back({rows, columns, format, 1});
      const std::int64_t multiple = format == Format::Float16 ? 8 : 4;
      if (problem.groups == 1 &&
          (problem.inputFeatureChannels % multiple != 0 || problem.outputFeatureChannels % multiple != 0))
        attempts.push_back({rows, columns, format, multiple});
    }
  return attempts;
}

}  // namespace

Preparation prepareConvolutionCudnn(const ConvolutionProblem& problem) {
  if (problem.images() == 0) return Refusal{"there are no images"};
  if (problem.transposed) return Refusal{"the weights of a transposed convolution have another order"};
  for (const TensorShape* shape : {&problem.source, &problem.gradient, &problem.destination})
    if (shape->channels > 0 && !cuda::canStage(*shape)) return Refusal{"a tensor is too large"};
  // Handles are for one thread at a time.
  static std::mutex& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  std::string why = "clamped edges have no gradient there";
  try {
    const mtl::cuda::CurrentDevice device(mtl::cuda::deviceIndex(problem.deviceName));
    const auto plain = std::get<std::shared_ptr<const Plan>>(prepareConvolutionPlainCuda(problem));
    std::shared_ptr<const Plan> general;
    for (const Attempt& attempt : attemptsFor(problem)) {
      try {
        const Arrays arrays(problem, attempt);
        Found found = findPlan(problem, attempt, arrays);
        const bool isGeneral = found.isGeneral;
        auto plan = std::make_shared<const CudnnPlan>(problem, attempt, arrays, std::move(found), plain);
        if (!isGeneral) return plan;
        if (!general) general = std::move(plan);
      } catch (const CudnnError& error) {
        why = error.what();
      }
    }
    if (general) return general;
  } catch (const mtl::Error& error) {
    return Refusal{error.what()};
  }
  return Refusal{"cuDNN: " + why};
}

}  // namespace mps::detail
