#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/image/image_allocator.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/kernel/node.hpp"
#include "mps/core/types/array_ref.hpp"

namespace mtl {
class CommandBuffer;
class CommandQueue;
}  // namespace mtl

namespace mps {

class Communicator;

namespace detail {
struct BatchShare;
class GraphExecutor;
struct GraphProgram;
struct GraphTrace;
}  // namespace detail

/// Gets the result of NNGraph::executeAsync, or null and a message (MPSNNGraphCompletionHandler).
using NNGraphCompletionHandler =
    std::function<void(const std::shared_ptr<Image>& result, const std::string& error)>;

/// What NNGraph::writeDot() draws.
enum class GraphPart {
  All,
  Forward,  ///< up to the loss: no gradients
};

/// A network, compiled (MPSNNGraph).
///
/// Made from the image nodes that are wanted; everything that they depend on belongs to the graph, unless
/// nothing needs it. Kernels are made once, and each reads its data source then: forward and gradient kernel of a
/// layer that trains. Each encode runs the whole network on a batch: the sizes follow from the source images, and
/// for each set of sizes the memory of all temporary images is planned once. Weights are updated by the data
/// sources, as each layer's training style says. The nodes may be let go or changed afterwards; the graph does not
/// see it.
///
/// A padding policy of your own is asked once for each set of source sizes (batch size and formats included), at the
/// first encode of such sources; the eight sets used last are kept. It finds the kernel as it was made. What it
/// returns, and what it sets of offsets, clip rectangle, edge modes and channel ranges, holds for all encodes of that
/// set. A policy that is to answer anew for the same sizes needs a new graph.
///
/// No weights change between their first and their last use in an encode: a data source is asked for an update behind
/// the last gradient node of its layer and, where its weights live on the device, behind all layers of the graph that
/// use the same ones. A layer with several gradient nodes (several losses on one trunk) is updated once, with the sum
/// of the gradients of those that do not say UpdateDeviceNone. A data source of several layers is asked once for each
/// of them, with that layer's gradient, in the order in which the gradients were encoded: an optimiser takes as many
/// steps. Such layers have the same weights where these live on the device (ready-made sources,
/// deviceWeightsAndBiases); else each layer's kernels have a copy, which that layer's update alone changes.
///
///     auto graph = mps::NNGraph::create(device, {terminus->resultImage()}, {false});
///     graph->encodeBatch(commandBuffer, {{images}}, {{labels}});
///     commandBuffer->commit();
///
/// One thread encodes with a graph at a time; several graphs may share data sources.
class NNGraph : public Kernel {
 public:
  /// @param resultImages     what encode returns: the first; the others come with the intermediate images
  /// @param resultsAreNeeded one flag per image: false when only the training behind it matters; encode then
  ///                         returns nothing for it. Empty means all are needed.
  /// @throws Error for no or null images, a wrong number of flags, a data source that fails to load, a cycle, and, with
  /// the names of both nodes, a wrongly wired gradient node: one that is given the state of a node of another kind, the
  /// gradient of another image than its forward node's result or a sum with it, labels or weights that are not those of
  /// its loss, or as sourceImage another image of its forward node than gradientFilter gives it. Where only the size of
  /// sourceImage counts (docs/decisions.md, D10) any image but the forward result may be given. A gradient that is
  /// meant to skip a layer goes through a node of your own, e.g. CNNNeuronLinearNode.
  /// Likewise for two gradient nodes of one layer with the styles UpdateDeviceGPU and UpdateDeviceCPU.
  static std::shared_ptr<NNGraph> create(const std::shared_ptr<mtl::Device>& device,
                                         const std::vector<std::shared_ptr<NNImageNode>>& resultImages,
                                         const std::vector<bool>& resultsAreNeeded = {});
  /// One result. The flag is a template so that {false} is a list of flags.
  static std::shared_ptr<NNGraph> create(const std::shared_ptr<mtl::Device>& device,
                                         const std::shared_ptr<NNImageNode>& resultImage) {
    return create(device, std::vector{resultImage});
  }
  template <std::same_as<bool> Flag>
  static std::shared_ptr<NNGraph> create(const std::shared_ptr<mtl::Device>& device,
                                         const std::shared_ptr<NNImageNode>& resultImage,
                                         Flag resultImageIsNeeded) {
    return create(device, std::vector{resultImage}, std::vector<bool>{resultImageIsNeeded});
  }
  ~NNGraph() override;
  [[nodiscard]] std::string className() const override { return "NNGraph"; }
  /// A graph with the same kernels' properties. It has the copy() of each data source, one for all layers that share
  /// it, and one LossScale for each of the loss and the optimisers: it trains by itself, as the original would go on.
  /// Where copy() gives null both graphs have the data source and train it; on the same device they share the
  /// LossScale, too, unless the data source of another layer has copied it with its optimiser. No work of this graph
  /// may be in flight.
  /// @param device null means the same
  [[nodiscard]] std::shared_ptr<NNGraph> copy(const std::shared_ptr<mtl::Device>& device = nullptr) const {
    return detail::copyAs(*this, device);
  }
  /// Kernels with their weights, wiring, handles, allocators and training styles: a graph that computes, and trains, on
  /// that device what the coded one would. Layers that train can be coded when their data sources can; the
  /// coder finds the library's kernels and data sources itself, your own by KeyedUnarchiver::setDecoder.
  static std::shared_ptr<NNGraph> decode(Coder& coder, const std::shared_ptr<mtl::Device>& device = nullptr);
  NNGraph(std::shared_ptr<mtl::Device> device, detail::Decoding decoding);

