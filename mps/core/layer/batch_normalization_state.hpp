#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mps/core/image/gradient_state.hpp"
#include "mps/core/layer/normalization_state.hpp"

namespace mps {

class CNNBatchNormalization;
class Vector;

namespace detail {

/// What a batch normalisation computes with: float32, one value per feature channel. A kernel and its states
/// share one; a reload exchanges buffers, so that encoded work keeps the old ones.
struct BatchNormalizationParameters {
  std::shared_ptr<mtl::Buffer> gamma, beta, mean, variance;
  float epsilon = 0;
  bool sharesGammaAndBeta = false;  ///< gamma and beta are the data source's own buffers
};

}  // namespace detail

/// Statistics, weights and weight gradients of one batch normalisation for one batch
/// (MPSCNNBatchNormalizationState). CNNBatchNormalization::resultState and
/// temporaryResultState make it; one state serves the whole batch.
///
/// The four kernels take it through these phases, in the order in which they are encoded:
///
/// | encode | does |
/// |---|---|
/// | statistics | accumulates; the first one after anything else begins a new batch |
/// | normalisation | uses the batch's statistics; without any, those of the kernel: the state is *frozen* |
/// | statistics gradient | accumulates; the first one after anything else begins new sums |
/// | gradient | needs a statistics gradient of as many elements as the statistics; frozen: of any |
///
/// A temporary state begins with readCount 1; normalisation, statistics gradient, gradient and each optimiser
/// encode take one off per call, the statistics none. A step with S parts of the batch and u recorded updates
/// needs 3 S + u; the inherited encodes of CNNBatchNormalizationStatisticsGradient compute both gradients and
/// take one.
///
/// What was encoded in a command buffer that is dropped was not encoded: the state is where it was before, unless another
/// command buffer has gone on with it since.
///
/// Buffers are float32, one value per feature channel; the host can read those of a permanent state after
/// synchronize() and completion.
class CNNBatchNormalizationState : public NNGradientState {
 public:
  /// The kernel that made the state.
  [[nodiscard]] const std::shared_ptr<const CNNBatchNormalization>& batchNormalization() const {
    return batchNormalization_;
  }
  [[nodiscard]] std::size_t numberOfFeatureChannels() const { return bufferSize(0) / sizeof(float); }

  /// Back to how it was made, for the encodes that follow: no statistics, no gradients.
  void reset();
  /// Whether statistics that are encoded after a normalisation or gradient begin a new batch. true; false lets
  /// them accumulate until reset().
  [[nodiscard]] bool restartsAutomatically() const { return restartsAutomatically_; }
  void setRestartsAutomatically(bool restarts) { restartsAutomatically_ = restarts; }

  /// The kernel's own: after a reload the new values.
  [[nodiscard]] std::shared_ptr<mtl::Buffer> gamma() const { return live_->gamma; }
  [[nodiscard]] std::shared_ptr<mtl::Buffer> beta() const { return live_->beta; }
  /// Of the batch so far; before, and in a frozen state, the kernel's. The variance is divided by the number
  /// of elements (biased) and holds no epsilon.
  [[nodiscard]] std::shared_ptr<mtl::Buffer> mean();
  [[nodiscard]] std::shared_ptr<mtl::Buffer> variance();
  /// Values per feature channel that the statistics are of, as encoded so far: the m of unbiased variances,
  /// variance * m / (m - 1). 0 before the first and in a frozen state.
  [[nodiscard]] std::uint64_t elementCount() const { return progress_.elementCount; }

  /// Sums over the elements of the batch, never divided: dL/dgamma and dL/dbeta. Null until a statistics
  /// gradient is encoded.
  [[nodiscard]] std::shared_ptr<mtl::Buffer> gradientForGamma();
  [[nodiscard]] std::shared_ptr<mtl::Buffer> gradientForBeta();
  /// Extension (docs/decisions.md, D4): the loss's derivatives by mean and variance, -gamma r sum(g) and
  /// -1/2 gamma r^2 sum(g h), with the names of CNNBatchNormalizationStatisticsGradient. Null likewise.
  [[nodiscard]] std::shared_ptr<Vector> gradientForMean();
  [[nodiscard]] std::shared_ptr<Vector> gradientForVariance();

