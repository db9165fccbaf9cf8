#include "mps/batch_normalization/cuda/batch_normalization_cuda.cuh"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

#include "mps/batch_normalization/batch_normalization_problem.hpp"
#include "mps/core/cuda/store_numbers_cuda.cuh"
#include "mps/core/plan/fallback_plan.hpp"

namespace mps::detail {
namespace {

using cuda::ChannelGrid;
using cuda::ChannelNumbers;
using cuda::ChannelParameters;
using cuda::ChunkSums;
using cuda::FusedNeuron;
using Operation = BatchNormalizationOperation;

constexpr std::int64_t kPixelsOfMap = 8;  ///< of a thread that stores results, at least
constexpr std::int64_t kPixelsOfSum = 8;  ///< of a thread that sums, at least
/// So that few numbers are left to join: whole rounds of a GPU of 132 multiprocessors, which hold two blocks or four, or
/// three of moments of float16 and of gradients in vectors of float32 without a neuron.
constexpr std::int64_t kMostSumBlocks = 528;
constexpr std::int64_t kMostSumBlocksOfThree = 396;

template <class T>
T* at(const Operands& operands, std::size_t parameter) {
  return reinterpret_cast<T*>(operands.parameters[parameter]);
}

/// Calls body with the fused neuron as a constant, where that is worth an instance.
template <class Access, class Body>
void withNeuron(CNNNeuronType type, Body body) {
  using enum CNNNeuronType;
  if constexpr (Access::lanes > 1) {
    if (type == None) return body(std::integral_constant<FusedNeuron, FusedNeuron::None>());
    if (type == ReLU || type == PReLU) return body(std::integral_constant<FusedNeuron, FusedNeuron::Kink>());
    if (type == Sigmoid) return body(std::integral_constant<FusedNeuron, FusedNeuron::Sigmoid>());
    if (type == TanH) return body(std::integral_constant<FusedNeuron, FusedNeuron::TanH>());
  }
  body(std::integral_constant<FusedNeuron, FusedNeuron::Any>());
}

/// One launch for the numbers of the channels and one for the pixels; of sums a last one, which joins chunks.
class BatchNormalizationPlan final : public AccessPlan {
 public:
  /// @param sumsAndStores the kernel that sums gradients stores those of the source, too; of neurons
  explicit BatchNormalizationPlan(const BatchNormalizationProblem& problem, bool sumsAndStores = false)
      : problem_(problem), neuron_(problem.neuron), sumsAndStores_(sumsAndStores) {
    channels_ = shape().channels;
    pixels_ = static_cast<double>(shape().pixels());
    // What is not read has no format to agree with.
    TensorShape* const source = problem.readsSource() && !sumsUp() ? &problem_.source : nullptr;
    TensorShape* const gradient = hasGradient() ? &problem_.gradient : nullptr;
    TensorShape* const both = problem.storesDataGradient() ? &problem_.destination : nullptr;
    TensorShape* const addend = problem.hasAddend() ? &problem_.addend : nullptr;
    const ImageFeatureChannelFormat format = cuda::commonFormat({&shape(), source, gradient, both, addend});
    if (format != ImageFeatureChannelFormat::Float32 && format != ImageFeatureChannelFormat::Float16) return;
    const auto lanes = static_cast<std::int64_t>(16 / bytesPerChannel(format));
    cuda::widenPixels({&shape(), source, gradient, both, addend}, lanes);
    cuda::joinAxes({&shape(), source, gradient, both, addend}, cuda::JoinedAxes::AllPixels);
  }

  [[nodiscard]] std::size_t scratchBytes() const override { return sumsOffset() + sumBytes(); }
  [[nodiscard]] bool canAccumulate() const override {
    return sumsUp() || (problem_.operation == Operation::Gradient &&
                        problem_.destination.format == ImageFeatureChannelFormat::Float32);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (channels_ == 0) return;
    ChunkSums sums{reinterpret_cast<double*>(operands.scratch + sumsOffset()), shape().channels, 0};
    if (shape().elements() > 0) {
      if (problem_.operation != Operation::Statistics) storeNumbers(stream, operands);
      cuda::withAccess(vectorFormat(),
                       [&](auto access) { runPixels<decltype(access)>(stream, operands, sums); });
    }
    if (problem_.operation == Operation::Statistics) joinStatistics(stream, operands, sums);
    if (problem_.operation == Operation::StatisticsGradient) joinGradients(stream, operands, sums);
  }
  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    if (sumsAndStores_ &&
        (operands.destination == operands.source || operands.destination == operands.gradient))
      return "the destination is an input";
    return AccessPlan::objectionTo(operands);
  }

