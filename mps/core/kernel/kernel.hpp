#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "mps/core/coding/secure_coding.hpp"
#include "mps/core/types/types.hpp"

namespace mtl {
class Device;
}

namespace mps {

namespace detail {
template <class KernelType>
std::shared_ptr<KernelType> decodeAs(Coder& coder, const std::shared_ptr<mtl::Device>& device);

/// Says that the kernel gets its properties from a coder. decodeAs alone has one.
class Decoding {
  Decoding() = default;
  template <class KernelType>
  friend std::shared_ptr<KernelType> decodeAs(Coder& coder, const std::shared_ptr<mtl::Device>& device);
};
}  // namespace detail

/// Base of everything that encodes work (MPSKernel).
///
/// Kernels are cheap, shared and meant to be reused (docs/decisions.md, D13): `create` of a class returns a shared
/// pointer, copy() makes another, and states keep their kernel alive. One kernel is used by one thread at a time;
/// make copies for others. All properties are read when encoding: later changes do not touch recorded work.
///
/// A kernel is written to a coder by encode(coder) and made again by the static decode(coder, device) of its class
/// (docs/decisions.md, D1). Without a device it is made on the one that the coder names (DeviceProvider), otherwise on
/// the system's default device. The result computes the same bits. No work of the kernel may be in flight.
///
/// All properties go along, also which of them the user has set, and seeds and counters of random kernels. Of weights the
/// data source goes along where its class can be coded, otherwise what it holds, and what was reloaded since.
/// KernelOptions::SkipAPIValidation alone does not: coded data need not be trusted. A decoded kernel, and each copy of
/// it, is held to the coder's CodingLimits. encode throws Error for an object of a class that cannot be coded, decode
/// for what is wrong with the data.
class Kernel : public SecureCoding, public std::enable_shared_from_this<Kernel> {
 public:
  /// For decode: every class that decodeAs makes has it, most by inheritance.
  Kernel(std::shared_ptr<mtl::Device> device, detail::Decoding /*decoding*/) : Kernel(std::move(device)) {}
  Kernel& operator=(const Kernel&) = delete;

  [[nodiscard]] const std::shared_ptr<mtl::Device>& device() const { return device_; }
  /// None by default, Verbose when the environment has MPS_LOG_INFO. SkipAPIValidation skips all checks but
  /// those for memory.
  [[nodiscard]] KernelOptions options() const { return options_; }
  virtual void setOptions(KernelOptions options) { options_ = options; }
  /// Name for messages and debugging; empty by default.
  [[nodiscard]] const std::string& label() const { return label_; }
  void setLabel(std::string label) { label_ = std::move(label); }
  /// The class name, e.g. "CNNPoolingMax".
  [[nodiscard]] std::string className() const override = 0;
  /// Class name and label: `CNNPoolingMax "pool1"`.
  [[nodiscard]] std::string describe() const;

  /// Another kernel with the same properties. A kernel with a data source asks it for its copy(), on the same device as on
  /// another, and reads that; where it gives null, both kernels have the source. @param device
  /// null means the same device
  [[nodiscard]] std::shared_ptr<Kernel> copy(const std::shared_ptr<mtl::Device>& device = nullptr) const;
  void encode(Coder& coder) const override;

  /// @name The library's own
  /// @{
  /// For a decoded kernel. @throws Error when an encode would take more for an image than
  /// CodingLimits::bytes. @param what e.g. "destinationImage"
  void checkDecodedBytes(const char* what, double bytes) const;
  /// @}

 protected:
  /// @throws Error when the device is null.
  explicit Kernel(std::shared_ptr<mtl::Device> device);
  Kernel(const Kernel&) = default;
  /// A copy of the most derived object on the same device.
  [[nodiscard]] virtual std::shared_ptr<Kernel> clone() const = 0;
  /// Of a copy, which has its device now: data sources, weights and such go along.
  /// @param hasMoved whether that is another device than the original's
  virtual void didCopy(bool /*hasMoved*/) {}
  /// Writes or reads all properties, those of the base class first, and checks what was read as create does.
  virtual void codeProperties(Coder& coder);
  /// Of a kernel whose properties were read. @throws Error for more elements than CodingLimits::windowElements
  virtual void checkDecodedWindow(const Coder& /*coder*/) const {}
  static void checkWindowElements(const Coder& coder, std::size_t width, std::size_t height);

 private:
  template <class KernelType>
  friend std::shared_ptr<KernelType> detail::decodeAs(Coder& coder,
                                                      const std::shared_ptr<mtl::Device>& device);
  void decodeProperties(Coder& coder);

  std::shared_ptr<mtl::Device> device_;
  KernelOptions options_;
  std::string label_;
  std::uint64_t mostDecodedBytes_ = std::numeric_limits<std::uint64_t>::max();
};

namespace detail {
/// Kernel::copy with the type of the kernel kept.
template <class KernelType>
std::shared_ptr<KernelType> copyAs(const KernelType& kernel,
                                   const std::shared_ptr<mtl::Device>& device = nullptr) {
  return std::static_pointer_cast<KernelType>(kernel.Kernel::copy(device));
}

/// That device, where it is not null; otherwise the one that decode(coder) takes.
std::shared_ptr<mtl::Device> deviceToDecodeOn(const Coder& coder, const std::shared_ptr<mtl::Device>& device);

/// A kernel of that very class from the object at hand.
template <class KernelType>
std::shared_ptr<KernelType> decodeAs(Coder& coder, const std::shared_ptr<mtl::Device>& device) {
  auto kernel = std::make_shared<KernelType>(deviceToDecodeOn(coder, device), Decoding());
  static_cast<Kernel&>(*kernel).decodeProperties(coder);
  return kernel;
}
}  // namespace detail

}  // namespace mps
