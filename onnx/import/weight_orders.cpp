#include "onnx/import/weight_orders.hpp"

#include <algorithm>

namespace unmetal::onnx::detail {
namespace {

struct WindowShape {
  std::uint64_t first;
  std::uint64_t second;
  std::uint64_t height;
  std::uint64_t width;
};

WindowShape shapeOf(const Constant& weights) {
  const auto at = [&](std::size_t index) { return static_cast<std::uint64_t>(weights.shape()[index]); };
  return {at(0), at(1), at(2), at(3)};
}

}  // namespace

std::vector<float> channelsLast(const Constant& weights) {
  const WindowShape shape = shapeOf(weights);
  const std::uint64_t window = shape.height * shape.width;
  std::vector<float> ordered;
  ordered.reserve(weights.count());
  for (std::uint64_t output = 0; output < shape.first; ++output)
    for (std::uint64_t tap = 0; tap < window; ++tap)
      for (std::uint64_t input = 0; input < shape.second; ++input)
        ordered.push_back(weights.number((output * shape.second + input) * window + tap));
  return ordered;
}

std::vector<float> turnedChannelsLast(const Constant& weights) {
  const WindowShape shape = shapeOf(weights);
  const std::uint64_t window = shape.height * shape.width;
  std::vector<float> ordered;
  ordered.reserve(weights.count());
  for (std::uint64_t output = 0; output < shape.second; ++output)
    for (std::uint64_t tap = window; tap-- > 0;)
      for (std::uint64_t input = 0; input < shape.first; ++input)
        ordered.push_back(weights.number((input * shape.second + output) * window + tap));
  return ordered;
}

std::vector<float> denseWeights(const Constant& matrix, const train::Shape& source, bool outputsFirst,
                                float factor) {
  const std::uint64_t inputs = source.count();
  const std::uint64_t outputs = matrix.count() / inputs;
  const std::uint64_t pixels = source.height * source.width;
  std::vector<float> ordered;
  ordered.reserve(matrix.count());
  for (std::uint64_t output = 0; output < outputs; ++output)
    for (std::uint64_t pixel = 0; pixel < pixels; ++pixel)
      for (std::uint64_t channel = 0; channel < source.channels; ++channel) {
        const std::uint64_t input = channel * pixels + pixel;
        const std::uint64_t place = outputsFirst ? output * inputs + input : input * outputs + output;
        ordered.push_back(factor * matrix.number(place));
      }
  return ordered;
}

std::vector<float> spreadOver(const Constant& constant, std::size_t channels, float factor) {
  std::vector<float> numbers(channels);
  for (std::size_t i = 0; i < channels; ++i)
    numbers[i] = factor * constant.number(constant.count() == 1 ? 0 : i);
  return numbers;
}

}  // namespace unmetal::onnx::detail
