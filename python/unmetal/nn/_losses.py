"""Losses: NNForwardLoss and NNLossGradient."""

import math

import numpy as np

import unmetal
from unmetal import CNNLossType, CNNReductionType
from unmetal.nn._arrays import (array_of, as_like, cast, checked, filled, floats, moved, of_arrays, packed, shape_of,
                                type_of)
from unmetal.nn._calls import batch_of, running

_REDUCTIONS = {"none": CNNReductionType.None_, "sum": CNNReductionType.Sum, "mean": CNNReductionType.Mean}


class _Loss:
    """Predictions, labels and weights [...][channel]; one image for all of them, so that a reduction is of all elements."""

    def __init__(self, kind, predictions, labels, weights, reduction, device, **settings):
        checked(reduction in _REDUCTIONS, "loss", "reduction", repr(reduction), "'mean', 'sum' or 'none'")
        self.device, self.reduction, self.shape = device, reduction, shape_of(predictions)
        descriptor = unmetal.CNNLossDescriptor(kind, _REDUCTIONS[reduction])
        for name, value in settings.items():
            setattr(descriptor, name, value)
        self.forward = unmetal.NNForwardLoss(self.device, descriptor)
        self.gradient = unmetal.NNLossGradient(self.device, descriptor)
        self.predictions, self.labels = self.image(predictions), self.image(labels)
        self.weights = unmetal.ImageBatch() if weights is None else self.image(weights)
        self.like = predictions
        self.losses = self.unwritten(self.pixels(predictions).shape if reduction == "none" else (1, 1, 1, 1))
        self.states = self.forward.result_state_batch(self.predictions)
        with running(self.device, self.pixels(self.losses)) as (command_buffer, destination):
            self.forward.encode_batch(command_buffer, self.predictions, self.labels, self.weights, self.states, destination)

    @staticmethod
    def pixels(array):
        return array.reshape(1, -1, 1, array.shape[-1])

    def image(self, array):
        return batch_of(self.device, self.pixels(array))

    def unwritten(self, shape):
        return filled(shape, float("nan"), self.like, "float32")

    def result(self):
        return self.losses.reshape(self.shape) if self.reduction == "none" else self.losses[0, 0, 0, 0]

    def pull(self, grad_output, of_labels=False):
        incoming = as_like(grad_output, self.like, "float32")
        expected = self.shape if self.reduction == "none" else ()
        checked(shape_of(incoming) == expected, "backward", "grad_output", f"of shape {shape_of(incoming)}", expected)
        incoming = self.image(incoming.reshape(self.losses.shape))
        self.gradient.compute_label_gradients = of_labels
        outgoing = self.unwritten(self.shape)
        with running(self.device, self.pixels(outgoing)) as (command_buffer, destination):
            self.gradient.encode_batch(command_buffer, incoming, self.predictions, self.labels, self.weights, self.states,
                                       destination)
        return outgoing


def _elements(kind, input, target, reduction, device, **settings):
    input, target = packed(floats(input, "input")), packed(floats(target, "target"))
    checked(input.shape == target.shape and input.ndim > 0, "loss", "target", f"of shape {shape_of(target)}", shape_of(input))
    return _Loss(kind, input, target, None, reduction, device, **settings)


@of_arrays
def mse_loss(input, target, reduction="mean", *, device=None):
    """(input - target)^2 of arrays of one shape; `reduction`: 'mean' or 'sum' of all elements, or 'none'."""
    return _elements(CNNLossType.MeanSquaredError, input, target, reduction, device).result()


@of_arrays
def mse_loss_backward(grad_output, input, target, reduction="mean", *, device=None):
    """Gradients of input and target; `grad_output`: a number, with reduction 'none' an array."""
    loss = _elements(CNNLossType.MeanSquaredError, input, target, reduction, device)
    return loss.pull(grad_output), loss.pull(grad_output, True)


@of_arrays
def l1_loss(input, target, reduction="mean", *, device=None):
    """|input - target|; otherwise as mse_loss."""
    return _elements(CNNLossType.MeanAbsoluteError, input, target, reduction, device).result()


@of_arrays
def l1_loss_backward(grad_output, input, target, reduction="mean", *, device=None):
    """Gradients of input and target."""
    loss = _elements(CNNLossType.MeanAbsoluteError, input, target, reduction, device)
    return loss.pull(grad_output), loss.pull(grad_output, True)


@of_arrays
def huber_loss(input, target, reduction="mean", delta=1.0, *, device=None):
    """d^2 / 2 where d = |input - target| <= delta, else delta (d - delta / 2); otherwise as mse_loss."""
    return _elements(CNNLossType.Huber, input, target, reduction, device, delta=delta).result()


