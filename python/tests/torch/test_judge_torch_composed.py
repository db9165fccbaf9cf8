"""PyTorch in float64 judges what unmetal.nn.functional composes of several kernels: 300 random geometries of each.

A failure names the geometry; its seed is printed."""

import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as T  # noqa: E402

import torch_judge as judging  # noqa: E402
import unmetal.nn.functional as F  # noqa: E402
from torch_judge import draw, gamma, judge, judge_all, of_sums  # noqa: E402

pytestmark = pytest.mark.usefixtures("on_each_device")


def normal(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


def image(fields, height=8, width=8, channels=12):
    """Sizes of images in PyTorch's order."""
    return (fields.whole("images", 1, 3), fields.whole("channels", 1, channels), fields.whole("height", 1, height),
            fields.whole("width", 1, width))


@pytest.mark.parametrize("name", ["silu", "hardswish", "mish", "gelu", "hardtanh", "softplus"])
def test_activations(random, name):
    def trial(fields, random):
        shape = image(fields)[:fields.whole("axes", 1, 4)]
        arguments = {"gelu": lambda: {"approximate": fields.one_of("approximate", "none", "tanh")},
                     "hardtanh": lambda: {"min_val": fields.one_of("min_val", -1.0, -2.5), "max_val": fields.one_of("max_val", 1.0, 0.5)},
                     "softplus": lambda: {"beta": fields.one_of("beta", 1.0, 0.5, 2.0), "threshold": fields.one_of("threshold", 20.0, 2.0)},
                     }.get(name, dict)()
        # Away from kinks, which are multiples of 1 / 2.
        x = np.float32(fields.one_of("scale", 1, 4, 16)) * normal(random, *shape)
        x = np.where(np.abs(2 * x - np.round(2 * x)) < 1e-3, x + np.float32(0.01), x).astype(np.float32)

        def allowed(arrays, incoming):
            """Functions that grow no faster than their argument, of slopes up to 1.5, each of ten steps or fewer; steps of a
            gate are functions whose argument times slope is at most 1."""
            return [gamma(48) * (1 + np.abs(x)), gamma(64) * (1 + np.abs(x)) * np.abs(incoming)]

        return lambda: judge(getattr(F, name), getattr(F, name + "_backward"), functools.partial(getattr(T, name), **arguments),
                             allowed, [x], random, **arguments)

    judge_all(random, trial)


def test_adaptive_avg_pool2d(random):
    def trial(fields, random):
        shape, layout = image(fields), fields.layout()
        size = fields.choose("size", 1, lambda: (draw(random, 1, 9), draw(random, 1, 9)))
        theirs, taps = functools.partial(T.adaptive_avg_pool2d, output_size=size), shape[2] * shape[3]
        return lambda: judge(F.adaptive_avg_pool2d, F.adaptive_avg_pool2d_backward, theirs,
                             of_sums(theirs, [taps + 4, 16 * 81 + 4]), [normal(random, *shape)], random, layout, output_size=size)

    judge_all(random, trial)


def test_pixel_shuffle(random):
    def trial(fields, random):
        images, channels, height, width = image(fields, channels=4)
        factor, layout = fields.whole("factor", 1, 4), fields.layout()
        return lambda: judge(F.pixel_shuffle, F.pixel_shuffle_backward, functools.partial(T.pixel_shuffle, upscale_factor=factor),
                             lambda arrays, incoming: [0, 0], [normal(random, images, channels * factor ** 2, height, width)],
                             random, layout, upscale_factor=factor)

    judge_all(random, trial)


def test_grid_sample(random):
    def trial(fields, random):
        shape, layout = image(fields), fields.layout()
        size = fields.whole("result_height", 1, 6), fields.whole("result_width", 1, 6)
        arguments = {"mode": fields.one_of("mode", "bilinear", "nearest"),
                     "padding_mode": fields.one_of("padding_mode", "zeros", "border", "reflection"),
                     "align_corners": fields.one_of("align_corners", False, True)}
        grid = np.float32(fields.one_of("reach", 0.5, 1, 3)) * normal(random, shape[0], *size, 2)
        x = normal(random, *shape)
        wide = torch.tensor(grid, dtype=torch.float64)
        if arguments["mode"] == "nearest":  # where a position is half-way, float32 may take the other pixel
            pixels = np.array(shape[:1:-1])
            places = (grid + 1.0) / 2 * (pixels - 1) if arguments["align_corners"] else ((grid + 1.0) * pixels - 1) / 2
            if np.min(np.abs(places - np.floor(places) - 0.5)) < 1e-4:
                return None

        def judged():
            expected = T.grid_sample(torch.tensor(x, dtype=torch.float64), wide, **arguments).numpy()
            given = judging.last(x) if layout == "NHWC" else x
            found = F.grid_sample(given, grid, layout=layout, **arguments)
            # A position is off by some roundings of its size, or of that of the image, and so is a weight.
            largest = 4 + 2 * (1 + np.abs(grid).max()) * max(shape[2:])
            judging.assert_close("result", judging.first(found) if layout == "NHWC" else found, expected,
                                 gamma(16) * 4 * np.abs(x).max() * largest)

        return judged

    judge_all(random, trial)


def test_layer_norm(random):
    def trial(fields, random):
        shape = (*image(fields, height=4, width=4), fields.whole("last", 1, 6))
        sizes = shape[-fields.whole("normalized axes", 1, 4):]
        count, eps = int(np.prod(sizes)), fields.one_of("eps", 1e-5, 1e-3, 0.5)
        weights = [normal(random, *sizes) if fields.one_of(name, False, True) else None for name in ("weight", "bias")]
        if count == 1:
            return None
        rows = int(np.prod(shape)) // count

        def allowed(arrays, incoming):
            """That of a normalisation of [rows][count], one number after another."""
            flat = [None if array is None else array.reshape(-1) for array in arrays[1:]]
            found = judging.normalized_errors((2,), eps, count + rows + 32, shape=(1, count))(
                [arrays[0].reshape(rows, count, 1, 1), *flat], incoming.reshape(rows, count, 1, 1))
            return [found[0].reshape(shape), found[1].reshape(shape), found[2].reshape(sizes), found[3].reshape(sizes)]

        return lambda: judge(lambda x, w, b: F.layer_norm(x, sizes, w, b, eps),
                             lambda g, x, w, b: F.layer_norm_backward(g, x, sizes, w, b, eps),
                             lambda x, w, b: T.layer_norm(x, sizes, w, b, eps), allowed, [normal(random, *shape), *weights],
                             random)

    judge_all(random, trial)


def test_smooth_l1_loss(random):
    def trial(fields, random):
        shape, reduction = image(fields), fields.one_of("reduction", "mean", "sum", "none")
        beta = fields.one_of("beta", 1.0, 0.25, 2.0, 0.0)
        x, t = normal(random, *shape), normal(random, *shape)
        theirs = functools.partial(T.smooth_l1_loss, reduction=reduction, beta=beta)

        def allowed(arrays, incoming):
            size = (np.abs(arrays[0]) + np.abs(arrays[1])) * (1 + (0 if beta == 0 else 1 / beta)) * 2
            total = {"mean": size.mean(), "sum": size.sum(), "none": size}[reduction]
            share = np.abs(incoming) / (size.size if reduction == "mean" else 1)
            return [gamma(int(np.prod(shape)) + 16) * total, *[gamma(16) * share * (1 + size)] * 2]

        return lambda: judge(F.smooth_l1_loss, F.smooth_l1_loss_backward, theirs, allowed, [x, t], random, reduction=reduction,
                             beta=beta)

    judge_all(random, trial)


@pytest.mark.parametrize("name", ["binary_cross_entropy", "binary_cross_entropy_with_logits"])
def test_binary_cross_entropy(random, name):
    def trial(fields, random):
        shape, reduction = image(fields), fields.one_of("reduction", "mean", "sum", "none")
        repeats = fields.one_of("weight", None, True, False)
        weight = None if repeats is None else (random.random(shape[1:] if repeats else shape) + 0.25).astype(np.float32)
        x, t = normal(random, *shape), random.random(shape).astype(np.float32)
        if name == "binary_cross_entropy":
            x = (0.01 + 0.98 * random.random(shape)).astype(np.float32)
        theirs = functools.partial(getattr(T, name), weight=None if weight is None else torch.tensor(weight, dtype=torch.float64),
                                   reduction=reduction)

        def allowed(arrays, incoming):
            """1 - x is off by a rounding of 1; so is its logarithm by that over 1 - x, which is 0.01 or more."""
            size = (1 + np.abs(arrays[0])) * np.ones(shape) * (1 if weight is None else weight)
            size *= 101 if name == "binary_cross_entropy" else 1
            total = {"mean": size.mean(), "sum": size.sum(), "none": size}[reduction]
            share = np.abs(incoming) / (size.size if reduction == "mean" else 1) * size
            steep = 101 if name == "binary_cross_entropy" else 1
            return [gamma(int(np.prod(shape)) + 32) * total, gamma(32) * share * steep, gamma(32) * share * (1 + np.abs(arrays[0]))]

        return lambda: judge(getattr(F, name), getattr(F, name + "_backward"), theirs, allowed, [x, t], random, weight=weight,
                             reduction=reduction)

    judge_all(random, trial)


def test_binary_cross_entropy_of_certain_events():
    x = np.array([0, 1, 0, 1, 1e-30], np.float32)
    t = np.array([0, 1, 1, 0, 1], np.float32)
    tensors = [torch.tensor(array, requires_grad=True) for array in (x, t)]
    y = T.binary_cross_entropy(*tensors, reduction="sum")
    y.backward()
    assert np.allclose(F.binary_cross_entropy(x, t, reduction="sum"), y.item())
    dx, _ = F.binary_cross_entropy_backward(1.0, x, t, reduction="sum")
    assert np.allclose(dx, tensors[0].grad.numpy())
    for wrong in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match="binary_cross_entropy: input is a number outside 0 ... 1, or NaN"):
            F.binary_cross_entropy(np.array([wrong], np.float32), t[:1])