  /// Also of all kernels of the graph, e.g. to allow them reduced precision.
  void setOptions(KernelOptions options) override;

  /// Handles of the inputs in the order in which encode wants them: depth first from result 0, sources left
  /// to right. A node without handle has a place holder of its own.
  [[nodiscard]] const std::vector<std::shared_ptr<Handle>>& sourceImageHandles() const;
  [[nodiscard]] const std::vector<std::shared_ptr<Handle>>& sourceStateHandles() const;
  /// Handles of exported images and states, in encode order; further results come first. Result 0 is among
  /// them when it is exported.
  [[nodiscard]] const std::vector<std::shared_ptr<Handle>>& intermediateImageHandles() const;
  [[nodiscard]] const std::vector<std::shared_ptr<Handle>>& resultStateHandles() const;
  /// Handle of result 0; may be null.
  [[nodiscard]] std::shared_ptr<Handle> resultHandle() const;
  [[nodiscard]] bool resultImageIsNeeded() const;

  /// Format of images whose node says None, gradients too. Float32 (Apple: Float16; docs/decisions.md, D17). Where it
  /// is Float16 and the result of the loss node is set to Float32 before gradient nodes are made of it, these stay in
  /// Float32.
  [[nodiscard]] ImageFeatureChannelFormat format() const { return format_; }
  void setFormat(ImageFeatureChannelFormat format) { format_ = format; }
  /// Who makes the results. Image::defaultAllocator().
  [[nodiscard]] const std::shared_ptr<ImageAllocator>& destinationImageAllocator() const {
    return allocator_;
  }
  void setDestinationImageAllocator(std::shared_ptr<ImageAllocator> allocator);
  /// Whether exported states that have memory are temporary, with one read left for the caller; those that a
  /// host update needs (NNTrainingStyle::UpdateDeviceCPU) never are. false.
  [[nodiscard]] bool outputStateIsTemporary() const { return outputStateIsTemporary_; }
  void setOutputStateIsTemporary(bool isTemporary) { outputStateIsTemporary_ = isTemporary; }
  /// Whether the command buffer fails, naming the first node whose result holds a NaN or an infinity. Costs
  /// one pass over every image. false.
  [[nodiscard]] bool stopsAtNonFiniteValues() const { return stopsAtNonFiniteValues_; }
  void setStopsAtNonFiniteValues(bool stops) { stopsAtNonFiniteValues_ = stops; }
  /// Extension: gradient clipping by the global norm, as PyTorch's clip_grad_norm_. Where the norm of all gradients that an encode
  /// leaves for its layers, the root of the sum of all squares, is larger than the limit, they are multiplied by limit / norm before
  /// the layers are updated: behind the division by a LossScale, before all else that an optimiser does to a gradient. Layers that
  /// share weights count each. It is measured in float64, on the device: the host never waits. Layers that are frozen count nothing.
  /// All layers that train must have their weights on the device (CNNConvolutionDataSource::deviceWeightsAndBiases() and such, as
  /// the ready-made data sources have) and states that are not temporary; else encodes throw. 0: no limit. 0.
  /// @throws Error unless it is finite and not negative
  [[nodiscard]] float gradientNormLimit() const { return gradientNormLimit_; }
  void setGradientNormLimit(float limit);

