#include "mps/arithmetic/arithmetic.hpp"

#include "mps/arithmetic/compare.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/kernels/kernels.hpp"

namespace python {
namespace {

template <class KernelType, class Class>
void bindScales(Class& bound, const char* primary, const char* secondary, const char* bias,
                const char* limits) {
  property(bound, "primary_scale", &KernelType::primaryScale, &KernelType::setPrimaryScale, primary);
  property(bound, "secondary_scale", &KernelType::secondaryScale, &KernelType::setSecondaryScale, secondary);
  property(bound, "bias", &KernelType::bias, &KernelType::setBias, bias);
  property(bound, "minimum_value", &KernelType::minimumValue, &KernelType::setMinimumValue, limits);
  property(bound, "maximum_value", &KernelType::maximumValue, &KernelType::setMaximumValue, limits);
}

void bindBase(nb::module_& module) {
  using mps::CNNArithmetic;
  nb::class_<mps::CNNArithmeticGradientState, mps::NNBinaryGradientState>(
      module, "CNNArithmeticGradientState",
      "What one arithmetic encode leaves for its gradients: sizes, offsets and strides of both sources, and "
      "where there are limits the mask 1 where minimum_value < r < maximum_value, else 0. "
      "Both gradient kernels read it.")
      .def(nb::new_(&mps::CNNArithmeticGradientState::create), "device"_a);
  nb::class_<CNNArithmetic, mps::CNNBinaryKernel> base(
      module, "CNNArithmetic",
      "Base of the arithmetic of two images, x the primary source, y the secondary one:\n\n"
      "    result = clamp(operation(x, y), minimum_value, maximum_value)\n\n"
      "Strides, in pixels and in feature channels, are 0 or 1; 0 repeats one column, row or channel of a "
      "source. Without a "
      "destination each axis has the size of a source whose stride is 1, the primary one first. NaN stays "
      "NaN. "
      "Sources: every format; results: float16, float32. The destination may be the "
      "primary "
      "source, where that "
      "is not repeated. Encoding raises Error for a stride above 1, minimum_value > maximum_value, or "
      "channels "
      "that do not match.");
  bindScales<CNNArithmetic>(
      base, "a, factor on x. 1.", "b, factor on y. 1.", "Added to the result of the operation. 0.",
      "Limit of the result. The extreme float32 numbers, which mean none: infinities pass.");
  property(base, "primary_stride_in_feature_channels", &CNNArithmetic::primaryStrideInFeatureChannels,
           &CNNArithmetic::setPrimaryStrideInFeatureChannels,
           "0 repeats the first channel read of the primary source. 1.");
  property(base, "secondary_stride_in_feature_channels", &CNNArithmetic::secondaryStrideInFeatureChannels,
           &CNNArithmetic::setSecondaryStrideInFeatureChannels,
           "0 repeats the first channel read of the secondary source. 1.");
  bindBinaryEncodes(base);
  bindEncode<Single, ImagePointer, ImagePointer, StatePointer, ImagePointer>(
      base, encodeIntoDocumentation, "primary_image"_a, "secondary_image"_a, "destination_state"_a,
      "destination_image"_a);
}

template <class KernelType>
void bindOperation(nb::module_& module, const char* name, const char* documentation) {
  kernelClass<KernelType, mps::CNNArithmetic>(module, name, documentation)
      .def(nb::new_(&KernelType::create), "device"_a);
}

void bindCompare(nb::module_& module) {
  using mps::NNCompare;
  using mps::NNComparisonType;
  nb::enum_<NNComparisonType>(module, "NNComparisonType", "When a comparison of x with y gives 1.")
      .value("Equal", NNComparisonType::Equal, "|x - y| <= threshold")
      .value("NotEqual", NNComparisonType::NotEqual, "Not that.")
      .value("Less", NNComparisonType::Less)
      .value("LessOrEqual", NNComparisonType::LessOrEqual)
      .value("Greater", NNComparisonType::Greater)
      .value("GreaterOrEqual", NNComparisonType::GreaterOrEqual);
  auto compare = kernelClass<NNCompare, mps::CNNArithmetic>(
      module, "NNCompare",
      "1 where the comparison of x with y holds, else 0. Comparisons with NaN do not hold, but for NotEqual. "
      "Strides of 0 "
      "repeat a source; scales, bias and limits are not used, nor is threshold in the comparisons that "
      "order. "
      "Makes no state: "
      "there is no gradient.");
  compare.def(nb::new_(&NNCompare::create), "device"_a);
  property(compare, "comparison_type", &NNCompare::comparisonType, &NNCompare::setComparisonType, "Equal.");
  property(compare, "threshold", &NNCompare::threshold, &NNCompare::setThreshold,
           "How far apart equal numbers are at most. 0.");
}

template <class KernelType>
void bindGradient(nb::module_& module, const char* name, const char* documentation) {
  kernelClass<KernelType, mps::CNNArithmeticGradient>(module, name, documentation)
      .def(nb::new_(&KernelType::create), "device"_a, "is_secondary_source_filter"_a,
           "`is_secondary_source_filter`: whether the result is the gradient of y.");
}

void bindGradients(nb::module_& module) {
  using mps::CNNArithmeticGradient;
  nb::class_<CNNArithmeticGradient, mps::CNNGradientKernel> base(
      module, "CNNArithmeticGradient",
      "Base of the gradients, from g of the result to one source; a forward kernel needs two of them, both "
      "with its state.\n\n"
      "    gradient of a source at i = sum of mask * value over the pixels of the result that read i\n\n"
      "The axes that the forward kernel repeated are summed. What a class takes as `source_image` z, and the "
      "scales that give "
      "the exact gradient of a forward kernel with scales a and b:\n\n"
      "    CNNAddGradient       primary_scale g                               of x: x, a       of y: y, b\n"
      "    CNNSubtractGradient  primary_scale g                               of x: x, a       of y: y, -b\n"
      "    CNNMultiplyGradient  primary_scale g * secondary_scale z           of x: y, (a, b)  of y: x, (b, "
      "a)\n"
      "    CNNDivideGradient    primary_scale g / (secondary_scale z)         of x: y, (a, b)\n"
      "                         -primary_scale g / (secondary_scale z) x / y                   of y: y, (a, "
      "b)\n\n"
      "Scales are not taken from the state. Encodes without a state know no mask; they sum an axis where the "
      "destination is 1 and g is larger.");
  bindScales<CNNArithmeticGradient>(base, "Factor on g. 1.", "Factor on z. 1.", "Not used. 0.",
                                    "Not used: the mask of the state decides.");
  property(base, "secondary_stride_in_feature_channels",
           &CNNArithmeticGradient::secondaryStrideInFeatureChannels,
           &CNNArithmeticGradient::setSecondaryStrideInFeatureChannels,
           "0 repeats the first channel of z. 1; taken from the state unless set.");
  readOnly(base, "is_secondary_source_filter", &CNNArithmeticGradient::isSecondarySourceFilter,
           "Whether the result is the gradient of y.");
  bindGradient<mps::CNNAddGradient>(module, "CNNAddGradient", "Of `source_image` only the size counts.");
  bindGradient<mps::CNNSubtractGradient>(
      module, "CNNSubtractGradient",
      "It does not negate: for y set primary_scale to -b. Of `source_image` only the size counts.");
  bindGradient<mps::CNNMultiplyGradient>(
      module, "CNNMultiplyGradient",
      "`source_image` is the other operand; raises Error when it is known to be the operand itself.");
  bindGradient<mps::CNNDivideGradient>(module, "CNNDivideGradient",
                                       "`source_image` is the divisor y; for y a state is needed.");
}

}  // namespace

void bindArithmetic(nb::module_& module) {
  bindBase(module);
  bindOperation<mps::CNNAdd>(module, "CNNAdd", "primary_scale x + secondary_scale y + bias");
  bindOperation<mps::CNNSubtract>(module, "CNNSubtract", "primary_scale x - secondary_scale y + bias");
  bindOperation<mps::CNNMultiply>(module, "CNNMultiply", "(primary_scale x)(secondary_scale y) + bias");
  bindOperation<mps::CNNDivide>(module, "CNNDivide",
                                "(primary_scale x) / (secondary_scale y) + bias. With a state, x or the "
                                "derivative is kept for the gradient of y.");
  bindCompare(module);
  bindGradients(module);
}

}  // namespace python
