"""Upsampling, against matrices of weights in float64."""

import numpy as np
import pytest

import unmetal
from judging import close, decoded, encoded, normal
from unmetal import Offset


def nearest(size, factor):
    weights = np.zeros((size * factor, size))
    weights[np.arange(size * factor), np.arange(size * factor) // factor] = 1
    return weights


def bilinear(size, factor, align, half):
    """Weights of each result pixel, one axis."""
    count = size * factor
    x = np.arange(count)
    if align:
        t = x * (size - 1) / max(count - 1, 1)
    elif half:
        t = np.clip((x + 0.5) / factor - 0.5, 0, size - 1)
    else:
        t = np.minimum(x / factor, size - 1)
    return interpolated(t, size)


def interpolated(t, size):
    below = np.minimum(np.floor(t).astype(int), size - 1)
    weights = np.zeros((len(t), size))
    weights[np.arange(len(t)), below] += 1 - (t - below)
    weights[np.arange(len(t)), np.minimum(below + 1, size - 1)] += t - below
    return weights


modes = {"nearest": None, "plain": (False, False), "aligned": (True, False), "half": (False, True)}


@pytest.mark.parametrize("mode", modes)
@pytest.mark.parametrize("_", range(3))
def test_forward_and_gradient(mode, _, device, queue, image_of, permanent, random):
    height, width, channels = (int(size) for size in random.integers(1, [6, 6, 9]))
    factor_x, factor_y = (int(factor) for factor in random.integers(1, 5, 2))
    if mode == "nearest":
        forward = unmetal.CNNUpsamplingNearest(device, factor_x, factor_y)
        gradient = unmetal.CNNUpsamplingNearestGradient(device, factor_x, factor_y)
        rows, columns = nearest(height, factor_y), nearest(width, factor_x)
    else:
        align, half = modes[mode]
        forward = unmetal.CNNUpsamplingBilinear(device, factor_x, factor_y, align_corners=align)
        forward.half_pixel_centers = half
        gradient = unmetal.CNNUpsamplingBilinearGradient(device, factor_x, factor_y)
        rows, columns = bilinear(height, factor_y, align, half), bilinear(width, factor_x, align, half)
    x, dy = normal(random, height, width, channels), normal(random, height * factor_y, width * factor_x, channels)
    forward.destination_image_allocator = gradient.destination_image_allocator = permanent
    source = image_of(x.astype(np.float32))
    result, state = encoded(queue, forward, source, destination_state_is_temporary=False)
    dx = encoded(queue, gradient, image_of(dy.astype(np.float32)), source, state)
    terms = 8 * max(height, width) + 16  # positions and weights, too, are float32
    assert close(result, np.einsum("yi,xj,ijc->yxc", rows, columns, x), terms)
    assert close(dx, np.einsum("yi,xj,yxc->ijc", rows, columns, dy), terms * factor_x * factor_y)


def test_offset_and_edges(device, queue, image_of, poisoned):
    kernel = unmetal.CNNUpsamplingNearest(device, 2, 1)
    kernel.offset = Offset(-1, 0, 0)
    results = []
    for kernel.edge_mode in (unmetal.ImageEdgeMode.Zero, unmetal.ImageEdgeMode.Clamp):
        out = poisoned(1, 4, 1)
        with queue.command_buffer() as command_buffer:
            kernel.encode(command_buffer, image_of(np.array([[[3], [5]]], np.float32)), out)
        results.append(np.asarray(out).ravel().tolist())
    assert results == [[0, 0, 3, 3], [3, 3, 3, 3]]


def test_properties_and_coding(device):
    for made in (unmetal.CNNUpsamplingNearest, unmetal.CNNUpsamplingBilinear, unmetal.CNNUpsamplingNearestGradient,
                 unmetal.CNNUpsamplingBilinearGradient):
        kernel = made(device, 2, 3)
        for one in (kernel, kernel.copy(), decoded(kernel, device)):
            assert (one.scale_factor_x, one.scale_factor_y) == (2, 3)
        with pytest.raises(unmetal.ArgumentError, match="integer_scale_factor_x is 0"):
            made(device, 0, 1)
    assert not unmetal.CNNUpsamplingNearest(device, 1, 1).align_corners
    kernel = unmetal.CNNUpsamplingBilinear(device, 2, 3, True)
    assert kernel.align_corners and decoded(kernel, device).align_corners and not kernel.half_pixel_centers
    with pytest.raises(unmetal.ArgumentError, match="half_pixel_centers"):
        kernel.half_pixel_centers = True
    kernel = unmetal.CNNUpsamplingBilinear(device, 2, 3)
    kernel.half_pixel_centers = True
    assert decoded(kernel, device).half_pixel_centers
