#include "mtl/command_buffer.hpp"

#include "mtl/back_ends.hpp"
#include "mtl/blit_command_encoder.hpp"
#include "mtl/command.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/error.hpp"
#include "mtl/memory.hpp"
#include "mtl/submission.hpp"

namespace mtl {

ContentMark::ContentMark(const std::shared_ptr<Memory>& memory)
    : content(memory->content()), region(content->whole()) {}

ContentMark::ContentMark(const Memory& memory, const ByteRegion& bytes)
    : content(memory.content()), region(memory.inContent(bytes)) {}

std::string Command::invalidRead() const {
  for (const ContentMark& read : reads)
    if (auto failure = read.failure(); !failure.empty()) return failure;
  return {};
}

CommandBuffer::CommandBuffer(std::shared_ptr<Submission> submission)
    : submission_(std::move(submission)), commandQueue_(submission_->queue()) {}

const std::shared_ptr<Device>& CommandBuffer::device() const {
  return commandQueue_->device();
}
std::string CommandBuffer::label() const {
  return current()->label();
}
void CommandBuffer::setLabel(std::string label) {
  current()->setLabel(std::move(label));
}
std::shared_ptr<BlitCommandEncoder> CommandBuffer::blitCommandEncoder() {
  submission()->checkOpen();
  return std::make_shared<BlitCommandEncoder>(shared_from_this());
}
void CommandBuffer::enqueue() {
  current()->enqueue();
}
void CommandBuffer::commit() {
  current()->commit();
}
void CommandBuffer::waitUntilScheduled() {
  current()->wait(true);
}
void CommandBuffer::waitUntilCompleted() {
  current()->wait(false);
}
void CommandBuffer::addScheduledHandler(Handler handler) {
  current()->addHandler(std::move(handler), true);
}
void CommandBuffer::addCompletedHandler(Handler handler) {
  current()->addHandler(std::move(handler), false);
}
CommandBufferStatus CommandBuffer::status() const {
  return current()->status();
}
std::optional<CommandBufferError> CommandBuffer::error() const {
  return current()->error();
}
std::vector<std::string> CommandBuffer::logs() const {
  return current()->log()->lines();
}
double CommandBuffer::GPUStartTime() const {
  return current()->startTime();
}
double CommandBuffer::GPUEndTime() const {
  return current()->endTime();
}
void CommandBuffer::setRecordsCommandTimes(bool records) {
  submission()->setRecordsCommandTimes(records);
}
std::vector<CommandTime> CommandBuffer::commandTimes() const {
  return current()->commandTimes();
}
void CommandBuffer::append(Command command) {
  submission()->append(std::move(command));
}
void CommandBuffer::checkOpen() const {
  submission()->checkOpen();
  submission()->checkNoEncoder();
}
void CommandBuffer::checkDevice(const char* what, const std::shared_ptr<Device>& device) const {
  if (device != this->device())
    throw Error(std::string(what) + ": it is of another device than the command buffer, " +
                nameForMessages(*device) + ", expected " + nameForMessages(*this->device()));
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

RecordingGuard::RecordingGuard(CommandBuffer& commandBuffer) : submission_(commandBuffer.submission()) {
  submission_->openEncode();
  mark_ = submission_->recorded();
}

RecordingGuard::~RecordingGuard() {
  if (!submission_) return;
  submission_->rollback(mark_);
  submission_->closeEncode();
}

void RecordingGuard::keep() {
  submission_->closeEncode();
  submission_ = nullptr;
}

void CommandBuffer::throwIfFailed() {
  waitUntilCompleted();
  if (const auto failure = error()) throw Error(failure->message);
}

}  // namespace mtl
