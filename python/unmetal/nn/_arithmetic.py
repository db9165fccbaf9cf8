"""Arithmetic of two arrays and concatenation."""

# What arrays and kernels give is Any here.
# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Tuple

import unmetal
from unmetal import mtl
from unmetal.nn._arrays import ArrayType, Data, checked, floats, moved, of_arrays, shape_of
from unmetal.nn._calls import Call, Images
from unmetal.nn._layout import Layout, layout_of

Made = Callable[..., Any]


class _Operands:
    """Two arrays of images, or of one image; the one of fewer axes is repeated along the first ones."""

    def __init__(self, function: str, layout: Optional[str], input: Any, other: Any):
        self.arrays = [floats(input, "input"), floats(other, "other")]
        self.images = Images(function, layout, max(array.ndim for array in self.arrays))

    def inside(self, index: int) -> Data:
        array = self.arrays[index]
        missing = self.images.dimensions - array.ndim
        return self.images.inside(array.reshape((1,) * missing + shape_of(array)) if missing > 0 else array,
                                  ("input", "other")[index])


def _combined(made: Made, operands: _Operands, alpha: float, device: Any) -> Call:
    arrays = operands.inside(0), operands.inside(1)
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


def _result(function: str, made: Made, input: Any, other: Any, alpha: float, layout: Optional[str], device: Any) -> Data:
    operands = _Operands(function, layout, input, other)
    return operands.images.outside(_combined(made, operands, alpha, device).run())


def _both(function: str, made: Made, made_gradient: Made, grad_output: Any, input: Any, other: Any,
          scales: Tuple[float, float], sources: Tuple[int, int], layout: Optional[str], device: Any) -> Tuple[Data, Data]:
    """`scales`: of each gradient kernel; `sources`: which array each of them reads."""
    operands = _Operands(function, layout, input, other)
    call = _combined(made, operands, 1, device)
    call.remember()
    incoming = operands.images.inside(grad_output, "grad_output")

    def of_operand(index: int) -> Data:
        kernel = made_gradient(call.device, bool(index))
        kernel.primary_scale = scales[index]
        outgoing = operands.images.outside(call.pull(kernel, incoming, index, operands.inside(sources[index])))
        return outgoing.reshape(shape_of(operands.arrays[index]))

    return of_operand(0), of_operand(1)


@of_arrays
def add(input: ArrayType, other: Any, *, alpha: float = 1, layout: Optional[Layout] = None,
        device: Optional[mtl.Device] = None) -> ArrayType:
    """input + alpha other; [N][H][W][C] or [H][W][C] both, either may have 1 in place of H, W or C."""
    return _result("add", unmetal.CNNAdd, input, other, alpha, layout, device)


@of_arrays
def add_backward(grad_output: ArrayType, input: Any, other: Any, *, alpha: float = 1, layout: Optional[Layout] = None,
                 device: Optional[mtl.Device] = None) -> Tuple[ArrayType, ArrayType]:
    """Gradients of input and other."""
    return _both("add", unmetal.CNNAdd, unmetal.CNNAddGradient, grad_output, input, other, (1, alpha), (0, 1), layout, device)


@of_arrays
def sub(input: ArrayType, other: Any, *, alpha: float = 1, layout: Optional[Layout] = None,
        device: Optional[mtl.Device] = None) -> ArrayType:
    """input - alpha other; shapes as of add."""
    return _result("sub", unmetal.CNNSubtract, input, other, alpha, layout, device)


@of_arrays
def sub_backward(grad_output: ArrayType, input: Any, other: Any, *, alpha: float = 1, layout: Optional[Layout] = None,
                 device: Optional[mtl.Device] = None) -> Tuple[ArrayType, ArrayType]:
    """Gradients of input and other."""
    return _both("sub", unmetal.CNNSubtract, unmetal.CNNSubtractGradient, grad_output, input, other, (1, -alpha), (0, 1),
                 layout, device)


