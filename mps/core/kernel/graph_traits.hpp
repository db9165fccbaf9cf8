#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "mps/core/kernel/kernel_roles.hpp"
#include "mps/core/kernel/padding.hpp"

/// What a compiled graph knows of its kernels, whatever their family: what ImageKernel answers. The library's own.
namespace mps::detail {

class LayerKernel;
class LayerGradientKernel;
class SharedBatchKernel;

/// What the result of a kernel is the gradient of, and what it is computed from.
struct DerivativeTraits {
  /// Whether it is a gradient kernel: its sources are the source gradient, sourceImage, and what else it reads.
  bool isGradient = false;
  /// Whether gradients begin with the result: that of a number computed from the source (CNNLoss), or ones.
  bool beginsGradients = false;
  /// Which of its own sources the result is the gradient of, where no forward step says so.
  std::optional<std::size_t> ownSource = std::nullopt;
  /// Which source of the forward kernel the result is the gradient of, where sourceImage does not have its size.
  std::optional<std::size_t> forwardSource = std::nullopt;
  /// Which source of the forward kernel sourceImage is; nothing where it is the forward result.
  std::optional<std::size_t> sourceImage = std::nullopt;
  /// Whether the elements of sourceImage are read where a forward kernel saves fields, or its size alone.
  bool readsBesideSavedFields = true;
  /// The same where none saves fields.
  bool readsWithoutSavedFields = true;
  /// What is read behind sourceImage: sources 1, 2, ... of the forward kernel, by their names.
  std::span<const char* const> furtherSources = {};
  /// Whether an encode can add to a float32 destination.
  bool canAccumulate = false;
  /// Whether the result is the source gradient as it is, where the forward kernel reads all of its source (SumTraits).
  bool isSourceGradient = false;
};

/// How a kernel of two sources adds them up.
struct SumTraits {
  /// Of each source: whether element (x, y, c) is read for element (x, y, c) of the result, which no limit changes.
  std::array<bool, 2> readsWhole{};
  /// Of each source: whether the gradient of the result is that of the source, too.
  std::array<bool, 2> handsGradientOn{};
  /// Whether the result is x + y, element for element, and may be written over x.
  bool isPlain = false;
  /// Whether the result is ReLU(x + y), where the graph has put that neuron into a sum which was plain before.
  bool isReLUOfPlain = false;
};

/// What a kernel asks of the channels of its source, and makes of its format.
struct ChannelTraits {
  /// How many a source must have; 0: any number.
  std::size_t required = 0;
  /// What each source is padded to a multiple of in the result; 0: nothing is padded.
  std::size_t alignment = 0;
  /// Whether float32 sources may be rounded to float16 where the result, or the source gradient, is float16.
  bool roundsToFloat16 = false;
};

/// The interfaces that a kernel has; null where it has not.
struct KernelRoles {
  LayerKernel* layer = nullptr;
  LayerGradientKernel* layerGradient = nullptr;
  SharedBatchKernel* sharedBatch = nullptr;
  NeuronFusion* neuronFusion = nullptr;
  NeuronGradientKernel* neuronGradient = nullptr;
  ReLUGradientFusion* reluGradientFusion = nullptr;
  SliceGradientKernel* sliceGradient = nullptr;
  RandomKernel* random = nullptr;
  /// Whether a graph's step may have a second source, like its result: then the result is ReLU(result + second source).
  bool addsSecondSource = false;
};

/// Whether the neuron's derivative is 1 or 0, as the sign bit of its result says.
bool isPlainReLU(const NNNeuronDescriptor& neuron);

/// Whether a padding policy changes nothing, or says that it need not be asked.
bool isDefaultPadding(const NNPadding& padding);

}  // namespace mps::detail