  /// @name Extension: one batch on several devices
  /// Between the statistics and the first normalisation each device takes the merged statistics of all
  /// (CNNBatchNormalizationStatistics::importStatistics). Between the statistics gradient and the first gradient it
  /// takes their summed gradients (CNNBatchNormalizationStatisticsGradient::importGradients). gradientForGamma() and
  /// gradientForBeta() stay those of this device.
  /// @{
  /// float64, the mean of each channel, then the sums M2 of squared differences from it; with elementCount() n
  /// two devices merge to n = nA + nB, d = meanB - meanA, mean = meanA + d nB / n,
  /// M2 = M2A + M2B + d^2 nA nB / n.
  [[nodiscard]] std::shared_ptr<mtl::Buffer> accumulatedStatistics() { return resource(5); }
  /// float64, sum(g) of each channel, then sum(g h); devices add them.
  [[nodiscard]] std::shared_ptr<mtl::Buffer> accumulatedGradients() { return resource(6); }
  /// @}

  /// The kernel's buffers, too.
  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) override;

  /// @name The library's own
  /// @{
  /// @param commandBuffer null for a permanent state
  static std::shared_ptr<CNNBatchNormalizationState> create(
      const std::shared_ptr<mtl::Device>& device, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      std::size_t numberOfFeatureChannels, std::shared_ptr<const CNNBatchNormalization> batchNormalization,
      std::shared_ptr<const detail::BatchNormalizationParameters> live);

  void willEncode(mtl::CommandBuffer& commandBuffer) override;
  void willEncodeGradient(mtl::CommandBuffer& commandBuffer) override;
  /// Records zeros for all sums of statistics gradients, which no predicate leaves out.
  void clearGradients(mtl::CommandBuffer& commandBuffer);
  /// Whether the next statistics add to those that are there.
  [[nodiscard]] bool addsStatistics() const;
  void didEncodeStatistics(std::uint64_t elements);
  /// @param elements of all devices
  void didImportStatistics(std::uint64_t elements);
  /// Behind the last gradient of the batch. @param elements of all devices
  void didMergeStatistics(std::uint64_t elements) { progress_.elementCount = elements; }
  void didImportGradients();
  void didEncodeNormalization(const detail::BatchNormalizationParameters& used);
  /// What the last normalisation computed with: its gradients must use the same.
  [[nodiscard]] detail::BatchNormalizationParameters parametersForGradient();
  [[nodiscard]] bool addsGradientStatistics() const { return progress_.phase == Phase::GradientStatistics; }
  /// Elements that statistics gradients have seen, of elementCount().
  [[nodiscard]] std::uint64_t gradientElementCount() const { return progress_.gradientElementCount; }
  void didEncodeGradientStatistics(std::uint64_t elements);
  [[nodiscard]] bool hasGradientStatistics() const { return progress_.phase >= Phase::GradientStatistics; }
  void didEncodeGradient() { progress_.phase = Phase::Gradient; }
  /// Whether the statistics are constants that no statistics kernel has computed from this batch.
  [[nodiscard]] bool isFrozen() const { return progress_.elementCount == 0; }

  [[nodiscard]] std::shared_ptr<mtl::Buffer> meanOfBatch() { return resource(0); }
  [[nodiscard]] std::shared_ptr<mtl::Buffer> varianceOfBatch() { return resource(1); }
  [[nodiscard]] std::shared_ptr<mtl::Buffer> gammaGradient() { return resource(2); }
  [[nodiscard]] std::shared_ptr<mtl::Buffer> betaGradient() { return resource(3); }
  /// By the mean, then by the variance.
  [[nodiscard]] std::shared_ptr<mtl::Buffer> statisticsGradients() { return resource(4); }
  /// @}

 protected:
  using NNGradientState::NNGradientState;

 private:
  enum class Phase { Fresh, Statistics, Normalized, GradientStatistics, Gradient };
  [[nodiscard]] std::shared_ptr<Vector> statisticsGradient(std::size_t index);

  /// What encoding changes.
  struct Progress {
    detail::BatchNormalizationParameters used;  ///< by the last normalisation of this batch; empty before
    Phase phase = Phase::Fresh;
    std::uint64_t elementCount = 0;
    std::uint64_t gradientElementCount = 0;
  };
  /// How far it was before a command buffer that is not committed yet.
  struct Before;

  std::shared_ptr<const CNNBatchNormalization> batchNormalization_;
  std::shared_ptr<const detail::BatchNormalizationParameters> live_;
  Progress progress_;
  std::weak_ptr<const Before> before_;  ///< of the buffer that was encoded on last
  bool restartsAutomatically_ = true;
};

}  // namespace mps
