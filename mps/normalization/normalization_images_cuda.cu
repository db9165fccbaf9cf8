#include "mps/normalization/normalization_images_cuda.cuh"

#include <cfloat>
#include <memory>
#include <type_traits>

#include "mps/normalization/normalization_cuda.hpp"
#include "mtl/cuda/api.hpp"

namespace mps::detail {
namespace {

using cuda::ImageArguments;
using cuda::kImageThreads;

constexpr std::size_t kMostSharedBytes = std::size_t{96} << 10;   ///< of a block, which every GPU can have
constexpr std::size_t kPlainSharedBytes = std::size_t{48} << 10;  ///< that it has unasked

template <int number>
using Constant = std::integral_constant<int, number>;

template <class T>
class ImagePlan final : public Plan {
 public:
  explicit ImagePlan(const NormalizationProblem& problem) : problem_(problem) {
    fits_ = problem.source.elements() == 0 || setGrid();
  }
  [[nodiscard]] bool fits() const { return fits_; }
  [[nodiscard]] bool canAccumulate() const override {
    return problem_.isGradient() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.source.elements() == 0) return;
    ImageArguments a = arguments_;
    a.accumulate = operands.accumulate;
    a.isAligned = takesFour(problem_.source, operands.source) &&
                  takesFour(problem_.gradient, operands.gradient) &&
                  takesFour(problem_.destination, operands.destination);
    a.source = {problem_.source, operands.source};
    a.gradient = {problem_.gradient, operands.gradient};
    a.destination = {problem_.destination, operands.destination};
    if (hasFewChannels())
      runWith<3>(stream, a);
    else
      runWith<0>(stream, a);
  }

 private:
  [[nodiscard]] bool isContrast() const { return problem_.kind == NormalizationKind::LocalContrast; }
  [[nodiscard]] bool hasFewChannels() const { return problem_.source.channels == 3; }
  [[nodiscard]] std::int64_t size() const { return problem_.x.kernelSize; }

  /// Also of a tensor that is not there.
  static bool takesFour(const TensorShape& shape, const std::byte* address) {
    const std::int64_t mixed = shape.pixelStride | shape.rowStride | shape.imageStride;
    return (shape.pixelStride == 3 ? shape.rowStride | shape.imageStride : mixed) % 4 == 0 &&
           reinterpret_cast<std::uintptr_t>(address) % (4 * sizeof(T)) == 0;
  }

  template <int channels>
  void runWith(mtl::Stream& stream, const ImageArguments& a) const {
    const auto start = [&](auto isContrast, auto isGradient, auto size) {
      const auto kernel = cuda::normalizeImages<T, channels, isContrast(), isGradient(), size()>;
      if (sharedBytes_ > kPlainSharedBytes)
        mtl::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              static_cast<int>(kMostSharedBytes)),
                         "cudaFuncSetAttribute");
      mtl::cuda::launch(stream, kernel, dim3(blocks_), dim3(threads_), sharedBytes_, a);
    };
    const auto startSize = [&](auto isContrast, auto isGradient) {
      if (size() == 3)
        start(isContrast, isGradient, Constant<3>());
      else
        start(isContrast, isGradient, Constant<5>());
    };
    const auto startDirection = [&](auto isContrast) {
      if (problem_.isGradient())
        startSize(isContrast, std::true_type());
      else
        startSize(isContrast, std::false_type());
    };
    if (isContrast())
      startDirection(std::true_type());
    else
      startDirection(std::false_type());
  }

  /// Fours of a pixel that a slice has: 64 bytes of memory or as much as threads allow, whole sectors of it, or the whole
  /// pixel; 0: there are no such slices.
  [[nodiscard]] std::int64_t packsOfSlice() const {
    constexpr auto bytes = static_cast<std::int64_t>(4 * sizeof(T));
    const std::int64_t packs = problem_.source.channels / 4;
    for (std::int64_t each = std::min(packs, 64 / bytes); each > 0; --each)
      if (packs % each == 0 && problem_.source.width * each <= kImageThreads &&
          (each == packs || each * bytes % 32 == 0))
        return each;
    return packs <= 8 ? packs : 0;
  }

  /// @return whether the numbers are small enough
  bool setGrid() {
    const TensorShape& shape = problem_.source;
    ImageArguments& a = arguments_;
    const std::int64_t radius = size() / 2;
    const std::int64_t each = hasFewChannels() ? 1 : packsOfSlice();
    const std::int64_t packs = hasFewChannels() ? shape.width * 3 / 4 : shape.width * each;
    if (each == 0 || packs > kImageThreads) return false;
    const std::int64_t slices = hasFewChannels() ? 1 : shape.channels / 4 / each;
    const std::int64_t items = shape.images * slices;

    // Fours of threads beside one another lie in different banks.
    const std::int64_t beside = hasFewChannels() ? (3 * radius + 3) / 4 : radius;
    std::int64_t row = packs / each + 2 * beside;
    const std::int64_t step = 8 % each == 0 ? 8 / each % 8 : 1;
    while (each > 1 && row % 8 != step) ++row;
    const std::int64_t fields = (isContrast() ? 2 : 1) * (problem_.isGradient() ? 2 : 1);
    const auto bytesOfItem = static_cast<std::size_t>(2 * fields * row * each) * 4 * sizeof(float);
    std::int64_t perBlock = std::max<std::int64_t>(1, kImageThreads / 2 / packs);
    perBlock = std::min(
        perBlock, std::max<std::int64_t>(1, static_cast<std::int64_t>(kPlainSharedBytes / bytesOfItem)));
    if (bytesOfItem > kMostSharedBytes) return false;

    // Enough threads for a large GPU come first; each chunk begins with rows that the one before it has, too.
    constexpr std::int64_t enough = std::int64_t{1} << 17;
    const std::int64_t rows = std::max<std::int64_t>(16, shape.height * items * packs / enough);
    const std::int64_t count = (shape.height + rows - 1) / rows;
    a.rowsPerChunk = static_cast<std::int32_t>((shape.height + count - 1) / count);
    a.chunks = cuda::Divider((shape.height + a.rowsPerChunk - 1) / a.rowsPerChunk);
    a.packs = cuda::Divider(packs);
    a.slices = cuda::Divider(slices);
    a.packsOfSlice = cuda::Divider(each);
    const std::int64_t blocks = (items + perBlock - 1) / perBlock * a.chunks.divisor();
    if (items > 0x7FFFFFFF - kImageThreads || blocks > 0x7FFFFFFF) return false;
    a.items = static_cast<std::uint32_t>(items);
    a.itemsPerBlock = static_cast<std::uint32_t>(perBlock);
    a.height = static_cast<std::int32_t>(shape.height);
    a.sharedRow = static_cast<std::int32_t>(row);
    a.sharedItem = static_cast<std::int32_t>(row * each);
    a.sharedField = static_cast<std::int32_t>(row * each * perBlock);
    blocks_ = static_cast<unsigned>(blocks);
    threads_ = static_cast<unsigned>(perBlock * packs);
    sharedBytes_ = static_cast<std::size_t>(perBlock) * bytesOfItem;

    const auto taps = static_cast<float>(problem_.taps());
    a.ofWindow = 1 / taps;
    a.ofColumn = 1 / static_cast<float>(size());
    a.delta = problem_.delta;
    a.ofSquares = problem_.alpha / taps;
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
  ImageArguments arguments_;  ///< but for the tensors
  unsigned blocks_ = 0;
  unsigned threads_ = 0;
  std::size_t sharedBytes_ = 0;
  bool fits_ = false;
};

