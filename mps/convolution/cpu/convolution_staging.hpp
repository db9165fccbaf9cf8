#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mps/convolution/convolution_problem.hpp"
#include "mps/convolution/scratch_layout.hpp"
#include "mtl/cpu/stream.hpp"

/// Between the tensors of a problem (any format, any strides, taps outside the image) and the dense float32
/// arrays that the CPU implementations compute on. Converting costs one pass over a tensor; where a tensor is
/// dense float32 already, nothing is copied.
namespace mps::detail {

/// Which row (column) of a tensor each row (column) of its dense copy holds.
class AxisMap {
 public:
  static constexpr std::int64_t kZero = -1;  ///< the copy holds zeros here

  /// The tensor as it is.
  static AxisMap identity(std::int64_t size);
  /// Everything from the first tap of the first window to the last tap of the last one: outside of the tensor
  /// zeros or, when clamped, its edge; what no window covers is missing. A convolution of the copy needs no
  /// padding.
  static AxisMap coverage(const WindowAxis& axis, ImageEdgeMode edgeMode);

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(coordinates_.size()); }
  [[nodiscard]] std::int64_t operator[](std::int64_t i) const {
    return coordinates_[static_cast<std::size_t>(i)];
  }
  [[nodiscard]] std::span<const std::int64_t> coordinates() const { return coordinates_; }
  [[nodiscard]] bool isIdentity() const { return identity_; }

  struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  /// The copies of a row (column): they are neighbours. Empty where there is none.
  [[nodiscard]] Range copiesOf(std::int64_t coordinate) const {
    return copies_[static_cast<std::size_t>(coordinate)];
  }

 private:
  AxisMap(std::vector<std::int64_t> coordinates, std::int64_t tensorSize);

  std::vector<std::int64_t> coordinates_;
  std::vector<Range> copies_;
  bool identity_ = false;
};

/// Row y of an image, as dense float32 pixels.
void loadImageRow(const TensorShape& tensor, const std::byte* memory, std::int64_t image, std::int64_t y,
                  float* to);
/// The inverse, with the last steps of a result: the neuron, computed in `row`, the sum with what the tensor
/// holds when accumulating (float32), and one rounding.
void storeImageRow(const TensorShape& tensor, const NNNeuronDescriptor& neuron, float* row, std::byte* memory,
                   std::int64_t image, std::int64_t y, bool accumulate);

/// A dense float32 copy of a source or gradient, or the tensor itself when it is that already.
class StagedInput {
 public:
  StagedInput() = default;
  StagedInput(const TensorShape& tensor, AxisMap rows, AxisMap columns, ScratchLayout& scratch);
  StagedInput(const TensorShape& tensor, ScratchLayout& scratch);

  /// Address of the dense array, filled.
  const float* load(mtl::cpu::Stream& stream, const std::byte* tensor, std::byte* scratch) const;

 private:
  TensorShape tensor_;
  AxisMap rows_ = AxisMap::identity(0);
  AxisMap columns_ = AxisMap::identity(0);
  bool copied_ = false;
  std::size_t offset_ = 0;
};

/// A dense float32 array for a result, and the last steps of its way to the destination: copies of one pixel
/// are added up, then the bias, the neuron, the sum with what the destination held, and one rounding.
class StagedOutput {
 public:
  StagedOutput() = default;
  /// @param problem its destination and neuron are used, and whether it accumulates.
  StagedOutput(const ConvolutionProblem& problem, AxisMap rows, AxisMap columns, ScratchLayout& scratch);
  StagedOutput(const ConvolutionProblem& problem, ScratchLayout& scratch);

  /// Where the dense result, of the maps' size, is to be written: the destination itself where possible.
  [[nodiscard]] float* target(const Operands& operands) const;
  /// @param bias one number for each channel, or null.
  void store(mtl::cpu::Stream& stream, const Operands& operands, const float* bias) const;

 private:
  /// The result without copies, of the destination's size.
  [[nodiscard]] float* dense(const Operands& operands) const;
  void fold(mtl::cpu::Stream& stream, const float* from, float* to) const;

  TensorShape tensor_;
  NNNeuronDescriptor neuron_;
  AxisMap rows_ = AxisMap::identity(0);
  AxisMap columns_ = AxisMap::identity(0);
  bool direct_ = false;           ///< the destination can take the dense result, unless it is added to
  std::size_t foldedOffset_ = 0;  ///< scratch for the result with copies
  std::size_t denseOffset_ = 0;   ///< scratch for the dense result
};

/// sums[c] = sum over all pixels of values[pixel][c]; added to `sums` when accumulating. The order of the sum
/// is fixed.
void sumPixels(mtl::cpu::Stream& stream, const float* values, std::int64_t pixels, std::int64_t channels,
               float* sums, bool accumulate);

/// Weights of a transposed convolution -> those of its partner (ConvolutionProblem): rotated by 180 degrees,
/// input and output exchanged.
void partnerWeights(mtl::cpu::Stream& stream, const ConvolutionProblem& problem, const float* from,
                    float* to);
/// The inverse, for gradients; adds to `to` when accumulating.
void transposedWeights(mtl::cpu::Stream& stream, const ConvolutionProblem& problem, const float* from,
                       float* to, bool accumulate);

}  // namespace mps::detail
