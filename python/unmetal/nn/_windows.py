"""Pooling, interpolation and padding."""

import numpy as np

import unmetal
from unmetal.nn._arrays import as_like, checked, filled, of_arrays, shape_of, type_of
from unmetal.nn._calls import Call, channels_last, extents_of, laid_out, pair, place, window_of


def _windows(function, source, kernel, stride, padding, dilation, ceil_mode):
    """Pixels of the result. Each window begins inside the source or its left padding."""
    checked(all(2 * pad <= size for pad, size in zip(padding, kernel)), function, "padding", padding,
            "at most half the kernel size")
    sizes = []
    for pixels, extent, step, pad in zip(source.shape[1:3], extents_of(kernel, dilation), stride, padding):
        room = pixels + 2 * pad - extent
        count = (-(-room // step) if ceil_mode else room // step) + 1
        sizes.append(count - (ceil_mode and (count - 1) * step >= pixels + pad))
    checked(min(sizes) > 0, function, "kernel_size", kernel, "at most the size of the input with its padding")
    return sizes


def _maximum(input, kernel_size, stride, padding, dilation, ceil_mode, layout, device):
    source = channels_last(input, layout)
    kernel, stride, padding, dilation = window_of("max_pool2d", kernel_size, stride, padding, dilation)
    size = _windows("max_pool2d", source, kernel, stride, padding, dilation, ceil_mode)
    if dilation == (1, 1):
        forward, gradient = (made(device, kernel[1], kernel[0], stride[1], stride[0])
                             for made in (unmetal.CNNPoolingMax, unmetal.CNNPoolingMaxGradient))
        inside = (slice(None),)
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
    return Call(forward, [source], (len(source), *size, source.shape[3])), gradient, inside


@of_arrays
def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, *, layout="NHWC", device=None):
    """Maximum of each window of `input` [N][H][W][C]; `stride` None: kernel_size; padding is minus infinity."""
    call, _, _ = _maximum(input, kernel_size, stride, padding, dilation, ceil_mode, layout, device)
    return laid_out(call.run(), layout)


@of_arrays
def max_pool2d_backward(grad_output, input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, *,
                        layout="NHWC", device=None):
    """Gradient of input; of equal maxima the first one of a window gets it."""
    call, gradient, inside = _maximum(input, kernel_size, stride, padding, dilation, ceil_mode, layout, device)
    call.remember()
    return laid_out(call.pull(gradient, channels_last(grad_output, layout, "grad_output"))[inside], layout)


def _average(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, layout, device):
    source = channels_last(input, layout)
    kernel, stride, padding, _ = window_of("avg_pool2d", kernel_size, stride, padding)
    checked(divisor_override != 0, "avg_pool2d", "divisor_override", divisor_override, "another number or None")
    size = _windows("avg_pool2d", source, kernel, stride, padding, (1, 1), ceil_mode)
    forward, gradient = (made(device, kernel[1], kernel[0], stride[1], stride[0])
                         for made in (unmetal.CNNPoolingAverage, unmetal.CNNPoolingAverageGradient))
    if divisor_override is None:
        forward.edge_mode = unmetal.ImageEdgeMode.Clamp
        if count_include_pad:
            forward.zero_pad_size_y, forward.zero_pad_size_x = padding
    place(forward, kernel, (1, 1), padding)
    factor = 1 if divisor_override is None else kernel[0] * kernel[1] / divisor_override
    return Call(forward, [source], (len(source), *size, source.shape[3])), gradient, factor


@of_arrays
def avg_pool2d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None, *,
               layout="NHWC", device=None):
    """Mean of each window of `input` [N][H][W][C]; `stride` None: kernel_size."""
    call, _, factor = _average(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, layout,
                               device)
    return laid_out(call.run() * factor, layout)