  /// @name One training on several devices
  /// Each rank has a graph of the same nodes and encodes its part of each batch; all encode as often.
  ///
  /// - The gradients of layers that train are summed over the ranks before their updates, in buckets of about 25 MiB, while
  ///   the backward pass goes on where the communicator's engine allows it. Updates, and data sources of your own, see the
  ///   sums; so do exported gradient states of such layers.
  /// - A loss is as on one device: the gradient of CNNLoss is never divided by a count, so 1 / N in its weight, N the images of
  ///   all ranks, is the usual mean. NNForwardLoss with reduceAcrossBatch and a count gives the rank's part of the loss.
  /// - Dropout draws the masks of the images' places in the whole batch.
  /// - A step with a LossScale is left out by all ranks or by none.
  /// - A rank without images takes part, too: encodeBatch with empty slices (slice(0, 0)) of batches of the right size.
  ///   Its results are empty batches.
  /// - A failed encode of one rank is a failed operation for the others.
  /// @{
  /// Null, or a group of one: each encode is the whole batch. Copies of the graph, and coded graphs, have none.
  /// @throws Error for one of another device
  void setCommunicator(std::shared_ptr<Communicator> communicator);
  [[nodiscard]] const std::shared_ptr<Communicator>& communicator() const { return communicator_; }
  /// Which part of the batch the next encodes have, until told otherwise. Before the first call all ranks have as many
  /// images, in their order. On CPU devices a training step fails where the ranks' images are not as many.
  /// @param firstImage of this rank, in the whole batch @param totalCount images of all ranks
  void setBatchShare(std::size_t firstImage, std::size_t totalCount);
  /// Whether a batch normalisation that computes statistics takes those of the whole batch, and its gradient the sums over
  /// it: the training follows that of one device. Else those of each rank's images; running statistics are of the whole
  /// batch in any case, so that all ranks have the same. The same on all ranks. false.
  [[nodiscard]] bool synchronizesBatchNormalization() const { return synchronizesBatchNormalization_; }
  void setSynchronizesBatchNormalization(bool synchronizes) {
    synchronizesBatchNormalization_ = synchronizes;
  }
  /// Records a check that all parameters of the layers that train hold the same bits on all ranks. Where not, the command
  /// buffer fails on every rank and names the first layer that differs.
  void encodeAgreement(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const;
  /// @}

  using Kernel::encode;
  /// @name Encodes
  /// Takes one read off each temporary source image and state, however often nodes read it.
  /// @param sourceImages in the order of sourceImageHandles(), batches of one length
  /// @param sourceStates in the order of sourceStateHandles(), nullptr for none; loss labels come in here: a batch of
  ///                     CNNLossLabels::createBatch, or a vector of CNNLossLabels
  /// @param[out] intermediateImages  appended in the order of intermediateImageHandles(); may be null
  /// @param[out] destinationStates   appended in the order of resultStateHandles(); may be null
  /// @return result 0; null (empty) when it is not needed
  ///
  /// One encode is one entry in the buffer, also when that is an mps::CommandBuffer: Apple's graph commits it
  /// in pieces, which could not be taken back when a later step throws. Commit in pieces between encodes.
  ///
  /// In the single form each source image may be a stack of n images (numberOfImages n, the same for all
  /// sources). It runs like a batch of n, and the results are stacks of n. Graphs that take or export states
  /// have one for each image and refuse stacks.
  /// @throws Error for wrong counts, lengths, devices, released images, or what a kernel refuses; nothing is
  /// encoded, and read counts, weights and the time steps of the library's layers are as before. Also inside a handler
  /// that runs before one which will update the weights of this graph on the host (NNTrainingStyle::UpdateDeviceCPU)
  /// @{
  std::shared_ptr<Image> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                ArrayRef<std::shared_ptr<Image>> sourceImages,
                                ArrayRef<std::shared_ptr<State>> sourceStates = {},
                                std::vector<std::shared_ptr<Image>>* intermediateImages = nullptr,
                                std::vector<std::shared_ptr<State>>* destinationStates = nullptr);
  ImageBatch encodeBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         ArrayRef<ImageBatch> sourceImages, ArrayRef<StateBatch> sourceStates = {},
                         std::vector<ImageBatch>* intermediateImages = nullptr,
                         std::vector<StateBatch>* destinationStates = nullptr);
  /// Encodes at once on a command buffer of the graph's own, commits, and calls the handler when it has run,
  /// on another thread: with the result, or with null and a message. The same image is returned; it is valid
  /// in the handler. @throws Error for an empty handler, where result 0 is not needed, and as encode does.
  std::shared_ptr<Image> executeAsync(ArrayRef<std::shared_ptr<Image>> sourceImages,
                                      NNGraphCompletionHandler handler);
  /// @}

