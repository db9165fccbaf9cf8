#include "tools/training/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mps/core/types/text_stream.hpp"
#include "mps/weights/atomic_file.hpp"
#include "mps/weights/input_file.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "tools/evaluation/evaluation.hpp"
#include "tools/evaluation/mistakes.hpp"
#include "tools/metrics/chart.hpp"
#include "tools/networks/initial_weights.hpp"
#include "tools/options/device_options.hpp"
#include "tools/terminal/text.hpp"
#include "tools/training/arithmetic.hpp"
#include "train/batches/dataset_batches.hpp"
#include "train/text/fixed_point.hpp"
#include "train/training/optimizers.hpp"

namespace unmetal {
namespace {

constexpr const char* bestName = "best.safetensors";
constexpr const char* metricsName = "metrics.csv";
constexpr const char* curvesName = "curves.svg";
constexpr std::size_t mostPicturesOfGradients = 64;
constexpr const char* graphName = "graph.svg";
constexpr const char* allStepsName = "graph.dot";
/// The first ones take longer: kernels are chosen and memory is taken.
constexpr std::uint64_t stepsToEstimate = 10;

/// A folder that is there is locked before anything is read from it.
std::optional<FolderLock> lockIfThere(const TrainingOptions& options) {
  std::error_code ignored;
  if (!isFirstRank(options) || !std::filesystem::is_directory(options.out, ignored)) return std::nullopt;
  return std::optional<FolderLock>(std::in_place, options.out);
}

/// "3 classes: cat, dog, owl", "1000 classes: cat, dog, ..."
std::string classesOf(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  std::string text = std::to_string(names.size()) + " classes: ";
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i)
    text += (i == 0 ? "" : ", ") + printable(names[i]);
  return text + (names.size() > most ? ", ..." : "");
}

/// "conv1,layer1."
std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ",") + text;
  return all;
}

/// Nothing when it cannot be read.
std::optional<std::string> contentOf(const std::filesystem::path& path) {
  constexpr std::uint64_t largest = std::uint64_t{1} << 30;
  try {
    const std::vector<std::byte> bytes = mps::readFile(path, largest);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  } catch (const mps::Error&) {
    return std::nullopt;
  }
}

}  // namespace

Trainer::Trainer(const std::shared_ptr<mtl::Device>& device, const TrainingOptions& options)
    : device_(device),
      queue_(device->newCommandQueue()),
      lock_(lockIfThere(options)),
      resumed_(checkpointOf(options)),
      training_(loadDataset(options.data, Split::Training, dataOptions(options, resumed_, Split::Training))),
      test_(loadDataset(options.data, Split::Test, dataOptions(options, resumed_, Split::Test))),
      pictures_(test_.pictures->shape()),
      isNetworkChosen_(options.network.empty()),
      options_(completed(options, dataOptions(options, resumed_), *training_.pictures)),
      learningRate_(options_.learningRate.value_or(train::defaultLearningRate(options_.optimizer))),
      weightDecay_(options_.weightDecay.value_or(train::defaultWeightDecay(options_.optimizer))),
      network_(networkFor(device, options_, *training_.pictures, pictures_, learningRate_, weightDecay_,
                          resumed_)),
      display_(options_.quiet || !writes() ? ProgressDisplay::silent()
                                           : ProgressDisplay::onStandardOutput()) {
  if (options_.batchSize == 0 || options_.batchSize > training_.pictures->size())
    throw mps::Error("--batch " + std::to_string(options_.batchSize) + ": give a number from 1 to the " +
                     std::to_string(training_.pictures->size()) + " pictures of " + options_.data);
  if (!options_.initialWeights.empty()) newHead_ = readInitialWeights(network_, options_.initialWeights);
  stepsPerEpoch_ = training_.pictures->size() / options_.batchSize;
  totalSteps_ = stepsPerEpoch_ * options_.epochs;
  schedule_.emplace(train::Schedule(options_.schedule).withWarmup(options_.warmup), learningRate_,
                    stepsPerEpoch_, options_.epochs);
  network_.training->setGradientNormLimit(static_cast<float>(options_.clipNorm));
  if (options_.averageDecay > 0)
    network_.average =
        std::make_shared<train::detail::WeightAverage>(network_.layers, device_, options_.averageDecay);
  if (resumed_) restore(*resumed_);
  train::detail::joinRanks(*network_.training, options_.ranks, options_.batchSize,
                           options_.synchronizesBatchNormalization);
  fit_.emplace(*network_.definition, *network_.training, *network_.scores, fitSettings(),
               *training_.pictures);
}

