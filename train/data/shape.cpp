#include "train/data/shape.hpp"

namespace unmetal::train {

std::string describe(const Shape& shape) {
  return std::to_string(shape.height) + "x" + std::to_string(shape.width) + "x" +
         std::to_string(shape.channels);
}

}  // namespace unmetal::train
