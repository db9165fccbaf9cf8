#pragma once

#include <memory>
#include <string>

#include "mps/core/types.hpp"

namespace mtl {
class Device;
}

namespace mps {

/// Base of everything that encodes work (MPSKernel; spec/01 section 3).
///
/// Kernels are cheap and meant to be reused. One kernel is used by one thread at a time; make copies for
/// others. All properties are read when encoding: later changes do not touch recorded work.
class Kernel : public std::enable_shared_from_this<Kernel> {
 public:
  virtual ~Kernel() = default;
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
  [[nodiscard]] virtual std::string className() const = 0;
  /// Class name and label: `CNNPoolingMax "pool1"`.
  [[nodiscard]] std::string describe() const;

  /// Another kernel with the same properties. @param device null means the same device
  [[nodiscard]] std::shared_ptr<Kernel> copy(const std::shared_ptr<mtl::Device>& device = nullptr) const;

 protected:
  /// @throws Error when the device is null.
  explicit Kernel(std::shared_ptr<mtl::Device> device);
  Kernel(const Kernel&) = default;
  /// A copy of the most derived object on the same device.
  [[nodiscard]] virtual std::shared_ptr<Kernel> clone() const = 0;
  /// The copy now belongs to another device: weights and such go along.
  virtual void didMoveToDevice() {}

 private:
  std::shared_ptr<mtl::Device> device_;
  KernelOptions options_;
  std::string label_;
};

namespace detail {
/// Kernel::copy with the type of the kernel kept.
template <class KernelType>
std::shared_ptr<KernelType> copyAs(const KernelType& kernel,
                                   const std::shared_ptr<mtl::Device>& device = nullptr) {
  return std::static_pointer_cast<KernelType>(kernel.Kernel::copy(device));
}
}  // namespace detail

}  // namespace mps
