"""PyTorch in float64 judges every kernel that it has an equal for: 300 random geometries of each, results and all gradients.

A failure names the geometry; its seed is printed."""

import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as T  # noqa: E402

import torch_judge as judging  # noqa: E402
import unmetal  # noqa: E402
import unmetal.nn.functional as F  # noqa: E402
from torch_judge import (UNDERFLOW, draw, gamma, judge, judge_all, local_response_errors,  # noqa: E402
                         of_sums)

pytestmark = pytest.mark.usefixtures("on_each_device")


def normal(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


def lengths(pixels, kernel, stride, dilation, padding):
    return [(size + 2 * pad - (taps - 1) * rate - 1) // step + 1
            for size, taps, step, rate, pad in zip(pixels, kernel, stride, dilation, padding)]


def fitting(fields, kernel, dilation, padding):
    """Pixels of a source that has room for a window."""
    more = fields.pair("more", 0, 4)
    return tuple(max(1, (taps - 1) * rate + 1 - 2 * pad) + rest
                 for taps, rate, pad, rest in zip(kernel, dilation, padding, more))


def test_conv2d(random):
    def trial(fields, random):
        images, groups = fields.whole("images", 1, 3), fields.whole("groups", 1, 3)
        inputs, outputs = fields.whole("inputs", 1, 5), fields.whole("outputs", 1, 5)
        kernel, stride, dilation = fields.pair("kernel", 1, 4), fields.pair("stride", 1, 3), fields.pair("dilation", 1, 3)
        padding = fields.pair("padding", 0, 3)
        pixels = fitting(fields, kernel, dilation, padding)
        has_bias, layout = fields.one_of("bias", False, True), fields.layout()
        arguments = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        theirs = functools.partial(T.conv2d, **arguments)
        arrays = [normal(random, images, inputs * groups, *pixels), normal(random, outputs * groups, inputs, *kernel),
                  normal(random, outputs * groups) if has_bias else None]
        taps, places = kernel[0] * kernel[1], images * np.prod(lengths(pixels, kernel, stride, dilation, padding))
        allowed = of_sums(theirs, [taps * inputs + 2, taps * outputs + 2, places + 2, places + 2])
        return lambda: judge(F.conv2d, F.conv2d_backward, theirs, allowed, arrays, random, layout, **arguments)

    judge_all(random, trial)


def transposed_orders(groups):
    """Of weights [in][out / groups][kH][kW] and OHWI."""
    def to(weight):
        inputs, outputs, height, width = weight.shape
        split = weight.reshape(groups, inputs // groups, outputs, height, width)
        return split.transpose(0, 2, 3, 4, 1).reshape(groups * outputs, height, width, inputs // groups)

    def back(weight):
        outputs, height, width, inputs = weight.shape
        split = weight.reshape(groups, outputs // groups, height, width, inputs)
        return split.transpose(0, 4, 1, 2, 3).reshape(groups * inputs, outputs // groups, height, width)

    return [(judging.last, judging.first), (to, back), (np.asarray, np.asarray)]


def test_conv_transpose2d(random):
    def trial(fields, random):
        images, groups = fields.whole("images", 1, 3), fields.whole("groups", 1, 3)
        inputs, outputs = fields.whole("inputs", 1, 5), fields.whole("outputs", 1, 5)
        kernel, stride, dilation = fields.pair("kernel", 1, 4), fields.pair("stride", 1, 3), fields.pair("dilation", 1, 3)
        padding, pixels = fields.pair("padding", 0, 3), (fields.whole("height", 1, 5), fields.whole("width", 1, 5))
        more = fields.pair("output_padding", 0, [max(pair) - 1 for pair in zip(stride, dilation)])
        has_bias, layout = fields.one_of("bias", False, True), fields.layout()
        size = [(count - 1) * step - 2 * pad + rate * (taps - 1) + 1 + rest
                for count, step, pad, rate, taps, rest in zip(pixels, stride, padding, dilation, kernel, more)]
        if min(size) < 1:
            return None
        arguments = {"stride": stride, "padding": padding, "output_padding": more, "dilation": dilation, "groups": groups}
        theirs = functools.partial(T.conv_transpose2d, **arguments)
        arrays = [normal(random, images, inputs * groups, *pixels), normal(random, inputs * groups, outputs, *kernel),
                  normal(random, outputs * groups) if has_bias else None]
        taps = kernel[0] * kernel[1]
        allowed = of_sums(theirs, [taps * inputs + 2, taps * outputs + 2, images * pixels[0] * pixels[1] + 2,
                                   images * size[0] * size[1] + 2])
        return lambda: judge(F.conv_transpose2d, F.conv_transpose2d_backward, theirs, allowed, arrays, random, layout,
                             transposed_orders(groups), **arguments)

    judge_all(random, trial)


def test_linear(random):
    def trial(fields, random):
        rows, inputs, outputs = fields.whole("rows", 1, 9), fields.whole("inputs", 1, 40), fields.whole("outputs", 1, 40)
        has_bias, more = fields.one_of("bias", False, True), fields.whole("axis", 1, 3)
        arrays = [normal(random, more, rows, inputs), normal(random, outputs, inputs),
                  normal(random, outputs) if has_bias else None]
        allowed = of_sums(T.linear, [inputs + 2, outputs + 2, rows * more + 2, rows * more + 2])
        return lambda: judge(F.linear, F.linear_backward, T.linear, allowed, arrays, random)

    judge_all(random, trial)


def window(fields, has_dilation=False, has_padding=True):
    """Kernel, stride, dilation, padding; and whether ceil_mode."""
    kernel = fields.pair("kernel", 1, 4)
    stride = fields.choose("stride", None, lambda: (draw(fields.random, 1, 3), draw(fields.random, 1, 3)))
    dilation = fields.pair("dilation", 1, 3) if has_dilation else (1, 1)
    padding = fields.pair("padding", 0, [size // 2 for size in kernel]) if has_padding else (0, 0)
    return kernel, stride, dilation, padding, fields.one_of("ceil_mode", False, True)


def test_max_pool2d(random):
    def trial(fields, random):
        kernel, stride, dilation, padding, ceil_mode = window(fields, True)
        pixels = fitting(fields, kernel, dilation, padding)
        shape = fields.whole("images", 1, 3), fields.whole("channels", 1, 9), *pixels
        layout, has_ties = fields.layout(), fields.one_of("ties", False, True)
        arguments = {"kernel_size": kernel, "stride": stride, "padding": padding, "dilation": dilation,
                     "ceil_mode": ceil_mode}
        theirs = functools.partial(T.max_pool2d, **arguments)
        x = random.integers(-2, 2, shape).astype(np.float32) if has_ties else normal(random, *shape)
        if not np.all(np.isfinite(theirs(torch.tensor(x)).numpy())):
            return None  # a window of padding alone

        def allowed(arrays, incoming):  # maxima are copied, gradients are sums
            _, _, (gradient,) = judging.differentiated(theirs, arrays, np.abs(incoming))
            return [0, gamma(kernel[0] * kernel[1]) * gradient]

        return lambda: judge(F.max_pool2d, F.max_pool2d_backward, theirs, allowed, [x], random, layout, **arguments)

    judge_all(random, trial)


def test_avg_pool2d(random):
    def trial(fields, random):
        kernel, stride, _, padding, ceil_mode = window(fields)
        pixels = fitting(fields, kernel, (1, 1), padding)
        shape = fields.whole("images", 1, 3), fields.whole("channels", 1, 9), *pixels
        arguments = {"kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil_mode,
                     "count_include_pad": fields.one_of("count_include_pad", True, False),
                     "divisor_override": fields.one_of("divisor_override", None, 1, 2, 3, 7)}
        layout = fields.layout()
        theirs, taps = functools.partial(T.avg_pool2d, **arguments), kernel[0] * kernel[1]
        return lambda: judge(F.avg_pool2d, F.avg_pool2d_backward, theirs, of_sums(theirs, [taps + 4, taps + 4]),
                             [normal(random, *shape)], random, layout, **arguments)

    judge_all(random, trial)


def test_lp_pool2d(random):
    def trial(fields, random):
        kernel, stride, _, _, ceil_mode = window(fields, has_padding=False)
        pixels = fitting(fields, kernel, (1, 1), (0, 0))
        shape = fields.whole("images", 1, 3), fields.whole("channels", 1, 9), *pixels
        arguments, layout = {"norm_type": 2, "kernel_size": kernel, "stride": stride, "ceil_mode": ceil_mode}, fields.layout()
        theirs, taps = functools.partial(T.lp_pool2d, **arguments), kernel[0] * kernel[1]
        return lambda: judge(F.lp_pool2d, F.lp_pool2d_backward, theirs, of_sums(theirs, [taps + 6, 2 * taps + 8]),
                             [normal(random, *shape)], random, layout, **arguments)

    judge_all(random, trial)


def image(fields, height=8, width=8, channels=12):
    """Sizes of images in PyTorch's order."""
    return (fields.whole("images", 1, 3), fields.whole("channels", 1, channels), fields.whole("height", 1, height),
            fields.whole("width", 1, width))


def parameters(fields, random, channels):
    return [normal(random, channels) if fields.one_of(name, False, True) else None for name in ("weight", "bias")]


def test_batch_norm(random):
    def trial(fields, random):
        shape, training = image(fields), fields.one_of("training", False, True)
        weights = parameters(fields, random, shape[1])
        eps, layout = fields.one_of("eps", 1e-5, 1e-3, 0.5), fields.layout()
        momentum = fields.one_of("momentum", 0.1, 0.5, 1.0)
        count = shape[0] * shape[2] * shape[3]
        if training and count == 1:
            return None
        running = [normal(random, shape[1]), np.abs(normal(random, shape[1])) + np.float32(0.25)]
        theirs_running = [torch.tensor(array, dtype=torch.float64) for array in running]
        ours_running = [array.copy() for array in running]
        arguments = {"training": training, "momentum": momentum, "eps": eps}
        x = normal(random, *shape)

        def theirs(x, weight, bias):
            return T.batch_norm(x, *theirs_running, weight, bias, **arguments)

        def ours(x, weight, bias, **rest):
            return F.batch_norm(x, *ours_running, weight, bias, **arguments, **rest)

        def backward(g, x, weight, bias, **rest):
            return F.batch_norm_backward(g, x, *ours_running, weight, bias, **arguments, **rest)

        def judged():
            allowed = judging.normalized_errors((0, 2, 3), eps, count + 32, statistics=None if training else running)
            judge(ours, backward, theirs, allowed, [x, *weights], random, layout)
            largest = np.abs(x).max() ** 2 * 2 + np.abs(running).max() + 1
            for found, expected in zip(ours_running, theirs_running):
                judging.assert_close("running statistics", found, expected.numpy(), gamma(count + 32) * largest)

        return judged

    judge_all(random, trial)


def test_instance_norm(random):
    def trial(fields, random):
        shape, eps, layout = image(fields), fields.one_of("eps", 1e-5, 1e-3, 0.5), fields.layout()
        weights, count = parameters(fields, random, shape[1]), shape[2] * shape[3]
        if count == 1:
            return None
        allowed = judging.normalized_errors((2, 3), eps, count * shape[0] + 32)
        return lambda: judge(
            lambda x, weight, bias, **rest: F.instance_norm(x, None, None, weight, bias, eps=eps, **rest),
            lambda g, x, weight, bias, **rest: F.instance_norm_backward(g, x, None, None, weight, bias, eps=eps, **rest),
            lambda x, weight, bias: T.instance_norm(x, weight=weight, bias=bias, eps=eps), allowed,
            [normal(random, *shape), *weights], random, layout)

    judge_all(random, trial)


def test_group_norm(random):
    def trial(fields, random):
        groups = fields.whole("groups", 1, 4)
        images, of_group, height, width = image(fields, channels=5)
        weights = parameters(fields, random, groups * of_group)
        eps, layout = fields.one_of("eps", 1e-5, 1e-3, 0.5), fields.layout()
        if of_group * height * width == 1:
            return None
        allowed = judging.normalized_errors((2, 3, 4), eps, of_group * height * width * images + 32, (groups, of_group))

        def theirs(x, weight, bias):  # PyTorch 1.13 fails where it has bias alone
            return T.group_norm(x, groups, torch.ones(groups * of_group).double() if weight is None else weight, bias, eps)

        return lambda: judge(
            lambda x, weight, bias, **rest: F.group_norm(x, groups, weight, bias, eps, **rest),
            lambda g, x, weight, bias, **rest: F.group_norm_backward(g, x, groups, weight, bias, eps, **rest),
            theirs, allowed, [normal(random, images, groups * of_group, height, width), *weights], random, layout)

    judge_all(random, trial)


def test_local_response_norm(random):
    def trial(fields, random):
        shape, layout = image(fields, height=4, width=4), fields.layout()
        arguments = {"size": fields.whole("size", 1, 7), "alpha": fields.one_of("alpha", 1e-4, 0.5, 2.0),
                     "beta": fields.one_of("beta", 0.75, 0.5, 1.0, 2.0), "k": fields.one_of("k", 1.0, 0.5, 2.0)}
        return lambda: judge(F.local_response_norm, F.local_response_norm_backward,
                             functools.partial(T.local_response_norm, **arguments), local_response_errors(**arguments),
                             [normal(random, *shape)], random, layout, **arguments)

    judge_all(random, trial)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(random, name):
    def trial(fields, random):
        shape, layout = image(fields, channels=40), fields.layout()
        scale = fields.one_of("scale", 1, 4, 16)

        def allowed(arrays, incoming):  # x - max is off by its own rounding, which exp makes a share of the result
            x, g = arrays[0], np.abs(incoming)
            spread = x.max(axis=1, keepdims=True) - x
            s = np.exp(-spread) / np.exp(-spread).sum(axis=1, keepdims=True)
            if name == "softmax":
                error = gamma(shape[1] + 16) * (1 + spread)
                most = error.max(axis=1, keepdims=True)
                return [error * s, (most * s + UNDERFLOW) * (g + 2 * (g * s).sum(axis=1, keepdims=True))]
            error = gamma(shape[1] + 16)
            return [error * (1 + spread + np.log(shape[1]) + np.abs(x)),
                    error * (g + s * (2 + 2 * spread + np.abs(x) + np.log(shape[1])) * g.sum(axis=1, keepdims=True))]

        return lambda: judge(getattr(F, name), getattr(F, name + "_backward"), lambda x: getattr(T, name)(x, 1), allowed,
                             [np.float32(scale) * normal(random, *shape)], random, layout)

    judge_all(random, trial)


# The function, and which of a, b, c it has; slopes are those of PReLU.
NEURONS = {
    "ReLU": (lambda x, a: torch.where(x >= 0, x, a * x), 1), "Linear": (lambda x, a, b: a * x + b, 2),
    "Sigmoid": (torch.sigmoid, 0), "HardSigmoid": (lambda x, a, b: torch.clamp(a * x + b, 0, 1), 2),
    "TanH": (lambda x, a, b: a * torch.tanh(b * x), 2), "Absolute": (torch.abs, 0),
    "SoftPlus": (lambda x, a, b: a * T.softplus(b * x, threshold=700), 2), "SoftSign": (T.softsign, 0),
    "ELU": (lambda x, a: T.elu(x, a), 1), "PReLU": (T.prelu, 0),
    "ReLUN": (lambda x, a, b: torch.minimum(torch.where(x >= 0, x, a * x), torch.full_like(x, b)), 2),
    "Power": (lambda x, a, b, c: torch.pow(a * x + b, c), 3),
    "Exponential": (lambda x, a, b, c: torch.exp(a * x + b) if c == -1 else torch.pow(torch.full_like(x, c), a * x + b), 3),
    "Logarithm": (lambda x, a, b, c: torch.log(a * x + b) / (1 if c == -1 else np.log(c)), 3), "GeLU": (T.gelu, 0),
}


@pytest.mark.parametrize("name", NEURONS)
def test_neurons(random, name):
    function, count = NEURONS[name]
    kind = getattr(unmetal.CNNNeuronType, name)

    def trial(fields, random):
        shape, layout = image(fields), fields.layout()
        standard = unmetal.NNNeuronDescriptor(kind)
        numbers = [fields.one_of(letter, getattr(standard, letter), 0.25, 0.5, 1.5, 2.0) for letter in "abc"[:count]]
        # No number is a place where a derivative jumps; products and sums with the parameters are exact.
        x = (2 * random.integers(-256, 256, shape) + 1).astype(np.float32) / 128
        if name in ("Power", "Logarithm"):
            x = np.abs(x)  # where the functions are defined
            if numbers[0] < 0 or numbers[1] < 0:
                return None
        descriptor, theirs = unmetal.NNNeuronDescriptor(kind, *numbers), lambda x: function(x, *numbers)
        if name == "PReLU":
            slopes = normal(random, shape[1])
            descriptor = unmetal.NNNeuronDescriptor.cnn_neuron_prelu_descriptor(slopes.tolist())
            theirs = lambda x: T.prelu(x, torch.tensor(slopes, dtype=torch.float64))  # noqa: E731

        def allowed(arrays, incoming):
            """What enters the function is off by its rounding, which the derivative makes an error of the result; and terms
            of the size of the parameters cancel."""
            x = torch.tensor(arrays[0], requires_grad=True)
            y = theirs(x)
            slope, = torch.autograd.grad(y.sum(), x, create_graph=True)
            bend = torch.autograd.grad(slope.sum(), x)[0] if slope.requires_grad else torch.zeros_like(x)
            y, slope, bend = (np.abs(part.detach().numpy(force=True)) for part in (y, slope, bend))
            inside = np.abs(arrays[0]) + (numbers[1] / numbers[0] if count >= 2 and numbers[0] else 0)
            size = 1 + sum(abs(number) for number in numbers)
            return [gamma(16) * (size * (1 + y) + inside * slope),
                    gamma(16) * np.abs(incoming) * (size * (1 + slope) + inside * bend)]

        return lambda: judge(F.neuron, F.neuron_backward, theirs, allowed, [x], random, layout, descriptor=descriptor)

    judge_all(random, trial)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_arithmetic(random, name):
    def trial(fields, random):
        shape, layout = image(fields), fields.layout()
        shapes = [[size if axis == 0 or not fields.one_of(f"{operand} repeats axis {axis}", False, True) else 1
                   for axis, size in enumerate(shape)] for operand in ("input", "other")]
        arguments = {"alpha": fields.one_of("alpha", 1, -1, 0.5, 3)} if name in ("add", "sub") else {}
        x, y = (normal(random, *own) for own in shapes)
        y = np.copysign(np.abs(y) + np.float32(0.25), y)
        theirs = functools.partial(getattr(torch, name), **arguments)
        magnitudes = (lambda x, y: x + abs(arguments["alpha"]) * y) if arguments else theirs
        terms = int(np.prod(shape)) + 3
        return lambda: judge(getattr(F, name), getattr(F, name + "_backward"), theirs, of_sums(magnitudes, [3, terms, terms]),
                             [x, y], random, layout, **arguments)

    judge_all(random, trial)


def test_cat(random):
    def trial(fields, random):
        images, height, width = fields.whole("images", 1, 3), fields.whole("height", 1, 8), fields.whole("width", 1, 8)
        parts = fields.choose("parts", (1, 1), lambda: tuple(draw(random, 1, 9) for _ in range(draw(random, 1, 5))))
        layout = fields.layout()
        return lambda: judge(lambda *tensors, **rest: F.cat(tensors, **rest),
                             lambda g, *tensors, **rest: F.cat_backward(g, tensors, **rest),
                             lambda *tensors: torch.cat(tensors, 1), lambda arrays, incoming: [0] * (1 + len(parts)),
                             [normal(random, images, channels, height, width) for channels in parts], random, layout)

    judge_all(random, trial)


def test_dropout(random):
    def trial(fields, random):
        shape, p, seed = image(fields), fields.one_of("p", 0.5, 0.1, 0.25, 0.9), fields.one_of("seed", 0, 1, 2, 3)
        mask = torch.tensor(F.dropout(np.ones(shape, np.float32), p, seed=seed) != 0)
        theirs = lambda x: x * mask / (1 - p)  # noqa: E731
        return lambda: judge(F.dropout, F.dropout_backward, theirs, of_sums(theirs, [4, 4]), [normal(random, *shape)], random,
                             p=p, seed=seed)

    judge_all(random, trial)


def test_interpolate_nearest(random):
    def trial(fields, random):
        shape, factors, layout = image(fields), fields.pair("factor", 1, 4), fields.layout()
        theirs = functools.partial(T.interpolate, scale_factor=tuple(map(float, factors)))
        terms = factors[0] * factors[1]
        return lambda: judge(F.interpolate, F.interpolate_backward, theirs, of_sums(theirs, [0, terms]),
                             [normal(random, *shape)], random, layout, scale_factor=factors)

    judge_all(random, trial)


def test_pad(random):
    def trial(fields, random):
        shape, layout = image(fields), fields.layout()
        mode = fields.one_of("mode", "constant", "constant", "reflect", "replicate")
        value = fields.one_of("value", None, 0.5, -2.0) if mode == "constant" else None
        most = [size - 1 if mode == "reflect" else 3 for size in shape[:1:-1]]
        pad = tuple(fields.whole(side, 0, most[index // 2]) for index, side in enumerate(("left", "right", "top", "bottom")))
        theirs = lambda x: T.pad(x, pad, mode, *([value or 0.0] if mode == "constant" else []))  # noqa: E731
        magnitudes = lambda x: T.pad(x, pad, mode, *([abs(value or 0.0)] if mode == "constant" else []))  # noqa: E731
        terms = np.prod([before + after + 1 for before, after in (pad[:2], pad[2:])])
        return lambda: judge(F.pad, F.pad_backward, theirs, of_sums(magnitudes, [0, int(terms)]), [normal(random, *shape)],
                             random, layout, pad=pad, mode=mode, value=value)

    judge_all(random, trial)


@pytest.mark.parametrize("is_whole", [True, False])
def test_interpolate_bilinear(random, is_whole):
    def trial(fields, random):
        shape, layout, align = image(fields), fields.layout(), fields.one_of("align_corners", False, True)
        if is_whole:
            size = [pixels * factor for pixels, factor in zip(shape[2:], fields.pair("factor", 1, 4))]
        else:
            size = fields.whole("result_height", 1, 12), fields.whole("result_width", 1, 12)
        theirs = functools.partial(T.interpolate, size=tuple(size), mode="bilinear", align_corners=align)

        def neighbours(pixels, count):
            """Which source pixels weigh in each result pixel, or would if its position were a little off."""
            places = np.arange(count)[:, None]
            places = (places * ((pixels - 1) / max(count - 1, 1)) if align else
                      np.clip((places + 0.5) * pixels / count - 0.5, 0, pixels - 1))
            return (np.abs(places - np.arange(pixels)) <= 1 + gamma(4) * pixels).astype(float)

        def allowed(arrays, incoming):  # three roundings make a position within the source, and so of each weight
            rows, columns = (neighbours(*counts) for counts in zip(shape[2:], size))
            error = gamma(4 * (shape[2] + shape[3]) + int(rows.sum(axis=0).max() * columns.sum(axis=0).max()) + 8)
            return [error * (rows @ np.abs(arrays[0]) @ columns.T), error * (rows.T @ np.abs(incoming) @ columns)]

        return lambda: judge(F.interpolate, F.interpolate_backward, theirs, allowed, [normal(random, *shape)], random, layout,
                             size=size, mode="bilinear", align_corners=align)

    judge_all(random, trial)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss", "binary_cross_entropy_with_logits"])
def test_losses(random, name):
    def trial(fields, random):
        shape, reduction = image(fields), fields.one_of("reduction", "mean", "sum", "none")
        arguments = {"delta": fields.one_of("delta", 1.0, 0.25, 2.0)} if name == "huber_loss" else {}
        arguments["reduction"] = reduction
        x, t = normal(random, *shape), random.random(shape).astype(np.float32)
        theirs = functools.partial(getattr(T, name), **arguments)
        terms = int(np.prod(shape)) + 16

        def allowed(arrays, incoming):
            x, t = np.abs(arrays[0]), np.abs(arrays[1])
            size = (x + t) ** 2 if name == "mse_loss" else (1 + x + t) * (1 + arguments.get("delta", 0))
            total = {"mean": size.mean(), "sum": size.sum(), "none": size}[reduction]
            share = np.abs(incoming) / (size.size if reduction == "mean" else 1)
            slope = 2 * (x + t) + 1
            return [gamma(terms) * total, *[gamma(16) * share * slope * (1 + arguments.get("delta", 0))] * 2]

        return lambda: judge(getattr(F, name), getattr(F, name + "_backward"), theirs, allowed, [x, t], random, **arguments)

    judge_all(random, trial)


def test_cross_entropy(random):
    def trial(fields, random):
        shape, layout = image(fields, height=4, width=4, channels=20), fields.layout()
        classes, weighs = shape[1], fields.one_of("weight", False, True)
        weight = random.random(classes).astype(np.float32) + np.float32(0.25) if weighs else None
        has_indices, ignored = fields.one_of("indices", True, False), fields.one_of("ignore_index", -100, 0, 1)
        arguments = {"reduction": fields.one_of("reduction", "mean", "sum", "none"),
                     "label_smoothing": fields.one_of("label_smoothing", 0.0, 0.1, 0.5)}
        if has_indices:
            target = random.integers(0, classes, (shape[0], *shape[2:]))
            if np.all(target == ignored):
                return None
            arguments["ignore_index"] = ignored
            ours_target = target
        else:
            target = normal(random, *shape)
            target = np.exp(target) / np.exp(target).sum(axis=1, keepdims=True)
            ours_target = judging.last(target) if layout == "NHWC" else target
        wide = torch.tensor(target) if has_indices else torch.tensor(target, dtype=torch.float64)
        theirs = lambda x: T.cross_entropy(  # noqa: E731
            x, wide, None if weight is None else torch.tensor(weight, dtype=torch.float64), **arguments)
        x = normal(random, *shape)

        def allowed(arrays, incoming):
            """A pixel: sum of w_c t_c (spread_c + log of a sum); its gradient: softmax times sum of w t, less w t."""
            spread = x.astype(np.float64).max(axis=1, keepdims=True) - x
            s = np.exp(-spread) / np.exp(-spread).sum(axis=1, keepdims=True)
            t = np.moveaxis(np.eye(classes)[target], -1, 1) if has_indices else target
            t = t * (1 - arguments["label_smoothing"]) + arguments["label_smoothing"] / classes
            wt = t * (np.ones(classes) if weight is None else weight).reshape(1, -1, 1, 1)
            kept = (target != ignored)[:, None] if has_indices else np.ones((1, 1, 1, 1))
            loss = (wt * kept * (1 + spread + np.abs(x) + np.log(classes))).sum(axis=1)
            counted = kept.sum() if has_indices else x[:, 0].size
            if has_indices and weighs:
                counted = (weight[target] * kept[:, 0]).sum()
            counted = counted if arguments["reduction"] == "mean" else 1
            slope = kept * (s * (1 + spread + spread.max()) * wt.sum(axis=1, keepdims=True) + wt)
            share = np.abs(incoming) / counted
            return [gamma(classes + loss.size + 32) * (loss if arguments["reduction"] == "none" else loss.sum() / counted),
                    gamma(classes + 32) * slope * (share[:, None] if share.ndim else share)]

        def ours(x, **rest):
            return F.cross_entropy(x, ours_target, weight, **arguments, **rest)

        def backward(g, x, **rest):
            return F.cross_entropy_backward(g, x, ours_target, weight, **arguments, **rest)

        return lambda: judge(ours, backward, theirs, allowed, [x], random, layout)

    judge_all(random, trial)
