#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mps/convolution/convolution_choice.hpp"
#include "mps/convolution/convolution_windows.hpp"
#include "mps/convolution/cuda/convolution_cuda.hpp"
#include "mps/convolution/cuda/convolution_cudnn_graph_cuda.hpp"
#include "mps/convolution/cuda/convolution_staging_cuda.hpp"
#include "mps/convolution/cuda/convolution_timing_cuda.hpp"
#include "mps/core/plan/fallback_plan.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/cuda/cudnn.hpp"
#include "mtl/cuda/device.hpp"
#include "mtl/cuda/stream.hpp"

namespace mps::detail {
namespace {

using cuda::CudnnArrays;
using cuda::CudnnAttempt;
using cuda::CudnnGraph;
using cuda::DenseWeights;
using cuda::PaddedAxis;
using mtl::cuda::Cudnn;
using mtl::cuda::CudnnDescriptor;
using mtl::cuda::CudnnError;
using Format = ImageFeatureChannelFormat;

constexpr std::int64_t kMostWorkspace = std::int64_t{256} << 20U;
/// The tensor as it is. Nothing where cuDNN cannot: it clamps no edge, cuts off no pixels and has no windows beside
/// the tensor.
std::optional<PaddedAxis> paddedByCudnn(const WindowAxis& axis, ImageEdgeMode edgeMode) {
  const bool outside = axis.paddingBefore() > 0 || axis.paddingAfter() > 0;
  if (edgeMode == ImageEdgeMode::Clamp && outside) return std::nullopt;
  if (axis.paddingBefore() < 0 || axis.paddingAfter() <= -axis.stride) return std::nullopt;
  // Of windows in the padding alone some of cuDNN 9.14's engines compute something else, and one loses the device.
  if (std::max(axis.paddingBefore(), axis.paddingAfter()) >= axis.dilatedSize()) return std::nullopt;
  return PaddedAxis{axis.sourceSize, 0, axis.paddingBefore(), std::max<std::int64_t>(0, axis.paddingAfter())};
}

/// A copy from the first tap of the first window to the last tap of the last one.
PaddedAxis paddedByCopy(const WindowAxis& axis) {
  return {coveredSize(axis), axis.firstTap(0), 0, 0};
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
  std::shared_ptr<const CudnnGraph> graph;
  CudnnDescriptor suggestion;
  CudnnDescriptor plan;
  std::int64_t workspace;
  bool isGeneral;  ///< cuDNN's engine 0, which takes everything and is slow
  std::string description;
};

bool isUneven(const PaddedAxis& axis) {
  return axis.before != axis.after;
}

/// A plan from a suggestion. @throws CudnnError that says why not.
Found planFrom(std::shared_ptr<const CudnnGraph> graph, CudnnDescriptor suggestion,
               const ConvolutionProblem& problem, const CudnnAttempt& attempt) {
  const CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t address = engine.get();
  suggestion.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &address);
  const std::int64_t index = engine.getNumber(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  std::string words = "engine " + std::to_string(index);
  if (const std::string why = objection(engine, problem, attempt.format); !why.empty())
    throw CudnnError(words + ": " + why);
  // Found by comparison with the reference, cuDNN 9; conform has such cases. Of this one cuDNN's notes say nothing.
  if (index == 17 && problem.operation == ConvolutionOperation::WeightsGradient)
    throw CudnnError(words + ": its errors are not bounded element by element");
  if (index == 1 && problem.operation == ConvolutionOperation::WeightsGradient &&
      (isUneven(attempt.y) || isUneven(attempt.x)))
    throw CudnnError(words + ": its weight gradients are wrong where both sides are not padded alike");
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, mtl::cuda::CudnnHandle::forPreparing());
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, suggestion);
  plan.finalize();
  const std::int64_t workspace = plan.getNumber(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  if (workspace > kMostWorkspace)
    throw CudnnError(words + " needs " + std::to_string(workspace) + " bytes of workspace");
  return {std::move(graph), std::move(suggestion), std::move(plan), workspace, index == 0, std::move(words)};
}

/// What a search for a plan does next.
enum class Search { GoOn, NextAttempt, Stop };

/// What cuDNN offers for an attempt, best first: calls take(graph, suggestion) while it says GoOn.
/// @param why set to cuDNN's words when it has no suggestions
template <class Take>
Search eachSuggestion(const ConvolutionProblem& problem, const CudnnAttempt& attempt,
                      const CudnnArrays& arrays, std::string& why, Take take) {
  const auto graph =
      std::make_shared<const CudnnGraph>(problem, attempt, arrays, mtl::cuda::CudnnHandle::forPreparing());
  // Asked for suggestions of mode B, cuDNN 9.14 and 9.19 end the process, with small problems and weight gradients.
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    std::vector<CudnnDescriptor> suggestions;
    try {
      suggestions = graph->suggestions(mode);
    } catch (const CudnnError& error) {
      why = error.what();
    }
    for (CudnnDescriptor& suggestion : suggestions)
      if (const Search next = take(graph, std::move(suggestion)); next != Search::GoOn) return next;
  }
  return Search::GoOn;
}

