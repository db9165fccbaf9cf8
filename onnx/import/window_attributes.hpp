#pragma once

#include "onnx/import/node_import.hpp"
#include "train/network/layers.hpp"

namespace unmetal::onnx::detail {

/// What the attributes of a node say of its windows.
struct WindowAttributes {
  train::Sides kernel;
  train::Sides stride;
  train::Sides dilation;
  train::Margins margins;  ///< what the operator pads, with the pixels that rounding up adds

  /// Of one window, with its gaps.
  [[nodiscard]] train::Sides extent() const {
    return {(kernel.height - 1) * dilation.height + 1, (kernel.width - 1) * dilation.width + 1};
  }
  /// Which of a network's paddings that is.
  [[nodiscard]] train::Padding paddingFor(const train::Shape& source) const;
  /// The margins, where paddingFor() says that they have to be told.
  [[nodiscard]] train::Margins marginsFor(const train::Shape& source) const;
};

/// @param kernel of the weights; nothing: an attribute has to say it
WindowAttributes windowsOf(const NodeImport& node, const train::Shape& source,
                           const std::optional<train::Sides>& kernel);
/// Adds pixels below and at the right where the node's ceil_mode says so: as many as a last window misses that begins inside.
void roundUp(WindowAttributes& windows, const train::Shape& source);
/// Two numbers of an attribute, rows first; both 1 where it is missing. @throws mps::Error for others, and below 1
train::Sides sidesOf(const NodeImport& node, std::string_view name);

}  // namespace unmetal::onnx::detail
