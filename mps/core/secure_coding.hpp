#pragma once

#include <memory>
#include <string>

namespace mtl {
class Device;
}

namespace mps {

class Coder;

/// An object that can be written to coded data and made again from it (protocol NSSecureCoding; spec/00 D1).
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

/// Names the device for what is decoded (protocol MPSDeviceProvider; spec/01 section 3.2). A coder may be one.
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
