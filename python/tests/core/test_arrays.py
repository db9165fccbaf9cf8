"""Images over arrays and arrays over images: one side writes, the other reads."""

import gc

import numpy as np
import pytest

import unmetal
from unmetal import DataLayout, Image, ImageBatch, ImageDescriptor, ImageFeatureChannelFormat

planes = DataLayout.FeatureChannelsxHeightxWidth
formats = {np.float32: ImageFeatureChannelFormat.Float32, np.float16: ImageFeatureChannelFormat.Float16,
           np.uint8: ImageFeatureChannelFormat.Unorm8, np.uint16: ImageFeatureChannelFormat.Unorm16}


def counting(*shape, dtype=np.float32):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


@pytest.mark.parametrize("dtype", formats)
def test_an_image_is_an_array_over_its_memory(device, dtype):
    image = Image(device, ImageDescriptor(formats[dtype], 3, 2, 5))
    array = np.asarray(image)
    assert array.dtype == dtype and array.shape == (2, 3, 5) and not array.any()
    array[1, 2, 4] = 7
    read = np.full((2, 3, 5), 9, dtype)
    image.read_bytes(read)
    assert read[1, 2, 4] == 7 and read.sum() == 7
    image.write_bytes(counting(2, 3, 5, dtype=dtype))
    assert np.array_equal(array, counting(2, 3, 5, dtype=dtype))


@pytest.mark.parametrize("dtype", formats)
def test_an_array_is_an_image_over_its_memory(device, dtype):
    array = counting(2, 3, 5, dtype=dtype)
    image = Image.from_array(device, array, copy=False)
    assert (image.height, image.width, image.feature_channels) == (2, 3, 5)
    assert image.feature_channel_format == formats[dtype]
    array[0, 1, 2] = 77
    read = np.empty_like(array)
    image.read_bytes(read)
    assert read[0, 1, 2] == 77
    image.write_bytes(np.zeros_like(array))
    assert not array.any()


def test_views_keep_the_memory_alive(device):
    view = np.asarray(Image.from_array(device, counting(64, 64, 4)))
    image = Image.from_array(device, counting(64, 64, 4))
    other = np.asarray(Image(device, ImageDescriptor(ImageFeatureChannelFormat.Float32, 64, 64, 4)))
    other[:] = 3
    gc.collect()
    garbage = [counting(64, 64, 4) + 1 for _ in range(20)]
    assert np.array_equal(view, counting(64, 64, 4)) and np.array_equal(np.asarray(image), view)
    assert np.all(other == 3) and len(garbage) == 20


def test_kernels_work_on_the_memory_of_arrays(device, queue):
    source, result = counting(4, 4, 3), np.full((2, 2, 3), np.nan, np.float32)
    pool = unmetal.CNNPoolingMax(device, 2, 2, 2, 2)
    pool.offset = unmetal.Offset(1, 1, 0)
    with queue.command_buffer() as command_buffer:
        pool.encode(command_buffer, Image.from_array(device, source, copy=False),
                    Image.from_array(device, result, copy=False))
    assert np.array_equal(result, source[1::2, 1::2])


def test_strided_rectangles_are_shared(device, queue):
    whole = counting(6, 8, 3)
    image = Image.from_array(device, whole[1:5, 2:6], copy=False)
    assert np.shares_memory(np.asarray(image), whole) and np.array_equal(np.asarray(image), whole[1:5, 2:6])
    pool = unmetal.CNNPoolingMax(device, 1, 1)
    result = Image.from_array(device, np.zeros((4, 4, 3), np.float32))
    with queue.command_buffer() as command_buffer:
        pool.encode(command_buffer, image, result)
    assert np.array_equal(np.asarray(result), whole[1:5, 2:6])


def test_channels_first(device):
    array = counting(5, 2, 3)
    copied = Image.from_array(device, array, planes)
    assert np.array_equal(np.asarray(copied), np.moveaxis(array, 0, -1))
    assert not np.shares_memory(np.asarray(copied), array)
    shared = Image.from_array(device, np.moveaxis(counting(2, 3, 5), -1, 0), planes, copy=False)
    assert np.array_equal(np.asarray(shared), counting(2, 3, 5))


