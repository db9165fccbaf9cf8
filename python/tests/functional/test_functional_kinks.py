"""Gradients of unmetal.nn.functional where functions have kinks, and places of arguments: PyTorch's."""

import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as T  # noqa: E402

import unmetal  # noqa: E402
import unmetal.nn.functional as F  # noqa: E402
from torch_judge import gamma  # noqa: E402

pytestmark = pytest.mark.usefixtures("in_each_way")


def around(*kinks):
    """The kinks, the numbers of float32 next to them, both zeros, and two others."""
    numbers = [-0.0, -20.0, 25.0]
    for kink in map(np.float32, kinks):
        numbers += [kink, np.nextafter(kink, np.float32(-np.inf)), np.nextafter(kink, np.float32(np.inf))]
    return np.array(numbers, np.float32).reshape(-1, 1)


# name: (kinks, arguments of both)
ACTIVATIONS = {
    "relu": ((0,), {}), "relu6": ((0, 6), {}), "leaky_relu": ((0,), {"negative_slope": 0.25}), "elu": ((0,), {"alpha": 2.5}),
    "hardsigmoid": ((-3, 0, 3), {}), "hardswish": ((-3, 0, 3), {}), "hardtanh": ((-1, 1), {}),
    "softplus": ((0, 1), {"beta": 2.0, "threshold": 2.0}), "softsign": ((0,), {}), "silu": ((0,), {}), "mish": ((0,), {}),
    "gelu": ((0,), {"approximate": "tanh"})}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    kinks, arguments = ACTIVATIONS[name]
    x = around(*kinks)
    g = np.linspace(0.5, 2, x.size, dtype=np.float32).reshape(x.shape)
    tensor = torch.tensor(x, requires_grad=True)  # in float32, whose numbers next to a kink these are
    y = getattr(T, name)(tensor, **arguments)
    y.backward(torch.tensor(g))
    assert np.all(np.abs(getattr(F, name)(x, **arguments) - y.detach().numpy()) <= gamma(16) * (1 + np.abs(x)))
    found, expected = getattr(F, name + "_backward")(g, x, **arguments), tensor.grad.numpy()
    if name == "hardswish":  # as PyTorch 2.11 has it; 1.13 has the slopes of the curve there
        expected[x == -3], expected[x == 3] = 0, g[x == 3]
    assert np.all(np.abs(found - expected) <= gamma(32) * g * (1 + np.abs(x))), np.c_[x, found / g, expected / g]


def test_hardtanh_of_other_bounds():
    x = around(-2, 0.5)
    tensor = torch.tensor(x, requires_grad=True)
    T.hardtanh(tensor, -2.0, 0.5).sum().backward()
    assert np.array_equal(F.hardtanh(x, -2.0, 0.5), np.clip(x, -2, 0.5))
    assert np.array_equal(F.hardtanh_backward(np.ones_like(x), x, -2.0, 0.5), tensor.grad.numpy())


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_prelu(layout):
    x = np.zeros((2, 3, 4, 5), np.float32)
    x[1] = np.linspace(-1, 1, 60, dtype=np.float32).reshape(3, 4, 5)
    slopes, g = np.array([0.25, -2, 3], np.float32), np.arange(x.size, dtype=np.float32).reshape(x.shape)
    tensor = torch.tensor(x, requires_grad=True)
    T.prelu(tensor, torch.tensor(slopes)).backward(torch.tensor(g))
    turned = (lambda array: np.ascontiguousarray(np.moveaxis(array, 1, -1))) if layout == "NHWC" else (lambda array: array)
    assert np.array_equal(F.prelu_backward(turned(g), turned(x), slopes, layout=layout), turned(tensor.grad.numpy()))
    one = torch.tensor(x, requires_grad=True)
    T.prelu(one, torch.tensor([0.5])).sum().backward()
    assert np.array_equal(F.prelu_backward(turned(np.ones_like(x)), turned(x), np.array([0.5], np.float32), layout=layout),
                          turned(one.grad.numpy()))


