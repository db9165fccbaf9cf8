#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

#include "mps/arithmetic/arithmetic_problem.hpp"
#include "mps/core/image/forward_record.hpp"
#include "mps/core/image/gradient_state.hpp"

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
  ForwardRecord::Place place;
};

/// What an arithmetic call adds to its record. The saved fields of an image are what a division keeps, if it is
/// one, and after it the mask, over the clip rectangle.
struct ArithmeticRecord {
  ArithmeticOperand primary;
  ArithmeticOperand secondary;
  bool hasMask = false;
  ImageFeatureChannelFormat kept = ImageFeatureChannelFormat::None;  ///< None: nothing
  /// The same call with the secondary source as the source of the record; null in that one itself.
  std::shared_ptr<const ForwardRecord> ofSecondary;

  /// The source that the gradient with respect to x or y belongs to.
  [[nodiscard]] const ArithmeticOperand& own(bool isSecondary) const {
    return isSecondary ? secondary : primary;
  }
  /// The one that this gradient takes as sourceImage.
  [[nodiscard]] const ArithmeticOperand& sourceImage(ArithmeticOperation operation, bool isSecondary) const {
    if (operation == ArithmeticOperation::Multiply) return own(!isSecondary);
    if (operation == ArithmeticOperation::Divide) return secondary;
    return own(isSecondary);
  }
};

/// The pixels of a destination that a call writes; its images are left as they are.
inline mtl::Region clipTo(const TensorShape& destination, mtl::Region clip) {
  const auto cut = [](std::size_t& origin, std::size_t& size, std::int64_t limit) {
    const auto most = static_cast<std::size_t>(limit);
    origin = std::min(origin, most);
    size = std::min(size, most - origin);
  };
  cut(clip.origin.x, clip.size.width, destination.width);
  cut(clip.origin.y, clip.size.height, destination.height);
  if (clip.size.width == 0 || clip.size.height == 0) clip.size.width = clip.size.height = 0;
  return clip;
}

}  // namespace mps::detail