@of_arrays
def huber_loss_backward(grad_output, input, target, reduction="mean", delta=1.0, *, device=None):
    """Gradients of input and target."""
    loss = _elements(CNNLossType.Huber, input, target, reduction, device, delta=delta)
    return loss.pull(grad_output), loss.pull(grad_output, True)


@of_arrays
def binary_cross_entropy_with_logits(input, target, reduction="mean", *, device=None):
    """-target ln(s) - (1 - target) ln(1 - s), s = sigmoid(input); otherwise as mse_loss."""
    return _elements(CNNLossType.SigmoidCrossEntropy, input, target, reduction, device).result()


@of_arrays
def binary_cross_entropy_with_logits_backward(grad_output, input, target, reduction="mean", *, device=None):
    """Gradients of input and target."""
    loss = _elements(CNNLossType.SigmoidCrossEntropy, input, target, reduction, device)
    return loss.pull(grad_output), loss.pull(grad_output, True)


class _CrossEntropy:
    """One-hot labels for class indices; weights of classes; 'mean' divides by the sum of the weights of the targets."""

    def __init__(self, input, target, weight, ignore_index, reduction, label_smoothing, layout, device):
        checked(layout in ("NHWC", "NCHW"), "functional", "layout", repr(layout), "'NHWC' or 'NCHW'")
        checked(reduction in _REDUCTIONS, "cross_entropy", "reduction", repr(reduction), "'mean', 'sum' or 'none'")
        input, target = floats(input, "input"), array_of(target)
        self.axis, self.reduction = 1 if layout == "NCHW" and input.ndim > 1 else -1, reduction
        predictions = packed(moved(input, self.axis, -1))
        classes = predictions.shape[-1]
        each = filled((classes,), 1, input, "float32")
        if weight is not None:
            each = cast(floats(weight, "weight"), "float32")
            checked(shape_of(each) == (classes,), "cross_entropy", "weight", f"of shape {shape_of(each)}", f"[{classes}]")
        if type_of(target).startswith(("int", "uint")):
            checked(shape_of(target) == shape_of(predictions)[:-1], "cross_entropy", "target",
                    f"of shape {shape_of(target)}", shape_of(predictions)[:-1])
            kept = target != ignore_index
            chosen = target * kept
            checked(bool(((chosen >= 0) & (chosen < classes)).all()), "cross_entropy", "target",
                    "a class that does not exist", f"0 ... {classes - 1}")
            labels = cast(chosen[..., None] == as_like(np.arange(classes), target), "float32")
            weights = each * kept[..., None]
            self.count = np.float64(cast(labels * weights, "float64").sum().item())
        else:
            target = floats(target, "target")
            checked(target.shape == input.shape, "cross_entropy", "target", f"of shape {shape_of(target)}", shape_of(input))
            labels = packed(moved(target, self.axis, -1))
            weights = each * filled(labels.shape, 1, input, "float32")
            self.count = math.prod(predictions.shape[:-1])
        self.factor = np.float32(1 / self.count) if reduction == "mean" else np.float32(1)
        self.loss = _Loss(CNNLossType.SoftMaxCrossEntropy, predictions, labels, weights,
                          "none" if reduction == "none" else "sum", device, number_of_classes=classes,
                          label_smoothing=label_smoothing, exact_soft_max_gradient=True)

    def result(self):
        if self.reduction == "none":
            return self.loss.result().sum(axis=-1)
        return self.loss.result() * self.factor

    def pull(self, grad_output):
        incoming = as_like(grad_output, self.loss.like, "float32") * self.factor
        if self.reduction == "none":
            incoming = incoming[..., None] * filled(self.loss.shape, 1, self.loss.like, "float32")
        return moved(self.loss.pull(incoming), -1, self.axis)


@of_arrays
def cross_entropy(input, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0, *, layout="NHWC",
                  device=None):
    """-sum over classes c of weight[c] t[c] log_softmax(input)[c]. `input`: [N][C] or images, channels are classes; `target`:
    class indices (whole numbers, the shape of input without its channels) or probabilities (the shape of input); `weight` [C].
    'mean' divides by the sum of the weights of the targets, for probabilities by the number of pixels."""
    return _CrossEntropy(input, target, weight, ignore_index, reduction, label_smoothing, layout, device).result()


@of_arrays
def cross_entropy_backward(grad_output, input, target, weight=None, ignore_index=-100, reduction="mean",
                           label_smoothing=0.0, *, layout="NHWC", device=None):
    """Gradient of input."""
    return _CrossEntropy(input, target, weight, ignore_index, reduction, label_smoothing, layout, device).pull(grad_output)
