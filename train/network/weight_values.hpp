#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "mps/trainable/trainable_layer.hpp"

namespace mtl {
class Buffer;
class Device;
}  // namespace mtl

namespace unmetal::train::detail {

/// A copy of the numbers of layers: weights, biases, running statistics; not the optimisers' state.
class WeightValues {
 public:
  /// Waits for work on the device. @throws mps::Error when that has failed
  static WeightValues of(std::span<const std::shared_ptr<mps::TrainableLayer>> layers,
                         const std::shared_ptr<mtl::Device>& device);
  /// @param layers of the same kinds and sizes; no work on them may be in flight
  void giveTo(std::span<const std::shared_ptr<mps::TrainableLayer>> layers,
              const std::shared_ptr<mtl::Device>& device) const;

 private:
  std::vector<std::vector<std::byte>> arrays_;
};

/// Where a layer's numbers lie: weights, biases, running statistics.
std::vector<std::shared_ptr<mtl::Buffer>> buffersOf(mps::TrainableLayer& layer,
                                                    const std::shared_ptr<mtl::Device>& device);

/// Makes the values of layers readable by the host.
void synchronize(std::span<const std::shared_ptr<mps::TrainableLayer>> layers,
                 const std::shared_ptr<mtl::Device>& device);

}  // namespace unmetal::train::detail
