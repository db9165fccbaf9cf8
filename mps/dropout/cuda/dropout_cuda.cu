#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "mps/core/cuda/element_grid_cuda.cuh"
#include "mps/core/cuda/philox_cuda.cuh"
#include "mps/core/cuda/quotient_cuda.cuh"
#include "mps/core/cuda/row_reduction_cuda.cuh"
#include "mps/core/plan/fallback_plan.hpp"
#include "mps/dropout/dropout_problem.hpp"

namespace mps::detail {
namespace {

using cuda::Divider;
using cuda::ElementGrid;
using cuda::ElementPlace;
using cuda::JoinedAxes;
using cuda::PhiloxKeys;
using cuda::Quotient;

__device__ std::uint32_t wordOf(const uint4& words, std::uint32_t number) {
  return number < 2 ? (number == 0 ? words.x : words.y) : (number == 2 ? words.z : words.w);
}

constexpr auto kBlock = static_cast<std::uint32_t>(kDropoutBlock);

/// DropoutProblem::maskIndex(), as steps along the axes.
struct MaskIndex {
  std::uint32_t first = 0;
  std::uint32_t row = 0;
  std::uint32_t pixel = 0;
  std::uint32_t channel = 0;

  /// Whether the lanes of every vector of a tensor are adjacent in the mask, and in a block.
  [[nodiscard]] bool takesVectors(const TensorShape& shape, std::uint32_t lanes) const {
    return channel == 1 && first % lanes == 0 && (shape.height == 1 || row % lanes == 0) &&
           (shape.width == 1 || pixel % lanes == 0);
  }
  explicit MaskIndex(const DropoutProblem& problem) {
    const auto at = [&](std::int64_t x, std::int64_t y, std::int64_t channelNumber) {
      return static_cast<std::uint32_t>(problem.maskIndex(x, y, channelNumber));
    };
    first = at(0, 0, 0);
    row = at(0, 1, 0) - first;
    pixel = at(1, 0, 0) - first;
    channel = at(0, 0, 1) - first;
  }
};

/// What becomes of elements whose words are drawn.
struct DropoutFunction {
  MaskIndex index;
  PhiloxKeys keys;
  std::uint32_t firstImage;
  std::uint32_t encodeCounter;
  std::uint32_t lastKept;  ///< keep where a number in the upper half of a word does not make it larger
  float keepProbability;
  Quotient quotient;          ///< by it, where Quotient::takes() it
  float overKeepProbability;  ///< 1 / it

  [[nodiscard]] __device__ uint4 block(const ElementPlace& place, std::uint32_t number) const {
    return cuda::draw({number, firstImage + static_cast<std::uint32_t>(place.image), encodeCounter, 0}, keys);
  }
  [[nodiscard]] __device__ std::uint32_t maskIndex(const ElementPlace& place) const {
    return index.first + static_cast<std::uint32_t>(place.y) * index.row +
           static_cast<std::uint32_t>(place.x) * index.pixel +
           static_cast<std::uint32_t>(place.channel) * index.channel;
  }
  /// M of the two elements of a word, or `kept` for 1.
  [[nodiscard]] __device__ float lowerMask(std::uint32_t word, float kept) const {
    return word << 16U <= lastKept ? kept : 0.0F;
  }
  [[nodiscard]] __device__ float upperMask(std::uint32_t word, float kept) const {
    return word <= lastKept ? kept : 0.0F;
  }

