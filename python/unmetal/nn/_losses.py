"""Losses: NNForwardLoss and NNLossGradient."""

import numpy as np

import unmetal
from unmetal import CNNLossType, CNNReductionType
from unmetal.nn._calls import checked, default_device, floats, running

_REDUCTIONS = {"none": CNNReductionType.None_, "sum": CNNReductionType.Sum, "mean": CNNReductionType.Mean}


class _Loss:
    """Predictions, labels and weights [...][channel]; one image for all of them, so that a reduction is of all elements."""

    def __init__(self, kind, predictions, labels, weights, reduction, device, **settings):
        checked(reduction in _REDUCTIONS, "loss", "reduction", repr(reduction), "'mean', 'sum' or 'none'")
        self.device, self.reduction, self.shape = device or default_device(), reduction, predictions.shape
        descriptor = unmetal.CNNLossDescriptor(kind, _REDUCTIONS[reduction])
        for name, value in settings.items():
            setattr(descriptor, name, value)
        self.forward = unmetal.NNForwardLoss(self.device, descriptor)
        self.gradient = unmetal.NNLossGradient(self.device, descriptor)
        self.predictions, self.labels = self.image(predictions), self.image(labels)
        self.weights = unmetal.ImageBatch() if weights is None else self.image(weights)
        self.losses = np.full(self.pixels(predictions).shape if reduction == "none" else (1, 1, 1, 1), np.nan, np.float32)
        self.states = self.forward.result_state_batch(self.predictions)
        with running(self.device, self.pixels(self.losses)) as (command_buffer, destination):
            self.forward.encode_batch(command_buffer, self.predictions, self.labels, self.weights, self.states, destination)

    @staticmethod
    def pixels(array):
        return array.reshape(1, -1, 1, array.shape[-1])

    def image(self, array):
        return unmetal.ImageBatch.from_array(self.device, self.pixels(array))

    def result(self):
        return self.losses.reshape(self.shape) if self.reduction == "none" else self.losses[0, 0, 0, 0]

    def pull(self, grad_output, of_labels=False):
        incoming = np.array(grad_output, np.float32, order="C")
        expected = self.shape if self.reduction == "none" else ()
        checked(incoming.shape == expected, "backward", "grad_output", f"of shape {incoming.shape}", expected)
        incoming = self.image(incoming.reshape(self.losses.shape))
        self.gradient.compute_label_gradients = of_labels
        outgoing = np.full(self.shape, np.nan, np.float32)
        with running(self.device, self.pixels(outgoing)) as (command_buffer, destination):
            self.gradient.encode_batch(command_buffer, incoming, self.predictions, self.labels, self.weights, self.states,
                                       destination)
        return outgoing


def _elements(kind, input, target, reduction, device, **settings):
    input, target = np.ascontiguousarray(floats(input, "input")), np.ascontiguousarray(floats(target, "target"))
    checked(input.shape == target.shape and input.ndim > 0, "loss", "target", f"of shape {target.shape}", input.shape)
    return _Loss(kind, input, target, None, reduction, device, **settings)


def mse_loss(input, target, reduction="mean", *, device=None):
    """(input - target)^2 of arrays of one shape; `reduction`: 'mean' or 'sum' of all elements, or 'none'."""
    return _elements(CNNLossType.MeanSquaredError, input, target, reduction, device).result()


def mse_loss_backward(grad_output, input, target, reduction="mean", *, device=None):
    """Gradients of input and target; `grad_output`: a number, with reduction 'none' an array."""
    loss = _elements(CNNLossType.MeanSquaredError, input, target, reduction, device)
    return loss.pull(grad_output), loss.pull(grad_output, True)


def l1_loss(input, target, reduction="mean", *, device=None):
    """|input - target|; otherwise as mse_loss."""
    return _elements(CNNLossType.MeanAbsoluteError, input, target, reduction, device).result()


def l1_loss_backward(grad_output, input, target, reduction="mean", *, device=None):
    """Gradients of input and target."""
    loss = _elements(CNNLossType.MeanAbsoluteError, input, target, reduction, device)
    return loss.pull(grad_output), loss.pull(grad_output, True)


def huber_loss(input, target, reduction="mean", delta=1.0, *, device=None):
    """d^2 / 2 where d = |input - target| <= delta, else delta (d - delta / 2); otherwise as mse_loss."""
    return _elements(CNNLossType.Huber, input, target, reduction, device, delta=delta).result()


