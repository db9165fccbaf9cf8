#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "mps/batch_normalization/matrix_batch_normalization.hpp"
#include "mps/batch_normalization/matrix_neuron.hpp"
#include "mps/graph/coded_kernel.hpp"
#include "mps/matrix/matrix.hpp"
#include "mps/matrix/matrix_copy.hpp"
#include "mps/matrix/matrix_fully_connected.hpp"
#include "mps/matrix/matrix_image_copy.hpp"
#include "mps/matrix/matrix_sum.hpp"
#include "mps/softmax/matrix_softmax.hpp"

/// The kernels on matrices of the list in coded_kernels.hpp.
namespace mps::test {

/// `encode(kernel, commandBuffer, seed, result)` records what is computed.
template <class KernelType, class Encode>
CodedKernel codedMatrixKernel(std::shared_ptr<KernelType> kernel, Encode encode) {
  return coded(std::move(kernel), [encode](Kernel& any, int seed) {
    auto& kernel = dynamic_cast<KernelType&>(any);
    const auto result = matrix(any.device(), seed + 2);
    ran(any, [&](const auto& buffer) {
      encode(kernel, buffer, seed, result);
      return 0;
    });
    return valuesOf(result->data());
  });
}

/// Of kernels that take one matrix.
template <class KernelType>
CodedKernel ofOneMatrix(std::shared_ptr<KernelType> kernel) {
  return codedMatrixKernel(std::move(kernel),
                           [](auto& one, const auto& buffer, int seed, const auto& result) {
                             one.encode(buffer, matrix(one.device(), seed), result);
                           });
}

/// Of kernels that take two.
template <class KernelType>
CodedKernel ofTwoMatrices(std::shared_ptr<KernelType> kernel) {
  return codedMatrixKernel(
      std::move(kernel), [](auto& one, const auto& buffer, int seed, const auto& result) {
        one.encode(buffer, matrix(one.device(), seed), matrix(one.device(), seed + 1), result);
      });
}

inline Values ofMatrixVectorProduct(Kernel& kernel, int seed) {
  const auto result = vector(kernel.device(), seed);
  ran(kernel, [&](const auto& buffer) {
    dynamic_cast<MatrixVectorMultiplication&>(kernel).encode(buffer, matrix(kernel.device(), seed),
                                                             vector(kernel.device(), seed + 1), result);
    return 0;
  });
  return valuesOf(result->data());
}

inline Values ofImageFromMatrix(Kernel& kernel, int seed) {
  const auto result = Image::create(kernel.device(), sizeOf(2, 2, 1));
  ran(kernel, [&](const auto& buffer) {
    dynamic_cast<MatrixCopyToImage&>(kernel).encode(buffer, matrix(kernel.device(), seed), result);
    return 0;
  });
  return valuesOf(*result);
}

/// Of neurons and batch normalisation, with vectors for all numbers of the columns.
template <class KernelType>
CodedKernel ofMatrixColumns(std::shared_ptr<KernelType> kernel) {
  kernel->setNeuronType(CNNNeuronType::TanH, 0.5F, 2, 0);
  kernel->setSourceNumberOfFeatureVectors(3);
  kernel->setSourceInputFeatureChannels(2);
  return codedMatrixKernel(
      std::move(kernel), [](KernelType& one, const auto& buffer, int seed, const auto& result) {
        const Device& device = one.device();
        const auto input = matrix(device, seed);
        const auto numbers = [&](int which) { return vector(device, seed + which); };
        if constexpr (std::is_same_v<KernelType, MatrixNeuron>)
          one.encode(buffer, input, numbers(1), result);
        else if constexpr (std::is_same_v<KernelType, MatrixNeuronGradient>)
          one.encode(buffer, matrix(device, seed + 1), input, numbers(1), result, nullptr);
        else if constexpr (std::is_same_v<KernelType, MatrixBatchNormalization>)
          one.encode(buffer, input, numbers(1), numbers(2), numbers(3), numbers(4), result);
        else
          one.encode(buffer, matrix(device, seed + 1), input, numbers(1), numbers(2), numbers(3), numbers(4),
                     result, nullptr, nullptr);
      });
}

inline void addMatrixColumnKernels(std::vector<CodedKernel>& all, const Device& device) {
  const auto neuron = MatrixNeuron::create(device);
  neuron->setAlpha(0.25);
  all.push_back(ofMatrixColumns(neuron));
  const auto gradient = MatrixNeuronGradient::create(device);
  gradient->setAlpha(0.25);
  all.push_back(ofMatrixColumns(gradient));
  const auto normalization = MatrixBatchNormalization::create(device);
  normalization->setComputeStatistics(true);
  normalization->setEpsilon(0.5F);
  all.push_back(ofMatrixColumns(normalization));
  const auto normalizationGradient = MatrixBatchNormalizationGradient::create(device);
  normalizationGradient->setEpsilon(0.5F);
  all.push_back(ofMatrixColumns(normalizationGradient));
}

inline void addMatrixLayers(std::vector<CodedKernel>& all, const Device& device) {
  const auto sum = MatrixSum::create(device, 2, 2, 3, true);
  sum->setNeuronType(CNNNeuronType::TanH, 0.5F, 2, 0);
  sum->setResultMatrixOrigin({1, 1, 0});
  all.push_back(codedMatrixKernel(sum, [](auto& one, const auto& buffer, int seed, const auto& result) {
    const std::vector<std::shared_ptr<Matrix>> sources{matrix(one.device(), seed),
                                                       matrix(one.device(), seed + 1)};
    one.encode(buffer, sources, result, vector(one.device(), seed));
  }));
  all.push_back(codedMatrixKernel(MatrixCopy::create(device, 2, 3, false, true), [](auto& one,
                                                                                    const auto& buffer,
                                                                                    int seed,
                                                                                    const auto& result) {
    one.encode(buffer, MatrixCopyDescriptor::descriptor(matrix(one.device(), seed), result, {1, 1, 1, 1}));
  }));
  const auto configured = [](auto kernel) {
    kernel->setAlpha(0.25);
    kernel->setSourceNumberOfFeatureVectors(3);
    kernel->setSourceInputFeatureChannels(3);
    kernel->setSourceOutputFeatureChannels(2);
    return kernel;
  };
  const auto layer = configured(MatrixFullyConnected::create(device));
  layer->setNeuronType(CNNNeuronType::TanH, 0.5F, 2, 0);
  all.push_back(codedMatrixKernel(layer, [](auto& one, const auto& buffer, int seed, const auto& result) {
    one.encode(buffer, matrix(one.device(), seed), matrix(one.device(), seed + 1), vector(one.device(), seed),
               result);
  }));
  all.push_back(codedMatrixKernel(configured(MatrixFullyConnectedGradient::create(device)),
                                  [](auto& one, const auto& buffer, int seed, const auto& result) {
                                    one.encodeGradientForData(buffer, matrix(one.device(), seed),
                                                              matrix(one.device(), seed + 1), result);
                                  }));
}

inline void addMatrixKernels(std::vector<CodedKernel>& all, const Device& device) {
  all.push_back(ofTwoMatrices(MatrixMultiplication::create(device, true, false, 2, 3, side, 0.5, 2)));
  all.push_back(
      coded(MatrixVectorMultiplication::create(device, true, side, side, 0.5, 2), ofMatrixVectorProduct));
  all.push_back(codedMatrixKernel(ImageCopyToMatrix::create(device, DataLayout::HeightxWidthxFeatureChannels),
                                  [](auto& copy, const auto& buffer, int seed, const auto& result) {
                                    copy.encode(buffer, image(copy.device(), sizeOf(2, 2, 1), seed), result);
                                  }));
  all.push_back(
      coded(MatrixCopyToImage::create(device, DataLayout::HeightxWidthxFeatureChannels), ofImageFromMatrix));
  const auto limited = [](auto kernel) {
    kernel->setSourceRows(3);
    kernel->setSourceColumns(2);
    return kernel;
  };
  all.push_back(ofOneMatrix(limited(MatrixSoftMax::create(device))));
  all.push_back(ofOneMatrix(limited(MatrixLogSoftMax::create(device))));
  all.push_back(ofTwoMatrices(limited(MatrixSoftMaxGradient::create(device))));
  all.push_back(ofTwoMatrices(limited(MatrixLogSoftMaxGradient::create(device))));
  addMatrixColumnKernels(all, device);
  addMatrixLayers(all, device);
}

}  // namespace mps::test
