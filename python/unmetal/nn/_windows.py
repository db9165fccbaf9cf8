"""Pooling."""

# What arrays and kernels give is Any here.
# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from typing import Any, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np

import unmetal
from unmetal import mtl
from unmetal.nn._arrays import (ArrayType, Data, add_at, as_like, cast_to, checked, filled, of_arrays, scaled,
                                shape_of, type_of)
from unmetal.nn._calls import Call, Images, Numbers, Pair, extents_of, images_of, place, whole, window_of
from unmetal.nn._layout import Layout


def _windows(function: str, source: Data, kernel: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers,
             ceil_mode: bool) -> List[int]:
    """Pixels of the result. Each window begins inside the source or its left padding."""
    checked(all(2 * pad <= size for pad, size in zip(padding, kernel)), function, "padding", padding,
            "at most half the kernel size")
    sizes = []
    for pixels, extent, step, pad in zip(source.shape[1:3], extents_of(kernel, dilation), stride, padding):
        room = pixels + 2 * pad - extent
        count = (-(-room // step) if ceil_mode else room // step) + 1
        sizes.append(count - 1 if ceil_mode and (count - 1) * step >= pixels + pad else count)
    checked(min(sizes) > 0, function, "kernel_size", kernel, "at most the size of the input with its padding")
    return sizes


def _maximum(input: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
             layout: Optional[str], device: Any) -> Tuple[Images, Call, Any, Tuple[slice, ...]]:
    order, source = images_of("max_pool2d", layout, input)
    kernel, stride, padding, dilation = window_of("max_pool2d", kernel_size, stride, padding, dilation)
    size = _windows("max_pool2d", source, kernel, stride, padding, dilation, ceil_mode)
    forward: Any
    gradient: Any
    if dilation == (1, 1):
        forward, gradient = (made(device, kernel[1], kernel[0], stride[1], stride[0])
                             for made in (unmetal.CNNPoolingMax, unmetal.CNNPoolingMaxGradient))
        inside: Tuple[slice, ...] = (slice(None),)
    else:  # the edge pixel is not among the taps of every window that passes the edge: minus infinity stands there
        forward, gradient = (made(device, kernel[1], kernel[0], dilation[1], dilation[0], stride[1], stride[0])
                             for made in (unmetal.CNNDilatedPoolingMax, unmetal.CNNDilatedPoolingMaxGradient))
        beyond = [max((count - 1) * step + extent - pad - pixels, 0) for count, step, extent, pad, pixels in
                  zip(size, stride, extents_of(kernel, dilation), padding, source.shape[1:3])]
        inside = (slice(None), *(slice(pad, pad + pixels) for pad, pixels in zip(padding, source.shape[1:3])))
        height, width = (pad + pixels + more for pad, pixels, more in zip(padding, source.shape[1:3], beyond))
        alone = source
        source = filled((len(alone), height, width, alone.shape[3]), -np.inf, alone, type_of(alone))
        source[inside], padding = alone, (0, 0)
    forward.edge_mode = unmetal.ImageEdgeMode.Clamp
    place(forward, kernel, dilation, padding)
    return order, Call(forward, [source], (len(source), *size, source.shape[3])), gradient, inside


@of_arrays
def max_pool2d(input: ArrayType, kernel_size: Pair, stride: Optional[Pair] = None, padding: Pair = 0, dilation: Pair = 1,
               ceil_mode: bool = False, *, layout: Optional[Layout] = None,
               device: Optional[mtl.Device] = None) -> ArrayType:
    """Maximum of each window of `input` [N][H][W][C] or [H][W][C]; `stride` None: kernel_size; padding is minus infinity."""
    order, call, _, _ = _maximum(input, kernel_size, stride, padding, dilation, ceil_mode, layout, device)
    return order.outside(call.run())


@of_arrays
def max_pool2d_backward(grad_output: ArrayType, input: Any, kernel_size: Pair, stride: Optional[Pair] = None,
                        padding: Pair = 0, dilation: Pair = 1, ceil_mode: bool = False, *,
                        layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input; of equal maxima the first one of a window gets it."""
    order, call, gradient, inside = _maximum(input, kernel_size, stride, padding, dilation, ceil_mode, layout, device)
    call.remember()
    return order.outside(call.pull(gradient, order.inside(grad_output, "grad_output"))[inside])


def _average(input: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool,
             divisor_override: Optional[int], layout: Optional[str], device: Any) -> Tuple[Images, Call, Any, float]:
    order, source = images_of("avg_pool2d", layout, input)
    kernel, stride, padding, _ = window_of("avg_pool2d", kernel_size, stride, padding)
    checked(divisor_override != 0, "avg_pool2d", "divisor_override", divisor_override, "another number or None")
    size = _windows("avg_pool2d", source, kernel, stride, padding, (1, 1), ceil_mode)
    forward: Any
    forward, gradient = (made(device, kernel[1], kernel[0], stride[1], stride[0])
                         for made in (unmetal.CNNPoolingAverage, unmetal.CNNPoolingAverageGradient))
    if divisor_override is None:
        forward.edge_mode = unmetal.ImageEdgeMode.Clamp
        if count_include_pad:
            forward.zero_pad_size_y, forward.zero_pad_size_x = padding
    place(forward, kernel, (1, 1), padding)
    factor = 1 if divisor_override is None else kernel[0] * kernel[1] / divisor_override
    return order, Call(forward, [source], (len(source), *size, source.shape[3])), gradient, factor


@of_arrays
def avg_pool2d(input: ArrayType, kernel_size: Pair, stride: Optional[Pair] = None, padding: Pair = 0,
               ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Optional[int] = None, *,
               layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> ArrayType:
    """Mean of each window of `input` [N][H][W][C] or [H][W][C]; `stride` None: kernel_size."""
    order, call, _, factor = _average(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override,
                                      layout, device)
    return order.outside(scaled(call.run(), factor))


@of_arrays
def avg_pool2d_backward(grad_output: ArrayType, input: Any, kernel_size: Pair, stride: Optional[Pair] = None,
                        padding: Pair = 0, ceil_mode: bool = False, count_include_pad: bool = True,
                        divisor_override: Optional[int] = None, *, layout: Optional[Layout] = None,
                        device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    order, call, gradient, factor = _average(input, kernel_size, stride, padding, ceil_mode, count_include_pad,
                                             divisor_override, layout, device)
    call.remember()
    return order.outside(call.pull(gradient, scaled(order.inside(grad_output, "grad_output"), factor)))


def _norm(input: Any, kernel_size: Any, stride: Any, ceil_mode: bool, layout: Optional[str],
          device: Any) -> Tuple[Images, Call, Any, Data]:
    order, source = images_of("l2_pool2d", layout, input)
    kernel, stride, _, _ = window_of("l2_pool2d", kernel_size, stride)
    size = _windows("l2_pool2d", source, kernel, stride, (0, 0), (1, 1), ceil_mode)
    forward, gradient = (made(device, kernel[1], kernel[0], stride[1], stride[0])
                         for made in (unmetal.CNNPoolingL2Norm, unmetal.CNNPoolingL2NormGradient))
    place(forward, kernel, (1, 1), (0, 0))
    taps = [np.minimum(extent, pixels - step * np.arange(count)) for extent, pixels, step, count in
            zip(kernel, source.shape[1:3], stride, size)]
    factor = as_like(np.sqrt(kernel[0] * kernel[1] / np.outer(*taps))[..., None], source, type_of(source))
    return order, Call(forward, [source], (len(source), *size, source.shape[3])), gradient, factor


@of_arrays
def l2_pool2d(input: ArrayType, kernel_size: Pair, stride: Optional[Pair] = None, ceil_mode: bool = False, *,
              layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> ArrayType:
    """Square root of the sum of squares of each window of `input` [N][H][W][C] or [H][W][C]; `stride` None: kernel_size. As in
    PyTorch the mean square of a window that ceil_mode lets leave the input counts for all of its taps."""
    order, call, _, factor = _norm(input, kernel_size, stride, ceil_mode, layout, device)
    return order.outside(call.run() * factor)


@of_arrays
def l2_pool2d_backward(grad_output: ArrayType, input: Any, kernel_size: Pair, stride: Optional[Pair] = None,
                       ceil_mode: bool = False, *, layout: Optional[Layout] = None,
                       device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    order, call, gradient, factor = _norm(input, kernel_size, stride, ceil_mode, layout, device)
    call.remember()
    return order.outside(call.pull(gradient, order.inside(grad_output, "grad_output") * factor))


@of_arrays
def lp_pool2d(input: ArrayType, norm_type: float, kernel_size: Pair, stride: Optional[Pair] = None,
              ceil_mode: bool = False, *, layout: Optional[Layout] = None,
              device: Optional[mtl.Device] = None) -> ArrayType:
    """l2_pool2d; `norm_type` other than 2 raises ArgumentError."""
    checked(norm_type == 2, "lp_pool2d", "norm_type", norm_type, "2")
    return l2_pool2d(input, kernel_size, stride, ceil_mode, layout=layout, device=device)


@of_arrays
def lp_pool2d_backward(grad_output: ArrayType, input: Any, norm_type: float, kernel_size: Pair,
                       stride: Optional[Pair] = None, ceil_mode: bool = False, *, layout: Optional[Layout] = None,
                       device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    checked(norm_type == 2, "lp_pool2d", "norm_type", norm_type, "2")
    return l2_pool2d_backward(grad_output, input, kernel_size, stride, ceil_mode, layout=layout, device=device)


class _Windows:
    """Those of one axis of an adaptive pooling that have the same size."""

    def __init__(self, size: int, starts: List[int], results: List[int]):
        self.size, self.results = size, np.array(results)
        self.pixels = (np.array(starts)[:, None] + np.arange(size)).reshape(-1)


def _windows_by_size(pixels: int, count: int) -> List[_Windows]:
    """Window i of `count` goes from floor(i pixels / count) to ceil((i + 1) pixels / count)."""
    starts = [index * pixels // count for index in range(count)]
    sizes = [-(-(index + 1) * pixels // count) - start for index, start in enumerate(starts)]
    return [_Windows(size, *map(list, zip(*((start, index) for index, start in enumerate(starts) if sizes[index] == size))))
            for size in sorted(set(sizes))]


class _Adaptive:
    """Windows of one size, their pixels side by side, are what a pooling without gaps has; there are few sizes."""

    def __init__(self, input: Any, output_size: Any, layout: Optional[str], device: Any):
        self.order, self.source = images_of("adaptive_avg_pool2d", layout, input)
        self.device = device
        sizes = (output_size, output_size) if output_size is None or np.ndim(output_size) == 0 else tuple(output_size)
        checked(len(sizes) == 2, "adaptive_avg_pool2d", "output_size", output_size, "a number or two")
        self.size = [pixels if size is None else whole("adaptive_avg_pool2d", "output_size", size)
                     for size, pixels in zip(sizes, self.source.shape[1:3])]
        checked(min(self.size) >= 1, "adaptive_avg_pool2d", "output_size", output_size, "at least 1")

    def parts(self) -> Iterator[Tuple[Call, Any, Tuple[Data, Data], Tuple[Data, Data]]]:
        """A pooling and its gradient; rows and columns of its pixels in the source; those of its results."""
        height, width = self.source.shape[1:3]
        for rows in _windows_by_size(height, self.size[0]):
            for columns in _windows_by_size(width, self.size[1]):
                kernel = columns.size, rows.size
                forward, gradient = (made(self.device, *kernel, *kernel) for made in
                                     (unmetal.CNNPoolingAverage, unmetal.CNNPoolingAverageGradient))
                place(forward, kernel[::-1], (1, 1), (0, 0))
                pixels = self._grid(rows.pixels, columns.pixels)
                gathered = self.source[(slice(None), *pixels)]
                shape = len(self.source), len(rows.results), len(columns.results), self.source.shape[3]
                yield Call(forward, [gathered], shape), gradient, pixels, self._grid(rows.results, columns.results)

    def _grid(self, rows: Data, columns: Data) -> Tuple[Data, Data]:
        return as_like(rows[:, None], self.source), as_like(columns[None], self.source)


@of_arrays
def adaptive_avg_pool2d(input: ArrayType, output_size: Union[None, int, Sequence[Optional[int]]], *,
                        layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> ArrayType:
    """Means of `output_size` windows (a number, or one for each axis; None: as many as pixels) of `input` [N][H][W][C] or
    [H][W][C]. Of an axis of n pixels, window i of m goes from floor(i n / m) to ceil((i + 1) n / m)."""
    pooling = _Adaptive(input, output_size, layout, device)
    source = pooling.source
    result = filled((len(source), *pooling.size, source.shape[3]), float("nan"), source, type_of(source))
    for call, _, _, results in pooling.parts():
        result[(slice(None), *results)] = call.run()
    return pooling.order.outside(result)


@of_arrays
def adaptive_avg_pool2d_backward(grad_output: ArrayType, input: Any,
                                 output_size: Union[None, int, Sequence[Optional[int]]], *,
                                 layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    pooling = _Adaptive(input, output_size, layout, device)
    incoming, source = pooling.order.inside(grad_output, "grad_output"), pooling.source
    expected = (len(source), *pooling.size, source.shape[3])
    checked(shape_of(incoming) == expected, "backward", "grad_output", shape_of(incoming), expected)
    outgoing = filled(source.shape, 0, source, "float32")
    images = as_like(np.arange(len(source))[:, None, None], source)
    for call, gradient, (rows, columns), results in pooling.parts():
        call.remember()
        pulled = call.pull(gradient, incoming[(slice(None), *results)])
        add_at(outgoing, (images, rows[None], columns[None]), cast_to(pulled, "float32"))
    return pooling.order.outside(cast_to(outgoing, type_of(source)))
