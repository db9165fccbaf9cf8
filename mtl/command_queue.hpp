#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace mtl {

class CommandBuffer;
class Device;
class Executor;
class HandlerThread;
class Heap;
class Submission;

/// Runs command buffers one after the other, in the order in which they were enqueued (Metal's
/// MTLCommandQueue). Results of an earlier buffer are visible to later ones. Queues are not ordered among
/// each other. Thread safe.
class CommandQueue : public std::enable_shared_from_this<CommandQueue> {
 public:
  /// Use Device::newCommandQueue.
  CommandQueue(std::shared_ptr<Device> device, std::size_t maxCommandBufferCount);
  ~CommandQueue();
  CommandQueue(const CommandQueue&) = delete;
  CommandQueue& operator=(const CommandQueue&) = delete;

  /// A new command buffer. Blocks while maxCommandBufferCount buffers are made and not completed.
  /// @throws Error in a child process of the one that has made the queue: a fork does not copy its threads
  std::shared_ptr<CommandBuffer> commandBuffer();

  [[nodiscard]] const std::shared_ptr<Device>& device() const { return device_; }
  [[nodiscard]] const std::string& label() const { return label_; }
  void setLabel(std::string label) { label_ = std::move(label); }

  /// @name The library's own
  /// @{
  /// Temporary memory of this queue's buffers.
  [[nodiscard]] const std::shared_ptr<Heap>& heap() const { return heap_; }
  /// A heap for a buffer that is committed in pieces; returns to the queue for the next
  /// such buffer when the last owner lets go.
  std::shared_ptr<Heap> leaseHeap();
  /// A submission of this queue, counted against the limit; null when the queue was full for so long.
  std::shared_ptr<Submission> newSubmission(std::optional<std::chrono::milliseconds> most = {});
  /// The thread that runs this queue's handlers.
  HandlerThread& handlerThread();
  /// @}

 private:
  friend class Submission;
  void reserve(const std::shared_ptr<Submission>& submission);
  /// A submission that is being destroyed gives up its place in the order.
  void leave(const Submission& dropped);
  /// It gives its place to another.
  void replace(const Submission& dropped, const std::shared_ptr<Submission>& instead);
  /// Hands the committed submissions at the front of the order to the device.
  void flush();
  void submissionEnded();
  /// Where a submission is in the order. Under the lock.
  std::deque<std::weak_ptr<Submission>>::iterator placeOf(const Submission& submission);

  std::shared_ptr<Device> device_;
  std::shared_ptr<Executor> executor_;
  std::shared_ptr<Heap> heap_;
  struct LeasedHeaps;
  std::shared_ptr<LeasedHeaps> leasedHeaps_;
  std::size_t maxCommandBufferCount_;
  std::string label_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t uncompleted_ = 0;
  std::deque<std::weak_ptr<Submission>> order_;  ///< enqueued, not yet handed to the device
  std::unique_ptr<HandlerThread> handlerThread_;
};

}  // namespace mtl
