#include "mps/core/kernel/node.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/image/image_allocator.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/graph/nodes.hpp"
#include "python/source/layers/data_source.hpp"

namespace python {
namespace {

using mps::NNFilterNode;
using mps::NNImageNode;
using mps::NNStateNode;
using HandlePointer = std::shared_ptr<mps::Handle>;
using FilterNode = std::shared_ptr<NNFilterNode>;

/// A handle written in Python.
class PythonHandle final : public mps::Handle {
 public:
  [[nodiscard]] std::string label() const override {
    const Locked locked;
    return attributeOr<std::string, mps::Handle>(*this, "label", {}, "text");
  }
};

FilterNode shared(NNFilterNode* node) {
  return node == nullptr ? nullptr : node->shared_from_this();
}

void bindImageNode(nb::module_& module) {
  nb::class_<mps::Handle, PythonHandle, mps::SecureCoding> handle(
      module, "Handle",
      "What an application hangs on nodes to find its images and states again: the graph hands handles back "
      "in the order in which resources are supplied or returned. A subclass has what it wants.");
  handle.def(nb::init<>());
  bindAttribute<PythonHandle>(
      handle, "label", [](mps::Handle& self) { return self.label(); }, "Name for debugging; or none.");
  nb::class_<NNImageNode> image(module, "NNImageNode",
                                "Place holder for the image (or batch) that flows between filters. It has "
                                "one producer, or none: then it is an input of "
                                "the graph. Its size follows from the source images when the graph runs.");
  image.def(nb::new_(&NNImageNode::create), "handle"_a.none() = nb::none(), "An input of a graph.")
      .def_static("exported_node_with_handle", &NNImageNode::exportedNodeWithHandle, "handle"_a.none(),
                  "The same with export_from_graph set.");
  image.def_prop_rw("handle", &NNImageNode::handle, &NNImageNode::setHandle,
                    nb::for_setter(nb::arg("handle").none()), "What the application finds it by; None.");
  property(image, "format", &NNImageNode::format, &NNImageNode::setFormat,
           "Storage format; None_, the default, means NNGraph.format. Copied to a filter's result when the "
           "filter is made.");
  image.def_prop_rw("image_allocator", &NNImageNode::imageAllocator, &NNImageNode::setImageAllocator,
                    nb::for_setter(nb::arg("allocator").none()),
                    "Who makes the image; None means temporary images. Ignored on results of the graph.");
  property(image, "export_from_graph", &NNImageNode::exportFromGraph, &NNImageNode::setExportFromGraph,
           "Whether the image outlives the encode and is handed out among the intermediate images. False.");
  property(image, "synchronize_resource", &NNImageNode::synchronizeResource,
           &NNImageNode::setSynchronizeResource,
           "Whether an exported image is made readable by the host. False.");
  property(image, "stop_gradient", &NNImageNode::stopGradient, &NNImageNode::setStopGradient,
           "Whether NNFilterNode.training_graph goes no further back than this image. False.");
  readOnly(
      image, "producer", [](const NNImageNode& self) { return shared(self.producer()); },
      "The filter that makes it; None for an input.");
}

void bindStateNodes(nb::module_& module) {
  nb::class_<NNStateNode> state(module, "NNStateNode",
                                "Place holder for a state. Made by filter nodes, not by hand.");
  state.def_prop_rw("handle", &NNStateNode::handle, &NNStateNode::setHandle,
                    nb::for_setter(nb::arg("handle").none()), "What the application finds it by; None.");
  property(state, "export_from_graph", &NNStateNode::exportFromGraph, &NNStateNode::setExportFromGraph,
           "Whether the state is handed out among the destination states. False.");
  property(state, "synchronize_resource", &NNStateNode::synchronizeResource,
           &NNStateNode::setSynchronizeResource,
           "Whether an exported state is made readable by the host. False.");
  readOnly(
      state, "producer", [](const NNStateNode& self) { return shared(self.producer()); },
      "The filter whose state it is; None for a state that the application supplies (loss labels).");
  emptyClass<mps::NNGradientStateNode, NNStateNode>(module, "NNGradientStateNode",
                                                    "Stands for an NNGradientState.");
  emptyClass<mps::NNBinaryGradientStateNode, NNStateNode>(
      module, "NNBinaryGradientStateNode",
      "Stands for an NNBinaryGradientState; not an NNGradientStateNode.");
  emptyClass<mps::NNMultiaryGradientStateNode, NNStateNode>(module, "NNMultiaryGradientStateNode",
                                                            "Stands for an NNMultiaryGradientState.");
}

constexpr const char* gradientFilterDocumentation =
    "The gradient node for a filter with one input: from the gradient of the result to that of the source. "
    "Each call makes a "
    "new node. Raises Error for filters with several inputs, without a gradient, and for gradient nodes.";

void bindFilterNode(nb::module_& module) {
  nb::class_<NNFilterNode> filter(module, "NNFilterNode",
                                  "Recipe for one kernel of a graph. A node holds its sources; a result "
                                  "image holds its node. So whoever holds the last "
                                  "image of a network holds all of it.");
  readOnly(filter, "result_image", &NNFilterNode::resultImage, "What the filter makes.");
  readOnly(filter, "result_states", &NNFilterNode::resultStates,
           "The states that the forward pass makes; none for filters without.");
  readOnly(filter, "result_state", &NNFilterNode::resultState, "The first of them, or None.");
  property(filter, "padding_policy", &NNFilterNode::paddingPolicy, &NNFilterNode::setPaddingPolicy,
           "Sizes the result and sets the kernel's offset.");
  property(filter, "label", &NNFilterNode::label, &NNFilterNode::setLabel,
           "Name; wins over the data source's label.");
  readOnly(filter, "class_name", &NNFilterNode::className, "\"CNNPoolingMaxNode\".");
  filter.def("describe", &NNFilterNode::describe, "Class name and label.")
      .def("__repr__", [](const NNFilterNode& self) { return "<" + self.describe() + ">"; })
      .def(
          "gradient_filter",
          [](NNFilterNode& self, const ImageNode& gradient) { return self.gradientFilter(gradient); },
          "gradient_image"_a, gradientFilterDocumentation)
      .def(
          "gradient_filter",
          [](NNFilterNode& self, const ImageNodes& gradients) { return self.gradientFilter(gradients); },
          "gradient_images"_a, gradientFilterDocumentation)
      .def(
          "gradient_filters",
          [](NNFilterNode& self, const ImageNode& gradient) { return self.gradientFilters(gradient); },
          "gradient_image"_a, "One gradient node per input, in input order.")
      .def(
          "gradient_filters",
          [](NNFilterNode& self, const ImageNodes& gradients) { return self.gradientFilters(gradients); },
          "gradient_images"_a, "One gradient node per input, in input order.")
      .def(
          "training_graph",
          [](NNFilterNode& self, const ImageNode& gradient, const mps::GradientNodeBlock& handler) {
            return self.trainingGraph(gradient, handler);
          },
          "source_gradient"_a.none() = nb::none(), "node_handler"_a.none() = nb::none(),
          "Builds the gradient nodes of every filter that this one depends on, back to the inputs or to "
          "images with "
          "stop_gradient; where a forward image has several readers, additions sum their gradients.\n\n"
          "`source_gradient`: gradient of this node's result; None: the result itself is the first gradient "
          "(loss nodes). "
          "`node_handler(gradient_node, inference_node, inference_source, gradient_source)` is called for "
          "each new node, "
          "before anything is built on it; None: each gradient image gets the handle of its forward source. "
          "Returns the new "
          "nodes at the ends: all their results go into NNGraph. Raises Error for a filter without gradient "
          "on the way.");

  nb::class_<mps::NNGradientFilterNode, NNFilterNode> gradient(
      module, "NNGradientFilterNode",
      "Recipe for one gradient kernel: from the gradient of a forward result, the forward source and the "
      "gradient state to "
      "the gradient of that source.");
  readOnly(gradient, "source_gradient", &mps::NNGradientFilterNode::sourceGradient, "Of the forward result.");
  readOnly(gradient, "source_image", &mps::NNGradientFilterNode::sourceImage, "The forward source.");
  readOnly(gradient, "gradient_state", &mps::NNGradientFilterNode::gradientState,
           "That of the forward node.");
}

}  // namespace

void bindNode(nb::module_& module) {
  bindImageNode(module);
  bindStateNodes(module);
  bindFilterNode(module);
}

}  // namespace python
