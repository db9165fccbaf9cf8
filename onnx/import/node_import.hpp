#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "mps/core/types/error.hpp"
#include "onnx/import/graph_import.hpp"

namespace unmetal::onnx::detail {

/// One node while it becomes layers: what it is given, and where its results go.
class NodeImport {
 public:
  NodeImport(GraphImport& graph, const NodeMessage& node)
      : graph_(graph), node_(node), result_(node.outputs[0]) {}

  [[nodiscard]] std::string_view type() const { return node_.type; }
  [[nodiscard]] std::int64_t operatorSet() const { return graph_.operatorSet(); }
  [[nodiscard]] GraphImport& graph() const { return graph_; }
  /// `Conv "conv1": reason`
  [[nodiscard]] mps::Error refusal(const std::string& reason) const;
  /// `Conv "conv1": argument is found, expected expected`
  [[nodiscard]] mps::Error refusal(const std::string& argument, const std::string& found,
                                   const std::string& expected) const;

  /// @name Inputs
  /// @{
  [[nodiscard]] std::size_t inputCount() const { return node_.inputs.size(); }
  [[nodiscard]] std::string inputName(std::size_t index) const { return std::string(node_.inputs.at(index)); }
  [[nodiscard]] bool hasInput(std::size_t index) const;
  /// @throws mps::Error when it is missing
  [[nodiscard]] ImportedValue& input(std::size_t index) const;
  [[nodiscard]] bool isConstant(std::size_t index) const { return input(index).constant != nullptr; }
  /// @throws mps::Error when it is a picture
  [[nodiscard]] std::shared_ptr<const Constant> constant(std::size_t index) const;
  /// What lies at an input, by layers of its own where it waits for some. @throws mps::Error when it is a constant
  [[nodiscard]] train::Features pictureInAnyShape(std::size_t index) const;
  /// A row of numbers or channels x height x width, channel by channel. @throws mps::Error for another one
  [[nodiscard]] train::Features picture(std::size_t index) const;
  /// One that is batch x channels x height x width, or has one pixel. @throws mps::Error for another one
  [[nodiscard]] train::Features pixels(std::size_t index) const;
  /// @}

  /// @name Attributes; `missing` where the node has none of that name
  /// @{
  [[nodiscard]] bool hasAttribute(std::string_view name) const { return find(name) != nullptr; }
  [[nodiscard]] std::int64_t integer(std::string_view name, std::int64_t missing) const;
  [[nodiscard]] float number(std::string_view name, float missing) const;
  [[nodiscard]] std::string text(std::string_view name, std::string missing) const;
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view name) const;
  [[nodiscard]] const AttributeMessage* find(std::string_view name) const;
  /// @throws mps::Error when it has another value
  void expect(std::string_view name, std::int64_t value) const;
  /// @throws mps::Error for one that nobody has asked for
  void refuseOtherAttributes() const;
  /// @}

  /// @name Results
  /// @{
  [[nodiscard]] std::string_view resultName() const { return result_; }
  /// A layer without weights.
  [[nodiscard]] train::Features add(const train::LayerKind& kind,
                                    const std::vector<train::Features>& inputs) const;
  /// @param named index of the input whose name says how the layer is called
  [[nodiscard]] train::Features add(const train::LayerKind& kind, const train::Features& input,
                                    std::size_t named, std::vector<LazyNumbers> weights) const;
  void setResult(ImportedValue value) { graph_.set(result_, std::move(value)); }
  void setResult(const train::Features& picture, bool isFlat = false) {
    setResult({.picture = picture, .isFlat = isFlat});
  }
  void setResult(Constant constant);
  /// Takes the operator behind this one with it, where nothing else uses the result: the constant of an Add or a Mul that has
  /// one number, or one for each of so many channels. Null where there is no such operator.
  /// @param isFlat whether the result is batch x numbers
  [[nodiscard]] std::shared_ptr<const Constant> takeNext(std::string_view type, std::size_t channels,
                                                         bool isFlat = false);
  /// The operator that alone uses the result, where it is of that type. It needs no translation any more, and its result
  /// is this node's. Null for another one.
  [[nodiscard]] const NodeMessage* takeNext(std::string_view type);
  /// @}

 private:
  [[nodiscard]] std::string labelFor(std::size_t named) const;

  GraphImport& graph_;
  const NodeMessage& node_;
  std::string_view result_;
  mutable std::set<std::string_view> known_;
};

/// Makes layers of one operator.
using OperatorImport = void (*)(NodeImport& node);
/// Null for one that there is not.
OperatorImport importOf(std::string_view type);
/// Makes a constant of constants, of operators that occur in chains of shapes and parameters.
OperatorImport foldingOf(std::string_view type);
/// What an operator Shape says of a shape: the extents between its attributes start and end.
Constant partOfShape(const NodeImport& node, const std::vector<std::int64_t>& shape);
/// Whether a constant is one number, or one for each channel of pictures: c, c x 1 x 1 or 1 x c x 1 x 1.
/// @param isFlat of pictures batch x numbers
bool isPerChannel(const Constant& constant, std::size_t channels, bool isFlat);

void importConvolution(NodeImport& node);
void importTransposedConvolution(NodeImport& node);
void importGemm(NodeImport& node);
void importMatMul(NodeImport& node);
void importBatchNormalization(NodeImport& node);
void importInstanceNormalization(NodeImport& node);
void importGroupNormalization(NodeImport& node);
void importLayerNormalization(NodeImport& node);
void importCrossChannelNormalization(NodeImport& node);
void importActivation(NodeImport& node);
void importClip(NodeImport& node);
void importPRelu(NodeImport& node);
void importErf(NodeImport& node);
void importPower(NodeImport& node);
void importProductWithItself(NodeImport& node);
void importArithmetic(NodeImport& node);
void importSum(NodeImport& node);
void importConcatenation(NodeImport& node);
void importPooling(NodeImport& node);
void importGlobalPooling(NodeImport& node);
void importReduction(NodeImport& node);
void importSoftmax(NodeImport& node);
void importDropout(NodeImport& node);
void importIdentity(NodeImport& node);
void importReshape(NodeImport& node);
void importFlatten(NodeImport& node);
void importSqueeze(NodeImport& node);
void importUnsqueeze(NodeImport& node);
void importGather(NodeImport& node);
void importTranspose(NodeImport& node);
void importShape(NodeImport& node);
void importResize(NodeImport& node);
void importPad(NodeImport& node);

}  // namespace unmetal::onnx::detail
