#pragma once

#include <any>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "mps/core/image/image_batch.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/loss/loss_labels.hpp"
#include "mps/loss/loss_problem.hpp"

namespace mps::detail {

/// What an encode of NNForwardLoss leaves for its gradient, in ForwardRecord::family.
struct LossRecord {
  float weight = 1;
  float labelSmoothing = 0;
  float epsilon = 0;
  float delta = 0;
};

/// @throws Error, naming the kernel, for values out of the ranges that CNNLossDescriptor names.
void checkLossDescriptor(const std::string& kernel, const CNNLossDescriptor& descriptor);

/// A loss covers whole images. @throws Error when offset, clipRect, or an offset or count of channels is set.
void checkCoversWholeImages(const CNNKernel& kernel);

/// Labels and weights are not what is written. @param labels,weights empty: none  @throws Error
void checkLossTargets(const Kernel& kernel, const ImageBatch& labels, const ImageBatch& weights,
                      const ImageBatch& destinations);

/// What every encode checks of its images. @throws Error
void checkLossImages(const Kernel& kernel, mtl::CommandBuffer& commandBuffer, const ImageBatch& sources,
                     const ImageBatch& destinations);

/// One call of a kernel of this family, put together from images: sizes are checked, then the plan is recorded. The
/// library's own.
class LossCall {
 public:
  /// Checks and takes the predictions; they stay alive until the call is recorded.
  LossCall(const Kernel& kernel, mtl::CommandBuffer& commandBuffer, const CNNLossDescriptor& descriptor,
           const ImageBatch& predictions);

  /// @name Inputs. @throws Error when an image does not fit.
  /// @{
  /// Axes of size 1 are repeated where CNNLossDescriptor::broadcastsLabels says so.
  void setLabels(const ImageBatch& labels);
  /// One class per image, of predictions of one pixel. Wrong ones make the command fail (docs/decisions.md, D28).
  void setClassIndices(const LossOperands& labels);
  /// Axes of size 1 are repeated.
  void setWeights(const ImageBatch& weights);
  /// As the predictions for reduction None, else 1 x 1 x 1. @param divides LossProblem::divideGradient
  void setSourceGradients(const ImageBatch& gradients, bool divides);
  /// One number for all images.
  void setScale(const LossScale& scale);
  /// The numbers that count, in place of the descriptor's.
  void setNumbers(const LossRecord& numbers) { numbers_ = numbers; }
  /// @}

  /// @name Outputs
  /// @{
  /// As the predictions.
  void setGradients(const ImageBatch& gradients);
  /// As the predictions, and so must be the labels; the only output.
  void setLabelGradients(const ImageBatch& gradients);
  /// The losses beside a gradient: 1 x 1 x 1, for reduction None their sum (docs/decisions.md, D25), or as the predictions.
  void setLosses(const ImageBatch& losses);
  /// The losses alone.
  void setOnlyLosses(const ImageBatch& losses);
  /// @}

  void record();

 private:
  [[nodiscard]] bool perElement() const;
  void checkLossSize(const char* argument, const TensorShape& loss) const;
  void checkAsPredictions(const char* argument, const TensorShape& shape) const;

  const Kernel& kernel_;
  mtl::CommandBuffer& commandBuffer_;
  LossProblem problem_;
  LossRecord numbers_;
  bool broadcastsLabels_;
  PreparedCall prepared_;
  BatchOperand predictions_;
  BatchOperand labels_;
  BatchOperand sourceGradient_;
  BatchOperand destination_;
  BatchOperand losses_;
  std::function<void()> checkLabels_;  ///< before the command runs
  TensorView looseLosses_;             ///< where the losses are written when their images lie apart
};

}  // namespace mps::detail
