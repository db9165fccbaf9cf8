#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/graph/compile/graph_program.hpp"
#include "mps/graph/layout/graph_layout.hpp"
#include "mps/graph/run/step_recordings.hpp"

namespace mtl {
class Buffer;
class CommandBuffer;
class CommandQueue;
class Heap;
class Memory;
class Submission;
}  // namespace mtl

namespace mps {
class NNGraph;
}

namespace mps::detail {

/// What one encode recorded, for checks that compute it again.
struct GraphTrace {
  struct Call {
    PreparedCall prepared;
    std::optional<BatchOperand> source, secondary, gradient, destination;
    std::size_t firstImage = 0;  ///< of the step's images: kernels may take a batch in parts
  };
  std::vector<ImageBatch> images;        ///< of the program, each in memory of its own
  std::vector<StateBatch> states;        ///< of the program
  std::vector<std::vector<Call>> calls;  ///< of each step
};

/// Runs a program on images. The library's own; NNGraph is its public face.
class GraphExecutor : public std::enable_shared_from_this<GraphExecutor> {
 public:
  GraphExecutor(std::shared_ptr<mtl::Device> device, std::shared_ptr<GraphProgram> program);

  /// @param isStack the images of each source are parts of one stack; so are then those of each result
  ImageBatch encode(NNGraph& graph, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                    std::span<const ImageBatch> sourceImages, std::span<const StateBatch> sourceStates,
                    std::vector<ImageBatch>* intermediateImages, std::vector<StateBatch>* destinationStates,
                    bool isStack);

  /// Encodes without updates and without sharing memory among images.
  GraphTrace trace(NNGraph& graph, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                   std::span<const ImageBatch> sourceImages, std::span<const StateBatch> sourceStates);

  /// Communicator::agree for the parameters of all layers that train.
  void encodeAgreement(const NNGraph& graph, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const;
  /// Of a graph whose kernels have other options now.
  void forgetRecordings() { recordings_.forget(); }
  /// Steps whose commands the next encode with the same sizes records again as they are.
  [[nodiscard]] std::size_t recordedSteps() const { return recordings_.stepCount(); }

  /// Layout of the last encode, or null.
  [[nodiscard]] const GraphLayout* lastLayout() const {
    return layouts_.empty() ? nullptr : &layouts_.front();
  }

 private:
  struct Run;
  /// What encodes on a queue use one after the other.
  struct QueueMemory {
    std::weak_ptr<mtl::CommandQueue> queue;
    std::shared_ptr<mtl::Heap> scratch;
    std::vector<std::vector<std::shared_ptr<mtl::Buffer>>> ofState;
  };
  void check(const NNGraph& graph, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
             std::span<const ImageBatch> sourceImages, std::span<const StateBatch> sourceStates) const;
  GraphLayout& layoutFor(const NNGraph& graph, std::span<const ImageBatch> sourceImages);
  QueueMemory& memoryOf(const std::shared_ptr<mtl::CommandQueue>& queue);
  /// The layout's memory on a queue.
  GraphLayout::Bound& bind(const NNGraph& graph, GraphLayout& layout,
                           const std::shared_ptr<mtl::CommandQueue>& queue);
  /// Where scratch memory did not fit beside the images: gives all of them new places and lets go of the layout's memory, as
  /// soon as no command uses it, so that old and new memory are not there together.
  void makeRoomForScratch(const NNGraph& graph, GraphLayout& layout, const GraphLayout::Bound& bound);
  void encodeStep(Run& run, StepIndex index);
  /// Lets the recordings of an earlier encode serve this one, where they can.
  void beginRecordings(Run& run);
  /// The step's commands from its recording, or its encode.
  void repeatOrEncode(Run& run, StepIndex index);
  /// The state of a neuron that was fused into the step.
  void makeFusedNeuronState(Run& run, StepIndex index) const;
  /// Two steps of the gradient of a concatenation (splitInPairs).
  void encodeSlices(Run& run, const ProgramStep& step, const ProgramStep& partner);
  /// The states that a step leaves for its gradient and for the caller; empty when nobody wants them.
  StateBatch makeStates(Run& run, const ProgramStep& step,
                        const std::function<StateBatch(bool isTemporary)>& make);
  /// Lets a state use the buffers that the one before it had on this queue, when nobody else has them: the
  /// addresses stay the same from step to step.
  void reuseBuffers(const std::shared_ptr<mtl::CommandQueue>& queue, StateIndex index, State& state);
  /// The images that steps read as the sources of the graph.
  void enterSources(Run& run, std::span<const ImageBatch> sourceImages);
  /// The images that outlive the encode or come from an allocator of the user's.
  void allocateOwned(Run& run);
  /// After the encode of a gradient step of a layer that trains.
  void queueUpdate(Run& run, StepIndex index);
  /// The updates whose weights no step behind `last` uses: nothing changes between the first use in an encode and the
  /// last one.
  void encodeUpdates(Run& run, StepIndex last);
  void encodeUpdate(Run& run, const ProgramStep& step);

  /// @name On one of several ranks
  /// @{
  static bool isOneOfSeveral(const NNGraph& graph);
  /// Tells the kernels which part of the batch is this rank's. @param count of its images
  void joinRanks(Run& run, std::size_t count);
  /// Stand-ins of one image each, where this rank has none.
  [[nodiscard]] std::vector<ImageBatch> imagesOfNone(const GraphLayout& layout) const;
  /// Takes part in what all ranks do in a step, and leaves zeros where it would leave gradients.
  void encodeStepWithoutImages(Run& run, StepIndex index);
  /// Starts the sums of gradients that no step behind `last` adds to.
  void sumGradients(Run& run, StepIndex last);
  /// Waits for the sums, and lets running statistics have those of all ranks.
  void finishSums(Run& run);
  /// @}

  void waitForHostUpdates(const NNGraph& graph, const mtl::CommandBuffer& commandBuffer);

  static constexpr std::size_t mostLayouts = 8;

  std::shared_ptr<mtl::Device> device_;
  std::shared_ptr<GraphProgram> program_;
  bool copiesSources_;              ///< to where commands that the device replays find them each time
  std::list<GraphLayout> layouts_;  ///< the last used first
  StepRecordings recordings_;
  std::vector<QueueMemory> queueMemory_;

  std::mutex updateMutex_;
  std::condition_variable updated_;
  std::weak_ptr<mtl::Submission> pendingUpdate_;  ///< its completion handler will change weights
};

}  // namespace mps::detail
