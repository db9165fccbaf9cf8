#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mps/core/coding/secure_coding.hpp"

namespace mtl {
class Buffer;
class CommandBuffer;
class Device;
class Memory;
}  // namespace mtl

namespace mps {

class State;

/// How a LossScale changes.
struct LossScaleOptions {
  float initialScale = 65536;         ///< finite and greater than 0, as are the factors
  float growthFactor = 2;             ///< of the scale, after growthInterval finite steps in a row
  float backoffFactor = 0.5F;         ///< of the scale, after a step that overflowed; less than 1
  std::size_t growthInterval = 2000;  ///< at least 1
};

/// A factor that keeps float16 gradients away from underflow, and that follows them down when they overflow
/// (Micikevicius et al., Mixed Precision Training, 2018). No counterpart in MPS.
///
///     auto scale = mps::LossScale::create(device);
///     lossDescriptor.setLossScale(scale);     // the gradient of the loss is multiplied, the loss is not
///     optimizer->setLossScale(scale);         // gradients of weights are divided before all else
///
/// A step whose gradients of weights hold an infinity or a NaN updates no layer (momentum and velocity stay,
/// too), and the scale shrinks. An NNGraph checks the gradients of all of its layers before it updates the
/// first one, and then records update(). An update alone checks its own gradients. Who chains kernels by hand
/// records inspect() for each gradient state, the updates, and update(). The decision is made on the device; the host never waits, so what it counts,
/// Adam's timeStep, counts the steps without an update as well.
///
/// Kernels that share a scale share one on another device, too: whoever copies a loss and its optimisers there one by one gets
/// one copy of the scale, as it is when the first of them is copied, for as long as one of them lives. Copies on the same
/// device have the same scale. A copy of an NNGraph has one of its own, as the copies of its data sources have. No work of
/// the scale may be in flight.
class LossScale : public SecureCoding {
 public:
  /// @throws Error for a null device and options out of range.
  static std::shared_ptr<LossScale> create(const std::shared_ptr<mtl::Device>& device,
                                           const LossScaleOptions& options = {});
  ~LossScale() override;
  [[nodiscard]] std::string className() const override { return "LossScale"; }
  /// Scale and counts as the last work left them; none may be in flight.
  void encode(Coder& coder) const override;
  static std::shared_ptr<LossScale> decode(Coder& coder,
                                           const std::shared_ptr<mtl::Device>& device = nullptr);

  /// Another one with the same options, scale and counts. No work may be in flight. @param device null means the same
  [[nodiscard]] std::shared_ptr<LossScale> copy(const std::shared_ptr<mtl::Device>& device = nullptr) const;

  [[nodiscard]] const std::shared_ptr<mtl::Device>& device() const { return device_; }
  [[nodiscard]] const LossScaleOptions& options() const { return options_; }

  /// Records a look at all float32 buffers of a state: one value that is not finite, and the updates up to the
  /// next update() are left out.
  void inspect(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const std::shared_ptr<State>& state);
  /// Records the end of a step:
  ///
  ///     overflowed   scale = scale backoffFactor, finiteSteps = 0, skippedSteps + 1
  ///     otherwise    finiteSteps + 1; at growthInterval scale = scale growthFactor, finiteSteps = 0
  ///
  /// A scale never leaves the normal numbers of float32.
  void update(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);

  /// Records the copy that makes the numbers below readable.
  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);
  [[nodiscard]] float scale() const;
  [[nodiscard]] std::size_t finiteSteps() const;
  [[nodiscard]] std::size_t skippedSteps() const;
  /// Sets them, e.g. from a checkpoint. No work may be in flight. @throws Error for a scale out of range.
  void set(float scale, std::size_t finiteSteps, std::size_t skippedSteps);

  /// @name The library's own
  /// @{
  /// The one that copies of kernels with this one have on that other device, a copy() the first time.
  [[nodiscard]] std::shared_ptr<LossScale> sharedCopy(const std::shared_ptr<mtl::Device>& device);
  /// Looks at `count` values in a block of memory.
  void inspect(mtl::CommandBuffer& commandBuffer, const std::shared_ptr<mtl::Memory>& memory,
               std::size_t byteOffset, std::int64_t count);
  void update(mtl::CommandBuffer& commandBuffer);
  /// A detail::LossScaleNumbers.
  [[nodiscard]] const std::shared_ptr<mtl::Buffer>& numbers() const { return numbers_; }
  /// @}

 private:
  LossScale(std::shared_ptr<mtl::Device> device, const LossScaleOptions& options);
  /// Makes the numbers readable, and waits for them.
  void synchronizeNow() const;

  std::shared_ptr<mtl::Device> device_;
  LossScaleOptions options_;
  std::shared_ptr<mtl::Buffer> numbers_;
  std::mutex copiesMutex_;
  std::vector<std::weak_ptr<LossScale>> copies_;  ///< what sharedCopy() made
};

}  // namespace mps
