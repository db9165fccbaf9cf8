#include "mps/graph/nn_graph.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "mps/distributed/communicator.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/interpreter.hpp"
#include "python/source/graph/nodes.hpp"

namespace python {
namespace {

using mps::NNGraph;
using Device = std::shared_ptr<mtl::Device>;
using Counters = std::vector<std::uint64_t>;

/// Appends to a list of the caller.
template <class Item>
void append(std::optional<nb::list> list, const std::vector<Item>& items) {
  if (!list) return;
  for (const Item& item : items) list->append(item);
}

ImagePointer encode(NNGraph& self, const CommandBufferPointer& commandBuffer, const Images& images,
                    const States& states, const std::optional<nb::list>& intermediateImages,
                    const std::optional<nb::list>& destinationStates) {
  Images intermediates;
  States results;
  ImagePointer image;
  {
    const LockReleased released;
    image = self.encode(commandBuffer, images, states, intermediateImages ? &intermediates : nullptr,
                        destinationStates ? &results : nullptr);
  }
  append(intermediateImages, intermediates);
  append(destinationStates, results);
  return image;
}

mps::ImageBatch encodeBatch(NNGraph& self, const CommandBufferPointer& commandBuffer,
                            const ImageBatches& images, const StateBatches& states,
                            const std::optional<nb::list>& intermediateImages,
                            const std::optional<nb::list>& destinationStates) {
  ImageBatches intermediates;
  StateBatches results;
  mps::ImageBatch image;
  {
    const LockReleased released;
    image = self.encodeBatch(commandBuffer, images, states, intermediateImages ? &intermediates : nullptr,
                             destinationStates ? &results : nullptr);
  }
  append(intermediateImages, intermediates);
  append(destinationStates, results);
  return image;
}

using Handler = std::function<void(const ImagePointer&, const std::string&)>;

mps::NNGraphCompletionHandler handlerOf(Handler handler) {
  return [held = heldForLibrary(std::move(handler))](const ImagePointer& result, const std::string& error) {
    const Attached attached;
    if (!attached) return;
    try {
      (*held)(result, error);
    } catch (nb::python_error& raised) {
      raised.discard_as_unraisable("the handler of NNGraph.execute_async");
    }
  };
}

void bindEncodes(nb::class_<NNGraph, mps::Kernel>& graph) {
  constexpr const char* documentation =
      "Records the whole network. `source_images`: in the order of source_image_handles; `source_states`: in "
      "the order of "
      "source_state_handles, loss labels come in here. To lists given as `intermediate_images` and "
      "`destination_states` what "
      "the graph exports is appended, in the order of intermediate_image_handles and result_state_handles. "
      "Returns result 0; "
      "nothing (None, an empty batch) when it is not needed. Takes one read off each temporary source. "
      "Raises Error for wrong "
      "counts, lengths, devices, or what a kernel refuses; nothing is encoded then.";
  bindCoding(graph);
  graph
      .def("encode", &encode, "command_buffer"_a, "source_images"_a, "source_states"_a = States{},
           "intermediate_images"_a.none() = nb::none(), "destination_states"_a.none() = nb::none(),
           documentation)
      .def("encode_batch", &encodeBatch, "command_buffer"_a, "source_images"_a,
           "source_states"_a = StateBatches{}, "intermediate_images"_a.none() = nb::none(),
           "destination_states"_a.none() = nb::none(), documentation)
      .def(
          "execute_async",
          [](NNGraph& self, const Images& images, Handler handler) {
            return self.executeAsync(images, handlerOf(std::move(handler)));
          },
          "source_images"_a, "handler"_a, Released(),
          "Encodes at once on a command buffer of the graph's own, commits, and calls handler(result, error) "
          "when it has run, "
          "on another thread: with the result and \"\", or with None and a message. The same image is "
          "returned; it is valid in "
          "the handler.");
}

void bindProperties(nb::class_<NNGraph, mps::Kernel>& graph) {
  readOnly(graph, "source_image_handles", &NNGraph::sourceImageHandles,
           "Handles of the inputs in the order in which encode wants them: depth first from result 0, "
           "sources left to right. "
           "A node without handle has a place holder of its own.");
  readOnly(graph, "source_state_handles", &NNGraph::sourceStateHandles, "Of the states that encode wants.");
  readOnly(graph, "intermediate_image_handles", &NNGraph::intermediateImageHandles,
           "Handles of exported images, in encode order; further results come first.");
  readOnly(graph, "result_state_handles", &NNGraph::resultStateHandles, "Handles of exported states.");
  readOnly(graph, "result_handle", &NNGraph::resultHandle, "Handle of result 0, or None.");
  readOnly(graph, "result_image_is_needed", &NNGraph::resultImageIsNeeded,
           "Whether encode returns result 0.");
  property(graph, "format", &NNGraph::format, &NNGraph::setFormat,
           "Format of images whose node says None_. Float32.");
  property(graph, "destination_image_allocator", &NNGraph::destinationImageAllocator,
           &NNGraph::setDestinationImageAllocator, "Who makes the results. Image.default_allocator().");
  property(
      graph, "output_state_is_temporary", &NNGraph::outputStateIsTemporary,
      &NNGraph::setOutputStateIsTemporary,
      "Whether exported states that have memory are temporary, with one read left for the caller. False.");
  property(graph, "stops_at_non_finite_values", &NNGraph::stopsAtNonFiniteValues,
           &NNGraph::setStopsAtNonFiniteValues,
           "Whether the command buffer fails, naming the first node whose result holds a NaN or an infinity. "
           "Costs one pass "
           "over every image. False.");
  property(
      graph, "gradient_norm_limit", &NNGraph::gradientNormLimit, &NNGraph::setGradientNormLimit,
      "Where the norm of all gradients of an encode is larger, they are multiplied by limit / norm before "
      "layers are updated. 0: no limit.");
  graph.def_prop_rw(
      "communicator", &NNGraph::communicator, &NNGraph::setCommunicator, nb::arg().none(),
      "Of several ranks, each of which encodes its part of each batch: gradients are summed over them before "
      "the updates. None: this one alone.");
  property(graph, "synchronizes_batch_normalization", &NNGraph::synchronizesBatchNormalization,
           &NNGraph::setSynchronizesBatchNormalization,
           "Whether batch normalisation takes the statistics of the batch of all ranks. False.");
  graph
      .def("set_batch_share", &NNGraph::setBatchShare, "first_image"_a, "total_count"_a,
           "Which part of the batch of all ranks the next encodes have. Before, all have as many images, in "
           "their order.")
      .def("encode_agreement", &NNGraph::encodeAgreement, "command_buffer"_a, Released(),
           "Records a check that the layers that train are the same on all ranks. Where not, the command "
           "buffer fails on every rank and names the first one.");
  property(
      graph, "random_counters", &NNGraph::randomCounters,
      [](NNGraph& self, const Counters& counters) { self.setRandomCounters(counters); },
      "Encode counts of the dropout kernels, in encode order: with the weights, all that a training run "
      "needs to go on. "
      "Raises Error for another number of counters, and for one from 2**32 on; then none is set.");
  readOnly(graph, "planned_temporary_bytes", &NNGraph::plannedTemporaryBytes,
           "The peak of all temporary images together, for the sizes of the last encode. 0 before.");
  graph
      .def("reload_from_data_sources", &NNGraph::reloadFromDataSources, Released(),
           "Reads all data sources again, now. No work of this graph may be in flight. Where one fails, all "
           "layers "
           "have the parameters from before.")
      .def("read_count_for_source_image", &NNGraph::readCountForSourceImage, "index"_a,
           "What one encode takes off the read count: 1. Raises Error when there is no such source.")
      .def("read_count_for_source_state", &NNGraph::readCountForSourceState, "index"_a,
           "What one encode takes off the read count: 1. Raises Error when there is no such source.")
      .def("debug_description", &NNGraph::debugDescription,
           "The steps in order with kernels, what was fused, sizes and places in memory (after an encode).")
      .def(
          "write_dot",
          [](const NNGraph& self, mps::GraphPart part) {
            std::ostringstream text;
            self.writeDot(text, part);
            return text.str();
          },
          "part"_a = mps::GraphPart::All,
          "The graph in Graphviz's language, a text. `part`: GraphPart.Forward leaves gradients out.");
}

}  // namespace

void bindGraph(nb::module_& module) {
  nb::enum_<mps::GraphPart>(module, "GraphPart", "What NNGraph.write_dot draws.")
      .value("All", mps::GraphPart::All, "All steps.")
      .value("Forward", mps::GraphPart::Forward, "Up to the loss: no gradients.");
  auto graph = kernelClass<NNGraph, mps::Kernel>(
      module, "NNGraph",
      "A network, compiled. Made from the image nodes that are wanted; everything that they depend on "
      "belongs to the graph, "
      "unless nothing needs it. Kernels are made once, data sources are read once and kept alive. Each "
      "encode runs the whole "
      "network on a batch: the sizes follow from the source images. Weights are updated by the data sources, "
      "as each layer's "
      "training style says. The nodes may be let go or changed afterwards.\n\n"
      "    loss = unmetal.CNNLossNode(predictions, descriptor)\n"
      "    ends = loss.training_graph()\n"
      "    graph = unmetal.NNGraph(device, [end.result_image for end in ends], [False] * len(ends))\n"
      "    with queue.command_buffer() as command_buffer:\n"
      "        graph.encode_batch(command_buffer, [images], [labels])\n\n"
      "One thread encodes with a graph at a time; several graphs may share data sources.");
  graph
      .def(nb::new_([](const Device& device, const ImageNode& result, bool isNeeded) {
             return NNGraph::create(device, result, isNeeded);
           }),
           "device"_a, "result_image"_a, "result_image_is_needed"_a = true, Released(), "One result.")
      .def(nb::new_([](const Device& device, const ImageNodes& results, const std::vector<bool>& areNeeded) {
             return NNGraph::create(device, results, areNeeded);
           }),
           "device"_a, "result_images"_a, "results_are_needed"_a = std::vector<bool>{}, Released(),
           "`result_images`: what encode returns, the first; the others come with the intermediate images. "
           "`results_are_needed`: one flag per image, False when only the training behind it matters; none: "
           "all are needed. "
           "Raises Error for no images, a wrong number of flags, a data source that fails to load, a cycle.");
  bindEncodes(graph);
  bindProperties(graph);
}

}  // namespace python
