"""Pooling: all classes, properties and encode forms, against loops in float64."""

import numpy as np
import pytest

import unmetal
from unmetal import Image, ImageBatch, ImageEdgeMode, NNDefaultPadding, NNPaddingMethod, Offset

valid = NNDefaultPadding.padding(NNPaddingMethod.SizeValidOnly)


def windows(size, count, kernel, stride, offset, dilation=1):
    """For each window on one axis: its taps."""
    left = offset - ((kernel - 1) * dilation + 1) // 2
    return [[left + stride * x + dilation * p for p in range(kernel)] for x in range(count)]


def pooled(kind, source, result, kernel, stride, offset, dilation=1):
    """Result and gradient function of pooling with edge mode Zero; (y, x) tuples."""
    height, width, channels = source.shape
    rows = windows(height, result[0], kernel[0], stride[0], offset[0], dilation)
    columns = windows(width, result[1], kernel[1], stride[1], offset[1], dilation)
    out = np.zeros((*result, channels))
    pulls = []  # (y, x, source y, source x, channel, derivative)
    for y, taps_y in enumerate(rows):
        for x, taps_x in enumerate(columns):
            inside = [(i, j) for i in taps_y for j in taps_x if 0 <= i < height and 0 <= j < width]
            touches = len(inside) < len(taps_y) * len(taps_x)
            for c in range(channels):
                values = [source[i, j, c] for i, j in inside]
                if kind == "max":
                    best = max(values, default=-np.inf)
                    out[y, x, c] = max(best, 0) if touches else best
                    if values and not (touches and best < 0):
                        i, j = inside[values.index(best)]
                        pulls.append((y, x, i, j, c, 1.0))
                elif kind == "average":
                    count = len(taps_y) * len(taps_x)
                    out[y, x, c] = sum(values) / count
                    pulls += [(y, x, i, j, c, 1 / count) for i, j in inside]
                else:
                    out[y, x, c] = np.sqrt(sum(value**2 for value in values))
                    if out[y, x, c]:
                        pulls += [(y, x, i, j, c, source[i, j, c] / out[y, x, c]) for i, j in inside]

    def gradient(incoming):
        outgoing = np.zeros(source.shape)
        for y, x, i, j, c, derivative in pulls:
            outgoing[i, j, c] += incoming[y, x, c] * derivative
        return outgoing

    return out, gradient


classes = {"max": (unmetal.CNNPoolingMax, unmetal.CNNPoolingMaxGradient),
           "average": (unmetal.CNNPoolingAverage, unmetal.CNNPoolingAverageGradient),
           "norm": (unmetal.CNNPoolingL2Norm, unmetal.CNNPoolingL2NormGradient),
           "dilated": (unmetal.CNNDilatedPoolingMax, unmetal.CNNDilatedPoolingMaxGradient)}


def kernels(kind, device, kernel, stride, dilation):
    arguments = (kernel[1], kernel[0], dilation, dilation) if kind == "dilated" else (kernel[1], kernel[0])
    return (made(device, *arguments, stride[1], stride[0]) for made in classes[kind])


def close(found, expected, terms):
    """Sums of so many products in float32."""
    unit = np.finfo(np.float32).eps / 2
    return np.all(np.abs(found - expected) <= terms * unit / (1 - terms * unit) * (np.abs(expected) + np.abs(expected).max()))


def test_worked_example(device, queue, image_of, poisoned):
    source = image_of(np.arange(16, dtype=np.float32).reshape(4, 4, 1))
    result = poisoned(2, 2, 1)
    pool = unmetal.CNNPoolingMax(device, kernel_width=2, kernel_height=2, stride_in_pixels_x=2, stride_in_pixels_y=2)
    pool.offset = Offset(1, 1, 0)
    state = pool.result_state(source)
    gradient = unmetal.CNNPoolingMaxGradient(device, 2, 2, 2, 2)
    incoming = image_of(np.array([1, 2, 3, 4], np.float32).reshape(2, 2, 1))
    outgoing = poisoned(4, 4, 1)
    with queue.command_buffer() as command_buffer:
        pool.encode(command_buffer, source, state, result)
        gradient.encode(command_buffer, incoming, source, state, outgoing)
    assert np.asarray(result).ravel().tolist() == [5, 7, 13, 15]
    expected = np.zeros((4, 4))
    expected[1::2, 1::2] = [[1, 2], [3, 4]]
    assert np.array_equal(np.asarray(outgoing)[..., 0], expected)


