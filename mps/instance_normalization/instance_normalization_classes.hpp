#pragma once

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/instance_normalization/group_normalization.hpp"
#include "mps/instance_normalization/instance_normalization.hpp"

namespace mps::detail {

/// Kernels over images, of which graphs are made.
using InstanceNormalizationClasses = KernelClasses<CNNInstanceNormalization, CNNInstanceNormalizationGradient,
                                                   CNNGroupNormalization, CNNGroupNormalizationGradient>;

}  // namespace mps::detail
