#include "mps/core/kernel/padding.hpp"

#include <string>
#include <utility>

#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"
#include "python/source/layers/data_source.hpp"

namespace python {
namespace {

/// A policy written in Python.
class PythonPadding final : public mps::NNPadding {
 public:
  [[nodiscard]] mps::NNPaddingMethod paddingMethod() const override {
    const Locked locked;
    return converted<mps::NNPaddingMethod>(required<NNPadding>(*this, "padding_method"), "padding_method",
                                           "an NNPaddingMethod");
  }
  [[nodiscard]] std::string label() const override {
    const Locked locked;
    const nb::object own = overridden<NNPadding>(*this, "label");
    return own.is_valid() ? converted<std::string>(own, "label", "text") : NNPadding::label();
  }
  mps::ImageDescriptor destinationImageDescriptor(std::span<const ImagePointer> sourceImages,
                                                  std::span<const StatePointer> sourceStates,
                                                  mps::Kernel& kernel,
                                                  const mps::ImageDescriptor& suggestedDescriptor) override {
    const Locked locked;
    const nb::object own = overridden<NNPadding>(*this, "destination_image_descriptor");
    if (!own.is_valid())
      return NNPadding::destinationImageDescriptor(sourceImages, sourceStates, kernel, suggestedDescriptor);
    return converted<mps::ImageDescriptor>(
        own(Images(sourceImages.begin(), sourceImages.end()),
            States(sourceStates.begin(), sourceStates.end()), kernel.shared_from_this(), suggestedDescriptor),
        "what destination_image_descriptor() returns", "an ImageDescriptor");
  }
  [[nodiscard]] std::shared_ptr<NNPadding> inverse() const override {
    const Locked locked;
    const nb::object own = overridden<NNPadding>(*this, "inverse");
    return own.is_valid() ? converted<std::shared_ptr<NNPadding>>(own, "inverse", "an NNPadding or None")
                          : NNPadding::inverse();
  }
};

}  // namespace

void bindPadding(nb::module_& module) {
  using mps::NNPaddingMethod;
  auto method = flags<NNPaddingMethod>(module, "NNPaddingMethod", "Bits of a padding policy.");
  method.value("AlignCentered", NNPaddingMethod::AlignCentered)
      .value("AlignTopLeft", NNPaddingMethod::AlignTopLeft, "All padding at the top and left.")
      .value("AlignBottomRight", NNPaddingMethod::AlignBottomRight, "All padding at the bottom and right.")
      .value("AlignMask", NNPaddingMethod::AlignMask)
      .value("AddRemainderToTopRight", NNPaddingMethod::AddRemainderToTopRight)
      .value("AddRemainderToBottomLeft", NNPaddingMethod::AddRemainderToBottomLeft)
      .value("AddRemainderToBottomRight", NNPaddingMethod::AddRemainderToBottomRight)
      .value("SizeSame", NNPaddingMethod::SizeSame)
      .value("SizeFull", NNPaddingMethod::SizeFull)
      .value("SizeMask", NNPaddingMethod::SizeMask)
      .value("CustomWhitelistForNodeFusion", NNPaddingMethod::CustomWhitelistForNodeFusion)
      .value("Custom", NNPaddingMethod::Custom, "The policy's destination_image_descriptor is called.")
      .value("ExcludeEdges", NNPaddingMethod::ExcludeEdges,
             "Kept and coded alone: edge mode Clamp and zero_pad_size_x/y of an average pooling say it.");
  // Second names of a value, which value() would make values of their own.
  method.attr("AddRemainderToTopLeft") = method.attr("AlignCentered");
  method.attr("SizeValidOnly") = method.attr("AlignCentered");
  method.attr("AddRemainderToMask") = method.attr("AddRemainderToBottomRight");

  nb::class_<mps::NNPadding, PythonPadding, mps::SecureCoding> padding(
      module, "NNPadding",
      "Decides the size of a kernel's destination and the kernel's offset. Only the encodes that return an "
      "image ask "
      "it; those with a given destination use the kernel as it is.\n\n"
      "    style       = -1 ValidOnly, 0 Same, +1 Full\n"
      "    destination = ceil((source + style * (dilated_size - 1)) / stride)         forward kernels\n"
      "    destination = (source - 1) * stride + 1 + style * (dilated_size - 1)       enlarging kernels\n\n"
      "A policy of your own is a subclass with a `padding_method` that has the bit Custom and with the "
      "method "
      "destination_image_descriptor, which may also change the kernel (offset, edge mode, channel "
      "ranges):\n\n"
      "    class Wider(unmetal.NNPadding):\n"
      "        padding_method = unmetal.NNPaddingMethod.SizeSame | unmetal.NNPaddingMethod.Custom\n\n"
      "        def destination_image_descriptor(self, images, states, kernel, suggested):\n"
      "            suggested.width += 1\n"
      "            return suggested");
  padding.def(nb::init<>());
  readOnly(
      padding, "padding_method",
      [](const mps::NNPadding& self) {
        if (isOf<PythonPadding>(self)) throwNotDefined("padding_method");
        return self.paddingMethod();
      },
      "The bits.");
  readOnly(
      padding, "label",
      [](const mps::NNPadding& self) {
        return isOf<PythonPadding>(self) ? self.NNPadding::label() : self.label();
      },
      "For people.");
  padding.def(
      "destination_image_descriptor",
      [](mps::NNPadding& self, const Images& sourceImages, const States& sourceStates, mps::Kernel& kernel,
         const mps::ImageDescriptor& suggested) {
        return isOf<PythonPadding>(self)
                   ? self.NNPadding::destinationImageDescriptor(sourceImages, sourceStates, kernel, suggested)
                   : self.destinationImageDescriptor(sourceImages, sourceStates, kernel, suggested);
      },
      "source_images"_a, "source_states"_a, "kernel"_a, "suggested_descriptor"_a,
      "Called when Custom is set; returns the descriptor to use. `source_images`: 1 for unary kernels, 2 for "
      "binary and "
      "gradient kernels. Raises Error where a subclass does not define it.");
  readOnly(
      padding, "inverse",
      [](const mps::NNPadding& self) {
        return isOf<PythonPadding>(self) ? self.NNPadding::inverse() : self.inverse();
      },
      "The policy of the gradient pass; None means \"take the geometry from the gradient state\".");

  nb::class_<mps::NNDefaultPadding, mps::NNPadding>(
      module, "NNDefaultPadding", "Policies made of bits, and the two that TensorFlow's pooling needs.")
      .def_static("padding", &mps::NNDefaultPadding::padding, "method"_a,
                  "Exactly these bits. Raises Error when Custom is among them.")
      .def_static("padding_for_tensorflow_average_pooling",
                  &mps::NNDefaultPadding::paddingForTensorflowAveragePooling,
                  "TensorFlow SAME: Same, centred, remainder to the bottom right, and edge mode Clamp on the "
                  "kernel, so that an "
                  "average counts the pixels inside the image only.")
      .def_static("padding_for_tensorflow_average_pooling_valid_only",
                  &mps::NNDefaultPadding::paddingForTensorflowAveragePoolingValidOnly,
                  "TensorFlow VALID, likewise.")
      .def_static("decode", &mps::NNDefaultPadding::decode, "coder"_a,
                  "The policy that encode(coder) wrote.");
}

}  // namespace python
