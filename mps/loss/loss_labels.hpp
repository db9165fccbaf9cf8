#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "mps/loss/loss.hpp"

namespace mtl {
class Buffer;
}

namespace mps::detail {

/// Labels, weights and loss images of a batch. The library's own.
class LossLabelsBlock : public StateBlock, public std::enable_shared_from_this<LossLabelsBlock> {
 public:
  LossLabelsBlock(std::shared_ptr<mtl::Device> device, const mtl::Size& lossImageSize, ImageBatch labels,
                  ImageBatch weights);
  /// Class indices of 32 bits, one per image. @param numberOfClasses 0: not known
  LossLabelsBlock(std::shared_ptr<mtl::Device> device, std::size_t count, std::size_t numberOfClasses);

  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) override {
    ImageBatchSynchronize(losses_, commandBuffer);
  }
  [[nodiscard]] std::shared_ptr<CNNLossLabels> state(std::size_t index);
  [[nodiscard]] StateBatch batch();
  [[nodiscard]] const ImageBatch& labels() const { return labels_; }
  [[nodiscard]] const ImageBatch& weights() const { return weights_; }
  [[nodiscard]] const ImageBatch& losses() const { return losses_; }
  [[nodiscard]] const std::shared_ptr<mtl::Buffer>& classIndices() const { return classIndices_; }
  [[nodiscard]] std::size_t numberOfClasses() const { return numberOfClasses_; }

 private:
  std::shared_ptr<mtl::Device> device_;
  ImageBatch labels_;
  ImageBatch weights_;
  ImageBatch losses_;
  std::shared_ptr<mtl::Buffer> classIndices_;
  std::size_t numberOfClasses_ = 0;
};

/// What a batch of label states holds, whatever it was put together from.
struct LossOperands {
  ImageBatch labels;   ///< empty for class indices
  ImageBatch weights;  ///< empty for none
  ImageBatch losses;
  std::shared_ptr<mtl::Buffer> classIndices;
  std::size_t firstIndex = 0;
  std::size_t numberOfClasses = 0;  ///< 0: not known
};

/// @throws Error, naming `kernel`, for states that are not labels or labels of several kinds.
LossOperands lossOperands(const std::string& kernel, const StateBatch& labels);

/// What is wrong with the first index that is not less than the number of classes; empty when all are.
std::string wrongClassIndex(std::span<const std::uint32_t> indices, std::size_t classes);

}  // namespace mps::detail