Trainer::~Trainer() = default;

void Trainer::begin() {
  agree();
  // All that can be refused was looked at: from here on files change.
  train::detail::together(options_.ranks, [&] {
    if (!writes()) return;
    if (resumed_)
      goOn(*resumed_);
    else
      beginFiles();
  });
  resumed_.reset();
  printSummary();
  for (const NamedData* data : {&training_, &test_})
    for (const std::string& trouble : data->leftOut) display_.print("left out: " + printable(trouble));
}

void Trainer::printSummary() {
  const std::string size = describe(pictures_);
  display_.print("data: " + printable(options_.data) + ", " + std::to_string(training_.pictures->size()) +
                 " pictures for training and " + std::to_string(test_.pictures->size()) +
                 " for validation, " + size + ", " + classesOf(training_.pictures->classNames()));
  display_.print(
      "network: " + options_.network + ", " + std::to_string(network_.parameterCount) + " parameters" +
      (isNetworkChosen_ ? "; it was chosen for pictures of " + size + ", --net takes another" : ""));
  if (newHead_)
    display_.print("weights: those of " + printable(options_.initialWeights.string()) + "; the last layer, " +
                   *newHead_ + ", is another one and begins anew");
  if (!options_.frozen.empty())
    display_.print("not trained: layers that begin with " + joined(options_.frozen));
  display_.print(
      "training: " + std::to_string(options_.epochs) + " epochs of " + std::to_string(stepsPerEpoch_) +
      " steps with " + std::to_string(options_.batchSize) + " pictures, " + options_.optimizer +
      ", learning rate " + textOf(learningRate_) + " (" + options_.schedule +
      (options_.warmup > 0 ? " behind a warm-up of " + textOf(options_.warmup) + " epochs)" : ")"));
  if (options_.averageDecay > 0)
    display_.print("moving average of the weights: decay " + textOf(options_.averageDecay) +
                   "; validation and " + bestName + " have it");
  display_.print("device: " + device_->name());
  if (train::detail::areSeveral(options_.ranks))
    display_.print("ranks: " + std::to_string(options_.ranks->size()) + ", joined by " +
                   options_.ranks->engineName());
  display_.print("augmentation: " + nameOf(options_.pictures.augmentation));
  display_.print("normalization: " + options_.normalization);
}

void Trainer::restore(const CheckpointFile& file) {
  const auto refusal = [&](const std::string& trouble) {
    return mps::Error("cannot use " + (options_.out / checkpointName).string() + ": " + trouble);
  };
  file.restoreTraining(network_, settings());
  position_ = file.position();
  // Within the first epoch the position fits every number of pictures, and files of former versions have no other word.
  if (file.pictures().value_or(training_.pictures->size()) != training_.pictures->size() ||
      position_.batch >= stepsPerEpoch_ ||
      position_.step != position_.epoch * stepsPerEpoch_ + position_.batch)
    throw refusal(options_.data + " had another number of pictures when it was made");
  if (position_.step > totalSteps_ || position_.epoch > options_.epochs)
    throw refusal("it is beyond --epochs " + std::to_string(options_.epochs));
  if (!(position_.bestAccuracy >= 0 && position_.bestAccuracy <= 1))
    throw refusal("its best accuracy is " + textOf(position_.bestAccuracy) + ", expected 0 to 1");
}

void Trainer::goOn(const CheckpointFile& file) {
  reserveRoom();
  metrics_.emplace(MetricsLog::resume(options_.out / metricsName, position_.step));
  beginEvents();
  removeAbandonedFiles();
  // A training that was killed before its first step has not drawn it.
  if (const std::string graph = network_.definition->drawing(); contentOf(options_.out / graphName) != graph)
    mps::writeFile(options_.out / graphName, graph);
  drawAllSteps();
  if (const std::string ours = plansOf(*device_); file.plans() != ours)
    display_.print("the checkpoint was made with the plans " + file.plans() +
                   ", this training goes on with " + ours + ": its numbers may differ in their last bits");
  if (const std::string ours = arithmeticOf(*device_); file.arithmetic().value_or(ours) != ours)
    display_.print("the checkpoint was made with " + *file.arithmetic() + ", this training goes on with " +
                   ours + ": its numbers may differ in their last bits");
  display_.print("going on after step " + std::to_string(position_.step) + " of " +
                 std::to_string(totalSteps_));
}

