"""PyTorch in float64 judges kernels that unmetal.nn.functional has no function of: 300 random geometries of each."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as T  # noqa: E402

import unmetal  # noqa: E402
from sources import Filters  # noqa: E402
from torch_judge import assert_close, differentiated, first, gamma, judge, judge_all, last, of_sums  # noqa: E402
from unmetal.nn._calls import Call, numbers, place  # noqa: E402


def normal(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


def image(fields):
    """Images, height, width, channels."""
    return tuple(fields.whole(name, 1, most) for name, most in (("images", 3), ("height", 9), ("width", 9), ("channels", 20)))


AXES = {"Row": 2, "Column": 1, "FeatureChannels": 3}
OPERATIONS = {"Sum": torch.sum, "Mean": torch.mean, "Max": torch.amax, "Min": torch.amin}


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_reductions(device, random, axis, operation):
    def trial(fields, random):
        shape = image(fields)
        theirs = lambda x: OPERATIONS[operation](x, AXES[axis], keepdim=True)  # noqa: E731
        reduced = tuple(1 if index == AXES[axis] else size for index, size in enumerate(shape))
        kernel = getattr(unmetal, f"NNReduce{axis}{operation}")(device)
        gradient = unmetal.NNReduceUnaryGradient(device, kernel.operation, kernel.axis)

        def pull(g, x):
            call = Call(kernel, [x], reduced)
            call.remember()
            return call.pull(gradient, g)

        def allowed(arrays, incoming):  # extremes are copied, and so are their gradients
            return [0, 0]

        if operation in ("Sum", "Mean"):
            allowed = of_sums(theirs, [shape[AXES[axis]] + 2, 2])
        return lambda: judge(lambda x: Call(kernel, [x], reduced).run(), pull, theirs, allowed, [normal(random, *shape)],
                             random)

    judge_all(random, trial)


@pytest.mark.parametrize("operation", ["ArgumentMin", "ArgumentMax"])
def test_places_of_extremes(device, random, operation):
    theirs = {"ArgumentMin": torch.argmin, "ArgumentMax": torch.argmax}[operation]

    def trial(fields, random):
        shape = image(fields)
        x = normal(random, *shape)  # of which no two are equal

        def judged():
            kernel = getattr(unmetal, f"NNReduceFeatureChannels{operation}")(device)
            expected = theirs(torch.tensor(x).double(), 3, keepdim=True)
            assert_close("result", Call(kernel, [x], (*shape[:3], 1)).run(), expected, 0)

        return judged

    judge_all(random, trial)


def test_means_of_images(device, random):
    def trial(fields, random):
        shape = image(fields)
        theirs = lambda x: x.mean((1, 2), keepdim=True)  # noqa: E731
        kernel = unmetal.NNReduceSpatialMean(device)
        gradient = unmetal.NNReduceUnaryGradient(device, kernel.operation, kernel.axis)

        def pull(g, x):
            call = Call(kernel, [x], (shape[0], 1, 1, shape[3]))
            call.remember()
            return call.pull(gradient, g)

        return lambda: judge(lambda x: Call(kernel, [x], (shape[0], 1, 1, shape[3])).run(), pull, theirs,
                             of_sums(theirs, [shape[1] * shape[2] + 2, 2]), [normal(random, *shape)], random)

    judge_all(random, trial)


@pytest.mark.parametrize("operation", ["Sum", "Mean"])
def test_weighted_reductions(device, random, operation):
    def trial(fields, random):
        shape = image(fields)
        x, w = normal(random, *shape), normal(random, *shape)

        def judged():
            kernel = getattr(unmetal, f"NNReduceFeatureChannelsAndWeights{operation}")(device)
            one, other = (torch.tensor(array).double() for array in (x, w))
            reduced = {"Sum": torch.sum, "Mean": torch.mean}[operation]
            found = Call(kernel, [x, w], (*shape[:3], 1)).run()
            assert_close("result", found, reduced(one * other, 3, keepdim=True),
                         gamma(shape[3] + 2) * reduced((one * other).abs(), 3, keepdim=True).numpy())

        return judged

    judge_all(random, trial)


def test_gram_matrices(device, random):
    def trial(fields, random):
        images, height, width, channels = image(fields)
        alpha = fields.one_of("alpha", 1.0, 0.5, -0.75)
        kernel, gradient = (made(device, alpha) for made in (unmetal.NNGramMatrixCalculation,
                                                             unmetal.NNGramMatrixCalculationGradient))
        size = images, 1, channels, channels

        def pull(g, x):
            call = Call(kernel, [x], size)
            call.remember()
            return call.pull(gradient, g)

        def products(factor):
            return lambda x: factor * torch.einsum("nyxf,nyxc->nfc", x, x)[:, None]

        return lambda: judge(lambda x: Call(kernel, [x], size).run(), pull, products(alpha),
                             of_sums(products(abs(alpha)), [height * width + 3, 2 * channels + 4]),
                             [normal(random, images, height, width, channels)], random)

    judge_all(random, trial)


def convolution(device, descriptor, weights, bias, stride, padding):
    """One of another descriptor than the functional layer's."""
    data = Filters(weights, bias)
    descriptor.stride_in_pixels_y, descriptor.stride_in_pixels_x = stride
    data.descriptor = descriptor
    kernel = unmetal.CNNConvolution(device, data)
    place(kernel, weights.shape[1:3], (1, 1), padding)
    return kernel, data


