#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mps/upsampling/upsampling_problem.hpp"

namespace mps::detail {

/// All numbers of one call: with R regions, image n of `destination` is region n % R of image n / R of `input`, resized.
/// Operands as of upsampling, forward. Every destination element is written.
struct CropAndResizeProblem {
  struct Region {
    UpsamplingAxis x;
    UpsamplingAxis y;
    bool operator==(const Region&) const = default;
  };
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;  ///< Zero or Clamp
  std::vector<Region> regions;                   ///< of each image of `input`
  TensorShape input;
  TensorShape destination;

  bool operator==(const CropAndResizeProblem&) const = default;
  [[nodiscard]] std::size_t hash() const;
  [[nodiscard]] std::string describe() const;
  /// That of a region of one image.
  [[nodiscard]] UpsamplingProblem resizeOf(std::size_t region) const;
};

/// From one image of a tensor to the next.
std::int64_t bytesOfImage(const TensorShape& shape);

std::span<const Implementation<CropAndResizeProblem>> cropAndResizeImplementationsCpu();
std::span<const Implementation<CropAndResizeProblem>> cropAndResizeImplementationsCuda();
inline constexpr BackEnds<CropAndResizeProblem> cropAndResizeBackEnds{
    cropAndResizeImplementationsCpu, UNMETAL_CUDA_LIST(cropAndResizeImplementationsCuda)};

}  // namespace mps::detail
