#include "onnx/export.hpp"
#include "onnx/import.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {
namespace {

namespace train = unmetal::train;
using Device = std::shared_ptr<mtl::Device>;
using Extents = std::tuple<std::size_t, std::size_t, std::size_t>;
using Names = std::vector<std::string>;

void exportGraph(const std::shared_ptr<mps::NNGraph>& graph, const std::vector<Extents>& pictures,
                 const std::filesystem::path& path, const Names& classNames,
                 const std::optional<train::Normalization>& normalization) {
  std::vector<train::Shape> shapes;
  for (const auto& [height, width, channels] : pictures) shapes.push_back({height, width, channels});
  unmetal::onnx::exportGraph(*graph, shapes, path,
                             {.classNames = classNames, .normalization = normalization});
}

train::Network load(const std::filesystem::path& path, const Device& device, std::uint64_t seed,
                    std::size_t classes, const std::optional<Extents>& pictures) {
  train::LoadOptions loading{.classes = classes};
  if (pictures) {
    const auto& [height, width, channels] = *pictures;
    loading.pictures = train::Shape{height, width, channels};
  }
  const LockReleased released;
  return unmetal::onnx::load(path, {.seed = seed, .device = device}, loading);
}

}  // namespace

void bindOnnx(nb::module_& module) {
  module.def(
      "export_network",
      [](const train::Network& network, const std::filesystem::path& path, bool softmax,
         const Names& classNames, const std::optional<train::Normalization>& normalization) {
        unmetal::onnx::exportNetwork(
            network, path, {.softmax = softmax, .classNames = classNames, .normalization = normalization});
      },
      "network"_a, "path"_a, nb::kw_only(), "softmax"_a = true, "class_names"_a = Names(),
      "normalization"_a = nb::none(), Released(),
      "Writes a network's inference as an ONNX file: without dropout, with running statistics.\n\n"
      "softmax: whether the result is probabilities, or the scores before them.\n"
      "class_names: of the channels of the result.\n"
      "normalization: of the pictures; None: the network's own. Both become metadata, as JSON.");
  module.def("export_graph", &exportGraph, "graph"_a, "pictures"_a, "path"_a, nb::kw_only(),
             "class_names"_a = Names(), "normalization"_a = nb::none(), Released(),
             "Writes a graph without losses and gradients as an ONNX file.\n\n"
             "pictures: (height, width, channels) of each source image.\n"
             "Raises Error, with the node's name and the reason, for what ONNX cannot say; nothing is "
             "written then.");
  module.def("load", &load, "path"_a, nb::kw_only(), "device"_a.none() = nb::none(), "seed"_a = 0,
             "classes"_a = 0, "pictures"_a = nb::none(),
             "The network of an ONNX file, with its weights, to be trained on.\n\n"
             "classes: of another number the last layer with weights begins anew from the seed; 0: as in the "
             "file.\n"
             "pictures: (height, width, channels), of a model that leaves them open.\n"
             "Raises Error, with operator, node and attribute, for what a network has not.");
  module.def(
      "load_weights",
      [](train::Network& network, const std::filesystem::path& path, bool keepHead) {
        return unmetal::onnx::loadWeights(network, path, keepHead ? train::Head::Own : train::Head::OfFile);
      },
      "network"_a, "path"_a, nb::kw_only(), "keep_head"_a = false, Released(),
      "Gives a network the weights of an ONNX file with the same labels and shapes. keep_head: the last "
      "layer "
      "with weights keeps its values where it does not fit; its label is returned then, else None.");
  module.def("class_names", &unmetal::onnx::classNames, "path"_a, Released(),
             "The names of classes that the file of an export_network() says; none of others.");
}

}  // namespace python
