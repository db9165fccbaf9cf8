#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mps/convolution/convolution.hpp"
#include "mps/convolution/convolution_transpose.hpp"
#include "mps/core/layer/convolution_data_source.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"
#include "python/source/layers/data_source.hpp"

namespace python {
namespace {

using mps::CNNConvolutionDataSource;
using mps::CNNConvolutionDescriptor;
using mps::CNNConvolutionGradientState;
using mps::CNNConvolutionWeightsAndBiasesState;
using Device = std::shared_ptr<mtl::Device>;
using Weights = std::shared_ptr<CNNConvolutionWeightsAndBiasesState>;
using Gradients = std::shared_ptr<CNNConvolutionGradientState>;

void bindEnumerations(nb::module_& module) {
  nb::enum_<mps::CNNConvolutionWeightsLayout>(module, "CNNConvolutionWeightsLayout",
                                              "Order of convolution weights.")
      .value("OHWI", mps::CNNConvolutionWeightsLayout::OHWI,
             "[out][kernel row][kernel column][in / groups]: the only one.");
  nb::enum_<mps::CNNWeightsQuantizationType>(module, "CNNWeightsQuantizationType",
                                             "How 8-bit weights become numbers.")
      .value("None_", mps::CNNWeightsQuantizationType::None)
      .value("Linear", mps::CNNWeightsQuantizationType::Linear,
             "byte / 255 * (max - min) + min, min and max of the output channel.")
      .value("LookupTable", mps::CNNWeightsQuantizationType::LookupTable, "table[byte]");
  nb::enum_<mps::CNNConvolutionGradientOption>(module, "CNNConvolutionGradientOption",
                                               "What the gradient kernel of a convolution computes.")
      .value("GradientWithData", mps::CNNConvolutionGradientOption::GradientWithData,
             "The gradient of the source image.")
      .value("GradientWithWeightsAndBias", mps::CNNConvolutionGradientOption::GradientWithWeightsAndBias,
             "The gradients of weights and bias.")
      .value("All", mps::CNNConvolutionGradientOption::All);
}

template <class Descriptor>
Descriptor shape(std::size_t width, std::size_t height, std::size_t inputs, std::size_t outputs) {
  return Descriptor::cnnConvolutionDescriptor(width, height, inputs, outputs);
}

/// What is coded says whether it is depth-wise, and holds all that the derived classes have.
template <class Descriptor>
Descriptor decodedAs(mps::Coder& coder) {
  const CNNConvolutionDescriptor decoded = CNNConvolutionDescriptor::decode(coder);
  constexpr bool depthWise = std::is_same_v<Descriptor, mps::CNNDepthWiseConvolutionDescriptor>;
  if ((decoded.channelMultiplier() != 0) != depthWise)
    throw mps::Error(depthWise ? "CNNDepthWiseConvolutionDescriptor" : "CNNSubPixelConvolutionDescriptor",
                     "coder", decoded.describe(),
                     depthWise ? "a depth-wise convolution" : "one that is not depth-wise");
  auto made = shape<Descriptor>(1, 1, 1, 1);
  static_cast<CNNConvolutionDescriptor&>(made) = decoded;
  return made;
}

void bindDescriptors(nb::module_& module) {
  using Descriptor = CNNConvolutionDescriptor;
  nb::class_<Descriptor> descriptor(module, "CNNConvolutionDescriptor",
                                    "Shape of a convolution. A value; kernels read it when they are made. "
                                    "All numbers are 1 ... 2^31 - 1; others raise "
                                    "Error.");
  descriptor.def(nb::new_(&shape<Descriptor>), "kernel_width"_a, "kernel_height"_a,
                 "input_feature_channels"_a, "output_feature_channels"_a,
                 "Stride 1, dilation 1, one group, no neuron.");
  property(descriptor, "kernel_width", &Descriptor::kernelWidth, &Descriptor::setKernelWidth,
           "Window in pixels.");
  property(descriptor, "kernel_height", &Descriptor::kernelHeight, &Descriptor::setKernelHeight,
           "Window in pixels.");
  property(descriptor, "input_feature_channels", &Descriptor::inputFeatureChannels,
           &Descriptor::setInputFeatureChannels, "Channels of the source.");
  property(descriptor, "output_feature_channels", &Descriptor::outputFeatureChannels,
           &Descriptor::setOutputFeatureChannels, "Channels of the result: the number of filters.");
  property(descriptor, "stride_in_pixels_x", &Descriptor::strideInPixelsX, &Descriptor::setStrideInPixelsX,
           "Step from window to window. 1.");
  property(descriptor, "stride_in_pixels_y", &Descriptor::strideInPixelsY, &Descriptor::setStrideInPixelsY,
           "Step from window to window. 1.");
  property(descriptor, "groups", &Descriptor::groups, &Descriptor::setGroups,
           "Divides both channel counts. 1.");
  property(descriptor, "dilation_rate_x", &Descriptor::dilationRateX, &Descriptor::setDilationRateX,
           "Pixels from tap to tap. 1.");
  property(descriptor, "dilation_rate_y", &Descriptor::dilationRateY, &Descriptor::setDilationRateY,
           "Pixels from tap to tap. 1.");
  property(descriptor, "fused_neuron_descriptor", &Descriptor::fusedNeuronDescriptor,
           &Descriptor::setFusedNeuronDescriptor,
           "Applied to the result. None_. Not for training: put a neuron of its own behind the convolution.");
  descriptor.def(
      "set_batch_normalization_parameters_for_inference",
      [](Descriptor& self, const std::vector<float>& mean, const std::vector<float>& variance,
         const std::vector<float>& gamma, const std::vector<float>& beta, float epsilon) {
        self.setBatchNormalizationParametersForInference(mean, variance, gamma, beta, epsilon);
      },
      "mean"_a, "variance"_a, "gamma"_a, "beta"_a, "epsilon"_a,
      "Folds a batch normalisation into weights and bias:\n\n"
      "    W' = W gamma / sqrt(variance + epsilon)\n"
      "    b' = (b - mean) gamma / sqrt(variance + epsilon) + beta\n\n"
      "Each has output_feature_channels values or none: mean 0, variance 1, gamma 1, beta 0.");
  readOnly(descriptor, "channel_multiplier", &Descriptor::channelMultiplier,
           "0 for an ordinary convolution; of a depth-wise one, results per input channel.");
  readOnly(
      descriptor, "sub_pixel_scale_factor", &Descriptor::subPixelScaleFactor,
      "Side of the block of pixels that each pixel of the result becomes; 1 but for sub-pixel convolutions.");
  readOnly(descriptor, "weight_count", &Descriptor::weightCount, "Weights of the whole filter.");
  readOnly(descriptor, "weights_per_output_channel", &Descriptor::weightsPerOutputChannel,
           "Weights that one result channel is a sum over.");
  descriptor.def("encode", &Descriptor::encode, "coder"_a, "Writes the fields.")
      .def_static("decode", &Descriptor::decode, "coder"_a, "What encode wrote.")
      .def("describe", &Descriptor::describe, "\"5x5, 1 to 32 channels, ...\".")
      .def("__repr__",
           [](const Descriptor& self) { return "<CNNConvolutionDescriptor " + self.describe() + ">"; });

  nb::class_<mps::CNNDepthWiseConvolutionDescriptor, Descriptor>(
      module, "CNNDepthWiseConvolutionDescriptor",
      "One filter per input channel, no mixing of channels. channel_multiplier = output_feature_channels / "
      "input_feature_channels; weights are [out][kernel row][kernel column].")
      .def(nb::new_(&shape<mps::CNNDepthWiseConvolutionDescriptor>), "kernel_width"_a, "kernel_height"_a,
           "input_feature_channels"_a, "output_feature_channels"_a,
           "Raises Error when input_feature_channels does not divide output_feature_channels.")
      .def_static("decode", &decodedAs<mps::CNNDepthWiseConvolutionDescriptor>, "coder"_a,
                  "What encode wrote.");
  using SubPixel = mps::CNNSubPixelConvolutionDescriptor;
  nb::class_<SubPixel, Descriptor> subPixel(
      module, "CNNSubPixelConvolutionDescriptor",
      "A convolution whose result is spread over more pixels, with r = sub_pixel_scale_factor and "
      "C = output_feature_channels / r^2:\n\n"
      "    result[y][x][c] = convolution[y // r][x // r][C (r (y % r) + x % r) + c]\n\n"
      "For CNNConvolution alone, and forward only.");
  subPixel
      .def(nb::new_(&shape<SubPixel>), "kernel_width"_a, "kernel_height"_a, "input_feature_channels"_a,
           "output_feature_channels"_a, "sub_pixel_scale_factor is 1 at first.")
      .def_static("decode", &decodedAs<SubPixel>, "coder"_a, "What encode wrote.");
  property(subPixel, "sub_pixel_scale_factor", &SubPixel::subPixelScaleFactor,
           &SubPixel::setSubPixelScaleFactor,
           "Its square divides output_feature_channels, else making a kernel raises Error.");
}

/// The kernel that made a state. Python has no constant objects.
template <class KernelType>
std::shared_ptr<KernelType> mutableKernel(const std::shared_ptr<const KernelType>& kernel) {
  return std::const_pointer_cast<KernelType>(kernel);
}

void bindStates(nb::module_& module) {
  using State = CNNConvolutionWeightsAndBiasesState;
  nb::class_<State, mps::State> weights(module, "CNNConvolutionWeightsAndBiasesState",
                                        "Weights and biases on the device, for update, reload and export. "
                                        "Weights: float32, [out][kernel row][kernel "
                                        "column][in / groups]; biases: float32, one per output channel.");
  weights
      .def(nb::new_([](std::shared_ptr<mtl::Buffer> values, std::shared_ptr<mtl::Buffer> biases) {
             return State::create(std::move(values), std::move(biases));
           }),
           "weights"_a, "biases"_a.none() = nb::none(),
           "Around buffers of exactly the right size. `biases` None: no biases (a reload takes zeros).")
      .def(nb::new_([](std::shared_ptr<mtl::Buffer> values, std::size_t offset,
                       std::shared_ptr<mtl::Buffer> biases, std::size_t biasesOffset,
                       const CNNConvolutionDescriptor& descriptor) {
             return State::create(std::move(values), offset, std::move(biases), biasesOffset, descriptor);
           }),
           "weights"_a, "weights_offset"_a, "biases"_a.none(), "biases_offset"_a, "descriptor"_a,
           "Around ranges of buffers; offsets in bytes, multiples of 4. Raises Error when a range leaves its "
           "buffer.")
      .def(nb::new_([](const Device& device, const CNNConvolutionDescriptor& descriptor) {
             return State::create(device, descriptor);
           }),
           "device"_a, "descriptor"_a, "With zero-filled buffers of its own.")
      .def_static("create_temporary", &State::createTemporary, "command_buffer"_a, "descriptor"_a,
                  "Temporary, undefined content.");
  readOnly(weights, "weights", &State::weights, "The buffer of the weights.");
  readOnly(weights, "biases", &State::biases, "The buffer of the biases; None when there are none.");
  readOnly(weights, "weights_offset", &State::weightsOffset, "Bytes before the first weight.");
  readOnly(weights, "biases_offset", &State::biasesOffset, "Bytes before the first bias.");
  readOnly(weights, "weight_count", &State::weightCount, "Number of weights.");
  readOnly(weights, "bias_count", &State::biasCount, "Number of biases.");

  nb::class_<CNNConvolutionGradientState, mps::NNGradientState> gradient(
      module, "CNNConvolutionGradientState",
      "Record of a convolution's forward pass and the gradients of its weights and biases. One state serves "
      "a whole batch. "
      "The gradients are sums over all images and positions, never divided; the first gradient encode sets "
      "them, later ones "
      "with the same state add. Make a new state for the next batch.");
  readOnly(gradient, "gradient_for_weights", &CNNConvolutionGradientState::gradientForWeights,
           "dL/dW: a buffer of float32, [out][kernel row][kernel column][in / groups].");
  readOnly(gradient, "gradient_for_biases", &CNNConvolutionGradientState::gradientForBiases,
           "dL/db: a buffer of float32, one per output channel, also for layers without biases: optimisers "
           "leave it alone there.");
  readOnly(gradient, "has_biases", &CNNConvolutionGradientState::hasBiases, "Whether the layer has biases.");
  readOnly(gradient, "gradient_for_weights_layout", &CNNConvolutionGradientState::gradientForWeightsLayout,
           "OHWI.");
  readOnly(
      gradient, "convolution",
      [](const CNNConvolutionGradientState& self) { return mutableKernel(self.convolution()); },
      "The forward kernel that made the state; None in a CNNConvolutionTransposeGradientState without "
      "partner.");
  using TransposeState = mps::CNNConvolutionTransposeGradientState;
  nb::class_<TransposeState, CNNConvolutionGradientState> transpose(
      module, "CNNConvolutionTransposeGradientState",
      "Record of a transposed convolution's forward pass and the gradients of its own weights and biases. "
      "One serves a whole "
      "batch. `convolution` is the one that the transposed one undoes, where it was told.");
  readOnly(
      transpose, "convolution_transpose",
      [](const TransposeState& self) { return mutableKernel(self.convolutionTranspose()); },
      "The forward kernel that made the state.");
  readOnly(transpose, "convolution_gradient_state", &TransposeState::convolutionGradientState,
           "The state of `convolution`, which places and sizes the result; or None.");
}

/// Order of the weights, as a shape.
std::vector<std::size_t> weightsShape(const CNNConvolutionDescriptor& descriptor) {
  const std::size_t taps = descriptor.kernelWidth() * descriptor.kernelHeight();
  return {descriptor.outputFeatureChannels(), descriptor.kernelHeight(), descriptor.kernelWidth(),
          descriptor.weightsPerOutputChannel() / taps};
}

std::string describeShape(const std::vector<std::size_t>& shape) {
  std::string text;
  for (const std::size_t size : shape) text += (text.empty() ? "(" : ", ") + std::to_string(size);
  return text + ")";
}

using Pairs = std::vector<std::pair<float, float>>;

/// A data source written in Python.
class PythonConvolutionSource final : public CNNConvolutionDataSource {
 public:
  using Base = CNNConvolutionDataSource;

