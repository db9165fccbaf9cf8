#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "mtl/command.hpp"
#include "mtl/cuda/api.hpp"
#include "mtl/replay_cache.hpp"
#include "mtl/stream.hpp"

namespace mtl::cuda {

class CudnnHandle;
class Stream;

/// Whoever must do something at each launch of a graph that holds work of his.
class LaunchWatch {
 public:
  LaunchWatch() = default;
  virtual ~LaunchWatch() = default;
  LaunchWatch(const LaunchWatch&) = delete;
  LaunchWatch& operator=(const LaunchWatch&) = delete;

  /// @param count of his calls of Stream::watchLaunches() in this graph @throws Error where it must not be launched
  virtual void willLaunch(Stream& stream, std::size_t count) = 0;
  virtual void didLaunch(Stream& stream) = 0;
};

/// A CUDA stream: a command is one or a few launches on it. The executing thread launches and does not wait.
/// Sequences of commands that come again are replayed as CUDA graphs.
class Stream final : public mtl::Stream {
 public:
  /// On the calling thread's current device.
  Stream();
  ~Stream() override;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// @throws Error while work is captured, which must not wait.
  void read(const std::byte* address, std::span<std::byte> bytes) override;
  void copy(const std::byte* from, std::byte* to, std::size_t bytes) override;
  void fill(std::byte* to, std::size_t bytes, std::uint8_t value) override;
  bool replay(std::span<Command> commands) override { return replays_.run(commands); }
  /// An event on the stream.
  std::unique_ptr<Moment> moment() override;

  /// Starts a kernel. @param together whether its blocks wait for each other, so that all must run at the same time
  /// @throws CudaError when it cannot be started.
  void launch(const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t sharedBytes,
              bool together = false);

  [[nodiscard]] cudaStream_t handle() const { return handle_; }
  /// cuDNN's handle that runs things on this stream, made by the first call. @throws Error when it cannot be made.
  const CudnnHandle& cudnn();
  [[nodiscard]] ReplayCache& replays() { return replays_; }

  /// @name Of captured graphs
  /// @{
  /// Where the nodes of launches are put from now on; null: nowhere.
  void collectNodes(std::vector<cudaGraphNode_t>* nodes) { nodes_ = nodes; }
  /// What launches become while it is set: new numbers of the nodes of a graph, one after the other.
  struct NodeUpdate {
    cudaGraphExec_t graph = nullptr;
    std::span<const cudaGraphNode_t> nodes;  ///< those that are left
  };
  void updateNodes(NodeUpdate* update) { update_ = update; }
  /// Whether what is given to the stream now becomes part of a graph.
  [[nodiscard]] bool isCaptured() const { return nodes_ != nullptr; }
  /// Who watches the launches of a graph, and how often he has asked for it.
  using LaunchWatches = std::vector<std::pair<LaunchWatch*, std::size_t>>;
  /// Where they are put from now on; null: nowhere.
  void collectWatches(LaunchWatches* watches) { watches_ = watches; }
  /// While isCaptured(). @param watch outlives the commands' replay keys
  void watchLaunches(LaunchWatch& watch);
  /// @}

 private:
  cudaStream_t handle_ = nullptr;
  std::unique_ptr<CudnnHandle> cudnn_;
  std::vector<cudaGraphNode_t>* nodes_ = nullptr;
  LaunchWatches* watches_ = nullptr;
  NodeUpdate* update_ = nullptr;
  ReplayCache replays_;
};

/// The CUDA stream behind a plan's stream; the plan was prepared for this back end.
inline Stream& asCuda(mtl::Stream& stream) {
  return static_cast<Stream&>(stream);
}

}  // namespace mtl::cuda
