#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "mps/core/plan/fallback_plan.hpp"
#include "mps/loss/cuda/loss_cuda.cuh"
#include "mps/loss/yolo_loss_problem.hpp"

namespace mps::detail {
namespace {

using cuda::Divider;
using cuda::ElementGrid;
using cuda::ElementPlace;
using cuda::ResultView;
using cuda::SourceView;

constexpr unsigned kThreads = mtl::cuda::kBlockThreads;
constexpr unsigned kWarp = 32;

constexpr std::size_t kConfidence = 2;  ///< among the parts

struct Part {
  CNNLossType type;
  LossNumbers numbers;
  std::uint32_t first;     ///< of its channels among those of an anchor
  std::uint32_t channels;  ///< that count
  float scale;             ///< where there is an object
};

/// One run, as kernels see it.
struct Arguments {
  std::uint32_t images;
  std::uint32_t cells;  ///< of all images
  std::uint32_t cellsOfTile;
  Divider cellsOfImage;
  Divider width;
  Divider anchors;                          ///< of a cell
  Divider perAnchor;                        ///< channels
  SourceView predictions, labels, weights;  ///< no address: there are no weights
  ResultView gradient;
  ResultView elementLoss;  ///< of reduction None
  TensorShape loss;        ///< of the other reductions
  std::byte* lossMemory;
  Part parts[kYOLOLossParts];
  float2 boxes[YOLOLossProblem::kMostAnchors];
  float scaleNoObject, presence, absence;
  bool rescore, reduceAcrossBatch;
  double divisor;
  double* sums;    ///< of the losses of each cell; null with reduction None
  double* counts;  ///< of its weights that are not 0; null where they are not counted
  double* totals;  ///< both of each image, to be reduced across the batch

  [[nodiscard]] __device__ ElementPlace place(std::uint32_t cell) const {
    const std::uint32_t image = cellsOfImage.divide(cell);
    const std::uint32_t pixel = cell - image * cellsOfImage.divisor();
    const std::uint32_t y = width.divide(pixel);
    return {static_cast<std::int32_t>(image), static_cast<std::int32_t>(y),
            static_cast<std::int32_t>(pixel - y * width.divisor()), 0};
  }
  [[nodiscard]] __device__ std::uint32_t channels() const { return anchors.divisor() * perAnchor.divisor(); }
  [[nodiscard]] __device__ float quotient(double sum, double count) const {
    const double by = counts != nullptr ? count : divisor;
    return by == 0 ? 0.0F : static_cast<float>(sum / by);
  }
};

/// @tparam T void: the format is known only when the kernel runs
template <class T>
__device__ float read(const SourceView& view, std::int64_t offset) {
  if constexpr (std::is_void_v<T>)
    return cuda::loadAs(view.format, view.memory, offset);
  else
    return cuda::load(reinterpret_cast<const T*>(view.memory) + offset);
}

/// Adjacent cells, which a block computes, with a thread for each of their anchors.
struct Tile {
  std::uint32_t firstCell;
  std::uint32_t cells;
  std::uint32_t anchors;

  __device__ explicit Tile(const Arguments& a)
      : firstCell(blockIdx.x * a.cellsOfTile),
        cells(min(a.cellsOfTile, a.cells - firstCell)),
        anchors(cells * a.anchors.divisor()) {}
};

/// Where the first channels of an anchor lie.
struct AnchorPlace {
  std::uint32_t cell;    ///< of the tile
  std::uint32_t anchor;  ///< of the cell
  ElementPlace place;
  std::int64_t prediction;
  std::int64_t label;

