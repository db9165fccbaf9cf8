#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "mps/core/plan/fallback_plan.hpp"
#include "mps/pooling/cuda/pooling_global_cuda.cuh"
#include "mps/pooling/cuda/pooling_sliding_cuda.cuh"
#include "mps/pooling/cuda/pooling_vectors_cuda.cuh"
#include "mps/pooling/pooling_direct.hpp"
#include "mps/pooling/pooling_problem.hpp"

namespace mps::detail {
namespace {

using cuda::PoolingArguments;
using cuda::SlidingWindows;

struct CudaMemory {
  __device__ static float load(ImageFeatureChannelFormat format, const std::byte* memory,
                               std::int64_t offset) {
    return cuda::loadAs(format, memory, offset);
  }
  __device__ static void store(float value, ImageFeatureChannelFormat format, std::byte* memory,
                               std::int64_t offset) {
    cuda::storeAs(value, format, memory, offset);
  }
};

enum class DirectStep { Pool, Find, Gather };

/// A thread for each element of `shape`.
template <class Operation, DirectStep step>
__global__ void visitElements(PoolingProblem problem, TensorShape shape, Operands operands) {
  const DirectPooling<Operation, CudaMemory> pooling(problem, operands);
  const std::int64_t count = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       e < shape.elements(); e += count) {
    const std::int64_t pixel = e / shape.channels;
    const std::int64_t row = pixel / shape.width;
    const std::int64_t n = row / shape.height;
    const std::int64_t y = row % shape.height;
    const std::int64_t x = pixel % shape.width;
    const std::int64_t c = e % shape.channels;
    if constexpr (step == DirectStep::Pool)
      pooling.pool(n, y, x, c);
    else if constexpr (step == DirectStep::Find)
      pooling.find(n, y, x, c);
    else
      pooling.gather(n, y, x, c);
  }
}

class DirectPlan final : public Plan {
 public:
  explicit DirectPlan(const PoolingProblem& problem) : problem_(problem) {}

  [[nodiscard]] std::size_t scratchBytes() const override { return foundBytes(problem_); }
  [[nodiscard]] bool canAccumulate() const override {
    return problem_.direction == PoolingDirection::Gradient &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }
  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (findsWindows(problem_)) visit<DirectStep::Find>(stream, problem_.gradient, operands);
    if (problem_.direction == PoolingDirection::Forward)
      visit<DirectStep::Pool>(stream, problem_.destination, operands);
    else
      visit<DirectStep::Gather>(stream, problem_.destination, operands);
  }

 private:
  template <DirectStep step>
  void visit(mtl::Stream& stream, const TensorShape& shape, const Operands& operands) const {
    constexpr std::int64_t kMostThreads = std::int64_t{1} << 24U;  // each then takes several elements
    if (shape.elements() == 0) return;
    withPoolingOperation<CudaMath>(problem_.kind, [&](auto operation) {
      mtl::cuda::launch(stream, visitElements<decltype(operation), step>,
                        dim3(mtl::cuda::blocksFor(std::min(shape.elements(), kMostThreads))),
                        dim3(mtl::cuda::kBlockThreads), 0, problem_, shape, operands);
    });
  }

  PoolingProblem problem_;
};

/// Whole images, T is of all tensors.
template <class T>
class GlobalPlan final : public Plan {
 public:
  explicit GlobalPlan(const PoolingProblem& problem)
      : problem_(problem),
        isForward_(problem.direction == PoolingDirection::Forward),
        arguments_(problem, isForward_ ? problem.source : problem.destination,
                   isForward_ ? problem.destination : problem.gradient) {}

  [[nodiscard]] bool canAccumulate() const override { return !isForward_ && std::is_same_v<T, float>; }
  void run(mtl::Stream& stream, const Operands& operands) const override {
    cuda::GlobalPoolingArguments arguments = arguments_;
    arguments.accumulate = operands.accumulate;
    const std::int64_t blockChannels = arguments.blockChannels.divisor();
    dim3 grid(static_cast<unsigned>(problem_.source.images),
              static_cast<unsigned>((problem_.source.channels + blockChannels - 1) / blockChannels));
    const dim3 block(cuda::kGlobalThreads);
    auto* const destination = reinterpret_cast<T*>(operands.destination);
    const std::int64_t pixelsOfBlock = arguments.lanes() * kPixelsPerThread;
    if (!isForward_)
      grid.z =
          static_cast<unsigned>(std::min((problem_.taps() + pixelsOfBlock - 1) / pixelsOfBlock, kMostSlices));
    withPoolingOperation<CudaMath>(problem_.kind, [&](auto operation) {
      using Operation = decltype(operation);
      if constexpr (Operation::kTraits.isLinear) {
        if (isForward_)
          mtl::cuda::launch(stream, cuda::poolImages<Operation, T>, grid, block, 0, arguments,
                            reinterpret_cast<const T*>(operands.source), destination);
        else
          mtl::cuda::launch(stream, cuda::spreadShares<Operation, T>, grid, block, 0, arguments,
                            reinterpret_cast<const T*>(operands.gradient), destination);
      }
    });
  }

