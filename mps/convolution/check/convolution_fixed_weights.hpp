#pragma once

#include <span>
#include <utility>
#include <vector>

#include "mps/core/layer/convolution_data_source.hpp"

namespace mps::detail {

/// Weights and biases that never change, for self-check and timing.
class FixedWeights : public CNNConvolutionDataSource {
 public:
  FixedWeights(CNNConvolutionDescriptor descriptor, std::vector<float> weights, std::vector<float> biases)
      : descriptor_(std::move(descriptor)), weights_(std::move(weights)), biases_(std::move(biases)) {}

  [[nodiscard]] DataType dataType() const override { return DataType::Float32; }
  [[nodiscard]] CNNConvolutionDescriptor descriptor() const override { return descriptor_; }
  [[nodiscard]] std::span<const std::byte> weights() const override {
    return std::as_bytes(std::span(weights_));
  }
  [[nodiscard]] std::span<const float> biasTerms() const override { return biases_; }
  bool load() override { return true; }
  void purge() override {}

 private:
  CNNConvolutionDescriptor descriptor_;
  std::vector<float> weights_;
  std::vector<float> biases_;
};

}  // namespace mps::detail
