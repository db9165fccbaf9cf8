#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "mps/core/kernel/padding.hpp"

namespace mps::detail {

/// Puts the first window of a kernel so many pixels outside its source, and says the size of the result. Of a transposed
/// convolution the margins are what is cut off. Policies made of bits know no margins of other libraries. The library's own.
class ExplicitPadding final : public NNPadding {
 public:
  struct Geometry {
    std::size_t left = 0;
    std::size_t top = 0;
    std::size_t width = 0;  ///< of the result
    std::size_t height = 0;
  };

  explicit ExplicitPadding(const Geometry& geometry) : geometry_(geometry) {}
  [[nodiscard]] const Geometry& geometry() const { return geometry_; }
  [[nodiscard]] NNPaddingMethod paddingMethod() const override;
  /// @throws Error for a kernel without windows
  ImageDescriptor destinationImageDescriptor(std::span<const std::shared_ptr<Image>> sourceImages,
                                             std::span<const std::shared_ptr<State>> sourceStates,
                                             Kernel& kernel,
                                             const ImageDescriptor& suggestedDescriptor) override;
  [[nodiscard]] std::string className() const override { return "ExplicitPadding"; }
  void encode(Coder& coder) const override;
  static std::shared_ptr<ExplicitPadding> decode(Coder& coder);

 private:
  static void code(Coder& coder, Geometry& geometry);

  Geometry geometry_;
};

}  // namespace mps::detail
