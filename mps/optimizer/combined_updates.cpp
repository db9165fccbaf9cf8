#include "mps/optimizer/combined_updates.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

#include "mps/core/layer/loss_scale.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

/// What the command calls on a device.
struct Kernels {
  void (*inspect)(mtl::Stream&, std::span<const LossScaleValues>);
  void (*measure)(mtl::Stream&, std::span<const GradientNormPart>, const GradientNormOperands&);
  void (*update)(mtl::Stream&, std::span<const OptimizerStep>, std::span<const OptimizerTensor>);
};
constexpr Kernels onCpu{inspectValuesCpu, measureGradientNormCpu, updateTensorsCpu};
constexpr Kernels onCuda{UNMETAL_CUDA_LIST(inspectValuesCuda), UNMETAL_CUDA_LIST(measureGradientNormCuda),
                         UNMETAL_CUDA_LIST(updateTensorsCuda)};

}  // namespace

CombinedUpdates::CombinedUpdates(mtl::Device& device, std::shared_ptr<const void> identity,
                                 float gradientNormLimit)
    : device_(device),
      onCuda_(device.kind() == mtl::DeviceKind::CUDA),
      identity_(std::move(identity)),
      gradientNormLimit_(gradientNormLimit),
      factor_(gradientNormLimit > 0 ? device.allocate(sizeof(float)) : nullptr) {}

void CombinedUpdates::add(OptimizerStep step, OptimizerTensor tensor,
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
  if (factor_ && innermostGradients() == Gradients::OfLoss) {
    normParts_.push_back({tensor.gradient, tensor.count, step.lossScale});
    step.gradientFactor = reinterpret_cast<const float*>(factor_->address());
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

std::shared_ptr<mtl::Memory> CombinedUpdates::allocateSums() {
  auto sums = device_.allocate(std::max<std::size_t>(gradientNormSums(normParts_), 1) * sizeof(double));
  for (const auto& memory : {factor_, sums}) {
    command_.writes.push_back(memory);
    command_.retained.push_back(memory);
  }
  return sums;
}

void CombinedUpdates::record(mtl::CommandBuffer& commandBuffer) {
  if (tensors_.empty()) return;
  separate();
  // The tensors are too many for the key, so it says that these updates are no others; that is nearly always
  // so, for the numbers of each step are its own.
  static std::atomic<std::uint64_t> last{0};
  command_.replay.work = identity_;
  command_.replay.numbers[0] = ++last;
  GradientNormOperands norm;
  if (factor_)
    norm = {reinterpret_cast<double*>(allocateSums()->address()),
            reinterpret_cast<float*>(factor_->address()), static_cast<double>(gradientNormLimit_)};
  command_.run = [kernels = onCuda_ ? onCuda : onCpu, inspected = std::move(inspected_),
                  normParts = std::move(normParts_), norm, steps = std::move(steps_),
                  tensors = std::move(tensors_), rounds = std::move(rounds_)](mtl::Stream& stream) {
    kernels.inspect(stream, inspected);
    if (norm.factor != nullptr) kernels.measure(stream, normParts, norm);
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
