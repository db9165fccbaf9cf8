#pragma once

#include <functional>

#include "fuzz/random_calls/call.hpp"

namespace mps {
class CNNGradientKernel;
class CNNKernel;
class StateBatch;
}  // namespace mps

namespace unmetal::random_calls {

/// What callLayer has to know of a kernel.
struct LayerCall {
  Numbers numbers = Numbers::Uniform;  ///< of the source
  bool gradientReadsResult = false;    ///< and not the source
  bool anySizeOfResult = true;         ///< a destination need not have the size that the kernel proposes
  bool mayBeInPlace = false;
  Tolerance result;
  Tolerance gradient;
  /// What the gradient kernel leaves in the states.
  std::function<void(const mps::StateBatch&)> observeStates;
};

/// Encodes a kernel with one source and, where there is one, its gradient kernel, in one of the forms of encode: with images
/// of the caller or of the kernel, alone or in batches, stacks, parts of batches, in one or two command buffers.
void callLayer(Call& call, mps::CNNKernel& kernel, mps::CNNGradientKernel* gradientKernel,
               const mps::ImageDescriptor& source, const LayerCall& layer);

}  // namespace unmetal::random_calls
