#include "mps/normalization/normalization_columns_cuda.cuh"

#include <cfloat>
#include <memory>
#include <type_traits>
#include <utility>

#include "mps/normalization/normalization_cuda.hpp"
#include "mtl/cuda/api.hpp"

namespace mps::detail {
namespace {

using cuda::ColumnArguments;
using cuda::kColumns;
using cuda::kFewThreads;
using cuda::kSliceThreads;

constexpr std::int64_t kMostSharedBytes = std::int64_t{96} << 10;  ///< of a block, which every GPU can have
constexpr std::size_t kPlainSharedBytes = std::size_t{48} << 10;   ///< that it has unasked
constexpr std::int64_t kSliceBytes = 4 * kSliceThreads;            ///< of a pixel

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
      const bool isRoot = rule.whole == 0 && rule.hasRoot && a.isNormal;
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
  [[nodiscard]] bool isFew() const { return problem_.source.channels == kFewThreads; }

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
          constexpr int threads = isFew() ? kFewThreads : kSliceThreads;
          visit(Constant<threads>(), isContrast, isGradient);
        });
      });
    });
  }

  void start(mtl::Stream& stream, const ColumnArguments& a, void (*kernel)(ColumnArguments)) const {
    if (sharedBytes_ > kPlainSharedBytes)
      mtl::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(kMostSharedBytes)),
                       "cudaFuncSetAttribute");
    mtl::cuda::launch(stream, kernel, dim3(blocks_), dim3(threads_), sharedBytes_, a);
  }

  /// @return whether the numbers are small enough
  bool setGrid() {
    const TensorShape& shape = problem_.source;
    ColumnArguments& a = arguments_;
    const std::int64_t segments = (shape.width + kColumns - 1) / kColumns;
    const std::int64_t threadsOfItem = segments * (isFew() ? kFewThreads : kSliceThreads);
    constexpr std::int64_t most = 512;  // no block has more
    if (threadsOfItem > most) return false;
    std::int64_t threadsOfBlock = 0;
    std::int64_t bytesOfItem = 0;
    withKinds([&](auto threads, auto isContrast, auto isGradient) {
      threadsOfBlock = cuda::ColumnBuild<T, threads(), isContrast(), isGradient()>::threadsOfBlock;
      bytesOfItem =
          cuda::ColumnMemory<T, threads(), isContrast(), isGradient()>(static_cast<std::int32_t>(segments))
              .bytes();
    });
    if (threadsOfItem > threadsOfBlock || bytesOfItem > kMostSharedBytes) return false;
    const std::int64_t slices =
        isFew() ? 1 : shape.channels * static_cast<std::int64_t>(sizeof(T)) / kSliceBytes;
    const std::int64_t items = shape.images * slices;
    const std::int64_t perBlock = std::min(threadsOfBlock / threadsOfItem, kMostSharedBytes / bytesOfItem);

    // Enough threads for a large GPU come first; each chunk begins with rows that the one before it has, too.
    constexpr std::int64_t enough = std::int64_t{1} << 17;
    const std::int64_t rows = std::max<std::int64_t>(16, shape.height * items * threadsOfItem / enough);
    const std::int64_t count = (shape.height + rows - 1) / rows;
    const std::int64_t pairs = (shape.height + 2 * count - 1) / (2 * count);
    a.rowsPerChunk = static_cast<std::int32_t>(2 * pairs);
    a.chunks = cuda::Divider((shape.height + a.rowsPerChunk - 1) / a.rowsPerChunk);
    const std::int64_t blocks = (items + perBlock - 1) / perBlock * a.chunks.divisor();
    if (items > 0x7FFFFFFF - most || blocks > 0x7FFFFFFF) return false;
    a.segments = cuda::Divider(segments);
    a.slices = cuda::Divider(slices);
    a.items = static_cast<std::uint32_t>(items);
    a.itemsPerBlock = static_cast<std::uint32_t>(perBlock);
    a.height = static_cast<std::int32_t>(shape.height);
    a.width = static_cast<std::int32_t>(shape.width);
    blocks_ = static_cast<unsigned>(blocks);
    threads_ = static_cast<unsigned>(perBlock * threadsOfItem);
    sharedBytes_ = static_cast<std::size_t>(perBlock * bytesOfItem);

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
  unsigned blocks_ = 0;
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
  const bool isFew = problem.source.channels == kFewThreads;
  if (problem.source.channels * bytes % kSliceBytes != 0 && !isFew)
    return Refusal{"pixels that are no multiples of 64 bytes, or of three channels"};
  if (isFew && problem.source.width * kFewThreads * bytes % 16 != 0)
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
