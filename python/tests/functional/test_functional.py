"""unmetal.nn.functional with default arguments against PyTorch, and what it refuses."""

import inspect
import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as T  # noqa: E402

import torch_judge as judging  # noqa: E402
import unmetal  # noqa: E402
import unmetal.nn.functional as F  # noqa: E402

pytestmark = pytest.mark.usefixtures("in_each_way")


def normal(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


def check(name, theirs, allowed, arrays, random, layouts=("NHWC", "NCHW"), **arguments):
    for layout in layouts:
        judging.judge(getattr(F, name), getattr(F, name + "_backward"), theirs, allowed, arrays, random, layout, **arguments)


def sums(function, *roundings):
    return judging.of_sums(function, roundings)


def test_convolutions(random):
    x, w, b = normal(random, 2, 4, 5, 6), normal(random, 3, 4, 3, 2), normal(random, 3)
    for bias in (None, b):
        check("conv2d", T.conv2d, sums(T.conv2d, 25, 20, 32, 32), [x, w, bias], random, gradients=3)
        judging.judge(F.linear, F.linear_backward, T.linear, sums(T.linear, 8, 5, 32, 32),
                      [normal(random, 2, 5, 6), normal(random, 3, 6), bias], random, gradients=3)
    w = normal(random, 4, 3, 3, 2)
    orders = [(judging.last, judging.first), (lambda a: a.transpose(1, 2, 3, 0), lambda a: a.transpose(3, 0, 1, 2)),
              (np.asarray, np.asarray)]
    check("conv_transpose2d", T.conv_transpose2d, sums(T.conv_transpose2d, 26, 20, 62, 100), [x, w, b], random,
          orders=orders)


def test_padding_of_convolutions_by_name(random):
    x, w = normal(random, 2, 4, 5, 6), normal(random, 3, 4, 3, 2)
    for padding in ("same", "valid"):
        theirs = lambda x, w: T.conv2d(x, w, padding=padding, dilation=2)  # noqa: E731
        if padding == "valid":
            theirs = lambda x, w: T.conv2d(x, w, dilation=2)  # noqa: E731
        ours, backward = F.conv2d, lambda *arrays, **rest: F.conv2d_backward(*arrays, **rest)[:2]  # noqa: E731
        judging.judge(ours, backward, theirs, sums(theirs, 26, 20, 62), [x, w], random, "NCHW", padding=padding, dilation=2)


def test_float16(random):
    x, w = normal(random, 1, 4, 4, 3).astype(np.float16), normal(random, 2, 2, 2, 3)
    assert F.relu(x).dtype == np.float16 and np.array_equal(F.relu(x), np.maximum(x, 0))
    wide, narrow = F.conv2d(x.astype(np.float32), w), F.conv2d(x, w)
    assert narrow.dtype == np.float16 and np.array_equal(narrow, wide.astype(np.float16))
    dx, dw, db = F.conv2d_backward(narrow, x, w)
    assert (dx.dtype, dw.dtype, db.dtype) == (np.float16, np.float32, np.float32)


def test_windows(random):
    x = normal(random, 2, 3, 6, 5)
    for name in ("max_pool2d", "avg_pool2d"):
        theirs = lambda x: getattr(T, name)(x, 2)  # noqa: E731
        allowed = sums(theirs, 5, 5)
        if name == "max_pool2d":
            def allowed(arrays, incoming):  # copies
                return [0, 0]
        check(name, theirs, allowed, [x], random, kernel_size=2)
    theirs = lambda x: T.lp_pool2d(x, 2, 2)  # noqa: E731
    check("lp_pool2d", theirs, sums(theirs, 8, 10), [x], random, norm_type=2, kernel_size=2)
    check("l2_pool2d", theirs, sums(theirs, 8, 10), [x], random, kernel_size=2)
    theirs = lambda x: T.interpolate(x, scale_factor=2)  # noqa: E731
    check("interpolate", theirs, sums(theirs, 1, 4), [x], random, scale_factor=2)
    theirs = lambda x: T.pad(x, (1, 0, 2, 3))  # noqa: E731
    check("pad", theirs, sums(theirs, 0, 1), [x], random, pad=(1, 0, 2, 3))
    theirs = lambda x: T.interpolate(x, (9, 7), mode="bilinear")  # noqa: E731
    x = normal(random, 2, 3, 6, 5)
    check("interpolate", theirs, sums(theirs, 64, 64), [x], random, size=(9, 7), mode="bilinear")


def test_normalizations(random):
    x, w, b = normal(random, 3, 4, 5, 6), normal(random, 4), normal(random, 4)
    running = normal(random, 4), np.abs(normal(random, 4)) + 1
    statistics = [torch.tensor(array, dtype=torch.float64) for array in running]
    for training in (False, True):
        theirs = lambda x, w, b: T.batch_norm(x, *(s.clone() for s in statistics), w, b, training)  # noqa: E731
        given = [array.copy() for array in running]
        judging.judge(lambda x, w, b, **rest: F.batch_norm(x, *given, w, b, training, **rest),
                      lambda g, x, w, b, **rest: F.batch_norm_backward(g, x, *given, w, b, training, **rest), theirs,
                      judging.normalized_errors((0, 2, 3), 1e-5, 128, statistics=None if training else running),
                      [x, w, b], random, "NCHW")
        T.batch_norm(torch.tensor(x, dtype=torch.float64), *statistics, training=training)
        for found, expected in zip(given, statistics):
            assert np.abs(found - expected.numpy()).max() <= judging.gamma(128) * (1 + np.abs(x).max() ** 2)
    for layout in ("NHWC", "NCHW"):
        judging.judge(lambda x, w, b, **rest: F.instance_norm(x, None, None, w, b, **rest),
                      lambda g, x, w, b, **rest: F.instance_norm_backward(g, x, None, None, w, b, **rest),
                      lambda x, w, b: T.instance_norm(x, weight=w, bias=b), judging.normalized_errors((2, 3), 1e-5, 128),
                      [x, w, b], random, layout)
    judging.judge(lambda x, w, b, **rest: F.group_norm(x, 2, w, b, **rest),
                  lambda g, x, w, b, **rest: F.group_norm_backward(g, x, 2, w, b, **rest),
                  lambda x, w, b: T.group_norm(x, 2, w, b), judging.normalized_errors((2, 3, 4), 1e-5, 256, shape=(2, 2)),
                  [x, w, b], random, "NHWC")
    theirs = lambda x: T.local_response_norm(x, 3)  # noqa: E731
    check("local_response_norm", theirs, judging.local_response_errors(3), [x], random, size=3)


def elementwise(roundings):
    """Functions that grow no faster than their argument, of derivatives up to 1 or so."""
    def allowed(arrays, incoming):
        x = np.abs(arrays[0])
        return [judging.gamma(roundings) * (1 + x), judging.gamma(roundings) * (1 + x) * np.abs(incoming)]
    return allowed


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "relu6", "elu", "gelu", "hardsigmoid", "softplus", "softsign",
                                  "sigmoid", "tanh"])