 protected:
  [[nodiscard]] AccessedTensors accessed(const Operands& operands) const override {
    return {{{problem_.source, operands.source, problem_.readsSource()},
             {problem_.gradient, operands.gradient, hasGradient()},
             {problem_.addend, operands.parameters[4], problem_.hasAddend()},
             {problem_.destination, operands.destination, !sumsUp() || problem_.storesDataGradient()}}};
  }

 private:
  [[nodiscard]] bool sumsUp() const {
    return problem_.operation == Operation::Statistics || problem_.operation == Operation::StatisticsGradient;
  }
  [[nodiscard]] bool hasGradient() const {
    return problem_.operation == Operation::StatisticsGradient || problem_.operation == Operation::Gradient;
  }
  /// Of what is worked on.
  [[nodiscard]] const TensorShape& shape() const { return sumsUp() ? problem_.source : problem_.destination; }
  [[nodiscard]] TensorShape& shape() { return sumsUp() ? problem_.source : problem_.destination; }

  // Scratch memory: numbers of channels, slopes of PReLU, sums of chunks.
  static std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }
  [[nodiscard]] std::size_t slopesOffset() const {
    if (problem_.operation == Operation::Statistics) return 0;
    return rounded(ChannelNumbers::Rows * static_cast<std::size_t>(shape().channels) * sizeof(float));
  }
  [[nodiscard]] std::size_t sumsOffset() const { return slopesOffset() + rounded(slopes().size_bytes()); }
  [[nodiscard]] std::size_t sumBytes() const {
    if (!sumsUp() || shape().elements() == 0) return 0;
    return std::size_t{sumGrid(lanes()).grid.x} * 2 * static_cast<std::size_t>(shape().channels) *
           sizeof(double);
  }
  [[nodiscard]] ChannelGrid sumGrid(std::int64_t lanes) const {
    const bool ofThree =
        problem_.operation == Operation::Statistics
            ? lanes == cuda::kLanes<Float16>
            : lanes == cuda::kLanes<float> && problem_.neuron.neuronType() == CNNNeuronType::None;
    return {shape(), lanes, kPixelsOfSum, ofThree ? kMostSumBlocksOfThree : kMostSumBlocks};
  }
  [[nodiscard]] std::span<const float> slopes() const {
    if (problem_.neuron.neuronType() != CNNNeuronType::PReLU) return {};
    return problem_.neuron.data().first(static_cast<std::size_t>(channels_));
  }
  [[nodiscard]] ChannelNumbers numbers(const Operands& operands) const {
    return {reinterpret_cast<float*>(operands.scratch), shape().channels};
  }
  [[nodiscard]] ChannelParameters parameters(const Operands& operands) const {
    return {at<const float>(operands, 0), at<const float>(operands, 1), at<const float>(operands, 2),
            at<const float>(operands, 3), static_cast<double>(problem_.epsilon)};
  }

  void storeNumbers(mtl::Stream& stream, const Operands& operands) const {
    const std::span<const float> slopes = this->slopes();
    auto* const slopesAt = reinterpret_cast<float*>(operands.scratch + slopesOffset());
    cuda::storeNumbers(stream, slopes, slopesAt);
    const bool withSums = problem_.operation == Operation::Gradient && !problem_.hasConstantStatistics;
    mtl::cuda::launch(stream, cuda::storeChannelNumbers, dim3(mtl::cuda::blocksFor(shape().channels)),
                      dim3(mtl::cuda::kBlockThreads), 0, parameters(operands), channels_,
                      slopes.empty() ? nullptr : slopesAt, problem_.neuron.a(),
                      withSums ? at<const double>(operands, 4) : nullptr, operands.scalars[0],
                      numbers(operands));
  }