  __device__ AnchorPlace(const Arguments& a, const Tile& tile, std::uint32_t number)
      : cell(a.anchors.divide(number)),
        anchor(number - cell * a.anchors.divisor()),
        place(a.place(tile.firstCell + cell)) {
    place.channel = static_cast<std::int32_t>(anchor * a.perAnchor.divisor());
    prediction = a.predictions.offset(place);
    label = a.labels.offset(place);
  }
  [[nodiscard]] __device__ float weight(const Arguments& a, std::uint32_t channel) const {
    return a.weights.memory == nullptr ? 1.0F : read<void>(a.weights, a.weights.offset(place) + channel);
  }
};

/// Loss and gradient of an element, with all factors.
struct Outcome {
  float loss, gradient;
};

__device__ Outcome outcomeOf(const Part& part, float y, float t, float weight) {
  const float factor = weight * part.numbers.weight;
  return {factor * cuda::lossOf(part.type, part.numbers, y, t),
          factor * cuda::lossGradient(part.type, part.numbers, y, t)};
}

/// What all channels of a softmax share.
struct SoftMaxSums {
  float largest;
  float logOfSum;        ///< of the exponentials
  float reciprocal;      ///< 1 / their sum
  float weightedLabels;  ///< with the factors of the derivatives, for the exact gradient
};

__device__ Outcome outcomeOfSoftMax(const Part& part, const SoftMaxSums& sums, float y, float t,
                                    float weight) {
  const float factor = weight * part.numbers.weight;
  const float z = y - sums.largest;
  const float label = cuda::smoothedLabel(part.numbers, t);
  const float p = cuda::exponential(z) * sums.reciprocal;
  return {
      label == 0.0F ? 0.0F : factor * (label * (sums.logOfSum - z)),
      part.numbers.exactSoftMaxGradient ? p * sums.weightedLabels - factor * label : factor * (p - label)};
}

__device__ float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0 ? e : 1.0F) / (1 + e);
}

/// The overlap of the box that an anchor's prediction means and the true one.
template <class T>
__device__ float foundOverUnion(const Arguments& a, const AnchorPlace& at) {
  const float2 box = a.boxes[at.anchor];
  const auto raw = [&](int channel) { return read<T>(a.predictions, at.prediction + channel); };
  const auto label = [&](int channel) { return read<T>(a.labels, at.label + channel); };
  return intersectionOverUnion({sigmoid(raw(0)), sigmoid(raw(1)), box.x * expf(raw(2)), box.y * expf(raw(3))},
                               {label(0), label(1), label(2), label(3)});
}

__device__ Outcome outcomeOfConfidence(const Arguments& a, const AnchorPlace& at, float y, float t,
                                       float scale) {
  if (scale == 0) return {0, 0};
  const Part& part = a.parts[kConfidence];
  const float weight = scale * at.weight(a, part.first);
  if (part.type != CNNLossType::SoftMaxCrossEntropy) return outcomeOf(part, y, t, weight);
  // Of one channel.
  const float factor = weight * part.numbers.weight;
  return outcomeOfSoftMax(part, {y, 0, 1, factor * cuda::smoothedLabel(part.numbers, t)}, y, t, weight);
}

/// A vector of zeros but for one lane, if there is such a one.
template <class T>
__device__ uint4 vectorWith(float value, std::uint32_t lane) {
  constexpr std::uint32_t lanesOfWord = sizeof(unsigned) / sizeof(T);
  const unsigned bits =
      lanesOfWord == 1 ? __float_as_uint(value) : cuda::toHalves(value, 0.0F) << 16 * (lane % lanesOfWord);
  const std::uint32_t word = lane / lanesOfWord;
  return {word == 0 ? bits : 0U, word == 1 ? bits : 0U, word == 2 ? bits : 0U, word == 3 ? bits : 0U};
}

/// What a tile stores: confidences, and 0 in all other channels.
template <class T>
__device__ void storeConfidences(const Arguments& a, const Tile& tile, const float* confidences,
                                 const ResultView& to) {
  const std::uint32_t confidence = a.parts[kConfidence].first;
  const std::uint32_t elements = tile.cells * a.channels();
  std::uint32_t stored = 0;
  if constexpr (!std::is_void_v<T>) {
    constexpr int lanes = cuda::kLanes<T>;
    T* const memory =
        reinterpret_cast<T*>(to.memory) + static_cast<std::int64_t>(tile.firstCell) * a.channels();
    const bool hasOneAtMost = a.perAnchor.divisor() >= lanes;
    for (std::uint32_t vector = threadIdx.x; vector < elements / lanes; vector += kThreads) {
      std::uint32_t anchor = a.perAnchor.divide(vector * lanes);
      std::uint32_t channel = vector * lanes - anchor * a.perAnchor.divisor();
      if (hasOneAtMost) {
        const bool isPast = channel > confidence;
        const std::uint32_t lane = confidence - channel + (isPast ? a.perAnchor.divisor() : 0);
        const float value = lane < lanes ? confidences[isPast ? anchor + 1 : anchor] : 0.0F;
        reinterpret_cast<uint4*>(memory)[vector] = vectorWith<T>(value, lane);
        continue;
      }
      cuda::Lanes<T> values;
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane) {
        values.values[lane] = channel == confidence ? confidences[anchor] : 0.0F;
        if (++channel < a.perAnchor.divisor()) continue;
        channel = 0;
        ++anchor;
      }
      cuda::storeLanes(values, memory + vector * lanes);
    }
    stored = elements / lanes * lanes;
  }
  for (std::uint32_t i = stored + threadIdx.x; i < elements; i += kThreads) {
    const std::uint32_t anchor = a.perAnchor.divide(i);
    const std::uint32_t channel = i - anchor * a.perAnchor.divisor();
    const AnchorPlace at(a, tile, anchor);
    cuda::storeAs(channel == confidence ? confidences[anchor] : 0.0F, to.format, to.memory,
                  to.offset(at.place) + channel);
  }
}

