#include "mps/distributed/joint_gather.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "mps/distributed/communicator.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

/// Memory for the rows of a queue's gathers: they run one after the other. It stays, so that a step has the same addresses
/// each time and a device can replay it.
class RowMemory {
 public:
  static std::shared_ptr<mtl::Memory> of(const std::shared_ptr<mtl::CommandQueue>& queue, mtl::Device& device,
                                         std::size_t bytes) {
    static RowMemory& all = *new RowMemory;
    const std::lock_guard lock(all.mutex_);
    std::erase_if(all.entries_, [](const Entry& entry) { return entry.queue.expired(); });
    auto found =
        std::ranges::find_if(all.entries_, [&](const Entry& entry) { return entry.queue.lock() == queue; });
    if (found == all.entries_.end()) found = all.entries_.insert(found, {queue, nullptr});
    // What is smaller lives on until the commands that use it have run.
    if (!found->memory || found->memory->length() < bytes) found->memory = device.allocate(bytes);
    return found->memory;
  }

 private:
  struct Entry {
    std::weak_ptr<mtl::CommandQueue> queue;
    std::shared_ptr<mtl::Memory> memory;
  };
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace

JointGather::JointGather(std::shared_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)) {}

void JointGather::add(GatheredRow row) {
  rows_.push_back(std::move(row));
}

void JointGather::record(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  if (rows_.empty()) return;
  std::size_t length = 0;
  for (const GatheredRow& row : rows_) length += row.length;
  const auto& device = communicator_->device();
  const std::size_t bytes = length * sizeof(double);
  const std::size_t bytesOfAll = bytes * static_cast<std::size_t>(communicator_->size());
  const std::size_t placeOfAll =
      (bytes + mtl::Heap::alignment - 1) / mtl::Heap::alignment * mtl::Heap::alignment;
  const auto memory = RowMemory::of(commandBuffer->commandQueue(), *device, placeOfAll + bytesOfAll);
  const auto part = [&](std::size_t offset, std::size_t count) {
    return std::make_shared<mtl::Buffer>(device, std::make_shared<mtl::MemoryPart>(memory, offset, count),
                                         mtl::StorageMode::Private);
  };
  const auto own = part(0, bytes);
  const auto all = part(placeOfAll, bytesOfAll);
  std::size_t place = 0;
  for (const GatheredRow& row : rows_) {
    row.write(own->memory(), place * sizeof(double));
    place += row.length;
  }
  communicator_->allGather(commandBuffer, own, all);
  place = 0;
  for (const GatheredRow& row : rows_) {
    row.read(all->memory(), place * sizeof(double), length);
    place += row.length;
  }
  rows_.clear();
}

}  // namespace mps::detail
