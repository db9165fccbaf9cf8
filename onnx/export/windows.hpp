#pragma once

#include <cstdint>
#include <vector>

#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/types/window_geometry.hpp"
#include "onnx/export/step.hpp"

/// Windows over pictures as ONNX describes them. The library's own.
namespace unmetal::onnx::detail {

/// The windows of a kernel on both axes.
struct Windows {
  mps::detail::WindowAxis x;
  mps::detail::WindowAxis y;

  /// Attributes, rows first as everywhere in ONNX.
  /// @{
  [[nodiscard]] Attribute kernelShape() const { return {"kernel_shape", pair(y.kernelSize, x.kernelSize)}; }
  [[nodiscard]] Attribute strides() const { return {"strides", pair(y.stride, x.stride)}; }
  [[nodiscard]] Attribute dilations() const { return {"dilations", pair(y.dilation, x.dilation)}; }
  /// @}
  /// The pixels that windows read, so that there are as many windows of it.
  [[nodiscard]] PixelRegion region() const;

 private:
  static std::vector<std::int64_t> pair(std::int64_t rows, std::int64_t columns) { return {rows, columns}; }
};
Windows windowsOf(const mps::CNNKernel& kernel, const Step& step);

/// A source, and what an operator is to add around it.
struct PaddedSource {
  Picture picture;
  std::vector<std::int64_t> pads;  ///< top, left, bottom, right

  [[nodiscard]] Attribute attribute() const { return {"pads", pads}; }
};
/// Pixels that an operator may add on each side of a row and of a column.
struct MostPadding {
  std::int64_t x = 0;
  std::int64_t y = 0;
};
/// @param most where it may not add so many, they are added here, as edgeMode says
PaddedSource padSource(const Step& step, const Windows& windows, mps::ImageEdgeMode edgeMode,
                       const MostPadding& most);

}  // namespace unmetal::onnx::detail
