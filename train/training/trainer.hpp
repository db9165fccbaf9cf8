#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "train/batches/augmentation.hpp"
#include "train/data/dataset.hpp"
#include "train/network/network.hpp"
#include "train/training/schedule.hpp"

namespace mps {
class Communicator;
}

namespace unmetal::train {

struct LearningRateCurve;
struct LearningRateRange;

/// How a network is trained: by name, or an optimiser of mps with all its numbers.
///
/// | name | update | learning rate unless given |
/// |---|---|---|
/// | `sgd` | plain gradient descent | 0.1 |
/// | `momentum`, `nesterov` | with a momentum of 0.9 | 0.01 |
/// | `rmsprop` | decay 0.9 | 0.001 |
/// | `adam`, `amsgrad` | beta 0.9 and 0.999 | 0.001 |
/// | `adamw` | Adam with decoupled weight decay, 0.01 unless given | 0.001 |
class OptimizerChoice {
 public:
  OptimizerChoice(std::string name) : choice_(std::move(name)) {}
  OptimizerChoice(const char* name) : choice_(std::string(name)) {}
  template <std::derived_from<mps::NNOptimizer> Optimizer>
  OptimizerChoice(std::shared_ptr<Optimizer> optimizer)
      : choice_(std::shared_ptr<mps::NNOptimizer>(std::move(optimizer))) {}

  /// Empty of an optimiser of mps.
  [[nodiscard]] std::string name() const;
  /// Null of a name.
  [[nodiscard]] std::shared_ptr<mps::NNOptimizer> optimizer() const;