def test_activations(random, name):
    judging.judge(getattr(F, name), getattr(F, name + "_backward"), getattr(torch, name, None) or getattr(T, name),
                  elementwise(16), [4 * normal(random, 3, 5)], random)


def test_softmax_and_prelu(random):
    x, slopes = normal(random, 2, 4, 3, 5), normal(random, 4)
    check("prelu", lambda x: T.prelu(x, torch.tensor(slopes, dtype=torch.float64)), elementwise(16), [x], random,
          weight=slopes)
    for name in ("softmax", "log_softmax"):
        check(name, lambda x: getattr(T, name)(x, 1), lambda arrays, incoming: [
            judging.gamma(32) * (1 + np.abs(arrays[0]).max()),
            judging.gamma(32) * (1 + np.abs(arrays[0]).max()) * np.abs(incoming).sum(axis=1, keepdims=True)], [x], random)


def test_arithmetic(random):
    x, y = normal(random, 2, 4, 3, 5), 1 + np.abs(normal(random, 2, 4, 1, 1))
    for name in ("add", "sub", "mul", "div"):
        magnitudes = torch.add if name == "sub" else getattr(torch, name)
        check(name, getattr(torch, name), sums(magnitudes, 2, 2, 20), [x, y], random)
    parts = [normal(random, 2, channels, 3, 4) for channels in (1, 4, 3)]
    for layout in ("NHWC", "NCHW"):
        judging.judge(lambda *tensors, layout: F.cat(tensors, layout=layout),
                      lambda g, *tensors, layout: F.cat_backward(g, tensors, layout=layout),
                      lambda *tensors: torch.cat(tensors, 1), lambda arrays, incoming: [0] * 4, parts, random, layout)


