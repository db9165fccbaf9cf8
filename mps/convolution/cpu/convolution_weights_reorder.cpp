#include "mps/convolution/cpu/convolution_weights_reorder.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace mps::detail {
namespace {

using dnnl::memory;

constexpr std::int64_t kLeastWeights = 16 * 1024;  ///< of a reorder
constexpr std::int64_t kTogether = 64;             ///< a multiple of what oneDNN's layouts keep together

}  // namespace

memory::data_type typeOf(Factors factors) {
  return factors == Factors::Bfloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::dims weightSizes(const ConvolutionProblem& problem) {
  memory::dims sizes{problem.outputChannelsPerGroup(), problem.inputChannelsPerGroup(), problem.y.kernelSize,
                     problem.x.kernelSize};
  if (problem.groups > 1) sizes.insert(sizes.begin(), problem.groups);
  return sizes;
}

/// Some channels of the parameters, which are OHWI.
/// @param part all of the problem, or some channels
memory::desc weights(const ConvolutionProblem& problem, const ConvolutionProblem& part) {
  const std::int64_t inputs = problem.inputChannelsPerGroup();
  const std::int64_t row = problem.x.kernelSize * inputs;
  const std::int64_t output = problem.y.kernelSize * row;
  memory::dims strides{output, 1, row, inputs};
  if (problem.groups > 1) strides.insert(strides.begin(), problem.outputChannelsPerGroup() * output);
  return {weightSizes(part), memory::data_type::f32, strides};
}

WeightsReorder::WeightsReorder(std::span<const Block> blocks, Direction direction)
    : toOneDnn_(direction == Direction::ToOneDnn) {
  for (const Block& block : blocks) {
    const std::size_t before = pieces_.size();
    try {
      divide(block, direction);
    } catch (const dnnl::error&) {  // a layout that keeps other numbers of channels together
      pieces_.resize(before);
      pieces_.push_back(piece(block, block.ours, block.theirs, direction));
    }
  }
}

void WeightsReorder::run(const mtl::cpu::Stream& stream, const std::byte* from, std::byte* to,
                         std::byte* scratchpads) const {
  const std::size_t step = bytesOfThread();
  stream.forEach(static_cast<std::int64_t>(pieces_.size()), kMostThreads, [&](std::int64_t i, int thread) {
    const Piece& piece = pieces_[static_cast<std::size_t>(i)];
    piece.reorder.run({{DNNL_ARG_FROM, from + (toOneDnn_ ? piece.ourBytes : piece.theirBytes)},
                       {DNNL_ARG_TO, to + (toOneDnn_ ? piece.theirBytes : piece.ourBytes)}},
                      scratchpads + step * static_cast<std::size_t>(thread));
  });
}

WeightsReorder::Piece WeightsReorder::piece(const Block& block, const memory::desc& ours,
                                            const memory::desc& theirs, Direction direction) {
  const bool adds = direction == Direction::AddedFromOneDnn;
  return {direction == Direction::ToOneDnn ? mtl::cpu::oneDnnReorder(ours, theirs, false)
                                           : mtl::cpu::oneDnnReorder(theirs, ours, adds),
          block.ourBytes, block.theirBytes};
}

void WeightsReorder::divide(const Block& block, Direction direction) {
  const std::int64_t count =
      std::accumulate(block.sizes.begin(), block.sizes.end(), std::int64_t{1}, std::multiplies<>());
  const std::int64_t outermost = block.sizes.front();
  const std::int64_t wanted = std::clamp<std::int64_t>(count / kLeastWeights, 1, kMostThreads);
  const std::int64_t together = ((outermost + wanted - 1) / wanted + kTogether - 1) / kTogether * kTogether;
  for (std::int64_t first = 0; first < outermost; first += together) {
    memory::dims sizes = block.sizes;
    sizes.front() = std::min(together, outermost - first);
    memory::dims offsets(sizes.size(), 0);
    offsets.front() = first;
    pieces_.push_back(piece(block, block.ours.submemory_desc(sizes, offsets),
                            block.theirs.submemory_desc(sizes, offsets), direction));
  }
}

std::size_t WeightsReorder::bytesOfThread() const {
  std::size_t most = 0;
  for (const Piece& piece : pieces_) most = std::max(most, piece.reorder.scratchpadBytes());
  return most;
}

}  // namespace mps::detail
