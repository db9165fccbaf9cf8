#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "mps/core/types/error.hpp"
#include "mtl/blit_command_encoder.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/submission.hpp"
#include "mtl/types.hpp"
#include "python/source/arrays/arrays.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"
#include "python/source/binding/interpreter.hpp"
#include "python/source/binding/waiting.hpp"

namespace python {
namespace {

using BufferPointer = std::shared_ptr<mtl::Buffer>;

void bindValues(nb::module_& module) {
  nb::class_<mtl::Origin>(module, "Origin", "A pixel's place (x, y) and the index z of an image.")
      .def(nb::init<std::size_t, std::size_t, std::size_t>(), "x"_a = 0, "y"_a = 0, "z"_a = 0)
      .def_rw("x", &mtl::Origin::x, "Column.")
      .def_rw("y", &mtl::Origin::y, "Row.")
      .def_rw("z", &mtl::Origin::z, "Image of a stack.");
  nb::class_<mtl::Size>(module, "Size", "Pixels in both directions and a number of images.")
      .def(nb::init<std::size_t, std::size_t, std::size_t>(), "width"_a = 0, "height"_a = 0, "depth"_a = 0)
      .def_rw("width", &mtl::Size::width, "Columns.")
      .def_rw("height", &mtl::Size::height, "Rows.")
      .def_rw("depth", &mtl::Size::depth, "Images of a stack.");
  nb::class_<mtl::Region>(module, "Region", "A rectangle of pixels in some images of a stack.")
      .def(nb::init<mtl::Origin, mtl::Size>(), "origin"_a = mtl::Origin{}, "size"_a = mtl::Size{})
      .def_rw("origin", &mtl::Region::origin, "Its first pixel.")
      .def_rw("size", &mtl::Region::size, "How far it goes.");
}

void bindEnumerations(nb::module_& module) {
  nb::enum_<mtl::DeviceKind>(module, "DeviceKind", "What a device is.")
      .value("CPU", mtl::DeviceKind::CPU)
      .value("CUDA", mtl::DeviceKind::CUDA);
  nb::enum_<mtl::StorageMode>(module, "StorageMode",
                              "Where a buffer's bytes live; Private hides them from the host.")
      .value("Shared", mtl::StorageMode::Shared)
      .value("Managed", mtl::StorageMode::Managed)
      .value("Private", mtl::StorageMode::Private)
      .value("Memoryless", mtl::StorageMode::Memoryless);
  nb::enum_<mtl::CPUCacheMode>(module, "CPUCacheMode", "Kept for ported code, without effect.")
      .value("DefaultCache", mtl::CPUCacheMode::DefaultCache)
      .value("WriteCombined", mtl::CPUCacheMode::WriteCombined);
  nb::enum_<mtl::ResourceOptions>(module, "ResourceOptions", "The storage mode of a new buffer.")
      .value("StorageModeShared", mtl::ResourceOptions::StorageModeShared)
      .value("StorageModeManaged", mtl::ResourceOptions::StorageModeManaged)
      .value("StorageModePrivate", mtl::ResourceOptions::StorageModePrivate);
  nb::enum_<mtl::CommandBufferStatus>(module, "CommandBufferStatus", "How far a command buffer is.")
      .value("NotEnqueued", mtl::CommandBufferStatus::NotEnqueued)
      .value("Enqueued", mtl::CommandBufferStatus::Enqueued)
      .value("Committed", mtl::CommandBufferStatus::Committed)
      .value("Scheduled", mtl::CommandBufferStatus::Scheduled)
      .value("Completed", mtl::CommandBufferStatus::Completed)
      .value("Error", mtl::CommandBufferStatus::Error);
  nb::enum_<mtl::CommandBufferErrorCode>(module, "CommandBufferErrorCode", "Why a command buffer stopped.")
      .value("None_", mtl::CommandBufferErrorCode::None)
      .value("Internal", mtl::CommandBufferErrorCode::Internal)
      .value("Timeout", mtl::CommandBufferErrorCode::Timeout)
      .value("PageFault", mtl::CommandBufferErrorCode::PageFault)
      .value("AccessRevoked", mtl::CommandBufferErrorCode::AccessRevoked)
      .value("NotPermitted", mtl::CommandBufferErrorCode::NotPermitted)
      .value("OutOfMemory", mtl::CommandBufferErrorCode::OutOfMemory)
      .value("InvalidResource", mtl::CommandBufferErrorCode::InvalidResource)
      .value("Memoryless", mtl::CommandBufferErrorCode::Memoryless)
      .value("DeviceRemoved", mtl::CommandBufferErrorCode::DeviceRemoved);
}

/// The library's sentence, as an error about an argument. @throws mps::Error
template <class Count>
void checkCount(const char* argument, Count count) {
  if (count < 1) throw mps::Error("Device", argument, std::to_string(count), "at least 1");
}

void bindDevice(nb::module_& module) {
  nb::class_<mtl::Device> device(
      module, "Device",
      "What runs kernels: the CPU, or a GPU where the build and the machine have one (Metal's MTLDevice).\n\n"
      "Made by create_system_default_device, copy_all_devices, device_named and new_cpu_device. Objects made "
      "on "
      "one device are never used with another; the encode that tries raises. Thread safe.");
  readOnly(device, "kind", &mtl::Device::kind, "CPU or CUDA.");
  readOnly(device, "name", &mtl::Device::name, "\"cpu\" or \"cuda:0\"; the word that device_named takes.");
  readOnly(device, "description", &mtl::Device::description, "Name of the hardware.");
  readOnly(device, "missing_libraries", &mtl::Device::missingLibraries,
           "A sentence for each library that kernels of a GPU would use and that is not found.");
  readOnly(device, "recommended_max_working_set_size", &mtl::Device::recommendedMaxWorkingSetSize,
           "Bytes of memory that the device can use well.");
  readOnly(device, "current_allocated_size", &mtl::Device::currentAllocatedSize,
           "Bytes that objects of this device hold now, recycled blocks not counted.");
  readOnly(device, "system_allocation_count", &mtl::Device::systemAllocationCount,
           "How often memory was asked from the system rather than recycled; constant in a steady state.");
  property(
      device, "thread_count", &mtl::Device::threadCount,
      [](mtl::Device& self, int count) {
        checkCount("threadCount", count);
        self.setThreadCount(count);
      },
      "Threads that share a kernel on the CPU; 1 on a GPU, where it cannot be set. Takes effect for "
      "work that "
      "starts later. Results of reductions may differ in the last bit between counts.");
  device
      .def(
          "new_command_queue",
          [](mtl::Device& self, std::size_t maxCommandBufferCount) {
            checkCount("maxCommandBufferCount", maxCommandBufferCount);
            return self.newCommandQueue(maxCommandBufferCount);
          },
          "max_command_buffer_count"_a = 64,
          "A serial queue. `max_command_buffer_count`, at least 1: how many uncompleted buffers it allows "
          "before "
          "command_buffer blocks.")
      .def(
          "new_buffer",
          [](mtl::Device& self, std::size_t length, mtl::ResourceOptions options) {
            return self.newBuffer(length, options);
          },
          "length"_a, "options"_a = mtl::ResourceOptions::StorageModeManaged,
          "A buffer of `length` zero bytes.")
      .def(
          "new_buffer",
          [](mtl::Device& self, const HostArray& bytes, mtl::ResourceOptions options) {
            return self.newBuffer(bytesOf(bytes), options);
          },
          "bytes"_a, "options"_a = mtl::ResourceOptions::StorageModeManaged,
          "A buffer with a copy of an array's bytes.")
      .def("__repr__", [](const mtl::Device& self) {
        return "<Device " + self.name() + ": " + self.description() + ">";
      });

  module.def("create_system_default_device", &mtl::createSystemDefaultDevice,
             "The CPU. (A GPU is asked for by name, so that results do not change from machine to machine.)");
  module.def("copy_all_devices", &mtl::copyAllDevices,
             "Every device of this machine that this build can use; the CPU first.");
  module.def("device_named", &mtl::deviceNamed, "name"_a,
             "\"cpu\", \"cuda\" (the same as \"cuda:0\") or \"cuda:N\". Raises Error in one sentence that "
             "says what is "
             "missing: the build, the driver, the device.");
  module.def(
      "new_cpu_device",
      [](int threadCount) {
        checkCount("threadCount", threadCount);
        return mtl::newCPUDevice(threadCount);
      },
      "thread_count"_a,
      "A CPU device of its own, with its own executing thread, beside the default one. `thread_count`, at "
      "least 1: threads that share a kernel.");
}

/// The host's bytes as an array that keeps the buffer alive; None for Private storage.
nb::object contents(const BufferPointer& self) {
  std::byte* bytes = self->contents();
  if (bytes == nullptr && self->storageMode() == mtl::StorageMode::Private) return nb::none();
  return nb::cast(nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(bytes, {self->length()}, nb::cast(self)));
}

void bindBuffers(nb::module_& module) {
  nb::class_<mtl::Buffer> buffer(module, "Buffer",
                                 "Linear memory that host and device share (Metal's MTLBuffer). Made by "
                                 "Device.new_buffer.");
  readOnly(buffer, "device", &mtl::Buffer::device, "Where it was made.");
  readOnly(buffer, "length", &mtl::Buffer::length, "Bytes.");
  readOnly(buffer, "storage_mode", &mtl::Buffer::storageMode, "Private hides the bytes from `contents`.");
  property(buffer, "label", &mtl::Buffer::label, &mtl::Buffer::setLabel, "For people; empty by default.");
  readOnly(buffer, "contents", &contents,
           "The host's bytes, a NumPy array of uint8 that shares the buffer's memory (`.view(dtype)` gives "
           "elements of another type); None for Private storage. Device results show after synchronize and "
           "completion; on the CPU at once.");
  buffer.def("__len__", &mtl::Buffer::length)
      .def("did_modify_range", &mtl::Buffer::didModifyRange, "offset"_a, "length"_a,
           "The host wrote contents[offset:offset + length]: later commands read the new bytes. Raises Error "
           "when "
           "the range leaves the buffer.")
      .def("synchronize", &mtl::Buffer::synchronize, "command_buffer"_a, Released(),
           "Records the copy that makes device results visible in `contents`.");

  nb::class_<mtl::BlitCommandEncoder>(module, "BlitCommandEncoder",
                                      "Records copies and fills of buffers (Metal's MTLBlitCommandEncoder). "
                                      "While it is open, kernels cannot be "
                                      "encoded to its command buffer, nor can that be committed. In a `with` "
                                      "statement it ends with the block.")
      .def("synchronize_resource", &mtl::BlitCommandEncoder::synchronizeResource, "buffer"_a,
           "Device results of a buffer become visible in its `contents`.")
      .def("copy_from_buffer", &mtl::BlitCommandEncoder::copyFromBuffer, "source"_a, "source_offset"_a,
           "destination"_a, "destination_offset"_a, "size"_a,
           "Copies `size` bytes. Raises Error when a range leaves its buffer, and when the two overlap.")
      .def("fill_buffer", &mtl::BlitCommandEncoder::fillBuffer, "buffer"_a, "offset"_a, "length"_a, "value"_a,
           "Each byte of the range becomes `value`. Raises Error when the range leaves the buffer.")
      .def("end_encoding", &mtl::BlitCommandEncoder::endEncoding, "Nothing can be recorded any more.")
      .def("__enter__", [](const std::shared_ptr<mtl::BlitCommandEncoder>& self) { return self; })
      .def(
          "__exit__",
          [](mtl::BlitCommandEncoder& self, const nb::handle&, const nb::handle&, const nb::handle&) {
            self.endEncoding();
          },
          "type"_a.none(), "value"_a.none(), "traceback"_a.none(), "Ends the encoding.");
}

using Handler = std::function<void(const CommandBufferPointer&)>;

/// The library calls it on the queue's handler thread.
mtl::CommandBuffer::Handler handlerOf(Handler handler) {
  return [held = heldForLibrary(std::move(handler))](mtl::CommandBuffer& buffer) {
    const auto own = std::make_shared<mtl::CommandBuffer>(buffer.submission());
    if (const Attached attached; attached) (*held)(own);
  };
}

void wait(const mtl::CommandBuffer& self, bool scheduledOnly) {
  const std::shared_ptr<mtl::Submission> submission = self.current();
  waitInSlices([&](std::chrono::milliseconds most) { return submission->wait(scheduledOnly, most); });
}

void throwIfFailed(mtl::CommandBuffer& self) {
  wait(self, false);
  self.throwIfFailed();
}

/// The end of a `with` block: commit and wait, unless an exception leaves the block.
void finish(mtl::CommandBuffer& self, const nb::handle& exceptionType) {
  if (!exceptionType.is_none()) return;
  {
    const LockReleased released;
    if (self.status() < mtl::CommandBufferStatus::Committed) self.commit();
  }
  throwIfFailed(self);
}

void bindCommandBuffers(nb::module_& module) {
  nb::class_<mtl::CommandBufferError>(module, "CommandBufferError", "Why a command buffer stopped.")
      .def_ro("code", &mtl::CommandBufferError::code, "The kind of the error.")
      .def_ro("message", &mtl::CommandBufferError::message, "A sentence; begins with the command's label.");

  nb::class_<mtl::CommandQueue> queue(
      module, "CommandQueue",
      "Runs command buffers one after the other, in the order in which they were enqueued (Metal's "
      "MTLCommandQueue). Made by Device.new_command_queue. Queues are not ordered among each other. Thread "
      "safe.");
  readOnly(queue, "device", &mtl::CommandQueue::device, "Where it runs.");
  property(queue, "label", &mtl::CommandQueue::label, &mtl::CommandQueue::setLabel,
           "For people; empty by default.");
  queue.def(
      "command_buffer",
      [](mtl::CommandQueue& self) { return std::make_shared<mtl::CommandBuffer>(newSubmission(self)); },
      "A new command buffer. Blocks while max_command_buffer_count buffers are made and not completed; "
      "Ctrl-C ends that.");

  nb::class_<mtl::CommandTime>(module, "CommandTime", "When one command of a buffer was at work.")
      .def_ro("label", &mtl::CommandTime::label, "Class and label of the kernel.")
      .def_ro("start", &mtl::CommandTime::start, "Seconds of the clock of gpu_start_time.")
      .def_ro("end", &mtl::CommandTime::end, "Seconds of the clock of gpu_start_time.")
      .def_ro("bytes", &mtl::CommandTime::bytes, "Of the memory that it reads and writes, each once.")
      .def_ro("operations", &mtl::CommandTime::operations,
              "Multiplications and additions of convolutions and matrix products; 0 of others.");

  nb::class_<mtl::CommandBuffer> buffer(
      module, "CommandBuffer",
      "A list of recorded work (Metal's MTLCommandBuffer). Made by CommandQueue.command_buffer.\n\n"
      "    with queue.command_buffer() as command_buffer:\n"
      "        result = kernel.encode(command_buffer, image)\n\n"
      "Encoding records; nothing runs before commit(). A `with` block commits at its end, waits and raises "
      "Error when a "
      "command failed; when an exception leaves the block nothing is committed. Ctrl-C ends waits; the work "
      "goes on. Encode from one thread at a "
      "time; "
      "the other members are thread safe.");
  readOnly(buffer, "device", &mtl::CommandBuffer::device, "Where it runs.");
  readOnly(buffer, "command_queue", &mtl::CommandBuffer::commandQueue, "The queue that made it.");
  property(buffer, "label", &mtl::CommandBuffer::label, &mtl::CommandBuffer::setLabel,
           "For people; empty by default.");
  readOnly(buffer, "status", &mtl::CommandBuffer::status, "How far it is.");
  readOnly(buffer, "error", &mtl::CommandBuffer::error,
           "A CommandBufferError when the status is Error, else None.");
  readOnly(buffer, "logs", &mtl::CommandBuffer::logs,
           "What is no error and yet worth a look, such as a temporary image that was let go before anybody "
           "read it: "
           "one sentence each, the first 100.");
  readOnly(buffer, "gpu_start_time", &mtl::CommandBuffer::GPUStartTime,
           "Seconds of a steady clock; 0 until known.");
  readOnly(buffer, "gpu_end_time", &mtl::CommandBuffer::GPUEndTime,
           "Seconds of a steady clock; 0 until known.");
  readOnly(buffer, "command_times", &mtl::CommandBuffer::commandTimes,
           "A list of CommandTime in the order in which the commands ran. Empty unless they are recorded, "
           "until the buffer has "
           "completed, and when it has failed.");
  buffer
      .def("set_records_command_times", &mtl::CommandBuffer::setRecordsCommandTimes, "records"_a,
           "Whether the device notes when each command begins and ends. False. A GPU then runs the commands "
           "one by one. Raises "
           "Error after commit.")
      .def("blit_command_encoder", &mtl::CommandBuffer::blitCommandEncoder,
           "Copies and fills of buffers, until its end_encoding. Raises Error after commit, and while "
           "another is open.")
      .def("enqueue", &mtl::CommandBuffer::enqueue, Released(),
           "Reserves the place in the queue. Later calls have no effect.")
      .def("commit", &mtl::CommandBuffer::commit, Released(),
           "Hands the buffer to its queue. Raises Error on a second call, and while an encoder is open.")
      .def(
          "wait_until_scheduled", [](const mtl::CommandBuffer& self) { wait(self, true); },
          "Returns when the buffer was handed to the device and its scheduled handlers have run. Raises "
          "Error before "
          "commit.")
      .def(
          "wait_until_completed", [](const mtl::CommandBuffer& self) { wait(self, false); },
          "Returns when the buffer has run and its completed handlers have run. Does not raise for a failed "
          "buffer: see "
          "`error`. Raises Error before commit, and inside a completed handler of this buffer.")
      .def("throw_if_failed", &throwIfFailed,
           "Waits and raises Error with the message of `error`, if there is one.")
      .def(
          "add_scheduled_handler",
          [](mtl::CommandBuffer& self, Handler handler) {
            self.addScheduledHandler(handlerOf(std::move(handler)));
          },
          "handler"_a,
          "Calls handler(command_buffer) on the queue's handler thread once the buffer was handed to the "
          "device. Raises Error "
          "after commit.")
      .def(
          "add_completed_handler",
          [](mtl::CommandBuffer& self, Handler handler) {
            self.addCompletedHandler(handlerOf(std::move(handler)));
          },
          "handler"_a,
          "Calls handler(command_buffer) on the queue's handler thread once the buffer has run, also after "
          "an error. "
          "Handlers run in the order in which they were added and may wait for a later buffer. What a "
          "handler raises is "
          "reported in `error` if that was still empty. Handlers of work that outlives the interpreter are "
          "not called. "
          "Raises Error after commit.")
      .def("__enter__", [](const CommandBufferPointer& self) { return self; })
      .def(
          "__exit__",
          [](mtl::CommandBuffer& self, const nb::handle& type, const nb::handle&, const nb::handle&) {
            finish(self, type);
          },
          "type"_a.none(), "value"_a.none(), "traceback"_a.none(),
          "Commits, waits and raises Error when a command failed; nothing when an exception leaves the "
          "block.");
}

}  // namespace

void bindMtl(nb::module_& module) {
  bindEnumerations(module);
  bindValues(module);
  bindDevice(module);
  bindBuffers(module);
  bindCommandBuffers(module);
}

}  // namespace python
