#include <algorithm>
#include <cstdint>
#include <memory>

#include "mps/core/elements_cuda.cuh"
#include "mps/core/row_reduction_cuda.cuh"
#include "mps/loss/yolo_loss_parts.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

constexpr unsigned kThreads = 128;
constexpr std::int64_t kMostAnchors = 32;

struct Anchor {
  float width, height;
};

/// One run, as kernels see it.
struct Arguments {
  std::int64_t images, height, width, anchors, perAnchor;
  TensorShape predictions, labels, weights, gradient, loss;
  const std::byte* source;
  const std::byte* secondary;
  const std::byte* factors;  ///< the weights image, or null
  std::byte* destination;
  std::byte* losses;
  YOLOPartTensors tensors[kYOLOLossParts];
  Anchor boxes[kMostAnchors];
  float scaleXY, scaleWH, scaleNoObject, scaleObject, scaleClass, presence, absence;
  bool rescore, perElement, countsWeights, reduceAcrossBatch;
  double divisor;
  double* sums;    ///< of the rows of cells
  double* counts;  ///< of their weights that are not 0

  [[nodiscard]] __device__ std::int64_t channelsOf(std::size_t part) const {
    return part < 2 ? 2 : part == 2 ? 1 : perAnchor - 5;
  }
  [[nodiscard]] __device__ static std::int64_t firstChannelOf(std::size_t part) {
    return part < 2 ? 2 * static_cast<std::int64_t>(part) : static_cast<std::int64_t>(part) + 2;
  }
};

/// A cell, and what lies there.
struct Cell {
  std::int64_t n, y, x, number;

  [[nodiscard]] __device__ float prediction(const Arguments& a, std::int64_t channel) const {
    return cuda::loadAs(a.predictions.format, a.source, a.predictions.offset(n, y, x, channel));
  }
  [[nodiscard]] __device__ float label(const Arguments& a, std::int64_t channel) const {
    return cuda::loadAs(a.labels.format, a.secondary, a.labels.offset(n, y, x, channel));
  }
  [[nodiscard]] __device__ float weight(const Arguments& a, std::int64_t channel) const {
    if (a.factors == nullptr) return 1;
    return cuda::loadAs(a.weights.format, a.factors, a.weights.offset(n, y, x, channel));
  }
  [[nodiscard]] __device__ float overlap(const Arguments& a, std::int64_t anchor) const {
    const std::int64_t first = anchor * a.perAnchor;
    return intersectionOverUnion({0, 0, label(a, first + 2), label(a, first + 3)},
                                 {0, 0, a.boxes[anchor].width, a.boxes[anchor].height});
  }
  /// An element that does not count has values for which all losses are finite.
  __device__ void set(const Arguments& a, std::size_t part, std::int64_t anchor, std::int64_t i, float value,
                      float target, float scale) const {
    const std::int64_t to = (number * a.anchors + anchor) * a.channelsOf(part) + i;
    const std::int64_t channel = anchor * a.perAnchor + Arguments::firstChannelOf(part) + i;
    a.tensors[part].predictions[to] = scale == 0 ? 0.5F : value;
    a.tensors[part].labels[to] = scale == 0 ? 0.5F : target;
    a.tensors[part].weights[to] = scale == 0 ? 0.0F : scale * weight(a, channel);
  }
};

__device__ inline float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0 ? e : 1.0F) / (1 + e);
}