@of_arrays
def mul(input: ArrayType, other: Any, *, layout: Optional[Layout] = None,
        device: Optional[mtl.Device] = None) -> ArrayType:
    """input other; shapes as of add."""
    return _result("mul", unmetal.CNNMultiply, input, other, 1, layout, device)


@of_arrays
def mul_backward(grad_output: ArrayType, input: Any, other: Any, *, layout: Optional[Layout] = None,
                 device: Optional[mtl.Device] = None) -> Tuple[ArrayType, ArrayType]:
    """Gradients of input and other."""
    return _both("mul", unmetal.CNNMultiply, unmetal.CNNMultiplyGradient, grad_output, input, other, (1, 1), (1, 0), layout,
                 device)


@of_arrays
def div(input: ArrayType, other: Any, *, layout: Optional[Layout] = None,
        device: Optional[mtl.Device] = None) -> ArrayType:
    """input / other; shapes as of add."""
    return _result("div", unmetal.CNNDivide, input, other, 1, layout, device)


@of_arrays
def div_backward(grad_output: ArrayType, input: Any, other: Any, *, layout: Optional[Layout] = None,
                 device: Optional[mtl.Device] = None) -> Tuple[ArrayType, ArrayType]:
    """Gradients of input and other."""
    return _both("div", unmetal.CNNDivide, unmetal.CNNDivideGradient, grad_output, input, other, (1, 1), (1, 1), layout,
                 device)


class _Joined:
    """Arrays side by side along one axis, as the channels of images of one row."""

    def __init__(self, tensors: Sequence[Any], dim: Optional[int], layout: Optional[str], device: Any):
        arrays = [floats(tensor, "tensors") for tensor in tensors]
        axes = arrays[0].ndim if arrays else 0
        channels = max(axes - 3, 0) if layout_of("cat", layout) == "NCHW" else axes - 1
        self.axis = channels if dim is None else dim % axes if axes else 0
        checked(arrays and axes > 0 and (dim is None or -axes <= dim < axes), "cat", "dim", dim,
                f"one of {axes} axes of at least one array")
        ends = [moved(array, self.axis, -1) if array.ndim == axes else array for array in arrays]
        checked(all(end.ndim == axes and end.shape[:-1] == ends[0].shape[:-1] for end in ends), "cat", "tensors",
                [shape_of(array) for array in arrays], "one shape, but for the axis along which they are joined")
        self.others = shape_of(ends[0])[:-1]
        self.kernel = unmetal.NNConcatenation(device, len(arrays))
        self.kernel.channel_alignment = 1
        lines = [self._lines(end) for end in ends]
        self.call = Call(self.kernel, lines, (*lines[0].shape[:3], sum(line.shape[3] for line in lines)))

    @staticmethod
    def _lines(end: Data) -> Data:
        return end if end.ndim == 4 else end.reshape(1, -1, 1, end.shape[-1])

    def inside(self, array: Any, name: str) -> Data:
        array = floats(array, name)
        checked(array.ndim == len(self.others) + 1, "cat", name, f"of {array.ndim} dimensions", len(self.others) + 1)
        return self._lines(moved(array, self.axis, -1))

    def outside(self, lines: Data) -> Data:
        return moved(lines.reshape((*self.others, lines.shape[-1])), -1, self.axis)


@of_arrays
def cat(tensors: Sequence[ArrayType], dim: Optional[int] = None, *, layout: Optional[Layout] = None,
        device: Optional[mtl.Device] = None) -> ArrayType:
    """Puts arrays side by side along axis `dim`; None: their channels."""
    joined = _Joined(tensors, dim, layout, device)
    return joined.outside(joined.call.run())


@of_arrays
def cat_backward(grad_output: ArrayType, tensors: Sequence[Any], dim: Optional[int] = None, *,
                 layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> Tuple[ArrayType, ...]:
    """Gradients of the tensors."""
    joined = _Joined(tensors, dim, layout, device)
    joined.call.remember()
    incoming = joined.inside(grad_output, "grad_output")
    return tuple(joined.outside(joined.call.pull(unmetal.NNConcatenationGradient(joined.call.device, index), incoming, index))
                 for index in range(len(joined.call.images)))
