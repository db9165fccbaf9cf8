#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "mps/convolution/convolution_cpu.hpp"
#include "mps/convolution/convolution_slices.hpp"
#include "mps/convolution/convolution_staging.hpp"
#include "mps/convolution/convolution_windows.hpp"
#include "mtl/cpu/onednn.hpp"

namespace mps::detail {
namespace {

using dnnl::memory;
using mtl::cpu::OneDnnPrimitive;

/// Fewer input channels of a group fill no vector, and oneDNN's direct data gradient then runs at a tenth of
/// its rate; a matrix product and a scatter is 2 to 3 times faster.
constexpr std::int64_t kFewInputChannels = 4;
/// ... provided that the product has this depth.
constexpr std::int64_t kManyOutputChannels = 16;

/// How the rows (columns) of the array that oneDNN convolves follow from the source.
struct PaddedAxis {
  AxisMap map;
  std::int64_t before = 0;  ///< zeros that oneDNN is to imagine on either side; after may be less than 0
  std::int64_t after = 0;
};

/// The source as it is, and oneDNN pads. Nothing where it cannot: it clamps no edge and cuts off no pixels.
std::optional<PaddedAxis> paddedByOneDnn(const WindowAxis& axis, ImageEdgeMode edgeMode) {
  const bool outside = axis.paddingBefore() > 0 || axis.paddingAfter() > 0;
  if (edgeMode == ImageEdgeMode::Clamp && outside) return std::nullopt;
  if (axis.paddingBefore() < 0 || axis.paddingAfter() <= -axis.stride) return std::nullopt;
  return PaddedAxis{AxisMap::identity(axis.sourceSize), axis.paddingBefore(), axis.paddingAfter()};
}

/// A copy of the source that needs no padding.
PaddedAxis paddedByCopy(const WindowAxis& axis, ImageEdgeMode edgeMode) {
  return {AxisMap::coverage(axis, edgeMode), 0, 0};
}

memory::desc images(std::int64_t count, std::int64_t channels, std::int64_t height, std::int64_t width) {
  return {{count, channels, height, width}, memory::data_type::f32, memory::format_tag::nhwc};
}

/// OHWI, which is what the parameters are; or `any`, which lets oneDNN choose.
memory::desc weights(const ConvolutionProblem& problem, bool chosenByOneDnn) {
  const std::int64_t height = problem.y.kernelSize;
  const std::int64_t width = problem.x.kernelSize;
  const std::int64_t inputs = problem.inputChannelsPerGroup();
  const std::int64_t outputs = problem.outputChannelsPerGroup();
  memory::dims sizes{outputs, inputs, height, width};
  memory::dims strides{height * width * inputs, 1, width * inputs, inputs};
  if (problem.groups > 1) {
    sizes.insert(sizes.begin(), problem.groups);
    strides.insert(strides.begin(), outputs * height * width * inputs);
  }
  if (chosenByOneDnn) return {sizes, memory::data_type::f32, memory::format_tag::any};
  return {sizes, memory::data_type::f32, strides};
}

mtl::cpu::OneDnnConvolution describe(const ConvolutionProblem& problem, const PaddedAxis& y,
                                     const PaddedAxis& x) {
  mtl::cpu::OneDnnConvolution description{
      .source = images(problem.images(), problem.inputFeatureChannels, y.map.size(), x.map.size()),
      .destination = images(problem.images(), problem.outputFeatureChannels, problem.y.destinationSize,
                            problem.x.destinationSize),
      .weights = weights(problem, true),
      .bias = {},
      .strides = {problem.y.stride, problem.x.stride},
      .dilates = {problem.y.dilation - 1, problem.x.dilation - 1},
      .before = {y.before, x.before},
      .after = {y.after, x.after}};
  if (problem.hasBias && !problem.transposed)
    description.bias =
        memory::desc({problem.outputFeatureChannels}, memory::data_type::f32, memory::format_tag::a);
  return description;
}

OneDnnPrimitive makeConvolution(const ConvolutionProblem& problem,
                                const mtl::cpu::OneDnnConvolution& description) {
  switch (problem.operation) {
    case ConvolutionOperation::Forward:
      return description.forward();
    case ConvolutionOperation::WeightsGradient:
      return description.weightsGradient();
    case ConvolutionOperation::DataGradient:
      break;
  }
  const bool preferProduct = problem.groups == 1 && problem.inputFeatureChannels <= kFewInputChannels &&
                             problem.outputFeatureChannels >= kManyOutputChannels;
  return description.dataGradient(preferProduct ? "gemm:jit" : "");
}

OneDnnPrimitive makeReorder(const memory::desc& from, const memory::desc& to, bool accumulate) {
  const dnnl::engine& engine = mtl::cpu::oneDnnEngine();
  return OneDnnPrimitive(dnnl::reorder::primitive_desc(
      engine, from, engine, to, mtl::cpu::oneDnnAttributes(1, accumulate ? 1.0F : 0.0F)));
}

class OneDnnPlan final : public Plan {
 public:
  OneDnnPlan(const ConvolutionProblem& problem, PaddedAxis y, PaddedAxis x, OneDnnPrimitive convolution)
      : problem_(problem), convolution_(std::move(convolution)) {
    const bool weightsGradient = problem.operation == ConvolutionOperation::WeightsGradient;
    switch (problem.operation) {
      case ConvolutionOperation::Forward:
        source_ = StagedInput(problem.source, std::move(y.map), std::move(x.map), scratch_);
        destination_ = StagedOutput(problem, scratch_);
        break;
      case ConvolutionOperation::DataGradient:
        gradient_ = StagedInput(problem.gradient, scratch_);
        destination_ = StagedOutput(problem, std::move(y.map), std::move(x.map), scratch_);
        break;
      case ConvolutionOperation::WeightsGradient:
        source_ = StagedInput(problem.source, std::move(y.map), std::move(x.map), scratch_);
        gradient_ = StagedInput(problem.gradient, scratch_);
        if (problem.transposed && problem.hasBias) biasSource_ = StagedInput(problem.source, scratch_);
        break;
    }
    const memory::desc ours = weights(problem, false);
    const memory::desc theirs =
        convolution_.argument(weightsGradient ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS);
    theirWeights_ = scratch_.reserve(theirs.get_size());
    if (problem.transposed) partnerWeights_ = scratch_.reserve(ours.get_size());
    const std::size_t scratchpad = convolution_.scratchpadBytes();
    if (weightsGradient) {
      reorder_ = makeReorder(theirs, ours, false);
      if (problem.accumulate) addingReorder_ = makeReorder(theirs, ours, true);
      biasGradients_ = scratch_.reserve(static_cast<std::size_t>(problem.biasCount()) * sizeof(float));
    } else {
      reorder_ = makeReorder(ours, theirs, false);
    }
    scratchpad_ = scratch_.reserve(std::max(scratchpad, reorder_.scratchpadBytes()));
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    const mtl::cpu::OneDnnThreads threads(problem_.threadCount);
    switch (problem_.operation) {
      case ConvolutionOperation::Forward:
        return runForward(cpu, operands);
      case ConvolutionOperation::DataGradient:
        return runDataGradient(cpu, operands);
      case ConvolutionOperation::WeightsGradient:
        return runWeightsGradient(cpu, operands);
    }
  }

