#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/array/vector.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mps/weights/safetensors.hpp"

namespace mps {

/// What a layer's Adam does with the squares of its gradients.
enum class AdamForm {
  Adam,
  AMSGrad,  ///< divides by the root of the largest velocity so far
};

namespace detail {

/// One array of a ready-made data source: its name in files and its shape.
struct TrainableArray {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::shared_ptr<mtl::Buffer> buffer;

  [[nodiscard]] SafetensorsTensor tensor() const;
};

/// Values on their way from a file into a buffer: all are read before the first is changed.
class Replacements {
 public:
  /// @throws Error when the file lacks the tensor or has it with another shape
  void add(const SafetensorsFile& file, const std::string& name, const std::vector<std::uint64_t>& shape,
           std::shared_ptr<mtl::Buffer> buffer);
  /// @param values as many as the buffer takes
  void add(std::vector<float> values, std::shared_ptr<mtl::Buffer> buffer);
  void apply() const;

 private:
  struct Replacement {
    std::vector<float> values;
    std::shared_ptr<mtl::Buffer> buffer;
  };
  std::vector<Replacement> replacements_;
};

/// The coded part of ready-made data sources: optimiser, its state and the layer's arrays.
struct CodedLayer {
  std::string label;
  std::shared_ptr<NNOptimizer> optimizer;
  AdamForm adamForm = AdamForm::Adam;
  bool frozen = false;
  std::vector<std::vector<float>> values;  ///< of each array
  std::vector<std::vector<float>> slots;   ///< of each slot and array

  void code(Coder& coder);
};

/// A layer's own optimiser with its buffers, for ready-made data sources.
class OptimizerSlots {
 public:
  /// @param className for messages @param optimizer copied; null: the layer is never updated
  /// @param arrays what it updates
  /// @throws Error for an optimiser that is not SGD, RMSProp or Adam, AMSGrad with another one than Adam
  OptimizerSlots(const std::string& className, const std::shared_ptr<mtl::Device>& device,
                 const std::shared_ptr<NNOptimizer>& optimizer, AdamForm adamForm,
                 std::vector<TrainableArray> arrays);

  [[nodiscard]] const std::shared_ptr<NNOptimizer>& optimizer() const { return optimizer_; }
  [[nodiscard]] AdamForm adamForm() const { return adamForm_; }
  /// Encodes the optimiser on states: encode(commandBuffer, sources..., buffers..., result).
  template <class Result, class... Sources>
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const std::shared_ptr<Result>& result,
              const Sources&... sources) {
    if (auto* sgd = dynamic_cast<NNOptimizerStochasticGradientDescent*>(optimizer_.get()))
      sgd->encode(commandBuffer, sources..., slots_.empty() ? Slot{} : slots_[0], result);
    else if (auto* rmsProp = dynamic_cast<NNOptimizerRMSProp*>(optimizer_.get()))
      rmsProp->encode(commandBuffer, sources..., slots_[0], result);
    else
      dynamic_cast<NNOptimizerAdam&>(*optimizer_)
          .encode(commandBuffer, sources..., slots_[0], slots_[1],
                  adamForm_ == AdamForm::AMSGrad ? slots_[2] : Slot{}, result);
  }
  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const;
  /// Buffers of another one of the same kind; the host's view of them must be valid.
  void copyFrom(const OptimizerSlots& other);

  /// What is to be coded. @param label,frozen of the layer
  [[nodiscard]] CodedLayer coded(mtl::Device& device, const std::string& label, bool frozen) const;
  /// Takes values and slots of coded data. @throws Error, by the coder, for other lengths
  void take(const Coder& coder, const CodedLayer& layer);
  /// "<array>.momentum" and so on, and "<label>.step".
  void appendTensors(std::vector<SafetensorsTensor>& tensors, const std::string& label) const;
  void addReplacements(Replacements& replacements, const SafetensorsFile& file) const;
  /// Adam's time step, after all else was read. @throws Error when it is missing.
  void readTimeStep(const SafetensorsFile& file, const std::string& label);

 private:
  /// A vector for each array.
  using Slot = std::vector<std::shared_ptr<Vector>>;
  [[nodiscard]] std::vector<std::string> slotNames() const;

  std::shared_ptr<NNOptimizer> optimizer_;
  AdamForm adamForm_;
  std::vector<TrainableArray> arrays_;
  std::vector<Slot> slots_;                ///< momentum, velocity, ... as the optimiser has them
  std::shared_ptr<mtl::Buffer> timeStep_;  ///< host copy for files
};

/// Copies a buffer on the host. @param from its host's view is valid
void copyBuffer(const mtl::Buffer& from, mtl::Buffer& to);

}  // namespace detail
}  // namespace mps
