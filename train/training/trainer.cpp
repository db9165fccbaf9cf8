#include "train/training/trainer.hpp"

#include <chrono>
#include <cmath>
#include <limits>

#include "mps/core/types/error.hpp"
#include "mps/distributed/communicator.hpp"
#include "mps/weights/crc32.hpp"
#include "mtl/device.hpp"
#include "train/batches/dataset_batches.hpp"
#include "train/network/network_text.hpp"
#include "train/network/weight_values.hpp"
#include "train/ranks/ranks.hpp"
#include "train/training/class_weights.hpp"
#include "train/training/fit.hpp"
#include "train/training/learning_rate_schedule.hpp"
#include "train/training/optimizers.hpp"
#include "train/training/weight_average.hpp"

namespace unmetal::train {
namespace {

double secondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// "step 3 of epoch 2"
std::string placeOf(const StepReport& report) {
  return "step " + std::to_string(report.step) + " of epoch " + std::to_string(report.epoch);
}

}  // namespace

std::string OptimizerChoice::name() const {
  const auto* name = std::get_if<std::string>(&choice_);
  return name == nullptr ? "" : *name;
}

std::shared_ptr<mps::NNOptimizer> OptimizerChoice::optimizer() const {
  const auto* optimizer = std::get_if<std::shared_ptr<mps::NNOptimizer>>(&choice_);
  return optimizer == nullptr ? nullptr : *optimizer;
}

struct Trainer::State {
  Network network;
  TrainerOptions options;
  double learningRate = 0;
  TrainingGraph training;
  std::shared_ptr<detail::ScoreImages> scores = std::make_shared<detail::ScoreImages>();
  std::unique_ptr<detail::WeightAverage> average;  ///< null: there is none
  std::uint64_t epochs = 0;                        ///< done

  State(const Network& trained, TrainerOptions wanted) : network(trained), options(std::move(wanted)) {
    if (options.epochs == 0) throw mps::Error("Trainer", "epochs", "0", "at least 1");
    const auto own = options.optimizer.optimizer();
    const std::string name = options.optimizer.name();
    const double weightDecay = options.weightDecay.value_or(own ? 0 : defaultWeightDecay(name));
    if (own && weightDecay != 0)
      throw mps::Error("Trainer", "weightDecay", std::to_string(weightDecay),
                       "0 with an optimiser that has a regularisation of its own");
    if (!std::isfinite(weightDecay) || weightDecay < 0)
      throw mps::Error("Trainer", "weightDecay", std::to_string(weightDecay), "0 or more");
    learningRate = options.learningRate.value_or(own ? static_cast<double>(own->learningRate())
                                                     : defaultLearningRate(name));
    // What it refuses is refused now.
    static_cast<void>(LearningRateSchedule(options.schedule, learningRate, 1, options.epochs));
    if (options.format) network.setFormat(*options.format);
    if (own)
      network.setOptimizer(own);
    else
      network.setOptimizer(makeOptimizer(network.device(), name, learningRate, weightDecay),
                           adamFormOf(name));
    if (!std::isfinite(options.clipNorm) || options.clipNorm < 0)
      throw mps::Error("Trainer", "clipNorm", std::to_string(options.clipNorm), "0 or more");
    if (!(options.averageDecay >= 0 && options.averageDecay < 1))
      throw mps::Error("Trainer", "averageDecay", std::to_string(options.averageDecay),
                       "0 or more, and below 1");
    detail::checkClassWeights(options.classWeights, network.outputShape().channels);
    training = network.makeTrainingGraph(options.batchSize, scores);
    training.graph->setGradientNormLimit(static_cast<float>(options.clipNorm));
    detail::joinRanks(*training.graph, options.communicator, options.batchSize,
                      options.synchronizesBatchNormalization);
    if (options.averageDecay > 0)
      average = std::make_unique<detail::WeightAverage>(network.trainableLayers(), network.device(),
                                                        options.averageDecay);
  }

