#include <cstddef>
#include <memory>

#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/convolution/check/convolution_fixed_weights.hpp"
#include "mps/convolution/convolution_transpose.hpp"
#include "mps/convolution/fully_connected.hpp"

namespace mps::test {
namespace {

std::shared_ptr<CNNConvolutionDataSource> weights(std::size_t kernel, std::size_t out) {
  return detail::sampleWeights(kernel, channels, out);
}

}  // namespace

void addConvolutionSamples(KernelSamples& samples) {
  samples.addPair([](const Device& d) { return CNNConvolution::create(d, weights(3, 3)); },
                  [](const Device& d) { return CNNConvolutionGradient::create(d, weights(3, 3)); });
  samples.addPair([](const Device& d) { return CNNFullyConnected::create(d, weights(side, 5)); },
                  [](const Device& d) { return CNNFullyConnectedGradient::create(d, weights(side, 5)); });
  samples.addPair([](const Device& d) { return CNNConvolutionTranspose::create(d, weights(2, 3)); },
                  [](const Device& d) { return CNNConvolutionTransposeGradient::create(d, weights(2, 3)); });
}

}  // namespace mps::test
