#include "mtl/command_queue.hpp"

#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"
#include "mtl/submission.hpp"

namespace mtl {

CommandQueue::CommandQueue(std::shared_ptr<Device> device, std::size_t maxCommandBufferCount)
    : device_(std::move(device)),
      heap_(std::make_shared<Heap>(*device_)),
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

HandlerThread& CommandQueue::handlerThread() { return *handlerThread_; }

void CommandQueue::reserve(const std::shared_ptr<Submission>& submission) {
  const std::lock_guard lock(mutex_);
  order_.push_back(submission);
}

void CommandQueue::flush() {
  const std::lock_guard lock(mutex_);
  while (!order_.empty()) {
    auto submission = order_.front().lock();
    if (submission && submission->status() < CommandBufferStatus::Committed) return;
    order_.pop_front();
    if (submission) device_->submit(std::move(submission));
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