/// A thread for each anchor of each cell: predictions, labels and weights of the parts.
__global__ void assignAnchors(Arguments a) {
  constexpr float tiny = 1e-5F;
  const std::int64_t count = a.images * a.height * a.width * a.anchors;
  for (std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; item < count;
       item += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const std::int64_t anchor = item % a.anchors;
    const std::int64_t number = item / a.anchors;
    const Cell cell{number / (a.width * a.height), number / a.width % a.height, number % a.width, number};
    float best = 0;
    for (std::int64_t i = 0; i < a.anchors; ++i) best = fmaxf(best, cell.overlap(a, i));
    const std::int64_t first = anchor * a.perAnchor;
    const Anchor box = a.boxes[anchor];
    const YOLOBox truth{cell.label(a, first), cell.label(a, first + 1), cell.label(a, first + 2),
                        cell.label(a, first + 3)};
    const YOLOAssignment assigned =
        assignment(cell.label(a, first + 4), cell.overlap(a, anchor), best, a.presence, a.absence);
    const bool isObject = assigned.isObject;
    const float rawWidth = cell.prediction(a, first + 2);
    const float rawHeight = cell.prediction(a, first + 3);
    const YOLOBox found{sigmoid(cell.prediction(a, first)), sigmoid(cell.prediction(a, first + 1)),
                        box.width * expf(rawWidth), box.height * expf(rawHeight)};
    const float scaleXY = isObject ? a.scaleXY : 0;
    cell.set(a, 0, anchor, 0, found.x, truth.x, scaleXY);
    cell.set(a, 0, anchor, 1, found.y, truth.y, scaleXY);
    const float scaleWH = isObject ? a.scaleWH : 0;
    cell.set(a, 1, anchor, 0, rawWidth, isObject ? logf(truth.width / box.width + tiny) : 0, scaleWH);
    cell.set(a, 1, anchor, 1, rawHeight, isObject ? logf(truth.height / box.height + tiny) : 0, scaleWH);
    float confidence = isObject ? 1.0F : 0.0F;
    if (isObject && a.rescore) confidence = intersectionOverUnion(found, truth);
    cell.set(a, 2, anchor, 0, cell.prediction(a, first + 4), confidence,
             isObject              ? a.scaleObject
             : assigned.isNoObject ? a.scaleNoObject
                                   : 0);
    for (std::int64_t k = 0; k < a.channelsOf(3); ++k)
      cell.set(a, 3, anchor, k, cell.prediction(a, first + 5 + k), cell.label(a, first + 5 + k),
               isObject ? a.scaleClass : 0);
  }
}

/// A block for each row of cells: gradients, losses of elements, and their sums.
__global__ void finishRows(Arguments a) {
  __shared__ double shared[cuda::kMostWarps];
  const std::int64_t rows = a.images * a.height;
  const std::int64_t channels = a.anchors * a.perAnchor;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    double sum = 0;
    double count = 0;
    for (std::int64_t i = threadIdx.x; i < a.width * channels; i += blockDim.x) {
      const std::int64_t x = i / channels;
      const std::int64_t channel = i % channels;
      const Cell cell{row / a.height, row % a.height, x, row * a.width + x};
      const std::int64_t inAnchor = channel % a.perAnchor;
      const std::size_t part = inAnchor < 2 ? 0 : inAnchor < 4 ? 1 : inAnchor < 5 ? 2 : 3;
      const std::int64_t from = (cell.number * a.anchors + channel / a.perAnchor) * a.channelsOf(part) +
                                inAnchor - Arguments::firstChannelOf(part);
      float gradient = a.tensors[part].gradient[from];
      if (part == 0) {
        const float p = a.tensors[part].predictions[from];
        gradient *= p * (1 - p);
      }
      cuda::storeAs(gradient, a.gradient.format, a.destination,
                    a.gradient.offset(cell.n, cell.y, x, channel));
      const float loss = a.tensors[part].loss[from];
      if (a.perElement)
        cuda::storeAs(loss, a.loss.format, a.losses, a.loss.offset(cell.n, cell.y, x, channel));
      sum += static_cast<double>(loss);
      if (a.countsWeights && cell.weight(a, channel) != 0) ++count;
    }
    sum = cuda::sumOfBlock(sum, shared);
    __syncthreads();
    count = cuda::sumOfBlock(count, shared);
    __syncthreads();
    if (threadIdx.x != 0) continue;
    a.sums[row] = sum;
    a.counts[row] = count;
  }
}

/// One thread, row after row: what each image's loss is.
__global__ void storeLosses(Arguments a) {
  double total = 0;
  double totalCount = 0;
  const auto quotient = [&](double sum, double count) {
    const double by = a.countsWeights ? count : a.divisor;
    return by == 0 ? 0.0F : static_cast<float>(sum / by);
  };
  const auto fill = [&](std::int64_t n, float value) {
    for (std::int64_t y = 0; y < a.loss.height; ++y)
      for (std::int64_t x = 0; x < a.loss.width; ++x)
        for (std::int64_t c = 0; c < a.loss.channels; ++c)
          cuda::storeAs(y == 0 && x == 0 && c == 0 ? value : 0.0F, a.loss.format, a.losses,
                        a.loss.offset(n, y, x, c));
  };
  for (std::int64_t n = 0; n < a.images; ++n) {
    double sum = 0;
    double count = 0;
    for (std::int64_t row = n * a.height; row < (n + 1) * a.height; ++row) {
      sum += a.sums[row];
      count += a.counts[row];
    }
    total += sum;
    totalCount += count;
    fill(n, a.reduceAcrossBatch ? 0.0F : quotient(sum, count));
  }
  if (a.reduceAcrossBatch && a.images > 0) fill(0, quotient(total, totalCount));
}

