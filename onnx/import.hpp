#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/network/network.hpp"

/// Networks of ONNX files, to be trained on here. docs/onnx.md has the operators that are taken.
///
///     train::Network network = unmetal::onnx::load("model.onnx", {}, {.classes = 5});
///     train::Trainer trainer(network, {.epochs = 3, .learningRate = 1e-4});
///
/// The file may come from anywhere: nothing in it is trusted. Memory is taken in proportion to its length; beyond that, for constants
/// that operators make, at most 1 GiB.
namespace unmetal::onnx {

/// The network of a file, with its weights. Layers with weights are called as in PyTorch, after their tensors ("layer1.0.conv1"),
/// or after their nodes. The first result of the model counts. A softmax at the end stays, as train::Network has it, and so do
/// dropouts; metadata of exportNetwork() become the normalisation.
/// @param options all but the layers: the seed of dropout and of a new head, the device, the format
/// @param loading classes: of another number the last convolution or dense layer begins anew from the seed. pictures: of a model
///                that leaves them open
/// @throws mps::Error, naming the file, for what is no such model; naming operator, node and attribute, for what a network has
/// not
train::Network load(const std::filesystem::path& path, const train::NetworkOptions& options = {},
                    const train::LoadOptions& loading = {});

/// The same layers with the weights of the seed. @throws mps::Error as load() does
train::Network loadLayers(const std::filesystem::path& path, const train::NetworkOptions& options = {},
                          const train::LoadOptions& loading = {});

/// Gives a network the weights of a file that has its layers: those of load(), or others with the same labels and shapes.
/// @param head what becomes of the last layer with weights where it is missing in the file, or of another shape
/// @return the label of that layer in case it keeps its values, else nothing
/// @throws mps::Error, naming file and layer, where one is missing or of another shape; nothing has changed then
std::optional<std::string> loadWeights(train::Network& network, const std::filesystem::path& path,
                                       train::Head head = train::Head::OfFile);

/// The names of classes that the file of an exportNetwork() says; none of others. @throws mps::Error as load() does
std::vector<std::string> classNames(const std::filesystem::path& path);

}  // namespace unmetal::onnx
