#pragma once

#include <cstddef>
#include <cstdint>

#include "mps/convolution/convolution_problem.hpp"
#include "mps/convolution/scratch_layout.hpp"

/// Between the tensors of a problem and the dense arrays that NVIDIA's libraries compute on, which may be of
/// another format, have more channels, and lie elsewhere over the image. Plans that use StagedInput or
/// StagedOutput object to tensors at addresses that are no multiples of 16.
namespace mps::detail::cuda {

/// A dense array of float32 or float16 and its place: pixel (0, 0) is the tensor's pixel (originX, originY).
/// Channels beyond the tensor's hold zeros.
struct DenseArray {
  TensorShape shape;
  std::int64_t originY = 0;
  std::int64_t originX = 0;

  /// A tensor's pixels and channels, dense.
  static DenseArray of(const TensorShape& tensor, ImageFeatureChannelFormat format);
  /// Whether the tensor's memory is such an array.
  [[nodiscard]] bool isTensor(const TensorShape& tensor) const;
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(shape.bytes()); }
};

/// Whether four adjacent channels can be accessed together everywhere, if the address is a multiple of 16.
bool takesQuads(const TensorShape& shape);

/// Scratch memory for a library's own use, at an address as cudaMalloc gives it.
class Workspace {
 public:
  Workspace() = default;
  Workspace(std::size_t bytes, ScratchLayout& scratch);
  [[nodiscard]] std::byte* address(std::byte* scratch) const;

 private:
  static constexpr std::size_t kAlignment = 256;
  std::size_t offset_ = 0;
};

/// A source or gradient as a dense array: the tensor itself where it is one.
class StagedInput {
 public:
  StagedInput() = default;
  /// @param edgeMode what the array holds outside of the tensor: zeros, or the nearest pixels
  StagedInput(const TensorShape& tensor, const DenseArray& array, ImageEdgeMode edgeMode,
              ScratchLayout& scratch);

  /// Address of the array, filled.
  const std::byte* load(mtl::Stream& stream, const std::byte* tensor, std::byte* scratch) const;

 private:
  TensorShape tensor_;
  DenseArray array_;
  ImageEdgeMode edgeMode_ = ImageEdgeMode::Zero;
  bool copied_ = false;
  std::size_t offset_ = 0;
};

/// PReLU's slopes on the device.
class NeuronSlopes {
 public:
  NeuronSlopes() = default;
  NeuronSlopes(const NNNeuronDescriptor& neuron, ScratchLayout& scratch);
  /// Their address, or null for other neurons.
  const float* load(mtl::Stream& stream, std::byte* scratch) const;

 private:
  NNNeuronDescriptor neuron_;
  std::size_t offset_ = 0;
};

/// A dense array for a result, and the last steps of its way to the destination, in one pass: bias, neuron, the
/// sum with what the destination held, one rounding. Pixels outside of the array are sums of nothing.
class StagedOutput {
 public:
  StagedOutput() = default;
  /// @param problem its destination and neuron are used, and whether it accumulates
  StagedOutput(const ConvolutionProblem& problem, const DenseArray& array, ScratchLayout& scratch);

  /// Where the array is to be written: the destination itself where possible.
  [[nodiscard]] std::byte* target(const Operands& operands) const;
  /// @param bias one number for each channel, or null
  void store(mtl::Stream& stream, const Operands& operands, const float* bias) const;

 private:
  [[nodiscard]] bool isDirect(const Operands& operands) const { return direct_ && !operands.accumulate; }

  TensorShape tensor_;
  NNNeuronDescriptor neuron_;
  DenseArray array_;
  NeuronSlopes slopes_;
  bool direct_ = false;
  std::size_t offset_ = 0;
};

/// Whether the kernels behind the classes above take so large a tensor.
bool canStage(const TensorShape& tensor);

/// sums[c] = sum over all pixels of a tensor of its channel c; added to `sums` when accumulating.
class PixelSums {
 public:
  PixelSums() = default;
  /// @param isAligned whether the tensor's address is a multiple of 16 in every run
  PixelSums(const TensorShape& tensor, bool isAligned, ScratchLayout& scratch);
  void run(mtl::Stream& stream, const std::byte* tensor, float* sums, bool accumulate,
           std::byte* scratch) const;

 private:
  TensorShape tensor_;
  bool sumsQuads_ = false;
  std::int64_t slices_ = 0;
  std::size_t offset_ = 0;
};

/// Weights, OHWI, with more channels on both sides or of another format; for problems that are not transposed.
struct DenseWeights {
  ImageFeatureChannelFormat format = ImageFeatureChannelFormat::Float32;
  std::int64_t outputs = 0;  ///< at least the problem's
  std::int64_t inputs = 0;   ///< of a group; at least the problem's

  /// Whether the problem's own array is that.
  [[nodiscard]] bool areGiven(const ConvolutionProblem& problem) const;
  [[nodiscard]] std::int64_t count(const ConvolutionProblem& problem) const;
  [[nodiscard]] std::size_t bytes(const ConvolutionProblem& problem) const;
  /// Their address: the parameters, or a copy of them with zeros beyond. @param copy bytes() of memory, where not given
  const std::byte* load(mtl::Stream& stream, const ConvolutionProblem& problem, const std::byte* parameters,
                        std::byte* copy) const;
};
/// Gradients of such weights -> those of the parameters, added when accumulating.
void restoreWeightGradients(mtl::Stream& stream, const ConvolutionProblem& problem,
                            const DenseWeights& weights, const std::byte* from, float* to, bool accumulate);

}  // namespace mps::detail::cuda
