"""Interpolation, padding, pixels made of channels, and sampling at positions."""

# What arrays and kernels give is Any here.
# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

import numpy as np

import unmetal
from unmetal import mtl
from unmetal.nn._arrays import (ArrayType, Data, as_like, cast_to, checked, floats, limited, of_arrays, permuted, rounded,
                                shape_of, type_of)
from unmetal.nn._calls import Call, Images, Pair, images_of, pair, whole
from unmetal.nn._layout import Layout


def _size_of(pixels: Sequence[int], size: Any, scale_factor: Any) -> Tuple[int, int]:
    checked((size is None) != (scale_factor is None), "interpolate", "size", size, "a size or a scale_factor, not both")
    if size is None:
        scales = (scale_factor, scale_factor) if np.ndim(scale_factor) == 0 else scale_factor
        checked(len(scales) == 2, "interpolate", "scale_factor", scale_factor, "a number or two")
        exact = [count * scale for count, scale in zip(pixels, scales)]
        checked(all(number == int(number) for number in exact), "interpolate", "scale_factor", scale_factor,
                f"one that makes whole sizes of {pixels}")
        size = [int(number) for number in exact]
    return pair("interpolate", "size", size)


def _enlarged(input: Any, size: Any, scale_factor: Any, mode: str, align_corners: Optional[bool], layout: Optional[str],
              device: Any) -> Tuple[Images, Call, Any]:
    order = Images("interpolate", layout, 4)
    source = order.inside(input)
    checked(mode in ("nearest", "bilinear"), "interpolate", "mode", repr(mode), "'nearest' or 'bilinear'")
    checked(align_corners is None or mode == "bilinear", "interpolate", "align_corners", align_corners, "None with nearest")
    pixels = shape_of(source)[1:3]
    height, width = _size_of(pixels, size, scale_factor)
    factors = width // pixels[1], height // pixels[0]
    is_whole = (factors[0] * pixels[1], factors[1] * pixels[0]) == (width, height) and min(factors) > 0
    checked(is_whole or mode == "bilinear", "interpolate", "size", (height, width), f"multiples of {pixels} with nearest")
    forward: Any
    gradient: Any
    if mode == "nearest":
        forward = unmetal.CNNUpsamplingNearest(device, *factors)
        gradient = unmetal.CNNUpsamplingNearestGradient(device, *factors)
    elif is_whole:
        forward = unmetal.CNNUpsamplingBilinear(device, *factors, bool(align_corners))
        gradient = unmetal.CNNUpsamplingBilinearGradient(device, *factors)
    else:
        forward = unmetal.NNResizeBilinear(device, width, height, bool(align_corners))
        gradient = unmetal.NNResizeBilinearGradient(device)
    if mode == "bilinear":
        forward.half_pixel_centers = not align_corners
    return order, Call(forward, [source], (len(source), height, width, source.shape[3])), gradient


@of_arrays
def interpolate(input: ArrayType, size: Optional[Pair] = None, scale_factor: Union[None, float, Sequence[float]] = None,
                mode: str = "nearest", align_corners: Optional[bool] = None, *, layout: Optional[Layout] = None,
                device: Optional[mtl.Device] = None) -> ArrayType:
    """Resizes `input` [N][H][W][C] to `size` pixels, or by `scale_factor`, which has to give whole numbers of pixels; `mode`:
    'nearest', to a multiple of the size alone, or 'bilinear', with half-pixel centres unless align_corners. (PyTorch takes
    three dimensions for [N][C][L], so one image alone is refused.)"""
    order, call, _ = _enlarged(input, size, scale_factor, mode, align_corners, layout, device)
    return order.outside(call.run())


