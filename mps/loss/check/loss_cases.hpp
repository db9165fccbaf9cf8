#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mps/loss/loss_problem.hpp"

namespace mps::detail {

/// A problem with the numbers of one run, for tests, self-check and timing.
struct LossCase {
  std::string name;
  LossProblem problem;
  double weight = 1;
  double labelSmoothing = 0;
  double epsilon = 1e-7;
  double delta = 1;
  /// Largest size of a prediction, where the type has no range of its own; exponentials of 90 overflow.
  double range = 6;
  /// Inputs are small integers and every partial sum is representable.
  bool exact = false;
  bool accumulate = false;
  /// Class indices: every third pixel is left out.
  bool leavesOut = false;
};

/// A tensor with gaps between its pixels, rows and images.
inline TensorShape withGaps(TensorShape shape) {
  shape.pixelStride = shape.channels + 3;
  shape.rowStride = shape.width * shape.pixelStride + 5;
  shape.imageStride = shape.height * shape.rowStride + 7;
  return shape;
}

/// Dense float32 tensors for loss, gradient and, with dense labels, label gradient.
inline LossCase lossCase(CNNLossType type, CNNReductionType reduction, std::int64_t images,
                         std::int64_t height, std::int64_t width, std::int64_t channels) {
  LossCase result;
  LossProblem& problem = result.problem;
  problem.lossType = type;
  problem.reductionType = reduction;
  problem.countedChannels = channels;
  problem.numberOfClasses = channels;
  problem.predictions = problem.labels = problem.gradient = problem.labelGradient =
      TensorShape::dense(images, height, width, channels);
  problem.loss =
      reduction == CNNReductionType::None ? problem.predictions : TensorShape::dense(images, 1, 1, 1);
  result.name = std::string(name(type)) + name(reduction);
  return result;
}

inline void setFormats(LossProblem& problem, ImageFeatureChannelFormat sources,
                       ImageFeatureChannelFormat results) {
  for (TensorShape* source :
       {&problem.predictions, &problem.labels, &problem.weights, &problem.sourceGradient})
    source->format = sources;
  for (TensorShape* result : {&problem.gradient, &problem.loss, &problem.labelGradient})
    result->format = results;
}

inline const std::vector<CNNLossType>& lossTypes() {
  static const std::vector<CNNLossType> types = {CNNLossType::MeanAbsoluteError,
                                                 CNNLossType::MeanSquaredError,
                                                 CNNLossType::SoftMaxCrossEntropy,
                                                 CNNLossType::SigmoidCrossEntropy,
                                                 CNNLossType::CategoricalCrossEntropy,
                                                 CNNLossType::Hinge,
                                                 CNNLossType::Huber,
                                                 CNNLossType::CosineDistance,
                                                 CNNLossType::Log,
                                                 CNNLossType::KullbackLeiblerDivergence};
  return types;
}

/// Each type with each reduction, weights, smoothing and incoming gradient.
inline void addTypeCases(std::vector<LossCase>& cases) {
  for (const CNNLossType type : lossTypes())
    for (const CNNReductionType reduction : {CNNReductionType::None, CNNReductionType::Sum,
                                             CNNReductionType::Mean, CNNReductionType::SumByNonZeroWeights}) {
      if (type == CNNLossType::CosineDistance && reduction != CNNReductionType::Sum) continue;
      LossCase plain = lossCase(type, reduction, 2, 3, 4, 5);
      cases.push_back(plain);
      LossCase weighted = lossCase(type, reduction, 3, 2, 5, 7);
      weighted.name += "WeightedSmoothedChained";
      weighted.weight = 0.75;
      weighted.labelSmoothing = 0.125;
      weighted.delta = 0.5;
      weighted.epsilon = 0.03125;
      weighted.problem.weights = weighted.problem.predictions;
      weighted.problem.divideGradient = true;
      weighted.problem.sourceGradient =
          reduction == CNNReductionType::None ? weighted.problem.predictions : TensorShape::dense(3, 1, 1, 1);
      cases.push_back(weighted);
      LossCase batch = weighted;
      batch.name += "AcrossBatch";
      batch.problem.reduceAcrossBatch = true;
      cases.push_back(batch);
    }
}

inline void addExactCases(std::vector<LossCase>& cases) {
  for (const CNNLossType type : {CNNLossType::MeanAbsoluteError, CNNLossType::MeanSquaredError,
                                 CNNLossType::Hinge, CNNLossType::Huber, CNNLossType::CosineDistance})
    for (const CNNReductionType reduction : {CNNReductionType::None, CNNReductionType::Sum}) {
      if (type == CNNLossType::CosineDistance && reduction != CNNReductionType::Sum) continue;
      LossCase exact = lossCase(type, reduction, 3, 5, 7, 17);
      exact.name += "Exact";
      exact.exact = true;
      exact.weight = 0.5;
      exact.delta = 2;
      exact.problem.weights = withGaps(exact.problem.predictions);
      exact.problem.gradient = withGaps(exact.problem.gradient);
      cases.push_back(exact);
    }
}

/// Sizes at the edges of vectors and tiles, for an element-wise loss and for softmax.
inline void addSizeCases(std::vector<LossCase>& cases) {
  struct Size {
    std::int64_t images, height, width, channels;
  };
  for (const CNNLossType type : {CNNLossType::MeanSquaredError, CNNLossType::SoftMaxCrossEntropy})
    for (const Size size :
         {Size{1, 1, 1, 1}, Size{1, 1, 1, 3}, Size{5, 1, 1, 4}, Size{130, 1, 1, 10}, Size{3, 1, 1, 16},
          Size{2, 1, 3, 17}, Size{1, 40, 9, 3}, Size{3, 9, 11, 21}, Size{1, 8, 16, 64}, Size{2, 1, 1, 1000},
          Size{2, 1, 2, 1024}, Size{2, 1, 2, 1025}, Size{1, 2, 1, 2500}, Size{7, 64, 64, 5}}) {
      LossCase sized = lossCase(type, CNNReductionType::SumByNonZeroWeights, size.images, size.height,
                                size.width, size.channels);
      sized.name += "Size" + std::to_string(size.images) + "x" + std::to_string(size.height) + "x" +
                    std::to_string(size.width) + "x" + std::to_string(size.channels);
      sized.problem.weights = sized.problem.predictions;
      sized.problem.divideGradient = true;
      cases.push_back(sized);
    }
}

inline void addFormatCases(std::vector<LossCase>& cases) {
  using Format = ImageFeatureChannelFormat;
  for (const CNNLossType type : {CNNLossType::MeanSquaredError, CNNLossType::SoftMaxCrossEntropy})
    for (const Format format : {Format::Unorm8, Format::Unorm16, Format::Float16})
      for (const Format resultFormat : {Format::Float32, Format::Float16}) {
        LossCase formats = lossCase(type, CNNReductionType::None, 2, 5, 3, 19);
        formats.name += std::string("Format") + name(format) + "To" + name(resultFormat);
        formats.problem.weights = formats.problem.sourceGradient = formats.problem.predictions;
        setFormats(formats.problem, format, resultFormat);
        cases.push_back(formats);
        formats.name += "Gaps";
        formats.problem.labels.format = Format::Float32;
        for (TensorShape* shape :
             {&formats.problem.predictions, &formats.problem.labels, &formats.problem.weights,
              &formats.problem.sourceGradient, &formats.problem.gradient, &formats.problem.loss,
              &formats.problem.labelGradient})
          *shape = withGaps(*shape);
        cases.push_back(formats);
      }
  for (const CNNLossType type : {CNNLossType::SigmoidCrossEntropy, CNNLossType::SoftMaxCrossEntropy})
    for (const std::int64_t channels : {24, 1000}) {
      LossCase float16Case = lossCase(type, CNNReductionType::Sum, 2, 3, 2, channels);
      float16Case.name += "Float16" + std::to_string(channels);
      setFormats(float16Case.problem, Format::Float16, Format::Float16);
      cases.push_back(float16Case);
    }
  for (const CNNLossType type : lossTypes())
    for (const Format format : {Format::Unorm8, Format::Unorm16}) {
      LossCase codes = lossCase(type, CNNReductionType::Sum, 2, 4, 3, 18);
      codes.name += std::string("Codes") + name(format);
      codes.problem.weights = codes.problem.predictions;
      setFormats(codes.problem, format, Format::Float32);
      cases.push_back(codes);
    }
  LossCase unorm = lossCase(CNNLossType::MeanAbsoluteError, CNNReductionType::None, 1, 4, 4, 9);
  unorm.name += "Unorm8Loss";
  unorm.problem.loss.format = Format::Unorm8;
  cases.push_back(unorm);
}

/// What training asks for: dense labels, no weights, a sum and the gradient for the predictions. Whole vectors of channels.
inline void addTrainingCases(std::vector<LossCase>& cases) {
  using Format = ImageFeatureChannelFormat;
  struct Size {
    std::int64_t images, height, width, channels;
  };
  for (const CNNLossType type : lossTypes())
    for (const Format format : {Format::Float32, Format::Float16})
      for (const Size size :
           {Size{3, 5, 7, 24}, Size{9, 1, 1, 64}, Size{3, 1, 1, 1000}, Size{2, 3, 2, 1000}}) {
        const bool isSoftMax = type == CNNLossType::SoftMaxCrossEntropy;
        // Of float16 each type has pixels that nearly fill a tile.
        const bool isWideHalf = format == Format::Float16 && size.images == 2;
        if (!isSoftMax && !isWideHalf &&
            (size.channels == 1000 ||
             (format == Format::Float16 && type != CNNLossType::SigmoidCrossEntropy)))
          continue;
        LossCase training =
            lossCase(type, CNNReductionType::Sum, size.images, size.height, size.width, size.channels);
        training.name += std::string("Training") + name(format) + std::to_string(size.images) + "x" +
                         std::to_string(size.height) + "x" + std::to_string(size.width) + "x" +
                         std::to_string(size.channels);
        setFormats(training.problem, format, format);
        training.problem.labelGradient = {};
        cases.push_back(training);
        LossCase lossOnly = training;
        lossOnly.name += "LossOnly";
        lossOnly.problem.gradient = {};
        cases.push_back(lossOnly);
        if (isSoftMax || type == CNNLossType::SigmoidCrossEntropy) {
          LossCase large = training;
          large.name += "LargePredictions";
          large.range = 30000;
          cases.push_back(large);
        }
        training.name += "Smoothed";
        training.weight = 0.75;
        training.labelSmoothing = 0.125;
        training.problem.divideGradient = true;
        training.problem.reduceAcrossBatch = true;
        cases.push_back(training);
      }
}

/// Labels with more channels than predictions, predictions that do not count, broadcast weights.
inline void addChannelCases(std::vector<LossCase>& cases) {
  for (const CNNReductionType reduction : {CNNReductionType::None, CNNReductionType::Mean})
    for (const std::int64_t channels : {10, 1100}) {
      LossCase padded = lossCase(CNNLossType::SoftMaxCrossEntropy, reduction, 4, 1, 2, channels);
      padded.name += "PaddedLabels" + std::to_string(channels);
      padded.problem.labels = TensorShape::dense(4, 1, 2, channels + 2);
      cases.push_back(padded);
      LossCase counted = lossCase(CNNLossType::SoftMaxCrossEntropy, reduction, 4, 1, 2, channels);
      counted.name += "CountedChannels" + std::to_string(channels);
      counted.problem.countedChannels = channels - 3;
      cases.push_back(counted);
      LossCase perPixel = lossCase(CNNLossType::SigmoidCrossEntropy, reduction, 3, 2, 3, channels);
      perPixel.name += "WeightPerPixel" + std::to_string(channels);
      perPixel.problem.weights = TensorShape::dense(3, 2, 3, 1);
      cases.push_back(perPixel);
    }
  for (const std::int64_t others : {1, 2, 1500}) {
    LossCase onePixel =
        lossCase(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::None, 1, 1, 1, 10 + others);
    onePixel.name += "OnePixelAnd" + std::to_string(others) + "OtherChannels";
    onePixel.problem.countedChannels = 10;
    cases.push_back(onePixel);
  }
  LossCase repeated =
      lossCase(CNNLossType::MeanSquaredError, CNNReductionType::SumByNonZeroWeights, 3, 2, 3, 5);
  repeated.name += "RepeatedWeights";
  repeated.problem.weights = repeated.problem.predictions;
  repeated.problem.weights.imageStride = 0;
  repeated.problem.divideGradient = true;
  cases.push_back(repeated);
}

inline void addIndexCases(std::vector<LossCase>& cases) {
  for (const CNNLossType type :
       {CNNLossType::SoftMaxCrossEntropy, CNNLossType::CategoricalCrossEntropy, CNNLossType::Log})
    for (const bool leavesOut : {false, true}) {
      LossCase indexed = lossCase(type, CNNReductionType::SumByNonZeroWeights, 3, 5, 7, 21);
      indexed.name += "ClassIndices";
      if (leavesOut) indexed.name += "LeftOut";
      indexed.leavesOut = leavesOut;
      indexed.problem.labelKind = LossLabels::ClassIndices;
      indexed.problem.labels = TensorShape::dense(3, 5, 7, 1);
      indexed.problem.divideGradient = true;
      cases.push_back(indexed);
      indexed.name += "Weighted";
      indexed.problem.weights = leavesOut ? indexed.problem.predictions : TensorShape::dense(3, 5, 7, 1);
      cases.push_back(indexed);
    }
  for (const std::int64_t classes : {257, 1000, 65536}) {
    LossCase many = lossCase(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum, 4, 1, 1, classes);
    many.name += "Of" + std::to_string(classes) + "Classes";
    many.problem.labelKind = LossLabels::ClassIndices;
    many.problem.labels = TensorShape::dense(4, 1, 1, 1);
    many.problem.labelGradient = {};
    cases.push_back(many);
  }
  LossCase wide = lossCase(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Mean, 2, 1, 3, 2100);
  wide.name += "WideIndices";
  wide.problem.labelKind = LossLabels::ClassIndices;
  wide.problem.labels = withGaps(TensorShape::dense(2, 1, 3, 1));
  wide.leavesOut = true;
  cases.push_back(wide);
}

/// One output at a time, accumulation, and the remaining switches.
inline void addOutputCases(std::vector<LossCase>& cases) {
  for (const CNNLossType type : {CNNLossType::SoftMaxCrossEntropy, CNNLossType::SigmoidCrossEntropy}) {
    const LossCase all = lossCase(type, CNNReductionType::Mean, 3, 4, 5, 6);
    const TensorShape none;
    LossCase gradientOnly = all;
    gradientOnly.name += "GradientOnly";
    gradientOnly.problem.loss = gradientOnly.problem.labelGradient = none;
    cases.push_back(gradientOnly);
    LossCase lossOnly = all;
    lossOnly.name += "LossOnly";
    lossOnly.problem.gradient = lossOnly.problem.labelGradient = none;
    cases.push_back(lossOnly);
    LossCase labelGradientOnly = all;
    labelGradientOnly.name += "LabelGradientOnly";
    labelGradientOnly.problem.gradient = labelGradientOnly.problem.loss = none;
    cases.push_back(labelGradientOnly);
    LossCase accumulated = all;
    accumulated.name += "Accumulated";
    accumulated.accumulate = true;
    cases.push_back(accumulated);
    accumulated.name += "Gaps";
    accumulated.problem.gradient = withGaps(accumulated.problem.gradient);
    cases.push_back(accumulated);
    LossCase largeLossImage = all;
    largeLossImage.name += "LargeLossImage";
    largeLossImage.problem.loss = largeLossImage.problem.predictions;
    cases.push_back(largeLossImage);
  }
  for (const std::int64_t channels : {9, 1500}) {
    LossCase exactGradient =
        lossCase(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::None, 2, 2, 2, channels);
    exactGradient.name += "ExactGradient" + std::to_string(channels);
    exactGradient.problem.weights = exactGradient.problem.sourceGradient = exactGradient.problem.predictions;
    exactGradient.problem.exactSoftMaxGradient = true;
    exactGradient.labelSmoothing = 0.25;
    cases.push_back(exactGradient);
  }
}

/// All of them.
inline std::vector<LossCase> lossCases() {
  std::vector<LossCase> cases;
  addTypeCases(cases);
  addExactCases(cases);
  addSizeCases(cases);
  addFormatCases(cases);
  addTrainingCases(cases);
  addChannelCases(cases);
  addIndexCases(cases);
  addOutputCases(cases);
  return cases;
}

}  // namespace mps::detail
