#pragma once

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/normalization/normalization.hpp"

namespace mps::detail {

/// Kernels over images, of which graphs are made.
using NormalizationClasses =
    KernelClasses<CNNSpatialNormalization, CNNSpatialNormalizationGradient, CNNLocalContrastNormalization,
                  CNNLocalContrastNormalizationGradient, CNNCrossChannelNormalization,
                  CNNCrossChannelNormalizationGradient>;

}  // namespace mps::detail
