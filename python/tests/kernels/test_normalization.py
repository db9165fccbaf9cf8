"""Normalisation by neighbours, against loops in float64."""

import numpy as np
import pytest

import unmetal
from judging import close, decoded, encoded, normal, pulled


def windows(x, width, height):
    """The pixels of each window, edge mode Zero: a new first axis."""
    padded = np.pad(x, [(height // 2, (height - 1) // 2), (width // 2, (width - 1) // 2), (0, 0)])
    return np.stack([padded[i:i + x.shape[0], j:j + x.shape[1]] for i in range(height) for j in range(width)])


def spatial(x, window, alpha, beta, delta):
    return x * (delta + alpha * (windows(x, *window) ** 2).mean(axis=0)) ** -beta


def contrast(x, window, alpha, beta, delta, p0=1, pm=0, ps=1):
    taps = windows(x, *window)
    mean = taps.mean(axis=0)
    variance = ((taps - mean) ** 2).mean(axis=0)
    return pm + ps * (x - p0 * mean) * (delta + alpha * variance) ** -beta


def channels(x, window, alpha, beta, delta):
    size = window[0]
    padded = np.pad(x, [(0, 0), (0, 0), (size // 2, (size - 1) // 2)])
    squares = sum(padded[..., q:q + x.shape[-1]] ** 2 for q in range(size)) / size
    return x * (delta + alpha * squares) ** -beta


classes = {"spatial": (spatial, unmetal.CNNSpatialNormalization, unmetal.CNNSpatialNormalizationGradient),
           "contrast": (contrast, unmetal.CNNLocalContrastNormalization, unmetal.CNNLocalContrastNormalizationGradient),
           "channels": (channels, unmetal.CNNCrossChannelNormalization, unmetal.CNNCrossChannelNormalizationGradient)}


def kernels(kind, device, window):
    arguments = window[:1] if kind == "channels" else window
    return [made(device, *arguments) for made in classes[kind][1:]]


@pytest.mark.parametrize("kind", classes)
@pytest.mark.parametrize("_", range(4))
def test_forward_and_gradient(kind, _, device, queue, image_of, permanent, random):
    window = tuple(int(size) for size in random.integers(1, 5, 2))
    shape = tuple(int(size) for size in random.integers(2, [5, 6, 7]))
    x, dy = normal(random, *shape), normal(random, *shape)
    values = {"alpha": 0.5, "beta": float(random.choice([0.5, 0.75, 2])), "delta": 1.5}
    if kind == "contrast":
        values.update(p0=0.75, pm=0.25, ps=2)
    forward, gradient = kernels(kind, device, window)
    for name, value in values.items():
        setattr(forward, name, value)
    forward.destination_image_allocator = gradient.destination_image_allocator = permanent
    source = image_of(x.astype(np.float32))
    result, state = encoded(queue, forward, source, destination_state_is_temporary=False)
    dx = encoded(queue, gradient, image_of(dy.astype(np.float32)), source, state)

    def reference(found):
        return classes[kind][0](found, window, **values)

    terms = 8 * window[0] * window[1] + 32  # sums, the power, and what is subtracted
    assert close(result, reference(x), terms)
    assert close(dx, pulled(reference, x, dy), 4 * terms)
    for name in ("alpha", "beta", "delta"):
        assert getattr(gradient, name) == values[name]


def test_properties_and_coding(device):
    defaults = {"spatial": (1, 5, 1), "contrast": (0, 0.5, 1 / 1024), "channels": (1, 5, 1)}
    for kind in classes:
        for kernel in kernels(kind, device, (3, 2)):
            assert (kernel.alpha, kernel.beta, kernel.delta) == defaults[kind]
            kernel.alpha, kernel.beta, kernel.delta = 2, 3, 4
            names = ["alpha", "beta", "delta"]
            if kind == "contrast":
                assert (kernel.p0, kernel.pm, kernel.ps) == (1, 0, 1)
                kernel.p0, kernel.pm, kernel.ps = 5, 6, 7
                names += ["p0", "pm", "ps"]
            for one in (kernel.copy(), decoded(kernel, device)):
                assert [getattr(one, name) for name in names] == [2, 3, 4, 5, 6, 7][:len(names)]
                if kind == "channels":
                    assert one.kernel_size == 3
            for name in names:
                with pytest.raises(unmetal.ArgumentError, match=name):
                    setattr(kernel, name, float("nan"))
            if isinstance(kernel, unmetal.CNNNormalization) and kind != "channels":
                assert (kernel.kernel_width, kernel.kernel_height) == (3, 2)
    for made in classes["channels"][1:]:
        assert made(device).kernel_size == 5


def test_wrong_parameters_raise(device):
    for kind in classes:
        with pytest.raises(unmetal.ArgumentError, match=" is 0"):
            kernels(kind, device, (0, 1))
        for kernel in kernels(kind, device, (1, 1))[:1]:
            with pytest.raises(unmetal.ArgumentError, match="alpha"):
                kernel.alpha = -1