def test_dropout(random):
    x = normal(random, 2, 40, 30, 5)
    y = F.dropout(x, seed=0)
    assert np.all((y == 0) | (y == 2 * x)) and abs(np.mean(y == 0) - 0.5) < 0.05
    assert np.array_equal(F.dropout_backward(np.ones_like(x), x, seed=0), 2 * (y != 0))
    assert not np.array_equal(F.dropout(x, seed=1), y) and np.array_equal(F.dropout(x, training=False), x)
    for array in (x, x.astype(np.float16)):
        zeros = F.dropout(array, p=1.0), F.dropout_backward(array, array, p=1.0)
        assert all(zero.dtype == array.dtype and zero.shape == array.shape and not zero.any() for zero in zeros)
    assert np.array_equal(F.dropout(x, p=0.0), x)


def test_losses(random):
    x, t = normal(random, 3, 4, 2), random.random((3, 4, 2)).astype(np.float32)
    for name in ("mse_loss", "l1_loss", "huber_loss", "binary_cross_entropy_with_logits"):
        def allowed(arrays, incoming):
            size = 1 + np.abs(arrays[0]).max() + np.abs(arrays[1]).max()
            return [judging.gamma(64) * size ** 2, *[judging.gamma(64) * size * np.abs(incoming)] * 2]
        judging.judge(getattr(F, name), getattr(F, name + "_backward"), getattr(T, name), allowed, [x, t], random)
    images, pixels = normal(random, 3, 4, 2, 5), random.integers(0, 4, (3, 2, 5))
    check("cross_entropy", lambda x: T.cross_entropy(x, torch.tensor(pixels)), lambda arrays, incoming: [
        judging.gamma(64) * (1 + np.abs(images).max()), judging.gamma(64) * (1 + np.abs(images).max()) * np.abs(incoming)],
        [images], random, target=pixels)


def test_every_function_has_a_docstring_and_a_backward():
    functional = unmetal.nn.functional
    public = {name for name, value in vars(functional).items() if inspect.isfunction(value) and not name.startswith("_")}
    assert public == set(functional.__all__) and list(functional.__all__) == sorted(functional.__all__)
    names = [name for name in functional.__all__ if not name.endswith("_backward")]
    for name in names:
        forward = getattr(functional, name)
        assert forward.__doc__ and forward.__annotations__["return"]
        if name == "grid_sample":  # of which MPS has no gradient
            continue
        backward = getattr(functional, name + "_backward")
        assert backward.__doc__
        assert list(inspect.signature(backward).parameters)[1:] == list(inspect.signature(forward).parameters), name


