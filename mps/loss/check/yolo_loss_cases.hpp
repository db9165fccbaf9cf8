#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "mps/conform/testing/test_tensor.hpp"
#include "mps/core/testing/case_shapes.hpp"
#include "mps/loss/yolo_loss_problem.hpp"

/// The problems that tests and conform share, and inputs for them.
namespace mps::detail {

struct YOLOLossCase {
  std::string name;
  std::int64_t images = 1, height = 1, width = 1, classes = 3;
  std::size_t anchors = 2;
  CNNReductionType reductionType = CNNReductionType::Sum;
  bool reduceAcrossBatch = false;
  bool hasWeights = false;
  bool rescore = true;
  bool hasGaps = false;     ///< between pixels, rows and images
  bool halfLabels = false;  ///< otherwise they are float32
  bool largeLoss = false;   ///< an image of the predictions' size for the reduced loss
  bool exactSoftMaxGradient = false;
  float labelSmoothing = 0;
  double classRange = 1;             ///< largest size of a prediction of a class; exponentials of 90 overflow
  std::int64_t numberOfClasses = 1;  ///< of the classes' loss
  /// scaleXY, scaleWH, scaleNoObject, scaleObject, scaleClass.
  std::array<float, 5> scales{10, 10, 5, 100, 2};
  /// Of position, size, confidence and classes.
  std::array<CNNLossType, kYOLOLossParts> types{CNNLossType::MeanSquaredError, CNNLossType::Huber,
                                                CNNLossType::SigmoidCrossEntropy,
                                                CNNLossType::SoftMaxCrossEntropy};

  [[nodiscard]] YOLOLossProblem problem(ImageFeatureChannelFormat format) const {
    YOLOLossProblem problem;
    for (std::size_t i = 0; i < kYOLOLossParts; ++i) {
      problem.parts[i].type = types[i];
      problem.parts[i].weight = 1 + 0.25F * static_cast<float>(i);
    }
    for (YOLOLossPart& part : problem.parts) {
      part.exactSoftMaxGradient = exactSoftMaxGradient;
      part.labelSmoothing = labelSmoothing;
    }
    problem.parts[1].delta = 0.5F;
    problem.parts[3].numberOfClasses = numberOfClasses;
    problem.scaleXY = scales[0];
    problem.scaleWH = scales[1];
    problem.scaleNoObject = scales[2];
    problem.scaleObject = scales[3];
    problem.scaleClass = scales[4];
    problem.reductionType = reductionType;
    problem.reduceAcrossBatch = reduceAcrossBatch;
    problem.rescore = rescore;
    for (std::size_t i = 0; i < anchors; ++i) {
      problem.anchorBoxes.push_back(0.75F + static_cast<float>(i));
      problem.anchorBoxes.push_back(1.5F + 0.5F * static_cast<float>(i % 3));
    }
    const std::int64_t channels = static_cast<std::int64_t>(anchors) * (5 + classes);
    const auto shape = [&](ImageFeatureChannelFormat of, std::int64_t gap) {
      return withGaps(TensorShape::dense(images, height, width, channels, of), hasGaps ? gap : 0);
    };
    problem.predictions = shape(format, 1);
    problem.labels =
        shape(halfLabels ? ImageFeatureChannelFormat::Float16 : ImageFeatureChannelFormat::Float32, 2);
    if (hasWeights) problem.weights = shape(format, 3);
    problem.gradient = shape(format, 4);
    problem.loss = reductionType == CNNReductionType::None || largeLoss
                       ? shape(ImageFeatureChannelFormat::Float32, 5)
                       : TensorShape::dense(images, 1, 1, 1);
    return problem;
  }
};

/// For GoogleTest's messages.
inline void PrintTo(const YOLOLossCase& item, std::ostream* stream) {
  *stream << item.name;
}

inline std::vector<YOLOLossCase> yoloLossCases() {
  using enum CNNLossType;
  using Reduction = CNNReductionType;
  return {
      {.name = "OneCell", .classes = 1, .anchors = 1},
      {.name = "Usual", .images = 3, .height = 5, .width = 4, .classes = 6, .anchors = 3},
      {.name = "NoClasses", .images = 2, .height = 3, .width = 3, .classes = 0},
      {.name = "Weights", .images = 2, .height = 4, .width = 3, .hasWeights = true},
      {.name = "GapsAndWeights", .images = 2, .height = 3, .width = 3, .hasWeights = true, .hasGaps = true},
      {.name = "NoRescore", .images = 2, .height = 4, .width = 4, .rescore = false},
      {.name = "None",
       .images = 2,
       .height = 3,
       .width = 4,
       .reductionType = Reduction::None,
       .hasWeights = true},
      {.name = "NoneGaps",
       .images = 2,
       .height = 3,
       .width = 4,
       .reductionType = Reduction::None,
       .hasGaps = true},
      {.name = "Mean", .images = 3, .height = 3, .width = 4, .reductionType = Reduction::Mean},
      {.name = "MeanOfBatch",
       .images = 3,
       .height = 3,
       .width = 4,
       .reductionType = Reduction::Mean,
       .reduceAcrossBatch = true},
      {.name = "NonZeroWeights",
       .images = 2,
       .height = 4,
       .width = 4,
       .reductionType = Reduction::SumByNonZeroWeights,
       .hasWeights = true},
      {.name = "NonZeroWeightsOfBatch",
       .images = 2,
       .height = 4,
       .width = 4,
       .reductionType = Reduction::SumByNonZeroWeights,
       .reduceAcrossBatch = true,
       .hasWeights = true},
      {.name = "NonZeroWithoutWeights",
       .images = 2,
       .height = 2,
       .width = 2,
       .reductionType = Reduction::SumByNonZeroWeights},
      {.name = "SumOfBatch", .images = 3, .height = 2, .width = 2, .reduceAcrossBatch = true},
      {.name = "TilesOfSeveralImages",
       .images = 5,
       .height = 7,
       .width = 5,
       .classes = 20,
       .anchors = 5,
       .hasWeights = true,
       .halfLabels = true},
      {.name = "PacksOfSeveralAnchors",
       .images = 2,
       .height = 5,
       .width = 4,
       .classes = 0,
       .anchors = 4,
       .halfLabels = true},
      {.name = "PacksOfAnAnchor",
       .images = 2,
       .height = 5,
       .width = 4,
       .classes = 3,
       .anchors = 3,
       .halfLabels = true},
      {.name = "ClassesThatFillATile", .images = 2, .height = 6, .width = 6, .classes = 256, .anchors = 1},
      {.name = "CellsLargerThanATile", .images = 2, .width = 3, .classes = 1100, .labelSmoothing = 0.125F},
      {.name = "CellsLargerThanATileExact",
       .width = 2,
       .classes = 1100,
       .reductionType = Reduction::None,
       .hasWeights = true,
       .exactSoftMaxGradient = true},
      {.name = "CellsLargerThanATileLargePredictions",
       .width = 2,
       .classes = 1100,
       .hasWeights = true,
       .classRange = 200},
      {.name = "ManyAnchors", .images = 2, .height = 3, .width = 3, .classes = 2, .anchors = 40},
      {.name = "SomeClasses",
       .images = 2,
       .height = 4,
       .width = 4,
       .classes = 6,
       .labelSmoothing = 0.25F,
       .numberOfClasses = 4},
      {.name = "LargeLoss", .images = 3, .height = 3, .width = 3, .hasGaps = true, .largeLoss = true},
      {.name = "NoObjects", .images = 2, .height = 4, .width = 4, .scales = {10, 10, 5, 0, 2}},
      {.name = "ObjectsAlone", .images = 2, .height = 4, .width = 4, .scales = {0, 10, 0, 100, 0}},
      {.name = "SoftMaxEverywhere",
       .images = 2,
       .height = 4,
       .width = 4,
       .hasWeights = true,
       .exactSoftMaxGradient = true,
       .types = {SoftMaxCrossEntropy, SoftMaxCrossEntropy, SoftMaxCrossEntropy, SoftMaxCrossEntropy}},
      {.name = "OtherTypes",
       .images = 2,
       .height = 4,
       .width = 4,
       .types = {MeanAbsoluteError, MeanSquaredError, MeanSquaredError, SigmoidCrossEntropy}},
  };
}

/// @param classRange of the case
inline std::vector<double> yoloPredictions(const YOLOLossProblem& problem, double classRange,
                                           std::uint64_t seed) {
  std::vector<double> values =
      randomValues(static_cast<std::size_t>(problem.predictions.elements()), seed, RandomKind::Uniform);
  const auto perAnchor = static_cast<std::size_t>(problem.channelsPerAnchor());
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i % perAnchor >= 5) values[i] *= classRange;
  return values;
}