@pytest.mark.parametrize("kind", classes)
@pytest.mark.parametrize("_", range(5))
def test_random_geometries_forward_and_gradient(kind, _, device, queue, image_of, poisoned, random):
    kernel, stride = random.integers(1, 4, 2), random.integers(1, 4, 2)
    dilation = int(random.integers(1, 3)) if kind == "dilated" else 1
    size, result, offset = random.integers(3, 8, 2), random.integers(1, 5, 2), random.integers(-1, 3, 2)
    channels = int(random.integers(1, 6))
    source = random.standard_normal((*size, channels)).astype(np.float32)
    incoming = random.standard_normal((*result, channels)).astype(np.float32)
    expected, pull = pooled("max" if kind == "dilated" else kind, source.astype(np.float64), result, kernel, stride,
                            offset, dilation)
    forward, backward = kernels(kind, device, kernel, stride, dilation)
    forward.offset = Offset(int(offset[1]), int(offset[0]), 0)
    image, out, back = image_of(source), poisoned(*result, channels), poisoned(*size, channels)
    state = forward.result_state(image)
    with queue.command_buffer() as command_buffer:
        forward.encode(command_buffer, image, state, out)
        backward.encode(command_buffer, image_of(incoming), image, state, back)
    terms = 2 * int(np.prod(kernel)) + 8
    assert close(np.asarray(out), expected, terms)
    assert close(np.asarray(back), pull(incoming.astype(np.float64)), terms)


@pytest.mark.parametrize("kind", classes)
def test_the_encode_forms_agree(kind, device, queue, permanent, random):
    kernel, stride = (2, 3), (2, 1)
    sources = ImageBatch.from_array(device, random.standard_normal((3, 6, 7, 5)).astype(np.float32))
    forward, backward = kernels(kind, device, kernel, stride, 1)
    for made in (forward, backward):
        made.destination_image_allocator = permanent
    forward.padding = valid
    with queue.command_buffer() as command_buffer:
        plain = forward.encode(command_buffer, sources[0])
        image, state = forward.encode(command_buffer, sources[0], destination_state_is_temporary=False)
        batch = forward.encode_batch(command_buffer, sources)
        images, states = forward.encode_batch(command_buffer, sources, destination_states_are_temporary=False)
        into = Image(device, plain.descriptor)
        forward.encode(command_buffer, sources[0], into)
        with_state = Image(device, plain.descriptor)
        other_state = forward.result_state(sources[0])
        forward.encode(command_buffer, sources[0], other_state, with_state)
        many = ImageBatch(device, plain.descriptor, 3)
        forward.encode_batch(command_buffer, sources, many)
        many_with_states = ImageBatch(device, plain.descriptor, 3)
        other_states = forward.result_state_batch(sources)
        forward.encode_batch(command_buffer, sources, other_states, many_with_states)
    assert (plain.height, plain.width) == (3, 5)
    assert isinstance(state, unmetal.NNGradientState) and (state.source_width, state.source_height) == (7, 6)
    assert len(states) == 3 and len(other_states) == 3
    first, all_three = np.asarray(plain), np.stack([np.asarray(one) for one in batch])
    for one in (image, into, with_state, images[0], many[0]):
        assert np.array_equal(np.asarray(one), first)
    for several in (images, many, many_with_states):
        assert np.array_equal(np.stack([np.asarray(one) for one in several]), all_three)

    incoming = ImageBatch.from_array(device, random.standard_normal((3, 3, 5, 5)).astype(np.float32))
    with queue.command_buffer() as command_buffer:
        returned = backward.encode(command_buffer, incoming[0], sources[0], state)
        back = backward.encode_batch(command_buffer, incoming, sources, states)
        given = Image(device, sources[0].descriptor)
        backward.encode(command_buffer, incoming[0], sources[0], other_state, given)
        several = ImageBatch(device, sources[0].descriptor, 3)
        backward.encode_batch(command_buffer, incoming, sources, other_states, several)
    assert returned.descriptor == sources[0].descriptor
    for one in (given, back[0], several[0]):
        assert np.array_equal(np.asarray(one), np.asarray(returned))
    assert np.array_equal(np.stack([np.asarray(one) for one in back]), np.asarray(several))


