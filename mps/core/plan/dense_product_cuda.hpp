#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "mps/core/plan/plan.hpp"

/// What families share whose plans multiply matrices on a GPU.
namespace mps::detail {

/// result = left right, or added to it, of float32 matrices in rows without gaps.
struct DenseProduct {
  bool transposeLeft = false;  ///< in memory left is [interior][rows]
  bool adds = false;
  std::int64_t rows = 0;      ///< of left and result
  std::int64_t columns = 0;   ///< of right and result
  std::int64_t interior = 0;  ///< columns of left, rows of right
  std::string deviceName;     ///< mtl::Device::name(); empty: the current device
};

/// A plan of the operands source (left), secondary (right) and destination (result). The family of matrices has it.
std::shared_ptr<const Plan> denseProductCuda(const DenseProduct& product);

}  // namespace mps::detail
