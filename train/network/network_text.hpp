#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/network/network.hpp"

/// Networks as JSON: files of users, and the metadata of files with weights. docs/network-file.md is the schema.
namespace unmetal::train::detail {

/// All fields of all layers. @throws mps::Error for a label that is not UTF-8
std::string networkText(const std::vector<Layer>& layers);

/// Who has written a text.
enum class TextOf {
  Weights,  ///< networkText(), in a file with weights
  User,
};
struct TextNetwork {
  Network network;
  std::optional<std::string>
      newHead;  ///< label of the last layer with weights, where LoadOptions::classes has changed it
};
/// The text may hold anything. @throws mps::Error, naming layer and field, for what is no network
TextNetwork networkOfText(const std::string& text, const NetworkOptions& options, const LoadOptions& loading,
                          TextOf textOf);

}  // namespace unmetal::train::detail
