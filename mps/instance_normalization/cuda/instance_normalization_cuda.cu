#include "mps/instance_normalization/cuda/instance_normalization_cuda.cuh"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>

#include "mps/core/plan/fallback_plan.hpp"
#include "mps/instance_normalization/cuda/instance_normalization_slices_cuda.cuh"
#include "mps/instance_normalization/instance_normalization_problem.hpp"
#include "mtl/cuda/api.hpp"

namespace mps::detail {
namespace {

using mtl::cuda::attributeOfDevice;

using cuda::ChannelGrid;
using cuda::ChunkSums;
using cuda::GroupStatistics;
using cuda::ImageSums;
using Operation = InstanceNormalizationOperation;

constexpr std::int64_t kPixelsOfMap = 32;     ///< of a thread that stores results, at least
constexpr std::int64_t kPixelsOfSum = 8;      ///< of a thread that sums, at least
constexpr std::int64_t kMostSumBlocks = 512;  ///< of all images, so that few numbers are left to join
constexpr std::int64_t kMostImages = 65535;   ///< along z, in one launch

/// Of each image: sums of chunks, their join, statistics of the groups (but where they were saved), and the map.
/// Or in one launch, where the pixels of a few channels fit into the shared memory of a thread-block cluster.
class ImagesPlan final : public AccessPlan {
 public:
  /// @param holdsImages in shared memory, where fitsSharedMemory(), in vectors
  ImagesPlan(const InstanceNormalizationProblem& problem, bool holdsImages)
      : problem_(problem),
        holdsImages_(holdsImages),
        channels_(problem.source.channels),
        images_(problem.source.images),
        pixels_(static_cast<double>(problem.source.height * problem.source.width)) {
    TensorShape* const gradient = isForward() ? nullptr : &problem_.gradient;
    TensorShape* const destination = problem.computesData ? &problem_.destination : nullptr;
    const ImageFeatureChannelFormat format = cuda::commonFormat({&problem_.source, gradient, destination});
    if (format != ImageFeatureChannelFormat::Float32 && format != ImageFeatureChannelFormat::Float16) return;
    // Pixels of an image are widened, not across images.
    const auto lanes = static_cast<std::int64_t>(16 / bytesPerChannel(format));
    for (TensorShape* shape : {&problem_.source, gradient, destination})
      if (shape != nullptr) shape->images = 1;
    cuda::widenPixels({&problem_.source, gradient, destination}, lanes);
    cuda::joinAxes({&problem_.source, gradient, destination}, cuda::JoinedAxes::Pixels);
    const auto restore = [&](TensorShape& widened, const TensorShape& original) {
      widened.images = original.images;
      widened.imageStride = original.imageStride;
    };
    restore(problem_.source, problem.source);
    if (gradient != nullptr) restore(*gradient, problem.gradient);
    if (destination != nullptr) restore(*destination, problem.destination);
  }

