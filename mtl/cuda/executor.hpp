#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "mtl/cuda/memory_pool.hpp"
#include "mtl/submission.hpp"
#include "mtl/worker.hpp"

namespace mtl::cuda {

/// For a command, while it runs: calls the function when the device has ended the command buffer's work, on the completing
/// thread. What it throws is the command buffer's failure. Not for commands that are replayed.
void checkAtEnd(std::function<void()> check);

/// Runs the committed work of all queues of one device. Engine-internal.
///
/// One thread hands the commands to their queue's stream, in the order of commit, and goes on; another waits
/// for the device and ends the submissions in the same order. Lives as long as the process, as its threads
/// do.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  Engine(int device, std::shared_ptr<MemoryPool> pool);

  /// The executor of one queue, with a stream of its own; streams are recycled. Starts the threads if need be.
  /// @throws Error when the system gives none, and as checkProcess does
  std::shared_ptr<Executor> newExecutor();
  /// @throws Error in a child process of the one that has started the threads
  void checkProcess() const;

 private:
  class QueueExecutor;
  struct Work {
    std::shared_ptr<Submission> submission;
    Stream* stream = nullptr;
    cudaEvent_t started = nullptr;              ///< before its commands
    cudaEvent_t done = nullptr;                 ///< after them
    std::optional<CommandBufferError> failure;  ///< why they were not
    std::vector<std::function<void()>> checks;  ///< of checkAtEnd()
  };

  void start();
  void submit(Work work);
  void launchLoop();
  void completionLoop();
  /// Hands the commands to the stream.
  void launch(Work& work);
  /// Waits for the device. @return what went wrong there
  std::optional<CommandBufferError> finish(const Work& work);
  /// How long the device worked on commands that have ended well.
  static std::optional<double> deviceSeconds(const Work& work);
  /// For the command buffer; remembers an error after which the device cannot be used.
  CommandBufferError report(cudaError_t code);
  cudaEvent_t takeEvent();

  int device_;
  std::string name_;
  std::shared_ptr<MemoryPool> pool_;
  std::mutex mutex_;
  std::condition_variable committed_;
  std::condition_variable launched_;
  std::deque<Work> toLaunch_;
  std::deque<Work> toFinish_;
  std::vector<std::unique_ptr<Stream>> idleStreams_;
  std::vector<cudaEvent_t> idleEvents_;
  std::optional<CommandBufferError> fatal_;  ///< for all later work
  std::uint64_t commits_ = 0;
  std::uint64_t launches_ = 0;  ///< of the launching thread alone
  mutable std::mutex workersMutex_;
  Worker launcher_;  ///< these two are never joined
  Worker completer_;
};

}  // namespace mtl::cuda