def window(fields):
    """Kernel, stride, padding, pixels of a source with room for a window, and of the result."""
    kernel, stride, padding = fields.pair("kernel", 1, 4), fields.pair("stride", 1, 3), fields.pair("padding", 0, 2)
    pixels = [max(1, taps - 2 * pad) + more for taps, pad, more in zip(kernel, padding, fields.pair("more", 0, 5))]
    size = [(count + 2 * pad - taps) // step + 1 for count, pad, taps, step in zip(pixels, padding, kernel, stride)]
    return kernel, stride, padding, pixels, size


def test_depth_wise_convolution(device, random):
    def trial(fields, random):
        images, channels, multiplier = (fields.whole(name, 1, most) for name, most in (
            ("images", 3), ("channels", 20), ("multiplier", 3)))
        kernel, stride, padding, pixels, size = window(fields)
        outputs = channels * multiplier
        arrays = [normal(random, images, channels, *pixels), normal(random, outputs, 1, *kernel), normal(random, outputs)]

        def call_of(x, w, b):
            descriptor = unmetal.CNNDepthWiseConvolutionDescriptor(kernel[1], kernel[0], channels, outputs)
            forward, data = convolution(device, descriptor, np.ascontiguousarray(w), b, stride, padding)
            return Call(forward, [x], (images, *size, outputs)), data

        def pull(g, x, w, b):
            call, data = call_of(x, w, b)
            call.remember()
            dx, state = call.pull(unmetal.CNNConvolutionGradient(device, data), g), call.states[0]
            return dx, numbers(state.gradient_for_weights, x, w.shape), numbers(state.gradient_for_biases, x)

        def theirs(x, w, b):
            return T.conv2d(x, w, b, stride, padding, groups=channels)

        taps, places = kernel[0] * kernel[1], images * size[0] * size[1]
        allowed = of_sums(theirs, [taps + 2, taps * multiplier + 2, places + 2, places + 2])

        def judged():
            expected, incoming, gradients = differentiated(theirs, arrays, random=random)
            given = [last(arrays[0]), last(arrays[1]), arrays[2]]
            bounds = allowed([array.astype(np.float64) for array in arrays], incoming.astype(np.float64))
            found = [first(call_of(*given)[0].run()), *map(first, pull(last(incoming), *given))]
            for name, ours, exact, bound in zip(("result", "dx", "dw", "db"), found, (expected, *gradients), bounds):
                assert_close(name, ours, exact, bound)

        return judged

    judge_all(random, trial)


def test_sub_pixel_convolution(device, random):
    def trial(fields, random):
        images, inputs, channels, factor = (fields.whole(name, 1, most) for name, most in (
            ("images", 3), ("inputs", 9), ("channels", 5), ("factor", 3)))
        kernel, stride, padding, pixels, size = window(fields)
        outputs = channels * factor ** 2
        x, w, b = normal(random, images, inputs, *pixels), normal(random, outputs, inputs, *kernel), normal(random, outputs)

        def theirs(x, w, b):
            plain = T.conv2d(x, w, b, stride, padding)
            # PyTorch's blocks are the fastest channels, ours the slowest.
            blocks = plain.reshape(images, factor ** 2, channels, *size).transpose(1, 2)
            return T.pixel_shuffle(blocks.reshape(plain.shape), factor)

        def judged():
            descriptor = unmetal.CNNSubPixelConvolutionDescriptor(kernel[1], kernel[0], inputs, outputs)
            descriptor.sub_pixel_scale_factor = factor
            forward, _ = convolution(device, descriptor, np.ascontiguousarray(last(w)), b, stride, padding)
            found = Call(forward, [last(x)], (images, *(factor * count for count in size), channels)).run()
            wide = [torch.tensor(array).double() for array in (x, w, b)]
            bound = gamma(kernel[0] * kernel[1] * inputs + 2) * theirs(*(tensor.abs() for tensor in wide))
            assert_close("result", first(found), theirs(*wide), bound.numpy())

        return judged

    judge_all(random, trial)


def test_grid_sample(device, random):
    def trial(fields, random):
        shape, size = image(fields), (fields.whole("result_height", 1, 6), fields.whole("result_width", 1, 6))
        border = fields.one_of("border", False, True)
        x, grid = normal(random, *shape), normal(random, shape[0], *size, 2)
        kernel = unmetal.NNGridSample(device)
        kernel.primary_edge_mode = unmetal.ImageEdgeMode.Clamp if border else unmetal.ImageEdgeMode.Zero

        def judged():
            expected = T.grid_sample(torch.tensor(x.transpose(0, 3, 1, 2)).double(), torch.tensor(grid).double(),
                                     padding_mode="border" if border else "zeros", align_corners=True)
            found = Call(kernel, [x, grid], (*shape[:1], *size, shape[3])).run()
            # Three roundings make a position of this size, and of it the weights of four pixels.
            places = (1 + np.abs(grid).max(axis=3, keepdims=True)) * (shape[1] + shape[2])
            allowed = gamma(8) * (1 + places) * np.abs(x).max(axis=(1, 2), keepdims=True)
            assert_close("result", found, expected.numpy().transpose(0, 2, 3, 1), allowed)

        return judged

    judge_all(random, trial)


LOSSES = {
    "MeanSquaredError": lambda y, t: T.mse_loss(y, t, reduction="sum"),
    "MeanAbsoluteError": lambda y, t: T.l1_loss(y, t, reduction="sum"),
    "Huber": lambda y, t: T.huber_loss(y, t, reduction="sum"),
    "SigmoidCrossEntropy": lambda y, t: T.binary_cross_entropy_with_logits(y, t, reduction="sum"),
    "SoftMaxCrossEntropy": lambda y, t: -(t * T.log_softmax(y, -1)).sum(),
    "KullbackLeiblerDivergence": lambda y, t: T.kl_div(y, t, reduction="sum"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradient_in_one_pass(device, queue, random, name):
    def trial(fields, random):
        height, width, channels = (fields.whole(side, 1, most) for side, most in (("height", 9), ("width", 9), ("channels", 20)))
        weight = fields.one_of("weight", 1.0, 0.5, 2.0, 0.25)
        predictions = normal(random, height, width, channels)
        targets = random.random((height, width, channels)) + 0.125
        targets = (targets / targets.sum(axis=2, keepdims=True)).astype(np.float32)
        descriptor = unmetal.CNNLossDescriptor(getattr(unmetal.CNNLossType, name), unmetal.CNNReductionType.Sum)
        descriptor.weight, descriptor.exact_soft_max_gradient = weight, True
        loss = unmetal.CNNLoss(device, descriptor)
        loss.destination_image_allocator = unmetal.Image.default_allocator()

        def judged():
            labels = unmetal.CNNLossLabels(device, targets)
            with queue.command_buffer() as command_buffer:
                gradient = loss.encode(command_buffer, unmetal.Image.from_array(device, predictions), labels)
            wide = torch.tensor(targets).double()
            expected, _, (slope,) = differentiated(lambda y: weight * LOSSES[name](y, wide), [predictions], np.float32(1))
            # Terms of an element: logarithms and squares of numbers no larger than these.
            size = 1 + np.abs(predictions) + np.abs(predictions).max(axis=2, keepdims=True) + np.log(channels)
            terms = weight * (targets + (name != "SoftMaxCrossEntropy")) * (
                size ** 2 if name == "MeanSquaredError" else size - np.log(targets))
            assert_close("loss", np.asarray(labels.loss_image).item(), expected, gamma(predictions.size + 32) * terms.sum())
            assert_close("gradient", gradient, slope, gamma(channels + 16) * weight * 2 * size)

        return judged

    judge_all(random, trial)
