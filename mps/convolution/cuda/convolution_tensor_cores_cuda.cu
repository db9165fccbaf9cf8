#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>

#include "mps/convolution/cuda/convolution_cuda.hpp"
#include "mps/convolution/cuda/convolution_staging_cuda.hpp"
#include "mps/convolution/cuda/convolution_sums_cuda.cuh"
#include "mps/core/plan/fallback_plan.hpp"

namespace mps::detail {
namespace {

using cuda::Divider;

constexpr unsigned kThreads = 256;
constexpr std::int32_t kOutputs = 64;  ///< channels of the gradient
constexpr std::int32_t kInputs = 32;   ///< and of the source
constexpr std::int32_t kMostPixels = 64;
constexpr std::int32_t kMostSourcePixels = 96;
/// Adjacent pixels lie 8 banks apart: what a warp loads for one operand lies in 32 different ones.
constexpr std::int32_t kGradientPitch = kOutputs + 8;
constexpr std::int32_t kSourcePitch = kInputs + 8;
/// Blocks that are there together: about two on each multiprocessor of a large GPU.
constexpr std::int64_t kBlocks = 264;

/// A block sums, for one row of the kernel, over every `slices`-th chunk of the gradient's rows. Rows of all images follow
/// one another alike in both tensors, which have as many.
struct TensorCoreArguments {
  const float* source;
  const float* gradient;
  float* partial;  ///< weight gradients of each slice
  std::int64_t weights;
  std::int64_t sourceRow;  ///< strides
  std::int64_t gradientRow;
  std::int32_t sourcePixel;
  std::int32_t gradientPixel;
  Divider height;              ///< of both tensors
  Divider width;               ///< of the gradient
  Divider sourceWidth;         ///< pixels of a source row that a row of windows sees
  std::int32_t sourceColumns;  ///< that there are
  std::int32_t rows;           ///< of all images
  std::int32_t chunkRows;
  std::int32_t chunks;
  std::int32_t step;    ///< of rows of an image, from one chunk of a slice to the next
  std::int32_t firstX;  ///< of window 0
  std::int32_t firstY;
  std::int32_t kernelHeight;

