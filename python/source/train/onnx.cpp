#include "onnx/export.hpp"

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
}

}  // namespace python
