"""Values are compared, hashed, copied and pickled by what they hold; everything has a repr; batches are sequences."""

import copy
import enum
import pickle

import numpy as np
import pytest

import unmetal
from unmetal import Image, ImageBatch, ImageDescriptor, ImageFeatureChannelFormat, Offset, mtl


def changed(value, **fields):
    for name, field in fields.items():
        setattr(value, name, field)
    return value


def yolo(boxes):
    types = unmetal.CNNLossType
    return unmetal.CNNYOLOLossDescriptor(types.MeanSquaredError, types.Huber, types.SigmoidCrossEntropy,
                                         types.SoftMaxCrossEntropy, unmetal.CNNReductionType.Sum, boxes, 1)


def descriptors():
    """(a value with properties that are not the defaults, another one of its class)"""
    convolution = unmetal.CNNConvolutionDescriptor
    depth_wise, sub_pixel = unmetal.CNNDepthWiseConvolutionDescriptor, unmetal.CNNSubPixelConvolutionDescriptor
    relu = unmetal.NNNeuronDescriptor(unmetal.CNNNeuronType.ReLU, 0.5)
    loss = unmetal.CNNLossDescriptor(unmetal.CNNLossType.Huber, unmetal.CNNReductionType.Sum)
    return [
        (Offset(1, -2, 3), Offset(1, -2, 4)),
        (unmetal.ImageCoordinate(1, 2, 3), unmetal.ImageCoordinate(1, 2, 4)),
        (unmetal.ImageRegion(unmetal.ImageCoordinate(1, 2, 3), unmetal.ImageCoordinate(4, 5, 6)), unmetal.ImageRegion()),
        (unmetal.ImageReadWriteParams(4, 8), unmetal.ImageReadWriteParams(0, 8)),
        (unmetal.DataStrides(1, 2, 3), unmetal.DataStrides(1, 2, 4)),
        (unmetal.ImageStrides(1, 2, 3), unmetal.ImageStrides(1, 2, 4)),
        (unmetal.NormalizedRegion(0.25, 0.5, 1, -1), unmetal.NormalizedRegion()),
        (unmetal.ScaleTransform(2, 3, 0.5, 1), unmetal.ScaleTransform()),
        (unmetal.StateResourceList([4, 8]), unmetal.StateResourceList([4])),
        (unmetal.MatrixOffset(1, 2), unmetal.MatrixOffset(1, 3)),
        (unmetal.MatrixCopyOffsets(1, 2, 3, 4), unmetal.MatrixCopyOffsets(1, 2, 3, 5)),
        (unmetal.LossScaleOptions(2.0, 3.0, 0.25, 7), unmetal.LossScaleOptions()),
        (mtl.Origin(1, 2, 3), mtl.Origin()),
        (mtl.Size(1, 2, 3), mtl.Size()),
        (mtl.Region(mtl.Origin(1, 2, 3), mtl.Size(4, 5, 6)), mtl.Region()),
        (ImageDescriptor(ImageFeatureChannelFormat.Float16, 4, 3, 2, 5), ImageDescriptor(ImageFeatureChannelFormat.Float16, 4, 3, 2)),
        (unmetal.MatrixDescriptor.matrix_descriptor(2, 3, 4, 12, 24, unmetal.DataType.Float32),
         unmetal.MatrixDescriptor.matrix_descriptor(2, 3, 12, unmetal.DataType.Float32)),
        (unmetal.VectorDescriptor(2, 3, 8, unmetal.DataType.Float32), unmetal.VectorDescriptor(2)),
        (unmetal.NDArrayDescriptor.descriptor(unmetal.DataType.Float32, [2, 3]),
         unmetal.NDArrayDescriptor.descriptor(unmetal.DataType.Float32, [3, 2])),
        (unmetal.MatrixRandomDistributionDescriptor.uniform_distribution_descriptor(-1, 1),
         unmetal.MatrixRandomDistributionDescriptor.uniform_distribution_descriptor(-1, 2)),
        (unmetal.NNNeuronDescriptor(unmetal.CNNNeuronType.Linear, 2, 3), relu),
        (changed(convolution(3, 2, 2, 4), stride_in_pixels_x=2, groups=2, fused_neuron_descriptor=relu), convolution(3, 2, 2, 4)),
        (changed(depth_wise(3, 3, 2, 4), stride_in_pixels_y=3), depth_wise(3, 3, 2, 4)),
        (changed(sub_pixel(3, 3, 2, 4), sub_pixel_scale_factor=2), sub_pixel(3, 3, 2, 4)),
        (changed(loss, delta=2.0, weight=3.0), unmetal.CNNLossDescriptor(unmetal.CNNLossType.Huber)),
        (yolo([1, 2]), yolo([1, 3])),
        (unmetal.NNOptimizerDescriptor(0.5, gradient_rescale=2.0), unmetal.NNOptimizerDescriptor(0.5)),
    ]


def name_of(pair):
    return type(pair[0]).__name__


