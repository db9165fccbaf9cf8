#pragma once

#include <memory>

#include "mps/loss/loss.hpp"
#include "python/source/kernels/kernels.hpp"

namespace python {

/// The encodes of CNNLoss and CNNYOLOLoss, which replace those of kernels without labels.
template <class Class>
void bindLabelledEncodes(Class& loss) {
  constexpr const char* documentation =
      "Records loss and gradient. The destination receives the gradient with respect to the predictions, the "
      "labels' "
      "loss_image the loss. offset and clip_rect keep their defaults. Raises Error before anything is "
      "recorded.";
  bindCoding(loss);
  using Labels = std::shared_ptr<mps::CNNLossLabels>;
  bindEncode<Single, ImagePointer, Labels>(loss, documentation, "source_image"_a, "labels"_a);
  bindEncode<Single, ImagePointer, Labels, ImagePointer>(loss, documentation, "source_image"_a, "labels"_a,
                                                         "destination_image"_a);
  bindEncode<Batch, mps::ImageBatch, mps::StateBatch>(loss, documentation, "source_images"_a, "labels"_a);
  bindEncode<Batch, mps::ImageBatch, mps::StateBatch, mps::ImageBatch>(loss, documentation, "source_images"_a,
                                                                       "labels"_a, "destination_images"_a);
}

}  // namespace python
