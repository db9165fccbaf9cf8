#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "mps/conform/conform.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"

/// What the families' conform functions share: formats, batches, and the calls of forward and gradient
/// kernels.
namespace mps::detail {

/// What a kernel reads and what it writes.
struct ConformFormats {
  ImageFeatureChannelFormat source;
  ImageFeatureChannelFormat result;
};
/// Forward kernels read every format.
inline constexpr std::array<ConformFormats, 4> kForwardFormats{
    {{ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float32},
     {ImageFeatureChannelFormat::Float16, ImageFeatureChannelFormat::Float16},
     {ImageFeatureChannelFormat::Unorm8, ImageFeatureChannelFormat::Float32},
     {ImageFeatureChannelFormat::Unorm16, ImageFeatureChannelFormat::Float16}}};
inline constexpr std::array<ImageFeatureChannelFormat, 2> kGradientFormats{
    ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16};

constexpr bool isUnorm(ImageFeatureChannelFormat format) {
  return format == ImageFeatureChannelFormat::Unorm8 || format == ImageFeatureChannelFormat::Unorm16;
}

/// Values that fit tier and format: small integers, 0 and 1, or numbers of the whole range.
inline RandomKind valuesFor(Tier tier, ImageFeatureChannelFormat format) {
  if (isUnorm(format)) return tier == Tier::Exact ? RandomKind::ZeroOrOne : RandomKind::Positive;
  return tier == Tier::Exact ? RandomKind::SmallIntegers : RandomKind::Uniform;
}

/// A case with code of its own, so that plans and kernels share a row.
struct ConformCase {
  std::string name;
  std::function<void(ConformRun&)> run;
};

inline void conformRow(Conform& conform, const ConformKey& key, const std::vector<ConformCase>& cases) {
  if (!cases.empty()) conform.row(key, cases, [](const ConformCase& one, ConformRun& run) { one.run(run); });
}

/// A batch for a call of a kernel.
struct KernelBatch {
  std::string name;
  BatchForm form = BatchForm::Block;
  std::size_t count = 1;
  std::size_t height = 1;
  std::size_t width = 1;
  std::size_t channels = 1;

  [[nodiscard]] ImageDescriptor descriptor(ImageFeatureChannelFormat format) const {
    return {format, width, height, channels};
  }
};

/// Every form of a batch.
inline std::vector<KernelBatch> kernelBatches() {
  std::vector<KernelBatch> batches;
  constexpr std::array<std::size_t, 3> channels{3, 16, 21};
  for (const BatchForm form : batchForms())
    for (const std::size_t count : channels)
      batches.push_back(
          {"KernelForm" + std::to_string(static_cast<int>(form)) + "Channels" + std::to_string(count), form,
           3, 6, 5, count});
  return batches;
}

/// The stored values of images, as the input of a reference.
inline ReferenceTensor storedTensor(const TestImages& images) {
  const TensorShape shape = images.shape();
  ReferenceTensor tensor(shape.images, shape.height, shape.width, shape.channels);
  tensor.values = images.read();
  return tensor;
}

inline TestImages imagesOf(ConformRun& run, BatchForm form, const ImageDescriptor& descriptor,
                           std::size_t count, std::span<const double> values) {
  TestImages images(run.device(), form, descriptor, count);
  images.write(values);
  return images;
}

using ForwardReference = std::function<ReferenceTensor(const ReferenceTensor& source)>;
/// @param input the forward source, or its result where the gradient kernel takes that
using GradientReference =
    std::function<ReferenceTensor(const ReferenceTensor& input, const ReferenceTensor& gradient)>;

/// Encodes a batch with a given destination and judges it.
inline void runForwardKernel(ConformRun& run, CNNKernel& kernel, const TestImages& sources, BatchForm form,
                             ImageFeatureChannelFormat resultFormat, const ForwardReference& reference) {
  ImageDescriptor result = kernel.sizeDestination(sources.batch().descriptor());
  result.setChannelFormat(resultFormat);
  const TestImages results = run.destinations(form, result, sources.batch().count());
  if (!run.encode([&](const auto& commandBuffer) {
        kernel.encodeBatch(commandBuffer, sources.batch(), results.batch());
      }))
    return;
  run.require(sources.isUnchanged(), "the source was written");
  run.check(reference(sources.reference()), results, Zeros::Expected);
}

/// What a gradient kernel's call took and gave.
struct GradientImages {
  TestImages results;
  TestImages gradients;
  TestImages destinations;
  StateBatch states;
};

/// Encodes a forward kernel with gradient states and its gradient kernel behind it.
/// @param takesResult the gradient kernel takes the forward result instead of the source
/// @return false when the implementation refuses
inline bool encodeGradientKernel(ConformRun& run, CNNKernel& forward, CNNGradientKernel& gradient,
                                 const TestImages& sources, bool takesResult, const GradientImages& images) {
  const ImageBatch& input = takesResult ? images.results.batch() : sources.batch();
  const bool accepted = run.encode([&](const auto& commandBuffer) {
    forward.encodeBatch(commandBuffer, sources.batch(), images.states, images.results.batch());
    gradient.encodeBatch(commandBuffer, images.gradients.batch(), input, images.states,
                         images.destinations.batch());
  });
  if (!accepted) return false;
  run.require(sources.isUnchanged(), "the source was written");
  run.require(images.gradients.isUnchanged(), "the incoming gradient was written");
  return true;
}

/// The images and states for encodeGradientKernel.
inline GradientImages gradientImages(ConformRun& run, CNNKernel& forward, const TestImages& sources,
                                     BatchForm form, ImageFeatureChannelFormat format, RandomKind kind,
                                     double factor = 1) {
  const std::size_t count = sources.batch().count();
  ImageDescriptor source = sources.batch().descriptor();
  ImageDescriptor result = forward.sizeDestination(source);
  result.setChannelFormat(format);
  source.setChannelFormat(format);
  std::vector<double> values =
      run.values(count * result.width() * result.height() * result.featureChannels(), kind);
  for (double& value : values) value *= factor;
  return {run.destinations(form, result, count), imagesOf(run, form, result, count, values),
          run.destinations(form, source, count), forward.resultStateBatch(sources.batch())};
}

/// Encodes a forward kernel with states and its gradient kernel, and judges the gradient.
inline void runGradientKernel(ConformRun& run, CNNKernel& forward, CNNGradientKernel& gradient,
                              const TestImages& sources, BatchForm form, bool takesResult, RandomKind kind,
                              const GradientReference& reference, double factor = 1) {
  const GradientImages images = gradientImages(run, forward, sources, form, run.format(), kind, factor);
  if (!encodeGradientKernel(run, forward, gradient, sources, takesResult, images)) return;
  const ReferenceTensor input = takesResult ? storedTensor(images.results) : sources.reference();
  run.check(reference(input, images.gradients.reference()), images.destinations, Zeros::Expected);
}

}  // namespace mps::detail
