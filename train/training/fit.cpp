#include "train/training/fit.hpp"

#include <algorithm>
#include <utility>

#include "mps/core/image/image_descriptor.hpp"
#include "mps/loss/loss.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "train/batches/dataset_batches.hpp"
#include "train/training/weight_average.hpp"

namespace unmetal::train::detail {

Fit::Fit(Network& network, mps::NNGraph& graph, ScoreImages& scores, FitSettings settings,
         const Dataset& training)
    : network_(network),
      graph_(graph),
      scores_(scores),
      settings_(std::move(settings)),
      queue_(network.device()->newCommandQueue()),
      format_(formatOf(training, *network.device(), network.normalization())),
      loader_(training.size(),
              sourceFrom(training, {format_, network.inputShape(), settings_.augmentation,
                                    settings_.batches.seed, network.normalization()}),
              sharedOut(settings_.batches, settings_.ranks)),
      rateAt_(settings_.rates(loader_.batchesPerEpoch())),
      position_{settings_.batches.firstEpoch, settings_.batches.firstBatch, settings_.firstStep} {
  const Shape& shape = network.inputShape();
  const std::size_t batchSize = settings_.batches.batchSize;
  const std::size_t ownCount = partOf(batchSize, settings_.ranks).count;
  for (InFlight& slot : slots_) {
    const mps::ImageDescriptor picture(format_, shape.width, shape.height, shape.channels);
    slot.images = mps::ImageBatch::create(network.device(), picture, std::max<std::size_t>(ownCount, 1))
                      .slice(0, ownCount);
    slot.labels.emplace(network.device(), batchSize, network.outputShape().channels, settings_.classWeights,
                        settings_.augmentation, settings_.ranks);
  }
}

Pause Fit::run() {
  const auto pauseFor = [this](Pause reason) {
    finishAll();
    return reason;
  };
  if (position_.batch == 0) {
    sums_ = {};
    steps_ = 0;
  }
  for (Batch batch; !isStopDue() && position_.step < settings_.endStep;) {
    InFlight& slot = slots_[position_.step % slots_.size()];
    finishStep(slot);
    if (isStopDue() || !loader_.next(batch)) break;
    encodeStep(batch, slot);
    if (batch.isLastOfEpoch) return pauseFor(Pause::Epoch);
    if (settings_.isPauseDue && settings_.isPauseDue(position_.step)) return pauseFor(Pause::Wanted);
  }
  return pauseFor(Pause::End);
}

/// Of several ranks all have looked at the step that has told it, and decide the same.
bool Fit::isStopDue() const {
  if (!areSeveral(settings_.ranks)) return wantsStop_;
  return stopStep_ && position_.step >= *stopStep_ + slots_.size();
}

EpochMeans Fit::means() const {
  const auto steps = static_cast<double>(std::max<std::uint64_t>(1, steps_));
  return {sums_.loss / steps, sums_.accuracy / steps};
}

void Fit::encodeStep(const Batch& batch, InFlight& slot) {
  if (batch.count() > 0)
    slot.images.writeBytes(std::span<const std::byte>(batch.images),
                           mps::DataLayout::HeightxWidthxFeatureChannels);
  slot.labels->write(batch, wantsStop_);
  const double rate = rateAt_(position_.step);
  network_.setLearningRate(rate);
  slot.report = {batch.epoch + 1, batch.index + 1, stepsPerEpoch(), 0, 0, rate};
  slot.commandBuffer = queue_->commandBuffer();
  scores_.takeNext(slot.scores);
  graph_.encodeBatch(slot.commandBuffer, {slot.images}, {slot.labels->states()});
  if (settings_.average != nullptr) settings_.average->encode(slot.commandBuffer);
  slot.labels->encodeResults(slot.commandBuffer, slot.scores);
  slot.commandBuffer->commit();
  slot.number = position_.step;
  position_ = batch.isLastOfEpoch ? FitPosition{batch.epoch + 1, 0, slot.number + 1}
                                  : FitPosition{batch.epoch, batch.index + 1, slot.number + 1};
}

void Fit::finishStep(InFlight& slot) {
  if (!slot.commandBuffer) return;
  waitForStep(std::exchange(slot.commandBuffer, nullptr), settings_.ranks, settings_.placeOf(slot.report));
  slot.report.loss = slot.labels->loss();
  slot.report.accuracy = slot.labels->accuracy(slot.scores);
  sums_.loss += slot.report.loss;
  sums_.accuracy += slot.report.accuracy;
  ++steps_;
  if (!stopStep_ && slot.labels->isStopWanted()) stopStep_ = slot.number;
  if (!settings_.onStep(slot.report)) requestStop();
}

void Fit::finishAll() {
  for (std::size_t i = 0; i < slots_.size(); ++i) finishStep(slots_[(position_.step + i) % slots_.size()]);
}

void joinRanks(mps::NNGraph& training, const Ranks& ranks, std::size_t batchSize,
               bool synchronizesBatchNormalization) {
  if (!areSeveral(ranks)) return;
  training.setCommunicator(ranks);
  training.setBatchShare(partOf(batchSize, ranks).first, batchSize);
  training.setSynchronizesBatchNormalization(synchronizesBatchNormalization);
}

void checkAgreement(mps::NNGraph& training, const Ranks& ranks) {
  if (!areSeveral(ranks)) return;
  const auto commandBuffer = training.device()->newCommandQueue()->commandBuffer();
  training.encodeAgreement(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

}  // namespace unmetal::train::detail
