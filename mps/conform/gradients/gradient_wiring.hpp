#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "mps/graph/compile/graph_program.hpp"

namespace mps::detail {

/// One reading of an image by a forward step; or, with source `betweenFused`, the tensor between a step and
/// the neuron that was fused into it.
struct GraphEdge {
  StepIndex step = nowhere;
  std::size_t source = 0;
  bool operator==(const GraphEdge&) const = default;
  bool operator<(const GraphEdge& other) const {
    return std::tie(step, source) < std::tie(other.step, other.source);
  }
};
inline constexpr std::size_t betweenFused = static_cast<std::size_t>(-1);

/// The node's class and label, or that of its data source.
std::string nameOf(const ProgramStep& step);

/// Which gradient each backward step of a program computes, and which one it is given.
class GradientWiring {
 public:
  explicit GradientWiring(const GraphProgram& program);

  /// Gradient steps, and steps that combine gradients.
  [[nodiscard]] bool isBackward(StepIndex step) const { return backward_.at(step); }
  [[nodiscard]] bool isLoss(StepIndex step) const;
  /// Of a gradient step: what its result is the gradient of. Nothing for other steps. Where it includes the
  /// derivative of a neuron, a reading of that neuron.
  [[nodiscard]] std::optional<GraphEdge> edgeOf(StepIndex step) const;
  /// Of a gradient step: whether it must be given the gradient of what comes before the fused neuron, not of
  /// the forward step's result.
  [[nodiscard]] bool startsBetween(StepIndex step) const;
  /// Of a gradient step: the forward node, fused or not.
  [[nodiscard]] std::string forwardNameOf(StepIndex step) const;
  /// Whether the graph computes the gradient of this reading; others are constants for it.
  [[nodiscard]] bool isOpen(const GraphEdge& edge) const { return open_.contains(edge); }

  /// A gradient that does not come from a loss: the sum of the forward tensor times it is a part of the total
  /// loss.
  struct Seed {
    StepIndex forward = nowhere;
    bool between = false;
    ImageIndex gradient = nowhere;
  };
  [[nodiscard]] const std::vector<Seed>& seeds() const { return seeds_; }
  /// Of a gradient step: a sentence when it is given another gradient than its forward step's; else empty.
  [[nodiscard]] const std::string& errorAt(StepIndex step) const { return errors_.at(step); }

 private:
  using Edges = std::set<GraphEdge>;
  [[nodiscard]] bool isGradientStep(StepIndex step) const;
  [[nodiscard]] std::optional<Edges> claimOf(StepIndex step) const;
  [[nodiscard]] Edges readingsOf(ImageIndex image) const;
  /// The same, where sums whose own gradients the graph leaves out hand theirs on to what they add.
  /// @param[out] through the readings by such sums
  [[nodiscard]] Edges readingsBehindSums(ImageIndex image, Edges& through) const;
  [[nodiscard]] std::string namesOf(const Edges& edges) const;
  void examine(StepIndex step);

  const GraphProgram& program_;
  std::vector<bool> backward_;
  std::vector<bool> isGradientImage_;
  std::vector<std::optional<Edges>> claims_;  ///< of each image: the readings that it is the gradient of
  Edges open_;
  Edges handedOn_;  ///< of these: by sums that have no gradient step of their own
  std::vector<Seed> seeds_;
  std::vector<std::string> errors_;
};

}  // namespace mps::detail
