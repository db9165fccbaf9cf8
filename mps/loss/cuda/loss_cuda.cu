#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "mps/core/plan/fallback_plan.hpp"
#include "mps/loss/cuda/loss_dense_cuda.cuh"
#include "mps/loss/cuda/loss_softmax_cuda.cuh"

namespace mps::detail {
namespace {

using cuda::Chunk;
using cuda::Divider;
using cuda::ElementGrid;
using cuda::ElementPlace;
using cuda::JoinedAxes;
using cuda::LossArguments;
using cuda::ResultView;

constexpr unsigned kThreads = 32 * cuda::kMostWarps;

/// Stands for a type that is known only when a kernel runs.
constexpr auto kAnyType = CNNLossType::Count;

/// Any type but softmax.
template <class Access, CNNLossType constantType>
__global__ void __launch_bounds__(kThreads, 3) lossElements(LossArguments a) {
  constexpr int batch = Access::lanes == 1 ? 1 : 2;  // on their way at once
  const CNNLossType type = constantType == kAnyType ? a.type : constantType;
  const Chunk chunk(a);
  const float factor = a.factor(chunk.image);
  double sum = 0;
  const auto compute = [&](const ElementPlace& place, const cuda::FetchedInputs<Access>& fetched) {
    const std::uint32_t index = a.classOf(place);
    const auto y = fetched.predictionValues(a, index);
    const auto t = fetched.labelValues(a, place, index);
    const auto w = cuda::loadWeights<Access>(a, place, index);
    const auto scale = cuda::derivativeScale<Access>(a, place, w, factor);
    sum += static_cast<double>(cuda::storeLosses<Access>(
        a, place, w, [&](int i) { return cuda::lossOf(type, a.numbers, y.values[i], t.values[i]); }));
    if (a.gradient.memory != nullptr) {
      auto values = scale;
      for (int i = 0; i < Access::lanes; ++i)
        values.values[i] *= cuda::lossGradient(type, a.numbers, y.values[i], t.values[i]);
      Access::store(values, a.gradient, place, a.accumulate);
    }
    if (a.labelGradient.memory != nullptr) {
      auto values = scale;
      for (int i = 0; i < Access::lanes; ++i)
        values.values[i] *= cuda::lossLabelGradient(type, a.numbers, y.values[i], t.values[i]);
      Access::store(values, a.labelGradient, place);
    }
  };
  for (std::uint32_t first = chunk.begin + threadIdx.x; first < chunk.end; first += batch * blockDim.x) {
    cuda::FetchedInputs<Access>
        fetched[batch];  // what is left out is 0, else loads would wait for one another
    ElementPlace places[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const std::uint32_t item = first + static_cast<std::uint32_t>(i) * blockDim.x;
      if (item >= chunk.end) continue;
      const std::uint32_t pixel = a.vectors.divide(item);
      places[i] = a.place(chunk.image, pixel);
      places[i].channel = static_cast<std::int32_t>((item - pixel * a.vectors.divisor()) * Access::lanes);
      fetched[i] = {a, places[i]};
    }
#pragma unroll
    for (int i = 0; i < batch; ++i)
      if (first + static_cast<std::uint32_t>(i) * blockDim.x < chunk.end) compute(places[i], fetched[i]);
  }
  cuda::storeSum(a, sum);
}

/// A launch, unlike a memset, can be given another address in a captured graph.
__global__ void clearCounts(unsigned long long* counts, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) counts[i] = 0;
}

/// Counts the weights that are not 0, of single elements. Integers: their sum does not depend on the order.
__global__ void countWeights(LossArguments a, unsigned long long* counts) {
  __shared__ double shared[cuda::kMostWarps];
  const Chunk chunk(a);
  std::uint32_t count = 0;
  for (std::uint32_t item = chunk.begin + threadIdx.x; item < chunk.end; item += blockDim.x) {
    const std::uint32_t pixel = a.vectors.divide(item);
    ElementPlace place = a.place(chunk.image, pixel);
    place.channel = static_cast<std::int32_t>(item - pixel * a.vectors.divisor());
    if (cuda::loadWeights<cuda::OneByOne>(a, place, a.classOf(place)).values[0] != 0.0F) ++count;
  }
  const auto sum = static_cast<unsigned long long>(cuda::sumOfBlock(count, shared));
  if (threadIdx.x != 0) return;
  atomicAdd(counts + chunk.image, sum);
  atomicAdd(counts + a.images, sum);
}

__global__ void fillWithZeros(ElementGrid grid, ResultView view) {
  grid.forEachBatch<1, 1>(
      [](int, const ElementPlace&) {},
      [&](int, const ElementPlace& place) { cuda::OneByOne::store({{0.0F}}, view, place); });
}

/// The loss of each image, by a row of the block: to `losses`, or where there are none into the first element of
/// its loss image.
__global__ void reduceImages(LossArguments a, ResultView to, double* losses) {
  __shared__ double shared[cuda::kMostWarps];
  const std::uint32_t image = blockIdx.x * blockDim.y + threadIdx.y;
  const bool isInside = image < a.images;
  double sum = 0;
  for (std::uint32_t chunk = threadIdx.x; isInside && chunk < a.chunks.divisor(); chunk += blockDim.x)
    sum += a.sums[image * a.chunks.divisor() + chunk];
  sum = cuda::combineRow(sum, shared, cuda::Sum());
  if (threadIdx.x != 0 || !isInside) return;
  if (a.type == CNNLossType::CosineDistance) sum = 1 - sum;
  const double by = a.divisorOf(image);
  const double loss = by == 0 ? 0 : a.weight * sum / by;
  if (losses != nullptr)
    losses[image] = loss;
  else
    cuda::storeAs(static_cast<float>(loss), to.format, to.memory, image * to.image);
}

/// Image 0 gets the loss of the batch, the others 0.
__global__ void reduceBatch(std::uint32_t images, ResultView to, const double* losses) {
  __shared__ double shared[cuda::kMostWarps];
  double sum = 0;
  for (std::uint32_t image = threadIdx.x; image < images; image += blockDim.x) {
    sum += losses[image];
    if (image > 0) cuda::storeAs(0.0F, to.format, to.memory, image * to.image);
  }
  sum = cuda::sumOfBlock(sum, shared);
  if (threadIdx.x == 0) cuda::storeAs(static_cast<float>(sum), to.format, to.memory, 0);
}

/// Elements of a chunk, about: few where there would be too few blocks, else many for each beginning and end.
constexpr std::int64_t kSmallestChunk = 8192;
constexpr std::int64_t kLargestChunk = 32768;
constexpr std::int64_t kWantedBlocks = 2048;

/// What vectors of so many lanes consist of.
template <int lanes>
using ElementOf = std::conditional_t<lanes == cuda::kLanes<float>, float, Float16>;

unsigned atLeastAWarp(unsigned threads) {
  return std::max(32U, threads);
}

/// Calls launch(std::integral_constant) with a type that has kernels of its own for vectors.
template <CNNLossType... types, class Launch>
void withOneOf(CNNLossType type, Launch launch) {
  static_cast<void>(((type == types && (launch(std::integral_constant<CNNLossType, types>()), true)) || ...));
}

class LossPlan final : public AccessPlan {
 public:
  /// @param usesDense the kernels of loss_dense_cuda.cuh, where isDense()
  explicit LossPlan(const LossProblem& problem, bool usesDense = false)
      : whole_(problem), problem_(narrowed(problem)), usesDense_(usesDense) {
    LossProblem& p = problem_;
    const auto ifThere = [](TensorShape& shape, bool belongs = true) {
      return belongs && shape.channels > 0 ? &shape : nullptr;
    };
    cuda::joinAxes({&p.predictions, &p.labels, ifThere(p.weights), ifThere(p.sourceGradient, perElement()),
                    ifThere(p.gradient), ifThere(p.labelGradient), ifThere(p.loss, perElement())},
                   p.labelKind != LossLabels::Dense ? JoinedAxes::None
                   : isSoftMax()                    ? JoinedAxes::Pixels
                                                    : JoinedAxes::OfAnImage);
  }
  [[nodiscard]] bool isDense() const { return cuda::isDenseLoss(problem_); }

  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    if (usesDense_ && operands.accumulate) return "it adds nothing to what is there";
    return AccessPlan::objectionTo(operands);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.predictions.elements() == 0) return;
    LossArguments a = makeArguments(operands);
    if (countsWeights(whole_)) count(stream, operands, a);
    cuda::withAccess(vectorFormat(), [&](auto access) { start<decltype(access)>(stream, a); });
    if (whole_.loss.channels > 0 && !perElement()) reduce(stream, operands, a);
    if (!operands.accumulate) zeroOthers(stream, whole_.gradient, operands.destination);
    zeroOthers(stream, whole_.labelGradient, operands.parameters[2]);
    if (perElement()) zeroOthers(stream, whole_.loss, operands.parameters[1]);
  }

  [[nodiscard]] std::string describe() const override {
    if (!isSoftMax()) return {};
    const std::int64_t most = lanes() == 1 ? 32 * 4 : cuda::kDenseSoftMaxChannels;
    return problem_.predictions.channels <= most ? "in registers" : "in passes over memory";
  }
  [[nodiscard]] std::size_t scratchBytes() const override {
    const std::int64_t images = problem_.predictions.images;
    return static_cast<std::size_t>(images * chunks() + images + images + 1) * sizeof(double);
  }
  [[nodiscard]] bool canAccumulate() const override {
    return problem_.gradient.channels > 0 && problem_.gradient.format == ImageFeatureChannelFormat::Float32;
  }

 protected:
  [[nodiscard]] AccessedTensors accessed(const Operands& operands) const override {
    const LossProblem& p = problem_;
    return {{{p.predictions, operands.source},
             {p.labels, operands.secondary, p.labelKind == LossLabels::Dense},
             {p.weights, operands.parameters[0]},
             {p.gradient, operands.destination},
             {p.labelGradient, operands.parameters[2]},
             {p.sourceGradient, operands.gradient, perElement()},
             {p.loss, operands.parameters[1], perElement()}}};
  }
  [[nodiscard]] bool repeatsChannels() const override { return true; }

 private:
  [[nodiscard]] bool perElement() const { return whole_.reductionType == CNNReductionType::None; }
  [[nodiscard]] bool isSoftMax() const { return whole_.lossType == CNNLossType::SoftMaxCrossEntropy; }
  [[nodiscard]] std::int64_t imagePixels() const {
    return problem_.predictions.height * problem_.predictions.width;
  }
  [[nodiscard]] std::int64_t imageElements() const { return imagePixels() * problem_.predictions.channels; }

  [[nodiscard]] std::int64_t chunkElements() const {
    return std::clamp(problem_.predictions.elements() / kWantedBlocks, kSmallestChunk, kLargestChunk);
  }
  /// Pixels of a chunk of softmax.
  [[nodiscard]] std::int64_t chunkPixels() const {
    return std::max<std::int64_t>(1, chunkElements() / problem_.predictions.channels);
  }
  [[nodiscard]] std::int64_t chunksOfElements() const {
    return (imageElements() + chunkElements() - 1) / chunkElements();
  }
  /// Of an image; the same for vectors and single elements.
  [[nodiscard]] std::int64_t chunks() const {
    return isSoftMax() ? (imagePixels() + chunkPixels() - 1) / chunkPixels() : chunksOfElements();
  }

  [[nodiscard]] double* sums(const Operands& operands) const {
    return reinterpret_cast<double*>(operands.scratch);
  }
  [[nodiscard]] double* imageLosses(const Operands& operands) const {
    return sums(operands) + problem_.predictions.images * chunks();
  }
  [[nodiscard]] unsigned long long* counts(const Operands& operands) const {
    return reinterpret_cast<unsigned long long*>(imageLosses(operands) + problem_.predictions.images);
  }

  [[nodiscard]] LossArguments makeArguments(const Operands& operands) const {
    const LossProblem& p = problem_;
    const std::int64_t channels = p.predictions.channels;
    const auto source = [&](const TensorShape& shape, const std::byte* address) {
      return shape.channels > 0 ? cuda::SourceView(shape, address, channels) : cuda::SourceView();
    };
    const auto result = [&](const TensorShape& shape, std::byte* address) {
      return shape.channels > 0 ? ResultView(shape, address) : ResultView();
    };
    LossArguments a;
    a.type = p.lossType;
    a.numbers = lossNumbers(whole_, operands);
    a.perElement = perElement();
    a.wantsLoss = p.loss.channels > 0;
    a.accumulate = operands.accumulate;
    a.weight = operands.scalars[0];
    a.divideGradient = p.divideGradient;
    a.reduceAcrossBatch = p.reduceAcrossBatch;
    a.divisor = lossDivisor(whole_);
    if (p.reduceAcrossBatch && p.reductionType != CNNReductionType::Sum)
      a.divisor *= static_cast<double>(p.predictions.images);
    a.images = static_cast<std::uint32_t>(p.predictions.images);
    a.chunks = Divider(chunks());
    a.width = Divider(p.predictions.width);
    a.classes = static_cast<std::uint32_t>(p.countedChannels);
    a.predictions = source(p.predictions, operands.source);
    a.labelKind = p.labelKind;
    a.labels = source(p.labels, operands.secondary);
    a.weights = source(p.weights, operands.parameters[0]);
    a.sourceGradient = source(p.sourceGradient, operands.gradient);
    a.gradient = result(p.gradient, operands.destination);
    a.labelGradient = result(p.labelGradient, operands.parameters[2]);
    if (perElement()) a.loss = result(p.loss, operands.parameters[1]);
    if (a.wantsLoss && !perElement()) a.sums = sums(operands);
    return a;
  }

  void count(mtl::Stream& stream, const Operands& operands, LossArguments& a) const {
    unsigned long long* const to = counts(operands);
    mtl::cuda::launch(stream, clearCounts, dim3(mtl::cuda::blocksFor(std::int64_t{a.images} + 1)),
                      dim3(mtl::cuda::kBlockThreads), 0, to, a.images + 1);
    LossArguments elements = a;
    setChunks<cuda::OneByOne>(elements);
    mtl::cuda::launch(stream, countWeights, dim3(a.images * elements.chunks.divisor()), dim3(kThreads), 0,
                      elements, to);
    a.counts = to;
  }

  /// Chunks of elements.
  template <class Access>
  void setChunks(LossArguments& a) const {
    a.vectors = Divider(problem_.predictions.channels / Access::lanes);
    a.items = static_cast<std::uint32_t>(imageElements() / Access::lanes);
    const std::int64_t chunkCount = chunksOfElements();
    a.itemsPerChunk =
        (a.items + static_cast<std::uint32_t>(chunkCount) - 1) / static_cast<std::uint32_t>(chunkCount);
    a.chunks = Divider(chunkCount);
  }

  template <class Access>
  void start(mtl::Stream& stream, LossArguments a) const {
    const dim3 grid(static_cast<unsigned>(problem_.predictions.images * chunks()));
    setChunks<Access>(a);
    if (isSoftMax()) {
      const std::int64_t vectors = a.vectors.divisor();
      a.items = static_cast<std::uint32_t>(imagePixels());
      a.itemsPerChunk = static_cast<std::uint32_t>(chunkPixels());
      a.chunks = Divider(chunks());
      const unsigned rows = cuda::threadsOfRow(std::min<std::int64_t>(a.items, a.itemsPerChunk), 1);
      const auto launch = [&](unsigned across, auto kernel) {
        const dim3 block(across, across > 32 ? 1 : std::clamp(rows, 32 / across, kThreads / across));
        mtl::cuda::launch(stream, kernel, grid, block, 0, a);
      };
      const auto launchDense = [&](unsigned across, auto kernel) {
        if (a.items > 1) return launch(across, kernel);
        const unsigned images = kThreads / across;
        mtl::cuda::launch(stream, kernel, dim3((a.images + images - 1) / images), dim3(across, images), 0, a);
      };
      constexpr int few = Access::lanes == 1 ? 4 : 2;
      constexpr int most = Access::lanes == 1 ? 4 : 32 / Access::lanes;
      // Few vectors for each thread, so that neighbours read neighbours; in long pixels as many as it holds.
      if constexpr (Access::lanes > 1)
        if (usesDense_) {
          static_assert(32 * most * Access::lanes == cuda::kDenseSoftMaxChannels);
          using T = ElementOf<Access::lanes>;
          return vectors <= 32 * few
                     ? launchDense(cuda::threadsOfRow(vectors, few), cuda::lossDenseSoftMax<T, few>)
                     : launchDense(32, cuda::lossDenseSoftMax<T, most>);
        }
      if (vectors <= 32 * few)
        return launch(cuda::threadsOfRow(vectors, few), cuda::lossHeldSoftMax<Access, few>);
      if constexpr (most > few)
        if (vectors <= 32 * most) return launch(32, cuda::lossHeldSoftMax<Access, most>);
      return launch(cuda::threadsOfRow(vectors, 2), cuda::lossSoftMax<Access>);
    }
    const dim3 block(atLeastAWarp(cuda::threadsOfRow(std::min(a.items, a.itemsPerChunk), 1)));
    const auto launch = [&](auto type) {
      if constexpr (Access::lanes > 1)
        if (usesDense_) {
          using T = ElementOf<Access::lanes>;
          return mtl::cuda::launch(stream, cuda::lossDenseElements<T, type()>, grid, block, 0, a);
        }
      mtl::cuda::launch(stream, lossElements<Access, type()>, grid, block, 0, a);
    };
    using enum CNNLossType;
    if constexpr (Access::lanes == 1)
      launch(std::integral_constant<CNNLossType, kAnyType>());
    else
      withOneOf<MeanAbsoluteError, MeanSquaredError, SigmoidCrossEntropy, CategoricalCrossEntropy, Hinge,
                Huber, CosineDistance, Log, KullbackLeiblerDivergence>(a.type, launch);
  }

  void reduce(mtl::Stream& stream, const Operands& operands, const LossArguments& a) const {
    const ResultView to(whole_.loss, operands.parameters[1]);
    if (whole_.loss.elements() > whole_.loss.images) zero(stream, whole_.loss, to.memory);
    double* const losses = a.reduceAcrossBatch ? imageLosses(operands) : nullptr;
    const unsigned across = cuda::threadsOfRow(chunks(), 1);
    const dim3 block(across, across > 32 ? 1 : kThreads / across);
    mtl::cuda::launch(stream, reduceImages, dim3((a.images + block.y - 1) / block.y), block, 0, a, to,
                      losses);
    if (losses != nullptr)
      mtl::cuda::launch(stream, reduceBatch, dim3(1), dim3(kThreads), 0, a.images, to, losses);
  }

  /// The channels that do not count.
  void zeroOthers(mtl::Stream& stream, TensorShape shape, std::byte* memory) const {
    if (shape.channels <= whole_.countedChannels) return;
    shape.channels -= whole_.countedChannels;
    zero(stream, shape,
         memory + whole_.countedChannels * static_cast<std::int64_t>(bytesPerChannel(shape.format)));
  }
  static void zero(mtl::Stream& stream, const TensorShape& shape, std::byte* memory) {
    const ElementGrid grid(shape, 1, 1);
    mtl::cuda::launch(stream, fillWithZeros, grid.grid(), grid.block(), 0, grid, ResultView(shape, memory));
  }

  LossProblem whole_;
  LossProblem problem_;  ///< narrowed(), with joined axes
  bool usesDense_;
};

