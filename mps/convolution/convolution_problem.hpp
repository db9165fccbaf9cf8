#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/neuron/neuron_descriptor.hpp"
#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"
#include "mps/core/types/types.hpp"
#include "mps/core/types/window_geometry.hpp"

namespace mps::detail {

/// What is computed, in the words of an ordinary convolution. A transposed convolution is the same arithmetic
/// with the roles exchanged: its result is a DataGradient, its data gradient a Forward.
enum class ConvolutionOperation : std::uint8_t { Forward, DataGradient, WeightsGradient };
/// "forward", "data gradient", "weights gradient".
const char* name(ConvolutionOperation operation);

/// All numbers of one call of a convolution, a fully connected layer, a transposed convolution, or one of
/// their gradients.
///
///     pre[n][y][x][k]   = bias[k] + sum over q, p, c   W[k][q][p][c] * source[n][v][u][group(k) * Cg + c]
///     destination       = neuron(pre)                                                       Forward
///     destination[n][v][u][c] = sum over y, x, q, p, k that read pixel (v, u)   W * gradient[n][y][x][k]
///                                                                                           DataGradient
///     dW[k][q][p][c]    = sum over n, y, x   gradient[n][y][x][k] * source[n][v][u][group(k) * Cg + c]
///     dBias[k]          = sum over n, y, x   gradient[n][y][x][k]                           WeightsGradient
///
/// with u = tap p of window x and v = tap q of window y (WindowAxis), Cg = inputFeatureChannels / groups and
/// group(k) = k / (outputFeatureChannels / groups). A tap outside the source reads 0 (edge mode Zero) or the
/// nearest pixel (Clamp); the gradients are the exact adjoints of that. Sums run over the whole batch;
/// nothing is divided.
///
/// - Depth-wise convolution with channel multiplier M: groups = inputFeatureChannels and
///   outputFeatureChannels = M * inputFeatureChannels; its weights [in][M][kH][kW] are OHWI with one channel per group.
/// - Fully connected: the kernel is as large as the source, one window, offset (kW / 2, kH / 2).
/// - Transposed convolution (`transposed`): the problem is that of its partner, the convolution whose data
///   gradient has the same geometry: input and output channels exchanged, x.sourceSize the width of the
///   larger image, and offset = (1 if dilatedSize is even, else 0) - T, T = offset * stride + kernelOffset of the
///   transposed kernel. The weights stay as the transposed kernel has them:
///   [inputFeatureChannels][kH][kW][outputFeatureChannels / groups], rotated by 180 degrees against the
///   partner's. Bias and neuron belong to the DataGradient's destination, and the bias gradient sums the
///   source.
///
/// | operand | Forward | DataGradient | WeightsGradient |
/// |---|---|---|---|
/// | source | read | | read |
/// | gradient | | read | read |
/// | destination | written | written | |
/// | parameters[0], weights | read | read | |
/// | parameters[1], bias, when hasBias | read | read when transposed | |
/// | parameters[2], weight gradients | | | written |
/// | parameters[3], bias gradients, when hasBias | | | written |
///
/// Weights and weight gradients are float32 OHWI, [out][kH][kW][in / groups]; biases float32. All of them are
/// dense. Tensors that an operation does not use stay empty.
struct ConvolutionProblem {
  ConvolutionOperation operation = ConvolutionOperation::Forward;
  WindowAxis x;  ///< destinationSize is the size of the forward clip rectangle
  WindowAxis y;
  std::int64_t groups = 1;  ///< divides both channel counts
  std::int64_t inputFeatureChannels = 1;
  std::int64_t outputFeatureChannels = 1;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;  ///< Zero or Clamp
  bool transposed = false;
  bool hasBias = false;
  /// A permission: on a GPU to round inputs to TF32, or to float16 where an image is, and weight gradients to float16 where
  /// both images are; on a CPU to round inputs to bfloat16.
  bool allowReducedPrecision = false;
  /// Prepare for Operands::accumulate: then a run adds to the destination, or to both parameter gradients,
  /// what it would otherwise store there. Destinations must be float32.
  bool accumulate = false;
  /// Threads of the device that will run the plan (mtl::Device::threadCount): each that takes part needs scratch memory
  /// of its own. Results do not depend on it.
  int threadCount = 0;
  /// mtl::Device::name() of that device, for libraries that choose by the GPU. Empty: the current one.
  std::string deviceName;
  NNNeuronDescriptor neuron;  ///< Forward, or DataGradient when transposed; None elsewhere
  TensorShape source;         ///< images of x.sourceSize by y.sourceSize, inputFeatureChannels
  TensorShape destination;    ///< Forward: as gradient; DataGradient: as source
  TensorShape gradient;       ///< images of x.destinationSize by y.destinationSize, outputFeatureChannels

  bool operator==(const ConvolutionProblem&) const = default;
  [[nodiscard]] std::size_t hash() const;
  /// "convolution forward 5x5 stride 1x1 1->32 channels ...".
  [[nodiscard]] std::string describe() const;

  [[nodiscard]] std::int64_t inputChannelsPerGroup() const { return inputFeatureChannels / groups; }
  [[nodiscard]] std::int64_t outputChannelsPerGroup() const { return outputFeatureChannels / groups; }
  [[nodiscard]] std::int64_t weightCount() const {
    return outputFeatureChannels * y.kernelSize * x.kernelSize * inputChannelsPerGroup();
  }
  /// Multiplications and additions.
  [[nodiscard]] double operations() const {
    return 2 * static_cast<double>(images() * y.destinationSize * x.destinationSize) *
           static_cast<double>(weightCount());
  }
  /// Number of biases and bias gradients.
  [[nodiscard]] std::int64_t biasCount() const {
    return transposed ? inputFeatureChannels : outputFeatureChannels;
  }
  /// The tensor that sets the batch size and is always there.
  [[nodiscard]] std::int64_t images() const {
    return operation == ConvolutionOperation::Forward ? source.images : gradient.images;
  }
  /// Whether there is nothing to sum: no images, or images without pixels, as behind an empty forward clip rectangle.
  /// Zeros, with bias and neuron, are the result; the "direct" entries alone take that.
  [[nodiscard]] bool sumsNothing() const {
    return images() == 0 || x.sourceSize == 0 || y.sourceSize == 0 || x.destinationSize == 0 ||
           y.destinationSize == 0;
  }
};

/// Why implementations refuse a problem that sumsNothing().
inline constexpr const char* kSumsNothing = "there are no pixels";

/// The CPU's implementations: "matmul" (oneDNN's matrix product, for fully connected layers), "depthwise" (ours, weight
/// gradients with one result per channel, edge mode Zero), "onednn bfloat16" (its convolution of rounded factors),
/// "onednn" (its convolution), "direct" (ours, takes everything).
std::span<const Implementation<ConvolutionProblem>> convolutionImplementationsCpu();
/// NVIDIA GPUs': "matmul" (cuBLASLt's matrix product, where the geometry is one), "direct tiled" (ours, for first
/// layers), "cudnn" (its convolution), "direct" (ours, takes everything).
std::span<const Implementation<ConvolutionProblem>> convolutionImplementationsCuda();
inline constexpr BackEnds<ConvolutionProblem> convolutionBackEnds{
    convolutionImplementationsCpu, UNMETAL_CUDA_LIST(convolutionImplementationsCuda)};

}  // namespace mps::detail
