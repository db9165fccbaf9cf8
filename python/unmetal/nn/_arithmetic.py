"""Arithmetic of two arrays and concatenation."""

import unmetal
from unmetal.nn._arrays import checked, of_arrays, shape_of
from unmetal.nn._calls import Call, channels_last, laid_out


def _combined(made, input, other, alpha, layout, device):
    arrays = channels_last(input, layout), channels_last(other, layout, "other")
    shapes = [shape_of(array) for array in arrays]
    checked(shapes[0][0] == shapes[1][0] and all(a == b or 1 in (a, b) for a, b in zip(*shapes)), made.__name__, "other",
            f"of shape {shapes[1]}", f"the sizes of {shapes[0]}, or 1 in place of height, width or channels")
    shape = tuple(max(sizes) for sizes in zip(*shapes))
    kernel = made(device)
    kernel.secondary_scale = alpha
    for name, own in zip(("primary", "secondary"), shapes):
        for axis, which in ((1, "pixels_y"), (2, "pixels_x"), (3, "feature_channels")):
            setattr(kernel, f"{name}_stride_in_{which}", int(own[axis] == shape[axis]))
    return Call(kernel, arrays, shape)


def _both(made, made_gradient, grad_output, input, other, scales, sources, layout, device):
    """`scales`: of each gradient kernel; `sources`: which array each of them reads."""
    call = _combined(made, input, other, 1, layout, device)
    call.remember()
    gradients = []
    for index in range(2):
        kernel = made_gradient(call.device, bool(index))
        kernel.primary_scale = scales[index]
        read = channels_last((input, other)[sources[index]], layout)
        gradients.append(laid_out(call.pull(kernel, channels_last(grad_output, layout, "grad_output"), index, read), layout))
    return tuple(gradients)


@of_arrays
def add(input, other, alpha=1, *, layout="NHWC", device=None):
    """input + alpha other; [N][H][W][C] both, either may have 1 in place of H, W or C."""
    return laid_out(_combined(unmetal.CNNAdd, input, other, alpha, layout, device).run(), layout)


@of_arrays
def add_backward(grad_output, input, other, alpha=1, *, layout="NHWC", device=None):
    """Gradients of input and other."""
    return _both(unmetal.CNNAdd, unmetal.CNNAddGradient, grad_output, input, other, (1, alpha), (0, 1), layout, device)


@of_arrays
def sub(input, other, alpha=1, *, layout="NHWC", device=None):
    """input - alpha other; shapes as of add."""
    return laid_out(_combined(unmetal.CNNSubtract, input, other, alpha, layout, device).run(), layout)


@of_arrays
def sub_backward(grad_output, input, other, alpha=1, *, layout="NHWC", device=None):
    """Gradients of input and other."""
    return _both(unmetal.CNNSubtract, unmetal.CNNSubtractGradient, grad_output, input, other, (1, -alpha), (0, 1), layout,
                 device)


@of_arrays
def mul(input, other, *, layout="NHWC", device=None):
    """input other; shapes as of add."""
    return laid_out(_combined(unmetal.CNNMultiply, input, other, 1, layout, device).run(), layout)


@of_arrays
def mul_backward(grad_output, input, other, *, layout="NHWC", device=None):
    """Gradients of input and other."""
    return _both(unmetal.CNNMultiply, unmetal.CNNMultiplyGradient, grad_output, input, other, (1, 1), (1, 0), layout, device)


@of_arrays
def div(input, other, *, layout="NHWC", device=None):
    """input / other; shapes as of add."""
    return laid_out(_combined(unmetal.CNNDivide, input, other, 1, layout, device).run(), layout)


@of_arrays
def div_backward(grad_output, input, other, *, layout="NHWC", device=None):
    """Gradients of input and other."""
    return _both(unmetal.CNNDivide, unmetal.CNNDivideGradient, grad_output, input, other, (1, 1), (1, 1), layout, device)


def _joined(tensors, layout, device):
    arrays = [channels_last(tensor, layout, "tensors") for tensor in tensors]
    checked(len(arrays) > 0 and all(array.shape[:3] == arrays[0].shape[:3] for array in arrays), "cat", "tensors",
            [shape_of(array) for array in arrays], "at least one, of one N, H and W")
    kernel = unmetal.NNConcatenation(device, len(arrays))
    kernel.channel_alignment = 1
    return Call(kernel, arrays, (*arrays[0].shape[:3], sum(array.shape[3] for array in arrays)))


@of_arrays
def cat(tensors, *, layout="NHWC", device=None):
    """Puts the channels of several [N][H][W][C] side by side."""
    return laid_out(_joined(tensors, layout, device).run(), layout)


@of_arrays
def cat_backward(grad_output, tensors, *, layout="NHWC", device=None):
    """Gradients of the tensors."""
    call = _joined(tensors, layout, device)
    call.remember()
    incoming = channels_last(grad_output, layout, "grad_output")
    return tuple(laid_out(call.pull(unmetal.NNConcatenationGradient(call.device, index), incoming, index), layout)
                 for index in range(len(call.images)))