@pytest.mark.parametrize("unshareable", [counting(4, 4, 4)[::-1], counting(4, 4, 4)[..., ::2],
                                         np.broadcast_to(counting(1, 1, 4), (3, 3, 4)),
                                         np.frombuffer(bytes(4 * 8 + 1), np.uint8)[1:].view(np.float32).reshape(2, 2, 2)])
def test_what_cannot_be_shared_is_copied_unless_forbidden(device, unshareable):
    image = Image.from_array(device, unshareable)
    assert np.array_equal(np.asarray(image), unshareable)
    assert not np.shares_memory(np.asarray(image), unshareable)
    with pytest.raises(unmetal.ArgumentError, match="expected memory that can be shared, or copy=None"):
        Image.from_array(device, unshareable, copy=False)


def test_read_only_arrays_are_copied(device):
    array = counting(2, 2, 2)
    array.flags.writeable = False
    assert not np.shares_memory(np.asarray(Image.from_array(device, array)), array)
    with pytest.raises(unmetal.ArgumentError, match="array is read-only"):
        Image.from_array(device, array, copy=False)


def test_copies_are_copies(device):
    array = counting(2, 2, 2)
    image = Image.from_array(device, array, copy=True)
    array[:] = 0
    assert np.array_equal(np.asarray(image), counting(2, 2, 2))
    copied = np.array(image)
    copied[:] = 5
    assert np.array_equal(np.asarray(image), counting(2, 2, 2))
    assert np.asarray(image, np.float64).dtype == np.float64


def test_stacks(device):
    array = counting(3, 2, 4, 5)
    image = Image.from_array(device, array, copy=False)
    assert image.number_of_images == 3 and np.asarray(image).shape == (3, 2, 4, 5)
    batch = image.batch_representation(1, 2)
    assert np.array_equal(np.asarray(batch), array[1:])
    assert np.shares_memory(np.asarray(batch), array)


def test_batches(device):
    array = counting(3, 2, 4, 5)
    shared = ImageBatch.from_array(device, array, copy=False)
    assert len(shared) == 3 and np.shares_memory(np.asarray(shared), array)
    assert np.array_equal(np.asarray(shared[1]), array[1])
    copied = ImageBatch.from_array(device, array, planes)
    assert np.asarray(copied).shape == (3, 4, 5, 2)
    assert np.array_equal(np.asarray(copied), np.moveaxis(array, 1, -1))
    assert np.array_equal(np.asarray(copied.slice(1, 2)), np.moveaxis(array[1:], 1, -1))
    with pytest.raises(unmetal.ArgumentError, match="evenly spaced"):
        np.asarray(ImageBatch([shared[0], copied[0]]))
    with pytest.raises(unmetal.ArgumentError, match="evenly spaced"):
        np.asarray(ImageBatch([shared[0], shared[2], shared[1]]))
    assert np.array_equal(np.asarray(ImageBatch([shared[0], shared[2]])), array[::2])


def test_what_is_no_array_of_numbers_that_images_hold(device):
    for array, sentence in ((counting(2, 2, 2, dtype=np.float64), "array is float64, expected float32, float16"),
                            (counting(2, 2, 2, dtype=np.int32), "array is int32"),
                            (counting(2, 2), "array is 2-dimensional, expected 3 dimensions, or 4"),
                            (counting(1, 1, 1, 1, 1), "array is 5-dimensional"),
                            (np.zeros((0, 2, 2), np.float32), "image_descriptor is float32 2x0x2"),
                            ([[[1.0]]], "array is a list, expected an array")):
        with pytest.raises(unmetal.ArgumentError, match=sentence):
            Image.from_array(device, array)
    with pytest.raises(TypeError):
        Image.from_array(device, None)
    with pytest.raises(unmetal.ArgumentError, match="3-dimensional, expected 4 dimensions"):
        ImageBatch.from_array(device, counting(2, 2, 2))
    with pytest.raises(unmetal.ArgumentError, match="device is None"):
        Image.from_array(None, counting(2, 2, 2))


