"""Concatenation in every encode form, and its gradients."""

import numpy as np
import pytest

import unmetal
from judging import decoded, encoded
from unmetal import Image, ImageBatch

counts = (5, 4, 3)


def side_by_side(sources, alignment):
    parts = []
    for source in sources:
        missing = -source.shape[-1] % alignment
        parts += [source, np.zeros((*source.shape[:-1], missing))]
    return np.concatenate(parts, axis=-1)


def arrays(random):
    return [random.standard_normal((2, 3, 4, count)).astype(np.float32) for count in counts]


@pytest.mark.parametrize("alignment", [1, 4])
def test_the_encode_forms_and_gradients(alignment, device, queue, permanent, random):
    values = arrays(random)
    expected = side_by_side(values, alignment)
    batches = [ImageBatch.from_array(device, value) for value in values]
    images = [batch[0] for batch in batches]
    kernel = unmetal.NNConcatenation(device, source_count=3)
    kernel.channel_alignment, kernel.destination_image_allocator = alignment, permanent
    with queue.command_buffer() as command_buffer:
        plain = kernel.encode(command_buffer, images)
        image, state = kernel.encode(command_buffer, images, destination_state_is_temporary=False)
        batch = kernel.encode_batch(command_buffer, batches)
        several, states = kernel.encode_batch(command_buffer, batches, destination_states_are_temporary=False)
        into = Image(device, plain.descriptor)
        kernel.encode(command_buffer, images, into)
        many, many_with_states = (ImageBatch(device, plain.descriptor, 2) for _ in range(2))
        kernel.encode_batch(command_buffer, batches, many)
        other_states = kernel.result_state_batch(batches)
        kernel.encode_batch(command_buffer, batches, other_states, many_with_states)
        assert kernel.temporary_result_state(command_buffer, images) is not None
        assert len(kernel.temporary_result_state_batch(command_buffer, batches)) == 2
    assert kernel.result_state(images) is not None
    for one in (plain, image, into):
        assert np.array_equal(np.asarray(one), expected[0])
    for found in (batch, several, many, many_with_states):
        assert np.array_equal(np.stack([np.asarray(one) for one in found]), expected)

    incoming = random.standard_normal(expected.shape).astype(np.float32)
    gradients = ImageBatch.from_array(device, incoming)
    first = 0
    for index, count in enumerate(counts):
        gradient = unmetal.NNConcatenationGradient(device, index)
        gradient.destination_image_allocator = permanent
        wanted = incoming[..., first:first + count]
        assert np.array_equal(np.asarray(encoded(queue, gradient, gradients[0], images[index], state)), wanted[0])
        with queue.command_buffer() as command_buffer:
            both = gradient.encode_batch(command_buffer, gradients, batches[index], states)
            again = gradient.encode_batch(command_buffer, gradients, batches[index], other_states)
        for found in (both, again):
            assert np.array_equal(np.stack([np.asarray(one) for one in found]), wanted)
        first += count + -count % alignment


@pytest.mark.parametrize("alignment", [1, 4])
def test_two_gradients_at_once(alignment, device, queue, random):
    values = arrays(random)
    batches = [ImageBatch.from_array(device, value) for value in values]
    kernel = unmetal.NNConcatenation(device, source_count=3)
    kernel.channel_alignment = alignment
    incoming = random.standard_normal(side_by_side(values, alignment).shape).astype(np.float32)
    gradients = ImageBatch.from_array(device, incoming)
    results = ImageBatch(device, gradients[0].descriptor, 2)
    states = kernel.result_state_batch(batches)
    found = [ImageBatch(device, batch[0].descriptor, 2) for batch in batches[1:]]
    gradient = unmetal.NNConcatenationGradient(device, 1)
    with queue.command_buffer() as command_buffer:
        kernel.encode_batch(command_buffer, batches, states, results)
        gradient.encode_batch_with_next(command_buffer, gradients, batches[1:], states, found)
        with pytest.raises(unmetal.Error, match="source_images"):
            gradient.encode_batch_with_next(command_buffer, gradients, batches, states, found)
    first = counts[0] + -counts[0] % alignment
    for one, count in zip(found, counts[1:]):
        assert np.array_equal(np.stack([np.asarray(image) for image in one]), incoming[..., first:first + count])
        first += count + -count % alignment


def test_parts_of_sources(device, queue, permanent, random):
    values = [value[0] for value in arrays(random)[:2]]
    kernel = unmetal.NNConcatenation(device, 2)
    kernel.channel_alignment, kernel.destination_image_allocator = 1, permanent
    kernel.set_source_feature_channel_offset(4, index=0)
    kernel.set_source_feature_channel_max_count(2, index=1)
    result = encoded(queue, kernel, [Image.from_array(device, value) for value in values])
    assert np.array_equal(np.asarray(result), np.concatenate([values[0][..., 4:], values[1][..., :2]], axis=-1))
    assert (kernel.source_feature_channel_offset(0), kernel.source_feature_channel_max_count(1)) == (4, 2)


def test_a_gradient_without_a_state(device, queue, image_of, poisoned):
    gradient = unmetal.NNConcatenationGradient(device, 0)
    gradient.primary_source_feature_channel_offset = 4
    incoming, out = image_of(np.arange(7, dtype=np.float32).reshape(1, 1, 7)), poisoned(1, 1, 3)
    with queue.command_buffer() as command_buffer:
        gradient.encode(command_buffer, incoming, out, out)
    assert np.asarray(out).ravel().tolist() == [4, 5, 6]


def test_properties_and_coding(device):
    kernel = unmetal.NNConcatenation(device, 3)
    assert kernel.channel_alignment == 4
    kernel.channel_alignment = 1
    for one in (kernel.copy(), decoded(kernel, device)):
        assert (one.source_count, one.channel_alignment) == (3, 1)
    assert decoded(unmetal.NNConcatenationGradient(device, 2), device).source_index == 2


def test_wrong_use_raises(device, queue, image_of):
    with pytest.raises(unmetal.Error, match="source_count"):
        unmetal.NNConcatenation(device, 0)
    kernel = unmetal.NNConcatenation(device, 2)
    with pytest.raises(unmetal.Error, match="channel_alignment"):
        kernel.channel_alignment = 2
    with pytest.raises(unmetal.Error):
        kernel.offset(2)
    a, b = image_of(np.zeros((2, 2, 1), np.float32)), image_of(np.zeros((2, 3, 1), np.float32))
    for sources in ([a], [a, b], [a, a, a]):
        with pytest.raises(unmetal.Error):
            kernel.encode(queue.command_buffer(), sources)
