#pragma once

#include <cstdint>
#include <vector>

#include "mps/convolution/kernel_with_weights.hpp"
#include "onnx/export/step.hpp"

namespace unmetal::onnx::detail {

/// What a convolution multiplies with, a folded normalisation included: [out][row][column][in of the group].
struct LayerWeights {
  std::int64_t outputs = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t inputs = 1;  ///< of one group
  std::int64_t groups = 1;
  std::vector<float> values;
  std::vector<float> biases;  ///< empty: none

  /// {outputs, inputs, height, width}, the order of ONNX.
  [[nodiscard]] std::vector<std::int64_t> shape() const { return {outputs, inputs, height, width}; }
  [[nodiscard]] std::vector<float> outInHeightWidth() const;
  /// The order of a transposed convolution, which turns the window by half a turn: {inputs * groups, outputs / groups, height,
  /// width}.
  [[nodiscard]] std::vector<std::int64_t> transposedShape() const {
    return {inputs * groups, outputs / groups, height, width};
  }
  [[nodiscard]] std::vector<float> inOutTurned() const;

 private:
  [[nodiscard]] float at(std::int64_t output, std::int64_t row, std::int64_t column,
                         std::int64_t input) const {
    return values[static_cast<std::size_t>(((output * height + row) * width + column) * inputs + input)];
  }
};

LayerWeights weightsOf(const Step& step, const mps::detail::KernelWithWeights& kernel);

}  // namespace unmetal::onnx::detail
