#include "mps/core/layer/gradient_sums.hpp"

#include <cstdint>

#include "mps/core/kernel/call.hpp"
#include "mps/core/layer/layer_update.hpp"
#include "mps/core/layer/row_sum.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {

void GradientSums::add(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const Buffers& gradients) {
  const bool isFirst = sums_.empty();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const std::size_t bytes = gradients[i]->length();
    if (isFirst) sums_.push_back(commandBuffer->device()->allocate(2 * bytes));
    const auto& rows = sums_[i];
    recordMemoryCopy(*commandBuffer, sumOfGradients, gradients[i]->memory(), 0, rows, isFirst ? 0 : bytes,
                     bytes);
    if (isFirst) continue;
    const auto sum = commandBuffer->heap()->allocate(bytes);
    const RowSumProblem problem{2, static_cast<std::int64_t>(bytes / sizeof(float))};
    recordRowSum(*commandBuffer, sumOfGradients, problem, rows, 0, sum, 0);
    recordMemoryCopy(*commandBuffer, sumOfGradients, sum, 0, rows, 0, bytes);
  }
}

void GradientSums::put(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                       const Buffers& gradients) const {
  for (std::size_t i = 0; i < sums_.size(); ++i)
    recordMemoryCopy(*commandBuffer, sumOfGradients, sums_[i], 0, gradients[i]->memory(), 0,
                     gradients[i]->length());
}

}  // namespace mps::detail