Preparation prepareElements(const LossProblem& problem) {
  for (const TensorShape* shape :
       {&problem.predictions, &problem.labels, &problem.weights, &problem.sourceGradient, &problem.gradient,
        &problem.loss, &problem.labelGradient})
    if (!ElementGrid::fits(*shape)) return Refusal{ElementGrid::kTooLarge};
  const TensorShape& shape = problem.predictions;
  if (shape.height * shape.width * shape.channels > ElementGrid::kLongestRow)
    return Refusal{"an image of about 2^31 elements"};
  return std::make_shared<const LossPlan>(problem);
}

constexpr Implementation<LossProblem> kElements{"thread per element", prepareElements};

constexpr Implementation<LossProblem> kVectors{"16 bytes per thread", prepareVectors<LossPlan, kElements>};

/// Earns the losses that training asks for: the next entry takes 1.32 times as long.
Preparation prepareDense(const LossProblem& problem) {
  auto plan = std::make_shared<LossPlan>(problem, true);
  if (!plan->isDense())
    return Refusal{"not dense tensors without weights of which a sum or one gradient is wanted"};
  return inVectors(std::move(plan), kVectors, problem);
}

constexpr Implementation<LossProblem> implementations[] = {{"dense", prepareDense}, kVectors, kElements};

}  // namespace

std::span<const Implementation<LossProblem>> lossImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
