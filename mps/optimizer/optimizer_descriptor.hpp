#pragma once

#include <cstdint>

namespace mps {

class Coder;

/// MPSNNRegularizationType: the term that is added to the gradient of a value v, or what else draws v to 0.
enum class NNRegularizationType : std::uint64_t {
  None = 0,
  L1 = 1,  ///< regularizationScale * sign(v), 0 at v = 0
  L2 = 2,  ///< regularizationScale * v, no factor 2
  /// Extension (docs/decisions.md, D30): the gradient is left alone, and learningRate * regularizationScale * v is taken off v
  /// before the update, as AdamW does (Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019). The learning rate is the
  /// optimiser's own, not one that Adam has corrected.
  Decoupled = 3,
};

/// MPSNNOptimizerDescriptor: what all optimisers do to a gradient before they use it. A value; optimisers
/// read it when they are made.
///
///     1. applyGradientClipping: g = min(max(g, gradientClipMin), gradientClipMax)
///     2. g = g * gradientRescale
///     3. g = g + regularisation term of the value before the update; Decoupled has none, and shrinks the value instead
///
/// Negative learning rates and negative regularisation scales are allowed: SGD with learning rate -(1 - m),
/// L2 and scale -1 on a batch statistic s makes the running average v = m v + (1 - m) s.
class NNOptimizerDescriptor {
 public:
  /// Learning rate 0.001, rescale 1, no clipping, no regularisation.
  NNOptimizerDescriptor() = default;

  /// -initWithLearningRate:gradientRescale:regularizationType:regularizationScale:, without clipping.
  NNOptimizerDescriptor(float learningRate, float gradientRescale, NNRegularizationType regularizationType,
                        float regularizationScale)
      : learningRate_(learningRate),
        gradientRescale_(gradientRescale),
        regularizationScale_(regularizationScale),
        regularizationType_(regularizationType) {}

  /// -initWithLearningRate:gradientRescale:applyGradientClipping:gradientClipMax:gradientClipMin:
  /// regularizationType:regularizationScale:. The maximum comes before the minimum.
  NNOptimizerDescriptor(float learningRate, float gradientRescale, bool applyGradientClipping,
                        float gradientClipMax, float gradientClipMin, NNRegularizationType regularizationType,
                        float regularizationScale)
      : learningRate_(learningRate),
        gradientRescale_(gradientRescale),
        gradientClipMax_(gradientClipMax),
        gradientClipMin_(gradientClipMin),
        regularizationScale_(regularizationScale),
        applyGradientClipping_(applyGradientClipping),
        regularizationType_(regularizationType) {}

  /// The same as the constructors.
  static NNOptimizerDescriptor create(float learningRate, float gradientRescale,
                                      NNRegularizationType regularizationType, float regularizationScale) {
    return {learningRate, gradientRescale, regularizationType, regularizationScale};
  }
  static NNOptimizerDescriptor create(float learningRate, float gradientRescale, bool applyGradientClipping,
                                      float gradientClipMax, float gradientClipMin,
                                      NNRegularizationType regularizationType, float regularizationScale) {
    return {learningRate,    gradientRescale,    applyGradientClipping, gradientClipMax,
            gradientClipMin, regularizationType, regularizationScale};
  }
  /// Apple's name of create: +optimizerDescriptorWithLearningRate:...
  static NNOptimizerDescriptor optimizerDescriptor(float learningRate, float gradientRescale,
                                                   NNRegularizationType regularizationType,
                                                   float regularizationScale) {
    return create(learningRate, gradientRescale, regularizationType, regularizationScale);
  }
  static NNOptimizerDescriptor optimizerDescriptor(float learningRate, float gradientRescale,
                                                   bool applyGradientClipping, float gradientClipMax,
                                                   float gradientClipMin,
                                                   NNRegularizationType regularizationType,
                                                   float regularizationScale) {
    return create(learningRate, gradientRescale, applyGradientClipping, gradientClipMax, gradientClipMin,
                  regularizationType, regularizationScale);
  }

  /// Default 0.001; any sign.
  [[nodiscard]] float learningRate() const { return learningRate_; }
  void setLearningRate(float value) { learningRate_ = value; }

  /// Default 1. 1 / N makes the mean of gradients that are sums over a batch of N.
  [[nodiscard]] float gradientRescale() const { return gradientRescale_; }
  void setGradientRescale(float value) { gradientRescale_ = value; }

  /// Default false: the two limits are not used.
  [[nodiscard]] bool applyGradientClipping() const { return applyGradientClipping_; }
  void setApplyGradientClipping(bool value) { applyGradientClipping_ = value; }

  /// Default 0.
  [[nodiscard]] float gradientClipMax() const { return gradientClipMax_; }
  void setGradientClipMax(float value) { gradientClipMax_ = value; }

  /// Default 0.
  [[nodiscard]] float gradientClipMin() const { return gradientClipMin_; }
  void setGradientClipMin(float value) { gradientClipMin_ = value; }

  /// Default 0; any sign.
  [[nodiscard]] float regularizationScale() const { return regularizationScale_; }
  void setRegularizationScale(float value) { regularizationScale_ = value; }

  /// Default None.
  [[nodiscard]] NNRegularizationType regularizationType() const { return regularizationType_; }
  void setRegularizationType(NNRegularizationType value) { regularizationType_ = value; }

  void encode(Coder& coder) const;
  static NNOptimizerDescriptor decode(Coder& coder);
  bool operator==(const NNOptimizerDescriptor&) const = default;

 private:
  float learningRate_ = 0.001F;
  float gradientRescale_ = 1.0F;
  float gradientClipMax_ = 0.0F;
  float gradientClipMin_ = 0.0F;
  float regularizationScale_ = 0.0F;
  bool applyGradientClipping_ = false;
  NNRegularizationType regularizationType_ = NNRegularizationType::None;
};

}  // namespace mps