@pytest.mark.parametrize("pair", descriptors(), ids=name_of)
def test_values(pair):
    value, other = pair
    assert value != other and value == value and value != "text" and value is not None
    copies = copy.copy(value), copy.deepcopy(value), *(pickle.loads(pickle.dumps(value, n)) for n in range(2, 6))
    for made in copies:
        assert made is not value and type(made) is type(value) and made == value and hash(made) == hash(value)
        assert repr(made) == repr(value)
    assert repr(value) != repr(other)
    assert len({value, *copies, other}) == 2


def test_a_folded_normalisation_goes_along():
    value = unmetal.CNNConvolutionDescriptor(3, 2, 2, 1)
    value.set_batch_normalization_parameters_for_inference([1], [2], [3], [4], 1e-3)
    assert copy.copy(value) == pickle.loads(pickle.dumps(value)) == value != unmetal.CNNConvolutionDescriptor(3, 2, 2, 1)


def test_every_value_class_is_here():
    """All that have no identity: descriptors and plain structures that can be made."""
    tried = {type(value) for value, _ in descriptors()}
    for module in (unmetal, mtl):
        for name, bound in vars(module).items():
            if isinstance(bound, type) and name.endswith("Descriptor"):
                assert bound in tried or bound is unmetal.MatrixCopyDescriptor, name


def test_the_repr_of_plain_values_makes_them():
    names = {**vars(unmetal), **vars(mtl)}
    for value, _ in descriptors():
        if isinstance(value, (Offset, mtl.Origin, mtl.Size, mtl.Region, unmetal.ImageRegion, unmetal.ScaleTransform)):
            assert eval(repr(value), names) == value
    assert repr(Offset(1, 2, 3)) == "Offset(x=1, y=2, z=3)"


def test_a_copy_of_a_loss_descriptor_has_the_same_loss_scale(device):
    loss = unmetal.CNNLossDescriptor(unmetal.CNNLossType.MeanSquaredError, unmetal.CNNReductionType.Sum)
    without = copy.copy(loss)
    loss.loss_scale = unmetal.LossScale(device)
    for made in (copy.copy(loss), copy.deepcopy(loss)):
        assert made.loss_scale is loss.loss_scale and made == loss and hash(made) == hash(loss)
    assert without.loss_scale is None and without != loss


@pytest.mark.parametrize("bound", sorted({found for module in (unmetal, mtl) for found in vars(module).values()
                                          if isinstance(found, type)}, key=lambda bound: bound.__name__),
                         ids=lambda bound: bound.__name__)
def test_every_class_has_a_repr(bound):
    if issubclass(bound, (enum.Enum, Exception)):
        return
    assert bound.__repr__ is not object.__repr__


def test_reprs(device):
    queue = device.new_command_queue()
    queue.label = "first"
    assert repr(queue) == '<CommandQueue "first" on cpu>'
    assert repr(unmetal.NNGradientState(device)) == "<NNGradientState on cpu>"
    assert repr(unmetal.KeyedArchiver()) == "<KeyedArchiver>"
    assert "rows=2" in repr(unmetal.MatrixDescriptor.matrix_descriptor(2, 3, 12, unmetal.DataType.Float32))


SLICES = [slice(1, 3), slice(None), slice(-2, None), slice(None, None, 2), slice(None, None, -1), slice(4, 1, -2), slice(3, 1),
          slice(10, 20), slice(-100, 2)]


@pytest.mark.parametrize("cut", SLICES, ids=str)
def test_slices_of_batches(device, cut):
    values = np.arange(5, dtype=np.float32).reshape(5, 1, 1, 1)
    batch = ImageBatch.from_array(device, values)
    part = batch[cut]
    assert isinstance(part, ImageBatch)
    assert [np.asarray(image).item() for image in part] == list(values[cut].ravel())
    states = unmetal.StateBatch([unmetal.NNGradientState(device) for _ in range(5)])
    assert list(states[cut]) == [states[i] for i in range(5)[cut]]


def test_a_slice_of_step_1_is_one_block(device):
    values = np.arange(4, dtype=np.float32).reshape(4, 1, 1, 1)
    part = ImageBatch.from_array(device, values)[1:3]
    assert np.shares_memory(np.asarray(part), values)
    with pytest.raises(TypeError, match="index is 'a'"):
        part["a"]
    with pytest.raises(IndexError):
        part[2]


def test_batches_are_iterable(device):
    batch = ImageBatch(device, ImageDescriptor(ImageFeatureChannelFormat.Float32, 2, 2, 1), 3)
    first, second, third = batch
    assert [first, second, third] == [batch[0], batch[1], batch[2]] and third in list(batch)
    assert list(reversed(list(batch)))[0] is third and list(ImageBatch()) == []
    assert isinstance(first, Image) and iter(batch) is not iter(batch)


def test_the_command_buffer_of_a_with_is_the_same_object(device):
    queue = device.new_command_queue()
    for made in (queue.command_buffer(), unmetal.CommandBuffer(queue)):
        with made as command_buffer:
            assert command_buffer is made
        assert made.status == mtl.CommandBufferStatus.Completed
    made = queue.command_buffer()
    encoder = made.blit_command_encoder()
    with encoder as inside:
        assert inside is encoder
    made.commit()
