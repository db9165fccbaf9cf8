#include "mtl/command_queue.hpp"

#include <algorithm>
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

std::shared_ptr<Submission> CommandQueue::newSubmission(std::optional<std::chrono::milliseconds> most) {
  executor_->checkProcess();
  std::unique_lock lock(mutex_);
  const auto hasRoom = [&] { return uncompleted_ < maxCommandBufferCount_; };
  if (!most)
    ended_.wait(lock, hasRoom);
  else if (!ended_.wait_for(lock, *most, hasRoom))
    return nullptr;
  auto submission = std::make_shared<Submission>(shared_from_this());
  ++uncompleted_;  // last: what throws before it takes no share
  return submission;
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

std::deque<std::weak_ptr<Submission>>::iterator CommandQueue::placeOf(const Submission& submission) {
  const std::weak_ptr<const Submission> sought = submission.weak_from_this();
  return std::ranges::find_if(order_, [&](const std::weak_ptr<Submission>& place) {
    return !place.owner_before(sought) && !sought.owner_before(place);
  });
}

void CommandQueue::leave(const Submission& dropped) {
  const std::lock_guard lock(mutex_);
  order_.erase(placeOf(dropped));
}

void CommandQueue::replace(const Submission& dropped, const std::shared_ptr<Submission>& instead) {
  const std::lock_guard lock(mutex_);
  *placeOf(dropped) = instead;
}

void CommandQueue::flush() {
  std::shared_ptr<Submission> submission;  // perhaps its last owner: let go after the lock
  const std::lock_guard lock(mutex_);
  while (!order_.empty()) {
    submission = order_.front().lock();
    // None: one that is being destroyed, and is about to leave its place or to give it to another.
    if (!submission || submission->status() < CommandBufferStatus::Committed) return;
    executor_->submit(submission);  // before it leaves the order: what this throws loses nothing
    order_.pop_front();
    submission->releaseSelf();
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
