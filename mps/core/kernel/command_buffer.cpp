#include "mps/core/kernel/command_buffer.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"
#include "mtl/stream.hpp"
#include "mtl/submission.hpp"

namespace mps {

std::shared_ptr<Predicate> Predicate::create(std::shared_ptr<mtl::Buffer> buffer, std::size_t offset) {
  if (!buffer) throw Error("Predicate", "buffer", "null", "a buffer");
  if (offset % 4 != 0 || buffer->length() < 4 || offset > buffer->length() - 4)
    throw Error("Predicate", "offset", std::to_string(offset),
                "a multiple of 4 within a buffer of " + std::to_string(buffer->length()) + " bytes");
  return std::shared_ptr<Predicate>(new Predicate(std::move(buffer), offset));
}

std::shared_ptr<Predicate> Predicate::create(const std::shared_ptr<mtl::Device>& device) {
  if (!device) throw Error("Predicate", "device", "null", "a device");
  return create(device->newBuffer(sizeof(std::uint32_t)), 0);
}

CommandBuffer::CommandBuffer(std::shared_ptr<mtl::Submission> submission,
                             std::shared_ptr<CommandBuffer> wrapped)
    : mtl::CommandBuffer(std::move(submission)), wrapped_(std::move(wrapped)) {
  submission_->allowSuccessor();
}

const std::shared_ptr<mtl::Submission>& CommandBuffer::submission() const {
  return wrapped_ ? wrapped_->submission() : submission_;
}

std::shared_ptr<mtl::Submission> CommandBuffer::current() const {
  if (wrapped_) return wrapped_->current();
  const std::lock_guard lock(mutex_);
  return submission_;
}

void CommandBuffer::setPredicate(std::shared_ptr<Predicate> predicate) {
  if (predicate) checkDevice("Predicate", predicate->predicateBuffer()->device());
  predicate_ = std::move(predicate);
}

std::shared_ptr<CommandBuffer> CommandBuffer::create(const std::shared_ptr<mtl::CommandQueue>& commandQueue) {
  if (!commandQueue) throw Error("CommandBuffer", "commandQueue", "null", "a command queue");
  return std::shared_ptr<CommandBuffer>(new CommandBuffer(commandQueue->newSubmission(), nullptr));
}

std::shared_ptr<CommandBuffer> CommandBuffer::create(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  if (!commandBuffer) throw Error("CommandBuffer", "commandBuffer", "null", "a command buffer");
  return std::shared_ptr<CommandBuffer>(new CommandBuffer(
      commandBuffer->submission(), std::dynamic_pointer_cast<CommandBuffer>(commandBuffer)));
}

std::shared_ptr<mtl::CommandBuffer> CommandBuffer::rootCommandBuffer() const {
  return std::make_shared<mtl::CommandBuffer>(current());
}

void CommandBuffer::commitAndContinue() {
  if (wrapped_) return wrapped_->commitAndContinue();
  submission_->commitToContinue();
  continueWith(submission_->queue()->newSubmission());
}

void CommandBuffer::continueWith(std::shared_ptr<mtl::Submission> next) {
  if (wrapped_) return wrapped_->continueWith(std::move(next));
  next->continueFrom(*submission_);
  const std::lock_guard lock(mutex_);
  submission_.swap(next);  // the old one may go, and run what its user left there: after the lock
}

void CommandBuffer::append(mtl::Command command) {
  if (predicate_) {
    command.condition = [predicate = predicate_](mtl::Stream& stream) {
      const mtl::Memory& memory = *predicate->predicateBuffer()->memory();
      if (const auto failure = memory.failure(); !failure.empty())
        throw Error("the predicate is invalid because an earlier command failed: " + failure);
      std::uint32_t value = 0;
      stream.read(memory.address() + predicate->predicateOffset(),
                  std::as_writable_bytes(std::span(&value, 1)));
      return value != 0;
    };
  }
  mtl::CommandBuffer::append(std::move(command));
}

void HintTemporaryMemoryHighWaterMark(const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
                                      std::size_t /*bytes*/) {}

void SetHeapCacheDuration(const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/, double /*seconds*/) {}

bool SupportsMTLDevice(const std::shared_ptr<mtl::Device>& device) {
  return device != nullptr;
}

namespace {

void printDevices(std::span<const std::shared_ptr<mtl::Device>> devices) {
  for (std::size_t i = 0; i < devices.size(); ++i)
    std::fprintf(stderr, "unmetal: MPS_PREFERRED_DEVICE=%zu: %s\n", i, devices[i]->name().c_str());
}

}  // namespace

std::shared_ptr<mtl::Device> GetPreferredDevice(DeviceOptions options) {
  const auto devices = mtl::copyAllDevices();
  if (const char* choice = std::getenv("MPS_PREFERRED_DEVICE"); choice != nullptr && *choice != '\0') {
    const std::string_view text(choice);
    if (text == "-1") {
      printDevices(devices);
    } else {
      std::size_t index = devices.size();
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
      if (error != std::errc{} || end != text.data() + text.size() || index >= devices.size())
        throw Error("GetPreferredDevice", "the environment variable MPS_PREFERRED_DEVICE",
                    "\"" + std::string(text) + "\"",
                    devices.size() == 1 ? std::string("0, the only device, or -1, which prints it")
                                        : "0 to " + std::to_string(devices.size() - 1) +
                                              ", the index of a device, or -1, which prints them");
      return devices[index];
    }
  }
  const bool lowPower =
      (static_cast<std::uint64_t>(options) & static_cast<std::uint64_t>(DeviceOptions::LowPower)) != 0;
  if (!lowPower)
    for (const auto& device : devices)
      if (device->kind() != mtl::DeviceKind::CPU) return device;
  return devices.front();
}

}  // namespace mps
