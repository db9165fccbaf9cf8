#include <algorithm>
#include <cmath>
#include <memory>

#include "mps/core/storage.hpp"
#include "mps/loss/yolo_loss_parts.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

float load(const TensorShape& shape, const std::byte* memory, std::int64_t offset) {
  return withElementType(shape.format, [&](auto element) {
    return loadFloat(reinterpret_cast<const decltype(element)*>(memory) + offset);
  });
}

void store(const TensorShape& shape, std::byte* memory, std::int64_t offset, float value) {
  withElementType(shape.format, [&](auto element) {
    storeFloat(value, reinterpret_cast<decltype(element)*>(memory) + offset);
  });
}

float sigmoid(float x) {
  const float e = std::exp(-std::abs(x));
  return (x < 0 ? e : 1.0F) / (1 + e);
}

/// One call's work on cells.
class Cells {
 public:
  Cells(const YOLOLossProblem& problem, const Operands& operands, const YOLOTensors& tensors)
      : problem_(problem), operands_(operands), tensors_(tensors), perAnchor_(problem.channelsPerAnchor()) {}

  /// Predictions, labels and weights of the parts of a row of cells.
  void assignRow(std::int64_t row) const {
    for (std::int64_t x = 0; x < problem_.predictions.width; ++x) {
      const Place place = placeOf(row, x);
      float best = 0;
      for (std::int64_t a = 0; a < problem_.anchors(); ++a)
        best = std::max(best, overlapWithAnchor(place, a));
      for (std::int64_t a = 0; a < problem_.anchors(); ++a) assign(place, a, best);
    }
  }

  /// Gradients of a row of cells, and losses of its elements; returns their sum.
  double finishRow(std::int64_t row, double& nonZeroWeights) const {
    double sum = 0;
    for (std::int64_t x = 0; x < problem_.predictions.width; ++x) {
      const Place place = placeOf(row, x);
      for (std::int64_t a = 0; a < problem_.anchors(); ++a)
        for (std::size_t part = 0; part < kYOLOLossParts; ++part) sum += finish(place, a, part);
      if (problem_.countsWeights())
        for (std::int64_t c = 0; c < problem_.predictions.channels; ++c)
          if (weightOf(place, c) != 0) ++nonZeroWeights;
    }
    return sum;
  }

 private:
  struct Place {
    std::int64_t n, y, x;
    std::int64_t cell;  ///< counted over all images
  };
  [[nodiscard]] Place placeOf(std::int64_t row, std::int64_t x) const {
    const TensorShape& shape = problem_.predictions;
    return {row / shape.height, row % shape.height, x, row * shape.width + x};
  }
  [[nodiscard]] float prediction(const Place& at, std::int64_t channel) const {
    return load(problem_.predictions, operands_.source,
                problem_.predictions.offset(at.n, at.y, at.x, channel));
  }
  [[nodiscard]] float label(const Place& at, std::int64_t channel) const {
    return load(problem_.labels, operands_.secondary, problem_.labels.offset(at.n, at.y, at.x, channel));
  }
  [[nodiscard]] float weightOf(const Place& at, std::int64_t channel) const {
    if (problem_.weights.channels == 0) return 1;
    return load(problem_.weights, operands_.parameters[0],
                problem_.weights.offset(at.n, at.y, at.x, channel));
  }
  [[nodiscard]] YOLOBox anchor(std::int64_t a) const {
    const auto i = 2 * static_cast<std::size_t>(a);
    return {0, 0, problem_.anchorBoxes[i], problem_.anchorBoxes[i + 1]};
  }
  [[nodiscard]] float overlapWithAnchor(const Place& at, std::int64_t a) const {
    const std::int64_t first = a * perAnchor_;
    return intersectionOverUnion({0, 0, label(at, first + 2), label(at, first + 3)}, anchor(a));
  }
  /// An element that does not count has values for which all losses are finite.
  void set(std::size_t part, const Place& at, std::int64_t a, std::int64_t i, float value, float target,
           float weight) const {
    const YOLOPartTensors& tensors = tensors_[part];
    const std::int64_t to = (at.cell * problem_.anchors() + a) * problem_.channelsOf(part) + i;
    const float ownWeight = weight * weightOf(at, a * perAnchor_ + YOLOLossProblem::firstChannelOf(part) + i);
    tensors.predictions[to] = weight == 0 ? 0.5F : value;
    tensors.labels[to] = weight == 0 ? 0.5F : target;
    tensors.weights[to] = weight == 0 ? 0 : ownWeight;
  }

