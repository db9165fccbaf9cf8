#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/import/constant.hpp"
#include "onnx/model/model_reading.hpp"
#include "train/network/network.hpp"

namespace unmetal::onnx::detail {

/// Numbers of a layer, made when they are asked for: of a parameter of the layer, in its order.
using LazyNumbers = std::function<std::vector<float>()>;

/// A network, and what its layers with weights begin with, by their labels.
struct ImportedNetwork {
  train::Network network;
  std::map<std::string, std::vector<LazyNumbers>> weights;
};

struct ImportSettings {
  train::NetworkOptions network;
  std::optional<train::Shape> pictures;  ///< of a model that leaves them open
};

/// What a name in a model stands for: a constant, or scale * f(picture) + shift. Scale and shift wait until an operator needs the
/// picture, so that what an operator and its neighbours say becomes one layer.
struct ImportedValue {
  enum class Function : std::uint8_t {
    Itself,
    Erf,       ///< erf(x sqrt(0.5))
    TimesErf,  ///< x (1 + erf(x sqrt(0.5))), twice a GeLU
  };

  std::shared_ptr<const Constant> constant = nullptr;
  std::optional<train::Features> picture = std::nullopt;
  /// Batch x numbers in place of batch x channels x height x width.
  bool isFlat = false;
  /// The numbers lie pixel by pixel in place of channel by channel.
  bool isChannelsLast = false;
  /// Behind the batch, where it is neither a row of numbers nor channels x height x width.
  std::vector<std::int64_t> shape = {};
  Function function = Function::Itself;
  float scale = 1;
  float shift = 0;
};

/// Behind the batch.
std::vector<std::int64_t> shapeInModel(const ImportedValue& value);
/// The same numbers in the same order with another shape behind the batch.
ImportedValue withShape(ImportedValue value, std::vector<std::int64_t> shape);

/// Builds a network operator by operator. One node after the other makes values of values.
class GraphImport {
 public:
  /// @param model it and the bytes that it views must outlive this and what it makes
  GraphImport(const ModelMessage& model, const ImportSettings& settings);
  /// @throws mps::Error, naming node and reason, for what a network has not
  ImportedNetwork run();

  [[nodiscard]] const train::Network& network() const { return network_; }
  [[nodiscard]] std::int64_t operatorSet() const { return operatorSet_; }
  /// Pictures at once in the model's shapes; 1 where it leaves that open.
  [[nodiscard]] std::int64_t batch() const { return batch_; }
  /// Null where there is no such value yet.
  ImportedValue* find(std::string_view name);
  void set(std::string_view name, ImportedValue value);
  /// Adds a layer with weights. @param label it gets that or, where it is taken, that with a number
  train::Features addLayer(const train::LayerKind& kind, std::span<const train::Features> inputs,
                           const std::string& label, std::vector<LazyNumbers> weights);
  /// The node that alone uses a value; null where several do, or the value is the model's result.
  [[nodiscard]] const NodeMessage* onlyUser(std::string_view name) const;
  /// Imports the node that makes a value, where it asks for the shape of what is known already.
  void importShapeEarly(std::string_view name);
  /// It needs no translation any more: another node has made its results.
  void finish(const NodeMessage& node) { finished_.insert(&node); }
  /// For a constant that an operator is about to make. @throws mps::Error where all of them get out of proportion to the file
  void checkRoom(std::uint64_t numbers) const;
  /// Counts the numbers of one that was made. @throws mps::Error as checkRoom()
  void take(std::uint64_t numbers);

 private:
  void findNeeded();
  void addPictures();
  void importNodes(bool constantsAlone);
  void importNode(const NodeMessage& node);
  [[nodiscard]] bool hasConstantInputs(const NodeMessage& node);
  void finishResult();

  const ModelMessage& model_;
  ImportSettings settings_;
  std::int64_t operatorSet_ = 0;
  std::int64_t batch_ = 1;
  const ValueMessage* pictures_;
  bool areChannelsLast_;
  train::Network network_;
  std::map<std::string, std::vector<LazyNumbers>> weights_;
  std::map<std::string, std::size_t> labels_;  ///< how many layers were to have each
  std::set<std::string> used_{"input"};
  std::map<std::string_view, const TensorMessage*> stored_;
  std::map<std::string_view, ImportedValue> values_;
  std::map<std::string_view, std::vector<const NodeMessage*>> users_;
  std::vector<const NodeMessage*> needed_;
  std::set<const NodeMessage*> finished_;
  /// How many numbers operators may still make of constants.
  std::uint64_t budget_ = std::uint64_t{1} << 22U;
};

}  // namespace unmetal::onnx::detail