def test_nll_loss(random):
    def trial(fields, random):
        shape, layout = image(fields, height=4, width=4, channels=20), fields.layout()
        axes = fields.one_of("axes", 4, 2, 3, 1)
        shape = {1: shape[1:2], 2: shape[:2], 3: shape[:3], 4: shape}[axes]
        classes = shape[1] if axes > 1 else shape[0]
        weight = random.random(classes).astype(np.float32) + np.float32(0.25) if fields.one_of("weight", False, True) else None
        ignored, reduction = fields.one_of("ignore_index", -100, 0, 1), fields.one_of("reduction", "mean", "sum", "none")
        target = random.integers(0, classes, shape[:1] + shape[2:] if axes > 1 else ())
        if np.all(target == ignored) or np.any(target == 1) and classes == 1:
            return None
        arguments = {"ignore_index": ignored, "reduction": reduction}
        theirs = functools.partial(T.nll_loss, target=torch.tensor(target),
                                   weight=None if weight is None else torch.tensor(weight, dtype=torch.float64), **arguments)

        def allowed(arrays, incoming):
            size = np.abs(arrays[0]).max() * 2
            count = 1 if reduction == "none" else target.size
            return [gamma(16) * size * count, gamma(16) * 2 * np.abs(np.asarray(incoming)).max()]

        turned = axes >= 3 and layout == "NHWC"
        to, back = (lambda a: np.moveaxis(a, 1, -1), lambda a: np.moveaxis(a, -1, 1)) if turned else (lambda a: a, lambda a: a)
        return lambda: judge(lambda x: F.nll_loss(to(x), target, weight, layout=layout, **arguments),
                             lambda g, x: back(F.nll_loss_backward(g, to(x), target, weight, layout=layout, **arguments)),
                             theirs, allowed, [-np.abs(normal(random, *shape))], random)

    judge_all(random, trial)


def test_classes_that_do_not_exist():
    x = np.zeros((2, 3), np.float32)
    for function in (F.nll_loss, F.cross_entropy):
        with pytest.raises(ValueError, match="target is a class that does not exist, expected 0 ... 2"):
            function(x, np.array([0, 3]))
        assert np.isnan(function(x, np.array([-100, -100])))
        assert np.isfinite(function(x, np.array([-100, 1])))
