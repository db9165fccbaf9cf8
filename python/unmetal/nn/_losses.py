"""Losses: NNForwardLoss and NNLossGradient."""

# What arrays and kernels give is Any here.
# mypy: disable-error-code="no-any-return"
from __future__ import annotations

import math
from typing import Any, Optional, Tuple

import numpy as np

import unmetal
from unmetal import CNNLossType, CNNNeuronType, CNNReductionType, NNNeuronDescriptor, mtl
from unmetal.nn._arrays import (ArrayType, Data, Shape, array_of, as_like, at_least, cast_to, checked, filled, floats, moved,
                                of_arrays, packed, scaled, settle, shape_of, total, type_of)
from unmetal.nn._calls import Call, batch_of, running
from unmetal.nn._layout import Layout, layout_of

_REDUCTIONS = {"none": CNNReductionType.None_, "sum": CNNReductionType.Sum, "mean": CNNReductionType.Mean}
Switch = Optional[bool]


def _reduction(function: str, size_average: Switch, reduce: Switch, reduction: str) -> str:
    """What PyTorch makes of the two arguments that `reduction` replaced."""
    for name, value in (("size_average", size_average), ("reduce", reduce)):
        checked(value is None or isinstance(value, (bool, np.bool_)), function, name, repr(value),
                "True, False or None; reduction is an argument of its own")
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is not None and not reduce else "mean" if size_average in (None, True) else "sum"
    checked(reduction in _REDUCTIONS, function, "reduction", repr(reduction), "'mean', 'sum' or 'none'")
    return reduction


class _Loss:
    """Predictions, labels and weights [...][channel]; one image for all of them, so that a reduction is of all elements."""

    def __init__(self, kind: CNNLossType, predictions: Data, labels: Data, weights: Data, reduction: str, device: Any,
                 **settings: Any):
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
    def pixels(array: Data) -> Data:
        return array.reshape(1, -1, 1, array.shape[-1])

    def image(self, array: Data) -> unmetal.ImageBatch:
        return batch_of(self.device, self.pixels(array))

    def unwritten(self, shape: Shape) -> Data:
        return filled(shape, float("nan"), self.like, "float32")

    def result(self) -> Data:
        return self.losses.reshape(self.shape) if self.reduction == "none" else self.losses[0, 0, 0, 0]

    def pull(self, grad_output: Any, of_labels: bool = False) -> Data:
        incoming = _incoming(grad_output, self.like, self.shape if self.reduction == "none" else ())
        gradients = self.image(incoming.reshape(self.losses.shape))
        self.gradient.compute_label_gradients = of_labels
        outgoing = self.unwritten(self.shape)
        with running(self.device, self.pixels(outgoing)) as (command_buffer, destination):
            self.gradient.encode_batch(command_buffer, gradients, self.predictions, self.labels, self.weights, self.states,
                                       destination)
        return outgoing


def _incoming(grad_output: Any, like: Data, expected: Shape) -> Data:
    incoming = as_like(grad_output, like, "float32")
    checked(shape_of(incoming) == expected, "backward", "grad_output", f"of shape {shape_of(incoming)}", expected)
    return incoming


def _pair(input: Any, target: Any) -> Tuple[Data, Data]:
    input, target = packed(floats(input, "input")), packed(floats(target, "target"))
    checked(input.shape == target.shape and input.ndim > 0, "loss", "target", f"of shape {shape_of(target)}", shape_of(input))
    return input, target


def _weights(weight: Any, input: Data) -> Data:
    """Of each element, from an array that repeats as NumPy's and PyTorch's do."""
    weight = cast_to(floats(weight, "weight"), "float32")
    shapes = shape_of(weight), shape_of(input)
    fits = len(shapes[0]) <= len(shapes[1]) and all(
        mine in (1, other) for mine, other in zip(reversed(shapes[0]), reversed(shapes[1])))
    checked(fits, "loss", "weight", f"of shape {shapes[0]}", f"one that repeats to {shapes[1]}")
    return weight * filled(shapes[1], 1, input, "float32")