void Trainer::beginFiles() {
  mps::makeWritableFolder(options_.out);
  if (!lock_) lock_.emplace(options_.out);
  reserveRoom();
  mps::AtomicFile graph(options_.out / graphName);
  graph.write(network_.definition->drawing());
  // Before all else that changes: --resume never goes on from the checkpoint of an earlier training.
  Checkpoint::take(network_, *queue_, position_, settings()).write(options_.out / checkpointName);
  metrics_.emplace(MetricsLog::create(options_.out / metricsName));
  beginEvents();
  graph.commit();
  drawAllSteps();
  removeAbandonedFiles();
}

void Trainer::beginEvents() {
  if (!options_.resume) TrainingEvents::removeFrom(options_.out);
  if (options_.tensorBoard || TrainingEvents::areIn(options_.out))
    events_.emplace(options_.out, position_.step, network_.definition->layers());
}

void Trainer::drawAllSteps() const {
  if (options_.graph != "all") return;
  mps::detail::TextStream text;
  network_.training->writeDot(text, mps::GraphPart::All);
  mps::writeFile(options_.out / allStepsName, text.str());
}

void Trainer::removeAbandonedFiles() const {
  for (const char* name :
       {checkpointName, bestName, metricsName, curvesName, graphName, allStepsName, confusionName, worstName})
    mps::AtomicFile::removeAbandoned(options_.out / name);
}

void Trainer::reserveRoom() const {
  const std::uint64_t size = Checkpoint::sizeOf(network_, Checkpoint::Contents::Training);
  const auto growthOf = [&](const char* name, std::uint64_t needed) {
    std::error_code missing;
    const std::uint64_t bytes = std::filesystem::file_size(options_.out / name, missing);
    return missing ? needed : needed - std::min(needed, bytes);
  };
  // Both checkpoints, and the one that is being written. For that stands metrics.csv, which must be writable, too.
  mps::AtomicFile checkpoint(options_.out / checkpointName);
  mps::AtomicFile best(options_.out / bestName);
  mps::AtomicFile next(options_.out / metricsName);
  checkpoint.reserve(growthOf(checkpointName, size));
  best.reserve(growthOf(bestName, Checkpoint::sizeOf(network_, Checkpoint::Contents::Weights)));
  next.reserve(size);
}

void Trainer::agree() const {
  TrainingSettings values{{"the version of unmetal", UNMETAL_VERSION},
                          {"--resume", options_.resume ? "given" : "not given"},
                          {"the step to go on from", std::to_string(position_.step)},
                          {"the number of validation pictures", std::to_string(test_.pictures->size())},
                          {"--steps", options_.lastStep ? std::to_string(*options_.lastStep) : "not given"}};
  for (const auto& [name, value] : settings()) {
    if (name == "arithmetic") continue;  // processors of several kinds may work together
    const std::string shown = name == "pictures" ? "the number of training pictures"
                              : name == "plans"  ? "what --plans names"
                                                 : "--" + name;
    values.emplace_back(shown, value);
  }
  train::detail::agree(options_.ranks, values);
  train::detail::together(options_.ranks,
                          [&] { train::detail::checkAgreement(*network_.training, options_.ranks); });
}

TrainingSettings Trainer::settings() const {
  const auto yesOrNo = [](bool value) { return value ? "yes" : "no"; };
  TrainingSettings settings{{"data", options_.data},
                            {"net", options_.network},
                            {"epochs", std::to_string(options_.epochs)},
                            {"batch", std::to_string(options_.batchSize)},
                            {"optimizer", options_.optimizer},
                            {"lr", textOf(learningRate_)},
                            {"lr-schedule", options_.schedule},
                            {"warmup", textOf(options_.warmup)},
                            {"weight-decay", textOf(weightDecay_)},
                            {"clip-norm", textOf(options_.clipNorm)},
                            {"ema", textOf(options_.averageDecay)},
                            {"freeze", joined(options_.frozen)},
                            {"best-by", options_.bestBy},
                            {"patience", std::to_string(options_.patience)},
                            {"class-weights", options_.classWeights},
                            {"seed", std::to_string(options_.seed)},
                            {"format", options_.format},
                            {"allow-reduced-precision", yesOrNo(options_.allowReducedPrecision)},
                            {"no-sync-batch-norm", yesOrNo(!options_.synchronizesBatchNormalization)},
                            {"augment", nameOf(options_.pictures.augmentation)},
                            {"normalize", options_.normalization},
                            {"pictures", std::to_string(training_.pictures->size())},
                            {"plans", plansOf(*device_)},
                            {"arithmetic", arithmeticOf(*device_)}};
  if (isPictureFolder(options_.data)) {
    settings.emplace_back("picture-size", describe(options_.pictures.size));
    settings.emplace_back("validation", textOf(options_.pictures.validation));
    settings.emplace_back("skip-bad", yesOrNo(options_.pictures.skipBad));
  }
  return settings;
}

