#include "train/class_weights.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "mps/core/error.hpp"
#include "mps/core/image_descriptor.hpp"
#include "mps/loss/loss.hpp"
#include "train/score_images.hpp"
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
                       std::span<const float> classWeights, const Augmentation& augmentation)
    : classes_(classes),
      classWeights_(classWeights.begin(), classWeights.end()),
      smoothing_(static_cast<float>(augmentation.labelSmoothing)) {
  if (classWeights_.empty() && augmentation.mixup == 0 && augmentation.labelSmoothing == 0) {
    states_ = mps::CNNLossLabels::createClassBatch(device, count, classes);
    return;
  }
  const mps::ImageDescriptor scores(mps::ImageFeatureChannelFormat::Float32, 1, 1, classes);
  targets_ = mps::ImageBatch::create(device, scores, count);
  if (!classWeights_.empty()) weights_ = mps::ImageBatch::create(device, scores, count);
  states_ = mps::CNNLossLabels::createBatch(device, {1, 1, 1}, targets_, weights_);
}

void StepLabels::write(const Batch& batch) {
  labels_ = batch.labels;
  if (targets_.count() == 0) return mps::CNNLossLabels::writeClassIndices(states_, batch.labels);
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
  targets_.writeBytes(std::span<const float>(targets), mps::DataLayout::HeightxWidthxFeatureChannels);
  if (!weights.empty())
    weights_.writeBytes(std::span<const float>(weights), mps::DataLayout::HeightxWidthxFeatureChannels);
}

double StepLabels::loss() const {
  std::vector<float> losses(states_.count());
  mps::CNNLossLabels::lossImages(states_).readBytes(std::span(losses),
                                                    mps::DataLayout::HeightxWidthxFeatureChannels);
  double sum = 0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  return sum;
}

double StepLabels::accuracy(const mps::ImageBatch& scores) const {
  if (labels_.empty()) return 0;
  return static_cast<double>(countCorrect(scores, labels_)) / static_cast<double>(labels_.size());
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
