"""What the functional layer shares: arrays become batches, kernels run and are waited for, results are arrays."""

# What arrays and kernels give is Any here.
# mypy: disable-error-code="no-any-return"
from __future__ import annotations

import contextlib
import functools
import math
import operator
import sys
from typing import Any, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np

import unmetal
from unmetal import mtl
from unmetal.nn._arrays import (Data, Shape, as_like, checked, filled, floats, is_tensor, moved, packed, place_of,
                                shape_of, wider)
from unmetal.nn._layout import Layout, layout_of

Pair = Union[int, Sequence[int]]
Numbers = Tuple[int, int]


@functools.lru_cache(maxsize=None)
def queue_of(device: mtl.Device) -> mtl.CommandQueue:
    return device.new_command_queue()


def is_on(device: mtl.Device, array: Data) -> bool:
    """Whether the device's kernels can work on the array's memory."""
    return (device.kind == mtl.DeviceKind.CPU) == (place_of(array) == "cpu")


def inside_out(array: Data, layout: Layout) -> Data:
    """[...][y][x][channel] of [...][channel][y][x], where that is the layout; a view."""
    return moved(array, -3, -1) if layout == "NCHW" else array


def outside_in(array: Data, layout: Layout) -> Data:
    """The way back, a view."""
    return moved(array, -1, -3) if layout == "NCHW" else array


def weights_of(array: Any, layout: Optional[str], name: str = "weight") -> Data:
    """[out][y][x][in], a view."""
    array, layout = floats(array, name), layout_of("functional", layout)
    checked(array.ndim == 4, "functional", name, f"of {array.ndim} dimensions", "4 dimensions")
    return inside_out(array, layout)


class Images:
    """How the images of a call lie: in which order, and whether there is one alone, without an axis of images."""

    def __init__(self, function: str, layout: Optional[str], dimensions: int):
        """`dimensions`: of the first array, 3 or 4."""
        self.function, self.layout = function, layout_of(function, layout)
        self.is_alone = dimensions == 3
        self.dimensions = 3 if self.is_alone else 4

    def inside(self, array: Any, name: str = "input") -> Data:
        """[image][y][x][channel], a view."""
        array = floats(array, name)
        order = self.layout[1:] if self.is_alone else self.layout
        checked(array.ndim == self.dimensions, self.function, name, f"of {array.ndim} dimensions",
                f"{self.dimensions} dimensions, {order}" + ("" if self.is_alone else f", or one image {order[1:]}"))
        return inside_out(array[None] if self.is_alone else array, self.layout)

    def outside(self, array: Data) -> Data:
        """What `inside` was, a view."""
        array = outside_in(array, self.layout)
        return array[0] if self.is_alone else array


def images_of(function: str, layout: Optional[str], input: Any) -> Tuple[Images, Data]:
    """The order of an array and what lies inside."""
    images = Images(function, layout, np.ndim(input))
    return images, images.inside(input)


class Samples:
    """Arrays of samples with channels and any number of other axes, [N][...][C] or [N][C][...], as images."""

    def __init__(self, function: str, layout: Optional[str], shape: Shape):
        self.function, self.layout, self.shape = function, layout_of(function, layout), shape
        checked(len(shape) >= 2, function, "input", f"of {len(shape)} dimensions", "at least 2: samples and channels")

    def inside(self, array: Any, name: str = "input") -> Data:
        """[image][y][x][channel], a view where that is possible."""
        array = floats(array, name)
        checked(shape_of(array) == self.shape, self.function, name, f"of shape {shape_of(array)}", self.shape)
        last = moved(array, 1, -1) if self.layout == "NCHW" else array
        if last.ndim == 4:
            return last
        samples, others, channels = last.shape[0], tuple(last.shape[1:-1]), last.shape[-1]
        return last.reshape(samples, math.prod(others[:-1]), others[-1] if others else 1, channels)

    def outside(self, array: Data) -> Data:
        if self.layout == "NHWC":
            return array.reshape(self.shape)
        if array.ndim != len(self.shape):
            array = array.reshape((self.shape[0], *self.shape[2:], self.shape[1]))
        return moved(array, -1, 1)