  [[nodiscard]] std::size_t scratchBytes() const override { return chunksOffset() + chunkBytes(); }
  [[nodiscard]] bool canAccumulate() const override {
    return !isForward() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override { runPart(stream, operands, {}); }

  /// Whether a multiprocessor, or a few, can hold all pixels of some channels, on the current device.
  [[nodiscard]] bool fitsSharedMemory() const {
    if (!isEvenlySpaced() || problem_.source.elements() == 0) return false;
    if (vectorFormat() == ImageFeatureChannelFormat::Float32) return divisionOf<float>().slices > 0;
    return vectorFormat() == ImageFeatureChannelFormat::Float16 && divisionOf<Float16>().slices > 0;
  }

  /// Of some of the images. @param carried what those before have summed, where gradients are summed over images
  void runPart(mtl::Stream& stream, const Operands& operands, const cuda::CarriedSums& carried) const {
    if (problem_.source.elements() > 0) compute(stream, operands);
    if (isForward() || !problem_.sumsImages) return;
    mtl::cuda::launch(stream, cuda::sumImages, dim3(mtl::cuda::blocksFor(channels_)),
                      dim3(mtl::cuda::kBlockThreads), 0, imageSums(operands), images_, carried,
                      reinterpret_cast<float*>(operands.parameters[2]),
                      reinterpret_cast<float*>(operands.parameters[3]));
  }

 protected:
  [[nodiscard]] AccessedTensors accessed(const Operands& operands) const override {
    return {{{problem_.source, operands.source},
             {problem_.gradient, operands.gradient, !isForward()},
             {problem_.destination, operands.destination, problem_.computesData}}};
  }

 private:
  [[nodiscard]] bool isForward() const { return problem_.operation == Operation::Forward; }
  void compute(mtl::Stream& stream, const Operands& operands) const {
    if (holdsImages_)
      return vectorFormat() == ImageFeatureChannelFormat::Float32 ? runSlices<float>(stream, operands)
                                                                  : runSlices<Float16>(stream, operands);
    cuda::withAccess(vectorFormat(), [&](auto access) { runImages<decltype(access)>(stream, operands); });
  }

  /// Whether the pixels of an image lie at equal distances.
  [[nodiscard]] bool isEvenlySpaced() const {
    const auto isEven = [](const TensorShape& shape) {
      return shape.height == 1 || shape.rowStride == shape.width * shape.pixelStride;
    };
    return isEven(problem_.source) && (isForward() || isEven(problem_.gradient)) &&
           (!problem_.computesData || isEven(problem_.destination));
  }
  /// Lets a kernel take all shared memory of a multiprocessor.
  template <class Kernel>
  static Kernel* withSharedMemory(Kernel* kernel) {
    const int most = attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    mtl::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
                     "cudaFuncSetAttribute");
    mtl::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                          cudaSharedmemCarveoutMaxShared),
                     "cudaFuncSetAttribute");
    return kernel;
  }

