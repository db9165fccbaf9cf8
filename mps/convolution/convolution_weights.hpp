#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "mps/core/layer/convolution_data_source.hpp"

namespace mtl {
class Memory;
}

namespace mps::detail {

/// The weights and biases that a kernel's encodes use: float32 on the device, never changed once made, except
/// those that a data source owns and updates itself. The library's own.
class ConvolutionWeights {
 public:
  /// Reads the data source: load, convert to float32, fold the descriptor's batch normalisation, purge.
  /// @throws Error, naming `kernel`, when load() fails or the sizes disagree with the descriptor.
  static std::shared_ptr<const ConvolutionWeights> read(const std::string& kernel,
                                                        const std::shared_ptr<mtl::Device>& device,
                                                        CNNConvolutionDataSource& source,
                                                        const CNNConvolutionDescriptor& descriptor);
  /// Records a copy out of a state. Where it is left out by a predicate or dropped with its buffer, the result
  /// holds the values of these ones (recordReload). @throws Error when a size differs.
  [[nodiscard]] std::shared_ptr<const ConvolutionWeights> reloaded(
      const std::string& kernel, mtl::CommandBuffer& commandBuffer,
      CNNConvolutionWeightsAndBiasesState& state, const CNNConvolutionDescriptor& descriptor) const;
  /// Records a copy into a state.
  void copyTo(const std::string& kernel, mtl::CommandBuffer& commandBuffer,
              CNNConvolutionWeightsAndBiasesState& state) const;

  /// Codes weights that usually are what a data source gives: written where they differ from it.
  /// @param weights what the kernel has; null when reading @param usual of the data source
  /// @return what was read, or `usual` @throws Error for another number of values
  static std::shared_ptr<const ConvolutionWeights> code(
      Coder& coder, mtl::Device& device, const std::shared_ptr<const ConvolutionWeights>& weights,
      const std::shared_ptr<const ConvolutionWeights>& usual, const CNNConvolutionDescriptor& descriptor);

  [[nodiscard]] const std::shared_ptr<mtl::Memory>& weights() const { return weights_; }
  [[nodiscard]] std::size_t weightsOffset() const { return weightsOffset_; }
  [[nodiscard]] const std::shared_ptr<mtl::Memory>& biases() const { return biases_; }
  [[nodiscard]] std::size_t biasesOffset() const { return biasesOffset_; }
  /// Whether they are the data source's own buffers.
  [[nodiscard]] bool isShared() const { return shared_; }

 private:
  std::shared_ptr<mtl::Memory> weights_;
  std::size_t weightsOffset_ = 0;
  std::shared_ptr<mtl::Memory> biases_;
  std::size_t biasesOffset_ = 0;
  bool shared_ = false;
};

}  // namespace mps::detail
