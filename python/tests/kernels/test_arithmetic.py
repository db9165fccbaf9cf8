"""Arithmetic and comparison of two images, in every encode form, against NumPy in float64."""

import numpy as np
import pytest

import unmetal
from judging import close, decoded, encoded, normal, pulled
from unmetal import Image, ImageBatch, NNComparisonType

classes = {
    "add": (lambda x, y: x + y, unmetal.CNNAdd, unmetal.CNNAddGradient),
    "subtract": (lambda x, y: x - y, unmetal.CNNSubtract, unmetal.CNNSubtractGradient),
    "multiply": (lambda x, y: x * y, unmetal.CNNMultiply, unmetal.CNNMultiplyGradient),
    "divide": (lambda x, y: x / y, unmetal.CNNDivide, unmetal.CNNDivideGradient),
}


def prepared(kind, a, b, is_secondary, device, images):
    """The gradient kernel, with the scales and the image that the table of CNNArithmeticGradient names."""
    kernel = classes[kind][2](device, is_secondary)
    x, y = images
    if kind in ("add", "subtract"):
        kernel.primary_scale = (-b if kind == "subtract" else b) if is_secondary else a
        return kernel, y if is_secondary else x
    kernel.primary_scale, kernel.secondary_scale = (b, a) if kind == "multiply" and is_secondary else (a, b)
    return kernel, x if kind == "multiply" and is_secondary else y


@pytest.mark.parametrize("kind", classes)
@pytest.mark.parametrize("repeated", [(), ("x",), ("y",), ("x", "y", "channels")])
@pytest.mark.parametrize("limited", [False, True])
def test_forward_and_both_gradients(kind, repeated, limited, device, queue, image_of, permanent, random):
    operation, made, _ = classes[kind]
    shape = tuple(int(size) for size in random.integers(2, [6, 6, 9]))
    a, b, bias = 0.5, 2.0, 0.25
    x = normal(random, *shape)
    small = tuple(1 if axis in repeated else size for axis, size in zip(("y", "x", "channels"), shape))
    y = np.sign(normal(random, *small)) * random.integers(1, 5, small) / 2  # no divisor near 0
    forward = made(device)
    forward.primary_scale, forward.secondary_scale, forward.bias = a, b, bias
    forward.secondary_stride_in_pixels_x = 0 if "x" in repeated else 1
    forward.secondary_stride_in_pixels_y = 0 if "y" in repeated else 1
    forward.secondary_stride_in_feature_channels = 0 if "channels" in repeated else 1
    if limited:
        forward.minimum_value, forward.maximum_value = -0.5, 1.0
    forward.destination_image_allocator = permanent

    def reference(p, s):
        unlimited = operation(a * p, b * s) + bias
        inside = (np.real(unlimited) > -0.5) & (np.real(unlimited) < 1) | (not limited)
        return np.where(inside, unlimited, np.clip(np.real(unlimited), -0.5, 1))

    images = image_of(x.astype(np.float32)), image_of(y.astype(np.float32))
    result, state = encoded(queue, forward, *images, destination_state_is_temporary=False)
    assert isinstance(state, unmetal.CNNArithmeticGradientState)
    assert close(result, reference(x, y), 8)
    dz = normal(random, *shape)
    for is_secondary in (False, True):
        gradient, source = prepared(kind, a, b, is_secondary, device, images)
        gradient.destination_image_allocator = permanent
        found = encoded(queue, gradient, image_of(dz.astype(np.float32)), source, state)
        expected = pulled(lambda s: reference(x, s), y, dz) if is_secondary else pulled(lambda p: reference(p, y), x, dz)
        # Sums may cancel: the error is that of their terms. No derivative is above 2 or the largest x.
        largest = (2 + np.abs(x).max()) * np.abs(dz).sum()
        assert np.all(np.abs(np.asarray(found) - expected) <= (dz.size + 16) * 2**-24 * largest)


def test_the_encode_forms_agree(device, queue, permanent, random):
    x, y = (ImageBatch.from_array(device, normal(random, 3, 4, 5, 6).astype(np.float32)) for _ in range(2))
    add = unmetal.CNNSubtract(device)
    add.destination_image_allocator = permanent
    with queue.command_buffer() as command_buffer:
        plain = add.encode(command_buffer, x[0], y[0])
        image, state = add.encode(command_buffer, x[0], y[0], destination_state_is_temporary=False)
        batch = add.encode_batch(command_buffer, x, y)
        images, states = add.encode_batch(command_buffer, x, y, destination_states_are_temporary=False)
        into, with_state = Image(device, plain.descriptor), Image(device, plain.descriptor)
        add.encode(command_buffer, x[0], y[0], into)
        other_state = add.result_state(x[0], y[0])
        add.encode(command_buffer, x[0], y[0], other_state, with_state)
        many, many_with_states = (ImageBatch(device, plain.descriptor, 3) for _ in range(2))
        add.encode_batch(command_buffer, x, y, many)
        other_states = add.result_state_batch(x, y)
        add.encode_batch(command_buffer, x, y, other_states, many_with_states)
        temporary = add.temporary_result_state(command_buffer, x[0], y[0])
        add.encode(command_buffer, x[0], y[0], temporary, Image(device, plain.descriptor))
        assert len(add.temporary_result_state_batch(command_buffer, x, y)) == 3
    expected = np.stack([np.asarray(a) - np.asarray(b) for a, b in zip(x, y)])
    for one in (plain, image, into, with_state):
        assert np.array_equal(np.asarray(one), expected[0])
    for several in (batch, images, many, many_with_states):
        assert np.array_equal(np.stack([np.asarray(one) for one in several]), expected)
    assert len(states) == len(other_states) == 3
    gradient = unmetal.CNNSubtractGradient(device, False)
    gradient.destination_image_allocator = permanent
    for one in (state, other_state, states[0], other_states[0]):
        assert np.array_equal(np.asarray(encoded(queue, gradient, y[0], x[0], one)), np.asarray(y[0]))