def test_images_of_the_device_alone_are_no_arrays(device, queue):
    descriptor = ImageDescriptor(ImageFeatureChannelFormat.Float32, 2, 2, 2)
    command_buffer = queue.command_buffer()
    with pytest.raises(unmetal.ArgumentError, match="array is of a temporary image"):
        np.asarray(unmetal.TemporaryImage(command_buffer, descriptor))
    descriptor.storage_mode = unmetal.mtl.StorageMode.Private
    with pytest.raises(unmetal.ArgumentError, match="array is of a private image"):
        np.asarray(Image(device, descriptor))
    with pytest.raises(unmetal.ArgumentError, match="at least one image"):
        np.asarray(ImageBatch())


def test_read_and_write_bytes(device):
    image = Image.from_array(device, counting(2, 3, 8), copy=True)
    first = np.empty((8, 2, 3), np.float32)
    image.read_bytes(first, planes)
    assert np.array_equal(first, np.moveaxis(counting(2, 3, 8), -1, 0))
    part = np.empty((1, 2, 4), np.float32)
    region = unmetal.mtl.Region(unmetal.mtl.Origin(1, 1, 0), unmetal.mtl.Size(2, 1, 1))
    window = unmetal.ImageReadWriteParams(4, 4)
    image.read_bytes(part, DataLayout.HeightxWidthxFeatureChannels, unmetal.DataStrides(), region, window)
    assert np.array_equal(part, counting(2, 3, 8)[1:, 1:, 4:])
    image.write_bytes(part * 0, DataLayout.HeightxWidthxFeatureChannels, unmetal.DataStrides(), region, window)
    assert not np.asarray(image)[1:, 1:, 4:].any() and np.asarray(image)[0].sum() == counting(2, 3, 8)[0].sum()
    with pytest.raises(unmetal.ArgumentError, match="source is float64, expected float32"):
        image.write_bytes(counting(2, 3, 8, dtype=np.float64))
    with pytest.raises(unmetal.ArgumentError, match="bytes is 4 bytes, expected at least 192"):
        image.read_bytes(np.empty(1, np.float32))
    with pytest.raises(IndexError, match="image_index is 1"):
        image.read_bytes(first, image_index=1)
    raw = np.frombuffer(bytearray(192), np.uint8)
    image.read_bytes(raw)
    assert np.array_equal(raw.view(np.float32), np.asarray(image).ravel())


def test_views_of_channels_and_textures(device):
    image = Image.from_array(device, counting(2, 3, 8), copy=True)
    part = image.sub_image_with_feature_channel_range(4, 4)
    assert np.array_equal(np.asarray(part), counting(2, 3, 8)[..., 4:])
    assert part.parent is image and part.resource_size == 0
    np.asarray(part)[:] = 0
    assert not np.asarray(image)[..., 4:].any()
    texture = image.texture()
    assert (texture.width, texture.height, texture.array_length) == (3, 2, 2)
    region = unmetal.mtl.Region(unmetal.mtl.Origin(), unmetal.mtl.Size(3, 2, 1))
    texture.replace(region, 1, np.ones((2, 3, 4), np.float32), 48)
    read = np.empty((2, 3, 4), np.float32)
    texture.get_bytes(read, 48, region, 0)
    assert np.array_equal(read, counting(2, 3, 8)[..., :4]) and np.all(np.asarray(part) == 1)


