"""Padding policies and allocators written in Python."""

import gc
import weakref

import numpy as np
import pytest

import unmetal
from unmetal import NNDefaultPadding, NNPadding, NNPaddingMethod


@pytest.fixture
def pool(device, permanent):
    made = unmetal.CNNPoolingMax(device, 2, 2, 2, 2)
    made.destination_image_allocator = permanent
    return made


@pytest.fixture
def image(image_of):
    return image_of(np.arange(36, dtype=np.float32).reshape(6, 6, 1))


class Narrower(NNPadding):
    """One column less, and an offset of its own."""

    padding_method = NNPaddingMethod.SizeValidOnly | NNPaddingMethod.Custom
    label = "narrower"

    def __init__(self):
        super().__init__()
        self.calls = []

    def destination_image_descriptor(self, images, states, kernel, suggested):
        self.calls.append((images, states, kernel))
        suggested.width -= 1
        kernel.offset = unmetal.Offset(kernel.offset.x + 1, kernel.offset.y, 0)
        return suggested


def test_a_policy_decides(pool, image, queue):
    policy = Narrower()
    pool.padding = policy
    with queue.command_buffer() as command_buffer:
        result = pool.encode(command_buffer, image)
    assert np.asarray(result).shape == (3, 2, 1)
    assert np.asarray(result)[0].ravel().tolist() == [8, 10]
    (images, states, kernel), = policy.calls
    assert images == [image] and states == [] and kernel is pool
    assert pool.padding is policy and pool.padding.label == "narrower"


def test_a_policy_lives_as_long_as_its_kernel(pool, image, queue):
    pool.padding = Narrower()
    gc.collect()
    with queue.command_buffer() as command_buffer:
        assert pool.encode(command_buffer, image).width == 2
    assert type(pool.padding) is Narrower


def test_cycles_are_collected(device, image, queue):
    """An allocator that keeps its kernels, as `permanent` does, goes with the last of them."""

    class Keeping(unmetal.ImageAllocator):
        def image(self, command_buffer, descriptor, kernel):
            self.kernel = kernel
            return unmetal.Image(command_buffer.device, descriptor)

    pool = unmetal.CNNPoolingMax(device, 2, 2)
    pool.destination_image_allocator = Keeping()
    pool.destination_image_allocator.mark = Mark()
    mark = weakref.ref(pool.destination_image_allocator.mark)
    with queue.command_buffer() as command_buffer:
        pool.encode(command_buffer, image)
    copied = pool.copy()
    del pool
    gc.collect()
    assert mark() is not None and type(copied.destination_image_allocator) is Keeping
    with queue.command_buffer() as command_buffer:
        copied.encode(command_buffer, image)
    del copied, command_buffer
    gc.collect()
    gc.collect()
    assert mark() is None


class Mark:
    """What can be waited for to go."""


def test_what_a_policy_raises_leaves_the_encode(pool, image, queue):
    class Broken(NNPadding):
        padding_method = NNPaddingMethod.Custom

        def destination_image_descriptor(self, images, states, kernel, suggested):
            raise KeyError("no such policy")

    pool.padding = Broken()
    with pytest.raises(KeyError, match="no such policy"):
        pool.encode(queue.command_buffer(), image)

    class Wrong(Broken):
        def destination_image_descriptor(self, images, states, kernel, suggested):
            return "a descriptor"

    pool.padding = Wrong()
    with pytest.raises(TypeError, match="what destination_image_descriptor.. returns is .*str.*, expected an ImageDescriptor"):
        pool.encode(queue.command_buffer(), image)

    class Silent(NNPadding):
        padding_method = NNPaddingMethod.Custom

    pool.padding = Silent()
    with pytest.raises(unmetal.Error):
        pool.encode(queue.command_buffer(), image)

    class Empty(NNPadding):
        pass

    pool.padding = Empty()
    with pytest.raises(NotImplementedError, match="padding_method"):
        pool.encode(queue.command_buffer(), image)


def test_what_is_no_property_of_a_policy_is_a_type_error(pool, image, queue):
    class Wrong(NNPadding):
        padding_method = "same"

    pool.padding = Wrong()
    with pytest.raises(TypeError, match="padding_method is .*str.*, expected an NNPaddingMethod"):
        pool.encode(queue.command_buffer(), image)

    class Misused(NNPadding):
        padding_method = NNPaddingMethod.SizeSame
        label = 3

        def inverse(self):  # a property, like all of C++'s functions without arguments
            return None

    node = unmetal.CNNPoolingMaxNode(unmetal.NNImageNode(), 2, 2)
    node.padding_policy = Misused()
    with pytest.raises(TypeError, match="inverse is .*, expected an NNPadding or None"):
        node.gradient_filter(unmetal.NNImageNode())


