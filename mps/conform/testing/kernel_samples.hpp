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
#include "mps/core/kernel/cnn_binary_kernel.hpp"
#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/cnn_multiary_kernel.hpp"
#include "mps/core/testing/test_images.hpp"

/// Kernels of every class, with properties that are not the defaults, and what they compute: for tests of coding and of the forms of
/// encode, and for the corpus of the fuzz targets. Each family adds its own: mps/<family>/check/<family>_samples.cpp.
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

struct KernelSample {
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
inline KernelSample sample(std::shared_ptr<KernelType> kernel, Compute compute) {
  return {std::move(kernel),
          [](Coder& coder, const Device& device) { return KernelType::decode(coder, device); },
          std::move(compute)};
}

inline Values forward(Kernel& kernel, int seed) {
  auto& unary = dynamic_cast<CNNKernel&>(kernel);
  unary.setDestinationImageAllocator(Image::defaultAllocator());
  return valuesOf(
      *ran(kernel, [&](const auto& buffer) { return unary.encode(buffer, source(kernel, seed)); }));
}

inline Values ofTwo(Kernel& kernel, int seed) {
  auto& binary = dynamic_cast<CNNBinaryKernel&>(kernel);
  binary.setDestinationImageAllocator(Image::defaultAllocator());
  return valuesOf(*ran(kernel, [&](const auto& buffer) {
    return binary.encode(buffer, source(kernel, seed), source(kernel, seed + 1));
  }));
}

inline Values ofSeveral(Kernel& kernel, int seed) {
  auto& multiary = dynamic_cast<CNNMultiaryKernel&>(kernel);
  multiary.setDestinationImageAllocator(Image::defaultAllocator());
  const std::vector<std::shared_ptr<Image>> sources{source(kernel, seed), source(kernel, seed + 1)};
  return valuesOf(*ran(kernel, [&](const auto& buffer) { return multiary.encode(buffer, sources); }));
}

/// What a gradient kernel takes.
struct GradientArguments {
  std::shared_ptr<Image> sourceGradient, sourceImage;
  std::shared_ptr<State> state;
};

/// Encodes a forward kernel for a gradient kernel.
inline GradientArguments argumentsBehind(Kernel& first, Kernel& gradient,
                                         const std::shared_ptr<mtl::CommandBuffer>& buffer, int seed) {
  const auto x = source(gradient, seed);
  std::shared_ptr<State> state;
  std::shared_ptr<Image> y;
  dynamic_cast<detail::ImageKernel&>(first).setDestinationImageAllocator(Image::defaultAllocator());
  if (auto* unary = dynamic_cast<CNNKernel*>(&first)) {
    y = unary->encode(buffer, x, state, false);
  } else if (auto* binary = dynamic_cast<CNNBinaryKernel*>(&first)) {
    y = binary->encode(buffer, x, source(gradient, seed + 1), state, false);
  } else {
    const std::vector<std::shared_ptr<Image>> sources{x, source(gradient, seed + 1)};
    y = dynamic_cast<CNNMultiaryKernel&>(first).encode(buffer, sources, state, false);
  }
  const bool takesResult = gradient.className().find("SoftMax") != std::string::npos;
  return {image(gradient.device(), y->descriptor(), seed + 2), takesResult ? y : x, state};
}

/// A gradient behind a forward kernel that `make` makes.
inline Compute gradientOf(Make make) {
  return [make = std::move(make)](Kernel& kernel, int seed) {
    auto& gradient = dynamic_cast<CNNGradientKernel&>(kernel);
    gradient.setDestinationImageAllocator(Image::defaultAllocator());
    const auto first = make(kernel.device());
    return valuesOf(*ran(kernel, [&](const auto& buffer) {
      const GradientArguments arguments = argumentsBehind(*first, kernel, buffer, seed);
      return gradient.encode(buffer, arguments.sourceGradient, arguments.sourceImage, arguments.state);
    }));
  };
}

/// The samples of all families, on one device.
class KernelSamples {
 public:
  explicit KernelSamples(Device device) : device_(std::move(device)) {}
  [[nodiscard]] const Device& device() const { return device_; }

  template <class KernelType>
  void add(std::shared_ptr<KernelType> kernel, Compute compute = forward) {
    all_.push_back(sample(std::move(kernel), std::move(compute)));
  }
  void add(KernelSample made) { all_.push_back(std::move(made)); }
  /// Forward and gradient kernels that `make` and `makeGradient` make.
  template <class MakeForward, class MakeGradient>
  void addPair(MakeForward make, MakeGradient makeGradient, const Compute& compute = forward) {
    add(make(device_), compute);
    add(makeGradient(device_), gradientOf(make));
    all_.back().forward = make;
  }
  [[nodiscard]] const std::vector<KernelSample>& all() const { return all_; }

 private:
  Device device_;
  std::vector<KernelSample> all_;
};

/// One or more kernels of every class there is.
std::vector<KernelSample> everyKernel(const Device& device);

}  // namespace mps::test