def test_float16():
    x = np.array([[-1, -0.0, 0, 1, 3, 6]], np.float16)
    ones = np.ones_like(x)
    for found, expected in ((F.relu_backward(ones, x), [0, 0, 0, 1, 1, 1]), (F.relu6_backward(ones, x), [0, 0, 0, 1, 1, 0]),
                            (F.leaky_relu_backward(ones, x, 0.5), [0.5, 0.5, 0.5, 1, 1, 1]),
                            (F.hardtanh_backward(ones, x, -1, 3), [0, 1, 1, 1, 0, 0])):
        assert found.dtype == np.float16 and found.tolist() == [expected]


def test_the_kernel_alone_has_the_positive_side():
    descriptor = unmetal.NNNeuronDescriptor(unmetal.CNNNeuronType.ReLU, 0)
    assert F.neuron_backward(np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32), descriptor=descriptor) == 1


@pytest.mark.parametrize("name, arguments", [("l1_loss", {}), ("smooth_l1_loss", {"beta": 0.5}), ("smooth_l1_loss", {"beta": 0.0}),
                                             ("huber_loss", {"delta": 0.5}), ("mse_loss", {})])
def test_losses(name, arguments):
    x = around(0, 0.5, -0.5)
    t = np.zeros_like(x)
    tensors = [torch.tensor(array, requires_grad=True) for array in (x, t)]
    getattr(T, name)(*tensors, reduction="sum", **arguments).backward()
    found = getattr(F, name + "_backward")(1.0, x, t, reduction="sum", **arguments)
    for ours, theirs in zip(found, tensors):
        expected = theirs.grad.numpy()
        if arguments == {"beta": 0.0}:  # as PyTorch 2.11 has it; 1.13 has -1 there
            expected[x == t] = 0
        assert np.all(np.abs(ours - expected) <= gamma(8) * (1 + np.abs(x)))


def test_equal_maxima():
    x = np.zeros((1, 1, 4, 4), np.float32)
    tensor = torch.tensor(x, requires_grad=True)
    T.max_pool2d(tensor, 3, 1).sum().backward()
    assert np.array_equal(F.max_pool2d_backward(np.ones((1, 1, 2, 2), np.float32), x, 3, 1, layout="NCHW"), tensor.grad.numpy())


# Of functions whose signature PyTorch does not show.
BUILT_IN = {
    "conv2d": "input weight bias stride padding dilation groups",
    "conv_transpose2d": "input weight bias stride padding output_padding groups dilation", "linear": "input weight bias",
    "avg_pool2d": "input kernel_size stride padding ceil_mode count_include_pad divisor_override",
    "max_pool2d": "input kernel_size stride padding dilation ceil_mode return_indices", "gelu": "input approximate",
    "softplus": "input beta threshold", "prelu": "input weight", "pad": "input pad mode value",
    "pixel_shuffle": "input upscale_factor", "add": "input other", "sub": "input other", "mul": "input other",
    "div": "input other", "cat": "tensors dim", "sigmoid": "input", "tanh": "input"}
OURS = {"neuron", "neuron_backward", "l2_pool2d"}


def test_places_of_arguments():
    functional = unmetal.nn.functional
    for name in functional.__all__:
        if name in OURS or name.endswith("_backward"):
            continue
        ours = [parameter.name for parameter in inspect.signature(getattr(functional, name)).parameters.values()
                if parameter.kind == parameter.POSITIONAL_OR_KEYWORD]
        theirs = BUILT_IN[name].split() if name in BUILT_IN else list(inspect.signature(getattr(T, name)).parameters)
        assert ours == theirs[:len(ours)], name


def test_reductions_by_the_arguments_that_pytorch_replaced():
    x, t = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)
    for size_average in (None, True, False):
        for reduce in (None, True, False):
            if size_average is reduce is None:
                continue
            with pytest.warns(UserWarning):
                expected = T.mse_loss(torch.tensor(x), torch.tensor(t), size_average, reduce)
            assert np.array_equal(F.mse_loss(x, t, size_average, reduce), expected.numpy())
    for wrong in ("sum", 1):
        with pytest.raises(unmetal.ArgumentError, match="size_average is .*reduction is an argument of its own"):
            F.mse_loss(x, t, wrong)