@of_arrays
def interpolate_backward(grad_output: ArrayType, input: Any, size: Optional[Pair] = None,
                         scale_factor: Union[None, float, Sequence[float]] = None, mode: str = "nearest",
                         align_corners: Optional[bool] = None, *, layout: Optional[Layout] = None,
                         device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    order, call, gradient = _enlarged(input, size, scale_factor, mode, align_corners, layout, device)
    call.remember()
    return order.outside(call.pull(gradient, order.inside(grad_output, "grad_output")))


_EDGES = {"constant": unmetal.ImageEdgeMode.Constant, "reflect": unmetal.ImageEdgeMode.Mirror,
          "replicate": unmetal.ImageEdgeMode.Clamp}


def _padded(input: Any, pad: Sequence[int], mode: str, value: Optional[float], layout: Optional[str],
            device: Any) -> Tuple[Images, Call, Any]:
    order, source = images_of("pad", layout, input)
    checked(mode in _EDGES, "pad", "mode", repr(mode), "'constant', 'reflect' or 'replicate'")
    checked(len(pad) in (2, 4) and min(pad) >= 0, "pad", "pad", pad, "2 or 4 numbers of pixels")
    left, right, top, bottom = (*pad, 0, 0)[:4]
    height, width = source.shape[1:3]
    checked(mode != "reflect" or (max(left, right) < width and max(top, bottom) < height), "pad", "pad", pad,
            f"less than the size, {height} x {width}, with reflect")
    forward = unmetal.NNPad(device, unmetal.ImageCoordinate(left, top, 0), unmetal.ImageCoordinate(right, bottom, 0))
    forward.edge_mode, forward.fill_value = _EDGES[mode], 0 if value is None else value
    forward.offset = unmetal.Offset(-left, -top, 0)
    size = height + top + bottom, width + left + right
    return order, Call(forward, [source], (len(source), *size, source.shape[3])), unmetal.NNPadGradient(forward.device)


@of_arrays
def pad(input: ArrayType, pad: Sequence[int], mode: str = "constant", value: Optional[float] = None, *,
        layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> ArrayType:
    """Puts rows and columns around `input` [N][H][W][C] or [H][W][C]. `pad`: (left, right) or (left, right, top, bottom), none
    negative; `mode`: 'constant', of `value` or 0, 'reflect', about the pixels at the edge, or 'replicate', of these pixels."""
    order, call, _ = _padded(input, pad, mode, value, layout, device)
    return order.outside(call.run())


@of_arrays
def pad_backward(grad_output: ArrayType, input: Any, pad: Sequence[int], mode: str = "constant",
                 value: Optional[float] = None, *, layout: Optional[Layout] = None,
                 device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    order, call, gradient = _padded(input, pad, mode, value, layout, device)
    call.remember()
    return order.outside(call.pull(gradient, order.inside(grad_output, "grad_output")))


def _factor_of(upscale_factor: Any) -> int:
    factor = whole("pixel_shuffle", "upscale_factor", upscale_factor)
    checked(factor >= 1, "pixel_shuffle", "upscale_factor", factor, "at least 1")
    return factor


@of_arrays
def pixel_shuffle(input: ArrayType, upscale_factor: int, *, layout: Optional[Layout] = None,
                  device: Optional[mtl.Device] = None) -> ArrayType:
    """Makes r x r pixels of each pixel of `input` [N][H][W][C r^2] or [H][W][C r^2]; r: `upscale_factor`. A copy.

        result[y r + i][x r + j][c] = input[y][x][c r^2 + i r + j]"""
    factor = _factor_of(upscale_factor)
    order, source = images_of("pixel_shuffle", layout, input)
    images, height, width, channels = source.shape
    checked(channels % factor ** 2 == 0, "pixel_shuffle", "input", f"of {channels} channels", f"a multiple of {factor ** 2}")
    split = source.reshape(images, height, width, channels // factor ** 2, factor, factor)
    return order.outside(permuted(split, 0, 1, 4, 2, 5, 3).reshape(images, height * factor, width * factor, -1))


@of_arrays
def pixel_shuffle_backward(grad_output: ArrayType, input: Any, upscale_factor: int, *, layout: Optional[Layout] = None,
                           device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    factor = _factor_of(upscale_factor)
    order, source = images_of("pixel_shuffle", layout, input)
    incoming = order.inside(grad_output, "grad_output")
    images, height, width, channels = source.shape
    expected = images, height * factor, width * factor, channels // factor ** 2
    checked(shape_of(incoming) == expected, "backward", "grad_output", shape_of(incoming), expected)
    split = incoming.reshape(images, height, factor, width, factor, expected[3])
    return order.outside(permuted(split, 0, 1, 3, 5, 2, 4).reshape(source.shape))


def _reflected(positions: Data, low: float, high: float) -> Data:
    """Between two mirrors."""
    if high == low:
        return positions * 0
    away = abs(positions - low)
    turns, rest = away // (high - low), away % (high - low)
    is_back = turns % 2 == 1
    return low + rest + cast_to(is_back, "float32") * ((high - low) - 2 * rest)


def _positions(grid: Data, pixels: int, mode: str, padding_mode: str, align_corners: bool) -> Data:
    """In pixels, of grid values -1 ... 1."""
    found = (grid + 1) / 2 * (pixels - 1) if align_corners else ((grid + 1) * pixels - 1) / 2
    if padding_mode == "reflection":
        found = _reflected(found, 0, pixels - 1) if align_corners else _reflected(found, -0.5, pixels - 0.5)
    if padding_mode != "zeros":
        found = limited(found, 0, pixels - 1)
    return rounded(found) if mode == "nearest" else found


@of_arrays
def grid_sample(input: ArrayType, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: Optional[bool] = None, *, layout: Optional[Layout] = None,
                device: Optional[mtl.Device] = None) -> ArrayType:
    """Samples `input` [N][H][W][C] at the positions of `grid` [N][height][width][2], in either layout: (x, y), each -1 ... 1
    from edge to edge, or between the centres of the outermost pixels if `align_corners`. `mode`: 'bilinear' or 'nearest';
    what lies outside is 0 ('zeros'), the pixel at the edge ('border'), or mirrored ('reflection'). There is no gradient."""
    checked(mode in ("bilinear", "nearest"), "grid_sample", "mode", repr(mode), "'bilinear' or 'nearest'")
    checked(padding_mode in ("zeros", "border", "reflection"), "grid_sample", "padding_mode", repr(padding_mode),
            "'zeros', 'border' or 'reflection'")
    order = Images("grid_sample", layout, 4)
    source, grid = order.inside(input), cast_to(floats(grid, "grid"), "float32")
    checked(grid.ndim == 4 and grid.shape[3] == 2 and len(grid) == len(source), "grid_sample", "grid",
            f"of shape {shape_of(grid)}", f"[{len(source)}][height][width][2]")
    height, width = source.shape[1:3]
    places = [np.arange(grid.shape[2], dtype=np.float32)[None, None], np.arange(grid.shape[1], dtype=np.float32)[None, :, None]]
    beside = grid * 0  # the kernel adds the place of each pixel of the result
    for axis, pixels in enumerate((width, height)):
        found = _positions(grid[..., axis], pixels, mode, padding_mode, bool(align_corners))
        beside[..., axis] = found - as_like(places[axis], grid)
    assert device is not None
    kernel = unmetal.NNGridSample(device)
    kernel.use_grid_value_as_input_coordinate = False
    kernel.primary_edge_mode = unmetal.ImageEdgeMode.Zero
    call = Call(kernel, [source, beside], (len(source), *grid.shape[1:3], source.shape[3]))
    return order.outside(cast_to(call.run(), type_of(source)))