  [[nodiscard]] __device__ std::int32_t pixels() const {
    return chunkRows * static_cast<std::int32_t>(width.divisor());
  }
};

/// Rounded to the nearest of TF32's numbers.
__device__ float toTf32(float value) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return __uint_as_float(bits);
}

__device__ float4 toTf32(const float4& values) {
  return {toTf32(values.x), toTf32(values.y), toTf32(values.z), toTf32(values.w)};
}

/// sums += a b, of 16x8 and 8x8 numbers that the threads of a warp hold as the instruction wants them.
__device__ void multiplyAdd(float (&sums)[4], const float (&a)[4], const float (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

/// Four channels of some pixels of each chunk, which a thread brings from device to shared memory.
class ChunkLoader {
 public:
  /// For the first chunk. @param kernelRow of the windows
  __device__ ChunkLoader(const TensorCoreArguments& a, std::int32_t kernelRow)
      : row_(static_cast<std::int32_t>(blockIdx.x) * a.chunkRows), firstY_(a.firstY + kernelRow) {
    const auto thread = static_cast<std::int32_t>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kGradientVectors; ++i) {
      const std::int32_t pixel = thread / kOutputVectors + i * static_cast<int>(kThreads) / kOutputVectors;
      const auto inChunk = static_cast<std::int32_t>(a.width.divide(static_cast<std::uint32_t>(pixel)));
      const std::int32_t x = pixel - inChunk * static_cast<std::int32_t>(a.width.divisor());
      // Beyond the chunk: a row that there is in no tensor.
      gradientRows_[i] = pixel < a.pixels() ? inChunk : a.rows;
      gradients_[i] =
          a.gradient + (row_ + inChunk) * a.gradientRow + x * a.gradientPixel + thread % kOutputVectors * 4;
    }
#pragma unroll
    for (int i = 0; i < kSourceVectors; ++i) {
      const std::int32_t pixel = thread / kInputVectors + i * static_cast<int>(kThreads) / kInputVectors;
      const auto inChunk = static_cast<std::int32_t>(a.sourceWidth.divide(static_cast<std::uint32_t>(pixel)));
      const std::int32_t x = pixel - inChunk * static_cast<std::int32_t>(a.sourceWidth.divisor()) + a.firstX;
      const auto row = static_cast<std::uint32_t>(row_ + inChunk);
      sourceRows_[i] = inChunk < a.chunkRows && x >= 0 && x < a.sourceColumns ? inChunk : a.rows;
      imageRows_[i] = static_cast<std::int32_t>(row - a.height.divide(row) * a.height.divisor());
      sources_[i] = a.source + (row_ + inChunk + firstY_) * a.sourceRow +
                    static_cast<std::int64_t>(x) * a.sourcePixel + thread % kInputVectors * 4;
    }
  }

  /// Reads a chunk, and goes on to the next one of the slice.
  __device__ void load(const TensorCoreArguments& a) {
    const auto rows = static_cast<std::int32_t>(gridDim.x) * a.chunkRows;
    const auto height = static_cast<std::int32_t>(a.height.divisor());
#pragma unroll
    for (int i = 0; i < kGradientVectors; ++i) {
      gradient_[i] = {};
      if (row_ + gradientRows_[i] < a.rows) gradient_[i] = *reinterpret_cast<const float4*>(gradients_[i]);
      gradients_[i] += rows * a.gradientRow;
    }
#pragma unroll
    for (int i = 0; i < kSourceVectors; ++i) {
      const auto y = static_cast<std::uint32_t>(imageRows_[i] + firstY_);
      source_[i] = {};
      if (row_ + sourceRows_[i] < a.rows && y < a.height.divisor())
        source_[i] = *reinterpret_cast<const float4*>(sources_[i]);
      sources_[i] += rows * a.sourceRow;
      imageRows_[i] += a.step;
      if (imageRows_[i] >= height) imageRows_[i] -= height;
    }
    row_ += rows;
  }

  __device__ void store(float (&gradients)[kMostPixels * kGradientPitch],
                        float (&sources)[kMostSourcePixels * kSourcePitch]) const {
    const auto thread = static_cast<std::int32_t>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kGradientVectors; ++i) {
      const std::int32_t pixel = thread / kOutputVectors + i * static_cast<int>(kThreads) / kOutputVectors;
      *reinterpret_cast<float4*>(gradients + pixel * kGradientPitch + thread % kOutputVectors * 4) =
          toTf32(gradient_[i]);
    }
#pragma unroll
    for (int i = 0; i < kSourceVectors; ++i) {
      const std::int32_t pixel = thread / kInputVectors + i * static_cast<int>(kThreads) / kInputVectors;
      *reinterpret_cast<float4*>(sources + pixel * kSourcePitch + thread % kInputVectors * 4) =
          toTf32(source_[i]);
    }
  }

 private:
  static constexpr int kOutputVectors = kOutputs / 4;
  static constexpr int kInputVectors = kInputs / 4;
  static constexpr int kGradientVectors = kMostPixels * kOutputVectors / static_cast<int>(kThreads);
  static constexpr int kSourceVectors = kMostSourcePixels * kInputVectors / static_cast<int>(kThreads);

  std::int32_t row_;  ///< of all images, the chunk's first
  std::int32_t firstY_;
  std::int32_t gradientRows_[kGradientVectors];  ///< from there
  std::int32_t sourceRows_[kSourceVectors];
  std::int32_t imageRows_[kSourceVectors];
  const float* gradients_[kGradientVectors];
  const float* sources_[kSourceVectors];
  float4 gradient_[kGradientVectors];
  float4 source_[kSourceVectors];
};

/// Warps 0 to 3 have the first 32 channels of the gradient, each of them 8 of the source and all taps of the kernel's row;
/// warps 4 to 7 the others. Block (slice, row of the kernel). @tparam taps of a row of the kernel
template <int taps>
__global__ void __launch_bounds__(kThreads, 2) sumWeightGradients(TensorCoreArguments a) {
  __shared__ __align__(16) float gradients[kMostPixels * kGradientPitch];
  __shared__ __align__(16) float sources[kMostSourcePixels * kSourcePitch];
  __shared__ std::int32_t sourcePixels[kMostPixels];  ///< that tap 0 of a window reads
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const auto kernelRow = static_cast<std::int32_t>(blockIdx.y);
  if (thread < kMostPixels) {
    const auto row = static_cast<std::int32_t>(a.width.divide(static_cast<std::uint32_t>(thread)));
    sourcePixels[thread] = row * static_cast<std::int32_t>(a.sourceWidth.divisor()) + thread -
                           row * static_cast<std::int32_t>(a.width.divisor());
  }
  const std::int32_t group = thread % 32 / 4;
  const std::int32_t member = thread % 4;
  const std::int32_t output = thread / 128 * 32 + group;
  const std::int32_t input = thread / 32 % 4 * 8 + group;
  float sums[2][taps][4] = {};
  ChunkLoader chunk(a, kernelRow);
  chunk.load(a);
  for (std::int32_t number = static_cast<std::int32_t>(blockIdx.x); number < a.chunks;
       number += static_cast<std::int32_t>(gridDim.x)) {
    __syncthreads();  // the chunk before was read
    chunk.store(gradients, sources);
    __syncthreads();
    if (number + static_cast<std::int32_t>(gridDim.x) < a.chunks) chunk.load(a);
    for (std::int32_t first = 0; first < a.pixels(); first += 8) {
      const std::int32_t pixel = first + member;
      float of[2][4];
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const float* const from = gradients + pixel * kGradientPitch + output + 16 * part;
        of[part][0] = from[0];
        of[part][1] = from[8];
        of[part][2] = from[4 * kGradientPitch];
        of[part][3] = from[4 * kGradientPitch + 8];
      }
      const float* const near = sources + sourcePixels[pixel] * kSourcePitch + input;
      const float* const far = sources + sourcePixels[pixel + 4] * kSourcePitch + input;
#pragma unroll
      for (int tap = 0; tap < taps; ++tap) {
        const float read[2]{near[tap * kSourcePitch], far[tap * kSourcePitch]};
#pragma unroll
        for (int part = 0; part < 2; ++part) multiplyAdd(sums[part][tap], of[part], read);
      }
    }
  }
  float* const slice = a.partial + blockIdx.x * a.weights;
#pragma unroll
  for (int part = 0; part < 2; ++part)
#pragma unroll
    for (int tap = 0; tap < taps; ++tap)
#pragma unroll
      for (int low = 0; low < 2; ++low) {
        const std::int64_t k = output + 16 * part + 8 * low;
        float* const to = slice + ((k * a.kernelHeight + kernelRow) * taps + tap) * kInputs +
                          thread / 32 % 4 * 8 + 2 * member;
        *reinterpret_cast<float2*>(to) = {sums[part][tap][2 * low], sums[part][tap][2 * low + 1]};
      }
}

