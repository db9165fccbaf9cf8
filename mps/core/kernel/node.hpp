#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mps/core/coding/secure_coding.hpp"
#include "mps/core/kernel/padding.hpp"
#include "mps/core/types/array_ref.hpp"
#include "mps/core/types/types.hpp"

namespace mtl {
class Device;
}

namespace mps {

class ImageAllocator;
class Kernel;
class NNFilterNode;
class NNGradientFilterNode;

/// What an application hangs on nodes to find its images and states again (protocol MPSHandle). The graph hands
/// handles back in the order in which resources are supplied or returned.
class Handle : public SecureCoding {
 public:
  /// Name for debugging; empty for none.
  [[nodiscard]] virtual std::string label() const { return {}; }
};

/// Place holder for the image (or batch) that flows between filters (MPSNNImageNode).
///
/// It has one producer, or none: then it is an input of the graph. Its size follows from the source images
/// when the graph runs.
class NNImageNode {
 public:
  /// An input of a graph. @param handle may be null
  static std::shared_ptr<NNImageNode> create(std::shared_ptr<Handle> handle = nullptr);
  /// The same with exportFromGraph set.
  static std::shared_ptr<NNImageNode> exportedNodeWithHandle(std::shared_ptr<Handle> handle);

  [[nodiscard]] const std::shared_ptr<Handle>& handle() const { return handle_; }
  void setHandle(std::shared_ptr<Handle> handle) { handle_ = std::move(handle); }
  /// Storage format; None, the default, means NNGraph::format. Copied to a filter's result when the filter is
  /// made.
  [[nodiscard]] ImageFeatureChannelFormat format() const { return format_; }
  void setFormat(ImageFeatureChannelFormat format) { format_ = format; }
  /// Who makes the image; null means temporary images, exported ones, too: the host reads those of
  /// Image::defaultAllocator(). Ignored on results of the graph.
  [[nodiscard]] const std::shared_ptr<ImageAllocator>& imageAllocator() const { return imageAllocator_; }
  void setImageAllocator(std::shared_ptr<ImageAllocator> allocator) {
    imageAllocator_ = std::move(allocator);
  }
  /// Whether the image outlives the encode and is handed out among intermediateImages. false.
  [[nodiscard]] bool exportFromGraph() const { return exportFromGraph_; }
  void setExportFromGraph(bool exportFromGraph) { exportFromGraph_ = exportFromGraph; }
  /// Whether an exported image is made readable by the host. false.
  [[nodiscard]] bool synchronizeResource() const { return synchronizeResource_; }
  void setSynchronizeResource(bool synchronizeResource) { synchronizeResource_ = synchronizeResource; }
  /// Whether NNFilterNode::trainingGraph goes no further back than this image. false.
  [[nodiscard]] bool stopGradient() const { return stopGradient_; }
  void setStopGradient(bool stopGradient) { stopGradient_ = stopGradient; }

  /// The filter that makes it; null for an input.
  [[nodiscard]] NNFilterNode* producer() const { return producer_; }

 private:
  friend class NNFilterNode;
  explicit NNImageNode(NNFilterNode* producer) : producer_(producer) {}

  NNFilterNode* producer_;
  std::shared_ptr<Handle> handle_;
  ImageFeatureChannelFormat format_ = ImageFeatureChannelFormat::None;
  std::shared_ptr<ImageAllocator> imageAllocator_;
  bool exportFromGraph_ = false;
  bool synchronizeResource_ = false;
  bool stopGradient_ = false;
};

/// Place holder for a state (MPSNNStateNode). Made by filter nodes, not by hand.
class NNStateNode {
 public:
  virtual ~NNStateNode() = default;
  [[nodiscard]] const std::shared_ptr<Handle>& handle() const { return handle_; }
  void setHandle(std::shared_ptr<Handle> handle) { handle_ = std::move(handle); }
  /// Whether the state is handed out among destinationStates. false. Then the gradient nodes that read it, and fill it,
  /// belong to the graph also where nothing else needs them, e.g. of a layer that does not train.
  [[nodiscard]] bool exportFromGraph() const { return exportFromGraph_; }
  void setExportFromGraph(bool exportFromGraph) { exportFromGraph_ = exportFromGraph; }
  [[nodiscard]] bool synchronizeResource() const { return synchronizeResource_; }
  void setSynchronizeResource(bool synchronizeResource) { synchronizeResource_ = synchronizeResource; }
  /// The filter whose state it is; null for a state that the application supplies (loss labels).
  [[nodiscard]] NNFilterNode* producer() const { return producer_; }

 protected:
  friend class NNFilterNode;
  NNStateNode() = default;

