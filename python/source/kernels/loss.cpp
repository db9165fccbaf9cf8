#include "mps/loss/loss.hpp"

#include <nanobind/ndarray.h>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/layer/loss_scale.hpp"
#include "mps/core/types/error.hpp"
#include "mps/loss/forward_loss.hpp"
#include "mps/loss/yolo_loss.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/kernels/kernels.hpp"
#include "python/source/kernels/losses.hpp"
#include "python/source/layers/data_source.hpp"

namespace python {
namespace {

using mps::CNNLossDescriptor;
using mps::CNNLossLabels;
using mps::CNNLossType;
using mps::CNNReductionType;
using mps::ImageBatch;
using Device = std::shared_ptr<mtl::Device>;

void bindEnumerations(nb::module_& module) {
  nb::enum_<CNNLossType>(module, "CNNLossType",
                         "The loss l of one element with prediction y and label t; t' is the smoothed label.")
      .value("MeanAbsoluteError", CNNLossType::MeanAbsoluteError, "|y - t|")
      .value("MeanSquaredError", CNNLossType::MeanSquaredError, "(y - t)^2, no factor 1/2")
      .value("SoftMaxCrossEntropy", CNNLossType::SoftMaxCrossEntropy,
             "-t' log(softmax(y)) over the channels of a pixel")
      .value("SigmoidCrossEntropy", CNNLossType::SigmoidCrossEntropy, "max(y, 0) - y t' + log(1 + exp(-|y|))")
      .value("CategoricalCrossEntropy", CNNLossType::CategoricalCrossEntropy, "-t log(y), y a probability")
      .value("Hinge", CNNLossType::Hinge, "max(1 - s y, 0), s = 2 t - 1, labels 0 or 1")
      .value("Huber", CNNLossType::Huber,
             "(y - t)^2 / 2 up to |y - t| = delta, then delta |y - t| - delta^2 / 2")
      .value("CosineDistance", CNNLossType::CosineDistance,
             "1 - sum(y t) of the whole image, reduction Sum only")
      .value("Log", CNNLossType::Log, "-t log(y + epsilon) - (1 - t) log(1 - y + epsilon)")
      .value("KullbackLeiblerDivergence", CNNLossType::KullbackLeiblerDivergence,
             "t (log(t) - y), y a log-probability");
  nb::enum_<CNNReductionType>(module, "CNNReductionType", "How the losses of an image become its loss value.")
      .value("None_", CNNReductionType::None,
             "One loss per element; the loss image has the size of the predictions.")
      .value("Sum", CNNReductionType::Sum, "Sum of the elements.")
      .value("Mean", CNNReductionType::Mean,
             "Sum / (width height channels); SoftMaxCrossEntropy: sum / (width height).")
      .value("SumByNonZeroWeights", CNNReductionType::SumByNonZeroWeights,
             "Sum / number of weights that are not 0; without weights / number of elements.");
}

void bindDescriptor(nb::module_& module) {
  using Descriptor = CNNLossDescriptor;
  nb::class_<Descriptor> descriptor(
      module, "CNNLossDescriptor",
      "What a loss computes. A value; kernels copy it when they are made.\n\n"
      "    value of element k = weight w_k l_k       w_k = 1 without a weights image\n"
      "    loss               = reduction(values)");
  descriptor.def(nb::new_(&Descriptor::cnnLossDescriptor), "loss_type"_a,
                 "reduction_type"_a = CNNReductionType::Sum, "All else as below.");
  property(descriptor, "loss_type", &Descriptor::lossType, &Descriptor::setLossType, "Loss of one element.");
  property(descriptor, "reduction_type", &Descriptor::reductionType, &Descriptor::setReductionType,
           "Changes the reported loss. The gradient of CNNLoss is never divided by a count, whatever the "
           "reduction.");
  property(
      descriptor, "reduce_across_batch", &Descriptor::reduceAcrossBatch, &Descriptor::setReduceAcrossBatch,
      "True: the loss of the first image is the reduction over the whole batch, the others are 0. False.");
  property(descriptor, "weight", &Descriptor::weight, &Descriptor::setWeight,
           "Factor of loss and gradient. 1. 1 / N with reduction Sum is the usual mean over a batch of N.");
  property(descriptor, "label_smoothing", &Descriptor::labelSmoothing, &Descriptor::setLabelSmoothing,
           "s of SoftMaxCrossEntropy, t' = t (1 - s) + s / number_of_classes, and SigmoidCrossEntropy, t' = "
           "t (1 - s) + s "
           "/ 2. 0.");
  property(descriptor, "number_of_classes", &Descriptor::numberOfClasses, &Descriptor::setNumberOfClasses,
           "1, and never taken from the number of channels: set it when SoftMaxCrossEntropy smooths labels. "
           "More than 1: "
           "only so many channels count.");
  property(descriptor, "epsilon", &Descriptor::epsilon, &Descriptor::setEpsilon,
           "Keeps Log away from log(0). 1e-7.");
  property(descriptor, "delta", &Descriptor::delta, &Descriptor::setDelta,
           "Where Huber turns from a square into a line. 1.");
  property(descriptor, "exact_soft_max_gradient", &Descriptor::exactSoftMaxGradient,
           &Descriptor::setExactSoftMaxGradient,
           "SoftMaxCrossEntropy's gradient is w_k (softmax(y)_k - t'_k). True: the exact derivative, which "
           "differs where "
           "the weights of the channels of a pixel differ or its labels do not sum to 1. False.");
  property(descriptor, "broadcasts_labels", &Descriptor::broadcastsLabels, &Descriptor::setBroadcastsLabels,
           "Labels are as wide and high as the predictions. True: an axis on which they have size 1 is "
           "repeated. False.");
  descriptor.def_prop_rw("loss_scale", &Descriptor::lossScale, &Descriptor::setLossScale,
                         nb::for_setter(nb::arg("loss_scale").none()),
                         "Multiplies the gradient of CNNLoss, not the loss. None. Needs a reduction.");
  descriptor.def("encode", &Descriptor::encode, "coder"_a, "Writes the fields.")
      .def_static("decode", &Descriptor::decode, "coder"_a, "What encode wrote.");
}

using HostFloats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

/// A view of an array [height][width][channel] of float32, strides and all.
mps::CNNLossDataDescriptor viewOf(const HostFloats& array) {
  if (array.ndim() != 3)
    throw nb::value_error("labels and weights have three dimensions: height, width, channels");
  return mps::CNNLossDataDescriptor::cnnLossDataDescriptor({array.data(), array.size()}, channelsLast,
                                                           {array.shape(1), array.shape(0), array.shape(2)});
}

template <class Index>
using HostIndices = nb::ndarray<const Index, nb::ndim<1>, nb::device::cpu>;

/// @throws mps::Error for a number that is no index of 32 bits
template <class Index>
std::vector<std::uint32_t> indicesOf(const HostIndices<Index>& numbers) {
  std::vector<std::uint32_t> indices;
  indices.reserve(numbers.size());
  const auto view = numbers.view();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const Index number = view(i);
    if (!std::in_range<std::uint32_t>(number))
      throw mps::Error("CNNLossLabels: image " + std::to_string(indices.size()) + " has class index " +
                       std::to_string(number) + ", expected 0 to 4294967295");
    indices.push_back(static_cast<std::uint32_t>(number));
  }
  return indices;
}

/// An overload for each type of index: nothing is converted, which could change numbers.
template <class... Indices>
void bindClassIndices(nb::class_<CNNLossLabels, mps::State>& labels) {
  (labels.def_static(
       "write_class_indices",
       [](const mps::StateBatch& batch, const HostIndices<Indices>& indices) {
         const std::vector<std::uint32_t> numbers = indicesOf<Indices>(indices);
         CNNLossLabels::writeClassIndices(batch, std::span(numbers));
       },
       "labels"_a, nb::arg("indices").noconvert(),
       "Writes the class indices, an array of integers, of a batch of create_class_batch, before the encode "
       "that reads them; no encoded work may still read the old ones. Raises Error for another kind of "
       "batch, a wrong number of indices, a negative one, or one that is not less than number_of_classes."),
   ...);
}

void bindLabels(nb::module_& module) {
  const mtl::Size oneValue{1, 1, 1};
  nb::class_<CNNLossLabels, mps::State> labels(module, "CNNLossLabels",
                                               "Targets of one image, weights if there are any, and the "
                                               "place where the loss is written. Labels have the width and "
                                               "height of the predictions and at least as many channels as "
                                               "count. An object may be used again: loss_image is "
                                               "overwritten by each encode.");
  labels
      .def(
          nb::new_([](const Device& device, const ImagePointer& image, const ImagePointer& weights,
                      const mtl::Size& size) { return CNNLossLabels::create(device, size, image, weights); }),
          "device"_a, "labels_image"_a, "weights_image"_a.none() = nb::none(), "loss_image_size"_a = oneValue,
          "Around images, which must be valid when the loss runs. `loss_image_size`: mtl.Size(1, 1, 1), or "
          "the size of the "
          "predictions (reduction None_).")
      .def(nb::new_([](const Device& device, const HostFloats& data, const std::optional<HostFloats>& weights,
                       const mtl::Size& size) {
             std::optional<mps::CNNLossDataDescriptor> factors;
             if (weights) factors = viewOf(*weights);
             return CNNLossLabels::create(device, size, viewOf(data), factors);
           }),
           "device"_a, "labels"_a, "weights"_a.none() = nb::none(), "loss_image_size"_a = oneValue,
           "Copies arrays [height][width][channel] of float32.")
      .def_static("create_batch", &CNNLossLabels::createBatch, "device"_a, "loss_image_size"_a,
                  "labels_images"_a, "weights_images"_a = ImageBatch(),
                  "Dense labels of a whole batch in one block. `weights_images`: none, or as many as labels.")
      .def_static(
          "create_class_batch", &CNNLossLabels::createClassBatch, "device"_a, "count"_a,
          "number_of_classes"_a = 0,
          "Room for one class index of 32 bits per image (predictions of 1 x 1 pixel); all 0 at "
          "first. Index k stands for a label of 1 in channel k and 0 elsewhere. An index for which the "
          "predictions have no channel that counts makes the command buffer fail when the loss is "
          "due. `number_of_classes`, where it is known: wrong indices are refused when they are "
          "written. 0: not known.");
  bindClassIndices<std::uint8_t, std::uint32_t, std::int32_t, std::int64_t, std::uint64_t>(labels);
  labels.def_static("loss_images", &CNNLossLabels::lossImages, "labels"_a,
                    "The loss images of a batch, in order. Raises Error for states of another kind.");
  readOnly(labels, "loss_image", &CNNLossLabels::lossImage, "float32; valid after the encode has run.");
  readOnly(labels, "labels_image", &CNNLossLabels::labelsImage, "None for labels that are class indices.");
  readOnly(labels, "weights_image", &CNNLossLabels::weightsImage, "None when there are none.");
}

void bindLoss(nb::module_& module) {
  using mps::CNNLoss;
  auto loss = kernelClass<CNNLoss, mps::CNNKernel>(
      module, "CNNLoss",
      "Loss and its gradient in one pass:\n\n"
      "    loss     = reduction of weight w_k l_k       CNNLossType lists l\n"
      "    gradient = weight w_k d l_k / d y_k          never divided by a count, whatever the reduction\n\n"
      "For the mean over a batch of N give the weight 1 / N with reduction Sum. SoftMaxCrossEntropy contains "
      "the softmax.");
  loss.def(nb::new_(&CNNLoss::create), "device"_a, "loss_descriptor"_a,
           "Raises Error for values out of range: number_of_classes >= 1, epsilon > 0.");
  readOnly(loss, "loss_type", &CNNLoss::lossType, "Loss of one element.");
  readOnly(loss, "reduction_type", &CNNLoss::reductionType, "How the losses of an image become one.");
  readOnly(loss, "reduce_across_batch", &CNNLoss::reduceAcrossBatch, "Whether the batch has one loss.");
  readOnly(loss, "weight", &CNNLoss::weight, "Factor of loss and gradient.");
  readOnly(loss, "label_smoothing", &CNNLoss::labelSmoothing, "s of the cross entropies.");
  readOnly(loss, "number_of_classes", &CNNLoss::numberOfClasses, "Channels that count, where above 1.");
  readOnly(loss, "epsilon", &CNNLoss::epsilon, "Of Log.");
  readOnly(loss, "delta", &CNNLoss::delta, "Of Huber.");
  readOnly(loss, "descriptor", &CNNLoss::descriptor, "A copy of what the kernel was made with.");
  bindLabelledEncodes(loss);
}

/// A callback written in Python.
class PythonLossCallback final : public mps::NNLossCallback {
 public:
  [[nodiscard]] float scalarWeight(const ImagePointer& source, const ImagePointer& destination) override {
    const Locked locked;
    return converted<float>(required<mps::NNLossCallback>(*this, "scalar_weight")(source, destination),
                            "what scalar_weight() returns", "a number");
  }
};

/// The numbers of the kernels of losses that are images.
template <class KernelType, class Class>
void bindLossProperties(Class& loss) {
  loss.def(nb::new_(&KernelType::create), "device"_a, "loss_descriptor"_a,
           "Raises Error for values out of range, and with a loss_scale.");
  readOnly(
      loss, "descriptor", [](const KernelType& self) { return self.descriptor(); },
      "A copy of what the kernel was made with, changes included.");
  readOnly(
      loss, "loss_type", [](const KernelType& self) { return self.lossType(); }, "Loss of one element.");
  readOnly(
      loss, "reduction_type", [](const KernelType& self) { return self.reductionType(); },
      "How the losses of an image become one.");
  readOnly(
      loss, "reduce_across_batch", [](const KernelType& self) { return self.reduceAcrossBatch(); },
      "Whether the batch has one loss.");
  readOnly(
      loss, "number_of_classes", [](const KernelType& self) { return self.numberOfClasses(); },
      "Channels that count, where above 1.");
  property(
      loss, "weight", [](const KernelType& self) { return self.weight(); },
      [](KernelType& self, float value) { self.setWeight(value); }, "Factor of loss and gradient.");
  property(
      loss, "label_smoothing", [](const KernelType& self) { return self.labelSmoothing(); },
      [](KernelType& self, float value) { self.setLabelSmoothing(value); }, "s of the cross entropies.");
  property(
      loss, "epsilon", [](const KernelType& self) { return self.epsilon(); },
      [](KernelType& self, float value) { self.setEpsilon(value); }, "Of Log.");
  property(
      loss, "delta", [](const KernelType& self) { return self.delta(); },
      [](KernelType& self, float value) { self.setDelta(value); }, "Of Huber.");
  loss.def_prop_rw(
      "property_call_back", [](const KernelType& self) { return self.propertyCallBack(); },
      [](KernelType& self, std::shared_ptr<mps::NNLossCallback> callback) {
        self.setPropertyCallBack(std::move(callback));
      },
      nb::for_setter(nb::arg("callback").none()),
      "Asked for the weight at each encode. None: the weight counts.");
}

void bindForwardLoss(nb::module_& module) {
  nb::class_<mps::NNLossCallback, PythonLossCallback, mps::SecureCoding>(
      module, "NNLossCallback",
      "Asked for the weight of a loss at each encode: a subclass defines scalar_weight.")
      .def(nb::init<>())
      .def(
          "scalar_weight",
          [](mps::NNLossCallback& self, const ImagePointer& source, const ImagePointer& destination) {
            if (isOf<PythonLossCallback>(self)) throwNotDefined("scalar_weight");
            return self.scalarWeight(source, destination);
          },
          "source_image"_a, "destination_image"_a,
          "A number in place of the kernel's weight, for this encode. The first image of the predictions "
          "and the first that "
          "is written.");

  using mps::NNForwardLoss;
  auto forward = kernelClass<NNForwardLoss, mps::CNNKernel>(
      module, "NNForwardLoss",
      "The loss of predictions against labels, an image like any other: loss = reduction of weight w_k l_k. "
      "Labels and "
      "weights are ordinary images, as wide and high as the predictions. An axis of size 1 is repeated: of "
      "weights always, of "
      "labels where broadcasts_labels of the descriptor is set. The destination "
      "has the size of the "
      "predictions for reduction None_, else 1 x 1 x 1 per image. The encodes without labels raise Error.");
  bindLossProperties<NNForwardLoss>(forward);
  bindUnaryEncodes(forward);
  constexpr const char* documentation =
      "`weights`: none for 1. `destination_states`: as many as images, or none. Without destinations they "
      "are made and "
      "returned, with `destination_states_are_temporary` also the new states.";
  bindEncode<Batch, ImageBatch, ImageBatch, ImageBatch>(
      forward, documentation, "source_images"_a, nb::kw_only(), "labels"_a, "weights"_a = ImageBatch());
  forward.def(
      "encode_batch",
      [](NNForwardLoss& self, const CommandBufferPointer& commandBuffer, const ImageBatch& sources,
         const ImageBatch& labels, bool temporary, const ImageBatch& weights) {
        mps::StateBatch states;
        auto images = self.encodeBatch(commandBuffer, sources, labels, weights, states, temporary);
        return std::pair(std::move(images), std::move(states));
      },
      "command_buffer"_a, "source_images"_a, nb::kw_only(), "labels"_a, "destination_states_are_temporary"_a,
      "weights"_a = ImageBatch(), Released(), documentation);
  bindEncode<Batch, ImageBatch, ImageBatch, ImageBatch, mps::StateBatch, ImageBatch>(
      forward, documentation, "source_images"_a, "labels"_a, "weights"_a, "destination_states"_a,
      "destination_images"_a);

  using mps::NNLossGradient;
  auto gradient = kernelClass<NNLossGradient, mps::CNNGradientKernel>(
      module, "NNLossGradient",
      "The gradient of NNForwardLoss with respect to the predictions or the labels: g weight w_k d_k / D, "
      "with d the "
      "derivative of the loss of an element and D the count that the loss was divided by (1 for Sum; no "
      "division for None_). "
      "The encodes without labels raise Error.");
  bindLossProperties<NNLossGradient>(gradient);
  property(gradient, "compute_label_gradients", &NNLossGradient::computeLabelGradients,
           &NNLossGradient::setComputeLabelGradients,
           "True: of the labels, which then have the size of the predictions. False: of the predictions.");
  property(gradient, "divides_by_count", &NNLossGradient::dividesByCount, &NNLossGradient::setDividesByCount,
           "Whether reductions with a count divide by it. True.");
  bindGradientEncodes(gradient);
  constexpr const char* gradientText =
      "`weights`: none for 1. `source_states`: what NNForwardLoss made or filled, whose numbers count; none: "
      "this kernel's.";
  bindEncode<Batch, ImageBatch, ImageBatch, ImageBatch, ImageBatch, mps::StateBatch>(
      gradient, gradientText, "source_gradients"_a, "source_images"_a, "labels"_a, "weights"_a,
      "source_states"_a);
  bindEncode<Batch, ImageBatch, ImageBatch, ImageBatch, ImageBatch, mps::StateBatch, ImageBatch>(
      gradient, gradientText, "source_gradients"_a, "source_images"_a, "labels"_a, "weights"_a,
      "source_states"_a, "destination_gradients"_a);

  auto initial = kernelClass<mps::NNInitialGradient, mps::CNNKernel>(
      module, "NNInitialGradient",
      "The gradient of a number with respect to itself: ones, as many as the source has elements. The source "
      "is not read.");
  initial.def(nb::new_(&mps::NNInitialGradient::create), "device"_a);
}

}  // namespace

void bindLosses(nb::module_& module) {
  bindEnumerations(module);
  bindDescriptor(module);
  bindLabels(module);
  bindLoss(module);
  bindForwardLoss(module);
}

}  // namespace python
