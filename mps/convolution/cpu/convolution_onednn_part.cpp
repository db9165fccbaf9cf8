#include "mps/convolution/cpu/convolution_onednn_part.hpp"

#include <optional>
#include <utility>

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

memory::desc images(std::int64_t count, std::int64_t channels, std::int64_t height, std::int64_t width,
                    memory::data_type type) {
  return {{count, channels, height, width}, type, memory::format_tag::nhwc};
}

/// @param layout of the weights; null lets oneDNN choose it
mtl::cpu::OneDnnConvolution describe(const ConvolutionProblem& problem, const PaddedAxis& y,
                                     const PaddedAxis& x, const memory::desc* layout, Factors factors) {
  const auto typeUnless = [&](ConvolutionOperation isResultOf) {
    return problem.operation == isResultOf ? memory::data_type::f32 : typeOf(factors);
  };
  mtl::cpu::OneDnnConvolution description{
      .source = images(problem.images(), problem.inputFeatureChannels, y.map.size(), x.map.size(),
                       typeUnless(ConvolutionOperation::DataGradient)),
      .destination = images(problem.images(), problem.outputFeatureChannels, problem.y.destinationSize,
                            problem.x.destinationSize, typeUnless(ConvolutionOperation::Forward)),
      .weights = layout == nullptr
                     ? memory::desc(weightSizes(problem), typeUnless(ConvolutionOperation::WeightsGradient),
                                    memory::format_tag::any)
                     : *layout,
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

/// The convolution and how it pads. Throws dnnl::error where oneDNN has no kernel for it.
struct PaddedConvolution {
  PaddedAxis y;
  PaddedAxis x;
  OneDnnPrimitive primitive;

  PaddedConvolution(const ConvolutionProblem& problem, PaddedAxis ofRows, PaddedAxis ofColumns,
                    const memory::desc* layout, Factors factors)
      : y(std::move(ofRows)),
        x(std::move(ofColumns)),
        primitive(makeConvolution(problem, describe(problem, y, x, layout, factors))) {
    // The error keeps the pointer, so this has to be a literal.
    if (primitive.isReference()) throw dnnl::error(dnnl_unimplemented, "it has only its reference code");
  }
};

PaddedConvolution padded(const ConvolutionProblem& problem, const memory::desc* layout, Factors factors) {
  const auto y = paddedByOneDnn(problem.y, problem.edgeMode);
  const auto x = paddedByOneDnn(problem.x, problem.edgeMode);
  if (y && x) {
    try {
      return {problem, *y, *x, layout, factors};
    } catch (const dnnl::error&) {  // another kernel takes the copy
    }
  }
  return {problem, paddedByCopy(problem.y, problem.edgeMode), paddedByCopy(problem.x, problem.edgeMode),
          layout, factors};
}

}  // namespace

FactorInput::FactorInput(const TensorShape& tensor, AxisMap rows, AxisMap columns, Factors factors,
                         ScratchLayout& scratch)
    : factors_(factors) {
  const auto shape = [&](Factors type) {
    return images(tensor.images, tensor.channels, rows.size(), columns.size(), typeOf(type));
  };
  if (factors != Factors::Float32) {
    rounding_ = mtl::cpu::oneDnnReorder(shape(Factors::Float32), shape(factors), false);
    offset_ = scratch.reserve(shape(factors).get_size());
    scratchpad_ = scratch.reserve(rounding_.scratchpadBytes());
  }
  staged_ = StagedInput(tensor, std::move(rows), std::move(columns), scratch);
}

const void* FactorInput::load(mtl::cpu::Stream& stream, const std::byte* tensor, std::byte* scratch) const {
  const float* values = staged_.load(stream, tensor, scratch);
  if (factors_ == Factors::Float32) return values;
  rounding_.run({{DNNL_ARG_FROM, values}, {DNNL_ARG_TO, scratch + offset_}}, scratch + scratchpad_);
  return scratch + offset_;
}

OneDnnPart::OneDnnPart(const ConvolutionProblem& problem, const memory::desc* layout, Factors factors)
    : problem_(problem) {
  PaddedConvolution made = padded(problem, layout, factors);
  convolution_ = std::move(made.primitive);
  const TensorShape& gradient = problem.gradient;
  if (problem.operation != ConvolutionOperation::Forward)
    gradient_ = FactorInput(gradient, AxisMap::identity(gradient.height), AxisMap::identity(gradient.width),
                            factors, scratch_);
  if (problem.operation == ConvolutionOperation::Forward) destination_ = StagedOutput(problem, scratch_);
  if (problem.operation == ConvolutionOperation::DataGradient)
    destination_ = StagedOutput(problem, std::move(made.y.map), std::move(made.x.map), scratch_);
  else
    source_ = FactorInput(problem.source, std::move(made.y.map), std::move(made.x.map), factors, scratch_);
  scratchpad_ = scratch_.reserve(convolution_.scratchpadBytes());
}

void OneDnnPart::forward(const Operands& operands, const std::byte* theirWeights) const {
  mtl::cpu::Stream alone(1);
  const bool bias = problem_.hasBias && !problem_.transposed;
  convolution_.run({{DNNL_ARG_SRC, source_.load(alone, operands.source, operands.scratch)},
                    {DNNL_ARG_WEIGHTS, theirWeights},
                    {DNNL_ARG_BIAS, bias ? operands.parameters[1] : nullptr},
                    {DNNL_ARG_DST, destination_.target(operands)}},
                   operands.scratch + scratchpad_);
  destination_.store(alone, operands, nullptr);
}

void OneDnnPart::dataGradient(const Operands& operands, const std::byte* theirWeights) const {
  mtl::cpu::Stream alone(1);
  convolution_.run({{DNNL_ARG_DIFF_DST, gradient_.load(alone, operands.gradient, operands.scratch)},
                    {DNNL_ARG_WEIGHTS, theirWeights},
                    {DNNL_ARG_DIFF_SRC, destination_.target(operands)}},
                   operands.scratch + scratchpad_);
  const bool bias = problem_.hasBias && problem_.transposed;
  destination_.store(alone, operands,
                     bias ? reinterpret_cast<const float*>(operands.parameters[1]) : nullptr);
}

void OneDnnPart::weightsGradient(const Operands& operands, std::byte* theirWeights, float* biases) const {
  mtl::cpu::Stream alone(1);
  convolution_.run({{DNNL_ARG_SRC, source_.load(alone, operands.source, operands.scratch)},
                    {DNNL_ARG_DIFF_DST, gradient_.load(alone, operands.gradient, operands.scratch)},
                    {DNNL_ARG_DIFF_WEIGHTS, theirWeights},
                    {DNNL_ARG_DIFF_BIAS, biases}},
                   operands.scratch + scratchpad_);
}

}  // namespace mps::detail