  std::vector<EpochReport> fit(const Dataset& data, const Dataset* validation);
  /// @throws mps::Error where this fit cannot begin, or the ranks' are not the same
  void begin(const Dataset& data, const Dataset* validation) const;
  void checkData(const Dataset& data, const Dataset* validation) const;
  [[nodiscard]] detail::FitSettings fitSettings() const;
};

namespace {

/// For messages: its size, and a number that is another one for other layers.
std::string fingerprintOf(const Network& network) {
  const std::string text = detail::networkText(network.layers());
  return std::to_string(network.layers().size()) + " layers with " +
         std::to_string(network.parameterCount()) + " parameters (" +
         std::to_string(mps::crc32(std::as_bytes(std::span(text)))) + ")";
}

/// Which epoch is the best one, and for how long there was no better one.
class BestEpoch {
 public:
  explicit BestEpoch(BestBy by) : by_(by) {}

  /// @return whether no earlier one is as good
  bool isBetter(const Evaluation& validation) {
    // Pictures that are right are counted, so that no rounding decides.
    const double value = by_ == BestBy::Accuracy ? static_cast<double>(validation.correct) : -validation.loss;
    ++epochsWithoutBetter_;
    if (!(value > best_)) return false;
    best_ = value;
    epochsWithoutBetter_ = 0;
    return true;
  }
  [[nodiscard]] std::uint64_t epochsWithoutBetter() const { return epochsWithoutBetter_; }

