#pragma once

#include <cstddef>
#include <memory>

#include "mps/core/gradient_state.hpp"

namespace mps::detail {

/// One source of an arithmetic call, as its gradients need to know it.
struct ArithmeticOperand {
  ImageDescriptor image;
  Offset offset;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
  std::size_t strideInPixelsX = 1;
  std::size_t strideInPixelsY = 1;
  std::size_t strideInFeatureChannels = 1;
  std::size_t featureChannelOffset = 0;
  std::size_t featureChannels = 0;  ///< channels read
};

/// What an arithmetic call adds to its record. The saved fields of an image are the quotient, if there is
/// one, and after it the mask, over the clip rectangle.
struct ArithmeticRecord {
  ArithmeticOperand primary;
  ArithmeticOperand secondary;
  bool hasMask = false;
  bool hasQuotient = false;
  /// The same call with the secondary source as the source of the record; null in that one itself.
  std::shared_ptr<const ForwardRecord> ofSecondary;
};

}  // namespace mps::detail
