#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "mps/core/types/types.hpp"

namespace mps::detail {

class ImageKernel;
class LayerUpdate;

/// What a graph asks of the kernels whose parameters come from a data source, whatever their family.
class LayerKernel {
 public:
  virtual ~LayerKernel() = default;
  /// Reads all of the data source again, now. @throws Error as create does
  virtual void reloadFromDataSource() = 0;
  /// What stands for the parameters that the data source keeps on the device: layers with the same share them. Null where
  /// the kernel has a copy of its own.
  [[nodiscard]] virtual const void* deviceParameters() const { return nullptr; }
  /// What gives the kernel the parameters back that it has now.
  [[nodiscard]] virtual std::function<void()> parameterKeeper() = 0;
  /// How the layer is updated after its gradients; null where no kernel computes any.
  /// @param gradients all kernels that read the state of this one, at least one
  [[nodiscard]] virtual std::shared_ptr<LayerUpdate> makeUpdate(
      const std::vector<std::shared_ptr<ImageKernel>>& gradients, NNTrainingStyle style) = 0;
  /// Of a step of a graph: whether a gradient kernel reads its state.
  virtual void chooseTraining(bool /*hasGradient*/) {}
  /// Of a kernel in a graph: how often its parameters, or what else encodes read beside images and states, have become others.
  [[nodiscard]] std::size_t changeCount() const { return changeCount_; }

 protected:
  LayerKernel() = default;
  LayerKernel(const LayerKernel&) = default;
  LayerKernel& operator=(const LayerKernel&) = default;
  void countChange() { ++changeCount_; }

 private:
  std::size_t changeCount_ = 0;
};

/// What it asks of their gradient kernels.
class LayerGradientKernel {
 public:
  virtual ~LayerGradientKernel() = default;
  /// What encodes compute from now on, one of the two at least. Without the data gradient the destination is not written.
  virtual void chooseGradients(bool ofData, bool ofParameters) = 0;
  /// Leaves out the gradients of parameters that the layer has none of, where only an update on the device reads them.
  virtual void leaveOutMissingParameters() {}
  /// Uses the parameters of the forward kernel from now on, where it computes with them.
  virtual void shareParameters(const LayerKernel& /*forward*/) {}

 protected:
  LayerGradientKernel() = default;
  LayerGradientKernel(const LayerGradientKernel&) = default;
  LayerGradientKernel& operator=(const LayerGradientKernel&) = default;
};

}  // namespace mps::detail
