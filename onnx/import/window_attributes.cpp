#include "onnx/import/window_attributes.hpp"

#include <algorithm>
#include <limits>

namespace unmetal::onnx::detail {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();

/// What `Same` pads before the first pixel, where its result has ceil(size / stride) pixels.
bool isSame(std::size_t size, std::size_t extent, std::size_t stride, std::size_t before, std::size_t after) {
  const auto signedSize = static_cast<std::int64_t>(size);
  const auto step = static_cast<std::int64_t>(stride);
  const auto window = static_cast<std::int64_t>(extent);
  const auto first = static_cast<std::int64_t>(before);
  const std::int64_t padded = signedSize + first + static_cast<std::int64_t>(after);
  if (padded < window) return false;
  const std::int64_t result = (padded - window) / step + 1;
  const std::int64_t missing = (result - 1) * step + window - signedSize;
  return result == (signedSize + step - 1) / step && missing >= 0 && first == (missing + 1) / 2;
}

std::string shownList(const std::vector<std::int64_t>& values) {
  std::string text;
  for (const std::int64_t value : values) text += (text.empty() ? "[" : ", ") + std::to_string(value);
  return text + "]";
}

/// Of auto_pad: as many windows as there are strides, the odd pixel behind or before.
void padAutomatically(const std::string& mode, WindowAttributes& windows, const train::Shape& source) {
  const auto missing = [](std::size_t size, std::size_t extent, std::size_t stride) {
    const std::size_t covered = ((size + stride - 1) / stride - 1) * stride + extent;
    return covered > size ? covered - size : 0;
  };
  const train::Sides extent = windows.extent();
  const std::size_t rows = missing(source.height, extent.height, windows.stride.height);
  const std::size_t columns = missing(source.width, extent.width, windows.stride.width);
  const std::size_t top = mode == "SAME_UPPER" ? rows / 2 : rows - rows / 2;
  const std::size_t left = mode == "SAME_UPPER" ? columns / 2 : columns - columns / 2;
  windows.margins = {top, left, rows - top, columns - left};
}

}  // namespace

train::Padding WindowAttributes::paddingFor(const train::Shape& source) const {
  if (margins == train::Margins{}) return train::Padding::Valid;
  const train::Sides window = extent();
  const bool areSame = isSame(source.height, window.height, stride.height, margins.top, margins.bottom) &&
                       isSame(source.width, window.width, stride.width, margins.left, margins.right);
  return areSame ? train::Padding::Same : train::Padding::Explicit;
}

train::Margins WindowAttributes::marginsFor(const train::Shape& source) const {
  return paddingFor(source) == train::Padding::Explicit ? margins : train::Margins{};
}

train::Sides sidesOf(const NodeImport& node, std::string_view name) {
  const std::vector<std::int64_t> values = node.integers(name);
  if (values.empty()) return 1;
  const auto isSide = [](std::int64_t value) { return value >= 1 && value <= largest; };
  if (values.size() != 2 || !std::ranges::all_of(values, isSide))
    throw node.refusal("attribute " + std::string(name), shownList(values), "two numbers from 1 on");
  return {static_cast<std::size_t>(values[0]), static_cast<std::size_t>(values[1])};
}

WindowAttributes windowsOf(const NodeImport& node, const train::Shape& source,
                           const std::optional<train::Sides>& kernel) {
  WindowAttributes windows{kernel.value_or(1), sidesOf(node, "strides"), sidesOf(node, "dilations"), {}};
  if (node.hasAttribute("kernel_shape")) windows.kernel = sidesOf(node, "kernel_shape");
  if (kernel && windows.kernel != *kernel)
    throw node.refusal("attribute kernel_shape", describe(windows.kernel),
                       describe(*kernel) + ", the weights'");
  if (!kernel && !node.hasAttribute("kernel_shape")) throw node.refusal("it has no attribute kernel_shape");
  const std::string mode = node.text("auto_pad", "NOTSET");
  const std::vector<std::int64_t> pads = node.integers("pads");
  if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    padAutomatically(mode, windows, source);
  } else if (mode == "NOTSET" && !pads.empty()) {
    const auto isPad = [](std::int64_t pad) { return pad >= 0 && pad <= largest; };
    if (pads.size() != 4 || !std::ranges::all_of(pads, isPad))
      throw node.refusal("attribute pads", shownList(pads), "four numbers from 0 on");
    const auto at = [&](std::size_t index) { return static_cast<std::size_t>(pads[index]); };
    windows.margins = {at(0), at(1), at(2), at(3)};
  } else if (mode != "NOTSET" && mode != "VALID") {
    throw node.refusal("attribute auto_pad", "\"" + mode + "\"", "NOTSET, SAME_UPPER, SAME_LOWER or VALID");
  }
  return windows;
}

void roundUp(WindowAttributes& windows, const train::Shape& source) {
  const auto added = [](std::size_t size, std::size_t before, std::size_t& after, std::size_t extent,
                        std::size_t stride) {
    const std::size_t padded = before + size + after;
    if (padded < extent) return;
    std::size_t steps = (padded - extent + stride - 1) / stride;
    if (steps * stride >= before + size) --steps;
    const std::size_t reached = steps * stride + extent;
    if (reached > padded) after += reached - padded;
  };
  train::Margins& margins = windows.margins;
  const train::Sides extent = windows.extent();
  added(source.height, margins.top, margins.bottom, extent.height, windows.stride.height);
  added(source.width, margins.left, margins.right, extent.width, windows.stride.width);
}

}  // namespace unmetal::onnx::detail
