#pragma once

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "mps/graph/gradient_reduction.hpp"
#include "mps/graph/graph_executor.hpp"
#include "mps/graph/held_reads.hpp"
#include "mps/graph/nn_graph.hpp"
#include "mps/optimizer/combined_updates.hpp"

namespace mps::detail {

/// One encode under way.
struct GraphExecutor::Run {
  NNGraph& graph;
  std::shared_ptr<mtl::CommandBuffer> commandBuffer;
  GraphLayout& layout;
  std::vector<ImageBatch> images;
  std::vector<StateBatch> states;
  bool updates = true;  ///< layers are updated
  struct HostUpdate {
    std::shared_ptr<LayerUpdate> update;
    StateBatch gradientStates;
    std::shared_ptr<State> sourceState;
  };
  std::vector<HostUpdate> hostUpdates;
  CombinedUpdates combinedUpdates;  ///< those that wait for the end of the encode
  struct WaitingUpdate {
    StepIndex gradient;     ///< a step that has the update
    StepIndex lastUse;      ///< of its weights and of its gradients
    bool isSummed = false;  ///< its gradients are with `reduction`
  };
  std::vector<WaitingUpdate> waitingUpdates = {};
  std::unordered_map<const void*, StepIndex> lastUses =
      {};                                        ///< of weights that data sources keep on the device
  std::unordered_set<const void*> updated = {};  ///< the ones that this encode has updated
  bool isStack = false;                          ///< the images of a batch are parts of one stack
  std::vector<ImageBatch> owned = {};  ///< what can be handed out; stacks are whole, `images` has their parts
  HeldReads reads = {};                ///< of what the caller has or gets
  std::size_t totalCount = 0;          ///< images of all ranks
  std::unique_ptr<GradientReduction> reduction = nullptr;  ///< of one of several ranks
};

}  // namespace mps::detail
