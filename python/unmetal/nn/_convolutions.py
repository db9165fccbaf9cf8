"""Convolutions and the linear layer."""

# What arrays and kernels give is Any here.
# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from typing import Any, Optional, Tuple, Union

import numpy as np

import unmetal
from unmetal import mtl
from unmetal.nn._arrays import ArrayType, Data, checked, floats, of_arrays, on_host, packed, permuted, shape_of, turned
from unmetal.nn._calls import (Call, Images, Numbers, Pair, extents_of, images_of, numbers, outside_in, pair, place,
                               weights_of, whole, window_of)
from unmetal.nn._layout import Layout

Gradients = Tuple[ArrayType, ArrayType, ArrayType]


class _Weights(unmetal.CNNConvolutionDataSource):
    """On the host, where data sources have their values."""

    def __init__(self, weights: Data, bias: Data, groups: int, stride: Numbers, dilation: Numbers):
        super().__init__()
        outputs, height, width, inputs = weights.shape
        self.weights, self.bias_terms, self.shape = on_host(packed(weights)), bias, shape_of(weights)
        self.descriptor = unmetal.CNNConvolutionDescriptor(width, height, inputs * groups, outputs)
        self.descriptor.groups = groups
        self.descriptor.stride_in_pixels_y, self.descriptor.stride_in_pixels_x = stride
        self.descriptor.dilation_rate_y, self.descriptor.dilation_rate_x = dilation


def _bias(function: str, bias: Any, outputs: int) -> Data:
    if bias is None:
        return None
    bias = on_host(floats(bias, "bias")).astype(np.float32)
    checked(bias.shape == (outputs,), function, "bias", f"of shape {bias.shape}", f"[{outputs}]")
    return bias