  /// M of a vector whose words are drawn; of float16 times 1 / keepProbability.
  __device__ void maskOf(const std::uint32_t (&words)[2], cuda::Lanes<float>& mask) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      mask.values[2 * i] = lowerMask(words[i], 1.0F);
      mask.values[2 * i + 1] = upperMask(words[i], 1.0F);
    }
  }
  __device__ void maskOf(const uint4& words, cuda::Lanes<Float16>& mask) const {
    const std::uint32_t drawn[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      mask.values[2 * i] = lowerMask(drawn[i], overKeepProbability);
      mask.values[2 * i + 1] = upperMask(drawn[i], overKeepProbability);
    }
  }
  /// The same for any vector.
  __device__ void drawMask(const ElementPlace& place, cuda::Lanes<float>& mask) const {
    const std::uint32_t first = maskIndex(place);
    const uint4 words = block(place, first / kBlock);
    const bool isUpper = first % kBlock != 0;
    maskOf({isUpper ? words.z : words.x, isUpper ? words.w : words.y}, mask);
  }
  __device__ void drawMask(const ElementPlace& place, cuda::Lanes<Float16>& mask) const {
    maskOf(block(place, maskIndex(place) / kBlock), mask);
  }
  /// x M / keepProbability; M times NaN or infinity is NaN for M = 0. float16 is too coarse to show that the quotient
  /// has a rounding more.
  template <class Values>
  __device__ void apply(const Values& in, const Values& mask, Values& result) const {
    constexpr int lanes = sizeof(Values) / sizeof(float);
    for (int lane = 0; lane < lanes; ++lane) {
      const float kept = in.values[lane] * mask.values[lane];
      if constexpr (lanes == 1)
        result.values[lane] = kept / keepProbability;
      else
        result.values[lane] = lanes == cuda::kLanes<Float16> ? kept : quotient(kept);
    }
  }

  template <class Values>
  __device__ void operator()(const ElementPlace& place, const Values (&in)[1], Values& result) const {
    Values mask;
    if constexpr (sizeof(Values) == sizeof(float)) {
      const std::uint32_t i = maskIndex(place);
      const std::uint32_t word = wordOf(block(place, i / kBlock), i % kBlock / 2);
      mask.values[0] = i % 2 == 0 ? lowerMask(word, 1.0F) : upperMask(word, 1.0F);
    } else {
      drawMask(place, mask);
    }
    apply(in[0], mask, result);
  }
};

/// Images whose elements lie one behind the other, in the mask too, which begins with a block.
struct DenseArguments {
  static constexpr unsigned kBatch = 2;  ///< vectors of a thread, on their way at once

  const std::byte* source;
  std::byte* destination;
  std::int64_t sourceImage, destinationImage;  ///< distances, in elements
  std::uint32_t images;
  std::uint32_t vectors;  ///< of an image
  bool accumulate;
};

/// M of a thread's vectors. @param first the place of the first one
/// @param step vectors from one to the next, even
__device__ void drawBatch(const DropoutFunction& function, const ElementPlace& first, std::uint32_t step,
                          cuda::Lanes<Float16> (&masks)[DenseArguments::kBatch]) {
#pragma unroll
  for (unsigned i = 0; i < DenseArguments::kBatch; ++i) {
    ElementPlace place = first;
    place.channel += static_cast<std::int32_t>(i * step) * cuda::kLanes<Float16>;
    function.drawMask(place, masks[i]);
  }
}
/// Two neighbours share the blocks of both their vectors: each draws one of them. All threads of a warp take part.
__device__ void drawBatch(const DropoutFunction& function, const ElementPlace& first, std::uint32_t step,
                          cuda::Lanes<float> (&masks)[DenseArguments::kBatch]) {
  static_assert(DenseArguments::kBatch == 2);
  const bool isOdd = threadIdx.x % 2 != 0;
  const std::uint32_t element =
      function.maskIndex(first) + (isOdd ? step : 0U) * static_cast<std::uint32_t>(cuda::kLanes<float>);
  const uint4 words = function.block(first, element / kBlock);
  std::uint32_t own[2] = {isOdd ? words.z : words.x, isOdd ? words.w : words.y};
  std::uint32_t others[2] = {isOdd ? words.x : words.z, isOdd ? words.y : words.w};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t received = __shfl_xor_sync(0xFFFFFFFFU, others[i], 1);
    others[i] = isOdd ? own[i] : received;
    own[i] = isOdd ? received : own[i];
  }
  function.maskOf(own, masks[0]);
  function.maskOf(others, masks[1]);
}

template <class T>
__global__ void __launch_bounds__(mtl::cuda::kBlockThreads, 4)
    dropDense(DenseArguments a, DropoutFunction function) {
  constexpr unsigned batch = DenseArguments::kBatch;
  constexpr unsigned lanes = cuda::kLanes<T>;
  const std::uint32_t first = blockIdx.x * (batch * blockDim.x) + threadIdx.x;
  for (std::uint32_t row = blockIdx.y * blockDim.y; row < a.images; row += gridDim.y * blockDim.y) {
    const std::uint32_t image = row + threadIdx.y;
    const std::uint32_t vectors = image < a.images ? a.vectors : 0;
    const auto* const from =
        reinterpret_cast<const uint4*>(reinterpret_cast<const T*>(a.source) + image * a.sourceImage);
    T* const to = reinterpret_cast<T*>(a.destination) + image * a.destinationImage;
    uint4 fetched[batch];
#pragma unroll
    for (unsigned i = 0; i < batch; ++i)
      if (first + i * blockDim.x < vectors) fetched[i] = from[first + i * blockDim.x];
    cuda::Lanes<T> masks[batch];
    drawBatch(function, {static_cast<std::int32_t>(image), 0, 0, static_cast<std::int32_t>(first * lanes)},
              blockDim.x, masks);
#pragma unroll
    for (unsigned i = 0; i < batch; ++i) {
      const std::uint32_t vector = first + i * blockDim.x;
      if (vector >= vectors) break;
      cuda::Lanes<T> result;
      function.apply(cuda::lanesOf(fetched[i], static_cast<const T*>(nullptr)), masks[i], result);
      T* const at = to + static_cast<std::int64_t>(vector) * lanes;
      if (lanes == cuda::kLanes<float> && a.accumulate) {
        const cuda::Lanes<T> old = cuda::loadLanes(at);
        for (unsigned lane = 0; lane < lanes; ++lane) result.values[lane] += old.values[lane];
      }
      cuda::storeLanes(result, at);
    }
  }
}

/// One mask for all pixels of an image. A thread draws that of a vector, and goes over some pixels.
struct ChannelArguments {
  static constexpr std::uint32_t kPixels = 16;  ///< of a thread
  static constexpr int kBatch = 4;              ///< on their way at once

  cuda::MapArguments<1> tensors;
  Divider width;
  Divider blocksAcross;  ///< that share the vectors of a pixel
  std::uint32_t vectors = 0;
  std::uint32_t pixels = 0;  ///< of an image
};

template <class Access>
__global__ void dropChannels(ChannelArguments a, DropoutFunction function) {
  const std::uint32_t part = a.blocksAcross.divide(blockIdx.x);
  const std::uint32_t vector = (blockIdx.x - part * a.blocksAcross.divisor()) * blockDim.x + threadIdx.x;
  if (vector >= a.vectors) return;
  ElementPlace place{static_cast<std::int32_t>(blockIdx.y), 0, 0,
                     static_cast<std::int32_t>(vector * Access::lanes)};
  typename Access::Values mask;
  function.drawMask(place, mask);
  const std::uint32_t begin = part * blockDim.y * ChannelArguments::kPixels;
  const std::uint32_t end = min(a.pixels, begin + blockDim.y * ChannelArguments::kPixels);
  constexpr std::uint32_t batch = ChannelArguments::kBatch;
  for (std::uint32_t first = begin + threadIdx.y; first < end; first += batch * blockDim.y) {
    typename Access::Fetched fetched[batch];
    const auto forEachPixel = [&](auto visit) {
#pragma unroll
      for (std::uint32_t i = 0; i < batch; ++i) {
        const std::uint32_t pixel = first + i * blockDim.y;
        if (pixel >= end) continue;
        place.y = static_cast<std::int32_t>(a.width.divide(pixel));
        place.x = static_cast<std::int32_t>(pixel - static_cast<std::uint32_t>(place.y) * a.width.divisor());
        visit(i);
      }
    };
    forEachPixel([&](std::uint32_t i) { fetched[i] = Access::fetch(a.tensors.sources[0], place); });
    forEachPixel([&](std::uint32_t i) {
      typename Access::Values result;
      function.apply(Access::valuesOf(fetched[i]), mask, result);
      Access::store(result, a.tensors.destination, place, a.tensors.accumulate);
    });
  }
}

/// Whether the elements of an image lie in the mask as they do in a dense tensor.
bool isContiguous(const DropoutProblem& problem) {
  return problem.maskStrideX != 0 && problem.maskStrideY != 0 && problem.maskStrideChannel != 0 &&
         problem.maskWidth == problem.input.width && problem.maskChannels == problem.input.channels;
}

/// Whether one mask serves all pixels of an image.
bool dropsChannels(const DropoutProblem& problem) {
  return problem.maskStrideX == 0 && problem.maskStrideY == 0 && problem.maskStrideChannel != 0;
}

class DropoutPlan final : public AccessPlan {
 public:
  explicit DropoutPlan(const DropoutProblem& problem) : problem_(problem), index_(problem) {
    cuda::joinAxes({&problem_.destination, &problem_.input}, isContiguous(problem)    ? JoinedAxes::OfAnImage
                                                             : dropsChannels(problem) ? JoinedAxes::Pixels
                                                                                      : JoinedAxes::None);
  }
  [[nodiscard]] bool useVectors() {
    const TensorShape& shape = problem_.destination;
    if (!AccessPlan::useVectors() || !Quotient::takes(problem_.keepProbability) ||
        !index_.takesVectors(shape, static_cast<std::uint32_t>(lanes())))
      return false;
    if (dropsChannels(problem_) && shape.images <= kMostImages &&
        shape.height * shape.width <= ElementGrid::kLongestRow)
      kernel_ = Kernel::ChannelVectors;
    else if (shape.height == 1 && shape.width == 1 && index_.first % kBlock == 0)
      kernel_ = Kernel::DenseVectors;
    return true;
  }

