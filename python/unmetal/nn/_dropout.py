"""Dropout, whose masks are drawn from seeds."""

# What arrays and kernels give is Any here.
# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from typing import Any, Optional, Tuple

import unmetal
from unmetal import mtl
from unmetal.nn._activations import lines_of
from unmetal.nn._arrays import ArrayType, Data, Shape, checked, filled, floats, of_arrays, shape_of, type_of
from unmetal.nn._calls import Call


def _zeros(array: Any) -> Data:
    """The kernel keeps elements with a probability above 0."""
    array = floats(array, "input")
    return filled(shape_of(array), 0, array, type_of(array))


def _dropped(input: Any, p: float, seed: int, device: Any) -> Tuple[Call, Shape]:
    lines, shape = lines_of(input)
    return Call(unmetal.CNNDropout(device, 1 - p, seed), [lines], lines.shape), shape


@of_arrays
def dropout(input: ArrayType, p: float = 0.5, training: bool = True, *, seed: Optional[int] = None,
            device: Optional[mtl.Device] = None) -> ArrayType:
    """Elements of an array of any shape become 0 with probability `p`, the others are divided by 1 - p. Not `training`: the
    input. The same `seed` draws the same mask each time; None: unmetal.next_seed(), another mask in each call, the same
    ones in their order after unmetal.manual_seed."""
    if not training:
        return floats(input, "input")
    if p == 1:
        return _zeros(input)
    call, shape = _dropped(input, p, unmetal.next_seed() if seed is None else seed, device)
    return call.run().reshape(shape)


@of_arrays
def dropout_backward(grad_output: ArrayType, input: ArrayType, p: float = 0.5, training: bool = True, *,
                     seed: Optional[int] = None, device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input. `seed`: the one that dropout had; None raises ArgumentError where the mask depends on it, because
    nobody remembers the mask."""
    checked(shape_of(grad_output) == shape_of(input), "backward", "grad_output", shape_of(grad_output), shape_of(input))
    if not training:
        return floats(grad_output, "grad_output")
    if p == 1:
        return _zeros(grad_output)
    if seed is None:
        checked(p == 0, "dropout_backward", "seed", None, "the seed that dropout had, such as one of unmetal.next_seed()")
        seed = 0
    call, shape = _dropped(input, p, seed, device)
    call.remember()
    gradient = unmetal.CNNDropoutGradient(call.device, 1 - p, seed)
    return call.pull(gradient, lines_of(grad_output, name="grad_output")[0]).reshape(shape)
