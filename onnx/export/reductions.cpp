#include <algorithm>

#include "mps/reduction/reduction.hpp"
#include "onnx/export/step.hpp"

/// Reductions along an axis.
namespace unmetal::onnx::detail {
namespace {

std::vector<std::int64_t> axesOf(mps::ReductionAxis axis) {
  using enum mps::ReductionAxis;
  switch (axis) {
    case Row:
      return {3};
    case Column:
      return {2};
    case FeatureChannels:
      return {1};
    case Spatial:
      break;
  }
  return {2, 3};
}

/// The part of the source that is reduced.
Picture reducedPart(const Step& step, const mps::NNReduceUnary& reduction) {
  const mtl::Region& region = reduction.clipRectSource();
  const auto cut = [](std::size_t size, std::size_t origin, std::int64_t all) {
    return static_cast<std::int64_t>(std::min(size, static_cast<std::size_t>(all) - origin));
  };
  return step.pixels(step.source(),
                     {static_cast<std::int64_t>(region.origin.x), static_cast<std::int64_t>(region.origin.y),
                      cut(region.size.width, region.origin.x, step.source().width),
                      cut(region.size.height, region.origin.y, step.source().height)},
                     mps::ImageEdgeMode::Zero);
}

/// The first of equals, as a float.
std::string addArgument(const Step& step, const char* type, const std::string& value) {
  const std::string place =
      step.add(type, {value}, {{"axis", std::int64_t{1}}, {"keepdims", std::int64_t{1}}});
  return step.add("Cast", {place}, {{"to", floatElements}});
}

std::string addReduction(const Step& step, const mps::NNReduceUnary& reduction, const std::string& value) {
  using enum mps::ReductionOperation;
  const auto reduce = [&](const std::string& type) {
    return step.add(type, {value, step.model.constant("axes", axesOf(reduction.axis()))});
  };
  switch (reduction.operation()) {
    case Min:
      return reduce("ReduceMin");
    case Max:
      return reduce("ReduceMax");
    case Mean:
      return reduce("ReduceMean");
    case Sum:
      return reduce("ReduceSum");
    case ArgumentMin:
      return addArgument(step, "ArgMin", value);
    case ArgumentMax:
      break;
  }
  return addArgument(step, "ArgMax", value);
}

}  // namespace

std::optional<std::string> translateReduction(const Step& step) {
  const auto* reduction = step.as<mps::NNReduceUnary>();
  if (reduction == nullptr) return std::nullopt;
  const std::string value = addReduction(step, *reduction, reducedPart(step, *reduction).value);
  const auto* sum = step.as<mps::NNReduceFeatureChannelsSum>();
  return sum == nullptr ? value : step.scaled(value, sum->weight());
}

}  // namespace unmetal::onnx::detail