class CudnnPlan final : public SelectivePlan {
 public:
  CudnnPlan(const ConvolutionProblem& problem, const CudnnAttempt& attempt, const CudnnArrays& arrays,
            Found found)
      : problem_(problem), weights_(arrays.weights), found_(std::move(found)) {
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
        if (problem.hasBias) biases_ = cuda::PixelSums(problem.gradient, true, scratch_);
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

  [[nodiscard]] std::size_t scratchBytes() const override { return scratch_.bytes(); }
  [[nodiscard]] bool canAccumulate() const override { return problem_.accumulate; }
  [[nodiscard]] std::string describe() const override { return description_; }

  void run(mtl::Stream& stream, const Operands& operands) const override {
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

  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    switch (problem_.operation) {
      case ConvolutionOperation::Forward:
        return objectionToUnaligned({operands.source, operands.parameters[0], operands.destination});
      case ConvolutionOperation::DataGradient:
        return objectionToUnaligned({operands.gradient, operands.parameters[0], operands.destination});
      case ConvolutionOperation::WeightsGradient:
        break;
    }
    return objectionToUnaligned({operands.source, operands.gradient, operands.parameters[2]});
  }

 private:
  const std::byte* loadWeights(mtl::Stream& stream, const Operands& operands) const {
    return weights_.load(stream, problem_, operands.parameters[0], operands.scratch + packedWeights_);
  }

  void runWeightsGradient(mtl::Stream& stream, const Operands& operands) const {
    const std::byte* const source = source_.load(stream, operands.source, operands.scratch);
    const std::byte* const gradient = gradient_.load(stream, operands.gradient, operands.scratch);
    const bool direct = weights_.areGiven(problem_) && !operands.accumulate;
    std::byte* const gradients = direct ? operands.parameters[2] : operands.scratch + packedWeights_;
    execute(stream, operands, source, gradients, gradient);
    if (!direct)
      cuda::restoreWeightGradients(stream, problem_, weights_, gradients,
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
    CudnnDescriptor variant(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    variant.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, cuda::kCudnnIds);
    variant.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, addresses.data());
    variant.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    variant.finalize();
    cudnn.check(cudnn.execute(mtl::cuda::asCuda(stream).cudnn().get(), found_.plan.get(), variant.get()),
                "cudnnBackendExecute");
  }

  ConvolutionProblem problem_;
  DenseWeights weights_;
  Found found_;
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
std::vector<CudnnAttempt> attemptsFor(const ConvolutionProblem& problem) {
  std::vector<std::pair<PaddedAxis, PaddedAxis>> axes;
  const auto y = paddedByCudnn(problem.y, problem.edgeMode);
  const auto x = paddedByCudnn(problem.x, problem.edgeMode);
  if (y && x) axes.emplace_back(*y, *x);
  // The gradient of a clamped copy has several pixels for one.
  const bool padsByCudnn = y && x && y->before == y->after && x->before == x->after;
  if (!padsByCudnn &&
      (problem.edgeMode == ImageEdgeMode::Zero || problem.operation != ConvolutionOperation::DataGradient))
    axes.emplace_back(paddedByCopy(problem.y), paddedByCopy(problem.x));

  // cuDNN's result has the format of what it reads. Bytes as float16 keep the eleven bits that TF32 would.
  const auto isHalf = [](const TensorShape& shape) { return shape.format == Format::Float16; };
  const bool fromBytes = problem.source.format == Format::Unorm8 && isHalf(problem.destination);
  const bool areFloat16 =
      problem.allowReducedPrecision && (isHalf(problem.source) || isHalf(problem.gradient) || fromBytes);
  std::vector<Format> formats{Format::Float32};
  if (areFloat16) formats.insert(formats.begin(), Format::Float16);

  std::vector<CudnnAttempt> attempts;
  for (const Format format : formats)
    for (const auto& [rows, columns] : axes) {
      attempts.push_back({rows, columns, format, 1});
      const std::int64_t multiple = format == Format::Float16 ? 8 : 4;
      if (problem.groups != 1 ||
          (problem.inputFeatureChannels % multiple == 0 && problem.outputFeatureChannels % multiple == 0))
        continue;
      attempts.push_back({rows, columns, format, multiple});
      // Tensor cores want whole vectors of channels; without them, filling up only costs.
      if (problem.allowReducedPrecision && problem.outputFeatureChannels % multiple == 0)
        std::swap(attempts.back(), attempts[attempts.size() - 2]);
    }
  return attempts;
}

/// All of cuDNN's candidates for a problem, in the order in which they are tried.
class CudnnCandidates final : public cuda::CudaCandidates {
 public:
  using CudaCandidates::CudaCandidates;

  [[nodiscard]] std::string library() const override { return "cuDNN"; }
  [[nodiscard]] std::string version() const override { return Cudnn::library().version(); }

  /// The first candidate that is not the general one, or the first general one, or null.
  std::shared_ptr<const Plan> first() override {
    std::shared_ptr<const Plan> chosen;
    std::shared_ptr<const Plan> general;
    search([](std::int64_t) { return true; },
           [&](std::int64_t, std::shared_ptr<const Plan> plan, bool isGeneral) {
             if (!isGeneral) {
               chosen = std::move(plan);
               return Search::Stop;
             }
             if (!general) general = std::move(plan);
             return Search::NextAttempt;
           });
    return chosen ? chosen : general;
  }
  void find(const Wanted& wanted, const Take& take) override {
    search(wanted, [&](std::int64_t number, std::shared_ptr<const Plan> plan, bool) {
      return take(number, std::move(plan)) ? Search::GoOn : Search::Stop;
    });
  }
  /// cuDNN's last words about a candidate that may not be used.
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  /// Calls visit(number, plan, isGeneral) with the candidates whose number is wanted(); it says how to go on.
  template <class Visit>
  void search(const Wanted& wanted, Visit visit) {
    std::int64_t number = -1;
    for (const CudnnAttempt& attempt : attemptsFor(problem())) {
      try {
        const CudnnArrays arrays(problem(), attempt);
        if (!cuda::canStage(arrays.large.shape) || !cuda::canStage(arrays.small.shape)) {
          why_ = "an array is too large";
          continue;
        }
        const auto takeOne = [&](const std::shared_ptr<const CudnnGraph>& graph, CudnnDescriptor suggestion) {
          if (!wanted(++number)) return Search::GoOn;
          try {
            Found found = planFrom(graph, std::move(suggestion), problem(), attempt);
            const bool isGeneral = found.isGeneral;
            return visit(number,
                         std::make_shared<const CudnnPlan>(problem(), attempt, arrays, std::move(found)),
                         isGeneral);
          } catch (const CudnnError& error) {
            why_ = error.what();
            return Search::GoOn;
          }
        };
        if (eachSuggestion(problem(), attempt, arrays, why_, takeOne) == Search::Stop) return;
      } catch (const CudnnError& error) {
        why_ = error.what();
      }
    }
  }

  std::string why_ = "it suggests nothing";
};

}  // namespace

Preparation prepareConvolutionCudnn(const ConvolutionProblem& problem) {
  if (problem.sumsNothing()) return Refusal{kSumsNothing};
  if (!canCopyCovered(problem)) return Refusal{kCoversTooMuch};
  if (problem.transposed) return Refusal{"the weights of a transposed convolution have another order"};
  for (const TensorShape* shape : {&problem.source, &problem.gradient, &problem.destination})
    if (shape->channels > 0 && !cuda::canStage(*shape)) return Refusal{"a tensor is too large"};
  // Handles are for one thread at a time.
  static std::mutex& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  if (attemptsFor(problem).empty()) return Refusal{"cuDNN: clamped edges have no gradient there"};
  try {
    const mtl::cuda::CurrentDevice device(mtl::cuda::deviceIndex(problem.deviceName));
    CudnnCandidates candidates(problem);
    if (auto plan = chooseConvolutionPlan(candidates, problem))
      return withFallback(std::static_pointer_cast<const SelectivePlan>(std::move(plan)),
                          convolutionImplementationsCuda().back(), problem);
    return Refusal{"cuDNN: " + candidates.why()};
  } catch (const Error&) {
    throw;  // about a plan file
  } catch (const mtl::Error& error) {
    return Refusal{error.what()};
  }
}

}  // namespace mps::detail
