#include "train/trainer.hpp"

#include <array>
#include <chrono>
#include <cmath>

#include "mps/core/error.hpp"
#include "mps/core/image_batch.hpp"
#include "mps/core/image_descriptor.hpp"
#include "mps/loss/loss.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "train/dataset_batches.hpp"
#include "train/learning_rate_schedule.hpp"
#include "train/loss_labels.hpp"
#include "train/optimizers.hpp"
#include "train/weight_values.hpp"

namespace unmetal::train {
namespace {

double secondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A step that was committed and not looked at yet.
struct InFlight {
  mps::ImageBatch images;
  detail::LossLabels labels;
  std::shared_ptr<mtl::CommandBuffer> commandBuffer;
  StepReport report;
};

/// One call of Trainer::fit.
class Fit {
 public:
  Fit(Network& network, mps::NNGraph& graph, const TrainerOptions& options, double learningRate,
      const Dataset& training, std::uint64_t firstEpoch)
      : network_(network),
        graph_(graph),
        options_(options),
        queue_(network.device()->newCommandQueue()),
        format_(detail::formatOf(training, *network.device(), network.normalization())),
        loader_(training.size(),
                detail::sourceFrom(training, {format_, network.inputShape(), options.augmentation,
                                              options.seed, network.normalization()}),
                batchOptions(options, firstEpoch)),
        schedule_(options.schedule, learningRate, loader_.batchesPerEpoch(), options.epochs) {
    const Shape& shape = network.inputShape();
    for (InFlight& slot : slots_) {
      slot.images = mps::ImageBatch::create(
          network.device(), {format_, shape.width, shape.height, shape.channels}, options.batchSize);
      slot.labels = detail::LossLabels(network.device(), options.batchSize, network.outputShape().channels,
                                       options.augmentation);
    }
  }

  /// Trains for one epoch. @return its mean loss; nothing when a callback has stopped it
  std::optional<double> runEpoch() {
    lossSum_ = 0;
    for (Batch batch; loader_.next(batch);) {
      InFlight& slot = slots_[step_ % slots_.size()];
      finishStep(slot);
      if (stops_) break;
      encodeStep(batch, slot);
      if (!batch.isLastOfEpoch) continue;
      finishAll();
      if (stops_) break;
      return lossSum_ / static_cast<double>(loader_.batchesPerEpoch());
    }
    finishAll();
    return std::nullopt;
  }

 private:
  static BatchOptions batchOptions(const TrainerOptions& options, std::uint64_t firstEpoch) {
    BatchOptions batches;
    batches.batchSize = options.batchSize;
    batches.seed = options.seed;
    batches.firstEpoch = firstEpoch;
    batches.endEpoch = firstEpoch + options.epochs;
    return batches;
  }

  void encodeStep(const Batch& batch, InFlight& slot) {
    slot.images.writeBytes(std::span<const std::byte>(batch.images),
                           mps::DataLayout::HeightxWidthxFeatureChannels);
    slot.labels.write(batch);
    const double rate = schedule_.rateAt(step_);
    network_.setLearningRate(rate);
    slot.report = {batch.epoch + 1, batch.index + 1, loader_.batchesPerEpoch(), 0, rate};
    slot.commandBuffer = queue_->commandBuffer();
    graph_.encodeBatch(slot.commandBuffer, {slot.images}, {slot.labels.states()});
    mps::StateBatchSynchronize(slot.labels.states(), slot.commandBuffer);
    slot.commandBuffer->commit();
    ++step_;
  }

  void finishStep(InFlight& slot) {
    if (!slot.commandBuffer) return;
    const auto commandBuffer = std::exchange(slot.commandBuffer, nullptr);
    commandBuffer->throwIfFailed();
    std::vector<float> losses(options_.batchSize);
    mps::CNNLossLabels::lossImages(slot.labels.states())
        .readBytes(std::span(losses), mps::DataLayout::HeightxWidthxFeatureChannels);
    for (const float loss : losses) slot.report.loss += static_cast<double>(loss);
    lossSum_ += slot.report.loss;
    if (!std::isfinite(slot.report.loss))
      throw mps::Error("the loss is no longer finite at step " + std::to_string(slot.report.step) +
                       " of epoch " + std::to_string(slot.report.epoch) + "; give a smaller learning rate");
    if (!stops_ && options_.onStep && !options_.onStep(slot.report)) stops_ = true;
  }

