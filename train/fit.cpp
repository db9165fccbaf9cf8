#include "train/fit.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "mps/core/image/image_descriptor.hpp"
#include "mps/core/types/error.hpp"
#include "mps/loss/loss.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "train/dataset_batches.hpp"
#include "train/weight_average.hpp"

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
              settings_.batches),
      rateAt_(settings_.rates(loader_.batchesPerEpoch())) {
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

std::optional<EpochMeans> Fit::runEpoch() {
  sums_ = {};
  for (Batch batch; loader_.next(batch);) {
    InFlight& slot = slots_[step_ % slots_.size()];
    finishStep(slot);
    if (stops_ || isStopDue()) break;
    encodeStep(batch, slot);
    if (!batch.isLastOfEpoch) continue;
    finishAll();
    if (stops_ || isStopDue()) break;
    const auto steps = static_cast<double>(loader_.batchesPerEpoch());
    return EpochMeans{sums_.loss / steps, sums_.accuracy / steps};
  }
  finishAll();
  return std::nullopt;
}

/// All ranks have looked at that step then, and decide the same.
bool Fit::isStopDue() const {
  return stopStep_ && step_ >= *stopStep_ + slots_.size();
}

void Fit::encodeStep(const Batch& batch, InFlight& slot) {
  if (batch.count() > 0)
    slot.images.writeBytes(std::span<const std::byte>(batch.images),
                           mps::DataLayout::HeightxWidthxFeatureChannels);
  slot.labels->write(batch, wantsStop_);
  const double rate = rateAt_(step_);
  network_.setLearningRate(rate);
  slot.report = {batch.epoch + 1, batch.index + 1, loader_.batchesPerEpoch(), 0, 0, rate};
  slot.commandBuffer = queue_->commandBuffer();
  scores_.takeNext(slot.scores);
  graph_.encodeBatch(slot.commandBuffer, {slot.images}, {slot.labels->states()});
  if (settings_.average != nullptr) settings_.average->encode(slot.commandBuffer);
  slot.labels->encodeResults(slot.commandBuffer, slot.scores);
  slot.commandBuffer->commit();
  slot.number = step_++;
}

void Fit::finishStep(InFlight& slot) {
  if (!slot.commandBuffer) return;
  const auto commandBuffer = std::exchange(slot.commandBuffer, nullptr);
  waitForStep(commandBuffer, settings_.ranks,
              "step " + std::to_string(slot.report.step) + " of epoch " + std::to_string(slot.report.epoch));
  slot.report.loss = slot.labels->loss();
  slot.report.accuracy = slot.labels->accuracy(slot.scores);
  sums_.loss += slot.report.loss;
  sums_.accuracy += slot.report.accuracy;
  if (!std::isfinite(slot.report.loss)) {
    stops_ = true;
    if (settings_.endsWhereNotFinite) return;
    throw mps::Error("the loss is no longer finite at step " + std::to_string(slot.report.step) +
                     " of epoch " + std::to_string(slot.report.epoch) + "; give a smaller learning rate");
  }
  if (!stopStep_ && slot.labels->isStopWanted()) stopStep_ = slot.number;
  if (stops_ || wantsStop_ || stopStep_ || !settings_.onStep || settings_.onStep(slot.report)) return;
  (areSeveral(settings_.ranks) ? wantsStop_ : stops_) = true;
}

void Fit::finishAll() {
  for (std::size_t i = 0; i < slots_.size(); ++i) finishStep(slots_[(step_ + i) % slots_.size()]);
}

}  // namespace unmetal::train::detail
