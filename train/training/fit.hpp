#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mps/core/image/image_batch.hpp"
#include "train/batches/augmentation.hpp"
#include "train/batches/batch_loader.hpp"
#include "train/ranks/ranks.hpp"
#include "train/training/class_weights.hpp"
#include "train/training/score_images.hpp"
#include "train/training/trainer.hpp"

namespace mtl {
class CommandBuffer;
class CommandQueue;
}  // namespace mtl

namespace unmetal::train::detail {

class WeightAverage;

/// The step that comes next.
struct FitPosition {
  std::uint64_t epoch = 0;  ///< from 0
  std::uint64_t batch = 0;  ///< of the epoch, from 0
  std::uint64_t step = 0;   ///< of the training, from 0
};

/// Why Fit::run() has come back.
enum class Pause {
  Epoch,   ///< an epoch has ended
  Wanted,  ///< FitSettings::isPauseDue
  End,     ///< of the last epoch or step, or a stop
};

struct FitSettings {
  BatchOptions batches;         ///< with where it begins; the seed is that of the augmentation, too
  std::uint64_t firstStep = 0;  ///< how many steps were done before
  /// Where it ends, unless its last epoch does before.
  std::uint64_t endStep = std::numeric_limits<std::uint64_t>::max();
  Augmentation augmentation;
  /// Makes the learning rate of each step out of the number of steps that an epoch has.
  std::function<std::function<double(std::uint64_t step)>(std::uint64_t stepsPerEpoch)> rates;
  /// Called for each step, those behind a stop as well. False: it stops, as of requestStop().
  std::function<bool(const StepReport&)> onStep;
  /// Asked after each step was encoded, but an epoch's last one, with the number of steps done then. Empty: no.
  std::function<bool(std::uint64_t steps)> isPauseDue = nullptr;
  /// What a step is called, for messages of several ranks.
  std::function<std::string(const StepReport&)> placeOf;
  std::vector<float> classWeights;   ///< empty: 1
  WeightAverage* average = nullptr;  ///< follows each step; null: none
  Ranks ranks;                       ///< that share each batch; null: this one alone
};

/// Of an epoch's steps.
struct EpochMeans {
  double loss = 0;
  double accuracy = 0;
};

/// Steps over the pictures of some epochs.
class Fit {
 public:
  /// All of them outlive it. @param graph of Network::makeTrainingGraph(), with the settings' batch size @param scores its own
  Fit(Network& network, mps::NNGraph& graph, ScoreImages& scores, FitSettings settings,
      const Dataset& training);

  /// Trains up to the next pause. No step is in flight then. What a callback throws comes out.
  Pause run();
  /// Several ranks stop together, a few steps later.
  void requestStop() { wantsStop_ = true; }
  /// Whether a stop was wanted, and no step comes any more.
  [[nodiscard]] bool isStopDue() const;
  [[nodiscard]] const FitPosition& position() const { return position_; }
  [[nodiscard]] std::uint64_t stepsPerEpoch() const { return loader_.batchesPerEpoch(); }
  /// Of the steps since the epoch began that has ended, or since this began.
  [[nodiscard]] EpochMeans means() const;

 private:
  /// A step that was committed and not looked at yet.
  struct InFlight {
    mps::ImageBatch images;
    mps::ImageBatch scores;
    std::optional<StepLabels> labels;
    std::shared_ptr<mtl::CommandBuffer> commandBuffer;
    StepReport report;
    std::uint64_t number = 0;  ///< of the step
  };

  void encodeStep(const Batch& batch, InFlight& slot);
  void finishStep(InFlight& slot);
  /// In the order of their steps: the one that the next step would use is the oldest.
  void finishAll();

  Network& network_;
  mps::NNGraph& graph_;
  ScoreImages& scores_;
  FitSettings settings_;
  std::shared_ptr<mtl::CommandQueue> queue_;
  mps::ImageFeatureChannelFormat format_;
  BatchLoader loader_;
  std::function<double(std::uint64_t)> rateAt_;
  std::array<InFlight, 3> slots_;
  FitPosition position_;
  EpochMeans sums_;
  std::uint64_t steps_ = 0;                ///< of the sums
  bool wantsStop_ = false;                 ///< this rank
  std::optional<std::uint64_t> stopStep_;  ///< in which one of several ranks has told that it wants to stop
};

/// Of several ranks: the graph trains this one's part of each batch, as TrainerOptions says.
void joinRanks(mps::NNGraph& training, const Ranks& ranks, std::size_t batchSize,
               bool synchronizesBatchNormalization);
/// All ranks call it. @throws mps::Error when their weights are no longer the same
void checkAgreement(mps::NNGraph& training, const Ranks& ranks);

}  // namespace unmetal::train::detail
