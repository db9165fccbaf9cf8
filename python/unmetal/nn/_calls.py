"""What the functional layer shares: arrays become batches, kernels run and are waited for, results are arrays."""

import contextlib
import functools
import operator

import numpy as np

import unmetal
from unmetal import mtl
from unmetal.nn._arrays import as_like, checked, filled, floats, is_tensor, packed, permuted, place_of, shape_of, wider


@functools.lru_cache(maxsize=None)
def queue_of(device):
    return device.new_command_queue()


def is_on(device, array):
    """Whether the device's kernels can work on the array's memory."""
    return (device.kind == mtl.DeviceKind.CPU) == (place_of(array) == "cpu")


def channels_last(array, layout, name="input"):
    """[image][y][x][channel], a view."""
    array = floats(array, name)
    checked(layout in ("NHWC", "NCHW"), "functional", "layout", repr(layout), "'NHWC' or 'NCHW'")
    checked(array.ndim == 4, "functional", name, f"of {array.ndim} dimensions", f"4 dimensions, {layout}")
    return permuted(array, 0, 2, 3, 1) if layout == "NCHW" else array


def laid_out(array, layout):
    """What channels_last was, a view."""
    return permuted(array, 0, 3, 1, 2) if layout == "NCHW" else array


def whole(function, argument, value):
    """A whole number; others, text and None raise TypeError."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{function}: {argument} is {value!r}, expected a whole number") from None


def pair(function, argument, value):
    """(y, x) of a whole number or of two."""
    values = (value, value) if np.ndim(value) == 0 else tuple(value)
    checked(len(values) == 2, function, argument, value, "a number or two")
    return tuple(whole(function, argument, number) for number in values)


def window_of(function, kernel_size, stride=None, padding=0, dilation=1):
    """Pairs of the four, which is what all windows have; `stride` None: kernel_size."""
    kernel = pair(function, "kernel_size", kernel_size)
    stride = kernel if stride is None else pair(function, "stride", stride)
    padding, dilation = pair(function, "padding", padding), pair(function, "dilation", dilation)
    for argument, values, least in (("kernel_size", kernel, 1), ("stride", stride, 1), ("padding", padding, 0),
                                    ("dilation", dilation, 1)):
        checked(min(values) >= least, function, argument, values, f"at least {least}")
    return kernel, stride, padding, dilation


def batch_of(device, array):
    """Images over the array's memory where its layout allows, else over that of a copy, which is where the array is."""
    if place_of(array) == "cpu":
        return unmetal.ImageBatch.from_array(device, array)
    try:
        return unmetal.ImageBatch.from_array(device, array, copy=False)
    except unmetal.ArgumentError:
        return unmetal.ImageBatch.from_array(device, packed(array), copy=False)


@contextlib.contextmanager
def running(device, *results):
    """A command buffer that runs at the end, and for each of the arrays the images whose elements it then has."""
    batches = [batch_of(device, result) for result in results]
    copied = [(batch, result) for batch, result in zip(batches, results) if not is_on(device, result)]
    with queue_of(device).command_buffer() as command_buffer:
        yield command_buffer, *batches
        for batch, _ in copied:
            batch.synchronize(command_buffer)
    for batch, result in copied:
        batch.read_bytes(result)


class Call:
    """One kernel and its gradients on arrays. `shape`: of the forward result; pixels that a kernel does not write are NaN."""

    def __init__(self, forward, sources, shape):
        self.forward, self.device, self.shape = forward, forward.device, tuple(shape)
        self.type, self.like = wider(*sources), sources[0]
        self.images = [batch_of(self.device, source) for source in sources]
        self.arguments = self.images
        if isinstance(forward, unmetal.CNNMultiaryKernel):
            self.arguments = [self.images]
        self.states = unmetal.StateBatch()

    def unwritten(self, shape):
        return filled(shape, float("nan"), self.like, self.type)

    def run(self):
        """The result."""
        result = self.unwritten(self.shape)
        with running(self.device, result) as (command_buffer, destination):
            self.forward.encode_batch(command_buffer, *self.arguments, destination)
        return result

    def remember(self):
        """Runs with states, for the gradients; the result."""
        result = self.unwritten(self.shape)
        self.states = self.forward.result_state_batch(*self.arguments)
        with running(self.device, result) as (command_buffer, destination):
            self.forward.encode_batch(command_buffer, *self.arguments, self.states, destination)
        return result

    def pull(self, gradient, incoming, like=0, source=None):
        """dL/d(source number `like`). `source`: what the gradient kernel reads, if not that source."""
        checked(shape_of(incoming) == self.shape, "backward", "grad_output", shape_of(incoming), self.shape)
        size = self.images[like].descriptor
        outgoing = self.unwritten((len(self.images[like]), size.height, size.width, size.feature_channels))
        source = self.images[like] if source is None else batch_of(self.device, source)
        with running(self.device, outgoing) as (command_buffer, destination):
            gradient.encode_batch(command_buffer, batch_of(self.device, incoming), source, gradient_states=self.states,
                                  destination_gradients=destination)
        return outgoing


def numbers(buffer, like, shape=(-1,)):
    """A copy of a buffer's float32 elements, where the array `like` is."""
    if is_tensor(like) and is_on(buffer.device, like):
        import torch

        return torch.from_dlpack(unmetal.Vector(buffer, unmetal.VectorDescriptor(buffer.length // 4))).reshape(shape).clone()
    with queue_of(buffer.device).command_buffer() as command_buffer:
        buffer.synchronize(command_buffer)
    return as_like(buffer.contents.view(np.float32).reshape(shape).copy(), like)


def extents_of(kernel, dilation):
    """Pixels from the first to the last tap of each axis, both included."""
    return [(size - 1) * step + 1 for size, step in zip(kernel, dilation)]


def place(kernel, size, dilation, padding):
    """Lets the first window begin `padding` pixels before the source."""
    y, x = (extent // 2 - pad for extent, pad in zip(extents_of(size, dilation), padding))
    kernel.offset = unmetal.Offset(x, y, 0)
