#pragma once

#include <cstddef>
#include <vector>

#include "mps/core/image/image_descriptor.hpp"
#include "mps/core/types/types.hpp"
#include "mps/graph/compile/graph_program.hpp"

namespace mps::detail {

/// Which images of a program, once their sizes are known, live in the memory of another one.
struct ImageReuse {
  std::vector<ImageIndex> memoryOf;   ///< of every image: the image whose memory it takes over, or itself
  std::vector<bool> leavesOut;        ///< of every step: its work is done by another one
  std::vector<bool> accumulates;      ///< of every step: adds to its result instead of overwriting it
  std::vector<std::size_t> firstUse;  ///< of every image that is its own memory: the step that writes it
  std::vector<std::size_t> lastUse;   ///< of every image that is its own memory: the last step that needs it
  /// Of every step: of a neuron's gradient, what it adds to its first source; of a step in `sums`, what it adds to its
  /// result; nowhere of others.
  std::vector<ImageIndex> addends;
  /// Of every step: the addition with ReLU whose work it does; nowhere of others.
  std::vector<StepIndex> sums;

  /// Of every step: of the gradient of a source of a concatenation, the step of a neighbouring source's that is done
  /// along with it; nowhere of others.
  std::vector<StepIndex> partners;

  /// The image that owns the memory.
  [[nodiscard]] ImageIndex ownerOf(ImageIndex image) const {
    while (memoryOf[image] != image) image = memoryOf[image];
    return image;
  }
};

/// Whether the step is x + y, element for element, and nobody wants its gradient.
bool isPlainSum(const GraphProgram& program, const ProgramStep& step);

/// Nothing shared.
ImageReuse noReuse(const GraphProgram& program);

/// Pass: the source of a neuron is not kept for the neuron's gradient, where what the neuron has saved is enough. Comes before
/// all others.
/// @param offsets CNNKernel::placement of every step with a unary kernel
void forgetNeuronSources(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes,
                         const std::vector<Offset>& offsets, ImageReuse& reuse);

/// Pass: the gradient of a sum or difference is the one that comes in, so its memory is that one's, and the step
/// that copies it is left out. Several images may then be the same elements, all of which are read; who writes over
/// them has to be the last one that reads any of them.
void shareGradients(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes,
                    ImageReuse& reuse);

/// Pass: where gradients meet, the kernel that makes the later one adds it to the earlier one, and the add
/// step is left out. Only in float32, where both are private to that step, nobody reads the earlier one's memory as
/// another image from then on, and the kernel can add.
void accumulateGradients(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes,
                         ImageReuse& reuse);

/// Pass: where gradients meet at a neuron that was fused into the kernel before it, that neuron's gradient adds them
/// while it reads them, and the add step is left out: its result is in no memory, and in float16 it is not rounded.
/// Only where all have one format and nobody else reads the sum. Comes behind accumulateGradients, which saves as
/// much without a third input.
void addInNeuronGradients(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes,
                          ImageReuse& reuse);

/// Pass: an addition with ReLU behind a step that can add a second source (KernelRoles) is left out: that step writes its
/// result, and in float16 the first summand is not rounded. Where all have one size and format, nobody else reads the first
/// summand, and the second one is there before. Comes behind shareGradients, which says who needs the addition's state.
void addSecondSources(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes,
                      ImageReuse& reuse);

/// Pass: the gradients of two neighbouring sources of a concatenation are made in one pass over the incoming gradient,
/// when the first of them is due, and the other step is left out. Where both overwrite memory of their own.
void splitInPairs(const GraphProgram& program, ImageReuse& reuse);

/// Pass: a kernel that works in place writes over its source when nobody reads that afterwards.
/// @param offsets CNNKernel::placement of every step with a unary kernel
void workInPlace(const GraphProgram& program, const std::vector<ImageDescriptor>& sizes,
                 const std::vector<Offset>& offsets, ImageReuse& reuse);

}  // namespace mps::detail
