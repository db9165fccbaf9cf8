"""What cannot share the memory of an array is no destination: an error says so, and no result stays unseen in a copy."""

import numpy as np
import pytest

import unmetal
from unmetal import DataLayout, Image, ImageBatch

planes = DataLayout.FeatureChannelsxHeightxWidth
sentence = "is a copy of an array that is .*, expected memory that an array shares, or copy=True"


def read_only(array):
    array.setflags(write=False)
    return array


# Arrays [4][4][4] of float32 whose memory is no image's, and the layout with which they are given.
UNSHAREABLE = {"reversed": lambda: (np.zeros((4, 4, 4), np.float32)[::-1], DataLayout.HeightxWidthxFeatureChannels),
               "columns_reversed": lambda: (np.zeros((4, 4, 4), np.float32)[:, ::-1], DataLayout.HeightxWidthxFeatureChannels),
               "every_other_channel": lambda: (np.zeros((4, 4, 8), np.float32)[..., ::2], DataLayout.HeightxWidthxFeatureChannels),
               "transposed": lambda: (np.zeros((4, 4, 4), np.float32).transpose(2, 1, 0), DataLayout.HeightxWidthxFeatureChannels),
               "planes": lambda: (np.zeros((4, 4, 4), np.float32), planes),
               "read_only": lambda: (read_only(np.zeros((4, 4, 4), np.float32)), DataLayout.HeightxWidthxFeatureChannels)}


@pytest.fixture
def source(device):
    return Image.from_array(device, np.ones((4, 4, 4), np.float32))


@pytest.mark.parametrize("kind", UNSHAREABLE)
def test_images(device, queue, source, kind):
    array, layout = UNSHAREABLE[kind]()
    destination, relu = Image.from_array(device, array, layout), unmetal.CNNNeuronReLU(device, 0)
    assert np.array_equal(np.asarray(destination), np.zeros((4, 4, 4)))  # as a source it is fine
    command_buffer = queue.command_buffer()
    with pytest.raises(unmetal.ArgumentError, match=f"CNNNeuron: destination {sentence}, with results in the Image"):
        relu.encode(command_buffer, source, destination)
    result = Image.from_array(device, np.zeros((4, 4, 4), np.float32))
    relu.encode(command_buffer, destination, result)  # what failed left nothing
    command_buffer.commit()
    command_buffer.throw_if_failed()
    assert not np.asarray(result).any() and not array.any()


@pytest.mark.parametrize("kind", UNSHAREABLE)
def test_an_image_that_is_asked_to_be_a_copy_is_a_destination(device, queue, source, kind):
    array, layout = UNSHAREABLE[kind]()
    destination = Image.from_array(device, array, layout, copy=True)
    with queue.command_buffer() as command_buffer:
        unmetal.CNNNeuronReLU(device, 0).encode(command_buffer, source, destination)
    assert np.all(np.asarray(destination) == 1) and not array.any()


@pytest.mark.parametrize("kind", UNSHAREABLE)
def test_batches(device, queue, source, kind):
    array, layout = UNSHAREABLE[kind]()
    destinations, relu = ImageBatch.from_array(device, array[None], layout), unmetal.CNNNeuronReLU(device, 0)
    for batch in (destinations, [destinations[0]], destinations.slice(0, 1)):
        with pytest.raises(unmetal.ArgumentError, match=f"destination {sentence}, with results in the ImageBatch"):
            relu.encode_batch(queue.command_buffer(), [source], batch)
    loose = [Image.from_array(device, np.zeros((4, 4, 4), np.float32)), destinations[0]]
    with pytest.raises(unmetal.ArgumentError, match=f"destination {sentence}"):
        relu.encode_batch(queue.command_buffer(), [source, source], loose)
    asked = ImageBatch.from_array(device, array[None], layout, copy=True)
    with queue.command_buffer() as command_buffer:
        relu.encode_batch(command_buffer, [source], asked)
    assert np.all(np.asarray(asked) == 1)


def test_views_of_a_copy(device, queue, source):
    copied = Image.from_array(device, np.zeros((4, 4, 8), np.float32)[::-1])
    part = copied.sub_image_with_feature_channel_range(0, 4)
    with pytest.raises(unmetal.ArgumentError, match=f"destination {sentence}"):
        unmetal.CNNNeuronReLU(device, 0).encode(queue.command_buffer(), source, part)


def test_gradients(device, queue, source):
    forward = unmetal.CNNNeuron(device, unmetal.NNNeuronDescriptor(unmetal.CNNNeuronType.ReLU, 0))
    gradient, state = unmetal.CNNNeuronGradient(device, forward.descriptor), forward.result_state(source)
    command_buffer = queue.command_buffer()
    forward.encode(command_buffer, source, state, Image.from_array(device, np.zeros((4, 4, 4), np.float32)))
    destination = Image.from_array(device, np.zeros((4, 4, 4), np.float32)[::-1])
    with pytest.raises(unmetal.ArgumentError, match=f"CNNNeuronGradient: destination {sentence}"):
        gradient.encode(command_buffer, source, source, state, destination)