def test_gradients_of_batches_take_states_and_destinations_by_their_place(device, queue):
    sources = ImageBatch.from_array(device, np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1))
    pool, gradient = unmetal.CNNPoolingMax(device, 2, 2, 2, 2), unmetal.CNNPoolingMaxGradient(device, 2, 2, 2, 2)
    pool.offset = Offset(1, 1, 0)  # which the gradient kernel knows from the state alone
    states, results = pool.result_state_batch(sources), np.zeros((1, 2, 2, 1), np.float32)
    incoming, outgoing = np.ones((1, 2, 2, 1), np.float32), np.full((1, 4, 4, 1), np.nan, np.float32)
    with queue.command_buffer() as command_buffer:
        pool.encode_batch(command_buffer, sources, states, ImageBatch.from_array(device, results))
        gradient.encode_batch(command_buffer, ImageBatch.from_array(device, incoming), sources, states,
                              ImageBatch.from_array(device, outgoing))
    expected = np.zeros((4, 4))
    expected[1::2, 1::2] = 1
    assert np.array_equal(outgoing[0, ..., 0], expected)


def test_gradients_without_a_state(device, queue, image_of, poisoned):
    """The inherited encodes of two sources: geometry from the kernel's own properties."""
    source = image_of(np.arange(16, dtype=np.float32).reshape(4, 4, 1))
    incoming = image_of(np.ones((2, 2, 1), np.float32))
    gradient = unmetal.CNNPoolingMaxGradient(device, 2, 2, 2, 2)
    gradient.secondary_offset = Offset(1, 1, 0)
    out = poisoned(4, 4, 1)
    with queue.command_buffer() as command_buffer:
        gradient.encode(command_buffer, incoming, source, out)
    expected = np.zeros((4, 4, 1))
    expected[1::2, 1::2] = 1
    assert np.array_equal(np.asarray(out), expected)


def test_properties(device):
    pool = unmetal.CNNDilatedPoolingMax(device, 3, 5, 2, 4, 6, 7)
    assert (pool.kernel_width, pool.kernel_height) == (3, 5)
    assert (pool.dilation_rate_x, pool.dilation_rate_y) == (2, 4)
    assert (pool.stride_in_pixels_x, pool.stride_in_pixels_y) == (6, 7)
    gradient = unmetal.CNNDilatedPoolingMaxGradient(device, 3, 5, 2, 4, 6, 7)
    assert (gradient.secondary_dilation_rate_x, gradient.secondary_dilation_rate_y) == (2, 4)
    gradient.source_size = unmetal.mtl.Size(1, 2, 3)
    assert gradient.source_size == unmetal.mtl.Size(1, 2, 3)
    gradient.kernel_offset_x = -3
    assert (gradient.kernel_offset_x, gradient.kernel_offset_y) == (-3, 0)
    average = unmetal.CNNPoolingAverage(device, 2, 2)
    average.zero_pad_size_x, average.edge_mode, average.label = 1, ImageEdgeMode.Clamp, "mean"
    copied = average.copy()
    assert type(copied) is unmetal.CNNPoolingAverage and copied is not average
    assert (copied.zero_pad_size_x, copied.zero_pad_size_y) == (1, 0)
    assert (copied.edge_mode, copied.label, copied.device) == (ImageEdgeMode.Clamp, "mean", device)
    assert repr(average) == '<CNNPoolingAverage "mean">' and average.class_name == "CNNPoolingAverage"


