#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/coding/secure_coding.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/types/types.hpp"

namespace mtl {
class Buffer;
class CommandBuffer;
}  // namespace mtl

namespace mps::detail {

class DeferredUpdates;
class JointGather;
class UpdateCounter;

/// The label under the sums of gradients.
inline constexpr const char* sumOfGradients = "sum of gradients";

/// How one layer's weights are updated after its gradients: once in each encode, with the sum of
/// what the gradient kernels left in the layer's state. The library's own.
class LayerUpdate {
 public:
  /// An array of parameters.
  struct NamedBuffer {
    std::string name;
    std::shared_ptr<mtl::Buffer> buffer;
  };

  virtual ~LayerUpdate() = default;
  LayerUpdate(const LayerUpdate&) = delete;
  LayerUpdate& operator=(const LayerUpdate&) = delete;

  [[nodiscard]] NNTrainingStyle style() const { return style_; }
  /// What is updated, and does it.
  [[nodiscard]] virtual const SecureCoding& dataSource() const = 0;
  /// What counts the updates of the data source, or null.
  [[nodiscard]] virtual UpdateCounter* counter() const = 0;
  /// Before an encode of the graph: remembers the parameters that the kernels use.
  virtual void begin() = 0;
  /// The encode failed: what it recorded is gone, so the kernels use the remembered parameters again.
  virtual void rollBack() = 0;
  /// After each encode of a gradient kernel that is to train the layer.
  virtual void didEncodeGradient(const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
                                 const StateBatch& /*gradientStates*/) {}
  /// Behind the last of these encodes: leaves the sum of what several have computed in the states.
  virtual void joinGradients(const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
                             const StateBatch& /*gradientStates*/) {}
  /// On one of several ranks, behind joinGradients(): what they sum, float32, one buffer for each array of parameters on
  /// every rank. Records what comes before the sum.
  virtual std::vector<std::shared_ptr<mtl::Buffer>> gradientsToSum(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateBatch& gradientStates) = 0;
  /// On one of several ranks that have each taken the statistics of their own images: lets the update have those of all, when
  /// what it adds to `gather` is recorded. @param elementCount of the layer's source, per feature channel, of all ranks
  virtual void mergeStatistics(const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
                               const StateBatch& /*gradientStates*/, JointGather& /*gather*/,
                               std::uint64_t /*elementCount*/) {}
  /// In place of an encode of a gradient kernel where this rank has no images.
  virtual void clearGradients(mtl::CommandBuffer& /*commandBuffer*/, const StateBatch& /*gradientStates*/) {}
  /// The parameters that the kernels use, for a check that all ranks have the same.
  [[nodiscard]] virtual std::vector<NamedBuffer> parameters() const = 0;
  /// Style UpdateDeviceGPU: when all kernels of the encode that use the weights are encoded.
  /// @param gradientStates of the batch; layers whose states are one take the first
  /// @param deferred takes updates of weights that the data source keeps on the device; null: recorded here
  virtual void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                      const StateBatch& gradientStates, DeferredUpdates* deferred) = 0;
  /// Style UpdateDeviceCPU: what the host will need, recorded at the same place; null when nothing.
  virtual std::shared_ptr<State> prepareHostUpdate(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                   const StateBatch& gradientStates) = 0;
  /// In the completion handler. @param sourceState what prepareHostUpdate returned
  virtual void updateOnHost(const StateBatch& gradientStates, const std::shared_ptr<State>& sourceState) = 0;

 protected:
  explicit LayerUpdate(NNTrainingStyle style) : style_(style) {}

 private:
  NNTrainingStyle style_;
};

}  // namespace mps::detail
