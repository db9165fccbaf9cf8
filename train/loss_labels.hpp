#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "mps/core/image_batch.hpp"
#include "mps/core/state.hpp"
#include "train/augmentation.hpp"
#include "train/batch_loader.hpp"

namespace mtl {
class Device;
}

namespace unmetal::train::detail {

/// The labels of a batch as a loss takes them: class indices, or a share for each class where pictures are mixed or labels
/// smoothed.
class LossLabels {
 public:
  LossLabels() = default;
  LossLabels(const std::shared_ptr<mtl::Device>& device, std::size_t count, std::size_t classes,
             const Augmentation& augmentation);

  /// Before the encode that reads them; no encoded work may still read the old ones.
  void write(const Batch& batch);
  [[nodiscard]] const mps::StateBatch& states() const { return states_; }

 private:
  std::size_t classes_ = 0;
  float smoothing_ = 0;
  mps::ImageBatch shares_;  ///< empty of class indices
  std::vector<float> values_;
  mps::StateBatch states_;
};

}  // namespace unmetal::train::detail
