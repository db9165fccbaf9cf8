#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "mps/weights/safetensors.hpp"
#include "mtl/device.hpp"
#include "train/data/dataset.hpp"
#include "train/network/network.hpp"

/// What tests of trainings share.
namespace unmetal::train::detail {

inline const std::shared_ptr<mtl::Device>& device() {
  static const auto device = mtl::newCPUDevice(1);
  return device;
}

/// Bars that stand or lie, among noise.
class Bars : public Dataset {
 public:
  explicit Bars(std::size_t size) : size_(size) {}
  [[nodiscard]] Shape shape() const override { return {8, 8, 1}; }
  [[nodiscard]] std::size_t size() const override { return size_; }
  [[nodiscard]] std::size_t classCount() const override { return 2; }
  std::uint32_t load(std::size_t index, std::span<float> pixels) const override {
    for (std::size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = static_cast<float>((i * i + 7 * index * i + index) % 11) / 22;
    const std::size_t place = index / 2 % 8;
    for (std::size_t i = 0; i < 8; ++i) pixels[index % 2 != 0 ? 8 * i + place : 8 * place + i] = 1;
    return index == wrongPicture_ ? 2 : index % 2;
  }
  std::size_t wrongPicture_ = std::numeric_limits<std::size_t>::max();

 private:
  std::size_t size_;
};

inline Network smallNetwork(std::uint64_t seed = 1) {
  Network network({8, 8, 1}, {.seed = seed, .device = device()});
  network.input().convolution(6, 5).relu().maxPool(2).dropout(0.1F).dense(2);
  return network;
}

inline std::vector<std::byte> bytesOf(const Network& network) {
  std::vector<std::byte> bytes;
  for (const auto& layer : network.trainableLayers())
    for (const mps::SafetensorsTensor& tensor : layer->tensors(false))
      bytes.insert(bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
  return bytes;
}

}  // namespace unmetal::train::detail
