"""PyTorch in float64 as judge of unmetal.nn.functional: results and all gradients, within what float32 can do."""

import numpy as np
import torch

UNIT = np.finfo(np.float32).eps / 2  # the relative error of one rounding
UNDERFLOW = np.finfo(np.float32).tiny  # what is smaller may become 0


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
    excess = error / np.maximum(np.broadcast_to(allowed, expected.shape), UNDERFLOW)
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
    """What normalisations may be off, in roundings of h = (x - mean) r, r = 1 / sqrt(variance + epsilon). x - mean is off by a
    share of |x| + |mean|, h by that times r; the variance, and with it r, by the mean of |h| times that.

    axes: over which mean and variance are; shape: of the parameters against x; statistics: constant ones"""

    def allowed(arrays, incoming):
        source, weight, bias = arrays
        parts = (len(source), *(shape or source.shape[1:2]), *source.shape[2:])
        x, pixels = source.reshape(parts), (0, *range(2, source.ndim))

        def of_channels(values):
            return np.abs(values).reshape(1, *(shape or source.shape[1:2]), *[1] * (source.ndim - 2))

        def mean_of(values):
            return values.mean(axes, keepdims=True) if statistics is None else np.zeros((1,) * len(parts))

        if statistics is None:
            mean, variance = mean_of(x), x.var(axes, keepdims=True)
        else:
            mean, variance = (values.reshape(1, -1, *[1] * (source.ndim - 2)) for values in statistics)
        root = 1 / np.sqrt(variance + epsilon)
        h, off = np.abs(x - mean) * root, (np.abs(x) + np.abs(mean)) * root
        of_root = 1 + mean_of(h * off)
        off = off + h * of_root
        scale = of_channels(np.ones(source.shape[1]) if weight is None else weight)
        g = np.abs(incoming).reshape(parts)
        e = g * scale
        result = scale * off + (0 if bias is None else of_channels(bias))
        dx = root * (of_root * (e + mean_of(e) + h * mean_of(e * h)) + off * mean_of(e * h) + h * mean_of(e * off))
        sums = ((part * np.ones(x.shape)).reshape(source.shape).sum(pixels) for part in (g * off, g))
        return [gamma(roundings) * part for part in (result.reshape(source.shape), dx.reshape(source.shape), *sums)]

    return allowed


def local_response_errors(size, alpha=1e-4, beta=0.75, k=1.0):
    """What local response normalisation, x t^-beta with t = k + alpha / size (sum of x^2 in the window), may be off. Its
    gradient is a difference, g t^-beta - 2 alpha beta / size x (sum of g x t^(-beta - 1)): each side is off by its own size."""

    def allowed(arrays, incoming):
        x, g = np.abs(arrays[0]), np.abs(incoming)

        def summed(values, before):
            padded = np.pad(values, [(0, 0), (before, size - 1 - before), (0, 0), (0, 0)])
            return sum(padded[:, start:start + values.shape[1]] for start in range(size))

        t = k + alpha / size * summed(x ** 2, size // 2)
        seen = summed(g * x * t ** (-beta - 1), (size - 1) // 2)
        error = gamma((size + 8) * (beta + 1) + 16)
        return [error * x * t ** -beta, error * (g * t ** -beta + 2 * alpha * beta / size * x * seen)]

    return allowed


GEOMETRIES = 300  # of each kernel


def draw(random, low, high):
    """Low or above, up to high, both included."""
    return int(random.integers(low, high + 1))


class Fields(dict):
    """A geometry under way: values by name; each is its default or drawn."""

    def __init__(self, random):
        super().__init__()
        self.random, self.defaults = random, {}

    def __getattr__(self, name):
        return self[name]

    def choose(self, name, default, made):
        """made(): another value; the default where there is none."""
        self.defaults[name] = default
        self[name] = made() if self.random.random() < 0.7 else default
        return self[name]

    def whole(self, name, default, high):
        return self.choose(name, default, lambda: draw(self.random, min(default + 1, high), max(default, high)))

    def one_of(self, name, default, *others):
        return self.choose(name, default, lambda: others[draw(self.random, 0, len(others) - 1)])

    def pair(self, name, default, high):
        """(y, x), two fields."""
        high = (high, high) if np.ndim(high) == 0 else high
        return self.whole(f"{name}_y", default, high[0]), self.whole(f"{name}_x", default, high[1])

    def layout(self):
        return self.one_of("layout", "NHWC", "NCHW")


def judge_all(random, trial):
    """Draws geometries until 300 distinct ones were judged; each field is away from its default in a fifth of them or more.

    trial(fields, random): draws the geometry and returns what judges it, or None where PyTorch does not define a result"""
    seen, away = set(), {}
    for _ in range(20 * GEOMETRIES):
        fields = Fields(random)
        judging = trial(fields, random)
        key = tuple(fields.items())
        if judging is None or key in seen:
            continue
        seen.add(key)
        try:
            judging()
        except Exception as error:
            raise AssertionError(f"geometry {len(seen)}, {dict(fields)}: {error}") from error
        for name, value in fields.items():
            away[name] = away.get(name, 0) + (value != fields.defaults[name])
        if len(seen) == GEOMETRIES:
            break
    assert len(seen) == GEOMETRIES
    assert all(5 * count >= GEOMETRIES for count in away.values()), away
