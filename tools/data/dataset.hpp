#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unmetal {

/// Labelled pictures, all of one size, in memory.
struct Dataset {
  std::string name;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t channels = 0;
  /// One picture after the other, each height x width x channels, 0 is black and 255 is 1.0.
  std::vector<std::uint8_t> images;
  /// Class of each picture, an index into classNames.
  std::vector<std::uint8_t> labels;
  std::vector<std::string> classNames;

  std::size_t count() const { return labels.size(); }
  std::size_t imageSize() const { return height * width * channels; }
  std::span<const std::uint8_t> image(std::size_t index) const {
    return std::span(images).subspan(index * imageSize(), imageSize());
  }
};

enum class Split { Training, Test };

/// Makes or reads the data set that `specification` names:
///
/// | specification | data |
/// |---|---|
/// | `fashion-mnist` | Fashion-MNIST from the folder of Debian's package dataset-fashion-mnist |
/// | `fashion-mnist:FOLDER` | the same, or MNIST itself, from another folder |
/// | `synthetic` | generated pictures of the same size, for benchmarks and tests |
///
/// Throws mps::Error with one sentence that names the file or the argument.
Dataset loadDataset(std::string_view specification, Split split);

}  // namespace unmetal