template <class Combine>
__device__ float combineWarp(float value, Combine combine) {
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(0xFFFFFFFFU, value, distance));
  return value;
}

/// Stores gradients, and losses of reduction None, of position, size or classes of an anchor with an object, by a warp.
/// Returns the sum of their losses.
template <class T>
__device__ float finishPart(const Arguments& a, const AnchorPlace& at, std::size_t number) {
  constexpr float tiny = 1e-5F;
  const Part& part = a.parts[number];
  if (part.scale == 0) return 0;
  const std::uint32_t lane = threadIdx.x % kWarp;
  const auto value = [&](std::uint32_t i) {
    const float raw = read<T>(a.predictions, at.prediction + part.first + i);
    return number == 0 ? sigmoid(raw) : raw;
  };
  const auto target = [&](std::uint32_t i) {
    const float label = read<T>(a.labels, at.label + part.first + i);
    const float2 box = a.boxes[at.anchor];
    return number == 1 ? logf(label / (i == 0 ? box.x : box.y) + tiny) : label;
  };
  const auto weight = [&](std::uint32_t i) { return part.scale * at.weight(a, part.first + i); };
  SoftMaxSums sums{-INFINITY, 0, 0, 0};
  if (part.type == CNNLossType::SoftMaxCrossEntropy) {
    for (std::uint32_t i = lane; i < part.channels; i += kWarp) sums.largest = fmaxf(sums.largest, value(i));
    sums.largest = combineWarp(sums.largest, cuda::Maximum());
    float exponentials = 0;
    for (std::uint32_t i = lane; i < part.channels; i += kWarp) {
      exponentials += cuda::exponential(value(i) - sums.largest);
      if (part.numbers.exactSoftMaxGradient)
        sums.weightedLabels += weight(i) * part.numbers.weight * cuda::smoothedLabel(part.numbers, target(i));
    }
    exponentials = combineWarp(exponentials, cuda::Sum());
    sums.weightedLabels = combineWarp(sums.weightedLabels, cuda::Sum());
    sums.logOfSum = logf(exponentials);
    sums.reciprocal = cuda::reciprocal(exponentials);
  }
  float sum = 0;
  for (std::uint32_t i = lane; i < part.channels; i += kWarp) {
    const float y = value(i);
    Outcome outcome = part.type == CNNLossType::SoftMaxCrossEntropy
                          ? outcomeOfSoftMax(part, sums, y, target(i), weight(i))
                          : outcomeOf(part, y, target(i), weight(i));
    if (number == 0) outcome.gradient *= y * (1 - y);
    const auto store = [&](float result, const ResultView& to) {
      cuda::storeAs(result, to.format, to.memory, to.offset(at.place) + part.first + i);
    };
    store(outcome.gradient, a.gradient);
    if (a.elementLoss.memory != nullptr) store(outcome.loss, a.elementLoss);
    sum += outcome.loss;
  }
  return combineWarp(sum, cuda::Sum());
}