 private:
  BestBy by_;
  double best_ = -std::numeric_limits<double>::infinity();
  std::uint64_t epochsWithoutBetter_ = 0;
};

}  // namespace

std::vector<EpochReport> Trainer::State::fit(const Dataset& data, const Dataset* validation) {
  begin(data, validation);
  if (average) average->useForTraining();
  detail::Fit fit(network, *training.graph, *scores, fitSettings(), data);
  std::vector<EpochReport> reports;
  std::optional<detail::WeightValues> bestValues;
  BestEpoch best(options.bestBy);
  bool goesOn = true;
  for (std::uint64_t i = 0; goesOn && i < options.epochs; ++i) {
    const double begin = secondsNow();
    if (fit.run() != detail::Pause::Epoch || fit.isStopDue()) break;
    if (options.checksAgreement) detail::checkAgreement(*training.graph, options.communicator);
    EpochReport report;
    report.epoch = ++epochs;
    report.loss = fit.means().loss;
    report.accuracy = fit.means().accuracy;
    if (validation != nullptr) {
      if (average) average->useForEvaluation();
      report.validation = network.evaluate(*validation, options.communicator);
      report.isBest = best.isBetter(*report.validation);
      if (report.isBest && options.keepBest)
        bestValues = detail::WeightValues::of(network.trainableLayers(), network.device());
      if (average) average->useForTraining();
    }
    report.seconds = secondsNow() - begin;
    reports.push_back(report);
    const bool wantsStop = options.onEpoch && !options.onEpoch(report);
    goesOn = !detail::isTrueOnAny(options.communicator, wantsStop) &&
             (options.patience == 0 || best.epochsWithoutBetter() < options.patience);
  }
  if (average) average->useForEvaluation();
  if (bestValues) bestValues->giveTo(network.trainableLayers(), network.device());
  if (average || bestValues) training.graph->reloadFromDataSources();
  return reports;
}

void Trainer::State::begin(const Dataset& data, const Dataset* validation) const {
  const detail::Ranks& ranks = options.communicator;
  detail::together(ranks, [&] { checkData(data, validation); });
  if (!detail::areSeveral(ranks)) return;
  const auto yesOrNo = [](bool value) { return value ? "yes" : "no"; };
  std::string weights;
  for (const float weight : options.classWeights) weights += std::to_string(weight) + " ";
  detail::agree(ranks,
                {{"the version of unmetal", UNMETAL_TRAIN_VERSION},
                 {"the kind of device", network.device()->kind() == mtl::DeviceKind::CPU ? "cpu" : "cuda"},
                 {"the network", fingerprintOf(network)},
                 {"the network's seed", std::to_string(network.options().seed)},
                 {"the format", mps::name(network.options().format)},
                 {"the number of training pictures", std::to_string(data.size())},
                 {"the number of validation pictures",
                  validation == nullptr ? "0" : std::to_string(validation->size())},
                 {"epochs", std::to_string(options.epochs)},
                 {"the number of epochs done", std::to_string(epochs)},
                 {"batchSize", std::to_string(options.batchSize)},
                 {"optimizer", options.optimizer.optimizer() ? "one of mps" : options.optimizer.name()},
                 {"learningRate", std::to_string(learningRate)},
                 {"schedule", options.schedule.text()},
                 {"weightDecay", std::to_string(options.weightDecay.value_or(0))},
                 {"clipNorm", std::to_string(options.clipNorm)},
                 {"seed", std::to_string(options.seed)},
                 {"augmentation", nameOf(options.augmentation)},
                 {"bestBy", options.bestBy == BestBy::Accuracy ? "accuracy" : "loss"},
                 {"keepBest", yesOrNo(options.keepBest)},
                 {"patience", std::to_string(options.patience)},
                 {"classWeights", weights},
                 {"averageDecay", std::to_string(options.averageDecay)},
                 {"synchronizesBatchNormalization", yesOrNo(options.synchronizesBatchNormalization)},
                 {"checksAgreement", yesOrNo(options.checksAgreement)}});
  detail::checkAgreement(*training.graph, ranks);
}

void Trainer::State::checkData(const Dataset& data, const Dataset* validation) const {
  const std::size_t classes = network.outputShape().channels;
  detail::checkFits(data, "training data", network.inputShape(), classes, options.augmentation);
  detail::checkHasEachClass(data, "training data");
  if (validation != nullptr)
    return detail::checkFits(*validation, "validation data", network.inputShape(), classes);
  if (options.keepBest)
    throw mps::Error("Trainer: keepBest needs validation data, which fit() was not given");
  if (options.patience != 0)
    throw mps::Error("Trainer: patience needs validation data, which fit() was not given");
}

detail::FitSettings Trainer::State::fitSettings() const {
  detail::FitSettings settings;
  settings.batches.batchSize = options.batchSize;
  settings.batches.seed = options.seed;
  settings.batches.threads = options.loaderThreads;
  settings.batches.firstEpoch = epochs;
  settings.batches.endEpoch = epochs + options.epochs;
  settings.rates = [this](std::uint64_t stepsPerEpoch) {
    return [schedule = LearningRateSchedule(options.schedule, learningRate, stepsPerEpoch, options.epochs)](
               std::uint64_t step) { return schedule.rateAt(step); };
  };
  settings.augmentation = options.augmentation;
  settings.placeOf = placeOf;
  // The function itself, not a copy: copies of functions of Python need its lock.
  settings.onStep = [this, isOver = false](const StepReport& report) mutable {
    if (!std::isfinite(report.loss))
      throw mps::Error("the loss is no longer finite at " + placeOf(report) +
                       "; give a smaller learning rate");
    isOver = isOver || (options.onStep && !options.onStep(report));
    return !isOver;
  };
  settings.classWeights = options.classWeights;
  settings.average = average.get();
  settings.ranks = options.communicator;
  return settings;
}

Trainer::Trainer(const Network& network, TrainerOptions options)
    : state_(std::make_unique<State>(network, std::move(options))) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

void Trainer::runWithRates(const Dataset& training, std::uint64_t steps,
                           std::function<double(std::uint64_t)> rateAt) {
  state_->checkData(training, nullptr);
  detail::FitSettings settings = state_->fitSettings();
  settings.rates = [&](std::uint64_t /*stepsPerEpoch*/) { return std::move(rateAt); };
  settings.onStep = [onStep = std::move(settings.onStep), isOver = false](const StepReport& report) mutable {
    isOver = isOver || !std::isfinite(report.loss) || !onStep(report);
    return !isOver;
  };
  settings.batches.firstEpoch = 0;
  settings.batches.endEpoch = steps;  // an epoch has at least one of them
  detail::Fit fit(state_->network, *state_->training.graph, *state_->scores, std::move(settings), training);
  while (fit.run() != detail::Pause::End) {
  }
}

std::vector<EpochReport> Trainer::fit(const Dataset& training) {
  return state_->fit(training, nullptr);
}

std::vector<EpochReport> Trainer::fit(const Dataset& training, const Dataset& validation) {
  return state_->fit(training, &validation);
}

Evaluation Trainer::evaluate(const Dataset& data) const {
  return state_->network.evaluate(data, state_->options.communicator);
}

std::vector<float> Trainer::predict(std::span<const float> pictures) const {
  return state_->network.predict(pictures);
}

std::vector<float> Trainer::predict(const Dataset& data) const {
  return state_->network.predict(data);
}

const Network& Trainer::network() const {
  return state_->network;
}

const TrainerOptions& Trainer::options() const {
  return state_->options;
}

}  // namespace unmetal::train
