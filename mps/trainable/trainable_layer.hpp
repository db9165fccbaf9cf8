#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mps/weights/safetensors.hpp"

namespace mtl {
class CommandBuffer;
}

namespace mps {

class Coder;
class NNOptimizer;

/// What the ready-made data sources have in common (docs/decisions.md, D23): a program holds the layers of a network as
/// these, whatever their kind, to write and read files and to set learning rates.
///
/// Several layers of a graph may share one: they have the same weights, which change behind the gradients of all of
/// them, by one step of the optimiser for each layer (Adam's timeStep counts them).
class TrainableLayer {
 public:
  virtual ~TrainableLayer() = default;

  /// The layer's own optimiser, e.g. to set the learning rate; null without one.
  [[nodiscard]] virtual const std::shared_ptr<NNOptimizer>& optimizer() const = 0;
  /// A frozen layer is not updated; of a batch normalisation nor are the running statistics. false. @{
  [[nodiscard]] virtual bool isFrozen() const = 0;
  virtual void setFrozen(bool frozen) = 0;
  /// @}
  /// Records the copies that make all values and the optimiser state readable.
  virtual void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) = 0;
  /// The layer's values, named "<label>.weight" and so on, and with the optimiser state also that. The bytes stay
  /// this object's; no work may be in flight.
  [[nodiscard]] virtual std::vector<SafetensorsTensor> tensors(bool withOptimizerState) const = 0;
  /// Takes the values of such tensors. No work may be in flight. @throws Error when one is missing or has
  /// another shape; nothing has changed then.
  virtual void read(const SafetensorsFile& file, bool withOptimizerState) = 0;
  /// The same from a file with PyTorch's shapes: a convolution's weights are [out][in / groups][kernel row][kernel
  /// column], or [out][in * kernel row * kernel column] as of a Linear; all else is as in files of our own.
  virtual void readFromPyTorch(const SafetensorsFile& file) { read(file, false); }

 protected:
  TrainableLayer() = default;
  TrainableLayer(const TrainableLayer&) = default;
  TrainableLayer& operator=(const TrainableLayer&) = default;
};

/// Lets a coder find the ready-made data sources, when a kernel that has one is decoded by itself. NNGraph::decode
/// does it.
void addTrainableDecoders(Coder& coder);

}  // namespace mps