  template <class T>
  [[nodiscard]] cuda::SliceDivision divisionOf() const {
    return cuda::SliceDivision(
        problem_.source, cuda::kLanes<T>, channels_, channels_ / problem_.groups, isForward() ? 1 : 2,
        attributeOfDevice(cudaDevAttrComputeCapabilityMajor) >= 9 ? 8 : 1,
        static_cast<std::size_t>(attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin)),
        static_cast<std::size_t>(attributeOfDevice(cudaDevAttrMaxSharedMemoryPerMultiprocessor)));
  }

  template <class T>
  void runSlices(mtl::Stream& stream, const Operands& operands) const {
    cuda::SliceDivision division = divisionOf<T>();
    fill(division.arguments, operands);
    const auto start = [&](auto* kernel) {
      mtl::cuda::launch(stream, withSharedMemory(kernel),
                        dim3(division.slices * division.blocks, static_cast<unsigned>(images_)),
                        dim3(division.threads), division.sharedBytes, division.arguments);
    };
    const auto startBlocks = [&](auto blocks) {
      if (division.blocks != blocks()) return;
      if (isForward())
        start(cuda::normalizeSlices<T, blocks()>);
      else
        start(cuda::gradientOfSlices<T, blocks()>);
    };
    startBlocks(std::integral_constant<unsigned, 1>());
    startBlocks(std::integral_constant<unsigned, 2>());
    startBlocks(std::integral_constant<unsigned, 4>());
    startBlocks(std::integral_constant<unsigned, 8>());
  }

  void fill(cuda::SliceArguments& a, const Operands& operands) const {
    a.source = {problem_.source, operands.source};
    a.gradient = {problem_.gradient, operands.gradient};
    a.destination = {problem_.destination, operands.destination};
    a.imagePixels = pixels_;
    a.inversePixels = 1 / pixels_;
    a.inverseGroupElements = 1 / (pixels_ * static_cast<double>(channels_ / problem_.groups));
    a.epsilon = static_cast<double>(problem_.epsilon);
    a.statistics = {problem_.hasSavedStatistics ? reinterpret_cast<double*>(operands.saved) : nullptr,
                    problem_.groups, channels_};
    a.gamma = reinterpret_cast<const float*>(operands.parameters[0]);
    a.beta = reinterpret_cast<const float*>(operands.parameters[1]);
    a.sums = {scratch<double>(operands, 0), channels_};
    a.computesData = problem_.computesData;
    a.accumulate = operands.accumulate;
    if (!isForward() && !problem_.sumsImages) {
      a.gammaGradient = reinterpret_cast<float*>(operands.parameters[2]);
      a.betaGradient = reinterpret_cast<float*>(operands.parameters[3]);
    }
  }

  // Scratch memory: sums of images, statistics, shares of groups, sums of chunks.
  static std::size_t doubles(std::int64_t count) {
    return (static_cast<std::size_t>(count) * sizeof(double) + 255) / 256 * 256;
  }
  [[nodiscard]] std::size_t statisticsOffset() const { return doubles(2 * images_ * channels_); }
  [[nodiscard]] std::size_t sharesOffset() const {
    return statisticsOffset() + (problem_.hasSavedStatistics ? 0 : doubles(2 * images_ * problem_.groups));
  }
  [[nodiscard]] std::size_t chunksOffset() const {
    return sharesOffset() + (isForward() ? 0 : doubles(2 * images_ * problem_.groups));
  }
  [[nodiscard]] std::size_t chunkBytes() const {
    if (problem_.source.elements() == 0) return 0;
    return doubles(images_ * sumGrid(lanes()).grid.x * 2 * problem_.source.channels);
  }
  template <class T>
  static T* scratch(const Operands& operands, std::size_t offset) {
    return reinterpret_cast<T*>(operands.scratch + offset);
  }

  /// Of one image; images go along z.
  [[nodiscard]] ChannelGrid gridOf(std::int64_t lanes, std::int64_t pixelsPerThread,
                                   std::int64_t mostBlocks) const {
    TensorShape one = problem_.source;
    one.images = 1;
    ChannelGrid grid(one, lanes, pixelsPerThread, mostBlocks);
    grid.grid.z = static_cast<unsigned>(images_);
    return grid;
  }
  [[nodiscard]] ChannelGrid sumGrid(std::int64_t lanes) const {
    return gridOf(lanes, kPixelsOfSum, std::max<std::int64_t>(1, kMostSumBlocks / images_));
  }

  template <class Access>
  void runImages(mtl::Stream& stream, const Operands& operands) const {
    const cuda::SourceView source(problem_.source, operands.source);
    const cuda::SourceView gradient(problem_.gradient, operands.gradient);
    const cuda::ResultView destination(problem_.destination, operands.destination);
    const auto* gamma = reinterpret_cast<const float*>(operands.parameters[0]);
    const ChannelGrid sums = sumGrid(Access::lanes);
    const ChannelGrid map = gridOf(Access::lanes, kPixelsOfMap, 0x7FFFFFFF);
    const ChunkSums chunks{scratch<double>(operands, chunksOffset()), problem_.source.channels, sums.grid.x};
    const ImageSums perImage = imageSums(operands);
    const GroupStatistics statistics{problem_.hasSavedStatistics
                                         ? reinterpret_cast<double*>(operands.saved)
                                         : scratch<double>(operands, statisticsOffset()),
                                     problem_.groups, channels_};
    if (isForward() || !problem_.hasSavedStatistics) findStatistics<Access>(stream, operands, statistics);
    if (isForward())
      return mtl::cuda::launch(
          stream, cuda::normalizeImagePixels<Access>, map.grid, map.block, 0,
          cuda::NormalizeImageArguments{map, source, destination, statistics, gamma,
                                        reinterpret_cast<const float*>(operands.parameters[1])});
    auto* const gammaGradient = reinterpret_cast<float*>(operands.parameters[2]);
    auto* const betaGradient = reinterpret_cast<float*>(operands.parameters[3]);
    auto* const shares = scratch<double>(operands, sharesOffset());
    mtl::cuda::launch(stream, cuda::sumImageGradients<Access>, sums.grid, sums.block, 0, sums, source,
                      gradient, statistics, chunks);
    join(stream, chunks, source, 0, perImage);
    mtl::cuda::launch(
        stream, cuda::finishGradients, groupGrid(), dim3(kGroupThreads), 0,
        cuda::FinishGradientArguments{perImage, statistics, pixels_, gamma,
                                      problem_.sumsImages ? nullptr : gammaGradient, betaGradient, shares});
    if (problem_.computesData)
      mtl::cuda::launch(stream, cuda::imageGradientOfPixels<Access>, map.grid, map.block, 0,
                        cuda::ImageGradientArguments{map, gradient, source, destination, statistics, gamma,
                                                     shares, operands.accumulate});
  }

  [[nodiscard]] ImageSums imageSums(const Operands& operands) const {
    return {scratch<double>(operands, 0), channels_};
  }

  template <class Access>
  void findStatistics(mtl::Stream& stream, const Operands& operands,
                      const GroupStatistics& statistics) const {
    const cuda::SourceView source(problem_.source, operands.source);
    const ChannelGrid grid = sumGrid(Access::lanes);
    const ChunkSums chunks{scratch<double>(operands, chunksOffset()), problem_.source.channels, grid.grid.x};
    mtl::cuda::launch(stream, cuda::sumMoments<Access, true>, grid.grid, grid.block, 0, grid, channels_,
                      source, chunks);
    join(stream, chunks, source, pixels_, imageSums(operands));
    mtl::cuda::launch(stream, cuda::finishStatistics, groupGrid(), dim3(kGroupThreads), 0,
                      imageSums(operands), pixels_, static_cast<double>(problem_.epsilon), statistics);
  }

  static constexpr unsigned kGroupThreads = 64;
  [[nodiscard]] dim3 groupGrid() const {
    return {mtl::cuda::blocksFor(problem_.groups, kGroupThreads), static_cast<unsigned>(images_)};
  }

  /// Blocks of few channels and of many threads for each.
  void join(mtl::Stream& stream, const ChunkSums& chunks, const cuda::SourceView& source, double pixels,
            const ImageSums& result) const {
    const auto across = static_cast<unsigned>(std::min<std::int64_t>(channels_, 32));
    const dim3 block(across, cuda::kImageJoinThreads / across);
    const dim3 grid(mtl::cuda::blocksFor(channels_, across), 1, static_cast<unsigned>(images_));
    mtl::cuda::launch(stream, cuda::joinImageChunks, grid, block, 0, chunks, source, pixels, result);
  }

  InstanceNormalizationProblem problem_;  ///< whose pixels may have been widened
  bool holdsImages_;
  std::int64_t channels_;  ///< before that
  std::int64_t images_;
  double pixels_;  ///< of an image
};

