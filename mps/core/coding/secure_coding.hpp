#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace mtl {
class Device;
}

namespace mps {

class Coder;

/// How large decoded objects may be: the one limit for all coded data, given to the coder that decodes
/// (KeyedUnarchiver). Coded data need not be trusted, and a few bytes can name a window of a billion pixels. What is
/// beyond a limit throws Error with the property, what was found and the limit: when it is decoded, or at the encode
/// that would take so much memory. Kernels that were made by create have no such limits.
struct CodingLimits {
  /// Largest size of a kernel over images: sides of windows, strides, dilation rates, paddings, channels and channel
  /// offsets, sides of results, origins and sides of clip rectangles.
  std::uint64_t size = std::uint64_t{1} << 20U;
  /// Most elements of a window, width x height: what an element of a result costs in time.
  std::uint64_t windowElements = std::uint64_t{1} << 20U;
  /// Most bytes that an encode of a decoded kernel takes for an image that it makes, and for the memory that it works
  /// in; for each image of a batch.
  std::uint64_t bytes = std::uint64_t{1} << 30U;
};

/// An object that can be written to coded data and made again from it (protocol NSSecureCoding; docs/decisions.md,
/// D1).
///
/// Kernels are, and so are the objects that a kernel refers to: padding policies, image allocators, data sources, handles.
/// A class of your own that takes the place of one of these overrides both functions, and whoever decodes tells the
/// coder how to make one (KeyedUnarchiver::setDecoder).
class SecureCoding {
 public:
  virtual ~SecureCoding() = default;
  /// The name under which the decoder is found. Empty, the default: objects of the class cannot be coded.
  [[nodiscard]] virtual std::string className() const { return {}; }
  /// Writes className() (Coder::codeClass) and what the decoder wants. @throws Error, the default: cannot be coded
  virtual void encode(Coder& coder) const;

 protected:
  SecureCoding() = default;
  SecureCoding(const SecureCoding&) = default;
  SecureCoding& operator=(const SecureCoding&) = default;
};

/// Names the device for what is decoded (protocol MPSDeviceProvider). A coder may be one.
class DeviceProvider {
 public:
  virtual ~DeviceProvider() = default;
  /// null: the system's default device.
  [[nodiscard]] virtual std::shared_ptr<mtl::Device> mpsMTLDevice() const = 0;

 protected:
  DeviceProvider() = default;
  DeviceProvider(const DeviceProvider&) = default;
  DeviceProvider& operator=(const DeviceProvider&) = default;
};

}  // namespace mps