class _Elements:
    """A loss of each element times a factor, which the kernel does not know, and times weights, for which 'mean' divides by
    the number of elements."""

    def __init__(self, kind: CNNLossType, input: Any, target: Any, weight: Any, reduction: str, device: Any,
                 factor: float = 1, **settings: Any):
        input, target = _pair(input, target)
        self.factor = factor
        weights = None
        if weight is not None:
            weights = _weights(weight, input)
            if reduction == "mean":
                reduction, self.factor = "sum", factor / math.prod(input.shape)
        self.loss = _Loss(kind, input, target, weights, reduction, device, **settings)

    def result(self) -> Data:
        return scaled(self.loss.result(), self.factor)

    def pull(self, grad_output: Any) -> Tuple[Data, Data]:
        """Of input and target."""
        incoming = scaled(as_like(grad_output, self.loss.like, "float32"), self.factor)
        return self.loss.pull(incoming), self.loss.pull(incoming, True)


@of_arrays
def mse_loss(input: ArrayType, target: Any, size_average: Switch = None, reduce: Switch = None, reduction: str = "mean", *,
             device: Optional[mtl.Device] = None) -> ArrayType:
    """(input - target)^2 of arrays of one shape; `reduction`: 'mean' or 'sum' of all elements, or 'none'. `size_average` and
    `reduce`, of all losses, have PyTorch's places and its meaning."""
    reduction = _reduction("mse_loss", size_average, reduce, reduction)
    return _Elements(CNNLossType.MeanSquaredError, input, target, None, reduction, device).result()


@of_arrays
def mse_loss_backward(grad_output: Any, input: ArrayType, target: Any, size_average: Switch = None, reduce: Switch = None,
                      reduction: str = "mean", *, device: Optional[mtl.Device] = None) -> Tuple[ArrayType, ArrayType]:
    """Gradients of input and target; `grad_output`: a number, with reduction 'none' an array."""
    reduction = _reduction("mse_loss", size_average, reduce, reduction)
    return _Elements(CNNLossType.MeanSquaredError, input, target, None, reduction, device).pull(grad_output)


@of_arrays
def l1_loss(input: ArrayType, target: Any, size_average: Switch = None, reduce: Switch = None, reduction: str = "mean", *,
            device: Optional[mtl.Device] = None) -> ArrayType:
    """|input - target|; otherwise as mse_loss."""
    reduction = _reduction("l1_loss", size_average, reduce, reduction)
    return _Elements(CNNLossType.MeanAbsoluteError, input, target, None, reduction, device).result()


@of_arrays
def l1_loss_backward(grad_output: Any, input: ArrayType, target: Any, size_average: Switch = None, reduce: Switch = None,
                     reduction: str = "mean", *, device: Optional[mtl.Device] = None) -> Tuple[ArrayType, ArrayType]:
    """Gradients of input and target; where they are equal: 0."""
    reduction = _reduction("l1_loss", size_average, reduce, reduction)
    return _Elements(CNNLossType.MeanAbsoluteError, input, target, None, reduction, device).pull(grad_output)


@of_arrays
def huber_loss(input: ArrayType, target: Any, reduction: str = "mean", delta: float = 1.0, *,
               device: Optional[mtl.Device] = None) -> ArrayType:
    """d^2 / 2 where d = |input - target| <= delta, else delta (d - delta / 2); otherwise as mse_loss."""
    reduction = _reduction("huber_loss", None, None, reduction)
    return _Elements(CNNLossType.Huber, input, target, None, reduction, device, delta=delta).result()


@of_arrays
def huber_loss_backward(grad_output: Any, input: ArrayType, target: Any, reduction: str = "mean", delta: float = 1.0, *,
                        device: Optional[mtl.Device] = None) -> Tuple[ArrayType, ArrayType]:
    """Gradients of input and target."""
    reduction = _reduction("huber_loss", None, None, reduction)
    return _Elements(CNNLossType.Huber, input, target, None, reduction, device, delta=delta).pull(grad_output)


def _smooth(input: Any, target: Any, size_average: Switch, reduce: Switch, reduction: str, beta: float,
            device: Any) -> _Elements:
    reduction = _reduction("smooth_l1_loss", size_average, reduce, reduction)
    checked(beta >= 0, "smooth_l1_loss", "beta", beta, "at least 0")
    if beta == 0:
        return _Elements(CNNLossType.MeanAbsoluteError, input, target, None, reduction, device)
    return _Elements(CNNLossType.Huber, input, target, None, reduction, device, 1 / beta, delta=beta)


