#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "mps/pooling/pooling_cells_cuda.cuh"
#include "mps/pooling/pooling_global_cuda.cuh"
#include "mps/pooling/pooling_plain_cuda.cuh"
#include "mps/pooling/pooling_problem.hpp"
#include "mps/pooling/pooling_strip_arguments_cuda.cuh"
#include "mps/pooling/pooling_vectors_cuda.cuh"

namespace mps::detail {
namespace {

using cuda::PoolingArguments;
using cuda::PoolingStrips;

bool isAligned(const void* address, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

/// One thread for each element; accepts everything.
class PlainPlan : public Plan {
 public:
  explicit PlainPlan(const PoolingProblem& problem) : problem_(problem) {}

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.direction == PoolingDirection::Gradient &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }
  void run(mtl::Stream& stream, const Operands& operands) const override {
    const cuda::PlainOperands plain{operands.source, operands.gradient, operands.destination, operands.saved,
                                    operands.accumulate};
    const dim3 grid(mtl::cuda::blocksFor(std::min(problem_.destination.elements(), kMostThreads)));
    const dim3 block(mtl::cuda::kBlockThreads);
    if (problem_.direction == PoolingDirection::Forward)
      mtl::cuda::launch(stream, cuda::poolPlain, grid, block, 0, problem_, plain);
    else
      mtl::cuda::launch(stream, cuda::gatherPlain, grid, block, 0, problem_, plain);
  }

 protected:
  [[nodiscard]] const PoolingProblem& problem() const { return problem_; }

 private:
  /// Each then takes several elements.
  static constexpr std::int64_t kMostThreads = std::int64_t{1} << 24U;
  PoolingProblem problem_;
};

/// Averages of whole images, T is of all tensors.
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
    if (isForward_)
      return mtl::cuda::launch(stream, cuda::averageImages<T>, grid, block, 0, arguments,
                               reinterpret_cast<const T*>(operands.source), destination);
    const std::int64_t pixelsOfBlock = arguments.lanes() * kPixelsPerThread;
    grid.z =
        static_cast<unsigned>(std::min((problem_.taps() + pixelsOfBlock - 1) / pixelsOfBlock, kMostSlices));
    mtl::cuda::launch(stream, cuda::spreadAverages<T>, grid, block, 0, arguments,
                      reinterpret_cast<const T*>(operands.gradient), destination);
  }

 private:
  static constexpr std::int64_t kPixelsPerThread = 8;
  static constexpr std::int64_t kMostSlices = 65535;
  PoolingProblem problem_;
  bool isForward_;
  cuda::GlobalPoolingArguments arguments_;
};

/// 16 bytes of channels at once where the addresses allow it, which shows when it runs.
template <class T>
class VectorPlan final : public PlainPlan {
 public:
  explicit VectorPlan(const PoolingProblem& problem)
      : PlainPlan(problem), windows_(problem), pixels_(problem), areApart_(cuda::windowsAreApart(problem)) {
    const std::int64_t packs = problem.source.channels / cuda::kLanes<T>;
    if (PoolingStrips::takes(problem)) strips_.emplace(problem);
    gathersStrips_ = PoolingStrips::takesGradient(problem);
    windows_.cover(problem.source.images, problem.y.destinationSize, problem.x.destinationSize, packs);
    pixels_.cover(problem.destination.images, problem.destination.height, problem.destination.width, packs);
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    const auto elements = static_cast<std::size_t>(problem().windows() * problem().source.channels);
    if (problem().direction == PoolingDirection::Forward || areApart_) return 0;
    if (problem().kind == PoolingKind::L2Norm) return elements * sizeof(float);
    return problem().kind == PoolingKind::Max && !problem().useIndices ? elements : 0;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const bool isAlignedEverywhere = isAligned(operands.source, 16) && isAligned(operands.gradient, 16) &&
                                     isAligned(operands.destination, 16) &&
                                     isAligned(operands.saved, cuda::kLanes<T>);
    if (!isAlignedEverywhere) return PlainPlan::run(stream, operands);
    const Addresses addresses{
        reinterpret_cast<const T*>(operands.source), reinterpret_cast<const T*>(operands.gradient),
        reinterpret_cast<T*>(operands.destination), reinterpret_cast<std::uint8_t*>(operands.saved)};
    if (problem().direction == PoolingDirection::Forward)
      pool(stream, addresses);
    else
      gather(stream, addresses, operands);
  }

 private:
  using Addresses = cuda::PoolingAddresses<T>;

  template <class... Parameters, class... Values>
  static void launch(mtl::Stream& stream, void (*kernel)(PoolingArguments, Parameters...),
                     const PoolingArguments& arguments, Values... values) {
    mtl::cuda::launch(stream, kernel, arguments.grid.grid, arguments.grid.block, 0, arguments, values...);
  }