/// Weights of each cell of a tile that are not 0.
__device__ void countWeights(const Arguments& a, const Tile& tile) {
  const std::uint32_t lane = threadIdx.x % kWarp;
  for (std::uint32_t cell = threadIdx.x / kWarp; cell < tile.cells; cell += kThreads / kWarp) {
    const std::int64_t first = a.weights.offset(a.place(tile.firstCell + cell));
    float count = 0;
    for (std::uint32_t channel = lane; channel < a.channels(); channel += kWarp)
      if (read<void>(a.weights, first + channel) != 0) ++count;
    count = combineWarp(count, cuda::Sum());
    if (lane == 0) a.counts[tile.firstCell + cell] = static_cast<double>(count);
  }
}

/// A block for each tile. First the confidences by a thread for each anchor; these, and 0 for everything else, are stored
/// as they lie in memory; then a warp for each other part of the few anchors with an object stores that.
/// @tparam T of predictions, labels and a gradient without gaps, whose address is a multiple of 16; void: any
template <class T>
__global__ void __launch_bounds__(kThreads, 4) computeTiles(Arguments a) {
  __shared__ float overlaps[kThreads];
  __shared__ float gradients[kThreads];
  __shared__ float losses[kThreads];
  __shared__ std::uint32_t objects[kThreads];
  __shared__ std::uint32_t objectCount;
  constexpr std::uint32_t otherParts = kYOLOLossParts - 1;
  __shared__ float lossesOfParts[otherParts * kThreads];
  const Tile tile(a);
  const bool hasAnchor = threadIdx.x < tile.anchors;
  const AnchorPlace at(a, tile, hasAnchor ? threadIdx.x : 0);
  const float y = read<T>(a.predictions, at.prediction + a.parts[kConfidence].first);
  const float label = read<T>(a.labels, at.label + a.parts[kConfidence].first);
  const float2 box = a.boxes[at.anchor];
  const float overlap = intersectionOverUnion(
      {0, 0, read<T>(a.labels, at.label + 2), read<T>(a.labels, at.label + 3)}, {0, 0, box.x, box.y});
  overlaps[threadIdx.x] = overlap;
  if (threadIdx.x == 0) objectCount = 0;
  __syncthreads();
  if (hasAnchor) {
    float best = 0;
    if (label == 1)
      for (std::uint32_t i = 0; i < a.anchors.divisor(); ++i)
        best = fmaxf(best, overlaps[at.cell * a.anchors.divisor() + i]);
    const YOLOAssignment assigned = assignment(label, overlap, best, a.presence, a.absence);
    float target = assigned.isObject ? 1.0F : 0.0F;
    if (assigned.isObject) {
      objects[atomicAdd(&objectCount, 1U)] = threadIdx.x;  // their order changes nothing
      if (a.rescore) target = foundOverUnion<T>(a, at);
    }
    const Outcome outcome = outcomeOfConfidence(a, at, y, target,
                                                assigned.isObject     ? a.parts[kConfidence].scale
                                                : assigned.isNoObject ? a.scaleNoObject
                                                                      : 0);
    gradients[threadIdx.x] = outcome.gradient;
    losses[threadIdx.x] = outcome.loss;
  }
  __syncthreads();
  storeConfidences<T>(a, tile, gradients, a.gradient);
  if (a.elementLoss.memory != nullptr) storeConfidences<void>(a, tile, losses, a.elementLoss);
  if (objectCount > 0) {
    __syncthreads();  // what is stored below comes later
    for (std::uint32_t i = threadIdx.x / kWarp; i < otherParts * objectCount; i += kThreads / kWarp) {
      const std::size_t other = i % otherParts;
      const AnchorPlace object(a, tile, objects[i / otherParts]);
      const float sum = finishPart<T>(a, object, other < kConfidence ? other : other + 1);
      if (threadIdx.x % kWarp == 0) lossesOfParts[i] = sum;
    }
    __syncthreads();
    for (std::uint32_t i = threadIdx.x; i < objectCount; i += kThreads) {
      float sum = 0;
      for (std::uint32_t other = 0; other < otherParts; ++other) sum += lossesOfParts[otherParts * i + other];
      losses[objects[i]] += sum;
    }
    __syncthreads();
  }
  if (a.counts != nullptr) countWeights(a, tile);
  if (a.sums == nullptr || threadIdx.x >= tile.cells) return;
  double sum = 0;
  for (std::uint32_t i = 0; i < a.anchors.divisor(); ++i)
    sum += static_cast<double>(losses[threadIdx.x * a.anchors.divisor() + i]);
  a.sums[tile.firstCell + threadIdx.x] = sum;
}