@of_arrays
def smooth_l1_loss(input: ArrayType, target: Any, size_average: Switch = None, reduce: Switch = None,
                   reduction: str = "mean", beta: float = 1.0, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """d^2 / (2 beta) where d = |input - target| < beta, else d - beta / 2; otherwise as mse_loss. `beta` 0: l1_loss."""
    return _smooth(input, target, size_average, reduce, reduction, beta, device).result()


@of_arrays
def smooth_l1_loss_backward(grad_output: Any, input: ArrayType, target: Any, size_average: Switch = None,
                            reduce: Switch = None, reduction: str = "mean", beta: float = 1.0, *,
                            device: Optional[mtl.Device] = None) -> Tuple[ArrayType, ArrayType]:
    """Gradients of input and target; of `beta` 0 those of l1_loss."""
    return _smooth(input, target, size_average, reduce, reduction, beta, device).pull(grad_output)


@of_arrays
def binary_cross_entropy_with_logits(input: ArrayType, target: Any, weight: Any = None, size_average: Switch = None,
                                     reduce: Switch = None, reduction: str = "mean", *,
                                     device: Optional[mtl.Device] = None) -> ArrayType:
    """-target ln(s) - (1 - target) ln(1 - s), s = sigmoid(input), times `weight`, which repeats to the shape of input;
    otherwise as mse_loss."""
    reduction = _reduction("binary_cross_entropy_with_logits", size_average, reduce, reduction)
    return _Elements(CNNLossType.SigmoidCrossEntropy, input, target, weight, reduction, device).result()


@of_arrays
def binary_cross_entropy_with_logits_backward(
        grad_output: Any, input: ArrayType, target: Any, weight: Any = None, size_average: Switch = None,
        reduce: Switch = None, reduction: str = "mean", *,
        device: Optional[mtl.Device] = None) -> Tuple[ArrayType, ArrayType]:
    """Gradients of input and target."""
    reduction = _reduction("binary_cross_entropy_with_logits", size_average, reduce, reduction)
    return _Elements(CNNLossType.SigmoidCrossEntropy, input, target, weight, reduction, device).pull(grad_output)


class _BinaryCrossEntropy:
    """Logarithms are kernels; one of a number below exp(-100) counts as -100."""

    def __init__(self, input: Any, target: Any, weight: Any, size_average: Switch, reduce: Switch, reduction: str,
                 device: Any):
        self.reduction = _reduction("binary_cross_entropy", size_average, reduce, reduction)
        self.device = device
        input, target = _pair(input, target)
        self.input, self.target = cast_to(input, "float32"), cast_to(target, "float32")
        checked(bool(((self.input >= 0) & (self.input <= 1)).all()), "binary_cross_entropy", "input",
                "a number outside 0 ... 1, or NaN", "probabilities")
        self.weights = filled(input.shape, 1, input, "float32") if weight is None else _weights(weight, input)
        self.of_one, self.of_zero = self._logarithm(1, 0), self._logarithm(-1, 1)

    def _logarithm(self, a: float, b: float) -> Data:
        """max(ln(a input + b), -100)."""
        lines = self.input.reshape(1, -1, 1, self.input.shape[-1])
        kernel = unmetal.CNNNeuron(self.device, NNNeuronDescriptor(CNNNeuronType.Logarithm, a, b, -1))
        return at_least(Call(kernel, [lines], lines.shape).run().reshape(self.input.shape), -100)

    def result(self) -> Data:
        losses = -self.weights * (self.target * self.of_one + (1 - self.target) * self.of_zero)
        return _reduced(losses, self.reduction, math.prod(losses.shape))

    def pull(self, grad_output: Any) -> Tuple[Data, Data]:
        """Of input and target."""
        shape = shape_of(self.input)
        incoming = _incoming(grad_output, self.input, shape if self.reduction == "none" else ()) * self.weights
        if self.reduction == "mean":
            incoming = incoming / math.prod(shape)
        slope = (self.input - self.target) / at_least(self.input * (1 - self.input), 1e-12)
        return incoming * slope, incoming * (self.of_zero - self.of_one)


def _reduced(losses: Data, reduction: str, count: float) -> Data:
    if reduction == "none":
        return losses
    return total(losses) if reduction == "sum" else scaled(total(losses), _inverse(count))


@of_arrays
def binary_cross_entropy(input: ArrayType, target: Any, weight: Any = None, size_average: Switch = None,
                         reduce: Switch = None, reduction: str = "mean", *,
                         device: Optional[mtl.Device] = None) -> ArrayType:
    """-target ln(input) - (1 - target) ln(1 - input) of probabilities, each logarithm at least -100, times `weight`, which
    repeats to the shape of input; otherwise as mse_loss."""
    return _BinaryCrossEntropy(input, target, weight, size_average, reduce, reduction, device).result()


@of_arrays
def binary_cross_entropy_backward(grad_output: Any, input: ArrayType, target: Any, weight: Any = None,
                                  size_average: Switch = None, reduce: Switch = None, reduction: str = "mean", *,
                                  device: Optional[mtl.Device] = None) -> Tuple[ArrayType, ArrayType]:
    """Gradients of input, (input - target) / max(input (1 - input), 1e-12), and target."""
    return _BinaryCrossEntropy(input, target, weight, size_average, reduce, reduction, device).pull(grad_output)


class _Classes:
    """Class indices of [...][channel] predictions, and the weights of their classes, 0 where they are ignored."""

    def __init__(self, function: str, input: Any, target: Data, weight: Any, ignore_index: int, layout: Optional[str]):
        order = layout_of(function, layout)
        self.function, self.input = function, floats(input, "input")
        checked(self.input.ndim > 0, function, "input", "a number", "an axis of classes")
        self.axis = 1 if order == "NCHW" and self.input.ndim > 1 else -1
        self.predictions = packed(moved(self.input, self.axis, -1))
        self.classes = self.predictions.shape[-1]
        self.each = self._weights_of_classes(weight)
        self.is_of_indices = type_of(target).startswith(("int", "uint"))
        if self.is_of_indices:
            self._choose(target, ignore_index)

    def _weights_of_classes(self, weight: Any) -> Data:
        if weight is None:
            return filled((self.classes,), 1, self.input, "float32")
        each = cast_to(floats(weight, "weight"), "float32")
        checked(shape_of(each) == (self.classes,), self.function, "weight", f"of shape {shape_of(each)}",
                f"[{self.classes}]")
        return each

    def _choose(self, target: Data, ignore_index: int) -> None:
        expected = shape_of(self.predictions)[:-1]
        checked(shape_of(target) == expected, self.function, "target", f"of shape {shape_of(target)}", expected)
        target = as_like(target, self.input)
        kept = target != ignore_index
        chosen = cast_to(target * kept, "int64")
        checked(bool(((chosen >= 0) & (chosen < self.classes)).all()), self.function, "target",
                "a class that does not exist", f"0 ... {self.classes - 1}")
        self.kept, self.chosen = cast_to(kept, "float32"), chosen
        self.weights = self.each[chosen] * self.kept


class _CrossEntropy:
    """One-hot labels for class indices; weights of classes; 'mean' divides by the sum of the weights of the targets."""

    def __init__(self, input: Any, target: Any, weight: Any, size_average: Switch, ignore_index: int, reduce: Switch,
                 reduction: str, label_smoothing: float, layout: Optional[str], device: Any):
        self.reduction = _reduction("cross_entropy", size_average, reduce, reduction)
        target = array_of(target)
        found = _Classes("cross_entropy", input, target, weight, ignore_index, layout)
        self.axis, classes = found.axis, found.classes
        if found.is_of_indices:
            labels = cast_to(found.chosen[..., None] == as_like(np.arange(classes), found.input), "float32")
            weights = found.each * found.kept[..., None]
            self.count = float(total(found.weights))
        else:
            target = floats(target, "target")
            checked(target.shape == found.input.shape, "cross_entropy", "target", f"of shape {shape_of(target)}",
                    shape_of(found.input))
            labels = packed(moved(target, self.axis, -1))
            weights = found.each * filled(labels.shape, 1, found.input, "float32")
            self.count = math.prod(found.predictions.shape[:-1])
        self.factor = _inverse(self.count) if self.reduction == "mean" else 1.0
        self.loss = _Loss(CNNLossType.SoftMaxCrossEntropy, found.predictions, labels, weights,
                          "none" if self.reduction == "none" else "sum", device, number_of_classes=classes,
                          label_smoothing=label_smoothing, exact_soft_max_gradient=True)

    def result(self) -> Data:
        if self.reduction == "none":
            return self.loss.result().sum(axis=-1)
        return scaled(self.loss.result(), self.factor)

    def pull(self, grad_output: Any) -> Data:
        incoming = scaled(as_like(grad_output, self.loss.like, "float32"), self.factor)
        if self.reduction == "none":
            incoming = incoming[..., None] * filled(self.loss.shape, 1, self.loss.like, "float32")
        return moved(self.loss.pull(incoming), -1, self.axis)


def _inverse(count: float) -> float:
    """As float32 has it; of no element that counts a mean is NaN."""
    return float(np.float32(1 / count)) if count else math.nan


@of_arrays
def cross_entropy(input: ArrayType, target: Any, weight: Any = None, size_average: Switch = None, ignore_index: int = -100,
                  reduce: Switch = None, reduction: str = "mean", label_smoothing: float = 0.0, *,
                  layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> ArrayType:
    """-sum over classes c of weight[c] t[c] log_softmax(input)[c]. `input`: [C], [N][C] or images, channels are classes;
    `target`: class indices (whole numbers, the shape of input without its channels) or probabilities (the shape of input);
    `weight` [C]. 'mean' divides by the sum of the weights of the targets, for probabilities by the number of pixels."""
    return _CrossEntropy(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing, layout,
                         device).result()


@of_arrays
def cross_entropy_backward(grad_output: Any, input: ArrayType, target: Any, weight: Any = None,
                           size_average: Switch = None, ignore_index: int = -100, reduce: Switch = None,
                           reduction: str = "mean", label_smoothing: float = 0.0, *, layout: Optional[Layout] = None,
                           device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    return _CrossEntropy(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing, layout,
                         device).pull(grad_output)


class _Likelihood:
    """Chosen elements, and nothing of the others, which may be infinite."""

    def __init__(self, input: Any, target: Any, weight: Any, size_average: Switch, ignore_index: int, reduce: Switch,
                 reduction: str, layout: Optional[str]):
        self.reduction = _reduction("nll_loss", size_average, reduce, reduction)
        target = array_of(target)
        self.found = _Classes("nll_loss", input, target, weight, ignore_index, layout)
        checked(self.found.is_of_indices, "nll_loss", "target", f"an array of {type_of(target)}", "whole numbers")
        self.count = float(total(self.found.weights))
        self.rows = as_like(np.arange(math.prod(shape_of(self.found.chosen))), self.found.input)
        self.columns = self.found.chosen.reshape(-1)

    def result(self) -> Data:
        predictions = self.found.predictions.reshape(-1, self.found.classes)
        chosen = cast_to(predictions[self.rows, self.columns], "float32")
        chosen = settle(chosen, self.found.kept.reshape(-1) == 0, 0).reshape(shape_of(self.found.chosen))
        return _reduced(-chosen * self.found.weights, self.reduction, self.count)

    def pull(self, grad_output: Any) -> Data:
        shape = shape_of(self.found.chosen)
        incoming = _incoming(grad_output, self.found.input, shape if self.reduction == "none" else ())
        incoming = -incoming * self.found.weights
        if self.reduction == "mean":
            incoming = incoming * _inverse(self.count)
        outgoing = filled((len(self.rows), self.found.classes), 0, self.found.input, "float32")
        outgoing[self.rows, self.columns] = incoming.reshape(-1)
        return moved(outgoing.reshape(shape_of(self.found.predictions)), -1, self.found.axis)


@of_arrays
def nll_loss(input: ArrayType, target: Any, weight: Any = None, size_average: Switch = None, ignore_index: int = -100,
             reduce: Switch = None, reduction: str = "mean", *, layout: Optional[Layout] = None,
             device: Optional[mtl.Device] = None) -> ArrayType:
    """-weight[target] input[target], of logarithms of probabilities; otherwise as cross_entropy of class indices."""
    return _Likelihood(input, target, weight, size_average, ignore_index, reduce, reduction, layout).result()


@of_arrays
def nll_loss_backward(grad_output: Any, input: ArrayType, target: Any, weight: Any = None, size_average: Switch = None,
                      ignore_index: int = -100, reduce: Switch = None, reduction: str = "mean", *,
                      layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    return _Likelihood(input, target, weight, size_average, ignore_index, reduce, reduction, layout).pull(grad_output)
