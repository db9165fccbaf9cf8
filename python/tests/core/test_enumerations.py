"""Only members of an enumeration pass as its values: numbers, which some member may have, are of another argument."""

import enum

import numpy as np
import pytest

import unmetal
from unmetal import mtl
from sources import Filters


def property_of(owner, name):
    return lambda value: setattr(owner, name, value)


@pytest.fixture
def takers(device):
    """What takes a value of an enumeration, with values that it takes."""
    pool = unmetal.CNNPoolingMax(device, 2, 2)
    policy = unmetal.NNDefaultPadding
    weights = Filters(np.ones((1, 1, 1, 1), np.float32))
    gradient = unmetal.CNNConvolutionGradient(device, weights)
    node = unmetal.CNNConvolutionNode(unmetal.NNImageNode(), weights)
    descriptor = unmetal.ImageDescriptor(unmetal.ImageFeatureChannelFormat.Float32, 1, 1, 1)
    normalization = unmetal.CNNBatchNormalizationNode(unmetal.NNImageNode(), unmetal.TrainableBatchNormalization(device, 1, "layer"))
    return [
        (property_of(pool, "edge_mode"), unmetal.ImageEdgeMode),
        (property_of(pool, "options"), [option for option in unmetal.KernelOptions]),
        (lambda value: unmetal.ImageDescriptor(value, 1, 1, 1), unmetal.ImageFeatureChannelFormat),
        (lambda value: unmetal.ImageDescriptor(unmetal.ImageFeatureChannelFormat.Float32, 1, 1, 1, usage=value), unmetal.TextureUsage),
        (property_of(descriptor, "channel_format"), unmetal.ImageFeatureChannelFormat),
        (property_of(gradient, "gradient_option"), unmetal.CNNConvolutionGradientOption),
        (property_of(node, "training_style"), unmetal.NNTrainingStyle),
        (property_of(normalization, "flags"), unmetal.CNNBatchNormalizationFlags),
        (lambda value: policy.padding(value), [unmetal.NNPaddingMethod.SizeSame]),
        (lambda value: unmetal.CNNLossDescriptor(value, unmetal.CNNReductionType.Sum), unmetal.CNNLossType),
        (lambda value: unmetal.CNNLossDescriptor(unmetal.CNNLossType.MeanSquaredError, value), unmetal.CNNReductionType),
        (lambda value: device.new_buffer(4, value), mtl.ResourceOptions),
        (lambda value: unmetal.VectorDescriptor(1, value), [unmetal.DataType.Float32]),
    ]


def test_members_pass(takers):
    for take, members in takers:
        for member in members:
            take(member)


def test_numbers_do_not_pass(takers):
    for take, members in takers:
        for member in members:
            for number in (member.value, np.int64(member.value), -1, 1 << 40, True, False, 0.0, "Float32", None):
                with pytest.raises(TypeError):
                    take(number)


def test_members_of_another_enumeration_do_not_pass(takers):
    for take, members in takers:
        with pytest.raises(TypeError):
            take(unmetal.PurgeableState.KeepCurrent)


def test_flags_combine_and_have_no_other_bits(device):
    pool = unmetal.CNNPoolingMax(device, 2, 2)
    options = unmetal.KernelOptions
    both = options.AllowReducedPrecision | options.InsertDebugGroups
    pool.options = both
    assert pool.options == both and options.InsertDebugGroups in pool.options
    pool.options &= ~options.InsertDebugGroups
    assert pool.options == options.AllowReducedPrecision
    pool.options = options.None_
    assert pool.options == options.None_ and not pool.options
    for flags in (each for each in vars(unmetal).values() if isinstance(each, type) and issubclass(each, enum.Flag)):
        with pytest.raises(ValueError, match=flags.__name__):
            flags(1 << 40)
        with pytest.raises(TypeError):
            next(iter(flags)) | 1


def test_what_an_override_returns_is_a_member(device):
    class Numbered(Filters):
        weights_quantization_type = 0

    with pytest.raises(TypeError, match="weights_quantization_type"):
        unmetal.CNNConvolution(device, Numbered(np.ones((1, 1, 1, 1), np.uint8)))


def test_the_complement_of_flags_has_the_other_members():
    for flags in (unmetal.NNPaddingMethod, unmetal.KernelOptions, unmetal.TextureUsage):
        singles = [member for member in flags if member.value.bit_count() == 1]
        for member in singles:
            others = ~member
            assert isinstance(others, flags) and ~others == member
            assert [other for other in singles if other in others] == [other for other in singles if other is not member]
    method = unmetal.NNPaddingMethod.SizeSame | unmetal.NNPaddingMethod.ExcludeEdges
    assert method & ~unmetal.NNPaddingMethod.ExcludeEdges == unmetal.NNPaddingMethod.SizeSame
