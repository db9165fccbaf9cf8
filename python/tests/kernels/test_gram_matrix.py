"""Gram matrices, against NumPy in float64."""

import numpy as np
import pytest

import unmetal
from judging import close, decoded, encoded, normal, pulled


def test_forward_and_gradient(device, queue, image_of, permanent, random):
    height, width, channels = (int(size) for size in random.integers(1, [5, 5, 7]))
    x, dy = normal(random, height, width, channels), normal(random, 1, channels, channels)
    forward, gradient = unmetal.NNGramMatrixCalculation(device, alpha=0.75), unmetal.NNGramMatrixCalculationGradient(device)
    forward.destination_image_allocator = gradient.destination_image_allocator = permanent
    source = image_of(x.astype(np.float32))
    result, state = encoded(queue, forward, source, destination_state_is_temporary=False)
    dx = encoded(queue, gradient, image_of(dy.astype(np.float32)), source, state)

    def reference(values):
        return 0.75 * np.einsum("yxf,yxc->fc", values, values)[None]

    terms = 2 * height * width + 4 * channels + 8
    assert np.all(np.abs(np.asarray(result) - reference(x)) <= terms * 2**-23 * reference(np.abs(x)))
    assert close(dx, pulled(reference, x, dy), terms * channels)
    assert gradient.alpha == 0.75


def test_properties_and_coding(device):
    for made in (unmetal.NNGramMatrixCalculation, unmetal.NNGramMatrixCalculationGradient):
        assert made(device).alpha == 1
        kernel = made(device, 2)
        kernel.alpha = 0.5
        assert kernel.copy().alpha == decoded(kernel, device).alpha == 0.5


def test_part_of_an_image_is_refused(device, queue, image_of):
    kernel = unmetal.NNGramMatrixCalculation(device)
    kernel.offset = unmetal.Offset(1, 0, 0)
    with pytest.raises(unmetal.Error, match="offset"):
        kernel.encode(queue.command_buffer(), image_of(np.zeros((2, 2, 1), np.float32)))


def test_a_callback_is_a_subclass(device, queue, image_of):
    class OfPixels(unmetal.NNGramMatrixCallback):
        def alpha_for_source_image(self, source, destination):
            return 1 / (source.width * source.height)

    source = image_of(np.ones((2, 4, 1), np.float32))
    for callback in (OfPixels(), unmetal.NNGramMatrixCallback()):
        with pytest.raises(NotImplementedError, match="alpha_for_source_image"):
            unmetal.NNGramMatrixCallback.alpha_for_source_image(callback, source, source)
    node = unmetal.NNGramMatrixCalculationNode(unmetal.NNImageNode())
    node.property_call_back = OfPixels()
    graph = unmetal.NNGraph(device, node.result_image, True)
    with queue.command_buffer() as command_buffer:
        result = graph.encode(command_buffer, [source])
    assert np.asarray(result).item() == 1
