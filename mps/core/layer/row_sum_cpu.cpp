#include <algorithm>
#include <array>

#include "mps/core/kernel/call.hpp"
#include "mps/core/layer/row_sum.hpp"
#include "mtl/command.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

/// Columns that are summed together.
constexpr std::int64_t kBlock = 256;
/// Values that a thread takes at least.
constexpr std::int64_t kGrainOfRows = 16384;

class RowSumPlan final : public Plan {
 public:
  explicit RowSumPlan(const RowSumProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const auto* rows = reinterpret_cast<const float*>(operands.source);
    auto* result = reinterpret_cast<float*>(operands.destination);
    const std::int64_t blocks = (problem_.count + kBlock - 1) / kBlock;
    const std::int64_t grain =
        std::max<std::int64_t>(1, kGrainOfRows / (kBlock * std::max<std::int64_t>(1, problem_.rows)));
    mtl::cpu::asCpu(stream).parallelFor(blocks, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t first = begin * kBlock; first < std::min(end * kBlock, problem_.count);
           first += kBlock) {
        const std::int64_t columns = std::min(kBlock, problem_.count - first);
        std::array<double, kBlock> sums{};
        for (std::int64_t row = 0; row < problem_.rows; ++row)
          for (std::int64_t i = 0; i < columns; ++i)
            sums[static_cast<std::size_t>(i)] += static_cast<double>(rows[row * problem_.count + first + i]);
        for (std::int64_t i = 0; i < columns; ++i)
          result[first + i] = static_cast<float>(sums[static_cast<std::size_t>(i)]);
      }
    });
  }

 private:
  RowSumProblem problem_;
};

Preparation prepareRowSum(const RowSumProblem& problem) {
  return std::make_shared<const RowSumPlan>(problem);
}

}  // namespace

std::span<const Implementation<RowSumProblem>> rowSumImplementationsCpu() {
  static constexpr std::array<Implementation<RowSumProblem>, 1> implementations{
      {{"blocks of 256 columns", prepareRowSum}}};
  return implementations;
}

void recordRowSum(mtl::CommandBuffer& commandBuffer, const std::string& label, const RowSumProblem& problem,
                  const std::shared_ptr<mtl::Memory>& rows, std::size_t rowsOffset,
                  const std::shared_ptr<mtl::Memory>& sum, std::size_t sumOffset) {
  const ChosenPlan chosen = planFor(*commandBuffer.device(), rowSumBackEnds, problem);
  Operands operands;
  operands.source = rows->address() + rowsOffset;
  operands.destination = sum->address() + sumOffset;
  mtl::Command command;
  command.label = label;
  command.reads = {rows};
  command.writes = {sum};
  command.retained = {rows, sum};
  setRun(command, chosen.plan, operands);
  commandBuffer.append(std::move(command));
}

}  // namespace mps::detail
