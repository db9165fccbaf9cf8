#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mps/convolution/convolution_windows.hpp"
#include "mps/convolution/cpu/convolution_cpu.hpp"
#include "mps/convolution/cpu/convolution_onednn_part.hpp"
#include "mps/convolution/cpu/convolution_parts.hpp"
#include "mps/convolution/cpu/convolution_staging.hpp"
#include "mps/convolution/cpu/convolution_weights_reorder.hpp"
#include "mps/core/cpu/array_sum.hpp"
#include "mtl/cpu/onednn.hpp"

namespace mps::detail {
namespace {

using dnnl::memory;

/// What all operations share: the parts, the shapes of them, and where each finds its weights.
class OneDnnPlan : public Plan {
 public:
  OneDnnPlan(const ConvolutionProblem& problem, bool divideRows, Factors factors)
      : problem_(problem), parts_(partsOf(problem, divideRows)), factors_(factors) {
    threads_ = std::min(static_cast<std::size_t>(std::max(1, problem.threadCount)), parts_.size());
    if (problem.transposed)
      partnerWeights_ = scratch_.reserve(static_cast<std::size_t>(problem.weightCount()) * sizeof(float));
    for (const ConvolutionPart& part : parts_) place(part);
    theirWeights_ = scratch_.reserve(theirBytes_);
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
  [[nodiscard]] std::byte* theirWeights(const Operands& operands) const {
    return operands.scratch + theirWeights_;
  }

  /// The sums of a block lie one behind the other, as large as in oneDNN's layout.
  [[nodiscard]] std::int64_t summands() const { return parts_.back().summand + 1; }

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
      body(part, plans_[places_[at].plan], ofPart, theirWeights(operands) + places_[at].weightBytes);
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
    std::size_t weightBytes;  ///< from theirWeights()
  };

  /// Parts of the same channels follow each other, and the first brings a layout of the weights with it.
  void place(const ConvolutionPart& part) {
    const bool isNew = places_.empty() || part.firstChannel != firstChannel_;
    firstChannel_ = part.firstChannel;
    const std::size_t plan = planFor(part.problem, isNew ? nullptr : &blocks_.back().theirs);
    if (isNew) {
      const bool ofInputs = problem_.operation == ConvolutionOperation::DataGradient;
      const std::int64_t weightsOfOutput = problem_.weightCount() / problem_.outputFeatureChannels;
      const std::int64_t before = part.firstChannel * (ofInputs ? 1 : weightsOfOutput);
      const int which = isSum() ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS;
      blocks_.push_back({weightSizes(part.problem), weights(problem_, part.problem),
                         plans_[plan].convolution().argument(which),
                         static_cast<std::size_t>(before) * sizeof(float), theirBytes_});
    }
    const std::size_t bytes = blocks_.back().theirs.get_size();
    if (isNew || isSum()) theirBytes_ += bytes;
    places_.push_back({plan, theirBytes_ - bytes});
  }
  [[nodiscard]] bool isSum() const { return problem_.operation == ConvolutionOperation::WeightsGradient; }

  /// The plan of a part's shape, made where there is none yet.
  std::size_t planFor(const ConvolutionProblem& problem, const memory::desc* layout) {
    const auto known = std::find_if(plans_.begin(), plans_.end(),
                                    [&](const OneDnnPart& plan) { return plan.problem() == problem; });
    if (known != plans_.end()) return static_cast<std::size_t>(known - plans_.begin());
    plans_.emplace_back(problem, layout, factors_);
    bytesOfThread_ = std::max(bytesOfThread_, plans_.back().scratchBytes());
    return plans_.size() - 1;
  }

