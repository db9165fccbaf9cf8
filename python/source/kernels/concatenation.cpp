#include "mps/concatenation/concatenation.hpp"

#include <vector>

#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {

void bindConcatenation(nb::module_& module) {
  using namespace mps;
  auto forward = kernelClass<NNConcatenation, CNNMultiaryKernel>(
      module, "NNConcatenation",
      "Puts the channels of its sources side by side:\n\n"
      "    out[destination_feature_channel_offset + first(i) + c] = source i[c]\n"
      "    first(i) = sum over j < i of channels(j), each rounded up to a multiple of channel_alignment\n\n"
      "The channels that round a part up, the last one too, become 0: of 23, 5 and 8 channels alignment 4 "
      "makes 40, alignment "
      "1 makes 36. Sources: every format, of one width and height; destinations: float16, float32. Encoding "
      "raises Error when "
      "sizes differ, when an offset leads beyond a source, and for strides other than 1.");
  forward.def(nb::new_(&NNConcatenation::create), "device"_a, "source_count"_a,
              "Raises Error for 0 sources.");
  property(forward, "channel_alignment", &NNConcatenation::channelAlignment,
           &NNConcatenation::setChannelAlignment,
           "What each part is rounded up to a multiple of: 4, Apple's rule, or 1, nothing between the parts. "
           "4. Raises Error for another number.");
  auto gradient = kernelClass<NNConcatenationGradient, CNNGradientKernel>(
      module, "NNConcatenationGradient",
      "The gradient of one source of an NNConcatenation: dSource[c] = g[first + c]. An incoming gradient "
      "with "
      "fewer channels "
      "than the forward result is taken to begin with the slice. What was not read gets 0. Of `source_image` "
      "only the size "
      "counts. Without a state the properties of the base class say where the slice begins.");
  gradient.def(nb::new_(&NNConcatenationGradient::create), "device"_a, "source_index"_a,
               "`source_index`: the source of the forward kernel that the gradient belongs to.");
  gradient.def(
      "encode_batch_with_next",
      [](NNConcatenationGradient& self, const CommandBufferPointer& commandBuffer,
         const ImageBatch& sourceGradients, const std::vector<ImageBatch>& sourceImages,
         const StateBatch& gradientStates, const std::vector<ImageBatch>& destinationGradients) {
        self.encodeBatchWithNext(commandBuffer, sourceGradients, sourceImages, gradientStates,
                                 destinationGradients);
      },
      "command_buffer"_a, "source_gradients"_a, "source_images"_a, "gradient_states"_a,
      "destination_gradients"_a, Released(),
      "Records the gradients of this source and of the next one, in one pass over the incoming gradient "
      "where "
      "their slices lie side by side. `source_images`, `destination_gradients`: those of both sources. "
      "Raises "
      "Error before anything is recorded.");
  readOnly(gradient, "source_index", &NNConcatenationGradient::sourceIndex, "Which source, from 0 on.");
}

}  // namespace python
