#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "mps/core/image/image_descriptor.hpp"
#include "mps/core/kernel/cnn_binary_kernel.hpp"

/// Sizing that kernels share, whatever the number of their sources. The library's own.
namespace mps::detail {

/// One source of a kernel with several.
struct SourceOfSize {
  SourceProperties* properties;
  ImageDescriptor image;

  /// Channels that the kernel reads of it.
  [[nodiscard]] std::size_t featureChannelsRead() const;
};

/// Size of the destination, with 1 feature channel, by the padding method on the first source; each source
/// gets its own offset against it. @param argument names the first source. @throws Error when no window fits.
ImageDescriptor sizeBySources(const Kernel& kernel, const char* argument, NNPaddingMethod method,
                              std::span<const SourceOfSize> sources);

/// What source states, in order, and then the policy's own hook make of a size.
ImageDescriptor askHooks(Kernel& kernel, NNPadding& padding,
                         std::span<const std::shared_ptr<Image>> sourceImages,
                         std::span<const std::shared_ptr<State>> sourceStates, ImageDescriptor descriptor);

}  // namespace mps::detail
