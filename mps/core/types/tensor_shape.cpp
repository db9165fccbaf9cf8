#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

std::string TensorShape::describe() const {
  std::string text = std::to_string(images) + "x" + std::to_string(height) + "x" + std::to_string(width) +
                     "x" + std::to_string(channels) + " " + name(format);
  if (!isDense()) {
    text += " strides " + std::to_string(imageStride) + "," + std::to_string(rowStride) + "," +
            std::to_string(pixelStride);
  }
  return text;
}

}  // namespace mps::detail
