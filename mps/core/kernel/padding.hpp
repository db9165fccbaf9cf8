#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "mps/core/coding/secure_coding.hpp"
#include "mps/core/image/image_descriptor.hpp"

namespace mps {

class Image;
class Kernel;
class State;

/// Bits of a padding policy (MPSNNPaddingMethod). Others, alignment 3 and sizes but these three are
/// Apple's to define: policies with them are refused where they are made, decoded and used.
enum class NNPaddingMethod : std::uint64_t {
  AlignCentered = 0,
  AlignTopLeft = 1,      ///< all padding at the top and left
  AlignBottomRight = 2,  ///< all padding at the bottom and right
  AlignMask = 3,
  AddRemainderToTopLeft = 0,
  AddRemainderToTopRight = 4,
  AddRemainderToBottomLeft = 8,
  AddRemainderToBottomRight = 12,
  AddRemainderToMask = 12,
  SizeValidOnly = 0,
  SizeSame = 0x10,
  SizeFull = 0x20,
  SizeMask = 0x7F0,
  CustomWhitelistForNodeFusion = 0x2000,
  Custom = 0x4000,
  ExcludeEdges =
      0x8000,  ///< kept and coded alone: edge mode Clamp and zeroPadSize of an average pooling say it
};
constexpr NNPaddingMethod operator|(NNPaddingMethod a, NNPaddingMethod b) {
  return static_cast<NNPaddingMethod>(static_cast<std::uint64_t>(a) | static_cast<std::uint64_t>(b));
}
constexpr NNPaddingMethod operator&(NNPaddingMethod a, NNPaddingMethod b) {
  return static_cast<NNPaddingMethod>(static_cast<std::uint64_t>(a) & static_cast<std::uint64_t>(b));
}

/// Decides the size of a kernel's destination and the kernel's offset (protocol MPSNNPadding). Only the encodes
/// that return an image ask it; those with a given destination use the kernel as it is.
///
///     style       = -1 ValidOnly, 0 Same, +1 Full
///     destination = ceil((source + style * (dilatedSize - 1)) / stride)                forward kernels
///     destination = (source - 1) * stride + 1 + style * (dilatedSize - 1)              enlarging kernels
///     missing     = (destination - 1) * stride + dilatedSize - source
///     offset      = floor(dilatedSize / 2) - left
///     left        = (missing + remainderLeft) / 2, towards zero, when centred;
///                   missing for AlignTopLeft, 0 for AlignBottomRight
///
/// Derive from it for a policy of your own: set the bit Custom and override destinationImageDescriptor, which
/// may also change the kernel (offset, edge mode, channel ranges). A kernel asks at each encode that returns an image; changes
/// stay, only the offset is computed anew. A graph asks once for each set of source sizes (NNGraph says what it keeps). Kernels
/// with a policy of your own can be coded when it overrides what SecureCoding asks for.
class NNPadding : public SecureCoding {
 public:
  /// Asked when a destination is sized, which throws Error for bits that are not defined.
  [[nodiscard]] virtual NNPaddingMethod paddingMethod() const = 0;
  /// For people.
  [[nodiscard]] virtual std::string label() const { return {}; }
  /// Called when Custom is set. @param sourceImages 1 for unary kernels, 2 for binary and gradient kernels
  /// @return the descriptor to use. The default throws Error: Custom needs an override.
  virtual ImageDescriptor destinationImageDescriptor(std::span<const std::shared_ptr<Image>> sourceImages,
                                                     std::span<const std::shared_ptr<State>> sourceStates,
                                                     Kernel& kernel,
                                                     const ImageDescriptor& suggestedDescriptor);
  /// The policy of the gradient pass; null means "take the geometry from the gradient state".
  [[nodiscard]] virtual std::shared_ptr<NNPadding> inverse() const { return nullptr; }
};

/// Policies made of bits, and the two that TensorFlow's pooling needs (MPSNNDefaultPadding).
class NNDefaultPadding : public NNPadding {
 public:
  /// Exactly these bits. @throws Error when Custom is among them, and for bits that are not defined.
  static std::shared_ptr<NNDefaultPadding> create(NNPaddingMethod method);
  /// Apple's name of create.
  static std::shared_ptr<NNDefaultPadding> padding(NNPaddingMethod method) { return create(method); }
  /// TensorFlow SAME: Same, centred, remainder to the bottom right, and edge mode Clamp on the kernel, so
  /// that an average counts the pixels inside the image only.
  static std::shared_ptr<NNDefaultPadding> paddingForTensorflowAveragePooling();
  /// TensorFlow VALID, likewise.
  static std::shared_ptr<NNDefaultPadding> paddingForTensorflowAveragePoolingValidOnly();

  [[nodiscard]] NNPaddingMethod paddingMethod() const override { return method_; }
  [[nodiscard]] std::string label() const override;
  ImageDescriptor destinationImageDescriptor(std::span<const std::shared_ptr<Image>> sourceImages,
                                             std::span<const std::shared_ptr<State>> sourceStates,
                                             Kernel& kernel,
                                             const ImageDescriptor& suggestedDescriptor) override;
  /// ValidOnly and Full change places, Same stays and swaps its remainder side (docs/decisions.md, D19); never
  /// custom.
  [[nodiscard]] std::shared_ptr<NNPadding> inverse() const override;
  [[nodiscard]] std::string className() const override { return "NNDefaultPadding"; }
  void encode(Coder& coder) const override;
  static std::shared_ptr<NNDefaultPadding> decode(Coder& coder);

 private:
  explicit NNDefaultPadding(NNPaddingMethod method) : method_(method) {}
  NNPaddingMethod method_;
};

namespace detail {

/// One axis of the built-in computation.
struct PaddedAxis {
  std::int64_t destinationSize = 0;
  std::int64_t offset = 0;
};

/// Offset of a forward kernel on one axis, in a source against a destination of any size.
std::int64_t forwardOffset(NNPaddingMethod method, bool remainderFirst, std::int64_t sourceSize,
                           std::int64_t destinationSize, std::int64_t dilatedSize, std::int64_t stride);
/// Size and offset of a forward kernel on one axis. `remainderFirst`: the odd pixel goes to the left or top.
/// A destinationSize below 1 means that no window fits.
PaddedAxis forwardPadding(NNPaddingMethod method, bool remainderFirst, std::int64_t sourceSize,
                          std::int64_t dilatedSize, std::int64_t stride);
/// Size and kernelOffset of an enlarging kernel on one axis.
PaddedAxis backwardPadding(NNPaddingMethod method, bool remainderFirst, std::int64_t sourceSize,
                           std::int64_t dilatedSize, std::int64_t stride);
/// The bits of a policy. @throws Error, in the name of `owner` and its `argument`, for some that are not defined
NNPaddingMethod checkedPaddingMethod(const std::string& owner, const char* argument, NNPaddingMethod method);
/// Whether the odd pixel goes to the left (x) or top (y).
constexpr bool remainderToLeft(NNPaddingMethod method) {
  return (static_cast<std::uint64_t>(method) & 4U) == 0;
}
constexpr bool remainderToTop(NNPaddingMethod method) {
  return (static_cast<std::uint64_t>(method) & 8U) == 0;
}
/// The default of the base classes: Same, centred, remainder to the top left.
const std::shared_ptr<NNPadding>& defaultPadding();

}  // namespace detail
}  // namespace mps
