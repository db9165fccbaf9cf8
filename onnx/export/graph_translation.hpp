#pragma once

#include <map>
#include <span>
#include <string>

#include "mps/graph/nn_graph.hpp"
#include "onnx/model/model.hpp"

namespace unmetal::onnx::detail {

/// The operators of a graph. The library's own. @param pictures of each source @throws mps::Error as exportGraph() does
Model translateGraph(const mps::NNGraph& graph, std::span<const train::Shape> pictures,
                     std::map<std::string, std::string> metadata);

}  // namespace unmetal::onnx::detail
