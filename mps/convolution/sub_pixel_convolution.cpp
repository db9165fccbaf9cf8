#include "mps/convolution/sub_pixel_convolution.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "mps/convolution/scratch_layout.hpp"

namespace mps::detail {
namespace {

/// A copy of one place of all blocks, or of one row of all blocks.
struct BlockCopy {
  std::shared_ptr<const Plan> plan;
  std::int64_t firstSource = 0;  ///< bytes
  std::int64_t firstDestination = 0;
};

class BlockShuffle final : public Plan {
 public:
  BlockShuffle(const SubPixelConvolutionProblem& problem, std::shared_ptr<const Plan> convolution,
               std::vector<BlockCopy> copies)
      : convolution_(std::move(convolution)),
        copies_(std::move(copies)),
        result_(scratch_.reserve(static_cast<std::size_t>(problem.convolution.destination.bytes()))),
        rest_(scratch_.reserve(convolution_->scratchBytes())) {}

  [[nodiscard]] std::size_t scratchBytes() const override { return scratch_.bytes(); }
  [[nodiscard]] std::string describe() const override { return convolution_->describe(); }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    Operands dense = operands;
    dense.destination = operands.scratch + result_;
    dense.scratch = operands.scratch + rest_;
    convolution_->run(stream, dense);
    for (const BlockCopy& one : copies_) {
      Operands copied;
      copied.source = dense.destination + one.firstSource;
      copied.destination = operands.destination + one.firstDestination;
      one.plan->run(stream, copied);
    }
  }

 private:
  std::shared_ptr<const Plan> convolution_;
  std::vector<BlockCopy> copies_;
  ScratchLayout scratch_;
  std::size_t result_;
  std::size_t rest_;
};

/// The copy that fills every r-th pixel of every r-th row, from (firstX, firstY) on, or every r-th row wholly.
TensorCopyProblem copyOf(const SubPixelConvolutionProblem& problem, std::int64_t firstX, std::int64_t firstY,
                         bool wholeRows) {
  const std::int64_t r = problem.scaleFactor;
  TensorCopyProblem copy;
  copy.source = problem.convolution.destination;
  copy.destination = problem.destination;
  TensorShape& to = copy.destination;
  to.height = (to.height - firstY + r - 1) / r;
  to.width = (to.width - firstX + r - 1) / r;
  to.rowStride *= r;
  to.pixelStride *= r;
  if (wholeRows) to.channels *= r;
  copy.source.height = to.height;
  copy.source.width = to.width;
  copy.source.channels = to.channels;
  return copy;
}

Preparation prepareOnCpu(const SubPixelConvolutionProblem& problem) {
  return prepareSubPixelConvolution(problem, convolutionImplementationsCpu(), tensorCopyImplementationsCpu());
}

}  // namespace

std::string SubPixelConvolutionProblem::describe() const {
  return convolution.describe() + ", sub-pixels of " + std::to_string(scaleFactor) + "x" +
         std::to_string(scaleFactor) + " " + destination.describe();
}

Preparation prepareSubPixelConvolution(const SubPixelConvolutionProblem& problem,
                                       std::span<const Implementation<ConvolutionProblem>> convolutions,
                                       std::span<const Implementation<TensorCopyProblem>> copies) {
  const std::int64_t r = problem.scaleFactor;
  const TensorShape& to = problem.destination;
  const auto size = static_cast<std::int64_t>(bytesPerChannel(to.format));
  // A row of a block is one run where its pixels are neighbours in both tensors.
  const bool wholeRows = to.pixelStride == to.channels && to.width % r == 0;
  std::vector<BlockCopy> blocks;
  for (std::int64_t y = 0; y < r && y < to.height; ++y)
    for (std::int64_t x = 0; x < (wholeRows ? 1 : r) && x < to.width; ++x)
      blocks.push_back({preparePlan(copies, copyOf(problem, x, y, wholeRows)).plan,
                        (r * y + x) * to.channels * size, to.offset(0, y, x, 0) * size});
  return std::make_shared<const BlockShuffle>(problem, preparePlan(convolutions, problem.convolution).plan,
                                              std::move(blocks));
}

std::span<const Implementation<SubPixelConvolutionProblem>> subPixelConvolutionImplementationsCpu() {
  static constexpr Implementation<SubPixelConvolutionProblem> implementations[] = {
      {kBlockShuffle, prepareOnCpu}};
  return implementations;
}

}  // namespace mps::detail