def whole(function: str, argument: str, value: Any) -> int:
    """A whole number; others, text and None raise TypeError."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{function}: {argument} is {value!r}, expected a whole number") from None


def pair(function: str, argument: str, value: Any) -> Numbers:
    """(y, x) of a whole number or of two."""
    values = (value, value) if np.ndim(value) == 0 else tuple(value)
    checked(len(values) == 2, function, argument, value, "a number or two")
    return whole(function, argument, values[0]), whole(function, argument, values[1])


def window_of(function: str, kernel_size: Any, stride: Any = None, padding: Any = 0,
              dilation: Any = 1) -> Tuple[Numbers, Numbers, Numbers, Numbers]:
    """Pairs of the four, which is what all windows have; `stride` None: kernel_size."""
    kernel = pair(function, "kernel_size", kernel_size)
    stride = kernel if stride is None else pair(function, "stride", stride)
    padding, dilation = pair(function, "padding", padding), pair(function, "dilation", dilation)
    for argument, values, least in (("kernel_size", kernel, 1), ("stride", stride, 1), ("padding", padding, 0),
                                    ("dilation", dilation, 1)):
        checked(min(values) >= least, function, argument, values, f"at least {least}")
    return kernel, stride, padding, dilation


def batch_of(device: mtl.Device, array: Data) -> unmetal.ImageBatch:
    """Images over the array's memory where its layout allows, else over that of a copy, which is where the array is."""
    if place_of(array) == "cpu":
        return unmetal.ImageBatch.from_array(device, array)
    try:
        return unmetal.ImageBatch.from_array(device, array, copy=False)
    except unmetal.ArgumentError:
        return unmetal.ImageBatch.from_array(device, packed(array), copy=False)


@contextlib.contextmanager
def running(device: mtl.Device, *results: Data) -> Iterator[Tuple[Any, ...]]:
    """A command buffer that runs at the end, and for each of the arrays the images whose elements it then has."""
    batches = [unmetal.ImageBatch.from_array(device, result, copy=not is_on(device, result)) for result in results]
    copied = [(batch, result) for batch, result in zip(batches, results) if not is_on(device, result)]
    with queue_of(device).command_buffer() as command_buffer:
        yield (command_buffer, *batches)
        for batch, _ in copied:
            batch.synchronize(command_buffer)
    for batch, result in copied:
        batch.read_bytes(result)


class Call:
    """One kernel and its gradients on arrays. `shape`: of the forward result; pixels that a kernel does not write are NaN."""

    def __init__(self, forward: Any, sources: Sequence[Data], shape: Sequence[int]):
        self.forward = forward
        self.device: mtl.Device = forward.device
        self.shape = tuple(shape)
        self.type, self.like = wider(*sources), sources[0]
        self.images = [batch_of(self.device, source) for source in sources]
        self.arguments: List[Any] = list(self.images)
        if isinstance(forward, unmetal.CNNMultiaryKernel):
            self.arguments = [self.images]
        self.states: Any = unmetal.StateBatch()

    def unwritten(self, shape: Sequence[int]) -> Data:
        return filled(shape, float("nan"), self.like, self.type)

    def run(self) -> Data:
        """The result."""
        result = self.unwritten(self.shape)
        with running(self.device, result) as (command_buffer, destination):
            self.forward.encode_batch(command_buffer, *self.arguments, destination)
        return result

    def remember(self) -> Data:
        """Runs with states, for the gradients; the result."""
        result = self.unwritten(self.shape)
        self.states = self.forward.result_state_batch(*self.arguments)
        with running(self.device, result) as (command_buffer, destination):
            self.forward.encode_batch(command_buffer, *self.arguments, self.states, destination)
        return result

    def pull(self, gradient: Any, incoming: Data, like: int = 0, source: Data = None) -> Data:
        """dL/d(source number `like`). `source`: what the gradient kernel reads, if not that source."""
        checked(shape_of(incoming) == self.shape, "backward", "grad_output", shape_of(incoming), self.shape)
        size = self.images[like].descriptor
        outgoing = self.unwritten((len(self.images[like]), size.height, size.width, size.feature_channels))
        read = self.images[like] if source is None else batch_of(self.device, source)
        with running(self.device, outgoing) as (command_buffer, destination):
            gradient.encode_batch(command_buffer, batch_of(self.device, incoming), read, gradient_states=self.states,
                                  destination_gradients=destination)
        return outgoing


def numbers(buffer: mtl.Buffer, like: Data, shape: Sequence[int] = (-1,)) -> Data:
    """A copy of a buffer's float32 elements, where the array `like` is."""
    if is_tensor(like) and is_on(buffer.device, like):
        torch: Any = sys.modules["torch"]
        return torch.from_dlpack(unmetal.Vector(buffer, unmetal.VectorDescriptor(buffer.length // 4))).reshape(shape).clone()
    with queue_of(buffer.device).command_buffer() as command_buffer:
        buffer.synchronize(command_buffer)
    return as_like(np.asarray(buffer.contents).view(np.float32).reshape(shape).copy(), like)


def extents_of(kernel: Numbers, dilation: Numbers) -> Numbers:
    """Pixels from the first to the last tap of each axis, both included."""
    return (kernel[0] - 1) * dilation[0] + 1, (kernel[1] - 1) * dilation[1] + 1


def place(kernel: Any, size: Numbers, dilation: Numbers, padding: Sequence[int]) -> None:
    """Lets the first window begin `padding` pixels before the source."""
    y, x = (extent // 2 - pad for extent, pad in zip(extents_of(size, dilation), padding))
    kernel.offset = unmetal.Offset(x, y, 0)
