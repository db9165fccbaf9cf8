#pragma once

#include <any>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "mps/core/image/image_descriptor.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/types/types.hpp"

namespace mtl {
class Memory;
}

namespace mps::detail {

class ImageStorage;

/// What one forward encode leaves for its gradient: the kernel's properties at that moment (docs/decisions.md, D9)
/// and the fields that make the gradient cheaper (docs/decisions.md, D14). Shared by the states of a batch.
struct ForwardRecord {
  std::string kernelClass;
  Offset offset;
  mtl::Region clipRect;  ///< after intersection with the destination
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
  std::size_t kernelWidth = 1;
  std::size_t kernelHeight = 1;
  std::size_t strideInPixelsX = 1;
  std::size_t strideInPixelsY = 1;
  std::size_t dilationRateX = 1;
  std::size_t dilationRateY = 1;
  std::size_t sourceFeatureChannelOffset = 0;
  std::size_t sourceFeatureChannels = 0;  ///< channels read
  std::size_t destinationFeatureChannelOffset = 0;
  std::size_t destinationFeatureChannels = 0;  ///< channels produced
  ImageDescriptor source;
  ImageDescriptor destination;
  std::size_t imageCount = 0;

  /// Saved fields, dense over the images of the call; null when there are none.
  std::shared_ptr<mtl::Memory> saved;
  std::size_t savedBytesPerImage = 0;
  /// Where the images of the call begin: saved fields serve a gradient of exactly these images (docs/decisions.md,
  /// D11, D14).
  struct Place {
    std::weak_ptr<ImageStorage> storage;
    std::size_t byteOffset = 0;
    std::int64_t imageStride = 0;  ///< in elements
  };
  Place sourcePlace;
  Place resultPlace;

  /// What a family adds.
  std::any family;
};

/// The record that all states of a batch share, and whether they are its images in order.
struct BatchRecord {
  std::shared_ptr<const ForwardRecord> record;
  std::size_t firstImage = 0;
  bool inOrder = false;
};
/// @throws Error when a state carries no record or the records disagree; `kernel` is named in the message.
BatchRecord recordOf(const std::string& kernel, const StateBatch& states);

}  // namespace mps::detail