def test_wrong_use_raises():
    x, w = np.zeros((1, 5, 6, 4), np.float32), np.zeros((3, 2, 2, 4), np.float32)
    for call in (lambda: F.conv2d(x, w.transpose(0, 3, 1, 2)), lambda: F.conv2d(x, w, layout="NCHW"),
                 lambda: F.conv2d(x.transpose(0, 3, 1, 2), w), lambda: F.conv2d(x, w, np.zeros(4, np.float32)),
                 lambda: F.conv2d(x[0, 0], w), lambda: F.conv2d(x, w, layout="HWC"), lambda: F.conv2d(x, w, stride=2, padding="same"),
                 lambda: F.conv2d(x[:, :1], w), lambda: F.conv_transpose2d(x, w[..., :3]),
                 lambda: F.conv_transpose2d(x, w, output_padding=1), lambda: F.linear(x, w[0, 0, :, :3]),
                 lambda: F.max_pool2d(x, 2, padding=2), lambda: F.max_pool2d(x, 9), lambda: F.lp_pool2d(x, 3, 2),
                 lambda: F.instance_norm(x, weight=np.ones(5, np.float32)), lambda: F.layer_norm(x, 5),
                 lambda: F.layer_norm(x, (6, 4), np.ones(4, np.float32)), lambda: F.adaptive_avg_pool2d(x, 0),
                 lambda: F.pixel_shuffle(x, 3), lambda: F.gelu(x, "erf"), lambda: F.hardtanh(x, 2, 1),
                 lambda: F.grid_sample(x, np.zeros((2, 3, 3, 2), np.float32)), lambda: F.smooth_l1_loss(x, x, beta=-1),
                 lambda: F.grid_sample(x, np.zeros((1, 3, 3, 2), np.float32), "bicubic"), lambda: F.nll_loss(x, x),
                 lambda: F.binary_cross_entropy(x, x, np.ones(3, np.float32)), lambda: F.mse_loss(x, x, reduction="median"), lambda: F.group_norm(x, 3),
                 lambda: F.batch_norm(x, None, None), lambda: F.interpolate(x), lambda: F.interpolate(x, (7, 7)),
                 lambda: F.add(x, x[:, :2]),
                 lambda: F.pad(x, (1, -1)), lambda: F.pad(x, (6, 0), "reflect"), lambda: F.pad(x, (1,)), lambda: F.cat([x, x[:, :2]]), lambda: F.mse_loss(x, x[:, 1:]),
                 lambda: F.cross_entropy(x, np.full((1, 5, 6), 4)), lambda: F.mse_loss(x, x, "median"),
                 lambda: F.prelu(x, np.ones(3, np.float32)), lambda: F.relu_backward(x[:, 1:], x),
                 lambda: F.conv2d_backward(x, x, w), lambda: F.dropout(x, 1.5)):
        with pytest.raises(unmetal.Error):
            call()
    calls = {"conv2d": lambda **wrong: F.conv2d(x, w, **wrong), "conv_transpose2d": lambda **wrong: F.conv_transpose2d(x, w, **wrong),
             "max_pool2d": lambda **wrong: F.max_pool2d(x, **{"kernel_size": 2, **wrong}),
             "avg_pool2d": lambda **wrong: F.avg_pool2d(x, **{"kernel_size": 2, **wrong}),
             "l2_pool2d": lambda **wrong: F.l2_pool2d(x, **{"kernel_size": 2, **wrong})}
    for function, (argument, value) in itertools.product(calls, (
            ("kernel_size", 0), ("kernel_size", (2, -1)), ("stride", 0), ("stride", (1, 0)), ("stride", -1), ("padding", -1),
            ("padding", (0, -1)), ("dilation", 0), ("output_padding", -1), ("groups", 0), ("divisor_override", 0))):
        if argument not in inspect.signature(getattr(F, function)).parameters:
            continue
        with pytest.raises(ValueError, match=f"{function}: {argument} is"):
            calls[function](**{argument: value})
    for function, (argument, value) in itertools.product(calls, (
            ("kernel_size", 2.9), ("kernel_size", None), ("stride", 1.9), ("stride", (1, 1.0)), ("padding", "1"), ("padding", 0.5),
            ("padding", None), ("dilation", "same"), ("output_padding", 0.1), ("groups", 1.0))):
        if argument not in inspect.signature(getattr(F, function)).parameters:
            continue
        with pytest.raises(TypeError, match=f"{function}: {argument} is .*, expected a whole number"):
            calls[function](**{argument: value})
    for function, argument, value in itertools.product(calls, ("kernel_size", "stride", "padding", "dilation", "output_padding"),
                                                       ((), (1,), (1, 1, 1))):
        if argument not in inspect.signature(getattr(F, function)).parameters:
            continue
        with pytest.raises(ValueError, match=f"{function}: {argument} is .*, expected a number or two"):
            calls[function](**{argument: value})
    for size in ({"size": (10,)}, {"scale_factor": (2, 2, 2)}):
        with pytest.raises(ValueError, match=f"interpolate: {next(iter(size))} is .*, expected a number or two"):
            F.interpolate(x, **size)
    with pytest.raises(TypeError, match="interpolate: size is 10.5, expected a whole number"):
        F.interpolate(x, 10.5)
    assert F.max_pool2d(x, np.int64(2), stride=(np.int64(1), 2)).shape == (1, 4, 3, 4)
    for wrong, function in ((lambda: F.conv2d(x, w[:, :0]), "conv2d"), (lambda: F.conv_transpose2d(x, w[:, :, :0]), "conv_transpose2d")):
        with pytest.raises(ValueError, match=f"{function}: kernel_size is .*expected at least 1"):
            wrong()
    for array in (x.astype(np.float64), x.astype(np.uint8), "text"):
        with pytest.raises(TypeError, match="expected float32"):
            F.relu(array)