 private:
  std::variant<std::string, std::shared_ptr<mps::NNOptimizer>> choice_;
};

/// After a step. Two more are on their way to the device then.
struct StepReport {
  std::uint64_t epoch = 0;  ///< from 1
  std::uint64_t step = 0;   ///< of the epoch, from 1
  std::uint64_t stepsPerEpoch = 0;
  double loss = 0;      ///< mean over the batch
  double accuracy = 0;  ///< part of the batch that was classified right before the step, 0 to 1
  double learningRate = 0;
};

/// After an epoch.
struct EpochReport {
  std::uint64_t epoch = 0;                              ///< from 1
  double loss = 0;                                      ///< mean over the epoch's steps
  double accuracy = 0;                                  ///< on training pictures: mean over the epoch's steps
  std::optional<Evaluation> validation = std::nullopt;  ///< of the validation data, where there are any
  bool isBest = false;  ///< better by TrainerOptions::bestBy than all earlier epochs of this fit
  double seconds = 0;   ///< with the validation
};

/// By what of the validation data epochs are compared.
enum class BestBy {
  Accuracy,
  Loss,
};

struct TrainerOptions {
  std::uint64_t epochs = 5;
  std::size_t batchSize = 64;
  OptimizerChoice optimizer = "adam";
  std::optional<double> learningRate = std::nullopt;  ///< unset: the optimiser's own
  Schedule schedule = "constant";  ///< over the steps of each fit(), e.g. Schedule::cosine().withWarmup(2)
  /// Times the weight is added to each gradient (L2); of `adamw` times weight and learning rate is taken off the weight. 0 or
  /// more. Unset: 0, of `adamw` 0.01.
  std::optional<double> weightDecay = std::nullopt;
  /// Gradient clipping by norm: where the norm of all gradients of a step is larger, they are multiplied by clipNorm / norm
  /// (mps::NNGraph::setGradientNormLimit()). 0: they are not clipped.
  double clipNorm = 0;
  std::uint64_t seed = 0;  ///< of the order of pictures, and of their augmentation
  /// What each epoch does to training pictures. With a crop those may be larger than what the network takes.
  Augmentation augmentation = {};
  /// Of activations and their gradients, Float32 or Float16, whose losses are scaled. Unset: the network's.
  std::optional<mps::ImageFeatureChannelFormat> format = std::nullopt;
  BestBy bestBy = BestBy::Accuracy;
  /// Whether the network has the weights of the best epoch in the end, not the last ones.
  bool keepBest = false;
  /// Early stopping: fit() ends when so many epochs in a row were not better than the best one before them. 0: it does not.
  std::uint64_t patience = 0;
  /// A factor of the loss of each class, finite and not negative; balancedClassWeights() makes some. Losses that are reported have it.
  /// Empty: 1.
  std::vector<float> classWeights = {};
  /// Exponential moving average of weights and running statistics: average = d average + (1 - d) weight after each step, where d is
  /// averageDecay, at most (1 + t) / (10 + t) after t steps. Validation uses the averages, and fit() leaves them in the network; the
  /// next one goes on with the weights themselves. 0.999 is usual. 0: there is none.
  double averageDecay = 0;
  /// How many threads load pictures, decode and augment them, whose bytes do not depend on it. 0: as many as there are
  /// processors for this process.
  std::size_t loaderThreads = 0;
  /// Of several ranks that train one network together, each with a trainer of the same options and data: each batch is the batch
  /// of all, of which each rank loads and trains its part, perhaps none. Order, augmentation, dropout and steps are those of one
  /// rank, whatever their number; only rounding differs. Losses and evaluations are of all ranks. It is of the network's device.
  /// Null, or a group of one: this rank is alone.
  std::shared_ptr<mps::Communicator> communicator = nullptr;
  /// Of several ranks: whether batch normalisation takes the statistics of the whole batch, as one rank would
  /// (mps::NNGraph::setSynchronizesBatchNormalization()).
  bool synchronizesBatchNormalization = true;
  /// Of several ranks: whether each epoch ends with a check that all have the same weights (mps::NNGraph::encodeAgreement()).
  bool checksAgreement = true;
  /// Called after each step and each epoch; false stops the training. Empty: nothing is called. Of several ranks each calls its
  /// own; when one says false all stop behind the same step, a few steps later than one rank would. @{
  std::function<bool(const StepReport&)> onStep = nullptr;
  std::function<bool(const EpochReport&)> onEpoch = nullptr;
  /// @}
};

/// Weights with which rare classes count as much as frequent ones: n / (k n_c) for n pictures of k classes, n_c of them of class c.
/// Their mean over the pictures is 1. @throws mps::Error for a class without pictures
std::vector<float> balancedClassWeights(const Dataset& data);

/// Trains a network to tell classes apart, by softmax cross-entropy.
///
///     unmetal::train::Trainer trainer(network, {.epochs = 10, .optimizer = "adam", .schedule = "cosine"});
///     trainer.fit(training, validation);
///     std::printf("%.2f %%\n", 100 * trainer.evaluate(validation).accuracy());
///
/// Batches are made ready on another thread while a step runs, and two steps are on their way to the device while the losses of
/// an earlier one are looked at. Each epoch sees the pictures in another order; those that are left when it does not divide into
/// whole batches are left out of it, others in each epoch. The same seeds give the same bytes, however many threads there are.
class Trainer {
 public:
  /// Gives the network's layers the optimiser. Their values stay: those of the seed, of a file, or of an earlier training.
  /// @throws mps::Error for options that cannot be, and a network whose result is not one pixel with a score for each class
  explicit Trainer(const Network& network, TrainerOptions options = {});
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  /// Trains for options.epochs epochs; another call goes on with epochs and optimiser where this one has ended.
  /// @return the report of each epoch
  /// @throws mps::Error for data of another shape or number of classes than the network's, a wrong label, a class without pictures
  /// that MemoryDataset was not told of, fewer pictures than a batch has, keepBest or patience without validation data, and when the loss is no longer finite; what a callback throws comes out, too.
  /// Of several ranks, which all call it: before the first step for another network, weights, options, number of pictures, kind of
  /// device or version of the library, with both values and ranks; later for weights that are no longer the same
  /// @{
  std::vector<EpochReport> fit(const Dataset& training);
  std::vector<EpochReport> fit(const Dataset& training, const Dataset& validation);
  /// @}

  /// Network::evaluate(), shared out among the ranks, which all call it, and predict() of the network. @{
  [[nodiscard]] Evaluation evaluate(const Dataset& data) const;
  [[nodiscard]] std::vector<float> predict(std::span<const float> pictures) const;
  [[nodiscard]] std::vector<float> predict(const Dataset& data) const;
  /// @}

  [[nodiscard]] const Network& network() const;
  [[nodiscard]] const TrainerOptions& options() const;

 private:
  friend LearningRateCurve findLearningRate(const Network& network, const Dataset& training,
                                            const TrainerOptions& options, const LearningRateRange& range);
  /// So many steps, however many epochs these are, each with its own rate; fewer where onStep stops or a loss is not finite.
  void runWithRates(const Dataset& training, std::uint64_t steps,
                    std::function<double(std::uint64_t)> rateAt);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace unmetal::train
