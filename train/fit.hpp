#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "mps/core/image/image_batch.hpp"
#include "train/augmentation.hpp"
#include "train/batch_loader.hpp"
#include "train/class_weights.hpp"
#include "train/ranks.hpp"
#include "train/score_images.hpp"
#include "train/trainer.hpp"

namespace mtl {
class CommandBuffer;
class CommandQueue;
}  // namespace mtl

namespace unmetal::train::detail {

class WeightAverage;

struct FitSettings {
  BatchOptions batches;  ///< their seed is that of the augmentation, too
  Augmentation augmentation;
  /// Makes the learning rate of each step, counted from 0, out of the number of steps that an epoch has.
  std::function<std::function<double(std::uint64_t)>(std::uint64_t stepsPerEpoch)> rates;
  std::function<bool(const StepReport&)> onStep;  ///< false: it stops; empty: nothing is called
  std::vector<float> classWeights;                ///< empty: 1
  WeightAverage* average = nullptr;               ///< follows each step; null: none
  bool endsWhereNotFinite = false;  ///< a loss that is not finite stops it; otherwise it is an error
  Ranks ranks;                      ///< that share each batch; null: this one alone
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

  /// Trains for one epoch. @return nothing when a callback has stopped it
  std::optional<EpochMeans> runEpoch();

 private:
  /// A step that was committed and not looked at yet.
  struct InFlight {
    mps::ImageBatch images;
    mps::ImageBatch scores;
    std::optional<StepLabels> labels;
    std::shared_ptr<mtl::CommandBuffer> commandBuffer;
    StepReport report;
    std::uint64_t number = 0;  ///< of the step, from 0
  };

  void encodeStep(const Batch& batch, InFlight& slot);
  [[nodiscard]] bool isStopDue() const;
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
  std::uint64_t step_ = 0;
  EpochMeans sums_;
  bool stops_ = false;
  bool wantsStop_ = false;                 ///< of several ranks: this one
  std::optional<std::uint64_t> stopStep_;  ///< in which one of several ranks has told that it wants to stop
};

}  // namespace unmetal::train::detail
