#pragma once

#include "mps/core/plan/reference_tensor.hpp"
#include "mps/loss/check/loss_reference.hpp"
#include "mps/loss/yolo_loss_problem.hpp"

namespace mps::detail {

struct YOLOLossOutputs {
  ReferenceTensor gradient;  ///< as the predictions
  ReferenceTensor loss;      ///< 1x1x1 per image, or per element for reduction None
};

/// The formulas of CNNYOLOLoss in float64, the four losses by lossReference. @param weights empty: 1
YOLOLossOutputs yoloLossReference(const YOLOLossProblem& problem, const ReferenceTensor& predictions,
                                  const ReferenceTensor& labels, const ReferenceTensor& weights);

}  // namespace mps::detail