  void assign(const Place& at, std::int64_t a, float best) const {
    constexpr float tiny = 1e-5F;
    const std::int64_t first = a * perAnchor_;
    const YOLOBox box = anchor(a);
    const YOLOBox truth{label(at, first), label(at, first + 1), label(at, first + 2), label(at, first + 3)};
    const YOLOAssignment assigned =
        assignment(label(at, first + 4), overlapWithAnchor(at, a), best, problem_.minIOUForObjectPresence,
                   problem_.maxIOUForObjectAbsence);
    const bool isObject = assigned.isObject;
    const float rawWidth = prediction(at, first + 2);
    const float rawHeight = prediction(at, first + 3);
    const YOLOBox found{sigmoid(prediction(at, first)), sigmoid(prediction(at, first + 1)),
                        box.width * std::exp(rawWidth), box.height * std::exp(rawHeight)};
    const float scaleXY = isObject ? problem_.scaleXY : 0;
    set(0, at, a, 0, found.x, truth.x, scaleXY);
    set(0, at, a, 1, found.y, truth.y, scaleXY);
    const float scaleWH = isObject ? problem_.scaleWH : 0;
    set(1, at, a, 0, rawWidth, isObject ? std::log(truth.width / box.width + tiny) : 0, scaleWH);
    set(1, at, a, 1, rawHeight, isObject ? std::log(truth.height / box.height + tiny) : 0, scaleWH);
    float confidence = isObject ? 1.0F : 0.0F;
    if (isObject && problem_.rescore) confidence = intersectionOverUnion(found, truth);
    const float scale = isObject ? problem_.scaleObject : assigned.isNoObject ? problem_.scaleNoObject : 0;
    set(2, at, a, 0, prediction(at, first + 4), confidence, scale);
    for (std::int64_t k = 0; k < problem_.channelsOf(3); ++k)
      set(3, at, a, k, prediction(at, first + 5 + k), label(at, first + 5 + k),
          isObject ? problem_.scaleClass : 0);
  }

  double finish(const Place& at, std::int64_t a, std::size_t part) const {
    const std::int64_t channels = problem_.channelsOf(part);
    const std::int64_t from = (at.cell * problem_.anchors() + a) * channels;
    const std::int64_t to = a * perAnchor_ + YOLOLossProblem::firstChannelOf(part);
    const YOLOPartTensors& tensors = tensors_[part];
    double sum = 0;
    for (std::int64_t i = 0; i < channels; ++i) {
      float gradient = tensors.gradient[from + i];
      if (part == 0) {
        const float p = tensors.predictions[from + i];
        gradient *= p * (1 - p);
      }
      store(problem_.gradient, operands_.destination, problem_.gradient.offset(at.n, at.y, at.x, to + i),
            gradient);
      const float loss = tensors.loss[from + i];
      if (problem_.reductionType == CNNReductionType::None)
        store(problem_.loss, operands_.parameters[1], problem_.loss.offset(at.n, at.y, at.x, to + i), loss);
      sum += static_cast<double>(loss);
    }
    return sum;
  }

  const YOLOLossProblem& problem_;
  const Operands& operands_;
  const YOLOTensors& tensors_;
  std::int64_t perAnchor_;
};

class PartsPlan final : public Plan {
 public:
  explicit PartsPlan(const YOLOLossProblem& problem)
      : problem_(problem), parts_(problem, lossImplementationsCpu()) {}

  /// Behind that of the parts two numbers for each row: loss, and weights that are not 0.
  [[nodiscard]] std::size_t scratchBytes() const override {
    return parts_.scratchBytes() + 2 * static_cast<std::size_t>(rows()) * sizeof(double);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    const YOLOTensors tensors = parts_.tensors(operands.scratch);
    const Cells cells(problem_, operands, tensors);
    cpu.parallelFor(rows(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) cells.assignRow(row);
    });
    parts_.run(stream, operands.scratch);
    auto* const sums = reinterpret_cast<double*>(operands.scratch + parts_.scratchBytes());
    double* const counts = sums + rows();
    cpu.parallelFor(rows(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        counts[row] = 0;
        sums[row] = cells.finishRow(row, counts[row]);
      }
    });
    if (problem_.reductionType != CNNReductionType::None) storeLosses(operands, sums, counts);
  }

 private:
  static constexpr std::int64_t kGrain = 1;

  [[nodiscard]] std::int64_t rows() const {
    return problem_.predictions.images * problem_.predictions.height;
  }

  void storeLosses(const Operands& operands, const double* sums, const double* counts) const {
    const TensorShape& shape = problem_.loss;
    const std::int64_t images = problem_.predictions.images;
    const std::int64_t height = problem_.predictions.height;
    double total = 0;
    double totalCount = 0;
    const auto quotient = [&](double sum, double count) {
      const double by = problem_.countsWeights() ? count : problem_.divisor();
      return by == 0 ? 0.0F : static_cast<float>(sum / by);
    };
    const auto fill = [&](std::int64_t n, float value) {
      for (std::int64_t y = 0; y < shape.height; ++y)
        for (std::int64_t x = 0; x < shape.width; ++x)
          for (std::int64_t c = 0; c < shape.channels; ++c)
            store(shape, operands.parameters[1], shape.offset(n, y, x, c),
                  y == 0 && x == 0 && c == 0 ? value : 0.0F);
    };
    for (std::int64_t n = 0; n < images; ++n) {
      double sum = 0;
      double count = 0;
      for (std::int64_t row = n * height; row < (n + 1) * height; ++row) {
        sum += sums[row];
        count += counts[row];
      }
      total += sum;
      totalCount += count;
      fill(n, problem_.reduceAcrossBatch ? 0.0F : quotient(sum, count));
    }
    if (problem_.reduceAcrossBatch && images > 0) fill(0, quotient(total, totalCount));
  }

  YOLOLossProblem problem_;
  YOLOParts parts_;
};

Preparation prepareParts(const YOLOLossProblem& problem) {
  return std::make_shared<const PartsPlan>(problem);
}

constexpr Implementation<YOLOLossProblem> kImplementations[] = {{"parts", prepareParts}};

}  // namespace

std::span<const Implementation<YOLOLossProblem>> yoloLossImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail
