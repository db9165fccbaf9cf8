#pragma once

namespace mps::detail {

/// What a graph asks of the kernels whose parameters come from a data source, whatever their family.
class LayerKernel {
 public:
  virtual ~LayerKernel() = default;
  /// Reads all of the data source again, now. @throws Error as create does
  virtual void reloadFromDataSource() = 0;
  /// What stands for the parameters that the data source keeps on the device: layers with the same share them. Null where
  /// the kernel has a copy of its own.
  [[nodiscard]] virtual const void* deviceParameters() const { return nullptr; }

 protected:
  LayerKernel() = default;
  LayerKernel(const LayerKernel&) = default;
  LayerKernel& operator=(const LayerKernel&) = default;
};

/// What it asks of their gradient kernels.
class LayerGradientKernel {
 public:
  virtual ~LayerGradientKernel() = default;
  /// What encodes compute from now on, one of the two at least. Without the data gradient the destination is not written.
  virtual void chooseGradients(bool ofData, bool ofParameters) = 0;

 protected:
  LayerGradientKernel() = default;
  LayerGradientKernel(const LayerGradientKernel&) = default;
  LayerGradientKernel& operator=(const LayerGradientKernel&) = default;
};

}  // namespace mps::detail
