#include "mps/convolution/convolution.hpp"

#include <memory>

#include "mps/convolution/convolution_transpose.hpp"
#include "mps/convolution/fully_connected.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/kernels/kernels.hpp"

namespace python {
namespace {

using DataSource = std::shared_ptr<mps::CNNConvolutionDataSource>;

/// What all of them have: a data source and the weights that encodes use.
template <class KernelType, class Class>
void bindWeights(Class& bound) {
  bound.def(nb::new_(&KernelType::create), "device"_a, "weights"_a, Released(),
            "`weights`: a CNNConvolutionDataSource, for a gradient kernel that of the forward kernel; read "
            "once. Raises "
            "Error when it fails to load or its sizes disagree.");
  readOnly(
      bound, "descriptor", [](const KernelType& self) { return self.descriptor(); },
      "Shape of the convolution, as the data source had it.");
  readOnly(
      bound, "groups", [](const KernelType& self) { return self.groups(); }, "Divides both channel counts.");
  readOnly(
      bound, "data_source", [](const KernelType& self) { return self.dataSource(); },
      "Where the weights come from.");
  bound
      .def(
          "reload_weights_and_biases_from_data_source",
          [](KernelType& self) { self.reloadWeightsAndBiasesFromDataSource(); }, Released(),
          "Reads the data source again, now; encoded work keeps the old weights. Raises Error as the "
          "constructor does.")
      .def(
          "reload_weights_and_biases",
          [](KernelType& self, const CommandBufferPointer& commandBuffer,
             const std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState>& state) {
            self.reloadWeightsAndBiases(commandBuffer, state);
          },
          "command_buffer"_a, "state"_a, Released(),
          "Encodes from now on use the state's values as they are when the recorded copy runs. Takes one "
          "read off the "
          "state. A state without biases sets them to 0; a layer whose data source has none takes none from "
          "a "
          "state. Raises Error when a size differs.");
}

template <class KernelType, class Class>
void bindForward(Class& bound) {
  bindWeights<KernelType>(bound);
  readOnly(
      bound, "input_feature_channels", [](const KernelType& self) { return self.inputFeatureChannels(); },
      "Channels of the source.");
  readOnly(
      bound, "output_feature_channels", [](const KernelType& self) { return self.outputFeatureChannels(); },
      "Number of filters.");
  readOnly(
      bound, "sub_pixel_scale_factor", [](const KernelType& self) { return self.subPixelScaleFactor(); },
      "1 but for sub-pixel convolutions.");
  property(
      bound, "accumulator_precision_option",
      [](const KernelType& self) { return self.accumulatorPrecisionOption(); },
      [](KernelType& self, mps::NNConvolutionAccumulatorPrecisionOption option) {
        self.setAccumulatorPrecisionOption(option);
      },
      "Half is a permission that is not used: sums are float32. Float.");
  bound.def(
      "export_weights_and_biases",
      [](KernelType& self, const CommandBufferPointer& commandBuffer, bool canBeTemporary) {
        return self.exportWeightsAndBiases(commandBuffer, canBeTemporary);
      },
      "command_buffer"_a, "result_state_can_be_temporary"_a = false, Released(),
      "Records a copy of the weights (float32, OHWI) and, where the layer has any, the biases that the "
      "kernel uses. Temporary: with "
      "read_count 1.");
}

template <class KernelType, class Class>
void bindGradient(Class& bound) {
  bindWeights<KernelType>(bound);
  readOnly(
      bound, "source_gradient_feature_channels",
      [](const KernelType& self) { return self.sourceGradientFeatureChannels(); },
      "Channels of the source gradient: the number of filters.");
  readOnly(
      bound, "source_image_feature_channels",
      [](const KernelType& self) { return self.sourceImageFeatureChannels(); },
      "Channels of the forward source.");
  property(
      bound, "gradient_option", [](const KernelType& self) { return self.gradientOption(); },
      [](KernelType& self, mps::CNNConvolutionGradientOption option) { self.setGradientOption(option); },
      "What to compute. All. With GradientWithWeightsAndBias the destination is not written.");
}

void bindConvolutions(nb::module_& module) {
  auto convolution = kernelClass<mps::CNNConvolution, mps::CNNKernel>(
      module, "CNNConvolution",
      "Two-dimensional cross-correlation with bias and optional neuron:\n\n"
      "    result[y][x][k] = neuron(bias[k] + sum over rows q, columns p, channels c of\n"
      "                             W[k][q][p][c] in[offset.y + sY y - kHd // 2 + dY q]\n"
      "                                             [offset.x + sX x - kWd // 2 + dX p][group(k) Cg + c])\n\n"
      "with kWd = (kernel_width - 1) dX + 1 and Cg = input_feature_channels / groups. Outside the source: 0 "
      "(edge mode Zero) or "
      "the nearest pixel (Clamp). Sources: every format; results: float16, float32. Gradient states are "
      "CNNConvolutionGradientState, one per batch.\n\n"
      "    convolution = unmetal.CNNConvolution(device, data_source)\n"
      "    y, state = convolution.encode(command_buffer, x, destination_state_is_temporary=False)\n"
      "    gradient = unmetal.CNNConvolutionGradient(device, data_source)\n"
      "    dx = gradient.encode(command_buffer, dy, x, state)");
  bindForward<mps::CNNConvolution>(convolution);
  readOnly(convolution, "channel_multiplier", &mps::CNNConvolution::channelMultiplier,
           "0 for an ordinary convolution, else the depth-wise multiplier.");
  readOnly(convolution, "fused_neuron_descriptor", &mps::CNNConvolution::fusedNeuronDescriptor,
           "The descriptor's.");
  auto gradient = kernelClass<mps::CNNConvolutionGradient, mps::CNNGradientKernel>(
      module, "CNNConvolutionGradient",
      "Gradients of a convolution with respect to its source, weights and biases. dL/d(source) goes to the "
      "destination, those "
      "of weights and biases, sums over all images, to the gradient state: the first encode with a state "
      "sets them, later ones "
      "add. The weights are those that the forward kernel had at the first encode; later ones only come by a "
      "reload, so "
      "reload both kernels. A state of a forward kernel with a fused neuron raises Error.");
  bindGradient<mps::CNNConvolutionGradient>(gradient);
  readOnly(gradient, "channel_multiplier", &mps::CNNConvolutionGradient::channelMultiplier,
           "0 for an ordinary convolution, else the depth-wise multiplier.");

  auto connected = kernelClass<mps::CNNFullyConnected, mps::CNNConvolution>(
      module, "CNNFullyConnected",
      "Inner product of the whole source with each filter; the result is 1 x 1 x output_feature_channels:\n\n"
      "    result[k] = neuron(bias[k] + sum over q, p, c of W[k][q][p][c] in[q][p][c])\n\n"
      "kernel_width x kernel_height is the size of the source; stride, dilation and groups are 1. The source "
      "is flattened "
      "row, column, channel: weights from libraries that flatten channel, row, column are permuted.");
  bindWeights<mps::CNNFullyConnected>(connected);
  auto connectedGradient = kernelClass<mps::CNNFullyConnectedGradient, mps::CNNConvolutionGradient>(
      module, "CNNFullyConnectedGradient",
      "Gradients of CNNFullyConnected; rules as for CNNConvolutionGradient.");
  bindWeights<mps::CNNFullyConnectedGradient>(connectedGradient);
}

/// The encodes that undo a convolution.
template <class Class>
void bindUndoing(Class& bound) {
  using mps::ImageBatch;
  using mps::StateBatch;
  constexpr const char* documentation =
      "As large as the source of the convolution that made `convolution_gradient_state`; takes one read off "
      "that. With "
      "`destination_state_is_temporary` returns also the new state: (image, state). Raises Error for a state "
      "of another "
      "kind, or one that no convolution has encoded with.";
  bindEncode<Single, ImagePointer, StatePointer>(bound, documentation, "source_image"_a,
                                                 "convolution_gradient_state"_a);
  bindEncodeWithState<Single, ImagePointer, StatePointer>(bound, documentation, "source_image"_a,
                                                          "convolution_gradient_state"_a);
  bindEncode<Single, ImagePointer, StatePointer, ImagePointer>(
      bound,
      "With a given destination. `state`: a CNNConvolutionGradientState, which places the result; or a "
      "CNNConvolutionTransposeGradientState, which receives what the gradient needs.",
      "source_image"_a, "state"_a, "destination_image"_a);
  bindEncode<Batch, ImageBatch, StateBatch>(bound, documentation, "source_images"_a,
                                            "convolution_gradient_states"_a);
  bindEncodeWithState<Batch, ImageBatch, StateBatch>(bound, documentation, "source_images"_a,
                                                     "convolution_gradient_states"_a);
  bindEncode<Batch, ImageBatch, StateBatch, ImageBatch>(
      bound, "As encode with a given destination.", "source_images"_a, "states"_a, "destination_images"_a);
}

void bindTransposed(nb::module_& module) {
  using Transpose = mps::CNNConvolutionTranspose;
  auto forward = kernelClass<Transpose, mps::CNNKernel>(
      module, "CNNConvolutionTranspose",
      "Convolution that enlarges: zeros are put between the pixels of the source, and that is correlated "
      "with the weights.\n\n"
      "    Z[sY y][sX x]   = in[y][x], 0 elsewhere;   (S - 1) s + 1 pixels along an axis of S\n"
      "    result[v][u][k] = bias[k] + sum over q, p, c of W[k][q][p][c]\n"
      "                      Z[v + T.y - kHd // 2 + dY q][u + T.x - kWd // 2 + dX p][group(k) Cg + c]\n"
      "    T               = offset * stride + kernel_offset\n\n"
      "Weights are those of an ordinary convolution from this source to this result, [out][kernel "
      "row][kernel column][in / "
      "groups], and are not rotated; PyTorch's ConvTranspose2d has them rotated by 180 degrees, "
      "[in][out][kH][kW]. The size "
      "of the result comes from the padding policy, from the gradient state of the convolution to undo, or "
      "from a given "
      "destination. edge_mode has to be Zero. Gradient states are CNNConvolutionTransposeGradientState, one "
      "per batch.");
  bindForward<Transpose>(forward);
  property(forward, "kernel_offset_x", &Transpose::kernelOffsetX, &Transpose::setKernelOffsetX,
           "Position in the source with zeros between its pixels, added to offset * stride. 0.");
  property(forward, "kernel_offset_y", &Transpose::kernelOffsetY, &Transpose::setKernelOffsetY,
           "Position in the source with zeros between its pixels, added to offset * stride. 0.");
  bindUnaryEncodes(forward);
  bindUndoing(forward);
  auto gradient = kernelClass<mps::CNNConvolutionTransposeGradient, mps::CNNGradientKernel>(
      module, "CNNConvolutionTransposeGradient",
      "Gradients of a transposed convolution with respect to its source, weights and biases; rules as for "
      "CNNConvolutionGradient.");
  bindGradient<mps::CNNConvolutionTransposeGradient>(gradient);
}

}  // namespace

void bindConvolution(nb::module_& module) {
  bindConvolutions(module);
  bindTransposed(module);
}

}  // namespace python
