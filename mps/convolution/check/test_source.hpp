#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/layer/convolution_data_source.hpp"
#include "mps/core/layer/convolution_state.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mtl/buffer.hpp"
#include "mtl/device.hpp"

namespace mps::testing {

/// Weights from vectors; everything that a data source may say can be set.
class ArraySource : public CNNConvolutionDataSource {
 public:
  explicit ArraySource(CNNConvolutionDescriptor descriptor, const std::vector<float>& weights,
                       std::vector<float> biases = {})
      : shape(std::move(descriptor)), biases(std::move(biases)) {
    setWeights(weights);
  }
  static std::shared_ptr<ArraySource> create(CNNConvolutionDescriptor descriptor,
                                             const std::vector<float>& weights,
                                             std::vector<float> biases = {}) {
    return std::make_shared<ArraySource>(std::move(descriptor), weights, std::move(biases));
  }
  void setWeights(const std::vector<float>& weights) {
    const auto view = std::as_bytes(std::span(weights));
    bytes.assign(view.begin(), view.end());
  }

  [[nodiscard]] DataType dataType() const override { return type; }
  [[nodiscard]] CNNConvolutionDescriptor descriptor() const override { return shape; }
  [[nodiscard]] std::span<const std::byte> weights() const override { return bytes; }
  [[nodiscard]] std::span<const float> biasTerms() const override { return biases; }
  bool load() override {
    ++loads;
    return loadsWell;
  }
  void purge() override { ++purges; }
  [[nodiscard]] std::string label() const override { return name; }
  [[nodiscard]] CNNWeightsQuantizationType weightsQuantizationType() const override { return quantization; }
  [[nodiscard]] std::span<const std::array<float, 2>> rangesForUInt8Kernel() const override { return ranges; }
  [[nodiscard]] std::span<const float> lookupTableForUInt8Kernel() const override { return table; }
  std::shared_ptr<CNNConvolutionDataSource> copy(const std::shared_ptr<mtl::Device>&) override {
    return copied;
  }
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> deviceWeightsAndBiases(
      const std::shared_ptr<mtl::Device>& device) override {
    return live && live->device() == device ? live : nullptr;
  }

  CNNConvolutionDescriptor shape;
  DataType type = DataType::Float32;
  std::vector<std::byte> bytes;
  std::vector<float> biases;
  std::string name;
  CNNWeightsQuantizationType quantization = CNNWeightsQuantizationType::None;
  std::vector<std::array<float, 2>> ranges;
  std::vector<float> table;
  std::shared_ptr<CNNConvolutionDataSource> copied;
  std::shared_ptr<CNNConvolutionWeightsAndBiasesState> live;
  bool loadsWell = true;
  int loads = 0;
  int purges = 0;
};

inline std::shared_ptr<mtl::Buffer> bufferOf(const std::shared_ptr<mtl::Device>& device,
                                             const std::vector<float>& values) {
  return device->newBuffer(std::as_bytes(std::span(values)));
}

}  // namespace mps::testing
