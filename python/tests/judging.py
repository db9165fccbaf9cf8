"""What the tests of the kernels share: derivatives of a float64 reference, float32's error, and calls in one line."""

import numpy as np

import unmetal


def close(found, expected, terms):
    """Results of so many operations in float32, on numbers as large as the largest result."""
    unit = np.finfo(np.float32).eps / 2
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    return np.all(np.abs(found - expected) <= terms * unit / (1 - terms * unit) * (np.abs(expected) + np.abs(expected).max()))


def pulled(function, source, incoming):
    """dL/d(source) of a function of complex numbers, from dL/d(result): a complex step for each element."""
    step = 1e-30
    gradient = np.zeros(source.shape)
    for index in np.ndindex(source.shape):
        moved = source.astype(complex)
        moved[index] += 1j * step
        gradient[index] = np.sum(np.imag(function(moved)) / step * incoming)
    return gradient


def normal(random, *shape):
    """Random numbers that float32 has."""
    return random.standard_normal(shape).astype(np.float32).astype(np.float64)


def encoded(queue, kernel, *sources, **arguments):
    """What an encode that returns its destination gives, after the work is done."""
    with queue.command_buffer() as command_buffer:
        return kernel.encode(command_buffer, *sources, **arguments)


def decoded(kernel, device):
    """The kernel that is read from what this one writes, its allocator aside."""
    kernel = kernel.copy()
    kernel.label, kernel.destination_image_allocator = "coded", unmetal.TemporaryImage.default_allocator()
    archiver = unmetal.KeyedArchiver()
    kernel.encode(archiver)
    copy = type(kernel).decode(unmetal.KeyedUnarchiver(archiver.encoded_data(), device))
    assert type(copy) is type(kernel) and copy.label == "coded" and copy.device == device
    return copy