def test_a_policy_may_call_its_base_class(pool, image, queue):
    class Asking(NNPadding):
        padding_method = NNPaddingMethod.SizeSame | NNPaddingMethod.Custom

        @property
        def label(self):
            return super().label + "asking"

        @property
        def inverse(self):
            return super().inverse

        def destination_image_descriptor(self, *arguments):
            return super().destination_image_descriptor(*arguments)

    policy = Asking()
    assert policy.label == "asking" and policy.inverse is None
    pool.padding = policy
    with pytest.raises(unmetal.Error, match="destination_image_descriptor"):
        pool.encode(queue.command_buffer(), image)

    class Methodless(NNPadding):
        @property
        def padding_method(self):
            return super().padding_method

    with pytest.raises(NotImplementedError, match="padding_method"):
        Methodless().padding_method


def test_an_allocator_may_call_its_base_class(pool, image, queue):
    class Asking(unmetal.ImageAllocator):
        def image(self, command_buffer, descriptor, kernel):
            return super().image(command_buffer, descriptor, kernel)

    pool.destination_image_allocator = Asking()
    with pytest.raises(NotImplementedError, match="image is to be defined"):
        pool.encode(queue.command_buffer(), image)

    class OneByOne(unmetal.ImageAllocator):
        def image(self, command_buffer, descriptor, kernel):
            return unmetal.Image(command_buffer.device, descriptor)

        def image_batch(self, *arguments):
            return super().image_batch(*arguments)

    pool.destination_image_allocator = OneByOne()
    with queue.command_buffer() as command_buffer:
        assert len(pool.encode_batch(command_buffer, [image, image])) == 2
        assert unmetal.Image.default_allocator().image(command_buffer, image.descriptor, pool).width == 6


def test_what_an_allocator_does_not_return_is_a_type_error(pool, image, queue):
    class Wrong(unmetal.ImageAllocator):
        def image(self, command_buffer, descriptor, kernel):
            return 3

    class WrongBatch(Wrong):
        def image_batch(self, command_buffer, descriptor, kernel, count):
            return None

    pool.destination_image_allocator = Wrong()
    with pytest.raises(TypeError, match="what image.. returns is .*int.*, expected an Image"):
        pool.encode(queue.command_buffer(), image)
    pool.destination_image_allocator = WrongBatch()
    with pytest.raises(TypeError, match="what image_batch.. returns is .*NoneType.*, expected an ImageBatch"):
        pool.encode_batch(queue.command_buffer(), [image])


def test_the_librarys_policies(pool, image, queue):
    full = NNDefaultPadding.padding(NNPaddingMethod.SizeFull)
    assert full.padding_method == NNPaddingMethod.SizeFull
    assert full.inverse.padding_method == NNPaddingMethod.SizeValidOnly
    pool.padding = full
    descriptor = pool.destination_image_descriptor([image])
    assert (descriptor.width, descriptor.height) == (4, 4)
    with pytest.raises(unmetal.Error, match="Custom"):
        NNDefaultPadding.padding(NNPaddingMethod.Custom)
    for policy in (NNDefaultPadding.padding_for_tensorflow_average_pooling(),
                   NNDefaultPadding.padding_for_tensorflow_average_pooling_valid_only()):
        assert policy.label
        archiver = unmetal.KeyedArchiver()
        policy.encode(archiver)
        assert NNDefaultPadding.decode(unmetal.KeyedUnarchiver(archiver.encoded_data())).label == policy.label


def test_an_allocator_makes_destinations(pool, permanent, image, queue):
    with queue.command_buffer() as command_buffer:
        one = pool.encode(command_buffer, image)
        several = pool.encode_batch(command_buffer, [image, image])
    assert not one.is_temporary and len(several) == 2 and len(permanent.asked) == 3
    descriptor, kernel = permanent.asked[0]
    assert descriptor == one.descriptor and kernel is pool
    assert pool.destination_image_allocator is permanent


def test_an_allocator_makes_batches(pool, image, queue):
    class Blocks(unmetal.ImageAllocator):
        def image(self, command_buffer, descriptor, kernel):
            return unmetal.Image(command_buffer.device, descriptor)

        def image_batch(self, command_buffer, descriptor, kernel, count):
            return unmetal.ImageBatch(command_buffer.device, descriptor, count)

    pool.destination_image_allocator = Blocks()
    with queue.command_buffer() as command_buffer:
        several = pool.encode_batch(command_buffer, [image, image])
    assert np.asarray(several).shape == (2, 3, 3, 1)


def test_an_allocator_that_makes_nothing(pool, image, queue):
    class Nothing(unmetal.ImageAllocator):
        def image(self, command_buffer, descriptor, kernel):
            return None

    pool.destination_image_allocator = Nothing()
    with pytest.raises(unmetal.Error):
        pool.encode(queue.command_buffer(), image)

    class Small(unmetal.ImageAllocator):
        def image(self, command_buffer, descriptor, kernel):
            descriptor.width += 1
            return unmetal.Image(command_buffer.device, descriptor)

    pool.destination_image_allocator = Small()
    with pytest.raises(unmetal.Error):
        pool.encode(queue.command_buffer(), image)
    pool.destination_image_allocator = unmetal.ImageAllocator()
    with pytest.raises(NotImplementedError, match="image"):
        pool.encode(queue.command_buffer(), image)