/// Rows of a chunk: as many pixels as it may have, a multiple of eight; 0 when there is no such number.
std::int64_t rowsOfChunk(std::int64_t width, std::int64_t taps) {
  for (std::int64_t rows = kMostPixels / width; rows > 0; --rows)
    if (rows * width % 8 == 0 && rows * (width + taps - 1) <= kMostSourcePixels) return rows;
  return 0;
}

class TensorCorePlan final : public SelectivePlan {
 public:
  explicit TensorCorePlan(const ConvolutionProblem& problem) : problem_(problem) {
    const TensorShape& gradient = problem.gradient;
    const std::int64_t rows = rowsOfChunk(gradient.width, problem.x.kernelSize);
    chunks_ = (gradient.images * gradient.height + rows - 1) / rows;
    slices_ = std::clamp<std::int64_t>(kBlocks / problem.y.kernelSize, 1, chunks_);
    partial_ = scratch_.reserve(static_cast<std::size_t>(slices_ * problem.weightCount()) * sizeof(float));
    if (problem.hasBias) biases_ = cuda::PixelSums(gradient, true, scratch_);
  }

  [[nodiscard]] std::size_t scratchBytes() const override { return scratch_.bytes(); }
  [[nodiscard]] bool canAccumulate() const override { return problem_.accumulate; }
  [[nodiscard]] std::string describe() const override { return std::to_string(slices_) + " slices"; }

  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    return objectionToUnaligned({operands.source, operands.gradient});
  }
  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& gradient = problem_.gradient;
    const std::int64_t taps = problem_.x.kernelSize;
    const std::int64_t rows = rowsOfChunk(gradient.width, taps);
    auto* const partial = reinterpret_cast<float*>(operands.scratch + partial_);
    const TensorShape& source = problem_.source;
    const TensorCoreArguments a{reinterpret_cast<const float*>(operands.source),
                                reinterpret_cast<const float*>(operands.gradient),
                                partial,
                                problem_.weightCount(),
                                source.rowStride,
                                gradient.rowStride,
                                static_cast<std::int32_t>(source.pixelStride),
                                static_cast<std::int32_t>(gradient.pixelStride),
                                Divider(gradient.height),
                                Divider(gradient.width),
                                Divider(gradient.width + taps - 1),
                                static_cast<std::int32_t>(source.width),
                                static_cast<std::int32_t>(gradient.images * gradient.height),
                                static_cast<std::int32_t>(rows),
                                static_cast<std::int32_t>(chunks_),
                                static_cast<std::int32_t>(slices_ * rows % gradient.height),
                                static_cast<std::int32_t>(problem_.x.firstTap(0)),
                                static_cast<std::int32_t>(problem_.y.firstTap(0)),
                                static_cast<std::int32_t>(problem_.y.kernelSize)};
    const dim3 grid(static_cast<unsigned>(slices_), static_cast<unsigned>(problem_.y.kernelSize));
    mtl::cuda::launch(stream, taps == 5 ? sumWeightGradients<5> : sumWeightGradients<3>, grid, dim3(kThreads),
                      0, a);
    cuda::launchSumSlices(stream, partial, slices_, problem_.weightCount(), operands.accumulate,
                          cuda::SamePlace{reinterpret_cast<float*>(operands.parameters[2])});
    if (problem_.hasBias)
      biases_.run(stream, operands.gradient, reinterpret_cast<float*>(operands.parameters[3]),
                  operands.accumulate, operands.scratch);
  }

 private:
  ConvolutionProblem problem_;
  ScratchLayout scratch_;
  cuda::PixelSums biases_;
  std::int64_t chunks_ = 0;
  std::int64_t slices_ = 1;
  std::size_t partial_ = 0;
};

}  // namespace

