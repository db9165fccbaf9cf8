#include "mps/core/kernel.hpp"

#include <cstdlib>

#include "mps/core/coder.hpp"
#include "mps/core/error.hpp"

namespace mps {

Kernel::Kernel(std::shared_ptr<mtl::Device> device)
    : device_(std::move(device)),
      options_(std::getenv("MPS_LOG_INFO") != nullptr ? KernelOptions::Verbose : KernelOptions::None) {
  if (!device_) throw Error("Kernel", "device", "null", "a device");
}

std::string Kernel::describe() const {
  return label_.empty() ? className() : className() + " \"" + label_ + "\"";
}

void Kernel::encode(Coder& coder) const {
  coder.codeClass(className());
  // One function lists the properties for both directions; a coder that encodes changes none.
  const_cast<Kernel*>(this)->codeProperties(coder);
}

void Kernel::decodeProperties(Coder& coder) {
  coder.codeClass(className());
  const std::shared_ptr<mtl::Device> outer = coder.device();
  coder.setDevice(device_);
  codeProperties(coder);
  coder.setDevice(outer);
  coder.checkAllRead();
}

void Kernel::codeProperties(Coder& coder) {
  constexpr KernelOptions coded = KernelOptions::AllowReducedPrecision |
                                  KernelOptions::DisableInternalTiling | KernelOptions::InsertDebugGroups |
                                  KernelOptions::Verbose;
  KernelOptions options =
      static_cast<KernelOptions>(static_cast<std::uint64_t>(options_) & static_cast<std::uint64_t>(coded));
  coder.codeBits("options", options, coded);
  if (coder.isDecoding()) options_ = options;
  coder.code("label", label_);
}

std::shared_ptr<Kernel> Kernel::copy(const std::shared_ptr<mtl::Device>& device) const {
  auto other = clone();
  if (device) other->device_ = device;
  other->didCopy(other->device_ != device_);
  return other;
}

}  // namespace mps