  [[nodiscard]] mps::DataType dataType() const override {
    const Locked locked;
    const nb::dlpack::dtype type = arrays_.array<Base>(*this, "weights").dtype();
    if (type == nb::dtype<float>()) return mps::DataType::Float32;
    if (type == nb::dtype<std::uint8_t>()) return mps::DataType::UInt8;
    if (type == nb::dlpack::dtype{static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1})
      return mps::DataType::Float16;
    throw nb::type_error("weights are an array of another type, expected float32, float16 or uint8");
  }
  [[nodiscard]] CNNConvolutionDescriptor descriptor() const override {
    const Locked locked;
    return converted<CNNConvolutionDescriptor>(requiredAttribute<Base>(*this, "descriptor"), "descriptor",
                                               "a CNNConvolutionDescriptor");
  }
  [[nodiscard]] std::span<const std::byte> weights() const override {
    const Locked locked;
    const LentArrays::Array& array = arrays_.array<Base>(*this, "weights");
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < array.ndim(); ++i) found.push_back(array.shape(i));
    const std::vector<std::size_t> expected = weightsShape(descriptor());
    const bool isDepthWise = expected[3] == 1 && found.size() == 3;
    if (found.size() > 1 && found != expected &&
        !(isDepthWise && std::equal(found.begin(), found.end(), expected.begin())))
      throw nb::value_error(("weights have the shape " + describeShape(found) + ", expected " +
                             describeShape(expected) +
                             ": output channels, rows, columns, input channels of a group")
                                .c_str());
    return {static_cast<const std::byte*>(array.data()), array.nbytes()};
  }
  [[nodiscard]] std::span<const float> biasTerms() const override {
    const Locked locked;
    return arrays_.floats<Base>(*this, "bias_terms");
  }
  bool load() override {
    const Locked locked;
    return loadSource<Base>(*this, arrays_);
  }
  void purge() override { purgeSource<Base>(*this, arrays_); }
  [[nodiscard]] std::string label() const override {
    const Locked locked;
    return attributeOr<std::string, Base>(*this, "label", {}, "text");
  }
  [[nodiscard]] mps::CNNWeightsQuantizationType weightsQuantizationType() const override {
    const Locked locked;
    return attributeOr<mps::CNNWeightsQuantizationType, Base>(*this, "weights_quantization_type",
                                                              mps::CNNWeightsQuantizationType::None,
                                                              "a CNNWeightsQuantizationType");
  }
  [[nodiscard]] mps::DataType kernelWeightsDataType() const override {
    const Locked locked;
    return attributeOr<mps::DataType, Base>(*this, "kernel_weights_data_type", mps::DataType::Float32,
                                            "a DataType");
  }
  [[nodiscard]] std::span<const std::array<float, 2>> rangesForUInt8Kernel() const override {
    const Locked locked;
    std::vector<std::array<float, 2>> ranges;
    for (const auto& [least, most] :
         attributeOr<Pairs, Base>(*this, "ranges_for_uint8_kernel", {}, "pairs of numbers"))
      ranges.push_back({least, most});
    if (ranges != ranges_) ranges_ = std::move(ranges);
    return ranges_;
  }
  [[nodiscard]] std::span<const float> lookupTableForUInt8Kernel() const override {
    const Locked locked;
    return arrays_.floats<Base>(*this, "lookup_table_for_uint8_kernel");
  }
  [[nodiscard]] mps::CNNConvolutionWeightsLayout weightsLayout() const override {
    const Locked locked;
    return attributeOr<mps::CNNConvolutionWeightsLayout, Base>(
        *this, "weights_layout", mps::CNNConvolutionWeightsLayout::OHWI, "a CNNConvolutionWeightsLayout");
  }
  Weights update(const CommandBufferPointer& commandBuffer, const Gradients& gradientState,
                 const Weights& sourceState) override {
    const Locked locked;
    return resultOf<Weights>(
        callOverridden<Base>(*this, "update_with_command_buffer", commandBuffer, gradientState, sourceState),
        "what update_with_command_buffer() returns", "a CNNConvolutionWeightsAndBiasesState or None");
  }
  bool update(const Gradients& gradientState, const Weights& sourceState) override {
    const Locked locked;
    return resultOf<bool>(
        callOverridden<Base>(*this, "update_with_gradient_state", gradientState, sourceState),
        "what update_with_gradient_state() returns", "True or False");
  }
  std::shared_ptr<CNNConvolutionDataSource> copy(const Device& device) override {
    const Locked locked;
    return resultOf<std::shared_ptr<CNNConvolutionDataSource>>(callOverridden<Base>(*this, "copy", device),
                                                               "what copy() returns",
                                                               "a CNNConvolutionDataSource or None");
  }
  Weights deviceWeightsAndBiases(const Device& device) override {
    const Locked locked;
    return resultOf<Weights>(callOverridden<Base>(*this, "device_weights_and_biases", device),
                             "what device_weights_and_biases() returns",
                             "a CNNConvolutionWeightsAndBiasesState or None");
  }