Preparation prepareConvolutionTensorCoresCuda(const ConvolutionProblem& problem) {
  using Format = ImageFeatureChannelFormat;
  if (problem.operation != ConvolutionOperation::WeightsGradient)
    return Refusal{"it is for weights gradients"};
  if (!problem.allowReducedPrecision) return Refusal{"it rounds its inputs"};
  if (problem.transposed) return Refusal{"the weights of a transposed convolution have another order"};
  if (problem.sumsNothing()) return Refusal{kSumsNothing};
  if (problem.source.format != Format::Float32 || problem.gradient.format != Format::Float32)
    return Refusal{"not both images are float32"};
  // A block has all channels; with more of them cuDNN's kernels are several times as fast.
  if (problem.groups != 1 || problem.inputFeatureChannels != kInputs ||
      problem.outputFeatureChannels != kOutputs)
    return Refusal{"it is for 32 input and 64 output channels without groups, cuDNN is faster with more"};
  if (problem.x.kernelSize != 5 && problem.x.kernelSize != 3) return Refusal{"no kernel 5 or 3 pixels wide"};
  for (const WindowAxis& axis : {problem.x, problem.y})
    if (axis.stride != 1 || axis.dilation != 1) return Refusal{"windows with a stride or a dilation"};
  const bool inside = problem.x.paddingBefore() <= 0 && problem.x.paddingAfter() <= 0 &&
                      problem.y.paddingBefore() <= 0 && problem.y.paddingAfter() <= 0;
  if (problem.edgeMode == ImageEdgeMode::Clamp && !inside) return Refusal{"windows over clamped edges"};
  if (rowsOfChunk(problem.gradient.width, problem.x.kernelSize) == 0)
    return Refusal{"a few rows of the gradient are not 8, 16 ... 64 pixels"};
  if (problem.source.height != problem.gradient.height) return Refusal{"images of different heights"};
  for (const TensorShape* shape : {&problem.source, &problem.gradient}) {
    if (shape->images > 1 && shape->imageStride != shape->height * shape->rowStride)
      return Refusal{"strided images"};
    if (!cuda::canStage(*shape) || shape->pixels() > 0x3FFFFFFF) return Refusal{"a tensor is too large"};
    if ((shape->pixelStride | shape->rowStride | shape->imageStride) % 4 != 0)
      return Refusal{"strides are no multiples of 16 bytes"};
  }
  constexpr std::int64_t farthest = 1 << 24;
  if (std::abs(problem.x.offset) > farthest || std::abs(problem.y.offset) > farthest)
    return Refusal{"windows are too far away"};
  return withFallback(std::make_shared<const TensorCorePlan>(problem),
                      convolutionImplementationsCuda().back(), problem);
}

}  // namespace mps::detail
