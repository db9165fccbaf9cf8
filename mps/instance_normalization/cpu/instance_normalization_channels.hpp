#pragma once

#include <cstddef>

namespace mps::detail {

/// What is computed of the channels of one image, each array with room for a vector behind it.
struct ImageChannels {
  std::size_t channels = 0;
  double pixels = 0;
  double* first = nullptr;     ///< along a row: sums, then mean of each channel; of the gradient sums of dy
  double* second = nullptr;    ///< likewise: squares, then M2; of the gradient sums of dy (x - mean), then G
  double* mean = nullptr;      ///< of the channel's group
  double* r = nullptr;         ///< likewise
  double* weighted = nullptr;  ///< gamma B, then its sum over the group
  double* weightedBy = nullptr;  ///< gamma G, then its sum over the group
  float* shifts = nullptr;
};

}  // namespace mps::detail
