#pragma once

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/upsampling/crop_and_resize.hpp"
#include "mps/upsampling/grid_sample.hpp"
#include "mps/upsampling/image_scale.hpp"
#include "mps/upsampling/resize.hpp"
#include "mps/upsampling/upsampling.hpp"

namespace mps::detail {

/// Kernels over images, of which graphs are made.
using UpsamplingClasses =
    KernelClasses<CNNUpsamplingNearest, CNNUpsamplingNearestGradient, CNNUpsamplingBilinear,
                  CNNUpsamplingBilinearGradient, NNResizeBilinear, NNResizeBilinearGradient,
                  ImageBilinearScale, ImageBilinearScaleGradient, ImageLanczosScale,
                  ImageLanczosScaleGradient, NNGridSample, NNCropAndResizeBilinear>;

}  // namespace mps::detail
