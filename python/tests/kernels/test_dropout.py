"""Dropout: results and gradients are those of the mask that the state shows."""

import numpy as np
import pytest

import unmetal
from judging import close, decoded, encoded, normal
from unmetal.mtl import Size


def mask_of(state, *shape):
    mask = np.frombuffer(state.mask_data, np.uint8)
    assert set(mask) <= {0, 1}
    return mask.reshape(shape)


@pytest.mark.parametrize("stride", [(1, 1, 1), (0, 0, 1), (1, 1, 0), (0, 1, 1)])
def test_forward_and_gradient(stride, device, queue, image_of, permanent, random):
    height, width, channels = 7, 6, 5
    keep = 0.75
    x, dy = normal(random, height, width, channels), normal(random, height, width, channels)
    forward = unmetal.CNNDropout(device, keep, seed=int(random.integers(2**62)), mask_stride_in_pixels=Size(*stride))
    gradient = unmetal.CNNDropoutGradient(device, keep, forward.seed, Size(*stride))
    forward.destination_image_allocator = gradient.destination_image_allocator = permanent
    source = image_of(x.astype(np.float32))
    result, state = encoded(queue, forward, source, destination_state_is_temporary=False)
    dx = encoded(queue, gradient, image_of(dy.astype(np.float32)), source, state)
    assert isinstance(state, unmetal.CNNDropoutGradientState)
    mask = mask_of(state, height if stride[1] else 1, width if stride[0] else 1, channels if stride[2] else 1)
    assert close(result, x * mask / keep, 3)
    assert close(dx, dy * mask / keep, 3)


def test_masks_are_drawn_anew_and_again(device, queue, image_of, permanent):
    source = image_of(np.ones((40, 40, 16), np.float32))

    def three(kernel):
        kernel.destination_image_allocator = permanent
        return [np.asarray(encoded(queue, kernel, source)) for _ in range(3)]

    kernel = unmetal.CNNDropout(device, 0.5, 7)
    first = three(kernel)
    assert kernel.encode_count == 3
    assert not np.array_equal(first[0], first[1]) and not np.array_equal(first[1], first[2])
    assert all(np.array_equal(*pair) for pair in zip(first, three(unmetal.CNNDropout(device, 0.5, 7))))
    later = unmetal.CNNDropout(device, 0.5, 7)
    later.encode_count = 2
    assert np.array_equal(three(later)[0], first[2])
    assert not np.array_equal(three(unmetal.CNNDropout(device, 0.5, 8))[0], first[0])
    kept = np.count_nonzero(first[0])
    assert abs(kept - first[0].size / 2) < 6 * np.sqrt(first[0].size / 4)  # six standard deviations


def test_properties_and_coding(device):
    for made in (unmetal.CNNDropout, unmetal.CNNDropoutGradient):
        kernel = made(device, 0.25, 2**63 + 1, Size(0, 1, 1))
        for one in (kernel, kernel.copy(), decoded(kernel, device)):
            assert (one.keep_probability, one.seed, one.mask_stride_in_pixels) == (0.25, 2**63 + 1, Size(0, 1, 1))
        assert made(device, 1, 0).mask_stride_in_pixels == Size(1, 1, 1)
    kernel = unmetal.CNNDropout(device, 0.5, 3)
    kernel.encode_count = 9
    assert decoded(kernel, device).encode_count == 9


def test_wrong_parameters_raise(device):
    for made in (unmetal.CNNDropout, unmetal.CNNDropoutGradient):
        for keep in (0, -0.5, 1.5, float("nan")):
            with pytest.raises(unmetal.ArgumentError, match="keep_probability"):
                made(device, keep, 0)
        with pytest.raises(unmetal.ArgumentError, match="mask_stride"):
            made(device, 0.5, 0, Size(2, 1, 1))
        with pytest.raises(TypeError):
            made(device, 0.5, -1)
    with pytest.raises(unmetal.Error):
        unmetal.CNNDropoutGradientState(device).mask_data
