#include "mps/loss/yolo_loss.hpp"

#include <cstddef>
#include <vector>

#include "mps/loss/yolo_loss_node.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"
#include "python/source/graph/nodes.hpp"
#include "python/source/kernels/losses.hpp"

namespace python {
namespace {

using Descriptor = mps::CNNYOLOLossDescriptor;

void bindDescriptor(nb::module_& module) {
  nb::class_<Descriptor> descriptor(module, "CNNYOLOLossDescriptor",
                                    "What a YOLO loss computes. A value; kernels copy it when they are made. "
                                    "Four losses make it: of position, size, "
                                    "confidence and classes; weight, label smoothing, number of classes, "
                                    "epsilon and delta of their descriptors apply to "
                                    "their part.");
  descriptor.def(
      nb::new_([](mps::CNNLossType xy, mps::CNNLossType wh, mps::CNNLossType confidence,
                  mps::CNNLossType classes, mps::CNNReductionType reduction, const std::vector<float>& boxes,
                  std::size_t count) {
        return Descriptor::cnnLossDescriptor(xy, wh, confidence, classes, reduction, boxes, count);
      }),
      "xy_loss_type"_a, "wh_loss_type"_a, "confidence_loss_type"_a, "classes_loss_type"_a, "reduction_type"_a,
      "anchor_boxes"_a, "number_of_anchor_boxes"_a,
      "`anchor_boxes`: number_of_anchor_boxes pairs of width and height in grid cells, one after the other.");
  property(descriptor, "xy_loss_descriptor", &Descriptor::XYLossDescriptor, &Descriptor::setXYLossDescriptor,
           "Position; typically MeanSquaredError.");
  property(descriptor, "wh_loss_descriptor", &Descriptor::WHLossDescriptor, &Descriptor::setWHLossDescriptor,
           "Size; typically Huber.");
  property(descriptor, "confidence_loss_descriptor", &Descriptor::confidenceLossDescriptor,
           &Descriptor::setConfidenceLossDescriptor,
           "Whether there is an object; typically SigmoidCrossEntropy.");
  property(descriptor, "classes_loss_descriptor", &Descriptor::classesLossDescriptor,
           &Descriptor::setClassesLossDescriptor, "Class scores; typically SoftMaxCrossEntropy.");
  property(descriptor, "reduction_type", &Descriptor::reductionType, &Descriptor::setReductionType,
           "Of the loss; the gradient is never divided by a count.");
  property(descriptor, "reduce_across_batch", &Descriptor::reduceAcrossBatch,
           &Descriptor::setReduceAcrossBatch, "As of CNNLossDescriptor. False.");
  property(descriptor, "rescore", &Descriptor::rescore, &Descriptor::setRescore,
           "Whether the confidence to reach is the overlap of prediction and truth, or 1. True.");
  property(descriptor, "scale_xy", &Descriptor::scaleXY, &Descriptor::setScaleXY,
           "Factor of the position. 10.");
  property(descriptor, "scale_wh", &Descriptor::scaleWH, &Descriptor::setScaleWH, "Factor of the size. 10.");
  property(descriptor, "scale_no_object", &Descriptor::scaleNoObject, &Descriptor::setScaleNoObject,
           "Factor of the confidence without an object. 5.");
  property(descriptor, "scale_object", &Descriptor::scaleObject, &Descriptor::setScaleObject,
           "Factor of the confidence with an object. 100.");
  property(descriptor, "scale_class", &Descriptor::scaleClass, &Descriptor::setScaleClass,
           "Factor of the classes. 2.");
  property(descriptor, "min_iou_for_object_presence", &Descriptor::minIOUForObjectPresence,
           &Descriptor::setMinIOUForObjectPresence,
           "Overlap of truth and anchor above which an anchor is responsible beside the best one. 0.7.");
  property(descriptor, "max_iou_for_object_absence", &Descriptor::maxIOUForObjectAbsence,
           &Descriptor::setMaxIOUForObjectAbsence, "Overlap below which there is no object. 0.3.");
  property(descriptor, "number_of_anchor_boxes", &Descriptor::numberOfAnchorBoxes,
           &Descriptor::setNumberOfAnchorBoxes, "Anchors of a cell, 1 to 64: pairs of anchor_boxes.");
  property(
      descriptor, "anchor_boxes", &Descriptor::anchorBoxes,
      [](Descriptor& self, const std::vector<float>& boxes) { self.setAnchorBoxes(boxes); },
      "Width and height of one anchor after the other, a list.");
  descriptor.def("encode", &Descriptor::encode, "coder"_a, "Writes the fields.")
      .def_static("decode", &Descriptor::decode, "coder"_a, "What encode wrote.");
}

void bindKernel(nb::module_& module) {
  using Loss = mps::CNNYOLOLoss;
  auto loss =
      kernelClass<Loss, mps::CNNKernel>(module, "CNNYOLOLoss",
                                        "The loss of YOLO's object detection and its gradient in one pass: "
                                        "the destination receives the gradient with respect to "
                                        "the predictions, the labels' loss_image the loss. Each pixel is a "
                                        "cell, with M channels for each anchor: x, y, w, h, "
                                        "confidence and M - 5 class scores. The predictions are raw. Of the "
                                        "labels x and y are the centre in the cell, 0 to 1, w "
                                        "and h the size in cells, the confidence 1 for an anchor that is to "
                                        "find an object, else 0 with w = h = 0; the classes "
                                        "are one-hot.");
  loss.def(nb::new_(&Loss::create), "device"_a, "loss_descriptor"_a,
           "Raises Error unless there are 1 to 64 anchors, as many pairs as anchors, sizes of anchors are "
           "positive, and the "
           "four losses are in the ranges of CNNLossDescriptor; for the cosine distance and a loss scale.");
  readOnly(loss, "loss_xy", &Loss::lossXY, "The loss of the position, for its properties.");
  readOnly(loss, "loss_wh", &Loss::lossWH, "The loss of the size, for its properties.");
  readOnly(loss, "loss_confidence", &Loss::lossConfidence, "The loss of the confidence, for its properties.");
  readOnly(loss, "loss_classes", &Loss::lossClasses, "The loss of the classes, for its properties.");
  readOnly(loss, "scale_xy", &Loss::scaleXY, "Factor of the position.");
  readOnly(loss, "scale_wh", &Loss::scaleWH, "Factor of the size.");
  readOnly(loss, "scale_no_object", &Loss::scaleNoObject, "Factor of the confidence without an object.");
  readOnly(loss, "scale_object", &Loss::scaleObject, "Factor of the confidence with an object.");
  readOnly(loss, "scale_class", &Loss::scaleClass, "Factor of the classes.");
  readOnly(loss, "min_iou_for_object_presence", &Loss::minIOUForObjectPresence, "The descriptor's.");
  readOnly(loss, "max_iou_for_object_absence", &Loss::maxIOUForObjectAbsence, "The descriptor's.");
  readOnly(loss, "reduction_type", &Loss::reductionType, "How the losses of an image become one.");
  readOnly(loss, "reduce_across_batch", &Loss::reduceAcrossBatch, "Whether the batch has one loss.");
  readOnly(loss, "number_of_anchor_boxes", &Loss::numberOfAnchorBoxes, "Anchors of a cell.");
  readOnly(loss, "anchor_boxes", &Loss::anchorBoxes,
           "Width and height of one anchor after the other, a list.");
  readOnly(loss, "descriptor", &Loss::descriptor, "A copy of what the kernel was made with.");
  bindLabelledEncodes(loss);
}

}  // namespace

void bindYOLOLoss(nb::module_& module) {
  bindDescriptor(module);
  bindKernel(module);
  using Node = mps::CNNYOLOLossNode;
  FilterClass<Node> node(module, "CNNYOLOLossNode",
                         "Stands for CNNYOLOLoss. The result image is the gradient of the predictions: call "
                         "training_graph() on this node.");
  node.def(nb::new_(&Node::create), "source"_a, "loss_descriptor"_a, "`source`: the predictions.");
  readOnly(node, "input_labels", &Node::inputLabels,
           "Where the labels come in; give it a handle when the graph has several source states.");
  readOnly(node, "descriptor", &Node::descriptor, "A copy of what the node was made with.");
}

}  // namespace python