def test_matrices(device, queue):
    one = unmetal.Matrix.from_array(device, np.eye(3, dtype=np.float32))
    product = unmetal.MatrixMultiplication(device, 3, 3, 3)
    for array in (np.zeros((3, 3), np.float32)[::-1], np.zeros((3, 3), np.float32).T, np.zeros((3, 6), np.float32)[:, ::2]):
        with pytest.raises(unmetal.ArgumentError, match=f"destination {sentence}, with results in the Matrix"):
            product.encode(queue.command_buffer(), one, one, unmetal.Matrix.from_array(device, array))
        asked = unmetal.Matrix.from_array(device, array, copy=True)
        with queue.command_buffer() as command_buffer:
            product.encode(command_buffer, one, one, asked)
        assert np.array_equal(np.asarray(asked), np.eye(3)) and not array.any()


def test_vectors_of_optimisers(device, queue):
    numbers = np.ones(4, np.float32)
    values, gradient = (unmetal.Vector.from_array(device, numbers.copy()) for _ in range(2))
    sgd = unmetal.NNOptimizerStochasticGradientDescent(device, 0.5)
    array = np.ones(4, np.float32)[::-1]
    with pytest.raises(unmetal.ArgumentError, match=f"{sentence}, with results in the Vector"):
        sgd.encode(queue.command_buffer(), gradient, values, None, unmetal.Vector.from_array(device, array))
    shared = np.zeros(4, np.float32)
    with queue.command_buffer() as command_buffer:
        sgd.encode(command_buffer, gradient, values, None, unmetal.Vector.from_array(device, shared))
    assert np.all(shared == 0.5)


def test_buffers_of_copies(device, queue):
    copied = unmetal.Vector.from_array(device, np.ones(4, np.float32)[::-1])
    encoder = queue.command_buffer().blit_command_encoder()
    with pytest.raises(unmetal.Error, match="fill_buffer: the buffer to write is a copy of an array"):
        encoder.fill_buffer(copied.data, 0, 4, 0)
    encoder.end_encoding()


class TestTorch:
    torch = pytest.importorskip("torch")

    def test_tensors_in_planes(self, device, queue):
        result = self.torch.zeros(2, 4, 4, 4)
        source = ImageBatch.from_array(device, self.torch.ones(2, 4, 4, 4), planes)
        relu = unmetal.CNNNeuronReLU(device, 0)
        with pytest.raises(unmetal.ArgumentError, match=f"destination {sentence}"):
            relu.encode_batch(queue.command_buffer(), source, ImageBatch.from_array(device, result, planes))
        result = result.contiguous(memory_format=self.torch.channels_last)
        with queue.command_buffer() as command_buffer:
            relu.encode_batch(command_buffer, source, ImageBatch.from_array(device, result, planes))
        assert (result == 1).all()

    def negated(self, *shape):
        """Ones, whose memory has minus ones."""
        numbers = self.torch.full((*shape, 2), -1.0)
        tensor = self.torch.view_as_complex(numbers).conj().imag
        assert tensor.is_neg()
        return tensor

    def test_tensors_that_negate_are_read_as_they_are_and_not_written(self, device, queue):
        assert np.all(np.asarray(Image.from_array(device, self.negated(2, 2, 4))) == 1)
        assert np.all(np.asarray(ImageBatch.from_array(device, self.negated(1, 2, 2, 4))) == 1)
        assert np.all(np.asarray(unmetal.Vector.from_array(device, self.negated(4))) == 1)
        assert np.all(np.asarray(unmetal.Matrix.from_array(device, self.negated(2, 4))) == 1)
        assert np.all(np.asarray(unmetal.NDArray.from_array(device, self.negated(2, 4))) == 1)
        image = Image.from_array(device, np.zeros((2, 2, 4), np.float32), copy=True)
        image.write_bytes(self.negated(2, 2, 4))
        assert np.all(np.asarray(image) == 1)
        with pytest.raises(TypeError):
            image.read_bytes(self.negated(2, 2, 4))
        with pytest.raises(unmetal.ArgumentError, match="array is a view that negates its elements"):
            Image.from_array(device, self.negated(2, 2, 4), copy=False)
        with pytest.raises(unmetal.ArgumentError, match=f"destination {sentence}"):
            unmetal.CNNNeuronReLU(device, 0).encode(queue.command_buffer(), image,
                                                    Image.from_array(device, self.negated(2, 2, 4)))

    def test_tensors_that_negate_are_written_to_files(self, tmp_path):
        path = tmp_path / "negated.safetensors"
        unmetal.write_safetensors(path, {"x": self.negated(3, 4)})
        assert np.all(unmetal.SafetensorsFile.read(path).floats("x", [3, 4]) == 1)
