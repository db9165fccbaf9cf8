#include <algorithm>

#include "mps/gram_matrix/gram_matrix.hpp"
#include "mps/reshape/pad.hpp"
#include "mps/reshape/reshape.hpp"
#include "onnx/export/step.hpp"

/// Pictures of another shape with the same numbers, and Gram matrices.
namespace unmetal::onnx::detail {
namespace {

/// Their order has the channels last, ONNX's first.
std::string addReshape(const Step& step, const mps::NNReshape& reshape) {
  const Picture& result = step.result;
  if (reshape.channelsFirst())
    return step.add("Reshape",
                    {step.source().value,
                     step.model.constant("shape", std::vector<std::int64_t>{0, result.channels, result.height,
                                                                            result.width})});
  const std::string last =
      step.add("Transpose", {step.source().value}, {{"perm", std::vector<std::int64_t>{0, 2, 3, 1}}});
  const std::string shaped = step.add(
      "Reshape", {last, step.model.constant("shape", std::vector<std::int64_t>{0, result.height, result.width,
                                                                               result.channels})});
  return step.add("Transpose", {shaped}, {{"perm", std::vector<std::int64_t>{0, 3, 1, 2}}});
}

/// Where a position lies that was reflected at the ends again and again.
std::int64_t mirrored(std::int64_t position, std::int64_t size, bool repeatsEdge) {
  const std::int64_t period = std::max<std::int64_t>(repeatsEdge ? 2 * size : 2 * (size - 1), 1);
  const std::int64_t place = (position % period + period) % period;
  if (place < size) return place;
  return repeatsEdge ? period - 1 - place : period - place;
}

/// `count` elements of an axis from `first` on, those outside reflected.
std::string addMirrored(const Step& step, const std::string& value, std::int64_t axis, std::int64_t size,
                        std::int64_t first, std::int64_t count, mps::ImageEdgeMode edgeMode) {
  if (first == 0 && count == size) return value;
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < count; ++i)
    places.push_back(mirrored(first + i, size, edgeMode == mps::ImageEdgeMode::MirrorWithEdge));
  return step.add("Gather", {value, step.model.constant("places", std::move(places))}, {{"axis", axis}});
}

struct PadSizes {
  std::int64_t channelsBefore = 0;
  std::int64_t channelsAfter = 0;
  std::int64_t left = 0;
  std::int64_t right = 0;
  std::int64_t top = 0;
  std::int64_t bottom = 0;

  [[nodiscard]] std::vector<std::int64_t> all() const {
    return {0, channelsBefore, top, left, 0, channelsAfter, bottom, right};
  }
  [[nodiscard]] std::vector<std::int64_t> ofChannels() const {
    return {0, channelsBefore, 0, 0, 0, channelsAfter, 0, 0};
  }
  [[nodiscard]] std::vector<std::int64_t> ofPixels() const { return {0, 0, top, left, 0, 0, bottom, right}; }
};

PadSizes sizesOf(const mps::NNPad& pad) {
  const mps::ImageCoordinate& before = pad.paddingSizeBefore();
  const mps::ImageCoordinate& after = pad.paddingSizeAfter();
  const auto number = [](std::size_t size) { return static_cast<std::int64_t>(size); };
  return {number(before.channel), number(after.channel), number(before.x),
          number(after.x),        number(before.y),      number(after.y)};
}

std::string addFilledPad(const Step& step, const mps::NNPad& pad, const PadSizes& sizes) {
  const std::string& source = step.source().value;
  if (pad.edgeMode() == mps::ImageEdgeMode::Constant)
    return step.pad(source, sizes.all(), "constant", pad.fillValue());
  const std::string pixels = step.pad(source, sizes.ofPixels());
  return step.pad(pixels, sizes.ofChannels(), "constant", pad.fillValue());
}

std::string addMirroredPad(const Step& step, const mps::NNPad& pad, const PadSizes& sizes) {
  const Picture& source = step.source();
  const Picture& result = step.result;
  const auto along = [&](const std::string& value, std::int64_t axis, std::int64_t size, std::int64_t before,
                         std::int64_t count) {
    return addMirrored(step, value, axis, size, -before, count, pad.edgeMode());
  };
  const std::string channels = along(source.value, 1, source.channels, sizes.channelsBefore, result.channels);
  const std::string rows = along(channels, 2, source.height, sizes.top, result.height);
  return along(rows, 3, source.width, sizes.left, result.width);
}

/// Whether the operator Pad has what is reflected: other pixels than the one at the edge, each once.
bool isReflectedOnce(const Step& step, const mps::NNPad& pad, const PadSizes& sizes) {
  const Picture& source = step.source();
  return pad.edgeMode() == mps::ImageEdgeMode::Mirror && sizes.channelsBefore == 0 &&
         sizes.channelsAfter == 0 && std::max(sizes.left, sizes.right) < source.width &&
         std::max(sizes.top, sizes.bottom) < source.height;
}

std::string addPad(const Step& step, const mps::NNPad& pad) {
  const PadSizes sizes = sizesOf(pad);
  if (pad.offset().x != -sizes.left || pad.offset().y != -sizes.top)
    throw step.refusal("its padding policy moves the result");
  if (isReflectedOnce(step, pad, sizes)) return step.pad(step.source().value, sizes.all(), "reflect");
  if (pad.edgeMode() == mps::ImageEdgeMode::Mirror || pad.edgeMode() == mps::ImageEdgeMode::MirrorWithEdge)
    return addMirroredPad(step, pad, sizes);
  if (pad.edgeMode() == mps::ImageEdgeMode::Clamp) return step.pad(step.source().value, sizes.all(), "edge");
  return addFilledPad(step, pad, sizes);
}

}  // namespace

std::optional<std::string> translateReshape(const Step& step) {
  if (const auto* reshape = step.as<mps::NNReshape>()) return addReshape(step, *reshape);
  if (const auto* pad = step.as<mps::NNPad>()) return addPad(step, *pad);
  return std::nullopt;
}

/// Products of all pairs of channels: the pixels of each are a row of a matrix, which is multiplied with itself transposed.
std::optional<std::string> translateGramMatrix(const Step& step) {
  const auto* gram = step.as<mps::NNGramMatrixCalculation>();
  if (gram == nullptr) return std::nullopt;
  if (gram->hasPropertyCallBack()) throw step.refusal("its call-back chooses alpha at each encode");
  const std::int64_t channels = step.source().channels;
  const std::string rows = step.add(
      "Reshape",
      {step.source().value, step.model.constant("rows", std::vector<std::int64_t>{0, channels, -1})});
  const std::string turned = step.add("Transpose", {rows}, {{"perm", std::vector<std::int64_t>{0, 2, 1}}});
  const std::string products = step.scaled(step.add("MatMul", {rows, turned}), gram->alpha());
  return step.add("Reshape", {products, step.model.constant(
                                            "shape", std::vector<std::int64_t>{0, channels, 1, channels})});
}

}  // namespace unmetal::onnx::detail
