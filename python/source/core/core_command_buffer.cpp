#include "mps/core/kernel/command_buffer.hpp"

#include <cstddef>
#include <memory>
#include <utility>

#include "mtl/buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/submission.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"
#include "python/source/binding/waiting.hpp"

namespace python {
namespace {

using mps::CommandBuffer;
using mps::Predicate;

void bindFunctions(nb::module_& module) {
  flags<mps::DeviceOptions>(module, "DeviceOptions", "Bits of get_preferred_device.")
      .value("Default", mps::DeviceOptions::Default)
      .value("LowPower", mps::DeviceOptions::LowPower, "Prefers the CPU.")
      .value("SkipRemovable", mps::DeviceOptions::SkipRemovable);
  module.def("get_preferred_device", &mps::GetPreferredDevice, "options"_a = mps::DeviceOptions::Default,
             "The device to use by default: a GPU where there is one, else the CPU. The environment variable "
             "MPS_PREFERRED_DEVICE, an index into mtl.copy_all_devices(), overrides; -1 prints "
             "them to stderr.");
  module.def("supports_mtl_device", &mps::SupportsMTLDevice, "device"_a.none(),
             "Whether kernels run on a device: every device there is; False for None.");
  module.def("hint_temporary_memory_high_water_mark", &mps::HintTemporaryMemoryHighWaterMark,
             "command_buffer"_a, "bytes"_a,
             "A hint how many bytes of temporary memory will be alive at once; nothing is done.");
  module.def("set_heap_cache_duration", &mps::SetHeapCacheDuration, "command_buffer"_a, "seconds"_a,
             "A hint how long idle heaps are kept; nothing is done.");
}

/// As CommandBuffer::commitAndContinue, whose wait in the middle nothing could end.
void commitAndContinue(CommandBuffer& self) {
  {
    const LockReleased released;
    self.submission()->commitToContinue();
  }
  auto next = newSubmission(*self.submission()->queue());
  const LockReleased released;
  self.continueWith(std::move(next));
}

}  // namespace

void bindCoreCommandBuffer(nb::module_& module) {
  bindFunctions(module);
  nb::class_<Predicate>(
      module, "Predicate",
      "Decides on the device whether work runs: a uint32 in a buffer, read when the work is due. 0 skips "
      "it and leaves destinations as they were; read counts fall all the same.")
      .def(nb::new_([](const std::shared_ptr<mtl::Buffer>& buffer, std::size_t offset) {
             return Predicate::create(buffer, offset);
           }),
           "buffer"_a, "offset"_a,
           "`offset`: in bytes, a multiple of 4. Raises Error for another one or one outside the buffer.")
      .def(nb::new_([](const std::shared_ptr<mtl::Device>& device) { return Predicate::create(device); }),
           "device"_a, "With 4 bytes of its own, 0 at first.")
      .def_prop_ro("predicate_buffer", &Predicate::predicateBuffer, "Where the number is.")
      .def_prop_ro("predicate_offset", &Predicate::predicateOffset, "Bytes before it.");

  nb::class_<CommandBuffer, mtl::CommandBuffer> buffer(
      module, "CommandBuffer",
      "A command buffer that can be committed piece by piece: commit_and_continue commits what was encoded "
      "and goes on with "
      "a new one of the same queue; temporary images and states stay usable. Handlers fire with the piece "
      "that they were "
      "added to; status, error and the waits speak of the last piece.");
  buffer
      .def(nb::new_([](mtl::CommandQueue& queue) {
             return CommandBuffer::create(std::make_shared<mtl::CommandBuffer>(newSubmission(queue)));
           }),
           "command_queue"_a,
           "With a new command buffer of that queue. Waits for room in it as command_buffer() does.")
      .def(nb::new_([](const CommandBufferPointer& root) { return CommandBuffer::create(root); }),
           "command_buffer"_a, "Around that command buffer.")
      .def_prop_ro("root_command_buffer", &CommandBuffer::rootCommandBuffer,
                   "The root as it is now; keep it to wait for a piece.")
      .def("commit_and_continue", &commitAndContinue,
           "Commits what was encoded so far and continues, as soon as the queue has room. Where Ctrl-C ends "
           "that wait, what was encoded is committed, and no more can be.");
  buffer.def("__enter__", [](const std::shared_ptr<CommandBuffer>& self) { return self; });
  buffer.def_prop_rw("predicate", &CommandBuffer::predicate, &CommandBuffer::setPredicate,
                     nb::for_setter("predicate"_a.none()),
                     "Applies to what is encoded from now on through this wrapper; None for none.");
}

}  // namespace python
