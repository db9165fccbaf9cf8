#pragma once

#include <memory>

#include "mps/loss/loss.hpp"
#include "python/source/bind.hpp"

namespace python {

/// The encodes of CNNLoss and CNNYOLOLoss, which replace those of kernels without labels.
template <class KernelType, class Class>
void bindLabelledEncodes(Class& loss) {
  constexpr const char* documentation =
      "Records loss and gradient. The destination receives the gradient with respect to the predictions, the "
      "labels' "
      "loss_image the loss. offset and clip_rect keep their defaults. Raises Error before anything is "
      "recorded.";
  bindCoding(loss);
  loss.def(
          "encode",
          [](KernelType& self, const CommandBufferPointer& commandBuffer, const ImagePointer& source,
             const std::shared_ptr<mps::CNNLossLabels>& labels) {
            return self.encode(commandBuffer, source, labels);
          },
          "command_buffer"_a, "source_image"_a, "labels"_a, Released(), documentation)
      .def(
          "encode",
          [](KernelType& self, const CommandBufferPointer& commandBuffer, const ImagePointer& source,
             const std::shared_ptr<mps::CNNLossLabels>& labels,
             const ImagePointer& destination) { self.encode(commandBuffer, source, labels, destination); },
          "command_buffer"_a, "source_image"_a, "labels"_a, "destination_image"_a, Released(), documentation)
      .def(
          "encode_batch",
          [](KernelType& self, const CommandBufferPointer& commandBuffer, const mps::ImageBatch& sources,
             const mps::StateBatch& labels) { return self.encodeBatch(commandBuffer, sources, labels); },
          "command_buffer"_a, "source_images"_a, "labels"_a, Released(), documentation)
      .def(
          "encode_batch",
          [](KernelType& self, const CommandBufferPointer& commandBuffer, const mps::ImageBatch& sources,
             const mps::StateBatch& labels, const mps::ImageBatch& destinations) {
            self.encodeBatch(commandBuffer, sources, labels, destinations);
          },
          "command_buffer"_a, "source_images"_a, "labels"_a, "destination_images"_a, Released(),
          documentation);
}

}  // namespace python