  /// Reads all data sources again, now. No work of this graph may be in flight.
  /// @throws Error as create does for a data source that fails, and passes on what a data source throws; all layers
  /// then have the parameters from before.
  void reloadFromDataSources();
  /// Encode counts of the dropout kernels, in encode order: with the weights, all that a training run needs
  /// to go on.
  [[nodiscard]] std::vector<std::uint64_t> randomCounters() const;
  /// @throws Error for another number of counters, and for one from 2^32 on; then none is set.
  void setRandomCounters(std::span<const std::uint64_t> counters);
  /// What one encode takes off the read count: 1. @throws Error when there is no such source.
  [[nodiscard]] std::size_t readCountForSourceImage(std::size_t index) const;
  [[nodiscard]] std::size_t readCountForSourceState(std::size_t index) const;

  /// Bytes of the memory plan for the sizes of the last encode: the peak of all temporary images together. 0
  /// before.
  [[nodiscard]] std::size_t plannedTemporaryBytes() const;
  /// The steps in order with kernels, what was fused, sizes and places in memory (after an encode).
  [[nodiscard]] std::string debugDescription() const;
  /// The graph in Graphviz's language. @param part Forward leaves gradients out, with whose edges a deep network takes
  /// Graphviz minutes
  void writeDot(std::ostream& out, GraphPart part = GraphPart::All) const;

  /// @name The library's own
  /// @{
  [[nodiscard]] const detail::GraphProgram& program() const { return *program_; }
  /// Of this rank. @throws Error where its images leave the batch
  [[nodiscard]] detail::BatchShare batchShare(std::size_t imageCount) const;
  /// Encodes for a check: no layer is updated, random counters stay, every image has memory of its own.
  detail::GraphTrace trace(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                           ArrayRef<ImageBatch> sourceImages, ArrayRef<StateBatch> sourceStates);
  /// @}

 protected:
  [[nodiscard]] std::shared_ptr<Kernel> clone() const override;
  void didCopy(bool hasMoved) override;
  void codeProperties(Coder& coder) override;

 private:
  NNGraph(std::shared_ptr<mtl::Device> device, std::shared_ptr<detail::GraphProgram> program);
  NNGraph(const NNGraph& other);

  std::shared_ptr<detail::GraphProgram> program_;
  std::shared_ptr<detail::GraphExecutor> executor_;
  std::shared_ptr<mtl::CommandQueue> queue_;  ///< of executeAsync
  ImageFeatureChannelFormat format_ = ImageFeatureChannelFormat::Float32;
  std::shared_ptr<ImageAllocator> allocator_ = Image::defaultAllocator();
  std::shared_ptr<Communicator> communicator_;
  std::size_t firstImage_ = 0;
  std::size_t totalCount_ = 0;  ///< 0: as many images on all ranks
  bool synchronizesBatchNormalization_ = false;
  bool outputStateIsTemporary_ = false;
  bool stopsAtNonFiniteValues_ = false;
  float gradientNormLimit_ = 0;
};

}  // namespace mps
