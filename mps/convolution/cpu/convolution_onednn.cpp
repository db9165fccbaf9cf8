#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mps/convolution/convolution_windows.hpp"
#include "mps/convolution/cpu/convolution_cpu.hpp"
#include "mps/convolution/cpu/convolution_parts.hpp"
#include "mps/convolution/cpu/convolution_staging.hpp"
#include "mps/core/cpu/array_sum.hpp"
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

memory::dims weightSizes(const ConvolutionProblem& problem) {
  memory::dims sizes{problem.outputChannelsPerGroup(), problem.inputChannelsPerGroup(), problem.y.kernelSize,
                     problem.x.kernelSize};
  if (problem.groups > 1) sizes.insert(sizes.begin(), problem.groups);
  return sizes;
}

/// OHWI, which is what the parameters are; or `any`, which lets oneDNN choose.
memory::desc weights(const ConvolutionProblem& problem, bool chosenByOneDnn) {
  if (chosenByOneDnn) return {weightSizes(problem), memory::data_type::f32, memory::format_tag::any};
  const std::int64_t inputs = problem.inputChannelsPerGroup();
  const std::int64_t row = problem.x.kernelSize * inputs;
  const std::int64_t output = problem.y.kernelSize * row;
  memory::dims strides{output, 1, row, inputs};
  if (problem.groups > 1) strides.insert(strides.begin(), problem.outputChannelsPerGroup() * output);
  return {weightSizes(problem), memory::data_type::f32, strides};
}

