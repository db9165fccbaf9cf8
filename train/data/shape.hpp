#pragma once

#include <cstddef>
#include <string>

namespace unmetal::train {

/// Extent of a picture, or of what a layer makes of one.
struct Shape {
  std::size_t height = 1;
  std::size_t width = 1;
  std::size_t channels = 1;

  [[nodiscard]] std::size_t count() const { return height * width * channels; }
  bool operator==(const Shape&) const = default;
};
/// "28x28x1".
std::string describe(const Shape& shape);

}  // namespace unmetal::train
