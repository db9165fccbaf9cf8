#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "mps/distributed/batch_share.hpp"
#include "mps/graph/nn_graph.hpp"
#include "mps/graph/run/gradient_reduction.hpp"
#include "mps/graph/run/graph_executor.hpp"
#include "mps/graph/run/held_reads.hpp"
#include "mps/optimizer/combined_updates.hpp"

namespace mps::detail {

/// While alive, kernels whose results depend on the whole batch know which part of it is this rank's.
class SharedBatchScope {
 public:
  SharedBatchScope(const GraphProgram& program, const BatchShare& share);
  ~SharedBatchScope();
  SharedBatchScope(const SharedBatchScope&) = delete;
  SharedBatchScope& operator=(const SharedBatchScope&) = delete;

 private:
  const GraphProgram& program_;
};

/// One encode under way.
struct GraphExecutor::Run {
  NNGraph& graph;
  std::shared_ptr<mtl::CommandBuffer> commandBuffer;
  GraphLayout& layout;
  std::vector<ImageBatch> images;
  std::vector<StateBatch> states;
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
  std::optional<SharedBatchScope> batchShare = std::nullopt;
  std::shared_ptr<StepScratch> scratch = nullptr;  ///< null: that of the queue
  StepRecordings::Use recordings = nullptr;
};

}  // namespace mps::detail
