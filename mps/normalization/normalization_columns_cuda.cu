#include "mps/normalization/normalization_columns_cuda.cuh"

#include <cfloat>
#include <cmath>
#include <memory>
#include <type_traits>
#include <utility>

#include "mps/normalization/normalization_cuda.hpp"
#include "mtl/cuda/api.hpp"

namespace mps::detail {
namespace {

using mtl::cuda::attributeOfDevice;

using cuda::ColumnArguments;
using cuda::kColumns;
using cuda::kFewChannels;
using cuda::kSliceThreads;

constexpr std::int64_t kMostSharedBytes = std::int64_t{96} << 10;  ///< of a block, which every GPU can have
constexpr std::int64_t kAloneSharedBytes =
    std::int64_t{160} << 10;  ///< of one that is alone on its multiprocessor; some GPUs have less
constexpr std::size_t kPlainSharedBytes = std::size_t{48} << 10;  ///< that it has unasked
constexpr std::int64_t kSliceBytes = 4 * kSliceThreads;           ///< of a pixel

template <int number>
using Constant = std::integral_constant<int, number>;

/// Where addresses are no multiples of 16, which shows when it runs, as whole images.
template <class T>
class ColumnPlan final : public Plan {
 public:
  ColumnPlan(const NormalizationProblem& problem, std::shared_ptr<const Plan> images)
      : problem_(problem), images_(std::move(images)) {
    fits_ = problem.source.elements() == 0 || setGrid();
  }
  [[nodiscard]] bool fits() const { return fits_; }
  [[nodiscard]] bool canAccumulate() const override { return images_->canAccumulate(); }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.source.elements() == 0) return;
    for (const std::byte* address :
         {operands.source, operands.gradient, static_cast<const std::byte*>(operands.destination)})
      if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) return images_->run(stream, operands);
    if (sharedBytes_ > kPlainSharedBytes &&
        sharedBytes_ > static_cast<std::size_t>(attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin)))
      return images_->run(stream, operands);
    ColumnArguments a = arguments_;
    a.accumulate = operands.accumulate;
    a.source = {problem_.source, operands.source};
    a.gradient = {problem_.gradient, operands.gradient};
    a.destination = {problem_.destination, operands.destination};
    withKinds([&](auto threads, auto isContrast, auto isGradient) {
      const auto startWith = [&](auto quarters) {
        start(stream, a, cuda::normalizeColumns<T, threads(), isContrast(), isGradient(), quarters()>);
      };
      const PowerRule& rule = a.rule;
      bool isRoot = rule.whole == 0 && rule.hasRoot && a.isNormal;
      if (isRoot && isContrast() && isGradient()) isRoot = scaleRoots(a);
      if (isRoot && rule.hasFourthRoot)
        startWith(Constant<3>());
      else if (isRoot)
        startWith(Constant<2>());
      else
        startWith(Constant<0>());
    });
  }

 private:
  [[nodiscard]] bool isContrast() const { return problem_.kind == NormalizationKind::LocalContrast; }
  [[nodiscard]] bool isFew() const { return problem_.source.channels == kFewChannels; }

  /// Calls visit(threads of four pixels, isContrast, isGradient) with constants.
  template <class Visit>
  void withKinds(Visit visit) const {
    const auto with = [](bool condition, auto continueWith) {
      if (condition)
        continueWith(std::true_type());
      else
        continueWith(std::false_type());
    };
    with(isContrast(), [&](auto isContrast) {
      with(problem_.isGradient(), [&](auto isGradient) {
        with(isFew(), [&](auto isFew) {
          constexpr int threads = isFew() ? cuda::kFewThreads<T, isContrast(), isGradient()> : kSliceThreads;
          visit(Constant<threads>(), isContrast, isGradient);
        });
      });
    });
  }

  /// Puts the factor of sums into T, and what powers of T have of it then into that of results.
  /// @return whether T stays a normal number; otherwise nothing was done
  static bool scaleRoots(ColumnArguments& a) {
    constexpr float most = 0x1p20F;
    const float factor = a.ofSum;
    if (!(factor >= 1 / most && factor <= most) || a.delta / factor < FLT_MIN) return false;
    a.delta /= factor;
    a.ofSquares /= factor;
    a.ps *= std::pow(factor, -a.rule.beta);
    return true;
  }

  void start(mtl::Stream& stream, ColumnArguments a, void (*kernel)(ColumnArguments)) const {
    if (sharedBytes_ > kPlainSharedBytes)
      mtl::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(sharedBytes_)),
                       "cudaFuncSetAttribute");
    const std::int64_t blocks =
        blocksOfGroup(attributeOfDevice(cudaDevAttrMultiProcessorCount) *
                      std::int64_t{mtl::cuda::blocksOfMultiprocessor(kernel, threads_, sharedBytes_)});
    a.pairsPerBlock = static_cast<std::uint32_t>(pairs_ / blocks);
    a.blocksWithMore = static_cast<std::uint32_t>(pairs_ % blocks);
    mtl::cuda::launch(stream, kernel, dim3(static_cast<unsigned>(blocks * groups_)), dim3(threads_),
                      sharedBytes_, a);
  }

  /// So many that they fill the GPU once, or a few times where that leaves less of it idle.
  /// @param places of blocks that run at the same time
  [[nodiscard]] std::int64_t blocksOfGroup(std::int64_t places) const {
    constexpr std::int64_t most = 4;
    constexpr double worthwhile = 1.05;
    constexpr std::int64_t fewest = 8;  // pairs of a block: it begins with some that it does not store
    std::int64_t best = 1;
    double bestShare = 0;
    for (std::int64_t times = 1; times <= most; ++times) {
      const std::int64_t blocks = std::max<std::int64_t>(1, times * places / groups_);
      const std::int64_t all = blocks * groups_;
      const double share =
          static_cast<double>(all) / static_cast<double>((all + places - 1) / places * places);
      if (share < worthwhile * bestShare) continue;
      best = blocks;
      bestShare = share;
    }
    if (!goesOn_) best = std::max(best, pairs_ / arguments_.pairs.divisor());
    return std::clamp<std::int64_t>(pairs_ / fewest, 1, best);
  }

  /// @return whether the numbers are small enough
  bool setGrid() {
    const TensorShape& shape = problem_.source;
    ColumnArguments& a = arguments_;
    const std::int64_t segments = (shape.width + kColumns - 1) / kColumns;
    constexpr std::int64_t most = 512;  // threads of a block
    if (segments > most) return false;
    std::int64_t threadsOfItem = 0;
    std::int64_t threadsOfBlock = 0;
    std::int64_t bytesOfItem = 0;
    std::int64_t mostBytes = 0;
    withKinds([&](auto threads, auto isContrast, auto isGradient) {
      threadsOfItem = segments * threads();
      using Build = cuda::ColumnBuild<T, threads(), isContrast(), isGradient()>;
      threadsOfBlock = Build::threadsOfBlock;
      goesOn_ = Build::goesOn;
      mostBytes = Build::blocks == 1 ? kAloneSharedBytes : kMostSharedBytes;
      bytesOfItem =
          cuda::ColumnMemory<T, threads(), isContrast(), isGradient()>(static_cast<std::int32_t>(segments))
              .bytes();
    });
    if (threadsOfItem > threadsOfBlock || bytesOfItem > mostBytes) return false;
    const std::int64_t perBlock = std::min(threadsOfBlock / threadsOfItem, mostBytes / bytesOfItem);
    const std::int64_t slices =
        isFew() ? 1 : shape.channels * static_cast<std::int64_t>(sizeof(T)) / kSliceBytes;
    std::int64_t slicesPerBlock = std::min(perBlock, slices);
    while (slices % slicesPerBlock != 0) --slicesPerBlock;
    const std::int64_t imagesPerBlock = perBlock / slicesPerBlock;
    const std::int64_t pairsOfImage = (shape.height + 1) / 2;
    groups_ = slices / slicesPerBlock;
    pairs_ = (shape.images + imagesPerBlock - 1) / imagesPerBlock * pairsOfImage;
    if (pairs_ > 0x7FFFFFFF || groups_ > 0xFFFF) return false;
    a.segments = cuda::Divider(segments);
    a.pairs = cuda::Divider(pairsOfImage);
    a.slicesPerBlock = cuda::Divider(slicesPerBlock);
    a.slices = cuda::Divider(groups_);
    a.imagesPerBlock = static_cast<std::uint32_t>(imagesPerBlock);
    a.images = static_cast<std::uint32_t>(shape.images);
    a.height = static_cast<std::int32_t>(shape.height);
    a.width = static_cast<std::int32_t>(shape.width);
    const std::int64_t items = imagesPerBlock * slicesPerBlock;
    threads_ = static_cast<unsigned>(items * threadsOfItem);
    sharedBytes_ = static_cast<std::size_t>(items * bytesOfItem);

    const auto taps = static_cast<float>(problem_.taps());
    a.ofWindow = 1 / taps;
    a.delta = problem_.delta;
    a.ofSquares = problem_.alpha / (isContrast() ? cuda::Moments::scale * taps : taps);
    a.p0 = problem_.p0;
    a.pm = problem_.pm;
    a.ps = problem_.ps;
    a.ofSum = 2 * problem_.alpha * problem_.beta / taps;
    a.ofMean = problem_.p0 / taps;
    a.rule = PowerRule(problem_.beta);
    a.isNormal = problem_.alpha >= 0 && problem_.delta >= FLT_MIN;
    return true;
  }

  NormalizationProblem problem_;
  std::shared_ptr<const Plan> images_;
  ColumnArguments arguments_;  ///< but for the tensors
  bool goesOn_ = true;         ///< as ColumnBuild has it
  std::int64_t groups_ = 1;    ///< of slices
  std::int64_t pairs_ = 0;     ///< of rows, of all images of a group
  unsigned threads_ = 0;
  std::size_t sharedBytes_ = 0;
  bool fits_ = false;
};

