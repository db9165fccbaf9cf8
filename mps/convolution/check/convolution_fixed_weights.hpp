#pragma once

#include <cstddef>
#include <memory>
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

/// Small numbers of both signs, for squares of `kernel` pixels, and biases of a quarter.
inline std::shared_ptr<FixedWeights> sampleWeights(std::size_t kernel, std::size_t channels,
                                                   std::size_t out) {
  const auto descriptor = CNNConvolutionDescriptor::cnnConvolutionDescriptor(kernel, kernel, channels, out);
  std::vector<float> values(descriptor.weightCount());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) / 4 - 0.5F;
  return std::make_shared<FixedWeights>(descriptor, std::move(values), std::vector<float>(out, 0.25F));
}

}  // namespace mps::detail
