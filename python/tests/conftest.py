"""What the tests share: a device, a queue, images from arrays, and a generator whose seed is printed."""

import functools

import numpy as np
import pytest

import unmetal
import unmetal.nn.functional
from unmetal import mtl


@pytest.fixture(scope="session")
def device():
    return mtl.create_system_default_device()


@pytest.fixture
def queue(device):
    return device.new_command_queue()


@pytest.fixture
def random():
    """A generator whose seed is printed with a failing test."""
    seed = np.random.SeedSequence().entropy % 2**32
    print(f"seed {seed}")
    return np.random.default_rng(seed)


@pytest.fixture
def image_of(device):
    """image_of(array): a permanent image with a copy of an array [y][x][channel]."""
    return lambda array: unmetal.Image.from_array(device, array, copy=True)


@pytest.fixture
def poisoned(device):
    """poisoned(height, width, channels): a float32 image full of NaN: what a kernel does not write shows."""

    def make(height, width, channels):
        return unmetal.Image.from_array(device, np.full((height, width, channels), np.nan, np.float32))

    return make


class Functions:
    """unmetal.nn.functional on one device."""

    def __init__(self, device):
        self.device = device

    def __getattr__(self, name):
        return functools.partial(getattr(unmetal.nn.functional, name), device=self.device)


@pytest.fixture(params=mtl.copy_all_devices(), ids=lambda device: device.name)
def on_each_device(request, monkeypatch):
    """`F`, the module's name of unmetal.nn.functional, stands for it on each device of this machine."""
    monkeypatch.setattr(request.module, "F", Functions(request.param))


class Permanent(unmetal.ImageAllocator):
    """Makes destinations that can be read; keeps the descriptors that it was asked for."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def image(self, command_buffer, descriptor, kernel):
        self.asked.append((descriptor, kernel))
        return unmetal.Image(command_buffer.device, descriptor)


@pytest.fixture
def permanent():
    return Permanent()
