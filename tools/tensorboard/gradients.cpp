#include "tools/tensorboard/gradients.hpp"

#include <cstring>
#include <set>

#include "mps/optimizer/optimizer.hpp"
#include "train/network/weight_values.hpp"

namespace unmetal {
namespace {

class FirstPictures final : public train::Dataset {
 public:
  FirstPictures(const train::Dataset& all, std::size_t count) : all_(all), count_(count) {}

  [[nodiscard]] train::Shape shape() const override { return all_.shape(); }
  [[nodiscard]] std::size_t size() const override { return count_; }
  [[nodiscard]] std::size_t classCount() const override { return all_.classCount(); }
  [[nodiscard]] std::vector<std::string> classNames() const override { return all_.classNames(); }
  std::uint32_t load(std::size_t index, std::span<float> pixels) const override {
    return all_.load(index, pixels);
  }
  [[nodiscard]] bool hasBytes() const override { return all_.hasBytes(); }
  std::uint32_t loadBytes(std::size_t index, std::span<std::uint8_t> pixels) const override {
    return all_.loadBytes(index, pixels);
  }

 private:
  const train::Dataset& all_;
  std::size_t count_;
};

/// Of what is trained.
std::vector<Gradient> valuesOf(const train::Network& network) {
  std::set<std::string> trained;
  for (const train::Layer& layer : network.layers())
    for (const train::Parameter& parameter : layer.parameters)
      if (parameter.isTrained) trained.insert(layer.label + "." + parameter.name);
  const auto& layers = network.trainableLayers();
  train::detail::synchronize(layers, network.device());
  std::vector<Gradient> values;
  for (const auto& layer : layers)
    for (const mps::SafetensorsTensor& tensor : layer->tensors(false)) {
      if (layer->isFrozen() || !trained.contains(tensor.name)) continue;
      std::vector<float> numbers(tensor.bytes.size() / sizeof(float));
      std::memcpy(numbers.data(), tensor.bytes.data(), tensor.bytes.size());
      values.push_back({tensor.name, std::move(numbers)});
    }
  return values;
}

}  // namespace

/// What one step of plain gradient descent takes off. Its rate is so large, and a power of two, that nothing of the gradient is lost
/// to the rounding of the values.
std::vector<Gradient> gradientsOf(const train::Network& network, const train::Dataset& data,
                                  std::size_t count, const train::TrainerOptions& options) {
  constexpr float rate = 1.0995116e12F;  // 2^40
  const train::Network copy = network.copy();
  std::vector<Gradient> gradients = valuesOf(copy);
  train::Trainer trainer(
      copy, {.epochs = 1,
             .batchSize = count,
             .optimizer = mps::NNOptimizerStochasticGradientDescent::create(network.device(), rate),
             .seed = options.seed,
             .augmentation = options.augmentation,
             .classWeights = options.classWeights});
  trainer.fit(FirstPictures(data, count));
  const std::vector<Gradient> after = valuesOf(copy);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    for (std::size_t j = 0; j < gradients[i].values.size(); ++j)
      gradients[i].values[j] = (gradients[i].values[j] - after[i].values[j]) / rate;
  return gradients;
}

}  // namespace unmetal
