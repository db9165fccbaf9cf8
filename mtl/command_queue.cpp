#include "mtl/command_queue.hpp"

#include <vector>

#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"
#include "mtl/submission.hpp"

namespace mtl {

/// Heaps that no buffer leases now. As many as buffers were in flight at once, so the number is bounded.
struct CommandQueue::LeasedHeaps {
  std::mutex mutex;
  std::vector<std::shared_ptr<Heap>> idle;
};

CommandQueue::CommandQueue(std::shared_ptr<Device> device, std::size_t maxCommandBufferCount)
    : device_(std::move(device)),
      executor_(device_->newExecutor()),
      heap_(std::make_shared<Heap>(*device_)),
      leasedHeaps_(std::make_shared<LeasedHeaps>()),
      maxCommandBufferCount_(maxCommandBufferCount),
      handlerThread_(std::make_unique<HandlerThread>()) {}

CommandQueue::~CommandQueue() = default;

std::shared_ptr<CommandBuffer> CommandQueue::commandBuffer() {
  return std::make_shared<CommandBuffer>(newSubmission());
}

std::shared_ptr<Submission> CommandQueue::newSubmission() {
  {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return uncompleted_ < maxCommandBufferCount_; });
    ++uncompleted_;
  }
  return std::make_shared<Submission>(shared_from_this());
}

std::shared_ptr<Heap> CommandQueue::leaseHeap() {
  std::shared_ptr<Heap> heap;
  {
    const std::lock_guard lock(leasedHeaps_->mutex);
    if (!leasedHeaps_->idle.empty()) {
      heap = std::move(leasedHeaps_->idle.back());
      leasedHeaps_->idle.pop_back();
    }
  }
  if (!heap) heap = std::make_shared<Heap>(*device_);
  Heap* address = heap.get();
  return {address, [heap = std::move(heap), heaps = leasedHeaps_](Heap*) mutable {
            const std::lock_guard lock(heaps->mutex);
            heaps->idle.push_back(std::move(heap));
          }};
}

HandlerThread& CommandQueue::handlerThread() {
  return *handlerThread_;
}

void CommandQueue::reserve(const std::shared_ptr<Submission>& submission) {
  const std::lock_guard lock(mutex_);
  order_.push_back(submission);
}

void CommandQueue::flush() {
  std::shared_ptr<Submission> submission;  // perhaps its last owner: let go after the lock
  const std::lock_guard lock(mutex_);
  while (!order_.empty()) {
    submission = order_.front().lock();
    if (submission && submission->status() < CommandBufferStatus::Committed) return;
    order_.pop_front();
    if (!submission) continue;
    submission->releaseSelf();
    executor_->submit(std::move(submission));
  }
}

void CommandQueue::submissionEnded() {
  {
    const std::lock_guard lock(mutex_);
    --uncompleted_;
  }
  ended_.notify_all();
}

}  // namespace mtl