/// More images than a launch takes, one part of them after the other.
class PartsPlan final : public SelectivePlan {
 public:
  PartsPlan(const InstanceNormalizationProblem& problem, bool holdsImages)
      : problem_(problem),
        whole_(withImages(problem, kMostImages), holdsImages),
        last_(withImages(problem, problem.source.images - (parts() - 1) * kMostImages), holdsImages) {}

  [[nodiscard]] bool useVectors() { return whole_.useVectors() && last_.useVectors(); }
  [[nodiscard]] std::size_t scratchBytes() const override {
    return carriedBytes() + std::max(whole_.scratchBytes(), last_.scratchBytes());
  }
  [[nodiscard]] bool canAccumulate() const override { return whole_.canAccumulate(); }
  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    return whole_.objectionTo(operands);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    Operands part = operands;
    part.scratch += carriedBytes();
    for (std::int64_t i = 0; i < parts(); ++i) {
      const bool isLast = i == parts() - 1;
      (isLast ? last_ : whole_)
          .runPart(stream, part, {reinterpret_cast<double*>(operands.scratch), i == 0, isLast});
      moveBehindPart(part);
    }
  }

 private:
  static InstanceNormalizationProblem withImages(InstanceNormalizationProblem problem, std::int64_t images) {
    for (TensorShape* shape : {&problem.source, &problem.gradient, &problem.destination})
      if (shape->images > 0) shape->images = images;
    return problem;
  }
  [[nodiscard]] std::int64_t parts() const {
    return (problem_.source.images + kMostImages - 1) / kMostImages;
  }
  [[nodiscard]] std::size_t carriedBytes() const {
    return (2 * static_cast<std::size_t>(problem_.source.channels) * sizeof(double) + 255) / 256 * 256;
  }
  void moveBehindPart(Operands& part) const {
    const auto move = [](auto& address, std::int64_t bytes) {
      if (address != nullptr) address += bytes;
    };
    const auto bytesOfImages = [](const TensorShape& shape) {
      return kMostImages * shape.imageStride * static_cast<std::int64_t>(bytesPerChannel(shape.format));
    };
    move(part.source, bytesOfImages(problem_.source));
    move(part.gradient, bytesOfImages(problem_.gradient));
    move(part.destination, bytesOfImages(problem_.destination));
    move(part.saved, kMostImages * static_cast<std::int64_t>(problem_.savedBytesPerImage()));
    if (problem_.operation == Operation::Forward || problem_.sumsImages) return;
    const std::int64_t row = problem_.source.channels * static_cast<std::int64_t>(sizeof(float));
    for (const std::size_t gradients : {2, 3}) move(part.parameters[gradients], kMostImages * row);
  }

  InstanceNormalizationProblem problem_;
  ImagesPlan whole_;
  ImagesPlan last_;
};