/// Labels with a box in about half of the cells: at one anchor, which has an object, or at all of them, some of which do.
inline std::vector<double> yoloLabels(const YOLOLossProblem& problem, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<double> inside(0.1, 0.9);
  const auto upTo = [&](std::int64_t count) {
    return static_cast<std::int64_t>(generator() % static_cast<std::uint64_t>(count));
  };
  const std::int64_t perAnchor = problem.channelsPerAnchor();
  std::vector<double> values(static_cast<std::size_t>(problem.predictions.elements()));
  for (std::int64_t cell = 0; cell < problem.predictions.pixels(); ++cell) {
    if (upTo(2) == 0 && cell > 0) continue;
    const double box[] = {inside(generator), inside(generator), 3 * inside(generator), 3 * inside(generator)};
    const std::int64_t own = upTo(problem.anchors());
    const bool isEverywhere = upTo(3) == 0;
    for (std::int64_t anchor = 0; anchor < problem.anchors(); ++anchor) {
      if (anchor != own && !isEverywhere) continue;
      const auto first = values.begin() + cell * problem.predictions.channels + anchor * perAnchor;
      std::copy(std::begin(box), std::end(box), first);
      if (anchor == own || upTo(2) == 0) first[4] = 1;
      if (problem.channelsOf(3) > 0) first[5 + upTo(problem.channelsOf(3))] = 1;
    }
  }
  return values;
}

/// Weights of 0, 1/2 and 1.
inline std::vector<double> yoloWeights(const YOLOLossProblem& problem, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<double> values(static_cast<std::size_t>(problem.weights.elements()));
  for (double& value : values) value = static_cast<double>(generator() % 3) / 2;
  return values;
}

}  // namespace mps::detail
