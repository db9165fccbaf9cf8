#pragma once

#include <memory>
#include <utility>

#include "mps/conform/testing/kernel_samples.hpp"

/// What samples of kernels on matrices share.
namespace mps::test {

/// `encode(kernel, commandBuffer, seed, result)` records what is computed.
template <class KernelType, class Encode>
KernelSample matrixSample(std::shared_ptr<KernelType> kernel, Encode encode) {
  return sample(std::move(kernel), [encode](Kernel& any, int seed) {
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
KernelSample ofOneMatrix(std::shared_ptr<KernelType> kernel) {
  return matrixSample(std::move(kernel), [](auto& one, const auto& buffer, int seed, const auto& result) {
    one.encode(buffer, matrix(one.device(), seed), result);
  });
}

/// Of kernels that take two.
template <class KernelType>
KernelSample ofTwoMatrices(std::shared_ptr<KernelType> kernel) {
  return matrixSample(std::move(kernel), [](auto& one, const auto& buffer, int seed, const auto& result) {
    one.encode(buffer, matrix(one.device(), seed), matrix(one.device(), seed + 1), result);
  });
}

/// Of kernels that take several vectors of float32; encode(kernel, commandBuffer, seed, result).
template <class KernelType, class Encode>
KernelSample vectorSample(std::shared_ptr<KernelType> kernel, Encode encode) {
  return sample(std::move(kernel), [encode](Kernel& any, int seed) {
    const auto result = vector(any.device(), seed);
    ran(any, [&](const auto& buffer) {
      encode(dynamic_cast<KernelType&>(any), buffer, seed, result);
      return 0;
    });
    return valuesOf(result->data());
  });
}

}  // namespace mps::test
