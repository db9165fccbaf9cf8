#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
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

/// Some channels of the parameters, which are OHWI.
/// @param part all of the problem, or some channels
memory::desc weights(const ConvolutionProblem& problem, const ConvolutionProblem& part) {
  const std::int64_t inputs = problem.inputChannelsPerGroup();
  const std::int64_t row = problem.x.kernelSize * inputs;
  const std::int64_t output = problem.y.kernelSize * row;
  memory::dims strides{output, 1, row, inputs};
  if (problem.groups > 1) strides.insert(strides.begin(), problem.outputChannelsPerGroup() * output);
  return {weightSizes(part), memory::data_type::f32, strides};
}

/// @param layout of the weights; null lets oneDNN choose it
mtl::cpu::OneDnnConvolution describe(const ConvolutionProblem& problem, const PaddedAxis& y,
                                     const PaddedAxis& x, const memory::desc* layout) {
  mtl::cpu::OneDnnConvolution description{
      .source = images(problem.images(), problem.inputFeatureChannels, y.map.size(), x.map.size()),
      .destination = images(problem.images(), problem.outputFeatureChannels, problem.y.destinationSize,
                            problem.x.destinationSize),
      .weights = layout == nullptr
                     ? memory::desc(weightSizes(problem), memory::data_type::f32, memory::format_tag::any)
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

/// Weights between our layout and oneDNN's, some channels of each block in each of several reorders.
class WeightsReorder {
 public:
  /// A block of channels: its weights among ours, and where they lie on either side.
  struct Block {
    memory::dims sizes;
    memory::desc ours;
    memory::desc theirs;
    std::int64_t ourOffset = 0;  ///< in elements
    std::int64_t theirOffset = 0;
  };
  enum class Direction : std::uint8_t { ToOneDnn, FromOneDnn, AddedFromOneDnn };

  WeightsReorder() = default;
  WeightsReorder(std::span<const Block> blocks, Direction direction)
      : toOneDnn_(direction == Direction::ToOneDnn) {
    for (const Block& block : blocks) {
      const std::size_t before = pieces_.size();
      try {
        divide(block, direction);
      } catch (const dnnl::error&) {  // a layout that keeps other numbers of channels together
        pieces_.resize(before);
        pieces_.push_back(piece(block, block.ours, block.theirs, direction));
      }
    }
  }

  /// Of all threads that share a run.
  [[nodiscard]] std::size_t scratchpadBytes() const { return kMostThreads * bytesOfThread(); }
  void run(const mtl::cpu::Stream& stream, const float* from, float* to, std::byte* scratchpads) const {
    const std::size_t step = bytesOfThread();
    stream.forEach(static_cast<std::int64_t>(pieces_.size()), kMostThreads, [&](std::int64_t i, int thread) {
      const Piece& piece = pieces_[static_cast<std::size_t>(i)];
      piece.reorder.run({{DNNL_ARG_FROM, from + (toOneDnn_ ? piece.ourOffset : piece.theirOffset)},
                         {DNNL_ARG_TO, to + (toOneDnn_ ? piece.theirOffset : piece.ourOffset)}},
                        scratchpads + step * static_cast<std::size_t>(thread));
    });
  }

 private:
  static constexpr int kMostThreads = 16;
  static constexpr std::int64_t kLeastWeights = 16 * 1024;
  static constexpr std::int64_t kTogether = 64;  ///< a multiple of what oneDNN's layouts keep together

  struct Piece {
    OneDnnPrimitive reorder;
    std::int64_t ourOffset;
    std::int64_t theirOffset;
  };

  static Piece piece(const Block& block, const memory::desc& ours, const memory::desc& theirs,
                     Direction direction) {
    const bool adds = direction == Direction::AddedFromOneDnn;
    return {direction == Direction::ToOneDnn ? mtl::cpu::oneDnnReorder(ours, theirs, false)
                                             : mtl::cpu::oneDnnReorder(theirs, ours, adds),
            block.ourOffset, block.theirOffset};
  }

  void divide(const Block& block, Direction direction) {
    const std::int64_t count =
        std::accumulate(block.sizes.begin(), block.sizes.end(), std::int64_t{1}, std::multiplies<>());
    const std::int64_t outermost = block.sizes.front();
    const std::int64_t wanted = std::clamp<std::int64_t>(count / kLeastWeights, 1, kMostThreads);
    const std::int64_t together = ((outermost + wanted - 1) / wanted + kTogether - 1) / kTogether * kTogether;
    for (std::int64_t first = 0; first < outermost; first += together) {
      memory::dims sizes = block.sizes;
      sizes.front() = std::min(together, outermost - first);
      memory::dims offsets(sizes.size(), 0);
      offsets.front() = first;
      pieces_.push_back(piece(block, block.ours.submemory_desc(sizes, offsets),
                              block.theirs.submemory_desc(sizes, offsets), direction));
    }
  }

  [[nodiscard]] std::size_t bytesOfThread() const {
    std::size_t most = 0;
    for (const Piece& piece : pieces_) most = std::max(most, piece.reorder.scratchpadBytes());
    return most;
  }

  std::vector<Piece> pieces_;
  bool toOneDnn_ = true;
};

/// What all operations share: the parts, the shapes of them, and where each finds its weights.
class OneDnnPlan : public Plan {
 public:
  OneDnnPlan(const ConvolutionProblem& problem, bool divideRows)
      : problem_(problem), parts_(partsOf(problem, divideRows)) {
    threads_ = std::min(static_cast<std::size_t>(std::max(1, problem.threadCount)), parts_.size());
    if (problem.transposed)
      partnerWeights_ = scratch_.reserve(static_cast<std::size_t>(problem.weightCount()) * sizeof(float));
    for (const ConvolutionPart& part : parts_) place(part);
    theirWeights_ = scratch_.reserve(static_cast<std::size_t>(theirElements_) * sizeof(float));
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
  [[nodiscard]] float* theirWeights(const Operands& operands) const {
    return floats(operands, theirWeights_);
  }

  /// The sums of a block lie one behind the other, as large as in oneDNN's layout.
  [[nodiscard]] std::int64_t summands() const { return parts_.back().summand + 1; }
  [[nodiscard]] std::int64_t theirElements(const WeightsReorder::Block& block) const {
    return static_cast<std::int64_t>(block.theirs.get_size() / sizeof(float));
  }

  WeightsReorder makeReorder(WeightsReorder::Direction direction) {
    WeightsReorder reorder(blocks_, direction);
    scratchpadBytes_ = std::max(scratchpadBytes_, reorder.scratchpadBytes());
    return reorder;
  }
  /// To be called once, when all plans and reorders are made.
  void reserveScratchpads() {
    scratchpads_ = scratch_.reserve(scratchpadBytes_);
    memoryOfThreads_ = scratch_.reserve(bytesOfThread_ * threads_);
  }
  [[nodiscard]] std::byte* scratchpads(const Operands& operands) const {
    return operands.scratch + scratchpads_;
  }

  /// Calls body(part, its plan, its operands, its weights in oneDNN's layout) for all parts.
  template <class Body>
  void forParts(const mtl::cpu::Stream& stream, const Operands& operands, Body&& body) const {
    const auto count = static_cast<std::int64_t>(parts_.size());
    stream.forEach(count, static_cast<int>(threads_), [&](std::int64_t i, int thread) {
      const auto at = static_cast<std::size_t>(i);
      const ConvolutionPart& part = parts_[at];
      Operands ofPart = operands;
      if (ofPart.source != nullptr) ofPart.source += part.sourceBytes;
      if (ofPart.gradient != nullptr) ofPart.gradient += part.gradientBytes;
      if (ofPart.destination != nullptr) ofPart.destination += part.destinationBytes;
      if (ofPart.parameters[1] != nullptr)
        ofPart.parameters[1] += part.firstChannel * static_cast<std::int64_t>(sizeof(float));
      ofPart.scratch += memoryOfThreads_ + bytesOfThread_ * static_cast<std::size_t>(thread);
      body(part, plans_[places_[at].plan], ofPart, theirWeights(operands) + places_[at].weights);
    });
  }

  ConvolutionProblem problem_;
  std::vector<ConvolutionPart> parts_;
  std::vector<WeightsReorder::Block> blocks_;
  ScratchLayout scratch_;
  std::size_t partnerWeights_ = 0;  ///< of a transposed convolution

 private:
  /// Of a part.
  struct Place {
    std::size_t plan;
    std::int64_t weights;  ///< elements from theirWeights()
  };

  /// Parts of the same channels follow each other, and the first brings a layout of the weights with it.
  void place(const ConvolutionPart& part) {
    const bool isNew = places_.empty() || part.firstChannel != firstChannel_;
    firstChannel_ = part.firstChannel;
    const std::size_t plan = planFor(part.problem, isNew ? nullptr : &blocks_.back().theirs);
    if (isNew) {
      const bool ofInputs = problem_.operation == ConvolutionOperation::DataGradient;
      const std::int64_t weightsOfOutput = problem_.weightCount() / problem_.outputFeatureChannels;
      const int which = problem_.operation == ConvolutionOperation::WeightsGradient ? DNNL_ARG_DIFF_WEIGHTS
                                                                                    : DNNL_ARG_WEIGHTS;
      blocks_.push_back({weightSizes(part.problem), weights(problem_, part.problem),
                         plans_[plan].convolution().argument(which),
                         part.firstChannel * (ofInputs ? 1 : weightsOfOutput), theirElements_});
    }
    const bool isSum = problem_.operation == ConvolutionOperation::WeightsGradient;
    if (isNew || isSum) theirElements_ += theirElements(blocks_.back());
    places_.push_back({plan, theirElements_ - theirElements(blocks_.back())});
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

  std::vector<PartPlan> plans_;
  std::vector<Place> places_;
  std::int64_t firstChannel_ = 0;
  std::int64_t theirElements_ = 0;
  std::size_t theirWeights_ = 0;
  std::size_t threads_;
  std::size_t scratchpadBytes_ = 0;
  std::size_t scratchpads_ = 0;
  std::size_t bytesOfThread_ = 0;
  std::size_t memoryOfThreads_ = 0;
};

/// Forward and data gradient: each part writes results of its own.
class ResultPlan final : public OneDnnPlan {
 public:
  ResultPlan(const ConvolutionProblem& problem, bool divideRows)
      : OneDnnPlan(problem, divideRows), reorder_(makeReorder(WeightsReorder::Direction::ToOneDnn)) {
    reserveScratchpads();
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    const auto* given = reinterpret_cast<const float*>(operands.parameters[0]);
    if (problem_.transposed) {
      float* partner = floats(operands, partnerWeights_);
      partnerWeights(cpu, problem_, given, partner);
      given = partner;
    }
    reorder_.run(cpu, given, theirWeights(operands), scratchpads(operands));
    forParts(cpu, operands,
             [&](const ConvolutionPart& /*part*/, const PartPlan& plan, const Operands& ofPart,
                 const float* theirs) {
               if (problem_.operation == ConvolutionOperation::Forward)
                 plan.forward(ofPart, theirs);
               else
                 plan.dataGradient(ofPart, theirs);
             });
  }

 private:
  WeightsReorder reorder_;
};

/// Weights gradient: the sums of parts of the pixels are added up in their order.
class WeightsGradientPlan final : public OneDnnPlan {
 public:
  WeightsGradientPlan(const ConvolutionProblem& problem, bool divideRows)
      : OneDnnPlan(problem, divideRows), reorder_(makeReorder(WeightsReorder::Direction::FromOneDnn)) {
    if (problem.accumulate) addingReorder_ = makeReorder(WeightsReorder::Direction::AddedFromOneDnn);
    if (problem.transposed && problem.hasBias) biasSource_ = StagedInput(problem.source, scratch_);
    biases_ = scratch_.reserve(static_cast<std::size_t>(problem.outputFeatureChannels * summands()) *
                               sizeof(float));
    reserveScratchpads();
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    const bool sumsBiases = problem_.hasBias && !problem_.transposed;
    forParts(cpu, operands,
             [&](const ConvolutionPart& part, const PartPlan& plan, const Operands& ofPart, float* theirs) {
               float* const biases = floats(operands, biases_) +
                                     part.summand * problem_.outputFeatureChannels + part.firstChannel;
               plan.weightsGradient(ofPart, theirs, sumsBiases ? biases : nullptr);
             });
    if (summands() > 1) addUp(cpu, operands);
    storeWeights(cpu, operands);
    if (problem_.hasBias) storeBiases(cpu, operands);
  }

 private:
  /// Into the first sum of each block.
  void addUp(mtl::cpu::Stream& stream, const Operands& operands) const {
    std::vector<ArraySum> sums;
    sums.reserve(blocks_.size());
    for (const WeightsReorder::Block& block : blocks_)
      sums.push_back({theirWeights(operands) + block.theirOffset, theirElements(block)});
    sumArrays(stream, sums, summands());
  }

  void storeWeights(mtl::cpu::Stream& stream, const Operands& operands) const {
    auto* const gradients = reinterpret_cast<float*>(operands.parameters[2]);
    float* const ours = problem_.transposed ? floats(operands, partnerWeights_) : gradients;
    const bool adds = operands.accumulate && !problem_.transposed;
    (adds ? addingReorder_ : reorder_).run(stream, theirWeights(operands), ours, scratchpads(operands));
    if (problem_.transposed) transposedWeights(stream, problem_, ours, gradients, operands.accumulate);
  }

  void storeBiases(mtl::cpu::Stream& stream, const Operands& operands) const {
    auto* const gradients = reinterpret_cast<float*>(operands.parameters[3]);
    if (problem_.transposed)
      sumPixels(stream, biasSource_.load(stream, operands.source, operands.scratch), problem_.source.pixels(),
                problem_.biasCount(), gradients, operands.accumulate);
    else
      sumArrays(stream, floats(operands, biases_), summands(), problem_.biasCount(), gradients,
                operands.accumulate);
  }

  WeightsReorder reorder_;
  WeightsReorder addingReorder_;
  StagedInput biasSource_;  ///< what a transposed convolution's bias gradient sums
  std::size_t biases_ = 0;  ///< gradients of all biases, one array for each summand
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