  template <class Access>
  void runPixels(mtl::Stream& stream, const Operands& operands, ChunkSums& sums) const {
    const cuda::SourceView source(problem_.source, operands.source);
    const cuda::SourceView gradient(problem_.gradient, operands.gradient);
    const cuda::ResultView destination(problem_.destination, operands.destination);
    // Mostly one kernel sums over the pixels that the next one maps.
    const ChannelGrid chunks = sumGrid(Access::lanes).interleaved();
    const ChannelGrid map = ChannelGrid(shape(), Access::lanes, kPixelsOfMap).reversed();
    sums.chunks = chunks.grid.x;
    const auto start = [&](auto* kernel, const ChannelGrid& grid, const auto&... arguments) {
      mtl::cuda::launch(stream, kernel, grid.grid, grid.block, 0, arguments...);
    };
    if (problem_.operation == Operation::Statistics)
      return start(cuda::sumMoments<Access, false>, chunks, chunks, channels_, source, sums);
    withNeuron<Access>(neuron_.type, [&](auto kind) {
      if (problem_.operation == Operation::Forward) {
        const cuda::NormalizeArguments arguments{map,
                                                 source,
                                                 cuda::SourceView(problem_.addend, operands.parameters[4]),
                                                 destination,
                                                 numbers(operands),
                                                 neuron_};
        if constexpr (kind() == FusedNeuron::Kink || Access::lanes == 1)
          if (problem_.hasAddend()) return start(cuda::normalizePixels<Access, kind(), true>, map, arguments);
        return start(cuda::normalizePixels<Access, kind(), false>, map, arguments);
      }
      const auto sumUp = [&](auto* kernel) {
        start(kernel, chunks, chunks, source, gradient, numbers(operands), neuron_, sums, destination);
      };
      if constexpr (Access::lanes > 1 && kind() != FusedNeuron::None)
        if (sumsAndStores_) return sumUp(cuda::sumGradients<Access, kind(), true>);
      if (problem_.operation == Operation::StatisticsGradient)
        sumUp(cuda::sumGradients<Access, kind(), false>);
      if (problem_.operation == Operation::Gradient || problem_.storesDataGradient())
        start(cuda::gradientOfPixels<Access, kind()>, map,
              cuda::DataGradientArguments{map, gradient, source, destination, numbers(operands), neuron_,
                                          problem_.hasConstantStatistics,
                                          operands.accumulate && !problem_.storesDataGradient()});
    });
  }

  /// A block of few channels, 64 bytes of a row of sums, and of many threads for each.
  [[nodiscard]] dim3 joinBlock() const {
    const auto across = static_cast<unsigned>(std::min<std::int64_t>(channels_, 8));
    return {across, cuda::kJoinThreads / across};
  }
  [[nodiscard]] dim3 joinGrid() const { return {mtl::cuda::blocksFor(channels_, joinBlock().x)}; }

  void joinStatistics(mtl::Stream& stream, const Operands& operands, const ChunkSums& sums) const {
    mtl::cuda::launch(stream, cuda::joinMoments, joinGrid(), joinBlock(), 0, sums, channels_,
                      cuda::SourceView(problem_.source, operands.source),
                      operands.accumulate ? operands.scalars[0] : 0.0, pixels_, at<double>(operands, 4),
                      at<float>(operands, 2), at<float>(operands, 3));
  }

  void joinGradients(mtl::Stream& stream, const Operands& operands, const ChunkSums& sums) const {
    mtl::cuda::launch(stream, cuda::joinGradients, joinGrid(), joinBlock(), 0,
                      cuda::JoinGradientArguments{sums, parameters(operands), channels_, operands.accumulate,
                                                  at<double>(operands, 4), at<float>(operands, 5),
                                                  at<float>(operands, 6), at<float>(operands, 7)});
  }

  BatchNormalizationProblem problem_;  ///< whose pixels may have been widened
  cuda::NeuronNumbers neuron_;
  std::int64_t channels_ = 0;  ///< before that
  double pixels_ = 0;
  bool sumsAndStores_;
};

Preparation prepareChannels(const BatchNormalizationProblem& problem) {
  for (const TensorShape* shape : {&problem.source, &problem.gradient, &problem.addend, &problem.destination})
    if (!ChannelGrid::fits(*shape)) return Refusal{ChannelGrid::kTooLarge};
  return std::make_shared<const BatchNormalizationPlan>(problem);
}

constexpr Implementation<BatchNormalizationProblem> kElements{"thread per element", prepareChannels};

constexpr Implementation<BatchNormalizationProblem> kVectors{
    "16 bytes per thread", prepareVectors<BatchNormalizationPlan, kElements>};

/// Earns batch normalisation with a neuron in training: the pass that sums stores what the next one needs.
Preparation prepareSumsAndStores(const BatchNormalizationProblem& problem) {
  if (!problem.storesDataGradient()) return Refusal{"no data gradients beside sums"};
  if (problem.neuron.neuronType() == CNNNeuronType::None) return Refusal{"there is no neuron"};
  return inVectors(std::make_shared<BatchNormalizationPlan>(problem, true), kVectors, problem);
}

constexpr Implementation<BatchNormalizationProblem> implementations[] = {
    {"sums and gradients in one pass", prepareSumsAndStores}, kVectors, kElements};

}  // namespace

std::span<const Implementation<BatchNormalizationProblem>> batchNormalizationImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
