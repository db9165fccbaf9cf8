"""Activations and softmax."""

# What arrays and kernels give is Any here.
# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import numpy as np

import unmetal
from unmetal import CNNNeuronType, NNNeuronDescriptor, mtl
from unmetal.nn._arrays import (ArrayType, Data, Shape, array_of, as_like, checked, filled, floats, moved, of_arrays,
                                on_host, scaled, settle, shape_of, type_of)
from unmetal.nn._calls import Call
from unmetal.nn._layout import Layout, layout_of


def lines_of(array: Any, axis: int = -1, name: str = "input") -> Tuple[Data, Shape]:
    """[1][all others][1][axis]: what is done to each element, or along one axis; and the shape before."""
    array = floats(array, name)
    if array.ndim == 0:
        return array.reshape(1, 1, 1, 1), ()
    array = moved(array, axis, -1)
    return array.reshape(1, -1, 1, array.shape[-1]), shape_of(array)


def _restored(lines: Data, shape: Shape, axis: int) -> Data:
    return moved(lines.reshape(shape), -1, axis) if shape else lines.reshape(shape)


def _same_shape(grad_output: Any, input: Any) -> None:
    checked(shape_of(grad_output) == shape_of(input), "backward", "grad_output", shape_of(grad_output), shape_of(input))


def _channels(array: Data, layout: Optional[str]) -> int:
    """The axis of the channels."""
    return 1 if layout_of("functional", layout) == "NCHW" and np.ndim(array) > 1 else -1


def _neuron(input: Data, descriptor: NNNeuronDescriptor, axis: int, device: Any) -> Tuple[Call, Shape]:
    lines, shape = lines_of(input, axis)
    return Call(unmetal.CNNNeuron(device, descriptor), [lines], lines.shape), shape


def _applied(input: Data, descriptor: NNNeuronDescriptor, device: Any, axis: int = -1) -> Data:
    call, shape = _neuron(input, descriptor, axis, device)
    return _restored(call.run(), shape, axis)


def _pulled(grad_output: Data, input: Data, descriptor: NNNeuronDescriptor, device: Any, axis: int = -1) -> Data:
    call, shape = _neuron(input, descriptor, axis, device)
    call.remember()
    gradient = unmetal.CNNNeuronGradient(call.device, descriptor)
    _same_shape(grad_output, input)
    return _restored(call.pull(gradient, lines_of(grad_output, axis, "grad_output")[0]), shape, axis)


def _of_type(kind: CNNNeuronType, *parameters: float) -> NNNeuronDescriptor:
    return NNNeuronDescriptor(kind, *parameters)


@of_arrays
def neuron(input: ArrayType, descriptor: NNNeuronDescriptor, *, layout: Optional[Layout] = None,
           device: Optional[mtl.Device] = None) -> ArrayType:
    """The function of any NNNeuronDescriptor, of each element of an array of any shape. Of PReLU the channels of `layout`
    (the last axis, or the one after the first) have the slopes."""
    return _applied(input, descriptor, device, _channels(input, layout))