  [[nodiscard]] std::size_t scratchBytes() const override { return scratch_.bytes(); }
  [[nodiscard]] bool canAccumulate() const override { return problem_.accumulate; }
  [[nodiscard]] std::string describe() const override { return convolution_.implementation(); }

 private:
  [[nodiscard]] float* floats(const Operands& operands, std::size_t offset) const {
    return reinterpret_cast<float*>(operands.scratch + offset);
  }

  /// The weights in oneDNN's layout.
  const float* loadWeights(mtl::cpu::Stream& stream, const Operands& operands) const {
    const auto* given = reinterpret_cast<const float*>(operands.parameters[0]);
    if (problem_.transposed) {
      float* partner = floats(operands, partnerWeights_);
      partnerWeights(stream, problem_, given, partner);
      given = partner;
    }
    float* theirs = floats(operands, theirWeights_);
    reorder_.run({{DNNL_ARG_FROM, given}, {DNNL_ARG_TO, theirs}}, operands.scratch + scratchpad_);
    return theirs;
  }

  void runForward(mtl::cpu::Stream& stream, const Operands& operands) const {
    const bool bias = problem_.hasBias && !problem_.transposed;
    convolution_.run({{DNNL_ARG_SRC, source_.load(stream, operands.source, operands.scratch)},
                      {DNNL_ARG_WEIGHTS, loadWeights(stream, operands)},
                      {DNNL_ARG_BIAS, bias ? operands.parameters[1] : nullptr},
                      {DNNL_ARG_DST, destination_.target(operands)}},
                     operands.scratch + scratchpad_);
    destination_.store(stream, operands, nullptr);
  }

