#include "mps/softmax/softmax.hpp"

#include "mps/dropout/dropout.hpp"
#include "onnx/export/step.hpp"

/// Softmax over the channels, and dropout, which is for training.
namespace unmetal::onnx::detail {

std::optional<std::string> translateSoftMax(const Step& step) {
  const bool isLogarithm = step.as<mps::CNNLogSoftMax>() != nullptr;
  if (!isLogarithm && step.as<mps::CNNSoftMax>() == nullptr) return std::nullopt;
  const Picture source = step.pointwiseSource(*step.as<mps::CNNKernel>());
  return step.add(isLogarithm ? "LogSoftmax" : "Softmax", {source.value}, {{"axis", std::int64_t{1}}});
}

std::optional<std::string> translateDropout(const Step& step) {
  const auto* dropout = step.as<mps::CNNDropout>();
  if (dropout == nullptr) return std::nullopt;
  return step.pointwiseSource(*dropout).value;
}

}  // namespace unmetal::onnx::detail
