#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mps/distributed/communicator.hpp"
#include "python/source/binding/bind.hpp"
#include "python/source/train/train.hpp"
#include "unmetal_train.hpp"

namespace python {
namespace {

namespace train = unmetal::train;
using train::Network;
using train::Trainer;
template <class Report>
using Callback = std::optional<std::function<bool(const Report&)>>;

/// Ctrl-C ends a training after a step.
train::TrainerOptions withSignals(train::TrainerOptions options) {
  const auto then = options.onStep;
  options.onStep = [then](const train::StepReport& report) {
    {
      const nb::gil_scoped_acquire lock;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    return !then || then(report);
  };
  return options;
}

template <class Choice>
void makeTrainer(Trainer* self, const Network& network, const Choice& optimizer, std::uint64_t epochs,
                 std::size_t batchSize, std::optional<double> learningRate, const std::string& schedule,
                 double warmup, std::optional<double> weightDecay, double clipNorm, std::uint64_t seed,
                 std::optional<mps::ImageFeatureChannelFormat> format, train::BestBy bestBy, bool keepBest,
                 std::uint64_t patience, const std::vector<float>& classWeights, double averageDecay,
                 std::size_t loaderThreads, const Callback<train::StepReport>& onStep,
                 const Callback<train::EpochReport>& onEpoch, const std::string& augmentation,
                 const std::shared_ptr<mps::Communicator>& communicator, bool synchronizesBatchNormalization,
                 bool checksAgreement) {
  train::TrainerOptions options;
  options.epochs = epochs;
  options.batchSize = batchSize;
  options.optimizer = optimizer;
  options.learningRate = learningRate;
  options.schedule = train::Schedule(schedule).withWarmup(warmup);
  options.weightDecay = weightDecay;
  options.clipNorm = clipNorm;
  options.seed = seed;
  options.format = format;
  options.bestBy = bestBy;
  options.keepBest = keepBest;
  options.patience = patience;
  options.classWeights = classWeights;
  options.averageDecay = averageDecay;
  options.loaderThreads = loaderThreads;
  options.augmentation = train::parseAugmentation(augmentation);
  options.communicator = communicator;
  options.synchronizesBatchNormalization = synchronizesBatchNormalization;
  options.checksAgreement = checksAgreement;
  if (onStep) options.onStep = *onStep;
  if (onEpoch) options.onEpoch = *onEpoch;
  new (self) Trainer(network, withSignals(std::move(options)));
}

void bindReports(nb::module_& module) {
  nb::class_<train::StepReport> step(module, "StepReport", "After a step.");
  readOnly(
      step, "epoch", [](const train::StepReport& self) { return self.epoch; }, "From 1.");
  readOnly(
      step, "step", [](const train::StepReport& self) { return self.step; }, "Of the epoch, from 1.");
  readOnly(
      step, "steps_per_epoch", [](const train::StepReport& self) { return self.stepsPerEpoch; },
      "Whole batches of the data.");
  readOnly(
      step, "loss", [](const train::StepReport& self) { return self.loss; }, "Mean over the batch.");
  readOnly(
      step, "accuracy", [](const train::StepReport& self) { return self.accuracy; },
      "Part of the batch that was classified right before the step, 0 to 1.");
  readOnly(
      step, "learning_rate", [](const train::StepReport& self) { return self.learningRate; },
      "Of this step.");

  nb::class_<train::EpochReport> epoch(module, "EpochReport", "After an epoch.");
  readOnly(
      epoch, "epoch", [](const train::EpochReport& self) { return self.epoch; }, "From 1.");
  readOnly(
      epoch, "loss", [](const train::EpochReport& self) { return self.loss; },
      "Mean over the epoch's steps.");
  readOnly(
      epoch, "accuracy", [](const train::EpochReport& self) { return self.accuracy; },
      "On training pictures: mean over the epoch's steps.");
  readOnly(
      epoch, "validation", [](const train::EpochReport& self) { return self.validation; },
      "Of the validation data; None without any.");
  readOnly(
      epoch, "is_best", [](const train::EpochReport& self) { return self.isBest; },
      "Whether it is better by best_by than all earlier epochs of this fit.");
  readOnly(
      epoch, "seconds", [](const train::EpochReport& self) { return self.seconds; }, "With the validation.");
}

template <class Choice, class Default>
void bindTrainerConstructor(nb::class_<Trainer>& trainer, const Default& optimizer) {
  trainer.def(
      "__init__", &makeTrainer<Choice>, "network"_a, nb::kw_only(), optimizer, "epochs"_a = 5,
      "batch_size"_a = 64, "learning_rate"_a.none() = nb::none(), "schedule"_a = "constant", "warmup"_a = 0.0,
      "weight_decay"_a.none() = nb::none(), "clip_norm"_a = 0.0, "seed"_a = 0, "format"_a.none() = nb::none(),
      "best_by"_a = train::BestBy::Accuracy, "keep_best"_a = false, "patience"_a = 0,
      "class_weights"_a = std::vector<float>{}, "average_decay"_a = 0.0, "loader_threads"_a = 0,
      "on_step"_a.none() = nb::none(), "on_epoch"_a.none() = nb::none(), "augmentation"_a = "none",
      "communicator"_a.none() = nb::none(), "synchronizes_batch_normalization"_a = true,
      "checks_agreement"_a = true,
      "optimizer: sgd, momentum, nesterov, rmsprop, adam, amsgrad, adamw, or an NNOptimizer. "
      "schedule: constant, step, "
      "step:EPOCHS[:FACTOR], cosine or one-cycle, behind warmup epochs. weight_decay: 0, of adamw "
      "0.01. clip_norm: of all "
      "gradients; 0: no limit. keep_best: the network has the weights of the best epoch in the end. "
      "patience: epochs without "
      "a better one that end the training; 0: none do. class_weights: a factor of the loss of each "
      "class. average_decay: of "
      "a moving average of the weights, which validation uses and fit leaves in the network; 0: "
      "none. loader_threads: that load pictures; 0: as many as there are processors. on_step and on_epoch "
      "return whether to go on. augmentation: what each epoch does to training pictures, e.g. "
      "crop+flip+rotate:10. communicator: of several ranks that share each batch and do all else as one "
      "does; batch_size is theirs together. synchronizes_batch_normalization: over the whole batch. "
      "checks_agreement: each epoch ends with a check that all ranks have the same weights.");
}

/// [(learning rate, loss, smoothed loss)] and the suggestion.
using Curve = std::pair<std::vector<std::tuple<double, double, double>>, double>;
Curve findRate(const Network& network, const train::Dataset& data, const std::string& optimizer,
               std::size_t batchSize, double lowest, double highest, std::uint64_t steps,
               std::uint64_t seed) {
  train::TrainerOptions options;
  options.optimizer = optimizer;
  options.batchSize = batchSize;
  options.seed = seed;
  const LockReleased released;
  const auto curve = train::findLearningRate(network, data, options, {lowest, highest, steps});
  Curve found;
  for (const auto& point : curve.points)
    found.first.emplace_back(point.learningRate, point.loss, point.smoothed);
  found.second = curve.suggestion;
  return found;
}

}  // namespace

void bindEvaluation(nb::module_& module) {
  nb::class_<train::ClassScores> scores(module, "ClassScores", "How well one class is told from the others.");
  readOnly(
      scores, "count", [](const train::ClassScores& self) { return self.count; }, "Pictures of the class.");
  readOnly(
      scores, "precision", [](const train::ClassScores& self) { return self.precision; },
      "The part of the pictures taken for the class that are of it; 0 without any.");
  readOnly(
      scores, "recall", [](const train::ClassScores& self) { return self.recall; },
      "The part of the class's pictures that were taken for it; 0 without any.");
  readOnly(
      scores, "f1", [](const train::ClassScores& self) { return self.f1; },
      "2 precision recall / (precision + recall); 0 where both are 0.");
  nb::class_<train::Evaluation> evaluation(module, "Evaluation",
                                           "How well a network tells the classes of pictures apart.");
  readOnly(
      evaluation, "correct", [](const train::Evaluation& self) { return self.correct; },
      "Pictures whose class has the largest probability.");
  readOnly(
      evaluation, "count", [](const train::Evaluation& self) { return self.count; }, "Of all pictures.");
  readOnly(
      evaluation, "loss", [](const train::Evaluation& self) { return self.loss; }, "Mean cross-entropy.");
  readOnly(
      evaluation, "accuracy", [](const train::Evaluation& self) { return self.accuracy(); },
      "correct / count.");
  readOnly(
      evaluation, "confusion", [](const train::Evaluation& self) { return self.confusion; },
      "How many pictures of a class were taken for a class: {(class, taken for): pictures}, without zeros.");
  readOnly(
      evaluation, "class_scores", [](const train::Evaluation& self) { return self.classScores(); },
      "Of each class.");
  readOnly(
      evaluation, "macro_f1", [](const train::Evaluation& self) { return self.macroF1(); },
      "Mean of the classes' F1.");
}

void bindTrainer(nb::module_& module) {
  bindReports(module);
  nb::enum_<train::BestBy>(module, "BestBy", "By what of the validation data epochs are compared.")
      .value("Accuracy", train::BestBy::Accuracy)
      .value("Loss", train::BestBy::Loss);
  nb::class_<Trainer> trainer(module, "Trainer",
                              "Trains a network to tell classes apart, by softmax cross-entropy.");
  bindTrainerConstructor<std::string>(trainer, "optimizer"_a = "adam");
  bindTrainerConstructor<std::shared_ptr<mps::NNOptimizer>>(trainer, "optimizer"_a);
  trainer
      .def(
          "fit",
          [](Trainer& self, const train::Dataset& training, const train::Dataset* validation) {
            const LockReleased released;
            return validation != nullptr ? self.fit(training, *validation) : self.fit(training);
          },
          "training"_a, "validation"_a.none() = nb::none(),
          "Trains for all epochs; another call goes on where this one has ended. A report for each epoch.")
      .def(
          "evaluate",
          [](const Trainer& self, const train::Dataset& data) {
            const LockReleased released;
            return self.evaluate(data);
          },
          "data"_a, "Counts what is right.")
      .def(
          "predict",
          [](const Trainer& self, const GivenArray& pictures) { return predict(self.network(), pictures); },
          "pictures"_a, "Network.predict of the network.");
  readOnly(
      trainer, "network", [](const Trainer& self) { return self.network(); }, "What it trains.");
  module.def(
      "balanced_class_weights", [](const train::Dataset& data) { return train::balancedClassWeights(data); },
      "data"_a,
      "Weights with which rare classes count as much as frequent ones; their mean over the pictures is 1.");
  module.def("find_learning_rate", &findRate, "network"_a, "training"_a, nb::kw_only(),
             "optimizer"_a = "adam", "batch_size"_a = 64, "lowest"_a = 1e-6, "highest"_a = 1.0,
             "steps"_a = 100, "seed"_a = 0,
             "Trains a copy of the network for some steps with growing rates. ([(learning rate, loss, "
             "smoothed loss)], the "
             "suggested rate).");
}

}  // namespace python
