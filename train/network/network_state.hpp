#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "train/network/network.hpp"

namespace unmetal::train::detail {

/// What handles of one network share.
struct NetworkState {
  NetworkOptions options;
  std::vector<Layer> layers;
  std::map<std::string, std::size_t> labels;      ///< index of each layer
  std::map<std::string, std::size_t> stemCounts;  ///< of labels that the network has made

  std::set<std::string> frozen;  ///< labels of layers that are not trained
  std::shared_ptr<mps::NNOptimizer> optimizer;
  mps::AdamForm adamForm = mps::AdamForm::Adam;
  Network::TensorCheck tensorCheck;
  std::optional<Normalization> normalization;
  /// For each layer that was looked at, null without parameters. Made when they are wanted.
  std::vector<std::shared_ptr<mps::TrainableLayer>> trainableOf;
  std::vector<std::shared_ptr<mps::TrainableLayer>> trainables;  ///< those that are not null
  std::shared_ptr<mps::NNGraph> inference;                       ///< of predictions; null until there is one

  std::size_t add(const LayerKind& kind, const std::vector<std::size_t>& inputs, const std::string& label);
  /// Makes those that are missing. @throws mps::Error for a layer that nothing uses
  void makeTrainables();
  void checkUse() const;
  void checkTensorsOf(const Layer& layer) const;
  /// Format and precision.
  void applyTo(mps::NNGraph& graph) const;
  [[nodiscard]] std::size_t indexOf(const std::string& label) const;
  /// Of its first input; of the pictures for those.
  [[nodiscard]] const Shape& inputOf(const Layer& layer) const;
};

}  // namespace unmetal::train::detail
