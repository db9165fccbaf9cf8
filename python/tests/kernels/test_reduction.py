"""Reductions, against NumPy in float64."""

import numpy as np
import pytest

import unmetal
from judging import close, decoded, encoded, normal
from unmetal import ReductionAxis, ReductionOperation
from unmetal.mtl import Origin, Region, Size

axes = {"Row": 1, "Column": 0, "FeatureChannels": 2, "Spatial": (0, 1)}
functions = {"Min": np.min, "Max": np.max, "Sum": np.sum, "Mean": np.mean,
             "ArgumentMin": np.argmin, "ArgumentMax": np.argmax}
names = [(axis, operation) for axis in ("Row", "Column", "FeatureChannels") for operation in ("Min", "Max", "Sum", "Mean")]
names += [("FeatureChannels", "ArgumentMin"), ("FeatureChannels", "ArgumentMax"), ("Spatial", "Mean")]


def made(device, axis, operation):
    return getattr(unmetal, f"NNReduce{axis}{operation}")(device)


def reduced(x, axis, operation):
    return functions[operation](x, axis=axes[axis], keepdims=True)


def gradient_of(x, axis, operation, g, weight):
    """dL/dx of sum(g * reduction)."""
    if operation in ("Sum", "Mean"):
        count = reduced(np.ones_like(x), axis, "Sum")
        return np.broadcast_to(g, x.shape) * (weight if operation == "Sum" else 1 / count)
    index = functions["Argument" + operation](x, axis=axes[axis], keepdims=True)
    out = np.zeros_like(x)
    np.put_along_axis(out, index, g, axis=axes[axis])
    return out


@pytest.mark.parametrize("axis, operation", names)
@pytest.mark.parametrize("part", [False, True])
def test_forward_and_gradient(axis, operation, part, device, queue, image_of, permanent, random):
    shape = tuple(int(size) for size in random.integers(3, [7, 7, 12]))
    x = np.round(normal(random, *shape) * 4) / 4  # some are equal
    forward = made(device, axis, operation)
    forward.destination_image_allocator = permanent
    inside = np.s_[1:3, 1:, :] if part else np.s_[:, :, :]
    if part:
        forward.clip_rect_source = Region(Origin(1, 1, 0), Size(shape[1] - 1, 2, 1))
    weight = 1
    if isinstance(forward, unmetal.NNReduceFeatureChannelsSum):
        forward.weight = weight = 0.5
    source = image_of(x.astype(np.float32))
    result, state = encoded(queue, forward, source, destination_state_is_temporary=False)
    expected = reduced(x[inside], axis, operation) * weight
    terms = 2 * max(np.prod(shape[:2]), shape[2]) + 8
    assert np.all(np.abs(np.asarray(result) - expected) <= terms * 2**-24 * np.abs(x).max() * terms)
    if operation not in ("Sum", "Mean"):
        assert np.array_equal(np.asarray(result), expected)
    enumerated = getattr(ReductionOperation, operation), getattr(ReductionAxis, axis)
    assert (forward.operation, forward.axis) == enumerated
    if operation.startswith("Argument"):
        with pytest.raises(unmetal.Error):
            unmetal.NNReduceUnaryGradient(device, *enumerated)
        return
    gradient = unmetal.NNReduceUnaryGradient(device, *enumerated)
    gradient.destination_image_allocator = permanent
    dy = normal(random, *expected.shape)
    dx = encoded(queue, gradient, image_of(dy.astype(np.float32)), source, state)
    wanted = np.zeros(shape)
    wanted[inside] = gradient_of(x[inside], axis, operation, dy, weight)
    assert close(dx, wanted, 4)


def test_nan_goes_through_and_the_lowest_of_equals_wins(device, queue, image_of, permanent):
    for operation in ("Min", "Max"):
        kernel = made(device, "Row", operation)
        kernel.destination_image_allocator = permanent
        assert np.isnan(np.asarray(encoded(queue, kernel, image_of(np.array([[[1], [np.nan]]], np.float32))))).all()
        kernel = made(device, "FeatureChannels", "Argument" + operation)
        kernel.destination_image_allocator = permanent
        assert np.asarray(encoded(queue, kernel, image_of(np.full((1, 1, 5), 2, np.float32)))) == 0


@pytest.mark.parametrize("divisor", ["channels", "one", "weights"])
def test_weighted(divisor, device, queue, image_of, permanent, random):
    x = normal(random, 4, 5, 7)
    weights = normal(random, 4, 5, 7) * random.integers(0, 2, (4, 5, 7))
    weights[0, 0] = 0
    sums, counts = (x * weights).sum(axis=-1, keepdims=True), np.count_nonzero(weights, axis=-1, keepdims=True)
    if divisor == "channels":
        kernel, expected = unmetal.NNReduceFeatureChannelsAndWeightsMean(device), sums / 7
    else:
        kernel = unmetal.NNReduceFeatureChannelsAndWeightsSum(device, divisor == "weights")
        expected = sums / np.maximum(counts, 1) if divisor == "weights" else sums
        for one in (kernel, kernel.copy(), decoded(kernel, device)):
            assert one.do_weighted_sum_by_non_zero_weights == (divisor == "weights")
    kernel.destination_image_allocator = permanent
    images = image_of(x.astype(np.float32)), image_of(weights.astype(np.float32))
    assert close(encoded(queue, kernel, *images), expected, 64)
    part = Region(Origin(1, 2, 0), Size(3, 2, 1))
    kernel.primary_source_clip_rect = kernel.secondary_source_clip_rect = part
    assert close(encoded(queue, kernel, *images), expected[2:4, 1:4], 64)
    again = decoded(kernel, device)
    assert again.primary_source_clip_rect == again.secondary_source_clip_rect == part


@pytest.mark.parametrize("axis, operation", names)
def test_coding(axis, operation, device):
    kernel = made(device, axis, operation)
    assert kernel.class_name == f"NNReduce{axis}{operation}" and kernel.clip_rect_source == unmetal.RectNoClip
    kernel.clip_rect_source = Region(Origin(1, 2, 0), Size(3, 4, 1))
    assert decoded(kernel, device).clip_rect_source == kernel.copy().clip_rect_source == kernel.clip_rect_source
    if not operation.startswith("Argument"):
        decoded(unmetal.NNReduceUnaryGradient(device, kernel.operation, kernel.axis), device)


def test_wrong_use_raises(device, queue, image_of):
    image = image_of(np.zeros((2, 2, 3), np.float32))
    kernel = made(device, "Row", "Sum")
    kernel.clip_rect_source = Region(Origin(2, 0, 0), Size(1, 1, 1))
    with pytest.raises(unmetal.Error, match="clip_rect_source"):
        kernel.encode(queue.command_buffer(), image)
    with pytest.raises(unmetal.Error):
        unmetal.NNReduceFeatureChannelsAndWeightsMean(device).encode(
            queue.command_buffer(), image, image_of(np.zeros((2, 2, 4), np.float32)))
    with pytest.raises(unmetal.Error):
        unmetal.NNReduceUnaryGradient(device, ReductionOperation.Sum, ReductionAxis.Row).encode(
            queue.command_buffer(), image, image)
