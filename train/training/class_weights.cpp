#include "train/training/class_weights.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "mps/core/image/image_descriptor.hpp"
#include "mps/core/types/error.hpp"
#include "mps/distributed/communicator.hpp"
#include "mps/loss/loss.hpp"
#include "train/training/score_images.hpp"
#include "train/training/trainer.hpp"

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

namespace {

constexpr auto layout = mps::DataLayout::HeightxWidthxFeatureChannels;

/// Of images of one number.
std::vector<float> valuesOf(const mps::ImageBatch& images) {
  std::vector<float> values(images.count());
  images.readBytes(std::span(values), layout);
  return values;
}
/// The first ones, one for each image.
void writeValues(std::span<const float> values, const mps::ImageBatch& images) {
  images.writeBytes(values.first(images.count()), layout);
}

}  // namespace

StepLabels::StepLabels(const std::shared_ptr<mtl::Device>& device, std::size_t count, std::size_t classes,
                       std::span<const float> classWeights, const Augmentation& augmentation, Ranks ranks)
    : ranks_(std::move(ranks)),
      count_(count),
      part_(partOf(count, ranks_)),
      classes_(classes),
      classWeights_(classWeights.begin(), classWeights.end()),
      smoothing_(static_cast<float>(augmentation.labelSmoothing)) {
  if (classWeights_.empty() && augmentation.mixup == 0 && augmentation.labelSmoothing == 0) {
    states_ = mps::CNNLossLabels::createClassBatch(device, count, classes);
  } else {
    const mps::ImageDescriptor scores(mps::ImageFeatureChannelFormat::Float32, 1, 1, classes);
    targets_ = mps::ImageBatch::create(device, scores, count);
    if (!classWeights_.empty()) weights_ = mps::ImageBatch::create(device, scores, count);
    states_ = mps::CNNLossLabels::createBatch(device, {1, 1, 1}, targets_, weights_);
  }
  ownStates_ = areSeveral(ranks_) ? states_.slice(part_.first, part_.count) : states_;
  if (areSeveral(ranks_)) beginSharing(device);
}

void StepLabels::beginSharing(const std::shared_ptr<mtl::Device>& device) {
  const mps::ImageDescriptor number(mps::ImageFeatureChannelFormat::Float32, 1, 1, 1);
  shared_.hits = mps::ImageBatch::create(device, number, count_ + 1);
  if (part_.count == 0) return;
  shared_.labels = mps::ImageBatch::create(device, number, part_.count);
  shared_.answers = mps::ImageBatch::create(device, number, part_.count);
  shared_.findAnswers = mps::NNReduceFeatureChannelsArgumentMax::create(device);
  shared_.compare = mps::NNCompare::create(device);
}

void StepLabels::write(const Batch& batch, bool wantsStop) {
  labels_ = batch.labels;
  if (areSeveral(ranks_)) {
    std::vector<float> zeros(count_ + 1);
    writeValues(zeros, mps::CNNLossLabels::lossImages(states_));
    zeros.back() = wantsStop ? 1 : 0;
    writeValues(zeros, shared_.hits);
    if (batch.count() > 0)
      writeValues(std::vector<float>(batch.labels.begin(), batch.labels.end()), shared_.labels);
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

void StepLabels::encodeResults(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                               const mps::ImageBatch& scores) {
  if (areSeveral(ranks_)) {
    if (part_.count > 0) {
      shared_.findAnswers->encodeBatch(commandBuffer, scores, shared_.answers);
      shared_.compare->encodeBatch(commandBuffer, shared_.answers, shared_.labels, ownPart(shared_.hits));
    }
    ranks_->allReduce(commandBuffer, mps::CNNLossLabels::lossImages(states_));
    ranks_->allReduce(commandBuffer, shared_.hits);
    mps::ImageBatchSynchronize(shared_.hits, commandBuffer);
  } else {
    mps::ImageBatchSynchronize(scores, commandBuffer);
  }
  mps::StateBatchSynchronize(states_, commandBuffer);
}

double StepLabels::loss() const {
  double sum = 0;
  for (const float loss : valuesOf(mps::CNNLossLabels::lossImages(states_))) sum += static_cast<double>(loss);
  return sum;
}

bool StepLabels::isStopWanted() const {
  return areSeveral(ranks_) && valuesOf(shared_.hits).back() > 0;
}

double StepLabels::accuracy(const mps::ImageBatch& scores) const {
  if (count_ == 0) return 0;
  double correct = 0;
  if (areSeveral(ranks_)) {
    const std::vector<float> hits = valuesOf(shared_.hits);
    correct = static_cast<double>(
        std::accumulate(hits.begin(), hits.begin() + static_cast<std::ptrdiff_t>(count_), 0.0));
  } else {
    correct = static_cast<double>(countCorrect(scores, labels_));
  }
  return correct / static_cast<double>(count_);
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