  void pool(mtl::Stream& stream, const Addresses& at) const {
    using cuda::MaximumOutput;
    if (strips_)
      return strips_->pool(
          stream, Addresses{at.source, nullptr, at.destination, problem().saveIndices ? at.saved : nullptr});
    switch (problem().kind) {
      case PoolingKind::Max:
        if (problem().saveIndices)
          return launch(stream, cuda::poolMaxima<T, MaximumOutput::Both>, windows_, at.source, at.destination,
                        at.saved);
        return launch(stream, cuda::poolMaxima<T, MaximumOutput::Value>, windows_, at.source, at.destination,
                      at.saved);
      case PoolingKind::Average:
        return launch(stream, cuda::poolAverages<T>, windows_, at.source, at.destination);
      case PoolingKind::L2Norm:
        return launch(stream, cuda::poolNorms<T>, windows_, at.source, at.destination);
    }
  }

  /// What all pixels of a window need is computed once: by the window, or before they gather.
  void gather(mtl::Stream& stream, const Addresses& at, const Operands& operands) const {
    PoolingArguments pixels = pixels_;
    PoolingArguments cells = windows_;
    pixels.accumulate = cells.accumulate = operands.accumulate;
    if (areApart_) return scatter(stream, cells, at);
    switch (problem().kind) {
      case PoolingKind::Max: {
        std::uint8_t* const chosen =
            problem().useIndices ? at.saved : reinterpret_cast<std::uint8_t*>(operands.scratch);
        if (!problem().useIndices) findPlaces(stream, at, chosen);
        if (gathersStrips_)
          return strips_->gather(stream, Addresses{at.source, at.gradient, at.destination, chosen},
                                 operands.accumulate);
        return launch(stream, cuda::gatherMaxima<T>, pixels, at.gradient, chosen, at.destination);
      }
      case PoolingKind::Average:
        if (gathersStrips_) return strips_->gather(stream, at, operands.accumulate);
        return launch(stream, cuda::gatherAverages<T>, pixels, at.gradient, at.destination);
      case PoolingKind::L2Norm: {
        auto* const quotients = reinterpret_cast<float*>(operands.scratch);
        launch(stream, cuda::divideByNorms<T>, windows_, at.source, at.gradient, quotients);
        return launch(stream, cuda::gatherNorms<T>, pixels, at.source, quotients, at.destination);
      }
    }
  }

  void findPlaces(mtl::Stream& stream, const Addresses& at, std::uint8_t* places) const {
    if (strips_) return strips_->pool(stream, Addresses{at.source, nullptr, nullptr, places});
    launch(stream, cuda::poolMaxima<T, cuda::MaximumOutput::Index>, windows_, at.source, at.destination,
           places);
  }

  void scatter(mtl::Stream& stream, const PoolingArguments& cells, const Addresses& at) const {
    using cuda::CellKind;
    const auto with = [&](auto kernel) {
      launch(stream, kernel, cells, at.source, at.gradient, at.saved, at.destination);
    };
    switch (problem().kind) {
      case PoolingKind::Max:
        if (problem().useIndices) return with(cuda::scatterCells<T, CellKind::SavedMaximum>);
        return with(cuda::scatterCells<T, CellKind::Maximum>);
      case PoolingKind::Average:
        return with(cuda::scatterCells<T, CellKind::Average>);
      case PoolingKind::L2Norm:
        return with(cuda::scatterCells<T, CellKind::Norm>);
    }
  }

  PoolingArguments windows_;
  PoolingArguments pixels_;
  std::optional<PoolingStrips> strips_;
  bool areApart_;
  bool gathersStrips_ = false;
};

Preparation preparePlain(const PoolingProblem& problem) {
  return std::make_shared<const PlainPlan>(problem);
}

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

Preparation prepareGlobal(const PoolingProblem& problem) {
  if (!cuda::GlobalPoolingArguments::takes(problem)) return Refusal{"it is for averages of whole images"};
  if (problem.source.images == 0) return Refusal{"there are no images"};
  if (std::string why = objectionToFormats(problem); !why.empty()) return Refusal{std::move(why)};
  if (problem.destination.format == ImageFeatureChannelFormat::Float16)
    return std::make_shared<const GlobalPlan<Float16>>(problem);
  return std::make_shared<const GlobalPlan<float>>(problem);
}

Preparation prepareVectors(const PoolingProblem& problem) {
  const bool isGradient = problem.direction == PoolingDirection::Gradient;
  const ImageFeatureChannelFormat format = problem.destination.format;
  if (std::string why = objectionToFormats(problem); !why.empty()) return Refusal{std::move(why)};
  for (const TensorShape* shape : {&problem.source, &problem.destination, &problem.gradient})
    if ((isGradient || shape != &problem.gradient) && !cuda::takesLanes(*shape))
      return Refusal{"channels or strides are no multiples of 16 bytes"};
  if (problem.kind == PoolingKind::Max && problem.indexBytes() != 1) return Refusal{"more than 255 taps"};
  if (!PoolingArguments::fits(problem)) return Refusal{"sizes leave 31 bits"};
  if (format == ImageFeatureChannelFormat::Float16)
    return std::make_shared<const VectorPlan<Float16>>(problem);
  return std::make_shared<const VectorPlan<float>>(problem);
}

constexpr std::array<Implementation<PoolingProblem>, 3> kImplementations{{
    {"global", prepareGlobal},
    {"vectors", prepareVectors},
    {"plain", preparePlain},
}};

}  // namespace

std::span<const Implementation<PoolingProblem>> poolingImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