Preparation prepareChunks(const InstanceNormalizationProblem& problem) {
  for (const TensorShape* shape : {&problem.source, &problem.gradient, &problem.destination})
    if (!ChannelGrid::fits(*shape)) return Refusal{ChannelGrid::kTooLarge};
  if (problem.source.images > kMostImages) return std::make_shared<const PartsPlan>(problem, false);
  return std::make_shared<const ImagesPlan>(problem, false);
}

constexpr Implementation<InstanceNormalizationProblem> kChunks{"chunks of pixels", prepareChunks};

template <bool holdsImages>
Preparation prepareInVectors(const InstanceNormalizationProblem& problem) {
  if (problem.source.images > kMostImages)
    return inVectors(std::make_shared<PartsPlan>(problem, holdsImages), kChunks, problem);
  return inVectors(std::make_shared<ImagesPlan>(problem, holdsImages), kChunks, problem);
}

/// Earns style transfer: pixels are read from memory once, and wait in shared memory for their statistics.
Preparation prepareClusters(const InstanceNormalizationProblem& problem) {
  InstanceNormalizationProblem one = problem;
  for (TensorShape* shape : {&one.source, &one.gradient, &one.destination})
    shape->images = std::min<std::int64_t>(shape->images, 1);
  ImagesPlan plan(one, true);
  if (!plan.useVectors() || !plan.fitsSharedMemory())
    return Refusal{"no cluster of blocks holds the pixels of some channels in shared memory"};
  return prepareInVectors<true>(problem);
}

constexpr Implementation<InstanceNormalizationProblem> implementations[] = {
    {"shared memory", prepareClusters},
    {"chunks of pixels, 16 bytes per thread", prepareInVectors<false>},
    kChunks};

}  // namespace

std::span<const Implementation<InstanceNormalizationProblem>> instanceNormalizationImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
