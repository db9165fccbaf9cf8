#pragma once

#include <cstddef>

#include "mps/core/kernel/kernel_class.hpp"
#include "mps/pooling/pooling.hpp"

namespace mps::detail {

/// A class and its gradient's.
template <class ForwardKernel, class GradientKernel>
struct PoolingPair {
  using Forward = ForwardKernel;
  using Gradient = GradientKernel;
};

template <class... Pairs>
struct PoolingPairList {
  /// Kernels over images, of which graphs are made.
  using Classes = KernelClasses<typename Pairs::Forward..., typename Pairs::Gradient...>;
  static constexpr std::size_t size = sizeof...(Pairs);
  /// Calls visit(Pair()) for each.
  template <class Visit>
  static void forEach(Visit visit) {
    (visit(Pairs()), ...);
  }
};

using PoolingPairs = PoolingPairList<PoolingPair<CNNPoolingMax, CNNPoolingMaxGradient>,
                                     PoolingPair<CNNPoolingAverage, CNNPoolingAverageGradient>,
                                     PoolingPair<CNNPoolingL2Norm, CNNPoolingL2NormGradient>,
                                     PoolingPair<CNNDilatedPoolingMax, CNNDilatedPoolingMaxGradient>>;
using PoolingClasses = PoolingPairs::Classes;

}  // namespace mps::detail
