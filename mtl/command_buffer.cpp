#include "mtl/command_buffer.hpp"

#include "mtl/command_queue.hpp"
#include "mtl/error.hpp"
#include "mtl/memory.hpp"
#include "mtl/submission.hpp"

namespace mtl {

ContentMark::ContentMark(const std::shared_ptr<Memory>& memory) : content(memory->content()) {}

CommandBuffer::CommandBuffer(std::shared_ptr<Submission> submission) : submission_(std::move(submission)) {}

const std::shared_ptr<Device>& CommandBuffer::device() const {
  return submission_->queue()->device();
}
const std::shared_ptr<CommandQueue>& CommandBuffer::commandQueue() const {
  return submission_->queue();
}
std::string CommandBuffer::label() const {
  return submission_->label();
}
void CommandBuffer::setLabel(std::string label) {
  submission_->setLabel(std::move(label));
}
void CommandBuffer::enqueue() {
  submission_->enqueue();
}
void CommandBuffer::commit() {
  submission_->commit();
}
void CommandBuffer::waitUntilScheduled() {
  submission_->wait(true);
}
void CommandBuffer::waitUntilCompleted() {
  submission_->wait(false);
}
void CommandBuffer::addScheduledHandler(Handler handler) {
  submission_->addHandler(std::move(handler), true);
}
void CommandBuffer::addCompletedHandler(Handler handler) {
  submission_->addHandler(std::move(handler), false);
}
CommandBufferStatus CommandBuffer::status() const {
  return submission_->status();
}
std::optional<CommandBufferError> CommandBuffer::error() const {
  return submission_->error();
}
double CommandBuffer::GPUStartTime() const {
  return submission_->startTime();
}
double CommandBuffer::GPUEndTime() const {
  return submission_->endTime();
}
void CommandBuffer::append(Command command) {
  submission_->append(std::move(command));
}
void CommandBuffer::checkOpen() const {
  submission_->checkOpen();
}
std::size_t CommandBuffer::commandCount() const {
  return submission_->commandCount();
}
void CommandBuffer::rollback(std::size_t commandCount) {
  submission_->rollback(commandCount);
}
const std::shared_ptr<Heap>& CommandBuffer::heap() const {
  return submission_->queue()->heap();
}

void CommandBuffer::throwIfFailed() {
  waitUntilCompleted();
  if (const auto failure = error()) throw Error(failure->message);
}

}  // namespace mtl
