"""Other shapes, padding and slices, against NumPy."""

import numpy as np
import pytest

import unmetal
from judging import close, decoded, encoded, normal
from unmetal import ImageBatch, ImageCoordinate, ImageEdgeMode, Offset
from unmetal.mtl import Origin, Region, Size


def test_reshape_in_all_encode_forms(device, queue, image_of, permanent, random):
    x = random.standard_normal((3, 4, 6, 5)).astype(np.float32)
    sources = ImageBatch.from_array(device, x)
    shape = {"reshaped_width": 10, "reshaped_height": 2, "reshaped_feature_channels": 6}
    expected = x.reshape(3, 2, 10, 6)
    kernel, gradient = unmetal.NNReshape(device), unmetal.NNReshapeGradient(device)
    kernel.destination_image_allocator = gradient.destination_image_allocator = permanent
    with queue.command_buffer() as command_buffer:
        plain = kernel.encode(command_buffer, sources[0], 10, 2, 6)
        image, state = kernel.encode(command_buffer, sources[0], **shape, destination_state_is_temporary=False)
        batch = kernel.encode_batch(command_buffer, sources, 10, 2, 6)
        several, states = kernel.encode_batch(command_buffer, sources, **shape, destination_states_are_temporary=False)
        same = kernel.encode(command_buffer, sources[0])
        same_with_state, _ = kernel.encode(command_buffer, sources[0], destination_state_is_temporary=False)
        same_batch = kernel.encode_batch(command_buffer, sources)
        same_several, _ = kernel.encode_batch(command_buffer, sources, destination_states_are_temporary=False)
        into, with_state = (unmetal.Image(device, plain.descriptor) for _ in range(2))
        kernel.encode(command_buffer, sources[0], into)
        kernel.encode(command_buffer, sources[0], kernel.result_state(sources[0]), with_state)
        many, many_with_states = (ImageBatch(device, plain.descriptor, 3) for _ in range(2))
        kernel.encode_batch(command_buffer, sources, many)
        kernel.encode_batch(command_buffer, sources, kernel.result_state_batch(sources), many_with_states)
    for one in (plain, image, into, with_state):
        assert np.array_equal(np.asarray(one), expected[0])
    for found in (batch, several, many, many_with_states):
        assert np.array_equal(np.stack([np.asarray(one) for one in found]), expected)
    for one in (same, same_with_state, same_batch[0], same_several[0]):
        assert np.array_equal(np.asarray(one), x[0])
    dy = random.standard_normal((3, 2, 10, 6)).astype(np.float32)
    gradients = ImageBatch.from_array(device, dy)
    with queue.command_buffer() as command_buffer:
        dx = gradient.encode(command_buffer, gradients[0], sources[0], state)
        all_three = gradient.encode_batch(command_buffer, gradients, sources, states)
    assert np.array_equal(np.asarray(dx), dy[0].reshape(4, 6, 5))
    assert np.array_equal(np.stack([np.asarray(one) for one in all_three]), dy.reshape(3, 4, 6, 5))
    for wrong in ((10, 2, 5), (0, 2, 6)):
        with pytest.raises(unmetal.Error):
            kernel.encode(queue.command_buffer(), sources[0], *wrong)
    with pytest.raises(unmetal.Error):
        gradient.encode(queue.command_buffer(), gradients[0], sources[0])


def test_reshape_with_channels_slowest_is_pytorchs_view(device, queue, image_of, permanent, random):
    x = random.standard_normal((4, 6, 5)).astype(np.float32)
    kernel, gradient = unmetal.NNReshape(device), unmetal.NNReshapeGradient(device)
    kernel.destination_image_allocator = gradient.destination_image_allocator = permanent
    assert not kernel.channels_first and not unmetal.NNReshapeNode(unmetal.NNImageNode(), 1, 1, 1).channels_first
    kernel.channels_first = True
    with queue.command_buffer() as command_buffer:
        y, state = kernel.encode(command_buffer, image_of(x), 10, 2, 6, destination_state_is_temporary=False)
        dx = gradient.encode(command_buffer, y, image_of(x), state)
    assert np.array_equal(np.asarray(y), x.transpose(2, 0, 1).reshape(6, 2, 10).transpose(1, 2, 0))
    assert np.array_equal(np.asarray(dx), x)