 private:
  static constexpr std::int64_t kPixelsPerThread = 8;
  static constexpr std::int64_t kMostSlices = 65535;
  PoolingProblem problem_;
  bool isForward_;
  cuda::GlobalPoolingArguments arguments_;
};

/// Kernels for 16 bytes of channels.
template <class T>
class VectorPlan : public SelectivePlan {
 public:
  explicit VectorPlan(const PoolingProblem& problem) : problem_(problem) {}

  [[nodiscard]] std::size_t scratchBytes() const override { return foundBytes(problem_); }
  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const final {
    const std::string_view objection =
        objectionToUnaligned({operands.source, operands.gradient, operands.destination});
    return objection.empty() ? objectionToUnaligned({operands.saved}, cuda::kLanes<T>) : objection;
  }
  void run(mtl::Stream& stream, const Operands& operands) const final {
    std::byte* const found = findsWindows(problem()) ? operands.scratch : operands.saved;
    const bool isUnsaved = problem().direction == PoolingDirection::Forward && !problem().saveIndices;
    runVectors(stream,
               {reinterpret_cast<const T*>(operands.source), reinterpret_cast<const T*>(operands.gradient),
                reinterpret_cast<T*>(operands.destination),
                isUnsaved ? nullptr : reinterpret_cast<std::uint8_t*>(found)},
               operands.accumulate);
  }

 protected:
  [[nodiscard]] const PoolingProblem& problem() const { return problem_; }
  /// What is not saved is null in the forward pass; a gradient finds it, in scratch memory.
  using Addresses = cuda::PoolingAddresses<T>;
  virtual void runVectors(mtl::Stream& stream, const Addresses& at, bool accumulate) const = 0;

  [[nodiscard]] bool findsIndices() const { return problem_.traits().selects && findsWindows(problem_); }

 private:
  PoolingProblem problem_;
};

/// Every window by itself; a gradient is gathered by pixels.
template <class T>
class WindowPlan final : public VectorPlan<T> {
 public:
  explicit WindowPlan(const PoolingProblem& problem)
      : VectorPlan<T>(problem), windows_(problem), pixels_(problem) {
    const std::int64_t vectors = problem.source.channels / cuda::kLanes<T>;
    windows_.cover(problem.source.images, problem.y.destinationSize, problem.x.destinationSize, vectors);
    pixels_.cover(problem.destination.images, problem.destination.height, problem.destination.width, vectors);
  }

 private:
  template <class... Parameters, class... Values>
  static void launch(mtl::Stream& stream, void (*kernel)(PoolingArguments, Parameters...),
                     const PoolingArguments& arguments, Values... values) {
    mtl::cuda::launch(stream, kernel, arguments.grid.grid, arguments.grid.block, 0, arguments, values...);
  }

  void runVectors(mtl::Stream& stream, const typename VectorPlan<T>::Addresses& at,
                  bool accumulate) const override {
    PoolingArguments pixels = pixels_;
    pixels.accumulate = accumulate;
    const auto pool = [&](auto* kernel, T* destination) {
      launch(stream, kernel, windows_, at.source, destination, at.saved);
    };
    const auto gather = [&](auto* kernel) {
      launch(stream, kernel, pixels, at.source, at.gradient, at.saved,
             reinterpret_cast<const float*>(at.saved), at.destination);
    };
    withPoolingOperation<CudaMath>(this->problem().kind, [&](auto operation) {
      using Operation = decltype(operation);
      if (this->problem().direction == PoolingDirection::Forward)
        return pool(cuda::poolWindows<Operation, T>, at.destination);
      if constexpr (Operation::kTraits.selects) {
        if (this->findsIndices()) pool(cuda::poolWindows<Operation, T>, nullptr);
      } else if constexpr (!Operation::kTraits.isLinear) {
        launch(stream, cuda::shareWindows<Operation, T>, windows_, at.source, at.gradient,
               reinterpret_cast<float*>(at.saved));
      }
      gather(cuda::gatherWindows<Operation, T>);
    });
  }