train::detail::FitSettings Trainer::fitSettings() {
  train::detail::FitSettings settings;
  settings.batches.batchSize = options_.batchSize;
  settings.batches.seed = options_.seed;
  settings.batches.threads = options_.pictures.threads;
  settings.batches.firstEpoch = position_.epoch;
  settings.batches.firstBatch = position_.batch;
  settings.batches.endEpoch = options_.epochs;
  settings.firstStep = position_.step;
  settings.endStep = options_.lastStep.value_or(totalSteps_);
  settings.augmentation = options_.pictures.augmentation;
  classWeights_ = classWeightsOf(options_.classWeights, *training_.pictures);
  settings.classWeights = classWeights_;
  settings.average = network_.average.get();
  settings.ranks = options_.ranks;
  settings.rates = [this](std::uint64_t /*stepsPerEpoch*/) {
    return [this](std::uint64_t step) { return schedule_->rateAt(step); };
  };
  settings.placeOf = [this](const train::StepReport& step) {
    return "step " + std::to_string(numberOf(step));
  };
  settings.onStep = [this](const train::StepReport& step) {
    if (writes()) record(step);
    if (!std::isfinite(step.loss))
      throw mps::Error("the loss is no longer finite at step " + std::to_string(numberOf(step)) +
                       "; give a smaller --lr");
    return !isStopWanted();
  };
  if (writes()) settings.isPauseDue = [this](std::uint64_t step) { return isCheckpointDue(step); };
  return settings;
}

void Trainer::appendRow(const MetricsRow& row) {
  metrics_->append(row);
  if (events_) events_->append(row);
}

/// From the beginning of the training, from 1.
std::uint64_t Trainer::numberOf(const train::StepReport& step) const {
  return (step.epoch - 1) * stepsPerEpoch_ + step.step;
}

void Trainer::record(const train::StepReport& step) {
  throughput_.add(options_.batchSize);
  MetricsRow row;
  row.epoch = step.epoch;
  row.step = numberOf(step);
  row.trainLoss = static_cast<float>(step.loss);
  row.trainAccuracy = static_cast<float>(step.accuracy);
  row.learningRate = step.learningRate;
  row.imagesPerSecond = throughput_.imagesPerSecond();
  row.seconds = steadySeconds() - beginTime_;
  if (step.step == stepsPerEpoch_)
    lastOfEpoch_ = row;
  else
    appendRow(row);
  display_.update({step.epoch, options_.epochs, step.step, stepsPerEpoch_, options_.batchSize, step.loss,
                   row.imagesPerSecond, ++stepsMeasured_ >= stepsToEstimate});
}

bool Trainer::isCheckpointDue(std::uint64_t step) const {
  if (steadySeconds() - lastCheckpointTime_ >= options_.checkpointSeconds) return true;
  // A short training that is killed shall lose no more than a few of its steps either.
  constexpr std::uint64_t wantedCheckpoints = 50;
  const std::uint64_t wanted = std::max<std::uint64_t>(1, totalSteps_ / wantedCheckpoints);
  const std::uint64_t steps = step - lastCheckpointStep_;
  return steps >= 2 * wanted || (steps >= wanted && !writer_.isBusy());
}

void Trainer::saveCheckpoint() {
  if (!writes()) return;
  metrics_->synchronize();
  writer_.begin(Checkpoint::take(network_, *queue_, position_, settings()), options_.out / checkpointName);
  lastCheckpointTime_ = steadySeconds();
  lastCheckpointStep_ = position_.step;
}

/// In the middle of an epoch: not when the last step has made weights that can no longer tell pictures apart.
void Trainer::saveIfSound() {
  if (!writes()) return;
  constexpr std::size_t most = 8;
  const std::size_t count = std::min(most, test_.pictures->size());
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0U);
  const train::Dataset& test = *test_.pictures;
  const auto format = train::detail::formatOf(test, *device_, network_.options.normalization);
  train::Batch batch;
  fillBatch(
      train::detail::sourceFrom(
          test, {.format = format, .pictures = pictures_, .normalization = network_.options.normalization}),
      numbers, batch);
  const auto images = mps::ImageBatch::create(
      device_, {format, pictures_.width, pictures_.height, pictures_.channels}, count);
  images.writeBytes(std::span<const std::byte>(batch.images), mps::DataLayout::HeightxWidthxFeatureChannels);
  static_cast<void>(classify(network_, queue_, images));
  saveCheckpoint();
}