class PartsPlan final : public Plan {
 public:
  explicit PartsPlan(const YOLOLossProblem& problem)
      : problem_(problem), parts_(problem, lossImplementationsCuda()) {}

  /// Behind that of the parts two numbers for each row: loss, and weights that are not 0.
  [[nodiscard]] std::size_t scratchBytes() const override {
    return parts_.scratchBytes() + 2 * static_cast<std::size_t>(rows()) * sizeof(double);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.predictions.elements() == 0) return;
    const Arguments a = makeArguments(operands);
    const std::int64_t items = rows() * a.width * a.anchors;
    mtl::cuda::launch(stream, assignAnchors, dim3(std::min(mtl::cuda::blocksFor(items, kThreads), 1U << 20U)),
                      dim3(kThreads), 0, a);
    parts_.run(stream, operands.scratch);
    mtl::cuda::launch(stream, finishRows,
                      dim3(static_cast<unsigned>(std::min<std::int64_t>(rows(), 1 << 20))), dim3(kThreads), 0,
                      a);
    if (!a.perElement) mtl::cuda::launch(stream, storeLosses, dim3(1), dim3(1), 0, a);
  }

 private:
  [[nodiscard]] std::int64_t rows() const {
    return problem_.predictions.images * problem_.predictions.height;
  }

  [[nodiscard]] Arguments makeArguments(const Operands& operands) const {
    Arguments a{};
    a.images = problem_.predictions.images;
    a.height = problem_.predictions.height;
    a.width = problem_.predictions.width;
    a.anchors = problem_.anchors();
    a.perAnchor = problem_.channelsPerAnchor();
    a.predictions = problem_.predictions;
    a.labels = problem_.labels;
    a.weights = problem_.weights;
    a.gradient = problem_.gradient;
    a.loss = problem_.loss;
    a.source = operands.source;
    a.secondary = operands.secondary;
    a.factors = problem_.weights.channels > 0 ? operands.parameters[0] : nullptr;
    a.destination = operands.destination;
    a.losses = operands.parameters[1];
    const YOLOTensors tensors = parts_.tensors(operands.scratch);
    std::copy(tensors.begin(), tensors.end(), a.tensors);
    for (std::size_t i = 0; i < problem_.anchorBoxes.size() / 2; ++i)
      a.boxes[i] = {problem_.anchorBoxes[2 * i], problem_.anchorBoxes[2 * i + 1]};
    a.scaleXY = problem_.scaleXY;
    a.scaleWH = problem_.scaleWH;
    a.scaleNoObject = problem_.scaleNoObject;
    a.scaleObject = problem_.scaleObject;
    a.scaleClass = problem_.scaleClass;
    a.presence = problem_.minIOUForObjectPresence;
    a.absence = problem_.maxIOUForObjectAbsence;
    a.rescore = problem_.rescore;
    a.perElement = problem_.reductionType == CNNReductionType::None;
    a.countsWeights = problem_.countsWeights();
    a.reduceAcrossBatch = problem_.reduceAcrossBatch;
    a.divisor = problem_.divisor();
    a.sums = reinterpret_cast<double*>(operands.scratch + parts_.scratchBytes());
    a.counts = a.sums + rows();
    return a;
  }

  YOLOLossProblem problem_;
  YOLOParts parts_;
};

Preparation prepareParts(const YOLOLossProblem& problem) {
  if (problem.anchors() > kMostAnchors)
    return Refusal{"more than " + std::to_string(kMostAnchors) + " anchors"};
  return std::make_shared<const PartsPlan>(problem);
}

constexpr Implementation<YOLOLossProblem> kImplementations[] = {{"parts", prepareParts}};

}  // namespace

std::span<const Implementation<YOLOLossProblem>> yoloLossImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