def huber_loss_backward(grad_output, input, target, reduction="mean", delta=1.0, *, device=None):
    """Gradients of input and target."""
    loss = _elements(CNNLossType.Huber, input, target, reduction, device, delta=delta)
    return loss.pull(grad_output), loss.pull(grad_output, True)


def binary_cross_entropy_with_logits(input, target, reduction="mean", *, device=None):
    """-target ln(s) - (1 - target) ln(1 - s), s = sigmoid(input); otherwise as mse_loss."""
    return _elements(CNNLossType.SigmoidCrossEntropy, input, target, reduction, device).result()


def binary_cross_entropy_with_logits_backward(grad_output, input, target, reduction="mean", *, device=None):
    """Gradients of input and target."""
    loss = _elements(CNNLossType.SigmoidCrossEntropy, input, target, reduction, device)
    return loss.pull(grad_output), loss.pull(grad_output, True)


class _CrossEntropy:
    """One-hot labels for class indices; weights of classes; 'mean' divides by the sum of the weights of the targets."""

    def __init__(self, input, target, weight, ignore_index, reduction, label_smoothing, layout, device):
        checked(layout in ("NHWC", "NCHW"), "functional", "layout", repr(layout), "'NHWC' or 'NCHW'")
        checked(reduction in _REDUCTIONS, "cross_entropy", "reduction", repr(reduction), "'mean', 'sum' or 'none'")
        input, target = floats(input, "input"), np.asarray(target)
        self.axis, self.reduction = 1 if layout == "NCHW" and input.ndim > 1 else -1, reduction
        predictions = np.ascontiguousarray(np.moveaxis(input, self.axis, -1))
        classes = predictions.shape[-1]
        if weight is not None:
            weight = floats(weight, "weight").astype(np.float32)
            checked(weight.shape == (classes,), "cross_entropy", "weight", f"of shape {weight.shape}", f"[{classes}]")
        each = np.ones(classes, np.float32) if weight is None else weight
        if target.dtype.kind in "iu":
            checked(target.shape == predictions.shape[:-1], "cross_entropy", "target", f"of shape {target.shape}",
                    predictions.shape[:-1])
            kept = target != ignore_index
            chosen = np.where(kept, target, 0)
            checked(np.all((chosen >= 0) & (chosen < classes)), "cross_entropy", "target", "a class that does not exist",
                    f"0 ... {classes - 1}")
            labels = np.eye(classes, dtype=np.float32)[chosen]
            weights = each * kept[..., None].astype(np.float32)
            self.count = np.sum(each[chosen] * kept, dtype=np.float64)
        else:
            target = floats(target, "target")
            checked(target.shape == input.shape, "cross_entropy", "target", f"of shape {target.shape}", input.shape)
            labels = np.ascontiguousarray(np.moveaxis(target, self.axis, -1))
            weights = np.broadcast_to(each, labels.shape)
            self.count = predictions[..., 0].size
        self.factor = np.float32(1 / self.count) if reduction == "mean" else np.float32(1)
        self.loss = _Loss(CNNLossType.SoftMaxCrossEntropy, predictions, labels, np.ascontiguousarray(weights),
                          "none" if reduction == "none" else "sum", device, number_of_classes=classes,
                          label_smoothing=label_smoothing, exact_soft_max_gradient=True)

    def result(self):
        if self.reduction == "none":
            return self.loss.result().sum(axis=-1)
        return self.loss.result() * self.factor

    def pull(self, grad_output):
        incoming = np.asarray(grad_output, np.float32) * self.factor
        if self.reduction == "none":
            incoming = np.broadcast_to(incoming[..., None], self.loss.shape)
        return np.moveaxis(self.loss.pull(incoming), -1, self.axis)


def cross_entropy(input, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0, *, layout="NHWC",
                  device=None):
    """-sum over classes c of weight[c] t[c] log_softmax(input)[c]. `input`: [N][C] or images, channels are classes; `target`:
    class indices (whole numbers, the shape of input without its channels) or probabilities (the shape of input); `weight` [C].
    'mean' divides by the sum of the weights of the targets, for probabilities by the number of pixels."""
    return _CrossEntropy(input, target, weight, ignore_index, reduction, label_smoothing, layout, device).result()


def cross_entropy_backward(grad_output, input, target, weight=None, ignore_index=-100, reduction="mean",
                           label_smoothing=0.0, *, layout="NHWC", device=None):
    """Gradient of input."""
    return _CrossEntropy(input, target, weight, ignore_index, reduction, label_smoothing, layout, device).pull(grad_output)
