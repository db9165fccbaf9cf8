#pragma once

#include <cstddef>
#include <memory>

namespace mtl {
class CommandBuffer;
}

namespace mps {

class Communicator;
class ImageDescriptor;
class StateBatch;

namespace detail {

/// One rank's part of a batch that several ranks share.
struct BatchShare {
  std::size_t firstImage = 0;  ///< in the whole batch
  std::size_t imageCount = 0;  ///< of this rank
  std::size_t totalCount = 0;  ///< of all ranks; equal to imageCount where there is one rank
  /// Over which statistics of the batch are taken; null: each rank's are its own.
  std::shared_ptr<Communicator> statistics = nullptr;
};

/// What a graph tells kernels whose results depend on the whole batch.
class SharedBatchKernel {
 public:
  virtual ~SharedBatchKernel() = default;
  /// For the encodes that follow.
  virtual void setBatchShare(const BatchShare& share) = 0;
  /// In place of an encode where this rank has no images: takes part in what all ranks do.
  /// @param source size of an image @param states of the step, as of one image
  virtual void encodeWithoutImages(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                   const ImageDescriptor& source, const StateBatch& states) = 0;

 protected:
  SharedBatchKernel() = default;
  SharedBatchKernel(const SharedBatchKernel&) = default;
  SharedBatchKernel& operator=(const SharedBatchKernel&) = default;
};

}  // namespace detail
}  // namespace mps
