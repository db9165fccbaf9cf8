#include "mtl/cuda/captured_graph.hpp"

#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "mtl/command.hpp"
#include "mtl/error.hpp"
#include "mtl/verbose.hpp"

namespace mtl::cuda {
namespace {

/// Held while a stream captures and while a device is waited for.
std::mutex& captureMutex() {
  static std::mutex& only = *new std::mutex;
  return only;
}

/// A capture under way on a stream.
struct CaptureState {
  cudaGraph_t graph = nullptr;
  std::span<const cudaGraphNode_t> last;  ///< what the next node will depend on

  explicit CaptureState(cudaStream_t stream) {
    cudaStreamCaptureStatus status{};
    const cudaGraphNode_t* nodes = nullptr;
    const cudaGraphEdgeData* edges = nullptr;  // asked for, because the query fails where a library has some
    std::size_t count = 0;
    check(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &nodes, &edges, &count),
          "cudaStreamGetCaptureInfo");
    if (status != cudaStreamCaptureStatusActive) throw Error("the capture was ended by what it captured");
    last = {nodes, count};
  }

  [[nodiscard]] std::size_t nodeCount() const {
    std::size_t count = 0;
    check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
    return count;
  }
};

class CapturedGraph final : public ReplayCache::Recording {
 public:
  explicit CapturedGraph(Stream& stream) : stream_(stream) {}
  ~CapturedGraph() override {
    if (executable_ != nullptr) {
      cudaStreamSynchronize(stream_.handle());  // it may still run
      cudaGraphExecDestroy(executable_);
    }
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  void capture(std::span<Command> commands) {
    const cudaStream_t handle = stream_.handle();
    const std::lock_guard lock(captureMutex());
    check(cudaStreamBeginCapture(handle, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    std::exception_ptr failure;
    stream_.collectWatches(&watches_);
    try {
      for (Command& command : commands) captureCommand(command);
      nodeCount_ = CaptureState(handle).nodeCount();
    } catch (...) {
      failure = std::current_exception();
    }
    stream_.collectNodes(nullptr);
    stream_.collectWatches(nullptr);
    const cudaError_t ended = cudaStreamEndCapture(handle, &graph_);
    if (failure) {
      cudaGetLastError();  // that the capture is invalid follows from the failure
      std::rethrow_exception(failure);
    }
    check(ended, "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable_, graph_, 0), "cudaGraphInstantiate");
  }
  [[nodiscard]] std::size_t nodeCount() const { return nodeCount_; }

  [[nodiscard]] bool canUpdate(std::size_t index) const override { return parts_[index].canUpdate; }

  bool update(std::size_t index, Command& command) override {
    Stream::NodeUpdate update{executable_, parts_[index].nodes};
    stream_.updateNodes(&update);
    bool isUpdated = false;
    try {
      command.run(stream_);
      isUpdated = update.nodes.empty();
    } catch (const std::exception& error) {
      if (verboseDispatch())
        printDispatch("captured graph not updated: " + command.label + ": " + error.what());
    }
    stream_.updateNodes(nullptr);
    return isUpdated;
  }

  void launch() override {
    for (const auto& [watch, count] : watches_) watch->willLaunch(stream_, count);
    check(cudaGraphLaunch(executable_, stream_.handle()), "cudaGraphLaunch");
    for (const auto& [watch, count] : watches_) watch->didLaunch(stream_);
  }

 private:
  /// One command's nodes.
  struct Part {
    std::vector<cudaGraphNode_t> nodes;
    bool canUpdate = false;  ///< they are all kernels that the library launched itself
  };

  void captureCommand(Command& command) {
    Part part;
    const std::size_t before = CaptureState(stream_.handle()).nodeCount();
    stream_.collectNodes(&part.nodes);
    command.run(stream_);
    part.canUpdate = CaptureState(stream_.handle()).nodeCount() - before == part.nodes.size();
    parts_.push_back(std::move(part));
  }

  Stream& stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
  std::vector<Part> parts_;
  Stream::LaunchWatches watches_;
  std::size_t nodeCount_ = 0;
};

}  // namespace

void collectNodesOf(cudaStream_t stream, std::vector<cudaGraphNode_t>& nodes) {
  const CaptureState state(stream);
  nodes.insert(nodes.end(), state.last.begin(), state.last.end());
}

std::unique_ptr<ReplayCache::Recording> capture(Stream& stream, std::span<Command> commands) {
  const std::string what = std::to_string(commands.size()) + " commands, " + commands.front().label + " to " +
                           commands.back().label;
  try {
    auto graph = std::make_unique<CapturedGraph>(stream);
    graph->capture(commands);
    if (verboseDispatch())
      printDispatch("captured " + what + ", as a graph of " + std::to_string(graph->nodeCount()) + " nodes");
    return graph;
  } catch (const std::exception& error) {
    if (verboseDispatch()) printDispatch("not captured: " + what + ": " + error.what());
    return nullptr;
  }
}

void waitForDevice(int device) {
  const CurrentDevice current(device);
  const std::lock_guard lock(captureMutex());
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

}  // namespace mtl::cuda
