#pragma once

#include "mps/core/kernel/padding.hpp"
#include "train/network/layers.hpp"

namespace unmetal::train::detail {

/// Puts the first window of a layer where its margins say, and gives its result the size of the layer's. Of a transposed
/// convolution the margins are what is cut off.
class ExplicitPadding final : public mps::NNPadding {
 public:
  /// @param result of the layer
  ExplicitPadding(const Margins& margins, const Shape& result) : margins_(margins), result_(result) {}
  [[nodiscard]] mps::NNPaddingMethod paddingMethod() const override;
  mps::ImageDescriptor destinationImageDescriptor(std::span<const std::shared_ptr<mps::Image>> sourceImages,
                                                  std::span<const std::shared_ptr<mps::State>> sourceStates,
                                                  mps::Kernel& kernel,
                                                  const mps::ImageDescriptor& suggestedDescriptor) override;

 private:
  Margins margins_;
  Shape result_;
};

}  // namespace unmetal::train::detail