  void runDataGradient(mtl::cpu::Stream& stream, const Operands& operands) const {
    convolution_.run({{DNNL_ARG_DIFF_DST, gradient_.load(stream, operands.gradient, operands.scratch)},
                      {DNNL_ARG_WEIGHTS, loadWeights(stream, operands)},
                      {DNNL_ARG_DIFF_SRC, destination_.target(operands)}},
                     operands.scratch + scratchpad_);
    const bool bias = problem_.hasBias && problem_.transposed;
    destination_.store(stream, operands,
                       bias ? reinterpret_cast<const float*>(operands.parameters[1]) : nullptr);
  }

  void runWeightsGradient(mtl::cpu::Stream& stream, const Operands& operands) const {
    const float* source = source_.load(stream, operands.source, operands.scratch);
    const float* gradient = gradient_.load(stream, operands.gradient, operands.scratch);
    const bool bias = problem_.hasBias && !problem_.transposed;
    float* theirs = floats(operands, theirWeights_);
    float* biasGradients = floats(operands, biasGradients_);
    convolution_.run({{DNNL_ARG_SRC, source},
                      {DNNL_ARG_DIFF_DST, gradient},
                      {DNNL_ARG_DIFF_WEIGHTS, theirs},
                      {DNNL_ARG_DIFF_BIAS, bias ? biasGradients : nullptr}},
                     operands.scratch + scratchpad_);

    auto* weightGradients = reinterpret_cast<float*>(operands.parameters[2]);
    if (problem_.transposed) {
      float* partner = floats(operands, partnerWeights_);
      reorder_.run({{DNNL_ARG_FROM, theirs}, {DNNL_ARG_TO, partner}}, operands.scratch + scratchpad_);
      transposedWeights(stream, problem_, partner, weightGradients, operands.accumulate);
    } else {
      const OneDnnPrimitive& reorder = operands.accumulate ? addingReorder_ : reorder_;
      reorder.run({{DNNL_ARG_FROM, theirs}, {DNNL_ARG_TO, weightGradients}}, operands.scratch + scratchpad_);
    }
    if (!problem_.hasBias) return;
    auto* biases = reinterpret_cast<float*>(operands.parameters[3]);
    if (problem_.transposed)
      sumPixels(stream, biasSource_.load(stream, operands.source, operands.scratch), problem_.source.pixels(),
                problem_.biasCount(), biases, operands.accumulate);
    else
      storeOrAdd(stream, biasGradients, problem_.biasCount(), biases, operands.accumulate);
  }

  ConvolutionProblem problem_;
  OneDnnPrimitive convolution_;
  OneDnnPrimitive reorder_;        ///< weights: to oneDNN's layout, or back
  OneDnnPrimitive addingReorder_;  ///< back, when gradients are to be added
  ScratchLayout scratch_;
  StagedInput source_;
  StagedInput gradient_;
  StagedInput biasSource_;  ///< what a transposed convolution's bias gradient sums
  StagedOutput destination_;
  std::size_t theirWeights_ = 0;
  std::size_t partnerWeights_ = 0;
  std::size_t biasGradients_ = 0;
  std::size_t scratchpad_ = 0;
};

Preparation prepareWith(const ConvolutionProblem& problem, PaddedAxis y, PaddedAxis x) {
  try {
    OneDnnPrimitive convolution = makeConvolution(problem, describe(problem, y, x));
    if (convolution.isReference()) return Refusal{"oneDNN has only its reference code for it"};
    return std::make_shared<const OneDnnPlan>(problem, std::move(y), std::move(x), std::move(convolution));
  } catch (const dnnl::error& error) {
    return Refusal{std::string("oneDNN: ") + error.what()};
  }
}

Preparation prepareBatchOneDNN(const ConvolutionProblem& problem) {
  if (problem.sumsNothing()) return Refusal{kSumsNothing};
  if (!canCopyCovered(problem)) return Refusal{kCoversTooMuch};  // its own padding takes as long
  const mtl::cpu::OneDnnThreads threads(problem.threadCount);
  auto y = paddedByOneDnn(problem.y, problem.edgeMode);
  auto x = paddedByOneDnn(problem.x, problem.edgeMode);
  if (y && x) {
    Preparation preparation = prepareWith(problem, std::move(*y), std::move(*x));
    if (!std::holds_alternative<Refusal>(preparation)) return preparation;
  }
  return prepareWith(problem, paddedByCopy(problem.y, problem.edgeMode),
                     paddedByCopy(problem.x, problem.edgeMode));
}

}  // namespace

Preparation prepareConvolutionOneDnn(const ConvolutionProblem& problem) {
  return prepareInSlices(problem, prepareBatchOneDNN);
}

}  // namespace mps::detail
