#include <string>

#include "mps/distributed/communicator.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "tools/trainer.hpp"

/// What several ranks that share a training do.
namespace unmetal {

void Trainer::joinRanks() const {
  if (!train::detail::areSeveral(options_.ranks)) return;
  network_.training->setCommunicator(options_.ranks);
  network_.training->setBatchShare(train::detail::partOf(options_.batchSize, options_.ranks).first,
                                   options_.batchSize);
  network_.training->setSynchronizesBatchNormalization(options_.synchronizesBatchNormalization);
}

void Trainer::agree() const {
  TrainingSettings values{
      {"the version of unmetal", UNMETAL_VERSION},
      {"--resume", options_.resume ? "given" : "not given"},
      {"the step to go on from", std::to_string(position_.step)},
      {"the number of validation pictures", std::to_string(test_.pictures->size())},
      {"--no-sync-batch-norm", options_.synchronizesBatchNormalization ? "not given" : "given"},
      {"--steps", options_.lastStep ? std::to_string(*options_.lastStep) : "not given"}};
  for (const auto& [name, value] : settings()) {
    if (name == "arithmetic") continue;  // processors of several kinds may work together
    const std::string shown = name == "pictures" ? "the number of training pictures"
                              : name == "plans"  ? "what --plans names"
                                                 : "--" + name;
    values.emplace_back(shown, value);
  }
  train::detail::agree(options_.ranks, values);
  train::detail::together(options_.ranks, [&] { checkWeights(); });
}

void Trainer::checkWeights() const {
  if (!train::detail::areSeveral(options_.ranks)) return;
  const auto commandBuffer = queue_->commandBuffer();
  network_.training->encodeAgreement(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

/// Of several ranks all have looked at the step in which one of them wanted it, and decide the same.
bool Trainer::isStopDue() {
  wantsStop_ = wantsStop_ || (options_.isStopWanted && options_.isStopWanted());
  if (!train::detail::areSeveral(options_.ranks)) return wantsStop_;
  return stopStep_ && position_.step >= *stopStep_ + slots_.size();
}

}  // namespace unmetal