 private:
  NNFilterNode* producer_ = nullptr;
  std::shared_ptr<Handle> handle_;
  bool exportFromGraph_ = false;
  bool synchronizeResource_ = false;
};

/// Stands for an NNGradientState.
class NNGradientStateNode : public NNStateNode {
 public:
  NNGradientStateNode() = default;
};
/// Stands for an NNBinaryGradientState; not an NNGradientStateNode.
class NNBinaryGradientStateNode : public NNStateNode {
 public:
  NNBinaryGradientStateNode() = default;
};
/// Stands for an NNMultiaryGradientState.
class NNMultiaryGradientStateNode : public NNStateNode {
 public:
  NNMultiaryGradientStateNode() = default;
};

/// Nodes with weights (protocol MPSNNTrainableNode). A gradient node takes the style of its forward node when
/// it is made; the gradient node's style decides when a graph is compiled.
class NNTrainableNode {
 public:
  virtual ~NNTrainableNode() = default;
  /// When the weights are updated. UpdateDeviceGPU.
  [[nodiscard]] NNTrainingStyle trainingStyle() const { return trainingStyle_; }
  void setTrainingStyle(NNTrainingStyle style) { trainingStyle_ = style; }

 private:
  NNTrainingStyle trainingStyle_ = NNTrainingStyle::UpdateDeviceGPU;
};

/// NNFilterNode::trainingGraph calls it for each node that it makes, before anything is built on it. It may change the
/// node's format or label. It may also prune: it sets stopGradient of the node's result or of inferenceSource, and nothing
/// is built on it.
/// @param gradientNode    the new node: a gradient node, or an addition where gradients meet. Pruned, the rest is not added
/// @param inferenceNode   the forward node that it mirrors; null for an addition
/// @param inferenceSource the forward image whose gradient gradientNode's result is
/// @param gradientSource  the gradient image that feeds it
using GradientNodeBlock = std::function<void(
    const std::shared_ptr<NNFilterNode>& gradientNode, const std::shared_ptr<NNFilterNode>& inferenceNode,
    const std::shared_ptr<NNImageNode>& inferenceSource, const std::shared_ptr<NNImageNode>& gradientSource)>;

/// Recipe for one kernel of a graph (MPSNNFilterNode).
///
/// A node holds its sources; a result image holds its node. So whoever holds the last image of a network
/// holds all of it.
class NNFilterNode : public std::enable_shared_from_this<NNFilterNode> {
 public:
  /// However long the network behind it is, letting it go takes no stack.
  virtual ~NNFilterNode();
  NNFilterNode(const NNFilterNode&) = delete;
  NNFilterNode& operator=(const NNFilterNode&) = delete;

  [[nodiscard]] std::shared_ptr<NNImageNode> resultImage();
  /// The states that the forward pass makes; empty for filters without.
  [[nodiscard]] std::vector<std::shared_ptr<NNStateNode>> resultStates();
  /// The first of them, or null.
  [[nodiscard]] std::shared_ptr<NNStateNode> resultState();
  /// Sizes the result and sets the kernel's offset. Never null.
  [[nodiscard]] const std::shared_ptr<NNPadding>& paddingPolicy() const { return paddingPolicy_; }
  void setPaddingPolicy(std::shared_ptr<NNPadding> policy);
  /// Name; wins over the data source's label.
  [[nodiscard]] const std::string& label() const { return label_; }
  void setLabel(std::string label) { label_ = std::move(label); }
  /// Class name, e.g. "CNNPoolingMaxNode".
  [[nodiscard]] virtual std::string className() const = 0;
  /// Class name and label.
  [[nodiscard]] std::string describe() const;

  /// The gradient node for a filter with one input: from the gradient of the result to that of the source.
  /// Each call makes a new node. @throws Error for filters with several inputs, without a gradient, for losses, whose
  /// result is the gradient, and for gradient nodes (no second derivatives, docs/decisions.md, D5), with their
  /// label and that of their forward node.
  std::shared_ptr<NNGradientFilterNode> gradientFilter(const std::shared_ptr<NNImageNode>& gradientImage);
  /// The array form; exactly one image.
  std::shared_ptr<NNGradientFilterNode> gradientFilter(ArrayRef<std::shared_ptr<NNImageNode>> gradientImages);
  /// One gradient node per input, in input order. @throws Error as gradientFilter, but not for several inputs
  std::vector<std::shared_ptr<NNGradientFilterNode>> gradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage);
  std::vector<std::shared_ptr<NNGradientFilterNode>> gradientFilters(
      ArrayRef<std::shared_ptr<NNImageNode>> gradientImages);