 private:
  mutable LentArrays arrays_;
  mutable std::vector<std::array<float, 2>> ranges_;
};

bool isPython(const CNNConvolutionDataSource& self) {
  return isOf<PythonConvolutionSource>(self);
}

/// Of a source that is not written in Python: a copy of its bytes.
nb::object weightsOf(CNNConvolutionDataSource& self) {
  const std::span<const std::byte> bytes = self.weights();
  const nb::bytes copied(bytes.data(), bytes.size());
  const char* type = self.dataType() == mps::DataType::Float32   ? "float32"
                     : self.dataType() == mps::DataType::Float16 ? "float16"
                                                                 : "uint8";
  return nb::module_::import_("numpy")
      .attr("frombuffer")(copied, type)
      .attr("reshape")(nb::cast(weightsShape(self.descriptor())));
}
std::vector<float> numbersOf(std::span<const float> values) {
  return {values.begin(), values.end()};
}

void bindAttributes(
    nb::class_<CNNConvolutionDataSource, PythonConvolutionSource, mps::SecureCoding>& source) {
  using Source = CNNConvolutionDataSource;
  using Python = PythonConvolutionSource;
  readOnly(source, "data_type", &Source::dataType, "Type of `weights`: Float32, Float16 or UInt8.");
  bindAttribute<Python>(
      source, "descriptor", [](Source& self) { return self.descriptor(); },
      "Shape of the convolution, a CNNConvolutionDescriptor.");
  bindAttribute<Python>(
      source, "weights", &weightsOf,
      "An array, [out][kernel row][kernel column][in / groups] or flat, of float32, float16 or uint8.");
  bindAttribute<Python>(
      source, "bias_terms", [](Source& self) { return numbersOf(self.biasTerms()); },
      "One number for each output channel; none, or None: no biases.");
  bindAttribute<Python>(
      source, "label", [](Source& self) { return self.label(); },
      "Name for the kernel; a node's label goes before.");
  bindAttribute<Python>(
      source, "weights_layout", [](Source& self) { return self.weightsLayout(); },
      "OHWI, the only one there is.");
  bindAttribute<Python>(
      source, "weights_quantization_type", [](Source& self) { return self.weightsQuantizationType(); },
      "For weights of uint8: how a byte becomes a weight.");
  bindAttribute<Python>(
      source, "kernel_weights_data_type", [](Source& self) { return self.kernelWeightsDataType(); },
      "A hint in which precision kernels keep the weights, which they do not take: they keep float32.");
  bindAttribute<Python>(
      source, "ranges_for_uint8_kernel",
      [](Source& self) {
        Pairs pairs;
        for (const auto& [least, most] : self.rangesForUInt8Kernel()) pairs.emplace_back(least, most);
        return pairs;
      },
      "For Linear weights: a pair (min, max) for each output channel.");
  bindAttribute<Python>(
      source, "lookup_table_for_uint8_kernel",
      [](Source& self) { return numbersOf(self.lookupTableForUInt8Kernel()); },
      "For weights by LookupTable: 256 numbers.");
}

void bindSource(nb::module_& module) {
  nb::class_<CNNConvolutionDataSource, PythonConvolutionSource, mps::SecureCoding> source(
      module, "CNNConvolutionDataSource",
      "Where a convolution's weights come from and how they are updated. TrainableConvolution is a "
      "ready-made one. A "
      "subclass has at least `descriptor` and `weights`, and what else it needs of the attributes below: of "
      "the class, of the "
      "instance or as properties; and it may define the methods.\n\n"
      "    class Filters(unmetal.CNNConvolutionDataSource):\n"
      "        def __init__(self, weights):\n"
      "            super().__init__()\n"
      "            outputs, height, width, inputs = weights.shape\n"
      "            self.weights = weights\n"
      "            self.descriptor = unmetal.CNNConvolutionDescriptor(width, height, inputs, outputs)\n\n"
      "The library calls load(), reads, copies and calls purge() when a kernel is made and when it is "
      "reloaded, from any "
      "thread. Arrays are read where they are; a wrong type or shape raises TypeError or ValueError.");
  bindAttributes(source);
  source.def(nb::init<>())
      .def(
          "load", [](CNNConvolutionDataSource& self) { return isPython(self) || self.load(); },
          "The data is needed soon. False makes the construction of the kernel raise Error. True unless "
          "overridden.")
      .def(
          "purge",
          [](CNNConvolutionDataSource& self) {
            if (!isPython(self)) self.purge();
          },
          "The data is not needed any more; balances each load().")
      .def(
          "update_with_command_buffer",
          [](CNNConvolutionDataSource& self, const CommandBufferPointer& commandBuffer,
             const Gradients& gradientState, const Weights& sourceState) {
            return isPython(self) ? nullptr : self.update(commandBuffer, gradientState, sourceState);
          },
          "command_buffer"_a, "gradient_state"_a, "source_state"_a, Released(),
          "Device-side update, called by NNGraph right after the gradient pass is encoded (style "
          "UpdateDeviceGPU): encode an "
          "optimiser that reads `gradient_state` (dL/dW) and `source_state` (the weights in use) and return "
          "the state with "
          "the new weights; both kernels are reloaded from it. None, the default: no update.")
      .def(
          "update_with_gradient_state",
          [](CNNConvolutionDataSource& self, const Gradients& gradientState, const Weights& sourceState) {
            return !isPython(self) && self.update(gradientState, sourceState);
          },
          "gradient_state"_a, "source_state"_a, Released(),
          "Host-side update, called by NNGraph in the completion handler (style UpdateDeviceCPU), the states "
          "readable: change "
          "`weights` and return True; both kernels are reloaded from this source. False unless overridden.")
      .def(
          "copy",
          [](CNNConvolutionDataSource& self, const Device& device) {
            return isPython(self) ? nullptr : self.copy(device);
          },
          "device"_a,
          "For a copy of the kernel, or of a graph, on that device, which may be this source's. None, the "
          "default: the copy "
          "shares this source.")
      .def(
          "device_weights_and_biases",
          [](CNNConvolutionDataSource& self, const Device& device) {
            return isPython(self) ? nullptr : self.deviceWeightsAndBiases(device);
          },
          "device"_a,
          "Weights that live on the device and that updates change in place: kernels on that device use "
          "these very buffers, "
          "and reloads have nothing to do. None, the default: kernels have a copy.");
}

}  // namespace

void bindConvolutionSource(nb::module_& module) {
  bindEnumerations(module);
  bindDescriptors(module);
  bindStates(module);
  bindSource(module);
}

}  // namespace python
