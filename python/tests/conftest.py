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


class OfTensors:
    """unmetal.nn.functional of tensors of PyTorch at one place: arrays are copied to them, and back."""

    def __init__(self, place):
        self.place = place

    def __getattr__(self, name):
        function = getattr(unmetal.nn.functional, name)

        def called(*arguments, **named):
            import torch

            changed = []

            def taken(value):
                if isinstance(value, (list, tuple)):
                    return type(value)(map(taken, value))
                if not isinstance(value, np.ndarray):
                    return value
                tensor = torch.from_numpy(value.copy()).to(self.place)
                changed.append((value, tensor))
                return tensor

            def given_back(tensor):
                assert isinstance(tensor, torch.Tensor) and str(tensor.device) == self.place
                return tensor.cpu().numpy()

            result = function(*map(taken, arguments), **{key: taken(value) for key, value in named.items()})
            for array, tensor in changed:
                array[...] = given_back(tensor)
            return tuple(map(given_back, result)) if isinstance(result, tuple) else given_back(result)

        return called


def functions_in_each_way():
    """Of arrays on each device of this machine, and of tensors at each place that PyTorch has."""
    import torch

    devices = mtl.copy_all_devices()
    places = [device.name for device in devices if device.kind == mtl.DeviceKind.CPU or torch.cuda.is_available()]
    return {**{f"arrays-{device.name}": Functions(device) for device in devices},
            **{f"tensors-{place}": OfTensors(place) for place in places}}


@pytest.fixture
def in_each_way(request, monkeypatch):
    """`F`, the module's name of unmetal.nn.functional, stands for it in the way that the test is run with."""
    monkeypatch.setattr(request.module, "F", request.param)


def pytest_generate_tests(metafunc):
    if "in_each_way" in metafunc.fixturenames:
        ways = functions_in_each_way()
        metafunc.parametrize("in_each_way", ways.values(), ids=ways.keys(), indirect=True)


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