  [[nodiscard]] std::string describe() const override {
    return kernel_ == Kernel::ChannelVectors ? "mask per channel"
           : kernel_ == Kernel::DenseVectors ? "dense"
                                             : "";
  }
  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& shape = problem_.destination;
    if (shape.elements() == 0) return;
    cuda::MapArguments<1> arguments;
    arguments.sources[0] = {problem_.input, inputOf(operands)};
    arguments.destination = {shape, operands.destination};
    arguments.accumulate = operands.accumulate;
    const float keep = problem_.keepProbability;
    const DropoutFunction function{index_,
                                   PhiloxKeys(philoxKey(problem_.seed)),
                                   static_cast<std::uint32_t>(operands.scalars[1]),
                                   static_cast<std::uint32_t>(operands.scalars[0]),
                                   static_cast<std::uint32_t>(dropoutLastKept(keep)) << 16U | 0xFFFFU,
                                   keep,
                                   Quotient::takes(keep) ? Quotient(keep) : Quotient(),
                                   1 / keep};
    cuda::withAccess(vectorFormat(), [&](auto access) {
      using Access = decltype(access);
      if constexpr (Access::lanes > 1) {
        if (kernel_ == Kernel::ChannelVectors) return startChannels<Access>(stream, arguments, function);
        if (kernel_ == Kernel::DenseVectors) return startDense<Access>(stream, arguments, function);
      }
      cuda::launchMap<Access>(stream, arguments, shape, function);
    });
  }

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.direction == DropoutDirection::Gradient &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 protected:
  [[nodiscard]] AccessedTensors accessed(const Operands& operands) const override {
    return {{{problem_.input, inputOf(operands)}, {problem_.destination, operands.destination}}};
  }

 private:
  enum class Kernel { General, DenseVectors, ChannelVectors };

  static constexpr std::int64_t kMostImages = 65535;  ///< of the grid's y
  static constexpr std::int64_t kWantedBlocks =
      8192;  ///< where there is work for more, threads do more of it

  template <class Access>
  void startDense(mtl::Stream& stream, const cuda::MapArguments<1>& tensors,
                  const DropoutFunction& function) const {
    using T = std::conditional_t<Access::lanes == cuda::kLanes<float>, float, Float16>;
    const TensorShape& shape = problem_.destination;
    const std::int64_t vectors = shape.channels / Access::lanes;
    const DenseArguments a{tensors.sources[0].memory,
                           tensors.destination.memory,
                           tensors.sources[0].image,
                           tensors.destination.image,
                           static_cast<std::uint32_t>(shape.images),
                           static_cast<std::uint32_t>(vectors),
                           tensors.accumulate};
    const unsigned across = std::max(2U, cuda::threadsOfRow(vectors, DenseArguments::kBatch));
    const unsigned down = mtl::cuda::kBlockThreads / across;
    const std::int64_t ofBlock = std::int64_t{across} * DenseArguments::kBatch;
    const std::int64_t blocksAcross = (vectors + ofBlock - 1) / ofBlock;
    const std::int64_t blocksDown =
        std::min((shape.images + down - 1) / down, std::max<std::int64_t>(1, kWantedBlocks / blocksAcross));
    const dim3 grid(static_cast<unsigned>(blocksAcross), static_cast<unsigned>(blocksDown));
    mtl::cuda::launch(stream, dropDense<T>, grid, dim3(across, down), 0, a, function);
  }

  template <class Access>
  void startChannels(mtl::Stream& stream, const cuda::MapArguments<1>& tensors,
                     const DropoutFunction& function) const {
    const TensorShape& shape = problem_.destination;
    const std::int64_t vectors = shape.channels / Access::lanes;
    const unsigned across = cuda::threadsOfRow(vectors, 1);
    const unsigned down = mtl::cuda::kBlockThreads / across;
    const std::int64_t pixels = shape.height * shape.width;
    const std::int64_t blocksAcross = (vectors + across - 1) / across;
    const std::int64_t ofPart = std::int64_t{down} * ChannelArguments::kPixels;
    ChannelArguments a;
    a.tensors = tensors;
    a.width = Divider(shape.width);
    a.blocksAcross = Divider(blocksAcross);
    a.vectors = static_cast<std::uint32_t>(vectors);
    a.pixels = static_cast<std::uint32_t>(pixels);
    const dim3 grid(static_cast<unsigned>(blocksAcross * ((pixels + ofPart - 1) / ofPart)),
                    static_cast<unsigned>(shape.images));
    mtl::cuda::launch(stream, dropChannels<Access>, grid, dim3(across, down), 0, a, function);
  }

  [[nodiscard]] const std::byte* inputOf(const Operands& operands) const {
    return problem_.direction == DropoutDirection::Forward ? operands.source : operands.gradient;
  }

  DropoutProblem problem_;  ///< with joined axes
  MaskIndex index_;
  Kernel kernel_ = Kernel::General;
};

Preparation prepareElements(const DropoutProblem& problem) {
  for (const TensorShape* shape : {&problem.input, &problem.destination})
    if (!ElementGrid::fits(*shape)) return Refusal{ElementGrid::kTooLarge};
  if (problem.maskElements() > 0xFFFFFFFF) return Refusal{"a mask of 2^32 elements"};
  return std::make_shared<const DropoutPlan>(problem);
}

constexpr Implementation<DropoutProblem> kElements{"thread per element", prepareElements};

constexpr Implementation<DropoutProblem> implementations[] = {
    {"16 bytes per thread", prepareVectors<DropoutPlan, kElements>}, kElements};

}  // namespace

std::span<const Implementation<DropoutProblem>> dropoutImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
