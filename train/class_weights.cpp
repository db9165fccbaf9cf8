#include "train/class_weights.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "mps/core/error.hpp"
#include "mps/core/image_descriptor.hpp"
#include "mps/distributed/communicator.hpp"
#include "mps/loss/loss.hpp"
#include "train/trainer.hpp"

namespace unmetal::train {
namespace detail {

void checkClassWeights(std::span<const float> weights, std::size_t classes) {
  if (weights.empty()) return;
  if (weights.size() != classes)
    throw mps::Error("Trainer", "number of classWeights", std::to_string(weights.size()),
                     std::to_string(classes) + ", one for each class");
  for (std::size_t i = 0; i < classes; ++i)
    if (!std::isfinite(weights[i]) || weights[i] < 0)
      throw mps::Error("Trainer", "weight of class " + std::to_string(i), std::to_string(weights[i]),
                       "0 or more");
}

std::vector<float> balancedWeights(std::span<const std::uint32_t> labels, std::size_t classes) {
  std::vector<std::size_t> counts(classes);
  for (const std::uint32_t label : labels) ++counts[label];
  std::vector<float> weights;
  for (std::size_t i = 0; i < classes; ++i) {
    if (counts[i] == 0)
      throw mps::Error("balanced class weights: class " + std::to_string(i) +
                       " has no pictures, expected some");
    weights.push_back(static_cast<float>(static_cast<double>(labels.size()) /
                                         (static_cast<double>(classes) * static_cast<double>(counts[i]))));
  }
  return weights;
}

StepLabels::StepLabels(const std::shared_ptr<mtl::Device>& device, std::size_t count, std::size_t classes,
                       std::span<const float> classWeights, const Augmentation& augmentation, Ranks ranks)
    : ranks_(std::move(ranks)),
      count_(count),
      part_(partOf(count, ranks_)),
      classes_(classes),
      classWeights_(classWeights.begin(), classWeights.end()),
      smoothing_(static_cast<float>(augmentation.labelSmoothing)) {
  const std::size_t labels = areSeveral(ranks_) ? count + 1 : count;
  if (classWeights_.empty() && augmentation.mixup == 0 && augmentation.labelSmoothing == 0) {
    states_ = mps::CNNLossLabels::createClassBatch(device, labels, classes);
  } else {
    const mps::ImageDescriptor scores(mps::ImageFeatureChannelFormat::Float32, 1, 1, classes);
    targets_ = mps::ImageBatch::create(device, scores, labels);
    if (!classWeights_.empty()) weights_ = mps::ImageBatch::create(device, scores, labels);
    states_ = mps::CNNLossLabels::createBatch(device, {1, 1, 1}, targets_, weights_);
  }
  ownStates_ = areSeveral(ranks_) ? states_.slice(part_.first, part_.count) : states_;
}

void StepLabels::write(const Batch& batch, bool wantsStop) {
  if (areSeveral(ranks_)) {
    std::vector<float> losses(count_ + 1);
    losses.back() = wantsStop ? 1 : 0;
    mps::CNNLossLabels::lossImages(states_).writeBytes(std::span<const float>(losses),
                                                       mps::DataLayout::HeightxWidthxFeatureChannels);
  }
  if (batch.count() == 0) return;
  if (targets_.count() == 0)
    mps::CNNLossLabels::writeClassIndices(ownStates_, batch.labels);
  else
    writeShares(batch);
}

void StepLabels::writeShares(const Batch& batch) {
  std::vector<float> targets(batch.count() * classes_, smoothing_ / static_cast<float>(classes_));
  std::vector<float> weights(classWeights_.empty() ? 0 : targets.size());
  for (std::size_t i = 0; i < batch.count(); ++i) {
    const std::uint32_t label = batch.labels[i];
    const OtherClass other = batch.others.empty() ? OtherClass{} : batch.others[i];
    const auto shares = std::span(targets).subspan(i * classes_, classes_);
    shares[label] += (1 - smoothing_) * (1 - other.share);
    shares[other.label] += (1 - smoothing_) * other.share;
    if (!weights.empty())
      std::fill_n(&weights[i * classes_], classes_,
                  (1 - other.share) * classWeights_[label] + other.share * classWeights_[other.label]);
  }
  ownPart(targets_).writeBytes(std::span<const float>(targets),
                               mps::DataLayout::HeightxWidthxFeatureChannels);
  if (!weights.empty())
    ownPart(weights_).writeBytes(std::span<const float>(weights),
                                 mps::DataLayout::HeightxWidthxFeatureChannels);
}

mps::ImageBatch StepLabels::ownPart(const mps::ImageBatch& images) const {
  return areSeveral(ranks_) ? images.slice(part_.first, part_.count) : images;
}

void StepLabels::encodeLosses(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const {
  if (areSeveral(ranks_)) ranks_->allReduce(commandBuffer, mps::CNNLossLabels::lossImages(states_));
  mps::StateBatchSynchronize(states_, commandBuffer);
}

std::vector<float> StepLabels::losses() const {
  std::vector<float> losses(states_.count());
  mps::CNNLossLabels::lossImages(states_).readBytes(std::span(losses),
                                                    mps::DataLayout::HeightxWidthxFeatureChannels);
  return losses;
}

double StepLabels::loss() const {
  const std::vector<float> all = losses();
  double sum = 0;
  for (std::size_t i = 0; i < count_; ++i) sum += static_cast<double>(all[i]);
  return sum;
}

bool StepLabels::isStopWanted() const {
  return areSeveral(ranks_) && losses().back() > 0;
}

}  // namespace detail

std::vector<float> balancedClassWeights(const Dataset& data) {
  std::vector<std::uint32_t> labels;
  std::vector<float> pixels(data.shape().count());
  for (std::size_t i = 0; i < data.size(); ++i) {
    std::ranges::fill(pixels, 0.0F);
    labels.push_back(data.load(i, pixels));
    if (labels.back() >= data.classCount())
      throw mps::Error("data set", "class of picture " + std::to_string(i), std::to_string(labels.back()),
                       "0 to " + std::to_string(data.classCount() - 1));
  }
  return detail::balancedWeights(labels, data.classCount());
}

}  // namespace unmetal::train
