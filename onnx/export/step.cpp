#include "onnx/export/step.hpp"

#include <algorithm>

#include "mtl/device.hpp"

namespace unmetal::onnx::detail {
namespace {

/// Of one axis: what is cut off or, below 0, missing before and behind.
struct Margin {
  std::int64_t before = 0;
  std::int64_t after = 0;
};

Margin marginOf(std::int64_t first, std::int64_t count, std::int64_t size) {
  return {first, size - (first + count)};
}

std::string slice(const Step& step, const std::string& value, std::vector<std::int64_t> starts,
                  std::vector<std::int64_t> ends, std::vector<std::int64_t> axes) {
  return step.add(
      "Slice", {value, step.model.constant("starts", std::move(starts)),
                step.model.constant("ends", std::move(ends)), step.model.constant("axes", std::move(axes))});
}

std::string cropped(const Step& step, const Picture& picture, const Margin& x, const Margin& y) {
  const auto start = [](const Margin& margin) { return std::max<std::int64_t>(margin.before, 0); };
  const auto end = [](const Margin& margin, std::int64_t size) {
    return size - std::max<std::int64_t>(margin.after, 0);
  };
  if (end(x, picture.width) <= start(x) || end(y, picture.height) <= start(y))
    throw step.refusal("it reads nothing but pixels outside of its source");
  if (start(x) == 0 && start(y) == 0 && end(x, picture.width) == picture.width &&
      end(y, picture.height) == picture.height)
    return picture.value;
  return slice(step, picture.value, {start(y), start(x)}, {end(y, picture.height), end(x, picture.width)},
               {2, 3});
}

std::string padded(const Step& step, const std::string& value, const Margin& x, const Margin& y,
                   mps::ImageEdgeMode edgeMode) {
  const auto missing = [](std::int64_t margin) { return std::max<std::int64_t>(-margin, 0); };
  std::vector<std::int64_t> pads{0, 0, missing(y.before), missing(x.before),
                                 0, 0, missing(y.after),  missing(x.after)};
  if (std::ranges::all_of(pads, [](std::int64_t count) { return count == 0; })) return value;
  const std::string mode = edgeMode == mps::ImageEdgeMode::Clamp ? "edge" : "constant";
  return step.pad(value, std::move(pads), mode);
}

}  // namespace

mps::Error Step::refusal(const std::string& reason) const {
  return mps::Error("cannot export " + name + " to ONNX: " + reason);
}

std::string Step::pad(const std::string& value, std::vector<std::int64_t> pads, const std::string& mode,
                      float fill) const {
  std::vector<std::string> inputs{value, model.constant("pads", std::move(pads))};
  // Axes that are named keep ONNX Runtime up to 1.30 from making the pads part of a pooling behind them: its maximum pooling
  // pads with minus infinity whatever the pads hold.
  if (mode == "constant") {
    inputs.push_back(model.constant("fill", fill));
    inputs.push_back(model.constant("axes", std::vector<std::int64_t>{0, 1, 2, 3}));
  }
  return add("Pad", std::move(inputs), {{"mode", mode}});
}

std::string Step::scaled(const std::string& value, float factor) const {
  return factor == 1 ? value : add("Mul", {value, model.constant("factor", factor)});
}

std::string Step::shifted(const std::string& value, float summand) const {
  return summand == 0 ? value : add("Add", {value, model.constant("summand", summand)});
}

Picture Step::channels(const Picture& picture, std::size_t first, std::size_t most) const {
  const auto all = static_cast<std::size_t>(picture.channels);
  if (first >= all) throw refusal("it reads channels that its source does not have");
  const auto begin = static_cast<std::int64_t>(first);
  Picture part = picture;
  part.channels = static_cast<std::int64_t>(std::min(most, all - first));
  if (part.channels != picture.channels)
    part.value = slice(*this, picture.value, {begin}, {begin + part.channels}, {1});
  return part;
}

Picture Step::pixels(const Picture& picture, const PixelRegion& region, mps::ImageEdgeMode edgeMode) const {
  const Margin x = marginOf(region.x, region.width, picture.width);
  const Margin y = marginOf(region.y, region.height, picture.height);
  return {padded(*this, cropped(*this, picture, x, y), x, y, edgeMode), region.width, region.height,
          picture.channels};
}

Picture Step::pointwiseSource(const mps::CNNKernel& pointwise) const {
  return pixels(source(), {pointwise.offset().x, pointwise.offset().y, result.width, result.height},
                pointwise.edgeMode());
}

std::vector<float> Step::numbers(const mps::detail::FloatsInMemory& values) const {
  return mps::detail::floatsOf(*kernel.device(), values);
}

}  // namespace unmetal::onnx::detail
