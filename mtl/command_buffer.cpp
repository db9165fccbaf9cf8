#include "mtl/command_buffer.hpp"

#include "mtl/blit_command_encoder.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/error.hpp"
#include "mtl/memory.hpp"
#include "mtl/submission.hpp"

namespace mtl {

ContentMark::ContentMark(const std::shared_ptr<Memory>& memory) : content(memory->content()) {}

std::string Command::invalidRead() const {
  for (const ContentMark& read : reads)
    if (auto failure = read.content->failure(); !failure.empty()) return failure;
  return {};
}

CommandBuffer::CommandBuffer(std::shared_ptr<Submission> submission) : submission_(std::move(submission)) {}

const std::shared_ptr<Device>& CommandBuffer::device() const {
  return submission()->queue()->device();
}
const std::shared_ptr<CommandQueue>& CommandBuffer::commandQueue() const {
  return submission()->queue();
}
std::string CommandBuffer::label() const {
  return submission()->label();
}
void CommandBuffer::setLabel(std::string label) {
  submission()->setLabel(std::move(label));
}
std::shared_ptr<BlitCommandEncoder> CommandBuffer::blitCommandEncoder() {
  submission()->checkOpen();
  return std::make_shared<BlitCommandEncoder>(shared_from_this());
}
void CommandBuffer::enqueue() {
  submission()->enqueue();
}
void CommandBuffer::commit() {
  submission()->commit();
}
void CommandBuffer::waitUntilScheduled() {
  submission()->wait(true);
}
void CommandBuffer::waitUntilCompleted() {
  submission()->wait(false);
}
void CommandBuffer::addScheduledHandler(Handler handler) {
  submission()->addHandler(std::move(handler), true);
}
void CommandBuffer::addCompletedHandler(Handler handler) {
  submission()->addHandler(std::move(handler), false);
}
CommandBufferStatus CommandBuffer::status() const {
  return submission()->status();
}
std::optional<CommandBufferError> CommandBuffer::error() const {
  return submission()->error();
}
std::vector<std::string> CommandBuffer::logs() const {
  return submission()->log()->lines();
}
double CommandBuffer::GPUStartTime() const {
  return submission()->startTime();
}
double CommandBuffer::GPUEndTime() const {
  return submission()->endTime();
}
void CommandBuffer::append(Command command) {
  submission()->append(std::move(command));
}
void CommandBuffer::checkOpen() const {
  submission()->checkOpen();
  submission()->checkNoEncoder();
}
std::size_t CommandBuffer::commandCount() const {
  return submission()->commandCount();
}
void CommandBuffer::ifDropped(std::function<void(CommandBuffer&)> record) {
  submission()->ifDropped(std::move(record));
}
RecordingMark CommandBuffer::recorded() const {
  return submission()->recorded();
}
void CommandBuffer::rollback(const RecordingMark& mark) {
  submission()->rollback(mark);
}
const std::shared_ptr<Heap>& CommandBuffer::heap() const {
  return submission()->heap();
}

void CommandBuffer::throwIfFailed() {
  waitUntilCompleted();
  if (const auto failure = error()) throw Error(failure->message);
}

}  // namespace mtl
