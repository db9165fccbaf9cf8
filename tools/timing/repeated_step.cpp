#include "tools/timing/repeated_step.hpp"

#include <cstddef>
#include <ctime>
#include <span>
#include <utility>

#include "mps/loss/loss.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "tools/terminal/progress.hpp"
#include "train/batches/dataset_batches.hpp"
#include "train/pictures/synthetic.hpp"
#include "train/training/optimizers.hpp"

namespace unmetal {
namespace {

constexpr const char* optimizerName = "adam";

double threadSeconds() {
  std::timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

RepeatedStep::RepeatedStep(const std::shared_ptr<mtl::Device>& device, NetworkOptions options,
                           const train::detail::Ranks& ranks, bool synchronizesBatchNormalization)
    : queue_(device->newCommandQueue()) {
  constexpr double rate = 0;  // else the gradients of a few pictures become subnormal numbers, which are slow
  options.optimizer = train::makeOptimizer(device, optimizerName, rate, 0);
  network_ = buildNetwork(device, options);
  if (ranks) {
    network_.training->setCommunicator(ranks);
    network_.training->setSynchronizesBatchNormalization(synchronizesBatchNormalization);
  }
  const train::Shape shape{options.height, options.width, options.channels};
  const train::SyntheticDataset data(train::Split::Training, shape);
  const auto numbers = train::shuffledOrder(data.size(), 0, 0);
  const mps::ImageFeatureChannelFormat format = train::pictureFormat(*device);
  fillBatch(train::detail::sourceFrom(data, {format, shape}), std::span(numbers).first(options.batchSize),
            batch_);
  losses_.resize(options.batchSize);
  const mps::ImageDescriptor picture(format, shape.width, shape.height, shape.channels);
  for (InFlight& slot : slots_) {
    slot.images = mps::ImageBatch::create(device, picture, options.batchSize);
    slot.labels = mps::CNNLossLabels::createClassBatch(device, options.batchSize);
  }
}

double RepeatedStep::run(int steps) {
  const double begin = steadySeconds();
  for (int step = 0; step < steps; ++step) start(slots_[next_++ % slots_.size()], false);
  return 1e3 * (steadySeconds() - begin);
}

mps::detail::Timing RepeatedStep::time(int runs) {
  constexpr int warmUpSteps = 12;  // by then a device has recorded the step for replays
  constexpr double leastMilliseconds = 250;
  run(warmUpSteps);
  const mps::detail::Timing timing =
      mps::detail::timeRepeated([this](int steps) { return run(steps); }, runs, leastMilliseconds);
  finish();
  return timing;
}

std::vector<mtl::CommandTime> RepeatedStep::runTimed() {
  finish();
  InFlight& slot = slots_[next_++ % slots_.size()];
  start(slot, true);
  const auto commandBuffer = slot.commandBuffer;
  finish(slot);
  return commandBuffer->commandTimes();
}

double RepeatedStep::encodeAlone(int repetitions) {
  finish();
  InFlight& slot = slots_[0];
  double seconds = 0;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    const auto commandBuffer = queue_->commandBuffer();
    network_.scores->takeNext(slot.scores);
    const double begin = threadSeconds();
    network_.training->encodeBatch(commandBuffer, {slot.images}, {slot.labels});
    seconds += threadSeconds() - begin;
  }
  return 1e3 * seconds / repetitions;
}

void RepeatedStep::finish() {
  for (InFlight& slot : slots_) finish(slot);
}

void RepeatedStep::start(InFlight& slot, bool recordsTimes) {
  finish(slot);
  slot.images.writeBytes(std::span<const std::byte>(batch_.images),
                         mps::DataLayout::HeightxWidthxFeatureChannels);
  mps::CNNLossLabels::writeClassIndices(slot.labels, batch_.labels);
  slot.commandBuffer = queue_->commandBuffer();
  slot.commandBuffer->setRecordsCommandTimes(recordsTimes);
  network_.scores->takeNext(slot.scores);
  network_.training->encodeBatch(slot.commandBuffer, {slot.images}, {slot.labels});
  mps::StateBatchSynchronize(slot.labels, slot.commandBuffer);
  mps::ImageBatchSynchronize(slot.scores, slot.commandBuffer);
  slot.commandBuffer->commit();
}

void RepeatedStep::finish(InFlight& slot) {
  if (!slot.commandBuffer) return;
  slot.commandBuffer->throwIfFailed();
  slot.commandBuffer = nullptr;
  mps::CNNLossLabels::lossImages(slot.labels)
      .readBytes(std::span(losses_), mps::DataLayout::HeightxWidthxFeatureChannels);
  static_cast<void>(train::detail::countCorrect(slot.scores, batch_.labels));
}

}  // namespace unmetal
