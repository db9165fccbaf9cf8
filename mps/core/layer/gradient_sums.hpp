#pragma once

#include <memory>
#include <vector>

namespace mtl {
class Buffer;
class CommandBuffer;
class Memory;
}  // namespace mtl

namespace mps::detail {

/// The sums of what several gradient kernels leave, one after the other, in the same buffers of float32. The library's own.
class GradientSums {
 public:
  using Buffers = std::vector<std::shared_ptr<mtl::Buffer>>;

  void clear() { sums_.clear(); }
  void add(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const Buffers& gradients);
  /// Leaves the sums in the buffers, where there are any.
  void put(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const Buffers& gradients) const;

 private:
  std::vector<std::shared_ptr<mtl::Memory>> sums_;  ///< each with room for what is added to it
};

}  // namespace mps::detail