@of_arrays
def avg_pool2d_backward(grad_output, input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
                        divisor_override=None, *, layout="NHWC", device=None):
    """Gradient of input."""
    call, gradient, factor = _average(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override,
                                      layout, device)
    call.remember()
    return laid_out(call.pull(gradient, channels_last(grad_output, layout, "grad_output") * factor), layout)


def _norm(input, kernel_size, stride, ceil_mode, layout, device):
    source = channels_last(input, layout)
    kernel, stride, _, _ = window_of("l2_pool2d", kernel_size, stride)
    size = _windows("l2_pool2d", source, kernel, stride, (0, 0), (1, 1), ceil_mode)
    forward, gradient = (made(device, kernel[1], kernel[0], stride[1], stride[0])
                         for made in (unmetal.CNNPoolingL2Norm, unmetal.CNNPoolingL2NormGradient))
    place(forward, kernel, (1, 1), (0, 0))
    taps = [np.minimum(extent, pixels - step * np.arange(count)) for extent, pixels, step, count in
            zip(kernel, source.shape[1:3], stride, size)]
    factor = as_like(np.sqrt(kernel[0] * kernel[1] / np.outer(*taps))[..., None], source, type_of(source))
    return Call(forward, [source], (len(source), *size, source.shape[3])), gradient, factor


@of_arrays
def l2_pool2d(input, kernel_size, stride=None, ceil_mode=False, *, layout="NHWC", device=None):
    """Square root of the sum of squares of each window of `input` [N][H][W][C]; `stride` None: kernel_size. As in PyTorch the
    mean square of a window that ceil_mode lets leave the input counts for all of its taps."""
    call, _, factor = _norm(input, kernel_size, stride, ceil_mode, layout, device)
    return laid_out(call.run() * factor, layout)


@of_arrays
def l2_pool2d_backward(grad_output, input, kernel_size, stride=None, ceil_mode=False, *, layout="NHWC", device=None):
    """Gradient of input."""
    call, gradient, factor = _norm(input, kernel_size, stride, ceil_mode, layout, device)
    call.remember()
    return laid_out(call.pull(gradient, channels_last(grad_output, layout, "grad_output") * factor), layout)


@of_arrays
def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False, *, layout="NHWC", device=None):
    """l2_pool2d; `norm_type` other than 2 raises ArgumentError."""
    checked(norm_type == 2, "lp_pool2d", "norm_type", norm_type, "2")
    return l2_pool2d(input, kernel_size, stride, ceil_mode, layout=layout, device=device)


@of_arrays
def lp_pool2d_backward(grad_output, input, norm_type, kernel_size, stride=None, ceil_mode=False, *, layout="NHWC",
                       device=None):
    """Gradient of input."""
    checked(norm_type == 2, "lp_pool2d", "norm_type", norm_type, "2")
    return l2_pool2d_backward(grad_output, input, kernel_size, stride, ceil_mode, layout=layout, device=device)