  Factors factors_;
  std::vector<OneDnnPart> plans_;
  std::vector<Place> places_;
  std::int64_t firstChannel_ = 0;
  std::size_t theirBytes_ = 0;
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
  ResultPlan(const ConvolutionProblem& problem, bool divideRows, Factors factors)
      : OneDnnPlan(problem, divideRows, factors), reorder_(makeReorder(WeightsReorder::Direction::ToOneDnn)) {
    reserveScratchpads();
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    const std::byte* given = operands.parameters[0];
    if (problem_.transposed) {
      partnerWeights(cpu, problem_, reinterpret_cast<const float*>(given), floats(operands, partnerWeights_));
      given = operands.scratch + partnerWeights_;
    }
    reorder_.run(cpu, given, theirWeights(operands), scratchpads(operands));
    forParts(cpu, operands,
             [&](const ConvolutionPart& /*part*/, const OneDnnPart& plan, const Operands& ofPart,
                 const std::byte* theirs) {
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
  WeightsGradientPlan(const ConvolutionProblem& problem, bool divideRows, Factors factors)
      : OneDnnPlan(problem, divideRows, factors),
        reorder_(makeReorder(WeightsReorder::Direction::FromOneDnn)) {
    if (problem.accumulate) addingReorder_ = makeReorder(WeightsReorder::Direction::AddedFromOneDnn);
    if (problem.transposed && problem.hasBias) biasSource_ = StagedInput(problem.source, scratch_);
    biases_ = scratch_.reserve(static_cast<std::size_t>(problem.outputFeatureChannels * summands()) *
                               sizeof(float));
    reserveScratchpads();
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    const bool sumsBiases = problem_.hasBias && !problem_.transposed;
    forParts(
        cpu, operands,
        [&](const ConvolutionPart& part, const OneDnnPart& plan, const Operands& ofPart, std::byte* theirs) {
          float* const biases =
              floats(operands, biases_) + part.summand * problem_.outputFeatureChannels + part.firstChannel;
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
      sums.push_back({reinterpret_cast<float*>(theirWeights(operands) + block.theirBytes),
                      static_cast<std::int64_t>(block.theirs.get_size() / sizeof(float))});
    sumArrays(stream, sums, summands());
  }

  void storeWeights(mtl::cpu::Stream& stream, const Operands& operands) const {
    std::byte* const ours = problem_.transposed ? operands.scratch + partnerWeights_ : operands.parameters[2];
    const bool adds = operands.accumulate && !problem_.transposed;
    (adds ? addingReorder_ : reorder_).run(stream, theirWeights(operands), ours, scratchpads(operands));
    if (problem_.transposed)
      transposedWeights(stream, problem_, floats(operands, partnerWeights_),
                        reinterpret_cast<float*>(operands.parameters[2]), operands.accumulate);
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

Preparation prepareDivided(const ConvolutionProblem& problem, bool divideRows, Factors factors) {
  try {
    if (problem.operation == ConvolutionOperation::WeightsGradient)
      return std::make_shared<const WeightsGradientPlan>(problem, divideRows, factors);
    return std::make_shared<const ResultPlan>(problem, divideRows, factors);
  } catch (const dnnl::error& error) {
    return Refusal{std::string("oneDNN: ") + error.what()};
  }
}

Preparation prepare(const ConvolutionProblem& problem, Factors factors) {
  if (problem.sumsNothing()) return Refusal{kSumsNothing};
  if (!canCopyCovered(problem)) return Refusal{kCoversTooMuch};  // its own padding takes as long
  Preparation preparation = prepareDivided(problem, true, factors);
  if (std::holds_alternative<Refusal>(preparation)) preparation = prepareDivided(problem, false, factors);
  return preparation;
}

}  // namespace

Preparation prepareConvolutionOneDnn(const ConvolutionProblem& problem) {
  return prepare(problem, Factors::Float32);
}

std::string whyBfloat16IsSlow(const ConvolutionProblem& problem) {
  constexpr std::int64_t kLeastChannels = 16;
  constexpr std::int64_t kLeastWidth = 14;  // of images whose pixels are summed
  if (problem.groups > 1 ||
      std::min(problem.inputFeatureChannels, problem.outputFeatureChannels) < kLeastChannels)
    return "so few channels do not fill a matrix unit";
  const bool isStrided = problem.x.stride > 1 || problem.y.stride > 1;
  if (problem.operation != ConvolutionOperation::Forward && isStrided)
    return "gradients with strides are faster in float32";
  if (problem.operation == ConvolutionOperation::WeightsGradient &&
      (problem.x.destinationSize < kLeastWidth || problem.x.kernelSize * problem.y.kernelSize == 1))
    return "weight gradients of small images or of single pixels are faster in float32";
  return {};
}

Preparation prepareConvolutionRounded(const ConvolutionProblem& problem) {
  if (!problem.allowReducedPrecision) return Refusal{"reduced precision is not allowed"};
  if (!mtl::cpu::hasBfloat16()) return Refusal{"this processor has no instructions for bfloat16"};
  return prepare(problem, Factors::Bfloat16);
}

Preparation prepareConvolutionBfloat16(const ConvolutionProblem& problem) {
  if (!problem.allowReducedPrecision) return Refusal{"reduced precision is not allowed"};
  if (!mtl::cpu::hasFastBfloat16()) return Refusal{"this processor has no matrix units (AMX) for bfloat16"};
  if (const std::string reason = whyBfloat16IsSlow(problem); !reason.empty()) return Refusal{reason};
  return prepareConvolutionRounded(problem);
}

}  // namespace mps::detail