template <class T>
Preparation prepareAs(const NormalizationProblem& problem, std::shared_ptr<const Plan> images) {
  auto plan = std::make_shared<const ColumnPlan<T>>(problem, std::move(images));
  if (!plan->fits()) return Refusal{"rows that are too long"};
  return plan;
}

}  // namespace

Preparation prepareNormalizationColumnsCuda(const NormalizationProblem& problem) {
  Preparation images = prepareNormalizationImagesCuda(problem);
  auto* const plan = std::get_if<std::shared_ptr<const Plan>>(&images);
  if (plan == nullptr) return images;
  if (problem.x.kernelSize != 5) return Refusal{"windows that are not five pixels by five"};
  const ImageFeatureChannelFormat format = problem.source.format;
  const auto bytes = static_cast<std::int64_t>(bytesPerChannel(format));
  const bool isFew = problem.source.channels == kFewChannels;
  if (problem.source.channels * bytes % kSliceBytes != 0 && !isFew)
    return Refusal{"pixels that are no multiples of 64 bytes, or of three channels"};
  if (isFew && problem.source.width * kFewChannels * bytes % 16 != 0)
    return Refusal{"rows of pixels of three channels that are no multiples of 16 bytes"};
  const TensorShape* const gradient = problem.isGradient() ? &problem.gradient : nullptr;
  for (const TensorShape* shape : {&problem.source, &problem.destination, gradient}) {
    if (shape == nullptr) continue;
    const std::int64_t strides = shape->rowStride | shape->imageStride | (isFew ? 0 : shape->pixelStride);
    if (strides * bytes % 16 != 0) return Refusal{"rows or pixels that are no multiples of 16 bytes"};
  }
  if (format == ImageFeatureChannelFormat::Float32) return prepareAs<float>(problem, *plan);
  return prepareAs<Float16>(problem, *plan);
}

}  // namespace mps::detail
