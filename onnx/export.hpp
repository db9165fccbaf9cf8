#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mps/graph/nn_graph.hpp"
#include "train/data/normalization.hpp"
#include "train/network/layers.hpp"
#include "train/network/network.hpp"

/// Networks as ONNX files, which other programs run without this library: ONNX Runtime, OpenVINO, TensorRT and browsers.
/// docs/onnx.md has the operator of each node, and how to run a file.
///
///     unmetal::onnx::exportNetwork(network, "network.onnx", {.classNames = {"cat", "dog"}});
///
/// Inputs and outputs are float32 tensors batch x channels x height x width (NCHW) with any number of pictures. The first input is
/// "input", the first output "output", further ones "input_2" and so on; a handle with a label gives its image that name. Sizes
/// are fixed. The operator set is 18, the file format's version 8. Whatever formats images have here, the file computes in
/// float32.
///
/// Metadata, where there is any, as JSON: "classes", the names; "normalization.mean" and "normalization.deviation", a
/// number for each channel: who runs the file computes (value - mean) / deviation, values being 0 to 1.
namespace unmetal::onnx {

struct ExportOptions {
  /// Of a network: whether its result is probabilities, behind a softmax over the channels, or the scores before it. A
  /// softmax among its layers stays.
  bool softmax = true;
  /// Of the channels of the first output; none: the file does not say.
  std::vector<std::string> classNames = {};
  /// Of the pictures. Of a network: its own, unless this is another one.
  std::optional<train::Normalization> normalization = std::nullopt;
};

/// The network's inference: without dropout, with running statistics. No work on the network may be in flight.
/// @throws mps::Error as exportGraph() does
void exportNetwork(const train::Network& network, const std::filesystem::path& path,
                   const ExportOptions& options = {});

/// A graph without losses and gradients; a dropout in it is left out. The file has its results and exported images, in
/// the order in which its encodes give them. No work of the graph may be in flight.
/// @param pictures of each source image, in the order of NNGraph::sourceImageHandles()
/// @throws mps::Error, naming the node and the reason, for what ONNX cannot say; for another number of shapes or class names;
/// when the file cannot be written. Nothing is written then: a file that was there stays.
void exportGraph(const mps::NNGraph& graph, std::span<const train::Shape> pictures,
                 const std::filesystem::path& path, const ExportOptions& options = {});

}  // namespace unmetal::onnx
