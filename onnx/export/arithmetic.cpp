#include <cfloat>

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/arithmetic/compare.hpp"
#include "onnx/export/step.hpp"

/// Arithmetic of two pictures.
namespace unmetal::onnx::detail {
namespace {

/// How a kernel reads one of its two sources.
struct Reading {
  mps::Offset offset;
  std::size_t strideX, strideY, channelStride;  ///< 0: the first one again and again
  std::size_t firstChannel, mostChannels;
  mps::ImageEdgeMode edgeMode;
};
Reading primaryReading(const mps::CNNArithmetic& kernel) {
  return {kernel.primaryOffset(),
          kernel.primaryStrideInPixelsX(),
          kernel.primaryStrideInPixelsY(),
          kernel.primaryStrideInFeatureChannels(),
          kernel.primarySourceFeatureChannelOffset(),
          kernel.primarySourceFeatureChannelMaxCount(),
          kernel.primaryEdgeMode()};
}
Reading secondaryReading(const mps::CNNArithmetic& kernel) {
  return {kernel.secondaryOffset(),
          kernel.secondaryStrideInPixelsX(),
          kernel.secondaryStrideInPixelsY(),
          kernel.secondaryStrideInFeatureChannels(),
          kernel.secondarySourceFeatureChannelOffset(),
          kernel.secondarySourceFeatureChannelMaxCount(),
          kernel.secondaryEdgeMode()};
}

/// What is read; ONNX repeats an axis of one element as often as the other source has some.
std::string operand(const Step& step, const Picture& source, const Reading& reading) {
  const std::size_t most = reading.channelStride == 0 ? 1 : reading.mostChannels;
  return step
      .pixels(step.channels(source, reading.firstChannel, most),
              {reading.offset.x, reading.offset.y, reading.strideX == 0 ? 1 : step.result.width,
               reading.strideY == 0 ? 1 : step.result.height},
              reading.edgeMode)
      .value;
}

std::string addComparison(const Step& step, const mps::NNCompare& compare, const std::string& x,
                          const std::string& y) {
  using enum mps::NNComparisonType;
  const auto isNear = [&] {
    const std::string distance = step.add("Abs", {step.add("Sub", {x, y})});
    return step.add("LessOrEqual", {distance, step.model.constant("threshold", compare.threshold())});
  };
  switch (compare.comparisonType()) {
    case Equal:
      return isNear();
    case NotEqual:
      return step.add("Not", {isNear()});
    case Less:
      return step.add("Less", {x, y});
    case LessOrEqual:
      return step.add("LessOrEqual", {x, y});
    case Greater:
      return step.add("Greater", {x, y});
    case GreaterOrEqual:
      break;
  }
  return step.add("GreaterOrEqual", {x, y});
}

/// Null for what is none of the four.
const char* operatorOf(const Step& step) {
  if (step.as<mps::CNNAdd>() != nullptr) return "Add";
  if (step.as<mps::CNNSubtract>() != nullptr) return "Sub";
  if (step.as<mps::CNNMultiply>() != nullptr) return "Mul";
  return step.as<mps::CNNDivide>() != nullptr ? "Div" : nullptr;
}

/// The limits that are some.
std::string limited(const Step& step, const mps::CNNArithmetic& kernel, const std::string& value) {
  std::string result = value;
  if (kernel.minimumValue() != -FLT_MAX)
    result = step.add("Max", {result, step.model.constant("minimum", kernel.minimumValue())});
  if (kernel.maximumValue() != FLT_MAX)
    result = step.add("Min", {result, step.model.constant("maximum", kernel.maximumValue())});
  return result;
}

}  // namespace

std::optional<std::string> translateArithmetic(const Step& step) {
  const auto* kernel = step.as<mps::CNNArithmetic>();
  if (kernel == nullptr) return std::nullopt;
  const std::string x = operand(step, step.sources[0], primaryReading(*kernel));
  const std::string y = operand(step, step.sources[1], secondaryReading(*kernel));
  if (const auto* compare = step.as<mps::NNCompare>())
    return step.add("Cast", {addComparison(step, *compare, x, y)}, {{"to", floatElements}});
  const char* type = operatorOf(step);
  if (type == nullptr) return std::nullopt;
  const std::string value =
      step.add(type, {step.scaled(x, kernel->primaryScale()), step.scaled(y, kernel->secondaryScale())});
  const std::string result = limited(step, *kernel, step.shifted(value, kernel->bias()));
  const auto* addition = step.as<mps::CNNAdd>();
  return addition != nullptr && addition->hasGraphReLU() ? step.add("Relu", {result}) : result;
}

}  // namespace unmetal::onnx::detail