  PoolingArguments windows_;
  PoolingArguments pixels_;
};

/// Windows of 2x2 and 3x3.
template <class T>
class SlidingPlan final : public VectorPlan<T> {
 public:
  explicit SlidingPlan(const PoolingProblem& problem) : VectorPlan<T>(problem), sliding_(problem) {}

 private:
  void runVectors(mtl::Stream& stream, const typename VectorPlan<T>::Addresses& at,
                  bool accumulate) const override {
    if (this->problem().direction == PoolingDirection::Forward) return sliding_.pool(stream, at);
    if (this->findsIndices())
      sliding_.pool(stream, typename VectorPlan<T>::Addresses{at.source, nullptr, nullptr, at.saved});
    sliding_.gather(stream, at, accumulate);
  }

  SlidingWindows sliding_;
};

Preparation prepareDirect(const PoolingProblem& problem) {
  return std::make_shared<const DirectPlan>(problem);
}

constexpr Implementation<PoolingProblem> kDirect{"direct", prepareDirect};

/// Why the tensors are not all float32, or all float16, or "".
std::string objectionToFormats(const PoolingProblem& problem) {
  const ImageFeatureChannelFormat format = problem.destination.format;
  if (format != ImageFeatureChannelFormat::Float32 && format != ImageFeatureChannelFormat::Float16)
    return "the destination's format is " + std::string(name(format));
  const bool isGradient = problem.direction == PoolingDirection::Gradient;
  return problem.source.format != format || (isGradient && problem.gradient.format != format)
             ? "formats differ"
             : "";
}

/// PlanOf<float> or PlanOf<Float16>.
template <class Base, template <class> class PlanOf>
std::shared_ptr<const Base> makePlan(const PoolingProblem& problem) {
  if (problem.destination.format == ImageFeatureChannelFormat::Float16)
    return std::make_shared<const PlanOf<Float16>>(problem);
  return std::make_shared<const PlanOf<float>>(problem);
}

/// Earns the last pooling of residual networks: the threads of a block share the pixels of an image.
Preparation prepareGlobal(const PoolingProblem& problem) {
  if (!cuda::GlobalPoolingArguments::takes(problem))
    return Refusal{"it is for linear functions of whole images"};
  if (problem.source.images == 0) return Refusal{"there are no images"};
  if (std::string why = objectionToFormats(problem); !why.empty()) return Refusal{std::move(why)};
  return makePlan<Plan, GlobalPlan>(problem);
}

/// Why kernels for 16 bytes of channels do not take a problem, or "".
std::string objectionToVectors(const PoolingProblem& problem) {
  if (std::string why = objectionToFormats(problem); !why.empty()) return why;
  const bool isGradient = problem.direction == PoolingDirection::Gradient;
  for (const TensorShape* shape : {&problem.source, &problem.destination, &problem.gradient})
    if ((isGradient || shape != &problem.gradient) && !takesLanes(*shape))
      return "channels or strides are no multiples of 16 bytes";
  if (problem.traits().selects && problem.indexBytes() != 1) return "more than 255 taps";
  return PoolingArguments::fits(problem) ? "" : "sizes leave 31 bits";
}

/// Earns every other pooling of images with whole vectors of channels.
Preparation prepareWindows(const PoolingProblem& problem) {
  if (std::string why = objectionToVectors(problem); !why.empty()) return Refusal{std::move(why)};
  return withFallback(makePlan<SelectivePlan, WindowPlan>(problem), kDirect, problem);
}

/// Earns the poolings of networks, 2x2 and 3x3: rows that windows share are read once.
Preparation prepareSliding(const PoolingProblem& problem) {
  if (std::string why = objectionToVectors(problem); !why.empty()) return Refusal{std::move(why)};
  if (std::string why = SlidingWindows::objectionTo(problem); !why.empty()) return Refusal{std::move(why)};
  return withFallback(makePlan<SelectivePlan, SlidingPlan>(problem), kDirect, problem);
}

constexpr std::array<Implementation<PoolingProblem>, 4> kImplementations{{
    {"global", prepareGlobal},
    {"sliding window", prepareSliding},
    {"thread per window", prepareWindows},
    kDirect,
}};

}  // namespace

std::span<const Implementation<PoolingProblem>> poolingImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
