"""What the functional layer shares: arrays become batches, kernels run and are waited for, results are arrays."""

import contextlib
import functools

import numpy as np

import unmetal
from unmetal import mtl


@functools.lru_cache(maxsize=None)
def queue_of(device):
    return (device or default_device()).new_command_queue()


@functools.lru_cache(maxsize=None)
def default_device():
    return mtl.create_system_default_device()


def wrong(function, argument, given, expected):
    return unmetal.ArgumentError(f"{function}: {argument} is {given}, expected {expected}")


def checked(condition, *sentence):
    if not condition:
        raise wrong(*sentence)


def floats(array, name):
    """An array of float32 or float16."""
    array = np.asarray(array)
    if array.dtype not in (np.float32, np.float16):
        raise TypeError(f"{name} is an array of {array.dtype}, expected float32 or float16")
    return array


def channels_last(array, layout, name="input"):
    """[image][y][x][channel], a view."""
    array = floats(array, name)
    checked(layout in ("NHWC", "NCHW"), "functional", "layout", repr(layout), "'NHWC' or 'NCHW'")
    checked(array.ndim == 4, "functional", name, f"of {array.ndim} dimensions", f"4 dimensions, {layout}")
    return array.transpose(0, 2, 3, 1) if layout == "NCHW" else array


def laid_out(array, layout):
    """What channels_last was, a view."""
    return array.transpose(0, 3, 1, 2) if layout == "NCHW" else array


def pair(value):
    """(y, x) of a number or of two."""
    first, second = (value, value) if np.ndim(value) == 0 else value
    return int(first), int(second)


@contextlib.contextmanager
def running(device, *results):
    """A command buffer that runs at the end, and for each of the arrays the images whose elements it then has."""
    batches = [unmetal.ImageBatch.from_array(device, result) for result in results]
    with queue_of(device).command_buffer() as command_buffer:
        yield command_buffer, *batches
        for batch in batches:
            batch.synchronize(command_buffer)
    if device.kind != mtl.DeviceKind.CPU:  # whose images are the arrays
        for batch, result in zip(batches, results):
            batch.read_bytes(result)


class Call:
    """One kernel and its gradients on arrays. `shape`: of the forward result; pixels that a kernel does not write are NaN."""

    def __init__(self, forward, sources, shape):
        self.forward, self.device, self.shape = forward, forward.device, shape
        self.type = np.result_type(*sources)
        self.images = [self.batch(source) for source in sources]
        self.arguments = self.images
        if isinstance(forward, unmetal.CNNMultiaryKernel):
            self.arguments = [self.images]
        self.states = unmetal.StateBatch()

    def batch(self, array):
        return unmetal.ImageBatch.from_array(self.device, array)

    def run(self):
        """The result."""
        result = np.full(self.shape, np.nan, self.type)
        with running(self.device, result) as (command_buffer, destination):
            self.forward.encode_batch(command_buffer, *self.arguments, destination)
        return result

    def remember(self):
        """Runs with states, for the gradients; the result."""
        result = np.full(self.shape, np.nan, self.type)
        self.states = self.forward.result_state_batch(*self.arguments)
        with running(self.device, result) as (command_buffer, destination):
            self.forward.encode_batch(command_buffer, *self.arguments, self.states, destination)
        return result

    def pull(self, gradient, incoming, like=0, source=None):
        """dL/d(source number `like`). `source`: what the gradient kernel reads, if not that source."""
        checked(incoming.shape == tuple(self.shape), "backward", "grad_output", incoming.shape, self.shape)
        size = self.images[like].descriptor
        outgoing = np.full((len(self.images[like]), size.height, size.width, size.feature_channels), np.nan, self.type)
        source = self.images[like] if source is None else self.batch(source)
        with running(self.device, outgoing) as (command_buffer, destination):
            gradient.encode_batch(command_buffer, self.batch(incoming), source, gradient_states=self.states,
                                  destination_gradients=destination)
        return outgoing


def numbers(buffer, shape=-1):
    """A copy of a buffer's float32 elements."""
    with queue_of(buffer.device).command_buffer() as command_buffer:
        buffer.synchronize(command_buffer)
    return buffer.contents.view(np.float32).reshape(shape).copy()


def extents_of(kernel, dilation):
    """Pixels from the first to the last tap of each axis, both included."""
    return [(size - 1) * step + 1 for size, step in zip(kernel, dilation)]


def place(kernel, size, dilation, padding):
    """Lets the first window begin `padding` pixels before the source."""
    y, x = (extent // 2 - pad for extent, pad in zip(extents_of(size, dilation), padding))
    kernel.offset = unmetal.Offset(x, y, 0)
