#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "mps/loss/loss_descriptor.hpp"

namespace mps {

/// What a YOLO loss computes (MPSCNNYOLOLossDescriptor). A value; kernels copy it when they are made.
///
/// Four losses make it: of position, size, confidence and classes. Weight, label smoothing, number of classes, epsilon and
/// delta of their descriptors apply to their part; reductionType and reduceAcrossBatch are the common ones below. The
/// cosine distance and a loss scale are refused.
class CNNYOLOLossDescriptor {
 public:
  /// @param anchorBoxes numberOfAnchorBoxes pairs of width and height in units of
  /// grid cells, copied
  static CNNYOLOLossDescriptor create(CNNLossType xyLossType, CNNLossType whLossType,
                                      CNNLossType confidenceLossType, CNNLossType classesLossType,
                                      CNNReductionType reductionType, std::span<const float> anchorBoxes,
                                      std::size_t numberOfAnchorBoxes) {
    return {xyLossType,    whLossType,  confidenceLossType, classesLossType,
            reductionType, anchorBoxes, numberOfAnchorBoxes};
  }
  /// Apple's name of create: +cnnLossDescriptorWithXYLossType:...
  static CNNYOLOLossDescriptor cnnLossDescriptor(CNNLossType xyLossType, CNNLossType whLossType,
                                                 CNNLossType confidenceLossType, CNNLossType classesLossType,
                                                 CNNReductionType reductionType,
                                                 std::span<const float> anchorBoxes,
                                                 std::size_t numberOfAnchorBoxes) {
    return create(xyLossType, whLossType, confidenceLossType, classesLossType, reductionType, anchorBoxes,
                  numberOfAnchorBoxes);
  }

  /// Position; typically MeanSquaredError.
  [[nodiscard]] const CNNLossDescriptor& XYLossDescriptor() const { return xy_; }
  void setXYLossDescriptor(const CNNLossDescriptor& descriptor) { xy_ = descriptor; }
  /// Size; typically Huber.
  [[nodiscard]] const CNNLossDescriptor& WHLossDescriptor() const { return wh_; }
  void setWHLossDescriptor(const CNNLossDescriptor& descriptor) { wh_ = descriptor; }
  /// Whether there is an object; typically SigmoidCrossEntropy.
  [[nodiscard]] const CNNLossDescriptor& confidenceLossDescriptor() const { return confidence_; }
  void setConfidenceLossDescriptor(const CNNLossDescriptor& descriptor) { confidence_ = descriptor; }
  /// Class scores; typically SoftMaxCrossEntropy.
  [[nodiscard]] const CNNLossDescriptor& classesLossDescriptor() const { return classes_; }
  void setClassesLossDescriptor(const CNNLossDescriptor& descriptor) { classes_ = descriptor; }
  /// Of the loss; the gradient is never divided by a count.
  [[nodiscard]] CNNReductionType reductionType() const { return reductionType_; }
  void setReductionType(CNNReductionType type) { reductionType_ = type; }
  /// false. As of CNNLossDescriptor.
  [[nodiscard]] bool reduceAcrossBatch() const { return reduceAcrossBatch_; }
  void setReduceAcrossBatch(bool reduces) { reduceAcrossBatch_ = reduces; }
  /// Whether the confidence to reach is the overlap of prediction and truth, or 1. true.
  [[nodiscard]] bool rescore() const { return rescore_; }
  void setRescore(bool rescore) { rescore_ = rescore; }
  /// Factors of loss and gradient: of position and size, 10 and 10; of the confidence without and with an object, 5 and
  /// 100; of the classes, 2. @{
  [[nodiscard]] float scaleXY() const { return scaleXY_; }
  void setScaleXY(float scale) { scaleXY_ = scale; }
  [[nodiscard]] float scaleWH() const { return scaleWH_; }
  void setScaleWH(float scale) { scaleWH_ = scale; }
  [[nodiscard]] float scaleNoObject() const { return scaleNoObject_; }
  void setScaleNoObject(float scale) { scaleNoObject_ = scale; }
  [[nodiscard]] float scaleObject() const { return scaleObject_; }
  void setScaleObject(float scale) { scaleObject_ = scale; }
  [[nodiscard]] float scaleClass() const { return scaleClass_; }
  void setScaleClass(float scale) { scaleClass_ = scale; }
  /// @}
  /// Overlap of truth and anchor above which an anchor is responsible beside the best one. 0.7.
  [[nodiscard]] float minIOUForObjectPresence() const { return minIOUForObjectPresence_; }
  void setMinIOUForObjectPresence(float overlap) { minIOUForObjectPresence_ = overlap; }
  /// Overlap below which there is no object. 0.3.
  [[nodiscard]] float maxIOUForObjectAbsence() const { return maxIOUForObjectAbsence_; }
  void setMaxIOUForObjectAbsence(float overlap) { maxIOUForObjectAbsence_ = overlap; }
  /// Anchors of a cell, 1 to 64: the same on every device.
  [[nodiscard]] std::size_t numberOfAnchorBoxes() const { return numberOfAnchorBoxes_; }
  void setNumberOfAnchorBoxes(std::size_t number) { numberOfAnchorBoxes_ = number; }
  /// Width and height of one anchor after the other.
  [[nodiscard]] const std::vector<float>& anchorBoxes() const { return anchorBoxes_; }
  void setAnchorBoxes(std::span<const float> boxes) { anchorBoxes_.assign(boxes.begin(), boxes.end()); }

  void encode(Coder& coder) const;
  static CNNYOLOLossDescriptor decode(Coder& coder);
  bool operator==(const CNNYOLOLossDescriptor&) const = default;

 private:
  CNNYOLOLossDescriptor(CNNLossType xy, CNNLossType wh, CNNLossType confidence, CNNLossType classes,
                        CNNReductionType reductionType, std::span<const float> anchorBoxes,
                        std::size_t numberOfAnchorBoxes)
      : xy_(CNNLossDescriptor::cnnLossDescriptor(xy, reductionType)),
        wh_(CNNLossDescriptor::cnnLossDescriptor(wh, reductionType)),
        confidence_(CNNLossDescriptor::cnnLossDescriptor(confidence, reductionType)),
        classes_(CNNLossDescriptor::cnnLossDescriptor(classes, reductionType)),
        reductionType_(reductionType),
        numberOfAnchorBoxes_(numberOfAnchorBoxes),
        anchorBoxes_(anchorBoxes.begin(), anchorBoxes.end()) {}

  CNNLossDescriptor xy_;
  CNNLossDescriptor wh_;
  CNNLossDescriptor confidence_;
  CNNLossDescriptor classes_;
  CNNReductionType reductionType_;
  bool reduceAcrossBatch_ = false;
  bool rescore_ = true;
  float scaleXY_ = 10;
  float scaleWH_ = 10;
  float scaleNoObject_ = 5;
  float scaleObject_ = 100;
  float scaleClass_ = 2;
  float minIOUForObjectPresence_ = 0.7F;
  float maxIOUForObjectAbsence_ = 0.3F;
  std::size_t numberOfAnchorBoxes_;
  std::vector<float> anchorBoxes_;
};

}  // namespace mps
