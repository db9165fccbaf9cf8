#include "mps/core/kernel/kernel.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "mps/core/coding/coder.hpp"
#include "mps/core/coding/core_decoders.hpp"
#include "mps/core/types/error.hpp"

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
  detail::checkDecodes(coder, className());
  coder.codeClass(className());
  const std::shared_ptr<mtl::Device> outer = coder.device();
  coder.setDevice(device_);
  codeProperties(coder);
  coder.setDevice(outer);
  checkDecodedWindow(coder);
  mostDecodedBytes_ = coder.limits().bytes;
  coder.checkAllRead();
}

void Kernel::checkWindowElements(const Coder& coder, std::size_t width, std::size_t height) {
  const std::uint64_t most = coder.limits().windowElements;
  if (height > 0 && width > most / height)
    coder.refuse("kernelWidth", std::to_string(width) + " x " + std::to_string(height),
                 "a window of at most " + std::to_string(most) + " elements (CodingLimits::windowElements)");
}

void Kernel::checkDecodedBytes(const char* what, double bytes) const {
  constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
  if (mostDecodedBytes_ == none || bytes <= static_cast<double>(mostDecodedBytes_)) return;
  constexpr double most = 0x1p63;
  throw Error(
      describe(), what,
      std::to_string(static_cast<std::uint64_t>(std::min(bytes, most))) + " bytes for an image",
      "at most " + std::to_string(mostDecodedBytes_) + " for a kernel from coded data (CodingLimits::bytes)");
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