def test_the_destination_may_be_the_primary_source(device, queue, image_of):
    x, y = image_of(np.full((1, 2, 3), 4, np.float32)), image_of(np.full((1, 2, 3), 8, np.float32))
    with queue.command_buffer() as command_buffer:
        unmetal.CNNDivide(device).encode(command_buffer, x, y, x)
    assert np.all(np.asarray(x) == 0.5)


def test_a_gradient_without_a_state_sums_repeated_axes(device, queue, image_of, poisoned):
    g, out = image_of(np.ones((3, 4, 2), np.float32)), poisoned(1, 1, 2)
    with queue.command_buffer() as command_buffer:
        unmetal.CNNAddGradient(device, True).encode(command_buffer, g, out, out)
    assert np.asarray(out).ravel().tolist() == [12, 12]


comparisons = {"Equal": lambda x, y: np.abs(x - y) <= 0.5, "NotEqual": lambda x, y: ~(np.abs(x - y) <= 0.5),
               "Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal}


@pytest.mark.parametrize("name", comparisons)
def test_comparisons(name, device, queue, image_of, permanent, random):
    x, y = (random.integers(-2, 3, (4, 5, 3)).astype(np.float32) / 2 for _ in range(2))
    x[0, 0, 0] = y[1, 1, 1] = np.nan
    compare = unmetal.NNCompare(device)
    assert (compare.comparison_type, compare.threshold) == (NNComparisonType.Equal, 0)
    compare.comparison_type, compare.threshold = getattr(NNComparisonType, name), 0.5
    compare.destination_image_allocator = permanent
    result, state = encoded(queue, compare, image_of(x), image_of(y), destination_state_is_temporary=False)
    assert state is None
    assert np.array_equal(np.asarray(result), comparisons[name](x, y))
    again = decoded(compare, device)
    assert (again.comparison_type, again.threshold) == (compare.comparison_type, 0.5)


def test_properties_and_coding(device):
    extreme = float(np.finfo(np.float32).max)
    for _, made, gradient in classes.values():
        for kernel in (made(device), gradient(device, is_secondary_source_filter=True)):
            assert (kernel.primary_scale, kernel.secondary_scale, kernel.bias) == (1, 1, 0)
            assert (kernel.minimum_value, kernel.maximum_value) == (-extreme, extreme)
            assert kernel.secondary_stride_in_feature_channels == 1
            kernel.primary_scale, kernel.secondary_scale, kernel.bias = 2, 3, 4
            kernel.minimum_value, kernel.maximum_value = -5, 6
            kernel.secondary_stride_in_feature_channels = 0
            for one in (kernel.copy(), decoded(kernel, device)):
                assert (one.primary_scale, one.secondary_scale, one.bias) == (2, 3, 4)
                assert (one.minimum_value, one.maximum_value) == (-5, 6)
                assert one.secondary_stride_in_feature_channels == 0
        assert gradient(device, True).is_secondary_source_filter and not gradient(device, False).is_secondary_source_filter
        kernel = made(device)
        kernel.primary_stride_in_feature_channels = 0
        assert decoded(kernel, device).primary_stride_in_feature_channels == 0


def test_wrong_use_raises(device, queue, image_of):
    x, y = image_of(np.zeros((2, 2, 4), np.float32)), image_of(np.zeros((2, 2, 3), np.float32))
    command_buffer = queue.command_buffer()
    with pytest.raises(unmetal.Error, match="hannels"):
        unmetal.CNNAdd(device).encode(command_buffer, x, y)
    kernel = unmetal.CNNAdd(device)
    kernel.primary_stride_in_pixels_x = 2
    with pytest.raises(unmetal.Error, match="tride"):
        kernel.encode(command_buffer, x, x)
    kernel = unmetal.CNNAdd(device)
    kernel.minimum_value = float("inf")
    with pytest.raises(unmetal.Error, match="minimum_value"):
        kernel.encode(command_buffer, x, x)
    with pytest.raises(TypeError):
        unmetal.NNCompare(device).comparison_type = 9
    other = image_of(np.ones((2, 2, 4), np.float32))
    _, state = unmetal.CNNMultiply(device).encode(command_buffer, x, other, destination_state_is_temporary=False)
    with pytest.raises(unmetal.Error):
        unmetal.CNNMultiplyGradient(device, False).encode(command_buffer, x, x, state)
    with pytest.raises(unmetal.Error, match="CNNAddGradient"):
        unmetal.CNNAddGradient(device, False).encode(command_buffer, x, x, state)


def test_limits_that_mean_none_let_infinities_pass(device, queue, image_of, permanent):
    x, y = (np.array(values, np.float32).reshape(1, 4, 1) for values in ([1, -1, 0, np.inf], [0, 0, 0, 1]))
    divide = unmetal.CNNDivide(device)
    divide.destination_image_allocator = permanent
    result = np.asarray(encoded(queue, divide, image_of(x), image_of(y)))
    assert np.array_equal(result.ravel(), [np.inf, -np.inf, np.nan, np.inf], equal_nan=True)
