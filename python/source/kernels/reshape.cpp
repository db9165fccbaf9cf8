#include "mps/reshape/reshape.hpp"

#include <cstddef>
#include <utility>

#include "mps/reshape/pad.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/kernels/kernels.hpp"

namespace python {
namespace {

constexpr const char* shapedDocumentation =
    "Records the kernel and returns an image (a batch) of this shape; with `destination_state_is_temporary` "
    "also the new state. Raises Error when the numbers of elements differ.";

/// The encodes that name the shape.
template <class Form, class Class>
void bindShapedEncodes(Class& reshape, const nb::arg& source) {
  bindEncode<Form, typename Form::Image, std::size_t, std::size_t, std::size_t>(
      reshape, shapedDocumentation, source, "reshaped_width"_a, "reshaped_height"_a,
      "reshaped_feature_channels"_a);
  reshape.def(
      Form::name,
      [](mps::NNReshape& self, const CommandBufferPointer& commandBuffer, const typename Form::Image& source,
         std::size_t width, std::size_t height, std::size_t featureChannels, bool temporary) {
        typename Form::State state;
        auto image =
            Form::encode(self, commandBuffer, source, state, temporary, width, height, featureChannels);
        return std::pair(std::move(image), std::move(state));
      },
      "command_buffer"_a, source, "reshaped_width"_a, "reshaped_height"_a, "reshaped_feature_channels"_a,
      nb::kw_only(), nb::arg(Form::stateIsTemporary), Released(), shapedDocumentation);
}

void bindReshape(nb::module_& module) {
  using mps::NNReshape;
  auto reshape = kernelClass<NNReshape, mps::CNNKernel>(
      module, "NNReshape",
      "The elements of each image in their order, channels fastest, then x, then y, in another shape; with "
      "channels_first as in PyTorch's view, channels slowest. A given destination, from "
      "destination_feature_channel_offset on, says the shape; so "
      "do the encodes "
      "that take one; the others give the source's shape. Sources: every format; destinations: float16, "
      "float32. Encoding "
      "raises Error when source and destination differ in the number of elements, or offset or clip_rect is "
      "set.");
  reshape.def(nb::new_(&NNReshape::create), "device"_a);
  property(reshape, "channels_first", &NNReshape::channelsFirst, &NNReshape::setChannelsFirst,
           "Whether the order of the elements has the channels slowest. False.");
  bindUnaryEncodes(reshape);
  bindShapedEncodes<Single>(reshape, "source_image"_a);
  bindShapedEncodes<Batch>(reshape, "source_images"_a);
  kernelClass<mps::NNReshapeGradient, mps::CNNGradientKernel>(
      module, "NNReshapeGradient",
      "dIn = the incoming gradient in the shape of the forward source; of `source_image` only the size "
      "counts. "
      "Encoding raises Error without a state, when clip_rect is set, and when the sizes are not those of the "
      "forward call.")
      .def(nb::new_(&mps::NNReshapeGradient::create), "device"_a);
}

void bindPad(nb::module_& module) {
  using mps::ImageCoordinate;
  using mps::NNPad;
  auto pad = kernelClass<NNPad, mps::CNNKernel>(
      module, "NNPad",
      "Puts an image into a larger one:\n\n"
      "    out(x, y, destination_feature_channel_offset + c)\n"
      "        = in(offset.x + x, offset.y + y, source_feature_channel_offset + c - "
      "padding_size_before.channel)\n\n"
      "x and y counted from clip_rect.origin. Outside the source, and outside the channels read, each axis "
      "alone:\n\n"
      "    Zero            0; the fill value in channels outside\n"
      "    Constant        the fill value\n"
      "    Clamp           the element at the edge\n"
      "    Mirror          reflected about the element at the edge: 2 1 0 1 2 3 2 1 of 0 to 3\n"
      "    MirrorWithEdge  reflected, the edge twice: 1 0 0 1 2 3 3 2\n\n"
      "The encodes that return an image size it by both paddings and set offset to minus "
      "padding_size_before. "
      "Sources: every format; destinations: float16, float32.");
  pad.def(nb::new_([](const std::shared_ptr<mtl::Device>& device, const ImageCoordinate& before,
                      const ImageCoordinate& after, const std::vector<float>& fillValues) {
            return NNPad::create(device, before, after, fillValues);
          }),
          "device"_a, "padding_size_before"_a = ImageCoordinate{}, "padding_size_after"_a = ImageCoordinate{},
          "fill_value_array"_a = std::vector<float>{},
          "`padding_size_before`: pixels at the left and the top, channels before the first one; "
          "`padding_size_after`: at the right, the bottom and behind; `fill_value_array`: a fill value for "
          "each channel "
          "written; empty: fill_value. Encoding raises Error when it has fewer entries than channels are "
          "written.");
  property(pad, "padding_size_before", &NNPad::paddingSizeBefore, &NNPad::setPaddingSizeBefore,
           "Pixels at the left and the top, channels before the first one. 0. Raises Error above 2**31.");
  property(pad, "padding_size_after", &NNPad::paddingSizeAfter, &NNPad::setPaddingSizeAfter,
           "Pixels at the right and the bottom, channels behind the last one. 0. Raises Error above 2**31.");
  property(pad, "fill_value", &NNPad::fillValue, &NNPad::setFillValue,
           "For all channels unless there is a fill_value_array. 0.");
  kernelClass<mps::NNPadGradient, mps::CNNGradientKernel>(
      module, "NNPadGradient",
      "The adjoint of NNPad: each incoming gradient is added to the source element that was copied to its "
      "place; fill values "
      "do not matter. Of `source_image` only the size counts. Encoding raises Error without a state and when "
      "clip_rect is set.")
      .def(nb::new_(&mps::NNPadGradient::create), "device"_a);
  kernelClass<mps::NNSlice, mps::CNNKernel>(
      module, "NNSlice",
      "Cuts a part out of an image:\n\n"
      "    out(clip_rect.origin.x + x, clip_rect.origin.y + y, destination_feature_channel_offset + c)\n"
      "        = in(offset.x + x, offset.y + y, source_feature_channel_offset + c)\n\n"
      "for the pixels of clip_rect.size and source_feature_channel_max_count channels. Outside the source as "
      "NNPad with fill value 0. The encodes that return an image keep offset and size the image to hold "
      "clip_rect, or without one the rest of the source. No state: the gradient of a slice is an NNPad of "
      "edge "
      "mode Zero.")
      .def(nb::new_(&mps::NNSlice::create), "device"_a);
}

}  // namespace

void bindReshapes(nb::module_& module) {
  bindReshape(module);
  bindPad(module);
}

}  // namespace python
