#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "mps/distributed/communicator.hpp"

namespace mtl {
class Buffer;
class CommandBuffer;
}  // namespace mtl

namespace mps::detail {

/// The gradients of one encode on their way to sums over the ranks, in buckets: a sum begins as soon as its bucket is full,
/// while the backward pass goes on. All ranks add the same sizes in the same order.
class GradientReduction {
 public:
  /// Bytes from which on a bucket is full.
  static constexpr std::size_t bucketBytes = std::size_t{25} << 20U;

  /// @param count of this rank's images @param total of all ranks'
  GradientReduction(std::shared_ptr<Communicator> communicator, std::size_t count, std::size_t total);

  /// Records the beginning of a sum, where the bucket is full with these.
  void add(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
           const std::vector<std::shared_ptr<mtl::Buffer>>& gradients);
  /// Records what keeps sums going that have begun.
  void recordProgress(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const;
  /// Records the last bucket, and the wait for all. On CPU devices the command buffer fails where the ranks' images are not
  /// as many as the graph was told.
  void finish(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);

 private:
  void start(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);
  void recordCheck(mtl::CommandBuffer& commandBuffer, const std::shared_ptr<mtl::Buffer>& count) const;

  std::shared_ptr<Communicator> communicator_;
  std::size_t count_;
  std::size_t total_;
  std::vector<std::shared_ptr<mtl::Buffer>> bucket_;
  std::size_t bytes_ = 0;  ///< in the bucket
  std::vector<std::shared_ptr<Communicator::Reduction>> begun_;
};

}  // namespace mps::detail