/// The loss of each image, by a row of the block: into the first element of its loss image, 0 into the others.
__global__ void storeLosses(Arguments a) {
  __shared__ double shared[cuda::kMostWarps];
  const std::uint32_t image = blockIdx.x * blockDim.y + threadIdx.y;
  const bool isInside = image < a.images;
  double sum = 0;
  double count = 0;
  for (std::uint32_t i = threadIdx.x; isInside && i < a.cellsOfImage.divisor(); i += blockDim.x) {
    const std::uint32_t cell = image * a.cellsOfImage.divisor() + i;
    sum += a.sums[cell];
    if (a.counts != nullptr) count += a.counts[cell];
  }
  sum = cuda::combineRow(sum, shared, cuda::Sum());
  count = cuda::combineRow(count, shared, cuda::Sum());
  if (!isInside) return;
  if (a.reduceAcrossBatch && threadIdx.x == 0) {
    a.totals[2 * image] = sum;
    a.totals[2 * image + 1] = count;
  }
  const float value = a.reduceAcrossBatch ? 0.0F : a.quotient(sum, count);
  const std::int64_t elements = a.loss.height * a.loss.width * a.loss.channels;
  for (std::int64_t i = threadIdx.x; i < elements; i += blockDim.x) {
    const std::int64_t pixel = i / a.loss.channels;
    cuda::storeAs(i == 0 ? value : 0.0F, a.loss.format, a.lossMemory,
                  a.loss.offset(image, pixel / a.loss.width, pixel % a.loss.width, i % a.loss.channels));
  }
}

/// Image 0 gets the loss of the batch.
__global__ void storeBatchLoss(Arguments a) {
  __shared__ double shared[cuda::kMostWarps];
  double sum = 0;
  double count = 0;
  for (std::uint32_t image = threadIdx.x; image < a.images; image += blockDim.x) {
    sum += a.totals[2 * image];
    count += a.totals[2 * image + 1];
  }
  sum = cuda::sumOfBlock(sum, shared);
  count = cuda::sumOfBlock(count, shared);
  if (threadIdx.x == 0) cuda::storeAs(a.quotient(sum, count), a.loss.format, a.lossMemory, 0);
}

class TilesPlan final : public SelectivePlan {
 public:
  explicit TilesPlan(const YOLOLossProblem& problem) : problem_(problem) {}

