#pragma once

#include <memory>
#include <string>

#include "mps/convolution/convolution.hpp"
#include "mps/core/kernel/kernel_class.hpp"

namespace mps {

/// Inner product of the whole source with each filter; result 1 x 1 x outputFeatureChannels
/// (MPSCNNFullyConnected).
///
///     result[k] = neuron(bias[k] + sum over q, p, c of W[k][q][p][c] * in[q][p][c])
///
/// kernelWidth x kernelHeight is the size of the source; stride, dilation, groups and subPixelScaleFactor are 1;
/// offset is ignored. The source is flattened row, column, channel: weights from libraries that flatten channel, row,
/// column are permuted.
class CNNFullyConnected : public detail::KernelClass<CNNFullyConnected, CNNConvolution, "CNNFullyConnected"> {
 public:
  static std::shared_ptr<CNNFullyConnected> create(const std::shared_ptr<mtl::Device>& device,
                                                   std::shared_ptr<CNNConvolutionDataSource> weights);

 protected:
  using KernelClass::KernelClass;
  CNNFullyConnected(std::shared_ptr<mtl::Device> device, std::shared_ptr<CNNConvolutionDataSource> weights);
  CNNFullyConnected(const CNNFullyConnected&) = default;
  void codeProperties(Coder& coder) override;
  void placeWindow(detail::ConvolutionProblem& problem) const override;

 private:
  friend KernelClass;
};

/// Gradients of CNNFullyConnected (MPSCNNFullyConnectedGradient):
///
///     dIn[q][p][c]   = sum over k of W[k][q][p][c] E[k]
///     dW[k][q][p][c] = sum over images of E[k] in[q][p][c]
///     db[k]          = sum over images of E[k]
///
/// State, accumulation and reload as for CNNConvolutionGradient.
///
///     auto dense = mps::CNNFullyConnected::create(device, dataSource);
///     std::shared_ptr<mps::State> state;
///     auto y = dense->encode(commandBuffer, x, state, false);
///     auto gradient = mps::CNNFullyConnectedGradient::create(device, dataSource);
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class CNNFullyConnectedGradient
    : public detail::KernelClass<CNNFullyConnectedGradient, CNNConvolutionGradient,
                                 "CNNFullyConnectedGradient"> {
 public:
  static std::shared_ptr<CNNFullyConnectedGradient> create(const std::shared_ptr<mtl::Device>& device,
                                                           std::shared_ptr<CNNConvolutionDataSource> weights);

 protected:
  using KernelClass::KernelClass;
  CNNFullyConnectedGradient(std::shared_ptr<mtl::Device> device,
                            std::shared_ptr<CNNConvolutionDataSource> weights);
  CNNFullyConnectedGradient(const CNNFullyConnectedGradient&) = default;
  void codeProperties(Coder& coder) override;
  void placeWindow(detail::ConvolutionProblem& problem) const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;

 private:
  friend KernelClass;
};

}  // namespace mps
