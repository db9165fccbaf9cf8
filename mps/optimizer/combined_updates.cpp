#include "mps/optimizer/combined_updates.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

#include "mps/core/loss_scale.hpp"
#include "mtl/buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

thread_local CombinedUpdates* currentUpdates = nullptr;

/// What the command calls on a device.
struct Kernels {
  void (*inspect)(mtl::Stream&, std::span<const LossScaleValues>);
  void (*update)(mtl::Stream&, std::span<const OptimizerStep>, std::span<const OptimizerTensor>);
};
constexpr Kernels onCpu{inspectValuesCpu, updateTensorsCpu};
constexpr Kernels onCuda{UNMETAL_CUDA_LIST(inspectValuesCuda), UNMETAL_CUDA_LIST(updateTensorsCuda)};

}  // namespace

CombinedUpdates::CombinedUpdates(const mtl::Device& device, std::shared_ptr<const void> identity)
    : onCuda_(device.kind() == mtl::DeviceKind::CUDA), identity_(std::move(identity)) {}

CombinedUpdates::Scope::Scope(CombinedUpdates& updates)
    : previous_(std::exchange(currentUpdates, &updates)) {}

CombinedUpdates::Scope::~Scope() {
  currentUpdates = previous_;
}

CombinedUpdates* CombinedUpdates::current() {
  return currentUpdates;
}

void CombinedUpdates::add(const OptimizerStep& step, OptimizerTensor tensor,
                          const std::shared_ptr<LossScale>& lossScale, mtl::Command command) {
  if (lossScale) {
    const auto& numbers = lossScale->numbers()->memory();
    inspected_.push_back(
        {tensor.gradient, tensor.count, reinterpret_cast<LossScaleNumbers*>(numbers->address())});
    if (std::ranges::find(scales_, lossScale) == scales_.end()) {
      scales_.push_back(lossScale);
      command_.writes.push_back(numbers);
    }
  }
  if (steps_.empty() || !(steps_.back() == step)) steps_.push_back(step);
  tensor.step = steps_.size() - 1;
  tensors_.push_back(tensor);
  if (command_.label.empty()) command_.label = std::move(command.label);
  const auto take = [](auto& from, auto& to) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  take(command.reads, command_.reads);
  take(command.writes, command_.writes);
  take(command.retained, command_.retained);
}

void CombinedUpdates::record(mtl::CommandBuffer& commandBuffer) {
  if (tensors_.empty()) return;
  separate();
  // The tensors are too many for the key, so it says that these updates are no others; that is nearly always
  // so, for the numbers of each step are its own.
  static std::atomic<std::uint64_t> last{0};
  command_.replay.work = identity_;
  command_.replay.numbers[0] = ++last;
  command_.run = [kernels = onCuda_ ? onCuda : onCpu, inspected = std::move(inspected_),
                  steps = std::move(steps_), tensors = std::move(tensors_),
                  rounds = std::move(rounds_)](mtl::Stream& stream) {
    kernels.inspect(stream, inspected);
    std::size_t begin = 0;
    for (const std::size_t end : rounds) {
      if (begin < end) kernels.update(stream, steps, std::span(tensors).subspan(begin, end - begin));
      begin = end;
    }
  };
  commandBuffer.append(std::move(command_));
  for (const auto& scale : scales_) scale->update(commandBuffer);
}

}  // namespace mps::detail
