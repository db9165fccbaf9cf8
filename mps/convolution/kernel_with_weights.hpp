#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "mps/core/kernel/kernel.hpp"
#include "mps/core/layer/convolution_data_source.hpp"
#include "mps/core/layer/convolution_state.hpp"
#include "mps/core/layer/layer_kernel.hpp"
#include "mps/core/types/types.hpp"

namespace mtl {
class CommandBuffer;
class Device;
}  // namespace mtl

namespace mps {

namespace detail {

class ConvolutionWeights;
struct ConvolutionProblem;
struct ForwardRecord;
struct GradientCall;
struct PreparedCall;
struct SourceProperties;

/// What a forward encode of the family leaves in its record beside the record's own numbers.
struct RecordedWeights {
  std::size_t inputFeatureChannels = 0;
  std::size_t groups = 1;
  std::size_t channelMultiplier = 0;
  bool neuron = false;  ///< the gradient does not differentiate it
  bool normalisation = false;
};

/// What the kernels of the convolution family have in common: a data source, what it describes, and the weights
/// that encodes use.
class KernelWithWeights : public LayerKernel {
 public:
  [[nodiscard]] const CNNConvolutionDescriptor& descriptor() const { return descriptor_; }
  [[nodiscard]] std::size_t groups() const { return descriptor_.groups(); }
  [[nodiscard]] const std::shared_ptr<CNNConvolutionDataSource>& dataSource() const { return dataSource_; }

  /// Reads the data source again, now; encoded work keeps the old weights. @throws Error as create does.
  void reloadWeightsAndBiasesFromDataSource();
  void reloadFromDataSource() override { reloadWeightsAndBiasesFromDataSource(); }
  /// Encodes from now on use the state's values as they are when the recorded copy runs. Takes one read off
  /// the state. A state without biases sets them to 0; a layer whose data source has none takes none from a state
  /// (docs/decisions.md, D26). Where a predicate leaves the copy out, or the buffer is let go uncommitted, they go on with
  /// the values from before; encodes that run before either do not run but fail.
  /// @throws Error when a size differs.
  void reloadWeightsAndBiases(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                              const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& state);

  /// @name The library's own
  /// @{
  /// The weights that encodes use now.
  [[nodiscard]] const std::shared_ptr<const ConvolutionWeights>& weights() const { return weights_; }
  /// The weights that weights() returned earlier.
  void useWeights(std::shared_ptr<const ConvolutionWeights> weights);
  /// Uses the other kernel's weights from now on, without a copy.
  void shareWeights(const KernelWithWeights& other) { useWeights(other.weights_); }
  /// @}

 protected:
  /// Reads the data source once. @throws Error when it is null, fails to load, or its sizes disagree.
  KernelWithWeights(const char* className, const std::shared_ptr<mtl::Device>& device,
                    std::shared_ptr<CNNConvolutionDataSource> dataSource);
  /// To be decoded.
  KernelWithWeights() = default;
  KernelWithWeights(const KernelWithWeights&) = default;
  /// Codes the data source, and the weights where the kernel has others. @throws Error as create does
  virtual void codeWeights(Coder& coder);
  /// Of the kernel's copy. The data source's copy(), or the source itself where that is null, is read: what was reloaded from
  /// a state stays behind. A copy on the same device that shares the source has the weights that the kernel has.
  void didCopyKernel(bool hasMoved);
  /// The part of a problem that descriptor, device and options fix.
  [[nodiscard]] ConvolutionProblem describedProblem(KernelOptions options) const;
  /// The operands of the weights, and of the biases where there are any.
  void giveWeights(PreparedCall& call, bool withBiases) const;

  /// This object.
  [[nodiscard]] virtual const Kernel& kernel() const = 0;
  [[nodiscard]] std::function<void()> parameterKeeper() override;

 private:
  /// The kernel has other weights now. @param areItsOwn whether the user has given them to this kernel
  virtual void didRead(bool /*areItsOwn*/) {}
  void read();

  std::shared_ptr<CNNConvolutionDataSource> dataSource_;
  CNNConvolutionDescriptor descriptor_ = CNNConvolutionDescriptor::cnnConvolutionDescriptor(1, 1, 1, 1);
  std::shared_ptr<const ConvolutionWeights> weights_;
};

/// Of the forward kernels.
class ForwardKernelWithWeights : public KernelWithWeights {
 public:
  [[nodiscard]] std::size_t inputFeatureChannels() const { return descriptor().inputFeatureChannels(); }
  [[nodiscard]] std::size_t outputFeatureChannels() const { return descriptor().outputFeatureChannels(); }
  [[nodiscard]] std::size_t subPixelScaleFactor() const { return descriptor().subPixelScaleFactor(); }
  /// Half is a permission that is not used: sums are float32. Float.
  [[nodiscard]] NNConvolutionAccumulatorPrecisionOption accumulatorPrecisionOption() const {
    return precision_;
  }
  void setAccumulatorPrecisionOption(NNConvolutionAccumulatorPrecisionOption option) { precision_ = option; }
  /// Records a copy of the weights (float32, OHWI) and, where the layer has any, the biases that the kernel uses.
  /// @param resultStateCanBeTemporary true: the state is temporary, with readCount 1
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> exportWeightsAndBiases(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, bool resultStateCanBeTemporary);