class TestTorch:
    """With PyTorch's tensors. scripts/test-python fails where PyTorch is not installed."""

    torch = pytest.importorskip("torch")

    def test_a_tensor_over_an_image(self, device):
        image = Image(device, ImageDescriptor(ImageFeatureChannelFormat.Float32, 3, 2, 5))
        tensor = self.torch.from_dlpack(image)
        assert tuple(tensor.shape) == (2, 3, 5) and tensor.dtype == self.torch.float32
        tensor[1, 2, 4] = 7
        assert np.asarray(image)[1, 2, 4] == 7
        np.asarray(image)[0, 0, 0] = 8
        assert tensor[0, 0, 0] == 8

    def test_an_image_over_a_tensor(self, device):
        tensor = self.torch.zeros(2, 3, 5, dtype=self.torch.float16)
        image = Image.from_array(device, tensor, copy=False)
        tensor[1, 2, 4] = 7
        assert np.asarray(image)[1, 2, 4] == 7
        np.asarray(image)[0, 0, 0] = 8
        assert tensor[0, 0, 0] == 8

    def test_channels_last_tensors_are_batches(self, device, queue):
        tensor = self.torch.randn(2, 3, 4, 6).contiguous(memory_format=self.torch.channels_last)
        batch = ImageBatch.from_array(device, tensor, planes, copy=False)
        assert np.array_equal(np.asarray(batch), tensor.permute(0, 2, 3, 1).numpy())
        pool = unmetal.CNNPoolingMax(device, 2, 2, 2, 2)
        pool.offset = unmetal.Offset(1, 1, 0)
        result = self.torch.full((2, 3, 2, 3), float("nan")).contiguous(memory_format=self.torch.channels_last)
        with queue.command_buffer() as command_buffer:
            pool.encode_batch(command_buffer, batch, ImageBatch.from_array(device, result, planes, copy=False))
        assert self.torch.equal(result, self.torch.nn.functional.max_pool2d(tensor, 2))
        back = self.torch.from_dlpack(batch)
        back[0, 1, 2, 0] = 99
        assert tensor[0, 0, 1, 2] == 99

    def test_contiguous_tensors_are_copied(self, device):
        tensor = self.torch.randn(2, 3, 4, 5)
        batch = ImageBatch.from_array(device, tensor, planes)
        assert np.array_equal(np.asarray(batch), tensor.permute(0, 2, 3, 1).numpy())
        with pytest.raises(unmetal.ArgumentError, match="channels that are not adjacent"):
            ImageBatch.from_array(device, tensor, planes, copy=False)
        with pytest.raises(unmetal.ArgumentError, match="array is bfloat16"):
            Image.from_array(device, tensor[0].bfloat16())


def readers(device):
    """What reads into an array [2][4][3] of float32."""
    elements = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    image = unmetal.Image.from_array(device, elements, copy=True)
    batch = unmetal.ImageBatch.from_array(device, elements[None], copy=True)
    whole = unmetal.mtl.Region(unmetal.mtl.Origin(0, 0, 0), unmetal.mtl.Size(4, 2, 1))
    yield image.read_bytes
    yield lambda array: image.read_bytes(array, unmetal.DataLayout.HeightxWidthxFeatureChannels, unmetal.DataStrides(), whole,
                                         unmetal.ImageReadWriteParams(0, 3))
    yield batch.read_bytes
    yield unmetal.NDArray.from_array(device, elements).read_bytes
    wide = unmetal.Image.from_array(device, elements.reshape(2, 3, 4), copy=True)
    part = unmetal.mtl.Region(unmetal.mtl.Origin(0, 0, 0), unmetal.mtl.Size(3, 2, 1))
    yield lambda array: unmetal.TextureView(wide).get_bytes(array, 48, part, 0)


def test_reading_into_an_array_with_gaps_raises(device):
    """Nothing is read into a copy that nobody sees."""
    for read in readers(device):
        suited = np.zeros((2, 4, 3), np.float32)
        read(suited)
        assert suited.ravel().tolist() == list(range(24))
        for array in (np.zeros((2, 4, 6), np.float32)[..., ::2], np.zeros((2, 4, 3), np.float32, order="F")):
            with pytest.raises(unmetal.ArgumentError, match="(destination|bytes) is an array with gaps or in another order"):
                read(array)
        suited.setflags(write=False)
        for unsuited in (suited, suited.tolist()):
            with pytest.raises(TypeError):
                read(unsuited)


def test_reading_into_tensors(device):
    torch = pytest.importorskip("torch")
    for read in readers(device):
        suited = torch.zeros(2, 4, 3)
        read(suited)
        assert suited.flatten().tolist() == list(range(24))
        for array in (torch.zeros(2, 4, 6)[..., ::2], torch.zeros(3, 4, 2).permute(2, 1, 0)):
            with pytest.raises(unmetal.ArgumentError, match="is an array with gaps or in another order"):
                read(array)


def test_the_other_byte_order_is_refused(device):
    other = np.zeros((2, 4, 3), np.dtype(np.float32).newbyteorder())
    with pytest.raises(unmetal.ArgumentError, match="array is of the other byte order"):
        unmetal.Image.from_array(device, other)
