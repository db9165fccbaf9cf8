"""Softmax over feature channels, against NumPy in float64."""

import numpy as np
import pytest

import unmetal
from judging import close, decoded, encoded, normal, pulled


def soft_max(x):
    powers = np.exp(x - np.max(np.real(x), axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def log_soft_max(x):
    largest = np.max(np.real(x), axis=-1, keepdims=True)
    return x - largest - np.log(np.exp(x - largest).sum(axis=-1, keepdims=True))


classes = {"softmax": (soft_max, unmetal.CNNSoftMax, unmetal.CNNSoftMaxGradient),
           "logarithm": (log_soft_max, unmetal.CNNLogSoftMax, unmetal.CNNLogSoftMaxGradient)}


@pytest.mark.parametrize("kind", classes)
@pytest.mark.parametrize("_", range(3))
def test_forward_and_gradient(kind, _, device, queue, image_of, permanent, random):
    reference, forward, gradient = classes[kind]
    height, width, channels = (int(size) for size in random.integers(1, [4, 5, 20]))
    x, dy = normal(random, height, width, channels), normal(random, height, width, channels)
    forward, gradient = forward(device), gradient(device)
    forward.destination_image_allocator = gradient.destination_image_allocator = permanent
    result, state = encoded(queue, forward, image_of(x.astype(np.float32)), destination_state_is_temporary=False)
    dx = encoded(queue, gradient, image_of(dy.astype(np.float32)), result, state)
    terms = 4 * channels + 16  # exponentials, their sum, and the difference of sums of the gradient
    bound = terms * 2**-23 * (1 + np.abs(x).max(axis=-1, keepdims=True))  # what is subtracted from x is rounded
    assert np.all(np.abs(np.asarray(result) - reference(x)) <= bound)
    expected = pulled(reference, x, dy)
    assert np.all(np.abs(np.asarray(dx) - expected) <= terms * 2**-24 * 2 * np.abs(dy).sum(axis=-1, keepdims=True))


def test_large_values_do_not_overflow(device, queue, image_of, permanent):
    for kernel in (unmetal.CNNSoftMax(device), unmetal.CNNLogSoftMax(device)):
        kernel.destination_image_allocator = permanent
        result = encoded(queue, kernel, image_of(np.array([[[1e30, 1e30]]], np.float32)))
        expected = 0.5 if type(kernel) is unmetal.CNNSoftMax else np.log(0.5)
        assert close(result, np.full((1, 1, 2), expected), 8)


@pytest.mark.parametrize("kind", classes)
def test_the_forward_source_is_refused(kind, device, queue, image_of):
    _, forward, gradient = classes[kind]
    source = image_of(np.ones((1, 2, 3), np.float32))
    command_buffer = queue.command_buffer()
    result, state = forward(device).encode(command_buffer, source, destination_state_is_temporary=False)
    with pytest.raises(unmetal.Error, match="ource"):
        gradient(device).encode(command_buffer, result, source, state)


@pytest.mark.parametrize("made", [one for _, forward, gradient in classes.values() for one in (forward, gradient)])
def test_coding(made, device):
    decoded(made(device), device)
