#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"
#include "mps/loss/loss_descriptor.hpp"
#include "mps/loss/loss_numbers.hpp"

namespace mps::detail {

/// One of the four losses.
struct YOLOLossPart {
  CNNLossType type = CNNLossType::MeanSquaredError;
  float weight = 1;
  float labelSmoothing = 0;
  std::int64_t numberOfClasses = 1;
  float epsilon = 1e-7F;
  float delta = 1;
  bool exactSoftMaxGradient = false;

  bool operator==(const YOLOLossPart&) const = default;
  [[nodiscard]] LossNumbers lossNumbers() const;
};

/// The parts, in the order of their channels: position, size, confidence, classes.
inline constexpr std::size_t kYOLOLossParts = 4;

/// One call of CNNYOLOLoss, whose header has the formulas. Channels of an anchor: x, y, w, h, confidence,
/// class scores.
///
/// | operand       |                                                                                      |
/// |---------------|--------------------------------------------------------------------------------------|
/// | source        | `predictions`                                                                        |
/// | secondary     | `labels`, of the same size                                                           |
/// | parameters[0] | `weights`, of the same size; 0 channels: not there, 1                                |
/// | destination   | `gradient`                                                                           |
/// | parameters[1] | `loss`, float32: as the predictions for reduction None, otherwise 1x1x1 per image, or |
/// |               | larger, then the first element gets the value, the others 0                          |
struct YOLOLossProblem {
  std::array<YOLOLossPart, kYOLOLossParts> parts;
  CNNReductionType reductionType = CNNReductionType::Sum;
  bool reduceAcrossBatch = false;  ///< not with None
  bool rescore = true;
  float scaleXY = 10;
  float scaleWH = 10;
  float scaleNoObject = 5;
  float scaleObject = 100;
  float scaleClass = 2;
  float minIOUForObjectPresence = 0.7F;
  float maxIOUForObjectAbsence = 0.3F;
  static constexpr std::int64_t kMostAnchors = 64;
  std::vector<float> anchorBoxes;  ///< pairs, at most kMostAnchors
  TensorShape predictions;
  TensorShape labels;
  TensorShape weights;
  TensorShape gradient;
  TensorShape loss;

  bool operator==(const YOLOLossProblem&) const = default;
  [[nodiscard]] std::size_t hash() const;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::int64_t anchors() const { return static_cast<std::int64_t>(anchorBoxes.size() / 2); }
  [[nodiscard]] std::int64_t channelsPerAnchor() const { return predictions.channels / anchors(); }
  /// Channels of a part, and where they begin among those of an anchor.
  [[nodiscard]] std::int64_t channelsOf(std::size_t part) const {
    const std::int64_t channels[] = {2, 2, 1, channelsPerAnchor() - 5};
    return channels[part];
  }
  [[nodiscard]] static std::int64_t firstChannelOf(std::size_t part) {
    constexpr std::int64_t first[] = {0, 2, 4, 5};
    return first[part];
  }
  /// Those of them that the loss of the part takes; the others get 0.
  [[nodiscard]] std::int64_t countedChannelsOf(std::size_t part) const {
    const bool isLimited =
        parts[part].type == CNNLossType::SoftMaxCrossEntropy && parts[part].numberOfClasses > 1;
    return isLimited ? std::min(channelsOf(part), parts[part].numberOfClasses) : channelsOf(part);
  }
  /// What a loss value is divided by, where no weights are counted.
  [[nodiscard]] double divisor() const;
  [[nodiscard]] bool countsWeights() const {
    return reductionType == CNNReductionType::SumByNonZeroWeights && weights.channels > 0;
  }
};

/// The overlap of two boxes over what they cover together; 0 where either has no area.
struct YOLOBox {
  float x = 0, y = 0;  ///< centre
  float width = 0, height = 0;
};
constexpr float intersectionOverUnion(const YOLOBox& a, const YOLOBox& b) {
  const auto overlap = [](float centerA, float sizeA, float centerB, float sizeB) {
    const float beginA = centerA - sizeA / 2;
    const float beginB = centerB - sizeB / 2;
    const float endA = centerA + sizeA / 2;
    const float endB = centerB + sizeB / 2;
    const float length = (endA < endB ? endA : endB) - (beginA > beginB ? beginA : beginB);
    return length > 0 ? length : 0.0F;
  };
  const float shared = overlap(a.x, a.width, b.x, b.width) * overlap(a.y, a.height, b.y, b.height);
  return shared > 0 ? shared / (a.width * a.height + b.width * b.height - shared) : 0.0F;
}

/// What the labels say of one anchor of a cell.
struct YOLOAssignment {
  bool isObject = false;
  bool isNoObject = false;
};
/// @param overlap of truth and anchor  @param best the largest one of the cell
constexpr YOLOAssignment assignment(float confidence, float overlap, float best, float presence,
                                    float absence) {
  const bool isObject = confidence == 1 && (overlap == best || overlap > presence);
  return {isObject, !isObject && overlap < absence};
}

/// In order of preference; the last one accepts every problem.
std::span<const Implementation<YOLOLossProblem>> yoloLossImplementationsCpu();
std::span<const Implementation<YOLOLossProblem>> yoloLossImplementationsCuda();
inline constexpr BackEnds<YOLOLossProblem> yoloLossBackEnds{yoloLossImplementationsCpu,
                                                            UNMETAL_CUDA_LIST(yoloLossImplementationsCuda)};

}  // namespace mps::detail
