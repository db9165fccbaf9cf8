#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/conform/testing/matrix_samples.hpp"
#include "mps/softmax/matrix_softmax.hpp"
#include "mps/softmax/softmax.hpp"

namespace mps::test {

void addSoftmaxSamples(KernelSamples& samples) {
  const Device& device = samples.device();
  samples.addPair([](const Device& d) { return CNNSoftMax::create(d); },
                  [](const Device& d) { return CNNSoftMaxGradient::create(d); });
  samples.addPair([](const Device& d) { return CNNLogSoftMax::create(d); },
                  [](const Device& d) { return CNNLogSoftMaxGradient::create(d); });
  const auto limited = [](auto kernel) {
    kernel->setSourceRows(3);
    kernel->setSourceColumns(2);
    return kernel;
  };
  samples.add(ofOneMatrix(limited(MatrixSoftMax::create(device))));
  samples.add(ofOneMatrix(limited(MatrixLogSoftMax::create(device))));
  samples.add(ofTwoMatrices(limited(MatrixSoftMaxGradient::create(device))));
  samples.add(ofTwoMatrices(limited(MatrixLogSoftMaxGradient::create(device))));
}

}  // namespace mps::test