bool Trainer::isBest(const ConfusionMatrix& validation, std::uint64_t epoch) const {
  // The first one is, however good: what lies there is of another training.
  if (epoch == 1) return true;
  if (options_.bestBy == "loss") return static_cast<float>(validation.loss()) < position_.bestLoss;
  return static_cast<float>(validation.accuracy()) > position_.bestAccuracy;
}

void Trainer::appendGradients() {
  const std::size_t count = std::min(training_.pictures->size(), mostPicturesOfGradients);
  const train::TrainerOptions options{
      .seed = options_.seed, .augmentation = options_.pictures.augmentation, .classWeights = classWeights_};
  events_->appendGradients(position_.step,
                           gradientsOf(*network_.definition, *training_.pictures, count, options));
}

void Trainer::finishEpoch() {
  const std::uint64_t epoch = position_.epoch;
  train::detail::together(options_.ranks,
                          [&] { train::detail::checkAgreement(*network_.training, options_.ranks); });
  WorstPictures worst;
  useAverages();
  const ConfusionMatrix validation = evaluate(network_, queue_, test_, &worst, options_.ranks);
  accuracy_ = validation.accuracy();
  throughput_.restart();
  display_.print("epoch " + std::to_string(epoch) + ": validation accuracy " +
                 formatFixed(100 * accuracy_, 2) + " %" +
                 (options_.bestBy == "loss" ? ", loss " + formatFixed(validation.loss(), 4) : ""));
  if (lastOfEpoch_) {
    lastOfEpoch_->validationLoss = static_cast<float>(validation.loss());
    lastOfEpoch_->validationAccuracy = static_cast<float>(accuracy_);
    lastOfEpoch_->seconds = steadySeconds() - beginTime_;
    appendRow(*lastOfEpoch_);
    lastOfEpoch_.reset();
  }
  if (events_) {
    events_->appendWeights(position_.step, network_.layers, device_);
    events_->appendMistakes(position_.step, validation, worst, *test_.pictures);
    appendGradients();
    throughput_.restart();
  }
  const bool best = isBest(validation, epoch);
  position_.epochsWithoutBest = best ? 0 : position_.epochsWithoutBest + 1;
  if (best) {
    position_.bestAccuracy = static_cast<float>(accuracy_);
    position_.bestLoss = static_cast<float>(validation.loss());
  }
  // Before the checkpoint: what is killed in between comes here again. Alone: there is room for one that is written.
  if (best && writes()) {
    writer_.finish();
    Checkpoint::take(network_, *queue_, position_, settings(), Checkpoint::Contents::Weights)
        .write(options_.out / bestName);
    drawMistakes(options_.out, options_.network + " on " + options_.data, validation, worst, *test_.pictures);
  }
  useWeights();
  saveCheckpoint();
  drawCurves();
}

void Trainer::drawCurves() const {
  if (!writes()) return;
  mps::writeFile(options_.out / curvesName,
                 drawTrainingCurves(options_.network + " on " + options_.data, metrics_->rows()));
}

train::detail::Pause Trainer::runSteps() {
  const train::detail::Pause pause = fit_->run();
  const train::detail::FitPosition& reached = fit_->position();
  position_.epoch = reached.epoch;
  position_.batch = reached.batch;
  position_.step = reached.step;
  return pause;
}

std::optional<double> Trainer::run() {
  using train::detail::Pause;
  if (position_.epoch >= options_.epochs || hasLostPatience()) {
    useAverages();
    return evaluate(network_, queue_, test_, nullptr, options_.ranks).accuracy();
  }
  lastCheckpointTime_ = steadySeconds();
  beginTime_ = lastCheckpointTime_;
  if (metrics_ && !metrics_->rows().empty()) beginTime_ -= metrics_->rows().back().seconds.value_or(0);
  lastCheckpointStep_ = position_.step;
  for (Pause pause = Pause::Wanted; pause != Pause::End && !hasLostPatience();) {
    pause = runSteps();
    if (pause == Pause::Epoch)
      finishEpoch();
    else if (position_.step != lastCheckpointStep_)
      saveIfSound();
    if (isStopWanted()) fit_->requestStop();
  }
  writer_.finish();
  if (position_.epoch < options_.epochs && !hasLostPatience()) {
    drawCurves();
    return std::nullopt;
  }
  return accuracy_;
}

}  // namespace unmetal