def _convolution(input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any,
                 layout: Optional[str], device: Any) -> Tuple[Images, _Weights, Call]:
    order, source = images_of("conv2d", layout, input)
    weights = weights_of(weight, layout)
    name = padding if isinstance(padding, str) and padding in ("same", "valid") else None
    same = name == "same"
    kernel, stride, left, dilation = window_of("conv2d", weights.shape[1:3], stride, 0 if name else padding, dilation)
    groups = whole("conv2d", "groups", groups)
    checked(groups >= 1, "conv2d", "groups", groups, "at least 1")
    images, height, width, channels = source.shape
    checked(channels == weights.shape[3] * groups, "conv2d", "input", f"of {channels} channels",
            f"{weights.shape[3]} of the weight times {groups} groups")
    extents = extents_of(kernel, dilation)
    if same:
        checked(stride == (1, 1), "conv2d", "stride", stride, "1 with padding 'same'")
        left, size = ((extents[0] - 1) // 2, (extents[1] - 1) // 2), [height, width]
    else:
        size = [(pixels + 2 * pad - extent) // step + 1
                for pixels, pad, extent, step in zip((height, width), left, extents, stride)]
    checked(min(size) > 0, "conv2d", "input", f"{height} x {width} pixels", "at least the size of the kernel")
    data = _Weights(weights, _bias("conv2d", bias, len(weights)), groups, stride, dilation)
    convolution = unmetal.CNNConvolution(device, data)
    place(convolution, kernel, dilation, left)
    return order, data, Call(convolution, [source], (images, *size, len(weights)))


@of_arrays
def conv2d(input: ArrayType, weight: Any, bias: Any = None, stride: Pair = 1, padding: Union[Pair, str] = 0,
           dilation: Pair = 1, groups: int = 1, *, layout: Optional[Layout] = None,
           device: Optional[mtl.Device] = None) -> ArrayType:
    """Cross-correlation. `input` [N][H][W][in] or [H][W][in], `weight` [out][kH][kW][in / groups], `bias` [out]; `padding`:
    zeros on both sides, 'valid' or 'same'."""
    order, _, call = _convolution(input, weight, bias, stride, padding, dilation, groups, layout, device)
    return order.outside(call.run())


@of_arrays
def conv2d_backward(grad_output: ArrayType, input: Any, weight: Any, bias: Any = None, stride: Pair = 1,
                    padding: Union[Pair, str] = 0, dilation: Pair = 1, groups: int = 1, *,
                    layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> Gradients[ArrayType]:
    """Gradients of input, weight and bias."""
    order, data, call = _convolution(input, weight, bias, stride, padding, dilation, groups, layout, device)
    call.remember()
    gradient = unmetal.CNNConvolutionGradient(call.device, data)
    dx = call.pull(gradient, order.inside(grad_output, "grad_output"))
    dw = numbers(call.states[0].gradient_for_weights, dx, data.shape)
    return order.outside(dx), outside_in(dw, order.layout), numbers(call.states[0].gradient_for_biases, dx)


def _grouped(weights: Data, groups: int) -> Data:
    """Swaps input and output channels of the weights [a][kH][kW][b] of each group, and turns the taps by 180 degrees."""
    a, height, width, b = weights.shape
    split = turned(weights).reshape(groups, a // groups, height, width, b)
    return permuted(split, 0, 4, 2, 3, 1).reshape(groups * b, height, width, a // groups)


def _transposed(input: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: Any,
                dilation: Any, layout: Optional[str], device: Any) -> Tuple[Images, _Weights, Call]:
    order, source = images_of("conv_transpose2d", layout, input)
    weights = weights_of(weight, layout)
    groups = whole("conv_transpose2d", "groups", groups)
    checked(groups >= 1 and source.shape[3] % groups == 0, "conv_transpose2d", "groups", groups, "a divisor of the channels")
    if order.layout == "NCHW":  # PyTorch has [in][out / groups][kH][kW]
        checked(source.shape[3] == len(weights), "conv_transpose2d", "input", f"of {source.shape[3]} channels", len(weights))
        weights = _grouped(weights, groups)
    else:
        weights = turned(weights)
    checked(source.shape[3] == weights.shape[3] * groups, "conv_transpose2d", "input", f"of {source.shape[3]} channels",
            f"{weights.shape[3]} of the weight times {groups} groups")
    kernel, stride, padding, dilation = window_of("conv_transpose2d", weights.shape[1:3], stride, padding, dilation)
    more = pair("conv_transpose2d", "output_padding", output_padding)
    checked(min(more) >= 0, "conv_transpose2d", "output_padding", more, "at least 0")
    checked(all(a < max(b) for a, b in zip(more, zip(stride, dilation))), "conv_transpose2d", "output_padding", more,
            "less than stride or dilation")
    extents = extents_of(kernel, dilation)
    size = [(pixels - 1) * step - 2 * pad + extent + rest
            for pixels, step, pad, extent, rest in zip(source.shape[1:3], stride, padding, extents, more)]
    checked(min(size) > 0, "conv_transpose2d", "padding", padding, "so little that the result has pixels")
    data = _Weights(weights, _bias("conv_transpose2d", bias, len(weights)), groups, stride, dilation)
    convolution = unmetal.CNNConvolutionTranspose(device, data)
    convolution.kernel_offset_y, convolution.kernel_offset_x = (pad + extent // 2 - (extent - 1)
                                                                for pad, extent in zip(padding, extents))
    return order, data, Call(convolution, [source], (len(source), *size, len(weights)))


@of_arrays
def conv_transpose2d(input: ArrayType, weight: Any, bias: Any = None, stride: Pair = 1, padding: Pair = 0,
                     output_padding: Pair = 0, groups: int = 1, dilation: Pair = 1, *, layout: Optional[Layout] = None,
                     device: Optional[mtl.Device] = None) -> ArrayType:
    """The gradient of a convolution with respect to its source, plus bias: each pixel of `input` [N][H][W][in] or
    [H][W][in], times the `weight`, is added where the window of the result begins that it stands for.

        result[y sY - pY + q dY][x sX - pX + p dX][k] += weight[k][q][p][c] input[y][x][c]

    `weight` is [out][kH][kW][in / groups], with layout NCHW PyTorch's [in][out / groups][kH][kW]; `bias` [out]."""
    order, _, call = _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, layout, device)
    return order.outside(call.run())


@of_arrays
def conv_transpose2d_backward(grad_output: ArrayType, input: Any, weight: Any, bias: Any = None, stride: Pair = 1,
                              padding: Pair = 0, output_padding: Pair = 0, groups: int = 1, dilation: Pair = 1, *,
                              layout: Optional[Layout] = None,
                              device: Optional[mtl.Device] = None) -> Gradients[ArrayType]:
    """Gradients of input, weight and bias."""
    order, data, call = _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, layout, device)
    call.remember()
    gradient = unmetal.CNNConvolutionTransposeGradient(call.device, data)
    dx = call.pull(gradient, order.inside(grad_output, "grad_output"))
    dw = numbers(call.states[0].gradient_for_weights, dx, data.shape)
    dw = _grouped(dw, groups) if order.layout == "NCHW" else turned(dw)
    return order.outside(dx), outside_in(dw, order.layout), numbers(call.states[0].gradient_for_biases, dx)


def _connected(input: Any, weight: Any, bias: Any, device: Any) -> Tuple[_Weights, Call]:
    source, weights = floats(input, "input"), floats(weight, "weight")
    checked(weights.ndim == 2, "linear", "weight", f"of {weights.ndim} dimensions", "2: [out][in]")
    checked(source.ndim > 0 and source.shape[-1] == weights.shape[1], "linear", "input", f"of shape {shape_of(source)}",
            f"[...][{weights.shape[1]}]")
    data = _Weights(weights[:, None, None], _bias("linear", bias, len(weights)), 1, (1, 1), (1, 1))
    pixels = source.reshape(-1, 1, 1, weights.shape[1])
    kernel = unmetal.CNNFullyConnected(device, data)
    return data, Call(kernel, [pixels], (len(pixels), 1, 1, len(weights)))


@of_arrays
def linear(input: ArrayType, weight: Any, bias: Any = None, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """input weight^T + bias. `input` [...][in], `weight` [out][in], `bias` [out]; the result is [...][out]."""
    _, call = _connected(input, weight, bias, device)
    return call.run().reshape(*shape_of(input)[:-1], -1)


@of_arrays
def linear_backward(grad_output: ArrayType, input: Any, weight: Any, bias: Any = None, *,
                    device: Optional[mtl.Device] = None) -> Gradients[ArrayType]:
    """Gradients of input, weight and bias."""
    data, call = _connected(input, weight, bias, device)
    call.remember()
    gradient = unmetal.CNNFullyConnectedGradient(call.device, data)
    dx = call.pull(gradient, floats(grad_output, "grad_output").reshape(call.shape))
    state = call.states[0]
    return (dx.reshape(shape_of(input)), numbers(state.gradient_for_weights, dx, shape_of(weight)),
            numbers(state.gradient_for_biases, dx))
