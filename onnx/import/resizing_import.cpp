#include <algorithm>
#include <cmath>
#include <limits>

#include "onnx/import/node_import.hpp"

/// Enlarging and padding.
namespace unmetal::onnx::detail {
namespace {

std::shared_ptr<const Constant> presentConstant(const NodeImport& node, std::size_t index) {
  if (!node.hasInput(index)) return nullptr;
  const auto found = node.constant(index);
  return found->count() == 0 ? nullptr : found;
}

/// Of rows and columns; those of batch and channels have to be 1.
std::vector<float> scalesOf(const NodeImport& node, const train::Shape& source) {
  std::vector<float> scales;
  if (const AttributeMessage* attribute = node.find("scales")) scales = attribute->numbers;
  const bool isUpsample = node.type() == "Upsample";
  const bool hasRegion = !isUpsample && node.operatorSet() > 10;
  if (const auto found = presentConstant(node, hasRegion ? 2 : 1)) scales = found->numbers();
  if (const auto sizes = presentConstant(node, 3); sizes && !isUpsample && sizes->count() == 4)
    scales = {1, static_cast<float>(sizes->integer(1)) / static_cast<float>(source.channels),
              static_cast<float>(sizes->integer(2)) / static_cast<float>(source.height),
              static_cast<float>(sizes->integer(3)) / static_cast<float>(source.width)};
  if (scales.size() != 4 || scales[0] != 1 || scales[1] != 1)
    throw node.refusal("it does not say four scales, of which those of batch and channels are 1");
  return {scales[2], scales[3]};
}

std::size_t wholeFactor(const NodeImport& node, float scale) {
  constexpr float most = 1 << 20;
  if (!(scale >= 1 && scale <= most) || scale != std::floor(scale))
    throw node.refusal("a scale", std::to_string(scale), "a whole number from 1 on");
  return static_cast<std::size_t>(scale);
}

train::UpsamplingMode modeFor(const NodeImport& node) {
  using enum train::UpsamplingMode;
  const bool isOld = node.type() == "Upsample" || node.operatorSet() < 11;
  const std::string mode = node.text("mode", "nearest");
  const std::string positions =
      node.text("coordinate_transformation_mode", isOld ? "asymmetric" : "half_pixel");
  const std::string rounding = node.text("nearest_mode", isOld ? "floor" : "round_prefer_floor");
  const bool isFloor = positions == "asymmetric" && rounding == "floor";
  const bool isNearest = (positions == "half_pixel" || positions == "pytorch_half_pixel") &&
                         rounding.starts_with("round_prefer");
  if (mode == "nearest" && (isFloor || isNearest)) return Nearest;
  if (mode == "nearest")
    throw node.refusal("coordinate_transformation_mode and nearest_mode are " + positions + " and " +
                       rounding + ", expected asymmetric and floor, or half_pixel and round_prefer_floor");
  if (mode != "linear") throw node.refusal("attribute mode", "\"" + mode + "\"", "nearest or linear");
  if (positions == "half_pixel" || positions == "pytorch_half_pixel") return Bilinear;
  if (positions == "align_corners") return BilinearAlignCorners;
  if (positions == "asymmetric") return BilinearAsymmetric;
  throw node.refusal("attribute coordinate_transformation_mode", "\"" + positions + "\"",
                     "half_pixel, pytorch_half_pixel, align_corners or asymmetric");
}

/// Before and behind each axis: those of batch and channels, of height and width.
std::vector<std::int64_t> padsOf(const NodeImport& node) {
  std::vector<std::int64_t> pads = node.hasInput(1) ? node.constant(1)->integers() : node.integers("pads");
  const auto isPad = [](std::int64_t pad) {
    return pad >= 0 && pad <= std::numeric_limits<std::int32_t>::max();
  };
  if (node.hasInput(3)) {
    const std::vector<std::int64_t> axes = node.constant(3)->integers();
    if (axes.size() * 2 != pads.size()) throw node.refusal("there are not two pads for each of its axes");
    std::vector<std::int64_t> all(8, 0);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const std::int64_t axis = axes[i] + (axes[i] < 0 ? 4 : 0);
      if (axis < 0 || axis > 3) throw node.refusal("an axis", std::to_string(axes[i]), "0 to 3");
      all[static_cast<std::size_t>(axis)] = pads[i];
      all[static_cast<std::size_t>(axis) + 4] = pads[i + axes.size()];
    }
    pads = all;
  }
  if (pads.size() != 8 || !std::ranges::all_of(pads, isPad))
    throw node.refusal("its pads are not eight numbers from 0 on");
  if (pads[0] != 0 || pads[1] != 0 || pads[4] != 0 || pads[5] != 0)
    throw node.refusal("it pads batch or channels, expected height and width alone");
  return pads;
}

}  // namespace

void importResize(NodeImport& node) {
  const train::Features source = node.pixels(0);
  const train::UpsamplingMode mode = modeFor(node);
  for (const char* unused : {"cubic_coeff_a", "extrapolation_value"}) static_cast<void>(node.find(unused));
  node.expect("exclude_outside", 0);
  node.expect("antialias", 0);
  const std::string policy = node.text("keep_aspect_ratio_policy", "stretch");
  if (policy != "stretch" || node.hasAttribute("axes"))
    throw node.refusal("it has an attribute axes or keep_aspect_ratio_policy, which are not taken");
  const std::vector<float> scales = scalesOf(node, source.shape());
  const train::Sides factor{wholeFactor(node, scales[0]), wholeFactor(node, scales[1])};
  if (factor == train::Sides{1}) return node.setResult(source);
  node.setResult(node.add(train::UpsamplingLayer{factor, mode}, {source}));
}

void importPad(NodeImport& node) {
  const train::Features source = node.pixels(0);
  if (node.input(0).isFlat)
    throw node.refusal("its input is a matrix, expected batch x channels x height x width");
  const std::string mode = node.text("mode", "constant");
  const std::vector<std::int64_t> pads = padsOf(node);
  const auto at = [&](std::size_t index) { return static_cast<std::size_t>(pads[index]); };
  train::PadLayer layer{
      {at(2), at(3), at(6), at(7)}, train::PaddingContent::Constant, node.number("value", 0)};
  if (const auto value = presentConstant(node, 2)) layer.value = value->number(0);
  if (mode == "edge") layer.content = train::PaddingContent::Edge;
  if (mode == "reflect") layer.content = train::PaddingContent::Mirror;
  if (mode != "constant" && mode != "edge" && mode != "reflect")
    throw node.refusal("attribute mode", "\"" + mode + "\"", "constant, edge or reflect");
  node.setResult(layer.margins == train::Margins{} ? source : node.add(layer, {source}));
}

}  // namespace unmetal::onnx::detail
