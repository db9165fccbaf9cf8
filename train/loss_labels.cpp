#include "train/loss_labels.hpp"

#include <algorithm>
#include <span>

#include "mps/core/image_descriptor.hpp"
#include "mps/loss/loss.hpp"
#include "mtl/device.hpp"

namespace unmetal::train::detail {

LossLabels::LossLabels(const std::shared_ptr<mtl::Device>& device, std::size_t count, std::size_t classes,
                       const Augmentation& augmentation)
    : classes_(classes), smoothing_(static_cast<float>(augmentation.labelSmoothing)) {
  if (augmentation.mixup == 0 && augmentation.labelSmoothing == 0) {
    states_ = mps::CNNLossLabels::createClassBatch(device, count, classes);
    return;
  }
  shares_ = mps::ImageBatch::create(device, {mps::ImageFeatureChannelFormat::Float32, 1, 1, classes}, count);
  states_ = mps::CNNLossLabels::createBatch(device, {1, 1, 1}, shares_);
}

void LossLabels::write(const Batch& batch) {
  if (shares_.count() == 0) {
    mps::CNNLossLabels::writeClassIndices(states_, batch.labels);
    return;
  }
  values_.assign(batch.count() * classes_, smoothing_ / static_cast<float>(classes_));
  for (std::size_t i = 0; i < batch.count(); ++i) {
    const auto shares = std::span(values_).subspan(i * classes_, classes_);
    const OtherClass other = batch.others.empty() ? OtherClass{} : batch.others[i];
    shares[batch.labels[i]] += (1 - smoothing_) * (1 - other.share);
    shares[other.label] += (1 - smoothing_) * other.share;
  }
  shares_.writeBytes(std::span<const float>(values_), mps::DataLayout::HeightxWidthxFeatureChannels);
}

}  // namespace unmetal::train::detail