def _enlarged(input, size, scale_factor, mode, align_corners, layout, device):
    source = channels_last(input, layout)
    checked((size is None) != (scale_factor is None), "interpolate", "size", size, "a size or a scale_factor, not both")
    checked(mode in ("nearest", "bilinear"), "interpolate", "mode", repr(mode), "'nearest' or 'bilinear'")
    checked(align_corners is None or mode == "bilinear", "interpolate", "align_corners", align_corners, "None with nearest")
    pixels = shape_of(source)[1:3]
    if size is None:
        scales = (scale_factor, scale_factor) if np.ndim(scale_factor) == 0 else scale_factor
        checked(len(scales) == 2, "interpolate", "scale_factor", scale_factor, "a number or two")
        exact = [count * scale for count, scale in zip(pixels, scales)]
        checked(all(number == int(number) for number in exact), "interpolate", "scale_factor", scale_factor,
                f"one that makes whole sizes of {pixels}")
        size = [int(number) for number in exact]
    size = pair("interpolate", "size", size)
    factors = [count // before for count, before in zip(size, pixels)]
    whole = all(factor * before == count > 0 for factor, before, count in zip(factors, pixels, size))
    checked(whole or mode == "bilinear", "interpolate", "size", size, f"multiples of {pixels} with nearest")
    factors = factors[::-1]
    if mode == "nearest":
        forward = unmetal.CNNUpsamplingNearest(device, *factors)
        gradient = unmetal.CNNUpsamplingNearestGradient(device, *factors)
    elif whole:
        forward = unmetal.CNNUpsamplingBilinear(device, *factors, bool(align_corners))
        gradient = unmetal.CNNUpsamplingBilinearGradient(device, *factors)
    else:
        forward = unmetal.NNResizeBilinear(device, size[1], size[0], bool(align_corners))
        gradient = unmetal.NNResizeBilinearGradient(device)
    if mode == "bilinear":
        forward.half_pixel_centers = not align_corners
    return Call(forward, [source], (len(source), *size, source.shape[3])), gradient


@of_arrays
def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None, *, layout="NHWC", device=None):
    """Resizes `input` [N][H][W][C] to `size` pixels, or by `scale_factor`, which has to give whole numbers of pixels; `mode`:
    'nearest', to a multiple of the size alone, or 'bilinear', with half-pixel centres unless align_corners."""
    call, _ = _enlarged(input, size, scale_factor, mode, align_corners, layout, device)
    return laid_out(call.run(), layout)


@of_arrays
def interpolate_backward(grad_output, input, size=None, scale_factor=None, mode="nearest", align_corners=None, *,
                         layout="NHWC", device=None):
    """Gradient of input."""
    call, gradient = _enlarged(input, size, scale_factor, mode, align_corners, layout, device)
    call.remember()
    return laid_out(call.pull(gradient, channels_last(grad_output, layout, "grad_output")), layout)


_EDGES = {"constant": unmetal.ImageEdgeMode.Constant, "reflect": unmetal.ImageEdgeMode.Mirror,
          "replicate": unmetal.ImageEdgeMode.Clamp}


def _padded(input, pad, mode, value, layout, device):
    source = channels_last(input, layout)
    checked(mode in _EDGES, "pad", "mode", repr(mode), "'constant', 'reflect' or 'replicate'")
    checked(len(pad) in (2, 4) and min(pad) >= 0, "pad", "pad", pad, "2 or 4 numbers of pixels")
    left, right, top, bottom = (*pad, 0, 0)[:4]
    height, width = source.shape[1:3]
    checked(mode != "reflect" or (max(left, right) < width and max(top, bottom) < height), "pad", "pad", pad,
            f"less than the size, {height} x {width}, with reflect")
    forward = unmetal.NNPad(device, unmetal.ImageCoordinate(left, top, 0),
                            unmetal.ImageCoordinate(right, bottom, 0))
    forward.edge_mode, forward.fill_value = _EDGES[mode], 0 if value is None else value
    forward.offset = unmetal.Offset(-left, -top, 0)
    size = height + top + bottom, width + left + right
    return Call(forward, [source], (len(source), *size, source.shape[3])), unmetal.NNPadGradient(forward.device)


@of_arrays
def pad(input, pad, mode="constant", value=None, *, layout="NHWC", device=None):
    """Puts rows and columns around `input` [N][H][W][C]. `pad`: (left, right) or (left, right, top, bottom), none negative;
    `mode`: 'constant', of `value` or 0, 'reflect', about the pixels at the edge, or 'replicate', of these pixels."""
    call, _ = _padded(input, pad, mode, value, layout, device)
    return laid_out(call.run(), layout)


@of_arrays
def pad_backward(grad_output, input, pad, mode="constant", value=None, *, layout="NHWC", device=None):
    """Gradient of input."""
    call, gradient = _padded(input, pad, mode, value, layout, device)
    call.remember()
    return laid_out(call.pull(gradient, channels_last(grad_output, layout, "grad_output")), layout)