 protected:
  using KernelWithWeights::KernelWithWeights;
  ForwardKernelWithWeights() = default;
  ForwardKernelWithWeights(const ForwardKernelWithWeights&) = default;
  void codeWeights(Coder& coder) override;
  [[nodiscard]] RecordedWeights recordedWeights() const;
  /// This object, kept alive.
  [[nodiscard]] virtual std::shared_ptr<ForwardKernelWithWeights> shared() = 0;
  [[nodiscard]] const void* deviceParameters() const override;
  [[nodiscard]] std::shared_ptr<LayerUpdate> makeUpdate(
      const std::vector<std::shared_ptr<ImageKernel>>& gradients, NNTrainingStyle style) override;

 private:
  NNConvolutionAccumulatorPrecisionOption precision_ = NNConvolutionAccumulatorPrecisionOption::Float;
};

/// Of the gradient kernels. The data gradient uses the weights that the forward kernel had at the first encode with
/// a state; later ones only come by a reload, so reload both kernels. So does a copy with another data source or device:
/// whoever copies both kernels gets two copies of the source, of which the forward kernel's counts.
class GradientKernelWithWeights : public KernelWithWeights, public LayerGradientKernel {
 public:
  /// Channels of the source gradient, and of source and result.
  [[nodiscard]] std::size_t sourceGradientFeatureChannels() const {
    return descriptor().outputFeatureChannels();
  }
  [[nodiscard]] std::size_t sourceImageFeatureChannels() const { return descriptor().inputFeatureChannels(); }
  /// What to compute. All. With GradientWithWeightsAndBias the destination is not written.
  [[nodiscard]] CNNConvolutionGradientOption gradientOption() const { return gradientOption_; }
  void setGradientOption(CNNConvolutionGradientOption option) { gradientOption_ = option; }
  /// For graphs: whether gradientForBiases is written with gradientForWeights.
  [[nodiscard]] bool computesBiases() const { return computesBiases_; }

 protected:
  /// @throws Error also for a sub-pixel convolution
  GradientKernelWithWeights(const char* className, const std::shared_ptr<mtl::Device>& device,
                            std::shared_ptr<CNNConvolutionDataSource> dataSource);
  using KernelWithWeights::KernelWithWeights;
  GradientKernelWithWeights() = default;
  GradientKernelWithWeights(const GradientKernelWithWeights&) = default;
  void codeWeights(Coder& coder) override;
  /// @throws Error when a coded window is another one than the descriptor's
  void checkWindow(const Coder& coder, const SourceProperties& source) const;
  [[nodiscard]] bool computesData() const;
  [[nodiscard]] bool computesWeights() const;
  /// @throws Error when the record is of a kernel with another descriptor, or with what no gradient includes.
  void checkForward(const ForwardRecord& record, const RecordedWeights& weights) const;
  /// @throws Error when an image does not have the channels of the descriptor, or for another edge mode than Zero and
  /// Clamp.
  void checkCall(const GradientCall& call) const;
  /// The state of the call, for the weights gradient. @throws Error when there is none, or its buffers are of other
  /// weights.
  [[nodiscard]] CNNConvolutionGradientState& stateOf(const GradientCall& call) const;
  /// Before an encode with a state of that forward kernel. @throws Error when its weights have another shape.
  void adoptWeights(const KernelWithWeights& forward);
  /// The operands of the state's gradients, which the call sets or adds to.
  void giveGradients(PreparedCall& call, CNNConvolutionGradientState& state) const;
  /// After it: from then on only reloads change the weights; the next encode with the state adds.
  void didEncodeWith(CNNConvolutionGradientState& state);
  void chooseGradients(bool ofData, bool ofParameters) override;
  void leaveOutMissingParameters() override;
  void shareParameters(const LayerKernel& forward) override;
  /// A gradient kernel has the forward kernel's.
  [[nodiscard]] std::shared_ptr<LayerUpdate> makeUpdate(
      const std::vector<std::shared_ptr<ImageKernel>>& /*gradients*/, NNTrainingStyle /*style*/) override {
    return nullptr;
  }

 private:
  void didRead(bool areItsOwn) override { adoptsWeights_ = !areItsOwn; }

  bool adoptsWeights_ = true;   ///< until the first encode with a state, or a reload
  bool computesBiases_ = true;  ///< when weights
  CNNConvolutionGradientOption gradientOption_ = CNNConvolutionGradientOption::All;
};

}  // namespace detail
}  // namespace mps
