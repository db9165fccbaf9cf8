#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mps/convolution/convolution_problem.hpp"
#include "mtl/cpu/onednn.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {

/// What the factors of all products are rounded to before they are multiplied; sums are float32.
enum class Factors : std::uint8_t { Float32, Bfloat16 };
dnnl::memory::data_type typeOf(Factors factors);

/// Weights as oneDNN counts them, after the groups where there are several: outputs, inputs, rows, columns.
dnnl::memory::dims weightSizes(const ConvolutionProblem& problem);
/// Some channels of the parameters, which are float32 OHWI.
/// @param part all of the problem, or some channels
dnnl::memory::desc weights(const ConvolutionProblem& problem, const ConvolutionProblem& part);

/// Weights between our layout and oneDNN's, some channels of each block in each of several reorders.
class WeightsReorder {
 public:
  /// A block of channels: its weights among ours, and where they lie on either side.
  struct Block {
    dnnl::memory::dims sizes;
    dnnl::memory::desc ours;
    dnnl::memory::desc theirs;
    std::size_t ourBytes = 0;
    std::size_t theirBytes = 0;
  };
  enum class Direction : std::uint8_t { ToOneDnn, FromOneDnn, AddedFromOneDnn };

  WeightsReorder() = default;
  WeightsReorder(std::span<const Block> blocks, Direction direction);

  /// Of all threads that share a run.
  [[nodiscard]] std::size_t scratchpadBytes() const { return kMostThreads * bytesOfThread(); }
  void run(const mtl::cpu::Stream& stream, const std::byte* from, std::byte* to,
           std::byte* scratchpads) const;

 private:
  static constexpr int kMostThreads = 16;

  struct Piece {
    mtl::cpu::OneDnnPrimitive reorder;
    std::size_t ourBytes;
    std::size_t theirBytes;
  };

  static Piece piece(const Block& block, const dnnl::memory::desc& ours, const dnnl::memory::desc& theirs,
                     Direction direction);
  void divide(const Block& block, Direction direction);
  [[nodiscard]] std::size_t bytesOfThread() const;

  std::vector<Piece> pieces_;
  bool toOneDnn_ = true;
};

}  // namespace mps::detail