/// @param layout of the weights; null lets oneDNN choose it
mtl::cpu::OneDnnConvolution describe(const ConvolutionProblem& problem, const PaddedAxis& y,
                                     const PaddedAxis& x, const memory::desc* layout) {
  mtl::cpu::OneDnnConvolution description{
      .source = images(problem.images(), problem.inputFeatureChannels, y.map.size(), x.map.size()),
      .destination = images(problem.images(), problem.outputFeatureChannels, problem.y.destinationSize,
                            problem.x.destinationSize),
      .weights = layout == nullptr ? weights(problem, true) : *layout,
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

/// oneDNN's convolution of one shape of part, and what brings tensors into its layout and back. Runs in one thread.
class PartPlan {
 public:
  /// @throws dnnl::error where oneDNN has no kernel for it
  PartPlan(const ConvolutionProblem& problem, const memory::desc* layout) : problem_(problem) {
    auto y = paddedByOneDnn(problem.y, problem.edgeMode);
    auto x = paddedByOneDnn(problem.x, problem.edgeMode);
    if (!y || !x || !canMake(*y, *x, layout)) {
      y = paddedByCopy(problem.y, problem.edgeMode);
      x = paddedByCopy(problem.x, problem.edgeMode);
      make(*y, *x, layout);
    }
    stage(std::move(*y), std::move(*x));
    scratchpad_ = scratch_.reserve(convolution_.scratchpadBytes());
  }

  [[nodiscard]] const ConvolutionProblem& problem() const { return problem_; }
  [[nodiscard]] const OneDnnPrimitive& convolution() const { return convolution_; }
  [[nodiscard]] std::size_t scratchBytes() const { return scratch_.bytes(); }

  void forward(const Operands& operands, const float* theirWeights) const {
    mtl::cpu::Stream alone(1);
    const bool bias = problem_.hasBias && !problem_.transposed;
    convolution_.run({{DNNL_ARG_SRC, source_.load(alone, operands.source, operands.scratch)},
                      {DNNL_ARG_WEIGHTS, theirWeights},
                      {DNNL_ARG_BIAS, bias ? operands.parameters[1] : nullptr},
                      {DNNL_ARG_DST, destination_.target(operands)}},
                     operands.scratch + scratchpad_);
    destination_.store(alone, operands, nullptr);
  }

  void dataGradient(const Operands& operands, const float* theirWeights) const {
    mtl::cpu::Stream alone(1);
    convolution_.run({{DNNL_ARG_DIFF_DST, gradient_.load(alone, operands.gradient, operands.scratch)},
                      {DNNL_ARG_WEIGHTS, theirWeights},
                      {DNNL_ARG_DIFF_SRC, destination_.target(operands)}},
                     operands.scratch + scratchpad_);
    const bool bias = problem_.hasBias && problem_.transposed;
    destination_.store(alone, operands,
                       bias ? reinterpret_cast<const float*>(operands.parameters[1]) : nullptr);
  }

  void weightsGradient(const Operands& operands, float* theirWeights, float* biases) const {
    mtl::cpu::Stream alone(1);
    convolution_.run({{DNNL_ARG_SRC, source_.load(alone, operands.source, operands.scratch)},
                      {DNNL_ARG_DIFF_DST, gradient_.load(alone, operands.gradient, operands.scratch)},
                      {DNNL_ARG_DIFF_WEIGHTS, theirWeights},
                      {DNNL_ARG_DIFF_BIAS, biases}},
                     operands.scratch + scratchpad_);
  }

 private:
  /// @throws dnnl::error where oneDNN has no kernel for it
  void make(const PaddedAxis& y, const PaddedAxis& x, const memory::desc* layout) {
    convolution_ = makeConvolution(problem_, describe(problem_, y, x, layout));
    // The error keeps the pointer, so this has to be a literal.
    if (convolution_.isReference()) throw dnnl::error(dnnl_unimplemented, "it has only its reference code");
  }
  bool canMake(const PaddedAxis& y, const PaddedAxis& x, const memory::desc* layout) {
    try {
      make(y, x, layout);
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }

  void stage(PaddedAxis y, PaddedAxis x) {
    switch (problem_.operation) {
      case ConvolutionOperation::Forward:
        source_ = StagedInput(problem_.source, std::move(y.map), std::move(x.map), scratch_);
        destination_ = StagedOutput(problem_, scratch_);
        break;
      case ConvolutionOperation::DataGradient:
        gradient_ = StagedInput(problem_.gradient, scratch_);
        destination_ = StagedOutput(problem_, std::move(y.map), std::move(x.map), scratch_);
        break;
      case ConvolutionOperation::WeightsGradient:
        source_ = StagedInput(problem_.source, std::move(y.map), std::move(x.map), scratch_);
        gradient_ = StagedInput(problem_.gradient, scratch_);
        break;
    }
  }

  ConvolutionProblem problem_;
  OneDnnPrimitive convolution_;
  ScratchLayout scratch_;
  StagedInput source_;
  StagedInput gradient_;
  StagedOutput destination_;
  std::size_t scratchpad_ = 0;
};

/// Weights between our layout and oneDNN's, some output channels or groups in each of several reorders.
class WeightsReorder {
 public:
  WeightsReorder() = default;
  WeightsReorder(const ConvolutionProblem& problem, const memory::desc& theirs) {
    const memory::desc ours = weights(problem, false);
    try {
      divide(problem, ours, theirs);
    } catch (const dnnl::error&) {  // a layout that keeps other numbers of channels together
      reorders_ = {mtl::cpu::oneDnnReorder(ours, theirs, false)};
    }
  }

  [[nodiscard]] std::size_t scratchpadBytes() const {
    std::size_t most = 0;
    for (const auto& reorder : reorders_) most = std::max(most, reorder.scratchpadBytes());
    return most;
  }
  void run(const mtl::cpu::Stream& stream, const float* from, float* to, std::byte* scratchpads) const {
    const std::size_t step = scratchpadBytes();
    stream.forEach(
        static_cast<std::int64_t>(reorders_.size()), kMostReorders, [&](std::int64_t i, int thread) {
          reorders_[static_cast<std::size_t>(i)].run({{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}},
                                                     scratchpads + step * static_cast<std::size_t>(thread));
        });
  }
  static constexpr int kMostReorders = 16;

 private:
  static constexpr std::int64_t kLeastWeights = 64 * 1024;
  static constexpr std::int64_t kBlock = 64;  ///< a multiple of what oneDNN's layouts keep together

  void divide(const ConvolutionProblem& problem, const memory::desc& ours, const memory::desc& theirs) {
    const memory::dims whole = weightSizes(problem);
    const std::int64_t outermost = whole.front();
    const std::int64_t wanted =
        std::clamp<std::int64_t>(problem.weightCount() / kLeastWeights, 1, kMostReorders);
    const std::int64_t together = ((outermost + wanted - 1) / wanted + kBlock - 1) / kBlock * kBlock;
    for (std::int64_t first = 0; first < outermost; first += together) {
      memory::dims sizes = whole;
      sizes.front() = std::min(together, outermost - first);
      memory::dims offsets(sizes.size(), 0);
      offsets.front() = first;
      reorders_.push_back(mtl::cpu::oneDnnReorder(ours.submemory_desc(sizes, offsets),
                                                  theirs.submemory_desc(sizes, offsets), false));
    }
  }

  std::vector<OneDnnPrimitive> reorders_;
};

/// What all operations share: the parts, and the shapes of them.
class OneDnnPlan : public Plan {
 public:
  OneDnnPlan(const ConvolutionProblem& problem, bool divideRows)
      : problem_(problem), parts_(partsOf(problem, divideRows)) {
    threads_ = std::min(static_cast<std::size_t>(std::max(1, problem.threadCount)), parts_.size());
  }

  [[nodiscard]] std::size_t scratchBytes() const override { return scratch_.bytes(); }
  [[nodiscard]] bool canAccumulate() const override { return problem_.accumulate; }
  [[nodiscard]] std::string describe() const override {
    return plans_.front().convolution().implementation() + " in " + std::to_string(parts_.size()) + " parts";
  }

 protected:
  [[nodiscard]] static float* floats(const Operands& operands, std::size_t offset) {
    return reinterpret_cast<float*>(operands.scratch + offset);
  }

  /// The plan of a part's shape, made where there is none yet.
  std::size_t planFor(const ConvolutionProblem& problem, const memory::desc* layout) {
    const auto known = std::find_if(plans_.begin(), plans_.end(),
                                    [&](const PartPlan& plan) { return plan.problem() == problem; });
    if (known != plans_.end()) return static_cast<std::size_t>(known - plans_.begin());
    plans_.emplace_back(problem, layout);
    bytesOfThread_ = std::max(bytesOfThread_, plans_.back().scratchBytes());
    return plans_.size() - 1;
  }
  /// To be called once, when all plans are made.
  void reserveMemoryOfThreads() { memoryOfThreads_ = scratch_.reserve(bytesOfThread_ * threads_); }

  /// Calls body(index of the part, its operands) for all parts.
  template <class Body>
  void forParts(const mtl::cpu::Stream& stream, const Operands& operands, Body&& body) const {
    const auto count = static_cast<std::int64_t>(parts_.size());
    stream.forEach(count, static_cast<int>(threads_), [&](std::int64_t i, int thread) {
      const auto at = static_cast<std::size_t>(i);
      Operands ofPart = operands;
      if (ofPart.source != nullptr) ofPart.source += parts_[at].sourceBytes;
      if (ofPart.gradient != nullptr) ofPart.gradient += parts_[at].gradientBytes;
      if (ofPart.destination != nullptr) ofPart.destination += parts_[at].destinationBytes;
      ofPart.scratch += memoryOfThreads_ + bytesOfThread_ * static_cast<std::size_t>(thread);
      body(at, ofPart);
    });
  }

  ConvolutionProblem problem_;
  std::vector<ConvolutionPart> parts_;
  std::vector<PartPlan> plans_;
  std::vector<std::size_t> planOfPart_;
  ScratchLayout scratch_;

 private:
  std::size_t threads_;
  std::size_t bytesOfThread_ = 0;
  std::size_t memoryOfThreads_ = 0;
};

/// Forward and data gradient: each part writes results of its own.
class ResultPlan final : public OneDnnPlan {
 public:
  ResultPlan(const ConvolutionProblem& problem, bool divideRows) : OneDnnPlan(problem, divideRows) {
    const memory::desc* layout = nullptr;
    for (const ConvolutionPart& part : parts_) {
      planOfPart_.push_back(planFor(part.problem, layout));
      if (layout == nullptr) layout_ = plans_.front().convolution().argument(DNNL_ARG_WEIGHTS);
      layout = &layout_;
    }
    reorder_ = WeightsReorder(problem, layout_);
    if (problem.transposed)
      partnerWeights_ = scratch_.reserve(static_cast<std::size_t>(problem.weightCount()) * sizeof(float));
    theirWeights_ = scratch_.reserve(layout_.get_size());
    scratchpads_ = scratch_.reserve(reorder_.scratchpadBytes() * WeightsReorder::kMostReorders);
    reserveMemoryOfThreads();
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    const auto* given = reinterpret_cast<const float*>(operands.parameters[0]);
    if (problem_.transposed) {
      float* partner = floats(operands, partnerWeights_);
      partnerWeights(cpu, problem_, given, partner);
      given = partner;
    }
    float* theirs = floats(operands, theirWeights_);
    reorder_.run(cpu, given, theirs, operands.scratch + scratchpads_);
    forParts(cpu, operands, [&](std::size_t part, const Operands& ofPart) {
      const PartPlan& plan = plans_[planOfPart_[part]];
      if (problem_.operation == ConvolutionOperation::Forward)
        plan.forward(ofPart, theirs);
      else
        plan.dataGradient(ofPart, theirs);
    });
  }

 private:
  memory::desc layout_;
  WeightsReorder reorder_;
  std::size_t partnerWeights_ = 0;
  std::size_t theirWeights_ = 0;
  std::size_t scratchpads_ = 0;
};

/// Weights gradient: the sums of parts of the pixels are added up in their order.
class WeightsGradientPlan final : public OneDnnPlan {
 public:
  WeightsGradientPlan(const ConvolutionProblem& problem, bool divideRows) : OneDnnPlan(problem, divideRows) {
    for (const ConvolutionPart& part : parts_) {
      const bool isNew = part.summand == 0;
      if (isNew) blocks_.emplace_back();
      Block& block = blocks_.back();
      if (isNew) block.firstPart = planOfPart_.size();
      planOfPart_.push_back(planFor(part.problem, isNew ? nullptr : &block.layout));
      const PartPlan& plan = plans_[planOfPart_.back()];
      if (isNew) block.layout = plan.convolution().argument(DNNL_ARG_DIFF_WEIGHTS);
      block.summands = part.summand + 1;
    }
    for (Block& block : blocks_) {
      const ConvolutionProblem& ofBlock = parts_[block.firstPart].problem;
      const memory::desc ours = weights(ofBlock, false);
      block.theirWeights =
          scratch_.reserve(block.layout.get_size() * static_cast<std::size_t>(block.summands));
      block.reorder = mtl::cpu::oneDnnReorder(block.layout, ours, false);
      if (problem.accumulate) block.addingReorder = mtl::cpu::oneDnnReorder(block.layout, ours, true);
      scratchpadBytes_ = std::max({scratchpadBytes_, block.reorder.scratchpadBytes(),
                                   problem.accumulate ? block.addingReorder.scratchpadBytes() : 0});
    }
    if (problem.transposed) {
      partnerWeights_ = scratch_.reserve(static_cast<std::size_t>(problem.weightCount()) * sizeof(float));
      if (problem.hasBias) biasSource_ = StagedInput(problem.source, scratch_);
    }
    biases_ = scratch_.reserve(
        static_cast<std::size_t>(problem.outputFeatureChannels * blocks_.front().summands) * sizeof(float));
    scratchpads_ = scratch_.reserve(scratchpadBytes_ * blocks_.size());
    reserveMemoryOfThreads();
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    const bool sumsBiases = problem_.hasBias && !problem_.transposed;
    forParts(cpu, operands, [&](std::size_t i, const Operands& ofPart) {
      const ConvolutionPart& part = parts_[i];
      // All blocks have the same number of summands, one part behind the other.
      const Block& block = blocks_[i / static_cast<std::size_t>(blocks_.front().summands)];
      float* const biases =
          floats(operands, biases_) + part.summand * problem_.outputFeatureChannels + part.outputChannel;
      plans_[planOfPart_[i]].weightsGradient(ofPart, summand(operands, block, part.summand),
                                             sumsBiases ? biases : nullptr);
    });
    storeWeights(cpu, operands);
    if (problem_.hasBias) storeBiases(cpu, operands);
  }

 private:
  /// Output channels that are computed together.
  struct Block {
    std::size_t firstPart = 0;
    std::int64_t summands = 1;
    memory::desc layout;
    std::size_t theirWeights = 0;  ///< arrays of layout, one for each summand
    OneDnnPrimitive reorder;
    OneDnnPrimitive addingReorder;
  };

  [[nodiscard]] std::int64_t outputChannel(const Block& block) const {
    return parts_[block.firstPart].outputChannel;
  }
  [[nodiscard]] static float* summand(const Operands& operands, const Block& block, std::int64_t i) {
    return floats(operands, block.theirWeights + block.layout.get_size() * static_cast<std::size_t>(i));
  }

  void storeWeights(mtl::cpu::Stream& stream, const Operands& operands) const {
    auto* const gradients = reinterpret_cast<float*>(operands.parameters[2]);
    float* const ours = problem_.transposed ? floats(operands, partnerWeights_) : gradients;
    for (const Block& block : blocks_)
      if (block.summands > 1)
        sumArrays(stream, summand(operands, block, 0), block.summands,
                  static_cast<std::int64_t>(block.layout.get_size() / sizeof(float)),
                  summand(operands, block, 0), false);
    const std::int64_t weightsOfChannel = problem_.weightCount() / problem_.outputFeatureChannels;
    stream.forEach(static_cast<std::int64_t>(blocks_.size()), stream.threadCount(), [&](std::int64_t i, int) {
      const Block& block = blocks_[static_cast<std::size_t>(i)];
      const bool adds = operands.accumulate && !problem_.transposed;
      (adds ? block.addingReorder : block.reorder)
          .run({{DNNL_ARG_FROM, summand(operands, block, 0)},
                {DNNL_ARG_TO, ours + outputChannel(block) * weightsOfChannel}},
               operands.scratch + scratchpads_ + scratchpadBytes_ * static_cast<std::size_t>(i));
    });
    if (problem_.transposed) transposedWeights(stream, problem_, ours, gradients, operands.accumulate);
  }

  void storeBiases(mtl::cpu::Stream& stream, const Operands& operands) const {
    auto* const gradients = reinterpret_cast<float*>(operands.parameters[3]);
    if (problem_.transposed)
      sumPixels(stream, biasSource_.load(stream, operands.source, operands.scratch), problem_.source.pixels(),
                problem_.biasCount(), gradients, operands.accumulate);
    else
      sumArrays(stream, floats(operands, biases_), blocks_.front().summands, problem_.biasCount(), gradients,
                operands.accumulate);
  }

  std::vector<Block> blocks_;
  StagedInput biasSource_;  ///< what a transposed convolution's bias gradient sums
  std::size_t partnerWeights_ = 0;
  std::size_t biases_ = 0;  ///< gradients of all biases, one array for each summand
  std::size_t scratchpads_ = 0;
  std::size_t scratchpadBytes_ = 0;
};

Preparation prepareDivided(const ConvolutionProblem& problem, bool divideRows) {
  try {
    if (problem.operation == ConvolutionOperation::WeightsGradient)
      return std::make_shared<const WeightsGradientPlan>(problem, divideRows);
    return std::make_shared<const ResultPlan>(problem, divideRows);
  } catch (const dnnl::error& error) {
    return Refusal{std::string("oneDNN: ") + error.what()};
  }
}

}  // namespace

Preparation prepareConvolutionOneDnn(const ConvolutionProblem& problem) {
  if (problem.sumsNothing()) return Refusal{kSumsNothing};
  if (!canCopyCovered(problem)) return Refusal{kCoversTooMuch};  // its own padding takes as long
  Preparation preparation = prepareDivided(problem, true);
  if (std::holds_alternative<Refusal>(preparation)) preparation = prepareDivided(problem, false);
  return preparation;
}

}  // namespace mps::detail
