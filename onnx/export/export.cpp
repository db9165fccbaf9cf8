#include "onnx/export.hpp"

#include <map>
#include <nlohmann/json.hpp>

#include "mps/core/types/error.hpp"
#include "mps/softmax/softmax.hpp"
#include "mps/weights/atomic_file.hpp"
#include "onnx/export/graph_translation.hpp"

namespace unmetal::onnx {
namespace {

template <class Value>
std::string jsonOf(const std::vector<Value>& values) {
  return nlohmann::json(values).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::map<std::string, std::string> metadataOf(const ExportOptions& options) {
  std::map<std::string, std::string> metadata;
  if (!options.classNames.empty()) metadata["classes"] = jsonOf(options.classNames);
  if (options.normalization) {
    metadata["normalization.mean"] = jsonOf(options.normalization->mean);
    metadata["normalization.deviation"] = jsonOf(options.normalization->deviation);
  }
  return metadata;
}

void checkOptions(const ExportOptions& options, const detail::Model& model) {
  if (options.normalization) train::checkNormalization(*options.normalization, model.inputs.front().shape);
  const std::size_t channels = model.outputs.front().shape.channels;
  if (!options.classNames.empty() && options.classNames.size() != channels)
    throw mps::Error("exportGraph", "number of class names", std::to_string(options.classNames.size()),
                     std::to_string(channels) + ", one for each channel of the result");
}

void write(const detail::Message& model, const std::filesystem::path& path) {
  mps::AtomicFile file(path);
  file.reserve(model.size());
  for (const std::string& piece : model.pieces()) file.write(std::string_view(piece));
  file.commit();
}

std::shared_ptr<mps::NNGraph> inferenceGraph(const train::Network& network, bool softmax) {
  if (softmax) return network.makeInferenceGraph();
  return mps::NNGraph::create(network.device(),
                              network.makeNodes(mps::NNImageNode::create(), train::GraphKind::Inference));
}

}  // namespace

void exportNetwork(const train::Network& network, const std::filesystem::path& path,
                   const ExportOptions& options) {
  ExportOptions own = options;
  if (!own.normalization) own.normalization = network.normalization();
  exportGraph(*inferenceGraph(network, options.softmax), {&network.inputShape(), 1}, path, own);
}

void exportGraph(const mps::NNGraph& graph, std::span<const train::Shape> pictures,
                 const std::filesystem::path& path, const ExportOptions& options) {
  detail::Model model = detail::translateGraph(graph, pictures, metadataOf(options));
  checkOptions(options, model);
  write(detail::encode(std::move(model)), path);
}

}  // namespace unmetal::onnx