  /// Whether tiles of a gradient can be written 16 bytes at once, and all tensors have one format; from then on they are.
  [[nodiscard]] bool useVectors() {
    const TensorShape& gradient = problem_.gradient;
    vectorFormat_ = cuda::commonFormat({&gradient, &problem_.predictions, &problem_.labels});
    return gradient.isDense() && cellsOfTile() * gradient.channels % cuda::kLanes<Float16> == 0 &&
           (vectorFormat_ == ImageFeatureChannelFormat::Float32 ||
            vectorFormat_ == ImageFeatureChannelFormat::Float16);
  }
  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    return objectionToUnaligned({operands.destination});
  }

  /// Two numbers for each cell and each image: loss, and weights that are not 0.
  [[nodiscard]] std::size_t scratchBytes() const override {
    return perElement() ? 0 : 2 * static_cast<std::size_t>(cells() + images()) * sizeof(double);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.predictions.elements() == 0) return;
    const Arguments a = makeArguments(operands);
    const dim3 grid((a.cells + a.cellsOfTile - 1) / a.cellsOfTile);
    const auto launch = [&](auto kernel) { mtl::cuda::launch(stream, kernel, grid, dim3(kThreads), 0, a); };
    switch (vectorFormat_) {
      case ImageFeatureChannelFormat::Float32:
        launch(computeTiles<float>);
        break;
      case ImageFeatureChannelFormat::Float16:
        launch(computeTiles<Float16>);
        break;
      default:
        launch(computeTiles<void>);
    }
    if (perElement()) return;
    const dim3 block(kWarp, kThreads / kWarp);
    mtl::cuda::launch(stream, storeLosses, dim3((a.images + block.y - 1) / block.y), block, 0, a);
    if (a.reduceAcrossBatch) mtl::cuda::launch(stream, storeBatchLoss, dim3(1), dim3(kThreads), 0, a);
  }

 private:
  [[nodiscard]] bool perElement() const { return problem_.reductionType == CNNReductionType::None; }
  [[nodiscard]] std::int64_t images() const { return problem_.predictions.images; }
  [[nodiscard]] std::int64_t cellsOfImage() const {
    return problem_.predictions.height * problem_.predictions.width;
  }
  [[nodiscard]] std::int64_t cells() const { return images() * cellsOfImage(); }

  /// As many as have a thread for each anchor; if it can be such that all tiles of a gradient begin at multiples of 16 bytes.
  [[nodiscard]] std::uint32_t cellsOfTile() const {
    constexpr std::int64_t unit = cuda::kLanes<Float16>;
    const std::int64_t most = kThreads / problem_.anchors();
    return static_cast<std::uint32_t>(most < unit ? most : most / unit * unit);
  }

  [[nodiscard]] Arguments makeArguments(const Operands& operands) const {
    Arguments a{};
    a.images = static_cast<std::uint32_t>(images());
    a.cells = static_cast<std::uint32_t>(cells());
    a.cellsOfTile = cellsOfTile();
    a.cellsOfImage = Divider(cellsOfImage());
    a.width = Divider(problem_.predictions.width);
    a.anchors = Divider(problem_.anchors());
    a.perAnchor = Divider(problem_.channelsPerAnchor());
    a.predictions = {problem_.predictions, operands.source};
    a.labels = {problem_.labels, operands.secondary};
    if (problem_.weights.channels > 0) a.weights = {problem_.weights, operands.parameters[0]};
    a.gradient = {problem_.gradient, operands.destination};
    if (perElement()) a.elementLoss = {problem_.loss, operands.parameters[1]};
    a.loss = problem_.loss;
    a.lossMemory = operands.parameters[1];
    const float scales[] = {problem_.scaleXY, problem_.scaleWH, problem_.scaleObject, problem_.scaleClass};
    for (std::size_t i = 0; i < kYOLOLossParts; ++i)
      a.parts[i] = {problem_.parts[i].type, problem_.parts[i].lossNumbers(),
                    static_cast<std::uint32_t>(YOLOLossProblem::firstChannelOf(i)),
                    static_cast<std::uint32_t>(problem_.countedChannelsOf(i)), scales[i]};
    for (std::size_t i = 0; i < problem_.anchorBoxes.size() / 2; ++i)
      a.boxes[i] = {problem_.anchorBoxes[2 * i], problem_.anchorBoxes[2 * i + 1]};
    a.scaleNoObject = problem_.scaleNoObject;
    a.presence = problem_.minIOUForObjectPresence;
    a.absence = problem_.maxIOUForObjectAbsence;
    a.rescore = problem_.rescore;
    a.reduceAcrossBatch = problem_.reduceAcrossBatch;
    a.divisor = problem_.divisor();
    if (!perElement()) {
      a.sums = reinterpret_cast<double*>(operands.scratch);
      a.totals = a.sums + 2 * cells();
      if (problem_.countsWeights()) a.counts = a.sums + cells();
    }
    return a;
  }

  YOLOLossProblem problem_;
  ImageFeatureChannelFormat vectorFormat_ = ImageFeatureChannelFormat::None;
};

Preparation prepareTiles(const YOLOLossProblem& problem) {
  for (const TensorShape* shape :
       {&problem.predictions, &problem.labels, &problem.weights, &problem.gradient, &problem.loss})
    if (!ElementGrid::fits(*shape)) return Refusal{ElementGrid::kTooLarge};
  const TensorShape& cells = problem.predictions;
  if (cells.images * cells.height * cells.width > 0x7FFFFFFF) return Refusal{"2^31 cells"};
  if (cells.channels > 0x7FFFFFFF / static_cast<std::int64_t>(kThreads))
    return Refusal{"a cell of 2^31 / 256 channels"};
  return std::make_shared<const TilesPlan>(problem);
}

constexpr Implementation<YOLOLossProblem> kTiles{"tiles", prepareTiles};

constexpr Implementation<YOLOLossProblem> kImplementations[] = {
    {"tiles, 16 bytes per thread", prepareVectors<TilesPlan, kTiles>}, kTiles};

}  // namespace

std::span<const Implementation<YOLOLossProblem>> yoloLossImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
