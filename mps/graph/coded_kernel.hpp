#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "mps/core/array/matrix.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/testing/test_images.hpp"

/// What the entries of the list of coded kernels (coded_kernels.hpp) are made of.
namespace mps::test {

using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using Bytes = std::vector<std::byte>;
using Device = std::shared_ptr<mtl::Device>;

inline constexpr std::size_t side = 4;
inline constexpr std::size_t channels = 4;

inline Bytes encoded(const Kernel& kernel) {
  KeyedArchiver archiver;
  kernel.encode(archiver);
  return archiver.encodedData();
}

/// What a kernel computes from values that depend on `seed` alone.
using Compute = std::function<Values(Kernel& kernel, int seed)>;

/// Makes a kernel on any device.
using Make = std::function<std::shared_ptr<Kernel>(const Device&)>;

struct CodedKernel {
  std::shared_ptr<Kernel> kernel;
  std::function<std::shared_ptr<Kernel>(Coder& coder, const Device& device)> decode;
  Compute compute;
  Make forward = nullptr;  ///< of a gradient whose state any encode of a forward kernel makes
};

inline std::shared_ptr<Image> image(const Device& device, const ImageDescriptor& size, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  Values values(testing::elementsOf(size));
  for (float& value : values) value = static_cast<float>(random() % 64) / 16 - 2;
  auto made = Image::create(device, size);
  testing::fill(*made, values);
  return made;
}

inline std::shared_ptr<Image> source(const Kernel& kernel, int seed) {
  return image(kernel.device(), sizeOf(side, side, channels), seed);
}

/// Records on a queue of the kernel's device and runs that.
template <class Record>
auto ran(const Kernel& kernel, Record record) {
  const auto commandBuffer = kernel.device()->newCommandQueue()->commandBuffer();
  auto result = record(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  return result;
}

inline std::shared_ptr<Matrix> matrix(const Device& device, int seed) {
  const auto buffer = device->newBuffer(side * side * sizeof(float));
  std::mt19937 random(static_cast<unsigned>(seed));
  for (float& value : buffer->contentsAs<float>()) value = static_cast<float>(random() % 16) - 8;
  buffer->didModifyRange(0, buffer->length());
  return Matrix::create(
      buffer, MatrixDescriptor::matrixDescriptor(side, side, side * sizeof(float), DataType::Float32));
}

inline std::shared_ptr<Vector> vector(const Device& device, int seed, std::size_t count = side,
                                      DataType type = DataType::Float32) {
  const auto buffer = device->newBuffer(count * sizeof(float));
  std::mt19937 random(static_cast<unsigned>(seed));
  for (float& value : buffer->contentsAs<float>()) value = static_cast<float>(random() % 16) / 4;
  buffer->didModifyRange(0, buffer->length());
  return Vector::create(buffer, VectorDescriptor::vectorDescriptor(count, type));
}

template <class KernelType>
inline CodedKernel coded(std::shared_ptr<KernelType> kernel, Compute compute) {
  return {std::move(kernel),
          [](Coder& coder, const Device& device) { return KernelType::decode(coder, device); },
          std::move(compute)};
}

}  // namespace mps::test
