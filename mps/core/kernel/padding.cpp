#include "mps/core/kernel/padding.hpp"

#include "mps/core/coding/coder.hpp"
#include "mps/core/coding/core_decoders.hpp"
#include "mps/core/kernel/cnn_binary_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/types/error.hpp"

namespace mps {
namespace {

constexpr NNPaddingMethod definedBits = NNPaddingMethod::AlignMask | NNPaddingMethod::AddRemainderToMask |
                                        NNPaddingMethod::SizeSame | NNPaddingMethod::SizeFull |
                                        NNPaddingMethod::CustomWhitelistForNodeFusion |
                                        NNPaddingMethod::Custom | NNPaddingMethod::ExcludeEdges;

/// "AlignTopLeft | SizeSame"; bits without a name as one number.
std::string nameOf(NNPaddingMethod method) {
  struct Named {
    NNPaddingMethod mask, value;
    const char* name;
  };
  using enum NNPaddingMethod;
  constexpr Named values[] = {
      {SizeMask, SizeValidOnly, "SizeValidOnly"},
      {SizeMask, SizeSame, "SizeSame"},
      {SizeMask, SizeFull, "SizeFull"},
      {AlignMask, AlignCentered, "AlignCentered"},
      {AlignMask, AlignTopLeft, "AlignTopLeft"},
      {AlignMask, AlignBottomRight, "AlignBottomRight"},
      {AddRemainderToMask, AddRemainderToTopLeft, "AddRemainderToTopLeft"},
      {AddRemainderToMask, AddRemainderToTopRight, "AddRemainderToTopRight"},
      {AddRemainderToMask, AddRemainderToBottomLeft, "AddRemainderToBottomLeft"},
      {AddRemainderToMask, AddRemainderToBottomRight, "AddRemainderToBottomRight"},
      {CustomWhitelistForNodeFusion, CustomWhitelistForNodeFusion, "CustomWhitelistForNodeFusion"},
      {Custom, Custom, "Custom"},
      {ExcludeEdges, ExcludeEdges, "ExcludeEdges"}};
  std::string text;
  auto unnamed = static_cast<std::uint64_t>(method);
  for (const Named& one : values) {
    if ((method & one.mask) != one.value) continue;
    unnamed &= ~static_cast<std::uint64_t>(one.mask);
    if (static_cast<std::uint64_t>(one.value) == 0) continue;  // what a policy is by itself
    text += (text.empty() ? "" : " | ") + std::string(one.name);
  }
  if (unnamed != 0) text += (text.empty() ? "" : " | ") + std::to_string(unnamed);
  return text;
}

/// What is to be there instead of bits that are not defined; nothing when all are.
std::string definedInstead(NNPaddingMethod method) {
  if ((method & NNPaddingMethod::AlignMask) == NNPaddingMethod::AlignMask)
    return "AlignCentered, AlignTopLeft or AlignBottomRight";
  const NNPaddingMethod size = method & NNPaddingMethod::SizeMask;
  if (size != NNPaddingMethod::SizeValidOnly && size != NNPaddingMethod::SizeSame &&
      size != NNPaddingMethod::SizeFull)
    return "SizeValidOnly, SizeSame or SizeFull";
  if ((method & definedBits) != method) return "bits that have a name";
  return {};
}

bool hasBits(NNPaddingMethod method, NNPaddingMethod bits) {
  return (method & bits) == bits;
}

std::int64_t sizeStyle(NNPaddingMethod method) {
  const NNPaddingMethod size = method & NNPaddingMethod::SizeMask;
  if (size == NNPaddingMethod::SizeSame) return 0;
  return size == NNPaddingMethod::SizeFull ? 1 : -1;
}

std::int64_t leftPadding(NNPaddingMethod method, bool remainderFirst, std::int64_t missing) {
  switch (method & NNPaddingMethod::AlignMask) {
    case NNPaddingMethod::AlignTopLeft:
      return missing;
    case NNPaddingMethod::AlignBottomRight:
      return 0;
    default:
      return (missing + (remainderFirst ? 1 : 0)) / 2;  // truncates: the published helper does
  }
}

}  // namespace

ImageDescriptor NNPadding::destinationImageDescriptor(
    std::span<const std::shared_ptr<Image>> /*sourceImages*/,
    std::span<const std::shared_ptr<State>> /*sourceStates*/, Kernel& kernel, const ImageDescriptor&) {
  throw Error(kernel.describe(), "padding", "a custom policy without destinationImageDescriptor",
              "an override of that method");
}

std::shared_ptr<NNDefaultPadding> NNDefaultPadding::create(NNPaddingMethod method) {
  if (hasBits(method, NNPaddingMethod::Custom))
    throw Error("NNDefaultPadding", "paddingMethod", "custom", "bits without Custom; derive from NNPadding");
  return std::shared_ptr<NNDefaultPadding>(
      new NNDefaultPadding(detail::checkedPaddingMethod("NNDefaultPadding", "paddingMethod", method)));
}

std::shared_ptr<NNDefaultPadding> NNDefaultPadding::paddingForTensorflowAveragePooling() {
  return std::shared_ptr<NNDefaultPadding>(new NNDefaultPadding(
      NNPaddingMethod::Custom | NNPaddingMethod::SizeSame | NNPaddingMethod::AddRemainderToBottomRight));
}

std::shared_ptr<NNDefaultPadding> NNDefaultPadding::paddingForTensorflowAveragePoolingValidOnly() {
  return std::shared_ptr<NNDefaultPadding>(new NNDefaultPadding(
      NNPaddingMethod::Custom | NNPaddingMethod::SizeValidOnly | NNPaddingMethod::AddRemainderToBottomRight));
}

void NNDefaultPadding::encode(Coder& coder) const {
  coder.codeClass(className());
  coder.encode("paddingMethod", static_cast<std::uint64_t>(method_));
}

std::shared_ptr<NNDefaultPadding> NNDefaultPadding::decode(Coder& coder) {
  detail::checkDecodes(coder, "NNDefaultPadding");
  auto policy = padding(NNPaddingMethod::AlignCentered);
  coder.codeClass(policy->className());
  coder.codeBits("paddingMethod", policy->method_, definedBits);
  if (const std::string expected = definedInstead(policy->method_); !expected.empty())
    coder.refuse("paddingMethod", nameOf(policy->method_), expected);
  return policy;
}

std::string NNDefaultPadding::label() const {
  constexpr const char* aligns[] = {"centered", "top left", "bottom right"};
  constexpr const char* remainders[] = {"top left", "top right", "bottom left", "bottom right"};
  const auto bits = static_cast<std::uint64_t>(method_);
  const std::int64_t style = sizeStyle(method_);
  std::string text = style < 0 ? "valid" : style == 0 ? "same" : "full";
  text += std::string(", ") + aligns[bits & 3U] + ", remainder " + remainders[(bits >> 2U) & 3U];
  if (hasBits(method_, NNPaddingMethod::Custom)) text += ", edge mode clamp";
  return text;
}

ImageDescriptor NNDefaultPadding::destinationImageDescriptor(std::span<const std::shared_ptr<Image>>,
                                                             std::span<const std::shared_ptr<State>>,
                                                             Kernel& kernel,
                                                             const ImageDescriptor& suggestedDescriptor) {
  if (auto* unary = dynamic_cast<CNNKernel*>(&kernel)) unary->setEdgeMode(ImageEdgeMode::Clamp);
  if (auto* binary = dynamic_cast<CNNBinaryKernel*>(&kernel))
    binary->setSecondaryEdgeMode(ImageEdgeMode::Clamp);
  return suggestedDescriptor;
}

std::shared_ptr<NNPadding> NNDefaultPadding::inverse() const {
  auto bits = static_cast<std::uint64_t>(method_) &
              ~static_cast<std::uint64_t>(NNPaddingMethod::Custom | NNPaddingMethod::SizeMask);
  switch (sizeStyle(method_)) {
    case -1:
      bits |= static_cast<std::uint64_t>(NNPaddingMethod::SizeFull);
      break;
    case 0:
      bits |= static_cast<std::uint64_t>(NNPaddingMethod::SizeSame);
      bits ^= static_cast<std::uint64_t>(NNPaddingMethod::AddRemainderToMask);
      break;
    default:
      break;
  }
  return padding(static_cast<NNPaddingMethod>(bits));
}

namespace detail {

NNPaddingMethod checkedPaddingMethod(const std::string& owner, const char* argument, NNPaddingMethod method) {
  if (const std::string expected = definedInstead(method); !expected.empty())
    throw Error(owner, argument, nameOf(method), expected);
  return method;
}

std::int64_t forwardOffset(NNPaddingMethod method, bool remainderFirst, std::int64_t sourceSize,
                           std::int64_t destinationSize, std::int64_t dilatedSize, std::int64_t stride) {
  const std::int64_t missing = (destinationSize - 1) * stride + dilatedSize - sourceSize;
  return dilatedSize / 2 - leftPadding(method, remainderFirst, missing);
}

PaddedAxis forwardPadding(NNPaddingMethod method, bool remainderFirst, std::int64_t sourceSize,
                          std::int64_t dilatedSize, std::int64_t stride) {
  const std::int64_t covered = sourceSize + sizeStyle(method) * (dilatedSize - 1);
  if (covered < 1) return {0, 0};
  const std::int64_t size = (covered - 1) / stride + 1;
  return {size, forwardOffset(method, remainderFirst, sourceSize, size, dilatedSize, stride)};
}

PaddedAxis backwardPadding(NNPaddingMethod method, bool remainderFirst, std::int64_t sourceSize,
                           std::int64_t dilatedSize, std::int64_t stride) {
  const std::int64_t style = sizeStyle(method);
  const std::int64_t padding = (style + 1) * (dilatedSize - 1);
  return {(sourceSize - 1) * stride + 1 + style * (dilatedSize - 1),
          dilatedSize / 2 - leftPadding(method, remainderFirst, padding)};
}

const std::shared_ptr<NNPadding>& defaultPadding() {
  static const std::shared_ptr<NNPadding> padding = NNDefaultPadding::create(NNPaddingMethod::SizeSame);
  return padding;
}

}  // namespace detail
}  // namespace mps