def test_zero_pad_size_counts_in_the_divisor(device, queue, image_of, permanent):
    average = unmetal.CNNPoolingAverage(device, 3, 3)
    average.edge_mode, average.destination_image_allocator = ImageEdgeMode.Clamp, permanent
    ones = image_of(np.ones((4, 4, 1), np.float32))
    with queue.command_buffer() as command_buffer:
        without = average.encode(command_buffer, ones)
        average.zero_pad_size_x = average.zero_pad_size_y = 1
        counted = average.encode(command_buffer, ones)
    assert np.all(np.asarray(without) == 1)
    assert np.asarray(counted)[0, 0, 0] == np.float32(4 / 9) and np.asarray(counted)[1, 1, 0] == 1


@pytest.mark.parametrize("kind", classes)
def test_coding(kind, device, queue, image_of, permanent, random):
    forward, backward = kernels(kind, device, (2, 3), (1, 2), 2)
    for kernel in (forward, backward):
        kernel.label = "coded"
        archiver = unmetal.KeyedArchiver()
        kernel.encode(archiver)
        decoded = type(kernel).decode(unmetal.KeyedUnarchiver(archiver.encoded_data(), device))
        assert type(decoded) is type(kernel) and decoded.label == "coded"
    image = image_of(random.standard_normal((5, 6, 3)).astype(np.float32))
    archiver = unmetal.KeyedArchiver()
    forward.encode(archiver)
    decoded = type(forward).decode(unmetal.KeyedUnarchiver(archiver.encoded_data()), device)
    forward.destination_image_allocator = decoded.destination_image_allocator = permanent
    with queue.command_buffer() as command_buffer:
        results = [kernel.encode(command_buffer, image) for kernel in (forward, decoded)]
    assert np.array_equal(*(np.asarray(result) for result in results))
    with pytest.raises(unmetal.Error):
        unmetal.CNNPoolingAverageGradient.decode(unmetal.KeyedUnarchiver(archiver.encoded_data()))
    with pytest.raises(unmetal.Error):
        unmetal.KeyedUnarchiver(b"no CBOR")


def test_coded_data_has_limits(device):
    limits = unmetal.CodingLimits()
    assert (limits.size, limits.window_elements, limits.bytes) == (2**20, 2**20, 2**30)
    archiver = unmetal.KeyedArchiver()
    unmetal.CNNPoolingMax(device, 5, 4).encode(archiver)
    data = archiver.encoded_data()
    assert unmetal.CNNPoolingMax.decode(unmetal.KeyedUnarchiver(data, device, limits)).kernel_width == 5
    limits.window_elements = 19
    with pytest.raises(unmetal.Error, match="at most 19 elements"):
        unmetal.CNNPoolingMax.decode(unmetal.KeyedUnarchiver(data, device, limits=limits))


def test_wrong_parameters_raise_the_sentence(device, queue, image_of):
    with pytest.raises(unmetal.ArgumentError, match="kernel_width is 0, expected"):
        unmetal.CNNPoolingMax(device, 0, 2)
    with pytest.raises(unmetal.ArgumentError, match="CNNPoolingAverage: stride_in_pixels_y is 0"):
        unmetal.CNNPoolingAverage(device, 2, 2, 1, 0)
    with pytest.raises(unmetal.ArgumentError, match="dilation_rate_x is 0"):
        unmetal.CNNDilatedPoolingMax(device, 2, 2, 0, 1, 1, 1)
    source = image_of(np.zeros((4, 4, 1), np.float32))
    command_buffer = queue.command_buffer()
    _, state = unmetal.CNNPoolingMax(device, 2, 2).encode(command_buffer, source, destination_state_is_temporary=False)
    with pytest.raises(unmetal.Error, match="CNNPoolingAverageGradient"):
        unmetal.CNNPoolingAverageGradient(device, 2, 2).encode(command_buffer, source, source, state)