  /// In the order of their steps: the one that the next step would use is the oldest.
  void finishAll() {
    for (std::size_t i = 0; i < slots_.size(); ++i) finishStep(slots_[(step_ + i) % slots_.size()]);
  }

  Network& network_;
  mps::NNGraph& graph_;
  const TrainerOptions& options_;
  std::shared_ptr<mtl::CommandQueue> queue_;
  mps::ImageFeatureChannelFormat format_;
  BatchLoader loader_;
  LearningRateSchedule schedule_;
  std::array<InFlight, 3> slots_;
  std::uint64_t step_ = 0;
  double lossSum_ = 0;
  bool stops_ = false;
};

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
  std::uint64_t epochs = 0;  ///< done

  State(const Network& trained, TrainerOptions wanted) : network(trained), options(std::move(wanted)) {
    if (options.epochs == 0) throw mps::Error("Trainer", "epochs", "0", "at least 1");
    const auto own = options.optimizer.optimizer();
    if (own && options.weightDecay != 0)
      throw mps::Error("Trainer", "weightDecay", std::to_string(options.weightDecay),
                       "0 with an optimiser that has a regularisation of its own");
    if (!std::isfinite(options.weightDecay) || options.weightDecay < 0)
      throw mps::Error("Trainer", "weightDecay", std::to_string(options.weightDecay), "0 or more");
    const std::string name = options.optimizer.name();
    learningRate = options.learningRate.value_or(own ? static_cast<double>(own->learningRate())
                                                     : defaultLearningRate(name));
    // What it refuses is refused now.
    static_cast<void>(LearningRateSchedule(options.schedule, learningRate, 1, options.epochs));
    if (options.format) network.setFormat(*options.format);
    if (own)
      network.setOptimizer(own);
    else
      network.setOptimizer(makeOptimizer(network.device(), name, learningRate, options.weightDecay),
                           adamFormOf(name));
    training = network.makeTrainingGraph(options.batchSize);
  }

  std::vector<EpochReport> fit(const Dataset& data, const Dataset* validation);
};

std::vector<EpochReport> Trainer::State::fit(const Dataset& data, const Dataset* validation) {
  const std::size_t classes = network.outputShape().channels;
  detail::checkFits(data, "training data", network.inputShape(), classes, options.augmentation);
  if (validation != nullptr)
    detail::checkFits(*validation, "validation data", network.inputShape(), classes);
  else if (options.keepBest)
    throw mps::Error("Trainer: keepBest needs validation data, which fit() was not given");
  Fit fit(network, *training.graph, options, learningRate, data, epochs);
  std::vector<EpochReport> reports;
  std::optional<detail::WeightValues> best;
  std::size_t bestCorrect = 0;
  bool goesOn = true;
  for (std::uint64_t i = 0; goesOn && i < options.epochs; ++i) {
    const double begin = secondsNow();
    const std::optional<double> loss = fit.runEpoch();
    if (!loss) break;
    EpochReport report;
    report.epoch = ++epochs;
    report.loss = *loss;
    if (validation != nullptr) {
      report.validation = network.evaluate(*validation);
      report.isBest = reports.empty() || report.validation->correct > bestCorrect;
      if (report.isBest) bestCorrect = report.validation->correct;
      if (report.isBest && options.keepBest)
        best = detail::WeightValues::of(network.trainableLayers(), network.device());
    }
    report.seconds = secondsNow() - begin;
    reports.push_back(report);
    goesOn = !options.onEpoch || options.onEpoch(report);
  }
  if (best) {
    best->giveTo(network.trainableLayers(), network.device());
    training.graph->reloadFromDataSources();
  }
  return reports;
}

Trainer::Trainer(const Network& network, TrainerOptions options)
    : state_(std::make_unique<State>(network, std::move(options))) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

std::vector<EpochReport> Trainer::fit(const Dataset& training) {
  return state_->fit(training, nullptr);
}

std::vector<EpochReport> Trainer::fit(const Dataset& training, const Dataset& validation) {
  return state_->fit(training, &validation);
}

Evaluation Trainer::evaluate(const Dataset& data) const {
  return state_->network.evaluate(data);
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
