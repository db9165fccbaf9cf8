#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "mps/core/image/image_allocator.hpp"
#include "mps/core/image/image_batch.hpp"

namespace unmetal::train::detail {

/// Keeps the scores of a training graph's batches where they can be read: images that are used again and again, so that a
/// device that replays commands finds the same addresses.
class ScoreImages final : public mps::ImageAllocator {
 public:
  /// Where the next encode puts them; made, or made anew, when it is none of the size. Outlives that encode.
  void takeNext(mps::ImageBatch& images) { next_ = &images; }

  std::shared_ptr<mps::Image> image(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                    const mps::ImageDescriptor& descriptor,
                                    const mps::Kernel& kernel) override;
  mps::ImageBatch imageBatch(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                             const mps::ImageDescriptor& descriptor, const mps::Kernel& kernel,
                             std::size_t count) override;

 private:
  mps::ImageBatch* next_ = nullptr;
};

/// How many pictures have their largest score at their label. @param scores of a step that has run
std::size_t countCorrect(const mps::ImageBatch& scores, std::span<const std::uint32_t> labels);

}  // namespace unmetal::train::detail
