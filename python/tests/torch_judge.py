"""PyTorch in float64 as judge of unmetal.nn.functional: results and all gradients, within what float32 can do."""

import numpy as np
import torch

UNIT = np.finfo(np.float32).eps / 2  # the relative error of one rounding


def gamma(roundings):
    """The relative error of a number that so many roundings made."""
    return roundings * UNIT / (1 - roundings * UNIT)


def differentiated(function, arrays, incoming=None, random=None):
    """In float64: the result, dL/d(result) (given, or drawn, such as float32 has) and the gradients of the arrays."""
    tensors = [None if array is None else torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in arrays]
    result = function(*tensors)
    if incoming is None:
        incoming = random.standard_normal(tuple(result.shape)).astype(np.float32)
    result.backward(torch.tensor(np.asarray(incoming), dtype=torch.float64))
    gradients = [None if tensor is None else tensor.grad.numpy() for tensor in tensors]
    return result.detach().numpy(), np.asarray(incoming), gradients


def of_sums(function, roundings):
    """What sums of products may be off: so many roundings of the sum of the products' magnitudes, which is what the function
    makes of magnitudes. `roundings`: of the result and of each gradient."""

    def allowed(arrays, incoming):
        magnitudes = [None if array is None else np.abs(array) for array in arrays]
        result, _, gradients = differentiated(function, magnitudes, np.abs(incoming))
        return [None if found is None else gamma(count) * np.abs(found)
                for count, found in zip(roundings, [result, *gradients])]

    return allowed


def last(array):
    """PyTorch's order of axes, channels last."""
    return np.transpose(array, (0, 2, 3, 1)) if np.ndim(array) == 4 else array


def first(array):
    return np.transpose(array, (0, 3, 1, 2)) if np.ndim(array) == 4 else array


def assert_close(name, found, expected, allowed):
    found, expected = np.asarray(found, np.float64), np.asarray(expected)
    assert found.shape == expected.shape, f"{name}: shape {found.shape}, PyTorch's {expected.shape}"
    error = np.abs(found - expected)
    excess = error / np.maximum(np.broadcast_to(allowed, expected.shape), np.finfo(np.float32).tiny)
    excess = np.where(np.isnan(found), np.inf, np.where(found == expected, 0, excess))
    worst = np.unravel_index(np.argmax(excess), excess.shape) if excess.size else ()
    assert not excess.size or excess[worst] <= 1, (
        f"{name} at {tuple(map(int, worst))}: {found[worst]!r}, PyTorch's {expected[worst]!r}: {excess[worst]:.3g} times what "
        f"float32 explains")


def judge(ours, ours_backward, theirs, allowed, arrays, random, layout=None, orders=None, gradients=None, **arguments):
    """Compares the result and all gradients.

    ours, ours_backward: of unmetal.nn.functional; theirs: the same of PyTorch's tensors
    allowed(arrays, incoming): what result and gradients may be off, arrays of float64
    arrays: float32 or None, in PyTorch's order; layout None: of functions that have none
    orders: to our order and back, for arrays where these are not `last` and `first`
    gradients: how many of the arrays have one"""
    result, incoming, expected = differentiated(theirs, arrays, random=random)
    to, back = zip(*(orders or [(last, first)] * len(arrays)))
    if layout != "NHWC":
        to = back = [lambda array: array] * len(arrays)
    if layout is not None:
        arguments["layout"] = layout
    given = [None if array is None else convert(array) for convert, array in zip(to, arrays)]
    turn = last if layout == "NHWC" else lambda array: array
    again = first if layout == "NHWC" else lambda array: array
    found = ours(*given, **arguments)
    pulled = ours_backward(turn(incoming), *given, **arguments)
    pulled = pulled if isinstance(pulled, tuple) else (pulled,)
    errors = allowed([None if array is None else array.astype(np.float64) for array in arrays], incoming.astype(np.float64))
    assert_close("result", again(found), result, errors[0])
    count = len(arrays) if gradients is None else gradients
    assert len(pulled) == count
    for index in range(count):
        if arrays[index] is not None:
            assert_close(f"gradient {index}", back[index](pulled[index]), expected[index], errors[1 + index])


def normalized_errors(axes, epsilon, roundings, shape=None, statistics=None):
    """What normalisations may be off. x less the mean has the error of x, so that h = (x - mean) r is a number of magnitude
    H = (|x| + |mean|) r; the error of the variance adds a share of mean(H^2) of it.

    axes: over which mean and variance are; shape: of the parameters against x; statistics: constant ones"""

    def allowed(arrays, incoming):
        source, weight, bias = arrays
        parts = (len(source), -1, *source.shape[2:]) if shape is None else (len(source), *shape, *source.shape[2:])
        x, g = source.reshape(parts), np.abs(incoming).reshape(parts)
        ones = np.ones(source.shape[1])

        def of_channels(values):
            values = ones if values is None else np.abs(values)
            return values.reshape((1, -1, *[1] * (source.ndim - 2)) if shape is None else
                                  (1, *shape, *[1] * (source.ndim - 2)))

        if statistics is None:
            mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
        else:
            mean, variance = (of_channels(values) for values in statistics)
        root = 1 / np.sqrt(variance + epsilon)
        h = (np.abs(x) + np.abs(mean)) * root
        if statistics is None:
            h = h * (1 + (h ** 2).mean(axes, keepdims=True))
        scale = of_channels(weight)
        result = scale * h + (of_channels(bias) if bias is not None else 0)
        e = g * scale
        dx = root * e
        if statistics is None:
            spread = 1 + (h ** 2).mean(axes, keepdims=True)
            dx = spread * root * (e + e.mean(axes, keepdims=True) + h * (e * h).mean(axes, keepdims=True))
        pixels = (0, *range(2, source.ndim))
        dw, db = ((part * np.ones(x.shape)).reshape(source.shape).sum(pixels) for part in (g * h, g))
        error = gamma(roundings)
        return [error * part for part in (result.reshape(source.shape), dx.reshape(source.shape), dw, db)]

    return allowed
