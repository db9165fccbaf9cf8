#include "mps/reduction/reduction.hpp"

#include "mps/reduction/reduce_binary.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {
namespace {

template <class KernelType>
void bindReduction(nb::module_& module, const char* name, const char* documentation) {
  kernelClass<KernelType, mps::NNReduceUnary>(module, name, documentation)
      .def(nb::new_(&KernelType::create), "device"_a);
}

void bindValues(nb::module_& module) {
  using mps::ReductionAxis;
  using mps::ReductionOperation;
  nb::enum_<ReductionOperation>(module, "ReductionOperation",
                                "What a reduction makes of the elements along its axis.")
      .value("Min", ReductionOperation::Min)
      .value("Max", ReductionOperation::Max)
      .value("Sum", ReductionOperation::Sum)
      .value("Mean", ReductionOperation::Mean)
      .value("ArgumentMin", ReductionOperation::ArgumentMin)
      .value("ArgumentMax", ReductionOperation::ArgumentMax);
  nb::enum_<ReductionAxis>(module, "ReductionAxis", "The axis that a reduction takes away.")
      .value("Row", ReductionAxis::Row, "Over x, one value for each row and channel.")
      .value("Column", ReductionAxis::Column, "Over y.")
      .value("FeatureChannels", ReductionAxis::FeatureChannels)
      .value("Spatial", ReductionAxis::Spatial, "Over x and y.");
}

void bindUnaryReductions(nb::module_& module) {
  using namespace mps;
  nb::class_<NNReduceUnary, CNNKernel> base(
      module, "NNReduceUnary",
      "Base of the reductions of one image. Of the region clip_rect_source, w x h pixels with C channels, "
      "results are\n\n"
      "    NNReduceRow...              1 x h x C    over x\n"
      "    NNReduceColumn...           w x 1 x C    over y\n"
      "    NNReduceSpatialMean         1 x 1 x C    over x and y\n"
      "    NNReduceFeatureChannels...  w x h x 1    over the channels\n\n"
      "NaN goes through minimum and maximum. The result is written from clip_rect.origin on; the destination "
      "must hold it. "
      "offset is not used. Sources: every format; destinations: float16, float32. Sums are float32. Encoding "
      "raises Error when clip_rect_source lies outside the source, or the destination is too small.");
  property(base, "clip_rect_source", &NNReduceUnary::clipRectSource, &NNReduceUnary::setClipRectSource,
           "Pixels that are reduced, cut to the source (z is not used). RectNoClip.");
  readOnly(base, "operation", &NNReduceUnary::operation, "What the class makes of the elements.");
  readOnly(base, "axis", &NNReduceUnary::axis, "The axis that the class takes away.");
  bindReduction<NNReduceRowMin>(module, "NNReduceRowMin", "Minimum over x.");
  bindReduction<NNReduceRowMax>(module, "NNReduceRowMax", "Maximum over x.");
  bindReduction<NNReduceRowSum>(module, "NNReduceRowSum", "Sum over x.");
  bindReduction<NNReduceRowMean>(module, "NNReduceRowMean", "Mean over x.");
  bindReduction<NNReduceColumnMin>(module, "NNReduceColumnMin", "Minimum over y.");
  bindReduction<NNReduceColumnMax>(module, "NNReduceColumnMax", "Maximum over y.");
  bindReduction<NNReduceColumnSum>(module, "NNReduceColumnSum", "Sum over y.");
  bindReduction<NNReduceColumnMean>(module, "NNReduceColumnMean", "Mean over y.");
  bindReduction<NNReduceFeatureChannelsMin>(module, "NNReduceFeatureChannelsMin",
                                            "Minimum over the channels.");
  bindReduction<NNReduceFeatureChannelsMax>(module, "NNReduceFeatureChannelsMax",
                                            "Maximum over the channels.");
  bindReduction<NNReduceFeatureChannelsMean>(module, "NNReduceFeatureChannelsMean",
                                             "Mean over the channels.");
  constexpr const char* argument =
      "The channel, counted from the first one that is read; the lowest of equals. float16 results hold "
      "numbers up to 2048.";
  bindReduction<NNReduceFeatureChannelsArgumentMin>(module, "NNReduceFeatureChannelsArgumentMin", argument);
  bindReduction<NNReduceFeatureChannelsArgumentMax>(module, "NNReduceFeatureChannelsArgumentMax", argument);
  bindReduction<NNReduceSpatialMean>(module, "NNReduceSpatialMean",
                                     "Mean over x and y: global average pooling.");
  auto sum = kernelClass<NNReduceFeatureChannelsSum, NNReduceUnary>(module, "NNReduceFeatureChannelsSum",
                                                                    "weight * the sum over the channels.");
  sum.def(nb::new_(&NNReduceFeatureChannelsSum::create), "device"_a);
  property(sum, "weight", &NNReduceFeatureChannelsSum::weight, &NNReduceFeatureChannelsSum::setWeight,
           "Factor on the sum. 1.");
  kernelClass<NNReduceUnaryGradient, CNNGradientKernel>(
      module, "NNReduceUnaryGradient",
      "    Sum        dSource = weight * g\n"
      "    Mean       dSource = g / number of elements\n"
      "    Min, Max   dSource = g at the element that was taken, the first one of equals; 0 elsewhere\n\n"
      "0 outside clip_rect_source. Weight and region come from the state, without which encoding raises "
      "Error. "
      "`source_image` is the forward source; of sums and means only its size counts.")
      .def(nb::new_(&NNReduceUnaryGradient::create), "device"_a, "operation"_a, "axis"_a,
           "Those of the forward kernel. Raises Error for ArgumentMin and ArgumentMax, which have no "
           "gradient.");
}

void bindBinaryReductions(nb::module_& module) {
  using namespace mps;
  nb::class_<NNReduceBinary, CNNBinaryKernel> base(
      module, "NNReduceBinary",
      "Base of the reductions with weights. Of each pixel of the primary source's region\n\n"
      "    result = sum over feature channels c of primary(c) * secondary(c), divided as the classes say\n\n"
      "The result has one channel and the region's size, and is written from clip_rect.origin on. Offsets, "
      "strides and edge modes are not used. No gradient. Encoding raises Error when a region lies outside "
      "its "
      "image, sizes or channels differ, or the destination is too small.");
  property(base, "primary_source_clip_rect", &NNReduceBinary::primarySourceClipRect,
           &NNReduceBinary::setPrimarySourceClipRect,
           "Pixels that are read of the primary source (z is not used). RectNoClip.");
  property(base, "secondary_source_clip_rect", &NNReduceBinary::secondarySourceClipRect,
           &NNReduceBinary::setSecondarySourceClipRect,
           "Pixels that are read of the secondary source (z is not used). RectNoClip.");
  kernelClass<NNReduceFeatureChannelsAndWeightsMean, NNReduceBinary>(
      module, "NNReduceFeatureChannelsAndWeightsMean",
      "The weighted sum divided by the number of feature channels.")
      .def(nb::new_(&NNReduceFeatureChannelsAndWeightsMean::create), "device"_a);
  auto sum = kernelClass<NNReduceFeatureChannelsAndWeightsSum, NNReduceBinary>(
      module, "NNReduceFeatureChannelsAndWeightsSum",
      "The weighted sum, or divided by the number of weights that are not 0; 0 where there are none.");
  sum.def(nb::new_(&NNReduceFeatureChannelsAndWeightsSum::create), "device"_a,
          "do_weighted_sum_by_non_zero_weights"_a = false);
  readOnly(sum, "do_weighted_sum_by_non_zero_weights",
           &NNReduceFeatureChannelsAndWeightsSum::doWeightedSumByNonZeroWeights,
           "Whether the sum is divided by the number of weights that are not 0.");
}

}  // namespace

void bindReductions(nb::module_& module) {
  bindValues(module);
  bindUnaryReductions(module);
  bindBinaryReductions(module);
}

}  // namespace python