template <class T>
Preparation prepareAs(const NormalizationProblem& problem) {
  auto plan = std::make_shared<const ImagePlan<T>>(problem);
  if (!plan->fits())
    return Refusal{"rows that are too long, or channels that do not go into sectors of memory"};
  return plan;
}

/// Whether windows are those of all pixels of the source, and the destination shows all of it.
bool isWhole(const NormalizationProblem& problem) {
  const TensorShape& source = problem.source;
  const auto isSame = [&](const TensorShape& shape) {
    return shape.images == source.images && shape.height == source.height && shape.width == source.width &&
           shape.channels == source.channels;
  };
  const auto isAll = [](const WindowAxis& axis, std::int64_t pixels) {
    return axis.offset == 0 && axis.sourceSize == pixels && axis.destinationSize == pixels;
  };
  return isSame(problem.destination) && (!problem.isGradient() || isSame(problem.gradient)) &&
         isAll(problem.x, source.width) && isAll(problem.y, source.height) &&
         problem.destinationOriginX == 0 && problem.destinationOriginY == 0;
}

}  // namespace

Preparation prepareNormalizationImagesCuda(const NormalizationProblem& problem) {
  using Format = ImageFeatureChannelFormat;
  const TensorShape* const gradient = problem.isGradient() ? &problem.gradient : nullptr;
  const std::int64_t size = problem.x.kernelSize;
  const std::int64_t channels = problem.source.channels;
  if (problem.kind == NormalizationKind::CrossChannel) return Refusal{"windows of channels"};
  if (problem.y.kernelSize != size || (size != 3 && size != 5))
    return Refusal{"windows that are not three pixels by three or five by five"};
  if (problem.edgeMode == ImageEdgeMode::Clamp) return Refusal{"pixels that stand for those beyond the edge"};
  if (PowerRule(problem.beta).isGeneral) return Refusal{"an exponent that is no multiple of a quarter"};
  if (!isWhole(problem)) return Refusal{"windows or a destination of a part of the image"};
  if (channels % 4 != 0 && (channels != 3 || problem.source.width % 4 != 0))
    return Refusal{"rows that are not fours of channels, or of elements of three channels"};
  for (const TensorShape* shape : {&problem.source, &problem.destination, gradient})
    if (shape != nullptr && (!cuda::ElementGrid::fits(*shape) || shape->height > 0x7FFFFF00 ||
                             (channels == 3 && shape->pixelStride != 3)))
      return Refusal{"gaps between pixels of three channels, or about 2^31 rows"};
  const Format format = cuda::commonFormat({&problem.source, &problem.destination, gradient});
  if (format == Format::Float32) return prepareAs<float>(problem);
  if (format == Format::Float16) return prepareAs<Float16>(problem);
  return Refusal{"not all float32 and not all float16"};
}

}  // namespace mps::detail