  /// Builds the gradient nodes of every filter that this one depends on, back to the inputs or to images with
  /// stopGradient; where a forward image has several readers, additions sum their gradients.
  ///
  /// @param sourceGradient gradient of this node's result; null: the result itself is the first gradient
  ///                       (loss nodes)
  /// @param nodeHandler    may be null: then each gradient image gets the handle of its forward source
  /// @return the new nodes at the ends, in order of creation; all their results go into NNGraph. Empty when
  ///         there was nothing to build
  /// @throws Error for a filter without gradient on the way.
  std::vector<std::shared_ptr<NNFilterNode>> trainingGraph(const std::shared_ptr<NNImageNode>& sourceGradient,
                                                           const GradientNodeBlock& nodeHandler = nullptr);

  /// @name The library's own
  /// @{
  [[nodiscard]] std::span<const std::shared_ptr<NNImageNode>> sources() const { return sources_; }
  [[nodiscard]] std::span<const std::shared_ptr<NNStateNode>> sourceStates() const { return sourceStates_; }
  /// The kernel that the node stands for, with all its properties.
  [[nodiscard]] virtual std::shared_ptr<Kernel> makeKernel(
      const std::shared_ptr<mtl::Device>& device) const = 0;
  /// Whether the result image is the gradient of the first source (loss nodes).
  [[nodiscard]] virtual bool isItsOwnGradient() const { return false; }
  [[nodiscard]] virtual bool isGradient() const { return false; }
  /// Whether trainingGraph builds the gradient of that source.
  [[nodiscard]] virtual bool buildsGradientOf(std::size_t /*source*/) const { return true; }
  /// @}

 protected:
  /// @throws Error when a source is null.
  NNFilterNode(std::vector<std::shared_ptr<NNImageNode>> sources,
               std::vector<std::shared_ptr<NNStateNode>> sourceStates = {});
  /// Gives the filter a result state; called by constructors.
  void addResultState(std::unique_ptr<NNStateNode> state);
  /// Whether gradientFilter means something: one input, or one that matters.
  [[nodiscard]] virtual bool hasMainSource() const { return sources_.size() == 1; }
  /// One gradient node per input. The default throws: no gradient.
  virtual std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage);
  /// Common part of a kernel made from this node: label and padding.
  void configure(Kernel& kernel) const;
  void setDefaultPaddingPolicy(std::shared_ptr<NNPadding> policy) { paddingPolicy_ = std::move(policy); }

 private:
  /// What keeps the producers of images and states that the node reads alive.
  struct Hold {
    std::shared_ptr<const void> resource;
    NNFilterNode* producer;

    /// Whether nothing else keeps the producer alive. An owner of the resource alone, such as Python's, is not counted with
    /// the producer's: then it is false.
    [[nodiscard]] bool isLast() const;
  };
  /// Moves all that the node holds to the end of a list.
  void handOver(std::vector<Hold>& holds);

  std::vector<std::shared_ptr<NNImageNode>> sources_;
  std::vector<std::shared_ptr<NNStateNode>> sourceStates_;
  NNImageNode resultImage_;
  std::vector<std::unique_ptr<NNStateNode>> resultStates_;
  std::shared_ptr<NNPadding> paddingPolicy_ = detail::defaultPadding();
  std::string label_;
};

/// Recipe for one gradient kernel (MPSNNGradientFilterNode): from the gradient of a forward result, the
/// forward source and the gradient state to the gradient of that source.
class NNGradientFilterNode : public NNFilterNode {
 public:
  [[nodiscard]] const std::shared_ptr<NNImageNode>& sourceGradient() const { return sourceGradient_; }
  [[nodiscard]] const std::shared_ptr<NNImageNode>& sourceImage() const { return sourceImage_; }
  [[nodiscard]] const std::shared_ptr<NNStateNode>& gradientState() const { return gradientState_; }
  [[nodiscard]] bool isGradient() const override { return true; }

 protected:
  /// @param furtherSources what the kernel reads beside gradient and source image
  NNGradientFilterNode(std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
                       std::shared_ptr<NNStateNode> gradientState,
                       ArrayRef<std::shared_ptr<NNImageNode>> furtherSources = {});
  std::vector<std::shared_ptr<NNGradientFilterNode>> makeGradientFilters(
      const std::shared_ptr<NNImageNode>& gradientImage) override;
  /// Label and padding of a gradient node made by a forward node.
  static void mirror(NNGradientFilterNode& gradient, const NNFilterNode& forward);
  friend class NNFilterNode;

 private:
  std::shared_ptr<NNImageNode> sourceGradient_;
  std::shared_ptr<NNImageNode> sourceImage_;
  std::shared_ptr<NNStateNode> gradientState_;
};

}  // namespace mps
