#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/state.hpp"
#include "mps/distributed/communicator.hpp"
#include "tools/checkpoint.hpp"
#include "tools/confusion_matrix.hpp"
#include "tools/data.hpp"
#include "tools/folder_lock.hpp"
#include "tools/metrics.hpp"
#include "tools/networks.hpp"
#include "tools/progress.hpp"
#include "tools/tensorboard/training_events.hpp"
#include "tools/training_options.hpp"
#include "train/batch_loader.hpp"
#include "train/class_weights.hpp"
#include "train/dataset_batches.hpp"
#include "train/learning_rate_schedule.hpp"
#include "train/ranks.hpp"

namespace mtl {
class CommandBuffer;
class CommandQueue;
}  // namespace mtl

namespace unmetal {

/// One training, from the first step to the last.
///
/// Three command buffers are in flight: while one step runs, the next batches are uploaded and encoded; the
/// losses are looked at two steps late. In the folder: a row of metrics.csv per step; checkpoint.safetensors
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
  /// A step that was committed and not looked at yet.
  struct InFlight {
    mps::ImageBatch images;
    mps::ImageBatch scores;
    std::optional<train::detail::StepLabels> labels;
    std::shared_ptr<mtl::CommandBuffer> commandBuffer;
    std::uint64_t epoch = 0;
    std::uint64_t step = 0;
    double learningRate = 0;
  };

  [[nodiscard]] TrainingSettings settings() const;
  void printSummary();
  [[nodiscard]] bool isBest(const ConfusionMatrix& validation, std::uint64_t epoch) const;
  void restore(const CheckpointFile& file);
  void joinRanks() const;
  void agree() const;
  void checkWeights() const;
  /// Whether this rank has the folder.
  [[nodiscard]] bool writes() const {
    return !train::detail::areSeveral(options_.ranks) || options_.ranks->rank() == 0;
  }
  void beginFiles();
  void goOn(const CheckpointFile& file);
  [[nodiscard]] std::string drawing() const;
  void beginEvents();
  void drawAllSteps() const;
  void reserveRoom() const;
  void removeAbandonedFiles() const;
  void encodeStep(const train::Batch& batch, InFlight& slot);
  void appendRow(const MetricsRow& row);
  void finishStep(InFlight& slot);
  void record(const InFlight& slot, double loss);
  void finishAll();
  [[nodiscard]] bool isStopDue();
  [[nodiscard]] bool isCheckpointDue() const;
  void saveCheckpoint();
  void saveIfSound();
  void finishEpoch(std::uint64_t epoch);
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
  std::array<InFlight, 3> slots_;
  std::optional<MetricsRow> lastOfEpoch_;  ///< waits for the validation
  std::uint64_t stepsMeasured_ = 0;
  double beginTime_ = 0;  ///< when it would have begun without an interruption
  double lastCheckpointTime_ = 0;
  std::uint64_t lastCheckpointStep_ = 0;
  double accuracy_ = 0;
  bool wantsStop_ = false;                 ///< this rank
  std::optional<std::uint64_t> stopStep_;  ///< in which one of several ranks has told that it wants to stop
};

}  // namespace unmetal