def test_views_of_slices_and_purgeable_states(device, image_of):
    x = np.arange(2 * 3 * 12, dtype=np.float32).reshape(2, 3, 12)
    parent = image_of(x)
    view = unmetal.Image(parent, 1, 1, 3)
    assert view.parent is not None
    assert np.array_equal(np.asarray(view), x[..., 4:7])
    with pytest.raises(unmetal.Error):
        unmetal.Image(parent, 3, 1, 4)
    assert parent.set_purgeable_state(unmetal.PurgeableState.Volatile) == unmetal.PurgeableState.NonVolatile
    exported = unmetal.NNImageNode.exported_node_with_handle(None)
    assert exported.export_from_graph


modes = {ImageEdgeMode.Constant: "constant", ImageEdgeMode.Clamp: "edge", ImageEdgeMode.Mirror: "reflect",
         ImageEdgeMode.MirrorWithEdge: "symmetric"}


@pytest.mark.parametrize("edge_mode", modes)
@pytest.mark.parametrize("_", range(3))
def test_pad_and_its_adjoint(edge_mode, _, device, queue, image_of, permanent, random):
    shape = tuple(int(size) for size in random.integers(2, 6, 3))
    before, after = ([int(size) for size in random.integers(0, 5, 3)] for _ in range(2))
    arguments = {"constant_values": 2.5} if modes[edge_mode] == "constant" else {}
    pad = unmetal.NNPad(device, ImageCoordinate(before[1], before[0], before[2]),
                        ImageCoordinate(after[1], after[0], after[2]))
    pad.edge_mode, pad.fill_value = edge_mode, 2.5
    gradient = unmetal.NNPadGradient(device)
    pad.destination_image_allocator = gradient.destination_image_allocator = permanent

    def reference(values):
        return np.pad(values, list(zip(before, after)), modes[edge_mode], **arguments)

    x = normal(random, *shape)
    source = image_of(x.astype(np.float32))
    result, state = encoded(queue, pad, source, destination_state_is_temporary=False)
    assert np.array_equal(np.asarray(result), reference(x))
    dy = normal(random, *reference(x).shape)
    dx = encoded(queue, gradient, image_of(dy.astype(np.float32)), source, state)
    places = np.pad(np.arange(x.size).reshape(shape), list(zip(before, after)), modes[edge_mode],
                    **({"constant_values": x.size} if arguments else {}))
    expected = np.bincount(places.ravel(), dy.ravel(), x.size + 1)[:x.size].reshape(shape)
    assert close(dx, expected, 2 * dy.size)


def test_fill_values_of_channels(device, queue, image_of, permanent):
    pad = unmetal.NNPad(device, padding_size_after=ImageCoordinate(1, 0, 1), fill_value_array=[7, 8, 9])
    pad.edge_mode, pad.destination_image_allocator = ImageEdgeMode.Constant, permanent
    result = encoded(queue, pad, image_of(np.ones((1, 1, 2), np.float32)))
    assert np.asarray(result).tolist() == [[[1, 1, 9], [7, 8, 9]]]
    with pytest.raises(unmetal.Error, match="fill_value_array"):
        pad.encode(queue.command_buffer(), image_of(np.ones((1, 1, 3), np.float32)))


def test_pad_properties_and_coding(device):
    pad = unmetal.NNPad(device)
    assert pad.padding_size_before == pad.padding_size_after == ImageCoordinate(0, 0, 0) and pad.fill_value == 0
    pad.padding_size_before, pad.padding_size_after = ImageCoordinate(1, 2, 3), ImageCoordinate(4, 5, 6)
    pad.fill_value = 0.5
    for one in (pad.copy(), decoded(pad, device)):
        assert (one.padding_size_before, one.padding_size_after) == (ImageCoordinate(1, 2, 3), ImageCoordinate(4, 5, 6))
        assert one.fill_value == 0.5
    for name in ("padding_size_before", "padding_size_after"):
        with pytest.raises(unmetal.Error, match="padding_size"):
            setattr(pad, name, ImageCoordinate(2**32, 0, 0))
    for made in (unmetal.NNPadGradient, unmetal.NNReshape, unmetal.NNReshapeGradient, unmetal.NNSlice):
        decoded(made(device), device)


def test_slice(device, queue, image_of, permanent, random):
    x = random.standard_normal((5, 6, 9)).astype(np.float32)
    cut = unmetal.NNSlice(device)
    cut.destination_image_allocator = permanent
    cut.offset, cut.clip_rect = Offset(2, 1, 0), Region(Origin(0, 0, 0), Size(3, 4, 1))
    cut.source_feature_channel_offset, cut.source_feature_channel_max_count = 3, 5
    result, state = encoded(queue, cut, image_of(x), destination_state_is_temporary=False)
    assert np.array_equal(np.asarray(result), x[1:5, 2:5, 3:8]) and state is None
