#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/state.hpp"
#include "mps/graph/nn_graph.hpp"

/// Checks the gradients of a graph (docs/decisions.md, D21). unmetal_conform.hpp includes it. Part of the library
/// unmetal::conform, which is linked beside unmetal::unmetal:
///
///     find_package(unmetal REQUIRED COMPONENTS conform)
///     target_link_libraries(program PRIVATE unmetal::conform)
namespace mps {

struct GradientCheckOptions {
  std::uint64_t seed = 1;             ///< of the choice of elements
  std::size_t elementsPerTensor = 8;  ///< that are differentiated numerically, at least 1
};

/// One tensor that one node writes.
struct GradientCheckRow {
  std::string node;    ///< the node's class and label
  std::string kernel;  ///< the kernel's class
  std::string tensor;  ///< "result", "source gradient", "weights", "biases"
  /// Of the device against the float64 reference: number of elements, largest error over tolerance.
  std::int64_t elements = 0;
  double worst = 0;
  /// Of the float64 reference against central differences: number of elements, those that were skipped
  /// because they lie next to a tie or a kink, largest relative error. Forward results have none.
  std::int64_t derivatives = 0;
  std::int64_t skipped = 0;
  double worstDerivative = 0;
  /// Empty, or what is wrong: elements with their coordinates, found and expected; or which gradient the node
  /// was given in place of which.
  std::string report;
  [[nodiscard]] bool passed() const { return report.empty(); }
};

struct GradientCheckReport {
  std::vector<GradientCheckRow> rows;  ///< in the order in which the graph computes
  [[nodiscard]] std::size_t passedCount() const;
  [[nodiscard]] std::size_t failedCount() const { return rows.size() - passedCount(); }
  /// Whether there were gradients and all are right.
  [[nodiscard]] bool passed() const;
  /// What is wrong, the first node that computes something wrong first; empty when nothing is.
  [[nodiscard]] std::string describe() const;
};

/// Encodes the graph once on the sources and compares, for every node,
///
/// - what the device stored with the node's float64 reference on what the device stored before it, within the
///   bounds of docs/decisions.md, D22: a kernel that computes wrong is named, the nodes behind it are not;
/// - the gradient of the float64 reference with central differences of the reference of its forward node;
/// - for weights, biases and source images also with central differences of the loss through the whole graph,
///   relative error at most 1e-6;
/// - the wiring: the gradient that a gradient node is given must be the sum over all readers of its forward
///   result whose gradients the graph computes.
///
/// The loss of a graph whose first gradients are inputs is the sum of forward results times these inputs.
/// Dropout draws the masks of the graph's next encode. Losses whose gradient is by definition not their
/// derivative (SoftMaxCrossEntropy with labels that do not add up to 1) are taken as linear. The graph's
/// weights, random counters and other results stay as they are; only the loss images of the labels are
/// written.
///
/// Inputs without ties say more: a picture with large areas of one value puts every neuron there next to its
/// kink. Time grows with the elements that are differentiated; small pictures and batches do.
///
/// @param sourceImages,sourceStates as for NNGraph::encodeBatch; permanent images
/// @throws Error as encodeBatch does, for a graph without gradient nodes, and for a node whose kernel has no
/// float64 reference
GradientCheckReport checkGradients(NNGraph& graph, ArrayRef<ImageBatch> sourceImages,
                                   ArrayRef<StateBatch> sourceStates = {},
                                   const GradientCheckOptions& options = {});

}  // namespace mps