@of_arrays
def neuron_backward(grad_output: ArrayType, input: ArrayType, descriptor: NNNeuronDescriptor, *,
                    layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input; where the function has a kink that of CNNNeuronGradient, at 0 the one of the positive side."""
    return _pulled(grad_output, input, descriptor, device, _channels(input, layout))


@of_arrays
def relu(input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """max(x, 0)."""
    return _applied(input, _of_type(CNNNeuronType.ReLU, 0), device)


@of_arrays
def relu_backward(grad_output: ArrayType, input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input; at x = 0: 0."""
    return settle(_pulled(grad_output, input, _of_type(CNNNeuronType.ReLU, 0), device), array_of(input) == 0, 0)


@of_arrays
def leaky_relu(input: ArrayType, negative_slope: float = 0.01, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """x if x >= 0 else negative_slope x."""
    return _applied(input, _of_type(CNNNeuronType.ReLU, negative_slope), device)


@of_arrays
def leaky_relu_backward(grad_output: ArrayType, input: ArrayType, negative_slope: float = 0.01, *,
                        device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input; at x = 0 that of the negative side."""
    outgoing = _pulled(grad_output, input, _of_type(CNNNeuronType.ReLU, negative_slope), device)
    return settle(outgoing, array_of(input) == 0, scaled(array_of(grad_output), negative_slope))


@of_arrays
def relu6(input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """min(max(x, 0), 6)."""
    return _applied(input, _of_type(CNNNeuronType.ReLUN, 0, 6), device)


@of_arrays
def relu6_backward(grad_output: ArrayType, input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input; at x = 0 and x = 6: 0."""
    outgoing = _pulled(grad_output, input, _of_type(CNNNeuronType.ReLUN, 0, 6), device)
    return settle(outgoing, (array_of(input) == 0) | (array_of(input) == 6), 0)


@of_arrays
def hardtanh(input: ArrayType, min_val: float = -1.0, max_val: float = 1.0, *,
             device: Optional[mtl.Device] = None) -> ArrayType:
    """min(max(x, min_val), max_val)."""
    return _clamped(input, min_val, max_val, device).run().reshape(shape_of(input))


@of_arrays
def hardtanh_backward(grad_output: ArrayType, input: ArrayType, min_val: float = -1.0, max_val: float = 1.0, *,
                      device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input; at x = min_val and x = max_val: 0."""
    _same_shape(grad_output, input)
    call = _clamped(input, min_val, max_val, device)
    call.remember()
    outgoing = call.pull(unmetal.CNNAddGradient(call.device, False), lines_of(grad_output, name="grad_output")[0])
    return outgoing.reshape(shape_of(input))


def _clamped(input: Data, least: float, most: float, device: Any) -> Call:
    """x + 0 within limits: what an arithmetic kernel passes on where it cut nothing off is the gradient."""
    checked(least <= most, "hardtanh", "min_val", least, f"at most max_val, {most}")
    lines, _ = lines_of(input)
    kernel = unmetal.CNNAdd(device)
    kernel.minimum_value, kernel.maximum_value = least, most
    kernel.secondary_stride_in_pixels_x = kernel.secondary_stride_in_pixels_y = 0
    kernel.secondary_stride_in_feature_channels = 0
    return Call(kernel, [lines, filled((1, 1, 1, 1), 0, lines, type_of(lines))], lines.shape)


@of_arrays
def prelu(input: ArrayType, weight: Any, *, layout: Optional[Layout] = None,
          device: Optional[mtl.Device] = None) -> ArrayType:
    """x if x >= 0 else weight[channel] x; `weight` [C] or [1], a constant: it has no gradient here."""
    return _applied(input, _of_slopes(_slopes(input, weight, layout)), device, _channels(input, layout))


@of_arrays
def prelu_backward(grad_output: ArrayType, input: ArrayType, weight: Any, *, layout: Optional[Layout] = None,
                   device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input; at x = 0 that of the negative side."""
    axis, slopes = _channels(input, layout), _slopes(input, weight, layout)
    outgoing = moved(_pulled(grad_output, input, _of_slopes(slopes), device, axis), axis, -1)
    incoming = moved(array_of(grad_output), axis, -1)
    of_negative = incoming * as_like(slopes, incoming, type_of(incoming))
    return moved(settle(outgoing, moved(array_of(input), axis, -1) == 0, of_negative), -1, axis)


def _slopes(input: Data, weight: Any, layout: Optional[str]) -> Data:
    """float32, one for each channel."""
    channels, slopes = shape_of(input)[_channels(input, layout)], on_host(floats(weight, "weight"))
    checked(slopes.shape in ((1,), (channels,)), "prelu", "weight", f"of shape {slopes.shape}", f"[{channels}] or [1]")
    return np.array(np.broadcast_to(slopes, (channels,)), np.float32)


def _of_slopes(slopes: Data) -> NNNeuronDescriptor:
    return NNNeuronDescriptor.cnn_neuron_prelu_descriptor(slopes.tolist())


@of_arrays
def elu(input: ArrayType, alpha: float = 1.0, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """x if x >= 0 else alpha (exp(x) - 1)."""
    return _applied(input, _of_type(CNNNeuronType.ELU, alpha), device)


@of_arrays
def elu_backward(grad_output: ArrayType, input: ArrayType, alpha: float = 1.0, *,
                 device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input; at x = 0 that of the negative side, alpha."""
    outgoing = _pulled(grad_output, input, _of_type(CNNNeuronType.ELU, alpha), device)
    return settle(outgoing, array_of(input) == 0, scaled(array_of(grad_output), alpha))


def gelu_by_error_function(input: Data, device: Any) -> Data:
    return _applied(input, _of_type(CNNNeuronType.GeLU), device)


def pull_gelu_by_error_function(grad_output: Data, input: Data, device: Any) -> Data:
    return _pulled(grad_output, input, _of_type(CNNNeuronType.GeLU), device)


@of_arrays
def sigmoid(input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """1 / (1 + exp(-x))."""
    return _applied(input, _of_type(CNNNeuronType.Sigmoid), device)


@of_arrays
def sigmoid_backward(grad_output: ArrayType, input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    return _pulled(grad_output, input, _of_type(CNNNeuronType.Sigmoid), device)


@of_arrays
def hardsigmoid(input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """x / 6 + 1 / 2 within 0 ... 1."""
    return _applied(input, _of_type(CNNNeuronType.HardSigmoid, 1 / 6, 0.5), device)


@of_arrays
def hardsigmoid_backward(grad_output: ArrayType, input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input; at x = -3 and x = 3: 0."""
    outgoing = _pulled(grad_output, input, _of_type(CNNNeuronType.HardSigmoid, 1 / 6, 0.5), device)
    return settle(outgoing, (array_of(input) <= -3) | (array_of(input) >= 3), 0)


@of_arrays
def tanh(input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """Hyperbolic tangent."""
    return _applied(input, _of_type(CNNNeuronType.TanH, 1, 1), device)


@of_arrays
def tanh_backward(grad_output: ArrayType, input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    return _pulled(grad_output, input, _of_type(CNNNeuronType.TanH, 1, 1), device)


@of_arrays
def softplus(input: ArrayType, beta: float = 1.0, threshold: float = 20.0, *,
             device: Optional[mtl.Device] = None) -> ArrayType:
    """ln(1 + exp(beta x)) / beta; x where beta x > threshold."""
    result = _applied(input, _of_type(CNNNeuronType.SoftPlus, 1 / beta, beta), device)
    return settle(result, array_of(input) * beta > threshold, array_of(input))


@of_arrays
def softplus_backward(grad_output: ArrayType, input: ArrayType, beta: float = 1.0, threshold: float = 20.0, *,
                      device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input; where beta x > threshold: 1."""
    outgoing = _pulled(grad_output, input, _of_type(CNNNeuronType.SoftPlus, 1 / beta, beta), device)
    return settle(outgoing, array_of(input) * beta > threshold, array_of(grad_output))


@of_arrays
def softsign(input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """x / (1 + |x|)."""
    return _applied(input, _of_type(CNNNeuronType.SoftSign), device)


@of_arrays
def softsign_backward(grad_output: ArrayType, input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    return _pulled(grad_output, input, _of_type(CNNNeuronType.SoftSign), device)


Made = Callable[..., Any]


def _distributed(made: Made, input: Data, dim: Optional[int], layout: Optional[str],
                 device: Any) -> Tuple[Call, Shape, int]:
    axis = _channels_or_first(input, layout) if dim is None else dim
    lines, shape = lines_of(input, axis)
    return Call(made(device), [lines], lines.shape), shape, axis


def _channels_or_first(input: Data, layout: Optional[str]) -> int:
    """Of a single image in PyTorch's order the first axis has the channels."""
    is_first = layout_of("functional", layout) == "NCHW" and np.ndim(input) == 3
    return 0 if is_first else _channels(input, layout)


def _distributed_backward(made: Made, made_gradient: Made, grad_output: Data, input: Data, dim: Optional[int],
                          layout: Optional[str], device: Any) -> Data:
    call, shape, axis = _distributed(made, input, dim, layout, device)
    result = call.remember()
    _same_shape(grad_output, input)
    return _restored(call.pull(made_gradient(call.device), lines_of(grad_output, axis, "grad_output")[0], source=result),
                     shape, axis)


@of_arrays
def softmax(input: ArrayType, dim: Optional[int] = None, *, layout: Optional[Layout] = None,
            device: Optional[mtl.Device] = None) -> ArrayType:
    """exp(x) / sum of exp(x) along axis `dim` of an array of any shape; None: the channels of `layout`."""
    call, shape, axis = _distributed(unmetal.CNNSoftMax, input, dim, layout, device)
    return _restored(call.run(), shape, axis)


@of_arrays
def softmax_backward(grad_output: ArrayType, input: ArrayType, dim: Optional[int] = None, *,
                     layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    return _distributed_backward(unmetal.CNNSoftMax, unmetal.CNNSoftMaxGradient, grad_output, input, dim, layout, device)


@of_arrays
def log_softmax(input: ArrayType, dim: Optional[int] = None, *, layout: Optional[Layout] = None,
                device: Optional[mtl.Device] = None) -> ArrayType:
    """x - ln(sum of exp(x)) along axis `dim` of an array of any shape; None: the channels of `layout`."""
    call, shape, axis = _distributed(unmetal.CNNLogSoftMax, input, dim, layout, device)
    return _restored(call.run(), shape, axis)


@of_arrays
def log_softmax_backward(grad_output: ArrayType, input: ArrayType, dim: Optional[int] = None, *,
                         layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    return _distributed_backward(unmetal.CNNLogSoftMax, unmetal.CNNLogSoftMaxGradient, grad_output, input, dim, layout,
                                 device)
