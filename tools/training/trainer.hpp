#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mps/distributed/communicator.hpp"
#include "tools/data/data.hpp"
#include "tools/evaluation/confusion_matrix.hpp"
#include "tools/metrics/metrics.hpp"
#include "tools/networks/networks.hpp"
#include "tools/tensorboard/training_events.hpp"
#include "tools/terminal/progress.hpp"
#include "tools/training/checkpoint.hpp"
#include "tools/training/folder_lock.hpp"
#include "tools/training/training_options.hpp"
#include "train/ranks/ranks.hpp"
#include "train/training/fit.hpp"
#include "train/training/learning_rate_schedule.hpp"

namespace mtl {
class CommandQueue;
}

namespace unmetal {

/// One training, from the first step to the last.
///
/// Its steps are train::detail::Fit's. In the folder: a row of metrics.csv per step; checkpoint.safetensors
/// before the first step, after each epoch, every few seconds and every 2 % of the steps (4 % where writing takes
/// longer than that); best.safetensors after the best epoch,
/// without the state of optimisers, with confusion.svg and worst.svg of it; curves.svg and graph.svg. Each file is replaced as a
/// whole, and those of an earlier training in the folder only when there is room for the new checkpoints: its
/// checkpoint, metrics and graph before the first step, best.safetensors after the first epoch, curves.svg when new
/// ones are drawn.
///
/// Of several ranks each has its part of every batch, and rank 0 alone the folder; the others read the checkpoint that is resumed.
class Trainer {
 public:
  /// Loads data and, to resume, the checkpoint. A folder that is there is locked (FolderLock). @throws mps::Error in one
  /// sentence; nothing was changed then.
  Trainer(const std::shared_ptr<mtl::Device>& device, const TrainingOptions& options);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Begins the folder's files, or takes them as the checkpoint found them: graph.svg, metrics.csv without later rows.
  /// @throws mps::Error, as the constructor does, and of ranks whose trainings are not the same
  void begin();
  /// Trains to the end, behind begin(). @return accuracy on the validation pictures after the last epoch; nothing when it stopped
  /// before, at the option's last step or because it was told to
  std::optional<double> run();
  /// Of the best epoch so far.
  [[nodiscard]] double bestAccuracy() const { return static_cast<double>(position_.bestAccuracy); }
  /// Whether it has ended because no epoch was better for so many epochs as the option says.
  [[nodiscard]] bool hasLostPatience() const {
    return options_.patience != 0 && position_.epochsWithoutBest >= options_.patience;
  }
  /// Steps done since the beginning of the training.
  [[nodiscard]] std::uint64_t step() const { return position_.step; }

 private:
  [[nodiscard]] TrainingSettings settings() const;
  void printSummary();
  [[nodiscard]] bool isBest(const ConfusionMatrix& validation, std::uint64_t epoch) const;
  void restore(const CheckpointFile& file);
  void agree() const;
  [[nodiscard]] train::detail::FitSettings fitSettings();
  /// Whether this rank has the folder.
  [[nodiscard]] bool writes() const {
    return !train::detail::areSeveral(options_.ranks) || options_.ranks->rank() == 0;
  }
  void beginFiles();
  void goOn(const CheckpointFile& file);
  void beginEvents();
  void drawAllSteps() const;
  void reserveRoom() const;
  void removeAbandonedFiles() const;
  void appendRow(const MetricsRow& row);
  [[nodiscard]] std::uint64_t numberOf(const train::StepReport& step) const;
  void record(const train::StepReport& step);
  [[nodiscard]] bool isStopWanted() const { return options_.isStopWanted && options_.isStopWanted(); }
  [[nodiscard]] bool isCheckpointDue(std::uint64_t step) const;
  [[nodiscard]] train::detail::Pause runSteps();
  /// What the layers have. No step is in flight. @{
  void useAverages() {
    if (network_.average) network_.average->useForEvaluation();
  }
  void useWeights() {
    if (network_.average) network_.average->useForTraining();
  }
  /// @}
  void saveCheckpoint();
  void saveIfSound();
  void appendGradients();
  void finishEpoch();
  void drawCurves() const;

  std::shared_ptr<mtl::Device> device_;
  std::shared_ptr<mtl::CommandQueue> queue_;
  std::optional<FolderLock> lock_;
  std::optional<CheckpointFile> resumed_;  ///< until its values are taken
  NamedData training_;
  NamedData test_;
  train::Shape pictures_;    ///< of the network
  bool isNetworkChosen_;     ///< by chooseTraining()
  TrainingOptions options_;  ///< with all that it chooses
  double learningRate_;
  double weightDecay_;
  Network network_;
  std::optional<std::string> newHead_;  ///< label of the layer that initial weights did not fit
  TrainingPosition position_;
  std::uint64_t stepsPerEpoch_ = 0;
  std::uint64_t totalSteps_ = 0;
  std::optional<train::LearningRateSchedule> schedule_;
  std::optional<MetricsLog> metrics_;
  std::optional<TrainingEvents> events_;
  CheckpointWriter writer_;
  ProgressDisplay display_;
  ThroughputMeter throughput_;
  std::vector<float> classWeights_;  ///< empty: 1
  std::optional<train::detail::Fit> fit_;
  std::optional<MetricsRow> lastOfEpoch_;  ///< waits for the validation
  std::uint64_t stepsMeasured_ = 0;
  double beginTime_ = 0;  ///< when it would have begun without an interruption
  double lastCheckpointTime_ = 0;
  std::uint64_t lastCheckpointStep_ = 0;
  double accuracy_ = 0;
};

}  // namespace unmetal
